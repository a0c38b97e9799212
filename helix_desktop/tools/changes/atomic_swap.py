"""Replaces an entry of a folder without ever losing what somebody else put there meanwhile.

New content is complete and synced before it has a name. It is exchanged with the
existing entry (renameat2), and only then is the old entry examined: if it is not what
was expected, the two are exchanged back.
"""

import ctypes
import errno
import functools
import hashlib
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.tools.changes.folder_walk import STAMP
from helix_desktop.tools.safe_path_opening import closing_handle

_NOREPLACE = 1
_EXCHANGE = 2
_CREATE_UNNAMED = getattr(os, "O_TMPFILE", 0)
_PATH = getattr(os, "O_PATH", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_READ_WITHOUT_LINKS = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0)
_PIECE = 1 << 20
# The errors of systems and file systems without renameat2.
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL)


class ChangedMeanwhile(Exception):
    """The entry is not what was expected. It was left as it is."""


def temporary_name() -> str:
    return f".helix-undo-{token_hex(8)}"


def create_unnamed_file(folder: int) -> tuple[int, str]:
    """Create a file to write to, nameless if the file system allows that, or else with
    a temporary name.
    """
    if _CREATE_UNNAMED:
        with suppress(OSError):
            flags = _CREATE_UNNAMED | os.O_RDWR | os.O_CLOEXEC
            return os.open(".", flags, 0o600, dir_fd=folder), ""
    name = temporary_name()
    flags_for_new_name = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK
    return os.open(name, flags_for_new_name, 0o600, dir_fd=folder), name


def ensure_file_has_name(folder: int, handle: int, name: str) -> str:
    """Return the temporary name of a new file, which gets one if it has none yet."""
    if name:
        return name
    name = temporary_name()
    os.link(f"/proc/self/fd/{handle}", name, dst_dir_fd=folder, follow_symlinks=True)
    return name


def swap_into_place(
    folder: int, name: str, new_name: str, expected: TreeItem | None, expected_digest: bytes
) -> None:
    """Put `new_name`, a file beside it, in the place of `name`, which must be as `expected` (None:
    there must be nothing). `expected_digest`: the SHA-256 of the expected file. Raises
    ChangedMeanwhile if it is something else, which then stays.
    """
    try:
        if expected is None:
            _rename_with_flags(folder, new_name, name, _NOREPLACE)
            return
        _rename_with_flags(folder, new_name, name, _EXCHANGE)
    except OSError as error:
        _remove_entry_if_there(folder, new_name)
        if error.errno in (errno.EEXIST, errno.ENOENT):
            raise ChangedMeanwhile(name) from error
        raise
    # After the exchange, the new name leads to what was there before.
    if is_as_expected(folder, new_name, expected, expected_digest):
        _remove_entry_if_there(folder, new_name)
        return
    # Somebody else has changed it meanwhile, so it gets its name back.
    _rename_with_flags(folder, new_name, name, _EXCHANGE)
    _remove_entry_if_there(folder, new_name)
    raise ChangedMeanwhile(name)


def remove_if_expected(folder: int, name: str, expected: TreeItem, expected_digest: bytes) -> None:
    """Remove the entry if it is what was expected. A folder must be empty.

    The entry is moved aside first and examined there, so that nobody can change it between the
    examination and the removal.
    """
    if expected.kind is PathKind.FOLDER:
        os.rmdir(name, dir_fd=folder)
        return
    name_aside = temporary_name()
    try:
        _rename_with_flags(folder, name, name_aside, _NOREPLACE)
    except FileNotFoundError:
        return
    if is_as_expected(folder, name_aside, expected, expected_digest):
        _remove_entry_if_there(folder, name_aside)
        return
    _rename_with_flags(folder, name_aside, name, _NOREPLACE)
    raise ChangedMeanwhile(name)


