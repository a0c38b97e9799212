"""Implements the engine's ports with the stores, by coroutines that work on the
workspace's threads.
"""

import asyncio
import contextlib
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TypeVar

from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.engine.facts import Fact, Recorded, Stored
from helix_desktop.engine.ports import CacheEntry, EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import (
    AmbiguousName,
    CacheCorrupt,
    HelixError,
    JournalCorrupt,
    NotFound,
    StoreFailed,
)
from helix_desktop.store.cache_check_and_cleanup import (
    CacheCheck,
    CollectResult,
    VerifyResult,
    free_cache_bytes,
)
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder, StagedEntry
from helix_desktop.store.cache_reader import QUARANTINED
from helix_desktop.store.cache_records import CHUNK, CacheRecord
from helix_desktop.store.conversation_rows import StoredConversation
from helix_desktop.store.journal_file import JournalFile, select_received_facts
from helix_desktop.store.shared.shared_store_link import SharedStoreLink
from helix_desktop.store.store_thread import StoreThread
from helix_desktop.store.workspace_index import WorkspaceIndex

__all__ = ["StoreCache", "StoreJournal", "WorkspaceIndex"]  # The three ports of an open workspace.

T = TypeVar("T")
LITTLE_CONTENT_BYTES = 128 << 10  # Smaller contents of checkpoints are compressed harder.
_FACTS_IN_PAGE = 500  # After reading this many facts, other work gets its turn.
_SLICE_BYTES = 1 << 20  # Once the waiting contents have more than this, they are written.
Batch = tuple[str, Sequence[Fact]]  # A conversation's id, and the facts to append.


