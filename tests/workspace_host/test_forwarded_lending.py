"""A provider that a client lends is asked through its line, and waits for it where it is broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import ProviderKeyRefused
from helix_desktop.providers.lent_providers import LentProvider, LentRequest
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host import host_wire
from helix_desktop.workspace_host.host_interface import (
    ChooseModel,
    DescribeWorkspace,
    LentKey,
    SendMessage,
    StartConversation,
    TakeKeyBack,
)
from helix_desktop.workspace_host.host_server import serve_host_client
from helix_desktop.workspace_host.local_workspace_host import LocalWorkspaceHost
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from tests.peers.chat_server import chunk, reply
from tests.peers.peer import sse
from tests.workspace_host.conftest import open_over_socket, socket_streams
from tests.workspace_host.viewer import Viewer

WHOLE = b"".join(piece for piece in reply("From far away.").pieces if isinstance(piece, bytes))
BEGINNING = sse(chunk({"content": "Begun"}))[0]


class ScriptedAnswer:
    status_code = 200
    response_headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self, pieces: Sequence[bytes], *, ends: bool) -> None:
        self._pieces = pieces
        self._ends = ends

    async def body_chunks(self) -> AsyncGenerator[bytes]:
        for piece in self._pieces:
            yield piece
        if not self._ends:
            await asyncio.Event().wait()


class ScriptedLender:
    """A computer with a provider of its own. `pieces`: of each reply."""

    def __init__(self, computer: str, pieces: Sequence[bytes], *, ends: bool = True) -> None:
        self.computer = computer
        self.conversation = ""
        self.providers = (LentProvider("far", "openai-chat", "https://far.example/v1"),)
        self._answer = ScriptedAnswer(pieces, ends=ends)
        self.requests: list[LentRequest] = []
        self.was_asked = asyncio.Event()
        self.refusal = ""

    @asynccontextmanager
    async def open_lent_answer(self, request: LentRequest) -> AsyncIterator[ScriptedAnswer]:
        self.requests.append(request)
        self.was_asked.set()
        if self.refusal:
            raise ProviderKeyRefused(self.refusal, remedy="Look for it.")
        yield self._answer

    def end_lending(self) -> None:
        pass

    def dismiss(self) -> None:
        pass


async def connect(bench: Workbench, stack: AsyncExitStack) -> RemoteWorkspaceHost:
    host = await open_over_socket(bench, stack)
    assert isinstance(host, RemoteWorkspaceHost)
    return host


async def begin(host: RemoteWorkspaceHost) -> Viewer:
    started = await host.run_host_command(StartConversation())
    await host.run_host_command(ChooseModel(started.conversation, "far/model"))
    return await Viewer.begin(host, started.conversation)


async def test_a_model_is_asked_through_the_client_and_without_a_key(bench: Workbench) -> None:
    async with AsyncExitStack() as stack:
        host = await connect(bench, stack)
        lender = ScriptedLender("laptop", [WHOLE])
        await host.lend_providers(lender)
        viewer = await begin(host)
        await viewer.say("hello")
        assert "From far away." in str(viewer.facts)
    (request,) = lender.requests
    assert request.url == "https://far.example/v1/chat/completions"
    assert not {name.lower() for name, _ in request.headers} & {"authorization", "x-api-key"}


async def test_what_the_client_says_of_a_missing_key_is_said_of_the_turn(bench: Workbench) -> None:
    async with AsyncExitStack() as stack:
        host = await connect(bench, stack)
        lender = ScriptedLender("laptop", [])
        lender.refusal = "There is no key for far."
        await host.lend_providers(lender)
        viewer = await begin(host)
        await host.run_host_command(SendMessage(viewer.conversation, "hello"))
        await viewer.until(lambda: viewer.ends == 1)
        assert "There is no key for far." in str(viewer.facts[-1])


async def test_a_request_waits_until_the_client_is_back(bench: Workbench) -> None:
    async with AsyncExitStack() as stack:
        host = await connect(bench, stack)
        first = ScriptedLender("laptop", [], ends=False)
        await host.lend_providers(first)
        viewer = await begin(host)
        conversation = viewer.conversation
        tasks = OwnedTasks("asking")
        stack.push_async_callback(tasks.aclose)
        tasks.spawn_task(viewer.say("hello"), name="say")
        await first.was_asked.wait()
        await host.close_host()
        again = await connect(bench, stack)
        second = ScriptedLender("laptop", [WHOLE])
        await again.lend_providers(second)
        seen_again = await Viewer.begin(again, conversation)
        await seen_again.until_ended(1)
        assert "From far away." in str(seen_again.facts)


async def test_a_dead_line_is_given_up_when_the_same_computer_comes_again(
    bench: Workbench,
) -> None:
    async with AsyncExitStack() as stack:
        dead = await connect(bench, stack)
        first = ScriptedLender("laptop", [], ends=False)
        await dead.lend_providers(first)
        viewer = await begin(dead)
        tasks = OwnedTasks("asking")
        stack.push_async_callback(tasks.aclose)
        tasks.spawn_task(viewer.say("hello"), name="say")
        await first.was_asked.wait()
        # The first line is still open, and says nothing any more.
        again = await connect(bench, stack)
        await again.lend_providers(ScriptedLender("laptop", [WHOLE]))
        seen_again = await Viewer.begin(again, viewer.conversation)
        await seen_again.until_ended(1)
        assert "From far away." in str(seen_again.facts)


async def test_which_conversation_has_a_key_is_told_to_all_who_look(bench: Workbench) -> None:
    """A window that is opened again must know that a key is lent, so that it can be taken back."""
    async with AsyncExitStack() as stack:
        lending_host = await connect(bench, stack)
        host = await connect(bench, stack)
        follower = await host.follow_list()
        await follower.next_rows()
        started = await host.run_host_command(StartConversation())
        lender = ScriptedLender("key holder", [])
        lender.conversation = started.conversation
        await lending_host.lend_providers(lender)
        assert await read_lent_keys(host) == (LentKey(started.conversation, ("far",)),)
        while not follower.settings_changes:
            await follower.next_rows()

        changes_until_now = follower.settings_changes
        await host.run_host_command(TakeKeyBack(started.conversation))
        assert await read_lent_keys(host) == ()
        while follower.settings_changes == changes_until_now:
            await follower.next_rows()


async def read_lent_keys(host: RemoteWorkspaceHost) -> tuple[LentKey, ...]:
    result = await host.run_host_command(DescribeWorkspace())
    assert result.description is not None
    return result.description.lent_keys


async def test_a_host_that_asks_for_what_nobody_lent_is_left() -> None:
    here, there = await socket_streams()
    greeting = host_wire.Greeting(host_wire.PROTOCOL_VERSION, "", "w", "W")
    request = LentRequest("openai", "https://api.openai.com/v1/responses", (), b"{}")
    await there.write_bytes(host_wire.encode_frame(greeting))
    await there.write_bytes(host_wire.encode_frame(host_wire.OpenStream(1, request)))
    host = await RemoteWorkspaceHost.connect_over_stream(here)
    await asyncio.wait_for(host.has_ended.wait(), 30)
    with pytest.raises(host_wire.BrokenStream, match="nobody lent"):
        host.raise_if_ended()
    await host.close_host()
    await there.close_stream()


async def test_a_client_that_sends_parts_of_no_answer_does_no_harm(bench: Workbench) -> None:
    here, there = await socket_streams()
    tasks = OwnedTasks("host of a test")
    tasks.spawn_task(serve_host_client(LocalWorkspaceHost(bench), there), name="serve")
    greeting = host_wire.Greeting(host_wire.PROTOCOL_VERSION)
    for message in (greeting, host_wire.StreamPiece(7, b"x"), host_wire.StreamEnded(8)):
        await here.write_bytes(host_wire.encode_frame(message))
    await here.write_bytes(host_wire.encode_frame(host_wire.FollowList(1)))
    reader = host_wire.FrameReader()
    heard: list[host_wire.HostMessage] = []
    while len(heard) < 2:
        frames = reader.pop_whole_frames(await here.read_bytes())
        heard += [host_wire.decode_host_message(frame) for frame in frames]
    assert isinstance(heard[1], host_wire.CommandDone)
    await here.close_stream()
    await tasks.aclose(limit=5)
