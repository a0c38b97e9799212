"""Putting one name in a folder to another state, in a way that never loses what somebody else put there meanwhile.

What is new is whole and synced before it has a name. It changes places with what is there (renameat2), and only then is looked at what came
out: if that is not what was expected, the two change back.
"""

from __future__ import annotations

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

from helix_desktop.engine.changes.tree import Item, Kind
from helix_desktop.tools.changes.walk import STAMP

_NOREPLACE, _EXCHANGE = 1, 2
_NAMED_LATER = getattr(os, "O_TMPFILE", 0)
_PATH = getattr(os, "O_PATH", 0)
_PIECE = 1 << 20
_SIMPLE = (errno.ENOSYS, errno.EINVAL)  # a system, or a file system, without renameat2


class Changed(Exception):
    """What stands there is not what was expected; it was left as it is."""


def beside() -> str:
    return f".helix-undo-{token_hex(8)}"


def new_file(folder: int) -> tuple[int, str]:
    """A file to be written, without a name where the file system can do that; else with one of ours."""
    if _NAMED_LATER:
        with suppress(OSError):
            return os.open(".", _NAMED_LATER | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder), ""
    name = beside()
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(name, flags, 0o600, dir_fd=folder), name


def named(folder: int, handle: int, name: str) -> str:
    """The name under which a new file lies beside its place."""
    if name:
        return name
    name = beside()
    os.link(f"/proc/self/fd/{handle}", name, dst_dir_fd=folder, follow_symlinks=True)
    return name


def put(folder: int, name: str, new: str, expected: Item | None, digest: bytes) -> None:
    """Let `new`, which lies beside it, take the place of `name`. `digest`: the SHA-256 of the expected file."""
    try:
        if expected is None:
            _rename(folder, new, name, _NOREPLACE)
            return
        _rename(folder, new, name, _EXCHANGE)
    except OSError as error:
        _remove(folder, new)
        if error.errno in (errno.EEXIST, errno.ENOENT):
            raise Changed(name) from error
        raise
    if is_as(folder, new, expected, digest):
        _remove(folder, new)
        return
    _rename(folder, new, name, _EXCHANGE)
    _remove(folder, new)
    raise Changed(name)


def remove(folder: int, name: str, expected: Item, digest: bytes) -> None:
    """Take away what is expected there; a folder only where it is empty."""
    if expected.kind is Kind.FOLDER:
        os.rmdir(name, dir_fd=folder)
        return
    aside = beside()
    try:
        _rename(folder, name, aside, _NOREPLACE)
    except FileNotFoundError:
        return
    if is_as(folder, aside, expected, digest):
        _remove(folder, aside)
        return
    _rename(folder, aside, name, _NOREPLACE)
    raise Changed(name)


def set_mode(folder: int, name: str, mode: int, kind: Kind) -> None:
    """Of the entry itself; Changed where it is of another kind by now."""
    handle = os.open(name, _PATH | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), dir_fd=folder)
    try:
        if kind_of(os.fstat(handle)) is not kind and kind is not Kind.TWIN:
            raise Changed(name)
        os.chmod(f"/proc/self/fd/{handle}" if _PATH else handle, mode)  # noqa: PTH101 -- of the handle
    finally:
        os.close(handle)


def is_as(folder: int, name: str, expected: Item, digest: bytes) -> bool:
    """Whether an entry is what was expected, to the byte."""
    try:
        st = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind = kind_of(st)
        if expected.kind is Kind.OTHER and expected.content:
            return _is_as_stamped(st, expected.content)
        if kind is Kind.LINK and expected.kind is Kind.LINK:
            return os.fsencode(os.readlink(name, dir_fd=folder)) == expected.content
        if kind is not Kind.FILE or expected.kind not in (Kind.FILE, Kind.TWIN):
            return kind is expected.kind
        if st.st_size != expected.size or stat.S_IMODE(st.st_mode) != expected.mode:
            return False
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(name, flags, dir_fd=folder)
    except OSError:
        return False
    try:
        return hashed(handle) == digest
    finally:
        os.close(handle)


def _is_as_stamped(st: os.stat_result, stamp: bytes) -> bool:
    """A file that was not read is known by its stamp. The time of its inode is another one since it was moved aside."""
    inode, changed, _, mode, size = STAMP.unpack(stamp)
    return bool((st.st_ino, st.st_mtime_ns, st.st_mode, st.st_size) == (inode, changed, mode, size))


def content_of(folder: int, name: str) -> bytes | str:
    """The SHA-256 of a file; where a link leads; nothing for the rest."""
    kind = kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    if kind is Kind.LINK:
        return os.readlink(name, dir_fd=folder)
    if kind is not Kind.FILE:
        return ""
    handle = os.open(name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), dir_fd=folder)
    try:
        return hashed(handle)
    finally:
        os.close(handle)


def hashed(handle: int) -> bytes:
    found = hashlib.sha256()
    while piece := os.read(handle, _PIECE):
        found.update(piece)
    return found.digest()


def kind_of(st: os.stat_result) -> Kind:
    kinds = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.FOLDER, stat.S_IFLNK: Kind.LINK}
    return kinds.get(stat.S_IFMT(st.st_mode), Kind.OTHER)


def _remove(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=folder)


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _rename(folder: int, old: str, new: str, flags: int) -> None:
    call = _renameat2()
    if call is not None:
        if call(folder, os.fsencode(old), folder, os.fsencode(new), flags) == 0:
            return
        code = ctypes.get_errno()
        if code not in _SIMPLE:
            raise OSError(code, os.strerror(code), new)
    _rename_simply(folder, old, new, flags)


def _rename_simply(folder: int, old: str, new: str, flags: int) -> None:
    """The same in several steps, where the system has no call for it."""
    if flags == _NOREPLACE:
        with suppress(FileNotFoundError):
            os.stat(new, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)
        return
    aside = beside()
    os.rename(new, aside, src_dir_fd=folder, dst_dir_fd=folder)
    os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)
    os.rename(aside, old, src_dir_fd=folder, dst_dir_fd=folder)
