"""The window's event loop: qasync's, with a cheaper way to keep timers that are not due soon.

qasync creates a Qt timer for each of them, and keeps it, with all that it refers to, until it is
due, even if it was cancelled. Each piece of a stream has a limit of minutes, so thousands of timers
would exist at any moment. Here they wait in a heap with one Qt timer, which is set anew for the
first of them, and cancelled ones are removed, as asyncio's own loops do.
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable
from contextvars import Context

import qasync
from PySide6.QtCore import Qt, QTimer

from helix_desktop.fast_dataclass import dataclass

FAR = 1.0  # Timers due later than this many seconds wait in a heap. Others get their own Qt timer.
LONGEST_WAIT = 86_400.0  # In seconds. Qt counts milliseconds in 31 bits, which are 24 days.
FEW = 64  # Cancelled timers are removed from the heap once there are more than this.


@dataclass(frozen=True, slots=True)
class WaitingTimer:
    """A timer in the heap. `number` counts the timers: of two that are due at the same time, the
    one that was added first is run first.
    """

    due_at: float
    number: int
    handle: asyncio.TimerHandle

    def __lt__(self, other: "WaitingTimer") -> bool:
        if self.due_at == other.due_at:
            return self.number < other.number
        return self.due_at < other.due_at


class WindowEventLoop(qasync.QEventLoop):  # type: ignore[misc] # comes without types
    def __init__(self, *arguments: object) -> None:
        self._heap: list[WaitingTimer] = []
        self._cancelled_count = 0
        self._numbers = itertools.count()
        self._wakes_at = math.inf  # When the Qt timer for the heap is due.
        super().__init__(*arguments)
        self._heap_timer = QTimer(singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._heap_timer.timeout.connect(self._run_due_timers)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.Handle:
        if delay < FAR:
            near_handle: asyncio.Handle = super().call_later(
                delay, callback, *args, context=context
            )
            return near_handle
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        timer = WaitingTimer(handle.when(), next(self._numbers), handle)
        heapq.heappush(self._heap, timer)
        self._schedule_due_timers()
        return handle

    def close(self) -> None:
        self._heap_timer.stop()
        super().close()

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        """Called by asyncio when a timer is cancelled."""
        self._cancelled_count += 1
        if self._cancelled_count > max(FEW, len(self._heap) // 2):
            self._heap = [timer for timer in self._heap if not timer.handle.cancelled()]
            heapq.heapify(self._heap)
            self._cancelled_count = 0

    def _schedule_due_timers(self) -> None:
        """Sets the Qt timer to the time of the earliest timer."""
        if not self._heap:
            return
        earliest = self._heap[0]
        if earliest.due_at < self._wakes_at:
            self._wakes_at = earliest.due_at
            delay = min(max(0.0, earliest.due_at - self.time()), LONGEST_WAIT)
            self._heap_timer.start(math.ceil(1000 * delay))

    def _run_due_timers(self) -> None:
        self._wakes_at = math.inf
        current_time = self.time()
        while self._heap:
            earliest = self._heap[0]
            is_cancelled = earliest.handle.cancelled()
            if earliest.due_at > current_time and not is_cancelled:
                break
            heapq.heappop(self._heap)
            if is_cancelled:
                self._cancelled_count = max(0, self._cancelled_count - 1)
            else:
                earliest.handle._run()  # noqa: SLF001 - what a loop does with its handles
        self._schedule_due_timers()
