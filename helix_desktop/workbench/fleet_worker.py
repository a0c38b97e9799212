"""Works on the tasks of a workspace: claims them, runs several at once, keeps their
leases, and records what came of each.

A task's conversation has the task's id on every machine. A task is done when its
conversation in the shared store says so; the list of tasks follows.
"""

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, suppress
from enum import Enum
from functools import partial
from typing import Any

from helix_desktop import concurrency, errors
from helix_desktop.engine.message_queue import BUG
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import FleetTask, FleetTaskResult, FleetTaskState
from helix_desktop.store.shared.known_leases import seconds_since_start_of_computer
from helix_desktop.workbench import claimed_fleet_task
from helix_desktop.workbench.claimed_fleet_task import ClaimedFleetTask, LostFleetTask, TaskLease
from helix_desktop.workbench.fleet_step_gate import FleetStepGate
from helix_desktop.workbench.fleet_task_run import (
    GIVEN_BACK,
    FleetTaskOutcome,
    FleetTaskRun,
    WorkspaceIsClosing,
    outcome_of_error,
)
from helix_desktop.workbench.fleet_telemetry import FleetTelemetry
from helix_desktop.workbench.fleet_traces import trace_run
from helix_desktop.workbench.open_workbench import Workbench

log = logging.getLogger(__name__)
POLL_SECONDS = 0.7  # The worker looks for new tasks this often.
# The worker looks this often for conversations that it can remove from this disk.
RELEASE_SECONDS = 20.0
COUNT_SECONDS = 15.0  # For operators, tasks are counted this often.
NOTED_TROUBLE_SECONDS = 3 * COUNT_SECONDS  # So long it is shown of a worker that has died.
HISTORY_SECONDS = 3600.0  # The worker removes tasks that ended long ago this often.
DRAIN_SECONDS = 20.0  # Running tasks have this long to end. After that, other workers resume them.
# After a setback, this computer takes no task for so long, doubled with each further one.
REST_SECONDS = 2.0
LONGEST_REST_SECONDS = 60.0
# Besides, where computers share tasks: another one gets to try first what this one gave back.
ELSEWHERE_SECONDS = 5.0
_PROCESS = secrets.token_hex(3)  # A random part of the names of this process's workers.
_numbers = itertools.count(1)
Report = Callable[[FleetTask, FleetTaskState, FleetTaskResult], Awaitable[None]]


class ClaimAttempt(Enum):
    """What came of an attempt to claim tasks."""

    STARTED = "tasks were claimed"
    NONE_READY = "no task can run now"
    NOT_ALLOWED = "no task may be started: all is stopped, the budget is spent, or there is no room"
    UNKNOWN = "the list could not be read, or this computer rests"