class StoreJournal:
    """Implements ports.JournalPort. Facts that come together share a transaction and a sync.

    `changed` is called on the event loop after facts were written, `damaged` after a
    damaged fact was read. `asked` is entered before facts are written; it raises
    ActionRefused if another machine writes there.
    """

    def __init__(
        self,
        file: JournalFile,
        thread: StoreThread,
        changed: Callable[[], None],
        damaged: Callable[[], None],
    ) -> None:
        """`thread`: the only one that uses the file."""
        self._file = file
        self._thread = thread
        self._changed = changed
        self._damaged = damaged
        self.asked: Callable[[str, int], contextlib.AbstractAsyncContextManager[object]] = (
            allow_any_writer
        )
        # The facts that the next commit appends, each with what tells whoever waits for them.
        self._waiting: list[tuple[Batch, Future[Sequence[Recorded]]]] = []

    async def append_to_journal(
        self, conversation: str, facts: Sequence[Fact]
    ) -> Sequence[Recorded]:
        """Append facts, which are on disk on return. Cancelling does not undo an append
        that has begun.
        """
        async with self.asked(conversation, len(facts)):
            outcome: Future[Sequence[Recorded]] = Future()
            self._thread.submit_work(self._stage_facts, (conversation, facts), outcome)
            try:
                recorded = await asyncio.wrap_future(outcome)
            except asyncio.CancelledError:
                await self._finish_append_that_has_begun(outcome)
                raise
        self._changed()
        return recorded

    async def _finish_append_that_has_begun(self, outcome: Future[Sequence[Recorded]]) -> None:
        """Wait until facts are on disk whose caller was cancelled during the append. Until then,
        this machine must stay the one that writes.
        """
        if outcome.cancelled():
            return  # It had not begun, and nothing is written.
        written = asyncio.wrap_future(outcome)
        await finish_even_if_cancelled(asyncio.wait([written]))
        if written.exception() is None:
            self._changed()

    def _stage_facts(self, batch: Batch, outcome: Future[Sequence[Recorded]]) -> None:
        """Stage facts. The commit is queued behind all work that waits now, and so
        includes its facts.
        """
        if not outcome.set_running_or_notify_cancel():
            return
        self._waiting.append((batch, outcome))
        if len(self._waiting) == 1:
            try:
                self._thread.submit_work(self._commit_facts)
            except StoreFailed:  # The workspace is closing and takes no more work.
                self._commit_facts()

    def _commit_facts(self) -> None:
        """Append all batches of facts that wait: together if possible, which takes one sync,
        and otherwise one by one, so that only those who wait for a wrong batch get its error.
        """
        waiting = self._waiting
        self._waiting = []
        if len(waiting) > 1 and self._commit_together(waiting):
            return
        for (conversation, facts), outcome in waiting:
            try:
                recorded = self._file.append_all_or_nothing(conversation, facts)
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits, whatever it is
                outcome.set_exception(error)
            else:
                outcome.set_result(recorded)

    def _commit_together(self, waiting: Sequence[tuple[Batch, Future[Sequence[Recorded]]]]) -> bool:
        """Append all batches together. If one fails, nothing is written, and each is
        tried alone.
        """
        try:
            recorded_batches = self._file.append_together([batch for batch, _ in waiting])
        except BaseException:  # noqa: BLE001 - told to the one it belongs to
            return False
        for (_, outcome), recorded in zip(waiting, recorded_batches, strict=True):
            outcome.set_result(recorded)
        return True

    async def read_facts(
        self, conversation: str, after: int = 0, limit: int = 0
    ) -> Sequence[Recorded]:
        """Read facts in pages, so that a long conversation delays nobody's commit."""
        facts: list[Recorded] = []
        while True:
            page_size = _FACTS_IN_PAGE
            if limit:
                page_size = min(_FACTS_IN_PAGE, limit - len(facts))
            page = await self._read_checked(
                self._file.read_recorded, conversation, after + len(facts), page_size
            )
            facts += page
            if len(page) < page_size or len(facts) == limit:
                return tuple(facts)

    async def _read_checked(
        self, read: Callable[..., Sequence[Recorded]], *arguments: object
    ) -> Sequence[Recorded]:
        try:
            return await self._thread.run_work(read, *arguments)
        except JournalCorrupt:
            self._damaged()
            raise

    async def first_facts_without_meter(self) -> Sequence[Recorded]:
        return await self._read_checked(self._file.first_facts_without_meter)

    async def facts_about_cost(self, since: float) -> Sequence[Recorded]:
        return await self._read_checked(self._file.facts_about_cost, since)

    async def facts_about_received_messages(self, conversation: str) -> Sequence[Recorded]:
        return await self._read_checked(select_received_facts, self._file, conversation)

    async def fork_conversation(
        self, conversation: str, last: int, fork: str
    ) -> Sequence[Recorded]:
        recorded = await self._thread.run_work(
            self._file.copy_conversation, conversation, last, fork
        )
        self._changed()
        return recorded

    async def append_imported_facts(
        self, conversation: str, facts: Sequence[tuple[float, Fact]], meter: str = ""
    ) -> Sequence[Recorded]:
        """Append facts of an imported history with their own times, all or none.
        `meter`: for lists.
        """
        recorded = await self._thread.run_work(
            self._file.append_with_times, conversation, facts, meter
        )
        self._changed()
        return recorded

    async def facts_about_imports(self) -> Sequence[Recorded]:
        """Return all facts about imports, oldest first."""
        return await self._thread.run_work(self._file.read_import_facts)

    async def conversations_with_open_turn(self) -> Sequence[str]:
        return await self._thread.run_work(self._file.conversations_maybe_in_turn)

    async def list_conversations(self) -> Sequence[StoredConversation]:
        """Return all conversations, the last changed first."""
        return await self._thread.run_work(self._file.conversation_rows)

    async def numbers_of_last_facts_by_own_clock(self) -> Sequence[tuple[str, int]]:
        """Return the number of each conversation's last fact among all facts, unless another clock
        may have given it its time: that of another program or machine.
        """
        return await self._thread.run_work(self._file.numbers_of_last_facts_by_own_clock)

    async def find_conversation(self, conversation: str) -> StoredConversation:
        return await self._thread.run_work(self._file.conversation_row, conversation)

    async def store_meter(self, conversation: str, meter: str) -> None:
        """Store a derived text beside the conversation, for lists."""
        await self._thread.run_work(self._file.write_meter, conversation, meter)


