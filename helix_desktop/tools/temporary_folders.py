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
    given = scratch.with_name(f"{scratch.name}{GIVEN}")
    given.mkdir(mode=0o700)
    if sys.platform == "win32":  # On Windows, a program can't tell that another one has ended.
        return scratch, -1
    lock = os.open(given / "new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    lock_open_file(lock, waits=True)
    (given / "new").rename(
        given / _LOCK
    )  # Nobody can find the file by this name before it is locked.
    return scratch, lock


def remove_scratch_folder(scratch: Path, lock: int = -1) -> None:
    for folder in (scratch, scratch.with_name(f"{scratch.name}{GIVEN}")):
        delete_folder_tree(folder, ignore_errors=True)
    if lock >= 0:
        os.close(lock)


def remove_abandoned_scratch_folders() -> None:
    """Remove the folders of this user's programs that were killed. Links are not followed."""
    for given in (
        Path(tempfile.gettempdir()).glob(f"helix-*{GIVEN}") if sys.platform != "win32" else ()
    ):
        with suppress(OSError):
            found = given.lstat()
            if (
                _NAME.fullmatch(given.name)
                and stat.S_ISDIR(found.st_mode)
                and found.st_uid == os.geteuid()
            ):
                _remove_if_abandoned(given)


def _remove_if_abandoned(given: Path) -> None:
    lock = os.open(given / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lock_open_file(lock)
        scratch = given.with_name(given.name.removesuffix(GIVEN))
        if not scratch.is_symlink():
            remove_scratch_folder(scratch)
    finally:
        os.close(lock)
