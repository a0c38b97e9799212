"""Replies on their way to the agent: recorded before their end, freed of recalls, and
as they came where a provider means harm or is broken: compressed too far, damaged,
endless, deep.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
import zstandard

from helix_desktop import concurrency
from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.gateway import provider_reply_bodies, reply_relay
from helix_desktop.gateway.conversations_port import HiddenCallAnswer, Replied, Ticket
from helix_desktop.gateway.incremental_parsing import FIRST_VALUES, BodyParser
from helix_desktop.gateway.provider_choice import ProviderHttpClients
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.reply_relay import (
    MOST_RECALL_REPLIES,
    RECALL_REFUSED,
    RecordedRequest,
    ReplyRelay,
    UnreadRequestRecorder,
)
from helix_desktop.gateway.request_forwarding import RequestForwarder
from helix_desktop.gateway.request_parsing import (
    IncomingRequest,
    ParsedRequest,
    parse_incoming_request,
)
from helix_desktop.gateway.request_routes import parse_route
from helix_desktop.protocols.event_stream import RawEventSplitter, parse_event_data
from helix_desktop.protocols.gateway_message import Piece, PieceKind
from helix_desktop.protocols.protocol_table import CALL_FILTERS, WIRE_MODULES
from tests.conftest import Expect
from tests.gateway.running import PROTOCOLS, TOOL, Agent, running
from tests.hostile_bodies import CODINGS
from tests.peers.agent_provider import WRITERS, Asked, Block, Calls, Provider, Raw, Says, Thinks

MANY = 200 << 20
EVENT = b'event: ping\ndata: {"type": "ping"}\n\n'
MOST_MEMORY = 170 << 20  # of a bomb of 200 MB: 64 MB of it are read, and no more
RECALL = Calls("search_cached_content", {"query": "x"})


@dataclass
class Replies:
    """What the provider sends, one after another; the last again and again."""

    replies: list[Raw | int | list[Block]] = field(default_factory=list)

    def __call__(self, _: Asked) -> Raw | int | list[Block]:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    """By their coding. Made where they are needed: every process that only collects the
    tests would make them too.
    """
    zeros = bytes(MANY)
    bomb = gzip.compress(zeros, 1)
    other = {"deflate": zlib.compress(zeros, 1), "zstd": zstandard.compress(zeros)}
    return {"gzip": bomb, "gzip, gzip": gzip.compress(bomb), **other}


@pytest.fixture(scope="module")
def bomb(bombs: dict[str, bytes]) -> bytes:
    return bombs["gzip"]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Replies]]:
    replies = Replies()
    with (
        Provider(replies, strict=False) as provider,
        running(tmp_path_factory.mktemp("home"), provider.url) as url,
    ):
        yield url, replies


def ask(
    url: str, *, streams: bool = False, protocol: str = "anthropic", tools: bool = True
) -> tuple[int, httpx.Headers, bytes]:
    """What the agent gets, as bytes: it decompresses nothing."""
    agent = Agent(protocol, url, streams=streams)
    agent.say("hello")
    body = agent.body() if tools else {**agent.body(), "tools": [{"name": "recall_cached_content"}]}
    with httpx.stream(
        "POST", url + agent.path, json=body, headers={"x-api-key": "k"}, timeout=60
    ) as reply:
        came = bytearray()
        try:
            for piece in reply.iter_raw():
                came += piece
        except httpx.RemoteProtocolError:
            came += b"(cut)"
        return reply.status_code, reply.headers, bytes(came)


@pytest.fixture
def memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY, f"{peak:,}"


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("status", [400, 413, 429, 500])
def test_a_refusal_that_stands_for_much_reaches_the_agent_as_it_came(
    there: tuple[str, Replies], bomb: bytes, status: int
) -> None:
    url, replies = there
    replies.replies = [Raw(bomb, "gzip", status)]
    got, headers, content = ask(url, tools=False)
    assert (got, headers["content-encoding"], content) == (status, "gzip", bomb)


def test_a_compressed_refusal_is_understood_and_reaches_the_agent_whole(
    there: tuple[str, Replies],
) -> None:
    url, replies = there
    told = gzip.compress(b'{"error": {"message": "prompt is too long"}}')
    replies.replies = [Raw(told, "gzip", 400)]
    got, headers, content = ask(url)
    assert (got, headers["content-encoding"], content) == (400, "gzip", told)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("status", [400, 429, 503])
def test_a_refusal_behind_a_recall_that_stands_for_much_ends_the_reply(
    there: tuple[str, Replies],
    bomb: bytes,
    streams: bool,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("helix_desktop.gateway.reply_relay.RETRY_WAITS_SECONDS", (0.0,))
    url, replies = there
    replies.replies = [[RECALL], Raw(bomb, "gzip", status)]
    got, _, content = ask(url, streams=streams)
    assert got == (200 if streams else status)
    assert b"event: error" in content if streams else content == bomb


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "gzip, gzip"])
def test_a_stream_that_stands_for_much_is_read_up_to_the_limit(
    there: tuple[str, Replies], bombs: dict[str, bytes], coding: str, tools: bool
) -> None:
    url, replies = there
    packed = bombs[coding]
    replies.replies = [Raw(packed, coding, media_type="text/event-stream")]
    _, headers, content = ask(url, streams=True, tools=tools)
    if tools:
        assert b"The provider's reply was ended" in content[-300:] or content == packed
        assert len(content) <= (64 << 20) + 300
    else:
        assert (headers["content-encoding"], content) == (coding, packed)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("tools", [True, False])
def test_a_whole_reply_that_stands_for_much_goes_on_as_it_came(
    there: tuple[str, Replies], bomb: bytes, tools: bool
) -> None:
    url, replies = there
    replies.replies = [Raw(bomb, "gzip")]
    _, headers, content = ask(url, tools=tools)
    assert (headers["content-encoding"], content) == ("gzip", bomb)


@pytest.mark.parametrize("streams", [True, False])
def test_a_reply_without_an_end_goes_on_unread(there: tuple[str, Replies], streams: bool) -> None:
    url, replies = there
    media = "text/event-stream" if streams else "application/json"
    endless = (b'{"a": "' + b"x" * (1 << 20)) * 90
    replies.replies = [Raw(endless, media_type=media)]
    assert ask(url, streams=streams)[2] == endless


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 5_000,
        b"[" + b"[]," * 3_500_000 + b"1]",
        b'{"content": [' + b"{}," * 3_500_000 + b"1]}",
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_deep_and_wide_json_goes_on_unread(
    there: tuple[str, Replies], streams: bool, content: bytes
) -> None:
    url, replies = there
    if streams:
        content = b"data: " + content + b"\n\n"
    replies.replies = [
        Raw(content, media_type="text/event-stream" if streams else "application/json")
    ]
    assert ask(url, streams=streams)[2] == content


@pytest.mark.parametrize(
    "content",
    [b"data: 1\n\n" * 3, b'data: [[]]\n\ndata: "a"\n\n', b"\n" * 100_000 + b"data: {}\n\n"],
)
@pytest.mark.parametrize("tools", [True, False])
def test_events_that_say_nothing_reach_the_agent_as_they_came(
    there: tuple[str, Replies], content: bytes, tools: bool
) -> None:
    url, replies = there
    replies.replies = [Raw(content, media_type="text/event-stream")]
    assert ask(url, streams=True, tools=tools)[2] == content


@pytest.mark.parametrize("coding", ["br", "gzip", "compress", "gzip, br"])
@pytest.mark.parametrize("streams", [True, False])
def test_a_coding_nobody_reads_goes_on_as_it_came(
    there: tuple[str, Replies], streams: bool, coding: str
) -> None:
    url, replies = there
    replies.replies = [
        Raw(
            b"not what it says",
            coding,
            media_type="text/event-stream" if streams else "application/json",
        )
    ]
    _, headers, content = ask(url, streams=streams)
    assert (headers["content-encoding"], content) == (coding, b"not what it says")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_an_honest_compressed_stream_is_read_and_freed_of_hidden_calls(
    there: tuple[str, Replies], protocol: str, coding: str
) -> None:
    url, replies = there
    from tests.peers.agent_provider import WRITERS

    pack: Callable[[bytes], bytes] = gzip.compress if coding == "gzip" else zstandard.compress
    usage = {"input": 100, "read": 0, "write": 0}
    told = b"".join(
        WRITERS[protocol].events([Calls(RECALL.name, RECALL.arguments, "c1")], usage, "1")
    )
    replies.replies = [
        Raw(pack(told), coding, media_type="text/event-stream", chunk_bytes=100),
        [Says("done")],
    ]
    _, headers, content = ask(url, streams=True, protocol=protocol)
    assert "content-encoding" not in headers
    assert b"search_cached_content" not in content
    assert b"done"[:1] in content
    assert json.dumps("d")[1:-1].encode() in content


# --- one reply after another, with conversations that note what they are told

Json = Any
TICKET = Ticket("talk", 1, "last", 0, "wire")
USAGE = {"input": 100, "read": 0, "write": 0}
SEES = Calls(TOOL, {"command": "ls"}, "c9")
ENDS = {"anthropic": b"message_stop", "openai-chat": b"[DONE]", "openai-responses": b"response.completed", "gemini": b"finishReason"}  # fmt: skip
all_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
both = pytest.mark.parametrize("streams", [True, False])


@dataclass
class Began:
    """Status and headers that the agent got."""

    status: int
    headers: dict[str, str]


@dataclass
class Told:
    """What the conversations were told. `refusal`: of a recall that is to be refused;
    `calls` None: a reply was recorded.
    """

    ticket: Ticket
    replied: Replied | None
    calls: list[Piece] | None = None
    refusal: str = ""
    shown: str = ""


@dataclass
class Noted:
    """Conversations that answer every recall. `log`: what they are told, between what
    the agent gets.
    """

    log: list[Any]
    fails: bool = False
    breaks: bool = False  # Its answers are of no use.

    async def answer_hidden_calls(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece], refusal: str = ""
    ) -> list[HiddenCallAnswer]:
        self.log.append(Told(ticket, replied, list(calls), refusal))
        if self.fails:
            raise RuntimeError("the journal is gone")
        if self.breaks:
            return [()]  # type: ignore[list-item]
        return [
            HiddenCallAnswer(call.id, call.name, refusal or "it was found", not refusal)
            for call in calls
        ]

    async def record_agent_reply(self, ticket: Ticket, replied: Replied | None, shown: str) -> None:
        self.log.append(Told(ticket, replied, shown=shown))
        if self.fails:
            raise RuntimeError("the journal is gone")


@dataclass
class Relayed:
    """One request and all replies to it."""

    provider: Provider
    protocol: str = "anthropic"
    streams: bool = True
    tools: bool = True
    fails: bool = False
    breaks: bool = False
    more: Mapping[str, Json] = field(default_factory=dict)
    log: list[Any] = field(default_factory=list)
    after: list[int] = field(
        default_factory=list
    )  # How long the log was when the first bytes had been sent.
    behind: Callable[[ParsedRequest, Noted], UnreadRequestRecorder] | None = None
    url: str = ""

    def __post_init__(self) -> None:
        self.agent = Agent(self.protocol, "", self.streams)
        self.agent.say("look around")

    async def run(
        self, *replies: Raw | int | list[Block], cuts: Mapping[int, int] | None = None
    ) -> Relayed:
        """Everything the agent gets is in the log then, also where this raises."""
        self.replies = list(replies)
        self.times: list[float] = []
        self.provider.script = self._reply_to
        self.provider.asked.clear()
        self.provider.cuts = dict(cuts or {})
        self.body = {**self.agent.body(), **self.more}
        content = json.dumps(self.body).encode()
        path, _, query = self.agent.path.partition("?")
        incoming = IncomingRequest(
            "POST", parse_route(path), query, (), {}, content, GatewayRegistration("t")
        )
        request = parse_incoming_request(incoming, BodyParser(), folds=True)
        assert request is not None
        self.request = request
        clients = ProviderHttpClients()
        url = (self.url or self.provider.url) + self.agent.path
        client = clients.get_client_for(GatewayRegistration("t", self.provider.url))
        forwarder = RequestForwarder(incoming, url, client, self._start, self._send)
        room: Any = Noted(self.log, self.fails, self.breaks)
        if self.behind is not None:
            room = self.behind(request, room)
        call_filter = CALL_FILTERS[self.protocol](hold=False)
        relay = ReplyRelay(
            forwarder, room, request, TICKET, request.body.value, self.tools, call_filter
        )
        relay.on_first_bytes = lambda: self.after.append(len(self.log))
        response = await forwarder.send_to_provider(None, reads_reply=self.tools)
        try:
            await relay.relay_until_answered(response)
        finally:
            assert response.is_closed, "else its connection is never used again"
            await clients.aclose()
        return self

    def _reply_to(self, _: Asked) -> Raw | int | list[Block]:
        self.times.append(time.monotonic())
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    async def _start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.log.append(
            Began(status, {name.decode().lower(): value.decode() for name, value in headers})
        )

    async def _send(self, piece: bytes | bytearray) -> None:
        assert piece, "an empty piece ends a reply in chunks"
        self.log.append(bytes(piece))

    @property
    def content(self) -> bytes:
        return b"".join(each for each in self.log if isinstance(each, bytes))

    @property
    def began(self) -> Began:
        (found,) = [each for each in self.log if isinstance(each, Began)]
        return found

    @property
    def told(self) -> list[Told]:
        return [each for each in self.log if isinstance(each, Told)]

    def seen(self) -> Json:
        """The reply as the agent reads it."""
        if not self.streams:
            return json.loads(self.content)
        reading = WIRE_MODULES[self.protocol].ReplyAssembler()
        for raw in RawEventSplitter().feed_raw_chunk(self.content):
            if (event := parse_event_data(raw)) is not None:
                reading.add_reply_event(event)
        assert reading.is_done
        return reading.whole_reply()

    def key_in_next_request(self) -> str:
        """By which the agent's next request is known to go on from this reply."""
        wire = WIRE_MODULES[self.protocol]
        self.agent.units += wire.parse_reply(self.seen()).message.units
        key: str = wire.parse_messages(self.agent.body())[-1].identity_key
        return key


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(lambda _: [], strict=False) as provider:
        yield provider


