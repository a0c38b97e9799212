"""The list of tasks in a file: how an older one is taken over, and that its work stays
the same however many tasks have ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from helix_desktop.errors import NotFound, WrittenByNewerVersion
from helix_desktop.resources import read_schema
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.fleet_task_files import (
    COPY_OF_0_2,
    TASK_FILE,
    SqliteTaskTables,
    forget_text_in_tasks,
    open_fleet_task_list,
)
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTaskOrder,
    FleetTaskResult,
    NewFleetTask,
    TaskRetention,
)
from helix_desktop.store.stored_workspace import StoredWorkspace

ORDER = b'{"text": "%s", "agent": "", "model": "", "allowed": [], "budget": 0.0}'
RESULT = b'{"why": "", "answer": "", "cost": 0.0, "asked": ""}'
# As version 0.2 left them: id, state, claims, dollars charged.
OLD_TASKS = (
    ("d" * 20, "done", 1, 0.5),
    ("f" * 20, "failed", 3, 0.25),
    ("1" * 20, "waiting", 0, 0.0),
    ("2" * 20, "waiting", 0, 0.0),
    ("3" * 20, "waiting", 0, 0.0),
    ("4" * 20, "needs-you", 1, 0.25),
)
OLD_NEEDS = (("1" * 20, "d" * 20), ("2" * 20, "f" * 20), ("3" * 20, "1" * 20))


@pytest.fixture
def open_tables(tmp_path: Path) -> Iterator[Callable[[], FleetTaskList]]:
    opened: list[SqliteTaskTables] = []

    def open_list() -> FleetTaskList:
        tables = SqliteTaskTables(tmp_path / TASK_FILE)
        opened.append(tables)

        return tables.open_list_in_file()

    yield open_list
    for tables in opened:
        tables.close()


def write_tables_of_version_2(path: Path) -> None:
    first, second, *_ = read_schema("fleet_tasks").split("-- Next step\n")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            f"{first} {second} PRAGMA application_id=1213749297; PRAGMA user_version=2;"
        )
        for task, state, claims, charged in OLD_TASKS:
            connection.execute(
                "INSERT INTO tasks(space, id, state, priority, added, deadline, worker, until, claims,"
                " sealed, result, charged) VALUES (x'', ?, ?, 0, 5.0, 0, '', 0, ?, ?, ?, ?)",
                (task, state, claims, ORDER % task.encode(), RESULT, charged),
            )
        connection.executemany("INSERT INTO task_needs VALUES (x'', ?, ?)", OLD_NEEDS)
        connection.execute("INSERT INTO notes VALUES (x'', 'limit workspace', 0, 7.5)")


async def test_tasks_and_budgets_of_version_2_are_taken_over_once_and_a_copy_is_kept(
    tmp_path: Path, open_tables: Callable[[], FleetTaskList]
) -> None:
    write_tables_of_version_2(tmp_path / TASK_FILE)
    tasks = open_tables()
    listed = {task.id[0]: task for task in await tasks.list_fleet_tasks()}
    assert {name: task.state.value for name, task in listed.items()} == {
        "d": "done",
        "f": "failed",
        "1": "waiting",
        "2": "cancelled",
        "3": "waiting",
        "4": "needs-you",
    }
    assert listed["2"].result.why.startswith("This task was waiting for a task that failed")
    assert listed["f"].order.text == "f" * 20
    counts = await tasks.count_fleet_tasks()
    assert counts.dollars == 1.0
    assert {state: number for state, number in counts.by_state.items() if number} == {
        "waiting": 2,
        "needs-you": 1,
        "done": 1,
        "failed": 1,
        "cancelled": 1,
    }
    assert (await tasks.notes.read_state()).limits == {"workspace": 7.5}
    assert [task.id[0] for task in await tasks.claim_fleet_tasks("me", 9, 30)] == ["1"]
    copy = tmp_path / COPY_OF_0_2
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        kept = connection.execute("SELECT id, state, claims, charged FROM tasks").fetchall()
    assert kept == list(OLD_TASKS)
    before = copy.read_bytes()
    open_tables()
    assert copy.read_bytes() == before


async def test_a_copy_that_was_interrupted_is_made_again(
    tmp_path: Path, open_tables: Callable[[], FleetTaskList]
) -> None:
    write_tables_of_version_2(tmp_path / TASK_FILE)
    (tmp_path / f"{COPY_OF_0_2}.unfinished").write_bytes(b"half")
    assert len(await open_tables().list_fleet_tasks()) == len(OLD_TASKS)
    with closing(sqlite3.connect(tmp_path / COPY_OF_0_2)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    assert not (tmp_path / f"{COPY_OF_0_2}.unfinished").exists()


async def test_a_new_list_has_no_copy_and_a_newer_one_is_left_alone(
    tmp_path: Path, open_tables: Callable[[], FleetTaskList]
) -> None:
    await open_tables().add_fleet_tasks([NewFleetTask(FleetTaskOrder("x"))])
    assert not (tmp_path / COPY_OF_0_2).exists()
    with closing(sqlite3.connect(tmp_path / TASK_FILE)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(WrittenByNewerVersion):
        open_tables()
    assert not (tmp_path / COPY_OF_0_2).exists()


async def count_steps(tables: SqliteTaskTables, work: Callable[[], Awaitable[object]]) -> int:
    """How many steps SQLite takes for it, which does not depend on the computer's load."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 10
        return 0

    tables._connection.set_progress_handler(count, 10)
    await work()
    tables._connection.set_progress_handler(None, 0)
    return steps


