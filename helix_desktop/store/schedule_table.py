"""The schedules of a shared workspace, in its shared store, so that any of its computers can
add a task when it is due.

What a schedule says is encrypted. The store sees how many there are, and up to when the due
times of each are done.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_sql_statements
from helix_desktop.store.fleet_statements import Rows, RunStatements
from helix_desktop.store.shared.row_encryption import RowCipher

_SQL = read_sql_statements("schedule_statements")


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """`fields`: what it says. `handled`: due times up to then, in seconds since 1970, are done."""

    id: str
    handled: float
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredSchedules:
    """All schedules of a workspace, and what time it is by the store's clock."""

    now: float
    schedules: tuple[StoredSchedule, ...]


class ScheduleTable:
    def __init__(self, run_statements: RunStatements, seal: RowCipher) -> None:
        self._run_statements = run_statements
        self._seal = seal
        self._space = seal.space

    async def read_stored_schedules(self) -> StoredSchedules:
        """Read and decrypt all schedules, and the store's clock with them: due times are
        compared with it, as the clocks of the computers may differ.
        """
        read_clock = (_SQL["now"], ())
        list_schedules = (_SQL["list"], (self._space,))
        clock_rows, schedule_rows = await self._run_statements([read_clock, list_schedules])
        ((now,),) = clock_rows
        schedules: list[StoredSchedule] = []
        for schedule_id, handled, sealed in schedule_rows:
            row_name = self._row_name(schedule_id)
            content = self._seal.decrypt_row(row_name, sealed)
            values = json.loads(content)
            schedules.append(StoredSchedule(schedule_id, handled, values))
        return StoredSchedules(now, tuple(schedules))

    async def store_schedule(self, schedule: StoredSchedule) -> None:
        """Store a schedule, or change what is stored under its id."""
        content = json.dumps(schedule.fields, ensure_ascii=False).encode("utf-8", "replace")
        sealed = self._seal.encrypt_row(self._row_name(schedule.id), content)
        await self._query_schedules("put", self._space, schedule.id, schedule.handled, sealed)

    async def remove_stored_schedules(self, ids: Sequence[str]) -> list[str]:
        """Remove schedules, and return the ids of those that were there."""
        rows = await self._query_schedules("remove", self._space, list(ids))
        return [schedule_id for (schedule_id,) in rows]

    async def mark_due_times_done(self, schedule: StoredSchedule, handled: float) -> bool:
        """Note that due times up to then are done. Return False if another computer has
        changed the schedule meanwhile.
        """
        # The statement finds the schedule only as long as `handled` is what we have read.
        values = (handled, self._space, schedule.id, schedule.handled)
        rows = await self._query_schedules("advance", *values)
        return bool(rows)

    def _row_name(self, schedule_id: str) -> bytes:
        return self._seal.keyed_row_name("schedule", schedule_id.encode())

    async def _query_schedules(self, statement_name: str, *values: Any) -> Rows:
        (rows,) = await self._run_statements([(_SQL[statement_name], values)])
        return rows
