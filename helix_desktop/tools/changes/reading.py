"""The contents of files on their way into the cache, in batches, so that reading and storing go on side by side."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from helix_desktop.engine.changes import tree
from helix_desktop.engine.changes.tree import Item, Kind
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import About, Cache
from helix_desktop.tools import beneath
from helix_desktop.tools.changes.walk import GONE, STAMP, UNREADABLE, UNSURE, Wanted
from helix_desktop.values import dataclass

ABOUT = About("checkpoint", "", "")  # there are many: each word takes room in every one
LARGE = 4 << 20  # bytes; a larger file is stored piece by piece
BATCH, MOST = 8 << 20, 2_000  # bytes and files that are stored at once
_PIECE = 1 << 20
_TRIES = 3
_NOT_WAITING = getattr(os, "O_NONBLOCK", 0)  # a pipe that took the file's place is opened at once
_FOLDER = beneath.DIRECTORY | getattr(os, "O_CLOEXEC", 0)


class Contents(Cache, Protocol):
    """The content store: a cache that takes many at once."""

    async def put_many(self, contents: Sequence[tuple[bytes, About]]) -> Sequence[Stored]: ...


@dataclass(frozen=True, slots=True)
class Got:
    """A record for a file that was wanted; empty: it has gone. `restless`: it changed whenever it was read. `left`: it is there, and
    why it was not read.
    """

    path: str
    record: bytes
    restless: bool = False
    left: str = ""


@dataclass(frozen=True, slots=True)
class _ReadFile:
    """A small file as it was read. No `content`: it has gone, or is `left` for a reason."""

    wanted: Wanted
    content: bytes | None
    restless: bool = False
    left: str = ""


class Reader:
    """Opens files beneath the roots, never through a link."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)

    def open(self, path: str, flags: int = os.O_RDONLY) -> int:
        number, _, inside = path.partition("/")
        start = os.open(self._roots[int(number)], _FOLDER)
        try:
            return beneath.open_without_links(start, inside or ".", flags | _NOT_WAITING)
        finally:
            os.close(start)


async def store(contents: Contents, reader: Reader, wanted: Sequence[Wanted]) -> AsyncIterator[Sequence[Got]]:
    """Read and store them, batch after batch: each is yielded when its contents are on the disk."""
    small = [one for one in wanted if one.size <= LARGE]
    batches = list(_batches(small))
    reading = await asyncio.to_thread(_read_all, reader, batches[0]) if batches else []
    for number in range(len(batches)):
        held, reading = reading, []
        if number + 1 < len(batches):
            following = asyncio.get_running_loop().run_in_executor(None, _read_all, reader, batches[number + 1])
            yield await _put(contents, held)
            reading = await following
        else:
            yield await _put(contents, held)
    for one in wanted:
        if one.size > LARGE:
            yield [await _stream(contents, reader, one)]


def _batches(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    found: list[list[Wanted]] = []
    held = 0
    for one in wanted:
        if not found or held + one.size > BATCH or len(found[-1]) >= MOST:
            found.append([])
            held = 0
        found[-1].append(one)
        held += one.size
    return found


def _read_all(reader: Reader, wanted: Sequence[Wanted]) -> list[_ReadFile]:
    return [_read(reader, one) for one in wanted]


def _read(reader: Reader, wanted: Wanted) -> _ReadFile:
    """The content, with the file's stamp around reading it; None for what has gone or cannot be read."""
    content, same = b"", False
    try:
        for _ in range(_TRIES):
            handle = reader.open(wanted.path)
            try:
                before = os.fstat(handle)
                if not stat.S_ISREG(before.st_mode):
                    return _ReadFile(wanted, None)
                if before.st_size > max(LARGE, wanted.size):
                    return _ReadFile(wanted, None, left="changed while it was read")
                content = _all_of(handle, before.st_size)
                same = stamp(before) == stamp(os.fstat(handle))
            finally:
                os.close(handle)
            sure = same and wanted.stamp == stamp(before)
            mode = before.st_mode & 0o7777
            wanted = replace(wanted, stamp=wanted.stamp if sure else UNSURE, mode=mode, size=len(content))
            if same:
                break
    except OSError as error:
        return _ReadFile(wanted, None, left=_why(error))
    return _ReadFile(wanted, content, restless=not same)


def _why(error: OSError) -> str:
    """Why a file was not read; nothing where it has gone."""
    return "" if error.errno in GONE else UNREADABLE


def stamp(st: os.stat_result) -> bytes:
    return STAMP.pack(st.st_ino, st.st_mtime_ns, st.st_ctime_ns, st.st_mode, st.st_size)


def _all_of(handle: int, size: int) -> bytes:
    """As much as the file had when it was opened: it may grow faster than it is read."""
    pieces = []
    while size > 0 and (piece := os.read(handle, size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


async def _put(contents: Contents, held: Sequence[_ReadFile]) -> list[Got]:
    there = [(one, one.content) for one in held if one.content is not None]
    stored = await contents.put_many([(content, ABOUT) for _, content in there])
    got = [Got(one.wanted.path, b"", left=one.left) for one in held if one.content is None]
    for (one, _), entry in zip(there, stored, strict=True):
        got.append(Got(one.wanted.path, _record(one.wanted, entry), one.restless))
    return got


def _record(wanted: Wanted, entry: Stored) -> bytes:
    return wanted.stamp + tree.pack(Item(Kind.FILE, wanted.mode, entry.size, entry.digest.raw))


async def _stream(contents: Contents, reader: Reader, wanted: Wanted) -> Got:
    try:
        handle = reader.open(wanted.path)
    except OSError as error:
        return Got(wanted.path, b"", left=_why(error))
    try:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            return Got(wanted.path, b"")
        if before.st_size > wanted.size:
            return Got(wanted.path, b"", left="changed while it was read")
        entry = await contents.put(_pieces(handle, before.st_size), ABOUT)
        same = stamp(before) == stamp(os.fstat(handle))
    except OSError as error:
        return Got(wanted.path, b"", left=_why(error))
    finally:
        os.close(handle)
    sure = same and stamp(before) == wanted.stamp
    wanted = replace(wanted, stamp=wanted.stamp if sure else UNSURE, mode=before.st_mode & 0o7777)
    return Got(wanted.path, _record(wanted, entry), not same)


async def _pieces(handle: int, size: int) -> AsyncIterator[bytes]:
    while size > 0 and (piece := await asyncio.to_thread(os.read, handle, min(size, _PIECE))):
        yield piece
        size -= len(piece)
