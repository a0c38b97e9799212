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

# Databases with more bytes are not copied, so rows deleted before an import are lost.
LARGEST_DATABASE = 32 << 20
DATABASE_SHARE = 10.0  # After a copy, databases wait for this multiple of its processor time.
COMPARED = 4096  # This many bytes at a copy's end show whether the file was rewritten.


def path_of_copy(folder: Path, file: Path) -> Path:
    return folder.joinpath(*(part.strip(":\\/") for part in file.parts))


def original_paths_of_copies(folder: Path) -> Iterator[Path]:
    """Yield the paths of the files that were copied, those in outer folders first."""
    copies = [path for path, _ in list_tree_files(folder)]
    copies.sort(key=lambda path: (len(path.parts), path))
    for copy in copies:
        if not copy.is_file():
            continue
        first_part, *other_parts = copy.relative_to(folder).parts
        if os.name == "nt":
            drive = f"{first_part}:\\"
            yield Path(drive, *other_parts)
        else:
            yield Path(os.sep, first_part, *other_parts)


class PendingCopies:
    """The copies in one folder, for two threads: one that copies, and one that imports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = folder / "open"
        self._copied: dict[Path, tuple[int, int]] = {}  # By file: its inode, and the bytes copied.
        # For each copied database: how many rows each table has.
        self._rows: dict[Path, Mapping[str, int]] = {}
        # For each copied database: the sizes and times that it and its log had.
        self._stamps: dict[Path, list[tuple[int, int]]] = {}
        self._database_due = 0.0
        # Databases that changed soon after a copy, and are to be copied again.
        self.postponed: set[Path] = set()
        self._lock = threading.Lock()
        self._seal_open_folder()  # Files may have changed while we were not running.

    def copy_file(self, file: Path) -> None:
        """Add to the copy what the file has gained. Raises OSError if that is not possible."""
        with self._lock, file.open("rb") as source:
            status = os.fstat(source.fileno())
            inode, copied_bytes = self._copied.get(file, (status.st_ino, 0))
            copy = path_of_copy(self._open, file)
            is_same_file = inode == status.st_ino
            if copied_bytes and not (
                is_same_file and _extends_copy(source.fileno(), copy, copied_bytes, status.st_size)
            ):
                # JSON files are rewritten at every change, so only a shorter one has lost something.
                if file.suffix != ".json" or status.st_size < copied_bytes:
                    self._seal_open_folder()
                copied_bytes = 0
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with copy.open("r+b" if copied_bytes else "wb") as target:
                source.seek(copied_bytes)
                target.seek(copied_bytes)
                shutil.copyfileobj(source, target, 1 << 20)
                copied_bytes = target.tell()
                target.flush()
                times = (status.st_atime_ns, status.st_mtime_ns)
                if os.utime in os.supports_fd:
                    os.utime(target.fileno(), ns=times)
                else:
                    os.utime(copy, ns=times)
            self._copied[file] = status.st_ino, copied_bytes

    def copy_database(self, file: Path) -> bool:
        """Copy the database. Return False if it is too large, busy or was copied just now."""
        processor_time_before = time.thread_time()
        with self._lock, suppress(OSError, sqlite3.Error):
            self.postponed.discard(file)
            if time.monotonic() < self._database_due:
                self.postponed.add(file)
                return False
            # An empty log says nothing: whoever reads a database makes one and removes it.
            stamp: list[tuple[int, int]] = []
            for path in (file, file.with_name(f"{file.name}-wal")):
                if path.exists():
                    status = path.stat()
                    if status.st_size:
                        stamp.append((status.st_size, status.st_mtime_ns))
            if self._stamps.get(file) == stamp:
                return True
            self._stamps[file] = stamp
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = self._folder / "database"
            draft.unlink(missing_ok=True)
            foreign_sqlite.copy_foreign_database(file, draft, LARGEST_DATABASE)
            row_counts = foreign_sqlite.count_table_rows(draft)
            copied_row_counts = self._rows.get(file, {})
            if any(
                row_counts.get(table, 0) < copied_count
                for table, copied_count in copied_row_counts.items()
            ):
                # Rows were deleted: the copy that still has them is not written over.
                self._seal_open_folder()
            copy = path_of_copy(self._open, file)
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft.replace(copy)
            self._rows[file] = row_counts
            processor_time = time.thread_time() - processor_time_before
            self._database_due = time.monotonic() + DATABASE_SHARE * processor_time
            return True
        return False

    def seal_and_list_folders(self) -> list[Path]:
        """Seal the open folder, and return all sealed folders, oldest first."""
        with self._lock:
            self._seal_open_folder()
            with suppress(FileNotFoundError):
                sealed = [path for path in self._folder.iterdir() if path.name.isdecimal()]
                return sorted(sealed, key=lambda path: int(path.name))
            return []

    def _seal_open_folder(self) -> None:
        self._copied.clear()
        self._rows.clear()
        with suppress(FileNotFoundError):
            self._open.rename(self._folder / str(time.time_ns()))


def _extends_copy(source: int, copy: Path, copied_bytes: int, size: int) -> bool:
    """Whether the file still begins with the copied bytes, judging by the last of them. `source`:
    the file's descriptor. A copy that cannot be read is made anew.
    """
    start = max(0, copied_bytes - COMPARED)
    with suppress(OSError), copy.open("rb") as copy_file:
        copy_file.seek(start)
        os.lseek(source, start, os.SEEK_SET)
        end_of_copy = copy_file.read(COMPARED)
        return size >= copied_bytes and end_of_copy == os.read(source, copied_bytes - start)
    return False
