"""The only place that creates tasks, threads and thread pools: each has a name and an owner, and
ends in order.

An owner (a window, a workspace, a session) holds one `OwnedTasks`. A task's error is
logged with its trace and passed to `report`, even if nobody awaits the task. `aclose`
cancels the newest task first, because it may depend on older ones, and gives each
`limit` seconds to end.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from helix_desktop.errors import HelixError, StoppedByUser

T = TypeVar("T")
Report = Callable[[str, BaseException], None]
log = logging.getLogger(__name__)


class OwnedTasks:
    """The tasks of one owner. `report(name, error)` is called for failures; by default,
    they are only logged.
    """

    def __init__(self, owner: str, *, report: Report | None = None) -> None:
        self._owner = owner
        self._report = report
        # Running tasks, in the order in which they were started.
        self._running: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    def spawn_task(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Starts `work` on the running loop. Raises StoppedByUser if the owner is closing."""
        if self._closed:
            work.close()
            raise StoppedByUser(f"{self._owner} is closing, so {name} was not started.")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}: {name}")
        self._running[task] = None
        task.add_done_callback(self._on_task_ended)
        return task

    def _on_task_ended(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if isinstance(error, HelixError):
            log.info("%s ended: %s", task.get_name(), type(error).__name__)
        else:
            log.error("%s failed", task.get_name(), exc_info=error)
        if self._report is not None:
            self._report(task.get_name(), error)

    async def wait_for_all_tasks(self) -> None:
        """Waits until all tasks have ended, including tasks that are started meanwhile."""
        while self._running:
            await asyncio.wait(tuple(self._running))

    async def aclose(self, *, limit: float = 5.0) -> tuple[str, ...]:
        """Cancels the newest task first and gives each `limit` seconds. Returns the
        names of those that did not end.
        """
        self._closed = True
        stuck = []
        while self._running:
            task = next(reversed(self._running))
            task.cancel()
            _, late = await asyncio.wait([task], timeout=limit)
            self._running.pop(task, None)
            if late:
                log.warning("%s did not end within %.1f s", task.get_name(), limit)
                stuck.append(task.get_name())
        return tuple(stuck)


async def wait_with_limit(work: Awaitable[T], seconds: float | None) -> T:
    """Like `asyncio.wait_for`, which in Python 3.11 can lose a cancellation that comes
    as the work ends.
    """
    async with asyncio.timeout(seconds):
        return await work


def create_thread_pool(name: str, *, threads: int) -> ThreadPoolExecutor:
    """Creates a pool of named threads, which its owner must shut down."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


def start_thread(
    work: Callable[[], object], *, name: str, daemon: bool = False
) -> threading.Thread:
    """Starts a thread. With `daemon`, the program may end while it runs."""
    started = threading.Thread(target=work, name=name, daemon=daemon)
    started.start()
    return started


def run_on_detached_thread(work: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Runs work that may hang for ever (a keyring, a dead mount) on its own daemon thread.

    The thread cannot be stopped. If the caller stops waiting, the thread is left behind, but does
    not keep the program running.
    """
    outcome: Future[T] = Future()
    start_thread(partial(_run_and_set_outcome, outcome, work), name=name, daemon=True)
    return asyncio.wrap_future(outcome)


def _run_and_set_outcome(outcome: Future[T], work: Callable[[], T]) -> None:
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - carried to whoever waits, whatever it is
        outcome.set_exception(error)
        del outcome  # The error refers to this frame, so both would stay in memory.
    else:
        outcome.set_result(result)
