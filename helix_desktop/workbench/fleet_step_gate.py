"""Which steps of a worker's tasks may begin: what the budgets and the providers allow."""

import asyncio

from helix_desktop.errors import StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.fleet_notes import FleetNotes, FleetState, SentRequest
from helix_desktop.store.fleet_tasks import FleetTask
from helix_desktop.workbench import claimed_fleet_task


@dataclass(frozen=True, slots=True)
class _CostOfTask:
    task: FleetTask
    dollars: float


class BudgetSpent(StoreFailed):
    """`for_all`: no task of the workspace may go on, whichever agent does it."""

    def __init__(self, what: str, *, for_all: bool) -> None:
        super().__init__(what, remedy="To raise the budget, run `fleet budget`.")
        self.for_all = for_all


class FleetStepGate:
    """Lets the steps of one worker's tasks begin. A step is a request and the calls after it.

    What a request costs is known when it has ended. Until then, the worker reserves for it
    what its most expensive request has cost, in a note that the other workers read. A
    request begins only if what is left of a limit exceeds what the others have reserved; and
    beside other requests of the same worker, only if it covers all that is reserved. So each
    worker exceeds a limit by one request at most.

    A reservation lasts as long as the leases of the worker's tasks, and is renewed with them.
    So what a dead worker had reserved is there for the others when they get its tasks.

    What a killed worker's request costs is never measured, but the provider was asked. So
    each request is noted with what it costs at least. Whoever takes up its task charges for
    it, unless the conversation has what it cost; until then, it counts as reserved.
    """

    def __init__(self, notes: FleetNotes, worker: str) -> None:
        self._notes = notes
        self._worker = worker
        # By task: what it had cost before its request that is now running.
        self._cost_before_request: dict[str, float] = {}
        # By task: what it has cost with a request that has ended, but is not noted yet.
        self._costs_to_note: dict[str, _CostOfTask] = {}
        # The cost of this worker's most expensive request, or None before the first has ended.
        self._highest_request_cost: float | None = None
        # Whether others may still count a request of this worker as running.
        self._has_reservation = False
        self._lock = asyncio.Lock()

    def end_request(self, task: FleetTask, cost: float) -> None:
        """Note that the task's request has ended. `cost`: of the whole task until now."""
        cost_before = self._cost_before_request.pop(task.id, None)
        if cost_before is None:
            return
        self._costs_to_note[task.id] = _CostOfTask(task, cost)
        request_cost = cost - cost_before
        if self._highest_request_cost is None or request_cost > self._highest_request_cost:
            self._highest_request_cost = request_cost

    async def try_to_begin_step(
        self, task: FleetTask, cost: float, provider: str, least_cost: float = 0.0
    ) -> bool:
        """Begin a step if it may begin now, or return False. Raises BudgetSpent if a
        limit forbids it. `least_cost`: what its request costs by our own count.
        """
        # One at a time, so that two steps do not both begin with the same last dollars.
        async with self._lock:
            self.end_request(task, cost)
            state = await self._notes.read_state()
            if state.limits:
                self._costs_to_note[task.id] = _CostOfTask(task, cost)
                await self._charge_for_requests_cut_off(task, cost, state)
                if not await self._try_to_reserve_request(task, state):
                    return False
            else:
                # If a limit is set later, each task's next step notes all that it has cost.
                self._costs_to_note.clear()
            if provider in state.paused:
                return False
            if state.limits and least_cost:
                await self._notes.note_request(SentRequest(task.id, task.claims, cost, least_cost))
            self._cost_before_request[task.id] = cost
            return True

    async def renew_reservation(self) -> None:
        """Reserve again what the requests that are running now may cost, for as long as the
        leases are renewed. The others get back what was reserved for requests that have ended.
        """
        # A step that is just beginning reserves by itself, and leases are not to wait for it.
        if not self._has_reservation or self._lock.locked():
            return
        async with self._lock:
            state = await self._notes.read_state()
            await self._note_costs()
            await self._reserve_requests(len(self._cost_before_request), state)

    async def _charge_for_requests_cut_off(
        self, task: FleetTask, cost: float, state: FleetState
    ) -> None:
        """Charge for requests that earlier workers of this task sent before they were killed."""
        for request in state.requests:
            if request.task != task.id or request.claims >= task.claims:
                continue
            is_in_conversation = cost > request.cost_before
            if is_in_conversation:  # It is charged like any other.
                await self._notes.remove_request(request)
            else:
                await self._notes.charge_cut_off_request(request, task.order.agent)

    async def _try_to_reserve_request(self, task: FleetTask, state: FleetState) -> bool:
        """Reserve what one more request may cost. Return False if that is too much now, but
        may not be once other requests have ended.
        """
        await self._note_costs()
        number_running = len(self._cost_before_request)
        # Before the others' notes are read: of two workers that reserve at the same time, at
        # least one sees the other's.
        await self._reserve_requests(number_running + 1, state)
        new_state = await self._notes.read_state()
        agent = task.order.agent
        dollars_left = new_state.dollars_left(agent)
        if self._is_enough_for_one_more(dollars_left, self._dollars_of_others(new_state)):
            return True

        await self._reserve_requests(number_running, state)
        if dollars_left <= 0:
            scope = new_state.tightest_limit(agent)
            raise BudgetSpent(
                f"The budget ({scope}) is used up.", for_all=not scope.startswith("agent")
            )
        return False

    def _is_enough_for_one_more(self, dollars_left: float, dollars_of_others: float) -> bool:
        if dollars_left <= dollars_of_others:
            return False
        number_running = len(self._cost_before_request)
        if not number_running:  # A worker's only request may exceed the limit.
            return True
        if self._highest_request_cost is None:
            return False
        own_dollars = self._highest_request_cost * (number_running + 1)
        return dollars_of_others + own_dollars <= dollars_left

    def _dollars_of_others(self, state: FleetState) -> float:
        """Return what requests of other workers may cost that have not been charged yet."""
        reserved_by_others = 0.0
        for worker, dollars in state.reserved.items():
            if worker != self._worker:
                reserved_by_others += dollars
        # A killed worker's reservation ends with its lease, but its requests were sent.
        sent_by_others = 0.0
        for request in state.requests:
            if request.task not in self._cost_before_request:
                sent_by_others += request.dollars
        return max(reserved_by_others, sent_by_others)

    async def _reserve_requests(self, number: int, state: FleetState) -> None:
        """Tell the other workers what so many running requests may cost."""
        request_cost = self._highest_request_cost or 0.0
        await self._notes.reserve_dollars(
            self._worker,
            request_cost * number,
            claimed_fleet_task.TASK_LEASE_SECONDS,
            for_all="fleet" in state.limits,
        )
        self._has_reservation = number > 0

    async def _note_costs(self) -> None:
        """Note in the store what this worker's ended requests cost, also those of other tasks,
        whose next step may be far off.
        """
        for noted in list(self._costs_to_note.values()):
            task = noted.task
            await self._notes.add_cost(task.id, task.claims, task.order.agent, noted.dollars)
            # Meanwhile its next request may have ended, whose cost is still to be noted.
            if self._costs_to_note[task.id] is noted:
                del self._costs_to_note[task.id]
