"""The index as the program uses it: it follows the stores, a little behind, and answers
on its own thread.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from helix_desktop.engine import cache_entry_rows
from helix_desktop.engine.ports import SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, StoreBusy
from helix_desktop.store import full_text_search, sqlite_database, store_opening
from helix_desktop.store.cache_entry_queries import CacheEntryQueries
from helix_desktop.store.cache_reader import prefix_bounds
from helix_desktop.store.index_file import (
    WORDS,
    IndexDamaged,
    IndexFile,
    IndexProgress,
    StoreFeed,
    connect_for_queries,
)
from helix_desktop.store.left_entries import LeftParts
from helix_desktop.store.store_thread import StoreThread

P = ParamSpec("P")
T = TypeVar("T")
# New content is indexed after this delay, or as soon as someone searches.
GATHER_SECONDS = 2.0
GATHERED_WAIT_SECONDS = 2.0  # Seconds. A search waits at most this long for new content.


class WorkspaceIndex:
    """Implements ports.Index and the catalogue of entries. Follows the stores, a little behind.

    One thread writes and one answers, so a query waits neither for a commit nor for a rebuild.
    """

    def __init__(self, folder: Path, feed: StoreFeed, count: Callable[[str], int]) -> None:
        """`feed`: reads what is to be indexed from the stores. `count`: counts a text's tokens."""
        self._folder = folder
        self._feed = feed
        self._count = count
        self._left_parts = LeftParts(feed)
        self._writer = StoreThread("index")
        self._reader = StoreThread("answers")
        self._ahead = StoreThread(
            "ahead"
        )  # For slow queries, and for those that may be asked next.
        self._following: Future[None] | None = None  # The latest run that indexes what is new.
        self._prepared: Future[None] | None = None  # The latest query that may be asked next.
        self._closing = False  # While the file is closed, or is about to be.
        self._is_followed = False  # Whether a run will index what is stored now.
        self._one_rebuild = asyncio.Lock()
        self._is_awaited = threading.Event()  # Set while somebody waits for the writing thread.
        self._damaged = False
        # For these two, queries are refused with a sentence that says why.
        self._removing = False
        self._rebuilding = False
        self.progress = IndexProgress(0, 0, 0, 0, 0)

    @classmethod
    async def open(
        cls, folder: Path, feed: StoreFeed, count: Callable[[str], int]
    ) -> "WorkspaceIndex":
        """Open the index of a workspace's folder. It is rebuilt if it is missing or damaged."""
        index = cls(folder, feed, count)
        try:
            await index._open_index_file()
        except BaseException:
            await index.aclose()
            raise
        return index

    async def _open_index_file(self) -> None:
        """Open the file for writing, and twice for reading. Both readers share what they know
        of where distant pages begin.
        """
        self._file = await self._writer.open_on_thread(
            store_opening.open_or_rebuild_index, self._folder, self._feed, self._count
        )
        path = self._folder / store_opening.INDEX
        self._catalogue = CacheEntryQueries(
            await self._reader.open_on_thread(connect_for_queries, path)
        )
        self._preparing = CacheEntryQueries(
            await self._ahead.open_on_thread(connect_for_queries, path), self._catalogue.anchors
        )

    async def rebuild_after(self, removal: Callable[[], Awaitable[None]]) -> None:
        """Delete the index, run `removal`, and start a new index. Meanwhile, queries
        are refused.
        """
        self._removing = True
        try:
            await self._rebuild_after(removal)
        finally:
            self._removing = False

    async def _rebuild_after(self, removal: Callable[[], Awaitable[None]] | None = None) -> None:
        """Delete the index, do the removal while there is none, and make it anew. A new file is
        opened even if the removal fails.
        """
        self._damaged = False
        async with self._one_rebuild:
            # Facts may have moved to other conversations.
            self._left_parts = LeftParts(self._feed)
            self._closing = True
            self._is_awaited.set()
            for thread in (self._writer, self._reader, self._ahead):
                await thread.close()
            await self._writer.run_work(store_opening.delete_index, self._folder)
            try:
                if removal is not None:
                    await removal()
            finally:
                await self._open_index_file()
                self._closing = False
                self.start_indexing()

    def start_indexing(self) -> None:
        """Start to catch up in the background. Does nothing if that is already going on."""
        if not self._closing and not self._is_followed:
            self._is_followed = True
            self._following = self._writer.submit_work(self._index_in_background)

    def _index_in_background(self) -> None:
        """Index one slice, and start the next one if anything is missing. If the index was
        complete, wait a little first, so that several changes are indexed together.
        """
        if self.progress.is_complete:
            self._is_awaited.wait(GATHER_SECONDS)
        self._is_awaited.clear()
        # Content stored from now on may miss the slice below, and starts another run.
        self._is_followed = False
        try:
            self.progress = self._file.index_next_slice()
        except IndexDamaged:
            self._damaged = True
            return
        except HelixError:
            return  # The stores are closing or failing. The next change leads to another attempt.
        if not self.progress.is_complete:
            self.start_indexing()

    async def wait_until_indexed(
        self, report: Callable[[IndexProgress], None] = lambda _: None, *, allowed_missing: int = 0
    ) -> IndexProgress:
        """Wait until nothing is missing, or fewer items than `allowed_missing`. Report
        each slice. First rebuild a damaged index.
        """
        self._refuse_while_rebuilding()
        for _ in range(2):
            try:
                return await self._index_until_caught_up(report, allowed_missing)
            except IndexDamaged:
                await self._rebuild_after()
        return await self._index_until_caught_up(report, allowed_missing)

    async def _index_until_caught_up(
        self, report: Callable[[IndexProgress], None], but: int
    ) -> IndexProgress:
        while True:
            self.progress = await self._run_on_writer_thread(IndexFile.index_next_slice)
            report(self.progress)
            if self.progress.is_complete or self.progress.count_missing < but:
                return self.progress

    async def _run_on_writer_thread(
        self, work: Callable[Concatenate[IndexFile, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run work on the writing thread without waiting for it to catch up. During a
        rebuild, the file is closed.
        """
        if self._closing:
            async with self._one_rebuild:
                pass
        self._is_awaited.set()
        return await self._writer.run_work(work, self._file, *args, **kwargs)

    async def rebuild_in_background(
        self, removal: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Rebuild in the background, after facts moved to another conversation or left
        this disk.
        """
        self._rebuilding = True
        try:
            await self._rebuild_after(removal)
        finally:
            self._rebuilding = False

    async def _run_query(
        self, question: Callable[[CacheEntryQueries], T], *, slow: bool = False
    ) -> T:
        """Answer a query, a slow one on a thread of its own. A damaged index is rebuilt
        and asked as far as it is.
        """
        self._refuse_while_rebuilding()
        if self._damaged:
            await self._rebuild_after()
        thread = self._reader
        if slow:
            thread = self._ahead
        for _ in range(2):  # The second attempt may meet a new index whose tables do not exist yet.
            try:
                return await thread.run_work(self._run_query_now, question, slow=slow)
            except IndexDamaged:
                await self._rebuild_after()
        return await thread.run_work(self._run_query_now, question, slow=slow)

    def _refuse_while_rebuilding(self) -> None:
        """Refuse a query that would find next to nothing, as the index is only just being made."""
        if self._removing:
            raise StoreBusy(
                "Content is being permanently removed from this workspace.",
                remedy="Try again in a few minutes.",
            )
        if self._rebuilding:
            raise StoreBusy(
                "The search index of this workspace is being rebuilt.",
                remedy="Try again in a few minutes.",
            )

    def _run_query_now(
        self, question: Callable[[CacheEntryQueries], T], *, slow: bool = False
    ) -> T:
        queries = self._catalogue
        if slow:
            queries = self._preparing
        with sqlite_database.SqliteErrors(IndexDamaged, "index"):
            return question(queries)

    async def search_index(
        self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False
    ) -> Sequence[SearchHit]:
        """Find even what was stored just now, but do not wait while the index lacks much."""
        await self._wait_for_a_little()
        return await self._run_query(
            lambda asked: full_text_search.search_full_text(
                asked.connection,
                self._feed,
                query,
                tool=tool,
                limit=limit,
                entries_only=entries_only,
            )
        )

    async def _wait_for_a_little(self) -> None:
        """Wait for what was stored just now, unless the index lacks much."""
        # The last run may have begun before what was stored just now, and so have left
        # a little to the next one.
        is_little = not self.progress.orders and self.progress.count_missing <= WORDS
        if is_little and self._following is not None and not self._following.done():
            self._is_awaited.set()
            following = asyncio.wrap_future(self._following)
            await asyncio.wait({following}, timeout=GATHERED_WAIT_SECONDS)

    async def find_left_entries(
        self, digests: Collection[Digest]
    ) -> Mapping[Digest, frozenset[str]]:
        """Return those of these entries that are only in parts of conversations that users left
        by a rewind, each with these conversations.
        """
        # An entry that was just stored again is not left any more.
        await self._wait_for_a_little()

        def find(asked: CacheEntryQueries) -> Mapping[Digest, frozenset[str]]:
            uses = {digest: asked.uses_of_entry(digest) for digest in digests}
            return self._left_parts.select_left_entries(uses)

        return await self._run_query(find, slow=True)

    async def entries_page(
        self,
        chosen: cache_entry_rows.EntryFilter = cache_entry_rows.EVERYTHING,
        *,
        sort: cache_entry_rows.EntrySort = cache_entry_rows.EntrySort.TIME,
        descending: bool = True,
        offset: int = 0,
        limit: int = 200,
    ) -> Sequence[cache_entry_rows.EntryRow]:
        """Return a page of the catalogue, and then prepare what a jump far down will need."""
        order = (chosen, sort, descending)
        rows = await self._run_query(lambda asked: asked.entries_page(order, offset, limit))
        is_preparing = self._prepared is not None and not self._prepared.done()
        if not self._closing and not is_preparing:
            # If this fails, the next query reports the error.
            prepare = partial(CacheEntryQueries.prepare_distant_pages, order=order)
            self._prepared = self._ahead.submit_work(self._run_query_now, prepare, slow=True)
        return rows

    async def count_entries(
        self, chosen: cache_entry_rows.EntryFilter = cache_entry_rows.EVERYTHING
    ) -> int:
        return await self._run_query(lambda asked: asked.count_entries(chosen))

    async def find_entry_row(self, digest: Digest) -> cache_entry_rows.EntryRow | None:
        return await self._run_query(lambda asked: asked.find_entry_row(digest))

    async def find_entry_rows(
        self, digests: Collection[Digest]
    ) -> Mapping[Digest, cache_entry_rows.EntryRow]:
        """Return the rows of those that exist, in the same order."""

        def find_all(asked: CacheEntryQueries) -> Mapping[Digest, cache_entry_rows.EntryRow]:
            rows: dict[Digest, cache_entry_rows.EntryRow] = {}
            for digest in digests:
                row = asked.find_entry_row(digest)
                if row is not None:
                    rows[digest] = row
            return rows

        return await self._run_query(find_all)

    async def count_tools(self) -> Sequence[tuple[str, int]]:
        return await self._run_query(CacheEntryQueries.count_entries_by_tool)

    async def find_entry_uses(self, digest: Digest) -> Sequence[cache_entry_rows.EntryUse]:
        return await self._run_query(lambda asked: asked.uses_of_entry(digest))

    async def compute_figures(self) -> cache_entry_rows.CacheEntryFigures:
        return await self._run_query(CacheEntryQueries.entry_figures, slow=True)

    async def measure_kept_bytes(self) -> int:
        """Return the bytes of all entries on disk, including new ones, or what is known
        during a rebuild.
        """
        self._refuse_while_rebuilding()
        try:
            await self._run_on_writer_thread(IndexFile.add_missing_rows)
        except IndexDamaged:
            self._damaged = True
        return await self._run_query(CacheEntryQueries.bytes_on_disk, slow=True)

    async def measure_checkpoint_bytes(self) -> tuple[int, int]:
        """Return how many contents checkpoints hold, and their bytes on disk."""
        await self.measure_kept_bytes()  # Indexes what was just stored, to count it.
        return await self._run_query(CacheEntryQueries.checkpoint_figures)

    async def recount_checkpoint_contents(self) -> None:
        """Count the contents of checkpoints again, without those that were removed or forgotten."""
        async with self._one_rebuild:
            self._is_awaited.set()
            await self._writer.run_slices(self._file.recount_checkpoint_contents())

    async def refresh_entry_rows(self, digests: Sequence[Digest]) -> None:
        """Update known entries that were pinned, unpinned or removed."""
        for start in range(0, len(digests), 500):
            await self._run_on_writer_thread(
                IndexFile.refresh_entries, digests[start : start + 500]
            )

    async def find_unused_entries(self) -> Sequence[Digest]:
        """Return the entries that collection takes first."""
        return await self._run_query(CacheEntryQueries.unused_entries)

    async def entries_named_by_prefix(self, prefix: str) -> Sequence[Digest]:
        """Return up to two entries, here or not, that facts refer to and whose hash
        begins like this.
        """
        if len(prefix) == 64:
            return (Digest.from_hex(prefix),)
        low, high = prefix_bounds(prefix)
        digests = await self._run_query(
            partial(CacheEntryQueries.digests_named_by_facts, low=low, high=high, limit=2)
        )
        beginning = prefix.lower()
        return tuple(digest for digest in digests if digest.hex.startswith(beginning))

    async def all_used_entries(self) -> frozenset[Digest]:
        """Return entries that a fact refers to, here or not, and those stored by hand or pinned."""
        facts = await self._run_query(
            partial(CacheEntryQueries.digests_named_by_facts, low=b"", high=b"\xff" * 33, limit=-1),
            slow=True,
        )
        unused = frozenset(await self.find_unused_entries())
        used = set(facts)
        async for expected_entries in self.stream_expected_entries():
            used.update(digest for digest in expected_entries if digest not in unused)
        return frozenset(used)

    async def stream_expected_entries(self) -> AsyncIterator[Sequence[Digest]]:
        """Yield every entry that the index or a fact knows and that was not removed."""
        after = b""
        while True:
            self._refuse_while_rebuilding()
            try:
                found = await self._reader.run_work(
                    self._run_query_now,
                    partial(CacheEntryQueries.digests_expected_here, after=after, limit=1000),
                )
            except IndexDamaged:
                await self._rebuild_after()
                await self.wait_until_indexed()
                continue
            if not found:
                return
            after = found[-1].raw
            yield found

    async def aclose(self) -> None:
        self._closing = True
        self._is_awaited.set()
        for thread in (self._writer, self._reader, self._ahead):
            await thread.aclose()
