"""One process owns a workspace: a lock of our own, held on an open file.

LevelDB's lock does not do: a second open in the same process, once closed, drops it. `flock` belongs to the open file,
so a second try is refused inside this process as well, and a process that dies lets go of it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from helix_desktop.errors import StoreBusy, StoreFailed

if sys.platform == "win32":
    import msvcrt

    def _take(handle: int) -> None:
        os.lseek(handle, 1 << 30, os.SEEK_SET)  # far behind the text, which others may then still read
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)

else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Lock:
    """Held from the moment it is made until `release`."""

    def __init__(self, path: Path) -> None:
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreFailed(
                f"{path} cannot be opened: {error.strerror}.",
                remedy="Nothing was changed. Make this folder writable, or start with another one (--home).",
            ) from error
        try:
            _take(self._handle)
        except OSError as error:
            owner = os.pread(self._handle, 20, 0).decode("ascii", "replace").strip() if os.name != "nt" else ""
            os.close(self._handle)
            raise StoreBusy(
                f"The workspace in {path.parent} is open in another program{f' (process {owner})' if owner else ''}.",
                remedy="Use it there, or close it there first.",
            ) from error
        with contextlib.suppress(OSError):  # only for the sentence above
            os.write(self._handle, f"{os.getpid():<20}\n".encode())

    def release(self) -> None:
        """Let go; a second time does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1
