"""The index as the program sees it: it follows the stores by itself, a little behind, and answers on a thread of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

from helix_desktop.engine.catalogue import EVERYTHING, Filter, Row, Sort, Stats, Use
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import Hit
from helix_desktop.errors import HelixError, StoreBusy
from helix_desktop.store import database, opening, search
from helix_desktop.store.cache import prefix_bounds
from helix_desktop.store.catalogue import NEAR, Catalogue, Order
from helix_desktop.store.entries import Entries
from helix_desktop.store.index import IndexDamaged, Progress, reading
from helix_desktop.store.journal import JournalFile, Line
from helix_desktop.store.records import Record
from helix_desktop.store.thread import StoreThread

T = TypeVar("T")
_SLICE = 1 << 20  # bytes taken at once from the thread that also has to write


class StoreFeed:
    """What the index takes from the stores; called from the index's threads, answered by the stores' thread."""

    def __init__(self, cache: Entries, journal: JournalFile, thread: StoreThread) -> None:
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
        self._damaged = self._removing = self._rebuilding = False
        self.progress = Progress(0, 0, 0, 0, 0)

    @classmethod
    async def open(cls, folder: Path, feed: StoreFeed, count: Callable[[str], int]) -> Index:
        made = cls(folder, feed, count)
        try:
            await made._open()
        except BaseException:
            await made.aclose()
            raise
        return made

    async def _open(self) -> None:
        self._file = await self._writer.open(opening.open_index, self._folder, self._feed, self._count)
        path = self._folder / opening.INDEX
        self._catalogue = Catalogue(await self._reader.open(reading, path))
        self._preparing = Catalogue(await self._ahead.open(reading, path), self._catalogue.anchors)

    async def _close(self) -> None:
        self._closing = True
        for thread in (self._writer, self._reader, self._ahead):
            await thread.close()

    async def renew(self, between: Callable[[], Awaitable[None]]) -> None:
        """Throw the index away, remove meanwhile what is to be in no file, and begin it anew. What is asked in between
        is refused.
        """
        self._removing = True
        try:
            await self._renew(between)
        finally:
            self._removing = False

    async def _renew(self, between: Callable[[], Awaitable[None]]) -> None:
        await self._close()
        await self._writer.run(opening.drop_index, self._folder)
        try:
            await between()
        finally:
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
        except IndexDamaged:
            self._damaged = True
            return
        except HelixError:
            return  # the stores are closing or in trouble; the next change tries again
        if not self.progress.done and not self._closing:
            self._following = self._writer.submit(self._step)

    async def caught_up(self, report: Callable[[Progress], None] = lambda _: None, *, but: int = 0) -> Progress:
        """Wait until everything is in the index, or all but so many, reporting after each slice. A damaged one is made anew first."""
        self._refuse_while_renewed()
        for _ in range(2):
            try:
                return await self._catch_up(report, but)
            except IndexDamaged:
                await self._make_anew()
        return await self._catch_up(report, but)

    async def _catch_up(self, report: Callable[[Progress], None], but: int) -> Progress:
        while True:
            self.progress = await self._writer.run(self._file.step)
            report(self.progress)
            if self.progress.done or self.progress.missing < but:
                return self.progress

    async def begin_anew(self) -> None:
        """Facts were moved to another conversation: what it says of them is made again, in the background."""
        self._rebuilding = True
        try:
            await self._renew(_nothing)
        finally:
            self._rebuilding = False

    async def _make_anew(self) -> None:
        self._damaged = False
        await self._renew(_nothing)

    async def _ask(self, question: Callable[[Catalogue], T], *, slow: bool = False) -> T:
        """Answer it, a slow one where it holds up no page. A damaged index is made anew, and asked as far as it is then."""
        self._refuse_while_renewed()
        if self._damaged:
            await self._make_anew()
        thread = self._ahead if slow else self._reader
        for _ in range(2):  # the second time it may meet the new one while its tables are made
            try:
                return await thread.run(self._answer, question, slow=slow)
            except IndexDamaged:
                await self._make_anew()
        return await thread.run(self._answer, question, slow=slow)

    def _refuse_while_renewed(self) -> None:
        if self._removing:
            raise StoreBusy(
                "Content is being permanently removed from this workspace.", remedy="Try again when that is done."
            )
        if self._rebuilding:
            raise StoreBusy(
                "The search index of this workspace is being rebuilt.", remedy="Try again when that is done."
            )

    def _answer(self, question: Callable[[Catalogue], T], *, slow: bool = False) -> T:
        with database.Reading(IndexDamaged, "index"):
            return question(self._preparing if slow else self._catalogue)

    async def search(self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False) -> Sequence[Hit]:
        return await self._ask(
            lambda asked: search.search(
                asked.connection, self._feed, query, tool=tool, limit=limit, entries_only=entries_only
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
        rows = await self._ask(
            lambda asked: asked.entries(chosen, sort=sort, descending=descending, offset=offset, limit=limit)
        )
        if not self._closing and (self._prepared is None or self._prepared.done()):
            self._prepared = self._ahead.submit(self._prepare, (chosen, sort, descending))
        return rows

    def _prepare(self, order: Order) -> None:
        try:
            with database.Reading(IndexDamaged, "index"):
                if self._preparing.count(order[0]) > NEAR:
                    self._preparing.prepare(order)
        except HelixError:
            return  # whoever asks next is told

    async def count(self, chosen: Filter = EVERYTHING) -> int:
        return await self._ask(lambda asked: asked.count(chosen))

    async def row(self, digest: Digest) -> Row | None:
        return await self._ask(lambda asked: asked.row(digest))

    async def tools(self) -> Sequence[tuple[str, int]]:
        return await self._ask(Catalogue.tools)

    async def uses(self, digest: Digest) -> Sequence[Use]:
        return await self._ask(lambda asked: asked.uses(digest))

    async def stats(self) -> Stats:
        return await self._ask(Catalogue.stats, slow=True)

    async def kept(self) -> int:
        """The bytes all entries take on the disk, those just put among them; as far as it is known while the index is made."""
        self._refuse_while_renewed()
        try:
            await self._writer.run(self._file.know_rows)
        except IndexDamaged:
            self._damaged = True
        return await self._ask(Catalogue.kept, slow=True)

    async def checkpoints(self) -> tuple[int, int]:
        """How many contents checkpoints hold, and the bytes they take on the disk."""
        await self.kept()  # which takes in those just put
        return await self._ask(Catalogue.checkpoints)

    async def recount_checkpoints(self) -> None:
        """Count anew what they hold: what is removed or forgotten no longer is among it."""
        await self._writer.through(self._file.recount_checkpoints())

    async def reread(self, digests: Sequence[Digest]) -> None:
        """Take over what changed of entries that were known before: pins, removals."""
        for start in range(0, len(digests), 500):
            await self._writer.run(self._file.reread, digests[start : start + 500])

    async def unused(self) -> Sequence[Digest]:
        """What collection takes first."""
        return await self._ask(Catalogue.unused)

    async def named(self, prefix: str) -> Sequence[Digest]:
        """Entries a fact leads to, here or not, whose hash begins so; two at the most."""
        if len(prefix) == 64:
            return (Digest.parse(prefix),)
        low, high = (Digest(bound) for bound in prefix_bounds(prefix))
        found = await self._ask(partial(Catalogue.led_to, low=low.raw, high=high.raw, limit=2))
        return tuple(one for one in found if one.hex.startswith(prefix.lower()))

    async def used(self) -> frozenset[Digest]:
        """Entries a fact leads to, here or not, and what was put by hand or pinned."""
        facts = await self._ask(partial(Catalogue.led_to, low=b"", high=b"\xff" * 33, limit=-1), slow=True)
        unused = frozenset(await self.unused())
        return frozenset(facts).union([one async for some in self.expected() for one in some if one not in unused])

    async def expected(self) -> AsyncIterator[Sequence[Digest]]:
        """Every entry the index or a fact knows and that was not removed."""
        after = b""
        while True:
            self._refuse_while_renewed()
            try:
                found = await self._reader.run(self._answer, partial(Catalogue.expected, after=after, limit=1000))
            except IndexDamaged:
                await self._make_anew()
                await self.caught_up()
                continue
            if not found:
                return
            after = found[-1].raw
            yield found

    async def aclose(self) -> None:
        self._closing = True
        for thread in (self._writer, self._reader, self._ahead):
            await thread.aclose()


async def _nothing() -> None: ...
