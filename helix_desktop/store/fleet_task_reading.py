"""Looks at the tasks of a workspace: lists, counts and finds them.

What ended is in a table of its own, and the database keeps the counts, so that nothing
here takes longer because many tasks have ended.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any

from helix_desktop.errors import AmbiguousName, InvalidInput, NotFound
from helix_desktop.resources import read_sql_statements
from helix_desktop.store.fleet_notes import FleetNotes
from helix_desktop.store.fleet_statements import (
    Rows,
    RunInTransaction,
    SqlDialect,
    Statement,
)
from helix_desktop.store.fleet_task_encoding import (
    COLUMNS,
    ENDED_COLUMNS,
    FleetTaskCodec,
)
from helix_desktop.store.fleet_tasks import (
    ENDED,
    FleetTask,
    FleetTaskCounts,
    FleetTaskState,
)
from helix_desktop.store.schedule_table import ScheduleTable
from helix_desktop.store.shared.row_encryption import RowCipher

_AFTER_ALL_POSITIONS = 1 << 62


def _read_statements() -> dict[str, str]:
    statements = {}
    for name, text in read_sql_statements("fleet_task_statements").items():
        with_columns = text.replace("{columns}", COLUMNS)
        statements[name] = with_columns.replace("{ended_columns}", ENDED_COLUMNS)
    return statements


_SQL = _read_statements()


class FleetTaskReader:
    """Reads the tasks of one workspace. `seal` encrypts their content, or is None."""

    def __init__(
        self,
        run_in_transaction: RunInTransaction,
        dialect: SqlDialect,
        space: bytes = b"",
        seal: RowCipher | None = None,
    ) -> None:
        self._run_in_transaction = run_in_transaction
        self._dialect = dialect
        self._space = space
        self._seal = seal
        self._codec = FleetTaskCodec(seal)
        self.is_shared = seal is not None
        self.notes = FleetNotes(self._run_statements, dialect, space)
        # Those of a list that computers share. Otherwise they are in a file of the computer.
        self.schedules: ScheduleTable | None = None
        if seal is not None:
            self.schedules = ScheduleTable(self._run_statements, seal)

    async def _run_statements(self, statements: Sequence[Statement]) -> list[Rows]:
        if not statements:
            return []
        return await self._run_in_transaction(lambda transaction: transaction.run_all(statements))

    def _statement(self, name: str, *values: Any) -> Statement:
        return self._dialect.build_statement(_SQL[name], *values)

    async def _query_tasks(self, name: str, *values: Any) -> Rows:
        """Run one statement in a transaction of its own, and return its rows."""
        (rows,) = await self._run_statements([self._statement(name, *values)])
        return rows

    async def list_fleet_tasks(
        self, state: str = "", limit: int = 100, before: int = _AFTER_ALL_POSITIONS
    ) -> list[FleetTask]:
        """Return tasks, newest first. `before`: only those with a smaller position."""
        if state:
            statement = self._build_list_of_state(state, limit, before)
        else:
            # Once for the live table, and once for the history.
            page = (self._space, before, limit)
            statement = self._statement("list", *page, *page)
        (rows,) = await self._run_statements([statement])
        tasks = await asyncio.to_thread(self._decode_newest_first, rows)
        return tasks[:limit]

    async def list_newest_of_each_state(
        self, states: Iterable[FleetTaskState], limit: int
    ) -> dict[FleetTaskState, list[FleetTask]]:
        """Return up to `limit` tasks in each of these states, newest first. They are read in
        one transaction, which takes a fraction of the time of one for each state.
        """
        listed_states = list(states)
        statements = [
            self._build_list_of_state(state, limit, _AFTER_ALL_POSITIONS) for state in listed_states
        ]
        rows_of_states = await self._run_statements(statements)

        def decode_all() -> dict[FleetTaskState, list[FleetTask]]:
            tasks_by_state: dict[FleetTaskState, list[FleetTask]] = {}
            for state, rows in zip(listed_states, rows_of_states, strict=True):
                tasks_by_state[state] = self._decode_newest_first(rows)
            return tasks_by_state

        return await asyncio.to_thread(decode_all)

    def _build_list_of_state(self, state: str, limit: int, before: int) -> Statement:
        name = "list_live"
        if state in ENDED:
            name = "list_ended"
        return self._statement(name, self._space, state, before, limit)

    def _decode_newest_first(self, rows: Rows) -> list[FleetTask]:
        tasks = [self._codec.decode_row(row) for row in rows]
        tasks.sort(key=lambda task: task.position, reverse=True)
        return tasks

    async def filter_ended_tasks(self, ids: Sequence[str]) -> list[str]:
        """Return the ids of ended tasks, in order."""
        statements = [self._statement("has_ended", self._space, task) for task in ids]
        ended_ids: list[str] = []
        for rows in await self._run_statements(statements):
            ended_ids += [task_id for (task_id,) in rows]
        return ended_ids

    async def list_needs_of_task(self, task: str) -> list[str]:
        """Return the ids of the tasks that this one waits for."""
        rows = await self._query_tasks("needs_of_task", self._space, task)
        return [need for (need,) in rows]

    async def find_fleet_task(self, beginning: str) -> FleetTask:
        """Return the only task whose id begins like this."""
        if not re.fullmatch("[0-9a-f]{4,20}", beginning):
            raise InvalidInput(
                f"{beginning[:40]} is not the ID of a task.", remedy="`task list` shows the IDs."
            )
        # "g" follows all digits of an ID, so all IDs that begin like this are in between.
        id_range = (self._space, beginning, f"{beginning}g")
        # Once for the live table, and once for the history.
        rows = await self._query_tasks("find", *id_range, *id_range)
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
        select_amounts = self._statement("count", self._space)
        select_workers = self._statement("busy", self._space)
        amount_rows, worker_rows = await self._run_statements([select_amounts, select_workers])
        # What was never counted has no row.
        amounts: dict[str, float] = dict(amount_rows)
        by_state: dict[str, int] = {}
        for state in FleetTaskState:
            by_state[state.value] = int(amounts.get(state, 0))
        dollars = amounts.get("cost", 0.0)
        changes = amounts.get("changes", 0)
        return FleetTaskCounts(
            by_state=by_state,
            by_worker=dict(worker_rows),
            dollars=float(dollars),
            changes=int(changes),
        )

    async def oldest_waiting_seconds(self) -> float:
        """Return how long the oldest waiting task has waited, or 0.0 if none waits."""
        rows = await self._query_tasks("oldest_waiting", self._space)
        if not rows:
            return 0.0
        ((seconds,),) = rows
        return float(seconds)

    async def read_fingerprint(self) -> object:
        """Return a value that changes when a task is added, claimed or ended, or a note changes."""
        amount_rows = await self._query_tasks("count", self._space)
        notes = await self.notes.read_state()
        return sorted(amount_rows), notes