def whole(protocol: str, blocks: Sequence[Block]) -> bytes:
    return json.dumps(WRITERS[protocol].whole(blocks, USAGE, "1")).encode()


def events(protocol: str, blocks: Sequence[Block]) -> bytes:
    return b"".join(WRITERS[protocol].events(blocks, USAGE, "1"))


def stream(content: bytes, coding: str = "", chunk_bytes: int = 0) -> Raw:
    return Raw(content, coding, media_type="text/event-stream", chunk_bytes=chunk_bytes)


@all_protocols
@pytest.mark.parametrize("tools", [True, False])
async def test_a_reply_streams_and_is_recorded_before_its_end_reaches_the_agent(
    provider: Provider, protocol: str, tools: bool
) -> None:
    blocks: list[Block] = [Thinks("let me see"), Says("I look"), SEES]
    told = events(protocol, blocks)
    got = await Relayed(provider, protocol, tools=tools).run(stream(told))
    assert got.content == told
    assert got.began.status == 200
    assert ("content-length" in got.began.headers) == (not tools), (
        "with recalls its length is not known"
    )
    (recorded,) = got.told
    at = got.log.index(recorded)
    before, behind = (
        b"".join(each for each in part if isinstance(each, bytes))
        for part in (got.log[:at], got.log[at:])
    )
    assert ENDS[protocol] in behind
    assert ENDS[protocol] not in before
    assert before
    replied = recorded.replied
    assert replied is not None
    assert (replied.stop, replied.usage.input, replied.usage.output, replied.raw) == (
        Stop.CALLS,
        100,
        10,
        "",
    )
    assert replied.model in ("claude-test", "gpt-test", "gemini-test")
    assert 0 <= replied.seconds < 60
    assert [piece.name for piece in replied.pieces if piece.kind is PieceKind.CALL] == [TOOL]
    assert recorded.ticket == TICKET
    assert recorded.shown == got.key_in_next_request()


