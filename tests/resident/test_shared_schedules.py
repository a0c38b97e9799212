"""Schedules in the shared store: a year in three time zones in which computers are off, and
how the computers' files and the store come to agree.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.resident import schedules, shared_schedules
from helix_desktop.resident.schedules import WEEKDAYS, WorkSchedule
from helix_desktop.store.fleet_task_files import open_shared_task_list
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import FleetTaskOrder
from helix_desktop.store.schedule_table import ScheduleTable
from helix_desktop.store.shared import row_encryption
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from tests.conftest import Expect
from tests.peers import postgres
from tests.resident.test_schedules import due_by_looking_at_all_times

START = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
YEAR_SECONDS = 350 * 86_400.0  # The last steps are longer than a day.
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    if why := postgres.why_not():
        pytest.skip(why)
    started = postgres.Server(postgres.FAST)
    try:
        yield started.start()
    finally:
        started.remove()


@dataclass
class Computer:
    """One that shares the workspace W: its folder with schedules, and its way to the store."""

    folder: Path
    engine: PostgresRowStore
    tasks: FleetTaskList

    @property
    def table(self) -> ScheduleTable:
        assert self.tasks.schedules is not None
        return self.tasks.schedules

    async def copy(self) -> None:
        await shared_schedules.copy_schedules(self.table, self.folder, "W")

    def write(self, *wanted: WorkSchedule) -> None:
        schedules.write_schedules(self.folder, wanted)

    def read(self) -> list[WorkSchedule]:
        return schedules.read_schedules(self.folder)

    async def shared_ids(self) -> list[str]:
        return [stored.id for stored in (await self.table.read_stored_schedules()).schedules]


@pytest.fixture
def computers(server: postgres.Server, tmp_path: Path) -> Iterator[tuple[Computer, Computer]]:
    seal = RowCipher(row_encryption.new_workspace_key())
    opened = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        engine = PostgresRowStore(server.url, seal.space)
        tasks = open_shared_task_list(engine, seal, asyncio.to_thread)
        opened.append(Computer(tmp_path / name, engine, tasks))
    yield opened[0], opened[1]
    for computer in opened:
        computer.engine.close()


def schedule(name: str, zone: str = "Europe/Berlin", **more: object) -> WorkSchedule:
    usual = WorkSchedule(name, "W", f"task of {name}", "02:30", zone, handled=START)
    return replace(usual, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [7])
async def test_in_a_year_each_due_time_is_one_task_whichever_computers_are_off(
    computers: tuple[Computer, Computer], seed: int
) -> None:
    """Only while all were off, missed ones become one task or none, as on one computer."""
    one, two = computers
    chance = random.Random(seed)
    wanted: list[WorkSchedule] = []
    for zone in ZONES:
        wanted.append(schedule(f"{len(wanted):08x}", zone))
        wanted.append(schedule(f"{len(wanted):08x}", zone, missed="never", days=("mon", "sun")))
    one.write(*wanted)
    await one.copy()

    now = START
    last_look = START
    expected: set[str] = set()
    never_added = 0
    both_at_once = 0
    while now < START + YEAR_SECONDS:
        now = time_of_next_look(chance, wanted, now)
        on = [computer for computer in computers if chance.random() < 0.6]
        if not on:
            continue
        for each in wanted:
            for due in due_times(each, last_look, now)[-1:]:
                if each.missed == "once" or now - due <= 300:
                    expected.add(one.tasks.task_id_of_key(each.task_key(due)))
                else:
                    never_added += 1
        looks = [
            shared_schedules.add_due_tasks(computer.tasks, computer.table, now) for computer in on
        ]
        await asyncio.gather(*looks)
        both_at_once += len(on) == 2
        last_look = now

    listed = await two.tasks.list_fleet_tasks(limit=10_000)
    assert {task.id for task in listed} == expected
    assert len(listed) == len(expected) > 500
    assert both_at_once > 50
    assert never_added > 50


def time_of_next_look(chance: random.Random, wanted: list[WorkSchedule], now: float) -> float:
    """After an outage, or just after the next due time, as a computer that is on looks."""
    if chance.random() < 0.5:
        return now + chance.choice([3_600.0, 43_200.0, 86_400.0, 300_000.0])
    upcoming = [due_times(each, now, now + 8 * 86_400)[:1] for each in wanted]
    next_due = min(due for dues in upcoming for due in dues)
    return next_due + chance.choice([0.0, 10.0, 299.0, 301.0])


def due_times(wanted: WorkSchedule, after: float, until: float) -> list[float]:
    """By looking at the clock of the zone all year, which the program does not do."""
    zone = ZoneInfo(wanted.zone)
    all_times = due_by_looking_at_all_times(zone, wanted.at, wanted.days)
    return [due.timestamp() for due in all_times if after < due.timestamp() <= until]


async def test_a_schedule_runs_on_with_its_computer_off_and_has_its_options(
    computers: tuple[Computer, Computer],
) -> None:
    one, two = computers
    options = ("--agent", "reader", "--budget", "2.5", "--priority", "3", "--deadline", "8h")
    one.write(schedule("1", options=(*options, "--allow", "edits", "--allow", "read")))
    await one.copy()
    (task,) = await shared_schedules.add_due_tasks(two.tasks, two.table, START + 86_400)
    (listed,) = await two.tasks.list_fleet_tasks()
    assert (listed.id, listed.priority) == (task, 3)
    assert listed.order == FleetTaskOrder("task of 1", "reader", "", ("edits", "read"), 2.5)
    assert listed.deadline_seconds == pytest.approx(8 * 3_600, abs=60)
    due = schedule("1").next_due(START)
    assert task == two.tasks.task_id_of_key(schedule("1").task_key(due))


async def test_what_is_changed_turned_off_or_removed_where_it_was_made_is_so_everywhere(
    computers: tuple[Computer, Computer],
) -> None:
    one, two = computers
    one.write(schedule("1"), schedule("2"), schedule("3"), schedule("x", workspace="other"))
    await one.copy()
    assert await two.shared_ids() == ["1", "2", "3"]
    await shared_schedules.add_due_tasks(two.tasks, two.table, START + 86_400)
    one.write(schedule("1", text="new"), schedule("2").with_on_off_toggled())
    await one.copy()
    stored = (await two.table.read_stored_schedules()).schedules
    changed, off = [shared_schedules.decode_schedule(each) for each in stored]
    assert (changed.text, changed.handled > START) == ("new", True)
    assert not off.is_on
    assert await shared_schedules.add_due_tasks(two.tasks, two.table, START + 86_400) == []
    one.write(schedule("1", text="new"), schedule("2", handled=START + 2 * 86_400))
    await one.copy()
    added = await shared_schedules.add_due_tasks(two.tasks, two.table, START + 3 * 86_400)
    assert len(added) == 2


async def test_what_another_computer_removed_is_removed_where_it_was_made_too(
    computers: tuple[Computer, Computer],
) -> None:
    one, two = computers
    one.write(schedule("1"), schedule("2"))
    await one.copy()
    await two.copy()  # It has none of its own, and removes none.
    assert await two.table.remove_stored_schedules(["1", "unknown"]) == ["1"]
    await one.copy()
    assert [each.id for each in one.read()] == ["2"]
    assert await two.shared_ids() == ["2"]


async def test_a_schedule_that_cannot_run_holds_up_no_other(
    computers: tuple[Computer, Computer], expect: Expect
) -> None:
    expect("the schedule 1 did not run: Mars/Olympus is not a time zone")
    one, _ = computers
    one.write(schedule("1", "Mars/Olympus"), schedule("2", days=WEEKDAYS[:5]))
    await one.copy()
    later = START + timedelta(days=7).total_seconds()
    assert len(await shared_schedules.add_due_tasks(one.tasks, one.table, later)) == 1


@pytest.mark.parametrize(
    "option",
    [("--budget", "5,00"), ("--budget", "nan"), ("--priority", "high"), ("--deadline", "soon")],
)
def test_an_option_that_task_add_would_refuse_is_refused(option: tuple[str, str]) -> None:
    """Any other error would end the looking for schedules in every worker."""
    with pytest.raises(InvalidInput):
        shared_schedules.build_scheduled_task(schedule("1", options=option), START)


async def test_a_schedule_of_a_newer_version_holds_up_no_other(
    computers: tuple[Computer, Computer], expect: Expect
) -> None:
    expect("the schedule 1 did not run: A newer version of Helix Desktop made the schedule 1.")
    one, _ = computers
    one.write(schedule("1"), schedule("2"))
    await one.copy()
    (stored, _) = (await one.table.read_stored_schedules()).schedules
    newer = replace(stored, fields={**stored.fields, "every": "3h"})
    await one.table.store_schedule(newer)
    assert len(await shared_schedules.add_due_tasks(one.tasks, one.table, START + 86_400)) == 1


async def test_the_store_is_told_nothing_that_a_schedule_says(
    computers: tuple[Computer, Computer],
) -> None:
    one, _ = computers
    one.write(schedule("1", text="secret words"))
    await one.copy()
    (rows,) = one.engine.run_transaction(("SELECT * FROM helix.schedules", ()))
    assert "secret words" not in repr(rows)
    assert "Berlin" not in repr(rows)
