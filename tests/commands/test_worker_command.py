"""Which workspaces a worker opens, when it tries one again, and with what exit code it ends."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from helix_desktop import errors
from helix_desktop.commands import worker_command, workspace_access
from helix_desktop.commands.worker_command import (
    AGAIN,
    OPENED_AT_FIRST,
    UNABLE,
    _WorkerRounds,
)
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console
from helix_desktop.program_folders import ProgramFolders, find_program_folders
from helix_desktop.resident.resident_client import CollectingConsole
from helix_desktop.store import workspace_link
from helix_desktop.store.all_workspaces import KnownWorkspace
from helix_desktop.store.fleet_task_files import open_fleet_task_list
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_settings import WorkspaceConfig
from helix_desktop.workbench import Workbench
from helix_desktop.workbench.fleet_worker import FleetWorker
from tests.conftest import Expect
from tests.workbench.conftest import Desks, desks, folder

__all__ = ["desks", "folder"]
OWNED = OwnedTasks("tests of the worker")


class PrintedConsole:
    """Keeps each line and each sentence that the worker printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.sentences: list[str] = []

    async def read_input(self) -> bytes:
        return b""

    async def write_output(self, data: bytes) -> None:
        raise AssertionError(data)

    async def print_line(self, text: str) -> None:
        self.lines.append(text)

    async def print_error(self, sentence: str) -> None:
        self.sentences.append(sentence)


class GoneConsole(PrintedConsole):
    """The terminal of a caller that was killed."""

    async def print_line(self, text: str) -> None:
        raise ConnectionResetError(text)


def parse(*words: str) -> Namespace:
    parser = argparse.ArgumentParser()
    worker_command.add_worker_commands(parser.add_subparsers())
    return parser.parse_args(["worker", *words])


def known(tmp_path: Path, own: int, shared: int = 0) -> dict[str, KnownWorkspace]:
    workspaces: dict[str, KnownWorkspace] = {}
    for number in range(shared):
        settings = WorkspaceConfig(shared={"url": "postgresql://"})
        workspaces[f"s{number}"] = KnownWorkspace(f"s{number}", tmp_path, settings)
    for number in range(own):
        workspaces[f"o{number}"] = KnownWorkspace(
            f"o{number}", tmp_path / f"o{number}", WorkspaceConfig()
        )
    return workspaces


def rounds(
    workspaces: dict[str, KnownWorkspace], *words: str, **values: Any
) -> tuple[_WorkerRounds, Namespace]:
    arguments = parse(*words)
    arguments.workers = []
    arguments.is_draining = False
    arguments.known = workspaces
    arguments.unable = set[str]()
    vars(arguments).update(values)
    return _WorkerRounds(arguments, workspaces), arguments


# --- The command line


def test_what_is_not_said_has_a_usual_value() -> None:
    usual = parse()
    assert usual.workspace == []
    assert usual.at_once == 4
    assert list(usual.allow) == []
    assert usual.keep == 0
    assert usual.lasting
    assert not usual.drain
    assert not usual.json
    assert not usual.ignore_task_allow


def test_a_worker_runs_one_task_at_once_or_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse("--at-once", "1").at_once == 1
    with pytest.raises(SystemExit):
        parse("--at-once", "0")
    assert "a number of 1 or more" in capsys.readouterr().err


def test_several_workspaces_and_permissions_are_named_one_by_one() -> None:
    named = parse("-w", "One", "--workspace", "Two", "--allow", "edits", "--allow", "web")
    assert named.workspace == ["One", "Two"]
    assert list(named.allow) == ["edits", "web"]


# --- Which workspaces are opened


async def test_few_workspaces_are_all_opened_at_first_the_shared_ones_before_the_others(
    tmp_path: Path,
) -> None:
    few, _ = rounds(known(tmp_path, OPENED_AT_FIRST, shared=2))
    opened = few._workspaces_to_open_first()
    assert len(opened) == OPENED_AT_FIRST + 2
    assert opened[:3] == ["s0", "s1", "o0"]


async def test_of_many_only_the_shared_ones_are_opened_unless_they_are_named(
    tmp_path: Path,
) -> None:
    many = known(tmp_path, OPENED_AT_FIRST + 1, shared=1)
    assert rounds(many)[0]._workspaces_to_open_first() == ["s0"]
    named, _ = rounds(many, "-w", "o0")
    assert len(named._workspaces_to_open_first()) == OPENED_AT_FIRST + 2


