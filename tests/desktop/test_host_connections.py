"""How the window opens a workspace that another process has open, and folders of another computer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from helix_desktop.commands import workspace_access
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.desktop import host_connections
from helix_desktop.desktop.host_connections import HostConnections, read_ssh_host_names
from helix_desktop.engine.facts import Text, TurnEnded
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.errors import HelixError, InvalidInput, StoreBusy
from helix_desktop.gui.shown_workspace import client_of_host, workbench_of_shown
from helix_desktop.program_folders import ProgramFolders, find_program_folders
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.workspace_lock import WorkspaceLock
from helix_desktop.workbench.all_workbenches import Workbenches
from helix_desktop.workspace_host.host_line import LineStage
from tests.peers.chat_server import ChatServer, reply
from tests.peers.ssh_machine import SshMachine
from tests.workspace_host.test_ssh_host import Arrival, memory_of_process

KEY = "sk-of-this-computer-4712"


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramFolders:
    monkeypatch.setenv("HELIX_HOME", str(tmp_path / "home"))
    return find_program_folders()


@pytest.fixture
async def desk(where: ProgramFolders) -> AsyncIterator[Workbenches]:
    desk = Workbenches(where, SecretStorage(where.key_file, consent=lambda: False))
    yield desk
    await desk.aclose()


@pytest.fixture
async def connections(where: ProgramFolders, desk: Workbenches) -> AsyncIterator[HostConnections]:
    connections = HostConnections(where, desk)
    yield connections
    await connections.close_all_clients()


@pytest.fixture
async def workspace(desk: Workbenches, tmp_path: Path) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role("demo/demo")
    await desk.close_workspace(bench.id)
    return bench.id


@pytest.fixture
def working_agent(workspace: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, in which an agent of the workspace is at work."""
    command = [sys.executable, "-m", "helix_desktop", "ask", "-w", workspace, "--allow", "all"]
    agent = subprocess.Popen(
        [*command, "run echo begun; sleep 30"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert agent.stdout is not None
    line = agent.stdout.readline()
    while line and "run_command" not in line:
        line = agent.stdout.readline()
    assert line
    yield agent
    agent.kill()
    agent.wait()
    agent.stdout.close()


async def test_a_workspace_that_nobody_has_is_opened_here(
    connections: HostConnections, workspace: str
) -> None:
    opened = await connections.open_workspace(workspace)
    assert client_of_host(opened) is None
    assert workbench_of_shown(opened) is opened
    assert await connections.open_workspace(workspace) is opened


async def test_a_workspace_that_is_being_opened_here_is_not_asked_for_as_if_another_had_it(
    where: ProgramFolders, workspace: str
) -> None:
    """Chosen in the rail while the window was still opening it, a workspace was shown as that of
    another process: the window had become its own client.
    """
    serve = partial(workspace_access.listen_for_commands, where=where)
    desk = Workbenches(where, SecretStorage(where.key_file, consent=lambda: False), serve=serve)
    connections = HostConnections(where, desk)
    try:
        opened = await asyncio.gather(
            connections.open_workspace(workspace), connections.open_workspace(workspace)
        )
        assert connections.clients_by_id == {}
        first, second = map(workbench_of_shown, opened)
        assert first is not None
        assert first is second
    finally:
        await connections.close_all_clients()
        await desk.aclose()


async def test_who_has_it_and_does_not_answer_yet_is_waited_for(
    connections: HostConnections,
    where: ProgramFolders,
    workspace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a process that has just opened it, or is ending, on a busy computer."""
    folder = where.workspaces_folder / workspace
    lock = WorkspaceLock(folder / "lock")
    connect = HostConnections._connect_to_owner

    async def connect_and_end(self: HostConnections, known: str) -> object:
        client = await connect(self, known)
        lock.release_lock()
        return client

    monkeypatch.setattr(HostConnections, "_connect_to_owner", connect_and_end)
    opened = await connections.open_workspace(workspace)
    assert client_of_host(opened) is None


async def test_who_has_it_and_never_answers_is_said(
    connections: HostConnections,
    where: ProgramFolders,
    workspace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = where.workspaces_folder / workspace
    lock = WorkspaceLock(folder / "lock")
    monkeypatch.setattr(host_connections, "BUSY_SECONDS", 0.0)
    with pytest.raises(StoreBusy, match=f"process {os.getpid()}"):
        await connections.open_workspace(workspace)
    lock.release_lock()


async def test_where_an_agent_works_the_window_is_a_client_until_that_process_ends(
    connections: HostConnections, workspace: str, working_agent: subprocess.Popen[str]
) -> None:
    opened = await connections.open_workspace(workspace)
    client = client_of_host(opened)
    assert client is not None
    assert workbench_of_shown(opened) is None
    assert client.id == workspace
    assert client.line.computer == ""
    assert await connections.open_workspace(workspace) is opened
    (row,) = client.list_conversations()
    session = await client.open_session(row.id)
    assert session.conversation.state.facts
    await connections.close_client(workspace)
    assert client.line.state.stage is LineStage.CLOSED


async def test_a_workspace_of_another_process_is_searched_without_being_opened(
    connections: HostConnections, workspace: str, working_agent: subprocess.Popen[str]
) -> None:
    """Such as that of the gateway: it was said to be open in another program."""
    found = await connections.search_workspace(workspace, "begun")
    # The other process says what its agent does before the search's index has it.
    async with asyncio.timeout(30):
        while not found.hits:
            found = await connections.search_workspace(workspace, "begun")
    (hit, *_) = found.hits
    assert "begun" in hit.snippet
    assert found.titles[hit.conversation]
    assert connections.clients_by_id == {}


async def test_a_workspace_that_nobody_has_open_is_searched(
    connections: HostConnections, workspace: str
) -> None:
    found = await connections.search_workspace(workspace, "nothing of this kind")
    assert found.hits == ()


async def test_a_folder_of_another_computer_is_opened_over_ssh(
    connections: HostConnections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "there"
    project.mkdir()
    with SshMachine(tmp_path / "ssh") as machine:
        monkeypatch.setenv("PATH", machine.environment["PATH"])
        remembered = connections.remember_address(machine.address(project))
        opened = await connections.open_remembered(remembered)
        client = client_of_host(opened)
        assert client is not None
        assert (client.name, client.line.computer) == ("there", "testbox")
        assert client.id == remembered.id
        session = await client.start_users_conversation()
        await session.set_title("From here")
        (row,) = connections.list_remembered([remembered])
        assert (row.id, row.name, str(row.first_folder)) == (
            remembered.id,
            "there",
            f"testbox:{project}",
        )
        with pytest.raises(HelixError, match="is not a folder there"):
            await connections.open_remembered(
                connections.remember_address(machine.address(tmp_path / "nowhere"))
            )
        await connections.close_all_clients()


async def test_keys_stay_here_unless_one_is_lent_and_then_the_agent_there_goes_on_alone(
    connections: HostConnections,
    desk: Workbenches,
    where: ProgramFolders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tmp_path / "there"
    project.mkdir()
    slow = Arrival(reply("Too late.").silent_after(1, 60.0))
    first = reply("Hello from the model")
    last = reply("Written with a lent key.")
    with ChatServer([first, slow, last]) as server, SshMachine(tmp_path / "s") as machine:
        name = f"peer{server.port}"
        monkeypatch.setenv("PATH", machine.environment["PATH"])
        monkeypatch.setenv(f"HELIX_KEY_{name.upper()}", KEY)
        desk.configured.save_provider(ProviderConfig(name, base_url=server.base_url))
        opened = await connections.open_remembered(
            connections.remember_address(machine.address(project))
        )
        await opened.choose_model_for_role(f"{name}/scripted")
        assert opened.main_model_name == f"{name}/scripted"
        session = await opened.start_users_conversation()
        has_ended = asyncio.Event()

        def hear(event: Event) -> None:
            if isinstance(event, FactAppended) and isinstance(event.recorded.fact, TurnEnded):
                has_ended.set()

        session.subscribe_to_events(hear)
        session.send_message((Text("hi"),))
        await asyncio.wait_for(has_ended.wait(), 60)
        assert "Hello from the model" in str(session.conversation.state.facts)
        (seen,) = server.requests
        assert seen.headers["authorization"] == f"Bearer {KEY}"

        # The next turn goes on with a lent key, while this computer is away.
        session.send_message((Text("and now alone"),))
        assert await asyncio.to_thread(slow.has_come.wait, 60)
        await connections.lend_key(opened.id, session.id, name)
        client = client_of_host(opened)
        assert client is not None
        while client.providers_with_lent_key(session.id) != [name]:
            await asyncio.sleep(0.01)  # The host tells it to all who follow the list.
        (holder,) = machine.key_holders()
        assert KEY.encode() in memory_of_process(holder), "or nothing would be found below"
        await connections.close_all_clients()
        machine.break_lines()
        while machine.key_holders():
            await asyncio.sleep(0.05)
        assert server.requests[2].headers["authorization"] == f"Bearer {KEY}"
        (host,) = machine.hosts()
        assert KEY.encode() not in memory_of_process(host)
        for path in machine.home.rglob("*"):
            assert not path.is_file() or KEY.encode() not in path.read_bytes()


async def test_a_computer_that_does_not_answer_keeps_no_other_workspace_from_opening(
    connections: HostConnections, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text("#!/bin/sh\nexec sleep 60\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    tasks = OwnedTasks("silent computer")
    remembered = connections.remember_address("ssh://silent/srv")
    waiting = tasks.spawn_task(connections.open_remembered(remembered), name="wait for it")
    opened = await asyncio.wait_for(connections.open_workspace(workspace), 30)
    assert workbench_of_shown(opened) is opened
    assert not waiting.done()
    await tasks.aclose(limit=5)


async def test_what_is_no_address_is_refused(connections: HostConnections) -> None:
    with pytest.raises(InvalidInput, match="is not the address"):
        connections.remember_address("ssh://-oProxyCommand=x/y")


def test_machines_of_the_users_ssh_configuration_are_offered_without_patterns(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config"
    assert read_ssh_host_names(file) == []
    file.write_text(
        "# Host commented\nHost box gpu-01 *.example !no\n  HostName h\nhost=pi\nMatch host x\nHost -o\nHost box\n"
    )
    assert read_ssh_host_names(file) == ["box", "gpu-01", "pi"]
