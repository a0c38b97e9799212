"""The engine's ports on the stores: coroutines whose work is done on the workspace's threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Fact, Recorded, Stored
from helix_desktop.engine.ports import About, Entry, Hit
from helix_desktop.errors import CacheCorrupt, HelixError, JournalCorrupt, StoreFailed
from helix_desktop.store import care, opening, search
from helix_desktop.store.cache import CacheFolder, Incoming, Staged
from helix_desktop.store.care import Check, Collected, Verified
from helix_desktop.store.catalogue import EVERYTHING, NEAR, Catalogue, Filter, Order, Row, Sort, Stats, Use
from helix_desktop.store.conversations import Row as ConversationRow
from helix_desktop.store.index import Progress, reading
from helix_desktop.store.journal import JournalFile, Line
from helix_desktop.store.records import CHUNK, Record
from helix_desktop.store.thread import StoreThread

_SLICE = 1 << 20  # bytes the index takes at once from the thread that also has to write


class Journal:
    """ports.Journal on the journal file.

    `changed` is called, on the event loop, after facts were written; `damaged` when a fact was met that is.
    """

    def __init__(
        self, file: JournalFile, thread: StoreThread, changed: Callable[[], None], damaged: Callable[[], None]
    ) -> None:
        self._file = file
        self._thread = thread
        self._changed = changed
        self._damaged = damaged

    async def append(self, conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
        """On the disk when this returns. Cancelling the wait does not take back what was begun."""
        recorded = await self._thread.run(self._file.append, conversation, facts)
        self._changed()
        return recorded

    async def read(self, conversation: str, after: int = 0, limit: int = 0) -> Sequence[Recorded]:
        try:
            return await self._thread.run(self._file.read, conversation, after, limit)
        except JournalCorrupt:
            self._damaged()
            raise

    async def fork(self, conversation: str, at: int, new: str) -> Sequence[Recorded]:
        recorded = await self._thread.run(self._file.fork, conversation, at, new)
        self._changed()
        return recorded

    async def conversations(self) -> Sequence[ConversationRow]:
        """All of them, the one changed last first."""
        return await self._thread.run(self._file.conversations)

    async def conversation(self, conversation: str) -> ConversationRow:
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


class Cache:
    """ports.Cache on the cache folder. Puts that come together share one sync."""

    def __init__(self, folder: CacheFolder, thread: StoreThread, index: Index) -> None:
        self._folder = folder
        self._thread = thread
        self._index = index
        self._changed = index.follow
        self._waiting: list[tuple[Staged, Future[Stored]]] = []
        self._held = 0  # bytes of what waits

    async def put(self, content: bytes | AsyncIterable[bytes], about: About) -> Stored:
        if isinstance(content, bytes):
            stored = await asyncio.wrap_future(self._submit(content, about))
        else:
            stored = await self._stream(content, about)
        self._changed()
        return stored

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
        record = await self._thread.run(self._folder.record, digest)
        if record.count == 1:
            return await self._thread.run(self._folder.get, digest)
        content = bytearray()
        async for chunk in self.stream(digest):
            content += chunk
        return bytes(content)

    async def stream(self, digest: Digest) -> AsyncIterator[bytes]:
        """The content chunk by chunk, each checked; an entry of any size takes a megabyte or two of memory."""
        record = await self._thread.run(self._folder.record, digest)
        for chunk in range(record.count):
            yield await self._thread.run(self._folder.chunk, record, chunk)

    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        return await self._thread.run(self._folder.read, digest, start, length)

    async def about(self, digest: Digest) -> Entry:
        return (await self._thread.run(self._folder.record, digest)).entry

    async def resolve(self, prefix: str) -> Digest:
        return await self._thread.run(self._folder.resolve, prefix)

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

    async def verify_entry(self, digest: Digest) -> Verified:
        """The same for one entry."""
        try:
            size = 0
            async for chunk in self.stream(digest):
                size += len(chunk)
        except CacheCorrupt as error:
            return Verified(0, 0, ((digest, error.what),))
        return Verified(1, size, ())

    async def collect(self, to: int, *, chosen: Sequence[Digest] = ()) -> Collected:
        """Remove contents until the cache takes no more than `to` bytes; what they were stays known.

        First what no fact uses and nobody put by hand or pinned, the oldest first; then `chosen`, in that order: with the
        user's consent, and without what is pinned.
        """
        await self._index.caught_up()
        enough = (await self._index.stats()).kept - to
        if enough <= 0:
            return Collected(0, 0)
        candidates = [*await self._index.unused(), *chosen]
        gone, freed = await self._thread.run(care.collect, self._folder, candidates, enough)
        await self._index.reread(gone)
        await self._thread.run(self._folder.level.compact)
        return Collected(len(gone), freed)


class StoreFeed:
    """What the index takes from the stores; called from the index's threads, answered by the stores' thread."""

    def __init__(self, cache: CacheFolder, journal: JournalFile, thread: StoreThread) -> None:
        self._cache = cache
        self._journal = journal
        self._thread = thread

    def ends(self) -> tuple[int, int]:
        return self._thread.call(lambda: (self._cache.known_last(), self._journal.last()))

    def records(self, after: int, limit: int) -> Sequence[Record]:
        return self._thread.call(self._cache.records, after, limit)

    def described(self, digest: Digest) -> Record:
        return self._thread.call(self._cache.record, digest)

    def beginning(self, record: Record, limit: int) -> bytes:
        return self._thread.call(self._cache.read, record.digest, 0, limit)

    def beginnings(self, records: Sequence[Record], limit: int) -> Sequence[tuple[Record, bytes | None]]:
        return self._thread.call(self._beginnings, records, limit)

    def _beginnings(self, records: Sequence[Record], limit: int) -> Sequence[tuple[Record, bytes | None]]:
        found: list[tuple[Record, bytes | None]] = []
        room = _SLICE
        for record in records:
            content = self._beginning(record, limit)
            found.append((record, content))
            room -= len(content or b"")
            if room <= 0:
                break
        return found

    def _beginning(self, record: Record, limit: int) -> bytes | None:
        try:
            return self._cache.read(record.digest, 0, limit)
        except HelixError:
            return None  # damaged or gone: whoever reads it is told

    def lines(self, after: int, limit: int) -> Sequence[Line]:
        return self._thread.call(self._journal.since, after, limit)

    def line(self, conversation: str, seq: int) -> Line | None:
        found = self._thread.call(self._journal.lines, conversation, seq - 1, 1)
        return found[0] if found and found[0].seq == seq else None

    def pinned(self) -> frozenset[Digest]:
        return self._thread.call(self._cache.pinned)

    def numbered(self, digest: Digest) -> Record | None:
        return self._thread.call(self._numbered, digest)

    def _numbered(self, digest: Digest) -> Record | None:
        try:
            return self._cache.described(digest)
        except HelixError:
            return None


class Index:
    """ports.Index, and the catalogue of entries. It follows the stores by itself, a little behind.

    Two threads: one writes and one answers, so a question waits neither for a commit nor for the index being made.
    """

    def __init__(self, folder: Path, feed: StoreFeed, count: Callable[[str], int]) -> None:
        self._folder = folder
        self._feed = feed
        self._count = count
        self._writer = StoreThread("index")
        self._reader = StoreThread("answers")
        self._ahead = StoreThread("ahead")
        self._following: Future[None] | None = None
        self._prepared: Future[None] | None = None
        self._closing = False
        self.progress = Progress(0, 0, 0, 0, 0)

    @classmethod
    async def open(cls, folder: Path, feed: StoreFeed, count: Callable[[str], int]) -> Index:
        made = cls(folder, feed, count)
        try:
            await made._open()
        except BaseException:
            await made._writer.aclose()
            await made._reader.aclose()
            await made._ahead.aclose()
            raise
        return made

    async def _open(self) -> None:
        self._file = await self._writer.run(opening.open_index, self._folder, self._feed, self._count)
        path = self._folder / opening.INDEX
        self._catalogue = Catalogue(await self._reader.run(reading, path))
        self._preparing = Catalogue(await self._ahead.run(reading, path), self._catalogue.anchors)

    async def _close(self) -> None:
        self._closing = True
        await self._writer.run(self._file.close)
        await self._reader.run(self._catalogue.connection.close)
        await self._ahead.run(self._preparing.connection.close)

    async def renew(self, between: Callable[[], Awaitable[None]]) -> None:
        """Throw the index away, do what is to be done meanwhile, and begin it anew."""
        await self._close()
        try:
            await between()
        finally:
            await self._writer.run(opening.drop_index, self._folder)
            await self._open()
            self._closing = False
            self.follow()

    def follow(self) -> None:
        """Catch up in the background; harmless while it does so already."""
        if not self._closing and (self._following is None or self._following.done()):
            self._following = self._writer.submit(self._step)

    def _step(self) -> None:
        try:
            self.progress = self._file.step()
        except HelixError:
            return  # the stores are closing or in trouble; the next change tries again
        if not self.progress.done and not self._closing:
            self._following = self._writer.submit(self._step)

    async def caught_up(self, report: Callable[[Progress], None] = lambda _: None) -> Progress:
        """Wait until everything is in the index, reporting after each slice."""
        while True:
            self.progress = await self._writer.run(self._file.step)
            report(self.progress)
            if self.progress.done:
                return self.progress

    async def search(self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False) -> Sequence[Hit]:
        return await self._reader.run(
            lambda: search.search(
                self._catalogue.connection, self._feed, query, tool=tool, limit=limit, entries_only=entries_only
            )
        )

    async def entries(
        self,
        chosen: Filter = EVERYTHING,
        *,
        sort: Sort = Sort.TIME,
        descending: bool = True,
        offset: int = 0,
        limit: int = 200,
    ) -> Sequence[Row]:
        """A page of the catalogue. Behind it, what a jump far down will need is made ready."""
        rows = await self._reader.run(
            lambda: self._catalogue.entries(chosen, sort=sort, descending=descending, offset=offset, limit=limit)
        )
        if not self._closing and (self._prepared is None or self._prepared.done()):
            self._prepared = self._ahead.submit(self._prepare, (chosen, sort, descending))
        return rows

    def _prepare(self, order: Order) -> None:
        if self._preparing.count(order[0]) > NEAR:
            self._preparing.prepare(order)

    async def count(self, chosen: Filter = EVERYTHING) -> int:
        return await self._reader.run(self._catalogue.count, chosen)

    async def row(self, digest: Digest) -> Row | None:
        return await self._reader.run(self._catalogue.row, digest)

    async def tools(self) -> Sequence[tuple[str, int]]:
        return await self._reader.run(self._catalogue.tools)

    async def uses(self, digest: Digest) -> Sequence[Use]:
        return await self._reader.run(self._catalogue.uses, digest)

    async def stats(self) -> Stats:
        return await self._reader.run(self._catalogue.stats)

    async def reread(self, digests: Sequence[Digest]) -> None:
        """Take over what changed of entries that were known before: pins, removals."""
        for start in range(0, len(digests), 500):
            await self._writer.run(self._file.reread, digests[start : start + 500])

    async def unused(self) -> Sequence[Digest]:
        """What collection takes first."""
        return await self._reader.run(self._catalogue.unused)

    async def expected(self) -> AsyncIterator[Sequence[Digest]]:
        """Every entry the index or a fact knows and that was not removed."""
        after = b""
        while found := await self._reader.run(self._catalogue.expected, after, 1000):
            after = found[-1].raw
            yield found

    async def aclose(self) -> None:
        await self._close()
        await self._writer.aclose()
        await self._reader.aclose()
        await self._ahead.aclose()
