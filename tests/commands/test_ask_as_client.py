"""`ask` as a client of hosts that end, one after the other."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from helix_desktop.commands import ask_as_client
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, MessagesQueued, QuestionAsked
from helix_desktop.errors import ActionRefused
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workspace_host.byte_streams import SocketStream
from helix_desktop.workspace_host.host_interface import CommandResult, HostCommand, SendMessage
from helix_desktop.workspace_host.host_server import serve_host_client
from helix_desktop.workspace_host.local_workspace_host import LocalWorkspaceHost
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from tests.workbench.conftest import Desks, desks, folder
from tests.workspace_host.conftest import socket_streams

__all__ = ["desks", "folder"]
LIMIT = 60.0


class RecordingConsole:
    """Keeps what a command prints."""

    def __init__(self) -> None:
        self.output = ""
        self.errors: list[str] = []

    async def read_input(self) -> bytes:
        return b""

    async def write_output(self, data: bytes) -> None:
        self.output += data.decode()

    async def print_line(self, text: str) -> None:
        self.output += f"{text}\n"

    async def print_error(self, sentence: str) -> None:
        self.errors.append(sentence)


class HostOfEarlierVersion(LocalWorkspaceHost):
    """Records messages without the id of their command."""

    async def run_host_command(self, command: HostCommand, command_id: str = "") -> CommandResult:
        if not isinstance(command, SendMessage):
            return await super().run_host_command(command, command_id)
        session = await self._bench.open_session(command.conversation)
        session.send_message((Text(command.text),))
        return CommandResult()


class SuccessiveHosts:
    """`TurnHost`: each connection goes to the workbench that is open then."""

    becomes_usual = False
    sentence_after_break = "The host has ended."

    def __init__(self) -> None:
        self.bench: Workbench | None = None
        self.kind_of_host = LocalWorkspaceHost
        self.is_open = asyncio.Event()
        self._serving = OwnedTasks("hosts of a test")
        self._stream: SocketStream | None = None

    def open_with(self, bench: Workbench) -> None:
        self.bench = bench
        self.is_open.set()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[RemoteWorkspaceHost]:
        await self.is_open.wait()
        assert self.bench is not None
        here, self._stream = await socket_streams()
        serving = serve_host_client(self.kind_of_host(self.bench), self._stream)
        self._serving.spawn_task(serving, name="serve")
        host = await RemoteWorkspaceHost.connect_over_stream(here)
        try:
            yield host
        finally:
            await host.close_host()

    async def end_host(self) -> None:
        """Nothing more is told by the host that is open now, as if it were killed."""
        self.is_open.clear()
        assert self._stream is not None
        await self._stream.close_stream()

    async def aclose(self) -> None:
        await self._serving.aclose(limit=2)


class WatchedSession:
    """A session, and what it has told since."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        session.subscribe_to_events(self._events.put_nowait)

    async def wait_for(self, kind: type[Event]) -> Event:
        async with asyncio.timeout(LIMIT):
            while True:
                event = await self._events.get()
                if isinstance(event, kind):
                    return event


def ask_arguments(conversation: str, *words: str) -> Namespace:
    return Namespace(
        conversation=conversation,
        model=None,
        allow=[],
        attach=[],
        resume=False,
        json=False,
        text=list(words),
    )


def texts_said(session: Session) -> list[str]:
    texts: list[str] = []
    for recorded in session.all_facts:
        if isinstance(recorded.fact, UserSaid):
            texts += [part.text for part in recorded.fact.parts if isinstance(part, Text)]
    return texts


@pytest.fixture
async def hosts(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SuccessiveHosts]:
    monkeypatch.setattr(ask_as_client, "FIRST_PAUSE_SECONDS", 0.01)
    hosts = SuccessiveHosts()
    yield hosts
    await hosts.aclose()


