"""Keeps copies of changed histories until they are imported, as programs overwrite or delete them.

The folder `open` contains copies of files that change now, and which grow with them. A numbered
folder is sealed: nothing is added, and it is deleted once imported. Each copy has its file's path.
If a file was rewritten, not just extended, or a database has lost rows, `open` is sealed first.
"""

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from helix_desktop.folder_trees import list_tree_files
from helix_desktop.histories import foreign_sqlite

LARGEST_DATABASE = (
    32 << 20
)  # Databases with more bytes are not copied, so rows deleted before an import are lost.
DATABASE_SHARE = 10.0  # After a copy, databases wait for this multiple of its processor time.
COMPARED = 4096  # This many bytes at a copy's end show whether the file was rewritten.


def path_of_copy(folder: Path, file: Path) -> Path:
    return folder.joinpath(*(part.strip(":\\/") for part in file.parts))


def original_paths_of_copies(folder: Path) -> Iterator[Path]:
    for copy in sorted(
        (path for path, _ in list_tree_files(folder)), key=lambda one: (len(one.parts), one)
    ):
        if copy.is_file():
            parts = copy.relative_to(folder).parts
            yield Path(f"{parts[0]}:\\", *parts[1:]) if os.name == "nt" else Path(os.sep, *parts)


class PendingCopies:
    """The copies in one folder, for two threads: one that copies, and one that imports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = folder / "open"
        self._copied: dict[Path, tuple[int, int]] = {}  # By file: its inode, and the bytes copied.
        self._rows: dict[
            Path, Mapping[str, int]
        ] = {}  # For each copied database: how many rows each table has.
        self._stamps: dict[
            Path, list[tuple[int, int]]
        ] = {}  # Of databases and their logs, when they were copied.
        self._database_due = 0.0
        self.postponed: set[Path] = (
            set()
        )  # Databases that changed soon after a copy, and are to be copied again.
        self._lock = threading.Lock()
        self._seal_open_folder()  # Files may have changed while we were not running.

    def copy_file(self, file: Path) -> None:
        """Add to the copy what the file has gained. Raises OSError if that is not possible."""
        with self._lock, file.open("rb") as source:
            about = os.fstat(source.fileno())
            inode, copied = self._copied.get(file, (about.st_ino, 0))
            copy = path_of_copy(self._open, file)
            if copied and not (
                inode == about.st_ino
                and _extends_copy(source.fileno(), copy, copied, about.st_size)
            ):
                if (
                    file.suffix != ".json" or about.st_size < copied
                ):  # JSON files are rewritten at every change.
                    self._seal_open_folder()
                copied = 0
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with copy.open("r+b" if copied else "wb") as target:
                source.seek(copied)
                target.seek(copied)
                shutil.copyfileobj(source, target, 1 << 20)
                copied = target.tell()
                target.flush()
                os.utime(target.fileno() if os.utime in os.supports_fd else copy, ns=(about.st_atime_ns, about.st_mtime_ns))  # fmt: skip
            self._copied[file] = about.st_ino, copied

    def copy_database(self, file: Path) -> bool:
        """Copy the database. Return False if it is too large, busy or was copied just now."""
        begun = time.thread_time()
        with self._lock, suppress(OSError, sqlite3.Error):
            self.postponed.discard(file)
            if time.monotonic() < self._database_due:
                self.postponed.add(file)
                return False
            # An empty log says nothing: whoever reads a database makes one and removes it.
            found = (
                path.stat() for path in (file, file.with_name(f"{file.name}-wal")) if path.exists()
            )
            stamp = [(about.st_size, about.st_mtime_ns) for about in found if about.st_size]
            if self._stamps.get(file) == stamp:
                return True
            self._stamps[file] = stamp
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = self._folder / "database"
            draft.unlink(missing_ok=True)
            foreign_sqlite.copy_foreign_database(file, draft, LARGEST_DATABASE)
            rows = foreign_sqlite.count_table_rows(draft)
            if any(rows.get(name, 0) < count for name, count in self._rows.get(file, {}).items()):
                self._seal_open_folder()
            copy = path_of_copy(self._open, file)
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft.replace(copy)
            self._rows[file] = rows
            self._database_due = time.monotonic() + DATABASE_SHARE * (time.thread_time() - begun)
            return True
        return False

    def seal_and_list_folders(self) -> list[Path]:
        """Seal the open folder, and return all sealed folders, oldest first."""
        with self._lock:
            self._seal_open_folder()
            with suppress(FileNotFoundError):
                numbered = (one for one in self._folder.iterdir() if one.name.isdecimal())
                return sorted(numbered, key=lambda one: int(one.name))
            return []

    def _seal_open_folder(self) -> None:
        self._copied.clear()
        self._rows.clear()
        with suppress(FileNotFoundError):
            self._open.rename(self._folder / str(time.time_ns()))


def _extends_copy(source: int, copy: Path, copied: int, size: int) -> bool:
    """Whether the file still begins with the copied bytes, judging by the last of them."""
    at = max(0, copied - COMPARED)
    with suppress(OSError), copy.open("rb") as before:
        before.seek(at)
        os.lseek(source, at, os.SEEK_SET)
        return size >= copied and before.read(COMPARED) == os.read(source, copied - at)
    return False
