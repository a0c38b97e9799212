"""Ensures that one process owns a workspace, by a lock on an open file.

LevelDB's lock does not suffice: a second open in the same process, once closed, drops it. `flock`
belongs to the open file, so a second attempt fails even in this process, and a process that dies
releases it. A command that was just starting may hold it a moment longer, so we wait for that.
"""

import contextlib
import os
import time
from pathlib import Path

from helix_desktop.atomic_files import lock_open_file
from helix_desktop.errors import TO_WRITABLE_FOLDER, StoreBusy, StoreFailed

# Attempts, and seconds between them, while a dead owner's lock remains.
TRIES = 40
PAUSE = 0.05


class WorkspaceLock:
    """Held from its creation until `release_lock`."""

    def __init__(self, path: Path) -> None:
        """Take the lock, and write this process's id into its file for the error message that
        another process shows. Raises StoreBusy, with the id of the owner, if it is taken.
        """
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreFailed(
                f"{path} cannot be opened: {error.strerror}.", remedy=TO_WRITABLE_FOLDER
            ) from error
        try:
            self._acquire_with_retries()
        except OSError as error:
            owner = self._read_owner_pid()
            os.close(self._handle)
            program = "another program"
            if owner:
                program = f"another program (process {owner})"
            raise StoreBusy(
                f"The workspace in {path.parent} is open in {program}.",
                remedy="Use the workspace in the other program, or close it there first.",
            ) from error
        with contextlib.suppress(OSError):
            os.write(self._handle, f"{os.getpid():<20}\n".encode())

    def _acquire_with_retries(self) -> None:
        """Take the lock at once or not at all, except that the lock of a process that has ended
        is awaited: a command that this process was just starting may hold it a moment longer.
        """
        for attempt in range(1, TRIES + 1):
            try:
                lock_open_file(self._handle)
            except OSError:
                is_owner_gone = _process_has_ended(self._read_owner_pid())
                if attempt == TRIES or not is_owner_gone:
                    raise
                time.sleep(PAUSE)
            else:
                return

    def _read_owner_pid(self) -> str:
        if os.name == "nt":  # Nobody else can read a locked file there.
            return ""
        return os.pread(self._handle, 20, 0).decode("ascii", "replace").strip()

    def release_lock(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def _process_has_ended(owner: str) -> bool:
    """Whether the process with this id has ended. What is no id, or cannot be asked, counts as
    running.
    """
    if not owner.isdecimal():
        return False
    try:
        os.kill(int(owner), 0)  # This sends no signal, and fails if there is no such process.
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
