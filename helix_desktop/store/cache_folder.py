"""The cache of one workspace: content by its SHA-256, in LevelDB. Plain calls, from one thread.

Content is written before anything refers to it: chunks first, then one synced batch
that makes the entry known. So a crash leaves at most unknown chunks. Their numbers are
marked, and removed at the next opening.
"""

import contextlib
import hashlib
import time as clock
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import zstandard

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import (
    CacheCorrupt,
    InvalidInput,
    NotFound,
    StoreFailed,
    WrittenByNewerVersion,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store import cache_records
from helix_desktop.store.cache_reader import (
    FORGOTTEN,
    LAST_KEY,
    PINNED,
    QUARANTINED,
    CacheReader,
    key_range_end,
)
from helix_desktop.store.cache_records import CHUNK, CacheRecord, EntryState
from helix_desktop.store.leveldb import LevelDatabase, Write

_RAW = bytes((cache_records.RAW,))
_ZSTD = bytes((cache_records.ZSTD,))
_HIGHEST = b"n"
SMALL_CONTENT_LEVEL = 15  # A zstd level: ten percent smaller than usual, but twenty times slower.
_TEXT = ("text/", "application/json", "application/xml", "application/x-")
MOST_PLACES = 4_096  # The places of so many new entries are remembered: each saves a read.
# `EntryOrigin.tool` of content stored for checkpoints, which the index leaves out.
CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True, eq=False)
class StagedEntry:
    """Content that is ready to be committed. `writes` is empty if the cache already has it."""

    record: CacheRecord
    writes: tuple[Write, ...]


