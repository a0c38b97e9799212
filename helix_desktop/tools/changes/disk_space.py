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


def hold_disk_space(folder: Path, size: int) -> IO[bytes] | None:
    """Return an unnamed file that takes so many bytes until it is closed, or None if it
    can't. Raises StoreFull.
    """
    try:
        with ExitStack() as closing:
            held = closing.enter_context(TemporaryFile(dir=folder))
            # Where there is no such call, the length allocates them, or nothing does.
            getattr(os, "posix_fallocate", lambda handle, _, size: os.truncate(handle, size))(
                held.fileno(), 0, size
            )
            closing.pop_all()
            return held
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            return None
        raise StoreFull(
            "The disk is full, so what this changes could not be recorded and undone.",
            remedy="Nothing was run. Free up space on the disk and try again.",
        ) from error