@all_protocols
@pytest.mark.parametrize("tools", [True, False])
async def test_a_reply_that_comes_whole_is_recorded_before_the_agent_gets_it_as_it_came(
    provider: Provider, protocol: str, tools: bool
) -> None:
    content = whole(protocol, [Says("I look"), SEES])
    got = await Relayed(provider, protocol, streams=False, tools=tools).run(Raw(content))
    assert got.content == content
    assert [type(each) for each in got.log] == [Told, Began, bytes]
    assert got.began.headers["content-length"] == str(len(content))
    assert got.told[0].shown == got.key_in_next_request()


@all_protocols
@both
async def test_what_a_reply_recalls_is_asked_of_the_conversations_and_the_model_goes_on(
    provider: Provider, protocol: str, streams: bool
) -> None:
    hidden = replace(RECALL, id="h1")
    got = await Relayed(provider, protocol, streams).run(
        [Says("Let me see. "), hidden], [Says("Done.")]
    )
    _the_call_was_asked_of_the_conversations_and_the_answer_recorded(got)
    _the_model_was_asked_again_with_what_was_recalled(provider, protocol)
    seen = WIRE_MODULES[protocol].parse_reply(got.seen())
    assert "".join(piece.text for piece in seen.message.pieces) == "Let me see. Done."
    assert seen.usage.output == 20
    assert got.began.status == 200
    assert "content-length" not in got.began.headers


