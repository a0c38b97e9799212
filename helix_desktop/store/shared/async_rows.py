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
        for some in _batches_of_rows(rows):
            await self.run_in_thread(self.engine.store_rows, some)

    async def fetch_in_batches(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for some in _batches_of_names(names):
            found |= await self.run_in_thread(self.engine.fetch_rows, some)
        return found

    async def find_missing_in_batches(self, names: Collection[bytes]) -> frozenset[bytes]:
        return frozenset().union(
            *[
                await self.run_in_thread(self.engine.find_missing_rows, some)
                for some in _batches_of_names(names)
            ]
        )

    async def remove_in_batches(self, names: Collection[bytes]) -> None:
        for some in _batches_of_names(names):
            await self.run_in_thread(self.engine.remove_rows, some)

    async def forget_in_batches(self, tombs: Sequence[Tombstone]) -> None:
        for at in range(0, len(tombs), MOST_ROWS_IN_CALL):
            await self.run_in_thread(self.engine.forget_rows, tombs[at : at + MOST_ROWS_IN_CALL])

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
    some: dict[bytes, bytes] = {}
    size = 0
    for name, row in rows.items():
        if some and (len(some) == MOST_ROWS_IN_CALL or size + len(row) > MOST_BYTES_IN_CALL):
            yield some
            some = {}
            size = 0
        some[name] = row
        size += len(row)
    if some:
        yield some


def _batches_of_names(names: Collection[bytes]) -> Iterator[list[bytes]]:
    left = list(names)
    for at in range(0, len(left), MOST_ROWS_IN_CALL):
        yield left[at : at + MOST_ROWS_IN_CALL]