async def test_the_work_is_the_same_after_many_tasks_and_beside_many_blocked_ones(
    tmp_path: Path,
) -> None:
    few = await steps_of_each_question(tmp_path / "few", ended=30, blocked=20)
    many = await steps_of_each_question(tmp_path / "many", ended=600, blocked=900)
    for question, steps in many.items():
        assert steps < 1.5 * few[question] + 100, question


async def steps_of_each_question(folder: Path, *, ended: int, blocked: int) -> dict[str, int]:
    folder.mkdir()
    tables = SqliteTaskTables(folder / TASK_FILE)

    tasks = tables.open_list_in_file()
    history = [NewFleetTask(FleetTaskOrder("x")) for _ in range(ended)]
    await tasks.add_fleet_tasks(history)
    for task in await tasks.claim_fleet_tasks("me", ended, 30):
        state = "failed" if int(task.id, 16) % 3 == 0 else "done"
        await tasks.end_fleet_task(task, type(task.state)(state), FleetTaskResult())
    await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("x"), key="need", priority=-1)])
    blocks = [NewFleetTask(FleetTaskOrder("x"), after=("need",)) for _ in range(blocked)]
    await tasks.add_fleet_tasks(blocks)
    await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("x")) for _ in range(50)])
    (mine,) = await tasks.claim_fleet_tasks("me", 1, 30)
    questions: dict[str, Callable[[], Awaitable[object]]] = {
        "take": lambda: tasks.claim_fleet_tasks("me", 1, 30),
        "count": tasks.count_fleet_tasks,
        "fingerprint": tasks.read_fingerprint,
        "list": lambda: tasks.list_fleet_tasks(limit=20),
        "list of done": lambda: tasks.list_fleet_tasks("done", 5),
        "page": lambda: tasks.list_fleet_tasks(limit=20, before=25),
        "list of running": lambda: tasks.list_fleet_tasks("running", 20),
        "find": lambda: tasks.find_fleet_task(mine.id),
        "end": lambda: tasks.end_fleet_task(mine, type(mine.state)("done"), FleetTaskResult()),
        "retention": lambda: tasks.remove_old_tasks(TaskRetention()),
    }
    steps = {}
    for name, ask in questions.items():
        steps[name] = await count_steps(tables, ask)
    tables.close()
    return steps


async def test_a_workspace_that_is_not_shared_has_its_list_in_its_folder_open_or_closed(
    tmp_path: Path,
) -> None:
    workspaces = AllWorkspaces(tmp_path)
    known = workspaces.create_stored_workspace("w", tmp_path)
    new_task = NewFleetTask(FleetTaskOrder("look"))
    async with open_fleet_task_list(known) as tasks:
        (task,) = await tasks.add_fleet_tasks([new_task])
    opened = await workspaces.open_stored_workspace(known.id)
    async with open_fleet_task_list(opened) as tasks:
        assert (await tasks.find_fleet_task(task)).order.text == "look"
    await opened.aclose()
    assert (opened.folder / TASK_FILE).exists()


