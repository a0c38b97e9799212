"""Workspaces of agents: one for each project, and few of them open at once."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_desktop import concurrency, program_folders, running_instance
from helix_desktop.commands.workspace_access import find_chosen_workspace, listen_for_commands
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import ActionRefused, NotFound, StoppedByUser, StoreBusy
from helix_desktop.gateway import gateway_workspaces, project_workspace
from helix_desktop.gateway.gateway_app import GatewayApp
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.registration import GatewayRegistration, GatewayRegistrations
from helix_desktop.gateway.remote_conversations import RemoteAgentConversations
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench.all_workbenches import WorkspaceService
from tests.faults.gateway_histories import _nobody
from tests.gateway.running import Agent
from tests.peers.agent_provider import Provider, Says


async def _not_served(_: object) -> None:
    return None


async def _no_answer(_request: object, _console: object) -> int:
    return 1


async def test_of_many_projects_few_stay_open_and_each_opens_again(tmp_path: Path) -> None:
    where = program_folders.find_program_folders(tmp_path)
    workspaces = AllWorkspaces(where.workspaces_folder)
    names = [
        workspaces.create_stored_workspace(f"project {number}").id
        for number in range(gateway_workspaces.OPEN_AT_MOST + 3)
    ]
    opened = gateway_workspaces.GatewayWorkspaces(where, "", _not_served, _nobody)
    try:
        async with opened.hold_workspace_open(names[0]) as first:
            for name in names[1:]:
                async with opened.hold_workspace_open(name):
                    pass
            await opened._tasks.wait_for_all_tasks()  # those that nobody uses are closed
            assert len(opened.list_open_conversations()) == gateway_workspaces.OPEN_AT_MOST
            assert (
                first in opened.list_open_conversations()
            )  # it is used, though it was asked for longest ago
        async with opened.hold_workspace_open(names[1]) as again:
            assert list(await again.figures_since()) == []
    finally:
        await opened.aclose()


async def test_a_workspace_is_open_once_whatever_it_is_called(tmp_path: Path) -> None:
    where = program_folders.find_program_folders(tmp_path)
    made = AllWorkspaces(where.workspaces_folder).create_stored_workspace("project")
    opened = gateway_workspaces.GatewayWorkspaces(where, "", _not_served, _nobody)
    try:
        async with (
            opened.hold_workspace_open(made.id) as by_id,
            opened.hold_workspace_open("project") as by_name,
        ):
            assert by_id is by_name
    finally:
        await opened.aclose()


async def test_a_workspace_that_is_open_elsewhere_is_used_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_workspaces, "OPEN_TIMEOUT_SECONDS", 0.0)
    where = program_folders.find_program_folders(tmp_path)
    name = AllWorkspaces(where.workspaces_folder).create_stored_workspace("project").id
    opened = gateway_workspaces.GatewayWorkspaces(where, "", _not_served, _nobody)
    workspace = await AllWorkspaces(where.workspaces_folder).open_stored_workspace(name)
    try:
        with pytest.raises(StoreBusy):  # Its owner does not answer.
            async with opened.hold_workspace_open(name):
                pass
        owner = await running_instance.listen_for_requests(where.run, name, _no_answer)
        try:
            async with opened.hold_workspace_open(name) as room:
                there = await room._find_open_conversations()  # type: ignore[attr-defined]
                assert isinstance(there, RemoteAgentConversations)
                with pytest.raises(StoppedByUser):  # What this owner answers to every question.
                    await room.figures_since()
        finally:
            await opened.aclose()
            await owner.finish_requests()
    finally:
        await workspace.aclose()


async def test_a_workspace_that_was_open_is_waited_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next owner may be starting. A reply was not recorded if that took more than 5 s."""
    where = program_folders.find_program_folders(tmp_path)
    name = AllWorkspaces(where.workspaces_folder).create_stored_workspace("project").id
    opened = gateway_workspaces.GatewayWorkspaces(where, "", _not_served, _nobody)
    workspace = await AllWorkspaces(where.workspaces_folder).open_stored_workspace(name)
    owner = await running_instance.listen_for_requests(where.run, name, _no_answer)
    tasks = OwnedTasks("an agent")
    try:
        async with opened.hold_workspace_open(name) as room:
            await owner.finish_requests()
            monkeypatch.setattr(gateway_workspaces, "OPEN_TIMEOUT_SECONDS", 0.0)
            asking = tasks.spawn_task(room.figures_since(), name="ask")
            await asyncio.wait([asking], timeout=3 * gateway_workspaces.OPEN_PAUSE_SECONDS)
            owner = await running_instance.listen_for_requests(where.run, name, _no_answer)
            with pytest.raises(StoppedByUser):  # What this owner answers to every question.
                await asking
    finally:
        await opened.aclose()
        await owner.finish_requests()
        await workspace.aclose()
        await tasks.aclose()


