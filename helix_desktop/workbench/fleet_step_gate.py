"""Lets the tasks of a worker begin their steps: none at a provider that asked to be left alone, none beyond what may be spent."""

import asyncio

from helix_desktop.errors import StoreFailed
from helix_desktop.store.fleet_notes import FleetNotes
from helix_desktop.store.fleet_tasks import FleetTask


class BudgetSpent(StoreFailed):
    """`for_all`: no task of the workspace may go on, whichever agent does it."""

    def __init__(self, what: str, *, for_all: bool) -> None:
        super().__init__(what, remedy="To raise the budget, run `fleet budget`.")
        self.for_all = for_all


class FleetStepGate:
    """Near a limit, a worker makes one request at a time, so it exceeds the limit by one at most."""

    def __init__(self, notes: FleetNotes) -> None:
        self._notes = notes
        self._under_way: dict[str, float] = {}  # Tasks whose request is running, with what they cost before.
        self._dearest: float | None = None  # What this worker's most expensive request cost.
        self._asking = asyncio.Lock()

    def end_request(self, task: str, cost: float) -> None:
        """The task's request has ended, and the task has cost so much until now."""
        if (before := self._under_way.pop(task, None)) is not None:
            self._dearest = max(self._dearest or 0.0, cost - before)

    async def may_begin_step(self, task: FleetTask, cost: float, provider: str) -> bool:
        """Whether it may begin one now; later, where not. BudgetSpent where it may not before a limit is raised."""
        async with self._asking:
            self.end_request(task.id, cost)
            state = await self._notes.read_state()
            if state.limits:
                await self._notes.add_cost(task.id, task.claims, task.order.agent, cost)
                state = await self._notes.read_state()
            left, beside = state.dollars_left(task.order.agent), len(self._under_way)
            if left <= 0:
                scope = state.tightest_limit(task.order.agent)
                raise BudgetSpent(f"The budget ({scope}) is used up.", for_all=not scope.startswith("agent"))
            is_near = bool(state.limits) and (self._dearest is None or left <= self._dearest * (beside + 1))
            if provider in state.paused or (beside and is_near):
                return False
            self._under_way[task.id] = cost
            return True
