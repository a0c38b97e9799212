"""Keeps copies of changed histories until they are imported, as programs overwrite or delete them.

The folder `open` contains copies of files that change now, and which grow with them. A numbered
folder is sealed: nothing is added, and it is deleted once imported. Each copy has its file's path.
If a file was rewritten, not just extended, or a database has lost rows, `open` is sealed first.
"""

import errno
import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from helix_desktop.atomic_files import create_private_folder
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import delete_folder_tree, list_tree_files
from helix_desktop.histories import foreign_sqlite

# Databases with more bytes are not copied, so rows deleted before an import are lost.
LARGEST_DATABASE = 32 << 20
# Larger files are not imported. One of terabytes without content would fill the disk with its copy.
LARGEST_FILE = 2 << 30
DATABASE_SHARE = 10.0  # After a copy, databases wait for this multiple of its processor time.
_NOT_WAITING = getattr(os, "O_NONBLOCK", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
COMPARED_BYTES = 4096  # So many at a copy's end show whether the file was rewritten.
FOLDER_NAME = "recorder"  # Beside the workspaces.


def delete_failed_copies(folder: Path, is_to_be_forgotten: Callable[[bytes], bool]) -> int:
    """Delete the copies that could never be imported and that have such content. Return how many."""
    deleted = 0
    for failed_copy in folder.glob("*.failed"):
        for file, _ in list_tree_files(failed_copy):
            if is_to_be_forgotten(file.read_bytes()):
                delete_folder_tree(failed_copy, ignore_errors=True)
                deleted += 1
                break
    return deleted


def path_of_copy(folder: Path, file: Path) -> Path:
    """Return where a file is copied to: its whole path, below the folder."""
    path = folder
    for part in file.parts:
        # The first part is a root or a drive, such as "C:\\".
        path = path / part.strip(":\\/")
    return path


def original_paths_of_copies(folder: Path) -> Iterator[Path]:
    """Yield the paths of the files that were copied, those in outer folders first."""
    copies = [path for path, _ in list_tree_files(folder)]
    copies.sort(key=lambda path: (len(path.parts), path))
    for copy in copies:
        if not copy.is_file():
            continue
        path_in_folder = copy.relative_to(folder)
        if os.name == "nt":
            drive = path_in_folder.parts[0]
            yield Path(f"{drive}:\\", *path_in_folder.parts[1:])
        else:
            yield Path(os.sep) / path_in_folder


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """How far a file has been copied, and its inode, which another file of its name has not."""

    inode: int
    copied_bytes: int


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What shows that a file has changed."""

    size: int
    modified_ns: int


class PendingCopies:
    """The copies in one folder, for two threads: one that copies, and one that imports."""

    def __init__(self, folder: Path) -> None:
        """Begin with an empty folder `open`. What an earlier run has copied there goes to the next
        import.
        """
        self._folder = folder
        self._open = folder / "open"
        self._copied_files: dict[Path, CopiedFile] = {}
        # For each copied database: how many rows each table has.
        self._row_counts: dict[Path, Mapping[str, int]] = {}
        # For each copied database: the sizes and times that it and its log had.
        self._database_stamps: dict[Path, list[FileStamp]] = {}
        self._next_database_time = 0.0  # No database is copied earlier, by the monotonic clock.
        # Databases that changed soon after a copy, and are to be copied again.
        self.postponed: set[Path] = set()
        self._lock = threading.Lock()
        self._seal_open_folder()  # Files may have changed while we were not running.

    def copy_file(self, file: Path) -> None:
        """Add to the copy what the file has gained. Raises OSError if that is not possible."""
        with self._lock, _open_regular_file(file) as source:
            status = os.fstat(source.fileno())
            if status.st_size > LARGEST_FILE:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), file)
            copy = path_of_copy(self._open, file)
            copied_bytes = self._count_bytes_still_copied(file, copy, source, status)
            create_private_folder(copy.parent)
            mode = "wb"
            if copied_bytes:
                mode = "r+b"
            with copy.open(mode) as target:
                source.seek(copied_bytes)
                target.seek(copied_bytes)
                shutil.copyfileobj(source, target, 1 << 20)
                all_copied_bytes = target.tell()
                target.flush()
                times = (status.st_atime_ns, status.st_mtime_ns)
                if os.utime in os.supports_fd:
                    os.utime(target.fileno(), ns=times)
                else:
                    os.utime(copy, ns=times)
            self._copied_files[file] = CopiedFile(status.st_ino, all_copied_bytes)

    def _count_bytes_still_copied(
        self, file: Path, copy: Path, source: BinaryIO, status: os.stat_result
    ) -> int:
        """Return how many bytes at the file's beginning the copy has: all that were copied, or
        none if the file was rewritten since.
        """
        copied_file = self._copied_files.get(file)
        if copied_file is None or copied_file.copied_bytes == 0:
            return 0
        copied_bytes = copied_file.copied_bytes
        if copied_file.inode == status.st_ino:
            if _extends_copy(source.fileno(), copy, copied_bytes, status.st_size):
                return copied_bytes
        # JSON files are rewritten at every change, so only a shorter one has lost something.
        if file.suffix != ".json" or status.st_size < copied_bytes:
            self._seal_open_folder()
        return 0

    def copy_database(self, file: Path) -> bool:
        """Copy the database. Return False if it is too large, busy or was copied just now."""
        processor_time_before = time.thread_time()
        with self._lock, suppress(OSError, sqlite3.Error):
            self.postponed.discard(file)
            if time.monotonic() < self._next_database_time:
                self.postponed.add(file)
                return False
            stamps = _stamps_of_database(file)
            if self._database_stamps.get(file) == stamps:
                return True
            self._database_stamps[file] = stamps

            create_private_folder(self._folder)
            draft = self._folder / "database"
            draft.unlink(missing_ok=True)
            foreign_sqlite.copy_foreign_database(file, draft, LARGEST_DATABASE)
            row_counts = foreign_sqlite.count_table_rows(draft)
            for table, copied_count in self._row_counts.get(file, {}).items():
                if row_counts.get(table, 0) < copied_count:
                    # Rows were deleted: the copy that still has them is not written over.
                    self._seal_open_folder()
                    break
            copy = path_of_copy(self._open, file)
            create_private_folder(copy.parent)
            draft.replace(copy)
            self._row_counts[file] = row_counts

            processor_time = time.thread_time() - processor_time_before
            self._next_database_time = time.monotonic() + DATABASE_SHARE * processor_time
            return True
        return False

    def seal_and_list_folders(self) -> list[Path]:
        """Seal the open folder, and return all sealed folders, oldest first."""
        with self._lock:
            self._seal_open_folder()
            sealed_folders: list[Path] = []
            with suppress(FileNotFoundError):
                for path in self._folder.iterdir():
                    if path.name.isdecimal():
                        sealed_folders.append(path)
            # They are named by the time at which they were sealed.
            sealed_folders.sort(key=lambda path: int(path.name))
            return sealed_folders

    def _seal_open_folder(self) -> None:
        """Give the copies so far to the next import. All later ones begin anew."""
        self._copied_files.clear()
        self._row_counts.clear()
        name = str(time.time_ns())
        with suppress(FileNotFoundError):  # Nothing has been copied.
            self._open.rename(self._folder / name)


def _open_regular_file(file: Path) -> BinaryIO:
    """Open a file for reading, but neither a link nor a pipe, which may have taken its place."""
    handle = os.open(file, os.O_RDONLY | _NOT_WAITING | _NO_LINK | _BINARY)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), file)
    return os.fdopen(handle, "rb")


def _stamps_of_database(file: Path) -> list[FileStamp]:
    """Return the size and time of a database and of its log, whichever there are."""
    stamps: list[FileStamp] = []
    for path in (file, file.with_name(f"{file.name}-wal")):
        if not path.exists():
            continue
        status = path.stat()
        # An empty log says nothing: whoever reads a database makes one and removes it.
        if status.st_size:
            stamps.append(FileStamp(status.st_size, status.st_mtime_ns))
    return stamps


def _extends_copy(source: int, copy: Path, copied_bytes: int, size: int) -> bool:
    """Whether the file still begins with the copied bytes, judging by the last of them. `source`:
    the file's descriptor. A copy that cannot be read is made anew.
    """
    start = max(0, copied_bytes - COMPARED_BYTES)
    with suppress(OSError), copy.open("rb") as copy_file:
        copy_file.seek(start)
        os.lseek(source, start, os.SEEK_SET)
        end_of_copy = copy_file.read(COMPARED_BYTES)
        return size >= copied_bytes and end_of_copy == os.read(source, copied_bytes - start)
    return False
