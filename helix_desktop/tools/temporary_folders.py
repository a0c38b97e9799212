"""Creates the folders that replace /tmp for commands, and removes those that killed
programs left behind.

Beside each is a folder that commands can only read. A lock in it is held while the program lives.
"""

import os
import re
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from helix_desktop.atomic_files import lock_open_file
from helix_desktop.folder_trees import delete_folder_tree

GIVEN = "-given"
_LOCK = "lock"
_NAME = re.compile(r"helix-[a-z0-9_]{8}-given")


def create_scratch_folder() -> tuple[Path, int]:
    """Create a private folder and its lock, which says it is in use (-1 where no lock
    is needed).
    """
    scratch = Path(tempfile.mkdtemp(prefix="helix-"))
    given_folder = scratch.with_name(f"{scratch.name}{GIVEN}")
    given_folder.mkdir(mode=0o700)
    if sys.platform == "win32":  # On Windows, a program can't tell that another one has ended.
        return scratch, -1
    unlocked_file = given_folder / "new"
    lock = os.open(unlocked_file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    lock_open_file(lock, waits=True)
    # Only now does the file get its name, so that nobody can find it before it is locked.
    unlocked_file.rename(given_folder / _LOCK)
    return scratch, lock


def remove_scratch_folder(scratch: Path, lock: int = -1) -> None:
    for folder in (scratch, scratch.with_name(f"{scratch.name}{GIVEN}")):
        delete_folder_tree(folder, ignore_errors=True)
    if lock >= 0:
        os.close(lock)


def remove_abandoned_scratch_folders() -> None:
    """Remove the folders of this user's programs that were killed. Links are not followed."""
    if sys.platform == "win32":
        return  # There are no locks there, so nothing says which folders are abandoned.
    for given_folder in Path(tempfile.gettempdir()).glob(f"helix-*{GIVEN}"):
        with suppress(OSError):  # It is still in use, or was removed a moment ago.
            status = given_folder.lstat()
            is_folder = stat.S_ISDIR(status.st_mode)
            is_own = status.st_uid == os.geteuid()
            if _NAME.fullmatch(given_folder.name) and is_folder and is_own:
                _remove_if_abandoned(given_folder)


def _remove_if_abandoned(given_folder: Path) -> None:
    """Remove both folders, or raise OSError if a program that is running holds the lock."""
    lock = os.open(given_folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lock_open_file(lock)
        scratch = given_folder.with_name(given_folder.name.removesuffix(GIVEN))
        if not scratch.is_symlink():
            remove_scratch_folder(scratch)
    finally:
        os.close(lock)
