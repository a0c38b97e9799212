"""Folders and files of a root as open handles. An `OpenFolder` stays the same folder if
it is moved.

Has a twin, `folder_handles_windows.py`; `workspace_roots.py` uses the one that fits the system.
"""

# ruff: noqa: PTH115, PTH116 -- this is about handles, not about paths

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from helix_desktop.atomic_files import MOST_OPEN_FILE, MOST_OPEN_FOLDER
from helix_desktop.errors import ActionRefused
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.safe_path_opening import (
    DIRECTORY,
    choose_opener,
    closing_handle,
    open_without_links,
    stat_or_none,
)

_SYSTEM_FOLDERS = ("/proc", "/sys")
_OPEN_ROOT = DIRECTORY | getattr(os, "O_CLOEXEC", 0)
_MACOS_GET_PATH = 50  # The number of F_GETPATH.


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """An open folder. All names are entries of it."""

    handle: int

    def list_entries(self) -> list[tuple[str, os.stat_result | None]]:
        """Return the entries' names with their properties, or None for one that has
        been removed since.
        """
        with os.scandir(self.handle) as entries:
            return [(entry.name, stat_or_none(entry)) for entry in entries]

    def stat_entry(self, name: str) -> os.stat_result:
        """Return the properties of the entry itself, not of a link's target."""
        return os.stat(name, dir_fd=self.handle, follow_symlinks=False)

    def read_link(self, name: str) -> str:
        return os.readlink(name, dir_fd=self.handle)

    def create_folder(self, name: str) -> None:
        os.mkdir(name, MOST_OPEN_FOLDER, dir_fd=self.handle)

    def create_link(self, target: str, name: str) -> None:
        os.symlink(target, name, dir_fd=self.handle)

    def delete_entry(self, name: str) -> None:
        os.unlink(name, dir_fd=self.handle)

    def create_file(self, name: str) -> int:
        """Create a new file and return a handle for writing to it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, MOST_OPEN_FILE, dir_fd=self.handle)

    def replace_entry(self, old_name: str, new_name: str) -> None:
        """Replace one entry by another, and sync the folder."""
        os.rename(old_name, new_name, src_dir_fd=self.handle, dst_dir_fd=self.handle)
        os.fsync(self.handle)

    def move_to_new_name(self, old_name: str, new_name: str) -> None:
        """Rename an entry to a new name and sync the folder. Raises FileExistsError if
        the name is taken.
        """
        os.link(
            old_name,
            new_name,
            src_dir_fd=self.handle,
            dst_dir_fd=self.handle,
            follow_symlinks=False,
        )
        os.unlink(old_name, dir_fd=self.handle)
        os.fsync(self.handle)


@contextmanager
def open_folder(
    root: Path, path_in_root: str, *, follows_links: bool = True
) -> Iterator[OpenFolder]:
    """Open a folder within a root. Raises OSError with EXDEV for a path that leads out, or with
    ELOOP for a link that is not to be followed.
    """
    folder_handle = _open_inside_root(root, path_in_root, DIRECTORY, follows_links=follows_links)
    with closing_handle(folder_handle) as handle:
        yield OpenFolder(handle)


@contextmanager
def open_file(root: Path, path_in_root: str, *, follows_links: bool = True) -> Iterator[int]:
    """Yield a handle for reading a file, or for looking at a folder, within a root."""
    file_handle = _open_inside_root(root, path_in_root, os.O_RDONLY, follows_links=follows_links)
    with closing_handle(file_handle) as handle:
        yield handle


def _open_inside_root(root: Path, path_in_root: str, flags: int, *, follows_links: bool) -> int:
    open_path = choose_opener()
    if not follows_links:
        open_path = open_without_links
    path_or_root_itself = path_in_root or "."
    with closing_handle(os.open(root, _OPEN_ROOT)) as root_handle:
        return open_path(root_handle, path_or_root_itself, flags)


def real_path(handle: int) -> Path | None:
    """Return where an open handle really is, if known. Raises ActionRefused for a
    mounted /proc or /sys.
    """
    device = os.fstat(handle).st_dev
    for folder in _SYSTEM_FOLDERS:
        if device == _device_mounted_at(folder):
            raise ActionRefused(f"Tools cannot use files that belong to {folder}.")
    if sys.platform == "darwin":
        import fcntl

        path_buffer = fcntl.fcntl(handle, _MACOS_GET_PATH, bytes(1024))
        return Path(os.fsdecode(path_buffer.rstrip(b"\0")))
    with suppress(OSError):
        return Path(os.readlink(f"/proc/self/fd/{handle}"))
    return None


def _device_mounted_at(folder: str) -> int | None:
    """Return the device of what is mounted at a folder, or None if nothing is."""
    with suppress(OSError):
        device = os.stat(folder).st_dev
        # An ordinary folder is on the same device as the root: files there may be anybody's.
        if device != os.stat("/").st_dev:
            return device
    return None


def set_file_mode(handle: int, mode: int) -> None:
    """Give a new file the mode of the one it replaces."""
    os.fchmod(handle, stat.S_IMODE(mode))
