"""Holds space on the disk, so that what a step changes can be recorded even if the disk is full by then."""

import errno
import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from helix_desktop.errors import StoreFull


def hold_disk_space(folder: Path, size: int) -> IO[bytes] | None:
    """Return an unnamed file that takes so many bytes until it is closed, or None if it can't. Raises StoreFull."""
    try:
        held = TemporaryFile(dir=folder)  # noqa: SIM115 -- its owner closes it
        try:
            # Where there is no such call, the length allocates them, or nothing does.
            getattr(os, "posix_fallocate", lambda handle, _, size: os.truncate(handle, size))(held.fileno(), 0, size)
        except OSError:
            held.close()
            raise
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StoreFull("The disk is full.") from error
        return None
    return held