async def test_codes_are_collected_of_closed_workspaces_only(tmp_path: Path) -> None:
    running, _ = rounds(known(tmp_path, 3))

    async def end(code: int) -> int:
        return code

    held = asyncio.Event()

    async def hold() -> int:
        await held.wait()
        return 7

    running._running = {
        "o0": OWNED.spawn_task(end(0), name="work"),
        "o1": OWNED.spawn_task(hold(), name="work"),
        "o2": OWNED.spawn_task(end(1), name="work"),
    }
    await asyncio.wait([running._running["o0"], running._running["o2"]])
    assert running._collect_codes() == [0, 1]
    assert list(running._running) == ["o1"]
    assert running._collect_codes() == []
    held.set()
    await running._running["o1"]
    assert running._collect_codes() == [7]
    assert running._running == {}


async def test_what_goes_wrong_in_a_workspace_is_told_when_its_code_is_collected(
    tmp_path: Path,
) -> None:
    running, _ = rounds(known(tmp_path, 1))

    async def fail() -> int:
        raise errors.NotFound("gone")

    running._running = {"o0": OWNED.spawn_task(fail(), name="work")}
    await asyncio.wait(running._running.values())
    with pytest.raises(errors.NotFound):
        running._collect_codes()


async def test_the_next_look_comes_when_a_workspace_closes_or_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_command, "LOOK_SECONDS", 0.01)
    looking, _ = rounds(known(tmp_path, 1))
    await asyncio.wait_for(looking._wait_for_next_look(), 30)
    held = OWNED.spawn_task(asyncio.Event().wait(), name="held")
    looking._running = {"o0": cast("asyncio.Task[int]", held)}
    await asyncio.wait_for(looking._wait_for_next_look(), 30)
    assert not held.done(), "it goes on while others are looked at"
    monkeypatch.setattr(worker_command, "LOOK_SECONDS", 60.0)
    asyncio.get_running_loop().call_soon(held.cancel)
    await asyncio.wait_for(looking._wait_for_next_look(), 30)


@dataclass
class DrainedWorker:
    is_drained: bool = False

    def drain(self) -> None:
        self.is_drained = True


async def test_draining_ends_the_command_only_if_no_worker_has_to_finish(tmp_path: Path) -> None:
    worker = DrainedWorker()
    finishing, arguments = rounds(known(tmp_path, 1), workers=[worker])
    main = OWNED.spawn_task(asyncio.sleep(0), name="main")
    finishing._drain(cast("asyncio.Task[int]", main))
    await main
    assert arguments.is_draining
    assert worker.is_drained

    waiting, arguments = rounds(known(tmp_path, 1))
    main = OWNED.spawn_task(asyncio.sleep(0), name="main")
    waiting._drain(cast("asyncio.Task[int]", main))
    assert arguments.is_draining
    with pytest.raises(asyncio.CancelledError):
        await main
    waiting._drain(None)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
