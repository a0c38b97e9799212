"""An engine for the event loop: its calls block, so each is made on a thread. All workspaces on one server share its threads.

Calls are split so that none is much larger than `MUCH`; a reader gets what there is of all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar

from helix_desktop import tasks
from helix_desktop.errors import Away
from helix_desktop.store.shared.engine import MANY, MUCH, Engine, Tomb, Usage

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 8  # for each server, whatever the number of workspaces
_threads: dict[str, _Threads] = {}


class _Threads:
    """The threads for one server, and how many workspaces use them."""

    def __init__(self) -> None:
        self.pool = tasks.pool("shared", threads=THREADS)
        self.users = 0


class Remote:
    """An engine whose calls are coroutines. What was begun is finished, also where nobody waits any more."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._is_closed = False
        self._shared = _threads.setdefault(engine.server, _Threads())
        self._shared.users += 1

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Any blocking call, on one of the engine's threads."""
        if self._is_closed:
            raise Away("The shared store was closed.", remedy="Open the workspace again.")
        return await asyncio.wrap_future(self._shared.pool.submit(work, *args, **kwargs))

    async def put(self, rows: Mapping[bytes, bytes]) -> None:
        for some in _slices(rows):
            await self.run(self.engine.put, some)

    async def get(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for some in _parts(names):
            found |= await self.run(self.engine.get, some)
        return found

    async def lacking(self, names: Collection[bytes]) -> frozenset[bytes]:
        return frozenset().union(*[await self.run(self.engine.lacking, some) for some in _parts(names)])

    async def drop(self, names: Collection[bytes]) -> None:
        for some in _parts(names):
            await self.run(self.engine.drop, some)

    async def forget(self, tombs: Sequence[Tomb]) -> None:
        for at in range(0, len(tombs), MANY):
            await self.run(self.engine.forget, tombs[at : at + MANY])

    async def forgotten(self, after: int) -> tuple[Sequence[Tomb], int]:
        return await self.run(self.engine.forgotten, after)

    async def usage(self) -> Usage:
        return await self.run(self.engine.usage)

    async def about(self) -> str:
        return await self.run(self.engine.about)

    async def aclose(self) -> None:
        await self.run(self.engine.close)
        self._is_closed = True
        self._shared.users -= 1
        if not self._shared.users:
            _threads.pop(self.engine.server, None)
            self._shared.pool.shutdown(wait=False)


def _slices(rows: Mapping[bytes, bytes]) -> Iterator[Mapping[bytes, bytes]]:
    some: dict[bytes, bytes] = {}
    size = 0
    for name, row in rows.items():
        if some and (len(some) == MANY or size + len(row) > MUCH):
            yield some
            some, size = {}, 0
        some[name] = row
        size += len(row)
    if some:
        yield some


def _parts(names: Collection[bytes]) -> Iterator[list[bytes]]:
    left = list(names)
    for at in range(0, len(left), MANY):
        yield left[at : at + MANY]