def _the_call_was_asked_of_the_conversations_and_the_answer_recorded(got: Relayed) -> None:
    recalled, recorded = got.told
    assert [call.name for call in recalled.calls or ()] == [RECALL.name]
    assert (recalled.ticket, recalled.refusal) == (TICKET, "")
    assert recalled.replied is not None
    assert recorded.replied is not None
    assert RECALL.name in recalled.replied.raw
    assert [piece.text for piece in recorded.replied.pieces] == ["Done."]
    assert "Done." in recorded.replied.raw, "the agent gets this reply in another one"
    assert recorded.calls is None
    assert recorded.shown == got.key_in_next_request()


def _the_model_was_asked_again_with_what_was_recalled(provider: Provider, protocol: str) -> None:
    first, second = [WIRE_MODULES[protocol].parse_messages(asked.body) for asked in provider.asked]
    assert second[: len(first)] == first
    results: list[str] = []
    for message in second[len(first) :]:
        results += [piece.text for piece in message.pieces_of_kind(PieceKind.RESULT)]
    assert results == ["it was found"]
    calls: list[str] = []
    for message in second:
        calls += [piece.name for piece in message.pieces_of_kind(PieceKind.CALL)]
    assert calls == [RECALL.name]


@all_protocols
@both
async def test_a_recall_beside_a_call_of_the_agent_ends_the_reply(
    provider: Provider, protocol: str, streams: bool
) -> None:
    got = await Relayed(provider, protocol, streams).run(
        [Says("both"), replace(RECALL, id="h1"), SEES]
    )
    recalled, recorded = got.told
    assert [call.name for call in recalled.calls or ()] == [RECALL.name]
    assert recorded.replied is None
    assert len(provider.asked) == 1
    assert RECALL.name.encode() not in got.content
    assert recorded.shown == got.key_in_next_request()


