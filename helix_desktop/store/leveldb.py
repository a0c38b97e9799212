"""Reads and writes LevelDB through plyvel, and works around the pitfalls of both.

Every write is synced, because an unsynced one in an old log would not be covered by a later
sync. After a failed write, the handle is not trusted: LevelDB's log may be misaligned, and
another sync would prove nothing. So the next write first reopens the database, which rewrites
the log. Reads check LevelDB's checksums, but only our own SHA-256, one layer up, proves content.
"""

import contextlib
import ctypes
import errno
import os
import re
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import plyvel

from helix_desktop.atomic_files import make_path_private, sync_folder_to_disk
from helix_desktop.errors import CacheCorrupt, StoreFailed, StoreFull
from helix_desktop.folder_trees import delete_folder_tree
from helix_desktop.store.sqlite_database import sync_file

_CHECKED_READ = {"verify_checksums": True, "fill_cache": False}
_CANNOT_BE_READ = "The cache cannot be read"
_RELEASE_AFTER_BYTES = (
    4 << 20
)  # After this many bytes read through LevelDB's mappings, their pages are released.
# Arguments of madvise. With either, the page is read again when needed.
_DONTNEED = 4
_PAGEOUT = 21
# LevelDB is sure to keep this many tables open: its cache has 16 parts, each with room
# for 62 tables. A hash assigns tables to parts. In 4,000 trials, no part got over 50 of
# 400 tables, or 63 of 600. For more tables, releasing their pages takes four times as
# long, and the pages are read from the disk again.
_SURELY_OPEN = 400
_MADVISE: Any = ctypes.CDLL(None).madvise if sys.platform == "linux" else None
_PROBE_BYTES = 1 << 20  # In bytes. If this much can be written, the disk is no longer full.
_TICK_NS = 50_000_000  # In nanoseconds. Two changes this close together may get the same timestamp.
_TABLE = re.compile(rb"^ (\d+):", re.MULTILINE)  # A line in LevelDB's list of tables.
_FIRST = b"\x00"
_LAST = b"\xff" * 2
# LevelDB begins a new log when its table in memory has grown to `write_buffer_size`. There, a key
# and its value take at most this much more than their own bytes, and blocks waste at most a
# quarter. So a log that got no more than `_SURELY_ONE_LOG` is still the only one.
_MOST_PER_KEY = 136
_SURELY_ONE_LOG = 1_500_000
Write = tuple[bytes, bytes | None]  # A key and its value; None deletes the key.
_SIGNS_OF_BAD_FILES = (
    "No such file",
    "does not exist",
    "Corruption",
    "Invalid argument",
    "missing files",
)
_OPTIONS = {
    "compression": None,
    "bloom_filter_bits": 10,
    "write_buffer_size": 2 << 20,
    "max_open_files": 1000,
}


