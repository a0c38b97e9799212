"""Opens a path within a folder and never leaves it, even if the folder changes meanwhile.

Checking a path and opening it afterwards is a race that a symlink swapper often wins. So
nothing is checked: the kernel resolves the path and refuses to leave (openat2), or, without
it, we go from one directory handle to the next and never let the kernel follow a link. Both
ways follow relative links that stay inside, and raise OSError with EXDEV for what leads out.
"""

import ctypes
import errno
import functools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

OpenWithinFolder = Callable[[int, str, int], int]
DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)

_OPENAT2 = 437  # The number of the system call openat2, which is the same on all architectures.
_NO_MAGICLINKS = 0x02
_NO_LINKS = 0x04
_BENEATH = 0x08
_MOST_LINKS = 40
_MOST_TRIES = 64
_FLAGS_OF_EVERY_OPENING = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_NONBLOCK", 0)
)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_by_kernel(folder: int, path: str, flags: int, resolve_flags: int = 0) -> int:
    """Call openat2 with RESOLVE_BENEATH. Retry after EAGAIN, which means a rename is in
    progress.
    """
    open_how = _OpenHow(
        flags | _FLAGS_OF_EVERY_OPENING, 0, _BENEATH | _NO_MAGICLINKS | resolve_flags
    )
    for _ in range(_MOST_TRIES):
        handle = _load_libc().syscall(
            _OPENAT2, folder, os.fsencode(path), ctypes.byref(open_how), ctypes.sizeof(open_how)
        )
        if handle >= 0:
            return int(handle)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EXDEV, "the path is being changed while it is opened", path)


def open_by_steps(folder: int, path: str, flags: int) -> int:
    """Open without openat2: one component at a time. Links are read and followed by us;
    `..` goes back.

    `open_folders` are the folders from the first one to where we are. The parts of a link's target
    come next, before the rest of the path.
    """
    open_folders = [os.dup(folder)]
    parts_to_open = deque(path.split("/"))
    link_count = 0
    try:
        while parts_to_open:
            part = parts_to_open.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                if len(open_folders) == 1:
                    raise OSError(errno.EXDEV, "leads out of the folder", path)
                os.close(open_folders.pop())
                continue
            part_flags = flags
            if parts_to_open:
                part_flags = DIRECTORY
            try:
                handle = _open_component(part, open_folders[-1], part_flags)
            except OSError as error:
                # It may be a link, which was not followed. Its parts come next.
                link_count += 1
                link_parts = _read_link_parts(part, open_folders[-1], error, link_count)
                parts_to_open.extendleft(reversed(link_parts))
            else:
                open_folders.append(handle)
        return open_folders.pop()
    finally:
        for handle in open_folders:
            os.close(handle)


def open_without_links(folder: int, path: str, flags: int) -> int:
    """Open a path in which no part may be a link. Raises OSError with ELOOP or ENOTDIR
    for a link.
    """
    if choose_opener() is open_by_kernel:
        return open_by_kernel(folder, path, flags | os.O_NOFOLLOW, _NO_LINKS)
    handle = os.dup(folder)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        os.close(handle)
        raise OSError(errno.EXDEV, "leads out of the folder", path)
    for number, part in enumerate(parts, 1):
        part_flags = DIRECTORY
        if number == len(parts):
            part_flags = flags
        with closing_handle(handle):
            next_handle = _open_component(part, handle, part_flags)
        handle = next_handle
    return handle


def _open_component(part: str, folder: int, flags: int) -> int:
    return os.open(part, flags | _FLAGS_OF_EVERY_OPENING | os.O_NOFOLLOW, dir_fd=folder)


def _read_link_parts(part: str, folder: int, error: OSError, link_count: int) -> list[str]:
    """Return the components of the link `part`. If it is no link, raise the given error."""
    if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        raise error
    try:
        target = os.readlink(part, dir_fd=folder)
    except OSError:
        raise error from None
    if link_count > _MOST_LINKS:
        raise OSError(errno.ELOOP, "too many links", part)
    if target.startswith("/"):
        raise OSError(errno.EXDEV, "leads out of the folder", part)
    return target.split("/")


@functools.cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@contextmanager
def closing_handle(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


def stat_or_none(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of the entry itself, or None if it has been removed."""
    with suppress(OSError):
        return entry.stat(follow_symlinks=False)
    return None


def write_to_handle(handle: int, content: bytes) -> None:
    with open(handle, "wb", closefd=False) as file:
        file.write(content)


@functools.cache
def choose_opener() -> OpenWithinFolder:
    """Return the best way that this system has. Containers forbid openat2 with EPERM;
    old kernels lack it.
    """
    if not sys.platform.startswith("linux"):
        return open_by_steps
    folder = os.open("/", DIRECTORY)
    try:
        os.close(open_by_kernel(folder, ".", DIRECTORY))
    except OSError:
        return open_by_steps
    finally:
        os.close(folder)
    return open_by_kernel
