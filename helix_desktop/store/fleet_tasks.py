"""The list of a workspace's tasks: which worker has which, for how long, and what came of each.

The list says only who has a task. What was done for it is in the journal, in the
conversation with the task's id. A claim is a lease by the database's clock, with a
number that grows: a worker with an old number can change nothing. A standby that took
over may lack the last claims, so it grants none for a while, in which live workers
renew theirs. The same statements run in SQLite, for one computer, and in PostgreSQL,
where the content of tasks is encrypted like all rows.
"""

# ruff: noqa: S608 -- what is put together here are columns

import asyncio
import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any

from helix_desktop.engine.conversation import new_conversation_id
from helix_desktop.engine.fact_encoding import CONVERSATION_ID, LATEST_TIME
from helix_desktop.errors import (
    AmbiguousName,
    HelixError,
    InvalidInput,
    NotFound,
    SharedStoreUnreachable,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_sql_statements
from helix_desktop.store.fleet_notes import FleetNotes
from helix_desktop.store.fleet_statements import Rows, RunStatements, SqlDialect, Statement
from helix_desktop.store.shared.row_encryption import RowCipher

HOPELESS_SECONDS = 5.0
MOST_CLAIMS = (
    20  # A task whose worker is lost after this many claims fails, since it may be the cause.
)
_ALL_TASKS = 1 << 31
TASKS_IN_CALL = 250  # One transaction adds at most this many tasks.


class FleetTaskState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    NEEDS_YOU = "needs-you"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({FleetTaskState.DONE, FleetTaskState.FAILED, FleetTaskState.CANCELLED})


@dataclass(frozen=True, slots=True)
class FleetTaskOrder:
    """The work to do. `allowed`: permissions besides its worker's. `budget`: dollars;
    0: no limit.
    """

    text: str
    agent: str = ""
    model: str = ""
    allowed: tuple[str, ...] = ()
    budget: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetTaskResult:
    """`why` it is in its state, and its cost in dollars. `asked`: what nobody could allow."""

    why: str = ""
    answer: str = ""
    cost: float = 0.0
    asked: str = ""


@dataclass(frozen=True, slots=True)
class NewFleetTask:
    """A task to add. `key`: only one task with the same key is added.
    `deadline_seconds`: from now; 0: none.
    """

    order: FleetTaskOrder
    key: str = ""
    priority: int = 0
    after: tuple[str, ...] = ()
    deadline_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetTask:
    """A task in the list. `id` is also its conversation's. `claims`: the number of
    claims, and of the newest lease.
    """

    id: str
    state: FleetTaskState
    priority: int
    added: float
    worker: str
    claims: int
    deadline_seconds: float  # The seconds left; 0: no deadline.
    order: FleetTaskOrder
    result: FleetTaskResult = field(default_factory=FleetTaskResult)


_SQL = read_sql_statements("fleet_task_statements")
_COLUMNS = "id, state, priority, added, worker, claims, CASE WHEN deadline > 0 THEN deadline - {now} ELSE 0 END, sealed, result"
_OVERDUE = "UPDATE {t}tasks SET state = 'waiting' WHERE space = %s AND state = 'running' AND until < {now} RETURNING id, claims"
_CLAIM = _SQL["claim"].replace("{columns}", _COLUMNS)
_RELEASE = "UPDATE {t}tasks SET state = 'waiting' WHERE space = %s AND state = 'running' AND worker NOT LIKE %s RETURNING id, claims"
_LIST = _SQL["list"].replace("{columns}", _COLUMNS)
_FIND = f"SELECT {_COLUMNS} FROM {{t}}tasks WHERE space = %s AND id >= %s AND id < %s ORDER BY id LIMIT 20"
_ENDED = "SELECT id FROM {t}tasks WHERE space = %s AND id = %s AND state IN ('done', 'failed', 'cancelled')"
_STOP = "UPDATE {t}tasks SET state = 'waiting', worker = '' WHERE space = %s AND state = 'running' RETURNING id"
FAILED_BEFORE = FleetTaskResult("This task was waiting for a task that failed or was cancelled.")
UNREADABLE = FleetTaskResult(
    "This task cannot be read. The task is damaged, or a newer version of Helix Desktop added it."
)
TOO_MANY_CLAIMS = FleetTaskResult(
    f"The task has been started {MOST_CLAIMS} times or more, and each time its worker stopped responding. To run the task again, choose “Run again” in the Fleet window, or use `task retry`."
)
TOO_LATE = FleetTaskResult("The task did not start before its deadline.")


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
        self.is_shared = seal is not None
        self._looked = 0.0  # When we last looked for tasks that nobody can complete any more.
        self.notes = FleetNotes(run_statements, dialect, space)

    async def add_fleet_tasks(self, wanted: Sequence[NewFleetTask]) -> list[str]:
        """Add tasks and return their ids in order. A task with a known key is not added again."""
        ids = [self.task_id_of_key(one.key) if one.key else new_conversation_id() for one in wanted]
        named = {need: need for need in ids} | {
            one.key: task for one, task in zip(wanted, ids, strict=True)
        }
        for need in {need for one in wanted for need in one.after} - named.keys():
            named[need] = await self._find_needed_task_id(need)
        needs = {
            task: [named[need] for need in one.after] for task, one in zip(ids, wanted, strict=True)
        }
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            raise InvalidInput(
                "Some of these tasks depend on each other in a circle, so they would never start.",
                remedy="Nothing was added.",
            ) from error
        for at in range(0, len(wanted), TASKS_IN_CALL):
            some = list(zip(ids, wanted, strict=True))[at : at + TASKS_IN_CALL]
            await self._run_statements(
                [
                    each
                    for task, one in some
                    for each in self._build_insert_statements(task, one, needs[task])
                ]
            )
        return ids

    async def _find_needed_task_id(self, need: str) -> str:
        """Return the id of the task with this id or key."""
        for name in (need, self.task_id_of_key(need)):
            with suppress(InvalidInput, NotFound):
                return (await self.find_fleet_task(name)).id
        raise NotFound(
            f"There is no task {need} in this workspace.", remedy="`task list` shows the tasks."
        )

    def _build_insert_statements(
        self, task: str, one: NewFleetTask, needs: Sequence[str]
    ) -> list[Statement]:
        sealed, nothing = (
            self._encode("task", task, one.order),
            self._encode("task result", task, FleetTaskResult()),
        )
        late, space = max(0.0, one.deadline_seconds), self._space
        added = [
            self._statement(_SQL["add_need"], space, task, need, space, task) for need in needs
        ]
        return [
            *added,
            self._statement(_SQL["add"], space, task, one.priority, late, late, sealed, nothing),
        ]

    def task_id_of_key(self, key: str) -> str:
        """Return the id for a key. It is the same on all machines of the workspace and
        does not reveal the key.
        """
        named = self._seal.keyed_row_name("task key", key.encode()) if self._seal else key.encode()
        return hashlib.sha256(b"task key\0" + named).hexdigest()[:20]

    async def claim_fleet_tasks(self, worker: str, limit: int, seconds: float) -> list[FleetTask]:
        """Claim up to `limit` tasks that are free or whose lease ended. Refuses for a
        while after a standby took over.
        """
        _, failover, lost, rows = await self._run_statements(
            [
                *self.notes.build_failover_statements(),
                self._statement(_OVERDUE, self._space),
                self._statement(_CLAIM, worker, float(seconds), self._space, self._space, limit),
            ]
        )
        if failover:
            raise SharedStoreUnreachable(
                "A standby server of the shared store has just taken over.",
                remedy="Workers resume in a moment.",
            )
        if not rows or time.monotonic() > self._looked + HOPELESS_SECONDS:
            await self._end_tasks_that_cannot_run()
        found = list(map(self._decode_row, rows))
        failed = await self._end_failed_tasks(lost, found)
        return sorted(
            (t for t in found if t.id not in failed), key=lambda t: (-t.priority, t.added)
        )

    async def _end_failed_tasks(
        self, lost: Rows, found: Sequence[FleetTask] = ()
    ) -> dict[str, Any]:
        """Fail lost tasks that were claimed too often, and tasks that cannot be read."""
        failed = {task: TOO_MANY_CLAIMS for task, claims in lost if claims >= MOST_CLAIMS}
        failed |= {task.id: UNREADABLE for task in found if task.result is UNREADABLE}
        for task, why in failed.items():
            await self._end_unless_ended(task, FleetTaskState.FAILED, why)
        return failed

    async def _end_tasks_that_cannot_run(self) -> None:
        """End tasks that can never run. Rarely done while there is work, as it searches
        all waiting tasks.
        """
        self._looked = time.monotonic()
        (hopeless,) = await self._run_statements(
            [self._statement(_SQL["hopeless"], self._space, self._space)]
        )
        for task, is_late in hopeless:
            end = (
                (FleetTaskState.FAILED, TOO_LATE)
                if is_late
                else (FleetTaskState.CANCELLED, FAILED_BEFORE)
            )
            await self._end_unless_ended(task, *end)

    async def release_orphaned_tasks(self, process: str) -> None:
        """Release tasks that no worker of this process has. Only safe if no other
        process can have them.
        """
        (lost,) = await self._run_statements(
            [self._statement(_RELEASE, self._space, f"% {process}.%")]
        )
        await self._end_failed_tasks(lost)

    async def renew_leases_of_tasks(
        self, tasks: Sequence[FleetTask], seconds: float
    ) -> frozenset[str]:
        """Renew these leases for so long. Return the tasks that this worker still has."""
        seconds, space = float(seconds), self._space
        statements = [
            self._statement(
                _SQL["renew"],
                t.worker,
                t.claims,
                seconds,
                space,
                t.id,
                t.claims,
                t.worker,
                t.claims,
            )
            for t in tasks
        ]
        return frozenset(row[0] for rows in await self._run_statements(statements) for row in rows)

    async def end_fleet_task(
        self, task: FleetTask, state: FleetTaskState, result: FleetTaskResult
    ) -> bool:
        """Record a claimed task's result, or give it back as waiting. Return False if
        somebody else has it.
        """
        sealed = self._encode("task result", task.id, result)
        end = self._statement(
            _SQL["end"], state.value, sealed, self._space, task.id, task.claims, task.worker
        )
        *_, rows = await self._run_statements(
            [
                *self.notes.charge_statements(task.id, task.claims, task.order.agent, result.cost),
                end,
            ]
        )
        return bool(rows)

    async def pause_all_tasks(self) -> int:
        """Make running tasks wait, and let none be claimed until `resume_all_tasks`.
        Return how many tasks ran.
        """
        stop = self.notes.build_stop_statement(is_stopped=True)
        _, rows = await self._run_statements([stop, self._statement(_STOP, self._space)])
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
        sealed = self._encode("task result", task, result)
        (rows,) = await self._run_statements(
            [self._statement(_SQL["cancel"], state.value, sealed, self._space, task)]
        )
        return bool(rows)

    async def retry_fleet_task(self, task: FleetTask, allowed: Sequence[str] = ()) -> bool:
        """Let a task go on without a deadline, with more permissions. Return False if it cannot."""
        if task.result is UNREADABLE:
            return False
        order = replace(task.order, allowed=tuple(dict.fromkeys((*task.order.allowed, *allowed))))
        sealed = self._encode("task", task.id, order)
        (rows,) = await self._run_statements(
            [self._statement(_SQL["retry"], sealed, self._space, task.id)]
        )
        return bool(rows)

    async def list_fleet_tasks(self, state: str = "", limit: int = 100) -> list[FleetTask]:
        """Return tasks, newest first."""
        (rows,) = await self._run_statements(
            [self._statement(_LIST, self._space, state, state, limit)]
        )
        return await asyncio.to_thread(lambda: [self._decode_row(row) for row in rows])

    async def blank_texts_of_tasks(self, blank: Callable[[str], str]) -> tuple[int, list[str]]:
        """Forget a text in tasks and results. Return how many changed, and the tasks
        that workers still have.
        """
        changed, busy = 0, list[str]()
        for one in await self.list_fleet_tasks(limit=_ALL_TASKS):
            order = replace(
                one.order, text=blank(one.order.text), allowed=tuple(map(blank, one.order.allowed))
            )
            why, answer, asked = map(blank, (one.result.why, one.result.answer, one.result.asked))
            came = replace(one.result, why=why, answer=answer, asked=asked)
            if (order, came) == (one.order, one.result):
                continue
            values = self._encode("task", one.id, order), self._encode("task result", one.id, came)
            (rows,) = await self._run_statements(
                [self._statement(_SQL["blank"], *values, self._space, one.id, one.claims)]
            )
            changed, busy = changed + len(rows), busy if rows else [*busy, one.id]
        return changed, busy

    async def filter_ended_tasks(self, ids: Sequence[str]) -> list[str]:
        """Return the ids of ended tasks, in order."""
        found = await self._run_statements(
            [self._statement(_ENDED, self._space, one) for one in ids]
        )
        return [row[0] for rows in found for row in rows]

    async def find_fleet_task(self, beginning: str) -> FleetTask:
        """Return the only task whose id begins like this."""
        if not re.fullmatch("[0-9a-f]{4,20}", beginning):
            raise InvalidInput(
                f"{beginning[:40]} is not the ID of a task.", remedy="`task list` shows the IDs."
            )
        (rows,) = await self._run_statements(
            [self._statement(_FIND, self._space, beginning, beginning + "g")]
        )
        if not rows:
            raise NotFound(
                f"There is no task {beginning} in this workspace.",
                remedy="`task list` shows the tasks.",
            )
        if len(rows) > 1:
            raise AmbiguousName(f"The IDs of several tasks begin with {beginning}.", remedy="Enter more characters of the ID.")  # fmt: skip
        return self._decode_row(rows[0])

    async def count_fleet_tasks(self) -> tuple[dict[str, int], dict[str, int], float]:
        """Return how many tasks are in each state, how many each worker has, and the total cost."""
        (rows,) = await self._run_statements([self._statement(_SQL["count"], self._space)])
        states = {
            state.value: sum(count for known, _, count, *_ in rows if known == state)
            for state in FleetTaskState
        }
        workers = {
            worker: count for state, worker, count, *_ in rows if state == FleetTaskState.RUNNING
        }
        return states, workers, float(sum(row[3] for row in rows))

    async def read_fingerprint(self) -> object:
        """Return a value that changes when a task is added, claimed or ended, or a note changes."""
        (rows,) = await self._run_statements([self._statement(_SQL["count"], self._space)])
        return sorted(rows), await self.notes.read_state()

    def _statement(self, text: str, *values: Any) -> Statement:
        return self._dialect.build_statement(text, *values)

    def _encode(self, kind: str, task: str, value: FleetTaskOrder | FleetTaskResult) -> bytes:
        content = json.dumps(asdict(value), ensure_ascii=False).encode("utf-8", "replace")
        return (
            self._seal.encrypt_row(self._seal.keyed_row_name(kind, task.encode()), content)
            if self._seal
            else content
        )

    def _decode(self, kind: str, task: str, content: bytes) -> dict[str, Any]:
        if self._seal:
            content = self._seal.decrypt_row(
                self._seal.keyed_row_name(kind, task.encode()), content
            )
        decoded: dict[str, Any] = json.loads(content)
        return decoded

    def _decode_row(self, row: tuple[Any, ...]) -> FleetTask:
        """Decode a task. An unreadable one counts as failed with `UNREADABLE`, and does
        not affect others.
        """
        task, state, priority, added, worker, claims, left, sealed, result = row
        with suppress(
            HelixError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            RecursionError,
        ):
            what = self._decode("task", task, sealed)
            order = FleetTaskOrder(**{**what, "allowed": tuple(what["allowed"])})
            came = FleetTaskResult(**self._decode("task result", task, result))
            texts = (
                order.text,
                order.agent,
                order.model,
                *order.allowed,
                came.why,
                came.answer,
                came.asked,
            )
            numbers = (left, order.budget, came.cost)
            is_sound = all(isinstance(one, str) for one in texts) and all(
                map(math.isfinite, numbers)
            )
            if is_sound and 0 <= added < LATEST_TIME and CONVERSATION_ID.fullmatch(task):
                about = task, FleetTaskState(state), priority, added, worker, claims, left
                return FleetTask(*about, order, came)
        ended = FleetTaskState("cancelled" if state == "cancelled" else "failed")
        return FleetTask(
            task, ended, priority, 0.0, "", claims, 0.0, FleetTaskOrder(""), UNREADABLE
        )


def task_as_json(task: FleetTask) -> dict[str, Any]:
    """Return the task for `--json`. Its conversation has the same id."""
    return {
        "id": task.id,
        "state": task.state.value,
        **asdict(task.result),
        "conversation": task.id if task.claims else "",
        **{
            name: getattr(task, name)
            for name in ("worker", "claims", "priority", "added", "deadline_seconds")
        },
        **{
            ("allow" if name == "allowed" else name): value
            for name, value in asdict(task.order).items()
        },
    }
