"""Stores the contents of files in the cache in batches, reading one batch while another
is stored.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from helix_desktop.engine.changes.folder_state import PathKind, TreeItem, pack_item
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import ContentCache, EntryOrigin
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes.folder_walk import (
    GONE,
    STAMP,
    UNREADABLE,
    UNRELIABLE_STAMP,
    WantedFile,
)
from helix_desktop.tools.safe_path_opening import DIRECTORY, closing_handle, open_without_links

# This origin is short, because very many entries have it.
ABOUT = EntryOrigin("checkpoint", "", "")
LARGE = 4 << 20  # Files with more bytes are stored in pieces.
# The maximum numbers of bytes and of files that are stored together.
BATCH = 8 << 20
MOST = 2_000
_PIECE = 1 << 20
_TRIES = 3
_NOT_WAITING = getattr(os, "O_NONBLOCK", 0)  # Opening a file that has become a pipe must not block.
_FOLDER = DIRECTORY | getattr(os, "O_CLOEXEC", 0)


class BatchContentCache(ContentCache, Protocol):
    async def store_many(
        self, contents: Sequence[tuple[bytes, EntryOrigin]]
    ) -> Sequence[Stored]: ...


@dataclass(frozen=True, slots=True)
class WantedFileRecord:
    """Without a `record`, it was removed or not read. `reason_unread` says why."""

    path: str
    record: bytes
    keeps_changing: bool = False
    reason_unread: str = ""


@dataclass(frozen=True, slots=True)
class _ReadFile:
    """A small file. Without `content`, it was removed, or `reason_unread` says why it
    was not read.
    """

    wanted: WantedFile
    content: bytes | None
    keeps_changing: bool = False
    reason_unread: str = ""


class RootFileOpener:
    """Opens files within the roots, never through a link."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)

    def open_without_link(self, path: str, flags: int = os.O_RDONLY) -> int:
        number, _, path_in_root = path.partition("/")
        with closing_handle(os.open(self._roots[int(number)], _FOLDER)) as root_handle:
            return open_without_links(root_handle, path_in_root or ".", flags | _NOT_WAITING)

    def open_recorded_folder(self, path: str) -> AbstractContextManager[int]:
        return closing_handle(self.open_without_link(path, DIRECTORY))


async def store_wanted_files(
    contents: BatchContentCache, reader: RootFileOpener, wanted_files: Sequence[WantedFile]
) -> AsyncIterator[Sequence[WantedFileRecord]]:
    """Read and store files in batches. Each batch is yielded once its contents are on disk.

    While one batch is stored, the next is read in a thread. Large files come last, one by one, as
    they are never whole in memory.
    """
    batches = _group_into_batches([file for file in wanted_files if file.size <= LARGE])
    loop = asyncio.get_running_loop()
    files: list[_ReadFile] = []
    if batches:
        files = await asyncio.to_thread(_read_batch, reader, batches[0])
    for next_batch in batches[1:]:
        # The next batch is read while this one is stored.
        reading = loop.run_in_executor(None, _read_batch, reader, next_batch)
        yield await _store_batch(contents, files)
        files = await reading
    if files:
        yield await _store_batch(contents, files)
    for file in wanted_files:
        if file.size > LARGE:
            yield [await _store_large_file(contents, reader, file)]


def _group_into_batches(wanted_files: Sequence[WantedFile]) -> list[list[WantedFile]]:
    """Group files so that a batch has limited numbers of files and bytes."""
    batches: list[list[WantedFile]] = [[]]
    batch_bytes = 0
    for file in wanted_files:
        is_batch_full = batch_bytes + file.size > BATCH or len(batches[-1]) >= MOST
        if is_batch_full:
            batches.append([])
            batch_bytes = 0
        batches[-1].append(file)
        batch_bytes += file.size
    return [batch for batch in batches if batch]


def _read_batch(reader: RootFileOpener, wanted_files: Sequence[WantedFile]) -> list[_ReadFile]:
    return [_read_small_file(reader, file) for file in wanted_files]


def _read_small_file(reader: RootFileOpener, wanted: WantedFile) -> _ReadFile:
    """Read a file, and again if it changes while it is read, but not for ever. Content is None if it
    was removed or is unreadable.
    """
    try:
        read_file = _read_small_file_once(reader, wanted)
        for _ in range(_TRIES - 1):
            if not read_file.keeps_changing:
                break
            read_file = _read_small_file_once(reader, read_file.wanted)
    except OSError as error:
        return _ReadFile(wanted, None, reason_unread=_reason_not_read(error))
    return read_file


