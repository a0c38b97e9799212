"""A client of a host whose line breaks in other ways than by an orderly end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine import session_events
from helix_desktop.errors import NotFound, OwnerEnded
from helix_desktop.providers.lent_providers import LentProvider, LentRequest
from helix_desktop.workspace_host import host_wire, remote_workspace_host
from helix_desktop.workspace_host.host_interface import CommandResult, StartConversation
from helix_desktop.workspace_host.remote_workspace_host import (
    RemoteListFollower,
    RemoteWorkspaceHost,
)
from tests.conftest import Expect

Numbered = (
    host_wire.RunCommand
    | host_wire.FollowConversation
    | host_wire.FollowList
    | host_wire.StopFollowing
)


class ScriptedStream:
    """A line whose host the test plays: it sees each message, and says what comes back."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes | BaseException] = asyncio.Queue()
        self.sent: list[host_wire.ClientMessage] = []
        self.has_sent = asyncio.Event()
        self.error_of_writing: OSError | None = None
        self.is_closed = False
        self._reader = host_wire.FrameReader()
        self.say(host_wire.Greeting(host_wire.PROTOCOL_VERSION, "1", "w", "Pairs"))

    def say(self, *messages: host_wire.WireMessage) -> None:
        for message in messages:
            self.incoming.put_nowait(host_wire.encode_frame(message))

    async def read_bytes(self) -> bytes:
        piece = await self.incoming.get()
        if isinstance(piece, BaseException):
            raise piece
        return piece

    async def write_bytes(self, content: bytes) -> None:
        if self.error_of_writing is not None:
            raise self.error_of_writing
        for frame in self._reader.pop_whole_frames(content):
            self.sent.append(host_wire.decode_client_message(frame))
        self.has_sent.set()

    async def close_stream(self) -> None:
        self.is_closed = True

    async def next_sent(self, kind: type[Numbered], count: int = 1) -> int:
        """Returns the number of the `count`-th message of this kind."""
        while True:
            numbers = [message.number for message in self.sent if isinstance(message, kind)]
            if len(numbers) >= count:
                return int(numbers[count - 1])
            self.has_sent.clear()
            await asyncio.wait_for(self.has_sent.wait(), 60)


async def begin_request(
    tasks: OwnedTasks, stream: ScriptedStream, work: Awaitable[object], kind: type[Numbered]
) -> tuple[asyncio.Task[object], int]:
    async def wait_for_answer() -> object:
        return await work

    count = sum(isinstance(message, kind) for message in stream.sent) + 1
    task = tasks.spawn_task(wait_for_answer(), name="ask")
    return task, await stream.next_sent(kind, count)


@pytest.mark.parametrize("error", [OSError(errno.EHOSTUNREACH, "unreachable"), ValueError("bug")])
async def test_an_unexpected_error_of_the_line_is_told_to_all_who_wait(
    error: Exception, expect: Expect
) -> None:
    if isinstance(error, ValueError):
        expect("could not be handled")
    stream = ScriptedStream()
    host = await RemoteWorkspaceHost.connect_over_stream(stream)
    tasks = OwnedTasks("clients of a test")
    asking = host.run_host_command(StartConversation())
    waiting, _ = await begin_request(tasks, stream, asking, host_wire.RunCommand)
    stream.incoming.put_nowait(error)
    with pytest.raises(OwnerEnded):
        await asyncio.wait_for(waiting, 60)
    assert stream.is_closed
    await host.close_host()


async def test_a_line_that_cannot_be_written_to_has_ended() -> None:
    stream = ScriptedStream()
    host = await RemoteWorkspaceHost.connect_over_stream(stream)
    stream.error_of_writing = OSError(errno.EHOSTUNREACH, "unreachable")
    with pytest.raises(OwnerEnded):
        await host.run_host_command(StartConversation())
    await host.close_host()


async def test_who_follows_hears_of_a_line_that_cannot_be_written_to() -> None:
    """A line may break in one direction only. Who follows would wait for ever, and what they sent
    would not be sent again.
    """
    stream = ScriptedStream()
    host = await RemoteWorkspaceHost.connect_over_stream(stream)
    tasks = OwnedTasks("clients of a test")
    waiting, number = await begin_request(tasks, stream, host.follow_list(), host_wire.FollowList)
    stream.say(host_wire.CommandDone(number, CommandResult()))
    follower = await waiting
    assert isinstance(follower, RemoteListFollower)
    stream.error_of_writing = BrokenPipeError(errno.EPIPE, "broken")
    with pytest.raises(OwnerEnded):
        await host.run_host_command(StartConversation())
    with pytest.raises(OwnerEnded):
        await asyncio.wait_for(follower.next_rows(), 60)
    assert host.has_ended.is_set()
    await host.close_host()