@pytest.mark.parametrize(
    ("wanted", "becomes", "workspaces"),
    [
        (700, 700, 14),  # 560 handles for workspaces with 40 each
        (699, 699, 13),
        (300, 400, 6),  # More than is wanted is left as it is.
        (100, 400, 6),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_wanted(
    monkeypatch: pytest.MonkeyPatch, wanted: int, becomes: int, workspaces: int
) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(worker_command, "WANTED_HANDLES", wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, before[1]))
    try:
        assert worker_command._most_open_workspaces() == workspaces
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (becomes, before[1])
        monkeypatch.setattr(worker_command, "OTHER_HANDLES", becomes)
        assert worker_command._most_open_workspaces() == 1, "one can always be open"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# --- Trying again


MAY_PASS = [
    errors.HelixError,
    errors.StoreFailed,
    errors.StoreBusy,
    errors.StoreFull,
    errors.OwnerEnded,
    errors.SharedStoreUnreachable,
]


@pytest.mark.parametrize("kind", MAY_PASS)
async def test_what_may_pass_is_tried_again_even_of_the_only_workspace(
    kind: type[errors.HelixError], expect: Expect
) -> None:
    expect("the worker tries again: It is so")
    console = PrintedConsole()
    for names in (["w1"], ["w1", "w2"]):
        arguments = Namespace(known=dict.fromkeys(names))
        error = kind("It is so.")
        assert await worker_command._code_of_error(arguments, "w1", error, console) == AGAIN
    assert console.sentences == []


@pytest.mark.parametrize("kind", [errors.NotFound, errors.CacheCorrupt, errors.InvalidInput])
async def test_what_lasts_ends_the_only_workspaces_work_but_not_that_of_others(
    kind: type[errors.HelixError],
) -> None:
    console = PrintedConsole()
    only = Namespace(known={"w1": None})
    with pytest.raises(kind):
        await worker_command._code_of_error(only, "w1", kind("It is so."), console)
    both = Namespace(known={"w1": None, "w2": None})
    assert await worker_command._code_of_error(both, "w1", kind("It is so."), console) == UNABLE
    (sentence,) = console.sentences
    assert sentence.startswith("w1: It is so.")


@pytest.fixture
def where(tmp_path: Path) -> ProgramFolders:
    return find_program_folders(tmp_path / "home")


def working(where: ProgramFolders, codes: list[int], *words: str) -> tuple[Namespace, list[str]]:
    """A command whose work in each workspace ends with the next of these codes."""
    opened: list[str] = []

    async def work(arguments: Namespace, workspace: StoredWorkspace, console: Console) -> int:
        opened.append(workspace.folder.name)
        code = codes.pop(0)
        if not codes:
            arguments.is_draining = arguments.drains_at_end
        return code

    arguments = parse(*words)
    arguments.places = where
    arguments.argv = ["worker", *words]
    arguments.work = work
    arguments.is_draining = False
    arguments.drains_at_end = False
    arguments.unable = set[str]()
    arguments.room = asyncio.Semaphore(1)
    return arguments, opened


def make_workspaces(where: ProgramFolders, tmp_path: Path, *names: str) -> list[str]:
    workspaces = workspace_access.open_all_workspaces(where)
    ids = []
    for name in names:
        (tmp_path / name).mkdir()
        ids.append(workspaces.create_stored_workspace(name, tmp_path / name).id)
    return ids


async def test_a_workspace_that_another_program_wants_is_opened_again(
    where: ProgramFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_command, "AGAIN_SECONDS", 0.001)
    (one,) = make_workspaces(where, tmp_path, "One")
    arguments, opened = working(where, [AGAIN, AGAIN, 5, 9])
    arguments.known = {one: None}
    assert await worker_command._work_in_workspace(arguments, one) == 5
    assert len(opened) == 3
    assert not arguments.room.locked(), "another workspace may be opened"


async def test_a_workspace_without_a_model_is_tried_later_while_others_work(
    where: ProgramFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_command, "AGAIN_SECONDS", 0.0001)
    (one,) = make_workspaces(where, tmp_path, "One")
    arguments, opened = working(where, [UNABLE, UNABLE, 0])
    arguments.known = {one: None, "another": None}
    assert await worker_command._work_in_workspace(arguments, one) == 0
    assert len(opened) == 3
    assert arguments.unable == {one}


async def test_if_no_workspace_has_a_model_there_is_nothing_to_wait_for(
    where: ProgramFolders, tmp_path: Path
) -> None:
    (one,) = make_workspaces(where, tmp_path, "One")
    arguments, opened = working(where, [UNABLE, 0])
    arguments.known = {one: None}
    assert await worker_command._work_in_workspace(arguments, one) == UNABLE
    assert len(opened) == 1


async def test_a_draining_worker_does_not_wait_for_a_model(
    where: ProgramFolders, tmp_path: Path
) -> None:
    (one,) = make_workspaces(where, tmp_path, "One")
    arguments, opened = working(where, [UNABLE, 0], "--drain")
    arguments.known = {one: None, "another": None}
    assert await worker_command._work_in_workspace(arguments, one) == UNABLE
    assert len(opened) == 1
    assert arguments.unable == set()


async def test_nothing_is_opened_once_the_worker_is_told_to_end(
    where: ProgramFolders, tmp_path: Path
) -> None:
    (one,) = make_workspaces(where, tmp_path, "One")
    arguments, opened = working(where, [AGAIN, 5])
    arguments.known = {one: None, "another": None}
    arguments.drains_at_end = True
    arguments.is_draining = True
    assert await worker_command._work_in_workspace(arguments, one) == 0
    assert opened == []
    # It is told while it waits: the pause ends at once, and nothing is opened again.
    arguments.is_draining = False
    arguments.work = working(where, [AGAIN])[0].work
    assert await asyncio.wait_for(worker_command._work_in_workspace(arguments, one), 30) == 0


async def test_the_command_succeeds_if_one_workspaces_work_has(
    where: ProgramFolders, tmp_path: Path
) -> None:
    ids = make_workspaces(where, tmp_path, "One", "Two")
    workspaces = workspace_access.open_all_workspaces(where)
    by_id = {one: workspaces.find_known_workspace(one) for one in ids}
    for codes, ends_with in (([1, 0], 0), ([3, 2], 2)):
        arguments, opened = working(where, codes, "--drain")
        arguments.known = by_id
        arguments.workers = []
        assert await _WorkerRounds(arguments, by_id).work_in_all_workspaces() == ends_with
        assert len(opened) == 2


async def test_without_a_workspace_a_draining_worker_has_nothing_to_wait_for(
    where: ProgramFolders,
) -> None:
    arguments, opened = working(where, [], "--drain")
    arguments.known = {}
    arguments.workers = []
    ending = _WorkerRounds(arguments, {}).work_in_all_workspaces()
    assert await asyncio.wait_for(ending, 30) == 0
    assert opened == []


# --- In one workspace


@pytest.fixture
async def bench(desks: Desks, folder: Path) -> Workbench:
    opened = await desks().create_workspace("Tasks", folder)
    await opened.choose_model_for_role("demo/demo")
    return opened


@pytest.fixture
async def tasks(bench: Workbench) -> AsyncIterator[FleetTaskList]:
    async with open_fleet_task_list(bench.workspace) as opened:
        yield opened


def work_arguments(tmp_path: Path, *words: str) -> Namespace:
    arguments = parse(*words)
    arguments.places = find_program_folders(tmp_path / "home")
    arguments.is_draining = False
    arguments.workers = list[FleetWorker]()
    arguments.unable = set[str]()
    arguments.room = asyncio.Semaphore(1)
    return arguments


async def test_a_draining_worker_says_what_it_runs_and_prints_what_has_ended(
    bench: Workbench, tasks: FleetTaskList, tmp_path: Path
) -> None:
    (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("say here"))])
    console = PrintedConsole()
    arguments = work_arguments(tmp_path, "--drain", "--at-once", "3")
    arguments.unable.add(bench.id)
    assert await worker_command._work_on_tasks(bench, arguments, console) == 0
    assert console.sentences == ["Running the tasks of Tasks, 3 at a time."]
    assert console.lines == [f"{task}  done"]
    assert arguments.workers == []
    assert arguments.unable == set(), "it has a model now"


