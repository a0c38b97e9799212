"""The list of a workspace's tasks: which worker has which, for how long, and what came of each.

A claim is a lease by the database's clock, with a number that grows: a worker with an
old number can change nothing. A standby that took over may lack the last claims, so the
list grants none for a while, in which live workers renew theirs.

Claiming must not slow down as the list grows. So a task that ends leaves the table of
live tasks in the same transaction, how many needs of a task are open is counted when a
need ends, and the database keeps the counts. The same statements run in SQLite, for one
computer, and in PostgreSQL, where the content of tasks is encrypted like all rows.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from helix_desktop.engine.conversation import new_conversation_id
from helix_desktop.errors import AmbiguousName, InvalidInput, NotFound, SharedStoreUnreachable
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_sql_statements
from helix_desktop.store.fleet_notes import FleetNotes
from helix_desktop.store.fleet_statements import Rows, RunStatements, SqlDialect, Statement
from helix_desktop.store.fleet_task_encoding import (
    COLUMNS,
    ENDED_COLUMNS,
    FleetTaskCodec,
)
from helix_desktop.store.fleet_tasks import (
    ENDED,
    UNREADABLE,
    FleetTask,
    FleetTaskCounts,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.store.shared.row_encryption import RowCipher

LATE_SECONDS = 5.0  # Tasks whose deadline has passed are looked for this often.
# A task that may be the cause of its workers' ends is not tried for ever.
MOST_LOST_WORKERS = 20
MOST_SETBACKS = 30
ELSEWHERE_SECONDS = 5.0  # Other computers may take a task first that this one gave back.
TASKS_IN_CALL = 250  # One transaction adds at most this many tasks.
KEPT_SECONDS = 90 * 86_400.0
KEPT_TASKS = 1_000_000
REMOVED_AT_ONCE = 1_000
LISTED_AT_ONCE = 500
_NEWEST = 1 << 62
# In seconds, doubled with each setback, up to a quarter of an hour.
_PAUSE = "CASE WHEN setbacks < 9 THEN 2 << setbacks ELSE 900 END"


def _read_statements() -> dict[str, str]:
    tokens = {"{columns}": COLUMNS, "{ended_columns}": ENDED_COLUMNS, "{pause}": _PAUSE}
    statements = dict(read_sql_statements("fleet_task_statements"))
    for name, text in statements.items():
        filled = text
        for token, value in tokens.items():
            filled = filled.replace(token, value)
        statements[name] = filled
    return statements


_SQL = _read_statements()
TOO_LATE = FleetTaskResult("The task did not start before its deadline.")


@dataclass(frozen=True, slots=True)
class _IdentifiedTask:
    """A task to add, with its id and the ids of the tasks that it waits for."""

    id: str
    needs: tuple[str, ...]
    new: NewFleetTask


class FleetTaskList:
    """The tasks of one workspace. `run_statements` runs one transaction; `seal`
    encrypts tasks' content.
    """

    def __init__(
        self,
        run_statements: RunStatements,
        dialect: SqlDialect,
        space: bytes = b"",
        seal: RowCipher | None = None,
    ) -> None:
        self._run_statements = run_statements
        self._dialect = dialect
        self._space = space
        self._seal = seal
        self._codec = FleetTaskCodec(seal)
        self.is_shared = seal is not None
        self._looked_for_late = 0.0
        self.notes = FleetNotes(run_statements, dialect, space)

    # --- Adding tasks

    async def add_fleet_tasks(self, wanted: Sequence[NewFleetTask]) -> list[str]:
        """Add tasks and return their ids in order. A task with a known key is not added again."""
        tasks = await self._identify_tasks(wanted)
        in_order = _needed_tasks_first(tasks)
        for start in range(0, len(in_order), TASKS_IN_CALL):
            statements: list[Statement] = []
            for task in in_order[start : start + TASKS_IN_CALL]:
                statements += self._build_insert_statements(task)
            await self._run_statements(statements + self._build_statements_after_end())
        return [task.id for task in tasks]

    async def _identify_tasks(self, wanted: Sequence[NewFleetTask]) -> list[_IdentifiedTask]:
        ids = [self.task_id_of_key(new.key) if new.key else new_conversation_id() for new in wanted]
        id_by_name = {task_id: task_id for task_id in ids}
        for new, task_id in zip(wanted, ids, strict=True):
            id_by_name[new.key] = task_id
        needed_names = {name for new in wanted for name in new.after}
        for name in needed_names - id_by_name.keys():
            id_by_name[name] = await self._find_needed_task_id(name)
        tasks = []
        for new, task_id in zip(wanted, ids, strict=True):
            needs = tuple(id_by_name[name] for name in new.after)
            tasks.append(_IdentifiedTask(task_id, needs, new))
        return tasks

    async def _find_needed_task_id(self, need: str) -> str:
        """Return the id of the task with this id or key."""
        for name in (need, self.task_id_of_key(need)):
            with suppress(InvalidInput, NotFound):
                return (await self.find_fleet_task(name)).id
        raise NotFound(
            f"There is no task {need} in this workspace.", remedy="`task list` shows the tasks."
        )

    def _build_insert_statements(self, task: _IdentifiedTask) -> list[Statement]:
        space = self._space
        statements = []
        for need in task.needs:
            known = (space, task.id, space, task.id, need)
            statements.append(self._statement("hold_need", space, need))
            statements.append(self._statement("add_need", space, task.id, need, *known))
        late = max(0.0, task.new.deadline_seconds)
        order = self._codec.encode_order(task.id, task.new.order)
        result = self._codec.encode_result(task.id, FleetTaskResult())
        values = (space, task.id, task.new.priority, late, late, order, result)
        statements.append(self._statement("add", *values, space, task.id, space, task.id))
        if task.needs:
            statements.append(self._cancel_if_hopeless(task.id))
        return statements

    def _cancel_if_hopeless(self, task: str) -> Statement:
        return self._statement("cancel_hopeless", self._space, task, self._space, task)

    def task_id_of_key(self, key: str) -> str:
        """Return the id for a key. It is the same on all machines of the workspace and
        does not reveal the key.
        """
        named = key.encode()
        if self._seal:
            named = self._seal.keyed_row_name("task key", named)
        return hashlib.sha256(b"task key\0" + named).hexdigest()[:20]

    # --- Claiming tasks and keeping them

    async def claim_fleet_tasks(self, worker: str, limit: int, seconds: float) -> list[FleetTask]:
        """Claim up to `limit` tasks that are free or whose lease ended. Refuses for a
        while after a standby took over.
        """
        space, most = self._space, MOST_LOST_WORKERS
        machine = f"{worker.rpartition(' ')[0]} %"
        elsewhere = ELSEWHERE_SECONDS if self.is_shared else 0.0
        picking = (space, machine, elsewhere, space, limit)
        _, failover, _, rows = await self._run_statements(
            [
                *self.notes.build_failover_statements(),
                self._statement("overdue", most, most, space),
                self._statement("claim", *picking, worker, float(seconds), space),
            ]
        )
        if failover:
            raise SharedStoreUnreachable(
                "A standby server of the shared store has just taken over.",
                remedy="Workers resume in a moment.",
            )
        if not rows or time.monotonic() > self._looked_for_late + LATE_SECONDS:
            await self._fail_late_tasks()
        claimed = []
        for task in map(self._codec.decode_row, rows):
            if task.result is UNREADABLE:
                await self._end_unless_ended(task.id, FleetTaskState.FAILED, UNREADABLE)
            else:
                claimed.append(task)
        return sorted(claimed, key=lambda task: (-task.priority, task.added))

    async def _fail_late_tasks(self) -> None:
        self._looked_for_late = time.monotonic()
        (late,) = await self._run_statements([self._statement("late", self._space)])
        for (task,) in late:
            await self._end_unless_ended(task, FleetTaskState.FAILED, TOO_LATE)

    async def release_orphaned_tasks(self, process: str) -> None:
        """Release tasks that no worker of this process has. Only safe if no other
        process can have them.
        """
        most = MOST_LOST_WORKERS
        own_workers = f"% {process}.%"
        await self._run_statements(
            [self._statement("release", most, most, self._space, own_workers)]
        )

    async def renew_leases_of_tasks(
        self, tasks: Sequence[FleetTask], seconds: float
    ) -> frozenset[str]:
        """Renew these leases for so long. Return the tasks that this worker still has."""
        statements = []
        for task in tasks:
            lease = (task.worker, task.claims, float(seconds), self._space, task.id)
            guard = (task.claims, task.worker, task.claims)
            statements.append(self._statement("renew", *lease, *guard))
        renewed = await self._run_statements(statements)
        return frozenset(row[0] for rows in renewed for row in rows)

    # --- Giving tasks back and ending them

    async def end_fleet_task(
        self, task: FleetTask, state: FleetTaskState, result: FleetTaskResult
    ) -> bool:
        """Record a claimed task's result, or give it back as waiting. Return False if
        somebody else has it.
        """
        sealed = self._codec.encode_result(task.id, result)
        lease = (self._space, task.id, task.claims, task.worker)
        ending = self._statement("end", state.value, sealed, *lease)
        return bool(await self._charge_and_run(task, result, ending))

    async def give_back_after_setback(
        self, task: FleetTask, result: FleetTaskResult
    ) -> FleetTaskState | None:
        """Let the task be tried again after a while, first by another computer, because
        of something that may pass. After `MOST_SETBACKS`, it waits for a person instead.

        Return the task's state, or None if somebody else has it.
        """
        sealed = self._codec.encode_result(task.id, result)
        lease = (self._space, task.id, task.claims, task.worker)
        giving_back = self._statement("give_back", MOST_SETBACKS, sealed, *lease)
        changed = await self._charge_and_run(task, result, giving_back)
        return FleetTaskState(changed[0][0]) if changed else None

    async def _charge_and_run(
        self, task: FleetTask, result: FleetTaskResult, change: Statement
    ) -> Rows:
        agent = task.order.agent
        charges = self.notes.charge_statements(task.id, task.claims, agent, result.cost)
        after = self._build_statements_after_end()
        answers = await self._run_statements([*charges, change, *after])
        return answers[len(charges)]

    def _build_statements_after_end(self) -> list[Statement]:
        """Return what follows each change that may have ended tasks, in its transaction:
        it tells the tasks that wait for them, and moves them to the history.
        """
        space = self._space
        return [
            self._statement("count_met_needs", space, space, space, space),
            self._statement("remove_met_needs", space, space),
            self._statement("cancel_dependants", space, space, space, space),
            self._statement("keep_ended", space),
            self._statement("remove_ended", space),
        ]

    async def seconds_until_next_try(self) -> float | None:
        """Return when the next task that was given back may be tried again, or None if
        none waits for that.
        """
        ((row,),) = await self._run_statements([self._statement("next_try", self._space)])
        return None if row[0] is None else float(row[0])

    async def pause_all_tasks(self) -> int:
        """Make running tasks wait, and let none be claimed until `resume_all_tasks`.
        Return how many tasks ran.
        """
        stop = self.notes.build_stop_statement(is_stopped=True)
        _, rows = await self._run_statements([stop, self._statement("pause", self._space)])
        return len(rows)

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
        sealed = self._codec.encode_result(task, result)
        ending = self._statement("cancel", state.value, sealed, self._space, task)
        rows, *_ = await self._run_statements([ending, *self._build_statements_after_end()])
        return bool(rows)

    async def retry_fleet_task(self, task: FleetTask, allowed: Sequence[str] = ()) -> bool:
        """Let a task go on without a deadline, with more permissions. Return False if it cannot."""
        if task.result is UNREADABLE:
            return False
        all_allowed = tuple(dict.fromkeys((*task.order.allowed, *allowed)))
        sealed = self._codec.encode_order(task.id, replace(task.order, allowed=all_allowed))
        space = self._space
        live, ended, *_ = await self._run_statements(
            [
                self._statement("retry_live", sealed, space, task.id),
                self._statement("retry_ended", sealed, space, task.id),
                self._statement("remove_retried", space, task.id, space, task.id),
                self._cancel_if_hopeless(task.id),
                *self._build_statements_after_end(),
            ]
        )
        return bool(live or ended)

    async def retry_dead_letters(self) -> int:
        """Let all tasks be tried again that were given back too often. Return their number."""
        (rows,) = await self._run_statements([self._statement("retry_dead_letters", self._space)])
        return len(rows)

    # --- The history of ended tasks

    async def remove_old_tasks(
        self, kept_seconds: float = KEPT_SECONDS, kept_tasks: int = KEPT_TASKS
    ) -> int:
        """Remove tasks from the history that ended long ago, and the oldest above a
        number. Their conversations stay. Return how many were removed.
        """
        counts = await self.count_fleet_tasks()
        ended = sum(counts.by_state[state] for state in ENDED)
        removed = await self._remove_ended_before(kept_seconds, ended)
        removed += await self._remove_ended_before(0.0, ended - removed - kept_tasks)
        if removed:
            forget_needs = self._statement("remove_needs_of_unknown", self._space)
            await self._run_statements([forget_needs])
        return removed

    async def _remove_ended_before(self, seconds: float, most: int) -> int:
        removed = 0
        while removed < most:
            limit = min(REMOVED_AT_ONCE, most - removed)
            remove = self._statement("remove_old", self._space, self._space, seconds, limit)
            (rows,) = await self._run_statements([remove])
            if not rows:
                break
            removed += len(rows)
        return removed

    async def blank_texts_of_tasks(self, blank: Callable[[str], str]) -> tuple[int, list[str]]:
        """Forget a text in tasks and results. Return how many changed, and the tasks
        that workers still have.
        """
        changed = 0
        busy: list[str] = []
        async for task in self._iterate_tasks():
            order, result = task.order, task.result
            blank_order = replace(
                order, text=blank(order.text), allowed=tuple(map(blank, order.allowed))
            )
            blank_result = replace(
                result,
                why=blank(result.why),
                answer=blank(result.answer),
                asked=blank(result.asked),
            )
            if (blank_order, blank_result) == (order, result):
                continue
            sealed_order = self._codec.encode_order(task.id, blank_order)
            sealed_result = self._codec.encode_result(task.id, blank_result)
            values = (sealed_order, sealed_result, self._space, task.id, task.claims)
            live, ended = await self._run_statements(
                [self._statement("blank_live", *values), self._statement("blank_ended", *values)]
            )
            if live or ended:
                changed += 1
            else:
                busy.append(task.id)
        return changed, busy

    async def _iterate_tasks(self) -> AsyncIterator[FleetTask]:
        """Yield all tasks, newest first, a page at a time."""
        page = await self.list_fleet_tasks(limit=LISTED_AT_ONCE)
        while page:
            for task in page:
                yield task
            page = await self.list_fleet_tasks(limit=LISTED_AT_ONCE, before=page[-1].position)

    # --- Looking at tasks

    async def list_fleet_tasks(
        self, state: str = "", limit: int = 100, before: int = _NEWEST
    ) -> list[FleetTask]:
        """Return tasks, newest first. `before`: only those with a smaller position."""
        space = self._space
        if not state:
            where = (space, before, limit)
            statement = self._statement("list", *where, *where)
        elif state in ENDED:
            statement = self._statement("list_ended", space, state, before, limit)
        else:
            statement = self._statement("list_live", space, state, before, limit)
        (rows,) = await self._run_statements([statement])
        tasks = await asyncio.to_thread(lambda: [self._codec.decode_row(row) for row in rows])
        tasks.sort(key=lambda task: -task.position)
        return tasks[:limit]

    async def filter_ended_tasks(self, ids: Sequence[str]) -> list[str]:
        """Return the ids of ended tasks, in order."""
        statements = [self._statement("ended", self._space, task) for task in ids]
        answers = await self._run_statements(statements)
        return [row[0] for rows in answers for row in rows]

    async def find_fleet_task(self, beginning: str) -> FleetTask:
        """Return the only task whose id begins like this."""
        if not re.fullmatch("[0-9a-f]{4,20}", beginning):
            raise InvalidInput(
                f"{beginning[:40]} is not the ID of a task.", remedy="`task list` shows the IDs."
            )
        # "g" follows all digits of an ID.
        where = (self._space, beginning, f"{beginning}g")
        (rows,) = await self._run_statements([self._statement("find", *where, *where)])
        if not rows:
            raise NotFound(
                f"There is no task {beginning} in this workspace.",
                remedy="`task list` shows the tasks.",
            )
        if len(rows) > 1:
            raise AmbiguousName(
                f"The IDs of several tasks begin with {beginning}.",
                remedy="Enter more characters of the ID.",
            )
        return self._codec.decode_row(rows[0])

    async def count_fleet_tasks(self) -> FleetTaskCounts:
        """Return the counts that the database keeps."""
        kept, busy = await self._run_statements(
            [self._statement("count", self._space), self._statement("busy", self._space)]
        )
        amounts: dict[str, float] = dict(kept)
        by_state = {state.value: int(amounts.get(state, 0)) for state in FleetTaskState}
        dollars = float(amounts.get("cost", 0.0))
        return FleetTaskCounts(by_state, dict(busy), dollars, int(amounts.get("changes", 0)))

    async def oldest_waiting_seconds(self) -> float:
        """Return how long the oldest waiting task has waited, or 0.0 if none waits."""
        (rows,) = await self._run_statements([self._statement("oldest_waiting", self._space)])
        return float(rows[0][0]) if rows else 0.0

    async def read_fingerprint(self) -> object:
        """Return a value that changes when a task is added, claimed or ended, or a note changes."""
        (kept,) = await self._run_statements([self._statement("count", self._space)])
        return sorted(kept), await self.notes.read_state()

    def _statement(self, name: str, *values: Any) -> Statement:
        return self._dialect.build_statement(_SQL[name], *values)


def _needed_tasks_first(tasks: Sequence[_IdentifiedTask]) -> list[_IdentifiedTask]:
    """Return the tasks so that each follows those it waits for, otherwise in their order.

    A task whose need is not in the list yet would start too early.
    """
    added = {task.id for task in tasks}
    sorter = TopologicalSorter({task.id: added.intersection(task.needs) for task in tasks})
    try:
        sorter.prepare()
    except CycleError as error:
        raise InvalidInput(
            "Some of these tasks depend on each other in a circle, so they would never start.",
            remedy="Nothing was added.",
        ) from error
    in_order: list[_IdentifiedTask] = []
    while sorter.is_active():
        ready = set(sorter.get_ready())
        in_order += [task for task in tasks if task.id in ready]
        sorter.done(*ready)
    return in_order