def _read_small_file_once(reader: RootFileOpener, wanted: WantedFile) -> _ReadFile:
    """Read a file between two looks at its stamp, which are its inode, times, mode and size: if both
    are equal, nobody has changed it meanwhile.
    """
    with closing_handle(reader.open_without_link(wanted.path)) as handle:
        status_before = os.fstat(handle)
        if not stat.S_ISREG(status_before.st_mode):
            return _ReadFile(wanted, None)
        if status_before.st_size > max(LARGE, wanted.size):
            return _ReadFile(wanted, None, reason_unread="changed while it was read")
        content = _read_until_size(handle, status_before.st_size)
        is_same = pack_stat_stamp(status_before) == pack_stat_stamp(os.fstat(handle))
    with_stamp = _with_stamp_of_read(wanted, status_before, is_same=is_same)
    wanted_as_read = replace(with_stamp, size=len(content))
    return _ReadFile(wanted_as_read, content, keeps_changing=not is_same)


def _with_stamp_of_read(wanted: WantedFile, status: os.stat_result, *, is_same: bool) -> WantedFile:
    """Trust the stamp only if the file had it before and after it was read."""
    stamp = UNRELIABLE_STAMP
    if is_same and wanted.stamp == pack_stat_stamp(status):
        stamp = wanted.stamp
    return replace(wanted, stamp=stamp, mode=status.st_mode & 0o7777)


def _reason_not_read(error: OSError) -> str:
    """Say why a file was not read. Return an empty string if it has been removed."""
    if error.errno in GONE:
        return ""
    return UNREADABLE


def pack_stat_stamp(status: os.stat_result) -> bytes:
    return STAMP.pack(
        status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_mode, status.st_size
    )


def _read_until_size(handle: int, size: int) -> bytes:
    """Read the `size` bytes that the file had when opened. It may grow faster than we read."""
    content = bytearray()
    while len(content) < size:
        piece = os.read(handle, size - len(content))
        if not piece:
            break
        content += piece
    return bytes(content)


async def _store_batch(
    contents: BatchContentCache, files: Sequence[_ReadFile]
) -> list[WantedFileRecord]:
    """Store the contents of small files together. Return a record for each file, also for those
    that could not be read.
    """
    records: list[WantedFileRecord] = []
    read_files: list[_ReadFile] = []
    contents_to_store: list[tuple[bytes, EntryOrigin]] = []
    for file in files:
        if file.content is None:
            path = file.wanted.path
            records.append(WantedFileRecord(path, b"", reason_unread=file.reason_unread))
        else:
            read_files.append(file)
            contents_to_store.append((file.content, ABOUT))
    stored = await contents.store_many(contents_to_store)
    for file, entry in zip(read_files, stored, strict=True):
        record = _build_file_record(file.wanted, entry)
        records.append(WantedFileRecord(file.wanted.path, record, file.keeps_changing))
    return records


def _build_file_record(wanted: WantedFile, entry: Stored) -> bytes:
    item = TreeItem(PathKind.FILE, wanted.mode, entry.size, entry.digest.raw)
    return wanted.stamp + pack_item(item)


async def _store_large_file(
    contents: BatchContentCache, reader: RootFileOpener, wanted: WantedFile
) -> WantedFileRecord:
    """Store a large file piece by piece. If it changes while it is read, its record says so;
    if it has grown before it is read, it is not stored.
    """
    try:
        handle = reader.open_without_link(wanted.path)
    except OSError as error:
        return WantedFileRecord(wanted.path, b"", reason_unread=_reason_not_read(error))
    try:
        status_before = os.fstat(handle)
        if not stat.S_ISREG(status_before.st_mode):
            return WantedFileRecord(wanted.path, b"")
        if status_before.st_size > wanted.size:
            return WantedFileRecord(wanted.path, b"", reason_unread="changed while it was read")
        entry = await contents.store_content(
            _read_handle_in_pieces(handle, status_before.st_size), ABOUT
        )
        is_same = pack_stat_stamp(status_before) == pack_stat_stamp(os.fstat(handle))
    except OSError as error:
        return WantedFileRecord(wanted.path, b"", reason_unread=_reason_not_read(error))
    finally:
        os.close(handle)
    wanted_as_read = _with_stamp_of_read(wanted, status_before, is_same=is_same)
    record = _build_file_record(wanted_as_read, entry)
    return WantedFileRecord(wanted.path, record, keeps_changing=not is_same)


async def _read_handle_in_pieces(handle: int, size: int) -> AsyncIterator[bytes]:
    while size > 0:
        piece = await asyncio.to_thread(os.read, handle, min(size, _PIECE))
        if not piece:
            return
        yield piece
        size -= len(piece)