async def test_a_text_is_forgotten_in_tasks_and_a_running_one_that_has_it_is_named(
    tmp_path: Path,
) -> None:
    workspaces = AllWorkspaces(tmp_path)
    known = workspaces.create_stored_workspace("w", tmp_path)
    opened = await workspaces.open_stored_workspace(known.id)
    first_task = NewFleetTask(FleetTaskOrder("use hunter2"), priority=1)
    second_task = NewFleetTask(FleetTaskOrder("wait for hunter2"))
    async with open_fleet_task_list(opened) as tasks:
        (running, waiting) = await tasks.add_fleet_tasks([first_task, second_task])
        await tasks.claim_fleet_tasks("worker", 1, 30)
    (opened.folder / COPY_OF_0_2).write_bytes(b"hunter2")

    changed, sentences = await forget_text_in_tasks(opened, "hunter2")

    assert changed == 1
    (sentence,) = sentences
    assert sentence.startswith(f"The task {running} is running and still contains the text.")
    assert not (opened.folder / COPY_OF_0_2).exists()
    async with open_fleet_task_list(opened) as tasks:
        assert "hunter2" not in (await tasks.find_fleet_task(waiting)).order.text
    assert await forget_text_in_tasks(opened, "") == (0, ())
    await opened.aclose()


async def test_a_shared_store_that_is_no_database_says_that_it_cannot_store_tasks(
    tmp_path: Path,
) -> None:
    class Link:
        async def ensure_connected(self) -> object:
            return SimpleNamespace(remote=SimpleNamespace(engine="a bucket"))

    shared = cast(StoredWorkspace, SimpleNamespace(link=Link(), folder=tmp_path))
    with pytest.raises(NotFound, match="cannot store tasks") as refused:
        async with open_fleet_task_list(shared):
            raise AssertionError
    assert refused.value.remedy == "To share tasks, use PostgreSQL."


def set_clock_back(folder: Path, seconds: float) -> None:
    """Move every end that is noted as far away as it is once the clock was set back."""
    with closing(sqlite3.connect(folder / TASK_FILE)) as connection, connection:
        connection.execute("UPDATE tasks SET until = until + ? WHERE until > 0", (seconds,))
        connection.execute("UPDATE notes SET until = until + ? WHERE until > 0", (seconds,))


@pytest.mark.parametrize("seconds", [2 * 86_400.0, 31_557_600.0, 1.7e9])
async def test_a_lease_ends_although_the_clock_was_set_back(
    tmp_path: Path, open_tables: Callable[[], FleetTaskList], seconds: float
) -> None:
    """The task of a worker that was killed stood as running until the year came again."""
    tasks = open_tables()
    await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("x"))])
    (claimed,) = await tasks.claim_fleet_tasks("killed", 9, 30)
    set_clock_back(tmp_path, seconds)
    (again,) = await tasks.claim_fleet_tasks("next", 9, 30)
    assert (again.id, again.claims) == (claimed.id, claimed.claims + 1)


async def test_a_task_that_waits_after_a_setback_is_tried_although_the_clock_was_set_back(
    tmp_path: Path, open_tables: Callable[[], FleetTaskList]
) -> None:
    tasks = open_tables()
    await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("x"))])
    for _ in range(2):
        for claimed in await tasks.claim_fleet_tasks("one", 9, 30):
            await tasks.give_back_after_setback(claimed, FleetTaskResult())
    assert await tasks.claim_fleet_tasks("one", 9, 30) == []
    set_clock_back(tmp_path, 31_557_600.0)
    assert await tasks.seconds_until_next_try() is None
    assert len(await tasks.claim_fleet_tasks("one", 9, 30)) == 1


async def test_no_worker_lives_and_no_provider_pauses_because_the_clock_was_set_back(
    tmp_path: Path, open_tables: Callable[[], FleetTaskList]
) -> None:
    notes = open_tables().notes
    await notes.renew_worker_and_tell_if_draining("killed", 30)
    await notes.pause_provider("openai", 60)
    state = await notes.read_state()
    assert (list(state.workers), state.paused) == (["killed"], ("openai",))
    set_clock_back(tmp_path, 31_557_600.0)
    state = await notes.read_state()
    assert (list(state.workers), state.paused) == ([], ())
