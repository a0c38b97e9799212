"""Reads one workspace's cache: descriptions and contents of entries. Plain calls, from one thread.

Every read is checked against SHA-256. Content that does not match is quarantined and
never returned.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

import zstandard

from helix_desktop.engine.ports import CacheEntry
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import AmbiguousName, CacheCorrupt, InvalidInput, NotFound, StoreFailed
from helix_desktop.store import cache_records
from helix_desktop.store.cache_records import CHUNK, CacheRecord, EntryState
from helix_desktop.store.leveldb import LevelDatabase

LAST_KEY = b"\xff" * 8
_FIRST_CHUNK = bytes(4)
# The first bytes of keys that mark an entry.
PINNED = b"p"
QUARANTINED = b"q"
FORGOTTEN = b"t"


class CacheReader:
    """Finds entries by hash, prefix or number. `marked`: hashes of quarantined and
    forgotten entries.
    """

    def __init__(self, level: LevelDatabase) -> None:
        self._level = level
        self.known_places: dict[bytes, bytes] = {}  # Of entries stored lately. Some may be gone.
        self._decompress = zstandard.ZstdDecompressor().decompress
        self.marked: dict[bytes, set[bytes]] = {}  # The hashes of entries with these marks.
        for kind in (QUARANTINED, FORGOTTEN):
            keys = level.keys_in_range(kind, key_range_end(kind))
            self.marked[kind] = {key[1:] for key in keys}

    def record_of_content(self, digest: Digest) -> CacheRecord:
        """Return the entry's record. NotFound says what happened to it. CacheCorrupt:
        quarantined or unreadable.
        """
        try:
            entry_place = self._level.get_value(b"h" + digest.raw)
            if entry_place is None:
                raise self._missing_entry_error(digest)
            number, _ = cache_records.decode_entry_place(entry_place)
            value = self._level.get_value(cache_records.key_of_number(b"m", number))
            record = None
            if value is not None:
                record = cache_records.unpack_record(number, value)
        except (CacheCorrupt, ValueError) as error:
            raise self.quarantine_entry(digest, "its description is damaged") from error
        if record is None or record.digest != digest:
            raise self.quarantine_entry(digest, "its description is missing")
        if record.state is EntryState.COLLECTED:
            raise self._discarded_content_error(record)
        if digest.raw in self.marked[QUARANTINED]:
            raise _damaged_entry_error(digest, self._quarantine_reason(digest))
        return record

    def _quarantine_reason(self, digest: Digest) -> str:
        with contextlib.suppress(CacheCorrupt):
            reason = self._level.get_value_once(QUARANTINED + digest.raw)
            if reason is not None:
                return reason.decode("utf-8", "replace")
        return "it does not match its hash"

    def record_of_entry(self, digest: Digest) -> CacheRecord:
        """Return the record even of a collected or quarantined entry, if it can be read."""
        entry_place = self._level.get_value(b"h" + digest.raw)
        if entry_place is None:
            raise self._missing_entry_error(digest)
        number, _ = cache_records.decode_entry_place(entry_place)
        return self.record_numbered(number)

    def record_numbered(self, number: int) -> CacheRecord:
        value = self._level.get_value(cache_records.key_of_number(b"m", number))
        if value is None:
            raise NotFound(f"There is no entry number {number} in the cache.")
        return cache_records.unpack_record(number, value)

    def get_content(self, digest: Digest, entry_place: bytes = b"") -> bytes:
        """Return the whole content, checked against its SHA-256. `entry_place`: where its
        record says that it is.
        """
        content = self._get_single_chunk(digest, entry_place)
        if content is not None:
            return content
        record = self.record_of_content(digest)
        if record.count_chunks == 1:
            return self.read_chunk(record, 0)
        chunks = [self._read_decoded_chunk(record, chunk) for chunk in range(record.count_chunks)]
        content = b"".join(chunks)
        if hashlib.sha256(content).digest() != digest.raw:
            raise self.quarantine_entry(digest, "its content does not match its hash")
        return content

    def _get_single_chunk(self, digest: Digest, entry_place: bytes) -> bytes | None:
        """Read an entry of one chunk quickly. Return None if it is larger or something is wrong."""
        raw = digest.raw
        if raw in self.marked[QUARANTINED]:
            return None
        try:
            known_place = entry_place or self.known_places.get(raw)
            if not known_place:
                known_place = self._level.get_value_once(b"h" + raw)
            # The place of an entry of one chunk is two numbers: the entry's and its blob's.
            if known_place is None or len(known_place) != 16:
                return None
            value = self._level.get_value_once(b"b" + known_place[8:] + _FIRST_CHUNK)
            if not value:
                return None
            content = self._unpack_chunk(value)
        except (CacheCorrupt, zstandard.ZstdError, MemoryError):
            return None
        if hashlib.sha256(content).digest() != raw:
            return None
        return content

    def _unpack_chunk(self, value: bytes) -> bytes:
        content = value[1:]
        if value[0] == cache_records.RAW:
            return content
        return self._decompress(content, CHUNK)

    def read_part(self, digest: Digest, start: int, length: int) -> bytes:
        """Return a part of the content. Only the chunks that contain it are read and checked."""
        return self.read_part_of_entry(self.record_of_content(digest), start, length)

    def read_described_entry(self, digest: Digest, beginning: int) -> CacheEntry:
        record = self.record_of_content(digest)
        content = self.read_part_of_entry(record, 0, beginning)
        return CacheEntry(record.stored_reference, record.about, record.time, content)

    def read_part_of_entry(self, record: CacheRecord, start: int, length: int) -> bytes:
        """Return a part of the content. Content is stored in chunks of equal size, and only those
        with bytes of the part are read.
        """
        if start < 0 or length < 0:
            raise InvalidInput("The start and the length of the part must both be 0 or greater.")
        stop = min(start + length, record.size)
        first_chunk = start // CHUNK
        end_chunk = -(-stop // CHUNK)  # Rounded up.
        parts: list[bytes] = []
        for chunk in range(first_chunk, end_chunk):
            start_of_chunk = chunk * CHUNK
            content = self.read_chunk(record, chunk)
            start_in_chunk = max(0, start - start_of_chunk)
            parts.append(content[start_in_chunk : stop - start_of_chunk])
        return b"".join(parts)

    def iterate_chunks(self, record: CacheRecord) -> Iterator[bytes]:
        for chunk in range(record.count_chunks):
            yield self.read_chunk(record, chunk)

    def read_chunk(self, record: CacheRecord, chunk: int) -> bytes:
        content = self._read_decoded_chunk(record, chunk)
        if hashlib.sha256(content).digest() != record.chunk_digest(chunk):
            raise self.quarantine_entry(record.digest, f"part {chunk} does not match its hash")
        return content

    def _read_decoded_chunk(self, record: CacheRecord, chunk: int) -> bytes:
        try:
            value = self._level.get_value(cache_records.key_of_chunk(record.blob, chunk))
            if value:
                return self._unpack_chunk(value)
        except (CacheCorrupt, zstandard.ZstdError, MemoryError) as error:
            raise self.quarantine_entry(record.digest, f"part {chunk} cannot be read") from error
        raise self.quarantine_entry(record.digest, f"part {chunk} is missing")

    def quarantine_entry(self, digest: Digest, why: str) -> CacheCorrupt:
        """Mark an entry as damaged, so that later reads fail at once. Return the error to raise."""
        with contextlib.suppress(StoreFailed):  # If the disk is full, this mark is lost.
            self._level.write_batch([(QUARANTINED + digest.raw, why.encode())])
        self.marked[QUARANTINED].add(digest.raw)
        return _damaged_entry_error(digest, why)

    def was_forgotten(self, digest: Digest) -> bool:
        return digest.raw in self.marked[FORGOTTEN]

    def _missing_entry_error(self, digest: Digest) -> NotFound | CacheCorrupt:
        if self.was_forgotten(digest):
            return NotFound(f"The entry {digest} was permanently removed at the user's request.")
        if digest.raw in self.marked[QUARANTINED]:
            return _damaged_entry_error(digest, self._quarantine_reason(digest))
        return NotFound(f"There is no entry {digest} in this workspace's cache.")

    def _discarded_content_error(self, record: CacheRecord) -> NotFound:
        origin = filter(None, (record.about.tool, record.about.source))
        what = " ".join(origin) or "content put by hand"
        return NotFound(
            f"The entry {record.digest} ({what}, {record.size:,} bytes) was removed to free up space.",
            remedy="Run the tool again to get the content back.",
        )

    def resolve_hash_prefix(self, prefix: str) -> Digest:
        """Return the only entry whose hash begins so. AmbiguousName or NotFound names similar
        hashes, or says that the entry was forgotten.
        """
        low, high = prefix_bounds(prefix)
        matching = []
        for key in self._level.keys_in_range(b"h" + low, b"h" + high + b"\x00"):
            digest = Digest(key[1:])
            if digest.hex.startswith(prefix.lower()):
                matching.append(digest)
        if len(matching) == 1:
            return matching[0]
        if matching:
            similar_prefixes = ", ".join(digest.hex[: len(prefix) + 6] for digest in matching[:4])
            raise AmbiguousName(
                f"The hashes of {len(matching)} entries begin with {prefix}: {similar_prefixes}.",
                remedy="Enter more characters of the hash.",
            )
        if len(prefix) == 64 and self.was_forgotten(Digest.from_hex(prefix)):
            raise self._missing_entry_error(Digest.from_hex(prefix))
        raise NotFound(
            f"No entry in this workspace has a hash that begins with {prefix}.",
            remedy=self._describe_near_hashes(prefix),
        )

    def _describe_near_hashes(self, prefix: str) -> str:
        """Say which hashes have the longest beginning in common with a mistyped one, at most
        three, or return an empty string.
        """
        digits = prefix.lower()
        longest = min(len(digits), 64) - 1
        for length in range(longest, 3, -1):
            beginning = digits[:length]
            low, high = prefix_bounds(beginning)
            keys = self._level.keys_in_range(b"h" + low, b"h" + high + b"\x00")
            near_hashes: list[str] = []
            for key in islice(keys, 3):
                name = key[1:].hex()
                if name.startswith(beginning):
                    near_hashes.append(name[:16])
            if near_hashes:
                return f"Near it: {', '.join(near_hashes)}."
        return ""

    def last_entry_number(self) -> int:
        keys = self._level.keys_in_range(b"m", b"m" + LAST_KEY + b"\xff", reverse=True)
        for key in keys:
            return cache_records.number_in_key(key)
        return 0

    def records_after(self, last_number: int = 0, limit: int = 1000) -> list[CacheRecord]:
        """Return records by number, without unreadable ones, which a check names."""
        records: list[CacheRecord] = []
        # `scan_range` yields everything readable, and raises CacheCorrupt only at its end.
        with contextlib.suppress(CacheCorrupt):
            first = cache_records.key_of_number(b"m", last_number + 1)
            for key, value in self._level.scan_range(first, b"m" + LAST_KEY + b"\xff"):
                number = cache_records.number_in_key(key)
                with contextlib.suppress(ValueError):
                    records.append(cache_records.unpack_record(number, value))
                if len(records) == limit:
                    break
        return records

    def digests_after(self, after: Digest | None, limit: int) -> list[Digest]:
        """Return hashes in order, starting after `after`. None are left at the end."""
        first_key = b"h"
        if after is not None:
            first_key += after.raw + b"\x00"  # The smallest key that is greater than its own.
        keys = self._level.keys_in_range(first_key, b"i")
        return [Digest(key[1:]) for key in islice(keys, limit)]

    def digests_without_content(self, digests: Iterable[Digest]) -> frozenset[Digest]:
        """Return those without content here: unknown, collected or damaged."""
        return frozenset(digest for digest in digests if not self._has_content(digest))

    def _has_content(self, digest: Digest) -> bool:
        try:
            self.record_of_content(digest)
        except (StoreFailed, NotFound):
            return False
        return True

    def pinned_entries(self) -> frozenset[Digest]:
        keys = self._level.keys_in_range(PINNED, key_range_end(PINNED))
        return frozenset(Digest(key.removeprefix(PINNED)) for key in keys)


def key_range_end(kind: bytes) -> bytes:
    return bytes((kind[0] + 1,))


def _damaged_entry_error(digest: Digest, why: str) -> CacheCorrupt:
    return CacheCorrupt(
        f"The entry {digest} is damaged on disk ({why}) and has been quarantined.",
        remedy="To repair the entry, store the same content again. A backup of the folder may also contain an intact copy.",
    )


def prefix_bounds(prefix: str) -> tuple[bytes, bytes]:
    """Return the first and last hash with this prefix. Raises InvalidInput if none can have it."""
    digits = prefix.lower()
    if not 4 <= len(digits) <= 64 or any(digit not in "0123456789abcdef" for digit in digits):
        raise InvalidInput(
            f"{prefix[:80]!r} is not the start of a SHA-256 hash.",
            remedy="Enter 4 to 64 hexadecimal digits.",
        )
    return bytes.fromhex(digits.ljust(64, "0")), bytes.fromhex(digits.ljust(64, "f"))
