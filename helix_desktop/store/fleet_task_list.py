"""The list of a workspace's tasks: which worker has which, for how long, and what came of each.

A claim is a lease by the database's clock, with a number that grows: a worker with an
old number can change nothing. A standby that took over may lack the last claims, so the
list grants none for a while, in which live workers renew theirs.

Which of the tasks that can run is next, and when one that was given back may be tried
again, is up to a queue (`task_queue`). The list tells it when a task can run: when it is
added, or when the last task that it waits for is done. Each change of both is one
transaction.

Claiming must not slow down as the list grows. So a task that ends leaves the table of
live tasks in the same transaction, how many needs of a task are open is counted when a
need ends, and the database keeps the counts.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from helix_desktop.engine.conversation import new_conversation_id
from helix_desktop.errors import InvalidInput, NotFound, SharedStoreUnreachable
from helix_desktop.store.fleet_statements import (
    Rows,
    RunInTransaction,
    SqlDialect,
    Statement,
    TableTransaction,
)
from helix_desktop.store.fleet_task_history import FleetTaskHistory
from helix_desktop.store.fleet_task_needs import IdentifiedTask, sort_needed_tasks_first
from helix_desktop.store.fleet_tasks import (
    ENDED,
    UNREADABLE,
    FleetTask,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.task_queue import QueueCounts, QueuedTask, TaskQueue

LATE_SECONDS = 5.0  # Tasks whose deadline has passed are looked for this often.
# A task that may be the cause of its workers' ends is not tried for ever.
MOST_LOST_WORKERS = 20
MOST_SETBACKS = 30
FIRST_PAUSE_SECONDS = 2.0  # After the first setback. It doubles with each further one.
LONGEST_PAUSE_SECONDS = 900.0
# What a worker took but may not claim is taken again after so long: another one may have it.
CLAIMED_ELSEWHERE_SECONDS = 5.0
TASKS_IN_CALL = 250  # One transaction adds at most this many tasks.
TOO_LATE = FleetTaskResult("The task did not start before its deadline.")


def pause_after_setbacks(setbacks: int) -> float:
    """Return for how many seconds a task waits that was given back so often."""
    # The exponent is bounded, as a very large one is no number any more.
    doublings = min(setbacks - 1, 20)
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**doublings)


class FleetTaskList(FleetTaskHistory):
    """The tasks of one workspace. `queue` hands out those that can run."""

    def __init__(
        self,
        run_in_transaction: RunInTransaction,
        dialect: SqlDialect,
        queue: TaskQueue,
        space: bytes = b"",
        seal: RowCipher | None = None,
    ) -> None:
        super().__init__(run_in_transaction, dialect, space, seal)
        self._queue = queue
        self._looked_for_late = 0.0

    # --- Adding tasks

    async def add_fleet_tasks(self, wanted: Sequence[NewFleetTask]) -> list[str]:
        """Add tasks and return their ids in order. A task with a known key is not added again."""
        tasks = await self._identify_tasks(wanted)
        first_by_id: dict[str, IdentifiedTask] = {}
        for task in tasks:
            first_by_id.setdefault(task.id, task)  # The same key twice is one task.
        await self.add_identified_tasks(list(first_by_id.values()))
        return [task.id for task in tasks]

    async def add_identified_tasks(self, tasks: Sequence[IdentifiedTask]) -> None:
        """Add these tasks, of which none is added again that is in the list already."""
        in_order = sort_needed_tasks_first(tasks)
        for start in range(0, len(in_order), TASKS_IN_CALL):
            await self._add_in_one_transaction(in_order[start : start + TASKS_IN_CALL])

    async def remove_moved_tasks(self, ids: Sequence[str]) -> None:
        """Remove tasks that are in another list now, without a trace in the history."""
        statements = []
        for task in ids:
            statements.append(self._statement("remove_moved", self._space, task))
            statements.append(self._statement("remove_needs_of_moved", self._space, task))
        await self._run_statements(statements)

    async def _add_in_one_transaction(self, tasks: Sequence[IdentifiedTask]) -> None:
        looks = [self._statement("ready", self._space, task.id) for task in tasks]

        def add_to_list(transaction: TableTransaction) -> None:
            open_needs = self._add_needs(transaction, tasks)
            insertions: list[Statement] = []
            for task in tasks:
                insertions.append(self._build_insert_statement(task, open_needs[task.id]))
            transaction.run_all(insertions)
            cancelled: list[str] = []
            for task in tasks:
                cancelled += self._cancel_if_hopeless(transaction, task.id, task.needs)
            self._follow_cancelled_tasks(transaction, cancelled)
            ready: Rows = []
            for rows in transaction.run_all(looks):
                ready += rows
            self._add_to_queue(transaction, ready)

        await self._run_in_transaction(add_to_list)

    def _add_needs(
        self, transaction: TableTransaction, tasks: Sequence[IdentifiedTask]
    ) -> Counter[str]:
        """Note what tasks that will be added wait for, and return how many needs each has."""
        space = self._space
        statements: list[Statement] = []
        for task in tasks:
            for need in task.needs:
                known = (space, task.id, space, task.id, need)
                statements.append(self._statement("hold_need", space, need))
                statements.append(self._statement("add_need", space, task.id, need, *known))
        holding_and_adding = transaction.run_all(statements)
        open_needs = Counter[str]()
        for added_rows in holding_and_adding[1::2]:
            for (task_id,) in added_rows:
                open_needs[task_id] += 1
        return open_needs

    async def _identify_tasks(self, wanted: Sequence[NewFleetTask]) -> list[IdentifiedTask]:
        """Give each task an id, and find the ids of the tasks that it waits for, which may
        be named by an id or a key, and may be among the wanted ones.
        """
        new_tasks_by_id: list[tuple[str, NewFleetTask]] = []
        id_by_name: dict[str, str] = {}
        for new_task in wanted:
            if new_task.key:
                task_id = self.task_id_of_key(new_task.key)
                id_by_name[new_task.key] = task_id
            else:
                task_id = new_conversation_id()
            id_by_name[task_id] = task_id
            new_tasks_by_id.append((task_id, new_task))

        identified_tasks: list[IdentifiedTask] = []
        for task_id, new_task in new_tasks_by_id:
            needed_ids: list[str] = []
            for name in new_task.after:
                if name not in id_by_name:
                    id_by_name[name] = await self._find_needed_task_id(name)
                needed_ids.append(id_by_name[name])
            identified_tasks.append(IdentifiedTask(task_id, tuple(needed_ids), new_task))
        return identified_tasks

    async def _find_needed_task_id(self, need: str) -> str:
        """Return the id of the task with this id or key."""
        for name in (need, self.task_id_of_key(need)):
            with suppress(InvalidInput, NotFound):
                task = await self.find_fleet_task(name)
                return task.id
        raise NotFound(
            f"There is no task {need} in this workspace.", remedy="`task list` shows the tasks."
        )

    def _build_insert_statement(self, task: IdentifiedTask, open_needs: int) -> Statement:
        space = self._space
        late = max(0.0, task.new.deadline_seconds)
        order = self._codec.encode_order(task.id, task.new.order)
        result = self._codec.encode_result(task.id, FleetTaskResult())
        values = (space, task.id, task.new.priority, late, late, order, result, open_needs)
        return self._statement("add", *values, space, task.id)

    def _cancel_if_hopeless(
        self, transaction: TableTransaction, task: str, needs: Sequence[str]
    ) -> list[str]:
        """Cancel a task if it waits for one that has failed. Return its id if so."""
        space = self._space
        statements = []
        for need in needs:
            values = (space, task, space, task, need, space, need)
            statements.append(self._statement("cancel_hopeless", *values))
        cancelled: list[str] = []
        for rows in transaction.run_all(statements):
            cancelled += [task_id for (task_id,) in rows]
        return cancelled

    def task_id_of_key(self, key: str) -> str:
        """Return the id for a key. It is the same on all machines of the workspace and
        does not reveal the key.
        """
        name = key.encode()
        if self._seal is not None:
            name = self._seal.keyed_row_name("task key", name)
        # As long as the id of a conversation, which it is too.
        return hashlib.sha256(b"task key\0" + name).hexdigest()[:20]

    # --- Claiming tasks and keeping them

    async def claim_fleet_tasks(self, worker: str, limit: int, seconds: float) -> list[FleetTask]:
        """Claim up to `limit` tasks that are free or whose lease ended. Refuses for a
        while after a standby took over.
        """

        def claim_rows(transaction: TableTransaction) -> Rows | None:
            return self._claim_in_transaction(transaction, worker, limit, seconds)

        rows = await self._run_in_transaction(claim_rows)
        if rows is None:
            raise SharedStoreUnreachable(
                "A standby server of the shared store has just taken over.",
                remedy="Workers resume in a moment.",
            )
        if not rows or time.monotonic() > self._looked_for_late + LATE_SECONDS:
            await self._fail_late_tasks()
        claimed = []
        for row in rows:
            task = self._codec.decode_row(row)
            if task.result is UNREADABLE:
                await self._end_unless_ended(task.id, FleetTaskState.FAILED, UNREADABLE)
            else:
                claimed.append(task)
        return sorted(claimed, key=lambda task: (-task.priority, task.added))

    def _claim_in_transaction(
        self, transaction: TableTransaction, worker: str, limit: int, seconds: float
    ) -> Rows | None:
        """Return the rows of the claimed tasks, or None if a standby has just taken over."""
        space = self._space
        most_lost = MOST_LOST_WORKERS
        statements = self.notes.build_failover_statements()
        statements.append(self.notes.build_stop_question())
        statements.append(self._statement("overdue", most_lost, most_lost, space))
        _, failover_rows, stop_rows, overdue = transaction.run_all(statements)
        # The first time, a lost worker's tasks have already waited for the lease to end.
        self._return_to_queue(transaction, overdue, free_setbacks=1)
        if failover_rows:
            return None
        if stop_rows:
            return []

        claimed: Rows = []
        for task in self._queue.pop_tasks(transaction, limit):
            lease = (worker, float(seconds), space, task)
            (claimed_rows,) = transaction.run_all([self._statement("claim", *lease)])
            claimed += claimed_rows
            if not claimed_rows:
                self._queue.give_back_task(transaction, task, CLAIMED_ELSEWHERE_SECONDS)
        return claimed

    async def return_overdue_tasks(self) -> None:
        """Let the tasks of lost workers be taken again, whose leases nobody renewed."""
        most_lost = MOST_LOST_WORKERS
        overdue = self._statement("overdue", most_lost, most_lost, self._space)

        def return_rows(transaction: TableTransaction) -> None:
            (rows,) = transaction.run_all([overdue])
            self._return_to_queue(transaction, rows, free_setbacks=1)

        await self._run_in_transaction(return_rows)

    def _return_to_queue(
        self, transaction: TableTransaction, tasks: Rows, free_setbacks: int = 0
    ) -> None:
        """Let tasks be taken again after a pause, unless they have been given back too
        often. After so many `free_setbacks` there is no pause.
        """
        for task, state, setbacks in tasks:
            if state == FleetTaskState.DEAD_LETTER:
                self._queue.set_task_aside(transaction, task)
                continue
            pause = 0.0
            if setbacks > free_setbacks:
                pause = pause_after_setbacks(setbacks)
            self._queue.give_back_task(transaction, task, pause)

    async def _fail_late_tasks(self) -> None:
        self._looked_for_late = time.monotonic()
        late_rows = await self._query_tasks("late", self._space)
        for (task,) in late_rows:
            await self._end_unless_ended(task, FleetTaskState.FAILED, TOO_LATE)

    async def release_orphaned_tasks(self, process: str) -> None:
        """Release tasks that no worker of this process has, and what the ended workers had
        reserved of a budget. Only safe if no other process can have them.
        """
        most_lost = MOST_LOST_WORKERS
        # A worker is named by its machine, its process and a number: "desk 1a2b3c.1".
        workers_of_process = f"% {process}.%"
        release = self._statement("release", most_lost, most_lost, self._space, workers_of_process)
        release_reservations = self.notes.build_release_of_reservations(workers_of_process)

        def release_rows(transaction: TableTransaction) -> None:
            released, _ = transaction.run_all([release, release_reservations])
            self._return_to_queue(transaction, released, free_setbacks=most_lost)

        await self._run_in_transaction(release_rows)

    async def renew_leases_of_tasks(
        self, tasks: Sequence[FleetTask], seconds: float
    ) -> frozenset[str]:
        """Renew these leases for so long. Return the tasks that this worker still has."""
        statements = []
        for task in tasks:
            lease = (task.worker, task.claims, float(seconds), self._space, task.id)
            guard = (task.claims, task.worker, task.claims)
            statements.append(self._statement("renew", *lease, *guard))
        renewed_ids: set[str] = set()
        for rows in await self._run_statements(statements):
            renewed_ids.update(task_id for (task_id,) in rows)
        return frozenset(renewed_ids)

    # --- Giving tasks back and ending them

    async def end_fleet_task(
        self, task: FleetTask, state: FleetTaskState, result: FleetTaskResult
    ) -> bool:
        """Record a claimed task's result, or give it back as waiting. Return False if
        somebody else has it.
        """
        sealed = self._codec.encode_result(task.id, _keep_cost_so_far(result, task))
        lease = (self._space, task.id, task.claims, task.worker)
        charges = self.notes.charge_statements(task.id, task.claims, task.order.agent, result.cost)
        ending = self._statement("end", state.value, sealed, *lease)

        def end_row(transaction: TableTransaction) -> bool:
            *_, ended = transaction.run_all(charges + [ending])
            if not ended:
                return False
            if state is FleetTaskState.WAITING:
                self._queue.give_back_task(transaction, task.id, 0.0)
            elif state is FleetTaskState.NEEDS_YOU:
                self._queue.finish_tasks(transaction, [task.id])
            else:
                self._follow_ended_task(transaction, task.id, state)
            return True

        return await self._run_in_transaction(end_row)

    async def give_back_after_setback(
        self, task: FleetTask, result: FleetTaskResult
    ) -> FleetTaskState | None:
        """Let the task be tried again after a while, because of something that may pass.
        After `MOST_SETBACKS`, it waits for a person instead.

        Return the task's state, or None if somebody else has it.
        """
        sealed = self._codec.encode_result(task.id, _keep_cost_so_far(result, task))
        lease = (self._space, task.id, task.claims, task.worker)
        charges = self.notes.charge_statements(task.id, task.claims, task.order.agent, result.cost)
        giving_back = self._statement("give_back", MOST_SETBACKS, sealed, *lease)

        def give_back_row(transaction: TableTransaction) -> Rows:
            *_, given_back = transaction.run_all(charges + [giving_back])
            self._return_to_queue(transaction, given_back)
            return given_back

        given_back = await self._run_in_transaction(give_back_row)
        if not given_back:
            return None
        ((_task, state, _setbacks),) = given_back
        return FleetTaskState(state)

    # What follows names each task by its id. Conditions that find tasks by their state
    # made PostgreSQL read all tasks of the workspace for each of them, where another
    # workspace of the same store was there first and the statistics were about that one.

    def _follow_ended_task(
        self, transaction: TableTransaction, task: str, state: FleetTaskState
    ) -> None:
        """Do what follows once a task has ended: tell the tasks that wait for it, and
        move it to the history.
        """
        if state is FleetTaskState.DONE:
            self._count_met_need(transaction, task)
            self._move_to_history(transaction, [task])
        elif state in ENDED:
            self._follow_cancelled_tasks(transaction, [task])

    def _count_met_need(self, transaction: TableTransaction, need: str) -> None:
        """Let the tasks run that waited for this one alone."""
        space = self._space
        (dependant_rows,) = transaction.run_all([self._statement("remove_met_need", space, need)])
        counting: list[Statement] = []
        for (dependant,) in dependant_rows:
            counting.append(self._statement("count_met_need", space, dependant))
        ready: Rows = []
        for rows in transaction.run_all(counting):
            for task, priority, open_needs in rows:
                if open_needs == 0:
                    ready.append((task, priority))
        self._add_to_queue(transaction, ready)

    def _follow_cancelled_tasks(
        self, transaction: TableTransaction, cancelled: Sequence[str]
    ) -> None:
        """Cancel the tasks that wait for these, those that wait for them in turn, and so
        on, and move all to the history.
        """
        all_cancelled = list(cancelled)
        newly_cancelled = list(cancelled)
        while newly_cancelled:
            newly_cancelled = self._cancel_dependants(transaction, newly_cancelled)
            all_cancelled += newly_cancelled
        self._move_to_history(transaction, all_cancelled)

    def _cancel_dependants(self, transaction: TableTransaction, needs: Sequence[str]) -> list[str]:
        """Cancel the tasks that wait for any of these, and return their ids."""
        space = self._space
        looks = [self._statement("dependants", space, need) for need in needs]
        dependants: set[str] = set()
        for rows in transaction.run_all(looks):
            dependants.update(task for (task,) in rows)
        cancelling = [
            self._statement("cancel_dependant", space, task) for task in sorted(dependants)
        ]
        cancelled: list[str] = []
        for rows in transaction.run_all(cancelling):
            cancelled += [task for (task,) in rows]
        return cancelled

    def _move_to_history(self, transaction: TableTransaction, tasks: Sequence[str]) -> None:
        if not tasks:
            return
        self._queue.finish_tasks(transaction, tasks)
        statements = []
        for task in tasks:
            statements.append(self._statement("keep_ended", self._space, task))
            statements.append(self._statement("remove_ended", self._space, task))
        transaction.run_all(statements)

    def _add_to_queue(self, transaction: TableTransaction, rows: Rows) -> None:
        if rows:
            self._queue.add_tasks(transaction, [QueuedTask(*row) for row in rows])

    async def seconds_until_next_try(self) -> float | None:
        """Return when the next task that was given back may be tried again, or None if
        none waits for that.
        """
        return await self._run_in_transaction(self._queue.seconds_until_next_task)

    async def count_queued_tasks(self) -> QueueCounts:
        """Return what the queue knows of. It differs from the list by the tasks that cannot run."""
        return await self._run_in_transaction(self._queue.count_tasks)

    async def pause_all_tasks(self) -> int:
        """Make running tasks wait, and let none be claimed until `resume_all_tasks`.
        Return how many tasks ran.
        """
        stop = self.notes.build_stop_statement(is_stopped=True)
        pausing = self._statement("pause", self._space)

        def pause_running_tasks(transaction: TableTransaction) -> int:
            _, paused = transaction.run_all([stop, pausing])
            for (task,) in paused:
                self._queue.give_back_task(transaction, task, 0.0)
            return len(paused)

        return await self._run_in_transaction(pause_running_tasks)

    async def resume_all_tasks(self) -> None:
        await self._run_statements([self.notes.build_stop_statement(is_stopped=False)])

    async def cancel_fleet_task(self, task: str) -> bool:
        """Cancel a task, whose worker stops at its next step. Return False if the task
        has already ended.
        """
        return await self._end_unless_ended(
            task, FleetTaskState.CANCELLED, FleetTaskResult("The task was cancelled.")
        )

    async def _end_unless_ended(
        self, task: str, state: FleetTaskState, result: FleetTaskResult
    ) -> bool:
        kept_result = result
        with suppress(InvalidInput, NotFound):  # No such task is found by its id.
            task_now = await self.find_fleet_task(task)
            kept_result = _keep_cost_so_far(result, task_now)
        sealed = self._codec.encode_result(task, kept_result)
        ending = self._statement("cancel", state.value, sealed, self._space, task)

        def end_row(transaction: TableTransaction) -> bool:
            (rows,) = transaction.run_all([ending])
            if rows:
                self._follow_ended_task(transaction, task, state)
            return bool(rows)

        return await self._run_in_transaction(end_row)

    async def retry_fleet_task(self, task: FleetTask, allowed: Sequence[str] = ()) -> bool:
        """Let a task go on without a deadline, with more permissions. Return False if it cannot."""
        if task.result is UNREADABLE:
            return False
        all_allowed = list(task.order.allowed)
        for permission in allowed:
            if permission not in all_allowed:
                all_allowed.append(permission)
        new_order = replace(task.order, allowed=tuple(all_allowed))
        sealed = self._codec.encode_order(task.id, new_order)
        space = self._space
        statements = [
            self._statement("retry_live", sealed, space, task.id),
            self._statement("retry_ended", sealed, space, task.id),
            self._statement("remove_retried", space, task.id, space, task.id),
            self._statement("needs_of_task", space, task.id),
        ]

        def retry_rows(transaction: TableTransaction) -> bool:
            live, ended, _, need_rows = transaction.run_all(statements)
            needs = [need for (need,) in need_rows]
            cancelled = self._cancel_if_hopeless(transaction, task.id, needs)
            self._follow_cancelled_tasks(transaction, cancelled)
            if not live and not ended:
                return False
            (ready,) = transaction.run_all([self._statement("ready", space, task.id)])
            if live:
                self._queue.give_back_task(transaction, task.id, 0.0)
            else:
                self._add_to_queue(transaction, ready)
            return True

        return await self._run_in_transaction(retry_rows)

    async def retry_dead_letters(self) -> int:
        """Let all tasks be tried again that were given back too often. Return their number."""

        def retry_rows(transaction: TableTransaction) -> int:
            (rows,) = transaction.run_all([self._statement("retry_dead_letters", self._space)])
            for (task,) in rows:
                self._queue.give_back_task(transaction, task, 0.0)
            return len(rows)

        return await self._run_in_transaction(retry_rows)


def _keep_cost_so_far(result: FleetTaskResult, task: FleetTask) -> FleetTaskResult:
    """Return the result with what the task had cost before, if it does not say more itself: whoever
    cancels a task, or could not run it, does not know what was paid.
    """
    if task.result is UNREADABLE or result is UNREADABLE or result.cost >= task.result.cost:
        return result
    return replace(result, cost=task.result.cost)
