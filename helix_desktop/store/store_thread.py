"""The threads of an open workspace: one owns the stores, one writes the index, and one
answers from it.

LevelDB and the journal are only used on the stores' thread. The index reads content
there too, so nothing is shared. A query waits neither for a commit nor for a rebuild.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from typing import ParamSpec, Protocol, TypeVar, cast

from helix_desktop import concurrency
from helix_desktop.errors import StoreFailed

P = ParamSpec("P")
T = TypeVar("T")


class _Closable(Protocol):
    def close(self) -> object: ...


Closable = TypeVar("Closable", bound=_Closable)


class StoreThread:
    """A thread that runs one piece of work after another, and closes what it opened."""

    def __init__(self, name: str) -> None:
        self._pool = concurrency.create_thread_pool(name, threads=1)
        self._opened = ExitStack()

    async def run_work(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work on this thread. Once begun, it is finished, even if nobody waits any more."""
        return await asyncio.wrap_future(self.submit_work(work, *args, **kwargs))

    async def open_on_thread(
        self, opens: Callable[P, Closable], *args: P.args, **kwargs: P.kwargs
    ) -> Closable:
        """Open something on this thread for `close` to close, even if nobody waits any more."""
        return await self.run_work(
            lambda: self._opened.enter_context(closing(opens(*args, **kwargs)))
        )

    async def close(self) -> None:
        """Close what was opened, in reverse order."""
        await self.run_work(self._opened.close)

    async def run_slices(
        self, slices: Iterator[T], on_slice: Callable[[T], object] = lambda _slice: None
    ) -> None:
        """Run all slices, letting other work run in between. `on_slice` is called with
        what each yields.
        """
        # `next` returns this thread itself where there is no further slice.
        yielded = await self.run_work(next, slices, self)
        while yielded is not self:
            on_slice(cast("T", yielded))
            yielded = await self.run_work(next, slices, self)

    def submit_work(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return self._pool.submit(work, *args, **kwargs)
        except RuntimeError as error:
            raise StoreFailed(
                "The workspace is closed.", remedy="Open the workspace again."
            ) from error

    def call_and_wait(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work there and wait for it. Not for the event loop's thread."""
        return self.submit_work(work, *args, **kwargs).result()

    async def aclose(self) -> None:
        """Finish what is queued, close what is open, and end the thread."""
        try:
            await self.close()
        finally:
            self._pool.shutdown(wait=True)