async def test_a_list_that_cannot_be_followed_leaves_no_follower() -> None:
    stream = ScriptedStream()
    host = await RemoteWorkspaceHost.connect_over_stream(stream)
    tasks = OwnedTasks("clients of a test")
    waiting, number = await begin_request(tasks, stream, host.follow_list(), host_wire.FollowList)
    stream.say(host_wire.RequestFailed(number, "NotFound", "There is no list."))
    with pytest.raises(NotFound):
        await asyncio.wait_for(waiting, 60)
    assert not host._followers
    await host.close_host()


async def test_the_host_is_told_to_stop_when_nobody_waits_for_a_list_any_more() -> None:
    stream = ScriptedStream()
    host = await RemoteWorkspaceHost.connect_over_stream(stream)
    tasks = OwnedTasks("clients of a test")
    waiting, number = await begin_request(tasks, stream, host.follow_list(), host_wire.FollowList)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    assert await stream.next_sent(host_wire.StopFollowing) == number
    assert not host._followers
    await host.close_host()


async def test_a_follower_whose_new_start_was_refused_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_workspace_host, "MOST_UNREAD_EVENTS", 2)
    stream = ScriptedStream()
    host = await RemoteWorkspaceHost.connect_over_stream(stream)
    tasks = OwnedTasks("clients of a test")
    starting, number = await begin_request(
        tasks, stream, host.follow_conversation("c"), host_wire.FollowConversation
    )
    stream.say(host_wire.CommandDone(number, CommandResult()))
    await asyncio.wait_for(starting, 60)
    follower = next(iter(host._followers.values()))
    assert isinstance(follower, remote_workspace_host.RemoteConversationFollower)
    measured = session_events.MeterChanged("c")
    for _ in range(3):
        stream.incoming.put_nowait(host_wire.encode_host_event(number, measured))
    # A command's answer comes after the events, so they have arrived with it.
    asking, command = await begin_request(
        tasks, stream, host.run_host_command(StartConversation()), host_wire.RunCommand
    )
    stream.say(host_wire.CommandDone(command, CommandResult()))
    await asyncio.wait_for(asking, 60)

    reading, second = await begin_request(
        tasks, stream, follower.next_events(), host_wire.FollowConversation
    )
    stream.say(host_wire.RequestFailed(second, "StoreFailed", "The disk does not answer."))
    with pytest.raises(Exception, match="does not answer"):
        await asyncio.wait_for(reading, 60)

    reading, third = await begin_request(
        tasks, stream, follower.next_events(), host_wire.FollowConversation
    )
    stream.say(host_wire.CommandDone(third, CommandResult()))
    stream.incoming.put_nowait(host_wire.encode_host_event(third, measured))
    assert await asyncio.wait_for(reading, 60) == (measured,)
    await host.close_host()


class EndlessLender:
    """Its answer begins and never ends."""

    def __init__(self) -> None:
        self.computer = "laptop"
        self.conversation = ""
        self.providers: Sequence[LentProvider] = ()
        self.is_answering = asyncio.Event()
        self.was_left = asyncio.Event()
        self.status_code = 200
        self.response_headers: Mapping[str, str] = {}

    @asynccontextmanager
    async def open_lent_answer(self, request: LentRequest) -> AsyncIterator[EndlessLender]:
        try:
            yield self
        finally:
            self.was_left.set()

    async def body_chunks(self) -> AsyncGenerator[bytes]:
        self.is_answering.set()
        await asyncio.Event().wait()
        yield b""

    def dismiss(self) -> None:
        pass

    def end_lending(self) -> None:
        pass


async def test_a_lent_answer_is_left_when_the_line_ends() -> None:
    stream = ScriptedStream()
    host = await RemoteWorkspaceHost.connect_over_stream(stream)
    lender = EndlessLender()
    await host.lend_providers(lender)
    stream.say(host_wire.OpenStream(1, LentRequest("far", "https://far.example", (), b"")))
    await asyncio.wait_for(lender.is_answering.wait(), 60)
    stream.incoming.put_nowait(b"")
    await asyncio.wait_for(lender.was_left.wait(), 60)
    await host.close_host()


async def test_an_end_that_is_said_often_does_not_grow() -> None:
    stream = ScriptedStream()
    host = await RemoteWorkspaceHost.connect_over_stream(stream)
    stream.incoming.put_nowait(b"")
    await asyncio.wait_for(host.has_ended.wait(), 60)
    depths: list[int] = []
    for _ in range(3):
        with pytest.raises(OwnerEnded) as raised:
            await host.run_host_command(StartConversation())
        depths.append(len(raised.traceback))
    assert depths[0] == depths[2]
    await host.close_host()
