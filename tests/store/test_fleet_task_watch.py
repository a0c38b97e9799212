"""Which closed workspaces have tasks, seen without opening them."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from helix_desktop.store import fleet_task_watch
from helix_desktop.store.fleet_task_files import TASK_FILE, SqliteTaskTables, find_tasks_ahead
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_task_watch import FleetTaskWatch
from helix_desktop.store.fleet_tasks import FleetTaskOrder, FleetTaskResult, NewFleetTask


@asynccontextmanager
async def list_in(folder: Path) -> AsyncIterator[FleetTaskList]:
    folder.mkdir(exist_ok=True)
    tables = SqliteTaskTables(folder / TASK_FILE)

    yield tables.open_list_in_file()
    tables.close()


async def add_task(folder: Path) -> None:
    async with list_in(folder) as tasks:
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("x"))])


async def test_a_workspace_is_found_once_for_each_change_of_its_tasks(tmp_path: Path) -> None:
    watch = FleetTaskWatch({"a": tmp_path / "a", "b": tmp_path / "b", "c": tmp_path / "c"})
    assert watch.find_workspaces_with_tasks() == []
    await add_task(tmp_path / "a")
    async with list_in(tmp_path / "b") as tasks:  # a list without tasks
        await tasks.count_fleet_tasks()
    assert watch.find_workspaces_with_tasks(["a"]) == []
    assert watch.find_workspaces_with_tasks() == ["a"]
    assert watch.find_workspaces_with_tasks() == []
    await add_task(tmp_path / "b")
    assert watch.find_workspaces_with_tasks() == ["b"]
    await add_task(tmp_path / "a")
    assert watch.find_workspaces_with_tasks() == ["a"]


async def test_the_task_of_a_killed_worker_is_found_and_an_ended_one_is_not(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "a"
    await add_task(folder)
    async with list_in(folder) as tasks:
        (mine,) = await tasks.claim_fleet_tasks("me", 1, 30)
        assert find_tasks_ahead(folder / TASK_FILE).has_work
        await tasks.end_fleet_task(mine, type(mine.state)("done"), FleetTaskResult())
        assert not find_tasks_ahead(folder / TASK_FILE).has_work


async def test_a_task_that_was_given_back_is_found_when_it_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, now = tmp_path / "a", 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    await add_task(folder)
    async with list_in(folder) as tasks:
        (mine,) = await tasks.claim_fleet_tasks("me", 1, 30)
        await tasks.give_back_after_setback(mine, FleetTaskResult("full"))
    watch = FleetTaskWatch({"a": folder})
    assert watch.find_workspaces_with_tasks() == []
    ahead = find_tasks_ahead(folder / TASK_FILE)
    assert ahead.next_try_seconds is not None
    assert 0 < ahead.next_try_seconds <= 2
    async with list_in(folder) as tasks:
        await tasks._run_statements([("UPDATE tasks SET until = 0", ())])
    watch = FleetTaskWatch({"a": folder})
    watch.note_closed("a")
    assert watch.find_workspaces_with_tasks() == []
    now += fleet_task_watch.UNCHANGED_SECONDS + 1
    assert watch.find_workspaces_with_tasks() == ["a"]


async def test_looking_changes_nothing_and_what_cannot_be_read_counts_as_work(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "a"
    await add_task(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert find_tasks_ahead(folder / TASK_FILE).has_work
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    (folder / TASK_FILE).write_bytes(b"no database" * 100)
    assert find_tasks_ahead(folder / TASK_FILE).has_work


async def test_five_thousand_workspaces_are_looked_at_without_a_handle_left_open(
    tmp_path: Path,
) -> None:
    await add_task(tmp_path / "0")
    content = (tmp_path / "0" / TASK_FILE).read_bytes()
    folders = {"0": tmp_path / "0"}
    for number in range(1, 200):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / TASK_FILE).write_bytes(content)
        folders[str(number)] = folder
    for number in range(200, 5_000):
        folders[str(number)] = tmp_path / str(number)
    watch = FleetTaskWatch(folders)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - what a path iterates holds a handle
    assert len(watch.find_workspaces_with_tasks()) == 200
    assert watch.find_workspaces_with_tasks() == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
