"""Provides an event loop whose time jumps to the next timer instead of waiting for it.

Pauses and limits use the loop's time, which starts at 0. Hours of a session take milliseconds,
always in the same order. While a thread works, the time stands still.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")

RESOLUTION = 1e-3  # In seconds. Timers that are due within this time of each other run together.
START = 1_750_000_000.0  # The time at which a replay begins, in seconds since 1970.


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that passes a wait to `jump` and returns at once if nothing is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.jump: Callable[[float], bool] = lambda _: False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None and self.jump(timeout):
            return []
        return super().select(timeout)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop with simulated time."""

    def __init__(self) -> None:
        self._simulated_time = 0.0
        self._running_threads = 0
        selector = _JumpingSelector()
        super().__init__(selector)
        # asyncio's own resolution of a nanosecond is too fine for such times.
        self._clock_resolution = RESOLUTION
        selector.jump = self._jump_ahead

    def time(self) -> float:
        return self._simulated_time

    def run_in_executor(
        self, executor: object, func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        """Run a function in a thread. The time stands still meanwhile."""
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)  # type: ignore[arg-type]
        self._running_threads += 1
        future.add_done_callback(self._count_ended_thread)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's own
        """Shut down without the time limit of newer Pythons, which would be over at once."""
        await super().shutdown_default_executor()

    def _count_ended_thread(self, _: object) -> None:
        self._running_threads -= 1

    def _jump_ahead(self, seconds: float) -> bool:
        """Move the time on to the next timer, unless a thread works. Return whether it moved."""
        if self._running_threads:
            return False
        self._simulated_time += seconds
        return True


class LoopClock:
    """The engine's `Clock`, based on the time of the running event loop."""

    def current_time(self) -> float:
        return START + self.steady_time()

    def steady_time(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep_seconds(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_on_jumping_loop(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end on a jumping loop, and then cancel what still runs."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)
