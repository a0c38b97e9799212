"""Remembers which extension is being loaded, to find one that ends the whole program.

Nothing can stop code in this process from ending it. But what is written before the code runs is
still there at the next start, which then switches the extension off instead of ending again.
"""

import os
import sys
from pathlib import Path

from helix_desktop import atomic_files


class LoadingMarks:
    """A file for each process that loads extensions now, with the name of the extension."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own_mark = folder / str(os.getpid())

    def remove_names_of_ended_processes(self) -> list[str]:
        """Return the extensions during whose loading a process ended, and forget about them."""
        if not self._folder.is_dir():
            return []
        names: list[str] = []
        for mark in sorted(self._folder.iterdir()):
            if not _has_process_ended(mark.name):
                continue
            names.append(mark.read_text("utf-8", "replace"))
            mark.unlink(missing_ok=True)
        return names

    def note_loading(self, name: str) -> None:
        atomic_files.ensure_private_folder(self._folder)
        self._own_mark.write_text(name, "utf-8")

    def note_end_of_loading(self) -> None:
        self._own_mark.unlink(missing_ok=True)


def _has_process_ended(process_id: str) -> bool:
    # On Windows, the same call would end the process, so nothing is found out there.
    if sys.platform == "win32" or not process_id.isdecimal():
        return False
    try:
        os.kill(int(process_id), 0)  # This sends no signal, and fails without such a process.
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
