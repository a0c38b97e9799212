"""Looking at the tasks of a workspace: lists, counts and what is found by the beginning of an id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.errors import AmbiguousName, InvalidInput, NotFound
from helix_desktop.store.fleet_task_files import SqliteTaskTables
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)

DONE, WAITING, RUNNING, FAILED = (
    FleetTaskState.DONE,
    FleetTaskState.WAITING,
    FleetTaskState.RUNNING,
    FleetTaskState.FAILED,
)


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[FleetTaskList]:
    tables = SqliteTaskTables(tmp_path / "tasks.sqlite3")
    yield tables.open_list_in_file()
    tables.close()


async def add(tasks: FleetTaskList, *texts: str) -> list[str]:
    return await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder(text)) for text in texts])


async def end(tasks: FleetTaskList, state: FleetTaskState = DONE) -> str:
    (task,) = await tasks.claim_fleet_tasks("one", 1, 30)
    await tasks.end_fleet_task(task, state, FleetTaskResult(cost=0.5))
    return task.id


def texts(listed: list[FleetTask]) -> list[str]:
    return [task.order.text for task in listed]


async def test_live_and_ended_tasks_are_in_one_list_newest_first_up_to_a_limit(
    tasks: FleetTaskList,
) -> None:
    assert await tasks.list_fleet_tasks() == []
    await add(tasks, "a", "b", "c", "d")
    await end(tasks)
    await end(tasks, FAILED)
    assert texts(await tasks.list_fleet_tasks()) == ["d", "c", "b", "a"]
    newest = await tasks.list_fleet_tasks(limit=3)
    assert texts(newest) == ["d", "c", "b"]
    assert texts(await tasks.list_fleet_tasks(before=newest[-1].position)) == ["a"]
    assert texts(await tasks.list_fleet_tasks(before=newest[0].position, limit=1)) == ["c"]


async def test_tasks_of_one_state_are_listed_whether_they_have_ended_or_not(
    tasks: FleetTaskList,
) -> None:
    await add(tasks, "a", "b", "c", "d")
    await end(tasks)
    await end(tasks)
    assert texts(await tasks.list_fleet_tasks(state="done")) == ["b", "a"]
    assert texts(await tasks.list_fleet_tasks(state="done", limit=1)) == ["b"]
    assert texts(await tasks.list_fleet_tasks(state="waiting")) == ["d", "c"]
    assert await tasks.list_fleet_tasks(state="failed") == []
    by_state = await tasks.list_newest_of_each_state([WAITING, DONE, FAILED], 1)
    assert {state: texts(listed) for state, listed in by_state.items()} == {
        WAITING: ["d"],
        DONE: ["b"],
        FAILED: [],
    }
    assert list(by_state) == [WAITING, DONE, FAILED]
    assert await tasks.list_newest_of_each_state([], 1) == {}


async def test_of_some_ids_those_are_kept_whose_task_has_ended(tasks: FleetTaskList) -> None:
    first, second, third = await add(tasks, "a", "b", "c")
    await end(tasks)
    await end(tasks)
    assert await tasks.filter_ended_tasks([third, second, "0" * 20, first]) == [second, first]
    assert await tasks.filter_ended_tasks([]) == []


async def test_what_a_task_waits_for_is_listed(tasks: FleetTaskList) -> None:
    needed, waiting = await tasks.add_fleet_tasks(
        [
            NewFleetTask(FleetTaskOrder("a"), key="first"),
            NewFleetTask(FleetTaskOrder("b"), after=("first",)),
        ]
    )
    assert await tasks.list_needs_of_task(waiting) == [needed]
    assert await tasks.list_needs_of_task(needed) == []


async def test_a_task_is_found_by_the_beginning_of_its_id_also_after_it_has_ended(
    tasks: FleetTaskList,
) -> None:
    (first,) = await add(tasks, "a")
    assert (await tasks.find_fleet_task(first[:4])).order.text == "a"
    assert (await tasks.find_fleet_task(first)).state is WAITING
    await end(tasks)
    assert (await tasks.find_fleet_task(first[:19])).state is DONE


@pytest.mark.parametrize("wrong", ["", "abc", "ABCD", "xyz1", "0" * 21, "0000 "])
async def test_what_is_no_id_is_refused(tasks: FleetTaskList, wrong: str) -> None:
    with pytest.raises(InvalidInput, match="is not the ID of a task"):
        await tasks.find_fleet_task(wrong)


async def test_an_unknown_and_an_ambiguous_id_are_told_apart(tasks: FleetTaskList) -> None:
    ids = await add(tasks, "a", "b")
    for number, task in enumerate(ids):
        new_id = f"abcd{number}{task[5:]}"
        await tasks._run_statements([("UPDATE tasks SET id = ? WHERE id = ?", (new_id, task))])
    with pytest.raises(AmbiguousName, match="several tasks begin with abcd"):
        await tasks.find_fleet_task("abcd")
    assert (await tasks.find_fleet_task("abcd1")).order.text == "b"
    with pytest.raises(NotFound, match="no task abcde in"):
        await tasks.find_fleet_task("abcde")


async def test_the_counts_follow_each_change(tasks: FleetTaskList) -> None:
    nothing = await tasks.count_fleet_tasks()
    assert set(nothing.by_state.values()) == {0}
    assert set(nothing.by_state) == {state.value for state in FleetTaskState}
    assert (nothing.by_worker, nothing.dollars) == ({}, 0.0)
    await add(tasks, "a", "b", "c")
    await end(tasks)
    await tasks.claim_fleet_tasks("two", 1, 30)
    counts = await tasks.count_fleet_tasks()
    assert (counts.by_state["waiting"], counts.by_state["running"]) == (1, 1)
    assert counts.by_state["done"] == 1
    assert counts.by_worker == {"two": 1}
    assert counts.dollars == 0.5
    assert counts.changes > nothing.changes


async def test_the_oldest_waiting_task_says_how_long_it_waits(tasks: FleetTaskList) -> None:
    assert await tasks.oldest_waiting_seconds() == 0.0
    await add(tasks, "a", "b")
    await tasks._run_statements([("UPDATE tasks SET added = added - 100 WHERE position = 1", ())])
    assert 100.0 <= await tasks.oldest_waiting_seconds() < 160.0


async def test_what_is_read_again_tells_whether_anything_has_changed(tasks: FleetTaskList) -> None:
    async def has_changed(before: object) -> bool:
        return await tasks.read_fingerprint() != before

    fingerprint = await tasks.read_fingerprint()
    assert not await has_changed(fingerprint)
    await add(tasks, "a")
    assert await has_changed(fingerprint)
    fingerprint = await tasks.read_fingerprint()
    await tasks.claim_fleet_tasks("one", 1, 30)
    assert await has_changed(fingerprint)
    fingerprint = await tasks.read_fingerprint()
    await tasks.notes.set_limit("day", 1.0)
    assert await has_changed(fingerprint)


async def test_a_list_in_a_file_has_no_schedules_of_its_own(tasks: FleetTaskList) -> None:
    assert tasks.schedules is None
    assert not tasks.is_shared
    assert await tasks._run_statements([]) == []
