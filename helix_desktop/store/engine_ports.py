"""The engine's ports on the stores: coroutines whose work is done on the workspace's threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Fact, Recorded, Stored
from helix_desktop.engine.ports import About, Entry
from helix_desktop.errors import Ambiguous, CacheCorrupt, JournalCorrupt, NotThere, StoreFailed
from helix_desktop.store import maintenance
from helix_desktop.store.cache import CHECKPOINT, CacheFolder
from helix_desktop.store.conversations import Row
from helix_desktop.store.incoming_content import Incoming, Staged
from helix_desktop.store.journal import JournalFile
from helix_desktop.store.live_index import Index
from helix_desktop.store.maintenance import Check, Collected, Verified
from helix_desktop.store.records import CHUNK, Record
from helix_desktop.store.thread import StoreThread

__all__ = ["Cache", "Index", "Journal"]  # the three ports of an open workspace

LITTLE = 128 << 10  # bytes of checkpoints put at once, up to which time is taken to make them small
_PAGE = 500  # facts read before others get their turn
_SLICE = 1 << 20  # bytes of puts that wait for one commit
Batch = tuple[str, Sequence[Fact]]  # of one conversation


class Journal:
    """ports.Journal on the journal file. Facts of several conversations that come together share one transaction, and one sync.

    `changed` is called, on the event loop, after facts were written; `damaged` when a fact was met that is. `asked` is called before
    facts are written, and raises Refused where another machine writes in that conversation.
    """

    def __init__(
        self, file: JournalFile, thread: StoreThread, changed: Callable[[], None], damaged: Callable[[], None]
    ) -> None:
        self._file = file
        self._thread = thread
        self._changed = changed
        self._damaged = damaged
        self.asked: Callable[[str], object] = anybody
        self._waiting: list[tuple[Batch, Future[Sequence[Recorded]]]] = []

    async def append(self, conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
        """On the disk when this returns. Cancelling the wait does not take back what was begun."""
        self.asked(conversation)
        outcome: Future[Sequence[Recorded]] = Future()
        self._thread.submit(self._stage, (conversation, facts), outcome)
        recorded = await asyncio.wrap_future(outcome)
        self._changed()
        return recorded

    def _stage(self, batch: Batch, outcome: Future[Sequence[Recorded]]) -> None:
        """The commit stands behind what is queued by now, and so takes all of that along."""
        if not outcome.set_running_or_notify_cancel():
            return
        self._waiting.append((batch, outcome))
        if len(self._waiting) == 1:
            try:
                self._thread.submit(self._commit)
            except StoreFailed:  # closing: nothing can be queued any more
                self._commit()

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        if len(waiting) == 1 or not self._committed(waiting):
            for one in waiting:
                self._append_alone(*one)

    def _committed(self, waiting: Sequence[tuple[Batch, Future[Sequence[Recorded]]]]) -> bool:
        """All of them together. Where one fails nothing is written, and each is tried by itself."""
        try:
            found = self._file.append_together([batch for batch, _ in waiting])
        except BaseException:  # noqa: BLE001 - told to the one it belongs to
            return False
        for (_, outcome), recorded in zip(waiting, found, strict=True):
            outcome.set_result(recorded)
        return True

    def _append_alone(self, batch: Batch, outcome: Future[Sequence[Recorded]]) -> None:
        try:
            recorded = self._file.append(*batch)
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits, whatever it is
            outcome.set_exception(error)
        else:
            outcome.set_result(recorded)

    async def read(self, conversation: str, after: int = 0, limit: int = 0) -> Sequence[Recorded]:
        """In pages, so that a long conversation being read holds up nobody's commit."""
        found: list[Recorded] = []
        while True:
            size = min(_PAGE, limit - len(found)) if limit else _PAGE
            page = await self._page(conversation, after + len(found), size)
            found += page
            if len(page) < size or len(found) == limit:
                return tuple(found)

    async def _page(self, conversation: str, after: int, size: int) -> Sequence[Recorded]:
        try:
            return await self._thread.run(self._file.read, conversation, after, size)
        except JournalCorrupt:
            self._damaged()
            raise

    async def fork(self, conversation: str, at: int, new: str) -> Sequence[Recorded]:
        recorded = await self._thread.run(self._file.fork, conversation, at, new)
        self._changed()
        return recorded

    async def bring_in(
        self, conversation: str, facts: Sequence[tuple[float, Fact]], meter: str = ""
    ) -> Sequence[Recorded]:
        """Append facts of another program's history, each with its own time; all of them or none. `meter`: for lists."""
        recorded = await self._thread.run(self._file.bring_in, conversation, facts, meter)
        self._changed()
        return recorded

    async def brought_in(self) -> Sequence[Recorded]:
        """What was brought in from elsewhere: every fact that tells of it, the oldest first."""
        return await self._thread.run(self._file.brought_in)

    async def with_open_turns(self) -> Sequence[str]:
        """Conversations that may be in the middle of a turn."""
        return await self._thread.run(self._file.with_open_turns)

    async def conversations(self) -> Sequence[Row]:
        """All of them, the one changed last first."""
        return await self._thread.run(self._file.conversations)

    async def conversation(self, conversation: str) -> Row:
        return await self._thread.run(self._file.conversation, conversation)

    async def set_meter(self, conversation: str, meter: str) -> None:
        """Keep a derived text beside the conversation, for lists."""
        await self._thread.run(self._file.set_meter, conversation, meter)

    async def damage(self) -> Sequence[str]:
        """Check every fact; each defect in a sentence."""
        found = await self._thread.run(lambda: tuple(self._file.damage()))
        if found:
            self._damaged()
        return found