@both
async def test_without_tools_of_ours_a_call_of_their_name_is_the_agents(
    provider: Provider, streams: bool
) -> None:
    got = await Relayed(provider, "anthropic", streams, tools=False).run([replace(RECALL, id="h1")])
    assert len(provider.asked) == 1
    assert [told.calls for told in got.told] == [None]
    assert RECALL.name.encode() in got.content


def ids_of_calls(told: Told) -> list[str]:
    assert told.replied is not None
    return [piece.id for piece in told.replied.pieces if piece.kind is PieceKind.CALL]


async def test_calls_of_gemini_are_numbered_as_the_agent_will_number_them(
    provider: Provider,
) -> None:
    got = Relayed(provider, "gemini")
    for number in range(2):
        made = WRITERS["gemini"].whole(
            [Calls(TOOL, {"n": number}), Calls(TOOL, {"n": number})], USAGE, "1"
        )
        got.agent.units += WIRE_MODULES["gemini"].parse_reply(made).message.units
        got.agent.results([("", TOOL, "fine"), ("", TOOL, "fine")])
    await got.run([Says("Let me see."), RECALL, RECALL], [Says("both"), SEES, SEES])
    first, second = got.told
    hidden = ids_of_calls(first)
    assert len(set(hidden)) == 2
    assert [name.partition("-")[0] for name in hidden] == ["hidden", "hidden"]
    assert ids_of_calls(second) == ["call-5", "call-6"]
    assert [call.id for call in first.calls or ()] == hidden
    assert second.shown == got.key_in_next_request()
    two = await Relayed(provider, "gemini").run([RECALL, SEES])
    assert ids_of_calls(two.told[0])[1] == "call-1"


@all_protocols
@both
async def test_a_reply_that_cannot_be_recorded_goes_through_and_its_recalls_are_answered_all_the_same(
    provider: Provider, expect: Expect, protocol: str, streams: bool
) -> None:
    expect("a reply could not be recorded; it went through")
    got = await Relayed(provider, protocol, streams, fails=True).run(
        [replace(RECALL, id="h1")], [Says("fine")]
    )
    results = [
        (piece.text, piece.ok or protocol != "anthropic")
        for message in WIRE_MODULES[protocol].parse_messages(provider.asked[1].body)
        for piece in message.pieces_of_kind(PieceKind.RESULT)
    ]
    assert results == [("[This cannot be recalled now.]", protocol != "anthropic")]
    assert "fine" in "".join(
        piece.text for piece in WIRE_MODULES[protocol].parse_reply(got.seen()).message.pieces
    )


async def test_a_stream_that_this_program_fails_to_read_reaches_the_agent_all_the_same(
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    expect: Expect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_value: Json) -> None:
        raise KeyError("a mistake in the program")

    expect("a reply could not be read; it went through")
    monkeypatch.setattr(WIRE_MODULES["anthropic"], "parse_reply", fail)
    for streams, content in (
        (True, events("anthropic", [SEES])),
        (False, whole("anthropic", [SEES])),
    ):
        got = await Relayed(provider, streams=streams).run(
            stream(content) if streams else Raw(content)
        )
        assert (got.content, got.told) == (content, [])
    assert set(caplog.messages) == {"a reply could not be read; it went through"}


@both
async def test_a_reply_that_cannot_go_on_behind_a_recall_ends_in_an_error_that_agents_ask_again_after(
    provider: Provider, expect: Expect, caplog: pytest.LogCaptureFixture, streams: bool
) -> None:
    expect("a reply could not go on behind a recall")
    got = await Relayed(provider, streams=streams, breaks=True).run([replace(RECALL, id="h1")])
    assert "a reply could not go on behind a recall" in caplog.messages
    assert len(provider.asked) == 1
    assert b"The reply broke off. Nothing was lost; send it again." in got.content
    assert b"overloaded_error" in got.content
    assert got.began.status == (200 if streams else 529)


@both
async def test_so_many_recalls_are_answered_and_so_many_refused_before_the_agent_gets_an_error(
    provider: Provider, expect: Expect, caplog: pytest.LogCaptureFixture, streams: bool
) -> None:
    expect("did nothing but recall")
    got = await Relayed(provider, streams=streams).run([replace(RECALL, id="h1")])
    assert [told.refusal for told in got.told] == [""] * MOST_RECALL_REPLIES + [RECALL_REFUSED] * 5
    assert len(provider.asked) == 17
    assert provider.asked[-1].raw.count(b"Nothing more is recalled") == 4
    assert "a model did nothing but recall; its agent was told to ask again" in caplog.messages
    sentence = "The model did nothing but recall. Nothing was lost; send it again."
    error = {"type": "error", "error": {"type": "overloaded_error", "message": sentence}}
    if streams:
        (raw,) = [
            raw for raw in got.content.split(b"\n\n") if raw.startswith(b"event: error\ndata: ")
        ]
        assert json.loads(raw.partition(b"data: ")[2]) == error
        assert got.content.endswith(b"\n\n")
        assert got.began.status == 200
    else:
        assert (got.began.status, json.loads(got.content)) == (529, error)