async def test_a_workspace_that_a_command_has_open_for_a_moment_is_opened_after_it(
    tmp_path: Path,
) -> None:
    """Seen with the recorder's import: the first request of an agent and that for its
    title were not recorded.
    """
    where = program_folders.find_program_folders(tmp_path)
    name = AllWorkspaces(where.workspaces_folder).create_stored_workspace("project").id
    opened = gateway_workspaces.GatewayWorkspaces(where, "", _not_served, _nobody)
    workspace = await AllWorkspaces(where.workspaces_folder).open_stored_workspace(name)
    answering = AsyncExitStack()
    answering.push_async_callback(workspace.aclose)

    async def close_after_the_first_question(request: list[str], _console: object) -> int:
        assert request in (["gateway", "--engine"], ["gateway", "--release"])
        tasks.spawn_task(answering.aclose(), name="close")
        return running_instance.LATER

    tasks = OwnedTasks("a command that ends")
    owner = await running_instance.listen_for_requests(
        where.run, name, close_after_the_first_question
    )
    answering.push_async_callback(owner.finish_requests)
    try:
        async with opened.hold_workspace_open(name) as room:
            assert list(await room.figures_since()) == []
            here = await room._find_open_conversations()  # type: ignore[attr-defined]
            assert isinstance(here, LocalAgentConversations)
    finally:
        await opened.aclose()
        await tasks.aclose()


async def test_a_workspace_that_the_agents_own_mcp_server_has_open_is_taken_over_and_the_server_goes_on(
    tmp_path: Path,
) -> None:
    """Seen with Copilot CLI behind `wrap`: it starts its servers before it asks its model, and none of
    its requests was recorded.
    """
    where = program_folders.find_program_folders(tmp_path)
    name = AllWorkspaces(where.workspaces_folder).create_stored_workspace("project").id
    program = [sys.executable, "-m", "helix_desktop", "--home", str(tmp_path)]
    server = await asyncio.create_subprocess_exec(
        *program, "mcp", "--workspace", name, stdin=PIPE, stdout=PIPE, limit=1 << 20
    )

    async def ask_server(number: int, method: str) -> dict[str, Any]:
        assert server.stdin is not None
        assert server.stdout is not None
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}  # fmt: skip
        parameters = client if method == "initialize" else {}
        question = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
        server.stdin.write(json.dumps(question).encode() + b"\n")
        return dict(json.loads(await server.stdout.readline())["result"])

    def serve(workspace: StoredWorkspace) -> Awaitable[WorkspaceService]:
        return listen_for_commands(workspace, where)

    opened = gateway_workspaces.GatewayWorkspaces(where, "", serve, _nobody)
    try:
        await ask_server(1, "initialize")
        async with opened.hold_workspace_open(name) as room:
            here = await room._find_open_conversations()  # type: ignore[attr-defined]
            assert isinstance(here, LocalAgentConversations)
            assert (await ask_server(2, "tools/list"))["tools"]
    finally:
        server.kill()
        await server.wait()
        await opened.aclose()


async def test_nothing_is_held_of_projects_whose_workspaces_were_closed(tmp_path: Path) -> None:
    where = program_folders.find_program_folders(tmp_path)
    workspaces = AllWorkspaces(where.workspaces_folder)
    many = [
        workspaces.create_stored_workspace(f"project {n}").id
        for n in range(gateway_workspaces.OPEN_AT_MOST + 3)
    ]
    with Provider(lambda _: [Says("fine")]) as provider:
        known = GatewayRegistrations(
            *(GatewayRegistration(name, provider.url, workspace=name) for name in many)
        )
        opened = gateway_workspaces.GatewayWorkspaces(where, "", _not_served, _nobody)
        app = GatewayApp(known, opened.hold_workspace_open)
        app.memory.list_open_conversations = opened.list_open_conversations
        try:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
            ) as client:
                for name in many:
                    agent = Agent("anthropic", f"/t/{name}")
                    agent.say(f"look at {name}")
                    reply = await client.post(
                        agent.url + agent.path, json=agent.body(), headers={"x-api-key": "k"}
                    )
                    assert reply.status_code == 200
                    await opened._tasks.wait_for_all_tasks()  # those that nobody uses are closed
            assert (
                0
                < len(app.memory.last_requests.by_conversation)
                <= gateway_workspaces.OPEN_AT_MOST + 1
            )
        finally:
            await app._providers.aclose()
            await opened.aclose()


def test_a_folder_has_the_workspace_of_its_project(tmp_path: Path) -> None:
    workspaces = AllWorkspaces(tmp_path / "workspaces")
    below, beside = tmp_path / "work" / "thesis" / "text", tmp_path / "other" / "thesis"
    for folder in (below, beside, below.parent / ".git"):
        folder.mkdir(parents=True)
    assert project_workspace.find_project_workspace(workspaces.list_workspaces(), below) is None
    made = project_workspace.create_project_workspace(workspaces, below)
    assert (made.name, made.settings.roots) == ("thesis", (str(below.parent),))
    known = workspaces.list_workspaces()
    assert project_workspace.find_project_workspace(known, below) == made
    assert project_workspace.find_project_workspace(known, below.parent) == made
    assert project_workspace.find_project_workspace(known, below.parent.parent) is None
    assert project_workspace.find_project_workspace(known, beside) is None
    assert project_workspace.create_project_workspace(workspaces, beside).name == "thesis (other)"


