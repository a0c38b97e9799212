"""Makes the blocking calls of a row store on threads, which workspaces on one server share.

Calls are split so that few exceed `MOST_BYTES_IN_CALL`. Results of the parts are joined.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar

from helix_desktop import concurrency
from helix_desktop.errors import SharedStoreUnreachable
from helix_desktop.store.shared.row_store import (
    MOST_BYTES_IN_CALL,
    MOST_ROWS_IN_CALL,
    RowStore,
    RowUsage,
    Tombstone,
)

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 8  # Each server gets this many threads, however many workspaces use it.
_threads: "dict[str, _ServerThreads]" = {}


class _ServerThreads:
    """The threads for one server, and the number of workspaces that use them."""

    def __init__(self) -> None:
        self.pool = concurrency.create_thread_pool("shared", threads=THREADS)
        self.users = 0


class AsyncRowStore:
    """A row store with coroutines. Calls that have begun are finished, even if nobody
    waits any more.
    """

    def __init__(self, engine: RowStore) -> None:
        self.engine = engine
        self._is_closed = False
        self._shared = _threads.setdefault(engine.server, _ServerThreads())
        self._shared.users += 1

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run any blocking call on one of the store's threads."""
        if self._is_closed:
            raise SharedStoreUnreachable(
                "The shared store is disconnected.", remedy="Open the workspace again."
            )
        return await asyncio.wrap_future(self._shared.pool.submit(work, *args, **kwargs))

    async def store_in_batches(self, rows: Mapping[bytes, bytes]) -> None:
        last_batch = await self.store_all_but_last_batch(rows)
        if last_batch:
            await self.run_in_thread(self.engine.store_rows, last_batch)

    async def store_all_but_last_batch(self, rows: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        """Store rows, and return the last ones, which are few enough to be stored in one call
        with something else.
        """
        waiting_batch: Mapping[bytes, bytes] = {}
        for batch in _batches_of_rows(rows):
            if waiting_batch:
                await self.run_in_thread(self.engine.store_rows, waiting_batch)
            waiting_batch = batch
        return waiting_batch

    async def fetch_in_batches(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        fetched_rows: dict[bytes, bytes] = {}
        for batch in _batches_of_names(names):
            fetched_rows |= await self.run_in_thread(self.engine.fetch_rows, batch)
        return fetched_rows

    async def find_missing_in_batches(self, names: Collection[bytes]) -> frozenset[bytes]:
        missing: set[bytes] = set()
        for batch in _batches_of_names(names):
            missing |= await self.run_in_thread(self.engine.find_missing_rows, batch)
        return frozenset(missing)

    async def remove_in_batches(self, names: Collection[bytes]) -> None:
        for batch in _batches_of_names(names):
            await self.run_in_thread(self.engine.remove_rows, batch)

    async def forget_in_batches(self, tombs: Sequence[Tombstone]) -> None:
        for start in range(0, len(tombs), MOST_ROWS_IN_CALL):
            await self.run_in_thread(
                self.engine.forget_rows, tombs[start : start + MOST_ROWS_IN_CALL]
            )

    async def fetch_usage(self) -> RowUsage:
        return await self.run_in_thread(self.engine.fetch_row_usage)

    async def aclose(self) -> None:
        await self.run_in_thread(self.engine.close)
        self._is_closed = True
        self._shared.users -= 1
        if not self._shared.users:
            _threads.pop(self.engine.server, None)
            self._shared.pool.shutdown(wait=False)


def _batches_of_rows(rows: Mapping[bytes, bytes]) -> Iterator[Mapping[bytes, bytes]]:
    """Yield the rows in groups that are small enough for one call each. A row that is larger
    goes alone.
    """
    batch: dict[bytes, bytes] = {}
    size = 0
    for name, row in rows.items():
        if batch and (len(batch) == MOST_ROWS_IN_CALL or size + len(row) > MOST_BYTES_IN_CALL):
            yield batch
            batch = {}
            size = 0
        batch[name] = row
        size += len(row)
    if batch:
        yield batch


def _batches_of_names(names: Collection[bytes]) -> Iterator[list[bytes]]:
    all_names = list(names)
    for start in range(0, len(all_names), MOST_ROWS_IN_CALL):
        yield all_names[start : start + MOST_ROWS_IN_CALL]
