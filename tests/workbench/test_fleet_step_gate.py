"""Workers that spend a budget together: each exceeds it by one request at most, whatever
the others have under way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop.store.fleet_task_files import TASK_FILE, SqliteTaskTables
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.workbench import claimed_fleet_task
from helix_desktop.workbench.fleet_step_gate import BudgetSpent, FleetStepGate

WORKERS = ("desk 1.1", "desk 2.1", "desk 3.1")
TASKS_OF_WORKER = 4
REQUEST_COST = 0.125  # A power of two, so that sums are exact.


@pytest.fixture
async def tasks(tmp_path: Path) -> AsyncIterator[FleetTaskList]:
    tables = SqliteTaskTables(tmp_path / TASK_FILE)
    yield tables.open_list_in_file()
    tables.close()


class SpendingWorker:
    """A worker whose requests all cost the same and never end before `end_requests`."""

    def __init__(self, tasks: FleetTaskList, name: str, claimed: list[FleetTask]) -> None:
        self._gate = FleetStepGate(tasks.notes, name)
        self._cost_by_task = {task.id: 0.0 for task in claimed}
        self._claimed = claimed
        self._running: set[str] = set()
        self.requests = 0
        self.least_cost = 0.0  # Of each request, by the worker's own count.

    async def begin_requests(self) -> None:
        """Begin a request of each task that may begin one and has none."""
        for task in self._claimed:
            if task.id in self._running:
                continue
            try:
                begins = await self._gate.try_to_begin_step(
                    task, self._cost_by_task[task.id], "peer", self.least_cost
                )
            except BudgetSpent:
                continue
            if begins:
                self._running.add(task.id)
                self.requests += 1

    @property
    def number_of_costs_to_note(self) -> int:
        return len(self._gate._costs_to_note)

    async def renew_lease(self) -> None:
        await self._gate.renew_reservation()

    def read_conversations(self, of: SpendingWorker, unread: float = 0.0) -> None:
        """Find in the conversations what an earlier worker recorded of its requests.
        `unread`: what each task cost besides, which it recorded just before it was killed.
        """
        for task, cost in of._cost_by_task.items():
            self._cost_by_task[task] = cost + unread

    async def end_tasks(self, tasks: FleetTaskList) -> None:
        for task in self._claimed:
            result = FleetTaskResult("", cost=self._cost_by_task[task.id])
            await tasks.end_fleet_task(task, FleetTaskState.DONE, result)

    def end_requests(self) -> None:
        for task in self._claimed:
            if task.id in self._running:
                self._cost_by_task[task.id] += REQUEST_COST
                self._gate.end_request(task, self._cost_by_task[task.id])
        self._running.clear()


async def start_workers(tasks: FleetTaskList) -> list[SpendingWorker]:
    number = TASKS_OF_WORKER * len(WORKERS)
    await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder(f"task {n}")) for n in range(number)])
    workers = []
    for name in WORKERS:
        claimed = await tasks.claim_fleet_tasks(name, TASKS_OF_WORKER, 3600.0)
        workers.append(SpendingWorker(tasks, name, claimed))
    return workers


@pytest.mark.parametrize("scope", ["workspace", "day", "fleet"])
@pytest.mark.parametrize("number_of_requests", [15, 17, 20, 23, 40])
async def test_all_workers_exceed_a_budget_by_one_request_each_at_most(
    tasks: FleetTaskList, scope: str, number_of_requests: int
) -> None:
    workers = await start_workers(tasks)
    await tasks.notes.set_limit(scope, number_of_requests * REQUEST_COST)
    requests_before = -1
    while sum(worker.requests for worker in workers) > requests_before:
        requests_before = sum(worker.requests for worker in workers)
        for worker in workers:
            await worker.begin_requests()
        for worker in workers:
            worker.end_requests()
    assert requests_before >= number_of_requests, "the budget is spent"
    assert requests_before <= number_of_requests + len(WORKERS)


async def test_far_from_the_limit_all_tasks_make_requests_at_the_same_time(
    tasks: FleetTaskList,
) -> None:
    workers = await start_workers(tasks)
    await tasks.notes.set_limit("workspace", 1000.0)
    for worker in workers:  # What a request costs is not known before the first has ended.
        await worker.begin_requests()
        worker.end_requests()
        assert worker.requests == 1
    for worker in workers:
        await worker.begin_requests()
        assert worker.requests == 1 + TASKS_OF_WORKER


async def test_what_an_idle_worker_had_under_way_holds_no_other_back(tasks: FleetTaskList) -> None:
    """Near the limit, one request of each worker may always begin while dollars are left."""
    first, second, _ = await start_workers(tasks)
    await tasks.notes.set_limit("workspace", 3 * REQUEST_COST)
    await first.begin_requests()
    await second.begin_requests()
    assert (first.requests, second.requests) == (1, 1)


async def test_without_a_limit_costs_of_ended_requests_are_not_kept(tasks: FleetTaskList) -> None:
    """A worker may run for months."""
    worker, _, _ = await start_workers(tasks)
    for _ in range(3):
        await worker.begin_requests()
        worker.end_requests()
    await worker.begin_requests()
    assert worker.requests == 4 * TASKS_OF_WORKER
    assert worker.number_of_costs_to_note == 0


async def start_worker_that_reserved_all(
    tasks: FleetTaskList, least_cost: float = 0.0
) -> list[SpendingWorker]:
    """Start workers of which the first reserves the last dollars of a budget for its requests."""
    workers = await start_workers(tasks)
    workers[0].least_cost = least_cost
    await tasks.notes.set_limit("workspace", (1 + TASKS_OF_WORKER) * REQUEST_COST)
    await workers[0].begin_requests()
    workers[0].end_requests()  # Now it knows what a request costs.
    await workers[0].begin_requests()
    assert workers[0].requests == 1 + TASKS_OF_WORKER
    return workers


async def test_what_a_dead_worker_reserved_returns_with_its_lease(
    tasks: FleetTaskList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed_fleet_task, "TASK_LEASE_SECONDS", 0.05)
    _, living, _ = await start_worker_that_reserved_all(tasks)
    async with asyncio.timeout(60):
        while not living.requests:
            await living.begin_requests()


async def test_on_one_computer_it_returns_when_the_next_worker_starts(tasks: FleetTaskList) -> None:
    _, living, _ = await start_worker_that_reserved_all(tasks)
    await living.begin_requests()
    assert living.requests == 0
    await tasks.release_orphaned_tasks("2")
    await living.begin_requests()
    assert living.requests == 1


async def test_what_a_living_worker_reserved_holds_however_long_its_requests_take(
    tasks: FleetTaskList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed_fleet_task, "TASK_LEASE_SECONDS", 0.05)
    slow, other, _ = await start_worker_that_reserved_all(tasks)
    monkeypatch.setattr(claimed_fleet_task, "TASK_LEASE_SECONDS", 3600.0)
    await slow.renew_lease()
    end_of_first_lease = time.monotonic() + 0.06
    while time.monotonic() < end_of_first_lease:
        await other.begin_requests()
        assert other.requests == 0


async def test_what_a_worker_reserved_returns_when_its_requests_have_ended(
    tasks: FleetTaskList,
) -> None:
    """It need not begin another step for that: it may have nothing more to do."""
    idle, other, _ = await start_worker_that_reserved_all(tasks)
    await tasks.notes.set_limit("workspace", (2 + TASKS_OF_WORKER) * REQUEST_COST)
    idle.end_requests()
    await idle.end_tasks(tasks)
    await idle.renew_lease()
    await other.begin_requests()
    assert other.requests == 1


async def start_worker_after_kill(tasks: FleetTaskList, name: str) -> SpendingWorker:
    """Start a worker that takes up the tasks of one that was killed on this computer."""
    process = name.removeprefix("desk ").partition(".")[0]
    await tasks.release_orphaned_tasks(process)
    claimed = await tasks.claim_fleet_tasks(name, TASKS_OF_WORKER, 3600.0)
    assert len(claimed) == TASKS_OF_WORKER
    worker = SpendingWorker(tasks, name, claimed)
    worker.least_cost = REQUEST_COST
    return worker


async def start_worker_for_all_tasks(tasks: FleetTaskList) -> SpendingWorker:
    orders = [NewFleetTask(FleetTaskOrder(f"task {n}", "bob")) for n in range(TASKS_OF_WORKER)]
    await tasks.add_fleet_tasks(orders)
    return await start_worker_after_kill(tasks, WORKERS[0])


async def test_requests_that_kills_cut_off_are_charged_once(tasks: FleetTaskList) -> None:
    killed = await start_worker_for_all_tasks(tasks)
    await tasks.notes.set_limit("workspace", 100 * REQUEST_COST)
    await killed.begin_requests()
    killed.end_requests()  # Now it knows what a request costs.
    await killed.begin_requests()
    assert killed.requests == 1 + TASKS_OF_WORKER
    next_worker = await start_worker_after_kill(tasks, WORKERS[1])
    next_worker.read_conversations(killed)
    for _ in range(2):
        await next_worker.begin_requests()
        next_worker.end_requests()
    state = await tasks.notes.read_state()
    assert state.spent["estimated"] == TASKS_OF_WORKER * REQUEST_COST
    await next_worker.renew_lease()
    state = await tasks.notes.read_state()
    charged = (killed.requests + next_worker.requests) * REQUEST_COST
    assert [state.spent[scope] for scope in ("workspace", "day", "fleet")] == [charged] * 3
    assert state.requests == ()


async def test_requests_that_a_kill_cut_off_count_before_anybody_takes_up_their_tasks(
    tasks: FleetTaskList,
) -> None:
    _, living, _ = await start_worker_that_reserved_all(tasks, least_cost=REQUEST_COST)
    await tasks.release_orphaned_tasks("2")
    await living.begin_requests()
    assert living.requests == 0


async def test_a_request_whose_cost_was_recorded_before_the_kill_is_not_estimated(
    tasks: FleetTaskList,
) -> None:
    killed = await start_worker_for_all_tasks(tasks)
    await tasks.notes.set_limit("workspace", 100 * REQUEST_COST)
    await killed.begin_requests()
    next_worker = await start_worker_after_kill(tasks, WORKERS[1])
    next_worker.read_conversations(killed, REQUEST_COST)
    await next_worker.begin_requests()
    assert "estimated" not in (await tasks.notes.read_state()).spent


async def test_workers_that_are_killed_again_and_again_keep_to_the_budget(
    tasks: FleetTaskList,
) -> None:
    """Each exceeds it by one request at most, however many were under way at each kill."""
    number_of_requests = 20
    await tasks.notes.set_limit("workspace", number_of_requests * REQUEST_COST)
    worker = await start_worker_for_all_tasks(tasks)
    requests = 0
    for kill in range(1, 8):
        await worker.begin_requests()
        worker.end_requests()
        await worker.begin_requests()
        requests += worker.requests
        next_worker = await start_worker_after_kill(tasks, f"desk {kill + 1}.1")
        next_worker.read_conversations(worker)
        worker = next_worker
    assert number_of_requests <= requests <= number_of_requests + 1
