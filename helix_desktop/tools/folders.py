"""Folders and files of a root as open handles: what is done in a `Folder` is done in that very folder, wherever it is now.

The twin of `folders_windows.py`; `confine.py` uses the one that fits the system.
"""

# ruff: noqa: PTH115, PTH116 -- this is about handles, not about paths

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from helix_desktop.errors import Refused
from helix_desktop.tools import beneath
from helix_desktop.values import dataclass

_SYSTEM = ("/proc", "/sys")
_FOLDER = beneath.DIRECTORY | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True)
class Folder:
    """An open folder; every name is one of its own entries."""

    handle: int

    def entries(self) -> list[tuple[str, os.stat_result | None]]:
        """Names, with what they are; None for what has gone meanwhile."""
        with os.scandir(self.handle) as found:
            return [(entry.name, _stat(entry)) for entry in found]

    def stat(self, name: str) -> os.stat_result:
        """Of the entry itself, not of what a link leads to."""
        return os.stat(name, dir_fd=self.handle, follow_symlinks=False)

    def link(self, name: str) -> str:
        return os.readlink(name, dir_fd=self.handle)

    def make(self, name: str) -> None:
        os.mkdir(name, dir_fd=self.handle)

    def make_link(self, target: str, name: str) -> None:
        os.symlink(target, name, dir_fd=self.handle)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self.handle)

    def create(self, name: str) -> int:
        """A handle for writing to a file that was not there."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o666, dir_fd=self.handle)

    def rename(self, old: str, new: str) -> None:
        """Put one entry in the place of another, and have that on the disk."""
        os.rename(old, new, src_dir_fd=self.handle, dst_dir_fd=self.handle)
        os.fsync(self.handle)


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    with suppress(OSError):
        return entry.stat(follow_symlinks=False)
    return None


@contextmanager
def folder(root: Path, inside: str) -> Iterator[Folder]:
    """A folder beneath a root; OSError with EXDEV for what leads out."""
    handle = _open(root, inside, beneath.DIRECTORY)
    try:
        yield Folder(handle)
    finally:
        os.close(handle)


@contextmanager
def file(root: Path, inside: str) -> Iterator[int]:
    """A handle for reading a file (or looking at a folder) beneath a root."""
    handle = _open(root, inside, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def _open(root: Path, inside: str, flags: int) -> int:
    start = os.open(root, _FOLDER)
    try:
        return beneath.open_beneath()(start, inside or ".", flags)
    finally:
        os.close(start)


def real(handle: int) -> Path | None:
    """Where an open handle really is, as far as the system says. Refused for a mounted /proc or /sys."""
    device = os.fstat(handle).st_dev
    for system in _SYSTEM:
        with suppress(OSError):
            if os.stat(system).st_dev == device != os.stat("/").st_dev:
                raise Refused(f"Tools can't use files that belong to {system}.")
    if sys.platform == "darwin":
        import fcntl

        found = fcntl.fcntl(handle, 50, bytes(1024))  # F_GETPATH
        return Path(os.fsdecode(found.rstrip(b"\0")))
    with suppress(OSError):
        return Path(os.readlink(f"/proc/self/fd/{handle}"))
    return None


def set_mode(handle: int, mode: int) -> None:
    """Give a new file the mode of the one whose place it takes."""
    os.fchmod(handle, stat.S_IMODE(mode))
