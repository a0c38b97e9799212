"""Counts in the background by how much the cache exceeds the user's limit, and reports it.

Nothing is removed: only the user does that.
"""

import asyncio
from collections.abc import Callable

from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.errors import StoppedByUser
from helix_desktop.store.stored_workspace import StoredWorkspace

PAUSE_SECONDS = 1.0  # Seconds between two counts, because a count of a million entries takes 50 ms.
Listener = Callable[[int], object]


class CacheSizeLimit:
    """`excess_bytes`: the bytes beyond the limit at the last count, or 0 without a limit."""

    def __init__(
        self, workspace: StoredWorkspace, spawn: TaskSpawner, *, pause: float = PAUSE_SECONDS
    ) -> None:
        self.excess_bytes = 0
        self._workspace = workspace
        self._spawn = spawn
        self._pause = pause
        self._listeners: list[Listener] = []
        self._is_count_wanted = False
        self._is_counting = False

    def watch_cache_size(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the bytes beyond the limit, and with 0 once there are none."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def count_cache_size_soon(self) -> None:
        """Schedule a count. If one is running, it counts once more."""
        self._is_count_wanted = True
        if self._is_counting:
            return
        # Without a limit, a count is only needed to report that an excess is over.
        if not self._workspace.settings.limit and not self.excess_bytes:
            return
        try:
            self._spawn(self._recount_while_wanted(), name="count what the cache takes")
        except StoppedByUser:
            return  # The workspace is closing.
        self._is_counting = True

    async def _recount_while_wanted(self) -> None:
        try:
            while self._is_count_wanted:
                self._is_count_wanted = False
                self._notify_size_listeners(await self._workspace.bytes_over_limit())
                await asyncio.sleep(self._pause)
        finally:
            self._is_counting = False

    def _notify_size_listeners(self, excess_bytes: int) -> None:
        """Tell the listeners if the limit is exceeded now and was not before, or the other way."""
        was_exceeded = self.excess_bytes > 0
        is_exceeded = excess_bytes > 0
        self.excess_bytes = excess_bytes
        if was_exceeded != is_exceeded:
            for listener in tuple(self._listeners):
                listener(excess_bytes)
