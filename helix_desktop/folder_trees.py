"""Lists and deletes what is below a folder, to any depth. It does not know what the files are for.

A command can nest folders deeper than Python can recurse and than a path can be long. The standard
library's `rmtree`, `walk` and `rglob` fail at the first of these depths.
"""

import errno
import fnmatch
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_HAS_HANDLES = {
    os.open,
    os.rename,
    os.rmdir,
    os.unlink,
} <= os.supports_dir_fd and os.scandir in os.supports_fd


def list_tree_files(
    folder: Path,
    pattern: str = "*",
    on_error: Callable[[OSError], object] = lambda _: None,
    on_folder: Callable[[str], object] = lambda _: None,
) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files and links below a folder with their own properties, in no particular order.

    Links are not followed. `on_error` receives an error for each file and folder that
    could not be read, `on_folder` each folder before it is listed.
    """
    waiting = [os.fspath(folder)]
    while waiting:
        on_folder(listed := waiting.pop())
        try:
            with os.scandir(listed) as found:
                entries = list(found)
        except OSError as error:
            on_error(error)
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif fnmatch.fnmatchcase(entry.name, pattern):
                    yield Path(entry.path), entry.stat(follow_symlinks=False)
            except OSError as error:
                on_error(error)


def delete_folder_tree(folder: Path, *, ignore_errors: bool = False) -> None:
    """Delete a folder and everything in it, also what is read-only. Links are not followed.

    Whatever can be deleted is deleted. Then the first error is raised, unless errors
    are to be ignored.
    """
    if not _HAS_HANDLES:
        shutil.rmtree(folder, ignore_errors=ignore_errors)
        return
    errors: list[OSError] = []
    try:
        _allow_changes(os.fspath(folder), None)
        with _open_folder(os.fspath(folder), None) as top:
            _empty_folder(top, errors)
        folder.rmdir()
    except OSError as error:
        errors.append(error)
    if errors and not ignore_errors:
        raise errors[0]


def _empty_folder(top: int, errors: list[OSError]) -> None:
    """Go down and up again with one open handle. Stop if a folder on the way up is not
    the one it was.
    """
    handle, names = os.dup(top), list[str]()  # The names lead from the top folder to the open one.
    levels = [
        (_identify(top), _delete_files(top, errors))
    ]  # For each folder on the way: what it is, and its folders.
    try:
        while levels[-1][1] or names:
            try:
                if levels[-1][1]:
                    name = levels[-1][1].pop()
                    handle = _exchange_handle(handle, name)
                    names.append(name)
                    levels.append((_identify(handle), _delete_files(handle, errors)))
                    continue
                levels.pop()
                handle = _exchange_handle(handle, "..")
                if _identify(handle) != levels[-1][0]:
                    errors.append(OSError(errno.ESTALE, os.strerror(errno.ESTALE), names[-1]))
                    return
                os.rmdir(names.pop(), dir_fd=handle)
            except OSError as error:
                errors.append(error)
    finally:
        os.close(handle)


def _exchange_handle(handle: int, name: str) -> int:
    inner = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=handle)
    os.close(handle)
    return inner


def _identify(handle: int) -> tuple[int, int]:
    about = os.fstat(handle)
    return about.st_dev, about.st_ino


def _delete_files(handle: int, errors: list[OSError]) -> list[str]:
    """Delete the files and links in an open folder. Return the names of its folders,
    which can now be changed.
    """
    folders = []
    with os.scandir(handle) as found:
        entries = list(found)
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                _allow_changes(entry.name, handle)
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=handle)
        except OSError as error:
            errors.append(error)
    return folders


def _allow_changes(name: str, within: int | None) -> None:
    """Let the owner change a folder. The folder is held open, so that nobody can put a
    link in its place.
    """
    with _open_folder(name, within, getattr(os, "O_PATH", os.O_RDONLY)) as handle:
        os.chmod(f"/proc/self/fd/{handle}" if hasattr(os, "O_PATH") else handle, 0o700)  # noqa: PTH101 -- an open handle


@contextmanager
def _open_folder(name: str, within: int | None, access: int = os.O_RDONLY) -> Iterator[int]:
    handle = os.open(name, access | _FOLDER, dir_fd=within)
    try:
        yield handle
    finally:
        os.close(handle)