def test_of_two_workspaces_with_one_folder_agents_and_commands_choose_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wrap` and the recorder wrote to one of them, and `cost` read the other."""
    (tmp_path / "proj").mkdir()
    monkeypatch.chdir(tmp_path / "proj")
    places = program_folders.find_program_folders(tmp_path / "home")
    workspaces = AllWorkspaces(places.workspaces_folder)
    for _ in range(2):
        workspaces.create_stored_workspace("Proj", tmp_path / "proj")
    chosen = find_chosen_workspace(argparse.Namespace(workspace=None, places=places))
    found = project_workspace.find_project_workspace(
        workspaces.list_workspaces(), tmp_path / "proj"
    )
    assert found is not None
    assert found.id == chosen.id


def test_a_workspace_above_the_project_is_not_the_projects(tmp_path: Path) -> None:
    workspaces = AllWorkspaces(tmp_path / "workspaces")
    project = tmp_path / "all" / "one"
    (project / ".git").mkdir(parents=True)
    workspaces.create_stored_workspace("all", project.parent)
    assert project_workspace.find_project_workspace(workspaces.list_workspaces(), project) is None


def test_the_home_folder_is_no_project(tmp_path: Path) -> None:
    assert not project_workspace.can_be_project_folder(tmp_path, tmp_path)
    assert not project_workspace.can_be_project_folder(tmp_path.parent, tmp_path)
    assert project_workspace.can_be_project_folder(tmp_path / "work", tmp_path)


async def test_the_usual_workspace_is_made_when_it_is_asked_for_and_no_other(
    tmp_path: Path,
) -> None:
    where = program_folders.find_program_folders(tmp_path)
    opened = gateway_workspaces.GatewayWorkspaces(where, "", _not_served, _nobody)
    try:
        with pytest.raises(NotFound):
            async with opened.hold_workspace_open("unknown"):
                pass
        with pytest.raises(NotFound):
            await opened.open_usual_if_known()
        assert AllWorkspaces(where.workspaces_folder).list_workspaces() == ()
        async with opened.hold_workspace_open("") as first, opened.hold_workspace_open("") as again:
            assert first is again
        async with opened.hold_workspace_open(gateway_workspaces.USUAL_WORKSPACE_NAME) as named:
            assert named is first
        (made,) = AllWorkspaces(where.workspaces_folder).list_workspaces()
        assert made.name == gateway_workspaces.USUAL_WORKSPACE_NAME
        await opened.open_usual_if_known()
        assert opened.list_open_conversations() == (first,)
    finally:
        await opened.aclose()


async def test_a_workspace_that_another_process_wants_is_closed_and_can_be_opened_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_instance, "GIVEN_WAY_SECONDS", 0.0)
    where = program_folders.find_program_folders(tmp_path)
    known = AllWorkspaces(where.workspaces_folder)
    name = known.create_stored_workspace("project").id
    opened = gateway_workspaces.GatewayWorkspaces(where, "", _not_served, _nobody)
    try:
        async with opened.hold_workspace_open(name):
            pass
        assert gateway_workspaces.close_for_other_process(name) == 0
        assert gateway_workspaces.close_for_other_process(name) == 1, "it is on its way"
        await opened._tasks.wait_for_all_tasks()
        assert opened.list_open_conversations() == ()
        there = await known.open_stored_workspace(name)
        await there.aclose()
        async with opened.hold_workspace_open(name) as again:
            assert list(await again.figures_since()) == []
    finally:
        await opened.aclose()


def test_who_cannot_let_go_of_a_workspace_says_so_and_is_asked_again() -> None:
    asked: list[str] = []

    def release() -> None:
        asked.append("asked")
        if len(asked) == 1:
            raise ActionRefused("A session is working.")

    forget = gateway_workspaces.set_release_handler("w", release)
    with pytest.raises(ActionRefused):
        gateway_workspaces.close_for_other_process("w")
    assert [gateway_workspaces.close_for_other_process("w") for _ in range(2)] == [0, 1]
    assert asked == ["asked", "asked"]
    forget()
    gateway_workspaces.set_release_handler("w", release)()
    assert gateway_workspaces.close_for_other_process("w") == 1


def test_agents_that_start_at_once_in_a_new_folder_share_its_workspace(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    all_are_ready = threading.Barrier(8)

    def start(_: int) -> str:
        workspaces = AllWorkspaces(tmp_path / "workspaces")
        all_are_ready.wait()
        return project_workspace.create_project_workspace(workspaces, folder).id

    with concurrency.create_thread_pool("agents", threads=8) as pool:
        assert len(set(pool.map(start, range(8)))) == 1
    assert len(AllWorkspaces(tmp_path / "workspaces").list_workspaces()) == 1
