"""The cache of one workspace: content by the SHA-256 of its bytes, in LevelDB. Plain calls, from one thread.

Content is written before anything refers to it: chunks first, then one synced batch that makes the entry known. So a
crash leaves at most chunks nobody knows; the numbers being written are marked, and swept when the cache opens. Every read
is checked against SHA-256; what does not match is quarantined and never handed out.
"""

from __future__ import annotations

import contextlib
import hashlib
import time as clock
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import zstandard

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import About
from helix_desktop.errors import Ambiguous, CacheCorrupt, NewerVersion, NotThere, StoreFailed, WrongUse
from helix_desktop.store import records
from helix_desktop.store.incoming_content import Incoming, Staged, line_count
from helix_desktop.store.leveldb import Level, Write
from helix_desktop.store.records import CHUNK, Record, State

_LAST = b"\xff" * 8
_FIRST_CHUNK = bytes(4)
_RAW, _ZSTD = bytes((records.RAW,)), bytes((records.ZSTD,))
_PINNED, _QUARANTINED, _FORGOTTEN = b"p", b"q", b"t"
BY_HAND = About()
THOROUGH = 15  # zstd's level for what is little: a tenth smaller, and twenty times as long
CHECKPOINT = "checkpoint"  # About.tool of what checkpoints store; the index does not list it


