"""What the window sees of tasks, also of workspaces that are not open, and how it gives
and does them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from helix_desktop.engine.facts import ToolReturned
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN
from helix_desktop.errors import UnknownModel
from helix_desktop.store.fleet_statements import SQLITE, TableTransaction
from helix_desktop.store.fleet_task_files import TASK_FILE, SqliteTaskTables, open_fleet_task_list
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.store.row_task_queue import RowTaskQueue
from helix_desktop.workbench.fleet_overview import FleetOverview, collect_fleet_state
from helix_desktop.workbench.unattended_permissions import UserAnswer
from tests.peers.chat_server import reply
from tests.workbench.conftest import Desks
from tests.workbench.test_fleet_worker import CALL, place, share

T = TypeVar("T")
Found = list[Mapping[str, Any]]


async def seen(fleet: FleetOverview, what: Callable[[Found], bool]) -> Found:
    """What it shows once this is so."""
    shown: asyncio.Future[Found] = asyncio.get_running_loop().create_future()

    def show(found: Found) -> None:
        if what(found) and not shown.done():
            shown.set_result(found)

    following = asyncio.ensure_future(fleet.follow_fleet(show))  # noqa: TID251
    try:
        return await asyncio.wait_for(shown, 60)
    finally:
        following.cancel()


async def test_a_task_given_here_is_done_here_and_asks_for_what_it_needs(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    async with place(lambda: desk, folder, CALL, CALL, reply("It is made.")) as (bench, _, _):
        fleet = desk.fleet
        await fleet.add_task(bench.id, "make it", ())
        (found,) = await seen(fleet, lambda found: bool(found[0]["needs_you"]))
        assert await fleet.count_tasks_that_need_user() == 1
        (task,) = found["needs_you"]
        assert (task["asked"], found["tasks"]["needs-you"], found["name"]) == (
            "write_file",
            1,
            "Tasks",
        )
        await fleet.retry_task(bench.id, task["id"], ["write_file"])
        (found,) = await seen(fleet, lambda found: bool(found[0]["done"]))
        assert (found["done"][0]["answer"], found["done"][0]["allow"]) == (
            "It is made.",
            ("write_file",),
        )
        assert (folder / "made.txt").read_text() == "made"


@pytest.mark.parametrize(
    ("answer", "made", "head"),
    [
        (UserAnswer(allowed=True), "made", "Created made.txt (1 line)."),
        (UserAnswer(allowed=False), "", "The user denied this call, so it was not run."),
        (UserAnswer(allowed=False, words="Use a.txt."), "", "The user denied this call, so it was not run. The user said: Use a.txt."),
    ],
)  # fmt: skip
async def test_the_very_call_that_was_shown_is_allowed_once_or_denied(
    desks: Desks, folder: Path, answer: UserAnswer, made: str, head: str
) -> None:
    """The model is not asked to make it again, and what it does next needs permission
    of its own.
    """
    desk = desks()
    other = reply(calls=[("write_file", {"path": "other.txt", "content": "not seen"})])
    async with place(lambda: desk, folder, CALL, other, reply("It is made.")) as (bench, _, _):
        await desk.fleet.add_task(bench.id, "make it", ())
        (found,) = await seen(desk.fleet, lambda found: bool(found[0]["needs_you"]))
        (task,) = found["needs_you"]
        await desk.fleet.retry_task(bench.id, task["id"], [answer.as_permission(task["why"])])
        (found,) = await seen(desk.fleet, lambda found: "other.txt" in str(found[0]["needs_you"]))
        assert ((folder / "made.txt").read_text() if made else "") == made
        assert not (folder / "other.txt").exists()
        session = await bench.open_session(task["id"])
        results = [
            one.fact
            for one in session.conversation.state.facts_on_path()
            if isinstance(one.fact, ToolReturned)
        ]
        assert [one.head for one in results] == [head, NOT_BEGUN]


async def test_a_command_that_is_always_allowed_allows_no_other_command(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    first = reply(calls=[("run_command", {"command": "seq 3 | head -2"})])
    alike = reply(calls=[("run_command", {"command": "seq 9 | head -1"})])
    part = reply(calls=[("run_command", {"command": "seq 4"})])
    other = reply(calls=[("run_command", {"command": "touch made.txt"})])
    async with place(lambda: desk, folder, first, alike, part, other) as (bench, _, _):
        await desk.fleet.add_task(bench.id, "count", ())
        (found,) = await seen(desk.fleet, lambda found: bool(found[0]["needs_you"]))
        (task,) = found["needs_you"]
        assert task["rules"][0] == "seq *, head *"
        assert task["access"]
        chosen = task["rules"][0]
        await desk.fleet.allow_for_rest_of_task(bench.id, task["id"], task["asked"], chosen)
        (found,) = await seen(desk.fleet, lambda found: "touch" in str(found[0]["needs_you"]))
        assert not (folder / "made.txt").exists()
        session = await bench.open_session(task["id"])
        facts = [recorded.fact for recorded in session.conversation.state.facts_on_path()]
        results = [fact for fact in facts if isinstance(fact, ToolReturned)]
        # A program of the rule alone is covered too, as by "Allow in this conversation" in a chat.
        assert [result.ok for result in results] == [True, True, True, False]


async def test_always_allowing_an_edit_covers_the_folder_that_was_chosen(
    desks: Desks, folder: Path
) -> None:
    """It covered any file in the workspace, where a chat offers the folder first."""
    desk = desks()
    (folder / "kept").mkdir()
    first = reply(calls=[("write_file", {"path": "kept/a.txt", "content": "a"})])
    alike = reply(calls=[("write_file", {"path": "kept/b.txt", "content": "b"})])
    other = reply(calls=[("write_file", {"path": "c.txt", "content": "c"})])
    async with place(lambda: desk, folder, first, alike, other) as (bench, _, _):
        await desk.fleet.add_task(bench.id, "write them", ())
        (found,) = await seen(desk.fleet, lambda found: bool(found[0]["needs_you"]))
        (task,) = found["needs_you"]
        assert (task["rules"], task["rule_folders"]) == (
            ("kept/*", "edit_file, write_file"),
            ("kept", "."),
        )
        await desk.fleet.allow_for_rest_of_task(bench.id, task["id"], task["asked"], "kept/*")
        await seen(desk.fleet, lambda found: "c.txt" in str(found[0]["needs_you"]))
        assert (folder / "kept" / "b.txt").read_text() == "b"
        assert not (folder / "c.txt").exists()


async def test_a_call_that_would_do_something_else_now_is_shown_again(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    edit = reply(calls=[("write_file", {"path": "made.txt", "content": "new"})])
    (folder / "made.txt").write_text("old")
    read = reply(calls=[("read_file", {"path": "made.txt"})])
    async with place(lambda: desk, folder, read, edit, reply("It is made.")) as (bench, _, _):
        await desk.fleet.add_task(bench.id, "make it", ())
        (found,) = await seen(desk.fleet, lambda found: bool(found[0]["needs_you"]))
        (task,) = found["needs_you"]
        (bench.main_folder / "made.txt").chmod(0o755)
        other = UserAnswer(allowed=True).as_permission(task["why"] + " and more")
        await desk.fleet.retry_task(bench.id, task["id"], [other])
        (found,) = await seen(
            desk.fleet,
            lambda found: bool(found[0]["needs_you"]) and found[0]["needs_you"][0]["claims"] == 2,
        )
        assert (folder / "made.txt").read_text() == "old"
        again = UserAnswer(allowed=True).as_permission(found["needs_you"][0]["why"])
        await desk.fleet.retry_task(bench.id, task["id"], [again])
        await seen(desk.fleet, lambda found: bool(found[0]["done"]))
        assert (folder / "made.txt").read_text() == "new"


async def test_a_no_is_a_no_even_if_the_call_would_do_something_else_now(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    async with place(lambda: desk, folder, CALL, reply("It is not made.")) as (bench, _, _):
        await desk.fleet.add_task(bench.id, "make it", ())
        (found,) = await seen(desk.fleet, lambda found: bool(found[0]["needs_you"]))
        (task,) = found["needs_you"]
        (bench.main_folder / "made.txt").write_text("the user's")
        await desk.fleet.answer_task(bench.id, task["id"], task["why"], allowed=False)
        (found,) = await seen(
            desk.fleet, lambda found: not found[0]["waiting"] and not found[0]["running"]
        )
        assert (len(found["needs_you"]), len(found["done"])) == (0, 1)
        assert (folder / "made.txt").read_text() == "the user's"


async def test_a_closed_workspace_is_read_and_changed_without_being_opened(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    bench = await desk.create_workspace("Tasks", folder)
    other = await desk.create_workspace("Without", folder)
    async with open_fleet_task_list(bench.workspace) as tasks:
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("one"))])
        await tasks.notes.renew_worker_and_tell_if_draining("build 1.1", 3_600)
    await desk.close_workspace(bench.id)
    (found,) = await seen(desk.fleet, bool)
    assert (found["workspace"], found["workers"], found["waiting"][0]["text"]) == (
        bench.id,
        {"build 1.1": 0},
        "one",
    )
    assert await desk.fleet.run_on_task_list(bench.id, lambda tasks: tasks.cancel_fleet_task(task))
    await seen(desk.fleet, lambda found: found[0]["tasks"]["cancelled"] == 1)
    assert [one.id for one in desk.opened_workbenches()] == [other.id]
    assert not (other.workspace.folder / TASK_FILE).exists()


async def test_only_what_changed_is_read_again(desks: Desks, folder: Path) -> None:
    async with place(desks, folder) as (_, tasks, _):
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("one"))])
        before = await tasks.read_fingerprint()
        assert await tasks.read_fingerprint() == before
        await tasks.claim_fleet_tasks("me", 1, 30)
        assert await tasks.read_fingerprint() != before


async def test_the_tasks_of_all_states_are_read_in_one_transaction(tmp_path: Path) -> None:
    tables = SqliteTaskTables(tmp_path / TASK_FILE)
    number_of_transactions = 0

    async def run_and_count(work: Callable[[TableTransaction], T]) -> T:
        nonlocal number_of_transactions
        number_of_transactions += 1
        return await tables.run_in_task_file(work)

    tasks = FleetTaskList(run_and_count, SQLITE, RowTaskQueue())
    await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder(name)) for name in ("a", "b", "c")])
    (claimed,) = await tasks.claim_fleet_tasks("desk 1.1", 1, 3600.0)
    await tasks.end_fleet_task(claimed, FleetTaskState.FAILED, FleetTaskResult("It failed."))
    number_of_transactions = 0
    state = await collect_fleet_state(tasks, FleetTaskState, shown_at_most=1)
    assert number_of_transactions <= 4
    assert [task["text"] for task in state["waiting"]] == ["c"]
    assert [task["why"] for task in state["failed"]] == ["It failed."]
    assert state["done"] == []
    assert state["has_older"]
    tables.close()


async def test_what_a_worker_elsewhere_will_do_is_not_done_here(desks: Desks, folder: Path) -> None:
    desk = desks()
    bench = await desk.create_workspace("Tasks", folder)
    async with open_fleet_task_list(bench.workspace) as tasks:
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("one"))])
        await tasks.cancel_fleet_task(task)
        await tasks.notes.renew_worker_and_tell_if_draining("build 1.1", 3_600)
    await desk.close_workspace(bench.id)
    await desk.fleet.add_task(bench.id, "two", ())
    await desk.fleet.retry_task(bench.id, task, ())
    await desk.fleet.retry_tasks_set_aside(bench.id)
    assert not desk.opened_workbenches()
    (found,) = await seen(desk.fleet, bool)
    assert {row["text"] for row in found["waiting"]} == {"one", "two"}


async def test_a_task_that_nobody_can_do_says_what_is_missing_in_the_words_of_the_window(
    desks: Desks, folder: Path
) -> None:
    """It named a command for the terminal, and not that another computer could do it."""
    desk = desks()
    bench = await desk.create_workspace("Tasks", folder)
    with pytest.raises(UnknownModel) as refused:
        await desk.fleet.add_task(bench.id, "one", ())
    assert "No other computer runs the tasks of Tasks" in str(refused.value)
    assert "Choose a model at the top right" in str(refused.value)


async def test_tasks_that_were_set_aside_are_done_here_without_a_worker(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    async with place(lambda: desk, folder, reply("It is made.")) as (bench, tasks, _):
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("make it"))])
        await desk.fleet.retry_tasks_set_aside(bench.id)
        (found,) = await seen(desk.fleet, lambda found: bool(found[0]["done"]))
        assert found["done"][0]["answer"] == "It is made."


async def test_a_shared_workspace_is_listed_before_its_folder_has_a_task(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    bench = await desk.create_workspace("Tasks", folder)
    assert desk.fleet._list_workspaces_with_tasks() == []
    share(bench)
    assert [known.id for known in desk.fleet._list_workspaces_with_tasks()] == [bench.id]