class LevelDatabase:
    """One open LevelDB, used from one thread. Its owner must hold the workspace's lock."""

    def __init__(self, folder: Path) -> None:
        """Open the database in this folder, or make a new one."""
        self.folder = folder
        self._synced_names: set[str] = set()  # Files whose names are safely on disk.
        # When the folder last changed; 0: a later change may have the same time.
        self._settled_time_ns = 0
        # The most memory that this log's writes can take, but for wasted blocks.
        self._log_bytes = 0
        # An open folder's time is read in half the time that its path needs.
        self._handle: int | Path = folder
        # How many damaged bytes of its log LevelDB dropped when it opened, apart from a torn end.
        self.dropped_log_bytes = 0
        self._is_strict = True  # Whether a damaged block makes opening fail.
        self._db = self._open_leveldb()
        self._failed = False  # Whether a write failed, so that the database must be opened again.
        self._read_bytes = 0  # Since the memory of read pages was released last.

    def _convert_read_error(self, error: Exception) -> StoreFailed:
        converted = convert_leveldb_error(error, _CANNOT_BE_READ)
        if isinstance(converted, CacheCorrupt):
            with contextlib.suppress(OSError):
                damage_mark(self.folder).touch()
        return converted

    def _open_leveldb(self) -> plyvel.DB:
        """Open the database, and make sure that the names of its files are on the disk, too."""
        try:
            # If just CURRENT were missing, LevelDB would start anew and delete the rest.
            is_new = not any(
                path.suffix in {".ldb", ".sst", ".log"} for path in self.folder.glob("*")
            )
            opened = self._open_strictly(is_new=is_new)
        except plyvel.Error as error:
            raise convert_leveldb_error(error, "The cache cannot be opened") from error
        make_path_private(self.folder)
        try:
            if self._handle is self.folder and os.name != "nt":
                self._handle = os.open(self.folder, os.O_RDONLY)
            sync_folder_to_disk(self.folder.parent)
            self._sync_file_names()
            self._log_bytes = 0  # Opening has written what was in older logs into tables.
        except OSError as error:
            opened.close()
            self._close_handle()
            raise convert_leveldb_error(error, "The cache cannot be opened") from error
        return opened

    def _open_strictly(self, *, is_new: bool) -> plyvel.DB:
        """Open so that a damaged list of a table's blocks raises. Otherwise LevelDB would
        silently miss keys.
        """
        if self._is_strict:
            with contextlib.suppress(plyvel.CorruptionError):
                return self._open_with_checks(is_new=is_new, paranoid=True)
        # A torn end of the log is refused by a strict opening only. It is no damage.
        opened = self._open_with_checks(is_new=is_new, paranoid=False)
        self.dropped_log_bytes = self._read_dropped_log_bytes()
        if not self._is_strict:
            return opened
        opened.close()
        return self._open_with_checks(is_new=is_new, paranoid=True)

    def _open_with_checks(self, *, is_new: bool, paranoid: bool) -> plyvel.DB:
        return plyvel.DB(
            str(self.folder), create_if_missing=is_new, paranoid_checks=paranoid, **_OPTIONS
        )

    def _sync_file_names(self) -> None:
        """Sync the names of new files: LevelDB syncs its logs' contents, but not their existence.

        The folder's time reveals a new file, but not within the same tick of the clock.
        """
        changed_ns = os.stat(self._handle).st_mtime_ns  # noqa: PTH116 -- of a handle
        if changed_ns == self._settled_time_ns:
            return
        names = set(os.listdir(self.folder))  # noqa: PTH208
        new_names = names - self._synced_names
        # For files that are no logs, LevelDB syncs the folder itself.
        if any(name.endswith(".log") for name in new_names):
            sync_folder_to_disk(self.folder)
            self._log_bytes = 0  # The write that began it adds its own size.
        for name in new_names:
            make_path_private(self.folder / name)
        if new_names:
            self._synced_names = names

        # A change that comes in the same tick of the clock would not change the folder's time. So
        # a time is only remembered once that tick is over.
        is_tick_over = time.time_ns() - changed_ns > _TICK_NS
        if is_tick_over:
            self._settled_time_ns = changed_ns
        else:
            self._settled_time_ns = 0

    def _release_read_pages(self) -> None:
        """Release the pages read so far. LevelDB maps its tables, and would keep all of
        a large entry in memory.

        A compaction may unmap a table at any moment, and other memory may be mapped in
        its place. So only tables that an open iterator holds are touched: those that
        existed before it was opened and still do. If there are so many that LevelDB may
        close some anyway, `_PAGEOUT` is used, which loses no data, whoever owns the
        memory.
        """
        self._read_bytes = 0
        if sys.platform != "linux":
            return
        before = self._live_table_numbers()
        with contextlib.closing(self._db.raw_iterator(fill_cache=False)):
            held_tables = before & self._live_table_numbers()
            advice = _DONTNEED
            if len(held_tables) > _SURELY_OPEN:
                advice = _PAGEOUT
            for start, end in _find_memory_ranges_of_table_files(self.folder, held_tables):
                _MADVISE(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)

    def _live_table_numbers(self) -> set[int]:
        listed_tables = self._db.get_property(b"leveldb.sstables") or b""
        return {int(number) for number in _TABLE.findall(listed_tables)}

    def close(self) -> None:
        self._db.close()
        self._close_handle()

    def _close_handle(self) -> None:
        if isinstance(self._handle, int):
            os.close(self._handle)
        self._handle = self.folder

    def _reopen_after_failure(self) -> None:
        """Reopen after a failed write. As long as the disk refuses writes, the old
        handle stays, for reading.
        """
        self._test_disk_write()
        self._db.close()
        self._db = self._open_leveldb()
        self._failed = False

    def _test_disk_write(self) -> None:
        """Raise the disk's error if a file cannot be written beside the database. Only when it
        can is the database opened again.
        """
        probe = self.folder.with_name(f"{self.folder.name}.probe")
        try:
            with probe.open("wb") as file:
                file.write(bytes(_PROBE_BYTES))
                sync_file(file)
        except OSError as error:
            raise convert_leveldb_error(
                error, "The cache still cannot be written to; what was stored before is safe"
            ) from error
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)

    def _get_or_reopen_handle(self) -> plyvel.DB:
        """Return the handle for reading, reopening the database if that failed earlier."""
        if self._db.closed:
            self._db = self._open_leveldb()
        return self._db

    def get_value(self, key: bytes) -> bytes | None:
        """Return the value. A miss is checked again, since a damaged Bloom filter can
        hide a key.
        """
        value = self.get_value_once(key)
        if value is not None:
            return value
        # A scan does not use the filter. The range has this one key.
        for _, found_value in self.scan_range(key, key + b"\x00"):
            return found_value
        return None

    def get_value_once(self, key: bytes) -> bytes | None:
        """Return the value, or None, where a false miss does no harm."""
        try:
            value: bytes | None = self._db.get(key, verify_checksums=True)
        except RuntimeError:  # plyvel raises this if the handle is closed.
            value = self._get_or_reopen_handle().get(key, verify_checksums=True)
        except plyvel.Error as error:
            raise self._convert_read_error(error) from error
        if value is not None:
            self._read_bytes += len(value)
            if self._read_bytes > _RELEASE_AFTER_BYTES:
                self._release_read_pages()
        return value

    def scan_range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from `start` up to `stop`, exclusive, and values. Skips damage and
        raises at the end.
        """
        try:
            with self._get_or_reopen_handle().iterator(
                start=start, stop=stop, **_CHECKED_READ
            ) as iterator:
                yield from iterator
        except plyvel.Error as error:
            raise self._convert_read_error(error) from error

    def keys_in_range(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        try:
            with self._get_or_reopen_handle().iterator(
                start=start, stop=stop, reverse=reverse, include_value=False, **_CHECKED_READ
            ) as iterator:
                yield from iterator
        except plyvel.Error as error:
            raise self._convert_read_error(error) from error

    def write_batch(self, writes: Sequence[Write]) -> None:
        """Write all or nothing, on disk when this returns. After StoreFull or
        StoreFailed, nothing is written.
        """
        if self._failed:
            self._reopen_after_failure()
        batch = self._db.write_batch(sync=True)
        value_bytes = 0
        key_bytes = 0
        for key, value in writes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
                value_bytes += len(value)
            key_bytes += len(key) + _MOST_PER_KEY
        memory_bytes = key_bytes + value_bytes
        try:
            batch.write()
            # Reading the folder's time may take a tenth as long as a small write.
            if self._log_bytes + memory_bytes > _SURELY_ONE_LOG or not self._settled_time_ns:
                self._sync_file_names()
        except (plyvel.Error, OSError) as error:
            raise self._remember_failed_write(error) from error
        self._log_bytes += memory_bytes
        # Compactions of writes go through the tables' mappings, too.
        self._read_bytes += value_bytes
        if self._read_bytes > _RELEASE_AFTER_BYTES:
            self._release_read_pages()

    def _remember_failed_write(self, error: Exception) -> StoreFailed:
        """Have the database reopened before the next write, and return the error for the user."""
        self._failed = True
        if isinstance(error, plyvel.CorruptionError):
            # A compaction met a damaged block, and LevelDB refuses all writes from now on.
            # Opened less strictly it takes them, until the next opening repairs the files.
            self._is_strict = False
            with contextlib.suppress(OSError):
                damage_mark(self.folder).touch()
        return convert_leveldb_error(
            error, "The cache could not be written to; what was stored before is safe"
        )

    def compact_database(self) -> None:
        """Give back the space of deleted data."""
        self._compact_range()
        self._check_compaction()

    def _compact_range(self, start: bytes = _FIRST, stop: bytes = _LAST) -> None:
        """Compact a range. Without both ends, plyvel would silently compact an empty range."""
        if self._failed:
            self._reopen_after_failure()
        self._log_bytes = _SURELY_ONE_LOG  # This begins a new log, whose name the next write syncs.
        self._get_or_reopen_handle().compact_range(start=start, stop=stop)

    def flush_log(self) -> None:
        """Write the log into a table, by compacting an empty range, which does nothing else.

        Raises if no new log could be started, which LevelDB itself does not report.
        """
        last = self._last_log_number()
        self._compact_range(_LAST + b"\xff", _LAST + b"\xff\xff")
        if self._last_log_number() <= last:
            self._failed = True
            raise StoreFailed(
                "The cache files could not be rewritten, so they may still contain deleted content.",
                remedy="Check the disk, then try again.",
            )

    def scrub_database_files(self) -> None:
        """Rewrite everything, so that no file contains deleted data. Raises StoreFailed
        if that is not possible.

        A compaction is not enough: it leaves the lowest tables as they are, and a value
        that was deleted while it was in the log goes into one of them, with its
        deletion. A deletion at each end of all keys makes it rewrite every table.
        """
        self.flush_log()
        self.write_batch([(_FIRST, None), (_LAST, None)])
        self.flush_log()
        self._compact_range()
        self._check_compaction()

    def _check_compaction(self) -> None:
        """Find out by a write whether a compaction failed, since it does not say."""
        self.write_batch([(_FIRST, None)])

    def _last_log_number(self) -> int:
        return max((int(path.stem) for path in self.folder.glob("*.log")), default=0)

    def _read_dropped_log_bytes(self) -> int:
        """Return how many bytes of its logs LevelDB dropped when it was opened, which it says
        only in its own log of messages.
        """
        try:
            log_text = (self.folder / "LOG").read_text("utf-8", "replace")
        except OSError:
            return 0
        dropped_bytes = 0
        for line in log_text.splitlines():
            # LevelDB writes, for example, `000005.log: dropping 1021 bytes; Corruption: …`.
            _, mark, message = line.partition(": dropping ")
            if mark:
                dropped_bytes += int(message.split()[0])
        return dropped_bytes


def _find_memory_ranges_of_table_files(
    folder: Path, tables: Collection[int]
) -> Iterator[tuple[int, int]]:
    """Yield where in this process's memory LevelDB has mapped these tables, as Linux lists it:
    one line for each range, such as `7f01-7f02 r--p … /path/000005.ldb`.
    """
    real_folder = os.path.realpath(folder)
    line_ends = {f"{real_folder}/{number:06}.ldb\n" for number in tables}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:  # noqa: PTH123 - no file of ours
        for line in maps:
            if line[line.find("/") :] in line_ends:
                range_start, range_end = line.split(" ", 1)[0].split("-")
                yield int(range_start, 16), int(range_end, 16)


def damage_mark(folder: Path) -> Path:
    """Return the file that says that damage was met: the next opening repairs the cache."""
    return folder.with_name(f"{folder.name}.damaged")


def convert_leveldb_error(error: Exception, start: str) -> StoreFailed:
    """Return our error for one of LevelDB's. `start`: the beginning of its sentence."""
    text = str(error)
    # Arguments of plyvel's errors are bytes.
    if error.args and isinstance(error.args[0], bytes):
        text = error.args[0].decode("utf-8", "replace")
    if isinstance(error, plyvel.CorruptionError):
        return CacheCorrupt(
            f"{start}: its files are damaged.",
            remedy="Helix Desktop repairs these files when it opens the workspace.",
        )
    is_disk_full = "No space left" in text or "quota" in text.lower()
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        is_disk_full = True
    if is_disk_full:
        return StoreFull(f"{start}: the disk is full.", remedy="Free up disk space and try again.")
    return StoreFailed(f"{start}: {text.strip()}.", remedy="Check the disk, then try again.")


def is_repairable_error(text: str) -> bool:
    """Whether an error at opening means missing or invalid files rather than a failing disk."""
    return any(sign in text for sign in _SIGNS_OF_BAD_FILES)


def repair_leveldb(folder: Path) -> list[str]:
    """Run LevelDB's own repair. Copy the folder first. Return the names of tables that it
    dropped, completely or in part.

    It keeps a block that does not match its checksum unless it is told to be paranoid.
    """
    try:
        plyvel.repair_db(str(folder), paranoid_checks=True, **_OPTIONS)
    except plyvel.Error as error:
        raise convert_leveldb_error(error, "The cache cannot be repaired") from error
    lost_folder = folder / "lost"
    names = [path.name for path in lost_folder.glob("*") if path.suffix in {".ldb", ".sst"}]
    delete_folder_tree(lost_folder, ignore_errors=True)
    return names