class FleetWorker:
    """Works on a workspace's tasks until drained. `at_once`: how many run at the same time.
    `allowed`: what needs no permission, as in `ask --allow`.
    """

    def __init__(
        self, bench: Workbench, task_list: FleetTaskList, *, at_once: int, allowed: Collection[str]
    ) -> None:
        self._bench = bench
        self._list = task_list
        self._at_once = at_once
        self._allowed = frozenset(allowed)
        # The maximum number of conversations of ended tasks that stay on this disk, or
        # 0 for all.
        self.most_kept = 0
        self.tasks_may_allow = True  # False to ignore the permissions that tasks bring with them.
        self.report: Report | None = None  # Called with every task that ends or is given back.
        self._name = f"{bench.sharing.machine_name} {_PROCESS}.{next(_numbers)}"
        self._claimed: dict[asyncio.Task[None], ClaimedFleetTask] = {}
        self._owned = concurrency.OwnedTasks("worker")
        self._is_draining = asyncio.Event()
        self._drain_seconds = DRAIN_SECONDS
        self._gate = FleetStepGate(task_list.notes, self._name)
        self.telemetry: FleetTelemetry | None = None  # Where runs and counts are sent, if anywhere.
        self._setbacks = 0
        self._setbacks_in_a_row = 0
        self._has_noted_trouble = False
        self._rests_until = 0.0

    def spawn_beside_tasks(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Let something else run until the worker ends."""
        self._owned.spawn_task(work, name=name)

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Claim no more tasks, and give the running ones this many seconds to end."""
        self._drain_seconds = seconds
        self._is_draining.set()

    @property
    def must_release_workspace(self) -> bool:
        """Whether somebody else wants the workspace at once."""
        return not self._drain_seconds

    async def work_until_drained(
        self, *, until_empty: bool = False, may_end: Callable[[float], bool] = lambda _: False
    ) -> None:
        """Work until drained. `until_empty`: or until no task runs, and none waits that
        could run later by itself. `may_end`: whether to end after so many seconds
        without anything to do.
        """
        is_shared = self._bench.workspace.link is not None
        if not is_shared:  # No other process can have workers, so their tasks are orphaned.
            await self._list.release_orphaned_tasks(_PROCESS)
        await self._renew_worker_note()
        renewing = self._start_upkeep()
        try:
            await self._claim_until_drained(until_empty=until_empty, may_end=may_end)
            if self._claimed:
                await asyncio.wait(set(self._claimed), timeout=self._drain_seconds)
        finally:
            await self._give_back_tasks()
            renewing.cancel()
            await self._owned.aclose()
            with suppress(errors.HelixError):
                await self._gate.renew_reservation()  # For no request any more.
                await self._list.notes.remove_worker(self._name)
            if self.telemetry is not None:
                await asyncio.to_thread(self.telemetry.close)

    def _start_upkeep(self) -> asyncio.Task[None]:
        """Start what goes on besides the tasks, and return what renews their leases."""
        spawn = self._owned.spawn_task
        spawn(self._release_conversations_until_cancelled(), name="make room")
        spawn(self._remove_old_tasks_until_cancelled(), name="shorten history")
        spawn(self._note_counts_until_cancelled(), name="count for operators")
        return spawn(self._renew_until_cancelled(), name="renew leases of tasks")

    async def _claim_until_drained(
        self, *, until_empty: bool, may_end: Callable[[float], bool]
    ) -> None:
        """Claim tasks and start them, until drained or one of the conditions holds."""
        draining = self._owned.spawn_task(self._is_draining.wait(), name="drain")
        busy_at = time.monotonic()
        while not self._is_draining.is_set():
            attempt = await self._claim_and_start()
            if until_empty and await self._has_no_work(attempt):
                return
            if self._claimed or attempt is ClaimAttempt.STARTED:
                busy_at = time.monotonic()
            elif may_end(time.monotonic() - busy_at):
                return
            # Look again once a task has ended, or when it is time to look for new ones.
            awaited = {draining} | set(self._claimed)
            await asyncio.wait(awaited, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)

    async def _has_no_work(self, attempt: ClaimAttempt) -> bool:
        if self._claimed or attempt in (ClaimAttempt.STARTED, ClaimAttempt.UNKNOWN):
            return False
        if attempt is ClaimAttempt.NOT_ALLOWED:
            return True
        try:
            return await self._list.seconds_until_next_try() is None
        except errors.StoreFailed:
            return False

    async def _give_back_tasks(self) -> None:
        """Stop the tasks that still run and send them, so that other workers can resume them."""
        for claimed in self._claimed.values():
            claimed.must_be_given_back = True
            claimed.stop_turn()
        if self._claimed:
            await asyncio.wait(set(self._claimed), timeout=DRAIN_SECONDS)

    # --- Claiming tasks and keeping them

    async def _claim_and_start(self) -> ClaimAttempt:
        room = self._at_once
        for claimed in self._claimed.values():
            if not claimed.waiting:  # A task that waits for others takes no room meanwhile.
                room -= 1
        if room <= 0 or not self._bench.sharing.unsent.may_write_more_facts():
            return ClaimAttempt.NOT_ALLOWED
        if time.monotonic() < self._rests_until:
            return ClaimAttempt.UNKNOWN
        try:
            state = await self._list.notes.read_state()
            if state.is_stopped or state.dollars_left("") <= 0:
                return ClaimAttempt.NOT_ALLOWED
            # Before the call, so that the lease never seems longer here than in the store.
            claimed_at = seconds_since_start_of_computer()
            lease_seconds = claimed_fleet_task.TASK_LEASE_SECONDS
            tasks = await self._list.claim_fleet_tasks(self._name, room, lease_seconds)
        except errors.StoreFailed as error:
            log.info("no tasks can be claimed: %s", error.what)
            await asyncio.sleep(claimed_fleet_task.AWAY_SECONDS)
            return ClaimAttempt.UNKNOWN
        if not tasks:
            return ClaimAttempt.NONE_READY
        for task in tasks:
            self._start_task(task, claimed_at)
        return ClaimAttempt.STARTED

    def _start_task(self, task: FleetTask, claimed_at: float) -> None:
        deadline = 0.0
        if task.deadline_seconds:
            deadline = claimed_at + task.deadline_seconds
        held_until = claimed_at + claimed_fleet_task.TASK_LEASE_SECONDS
        claimed = ClaimedFleetTask(task, held_until, deadline)
        running = self._owned.spawn_task(self._run_claimed_task(claimed), name=f"task {task.id}")
        self._claimed[running] = claimed
        running.add_done_callback(lambda ended: self._claimed.pop(ended, None))

    async def _renew_until_cancelled(self) -> None:
        while True:
            await asyncio.sleep(claimed_fleet_task.TASK_LEASE_SECONDS / 6)
            with suppress(errors.HelixError):  # If this fails, tasks wait before their next step.
                await self._renew_leases()
                await self._renew_worker_note()
                await self._gate.renew_reservation()

    async def _renew_worker_note(self) -> None:
        """Show others that this worker lives, and drain it if it has been told to stop."""
        lease_seconds = claimed_fleet_task.TASK_LEASE_SECONDS
        notes = self._list.notes
        if await notes.renew_worker_and_tell_if_draining(self._name, lease_seconds):
            self.drain()

    async def _renew_leases(self) -> None:
        all_claimed = list(self._claimed.values())
        renewed_at = seconds_since_start_of_computer()
        lease_seconds = claimed_fleet_task.TASK_LEASE_SECONDS
        renewed_ids = await self._list.renew_leases_of_tasks(
            [claimed.task for claimed in all_claimed], lease_seconds
        )
        for claimed in all_claimed:
            is_late = claimed.deadline and renewed_at >= claimed.deadline
            if is_late:
                claimed.stop_turn()
            if claimed.lease is not TaskLease.HELD:
                continue
            if claimed.task.id in renewed_ids:
                claimed.extend_lease(renewed_at + lease_seconds)
            else:
                claimed.lose_lease(to_another=await self._is_taken_by_another(claimed.task))

    async def _is_taken_by_another(self, task: FleetTask) -> bool:
        try:
            task_in_list = await self._list.find_fleet_task(task.id)
        except errors.NotFound:
            return False
        return task_in_list.claims > task.claims

    # --- Running a task

    async def _run_claimed_task(self, claimed: ClaimedFleetTask) -> None:
        task = claimed.task
        task_permissions: tuple[str, ...] = ()
        if self.tasks_may_allow:
            task_permissions = task.order.allowed
        run = FleetTaskRun(
            self._bench,
            self._list.notes,
            self._gate,
            claimed,
            worker_permissions=self._allowed,
            task_permissions=task_permissions,
            owned=self._owned,
        )
        try:
            outcome = await self._run_while_claimed(run, claimed)
        except LostFleetTask:
            log.info("task %s went to another worker, or was cancelled", task.id)
            return
        except errors.HelixError as error:  # Its end could not be recorded.
            outcome = outcome_of_error(error)
            await self._list.give_back_after_setback(task, outcome.result)
            log.warning("task %s is given back: %s", task.id, error)
        except Exception:  # A bug: never retry such a task.
            await self._list.end_fleet_task(task, FleetTaskState.FAILED, FleetTaskResult(BUG))
            raise
        self._rest_after_setback(outcome)

    async def _run_while_claimed(
        self, run: FleetTaskRun, claimed: ClaimedFleetTask
    ) -> FleetTaskOutcome:
        """Run the task while all steps of its conversation check the claim, and record
        what came of it.
        """
        task = claimed.task
        holding = self._bench.claims.hold_claim(task.id, run.build_claim())
        async with holding, AsyncExitStack() as closing:
            # Afterwards, in the other order: the request is over before the session closes.
            closing.push_async_callback(self._bench.sessions.close_sessions, [task.id])
            closing.callback(run.end_last_request)
            try:
                outcome = await run.run_task()
            except WorkspaceIsClosing:
                self.drain(seconds=0.0)
                outcome = FleetTaskOutcome(FleetTaskState.WAITING, FleetTaskResult(GIVEN_BACK))
            record = partial(self._record_outcome, task, outcome)
            state = await claimed.retry_while_held(record)
            self._send_trace(run, claimed)
        log.info("task %s is %s", task.id, state.value)
        if self.report is not None:
            await self.report(task, state, outcome.result)
        return outcome

    async def _record_outcome(self, task: FleetTask, outcome: FleetTaskOutcome) -> FleetTaskState:
        if not outcome.is_setback:
            await self._list.end_fleet_task(task, outcome.state, outcome.result)
            return outcome.state
        new_state = await self._list.give_back_after_setback(task, outcome.result)
        if new_state is None:  # Somebody else has the task by now.
            return outcome.state
        return new_state

    def _rest_after_setback(self, outcome: FleetTaskOutcome) -> None:
        """Leave tasks to other computers for a while, since this one's disk may be full
        or its network gone, and each task would only be given back again.
        """
        if not outcome.is_setback:
            self._setbacks_in_a_row = 0
            return
        # The exponent is bounded, as a very large one is no number any more.
        doublings = min(self._setbacks_in_a_row, 10)
        pause_seconds = min(REST_SECONDS * 2.0**doublings, LONGEST_REST_SECONDS)
        if self._list.is_shared:
            pause_seconds += ELSEWHERE_SECONDS
        self._setbacks += 1
        self._setbacks_in_a_row += 1
        self._rests_until = time.monotonic() + pause_seconds

    # --- What operators see

    def _send_trace(self, run: FleetTaskRun, claimed: ClaimedFleetTask) -> None:
        if self.telemetry is None:
            return
        span = trace_run(claimed.task, run.list_recorded_facts())
        if span is not None:
            self.telemetry.send_span(span)

    async def _note_counts_until_cancelled(self) -> None:
        while True:
            with suppress(errors.HelixError):
                unsent_facts = await self._bench.sharing.count_facts_not_sent()
                await self._note_trouble(unsent_facts)
                await self._note_counts_for_collector(unsent_facts)
            await asyncio.sleep(COUNT_SECONDS)

    async def _note_trouble(self, unsent_facts: int) -> None:
        """Let `fleet status` show it on every computer, if there is any, or was just now."""
        has_trouble = bool(self._setbacks or unsent_facts)
        if has_trouble or self._has_noted_trouble:
            await self._list.notes.note_trouble_of_worker(
                self._name,
                setbacks=self._setbacks,
                unsent_facts=unsent_facts,
                seconds=NOTED_TROUBLE_SECONDS,
            )
        self._has_noted_trouble = has_trouble

    async def _note_counts_for_collector(self, unsent_facts: int) -> None:
        if self.telemetry is None:
            return
        counts = await self._list.count_fleet_tasks()
        state = await self._list.notes.read_state()
        oldest_seconds = await self._list.oldest_waiting_seconds()
        other_amounts = {
            "helix.tasks.oldest_waiting": oldest_seconds,
            "helix.tasks.setbacks": self._setbacks,
            "helix.facts.unsent": unsent_facts,
        }
        self.telemetry.note_counts(counts, state, other_amounts)

    # --- What is removed after a while

    async def _remove_old_tasks_until_cancelled(self) -> None:
        while True:
            with suppress(errors.HelixError):
                await self._list.remove_old_tasks(self._bench.task_retention)
            await asyncio.sleep(HISTORY_SECONDS)

    async def _release_conversations_until_cancelled(self) -> None:
        while self.most_kept:
            await asyncio.sleep(RELEASE_SECONDS)
            with suppress(errors.HelixError):
                await self.release_old_conversations()

    async def release_old_conversations(self) -> None:
        """Remove the oldest ended tasks' conversations from this disk once there are
        1.5 times `most_kept`. Otherwise each ended task would cause a removal.
        """
        limit = self.most_kept * 3 // 2
        rows = self._bench.list_conversations()
        if len(rows) < limit:
            return
        task_ids = [row.id for row in rows if not row.parent]
        ended_ids = await self._list.filter_ended_tasks(task_ids)
        if len(ended_ids) < limit:
            return

        old_ids = set(ended_ids[self.most_kept :])
        # The conversations of their sub-agents go too, and of those sub-agents' own.
        parents = old_ids
        while parents:
            children = {row.id for row in rows if row.parent in parents}
            parents = children - old_ids
            old_ids = old_ids | children
        await self._bench.release_unused_conversations(old_ids)
