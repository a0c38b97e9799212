"""Repairs a damaged cache: keeps every entry whose bytes match their SHA-256.

LevelDB's own repair drops each block with a wrong byte, and everything in a table whose list of
blocks has one. What it drops is read here byte by byte (`leveldb_salvage`). Content proves
itself by its hash, and a record by its check, so the keys that lead to content are built anew
from these: a lost hash key from the record, a lost record from the content.
"""

import hashlib
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

import zstandard

from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, StoreFailed, StoreFull
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import delete_folder_tree
from helix_desktop.store import cache_records, leveldb, leveldb_salvage
from helix_desktop.store.cache_reader import FORGOTTEN, LAST_KEY, PINNED, key_range_end
from helix_desktop.store.cache_records import CHUNK, CacheRecord, EntryState
from helix_desktop.store.leveldb import LevelDatabase, Write
from helix_desktop.store.leveldb_salvage import SalvagedEntry

_BATCH_BYTES = 4 << 20
_NUMBERS = b"m"


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """What the journal and the index say of an entry. They are not damaged with the cache."""

    about: EntryOrigin
    lines: int = 0
    time: float = 0.0
    size: int = 0
    conversations: tuple[str, ...] = ()

    def used_by(self, conversation: str) -> "KnownEntry":
        if conversation in self.conversations:
            return self
        return replace(self, conversations=self.conversations + (conversation,))

    def described_by(self, stored: Stored) -> "KnownEntry":
        about = replace(self.about, media_type=stored.media_type)
        return replace(self, about=about, size=stored.size, lines=stored.lines)


def repair_cache_files(
    folder: Path,
    damaged_copy: Path,
    log_copies: Path,
    expected_entries: Mapping[Digest, KnownEntry],
) -> LevelDatabase:
    """Repair the closed cache in `folder`, and open it. `damaged_copy`: a copy of it.

    `log_copies`: copies of logs that LevelDB has already read, without their damaged parts.

    LevelDB repairs what it can first. Then the writes of the logs are done again, what its
    repair dropped is read from the copy, and the keys that lead to contents are built anew.
    """
    # Doing again what a log says has the same result, as nothing was written since.
    log_files = {path.name: path for path in log_copies.glob("*.log")}
    log_files.update({path.name: path for path in folder.glob("*.log")})
    logs = [path.read_bytes() for path in _sort_by_number(log_files.values())]
    level, damaged_tables = _open_what_leveldb_repairs(folder, damaged_copy)
    try:
        salvage = _CacheSalvage(level, expected_entries)
        for log in logs:
            salvage.replay_log(log)
        for path in damaged_tables:
            salvage.take_entries(leveldb_salvage.read_table_entries(path.read_bytes()))
        salvage.rebuild_keys()
    except BaseException:
        level.close()
        raise
    return level


def _open_what_leveldb_repairs(folder: Path, aside: Path) -> tuple[LevelDatabase, list[Path]]:
    """Return the open database, and copies of the tables that it does not have completely."""
    # LevelDB's repair takes writes from logs without looking at their checksums.
    for path in folder.glob("*.log"):
        path.unlink()
    try:
        damaged_names = leveldb.repair_leveldb(folder)
        return LevelDatabase(folder), [aside / name for name in damaged_names]
    except StoreFull:
        raise
    except StoreFailed:
        delete_folder_tree(folder)
        folder.mkdir(mode=0o700)
        tables = [path for path in aside.iterdir() if path.suffix in (".ldb", ".sst")]
        return LevelDatabase(folder), _sort_by_number(tables)


def _sort_by_number(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (path.stem.rjust(20, "0"), path.suffix))


@dataclass(slots=True)
class _StoredBlob:
    """The chunks of one content, by their numbers."""

    chunks: list[int] = field(default_factory=list)

    @property
    def is_without_gap(self) -> bool:
        return self.chunks == list(range(len(self.chunks)))


