"""Content on its way into the cache, piece by piece, so that it never stands in memory as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import About
from helix_desktop.store import records
from helix_desktop.store.leveldb import Level, Write
from helix_desktop.store.records import CHUNK, Record
from helix_desktop.values import dataclass

_TEXT = ("text/", "application/json", "application/xml", "application/x-")


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """Content ready to be committed. `writes` is empty where the cache has it already."""

    record: Record
    writes: tuple[Write, ...]


class Shelf(Protocol):
    """What the cache gives to content on its way in."""

    level: Level

    def take(self) -> int:
        """A number nobody has."""
        ...

    def encoded(self, content: bytes) -> bytes: ...

    def known(self, digest: Digest) -> Staged | None:
        """What makes storing it unnecessary."""
        ...

    def adopted(self, known: Staged, about: About, lines: int) -> Staged: ...

    def ready(self, record: Record, writes: Sequence[Write]) -> Staged: ...

    def drop_chunks(self, blob: int, *, extra: Sequence[Write] = ()) -> None: ...


class Incoming:
    """Content on its way into the cache, piece by piece. End it with `finish` (and commit that) or `abandon`."""

    def __init__(self, cache: Shelf, blob: int, about: About, time: float) -> None:
        self._cache = cache
        self._blob = blob
        self._about = about
        self._time = time
        self._whole = hashlib.sha256()
        self._chunks: list[bytes] = []
        self._held = bytearray()
        self._size = self._kept = self._lines = 0
        self._last = b"\n"

    def write(self, piece: bytes) -> None:
        """Take a piece of any size; whole chunks go to the disk at once."""
        if not piece:
            return
        self._whole.update(piece)
        self._size += len(piece)
        self._lines += piece.count(b"\n")
        self._last = piece[-1:]
        view = memoryview(piece)
        while len(self._held) + len(view) > CHUNK:
            room = CHUNK - len(self._held)
            self._held += view[:room]
            view = view[room:]
            self._flush()
        self._held += view

    def _flush(self) -> None:
        content = bytes(self._held)
        self._held.clear()
        value = self._cache.encoded(content)
        writes: list[Write] = [(records.chunk_key(self._blob, len(self._chunks)), value)]
        if not self._chunks:
            writes.append((records.number_key(b"o", self._blob), b""))
        self._cache.level.write(writes)
        self._chunks.append(hashlib.sha256(content).digest())
        self._kept += len(value)

    def finish(self) -> Staged:
        """The entry, ready to be committed; content the cache has already is dropped again."""
        digest = Digest(self._whole.digest())
        cache = self._cache
        if (known := cache.known(digest)) is not None:
            self.abandon()
            return cache.adopted(known, self._about, self._lines)
        if not self._chunks:
            return self._single(digest)
        self._flush()
        lines = self._lines + (self._last != b"\n") if self._about.media_type.startswith(_TEXT) else 0
        record = Record(
            cache.take(),
            self._blob,
            digest,
            self._size,
            self._kept,
            lines,
            self._time,
            self._about,
            tuple(self._chunks),
        )
        return cache.ready(record, [(records.number_key(b"o", self._blob), None)])

    def _single(self, digest: Digest) -> Staged:
        content = bytes(self._held)
        cache = self._cache
        value = cache.encoded(content)
        lines = line_count(content, self._about)
        number = cache.take()
        record = Record(number, self._blob, digest, len(content), len(value), lines, self._time, self._about)
        return cache.ready(record, [(records.chunk_key(self._blob, 0), value)])

    def abandon(self) -> None:
        """Take back what was written."""
        if self._chunks:
            self._cache.drop_chunks(self._blob, extra=[(records.number_key(b"o", self._blob), None)])
        self._chunks.clear()


def line_count(content: bytes, about: About) -> int:
    """How many lines a text has; what is no text has none."""
    if not about.media_type.startswith(_TEXT):
        return 0
    return content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))