REFUSED = b'{"error": {"message": "no",\n "details": [{"retryDelay": "%s"}]}}'


@both
@pytest.mark.parametrize(
    ("status", "delay", "asked"),
    [
        (400, b"0s", 2),
        (400, b"", 2),
        (503, b"0s", 4),
        (529, b"61s", 2),
        (429, b"", 2),
        (599, b"0s", 2),
    ],
)
async def test_a_refusal_behind_a_recall_is_asked_again_as_the_provider_says_and_then_passed_on(
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    streams: bool,
    status: int,
    delay: bytes,
    asked: int,
) -> None:
    monkeypatch.setattr(reply_relay, "RETRY_WAITS_SECONDS", (1_000.0,) * 2 if delay else ())
    monkeypatch.setattr(reply_relay, "LONGEST_HINT_SECONDS", 0.0)  # A wait of none is not too long.
    refusal = REFUSED % delay
    got = await Relayed(provider, streams=streams).run(
        [replace(RECALL, id="h1")], Raw(refusal, status=status)
    )
    assert len(provider.asked) == asked
    assert {one.raw for one in provider.asked[1:]} == {provider.asked[1].raw}
    if streams:
        assert got.content.endswith(
            b"event: error\ndata: " + refusal.replace(b"\n", b" ") + b"\n\n"
        )
    else:
        assert (got.began.status, got.content) == (status, refusal)


@both
async def test_a_provider_that_names_no_time_is_asked_again_after_a_while(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    monkeypatch.setattr(reply_relay, "RETRY_WAITS_SECONDS", (0.0, 0.0))
    got = await Relayed(provider, streams=streams).run(
        [replace(RECALL, id="h1")], 529, 503, [Says("fine")]
    )
    assert len(provider.asked) == 4
    assert WIRE_MODULES["anthropic"].parse_reply(got.seen()).message.pieces[0].text == "fine"


@both
@pytest.mark.parametrize(("delay", "wait"), [(b"0.2s", 0.0), (b"", 0.2)])
async def test_before_it_is_asked_again_a_provider_has_the_time_it_wants(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, streams: bool, delay: bytes, wait: float
) -> None:
    monkeypatch.setattr(reply_relay, "RETRY_WAITS_SECONDS", (wait,))
    refusal = Raw(REFUSED % delay, status=503)
    got = await Relayed(provider, streams=streams).run(
        [replace(RECALL, id="h1")], refusal, [Says("fine")]
    )
    assert got.times[2] - got.times[1] >= 0.2
    got = await Relayed(provider, streams=streams).run(
        [replace(RECALL, id="h1")], [Says("fine")], cuts={2: 1}
    )
    assert got.times[2] - got.times[1] >= wait


async def test_what_a_reply_recalled_that_broke_off_is_not_counted_with_the_next_one(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_relay, "RETRY_WAITS_SECONDS", (0.0,))
    hidden = replace(RECALL, id="h1")
    beginning = sum(
        map(len, itertools.islice(WRITERS["anthropic"].events([hidden], USAGE, "1"), 3))
    )
    got = await Relayed(provider).run([hidden], [hidden], [Says("fine")], cuts={2: beginning})
    assert len(provider.asked) == 3
    assert WIRE_MODULES["anthropic"].parse_reply(got.seen()).message.pieces[0].text == "fine"


@both
async def test_a_reply_behind_a_recall_that_breaks_off_unseen_is_asked_for_so_many_times(
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    streams: bool,
) -> None:
    monkeypatch.setattr(reply_relay, "RETRY_WAITS_SECONDS", (0.0, 0.0))
    cuts = dict.fromkeys(range(2, 9), 1)
    got = Relayed(provider, streams=streams)
    with caplog.at_level("INFO"), pytest.raises(httpx.TransportError):
        await got.run([replace(RECALL, id="h1")], [Says("fine")], cuts=cuts)
    assert len(provider.asked) == 4
    assert b"fi" not in got.content
    assert sum("broke off and is asked for again" in line for line in caplog.messages) == 2
    got = await Relayed(provider, streams=streams).run(
        [replace(RECALL, id="h1")], [Says("fine")], cuts={2: 1, 3: 1}
    )
    assert WIRE_MODULES["anthropic"].parse_reply(got.seen()).message.pieces[0].text == "fine"


async def test_a_reply_behind_a_recall_that_breaks_off_when_the_agent_has_seen_some_of_it_is_not_asked_again(
    provider: Provider,
) -> None:
    got = Relayed(provider)
    with pytest.raises(httpx.TransportError):
        await got.run([replace(RECALL, id="h1")], [Says("one"), Says("two")], cuts={2: 600})
    assert len(provider.asked) == 2
    assert b"one"[:1] in got.content


@pytest.mark.parametrize("model", [True, False])
async def test_what_a_reply_cost_that_broke_off_is_told_once(
    provider: Provider, model: bool
) -> None:
    start = next(WRITERS["anthropic"].events([], USAGE, "1"))
    start = start if model else start.replace(b'"claude-test"', b'""')
    content = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n"
        + start
    )
    got = Relayed(provider)
    await _run_at_server_that_hangs_up(got, content)
    (told,) = got.told
    name = "claude-test" if model else "claude-sonnet-4-5"
    assert (told.replied, told.shown) == (Replied((), name, Stop.CUT, Usage(100, 0, 0, 1)), "")
    assert got.content == start
    nothing = Relayed(provider)
    await _run_at_server_that_hangs_up(nothing, content.removesuffix(start))
    assert nothing.told == []
    ended = Relayed(provider)
    await _run_at_server_that_hangs_up(ended, content + events("anthropic", [Says("fine")]))
    (told,) = ended.told
    assert told.shown


