"""A task that a worker has claimed: whether its lease still holds, and what its turn
must do if it does not.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import field
from enum import Enum
from typing import TypeVar

from helix_desktop import errors
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.fleet_tasks import FleetTask
from helix_desktop.store.shared.known_leases import seconds_since_start_of_computer

log = logging.getLogger(__name__)
T = TypeVar("T")
TASK_LEASE_SECONDS = 30.0
AWAY_SECONDS = 1.0  # While the store is out of reach, the worker tries to reach it this often.
# The reason recorded if a worker stops a turn. A turn stopped by the user has another one.
LET_GO = "The task's worker stopped this turn."
_LOST = "This task was cancelled, or another worker has taken it over."


class LostFleetTask(errors.StoreFailed):
    """Another worker has the task now, or it was cancelled."""


class TaskLease(Enum):
    """Whether a worker still has a task that it has claimed. It never gets it back: a new claim
    has a lease of its own.
    """

    HELD = "the worker has it, as far as it knows"
    CANCELLED = "nobody has it any more, so the end of its turn may still be recorded"
    TAKEN = "another worker may have it, so nothing may be written any more"


@dataclass(slots=True)
class ClaimedFleetTask:
    """A task that this worker has until `held_until`, unless `lease` says that it lost it.

    `question`: what nobody here could allow. `must_be_given_back`: its turn is to end, so that
    a worker can continue it. `is_ending`: its turn was told to stop. `was_stopped_by_user`: in
    its conversation. `waiting`: its conversations in which a call waits for other tasks.
    """

    task: FleetTask
    held_until: float
    deadline: float
    question: PermissionQuestion | None = None
    session: Session | None = None
    lease: TaskLease = TaskLease.HELD
    must_be_given_back: bool = False
    is_ending: bool = False
    was_stopped_by_user: bool = False
    waiting: list[str] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def extend_lease(self, until: float) -> None:
        self.held_until = until
        self._changed.set()

    def lose_lease(self, *, to_another: bool) -> None:
        if to_another:
            self.lease = TaskLease.TAKEN
        elif self.lease is TaskLease.HELD:
            self.lease = TaskLease.CANCELLED
        self._changed.set()
        self.stop_turn()

    def stop_turn(self, why: str = LET_GO) -> None:
        self.is_ending = True
        if self.session is not None:
            self.session.stop_turn(why)

    async def ensure_held(self) -> None:
        """Wait while it is unknown whether the lease holds. Raises LostFleetTask if it does not."""
        while self._is_lease_unknown():
            await self._wait_for_change()
        if self.lease is not TaskLease.HELD:
            raise LostFleetTask(_LOST)

    async def ensure_may_write(self) -> None:
        """Wait as `ensure_held` does, before each fact. Raises LostFleetTask if another
        worker may have the conversation.

        A worker that was suspended finds here that its lease has expired, before it
        writes beside the worker that has taken over. After a cancellation nobody else
        writes, so the end of the turn may still be recorded.
        """
        while self._is_lease_unknown():
            if self.must_be_given_back:
                raise LostFleetTask(_LOST)
            await self._wait_for_change()
        if self.lease is TaskLease.TAKEN:
            raise LostFleetTask(_LOST)

    def _is_lease_unknown(self) -> bool:
        if self.lease is not TaskLease.HELD:
            return False
        margin = TASK_LEASE_SECONDS / 6
        return seconds_since_start_of_computer() > self.held_until - margin

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(AWAY_SECONDS):
                await self._changed.wait()

    async def retry_while_held(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work`, again and again while a store cannot be reached or is full."""
        while True:
            if self.lease is not TaskLease.HELD:
                raise LostFleetTask(_LOST)
            try:
                return await work()
            # ActionRefused may pass too: another machine may just be releasing the conversation.
            except (
                errors.SharedStoreUnreachable,
                errors.StoreFull,
                errors.StoreBusy,
                errors.ActionRefused,
            ) as error:
                log.info("task %s waits for a store: %s", self.task.id, error.what)
                await asyncio.sleep(AWAY_SECONDS)
