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
        # By task: what it had cost before its request that is now running.
        self._cost_before_request: dict[str, float] = {}
        # The cost of this worker's most expensive request, or None before the first has ended.
        self._highest_request_cost: float | None = None
        self._lock = asyncio.Lock()

    def end_request(self, task: str, cost: float) -> None:
        """Note that the task's request has ended. `cost`: of the whole task until now."""
        cost_before = self._cost_before_request.pop(task, None)
        if cost_before is None:
            return
        request_cost = cost - cost_before
        if self._highest_request_cost is None or request_cost > self._highest_request_cost:
            self._highest_request_cost = request_cost

    async def try_to_begin_step(self, task: FleetTask, cost: float, provider: str) -> bool:
        """Begin a step if it may begin now, or return False. Raises BudgetSpent if a
        limit forbids it.
        """
        # One at a time, so that two steps do not both begin with the same last dollars.
        async with self._lock:
            self.end_request(task.id, cost)
            state = await self._notes.read_state()
            if state.limits:
                await self._notes.add_cost(task.id, task.claims, task.order.agent, cost)
                state = await self._notes.read_state()
            dollars_left = state.dollars_left(task.order.agent)
            if dollars_left <= 0:
                scope = state.tightest_limit(task.order.agent)
                raise BudgetSpent(
                    f"The budget ({scope}) is used up.", for_all=not scope.startswith("agent")
                )
            if provider in state.paused:
                return False
            is_other_request_running = bool(self._cost_before_request)
            if state.limits and is_other_request_running and self._is_near_limit(dollars_left):
                return False
            self._cost_before_request[task.id] = cost
            return True

    def _is_near_limit(self, dollars_left: float) -> bool:
        """Whether the running requests and one more could cost more than what is left."""
        if self._highest_request_cost is None:
            return True
        number_of_requests = len(self._cost_before_request) + 1
        return dollars_left <= self._highest_request_cost * number_of_requests
