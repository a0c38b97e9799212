"""Holds space on the disk, so that what a step changes can be recorded even if the disk
is full by then.
"""

import errno
import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from helix_desktop.errors import StoreFull


def _allocate_bytes(handle: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        # Some file systems take the space for the length that is set, others do not.
        os.truncate(handle, size)


def hold_disk_space(folder: Path, size: int) -> IO[bytes] | None:
    """Return an unnamed file that takes so many bytes until it is closed, or None if it
    can't. Raises StoreFull.
    """
    try:
        with ExitStack() as closing:
            file = closing.enter_context(TemporaryFile(dir=folder))
            _allocate_bytes(file.fileno(), size)
            # From here on, whoever called this closes the file.
            closing.pop_all()
            return file
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            return None
        raise StoreFull(
            "The disk is full, so what this changes could not be recorded and undone.",
            remedy="Nothing was run. Free up space on the disk and try again.",
        ) from error
