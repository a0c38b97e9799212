"""Sends and fetches entries between this machine's cache and the shared store.

There is no queue besides the cache: its numbers are the queue. Each entry gets the next
number when it becomes known, in the same synced batch, so the entries after the last
number sent are waiting. This survives any crash, needs no second write, and is limited
by the cache itself. Sending twice is harmless.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import field

import zstandard

from helix_desktop.decompression import decompress_zstd_frame
from helix_desktop.engine.fact_encoding import require_valid_time
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import (
    CacheCorrupt,
    HelixError,
    NotFound,
    StoreFailed,
    WrittenByNewerVersion,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder
from helix_desktop.store.cache_records import CHUNK, CacheRecord, EntryState
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import MOST_BYTES_IN_CALL, Tombstone
from helix_desktop.store.store_thread import StoreThread

VERSION = 1


@dataclass(frozen=True, slots=True)
class DescribedEntry:
    """The contents of a first row. `content` is set if the entry has one chunk."""

    count: int
    time: float
    about: EntryOrigin
    content: bytes


def entry_row_name(cipher: RowCipher, digest: Digest) -> bytes:
    return cipher.keyed_row_name("entry", digest.raw)


def list_row_names_of_entry(cipher: RowCipher, digest: Digest, chunk_count: int) -> list[bytes]:
    """Return the names of all rows of an entry, the first row last, since it is put
    after the others.
    """
    names = []
    if chunk_count > 1:
        names = [_chunk_name(cipher, digest, chunk) for chunk in range(chunk_count)]
    names.append(entry_row_name(cipher, digest))
    return names


def _chunk_name(cipher: RowCipher, digest: Digest, chunk: int) -> bytes:
    return cipher.keyed_row_name("chunk", digest.raw + chunk.to_bytes(4, "big"))


def build_first_row(record: CacheRecord, content: bytes) -> bytes:
    """Return an entry's first row in the shared store: its description, after its length, and
    the content itself if it is a single chunk.
    """
    description = {
        "entry": VERSION,
        "size": record.size,
        "count": record.count_chunks,
        "time": record.time,
        "tool": record.about.tool,
        "source": record.about.source,
        "media_type": record.about.media_type,
    }
    text = json.dumps(description, ensure_ascii=False, separators=(",", ":"))
    encoded = text.encode("utf-8", "surrogatepass")
    row = len(encoded).to_bytes(4, "big") + encoded
    if record.count_chunks == 1:
        row += compress_content(content)
    return row


def compress_content(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(content)


def parse_first_row(digest: Digest, content: bytes) -> DescribedEntry:
    """Parse a first row and check its content's hash. Raises CacheCorrupt or
    WrittenByNewerVersion.
    """
    try:
        # The first four bytes say how long the description is.
        end = 4 + int.from_bytes(content[:4], "big")
        encoded_description = content[4:end].decode("utf-8", "surrogatepass")
        description = json.loads(encoded_description)
        if description["entry"] > VERSION:
            raise WrittenByNewerVersion(
                "This entry was shared by a newer version of Helix Desktop."
            )
        tool = str(description["tool"])
        source = str(description["source"])
        media_type = str(description["media_type"])
        count = int(description["count"])
        size = int(description["size"])
        whole_content = b""
        if count == 1:
            whole_content = decompress_zstd_frame(content[end:], CHUNK)
        time = require_valid_time(description["time"])
        origin = EntryOrigin(tool, source, media_type)
        described = DescribedEntry(count, time, origin, whole_content)
    except (
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
        zstandard.ZstdError,
    ) as error:
        raise corrupt_entry_error(digest) from error
    needed_chunks = max(1, -(-size // CHUNK))
    if count > MOST_CHUNKS or count != needed_chunks:
        raise corrupt_entry_error(digest)
    if count == 1 and Digest.of_content(whole_content) != digest:
        raise corrupt_entry_error(digest)
    return described


def decrypt_chunk_rows(
    cipher: RowCipher, digest: Digest, names: Sequence[bytes], rows: Mapping[bytes, bytes]
) -> Iterator[bytes]:
    """Yield the decrypted chunks. The caller checks the whole."""
    for row_name in names:
        try:
            yield decompress_zstd_frame(cipher.decrypt_row(row_name, rows[row_name]), CHUNK)
        except (zstandard.ZstdError, ValueError) as error:
            raise corrupt_entry_error(digest) from error


def corrupt_entry_error(digest: Digest) -> CacheCorrupt:
    return CacheCorrupt(
        f"The entry {digest} in the shared store does not match its hash. The damaged entry was not used.",
        remedy="To replace the entry, run `workspace sync --check` on a computer that has an intact copy.",
    )


# An entry may have no more chunks, because each is a row, and even forgetting names every row.
MOST_CHUNKS = 1 << 18
ENTRIES_IN_BATCH = 200  # At most this many entries are sent together.
# Bytes. Before sending more, we ask the store which of these entries it lacks.
_ASK_STORE_FROM_BYTES = 32 << 10
_CHUNKS_IN_CALL = MOST_BYTES_IN_CALL // CHUNK  # So many whole chunks fit in one call to the store.


@dataclass(slots=True)
class _EntriesToSend:
    """The next entries: small ones with their content, and larger ones. `last_number`: up to
    here, none is left out.
    """

    last_number: int
    small: list[tuple[CacheRecord, bytes]] = field(default_factory=list)
    large: list[CacheRecord] = field(default_factory=list)


class ContentTransfer:
    """Sends and fetches entries. The cache is only used on its own thread."""

    def __init__(
        self, folder: CacheFolder, thread: StoreThread, remote: AsyncRowStore, seal: RowCipher
    ) -> None:
        self._folder = folder
        self._thread = thread
        self._remote = remote
        self._seal = seal

    # --- Sending content to the shared store

    async def send_next_entries(self, after: int) -> int:
        """Send the next entries. Return the number up to which all are sent; `after` if
        none waits.
        """
        batch = await self._thread.run_work(self._read_next_batch, after)
        await self._send_small_entries(batch.small)
        for record in batch.large:
            await self._send_large_entry(record)
        return batch.last_number

    def _read_next_batch(self, after: int) -> "_EntriesToSend":
        """On the cache's thread: read the next entries, until they are enough for one call to
        the store. Checkpoints' contents are not shared.
        """
        batch = _EntriesToSend(after)
        size = 0
        for record in self._folder.reader.records_after(after, ENTRIES_IN_BATCH):
            if _is_shared_entry(record):
                # Damaged or deleted entries can't be sent; whoever opens them is told.
                with contextlib.suppress(NotFound, CacheCorrupt):
                    self._add_to_batch(batch, record)
                    size += record.size
            batch.last_number = record.number
            if size > MOST_BYTES_IN_CALL:
                break
        return batch

    def _add_to_batch(self, batch: "_EntriesToSend", record: CacheRecord) -> None:
        if record.count_chunks > 1:
            batch.large.append(record)
            return
        content = self._folder.reader.get_content(record.digest)
        batch.small.append((record, content))

    async def _send_small_entries(self, entries: Sequence[tuple[CacheRecord, bytes]]) -> None:
        entries_to_send = entries
        total_size = sum(record.size for record, _ in entries)
        if total_size > _ASK_STORE_FROM_BYTES:
            entries_to_send = await self._select_missing_entries(entries)
        if entries_to_send:
            rows = await self._remote.run_in_thread(self._encrypt_entries, entries_to_send)
            await self._remote.store_in_batches(rows)

    async def _select_missing_entries(
        self, entries: Sequence[tuple[CacheRecord, bytes]]
    ) -> list[tuple[CacheRecord, bytes]]:
        entry_by_name: dict[bytes, tuple[CacheRecord, bytes]] = {}
        for record, content in entries:
            name = entry_row_name(self._seal, record.digest)
            entry_by_name[name] = (record, content)
        missing_names = await self._remote.find_missing_in_batches(list(entry_by_name))
        return [entry for name, entry in entry_by_name.items() if name in missing_names]

    def _encrypt_entries(
        self, entries: Sequence[tuple[CacheRecord, bytes]]
    ) -> Mapping[bytes, bytes]:
        rows = {}
        for record, content in entries:
            name = entry_row_name(self._seal, record.digest)
            first_row = build_first_row(record, content)
            rows[name] = self._seal.encrypt_row(name, first_row)
        return rows

    async def _send_large_entry(self, record: CacheRecord) -> None:
        """Send an entry of several chunks: those that the store does not have, then the first row,
        which describes it. An entry that is removed here meanwhile is not sent.
        """
        *chunk_names, first_row = list_row_names_of_entry(
            self._seal, record.digest, record.count_chunks
        )
        missing_names = await self._remote.find_missing_in_batches(chunk_names + [first_row])
        missing_chunks: list[int] = []
        for chunk, name in enumerate(chunk_names):
            if name in missing_names:
                missing_chunks.append(chunk)

        with contextlib.suppress(NotFound, CacheCorrupt):
            for start in range(0, len(missing_chunks), _CHUNKS_IN_CALL):
                chunks = missing_chunks[start : start + _CHUNKS_IN_CALL]
                contents = await self._thread.run_work(self._read_chunks, record, chunks)
                names = [chunk_names[chunk] for chunk in chunks]
                rows = await self._remote.run_in_thread(self._encrypt_chunks, names, contents)
                await self._remote.store_in_batches(rows)
            # Others look for the first row, so it comes after all the others.
            if first_row in missing_names:
                description = build_first_row(record, b"")
                sealed = self._seal.encrypt_row(first_row, description)
                await self._remote.store_in_batches({first_row: sealed})

    def _read_chunks(self, record: CacheRecord, chunks: Sequence[int]) -> list[bytes]:
        return [self._folder.reader.read_chunk(record, chunk) for chunk in chunks]

    def _encrypt_chunks(
        self, names: Sequence[bytes], contents: Sequence[bytes]
    ) -> Mapping[bytes, bytes]:
        rows = {}
        for name, content in zip(names, contents, strict=True):
            rows[name] = self._seal.encrypt_row(name, compress_content(content))
        return rows

    async def fetch_entries(self, digests: Collection[Digest]) -> frozenset[Digest]:
        """Fetch the entries that the store has, checked. Raises CacheCorrupt only for a
        single entry.
        """
        digest_by_name: dict[bytes, Digest] = {}
        for digest in digests:
            if not self._folder.reader.was_forgotten(digest):
                name = entry_row_name(self._seal, digest)
                digest_by_name[name] = digest
        rows = await self._remote.fetch_in_batches(list(digest_by_name))
        fetched: set[Digest] = set()
        for name, sealed in rows.items():
            digest = digest_by_name[name]
            try:
                await self._store_fetched_entry(digest, name, sealed)
                fetched.add(digest)
            except CacheCorrupt:
                if len(digests) == 1:
                    raise
            except NotFound:
                continue
        return frozenset(fetched)

    async def _store_fetched_entry(self, digest: Digest, name: bytes, encrypted: bytes) -> None:
        """Store another machine's entry here: its first row describes it, and has the content
        if that is a single chunk. The entry is only committed if its hash is right.
        """
        description = await self._remote.run_in_thread(
            self._decrypt_description, digest, name, encrypted
        )
        incoming = await self._thread.run_work(
            self._folder.begin_incoming, description.about, time=description.time
        )
        try:
            if description.count == 1:
                await self._thread.run_work(incoming.write_piece, description.content)
            else:
                async for chunk in self._fetch_chunks(digest, description.count):
                    await self._thread.run_work(incoming.write_piece, chunk)
            staged = await self._thread.run_work(incoming.finish_entry)
        except BaseException:
            with contextlib.suppress(StoreFailed):
                self._thread.submit_work(incoming.abandon_entry)
            raise
        if staged.record.digest != digest:
            await self._thread.run_work(self._folder.discard_staged, staged)
            raise corrupt_entry_error(digest)
        await self._thread.run_work(self._folder.commit_staged, [staged])

    def _decrypt_description(self, digest: Digest, name: bytes, encrypted: bytes) -> DescribedEntry:
        first_row = self._seal.decrypt_row(name, encrypted)
        return parse_first_row(digest, first_row)

    async def _fetch_chunks(self, digest: Digest, count: int) -> AsyncIterator[bytes]:
        """Fetch an entry's chunks in order, several at a time, and yield them decrypted."""
        for start in range(0, count, _CHUNKS_IN_CALL):
            chunks = range(start, min(count, start + _CHUNKS_IN_CALL))
            names = [_chunk_name(self._seal, digest, chunk) for chunk in chunks]
            rows = await self._remote.fetch_in_batches(names)
            if len(rows) < len(names):
                raise NotFound(f"Part of the entry {digest} is missing from the shared store.")
            decrypting = decrypt_chunk_rows(self._seal, digest, names, rows)
            for content in await self._remote.run_in_thread(list, decrypting):
                yield content

    async def send_entries_again(self, digests: Collection[Digest]) -> None:
        """Send these entries again, as far as they are here."""
        for digest in digests:
            with contextlib.suppress(NotFound, CacheCorrupt):
                record = await self._thread.run_work(self._folder.reader.record_of_content, digest)
                if record.about.tool != CHECKPOINT:
                    await self._send_entry_again(record)

    async def find_missing_entries(self, digests: Collection[Digest]) -> list[Digest]:
        """Return the entries whose first row the store lacks."""
        digest_by_name = {entry_row_name(self._seal, digest): digest for digest in digests}
        missing_names = await self._remote.find_missing_in_batches(list(digest_by_name))
        return [digest_by_name[name] for name in missing_names]

    async def repair_all_entries(self) -> tuple[int, int, int]:
        """Return how many entries exist, were missing, or were damaged. The latter two
        are sent again.
        """
        entry_count = 0
        missing_count = 0
        damaged_count = 0
        async for record in self._iterate_shared_records():
            entry_count += 1
            missing, damaged = await self._compare_rows_of_entry(record)
            if missing:
                missing_count += 1
            if damaged:
                damaged_count += 1
            if missing or damaged:
                await self._remote.remove_in_batches(damaged)
                await self._send_entry_again(record)
        return entry_count, missing_count, damaged_count

    async def _iterate_shared_records(self) -> AsyncIterator[CacheRecord]:
        """Yield the records of all entries here that are shared, which are all but checkpoints'
        contents.
        """
        last_number = 0
        while True:
            records = await self._thread.run_work(
                self._folder.reader.records_after, last_number, ENTRIES_IN_BATCH
            )
            if not records:
                return
            last_number = records[-1].number
            for record in records:
                if _is_shared_entry(record):
                    yield record

    async def _compare_rows_of_entry(
        self, record: CacheRecord
    ) -> tuple[frozenset[bytes], list[bytes]]:
        """Return the rows that the store lacks, and those that are damaged there."""
        names = list_row_names_of_entry(self._seal, record.digest, record.count_chunks)
        missing = await self._remote.find_missing_in_batches(names)
        damaged = []
        for start in range(0, len(names), _CHUNKS_IN_CALL):
            names_in_call = names[start : start + _CHUNKS_IN_CALL]
            rows = await self._remote.fetch_in_batches(names_in_call)
            for name, sealed in rows.items():
                if not self._can_decrypt(name, sealed):
                    damaged.append(name)
        return missing, damaged

    def _can_decrypt(self, name: bytes, encrypted: bytes) -> bool:
        try:
            self._seal.decrypt_row(name, encrypted)
        except CacheCorrupt:
            return False
        return True

    async def _send_entry_again(self, record: CacheRecord) -> None:
        if record.count_chunks > 1:
            await self._send_large_entry(record)
            return
        with contextlib.suppress(NotFound, CacheCorrupt):
            content = await self._thread.run_work(self._folder.reader.get_content, record.digest)
            rows = self._encrypt_entries([(record, content)])
            await self._remote.store_in_batches(rows)

    # --- Forgetting content in the shared store

    async def replace_descriptions(self, digests: Collection[Digest]) -> None:
        """Replace these entries' descriptions in the store by those here."""
        names = [entry_row_name(self._seal, digest) for digest in digests]
        await self._remote.remove_in_batches(names)
        await self.send_entries_again(digests)

    async def forget_entries_remotely(self, chunk_counts: Mapping[Digest, int]) -> None:
        """Destroy these entries in the store, and tell the other machines."""
        tombs: list[Tombstone] = []
        for digest, count in chunk_counts.items():
            chunk_count = count
            if not chunk_count:  # It is not known here.
                chunk_count = await self._fetch_chunk_count(digest)
            *chunk_names, first_row = list_row_names_of_entry(self._seal, digest, chunk_count)
            # The other machines learn from it which entry is forgotten.
            sealed_digest = self._seal.encrypt_row(first_row, digest.raw)
            tombs.append(Tombstone(first_row, sealed_digest))
            tombs += [Tombstone(name, b"") for name in chunk_names]
        await self._remote.forget_in_batches(tombs)

    async def _fetch_chunk_count(self, digest: Digest) -> int:
        name = entry_row_name(self._seal, digest)
        rows = await self._remote.fetch_in_batches([name])
        with contextlib.suppress(KeyError, HelixError):
            described = self._decrypt_description(digest, name, rows[name])
            return described.count
        return 1

    def entries_of_tombstones(self, tombs: Sequence[Tombstone]) -> Iterator[Digest]:
        """Yield entries that other machines forgot. Tombstones of other workspaces are ignored."""
        for tomb in tombs:
            with contextlib.suppress(CacheCorrupt, ValueError):
                if tomb.sealed_digest:
                    yield Digest(self._seal.decrypt_row(tomb.name, tomb.sealed_digest))

    async def row_names_of_entries(self, digests: Collection[Digest]) -> list[bytes]:
        """Return the names of all rows of these entries, if this machine knows how many
        chunks they have.
        """
        counts = await self._thread.run_work(count_chunks_of_entries, self._folder, digests)
        names = []
        for digest, count in counts.items():
            names += list_row_names_of_entry(self._seal, digest, max(1, count))
        return names


def _is_shared_entry(record: CacheRecord) -> bool:
    """Whether an entry is sent to others. The contents of checkpoints are not."""
    return record.state is EntryState.LIVE and record.about.tool != CHECKPOINT


def measure_waiting_entries(folder: CacheFolder, last_number: int) -> tuple[int, int]:
    """Return how many entries after this number wait to be sent, and their bytes."""
    count = 0
    size = 0
    records = folder.reader.records_after(last_number)
    while records:
        for record in records:
            if _is_shared_entry(record):
                count += 1
                size += record.size
        records = folder.reader.records_after(records[-1].number)
    return count, size


def count_chunks_of_entries(
    folder: CacheFolder, digests: Collection[Digest]
) -> Mapping[Digest, int]:
    """Return each entry's number of chunks, or 0 if nothing is known of it here."""
    return {digest: _count_known_chunks(folder, digest) for digest in digests}


def _count_known_chunks(folder: CacheFolder, digest: Digest) -> int:
    with contextlib.suppress(HelixError, ValueError):
        return folder.reader.record_of_entry(digest).count_chunks
    return 0