class CacheFolder:
    """The open cache. `put` = `stage` + `commit`; staging several before one commit shares the sync among them."""

    def __init__(self, folder: Path) -> None:
        self.level = Level(folder)
        self.now: Callable[[], float] = clock.time
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._thorough = zstandard.ZstdCompressor(level=THOROUGH)
        self._decompressor = zstandard.ZstdDecompressor()
        self._staged: dict[bytes, Staged] = {}  # by SHA-256: what is on its way
        self.put_again: set[Digest] | None = (
            None  # while somebody wants to know: content that was there and is wanted now
        )
        try:
            self._check_version()
            self._next = self._sweep()
            marks = (_QUARANTINED, _FORGOTTEN)
            self._marked = {kind: {key[1:] for key in self.level.keys(kind, _after(kind))} for kind in marks}
        except StoreFailed:
            self.level.close()
            raise

    def _check_version(self) -> None:
        known = self.level.quick_get(records.VERSION_KEY)
        if known is None:
            self.level.write([(records.VERSION_KEY, str(records.VERSION).encode())])
        elif int(known) > records.VERSION:
            raise NewerVersion(
                f"This cache was written by a newer version of Helix Desktop (format version {int(known)}).",
                remedy="Update Helix Desktop. Nothing was changed.",
            )

    def _sweep(self) -> int:
        """Remove the chunks of entries that were never finished. Returns the first number that is free."""
        free = 1
        for key in list(self.level.keys(b"o", _after(b"o"))):
            number = records.number_of(key)
            free = max(free, number + 1)
            self.drop_chunks(number, extra=[(key, None)])
        for kind in (b"m", b"b"):
            for key in self.level.keys(kind, kind + _LAST + b"\xff", reverse=True):
                free = max(free, records.number_of(key) + 1)
                break
        return free

    def close(self) -> None:
        self.level.close()

    def known_last(self) -> int:
        """The highest number of an entry that is known."""
        for key in self.level.keys(b"m", b"m" + _LAST + b"\xff", reverse=True):
            return records.number_of(key)
        return 0

    # --- writing ----------------------------------------------------------------------------------------------------

    def put(self, content: bytes, about: About = BY_HAND) -> Stored:
        """Store it; on the disk when this returns. Putting it twice is harmless, and mends a damaged entry."""
        staged = self.stage(content, about)
        self.commit([staged])
        return staged.record.stored

    def stage(self, content: bytes, about: About, *, thorough: bool = False) -> Staged:
        """`thorough`: take time to make it small."""
        digest = Digest.of(content)
        if (known := self.known(digest)) is not None:
            return self.adopted(known, about, line_count(content, about))
        if len(content) > CHUNK:
            incoming = self.begin(about)
            incoming.write(content)
            return incoming.finish()
        number = self.take()
        value = self.encoded(content, thorough=thorough)
        record = Record(number, number, digest, len(content), len(value), line_count(content, about), self.now(), about)
        return self.ready(record, [(records.chunk_key(number, 0), value)])

    def adopted(self, known: Staged, about: About, lines: int) -> Staged:
        """What only checkpoints had until now and somebody else puts as well: an entry like any other from now on."""
        old = known.record
        if old.about.tool != CHECKPOINT or about.tool == CHECKPOINT or known.writes:
            return known
        record = replace(old, number=self.take(), lines=lines, time=self.now(), about=about)
        return self.ready(record, [(records.number_key(b"m", old.number), None)])

    def begin(self, about: About, *, time: float | None = None) -> Incoming:
        """Store content that comes piece by piece and never stands in memory as a whole. `time`: when it was first stored."""
        return Incoming(self, self.take(), about, self.now() if time is None else time)

    def unstage(self, staged: Staged) -> None:
        """Take back what was staged and not committed."""
        self._staged.pop(staged.record.digest.raw, None)
        if staged.writes:
            blob = staged.record.blob
            self.drop_chunks(blob, extra=[(records.number_key(b"o", blob), None)])

    def put_collected(self, record: Record) -> None:
        """Remember an entry whose content is gone, as an export of another workspace describes it."""
        if self.level.get(b"h" + record.digest.raw) is None:
            number = self.take()
            gone = replace(record, number=number, blob=number, kept=0, chunks=(), state=State.COLLECTED)
            self.commit([self.ready(gone, [])])

    def commit(self, staged: Sequence[Staged]) -> None:
        """Make them known, in one synced batch."""
        one = len(staged) == 1
        writes = staged[0].writes if one else [write for each in dict.fromkeys(staged) for write in each.writes]
        try:
            if writes:
                self.level.write(writes)
                if any(self._marked.values()):
                    self._unmark(staged)
        finally:
            for each in staged:
                self._staged.pop(each.record.digest.raw, None)

    def _unmark(self, staged: Sequence[Staged]) -> None:
        for marked in self._marked.values():
            marked.difference_update(each.record.digest.raw for each in staged)

    def ready(self, record: Record, writes: Sequence[Write]) -> Staged:
        raw = record.digest.raw
        known = (
            (b"h" + raw, records.pack_place(record)),
            (records.number_key(b"m", record.number), records.pack(record)),
        )
        marks: Sequence[Write] = ()
        if any(self._marked.values()):
            marks = [(kind + raw, None) for kind, marked in self._marked.items() if raw in marked]
        staged = Staged(record, (*writes, *known, *marks))
        self._staged[raw] = staged
        return staged

    def known(self, digest: Digest) -> Staged | None:
        """What makes a second put unnecessary: the same content on its way, or stored and intact."""
        if self.put_again is not None:
            self.put_again.add(digest)
        if (staged := self._staged.get(digest.raw)) is not None:
            return staged
        try:
            if self.level.quick_get(b"h" + digest.raw) is None:
                return None
            record = self.record(digest)
            for _ in self.content(record):
                pass
        except (NotThere, CacheCorrupt):
            self._retire(digest)
            return None
        return Staged(record, ())

    def _retire(self, digest: Digest) -> None:
        """Make way for content that comes again: what is left of it was collected or is damaged."""
        with contextlib.suppress(NotThere, ValueError, CacheCorrupt):
            old = self.described(digest)
            gone: list[Write] = [(b"h" + digest.raw, None), (records.number_key(b"m", old.number), None)]
            self.drop_chunks(old.blob, extra=gone)

    def take(self) -> int:
        self._next += 1
        return self._next - 1

    def encoded(self, content: bytes, *, thorough: bool = False) -> bytes:
        packed = (self._thorough if thorough else self._compressor).compress(content)
        if len(packed) < len(content):
            return _ZSTD + packed
        return _RAW + content

    def drop_chunks(self, blob: int, *, extra: Sequence[Write] = ()) -> None:
        keys = list(self.level.keys(records.chunk_key(blob, 0), records.chunk_key(blob + 1, 0)))
        self.level.write([*((key, None) for key in keys), *extra])

    # --- reading ----------------------------------------------------------------------------------------------------

    def record(self, digest: Digest) -> Record:
        """What the entry is. NotThere says what became of it; CacheCorrupt where it is quarantined or unreadable."""
        try:
            held = self.level.get(b"h" + digest.raw)
            if held is None:
                raise self._missing(digest)
            number, _ = records.unpack_place(held)
            value = self.level.get(records.number_key(b"m", number))
            record = records.unpack(number, value) if value is not None else None
        except (CacheCorrupt, ValueError) as error:
            raise self.quarantine(digest, "its description is damaged") from error
        if record is None or record.digest != digest:
            raise self.quarantine(digest, "its description is missing")
        if record.state is State.COLLECTED:
            raise self._collected(record)
        if digest.raw in self._marked[_QUARANTINED]:
            raise _corrupt(digest, self._why(digest))
        return record

    def _why(self, digest: Digest) -> str:
        with contextlib.suppress(CacheCorrupt):
            if (said := self.level.quick_get(_QUARANTINED + digest.raw)) is not None:
                return said.decode("utf-8", "replace")
        return "it does not match its hash"

    def described(self, digest: Digest) -> Record:
        """Like `record`, and also for an entry that was collected or is quarantined, as long as it can be read."""
        held = self.level.get(b"h" + digest.raw)
        if held is None:
            raise self._missing(digest)
        return self.numbered(records.unpack_place(held)[0])

    def numbered(self, number: int) -> Record:
        value = self.level.get(records.number_key(b"m", number))
        if value is None:
            raise NotThere(f"There is no entry number {number} in the cache.")
        return records.unpack(number, value)

    def get(self, digest: Digest) -> bytes:
        """The whole content, checked against its SHA-256."""
        if (content := self._small(digest)) is not None:
            return content
        record = self.record(digest)
        if record.count == 1:
            return self.chunk(record, 0)
        content = b"".join(self._decoded(record, chunk) for chunk in range(record.count))
        if hashlib.sha256(content).digest() != digest.raw:
            raise self.quarantine(digest, "its content does not match its hash")
        return content

    def _small(self, digest: Digest) -> bytes | None:
        """An entry of one chunk, on the short way; None where the long way has to find out what is wrong, or it is larger."""
        if digest.raw in self._marked[_QUARANTINED]:
            return None
        try:
            held = self.level.quick_get(b"h" + digest.raw)
            if held is None or len(held) != 16:
                return None
            value = self.level.quick_get(b"b" + held[8:] + _FIRST_CHUNK)
            content = self._unpacked(value) if value else None
        except (CacheCorrupt, zstandard.ZstdError, MemoryError):
            return None
        return content if content is not None and hashlib.sha256(content).digest() == digest.raw else None

    def _unpacked(self, value: bytes) -> bytes:
        if value[0] == records.RAW:
            return value[1:]
        return self._decompressor.decompress(memoryview(value)[1:], max_output_size=CHUNK)

    def read(self, digest: Digest, start: int, length: int) -> bytes:
        """A part of the content; only the chunks it lies in are read, and each is checked."""
        record = self.record(digest)
        if start < 0 or length < 0:
            raise WrongUse("The start and the length of the part must both be 0 or greater.")
        stop = min(start + length, record.size)
        parts = []
        for chunk in range(start // CHUNK, -(-stop // CHUNK)):
            base = chunk * CHUNK
            parts.append(self.chunk(record, chunk)[max(0, start - base) : stop - base])
        return b"".join(parts)

    def content(self, record: Record) -> Iterator[bytes]:
        """Chunk after chunk, each checked before it is handed out."""
        for chunk in range(record.count):
            yield self.chunk(record, chunk)

    def chunk(self, record: Record, chunk: int) -> bytes:
        content = self._decoded(record, chunk)
        if hashlib.sha256(content).digest() != record.chunk_digest(chunk):
            raise self.quarantine(record.digest, f"chunk {chunk} does not match its hash")
        return content

    def _decoded(self, record: Record, chunk: int) -> bytes:
        try:
            value = self.level.get(records.chunk_key(record.blob, chunk))
            if value:
                return self._unpacked(value)
        except (CacheCorrupt, zstandard.ZstdError, MemoryError) as error:
            raise self.quarantine(record.digest, f"chunk {chunk} cannot be read") from error
        raise self.quarantine(record.digest, f"chunk {chunk} is missing")

    def quarantine(self, digest: Digest, why: str) -> CacheCorrupt:
        """Remember that this entry is damaged, so that no later read has to find out. Returns the error to raise."""
        with contextlib.suppress(StoreFailed):  # a disk that takes nothing: it is found out again
            self.level.write([(_QUARANTINED + digest.raw, why.encode())])
        self._marked[_QUARANTINED].add(digest.raw)
        return _corrupt(digest, why)

    def forgotten(self, digest: Digest) -> bool:
        """Whether there was such an entry and the user wanted it gone."""
        return digest.raw in self._marked[_FORGOTTEN]

    def _missing(self, digest: Digest) -> NotThere:
        if self.forgotten(digest):
            return NotThere(f"The entry {digest} was forgotten at the user's request.")
        return NotThere(f"There is no entry {digest} in this workspace's cache.")

    def _collected(self, record: Record) -> NotThere:
        what = " ".join(filter(None, (record.about.tool, record.about.source))) or "content put by hand"
        return NotThere(
            f"The entry {record.digest} ({what}, {record.size:,} bytes) was removed to free up space.",
            remedy="Run the tool again to get the content back.",
        )

    def resolve(self, prefix: str) -> Digest:
        """The one entry whose hash begins so."""
        low, high = prefix_bounds(prefix)
        held = (key[1:] for key in self.level.keys(b"h" + low, b"h" + high + b"\x00"))
        found = [Digest(raw) for raw in held if raw.hex().startswith(prefix.lower())]
        if len(found) == 1:
            return found[0]
        if found:
            near = ", ".join(digest.hex[: len(prefix) + 6] for digest in found[:4])
            raise Ambiguous(
                f"The hashes of {len(found)} entries begin with {prefix}: {near}.", remedy="Enter more digits."
            )
        if len(prefix) == 64 and self.forgotten(Digest.parse(prefix)):
            raise self._missing(Digest.parse(prefix))
        raise NotThere(f"No entry in this workspace has a hash that begins with {prefix}.", remedy=self._near(prefix))

    def _near(self, prefix: str) -> str:
        digits = prefix.lower()
        for length in range(min(len(digits), 64) - 1, 3, -1):
            low, high = prefix_bounds(digits[:length])
            near = [
                key[1:].hex()
                for key, _ in zip(self.level.keys(b"h" + low, b"h" + high + b"\x00"), range(3), strict=False)
            ]
            if near := [name for name in near if name.startswith(digits[:length])]:
                return f"Near it: {', '.join(name[:16] for name in near)}."
        return ""

    def records(self, after: int = 0, limit: int = 1000) -> list[Record]:
        """Known entries by number; unreadable ones are left out (a check names them)."""
        found: list[Record] = []
        with contextlib.suppress(CacheCorrupt):  # said at the end of the way, when what can be read has been
            for key, value in self.level.scan(records.number_key(b"m", after + 1), b"m" + _LAST + b"\xff"):
                with contextlib.suppress(ValueError):
                    found.append(records.unpack(records.number_of(key), value))
                if len(found) == limit:
                    break
        return found

    def digests(self, after: Digest | None, limit: int) -> list[Digest]:
        """Hashes in their order, from the one behind `after`; none: the end."""
        found: list[Digest] = []
        for key in self.level.keys(b"h" + (after.raw + b"\x00" if after else b""), b"i"):
            found.append(Digest(key[1:]))
            if len(found) == limit:
                break
        return found

    def lacking(self, digests: Iterable[Digest]) -> frozenset[Digest]:
        """Which of these have no content here: unknown, collected or damaged."""
        return frozenset(digest for digest in digests if not self._is_here(digest))

    def _is_here(self, digest: Digest) -> bool:
        try:
            self.record(digest)
        except StoreFailed:
            return False
        except NotThere:
            return False
        return True

    def relink(self, record: Record) -> None:
        """Write the way to an entry again."""
        self.level.write([(b"h" + record.digest.raw, records.pack_place(record))])

    def redescribe(self, record: Record) -> None:
        """Put another description in the place of an entry's."""
        self.level.write([(records.number_key(b"m", record.number), records.pack(record))])

    def scrub(self) -> None:
        """Let nothing of what was removed stay readable on the disk."""
        self.level.scrub()

    def compact(self) -> None:
        """Give the room of what was removed back."""
        self.level.compact()

    # --- pins and removal -------------------------------------------------------------------------------------------

    def pin(self, digest: Digest, *, pinned: bool = True) -> None:
        """A pinned entry is never collected."""
        self.record(digest)
        self.level.write([(_PINNED + digest.raw, b"" if pinned else None)])

    def pinned(self) -> frozenset[Digest]:
        return frozenset(Digest(key[1:]) for key in self.level.keys(_PINNED, _after(_PINNED)))

    def collect(self, digest: Digest) -> int:
        """Remove the content to make room; what it was stays known. Returns the bytes freed."""
        record = self.record(digest)
        if self.level.get(_PINNED + digest.raw) is not None:
            raise WrongUse(f"The entry {digest.short} is pinned.", remedy="Unpin it first.")
        gone = replace(record, state=State.COLLECTED, kept=0)
        described = (records.number_key(b"m", record.number), records.pack(gone))
        self.drop_chunks(record.blob, extra=[(b"h" + digest.raw, records.pack_place(gone)), described])
        return record.kept

    def forget(self, digest: Digest) -> None:
        """Remove the entry and all that is known of it; a tombstone stays. `level.scrub` then takes it off the disk."""
        held = self.level.get(b"h" + digest.raw)
        marks: list[Write] = [(kind + digest.raw, None) for kind in (b"h", _PINNED, _QUARANTINED)]
        marks.append((_FORGOTTEN + digest.raw, str(int(self.now())).encode()))
        if held is None:
            self.level.write(marks)
        else:
            number, blob = records.unpack_place(held)
            with contextlib.suppress(NotThere, ValueError, CacheCorrupt):  # where its description is damaged
                blob = self.numbered(number).blob
            described = (records.number_key(b"m", number), None)
            self.drop_chunks(number if blob is None else blob, extra=[described, *marks])
        self._marked[_QUARANTINED].discard(digest.raw)
        self._marked[_FORGOTTEN].add(digest.raw)


def _after(kind: bytes) -> bytes:
    """The end of the keys of a kind."""
    return bytes((kind[0] + 1,))


def _corrupt(digest: Digest, why: str) -> CacheCorrupt:
    return CacheCorrupt(
        f"The entry {digest} is damaged on disk ({why}) and has been quarantined.",
        remedy="To repair it, store the same content again. A backup of the folder may also contain it.",
    )


def prefix_bounds(prefix: str) -> tuple[bytes, bytes]:
    """The first and the last hash that begin so; WrongUse where none can."""
    digits = prefix.lower()
    if not 4 <= len(digits) <= 64 or any(digit not in "0123456789abcdef" for digit in digits):
        raise WrongUse(
            f"{prefix[:80]!r} is not the start of a SHA-256 hash.", remedy="Enter 4 to 64 hexadecimal digits."
        )
    return bytes.fromhex(digits.ljust(64, "0")), bytes.fromhex(digits.ljust(64, "f"))
