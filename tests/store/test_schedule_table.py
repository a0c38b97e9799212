"""What a shared store is told of schedules, and what it can read of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from helix_desktop.resources import read_sql_statements
from helix_desktop.store.schedule_table import ScheduleTable, StoredSchedule
from helix_desktop.store.shared.row_encryption import RowCipher, new_workspace_key

STATEMENTS = {sql: name for name, sql in read_sql_statements("schedule_statements").items()}
NOW = 1_000.0
DAILY = StoredSchedule("daily", 100.0, {"task": "Tidy up – 整理", "at": "02:30"})
WEEKLY = StoredSchedule("weekly", 200.0, {"task": "Report"})


class MemorySchedules:
    """The statements of a shared store, on a dictionary. Rows are named by space and id."""

    def __init__(self) -> None:
        self.rows: dict[tuple[bytes, str], tuple[float, bytes]] = {}

    async def __call__(
        self, statements: Sequence[tuple[str, Sequence[Any]]]
    ) -> list[list[tuple[Any, ...]]]:
        return [self._run(STATEMENTS[sql], *values) for sql, values in statements]

    def _run(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        if name == "now":
            return [(NOW,)]
        if name == "list":
            return [(key[1], *row) for key, row in sorted(self.rows.items()) if key[0] == values[0]]
        if name == "put":
            space, schedule, handled, sealed = values
            self.rows[space, schedule] = (handled, sealed)
            return [(schedule,)]
        if name == "remove":
            space, schedules = values
            there = [schedule for schedule in schedules if (space, schedule) in self.rows]
            for schedule in there:
                del self.rows[space, schedule]
            return [(schedule,) for schedule in there]
        handled, space, schedule, handled_before = values
        stored_handled, sealed = self.rows.get((space, schedule), (None, b""))
        if stored_handled != handled_before:
            return []
        self.rows[space, schedule] = (handled, sealed)
        return [(schedule,)]


@pytest.fixture
def store() -> MemorySchedules:
    return MemorySchedules()


@pytest.fixture
def table(store: MemorySchedules) -> ScheduleTable:
    return ScheduleTable(store, RowCipher(new_workspace_key()))


async def test_what_was_stored_is_read_with_the_clock_of_the_store(table: ScheduleTable) -> None:
    await table.store_schedule(WEEKLY)
    await table.store_schedule(DAILY)
    stored = await table.read_stored_schedules()
    assert stored.now == NOW
    assert stored.schedules == (DAILY, WEEKLY)


async def test_the_store_can_read_nothing_of_what_is_done(
    table: ScheduleTable, store: MemorySchedules
) -> None:
    await table.store_schedule(DAILY)
    ((handled, sealed),) = store.rows.values()
    assert handled == DAILY.handled
    assert b"Tidy" not in sealed
    assert b"02:30" not in sealed


async def test_a_schedule_is_changed_under_its_id(table: ScheduleTable) -> None:
    await table.store_schedule(DAILY)
    later = StoredSchedule("daily", 300.0, {"task": "Something else"})
    await table.store_schedule(later)
    assert (await table.read_stored_schedules()).schedules == (later,)


async def test_another_workspace_of_the_same_store_has_its_own(
    table: ScheduleTable, store: MemorySchedules
) -> None:
    await table.store_schedule(DAILY)
    other = ScheduleTable(store, RowCipher(new_workspace_key()))
    assert (await other.read_stored_schedules()).schedules == ()
    assert await other.remove_stored_schedules(["daily"]) == []
    assert not await other.mark_due_times_done(DAILY, 150.0)
    assert (await table.read_stored_schedules()).schedules == (DAILY,)


async def test_what_was_there_is_removed_and_named(table: ScheduleTable) -> None:
    await table.store_schedule(DAILY)
    await table.store_schedule(WEEKLY)
    assert await table.remove_stored_schedules(["weekly", "unknown"]) == ["weekly"]
    assert (await table.read_stored_schedules()).schedules == (DAILY,)


async def test_due_times_are_done_once_whichever_computer_is_first(table: ScheduleTable) -> None:
    await table.store_schedule(DAILY)
    assert await table.mark_due_times_done(DAILY, 150.0)
    assert not await table.mark_due_times_done(DAILY, 150.0), "another computer was first"
    (stored,) = (await table.read_stored_schedules()).schedules
    assert stored == StoredSchedule("daily", 150.0, DAILY.fields)