async def _run_at_server_that_hangs_up(got: Relayed, content: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(content)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        got.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(httpx.TransportError):
            await got.run([])


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_without_tools_of_ours_a_compressed_stream_goes_on_as_it_came_and_is_recorded(
    provider: Provider, coding: str
) -> None:
    pack: Callable[[bytes], bytes] = gzip.compress if coding == "gzip" else zstandard.compress
    told = pack(events("anthropic", [Says("fine"), SEES]))
    got = await Relayed(provider, tools=False).run(stream(told, coding, 50))
    assert got.content == told
    assert got.began.headers["content-encoding"] == coding
    assert len(got.told) == 1
    decoded = await Relayed(provider).run(stream(told, coding))
    assert decoded.content == events("anthropic", [Says("fine"), SEES])
    assert not {"content-encoding", "content-length"} & decoded.began.headers.keys()


@pytest.mark.parametrize("tools", [True, False])
async def test_a_stream_without_its_last_event_is_recorded_and_what_is_unfinished_goes_on(
    provider: Provider, tools: bool
) -> None:
    told = events("openai-chat", [Says("fine")]).removesuffix(b"data: [DONE]\n\n") + b"data: {"
    got = await Relayed(provider, "openai-chat", tools=tools).run(stream(told))
    assert got.content == told
    assert (
        [piece.text for piece in got.told[0].replied.pieces] == ["fine"]
        if got.told[0].replied
        else False
    )
    packed = gzip.compress(told)
    got = await Relayed(provider, "openai-chat", tools=tools).run(stream(packed, "gzip"))
    assert got.content == (told if tools else packed)
    assert len(got.told) == 1
    cut = b"".join(list(WRITERS["anthropic"].events([Says("fine")], USAGE, "1"))[:-1])
    got = await Relayed(provider, tools=tools).run(stream(cut))
    assert got.content == cut
    (told_of_cut,) = got.told
    assert told_of_cut.shown == "", "only what it cost is kept"
    assert told_of_cut.replied is not None
    assert told_of_cut.replied.stop is Stop.CUT
    overloaded = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'
    refused = await Relayed(provider, tools=tools).run(stream(overloaded))
    assert refused.told == [], "what was refused costs nothing"
    for coding in ("", "gzip"):
        empty = await Relayed(provider, tools=tools).run(stream(b"", coding))
        assert (empty.began.status, empty.content, empty.told) == (200, b"", [])
        assert empty.began.headers.get("content-encoding", "") == ("" if tools else coding)


@pytest.mark.parametrize("coding", ["gzip", "zstd", "deflate"])
async def test_half_a_compressed_stream_is_no_stream_that_ended(
    provider: Provider, coding: str
) -> None:
    """An agent that gets its events decompressed could not know that they were cut off."""
    says = Says("all is fine. " * 20_000)  # so that several blocks come whole
    *all_but_last, last = list(WRITERS["anthropic"].events([says], USAGE, "1"))
    told = b"".join(all_but_last)
    cut = CODINGS[coding](told)[:-3]
    got = await Relayed(provider, tools=True).run(stream(cut, coding))
    *_, error_event = got.content.split(b"\n\n")[:-1]
    assert error_event.startswith(b"event: error\n")
    assert b"a part is missing" in error_event
    assert [one.replied.stop for one in got.told if one.replied] == [Stop.CUT]
    as_it_came = await Relayed(provider, tools=False).run(stream(cut, coding))
    assert as_it_came.content == cut
    # What only lacks the end of its compression is whole.
    flushed = zstandard.ZstdCompressor().compressobj()
    whole = {
        "gzip": gzip.compress(told + last)[:-8],
        "deflate": zlib.compress(told + last)[:-4],
        "zstd": flushed.compress(told + last) + flushed.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
    }[coding]
    got = await Relayed(provider, tools=True).run(stream(whole, coding))
    assert b"event: error" not in got.content
    assert [one.replied.stop for one in got.told if one.replied] == [Stop.END]


@pytest.mark.parametrize("coding", ["", "gzip"])
@pytest.mark.parametrize("tools", [True, False])
async def test_a_stream_beyond_the_limit_goes_on_unread_or_ends_in_an_error(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tools: bool, coding: str
) -> None:
    monkeypatch.setattr(provider_reply_bodies, "MOST_REPLY_BYTES", 900)
    told = events("anthropic", [Says("a word of it. " * 30), SEES])
    content = gzip.compress(told, 0) if coding else told
    got = await Relayed(provider, tools=tools).run(stream(content, coding, 100))
    assert [one.shown for one in got.told] == [""], "only what it cost is kept"
    if not (tools and coding):
        assert got.content == content
        assert got.began.headers.get("content-encoding", "") == coding
        return
    *_, last = got.content.split(b"\n\n")[:-1]
    assert last.startswith(b"event: error\n")
    error = json.loads(last.partition(b"data: ")[2])
    assert (error["type"], error["error"]["type"]) == ("error", "helix_gateway")
    assert error["error"]["message"].startswith("The provider's reply was ended: ")
    assert error["error"]["message"].endswith(" Send it again.")
    assert told.startswith(got.content.removesuffix(last + b"\n\n"))


async def test_a_whole_reply_goes_on_in_pieces_and_beyond_the_limit_unread(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = whole("anthropic", [Says("a word of it. " * 30)])
    monkeypatch.setattr(provider_reply_bodies, "LARGE_REPLY_BYTES", 100)
    got = await Relayed(provider, streams=False).run(Raw(content))
    assert got.content == content
    assert [len(each) for each in got.log if isinstance(each, bytes)][:-1] == [100] * (
        len(content) // 100
    )
    monkeypatch.setattr(provider_reply_bodies, "MOST_REPLY_BYTES", 300)
    got = await Relayed(provider, streams=False).run(Raw(content, chunk_bytes=50))
    assert (got.content, got.told) == (content, [])
    assert got.began.status == 200


async def test_the_end_of_a_reply_does_not_wait_for_a_request_that_went_on_unread(
    provider: Provider,
) -> None:
    owned, read = concurrency.OwnedTasks("behind"), asyncio.Event()
    ticket = replace(TICKET, conversation="behind")

    def behind(request: ParsedRequest, room: Noted) -> UnreadRequestRecorder:
        async def reading() -> RecordedRequest:
            await read.wait()
            return RecordedRequest(request, ticket, request.body.value)

        return UnreadRequestRecorder(room, owned, owned.spawn_task(reading(), name="read"))  # type: ignore[arg-type]

    got = await Relayed(provider, behind=behind).run([Says("fine")])
    assert b"message_stop" in got.content
    assert got.told == []
    read.set()
    await owned.wait_for_all_tasks()
    (told,) = got.told
    assert (told.ticket, told.shown) == (ticket, got.key_in_next_request())


@both
async def test_a_recall_goes_on_from_all_of_a_request_that_went_on_unread(
    provider: Provider, streams: bool
) -> None:
    owned = concurrency.OwnedTasks("behind")
    ticket = replace(TICKET, conversation="behind")

    def behind(request: ParsedRequest, room: Noted) -> UnreadRequestRecorder:
        async def reading() -> RecordedRequest:
            whole = request.with_all_messages()
            return RecordedRequest(whole, ticket, whole.body.value)

        assert request.body.read_rest
        return UnreadRequestRecorder(room, owned, owned.spawn_task(reading(), name="read"))  # type: ignore[arg-type]

    got = Relayed(provider, streams=streams, behind=behind)
    for number in range(FIRST_VALUES):
        got.agent.units.append({"role": "assistant", "content": f"answer {number}"})
        got.agent.say(f"question {number}")
    await got.run([replace(RECALL, id="h1")], [replace(RECALL, id="h2")], [Says("fine")])
    await owned.wait_for_all_tasks()
    assert [told.ticket for told in got.told] == [ticket] * 3
    first, second, third = [asked.body["messages"] for asked in provider.asked]
    assert (second[: len(first)], third[: len(second)]) == (first, second)
    assert [message["role"] for message in third[len(first) :]] == ["assistant", "user"] * 2
    assert got.told[2].shown == got.key_in_next_request()


@all_protocols
async def test_what_must_not_delay_the_first_bytes_is_done_once_they_are_sent(
    provider: Provider, protocol: str
) -> None:
    got = await Relayed(provider, protocol).run(
        stream(events(protocol, [RECALL])),
        stream(events(protocol, [Says("I look"), SEES])),
    )
    assert len(got.after) == 1, "not again with the reply behind a recall"
    assert got.after[0] <= got.log.index(got.told[-1])
    got = await Relayed(provider, protocol).run(
        stream(events(protocol, [Says("I look"), SEES]), chunk_bytes=40)
    )
    assert got.after == [2], "the status and one piece"
    assert len(got.log) > 3
    got = await Relayed(provider, protocol, streams=False).run(
        Raw(whole(protocol, [Says("I look")]))
    )
    assert got.after == [len(got.log)]
