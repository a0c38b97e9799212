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

ABOUT = EntryOrigin(
    "checkpoint", "", ""
)  # This origin is short, because very many entries have it.
LARGE = 4 << 20  # Files with more bytes are stored in pieces.
BATCH, MOST = 8 << 20, 2_000  # The maximum numbers of bytes and of files that are stored together.
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
        number, _, inside = path.partition("/")
        with closing_handle(os.open(self._roots[int(number)], _FOLDER)) as start:
            return open_without_links(start, inside or ".", flags | _NOT_WAITING)

    def open_folder(self, path: str) -> AbstractContextManager[int]:
        return closing_handle(self.open_without_link(path, DIRECTORY))


async def store_wanted_files(
    contents: BatchContentCache, reader: RootFileOpener, wanted: Sequence[WantedFile]
) -> AsyncIterator[Sequence[WantedFileRecord]]:
    """Read and store files in batches. Each batch is yielded once its contents are on disk."""
    small = [one for one in wanted if one.size <= LARGE]
    batches = list(_group_into_batches(small))
    reading = await asyncio.to_thread(_read_batch, reader, batches[0]) if batches else []
    for number in range(len(batches)):
        held, reading = reading, []
        if number + 1 < len(batches):
            following = asyncio.get_running_loop().run_in_executor(
                None, _read_batch, reader, batches[number + 1]
            )
            yield await _store_batch(contents, held)
            reading = await following
        else:
            yield await _store_batch(contents, held)
    for one in wanted:
        if one.size > LARGE:
            yield [await _store_large_file(contents, reader, one)]


def _group_into_batches(wanted: Sequence[WantedFile]) -> list[list[WantedFile]]:
    found: list[list[WantedFile]] = []
    held = 0
    for one in wanted:
        if not found or held + one.size > BATCH or len(found[-1]) >= MOST:
            found.append([])
            held = 0
        found[-1].append(one)
        held += one.size
    return found


def _read_batch(reader: RootFileOpener, wanted: Sequence[WantedFile]) -> list[_ReadFile]:
    return [_read_small_file(reader, one) for one in wanted]


def _read_small_file(reader: RootFileOpener, wanted: WantedFile) -> _ReadFile:
    """Read a file between two looks at its stamp. Content is None if it was removed or
    is unreadable.
    """
    content, same = b"", False
    try:
        for _ in range(_TRIES):
            with closing_handle(reader.open_without_link(wanted.path)) as handle:
                before = os.fstat(handle)
                if not stat.S_ISREG(before.st_mode):
                    return _ReadFile(wanted, None)
                if before.st_size > max(LARGE, wanted.size):
                    return _ReadFile(wanted, None, reason_unread="changed while it was read")
                content = _read_until_size(handle, before.st_size)
                same = pack_stat_stamp(before) == pack_stat_stamp(os.fstat(handle))
            sure = same and wanted.stamp == pack_stat_stamp(before)
            mode = before.st_mode & 0o7777
            wanted = replace(
                wanted,
                stamp=wanted.stamp if sure else UNRELIABLE_STAMP,
                mode=mode,
                size=len(content),
            )
            if same:
                break
    except OSError as error:
        return _ReadFile(wanted, None, reason_unread=_reason_not_read(error))
    return _ReadFile(wanted, content, keeps_changing=not same)


def _reason_not_read(error: OSError) -> str:
    """Say why a file was not read. Return an empty string if it has been removed."""
    return "" if error.errno in GONE else UNREADABLE


def pack_stat_stamp(st: os.stat_result) -> bytes:
    return STAMP.pack(st.st_ino, st.st_mtime_ns, st.st_ctime_ns, st.st_mode, st.st_size)


def _read_until_size(handle: int, size: int) -> bytes:
    """Read the `size` bytes that the file had when opened. It may grow faster than we read."""
    pieces = []
    while size > 0 and (piece := os.read(handle, size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


async def _store_batch(
    contents: BatchContentCache, files: Sequence[_ReadFile]
) -> list[WantedFileRecord]:
    there = [(one, one.content) for one in files if one.content is not None]
    stored = await contents.store_many([(content, ABOUT) for _, content in there])
    got = [
        WantedFileRecord(one.wanted.path, b"", reason_unread=one.reason_unread)
        for one in files
        if one.content is None
    ]
    for (one, _), entry in zip(there, stored, strict=True):
        got.append(
            WantedFileRecord(
                one.wanted.path, _build_file_record(one.wanted, entry), one.keeps_changing
            )
        )
    return got


def _build_file_record(wanted: WantedFile, entry: Stored) -> bytes:
    return wanted.stamp + pack_item(
        TreeItem(PathKind.FILE, wanted.mode, entry.size, entry.digest.raw)
    )


async def _store_large_file(
    contents: BatchContentCache, reader: RootFileOpener, wanted: WantedFile
) -> WantedFileRecord:
    try:
        handle = reader.open_without_link(wanted.path)
    except OSError as error:
        return WantedFileRecord(wanted.path, b"", reason_unread=_reason_not_read(error))
    try:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            return WantedFileRecord(wanted.path, b"")
        if before.st_size > wanted.size:
            return WantedFileRecord(wanted.path, b"", reason_unread="changed while it was read")
        entry = await contents.store_content(_read_handle_in_pieces(handle, before.st_size), ABOUT)
        same = pack_stat_stamp(before) == pack_stat_stamp(os.fstat(handle))
    except OSError as error:
        return WantedFileRecord(wanted.path, b"", reason_unread=_reason_not_read(error))
    finally:
        os.close(handle)
    sure = same and pack_stat_stamp(before) == wanted.stamp
    wanted = replace(
        wanted, stamp=wanted.stamp if sure else UNRELIABLE_STAMP, mode=before.st_mode & 0o7777
    )
    return WantedFileRecord(wanted.path, _build_file_record(wanted, entry), not same)


async def _read_handle_in_pieces(handle: int, size: int) -> AsyncIterator[bytes]:
    while size > 0 and (piece := await asyncio.to_thread(os.read, handle, min(size, _PIECE))):
        yield piece
        size -= len(piece)