async def test_without_a_model_it_is_said_once_and_other_computers_see_it(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    bench = await desks().create_workspace("Tasks", folder)
    console = PrintedConsole()
    arguments = work_arguments(tmp_path, "--drain")
    assert await worker_command._work_on_tasks(bench, arguments, console) == UNABLE
    (sentence,) = console.sentences
    assert sentence.startswith("This computer cannot run the tasks of Tasks yet. No model")
    arguments.unable.add(bench.id)
    assert await worker_command._work_on_tasks(bench, arguments, console) == UNABLE
    assert len(console.sentences) == 1
    async with open_fleet_task_list(bench.workspace) as tasks:
        excluded = (await tasks.notes.read_state()).unable
    assert len(excluded) == 1
    await bench.choose_model_for_role("demo/demo")
    assert await worker_command._work_on_tasks(bench, arguments, console) == 0
    async with open_fleet_task_list(bench.workspace) as tasks:
        assert not (await tasks.notes.read_state()).unable


async def test_a_workspace_that_is_open_in_another_process_is_worked_on_until_it_is_empty(
    bench: Workbench, tasks: FleetTaskList, tmp_path: Path
) -> None:
    (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("say here"))])
    arguments = work_arguments(tmp_path, "--drain")
    del arguments.workers, arguments.unable, arguments.room
    console = PrintedConsole()
    assert await worker_command._work_on_tasks(bench, arguments, console) == 0
    assert (await tasks.find_fleet_task(task)).state is FleetTaskState.DONE