class CacheFolder:
    """The open cache. Content is staged, then committed, which puts it on disk. Several
    commits share a sync.
    """

    def __init__(self, folder: Path, opened: LevelDatabase | None = None) -> None:
        """Open the cache of this folder, or go on with a database that is open. What an interrupted
        write has left is removed.
        """
        if opened is None:
            opened = LevelDatabase(folder)
        self.level = opened
        self.now: Callable[[], float] = clock.time
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._thorough_compressor = zstandard.ZstdCompressor(level=SMALL_CONTENT_LEVEL)
        # Entries that are not on the disk yet, by SHA-256.
        self._staged: dict[bytes, StagedEntry] = {}
        # Content that was stored again while the trash was being emptied, and must not be removed.
        self.put_again: set[Digest] | None = None  # None if the trash is not being emptied.
        try:
            self._check_version()
            self._next_number = self._delete_unfinished_and_find_free_number()
            self.reader = CacheReader(self.level)
        except StoreFailed:
            self.level.close()
            raise

    def _check_version(self) -> None:
        """Write this program's version of the format into a new cache, and refuse one that a
        newer program has written.
        """
        known = self.level.get_value_once(cache_records.VERSION_KEY)
        if known is None:
            self.level.write_batch(
                [(cache_records.VERSION_KEY, str(cache_records.VERSION).encode())]
            )
        elif int(known) > cache_records.VERSION:
            raise WrittenByNewerVersion(
                f"This cache was written by a newer version of Helix Desktop (format version {int(known)})."
            )

    def _delete_unfinished_and_find_free_number(self) -> int:
        """Remove the chunks of unfinished entries. Return the first free number.

        A note `o` with its number says that an entry is being written. Numbers are never used
        twice, so the free one is behind all that are in use, noted, or were used last.
        """
        highest = self.level.get_value(_HIGHEST) or bytes(8)
        numbers_used = [cache_records.number_in_key(_HIGHEST + highest)]
        for note_key in list(self.level.keys_in_range(b"o", key_range_end(b"o"))):
            number = cache_records.number_in_key(note_key)
            numbers_used.append(number)
            self.delete_chunks(number, extra=[(note_key, None)])
        for kind in (b"m", b"b"):
            keys_from_last = self.level.keys_in_range(kind, kind + LAST_KEY + b"\xff", reverse=True)
            last_key = next(iter(keys_from_last), None)
            if last_key is not None:
                numbers_used.append(cache_records.number_in_key(last_key))
        return max(numbers_used) + 1

    def close(self) -> None:
        self.level.close()

    def take_files_of(self, repaired: "CacheFolder") -> None:
        """Go on with the files of another cache, which nobody else uses."""
        self.level = repaired.level
        self.reader = repaired.reader
        # A number that was given out before the repair is never given out again.
        self._next_number = max(self._next_number, repaired.allocate_entry_number())

    def stage_content(
        self,
        content: bytes,
        about: EntryOrigin,
        *,
        thorough: bool = False,
        digest: Digest | None = None,
    ) -> StagedEntry:
        """Stage content. `thorough`: take more time to compress it. `digest`: its hash,
        if it is known.
        """
        digest = digest or Digest.of_content(content)
        known_entry = self.find_known_content(digest)
        if known_entry is not None:
            return self.adopt_checkpoint_entry(known_entry, about, count_text_lines(content, about))
        if len(content) > CHUNK:
            incoming = self.begin_incoming(about)
            incoming.write_piece(content)
            return incoming.finish_entry()
        return self.stage_single_chunk(content, digest, about, self.now(), thorough=thorough)

    def stage_single_chunk(
        self,
        content: bytes,
        digest: Digest,
        about: EntryOrigin,
        time: float,
        *,
        thorough: bool = False,
    ) -> StagedEntry:
        """Stage content that is stored in one piece. It may be compressed with more time
        (`thorough`).
        """
        number = self.allocate_entry_number()
        value = self.encode_chunk(content, thorough=thorough)
        lines = count_text_lines(content, about)
        record = CacheRecord(number, number, digest, len(content), len(value), lines, time, about)
        return self.stage_record(record, ((cache_records.key_of_chunk(number, 0), value),))

    def adopt_checkpoint_entry(
        self, known: StagedEntry, about: EntryOrigin, lines: int
    ) -> StagedEntry:
        """Make content that only checkpoints had a normal entry, as something else now
        stores it.
        """
        old = known.record
        if old.about.tool != CHECKPOINT or about.tool == CHECKPOINT or known.writes:
            return known
        record = replace(
            old, number=self.allocate_entry_number(), lines=lines, time=self.now(), about=about
        )
        return self.stage_record(record, [(cache_records.key_of_number(b"m", old.number), None)])

    def begin_incoming(self, about: EntryOrigin, *, time: float | None = None) -> "IncomingContent":
        """Start to store content that comes in pieces and is never whole in memory.
        `time`: when first stored.
        """
        if time is None:
            time = self.now()
        return IncomingContent(self, self.allocate_entry_number(), about, time)

    def discard_staged(self, staged: StagedEntry) -> None:
        self._staged.pop(staged.record.digest.raw, None)
        if staged.writes:
            blob = staged.record.blob
            self.delete_chunks(blob, extra=[(cache_records.key_of_number(b"o", blob), None)])

    def store_record_without_content(self, record: CacheRecord) -> None:
        """Record an entry without its content, as another workspace's export describes it."""
        if self.level.get_value(b"h" + record.digest.raw) is None:
            number = self.allocate_entry_number()
            gone = replace(
                record, number=number, blob=number, kept=0, chunks=(), state=EntryState.COLLECTED
            )
            self.commit_staged([self.stage_record(gone, [])])

    def commit_staged(self, staged: Sequence[StagedEntry]) -> None:
        """Make staged entries known, in one synced batch."""
        if len(staged) == 1:
            writes = list(staged[0].writes)
        else:
            writes = []
            for entry in dict.fromkeys(staged):
                writes += entry.writes
        hashes = [entry.record.digest.raw for entry in staged]
        try:
            if writes:
                self.level.write_batch(writes)
                for marked in self.reader.marked.values():
                    marked.difference_update(hashes)
        finally:
            for raw in hashes:
                self._staged.pop(raw, None)

    def stage_record(self, record: CacheRecord, writes: Sequence[Write]) -> StagedEntry:
        """Prepare an entry to be committed, with the writes of its content. Only the commit puts it
        on the disk, but from now on the entry can be found.
        """
        raw = record.digest.raw
        if len(self.reader.known_places) >= MOST_PLACES:
            self.reader.known_places.clear()
        place = cache_records.encode_entry_place(record)
        self.reader.known_places[raw] = place
        described = cache_records.pack_record(record)
        all_writes = list(writes)
        all_writes.append((b"h" + raw, place))
        all_writes.append((cache_records.key_of_number(b"m", record.number), described))
        for kind, marked in self.reader.marked.items():
            if raw in marked:  # It is neither damaged nor forgotten any more.
                all_writes.append((kind + raw, None))
        staged = StagedEntry(record, tuple(all_writes))
        self._staged[raw] = staged
        return staged

    def find_known_content(self, digest: Digest) -> StagedEntry | None:
        """Return the entry if the same content is already staged, or stored intact, or None."""
        if self.put_again is not None:
            self.put_again.add(digest)
        staged = self._staged.get(digest.raw)
        if staged is not None:
            return staged
        try:
            if self.level.get_value_once(b"h" + digest.raw) is None:
                return None
            record = self.reader.record_of_content(digest)
            for _ in self.reader.iterate_chunks(record):
                pass
        except (NotFound, CacheCorrupt):
            self._remove_old_version(digest)
            return None
        return StagedEntry(record, ())

    def _remove_old_version(self, digest: Digest) -> None:
        """Remove what is left of collected or damaged content, because it is being stored again."""
        with contextlib.suppress(NotFound, ValueError, CacheCorrupt):
            old = self.reader.record_of_entry(digest)
            removals = self._build_record_removal(old.number)
            removals.append((b"h" + digest.raw, None))
            self.delete_chunks(old.blob, extra=removals)

    def _build_record_removal(self, number: int) -> list[Write]:
        """Return writes that remove a record. Even the highest number is never reused,
        or followers would miss an entry.
        """
        highest_number_key = cache_records.key_of_number(b"", self._next_number - 1)
        return [(cache_records.key_of_number(b"m", number), None), (_HIGHEST, highest_number_key)]

    def allocate_entry_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def encode_chunk(self, content: bytes, *, thorough: bool = False) -> bytes:
        compressor = self._compressor
        if thorough:
            compressor = self._thorough_compressor
        packed = compressor.compress(content)
        if len(packed) < len(content):
            return _ZSTD + packed
        return _RAW + content

    def delete_chunks(self, blob: int, *, extra: Sequence[Write] = ()) -> None:
        first = cache_records.key_of_chunk(blob, 0)
        end = cache_records.key_of_chunk(blob + 1, 0)
        writes: list[Write] = [(key, None) for key in self.level.keys_in_range(first, end)]
        writes += extra
        self.level.write_batch(writes)

    def rewrite_hash_key(self, record: CacheRecord) -> None:
        self.level.write_batch([_hash_key_of_record(record)])

    def rewrite_record(self, record: CacheRecord) -> None:
        self.level.write_batch([_description_of_record(record)])

    def set_entry_pinned(self, digest: Digest, *, pinned: bool = True) -> None:
        self.reader.record_of_content(digest)
        mark: bytes | None = None  # No value removes the key.
        if pinned:
            mark = b""
        self.level.write_batch([(PINNED + digest.raw, mark)])

    def discard_entry_content(self, digest: Digest) -> int:
        """Remove the content to free space, but keep the description. Return the bytes freed."""
        record = self.reader.record_of_content(digest)
        if self.level.get_value(PINNED + digest.raw) is not None:
            raise InvalidInput(
                f"The entry {digest.short_hex} is pinned.", remedy="Unpin the entry first."
            )
        without_content = replace(record, state=EntryState.COLLECTED, kept=0)
        rewritten = [_hash_key_of_record(without_content), _description_of_record(without_content)]
        self.delete_chunks(record.blob, extra=rewritten)
        return record.kept

    def remove_sent_entries(self, digests: Iterable[Digest], last_sent: int) -> None:
        """Remove entries with numbers up to `last_sent`, which the shared store has."""
        for digest in digests:
            with contextlib.suppress(NotFound, ValueError, CacheCorrupt):
                if self.reader.record_of_entry(digest).number <= last_sent:
                    self._remove_old_version(digest)

    def forget_entry(self, digest: Digest) -> None:
        """Remove an entry, and leave a tombstone: what an import or another machine has
        of it stays out.
        """
        forgotten_at = str(int(self.now()))
        tombstone = (FORGOTTEN + digest.raw, forgotten_at.encode())
        self.remove_entry(digest, [tombstone])
        self.reader.marked[FORGOTTEN].add(digest.raw)

    def remove_entry(self, digest: Digest, marks: Sequence[Write] = ()) -> None:
        """Remove an entry and its description. `scrub_database_files` then erases it from disk."""
        place = self.level.get_value(b"h" + digest.raw)
        writes: list[Write] = []
        for kind in (b"h", PINNED, QUARANTINED):
            writes.append((kind + digest.raw, None))
        writes += marks
        if place is None:
            self.level.write_batch(writes)
        else:
            number, blob = cache_records.decode_entry_place(place)
            # If the entry's description is damaged, use the number stored under its hash.
            with contextlib.suppress(NotFound, ValueError, CacheCorrupt):
                blob = self.reader.record_numbered(number).blob
            if blob is None:
                blob = number
            self.delete_chunks(blob, extra=self._build_record_removal(number) + writes)
        self.reader.marked[QUARANTINED].discard(digest.raw)


