"""The folder that stands in place of /tmp for a program's commands, and what killed programs left of theirs.

Beside each is one that commands may only read. A lock in it is held as long as the program lives.
"""

import os
import re
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from helix_desktop.atomic_files import lock_open_file

GIVEN = "-given"
_LOCK = "lock"
_NAME = re.compile(r"helix-[a-z0-9_]{8}-given")


def create_scratch_folder() -> tuple[Path, int]:
    """A folder of this user's alone, and the lock that says somebody lives there; -1 where none is needed."""
    scratch = Path(tempfile.mkdtemp(prefix="helix-"))
    given = scratch.with_name(f"{scratch.name}{GIVEN}")
    given.mkdir(mode=0o700)
    if sys.platform == "win32":  # Windows tells no program that another one is gone.
        return scratch, -1
    lock = os.open(given / "new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    lock_open_file(lock, waits=True)
    (given / "new").rename(given / _LOCK)  # Nobody meets it under this name without our lock on it.
    return scratch, lock


def remove_scratch_folder(scratch: Path, lock: int = -1) -> None:
    for folder in (scratch, scratch.with_name(f"{scratch.name}{GIVEN}")):
        shutil.rmtree(folder, ignore_errors=True)
    if lock >= 0:
        os.close(lock)


def remove_abandoned_scratch_folders() -> None:
    """Those of this user's programs that were killed. Links are not followed."""
    for given in Path(tempfile.gettempdir()).glob(f"helix-*{GIVEN}") if sys.platform != "win32" else ():
        with suppress(OSError):
            found = given.lstat()
            if _NAME.fullmatch(given.name) and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
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
