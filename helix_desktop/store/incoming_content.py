"""Content on its way into the cache, piece by piece, so that memory never holds all of it."""

import hashlib
from collections.abc import Sequence
from typing import Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store import cache_records
from helix_desktop.store.cache_records import CHUNK, CacheRecord
from helix_desktop.store.leveldb import LevelDatabase, Write

_TEXT = ("text/", "application/json", "application/xml", "application/x-")


@dataclass(frozen=True, slots=True, eq=False)
class StagedEntry:
    """Content ready to be committed. `writes` is empty where the cache has it already."""

    record: CacheRecord
    writes: tuple[Write, ...]


class ContentReceiver(Protocol):
    """What the cache gives to content on its way in."""

    level: LevelDatabase

    def take_number(self) -> int:
        """A number nobody has."""
        ...

    def encode_chunk(self, content: bytes) -> bytes: ...

    def find_known_content(self, digest: Digest) -> StagedEntry | None:
        """What makes storing it unnecessary."""
        ...

    def adopt_checkpoint_entry(self, known: StagedEntry, about: EntryOrigin, lines: int) -> StagedEntry: ...

    def stage_record(self, record: CacheRecord, writes: Sequence[Write]) -> StagedEntry: ...

    def delete_chunks(self, blob: int, *, extra: Sequence[Write] = ()) -> None: ...


class IncomingContent:
    """Content on its way into the cache, piece by piece. End it with `finish_entry` (and commit that) or `abandon_entry`."""

    def __init__(self, cache: ContentReceiver, blob: int, about: EntryOrigin, time: float) -> None:
        self._cache = cache
        self._blob = blob
        self._about = about
        self._time = time
        self._whole = hashlib.sha256()
        self._chunks: list[bytes] = []
        self._held = bytearray()
        self._size = self._kept = self._lines = 0
        self._last = b"\n"

    def write_piece(self, piece: bytes) -> None:
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
            self._write_chunk()
        self._held += view

    def _write_chunk(self) -> None:
        content = bytes(self._held)
        self._held.clear()
        value = self._cache.encode_chunk(content)
        writes: list[Write] = [(cache_records.key_of_chunk(self._blob, len(self._chunks)), value)]
        if not self._chunks:
            writes.append((cache_records.key_of_number(b"o", self._blob), b""))
        self._cache.level.write_batch(writes)
        self._chunks.append(hashlib.sha256(content).digest())
        self._kept += len(value)

    def finish_entry(self) -> StagedEntry:
        """The entry, ready to be committed; content the cache has already is dropped again."""
        digest = Digest(self._whole.digest())
        cache = self._cache
        if (known := cache.find_known_content(digest)) is not None:
            self.abandon_entry()
            return cache.adopt_checkpoint_entry(known, self._about, self._lines)
        if not self._chunks:
            return self._stage_single_chunk(digest)
        self._write_chunk()
        lines = self._lines + (self._last != b"\n") if self._about.media_type.startswith(_TEXT) else 0
        record = CacheRecord(
            cache.take_number(),
            self._blob,
            digest,
            self._size,
            self._kept,
            lines,
            self._time,
            self._about,
            tuple(self._chunks),
        )
        return cache.stage_record(record, [(cache_records.key_of_number(b"o", self._blob), None)])

    def _stage_single_chunk(self, digest: Digest) -> StagedEntry:
        content = bytes(self._held)
        cache = self._cache
        value = cache.encode_chunk(content)
        lines = count_text_lines(content, self._about)
        number = cache.take_number()
        record = CacheRecord(number, self._blob, digest, len(content), len(value), lines, self._time, self._about)
        return cache.stage_record(record, [(cache_records.key_of_chunk(self._blob, 0), value)])

    def abandon_entry(self) -> None:
        """Take back what was written."""
        if self._chunks:
            self._cache.delete_chunks(self._blob, extra=[(cache_records.key_of_number(b"o", self._blob), None)])
        self._chunks.clear()


def count_text_lines(content: bytes, about: EntryOrigin) -> int:
    """How many lines a text has; what is no text has none."""
    if not about.media_type.startswith(_TEXT):
        return 0
    return content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))
