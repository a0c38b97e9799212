"""The threads of one open workspace: one that owns its stores, one that keeps the index, one that answers from it.

LevelDB and the journal are only ever touched from `store_wanted_files`. The index asks for its content there too, so
nothing is shared; a question to the index waits neither for a commit nor for the index being made.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from typing import ParamSpec, Protocol, TypeVar, cast

from helix_desktop import tasks
from helix_desktop.errors import StoreFailed

P = ParamSpec("P")
T = TypeVar("T")


class _Closable(Protocol):
    def close(self) -> object: ...


Closable = TypeVar("Closable", bound=_Closable)


class StoreThread:
    """A thread that does one thing after another, and closes what it has opened."""

    def __init__(self, name: str) -> None:
        self._pool = tasks.create_thread_pool(name, threads=1)
        self._opened = ExitStack()

    async def run_there(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it there. Once begun it is finished, even where nobody waits any more."""
        return await asyncio.wrap_future(self.submit_work(work, *args, **kwargs))

    async def open_there(self, opens: Callable[P, Closable], *args: P.args, **kwargs: P.kwargs) -> Closable:
        """Open something there, which `close` closes, also where nobody waits for it any more."""
        return await self.run_there(lambda: self._opened.enter_context(closing(opens(*args, **kwargs))))

    async def close(self) -> None:
        """What was opened, the last first."""
        await self.run_there(self._opened.close)

    async def run_slices(self, slices: Iterator[T], heard: Callable[[T], object] = lambda _slice: None) -> None:
        """Do all of it, slice by slice, so that others get their turn; `heard` gets what each of them yields."""
        while (slice_ := await self.run_there(next, slices, self)) is not self:
            heard(cast("T", slice_))

    def submit_work(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return self._pool.submit(work, *args, **kwargs)
        except RuntimeError as error:
            raise StoreFailed("The workspace is closed.", remedy="Open the workspace again.") from error

    def call_and_wait(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it there and wait: for other threads of the workspace, never for the event loop's."""
        return self.submit_work(work, *args, **kwargs).result()

    async def aclose(self) -> None:
        """Finish what is queued, close what is open, then end."""
        try:
            await self.close()
        finally:
            self._pool.shutdown(wait=True)
