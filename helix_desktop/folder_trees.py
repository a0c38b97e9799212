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

from helix_desktop.fast_dataclass import dataclass

_FOLDER_FLAGS = (
    getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_WITHIN_OPEN_FOLDER = {os.open, os.rename, os.rmdir, os.unlink}
_CAN_WORK_IN_OPEN_FOLDERS = (
    os.supports_dir_fd >= _WITHIN_OPEN_FOLDER and os.scandir in os.supports_fd
)


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
    folders_to_list = [os.fspath(folder)]
    while folders_to_list:
        listed_folder = folders_to_list.pop()
        on_folder(listed_folder)
        try:
            with os.scandir(listed_folder) as iterator:
                entries = list(iterator)
        except OSError as error:
            on_error(error)
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders_to_list.append(entry.path)
                elif fnmatch.fnmatchcase(entry.name, pattern):
                    yield Path(entry.path), entry.stat(follow_symlinks=False)
            except OSError as error:
                on_error(error)


def delete_folder_tree(folder: Path, *, ignore_errors: bool = False) -> None:
    """Delete a folder and everything in it, also what is read-only. Links are not followed.

    Whatever can be deleted is deleted. Then the first error is raised, unless errors
    are to be ignored.
    """
    if not _CAN_WORK_IN_OPEN_FOLDERS:
        shutil.rmtree(folder, ignore_errors=ignore_errors)
        return
    errors: list[OSError] = []
    try:
        _allow_changes(os.fspath(folder), None)
        with _open_folder(os.fspath(folder), None) as top_handle:
            _empty_folder(top_handle, errors)
        folder.rmdir()
    except OSError as error:
        errors.append(error)
    if errors and not ignore_errors:
        raise errors[0]


def _empty_folder(top_handle: int, errors: list[OSError]) -> None:
    """Go down and up again with one open handle. Stop if a folder on the way up is not
    the one it was.
    """
    handle = os.dup(top_handle)
    folders_on_way = [_FolderOnWay("", _identify(top_handle), _delete_files(top_handle, errors))]
    try:
        while True:
            current = folders_on_way[-1]
            is_at_top = len(folders_on_way) == 1
            if is_at_top and not current.folders_left:
                return
            try:
                if current.folders_left:
                    name = current.folders_left.pop()
                    handle = _exchange_handle(handle, name)
                    folder_below = _FolderOnWay(
                        name, _identify(handle), _delete_files(handle, errors)
                    )
                    folders_on_way.append(folder_below)
                    continue
                folders_on_way.pop()
                handle = _exchange_handle(handle, "..")
                # Somebody may have moved the folder meanwhile, so that ".." is another one.
                if _identify(handle) != folders_on_way[-1].identity:
                    errors.append(OSError(errno.ESTALE, os.strerror(errno.ESTALE), current.name))
                    return
                os.rmdir(current.name, dir_fd=handle)
            except OSError as error:
                errors.append(error)
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class _FolderOnWay:
    """A folder between the top one and the open one, with its folders that are still there."""

    name: str
    identity: tuple[int, int]
    folders_left: list[str]


def _exchange_handle(handle: int, name: str) -> int:
    new_handle = os.open(name, os.O_RDONLY | _FOLDER_FLAGS, dir_fd=handle)
    os.close(handle)
    return new_handle


def _identify(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino


def _delete_files(handle: int, errors: list[OSError]) -> list[str]:
    """Delete the files and links in an open folder. Return the names of its folders,
    which can now be changed.
    """
    folders: list[str] = []
    with os.scandir(handle) as iterator:
        entries = list(iterator)
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


def _allow_changes(name: str, parent_handle: int | None) -> None:
    """Let the owner change a folder. The folder is held open, so that nobody can put a
    link in its place.
    """
    with _open_folder(name, parent_handle, getattr(os, "O_PATH", os.O_RDONLY)) as handle:
        os.chmod(f"/proc/self/fd/{handle}" if hasattr(os, "O_PATH") else handle, 0o700)  # noqa: PTH101 -- an open handle


@contextmanager
def _open_folder(name: str, parent_handle: int | None, access: int = os.O_RDONLY) -> Iterator[int]:
    handle = os.open(name, access | _FOLDER_FLAGS, dir_fd=parent_handle)
    try:
        yield handle
    finally:
        os.close(handle)
