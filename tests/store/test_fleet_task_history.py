"""What becomes of tasks that have ended: how long they stay, and how a text leaves them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.store import fleet_task_history
from helix_desktop.store.fleet_task_files import SqliteTaskTables
from helix_desktop.store.fleet_task_history import BlankedTasks
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
    TaskRetention,
)

FOR_EVER = 1e9
DAY = 86_400.0


def set_clock_of_list(folder: Path, seconds: float) -> None:
    """Make all that is in the list as much older as if the clock had been set forward."""
    with closing(sqlite3.connect(folder / "tasks.sqlite3")) as connection, connection:
        connection.execute("UPDATE ended_tasks SET ended = ended - ?", (seconds,))


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[FleetTaskList]:
    tables = SqliteTaskTables(tmp_path / "tasks.sqlite3")
    yield tables.open_list_in_file()
    tables.close()


async def add(tasks: FleetTaskList, *texts: str) -> None:
    await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder(text)) for text in texts])


async def end_all(tasks: FleetTaskList, result: FleetTaskResult | None = None) -> None:
    for task in await tasks.claim_fleet_tasks("one", 100, 30):
        await tasks.end_fleet_task(task, FleetTaskState.DONE, result or FleetTaskResult())


async def texts(tasks: FleetTaskList) -> list[str]:
    return [task.order.text for task in await tasks.list_fleet_tasks()]


@pytest.mark.parametrize("at_once", [1, 2, 1_000])
async def test_the_oldest_ended_tasks_go_until_as_many_are_left_as_may_stay(
    tasks: FleetTaskList, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(fleet_task_history, "REMOVED_AT_ONCE", at_once)
    await add(tasks, "a", "b", "c", "d", "e")
    await end_all(tasks)
    await add(tasks, "live")
    assert await tasks.remove_old_tasks(TaskRetention(FOR_EVER, 5)) == 0
    assert await tasks.remove_old_tasks(TaskRetention(FOR_EVER, 2)) == 3
    assert await texts(tasks) == ["live", "e", "d"]
    assert await tasks.remove_old_tasks(TaskRetention(FOR_EVER, 0)) == 2
    assert await texts(tasks) == ["live"]


async def test_what_ended_too_long_ago_goes_however_few_there_are(tasks: FleetTaskList) -> None:
    await add(tasks, "a", "b")
    await end_all(tasks)
    await add(tasks, "live")
    assert await tasks.remove_old_tasks(TaskRetention(60.0, 100)) == 0
    assert await tasks.remove_old_tasks(TaskRetention(-1.0, 100)) == 2
    assert await texts(tasks) == ["live"]


async def test_a_clock_that_is_a_year_ahead_removes_no_task_that_ended_yesterday(
    tasks: FleetTaskList, tmp_path: Path
) -> None:
    await add(tasks, "a", "b")
    await end_all(tasks)
    set_clock_of_list(tmp_path, 366 * DAY)
    assert await tasks.remove_old_tasks(TaskRetention()) == 0
    await add(tasks, "c")
    await end_all(tasks)
    assert await tasks.remove_old_tasks(TaskRetention()) == 0
    set_clock_of_list(tmp_path, 100 * DAY)  # In which nothing ended, as it is a little used list.
    assert await tasks.remove_old_tasks(TaskRetention()) == 0


async def test_in_a_list_in_use_tasks_go_when_they_are_old(
    tasks: FleetTaskList, tmp_path: Path
) -> None:
    for _ in range(25):
        await add(tasks, "x")
        await end_all(tasks)
        set_clock_of_list(tmp_path, 5 * DAY)
    assert await tasks.remove_old_tasks(TaskRetention()) == 8


async def test_a_text_leaves_every_part_of_a_task_that_says_it(tasks: FleetTaskList) -> None:
    await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("x", allowed=("rule:x y", "edits")))])
    await end_all(tasks, FleetTaskResult("x why", "x answer", asked="x"))
    await add(tasks, "other")
    blanked = await tasks.blank_texts_of_tasks(lambda text: text.replace("x", "-"))
    assert blanked == BlankedTasks(1, ())
    other, task = await tasks.list_fleet_tasks()
    assert other.order.text == "other"
    assert (task.order.text, task.order.allowed) == ("-", ("rule:- y", "edits"))
    assert task.result == FleetTaskResult("- why", "- answer", asked="-")
    assert await tasks.blank_texts_of_tasks(lambda text: text) == BlankedTasks(0, ())


async def test_all_tasks_are_looked_at_however_many_pages_they_fill(
    tasks: FleetTaskList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_task_history, "LISTED_AT_ONCE", 2)
    await add(tasks, "x1", "x2", "x3", "x4", "x5")
    blanked = await tasks.blank_texts_of_tasks(lambda text: text.replace("x", "-"))
    assert blanked.number_changed == 5
    assert await texts(tasks) == ["-5", "-4", "-3", "-2", "-1"]


async def test_a_running_task_that_says_it_is_named_and_stays_as_it_is(
    tasks: FleetTaskList,
) -> None:
    await add(tasks, "x")
    (running,) = await tasks.claim_fleet_tasks("one", 1, 30)
    blanked = await tasks.blank_texts_of_tasks(lambda text: text.replace("x", "-"))
    assert blanked == BlankedTasks(0, (running.id,))
    assert await texts(tasks) == ["x"]


async def test_a_file_has_its_copy_beside_it_so_that_nothing_is_looked_for_in_the_list(
    tasks: FleetTaskList,
) -> None:
    await add(tasks, "x")
    await tasks.remove_copy_of_0_2()
    assert await texts(tasks) == ["x"]
