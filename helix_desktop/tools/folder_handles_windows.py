"""The twin of `folder_handles.py` for Windows. While a folder is open here, nobody can replace it.

Neither it nor a folder above it can be renamed or removed. GetFinalPathNameByHandle returns where a
handle really is, with links and junctions resolved. A place outside the root is refused with EXDEV,
and so are names of devices and streams (`CON`, `a:b`) and names that Windows would shorten.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.safe_path_opening import closing_handle, stat_or_none

if sys.platform == "win32":
    import msvcrt
    from ctypes import wintypes

    _READ = 0x80000000
    _LIST = 0x0001
    _SHARE_READ = 1
    _SHARE_WRITE = 2
    _SHARE_DELETE = 4
    _OPEN_EXISTING = 3
    _BACKUP_SEMANTICS = 0x02000000
    _DEVICES = frozenset(
        {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
    )

    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel.CreateFileW.restype = wintypes.HANDLE
    _kernel.CreateFileW.argtypes = [
        wintypes.LPCWSTR, wintypes.DWORD, wintypes.DWORD, wintypes.LPVOID, wintypes.DWORD,
        wintypes.DWORD, wintypes.HANDLE,
    ]  # fmt: skip
    _kernel.GetFinalPathNameByHandleW.argtypes = [
        wintypes.HANDLE,
        wintypes.LPWSTR,
        wintypes.DWORD,
        wintypes.DWORD,
    ]
    _kernel.CloseHandle.argtypes = [wintypes.HANDLE]

    @dataclass(frozen=True, slots=True)
    class OpenFolder:
        """A folder that is held in its place. All names are entries of it."""

        path: Path

        def list_entries(self) -> list[tuple[str, os.stat_result | None]]:
            with os.scandir(self.path) as found:
                return [(entry.name, stat_or_none(entry)) for entry in found]

        def stat_entry(self, name: str) -> os.stat_result:
            return (self.path / _require_plain_name(name)).stat(follow_symlinks=False)

        def read_link(self, name: str) -> str:
            return str((self.path / _require_plain_name(name)).readlink())

        def create_folder(self, name: str) -> None:
            (self.path / _require_plain_name(name)).mkdir()

        def create_link(self, target: str, name: str) -> None:
            (self.path / _require_plain_name(name)).symlink_to(target)

        def delete_entry(self, name: str) -> None:
            (self.path / _require_plain_name(name)).unlink()

        def create_file(self, name: str) -> int:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_BINARY | os.O_NOINHERIT
            return os.open(self.path / _require_plain_name(name), flags, 0o666)

        def replace_entry(self, old: str, new: str) -> None:
            (self.path / _require_plain_name(old)).replace(self.path / _require_plain_name(new))

        def move_to_new_name(self, old: str, new: str) -> None:
            (self.path / _require_plain_name(old)).rename(self.path / _require_plain_name(new))

    def _require_plain_name(name: str) -> str:
        """Return a plain name. Raises OSError for a name that Windows would take for
        something else.
        """
        stem = name.partition(".")[0].strip().lower()
        is_folder_itself = name in {"", ".", ".."}
        has_special_character = not set('\\/:*?"<>|').isdisjoint(name)
        # Windows leaves out blanks and dots at the end.
        is_shortened = name.endswith((" ", "."))
        if is_folder_itself or has_special_character or is_shortened or stem in _DEVICES:
            raise OSError(errno.EXDEV, "no plain name", name)
        return name

    @contextmanager
    def open_folder(
        root: Path, path_in_root: str, *, follows_links: bool = True
    ) -> Iterator[OpenFolder]:
        """Open a folder within a root. Windows follows a link that stays inside, whatever
        `follows_links` says.
        """
        del follows_links
        with _open_handle_inside(root, path_in_root, _LIST, _SHARE_READ | _SHARE_WRITE) as (
            _,
            path,
        ):
            if not path.is_dir():
                raise OSError(errno.ENOTDIR, "no folder", path_in_root)
            yield OpenFolder(path)

    @contextmanager
    def open_file(root: Path, path_in_root: str, *, follows_links: bool = True) -> Iterator[int]:
        """Open a file for reading. After opening, it is checked once more that the file is
        inside the root, as somebody may have replaced it in between.
        """
        del follows_links
        share = _SHARE_READ | _SHARE_WRITE | _SHARE_DELETE
        flags = os.O_RDONLY | os.O_BINARY | os.O_NOINHERIT
        with _open_handle_inside(root, path_in_root, _READ, share) as (_, path):
            if path.is_dir():
                raise OSError(errno.EISDIR, "a folder", path_in_root)
            with closing_handle(os.open(path, flags)) as handle:
                opened_path = _final_path(msvcrt.get_osfhandle(handle))
                if not _is_beneath_root(opened_path, root):
                    raise OSError(errno.EXDEV, "leads out of the folder", path_in_root)
                yield handle

    @contextmanager
    def _open_handle_inside(
        root: Path, inside: str, access: int, share: int
    ) -> Iterator[tuple[int, Path]]:
        """Yield an open handle and the real path of what it opened. A path that leads out of `root`
        through a link is refused: this is checked after opening, so it cannot change any more.
        """
        for part in filter(None, inside.split("/")):
            _require_plain_name(part)
        handle = _kernel.CreateFileW(
            str(root / inside), access, share, None, _OPEN_EXISTING, _BACKUP_SEMANTICS, None
        )
        if handle == wintypes.HANDLE(-1).value:
            raise ctypes.WinError(ctypes.get_last_error())
        try:
            path = _final_path(handle)
            if not _is_beneath_root(path, root):
                raise OSError(errno.EXDEV, "leads out of the folder", inside)
            yield handle, path
        finally:
            _kernel.CloseHandle(handle)

    def _final_path(handle: int) -> Path:
        name = ctypes.create_unicode_buffer(32_768)
        if not _kernel.GetFinalPathNameByHandleW(handle, name, len(name), 0):
            raise ctypes.WinError(ctypes.get_last_error())
        return Path(name.value.removeprefix("\\\\?\\UNC\\").removeprefix("\\\\?\\"))

    def _is_beneath_root(path: Path, root: Path) -> bool:
        base = os.path.normcase(root.resolve())
        return os.path.normcase(path) == base or os.path.normcase(path).startswith(base + os.sep)

    def real_path(handle: int) -> Path | None:
        return _final_path(msvcrt.get_osfhandle(handle))

    def set_file_mode(handle: int, mode: int) -> None:
        """Do nothing: on Windows, rights come from the folder."""