class Far(Protocol):
    """Where content is that is not here: a store other machines share."""

    def wake(self) -> None:
        """Something is new here."""
        ...

    async def acknowledged(self) -> None:
        """Returns when a put counts as done."""
        ...

    async def bring(self, digests: Collection[Digest]) -> frozenset[Digest]:
        """Put those of these that it has into the cache here."""
        ...


class Cache:
    """ports.Cache on the cache folder. Puts that come together share one sync.

    `changed` is called, on the event loop, when it takes more or less room than before. What is not here, or is damaged, is asked
    of `far` where there is one.
    """

    def __init__(self, folder: CacheFolder, thread: StoreThread, index: Index) -> None:
        self._folder = folder
        self._thread = thread
        self._index = index
        self.changed: Callable[[], object] = lambda: None
        self.far: Far | None = None
        self._waiting: list[tuple[Staged, Future[Stored]]] = []
        self._held = 0  # bytes of what waits

    async def put(self, content: bytes | AsyncIterable[bytes], about: About) -> Stored:
        if isinstance(content, bytes):
            stored = await asyncio.wrap_future(self._submit(content, about))
        else:
            stored = await self._stream(content, about)
        await self._grown()
        return replace(stored, media_type=about.media_type)

    async def _grown(self) -> None:
        self._index.follow()
        self.changed()
        if self.far is not None:
            self.far.wake()
            await self.far.acknowledged()

    async def put_many(self, contents: Sequence[tuple[bytes, About]]) -> Sequence[Stored]:
        """Several at once, in one synced batch. What the user wanted to be forgotten is not stored again."""
        if not contents:
            return ()
        stored = await self._thread.run(self._put_many, contents)
        await self._grown()
        return stored

    def _put_many(self, contents: Sequence[tuple[bytes, About]]) -> list[Stored]:
        found: list[Stored] = []
        staged: list[Staged] = []
        little = sum(len(content) for content, _ in contents) <= LITTLE
        try:
            for content, about in contents:
                digest = Digest.of(content)
                if self._folder.forgotten(digest):
                    found.append(Stored(digest, len(content), 0, about.media_type))
                    continue
                staged.append(self._folder.stage(content, about, thorough=little and about.tool == CHECKPOINT))
                found.append(staged[-1].record.stored)
        except BaseException:
            for one in staged:
                self._folder.unstage(one)
            raise
        self._folder.commit(staged)
        return found

    def _submit(self, content: bytes, about: About) -> Future[Stored]:
        outcome: Future[Stored] = Future()
        self._thread.submit(self._stage, content, about, outcome)
        return outcome

    def _stage(self, content: bytes, about: About, outcome: Future[Stored]) -> None:
        """Make it ready; the commit stands behind what is queued by now, and so takes all of that along."""
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            self._waiting.append((self._folder.stage(content, about), outcome))
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits, whatever it is
            outcome.set_exception(error)
            return
        self._held += len(content)
        if self._held > _SLICE:
            self._commit()
        elif len(self._waiting) == 1:
            self._commit_soon()

    def _commit_soon(self) -> None:
        try:
            self._thread.submit(self._commit)
        except StoreFailed:  # closing: nothing can be queued any more
            self._commit()

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._held = 0
        if not waiting:
            return
        try:
            self._folder.commit([staged for staged, _ in waiting])
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits, whatever it is
            for _, outcome in waiting:
                outcome.set_exception(error)
        else:
            for staged, outcome in waiting:
                outcome.set_result(staged.record.stored)

    async def _stream(self, content: AsyncIterable[bytes], about: About) -> Stored:
        incoming = await self._thread.run(self._folder.begin, about)
        try:
            async for piece in content:
                for start in range(0, len(piece), CHUNK):
                    await self._thread.run(incoming.write, piece[start : start + CHUNK])
            outcome: Future[Stored] = Future()
            self._thread.submit(self._finish, incoming, outcome)
            return await asyncio.wrap_future(outcome)
        except BaseException:
            with contextlib.suppress(StoreFailed):  # closed meanwhile: swept when the workspace opens next
                self._thread.submit(incoming.abandon)
            raise

    def _finish(self, incoming: Incoming, outcome: Future[Stored]) -> None:
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            self._waiting.append((incoming.finish(), outcome))
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits, whatever it is
            outcome.set_exception(error)
        self._commit()

    async def get(self, digest: Digest) -> bytes:
        try:
            return await self._get(digest)
        except (NotThere, CacheCorrupt):
            if not await self._brought(digest):
                raise
        return await self._get(digest)

    async def _get(self, digest: Digest) -> bytes:
        record = await self._thread.run(self._folder.record, digest)
        if record.count == 1:
            return await self._thread.run(self._folder.get, digest)
        content = bytearray()
        async for chunk in self._chunks(record):
            content += chunk
        return bytes(content)

    async def _brought(self, digest: Digest) -> bool:
        """Whether it is here now, from a store that other machines share. One that cannot be asked is no failure of this machine's."""
        if self.far is None or self._folder.forgotten(digest):
            return False
        try:
            if not await self.far.bring([digest]):
                return False
        except CacheCorrupt:
            raise
        except StoreFailed as error:
            raise NotThere(
                f"The entry {digest} is not on this computer, and it is not available from the shared store right now.",
                remedy="Try again later.",
            ) from error
        self._index.follow()
        return True

    async def _record(self, digest: Digest) -> Record:
        try:
            return await self._thread.run(self._folder.record, digest)
        except (NotThere, CacheCorrupt):
            if not await self._brought(digest):
                raise
        return await self._thread.run(self._folder.record, digest)

    async def stream(self, digest: Digest) -> AsyncIterator[bytes]:
        """The content chunk by chunk, each checked; an entry of any size takes a megabyte or two of memory."""
        async for chunk in self._chunks(await self._record(digest)):
            yield chunk

    async def _chunks(self, record: Record) -> AsyncIterator[bytes]:
        for chunk in range(record.count):
            yield await self._thread.run(self._folder.chunk, record, chunk)

    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        try:
            return await self._thread.run(self._folder.read, digest, start, length)
        except (NotThere, CacheCorrupt):
            if not await self._brought(digest):
                raise
        return await self._thread.run(self._folder.read, digest, start, length)

    async def about(self, digest: Digest) -> Entry:
        return (await self._record(digest)).entry

    async def lacking(self, digests: Collection[Digest]) -> frozenset[Digest]:
        return await self._thread.run(self._folder.lacking, digests)

    async def contents(self, digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        found = await self._here(digests)
        missing = [digest for digest in digests if digest not in found]
        return found | await self._here(await self._all_brought(missing))

    async def ahead(self, digests: Collection[Digest]) -> None:
        """Have these here before anybody asks for them, as far as a store delivers them."""
        await self._all_brought(await self.lacking(digests))

    async def _all_brought(self, digests: Collection[Digest]) -> frozenset[Digest]:
        if self.far is None or not digests:
            return frozenset()
        try:
            brought = await self.far.bring(digests)
        except StoreFailed:  # away: what is here is what there is
            return frozenset()
        self._index.follow()
        return brought

    async def _here(self, digests: Collection[Digest]) -> dict[Digest, bytes]:
        found: dict[Digest, bytes] = {}
        left = list(digests)
        while left:
            read, left = await self._thread.run(self._some, left)
            found |= read
        return found

    def _some(self, digests: list[Digest]) -> tuple[dict[Digest, bytes], list[Digest]]:
        """As many as take no long time together, and which are left."""
        found: dict[Digest, bytes] = {}
        for number, digest in enumerate(digests, 1):
            with contextlib.suppress(NotThere, StoreFailed):
                found[digest] = self._folder.get(digest)
            if sum(map(len, found.values())) > _SLICE:
                return found, digests[number:]
        return found, []

    async def resolve(self, prefix: str) -> Digest:
        try:
            return await self._thread.run(self._folder.resolve, prefix)
        except Ambiguous:
            raise
        except NotThere:
            found = await self._index.named(prefix) if self.far is not None else ()
            if len(found) != 1 or not await self._brought(found[0]):
                raise
            return found[0]

    async def pin(self, digest: Digest, *, pinned: bool = True) -> None:
        """A pinned entry is never collected."""
        await self._thread.run(self._folder.pin, digest, pinned=pinned)
        await self._index.reread([digest])

    async def verify(self, report: Callable[[Verified], None] = lambda _: None) -> Verified:
        """Read every byte and compare it with its hash; name what is damaged, and what should be there and is not."""
        await self._index.caught_up()
        check = Check(self._folder)
        for going_on in (check.relink, lambda: None):
            while await self._thread.run(check.step):
                report(check.result())
            await self._thread.run(going_on)
        async for digests in self._index.expected():
            await self._thread.run(check.expect, digests)
        return check.result()

    async def verify_entry(self, digest: Digest) -> None:
        """The same for one entry: CacheCorrupt where it is damaged."""
        async for _ in self.stream(digest):
            pass

    async def collect(self, to: int) -> Collected:
        """Remove contents until the cache takes no more than `to` bytes: what no fact uses and nobody put by hand or pinned, the
        oldest first. What they were stays known.
        """
        await self._index.caught_up()
        enough = (await self._index.stats()).kept - to
        if enough <= 0:
            return Collected(0, 0)
        candidates = await self._index.unused()
        gone, freed = await self._thread.run(maintenance.collect, self._folder, candidates, enough)
        await self._index.reread(gone)
        await self._thread.run(self._folder.compact)
        self.changed()
        return Collected(len(gone), freed)


def anybody(_conversation: str) -> None:
    """No other machine has it."""
