"""The host as other processes reach it: at the owner of the workspace, and as a process of its own."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console
from helix_desktop.errors import OwnerEnded, StoreBusy
from helix_desktop.resident.resident_client import CollectingConsole
from helix_desktop.running_instance import LATER
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench import Workbenches, use_workbench, workbench_of
from helix_desktop.workspace_host import host_connection
from helix_desktop.workspace_host.byte_streams import SocketStream
from helix_desktop.workspace_host.host_interface import SendMessage, StartConversation, StopTurn
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from tests.conftest import Expect
from tests.workbench.conftest import folder
from tests.workspace_host.viewer import Viewer

__all__ = ["folder"]
Work = Callable[[Namespace, StoredWorkspace, Console], Awaitable[int]]


def places(tmp_path: Path) -> program_folders.ProgramFolders:
    return program_folders.find_program_folders(tmp_path / "home")


def desk_that_serves(where: program_folders.ProgramFolders) -> Workbenches:
    return Workbenches(
        where,
        SecretStorage(where.key_file, environ={}),
        serve=lambda workspace: workspace_access.listen_for_commands(workspace, where),
    )


async def start_host(tmp_path: Path, workspace: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "helix_desktop", "--home", str(tmp_path / "home")),
        *("host", "-w", workspace),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def test_who_has_the_workspace_open_serves_others_until_it_ends(
    tmp_path: Path, folder: Path, expect: Expect
) -> None:
    where = places(tmp_path)
    desk = desk_that_serves(where)
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role("demo/demo")
    host = await host_connection.connect_to_host(where.run, bench.id)
    assert host is not None
    assert (host.workspace, host.workspace_name) == (bench.id, "Pairs")
    started = await host.run_host_command(StartConversation())
    viewer = await Viewer.begin(host, started.conversation)
    await viewer.say("hello")
    await desk.aclose()
    with pytest.raises(OwnerEnded):
        await viewer.until(lambda: False)
    await host.close_host()
    assert await host_connection.connect_to_host(where.run, bench.id) is None


async def test_a_client_that_goes_without_a_word_is_no_client_any_more(
    tmp_path: Path, folder: Path
) -> None:
    """Otherwise a host would stay for it for ever, and wait for the keys that it lent."""
    where = places(tmp_path)
    desk = desk_that_serves(where)
    bench = await desk.create_workspace("Pairs", folder)
    host = await host_connection.connect_to_host(where.run, bench.id)
    assert host is not None
    await host.follow_list()
    assert host_connection.count_clients(bench.id) == 1
    await host.close_host()
    async with asyncio.timeout(60):
        while host_connection.count_clients(bench.id):
            await asyncio.sleep(0.01)
    await desk.aclose()


async def test_a_process_that_nobody_asked_before_opens_the_workspace_and_serves_it(
    tmp_path: Path, folder: Path
) -> None:
    where = places(tmp_path)
    desk = desk_that_serves(where)
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role("demo/demo")
    await desk.aclose()
    async with AsyncExitStack() as until_closed:
        process = await start_host(tmp_path, bench.id)
        assert process.stdin is not None
        assert process.stdout is not None
        until_closed.push_async_callback(process.wait)
        stream = SocketStream(process.stdout, process.stdin)
        host = await RemoteWorkspaceHost.connect_over_stream(stream)
        until_closed.push_async_callback(host.close_host)
        started = await host.run_host_command(StartConversation())
        viewer = await Viewer.begin(host, started.conversation)
        # A second client comes by the socket, while the first one speaks through the pipes.
        other = await host_connection.connect_to_host(where.run, bench.id)
        assert other is not None
        until_closed.push_async_callback(other.close_host)
        second = await Viewer.begin(other, started.conversation)
        await viewer.say("hello")
        await second.until_ended(1)
        assert second.view == viewer.view
    assert process.returncode == 0


async def test_a_host_that_is_killed_is_said_and_nothing_is_lost(
    tmp_path: Path, folder: Path
) -> None:
    where = places(tmp_path)
    desk = desk_that_serves(where)
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role("demo/demo")
    await desk.aclose()
    process = await start_host(tmp_path, bench.id)
    assert process.stdin is not None
    assert process.stdout is not None
    host = await RemoteWorkspaceHost.connect_over_stream(
        SocketStream(process.stdout, process.stdin)
    )
    started = await host.run_host_command(StartConversation())
    viewer = await Viewer.begin(host, started.conversation)
    await viewer.say("hello")
    tasks = OwnedTasks("client of a test")
    waiting = tasks.spawn_task(viewer.until(lambda: False), name="wait")
    process.kill()
    await process.wait()
    with pytest.raises(OwnerEnded):
        await asyncio.wait_for(waiting, 30)
    await host.close_host()
    again = desk_that_serves(where)
    opened = await again.open_workspace(bench.id)
    known = await opened.read_conversation_facts(started.conversation)
    assert list(known)[: len(viewer.state.facts)] == list(viewer.state.facts)
    await again.aclose()


async def test_a_window_that_opens_the_workspace_gets_it_from_a_host_with_no_agent_at_work(
    tmp_path: Path, folder: Path
) -> None:
    where = places(tmp_path)
    desk = desk_that_serves(where)
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role("demo/demo")
    await desk.aclose()
    process = await start_host(tmp_path, bench.id)
    assert process.stdin is not None
    assert process.stdout is not None
    host = await RemoteWorkspaceHost.connect_over_stream(
        SocketStream(process.stdout, process.stdin)
    )
    started = await host.run_host_command(StartConversation())
    viewer = await Viewer.begin(host, started.conversation)
    await host.run_host_command(SendMessage(started.conversation, "write b.txt: text"))
    await viewer.until(lambda: bool(viewer.questions))
    window = desk_that_serves(where)
    with pytest.raises(StoreBusy):  # The agent waits for an answer, and is not ended for a window.
        await window.open_workspace(bench.id)
    await host.run_host_command(StopTurn(started.conversation))
    await viewer.until_ended(1)
    await window.open_workspace(bench.id)
    with pytest.raises(OwnerEnded):
        await viewer.until(lambda: False)
    await host.close_host()
    assert await process.wait() == LATER
    await window.aclose()


async def run_command_here(
    where: program_folders.ProgramFolders, workspace: str, work: Work
) -> int:
    """Runs this work as a command that nobody else has the workspace open for."""
    arguments = Namespace(places=where, argv=["test"], work=work, json=False)
    return await workspace_access.run_here_or_at_owner(arguments, workspace, CollectingConsole())


async def test_a_client_looks_on_while_a_command_has_an_agent_at_work_and_keeps_it_not_waiting(
    tmp_path: Path, folder: Path
) -> None:
    where = places(tmp_path)
    desk = desk_that_serves(where)
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role("demo/demo")
    workspace = bench.id
    await desk.aclose()
    started = asyncio.get_running_loop().create_future()
    may_end = asyncio.Event()

    async def ask(_: Namespace, stored: StoredWorkspace, __: Console) -> int:
        async with use_workbench(stored, where) as opened:
            session = await opened.start_conversation("Asked in a terminal")
            started.set_result(session.id)
            await may_end.wait()
        return 0

    tasks = OwnedTasks("command of a test")
    command = tasks.spawn_task(run_command_here(where, workspace, ask), name="ask")
    conversation = await asyncio.wait_for(started, 30)
    host = await host_connection.connect_to_host(where.run, workspace)
    assert host is not None
    viewer = await Viewer.begin(host, conversation)
    assert viewer.state.title == "Asked in a terminal"
    may_end.set()
    assert await asyncio.wait_for(command, 30) == 0
    with pytest.raises(OwnerEnded):
        await viewer.until(lambda: False)
    await host.close_host()


async def test_a_command_without_an_agent_is_not_disturbed(tmp_path: Path, folder: Path) -> None:
    where = places(tmp_path)
    desk = desk_that_serves(where)
    bench = await desk.create_workspace("Pairs", folder)
    workspace = bench.id
    await desk.aclose()
    begun = asyncio.Event()
    may_end = asyncio.Event()

    async def list_something(_: Namespace, stored: StoredWorkspace, __: Console) -> int:
        begun.set()
        await may_end.wait()
        assert workbench_of(stored) is None
        return 0

    tasks = OwnedTasks("command of a test")
    command = tasks.spawn_task(run_command_here(where, workspace, list_something), name="list")
    await asyncio.wait_for(begun.wait(), 30)
    assert await host_connection.connect_to_host(where.run, workspace) is None
    may_end.set()
    assert await asyncio.wait_for(command, 30) == 0