class OpenWorkspace:
    """One workspace, with a conversation in which the window's turn may run."""

    def __init__(self, desk: Workbenches, bench: Workbench, session: Session) -> None:
        self.desk = desk
        self.bench = bench
        self.watched = WatchedSession(session)
        self.session = session

    async def begin_turn_that_asks(self) -> None:
        self.session.send_message((Text("write b.txt: text"),))
        await self.watched.wait_for(QuestionAsked)

    def deny_question(self) -> None:
        (number,) = self.session.questions
        self.session.answer_question(number, PermissionAnswer(allowed=False))


@pytest.fixture
async def opened(desks: Desks, folder: Path) -> OpenWorkspace:
    desk = desks()
    bench = await desk.create_workspace("Killed", folder)
    await bench.choose_model_for_role("demo/demo")
    return OpenWorkspace(desk, bench, await bench.start_conversation("Killed"))


class AskedTurn:
    """`ask` at work beside the test, which ends it after a while if nothing else does."""

    def __init__(self, arguments: Namespace, hosts: SuccessiveHosts) -> None:
        self.console = RecordingConsole()
        self._tasks = OwnedTasks("ask of a test")
        asking = ask_as_client.ask_as_client(arguments, hosts, self.console)
        self._task = self._tasks.spawn_task(asking, name="ask")

    async def exit_code(self) -> int:
        return await asyncio.wait_for(self._task, LIMIT)


async def until_kept_on_disk(bench: Workbench) -> None:
    while not list((bench.workspace.folder / "partial").glob("*.queue")):
        await asyncio.sleep(0)


async def test_a_message_behind_somebodys_turn_is_answered_though_the_host_is_killed(
    opened: OpenWorkspace, desks: Desks, folder: Path, hosts: SuccessiveHosts
) -> None:
    """At the next host the message waited as before, and nobody began a turn."""
    await opened.begin_turn_that_asks()
    hosts.open_with(opened.bench)
    asked = AskedTurn(ask_arguments(opened.session.id, "read README.md"), hosts)
    await until_kept_on_disk(opened.bench)
    await hosts.end_host()
    await opened.desk.aclose()

    bench = await desks().open_workspace("Killed")
    hosts.open_with(bench)
    assert await asked.exit_code() == 0
    session = await bench.open_session(opened.session.id)
    assert texts_said(session) == ["write b.txt: text", "read README.md"]
    assert asked.console.output
    assert "The turn before yours waits for somebody’s permission" in asked.console.errors[0]
    assert not (folder / "b.txt").exists()


async def two_equal_messages_that_wait(
    opened: OpenWorkspace, hosts: SuccessiveHosts
) -> list[AskedTurn]:
    await opened.begin_turn_that_asks()
    hosts.open_with(opened.bench)
    both: list[AskedTurn] = []
    for count in (1, 2):
        arguments = ask_arguments(opened.session.id, "read README.md")
        arguments.json = True
        both.append(AskedTurn(arguments, hosts))
        async with asyncio.timeout(LIMIT):
            while len(opened.session.queue) < count:
                await opened.watched.wait_for(MessagesQueued)
    return both


@pytest.mark.parametrize("tells_ids", [True, False])
async def test_of_two_equal_messages_each_command_prints_the_turn_of_its_own(
    opened: OpenWorkspace, hosts: SuccessiveHosts, *, tells_ids: bool
) -> None:
    """Both printed the first turn, and nobody the second. A host of an earlier version does not
    say which is whose: there, both end at least.
    """
    if not tells_ids:
        hosts.kind_of_host = HostOfEarlierVersion
    both = await two_equal_messages_that_wait(opened, hosts)
    opened.deny_question()
    printed: list[set[int]] = []
    for asked in both:
        assert await asked.exit_code() == 0
        lines = [json.loads(line) for line in asked.console.output.splitlines()]
        printed.append({line["seq"] for line in lines})
    assert all(printed)
    assert printed[0].isdisjoint(printed[1]) is tells_ids