def set_entry_mode(folder: int, name: str, mode: int, kind: PathKind) -> None:
    """Set the mode of the entry itself. Raises ChangedMeanwhile if it is of another kind by now."""
    with closing_handle(os.open(name, _PATH | _NO_LINK, dir_fd=folder)) as handle:
        if kind_of_entry(os.fstat(handle)) is not kind and kind is not PathKind.TWIN:
            raise ChangedMeanwhile(name)
        os.chmod(f"/proc/self/fd/{handle}" if _PATH else handle, mode)  # noqa: PTH101 -- of the handle


def is_as_expected(folder: int, name: str, expected: TreeItem, expected_digest: bytes) -> bool:
    """Whether an entry is still what it was, by its kind and then, as far as there is any, by
    its stamp, its link's target, or its size, mode and content.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind = kind_of_entry(status)
        if expected.kind is PathKind.OTHER and expected.content:
            return _matches_stamp(status, expected.content)
        if expected.kind is PathKind.LINK:
            return os.fsencode(os.readlink(name, dir_fd=folder)) == expected.content
        if kind is not PathKind.FILE or expected.kind not in (PathKind.FILE, PathKind.TWIN):
            return kind is expected.kind
        if status.st_size != expected.size or stat.S_IMODE(status.st_mode) != expected.mode:
            return False
        handle = os.open(name, _READ_WITHOUT_LINKS, dir_fd=folder)
    except OSError:
        return False
    with closing_handle(handle):
        return hash_open_file(handle) == expected_digest


def _matches_stamp(status: os.stat_result, stamp: bytes) -> bool:
    """Compare an unread file with its stamp, except the time of its inode, which moving
    it has changed.
    """
    inode, modified_ns, _, mode, size = STAMP.unpack(stamp)
    is_same_file = status.st_ino == inode and status.st_mode == mode
    is_same_content = status.st_mtime_ns == modified_ns and status.st_size == size
    return bool(is_same_file and is_same_content)


def read_digest_or_link_target(folder: int, name: str) -> bytes | str:
    """Return a file's SHA-256, a link's target, or nothing for other entries."""
    kind = kind_of_entry(os.stat(name, dir_fd=folder, follow_symlinks=False))
    if kind is PathKind.LINK:
        return os.readlink(name, dir_fd=folder)
    if kind is not PathKind.FILE:
        return ""
    with closing_handle(os.open(name, _READ_WITHOUT_LINKS, dir_fd=folder)) as handle:
        return hash_open_file(handle)


def hash_open_file(handle: int) -> bytes:
    digest = hashlib.sha256()
    piece = os.read(handle, _PIECE)
    while piece:
        digest.update(piece)
        piece = os.read(handle, _PIECE)
    return digest.digest()


def kind_of_entry(status: os.stat_result) -> PathKind:
    kinds = {
        stat.S_IFREG: PathKind.FILE,
        stat.S_IFDIR: PathKind.FOLDER,
        stat.S_IFLNK: PathKind.LINK,
    }
    return kinds.get(stat.S_IFMT(status.st_mode), PathKind.OTHER)


def _remove_entry_if_there(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=folder)


@functools.cache
def _find_renameat2() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _rename_with_flags(folder: int, old_name: str, new_name: str, flags: int) -> None:
    rename = _find_renameat2()
    if rename is not None:
        if rename(folder, os.fsencode(old_name), folder, os.fsencode(new_name), flags) == 0:
            return
        code = ctypes.get_errno()
        if code not in _NOT_SUPPORTED:
            raise OSError(code, os.strerror(code), new_name)
    _rename_in_steps(folder, old_name, new_name, flags)


def _rename_in_steps(folder: int, old_name: str, new_name: str, flags: int) -> None:
    """Rename in several steps, where the system has no single call for it."""
    if flags == _NOREPLACE:
        with suppress(FileNotFoundError):
            os.stat(new_name, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name)
        os.rename(old_name, new_name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    # Exchange the two. For a moment, neither has its name, which `renameat2` avoids.
    name_aside = temporary_name()
    os.rename(new_name, name_aside, src_dir_fd=folder, dst_dir_fd=folder)
    os.rename(old_name, new_name, src_dir_fd=folder, dst_dir_fd=folder)
    os.rename(name_aside, old_name, src_dir_fd=folder, dst_dir_fd=folder)
