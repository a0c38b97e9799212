"""Runs coroutines for widgets. This is the only place where the window starts them.

A widget passes a coroutine and a callback for its result; the program runs it in a separate task. A
HelixError becomes a notice, so pages need no error handling of their own. A bug is reported by the
task's owner.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import shiboken6
from PySide6.QtCore import QObject, Signal

from helix_desktop.errors import HelixError, StoppedByUser

T = TypeVar("T")


class CancellableWork(Protocol):
    """A started piece of work, which is an `asyncio.Task`."""

    def cancel(self) -> bool: ...


class SpawnedTask(CancellableWork, Protocol):
    """Started work that also tells when it has ended."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None: ...


class CoroutineStarter(Protocol):
    """The signature of `OwnedTasks.spawn_task`."""

    def __call__(self, work: Coroutine[Any, Any, Any], *, name: str) -> SpawnedTask: ...


class _RefusedWork:
    def cancel(self) -> bool:
        return False


class BackgroundRunner(QObject):
    """`failed` carries the HelixError; the main window shows it."""

    failed = Signal(object)

    def __init__(self, spawn: CoroutineStarter, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._spawn = spawn

    def run_in_background(
        self,
        work: Coroutine[Any, Any, T],
        *,
        then: Callable[[T], object] | None = None,
        owner: QObject | None = None,
        failed: Callable[[HelixError], object] | None = None,
    ) -> CancellableWork:
        """Runs `work` in a named task, then calls `then` with its result unless `owner` was deleted
        meanwhile. Nothing is started while the window closes.

        `failed` handles an error. Without it, or once `owner` is gone, the error is shown as a
        notice.
        """

        def is_owner_alive() -> bool:
            return owner is None or shiboken6.isValid(owner)

        async def run_and_report() -> None:
            try:
                result = await work
            except StoppedByUser:
                return
            except HelixError as error:
                if failed is not None and is_owner_alive():
                    failed(error)
                else:
                    self.failed.emit(error)
                return
            if then is not None and is_owner_alive():
                then(result)

        def close_work(_ended_task: object) -> None:
            work.close()

        try:
            task = self._spawn(run_and_report(), name=getattr(work, "__qualname__", "work"))
        except StoppedByUser:
            work.close()
            return _RefusedWork()
        # A task that is cancelled before its first step never awaits `work`.
        task.add_done_callback(close_work)
        return task