class _CacheSalvage:
    """Adds to an open LevelDB what proves right of what was dropped."""

    def __init__(self, level: LevelDatabase, known: Mapping[Digest, KnownEntry]) -> None:
        self._level = level
        self._known = known
        self._decompress = zstandard.ZstdDecompressor().decompress
        # Records, pins and tombstones of damaged places; of each key the newest.
        self._salvaged_by_key: dict[bytes, SalvagedEntry] = {}
        self._waiting_writes: list[Write] = []
        self._waiting_bytes = 0

    def replay_log(self, log: bytes) -> None:
        """Do what an intact batch says. Of a damaged one, take what may prove right."""
        for batch in leveldb_salvage.read_log_batches(log):
            if batch.is_intact:
                for key, value in batch.writes:
                    self._write(key, value)
            else:
                self._flush()
                puts = [(key, value) for key, value in batch.writes if value is not None]
                self.take_entries(SalvagedEntry(key, value) for key, value in puts)
        self._flush()

    def take_entries(self, entries: Iterable[SalvagedEntry]) -> None:
        """Write chunks of contents that the database does not have. Records, pins and
        tombstones are only remembered until all of them are known (`rebuild_keys`).
        """
        taken_chunks: set[bytes] = set()
        for entry in entries:
            kind = entry.key[:1]
            if kind in (_NUMBERS, PINNED, FORGOTTEN):
                self._remember_if_newest(entry)
            is_chunk = kind == b"b"
            if is_chunk and entry.key not in taken_chunks and self._read(entry.key) is None:
                taken_chunks.add(entry.key)
                self._write(entry.key, entry.value)
        self._flush()

    def _remember_if_newest(self, entry: SalvagedEntry) -> None:
        remembered = self._salvaged_by_key.get(entry.key)
        if remembered is None or remembered.sequence <= entry.sequence:
            self._salvaged_by_key[entry.key] = entry

    def rebuild_keys(self) -> None:
        """Make every intact content an entry again, and every entry findable by its hash."""
        forgotten = {key[1:] for key in self._keys_of_kind(FORGOTTEN)}
        self._add_salvaged_records(forgotten)
        records = self._keep_one_record_of_each()
        self._forget_again(records, forgotten)
        self._adopt_contents_without_record(records, forgotten)
        self._repair_hash_keys(records)
        self._add_salvaged_pins(records)
        self._flush()

    def _add_salvaged_records(self, forgotten: Collection[bytes]) -> None:
        """Put readable salvaged records back where the database has no record, except of
        contents that have one elsewhere or were forgotten.
        """
        hashes_to_skip = {record.digest.raw for record in self._iterate_records()}
        hashes_to_skip.update(forgotten)
        for key, entry in self._salvaged_by_key.items():
            if not key.startswith(_NUMBERS):
                continue
            record = _unpack_or_none(key, entry.value)
            if record is None or record.digest.raw in hashes_to_skip:
                continue
            if self._record_at(key) is None:
                self._write(key, entry.value)
                hashes_to_skip.add(record.digest.raw)
        self._flush()

    def _keep_one_record_of_each(self) -> dict[bytes, CacheRecord]:
        """Return records by the hash of their content. An older one may have come back."""
        records: dict[bytes, CacheRecord] = {}
        for record in self._iterate_records():
            older = records.get(record.digest.raw)
            if older is not None:
                self._write(cache_records.key_of_number(_NUMBERS, older.number), None)
            records[record.digest.raw] = record
        self._flush()
        return records

    def _adopt_contents_without_record(
        self, records: dict[bytes, CacheRecord], forgotten: Collection[bytes]
    ) -> None:
        """Make a record for each content that has chunks but no record, and add it to
        `records`. Chunks that are not proven whole, not needed or forgotten are deleted.

        This comes after all records that could be saved are there, as only then is
        it known which contents have none. A blob is the place of a content's chunks.
        """
        owners = {record.blob for record in records.values() if record.state is EntryState.LIVE}
        used_numbers = {record.number for record in records.values()}
        expected_hashes = {digest.raw for digest in self._known}
        expected_hashes.update(key[1:] for key in self._keys_of_kind(b"h"))
        blobs = self._list_blobs_without_owner(owners)
        next_unused_number = max(used_numbers | set(blobs), default=0) + 1
        for blob, stored in blobs.items():
            record = self._build_record_of_content(blob, stored)
            if record is None or not _is_proven_whole(record, expected_hashes):
                self._delete_chunks(blob, stored)
                continue
            content_hash = record.digest.raw
            if content_hash in records or content_hash in forgotten:
                self._delete_chunks(blob, stored)
                continue
            if blob in used_numbers:
                record = replace(record, number=next_unused_number)
                next_unused_number += 1
            used_numbers.add(record.number)
            records[content_hash] = record
            key = cache_records.key_of_number(_NUMBERS, record.number)
            self._write(key, cache_records.pack_record(record))
            self._delete_note_of_unfinished_blob(blob)
        self._flush()

    def _delete_note_of_unfinished_blob(self, blob: int) -> None:
        self._write(cache_records.key_of_number(b"o", blob), None)

    def _list_blobs_without_owner(self, owners: Collection[int]) -> dict[int, _StoredBlob]:
        """Return the stored chunks that belong to none of these blobs, by their blob."""
        blobs: dict[int, _StoredBlob] = {}
        for key in self._keys_of_kind(b"b"):
            blob = cache_records.number_in_key(key)
            if len(key) == cache_records.CHUNK_KEY_SIZE and blob not in owners:
                chunk = int.from_bytes(key[-4:], "big")
                blobs.setdefault(blob, _StoredBlob()).chunks.append(chunk)
        return blobs

    def _build_record_of_content(self, blob: int, stored: _StoredBlob) -> CacheRecord | None:
        """Return a record of the content, or None if a chunk is missing or unreadable.

        Its number is that of its blob. What tool it came from and when is only known if
        `known`, which was read from the conversations, has this content.
        """
        if not stored.is_without_gap:
            return None
        content_hash = hashlib.sha256()
        digests = []
        size = 0
        stored_bytes = 0
        for chunk in stored.chunks:
            value = self._read(cache_records.key_of_chunk(blob, chunk))
            content = self._decode_chunk(value)
            if value is None or content is None:
                return None
            content_hash.update(content)
            digests.append(hashlib.sha256(content).digest())
            size += len(content)
            stored_bytes += len(value)
        digest = Digest(content_hash.digest())
        known_entry = self._known.get(digest, _UNKNOWN)
        chunk_digests: tuple[bytes, ...] = ()
        if len(digests) > 1:
            chunk_digests = tuple(digests)
        return CacheRecord(
            blob,
            blob,
            digest,
            size,
            stored_bytes,
            known_entry.lines,
            known_entry.time,
            known_entry.about,
            chunk_digests,
        )

    def _decode_chunk(self, value: bytes | None) -> bytes | None:
        if not value:
            return None
        try:
            if value[0] == cache_records.RAW:
                return value[1:]
            return self._decompress(value[1:], CHUNK)
        except (zstandard.ZstdError, MemoryError):
            return None

    def _delete_chunks(self, blob: int, stored: _StoredBlob) -> None:
        for chunk in stored.chunks:
            self._write(cache_records.key_of_chunk(blob, chunk), None)
        self._delete_note_of_unfinished_blob(blob)

    def _repair_hash_keys(self, records: Mapping[bytes, CacheRecord]) -> None:
        """Let each record be found by its content's hash, and delete hashes without a record."""
        for key in list(self._keys_of_kind(b"h")):
            if key[1:] not in records:
                self._write(key, None)
        for raw, record in records.items():
            place = cache_records.encode_entry_place(record)
            if self._read(b"h" + raw) != place:
                self._write(b"h" + raw, place)
        self._flush()

    def _forget_again(self, records: dict[bytes, CacheRecord], forgotten: set[bytes]) -> None:
        """Add salvaged tombstones, unless the same content was stored again later."""
        for key, entry in self._salvaged_by_key.items():
            # A pin may have become a tombstone: their letters differ in one bit. It has no time.
            if not key.startswith(FORGOTTEN) or not entry.value.isdigit():
                continue
            record = records.get(key[1:])
            if record is not None and record.time >= int(entry.value) + 1:
                continue
            self._write(key, entry.value)
            forgotten.add(key[1:])
            if record is not None:
                del records[key[1:]]
                self._write(cache_records.key_of_number(_NUMBERS, record.number), None)
        self._flush()

    def _add_salvaged_pins(self, records: Mapping[bytes, CacheRecord]) -> None:
        for key, entry in self._salvaged_by_key.items():
            if key.startswith(PINNED) and key[1:] in records:
                self._write(key, entry.value)

    def _iterate_records(self) -> Iterator[CacheRecord]:
        # What is still unreadable is skipped, and raises only at the end.
        with suppress(CacheCorrupt):
            stop = _NUMBERS + LAST_KEY + b"\xff"
            for key, value in self._level.scan_range(_NUMBERS, stop):
                record = _unpack_or_none(key, value)
                if record is not None:
                    yield record

    def _record_at(self, key: bytes) -> CacheRecord | None:
        value = self._read(key)
        if value is None:
            return None
        return _unpack_or_none(key, value)

    def _keys_of_kind(self, kind: bytes) -> Iterator[bytes]:
        return self._level.keys_in_range(kind, key_range_end(kind))

    def _read(self, key: bytes) -> bytes | None:
        try:
            return self._level.get_value(key)
        except CacheCorrupt:
            return None

    def _write(self, key: bytes, value: bytes | None) -> None:
        self._waiting_writes.append((key, value))
        self._waiting_bytes += len(key) + len(value or b"")
        if self._waiting_bytes > _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting_writes:
            self._level.write_batch(self._waiting_writes)
        self._waiting_writes = []
        self._waiting_bytes = 0


_UNKNOWN = KnownEntry(EntryOrigin(source="recovered after damage"))


def _is_proven_whole(record: CacheRecord, expected_hashes: Collection[bytes]) -> bool:
    """Whether nothing is missing: a longer content may lack its end, unless somebody knows
    its hash.
    """
    return record.digest.raw in expected_hashes or record.size < CHUNK


def _unpack_or_none(key: bytes, value: bytes) -> CacheRecord | None:
    try:
        return cache_records.unpack_record(cache_records.number_in_key(key), value)
    except (ValueError, struct.error):
        return None
