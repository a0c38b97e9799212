"""The window's event loop: qasync's, with a cheaper way to keep timers that are not due soon.

qasync creates a Qt timer for each of them, and keeps it, with all that it refers to, until it is
due, even if it was cancelled. Each piece of a stream has a limit of minutes, so thousands of timers
would exist at any moment. Here they wait in a heap with one Qt timer for the first, and cancelled
ones are removed, as asyncio's own loops do.
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable
from contextvars import Context

import qasync

FAR = 1.0  # Timers due later than this many seconds wait in a heap. Others get their own Qt timer.
FEW = 64  # Cancelled timers are removed from the heap once there are more than this.


class WindowEventLoop(qasync.QEventLoop):  # type: ignore[misc] # comes without types
    def __init__(self, *arguments: object) -> None:
        self._far: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._cancelled = 0
        self._numbers = itertools.count()
        self._wakes_at = math.inf
        super().__init__(*arguments)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.Handle:
        if delay < FAR:
            near: asyncio.Handle = super().call_later(delay, callback, *args, context=context)
            return near
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        heapq.heappush(self._far, (handle.when(), next(self._numbers), handle))
        self._schedule_due_timers()
        return handle

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        """Called by asyncio when a timer is cancelled."""
        self._cancelled += 1
        if self._cancelled > max(FEW, len(self._far) // 2):
            self._far = [each for each in self._far if not each[2].cancelled()]
            heapq.heapify(self._far)
            self._cancelled = 0

    def _schedule_due_timers(self) -> None:
        """Schedules `_run_due_timers` for the time of the earliest timer."""
        if self._far and self._far[0][0] < self._wakes_at:
            self._wakes_at = self._far[0][0]
            super().call_later(max(0.0, self._wakes_at - self.time()), self._run_due_timers)

    def _run_due_timers(self) -> None:
        self._wakes_at = math.inf
        now = self.time()
        while self._far and (self._far[0][0] <= now or self._far[0][2].cancelled()):
            handle = heapq.heappop(self._far)[2]
            if handle.cancelled():
                self._cancelled = max(0, self._cancelled - 1)
            else:
                handle._run()  # noqa: SLF001 - what a loop does with its handles
        self._schedule_due_timers()
