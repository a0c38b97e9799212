"""Counts in the background by how much the cache exceeds the user's limit, and reports it.

Nothing is removed: only the user does that.
"""

import asyncio
from collections.abc import Callable

from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.errors import StoppedByUser
from helix_desktop.store.stored_workspace import StoredWorkspace

PAUSE = 1.0  # Seconds between two counts, because a count of a million entries takes 50 ms.
Listener = Callable[[int], object]


class CacheSizeLimit:
    """`over`: the bytes beyond the limit at the last count, or 0 without a limit."""

    def __init__(
        self, workspace: StoredWorkspace, spawn: TaskSpawner, *, pause: float = PAUSE
    ) -> None:
        self.over = 0
        self._workspace = workspace
        self._spawn = spawn
        self._pause = pause
        self._listeners: list[Listener] = []
        self._wanted = self._counting = False

    def watch_cache_size(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the bytes beyond the limit, and with 0 once there are none."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def count_cache_size_soon(self) -> None:
        """Schedule a count. If one is running, it counts once more."""
        self._wanted = True
        if not self._counting and (self._workspace.settings.limit or self.over):
            try:
                self._spawn(self._recount_while_wanted(), name="count what the cache takes")
            except StoppedByUser:
                return  # The workspace is closing.
            self._counting = True

    async def _recount_while_wanted(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                self._notify_size_listeners(await self._workspace.bytes_over_limit())
                await asyncio.sleep(self._pause)
        finally:
            self._counting = False

    def _notify_size_listeners(self, over: int) -> None:
        before, self.over = self.over, over
        if bool(before) != bool(over):
            for listener in tuple(self._listeners):
                listener(over)