class StoreCache:
    """Implements ports.ContentCache. Contents that come together share a sync.

    `changed` is called on the event loop when its size has changed.
    Missing or damaged content is requested from `far` if that is set.
    """

    def __init__(self, folder: CacheFolder, thread: StoreThread, index: WorkspaceIndex) -> None:
        self._folder = folder
        self._thread = thread
        self._index = index
        self.changed: Callable[[], object] = lambda: None
        self.far: SharedStoreLink | None = None
        self._waiting: list[tuple[StagedEntry, Future[Stored]]] = []
        self._waiting_bytes = 0  # How much the waiting contents have.

    async def store_content(
        self, content: bytes | AsyncIterable[bytes], about: EntryOrigin
    ) -> Stored:
        """Store content, whole or in pieces. It is on the disk when this returns, and also in a
        shared store if the workspace waits for that.
        """
        if isinstance(content, bytes):
            staging = partial(self._folder.stage_content, content, about)
            stored = await self._stage_and_commit(staging, len(content))
        else:
            stored = await self._store_stream(content, about)
        await self._notify_of_stored_content()
        return replace(stored, media_type=about.media_type)

    async def _notify_of_stored_content(self) -> None:
        self._index.start_indexing()
        self.changed()
        if self.far is not None:
            self.far.notify_new_content()
            await self.far.wait_until_acknowledged()

    async def store_many(self, contents: Sequence[tuple[bytes, EntryOrigin]]) -> Sequence[Stored]:
        """Store several contents in one synced batch, except forgotten ones."""
        if not contents:
            return ()
        stored = await self._thread.run_work(self._store_many_now, contents)
        await self._notify_of_stored_content()
        return stored

    def _store_many_now(self, contents: Sequence[tuple[bytes, EntryOrigin]]) -> list[Stored]:
        """Stage all contents, then commit them together; on any error none is stored.

        A forgotten content is not stored again: its reference says only what it was.
        """
        references: list[Stored] = []
        staged: list[StagedEntry] = []
        total_size = sum(len(content) for content, _ in contents)
        is_little = total_size <= LITTLE_CONTENT_BYTES
        try:
            for content, about in contents:
                digest = Digest.of_content(content)
                if self._folder.reader.was_forgotten(digest):
                    references.append(Stored(digest, len(content), 0, about.media_type))
                    continue
                thorough = is_little and about.tool == CHECKPOINT
                entry = self._folder.stage_content(content, about, thorough=thorough, digest=digest)
                staged.append(entry)
                references.append(entry.record.stored_reference)
        except BaseException:
            for entry in staged:
                self._folder.discard_staged(entry)
            raise
        self._folder.commit_staged(staged)
        return references

    async def _stage_and_commit(self, stage: Callable[[], StagedEntry], size: int) -> Stored:
        outcome: Future[Stored] = Future()
        self._thread.submit_work(self._stage_waiting_content, stage, size, outcome)
        return await asyncio.wrap_future(outcome)

    def _stage_waiting_content(
        self, stage: Callable[[], StagedEntry], size: int, outcome: Future[Stored]
    ) -> None:
        """Stage content. The commit is queued behind all work that waits now, and so
        includes what that stages.
        """
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            staged = stage()
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits, whatever it is
            outcome.set_exception(error)
            return
        self._waiting.append((staged, outcome))
        self._waiting_bytes += size
        if self._waiting_bytes > _SLICE_BYTES:
            self._commit_waiting_contents()
        elif len(self._waiting) == 1:
            try:
                self._thread.submit_work(self._commit_waiting_contents)
            except StoreFailed:  # The workspace is closing and takes no more work.
                self._commit_waiting_contents()

    def _commit_waiting_contents(self) -> None:
        """Make all contents known that wait, with one sync, and tell those who wait for them."""
        waiting = self._waiting
        self._waiting = []
        self._waiting_bytes = 0
        if not waiting:
            return
        try:
            self._folder.commit_staged([staged for staged, _ in waiting])
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits, whatever it is
            for _, outcome in waiting:
                outcome.set_exception(error)
        else:
            for staged, outcome in waiting:
                outcome.set_result(staged.record.stored_reference)

    async def _store_stream(self, content: AsyncIterable[bytes], about: EntryOrigin) -> Stored:
        """Store content that comes in pieces, a chunk at a time. If its source fails, what was
        written of it is removed.
        """
        incoming = await self._thread.run_work(self._folder.begin_incoming, about)
        try:
            async for piece in content:
                for start in range(0, len(piece), CHUNK):
                    part_of_piece = piece[start : start + CHUNK]
                    await self._thread.run_work(incoming.write_piece, part_of_piece)
            return await self._stage_and_commit(incoming.finish_entry, 0)
        except BaseException:
            # If the store is closed, the next opening removes this entry.
            with contextlib.suppress(StoreFailed):
                self._thread.submit_work(incoming.abandon_entry)
            raise

    async def read_content(self, digest: Digest) -> bytes:
        return await self._read_or_fetch(digest, partial(self._read_whole, digest))

    async def _read_or_fetch(self, digest: Digest, read: Callable[[], Awaitable[T]]) -> T:
        """Return what `read` returns. If content is missing or damaged, first fetch it
        from a shared store.
        """
        try:
            return await read()
        except (NotFound, CacheCorrupt):
            if not await self._fetch_from_remote(digest):
                raise
        return await read()

    async def _read_whole(self, digest: Digest) -> bytes:
        record = await self._thread.run_work(self._folder.reader.record_of_content, digest)
        if record.count_chunks == 1:
            return await self._thread.run_work(self._folder.reader.get_content, digest)
        content = bytearray()
        async for chunk in self._stream_chunks(record):
            content += chunk
        return bytes(content)

    async def _fetch_from_remote(self, digest: Digest) -> bool:
        """Fetch an entry from a shared store. Return whether it is here now. An
        unreachable store is no failure.
        """
        if self.far is None or self._folder.reader.was_forgotten(digest):
            return False
        try:
            if not await self.far.fetch_content([digest]):
                return False
        except CacheCorrupt:
            raise
        except StoreFailed as error:
            raise NotFound(
                f"The entry {digest} is not on this computer, and it is not available from the shared store right now.",
                remedy="Try again later.",
            ) from error
        self._index.start_indexing()
        return True

    async def stream_content(self, digest: Digest) -> AsyncIterator[bytes]:
        """Yield the content in chunks, each checked. This needs only a megabyte or two
        of memory.
        """
        record = await self._find_or_fetch_record(digest)
        for chunk in range(record.count_chunks):
            try:
                content = await self._thread.run_work(self._folder.reader.read_chunk, record, chunk)
            except CacheCorrupt:
                # It is known to be damaged from now on, so it is fetched if that is possible.
                record = await self._find_or_fetch_record(digest)
                content = await self._thread.run_work(self._folder.reader.read_chunk, record, chunk)
            yield content

    async def _find_or_fetch_record(self, digest: Digest) -> CacheRecord:
        find = partial(self._thread.run_work, self._folder.reader.record_of_content, digest)
        return await self._read_or_fetch(digest, find)

    async def _stream_chunks(self, record: CacheRecord) -> AsyncIterator[bytes]:
        for chunk in range(record.count_chunks):
            yield await self._thread.run_work(self._folder.reader.read_chunk, record, chunk)

    async def read_range(self, digest: Digest, start: int, length: int) -> bytes:
        read = partial(self._thread.run_work, self._folder.reader.read_part, digest, start, length)
        return await self._read_or_fetch(digest, read)

    async def describe_entry(self, digest: Digest, beginning: int = 0) -> CacheEntry:
        """Return what is known of an entry, with the first bytes of its content if `beginning`
        asks for some. Whoever reads those shows the entry, and so gets its tokens too.
        """
        describe = partial(
            self._thread.run_work, self._folder.reader.read_described_entry, digest, beginning
        )
        if not beginning:
            return await self._read_or_fetch(digest, describe)
        entry, tokens = await asyncio.gather(
            self._read_or_fetch(digest, describe), self._find_known_tokens(digest)
        )
        return replace(entry, tokens=tokens)

    async def _find_known_tokens(self, digest: Digest) -> int:
        """Return an entry's tokens, or 0 if not counted yet or while the index is rebuilt."""
        with contextlib.suppress(HelixError):
            row = await self._index.find_entry_row(digest)
            if row is not None:
                return row.tokens
        return 0

    async def find_missing_content(self, digests: Collection[Digest]) -> frozenset[Digest]:
        return await self._thread.run_work(self._folder.reader.digests_without_content, digests)

    async def read_contents(self, digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        contents = await self._read_local_contents(digests)
        missing = [digest for digest in digests if digest not in contents]
        fetched = await self._fetch_all_from_remote(missing)
        return contents | await self._read_local_contents(fetched)

    async def prefetch_content(self, digests: Collection[Digest]) -> None:
        """Fetch content in advance, as far as the shared store has it."""
        await self._fetch_all_from_remote(await self.find_missing_content(digests))

    async def _fetch_all_from_remote(self, digests: Collection[Digest]) -> frozenset[Digest]:
        if self.far is None or not digests:
            return frozenset()
        try:
            fetched = await self.far.fetch_content(digests)
        except StoreFailed:  # The shared store is unreachable, so only local content counts.
            return frozenset()
        self._index.start_indexing()
        return fetched

    async def _read_local_contents(self, digests: Collection[Digest]) -> dict[Digest, bytes]:
        contents: dict[Digest, bytes] = {}
        unread_digests = list(digests)
        while unread_digests:
            read_contents, unread_digests = await self._thread.run_work(
                self._read_contents_up_to_limit, unread_digests
            )
            contents |= read_contents
        return contents

    def _read_contents_up_to_limit(
        self, digests: list[Digest]
    ) -> tuple[dict[Digest, bytes], list[Digest]]:
        """Read as many contents as can be read quickly. Also return those left."""
        contents: dict[Digest, bytes] = {}
        read_bytes = 0
        for number, digest in enumerate(digests, 1):
            with contextlib.suppress(NotFound, StoreFailed):
                content = self._folder.reader.get_content(digest)
                contents[digest] = content
                read_bytes += len(content)
            if read_bytes > _SLICE_BYTES:
                return contents, digests[number:]
        return contents, []

    async def resolve_prefix(self, prefix: str) -> Digest:
        """Return the only entry whose hash begins so. One that only facts name, as its content
        is in the shared store, is fetched.
        """
        try:
            return await self._thread.run_work(self._folder.reader.resolve_hash_prefix, prefix)
        except AmbiguousName:
            raise
        except NotFound:
            if self.far is None:
                raise
            named_entries = await self._index.entries_named_by_prefix(prefix)
            if len(named_entries) != 1 or not await self._fetch_from_remote(named_entries[0]):
                raise
            return named_entries[0]

    async def pin_entry(self, digest: Digest, *, pinned: bool = True) -> None:
        await self._thread.run_work(self._folder.set_entry_pinned, digest, pinned=pinned)
        await self._index.refresh_entry_rows([digest])

    async def verify_cache(
        self, report: Callable[[VerifyResult], None] = lambda _: None
    ) -> VerifyResult:
        """Compare every byte with its hash, and report what is damaged and what is missing."""
        await self._index.wait_until_indexed()
        check = CacheCheck(self._folder)
        await self._check_all_slices(check, report)
        # This finds entries that the list of hashes lacks, and they are checked as well.
        await self._thread.run_work(check.repair_hash_keys)
        await self._check_all_slices(check, report)
        async for digests in self._index.stream_expected_entries():
            await self._thread.run_work(check.add_missing_to_result, digests)
        await self._thread.run_work(check.add_missing_to_result, self.quarantined_entries())
        return check.check_result()

    async def _check_all_slices(
        self, check: CacheCheck, report: Callable[[VerifyResult], None]
    ) -> None:
        while await self._thread.run_work(check.check_next_slice_if_any):
            report(check.check_result())

    def quarantined_entries(self) -> Sequence[Digest]:
        """Return the entries that are known to be damaged or lost."""
        return [Digest(raw) for raw in sorted(self._folder.reader.marked[QUARANTINED])]

    async def verify_entry(self, digest: Digest) -> None:
        """Check one entry. Raises CacheCorrupt if it is damaged."""
        record = await self._find_or_fetch_record(digest)
        async for _ in self._stream_chunks(record):
            pass

    async def remove_unused_down_to(self, target_bytes: int) -> CollectResult:
        """Remove content down to `target_bytes` bytes, oldest first, that is not used,
        pinned or stored by hand.
        """
        await self._index.wait_until_indexed()
        bytes_to_free = (await self._index.compute_figures()).kept - target_bytes
        if bytes_to_free <= 0:
            return CollectResult(0, 0)
        candidates = await self._index.find_unused_entries()
        removed, freed_bytes = await self._thread.run_work(
            free_cache_bytes, self._folder, candidates, bytes_to_free
        )
        await self._index.refresh_entry_rows(removed)
        await self._thread.run_work(self._folder.level.compact_database)
        self.changed()
        return CollectResult(len(removed), freed_bytes)


def allow_any_writer(
    _conversation: str, _count: int
) -> contextlib.AbstractAsyncContextManager[None]:
    """Allow every write, since no other machine has the conversation."""
    return contextlib.nullcontext()
