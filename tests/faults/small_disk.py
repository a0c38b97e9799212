"""A disk of a few hundred megabytes, for trials that fill it up. It needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path


class SmallDisk:
    """A file system in memory, mounted at `folder`."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._filler = folder / "filler"
        folder.mkdir(mode=0o700, exist_ok=True)
        options = f"size={megabytes}m,mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)

    def fill_up(self) -> None:
        """Take all room that is left. What the programs free meanwhile they can use again."""
        with self._filler.open("ab") as filler:
            while (free_bytes := shutil.disk_usage(self.folder).free) > 0:
                with suppress(OSError):  # The programs write at the same time.
                    os.posix_fallocate(
                        filler.fileno(), os.fstat(filler.fileno()).st_size, free_bytes
                    )

    def make_room(self) -> None:
        self._filler.unlink(missing_ok=True)

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=False)