async def test_a_closed_workspace_that_somebody_wants_is_given_up_and_tried_again(
    bench: Workbench, tasks: FleetTaskList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helix_desktop.gateway import gateway_workspaces

    release = gateway_workspaces.set_release_handler

    def release_at_once(workspace: str, handler: Any) -> Any:
        handler()
        return release(workspace, handler)

    monkeypatch.setattr(gateway_workspaces, "set_release_handler", release_at_once)
    arguments = work_arguments(tmp_path)
    console = PrintedConsole()
    assert await worker_command._work_on_tasks(bench, arguments, console) == AGAIN
    arguments.is_draining = True
    assert await worker_command._work_on_tasks(bench, arguments, console) == 0, "it ends anyway"


async def test_an_idle_workspace_is_closed_for_one_that_waits_for_room(
    bench: Workbench, tasks: FleetTaskList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = work_arguments(tmp_path)
    await arguments.room.acquire()
    ended = await worker_command._work_on_tasks(bench, arguments, PrintedConsole())
    assert ended == 0
    arguments.room.release()
    monkeypatch.setattr(worker_command, "IDLE_SECONDS", -1.0)
    assert await worker_command._work_on_tasks(bench, arguments, PrintedConsole()) == 0
    assert bench.sharing.fetch_seconds == 10.0


async def ended_line(
    bench: Workbench, tasks: FleetTaskList, arguments: Namespace, why: str
) -> list[str]:
    console = PrintedConsole()
    worker = worker_command._build_worker(bench, tasks, arguments, console)
    (identity,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("say here"))])
    task: FleetTask = await tasks.find_fleet_task(identity)
    assert worker.report is not None
    await worker.report(task, FleetTaskState.NEEDS_YOU, FleetTaskResult(why, cost=0.5))
    return [line.replace(identity, "ID") for line in console.lines]


async def test_what_a_task_says_cannot_order_the_terminal_about(
    bench: Workbench, tasks: FleetTaskList, tmp_path: Path
) -> None:
    arguments = work_arguments(tmp_path)
    assert await ended_line(bench, tasks, arguments, "a\x1bb") == ["ID  needs you  a⟨001B⟩b"]
    assert await ended_line(bench, tasks, arguments, "") == ["ID  needs you"]


async def test_a_script_gets_each_ended_task_as_a_line_of_json(
    bench: Workbench, tasks: FleetTaskList, tmp_path: Path
) -> None:
    (line,) = await ended_line(bench, tasks, work_arguments(tmp_path, "--json"), "It asks.")
    ended = json.loads(line)
    assert ended["id"] == ended["conversation"] == "ID"
    assert (ended["state"], ended["why"], ended["cost"]) == ("needs-you", "It asks.", 0.5)
    assert ended["workspace"] == bench.id


async def test_a_caller_that_was_killed_does_not_end_the_worker(
    bench: Workbench, tasks: FleetTaskList, tmp_path: Path
) -> None:
    worker = worker_command._build_worker(bench, tasks, work_arguments(tmp_path), GoneConsole())
    (identity,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("say here"))])
    task = await tasks.find_fleet_task(identity)
    assert worker.report is not None
    await worker.report(task, FleetTaskState.DONE, FleetTaskResult())


@pytest.mark.parametrize(
    ("words", "kept", "tasks_may_allow"),
    [
        ((), 0, True),
        (("--keep", "-3"), 0, True),
        (("--keep", "5", "--ignore-task-allow"), 5, False),
    ],
)
async def test_a_worker_keeps_and_allows_what_its_options_say(
    bench: Workbench,
    tasks: FleetTaskList,
    tmp_path: Path,
    words: tuple[str, ...],
    kept: int,
    tasks_may_allow: bool,
) -> None:
    arguments = work_arguments(tmp_path, *words)
    worker = worker_command._build_worker(bench, tasks, arguments, CollectingConsole())
    assert worker.most_kept == kept
    assert worker.tasks_may_allow is tasks_may_allow


async def test_a_store_of_the_environment_that_the_workspace_is_not_in_is_said(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = worker_command._check_shared_through_environment
    console = PrintedConsole()
    named = work_arguments(tmp_path, "-w", "Tasks")
    await check(bench, named, console)
    assert console.sentences == [], "no store is named"
    monkeypatch.setenv(workspace_link.ADDRESS_VARIABLE, "postgresql://")
    await check(bench, work_arguments(tmp_path), console)
    (sentence,) = console.sentences
    assert "Tasks is not shared through" in sentence
    with pytest.raises(errors.NotFound, match="Tasks is not shared through"):
        await check(bench, named, console)
