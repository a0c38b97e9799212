"""Which steps of a worker's tasks may begin: what the budgets and the providers allow."""

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
    """Near a limit, a worker makes one request at a time, so it exceeds the limit by
    one at most.
    """

    def __init__(self, notes: FleetNotes) -> None:
        self._notes = notes
        # The cost of each task before its request that is now running.
        self._under_way: dict[str, float] = {}
        self._dearest: float | None = None  # The cost of this worker's most expensive request.
        self._asking = asyncio.Lock()

    def end_request(self, task: str, cost: float) -> None:
        """Note that the task's request has ended. `cost`: of the whole task until now."""
        before = self._under_way.pop(task, None)
        if before is not None:
            self._dearest = max(self._dearest or 0.0, cost - before)

    async def try_to_begin_step(self, task: FleetTask, cost: float, provider: str) -> bool:
        """Begin a step if it may begin now, or return False. Raises BudgetSpent if a
        limit forbids it.
        """
        async with self._asking:
            self.end_request(task.id, cost)
            state = await self._notes.read_state()
            if state.limits:
                await self._notes.add_cost(task.id, task.claims, task.order.agent, cost)
                state = await self._notes.read_state()
            left = state.dollars_left(task.order.agent)
            if left <= 0:
                scope = state.tightest_limit(task.order.agent)
                raise BudgetSpent(
                    f"The budget ({scope}) is used up.", for_all=not scope.startswith("agent")
                )
            if provider in state.paused:
                return False
            if state.limits and self._under_way and self._is_near_limit(left):
                return False
            self._under_way[task.id] = cost
            return True

    def _is_near_limit(self, dollars_left: float) -> bool:
        if self._dearest is None:
            return True
        return dollars_left <= self._dearest * (len(self._under_way) + 1)
