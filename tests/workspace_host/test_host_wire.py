"""Frames and messages: what breaks, lies or is hostile ends with one clear error, and no crash."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import zstandard

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine import facts
from helix_desktop.engine.fact_encoding import encode_fact
from helix_desktop.engine.messages import CallDelta, ReasoningDelta, TextDelta
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_events import (
    ActivityChanged,
    CallStage,
    CallStageChanged,
    ConversationActivity,
    FoldProgress,
    MessagesQueued,
    MeterChanged,
    QuestionAnswered,
    QuestionAsked,
    ReplyStreamed,
    ToolPrinted,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, OwnerEnded
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host import host_wire, wire_errors
from helix_desktop.workspace_host.byte_streams import SocketStream
from helix_desktop.workspace_host.host_interface import (
    CommandResult,
    ConversationEvent,
    FactsAdded,
    HistoryReplaced,
    LiveState,
    ReplyDelayed,
    StartConversation,
)
from helix_desktop.workspace_host.host_server import serve_host_client
from helix_desktop.workspace_host.host_wire import BrokenStream
from helix_desktop.workspace_host.local_workspace_host import LocalWorkspaceHost
from helix_desktop.workspace_host.remote_workspace_host import FRAMES_AT_ONCE, RemoteWorkspaceHost
from tests.conftest import Expect
from tests.workspace_host.conftest import socket_streams

STORED = facts.Stored(Digest.of_content(b"x"), 1)
SAID = (facts.Text("hello", 2), facts.Attachment("a", STORED))
QUESTION = PermissionQuestion(facts.ToolCall("1", "run_command", "{}"), "Run?", "ls")
EVENTS: list[ConversationEvent] = [
    FactsAdded((facts.Recorded("c", 1, 2.0, facts.UserSaid(SAID)),)),
    HistoryReplaced(),
    LiveState(
        ConversationActivity.ASKING, "Run?", (QuestionAsked("c", 1, QUESTION),), MessagesQueued("c", (SAID,), command_ids=("a",)), "so far"
    ),
    LiveState(
        ConversationActivity.IDLE, "", (), MessagesQueued("c", ()), "", fold=FoldProgress("c", facts.FoldKind.HANDOVER, "why")
    ),
    LiveState(
        ConversationActivity.THINKING, "", (), MessagesQueued("c", ()), "", retry=ReplyDelayed("c", "busy", 2.5)
    ),
    ReplyDelayed("c", "busy", 2.5),
    ReplyStreamed("c", TextDelta("a")),
    ReplyStreamed("c", ReasoningDelta("b")),
    ReplyStreamed("c", CallDelta(0, "1", "ls", "{}")),
    ToolPrinted("c", "1", "out"),
    CallStageChanged("c", "1", CallStage.RUNNING),
    ActivityChanged("c", ConversationActivity.FAILED, "why"),
    QuestionAsked("c", 1, QUESTION),
    QuestionAnswered("c", 1),
    FoldProgress("c", facts.FoldKind.HANDOVER, "why", done=True),
    FoldProgress("c", facts.FoldKind.HANDOVER, is_update=True, is_waited_for=True, retry_why="busy", retry_seconds=2.5),
    MessagesQueued("c", (SAID, SAID), (SAID,), 1, (SAID,), ("a", ""), ("b",)),
    MeterChanged("c"),
    FactsAdded(tuple(facts.Recorded("c", seq, 1.0, facts.UserSaid(SAID)) for seq in range(1, 200))),
]  # fmt: skip


def decoded(frame: bytes) -> ConversationEvent:
    message = host_wire.decode_host_message(frame[host_wire.LENGTH.size :])
    assert isinstance(message, host_wire.FactsMessage | host_wire.EventSent)
    return host_wire.decode_event(message)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_comes_back_as_it_was(event: ConversationEvent) -> None:
    assert decoded(host_wire.encode_host_event(7, event)) == event


@pytest.mark.parametrize("seconds", [math.inf, math.nan])
def test_a_pause_of_no_length_is_refused(seconds: float) -> None:
    """A window would count it down, and rounding it is an error."""
    fold = FoldProgress("c", facts.FoldKind.HANDOVER, retry_why="busy", retry_seconds=seconds)
    live = LiveState(ConversationActivity.IDLE, "", (), MessagesQueued("c", ()), "", fold=fold)
    delayed = ReplyDelayed("c", "busy", seconds)
    live_in_pause = replace(live, fold=None, retry=delayed)
    for event in (delayed, fold, live, live_in_pause):
        with pytest.raises(BrokenStream, match="cannot be read"):
            decoded(host_wire.encode_host_event(7, event))


class _LiveStateOfEarlierVersion(msgspec.Struct, frozen=True):
    running: ConversationActivity
    why: str
    fold: FoldProgress | None = None


def test_hosts_and_clients_of_an_earlier_version_do_without_the_pause() -> None:
    queued = MessagesQueued("c", ())
    delayed = ReplyDelayed("c", "busy", 2.5)
    live = LiveState(ConversationActivity.THINKING, "", (), queued, "", retry=delayed)
    frame = host_wire.encode_host_event(7, live)
    message = host_wire.decode_host_message(frame[host_wire.LENGTH.size :])
    assert isinstance(message, host_wire.EventSent)
    read_by_earlier = msgspec.msgpack.decode(message.body, type=_LiveStateOfEarlierVersion)
    assert read_by_earlier.running is ConversationActivity.THINKING
    fields = msgspec.msgpack.decode(message.body)
    assert fields.pop("retry") is not None
    told_by_earlier = host_wire.EventSent(7, "LiveState", msgspec.msgpack.encode(fields))
    assert host_wire.decode_event(told_by_earlier) == replace(live, retry=None)


def test_a_long_history_takes_a_fraction_of_its_bytes_on_the_line() -> None:
    history = EVENTS[-1]
    assert isinstance(history, FactsAdded)
    plain_bytes = sum(len(encode_fact(recorded.fact)) for recorded in history.facts)
    assert len(host_wire.encode_host_event(1, history)) < plain_bytes / 4


def test_frames_come_whole_however_the_stream_is_cut() -> None:
    frames = [host_wire.encode_host_event(1, event) for event in EVENTS]
    whole = b"".join(frames)
    for size in (1, 2, 3, 5, 100, 10_000):
        reader = host_wire.FrameReader()
        found: list[bytes] = []
        for start in range(0, len(whole), size):
            found += reader.pop_whole_frames(whole[start : start + size])
        reader.check_ends_whole()
        assert [host_wire.LENGTH.pack(len(frame)) + frame for frame in found] == frames


def test_a_giant_length_is_refused_before_anything_is_kept() -> None:
    reader = host_wire.FrameReader()
    with pytest.raises(BrokenStream, match="announced a message of 4,294,967,295 bytes"):
        reader.pop_whole_frames(b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    "value", [b"\x93\x00\x00\xa0", b"\x93\xcc\x00\xcb" + bytes(8) + b"\xd9\x00"]
)
def test_a_message_of_millions_of_small_values_is_not_made_into_objects(value: bytes) -> None:
    """Facts without content: 57 MB of them took 1.5 GB, and two seconds of the window."""
    count = 3_000_000
    facts_of_message = b"\xdd" + count.to_bytes(4, "big") + value * count
    frame = b"\x84\xa1m\xa9FactsSent\xa6number\x01\xacconversation\xa1c\xa5facts" + facts_of_message
    with pytest.raises(BrokenStream, match="more than 2,000,000 values"):
        host_wire.decode_host_message(frame)


def test_a_long_message_of_few_values_is_read_as_it_is() -> None:
    rows = tuple(host_wire.WireFact(seq, 1.0, "x" * (1 << 20)) for seq in range(12))
    frame = host_wire.encode_frame(host_wire.FactsSent(1, "c", rows))
    read = host_wire.decode_host_message(frame[host_wire.LENGTH.size :])
    assert isinstance(read, host_wire.FactsSent)
    assert read.facts == rows


def test_a_message_that_is_too_long_to_send_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_wire, "LONGEST_FRAME", 100)
    with pytest.raises(BrokenStream, match="too long to be sent"):
        host_wire.encode_host_event(1, ToolPrinted("c", "1", "a" * 100))


# --- A hostile client


class Served:
    """A host that serves a client whose bytes a test writes."""

    def __init__(self, client: SocketStream, serving: asyncio.Task[None]) -> None:
        self.client = client
        self._serving = serving

    async def all_that_it_answers(self) -> list[host_wire.HostMessage]:
        reader = host_wire.FrameReader()
        frames: list[bytes] = []
        async with asyncio.timeout(30):
            while piece := await self.client.read_bytes():
                frames += reader.pop_whole_frames(piece)
            await asyncio.wait({self._serving})
        assert self._serving.exception() is None
        return [host_wire.decode_host_message(frame) for frame in frames]


@pytest.fixture
async def serve(bench: Workbench) -> Any:
    tasks = OwnedTasks("hosts of a test")

    async def begin() -> Served:
        here, there = await socket_streams()
        work = serve_host_client(LocalWorkspaceHost(bench), there)
        return Served(here, tasks.spawn_task(work, name="serve"))

    yield begin
    await tasks.aclose(limit=2)


def greeting(version: int = host_wire.PROTOCOL_VERSION) -> bytes:
    return host_wire.encode_frame(host_wire.Greeting(version, "test"))


CLIENTS = {
    "another version": (greeting(9), "version 9"),
    "a giant length": (greeting() + b"\x7f\xff\xff\xff", "announced"),
    "no greeting": (host_wire.encode_frame(host_wire.FollowList(1)), "did not greet first"),
    "two greetings": (greeting() * 2, "greeted twice"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "announced"),
    "half a frame": (greeting() + b"\x00\x00", "broke off"),
    "no message": (greeting() + b"\x00\x00\x00\x01\xc1", "does not understand"),
    "deep nesting": (
        greeting() + host_wire.LENGTH.pack(200_000) + b"\x91" * 200_000,
        "does not understand",
    ),
    "a message of the host": (
        greeting() + host_wire.encode_frame(host_wire.RangeRead(1, b"")),
        "does not understand",
    ),
    "a follower's number again": (
        greeting() + host_wire.encode_frame(host_wire.FollowList(1)) * 2,
        "follows more than",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_that_is_not_understood_is_told_once_and_closed(
    name: str, serve: Any, expect: Expect
) -> None:
    content, sentence = CLIENTS[name]
    expect("was not understood")
    served = await serve()
    await served.client.write_bytes(content)
    served.client._writer.write_eof()  # It says no more.
    answers = await served.all_that_it_answers()
    await served.client.close_stream()
    assert isinstance(answers[0], host_wire.Greeting)
    errors = [each for each in answers if isinstance(each, host_wire.RequestFailed)]
    assert len(errors) == 1
    assert sentence in errors[0].what
    assert errors[0].number == 0


def hostile_bytes(chance: random.Random, honest: list[bytes]) -> bytes:
    """A frame that is damaged, cut, repeated, invented or of other types than it should be."""
    frame = bytearray(chance.choice(honest))
    match chance.randrange(6):
        case 0:
            for _ in range(chance.randrange(1, 6)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
        case 1:
            del frame[chance.randrange(len(frame)) :]
        case 2:
            frame[4:] = chance.randbytes(len(frame) - 4)
        case 3:
            frame = bytearray(chance.randbytes(chance.randrange(1, 200)))
        case 4:
            value = msgspec.msgpack.decode(frame[4:])
            value[chance.choice(list(value))] = chance.choice(
                [None, -1, 2**63, "x" * 1000, b"\xff", [], {}, 1.5, float("nan"), True, [[]] * 50]
            )
            content = msgspec.msgpack.encode(value)
            frame = bytearray(host_wire.LENGTH.pack(len(content)) + content)
        case _:
            frame[0:4] = host_wire.LENGTH.pack(chance.randrange(2**32))
    return bytes(frame)


def client_frames() -> list[bytes]:
    messages = [
        host_wire.RunCommand(1, "a", StartConversation("x")),
        host_wire.FollowConversation(2, "nowhere", 5),
        host_wire.FollowList(3),
        host_wire.ReadRange(4, bytes(32), 0, 10),
        host_wire.StopFollowing(3),
    ]
    return [host_wire.encode_frame(message) for message in messages]


async def test_1000_hostile_clients_end_with_one_error_and_the_host_goes_on(
    serve: Any, bench: Workbench, expect: Expect
) -> None:
    expect("was not understood")
    chance = random.Random(72)
    for number in range(1_000):
        served = await serve()
        content = hostile_bytes(chance, client_frames())
        await served.client.write_bytes(greeting() + content)
        served.client._writer.write_eof()
        answers = await served.all_that_it_answers()
        await served.client.close_stream()
        last_words = [
            each
            for each in answers
            if isinstance(each, host_wire.RequestFailed) and each.number == 0
        ]
        assert len(last_words) <= 1, (number, content)
    host = LocalWorkspaceHost(bench)
    assert (await host.run_host_command(StartConversation())).conversation


# --- A hostile host


def host_frames() -> list[bytes]:
    frames = [host_wire.encode_host_event(2, event) for event in EVENTS]
    frames.append(host_wire.encode_frame(host_wire.RequestFailed(2, "NotFound", "what")))
    frames.append(host_wire.encode_frame(host_wire.RowsChanged(2, ())))
    return frames


async def hear(content: bytes) -> HelixError:
    """What a client that follows a conversation is told in the end, by a host that sends this."""
    here, there = await socket_streams()
    await there.write_bytes(greeting())
    host = await RemoteWorkspaceHost.connect_over_stream(here)
    tasks = OwnedTasks("client of a test")
    following = tasks.spawn_task(host.follow_conversation("c"), name="follow")
    while not host._answers:
        await asyncio.sleep(0)
    number = next(iter(host._answers))
    await there.write_bytes(
        host_wire.encode_frame(host_wire.CommandDone(number, CommandResult())) + content
    )
    there._writer.write_eof()
    try:
        async with asyncio.timeout(30):
            follower = await following
            while True:
                await follower.next_events()
    except HelixError as error:
        return error
    finally:
        await host.close_host()
        await there.close_stream()
        await tasks.aclose()
    raise AssertionError("it never ended")


async def test_1000_hostile_hosts_end_with_one_error_at_the_client() -> None:
    chance = random.Random(73)
    ends: set[str] = set()
    for _ in range(1_000):
        error = await hear(hostile_bytes(chance, host_frames()))
        ends.add(type(error).__name__)
        assert error.what
        assert len(error.what) <= wire_errors.LONGEST_SENTENCE
    assert {"BrokenStream", "OwnerEnded"} <= ends


def lying_facts() -> Iterator[tuple[str, Callable[[], bytes]]]:
    fact = encode_fact(facts.UserSaid(SAID))

    def sent(*rows: host_wire.WireFact, conversation: str = "c") -> bytes:
        return host_wire.encode_frame(host_wire.FactsSent(1, conversation, rows))

    def packed(content: bytes) -> bytes:
        return host_wire.encode_frame(host_wire.PackedFactsSent(1, "c", content))

    yield "the fact 2 after 0", lambda: sent(host_wire.WireFact(2, 1.0, fact))
    yield "the fact 1 after 1", lambda: sent(host_wire.WireFact(1, 1.0, fact)) * 2
    yield "another conversation", lambda: sent(host_wire.WireFact(1, 1.0, fact), conversation="d")
    yield "cannot be read", lambda: sent(host_wire.WireFact(1, 1e99, fact))
    yield (
        "cannot be read",
        lambda: sent(host_wire.WireFact(1, 1.0, fact.replace("hello", "\\ud800"))),
    )
    yield "cannot be read", lambda: sent(host_wire.WireFact(1, 1.0, "[" * 100_000))
    yield (
        "cannot be read",
        lambda: sent(host_wire.WireFact(1, 1.0, '{"fact":"UserSaid","version":1,"parts":1}')),
    )
    yield "cannot be read", sent
    yield "cannot be read", lambda: packed(b"no compression at all")
    yield "cannot be read", lambda: packed(zstandard.compress(bytes(64 << 20)))
    yield "cannot be read", lambda: packed(zstandard.compress(b"\x90" * 5_000)[:-9])
    yield (
        "newer version",
        lambda: sent(host_wire.WireFact(1, 1.0, '{"fact":"Unheard","version":1}')),
    )


@pytest.mark.parametrize(("sentence", "content"), list(lying_facts()))
async def test_facts_that_lie_are_refused(sentence: str, content: Callable[[], bytes]) -> None:
    error = await hear(content())
    assert sentence in error.what


async def test_more_content_than_was_asked_for_is_refused() -> None:
    here, there = await socket_streams()
    await there.write_bytes(greeting())
    host = await RemoteWorkspaceHost.connect_over_stream(here)
    await there.write_bytes(host_wire.encode_frame(host_wire.RangeRead(1, b"12345")))
    tasks = OwnedTasks("client of a test")
    reading = tasks.spawn_task(host.read_content_range(STORED.digest, 0, 4), name="read")
    await there.write_bytes(host_wire.encode_frame(host_wire.RangeRead(1, b"12345")))
    with pytest.raises(BrokenStream, match="more content"):
        await asyncio.wait_for(reading, 30)
    await host.close_host()
    await there.close_stream()


async def test_many_words_that_arrive_at_once_leave_others_their_turn() -> None:
    here, there = await socket_streams()
    await there.write_bytes(greeting())
    host = await RemoteWorkspaceHost.connect_over_stream(here)
    tasks = OwnedTasks("client of a test")
    following = tasks.spawn_task(host.follow_conversation("c"), name="follow")
    while not host._answers:
        await asyncio.sleep(0)
    number = next(iter(host._answers))
    await there.write_bytes(host_wire.encode_frame(host_wire.CommandDone(number, CommandResult())))
    follower = await following
    word = host_wire.encode_host_event(number, ReplyStreamed("c", TextDelta("word ")))
    sending = tasks.spawn_task(there.write_bytes(word * 5_000), name="send")
    counts: list[int] = []
    while sum(counts) < 5_000:
        # What has come since this task's last turn.
        counts.append(len(await follower.next_events()))
    await sending
    assert max(counts) <= 2 * FRAMES_AT_ONCE
    await host.close_host()
    await there.close_stream()


async def test_a_host_that_ends_is_said_to_all_who_wait() -> None:
    here, there = await socket_streams()
    await there.write_bytes(greeting())
    host = await RemoteWorkspaceHost.connect_over_stream(here)
    tasks = OwnedTasks("clients of a test")
    waiting = [
        tasks.spawn_task(host.run_host_command(StartConversation()), name="one"),
        tasks.spawn_task(host.follow_list(), name="two"),
    ]
    await asyncio.sleep(0)
    await there.close_stream()
    for each in waiting:
        with pytest.raises(OwnerEnded):
            await asyncio.wait_for(each, 30)
    with pytest.raises(OwnerEnded):
        await host.follow_conversation("c")
    await host.close_host()


async def test_a_host_of_another_version_is_said_with_what_to_do() -> None:
    here, there = await socket_streams()
    await there.write_bytes(greeting(host_wire.PROTOCOL_VERSION + 1))
    with pytest.raises(BrokenStream, match=f"version {host_wire.PROTOCOL_VERSION + 1}") as refused:
        await RemoteWorkspaceHost.connect_over_stream(here)
    assert "Update Helix Desktop" in refused.value.remedy
    await there.close_stream()


async def test_a_program_that_is_no_host_is_no_crash() -> None:
    here, there = await socket_streams()
    await there.write_bytes(b"Welcome to Debian GNU/Linux\n")
    with pytest.raises(BrokenStream):
        await RemoteWorkspaceHost.connect_over_stream(here)
    await there.close_stream()