async def test_of_two_equal_messages_only_the_one_that_was_taken_back_is_given_up(
    opened: OpenWorkspace, hosts: SuccessiveHosts
) -> None:
    first, second = await two_equal_messages_that_wait(opened, hosts)
    opened.session.queue.take_back_queued(0)
    assert await first.exit_code() == 1
    opened.deny_question()
    assert await second.exit_code() == 0
    assert texts_said(opened.session) == ["write b.txt: text", "read README.md"]


async def test_a_long_text_is_recognised_as_the_message_that_it_was(
    opened: OpenWorkspace, hosts: SuccessiveHosts
) -> None:
    """It is recorded as an attachment, and the command waited for its text without end."""
    hosts.open_with(opened.bench)
    long_text = "read README.md\n" + "word and word " * 40_000
    asked = AskedTurn(ask_arguments(opened.session.id, long_text), hosts)
    assert await asked.exit_code() == 0
    assert texts_said(opened.session) == []


async def test_an_equal_message_that_waits_already_is_somebody_elses(
    opened: OpenWorkspace, hosts: SuccessiveHosts
) -> None:
    """It was taken for the command's own, which was not sent, and the command waited without end."""
    await opened.begin_turn_that_asks()
    opened.session.send_message((Text("read README.md"),))
    opened.session.stop_turn()
    await opened.session.wait_until_idle()
    assert len(opened.session.queue) == 1
    hosts.open_with(opened.bench)
    asked = AskedTurn(ask_arguments(opened.session.id, "read README.md"), hosts)
    assert await asked.exit_code() == 0
    await opened.session.wait_until_idle()
    assert texts_said(opened.session)[1:] == ["read README.md", "read README.md"]


async def test_a_message_that_was_taken_back_while_the_line_was_broken_is_waited_for_no_more(
    opened: OpenWorkspace, hosts: SuccessiveHosts
) -> None:
    await opened.begin_turn_that_asks()
    hosts.open_with(opened.bench)
    asked = AskedTurn(ask_arguments(opened.session.id, "read README.md"), hosts)
    await until_kept_on_disk(opened.bench)
    await hosts.end_host()
    opened.session.queue.take_back_queued(0)
    opened.deny_question()
    await opened.session.wait_until_idle()
    hosts.open_with(opened.bench)
    assert await asked.exit_code() == 1
    assert texts_said(opened.session) == ["write b.txt: text"]
    assert "your message was taken back" in " ".join(asked.console.errors)


async def test_a_slash_command_whose_shell_line_asks_is_answered_by_what_was_allowed(
    opened: OpenWorkspace, hosts: SuccessiveHosts, folder: Path
) -> None:
    """The question came while the command waited for its message to be sent: nobody answered it."""
    path = folder / ".claude/commands/greet.md"
    path.parent.mkdir(parents=True)
    path.write_text("Greet $ARGUMENTS. !`echo one-and-two`\n")
    await opened.bench.project.reread_project_folders()
    (item,) = [item for item in opened.bench.project.now.items if item.name == "greet"]
    await opened.bench.project.trust_items(item)
    hosts.open_with(opened.bench)
    arguments = ask_arguments(opened.session.id, "/greet Ada")
    arguments.allow = ["commands"]
    asked = AskedTurn(arguments, hosts)
    assert await asked.exit_code() == 0
    (text,) = texts_said(opened.session)
    assert text == "Greet Ada. one-and-two\n"


async def test_a_message_that_the_host_refuses_ends_the_command(
    opened: OpenWorkspace, hosts: SuccessiveHosts
) -> None:
    """It was sent again and again, with "Not connected yet", and refused each time."""
    session = await opened.bench.start_conversation("Its work", agent="claude-code")
    hosts.open_with(opened.bench)
    asked = AskedTurn(ask_arguments(session.id, "hello"), hosts)
    with pytest.raises(ActionRefused, match="conversation of claude-code"):
        await asked.exit_code()
    assert asked.console.errors == []