def _hash_key_of_record(record: CacheRecord) -> Write:
    """Return the write by which an entry is found by its hash."""
    return (b"h" + record.digest.raw, cache_records.encode_entry_place(record))


def _description_of_record(record: CacheRecord) -> Write:
    """Return the write of an entry's description, by its number."""
    number_key = cache_records.key_of_number(b"m", record.number)
    return (number_key, cache_records.pack_record(record))


class IncomingContent:
    """Content being stored in pieces. End it with `finish_entry` or `abandon_entry`."""

    def __init__(self, cache: CacheFolder, blob: int, about: EntryOrigin, time: float) -> None:
        self._cache = cache
        self._blob = blob
        self._about = about
        self._time = time
        self._content_hash = hashlib.sha256()
        self._chunks: list[bytes] = []
        self._unwritten = bytearray()
        self._size = 0
        self._stored_bytes = 0
        self._lines = 0
        self._last_byte = b"\n"

    def write_piece(self, piece: bytes) -> None:
        """Take a piece of any size. Complete chunks are written at once."""
        if not piece:
            return
        self._content_hash.update(piece)
        self._size += len(piece)
        self._lines += piece.count(b"\n")
        self._last_byte = piece[-1:]
        view = memoryview(piece)
        while len(self._unwritten) + len(view) > CHUNK:
            room = CHUNK - len(self._unwritten)
            self._unwritten += view[:room]
            view = view[room:]
            self._write_chunk()
        self._unwritten += view

    def _write_chunk(self) -> None:
        content = bytes(self._unwritten)
        self._unwritten.clear()
        value = self._cache.encode_chunk(content)
        writes: list[Write] = [(cache_records.key_of_chunk(self._blob, len(self._chunks)), value)]
        if not self._chunks:
            writes.append((cache_records.key_of_number(b"o", self._blob), b""))
        self._cache.level.write_batch(writes)
        self._chunks.append(hashlib.sha256(content).digest())
        self._stored_bytes += len(value)

    def finish_entry(self) -> StagedEntry:
        """Return the entry, ready to be committed. Content that the cache already has
        is dropped.
        """
        digest = Digest(self._content_hash.digest())
        cache = self._cache
        known = cache.find_known_content(digest)
        if known is not None:
            self.abandon_entry()
            return cache.adopt_checkpoint_entry(known, self._about, self._lines)
        if not self._chunks:
            return cache.stage_single_chunk(bytes(self._unwritten), digest, self._about, self._time)
        self._write_chunk()
        lines = 0
        if self._about.media_type.startswith(_TEXT):
            lines = self._lines + (self._last_byte != b"\n")
        number = cache.allocate_entry_number()
        chunks = tuple(self._chunks)
        self._chunks.clear()  # From here on, they are the entry's, and abandoning leaves them.
        record = CacheRecord(
            number,
            self._blob,
            digest,
            self._size,
            self._stored_bytes,
            lines,
            self._time,
            self._about,
            chunks,
        )
        return cache.stage_record(record, [(cache_records.key_of_number(b"o", self._blob), None)])

    def abandon_entry(self) -> None:
        if self._chunks:
            self._cache.delete_chunks(
                self._blob, extra=[(cache_records.key_of_number(b"o", self._blob), None)]
            )
        self._chunks.clear()


def count_text_lines(content: bytes, about: EntryOrigin) -> int:
    """Return the number of lines in a text, or 0 for other content."""
    if not about.media_type.startswith(_TEXT):
        return 0
    lines = content.count(b"\n")
    if content and not content.endswith(b"\n"):
        lines += 1
    return lines
