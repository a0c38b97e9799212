"""What is sent to the provider, and again when it refuses. A long history goes on
before it is read, and is recorded behind.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_desktop import concurrency, program_folders
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.agent_additions import is_added_by_agent
from helix_desktop.engine.facts import (
    ModelReplied,
    Recorded,
    Stop,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.gateway import request_handling
from helix_desktop.gateway.conversation_matching import LONG_HISTORY_MESSAGES
from helix_desktop.gateway.conversations_port import Arrival, Replied, Sent, Ticket
from helix_desktop.gateway.folded_request import NO_RESULT
from helix_desktop.gateway.gateway_memory import GatewayMemory
from helix_desktop.gateway.incremental_parsing import FIRST_VALUES, BodyParser
from helix_desktop.gateway.local_conversations import (
    LocalAgentConversations,
    known_messages_from_facts,
)
from helix_desktop.gateway.provider_choice import ProviderHttpClients
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.reply_relay import RecordedRequest, UnreadRequestRecorder
from helix_desktop.gateway.request_forwarding import LARGE_BODY_BYTES, RequestForwarder
from helix_desktop.gateway.request_handling import (
    FEW_CHARACTERS,
    FEW_CHARACTERS_OF_OUTPUTS,
    FEW_MESSAGES,
    UNREAD_TICKET,
    AgentRequestHandler,
)
from helix_desktop.gateway.request_parsing import (
    IncomingRequest,
    ParsedRequest,
    parse_incoming_request,
)
from helix_desktop.gateway.request_routes import parse_route
from helix_desktop.gateway.side_requests import RequestOrigin, SideReplyRecorder
from helix_desktop.gateway.view_entries import ChangedMessage, Entry, InsertedText, UnchangedMessage
from helix_desktop.protocols.gateway_message import Piece, PieceKind
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.workbench.open_questions import NO_NOTES, OpenQuestions
from tests.conftest import Expect
from tests.gateway.running import WIRES, Agent, running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Raw
from tests.peers.agent_provider import Says as Said

UNREAD = ("anthropic", "openai-chat", "openai-responses")
FILLING = "as long as a body must be to be read in a thread " * (
    2 * LARGE_BODY_BYTES // FIRST_VALUES // 50
)


def long_history(protocol: str, url: str, session: str) -> Agent:
    """An agent that comes with more messages than are made before a body goes on."""
    agent = Agent(protocol, url, session=session)
    agent.say(f"the beginning of {session}")
    for number in range(FIRST_VALUES):
        agent.units.extend(_call(protocol, f"call_{session}_{number}"))
        agent.results(
            [(f"call_{session}_{number}", "Bash", f"line {number} of {session} {FILLING}")]
        )
    return agent


def _call(protocol: str, name: str) -> list[Any]:
    if protocol == "anthropic":
        return [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": name, "name": "Bash", "input": {}}],
            }
        ]
    if protocol == "openai-chat":
        call = {"id": name, "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]
    return [{"type": "function_call", "call_id": name, "name": "Bash", "arguments": "{}"}]


class NotedMemory(GatewayMemory):
    """Passes on what was sent in which conversation, instead of remembering it."""

    def __init__(self, note: Callable[[str, dict[str, Json]], object]) -> None:
        super().__init__()
        self.note = note
        self.recording_behind = {}

    def remember_sent_request(
        self, _sending: object, _room: object, conversation: str, _: object, body: dict[str, Json]
    ) -> None:
        self.note(conversation, body)


class HeldReading:
    """Long bodies are read only when `go_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        real = BodyParser.parse_body

        def parse_body(parser: BodyParser, *body: Any, may_go_on_unread: bool = False) -> Any:
            if not may_go_on_unread:
                self.go_on.wait(100)
            return real(parser, *body, may_go_on_unread=may_go_on_unread)

        monkeypatch.setattr(BodyParser, "parse_body", parse_body)


def facts_of_conversations(home: Path) -> list[Sequence[Recorded]]:
    async def read() -> list[Sequence[Recorded]]:
        where = program_folders.find_program_folders(home)
        known = AllWorkspaces(where.workspaces_folder)
        usual = await asyncio.to_thread(known.find_known_workspace, "Connected agents")
        workspace = await known.open_stored_workspace(usual.id)
        try:
            rows = await workspace.journal.list_conversations()
            return [await workspace.journal.read_facts(row.id) for row in rows]
        finally:
            await workspace.aclose()

    return asyncio.run(read())


def recorded_conversations(home: Path) -> list[tuple[int, list[str]]]:
    """Of each conversation how many messages it has, and its calls, results and replies
    in their order.
    """
    found = []
    for recorded in facts_of_conversations(home):
        said = [word for each in recorded for word in _words_of_fact(each.fact)]
        found.append((len(known_messages_from_facts("", recorded).chain), said))
    return found


def _words_of_fact(fact: object) -> Sequence[str]:
    if isinstance(fact, ToolReturned):
        return [f"result of {fact.call}"]
    if isinstance(fact, ModelReplied):
        return [
            p.id if isinstance(p, ToolCall) else p.text
            for p in fact.parts
            if isinstance(p, ToolCall | Text)
        ]
    return []


@pytest.mark.parametrize("protocol", UNREAD)
def test_a_long_history_is_answered_before_it_is_read_and_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    reading = HeldReading(monkeypatch)
    answers = iter(("first answer", "second answer"))
    with (
        Provider(lambda _: [Said(next(answers))]) as provider,
        running(tmp_path, provider.url) as url,
    ):
        agent = long_history(protocol, url, "s")
        sent = []
        for _ in range(2):  # The second request comes before the first one is read.
            sent.append(list(agent.units))
            agent.ask()
            agent.say("go on")
        assert not reading.go_on.is_set()
        reading.go_on.set()
    for asked, units in zip(provider.asked, sent, strict=True):
        field = "input" if protocol == "openai-responses" else "messages"
        assert asked.body[field][-len(units) :] == units
    [(count, said)] = recorded_conversations(tmp_path)
    results = [word for word in said if word.startswith("result ")]
    assert results == [f"result of call_s_{number}" for number in range(FIRST_VALUES)]
    assert count == 2 * FIRST_VALUES + 4
    assert [word for word in said if word.endswith("answer")] == ["first answer", "second answer"]


def test_a_recall_in_the_first_reply_to_a_long_history_is_answered(tmp_path: Path) -> None:
    asked_before: list[Asked] = []

    def script(asked: Asked) -> list[Block]:
        asked_before.append(asked)
        if len(asked_before) == 1:
            return [Calls("search_cached_content", {"query": "nothing"})]
        return [Said("that is all")]

    with Provider(script) as provider, running(tmp_path, provider.url) as url:
        agent = long_history("anthropic", url, "s")
        assert agent.ask() == []
        assert agent.units[-1]["content"] == [{"type": "text", "text": "that is all"}]
        assert agent.seen == []
    first, second = (asked.body["messages"] for asked in asked_before)
    assert second[: len(first)] == first
    assert len(second) == len(first) + 2


def test_a_long_history_that_names_its_tools_among_its_items_goes_on_whole(tmp_path: Path) -> None:
    with (
        Provider(lambda _: [Said("an answer")]) as provider,
        running(tmp_path, provider.url) as url,
    ):
        agent = long_history("openai-responses", url, "s")
        tools = [
            {"type": "function", "name": "Bash", "parameters": {"type": "object", "properties": {}}}
        ]
        agent.units.insert(0, {"type": "additional_tools", "role": "developer", "tools": tools})
        body = {name: value for name, value in agent.body().items() if name != "tools"}
        headers = {"x-api-key": "k", "x-claude-code-session-id": "s"}
        assert (
            httpx.post(url + agent.path, json=body, headers=headers, timeout=60).status_code == 200
        )
    given = provider.asked[0].body["input"]
    assert len(given[0].pop("tools")) > len(tools)
    assert given[1:] == agent.units[1:]


def test_instructions_far_behind_the_beginning_of_a_long_history_are_recorded(
    tmp_path: Path,
) -> None:
    with (
        Provider(lambda _: [Said("an answer")]) as provider,
        running(tmp_path, provider.url) as url,
    ):
        agent = long_history("openai-chat", url, "s")
        agent.units.append({"role": "system", "content": "Keep to the plan."})
        agent.say("go on")
        agent.ask()
    (recorded,) = facts_of_conversations(tmp_path)
    systems = [each.fact.text for each in recorded if isinstance(each.fact, SystemSet)]
    assert "Keep to the plan." in systems[-1]


def test_a_system_message_within_a_conversation_is_the_agents_and_not_its_users(
    tmp_path: Path,
) -> None:
    """Claude Code sends its reminders as such messages, and they were shown as the user's words."""
    with (
        Provider(lambda _: [Said("an answer")]) as provider,
        running(tmp_path, provider.url) as url,
    ):
        agent = Agent("anthropic", url, session="s")
        agent.say("go on")
        agent.units.append(
            {"role": "system", "content": "The task tools haven't been used recently."}
        )
        agent.ask()
        agent.say("and on")
        agent.ask()
    (recorded,) = facts_of_conversations(tmp_path)
    said = [each.fact.parts for each in recorded if isinstance(each.fact, UserSaid)]
    assert [is_added_by_agent(parts) for parts in said] == [False, True, False]
    assert agent.units[1] in provider.asked[-1].body["messages"]


@pytest.mark.parametrize("status", [422, 429])
def test_a_long_history_that_is_refused_changed_is_asked_as_it_came(
    tmp_path: Path, status: int, expect: Expect
) -> None:
    if status == 422:
        expect("the provider refused a changed request with 422")

    def script(asked: Asked) -> list[Block] | int:
        return status if len(asked.body["tools"]) > 1 else [Said("as it came")]

    with Provider(script) as provider, running(tmp_path, provider.url) as url:
        agent = long_history("anthropic", url, "s")
        if status == 422:
            agent.ask()
            assert [len(asked.body["tools"]) > 1 for asked in provider.asked] == [True, False]
        else:
            with pytest.raises(AssertionError, match="429"):
                agent.ask()
    assert [count for count, _ in recorded_conversations(tmp_path)] == [
        2 * FIRST_VALUES + 1 + (status == 422)
    ]


class HeldRecording:
    """Requests are recorded only when `go_on` is set. `begun`: one would be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.begun = threading.Event()
        real = LocalAgentConversations.receive_request

        async def receive_request(
            room: LocalAgentConversations, *request: Any, **options: Any
        ) -> Sent:
            self.begun.set()
            await asyncio.to_thread(self.go_on.wait, 100)
            return await real(room, *request, **options)

        monkeypatch.setattr(LocalAgentConversations, "receive_request", receive_request)


@contextmanager
def first_reply(url: str, protocol: str = "anthropic") -> Iterator[httpx.Response]:
    """The reply to the first request of the session "s", as it comes."""
    agent = Agent(protocol, url)
    agent.say("look around")
    headers = {"x-api-key": "k", "x-claude-code-session-id": "s"}
    with httpx.stream(
        "POST", url + agent.path, json=agent.body(), headers=headers, timeout=60
    ) as reply:
        yield reply


@pytest.mark.parametrize("protocol", WIRES)
def test_the_first_request_of_a_session_is_answered_before_it_is_recorded_and_its_reply_ends_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    recording = HeldRecording(monkeypatch)
    with (
        Provider(lambda _: [Said("fine")]) as provider,
        running(tmp_path, provider.url) as url,
        first_reply(url, protocol) as reply,
        concurrency.create_thread_pool("rest", threads=1) as rest,
    ):
        pieces = reply.iter_raw(1)
        assert next(pieces)
        assert recording.begun.wait(60)
        ending = rest.submit(b"".join, pieces)
        with pytest.raises(TimeoutError):  # Whoever has the whole reply finds it in the journal.
            ending.result(0.5)
        recording.go_on.set()
        assert ending.result(60)
    assert recorded_conversations(tmp_path) == [(2, ["fine"])]


def test_a_history_whose_beginning_is_known_is_read_first(tmp_path: Path) -> None:
    with Provider(lambda _: [Said("an answer")]) as provider:
        with running(tmp_path, provider.url) as url:
            short = Agent("anthropic", url, session="s")
            short.say("the beginning of s")
            short.ask()
        with running(tmp_path, provider.url) as url:
            agent = long_history("anthropic", url, "s")
            agent.units[:0] = short.units
            agent.ask()
    assert [count for count, _ in recorded_conversations(tmp_path)] == [len(agent.units)]


def test_wires_that_number_their_calls_are_read_first() -> None:
    assert set(WIRES) - set(UNREAD) == {"gemini"}


# --- What is sent, by the bodies a provider on loopback was sent

Json = Any
Exchanged = Callable[..., Awaitable[Any]]
TOOLS = [{"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}]
QUESTION = {"role": "user", "content": "look around"}
CALL = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}],
}
ANSWER = {"role": "assistant", "content": "here it is"}
MARKED = {
    "role": "user",
    "content": [{"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}}],
}
SHORT = InsertedText("what was done so far")
FINE = [Said("fine")]


def result_of(call: Json, text: str) -> Json:
    block = {"type": "tool_result", "tool_use_id": call["content"][0]["id"], "content": text}
    return {"role": "user", "content": [block]}


def refused(status: int, why: str = "no") -> Raw:
    return Raw(json.dumps({"error": {"message": why}}).encode(), status=status)


def too_long(status: int = 400, words: bytes = b"too long") -> Raw:
    return refused(status, f"It is {words.decode().upper()}.")


@dataclass
class Room:
    """Conversations that answer as they are told. `told`: what they were asked for."""

    entries: tuple[Entry, ...] = ()
    shorter: tuple[Entry, ...] | None = None
    known: int = 1
    fails: bool = False
    taken_out: tuple[ChangedMessage, ...] = ()
    told: list[str] = field(default_factory=list)
    counted: int = 0
    questions: OpenQuestions = NO_NOTES

    async def count_known_messages(self, _arrival: Arrival) -> int:
        self.counted += 1
        return self.known

    async def receive_request(self, arrival: Arrival, _messages: Sequence[object]) -> Sent:
        self.told.append("receive")
        if self.fails:
            raise RuntimeError("the journal is gone")
        ticket = Ticket("talk", len(arrival.chain), arrival.chain[-1], 0, arrival.wire)
        return Sent(ticket, self.entries, recallable=False, taken_out=self.taken_out)

    async def fold_after_overflow(self, ticket: Ticket, window: int = 0) -> Sent | None:
        self.told.append(f"fold for {window}" if window else "fold")
        return None if self.shorter is None else Sent(ticket, self.shorter, recallable=False)

    async def answer_hidden_calls(
        self, ticket: Ticket, *_reply: object
    ) -> list[tuple[str, str, str, bool]]:
        self.told.append(f"calls in {ticket.conversation}")
        return []

    async def record_agent_reply(
        self, ticket: Ticket, replied: Replied | None, _shown: str
    ) -> None:
        self.told.append(
            f"reply in {ticket.conversation}: {replied.pieces[0].text if replied else None}"
        )


@dataclass
class Outcome:
    """What one exchange came to. `seen`: status and body of what the agent got."""

    request: ParsedRequest
    content: bytes
    asked: list[Asked] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    sent: list[tuple[str, dict[str, Json]]] = field(default_factory=list)

    def kinds(self) -> list[str]:
        """Of each body the provider was sent, how it differs from the agent's own."""
        return [_kind_of_body(asked, self.content) for asked in self.asked]


def _kind_of_body(asked: Asked, own: bytes) -> str:
    if asked.raw == own:
        return "own"
    said = [word for word, here in (("tools", len(asked.body["tools"]) > 1), ("short", SHORT.text in str(asked.body)), ("mended", NO_RESULT in str(asked.body))) if here]  # fmt: skip
    return " ".join(said) or "other"


def understood(
    messages: Sequence[Json],
    *,
    folds: bool = True,
    session: str = "",
    tools: Sequence[Json] = TOOLS,
) -> tuple[IncomingRequest, ParsedRequest]:
    content = json.dumps(
        {"model": "m", "max_tokens": 9, "tools": tools, "messages": messages}
    ).encode()
    headers = {"x-claude-code-session-id": session} if session else {}
    incoming = IncomingRequest(
        "POST", parse_route("/v1/messages"), "", (), headers, content, GatewayRegistration("t")
    )
    request = parse_incoming_request(incoming, BodyParser(), folds=folds)
    assert request is not None
    return incoming, request


LEFT: list[Raw | list[Said]] = []


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """It replies what is left, one reply after another."""
    with Provider(lambda _: LEFT.pop(0), strict=False) as provider:
        yield provider


@pytest.fixture
def exchanged(provider: Provider) -> Exchanged:
    """One exchange with a provider that replies so."""

    async def exchange_once(
        replies: Sequence[Raw | list[Said]],
        room: Room,
        messages: Sequence[Json] = (QUESTION,),
        *,
        folds: bool = True,
        refused_conversations: set[str] | None = None,
        session: str = "",
    ) -> Outcome:
        LEFT[:] = replies
        provider.asked.clear()
        incoming, request = understood(messages, folds=folds, session=session)
        known: Any = room
        outcome = Outcome(request, bytes(incoming.content))

        async def start(status: int, _headers: object) -> None:
            outcome.seen.extend((status, b""))

        async def send(piece: bytes | bytearray) -> None:
            outcome.seen[1] += piece

        clients = ProviderHttpClients()
        client = clients.get_client_for(GatewayRegistration("t", provider.url))
        memory = NotedMemory(lambda conversation, body: outcome.sent.append((conversation, body)))
        if refused_conversations is not None:
            memory.refused_conversations = refused_conversations
        handler = AgentRequestHandler(
            RequestForwarder(incoming, provider.url + "/v1/messages", client, start, send),
            memory,
        )
        await handler.handle_step(request, known)
        for name, tasks in memory.recording_behind.items():
            outcome.behind.append(name)
            await tasks.wait_for_all_tasks()
        await clients.aclose()
        assert LEFT == [], "every reply was asked for"
        outcome.asked.extend(provider.asked)
        return outcome

    return exchange_once


@pytest.mark.parametrize(
    ("folds", "entries", "kinds"),
    [
        (True, (), ["tools"]),
        (True, (UnchangedMessage(0),), ["tools"]),
        (True, (SHORT,), ["tools short"]),
        (False, (), ["own"]),
        (False, (UnchangedMessage(0),), ["own"]),
        (False, (SHORT,), ["short"]),
    ],
)
async def test_what_is_sent_is_what_was_folded_with_the_tools_of_recall(
    exchanged: Exchanged, folds: bool, entries: tuple[Entry, ...], kinds: list[str]
) -> None:
    room = Room(entries)
    outcome = await exchanged([FINE], room, folds=folds)
    assert outcome.kinds() == kinds
    assert outcome.seen[0] == 200
    assert json.loads(outcome.seen[1])["content"] == [{"type": "text", "text": "fine"}]
    assert outcome.sent == [("talk", outcome.asked[0].body)]
    assert room.told == ["receive", "reply in talk: fine"]


@pytest.mark.parametrize(
    ("entries", "threads"),
    [((), 0), ((UnchangedMessage(0), UnchangedMessage(1)), 0), ((SHORT, UnchangedMessage(1)), 1)],
)
async def test_a_large_request_whose_messages_go_on_as_they_came_waits_for_no_thread(
    exchanged: Exchanged, entries: tuple[Entry, ...], threads: int
) -> None:
    pool = concurrency.create_thread_pool("work", threads=1)
    asyncio.get_running_loop().set_default_executor(pool)
    large = {"role": "user", "content": "x" * (LARGE_BODY_BYTES + 1)}
    outcome = await exchanged([FINE], Room(entries), (QUESTION, large))
    assert len(pool._threads) == threads
    assert outcome.sent == [("talk", outcome.asked[0].body)]


async def test_a_reply_goes_on_if_its_request_cannot_be_remembered(
    provider: Provider, expect: Expect
) -> None:
    expect("a request could not be remembered; its reply goes on")
    LEFT[:] = [FINE]
    incoming, request = understood((QUESTION,))
    seen: list[bytes] = []

    async def start(_status: int, _headers: object) -> None: ...

    async def send(piece: bytes | bytearray) -> None:
        seen.append(bytes(piece))

    def fail(*_: object) -> None:
        raise RuntimeError("its workspace is gone")

    clients = ProviderHttpClients()
    room = Room()
    client = clients.get_client_for(GatewayRegistration("t", provider.url))
    forwarder = RequestForwarder(incoming, provider.url + "/v1/messages", client, start, send)
    known: Any = room
    await AgentRequestHandler(forwarder, NotedMemory(fail)).handle_step(request, known)
    await clients.aclose()
    assert b"fine" in b"".join(seen)
    assert room.told == ["receive", "reply in talk: fine"]


async def test_what_fails_goes_on_as_it_came(
    exchanged: Exchanged, expect: Expect, caplog: pytest.LogCaptureFixture
) -> None:
    expect("a request could not be recorded; it goes on unfolded, without what was taken out")
    expect("a request could not be folded; it goes on unfolded, without what was taken out")
    for room in (Room(fails=True), Room((UnchangedMessage(7),))):
        outcome = await exchanged([FINE], room)
        assert outcome.kinds() == ["own"]
        assert outcome.seen[0] == 200
        assert b"fine" in outcome.seen[1]
        assert (outcome.sent, room.told) == ([], ["receive"])
    assert caplog.messages == [
        f"a request could not be {what}; it goes on unfolded, without what was taken out"
        for what in ("recorded", "folded")
    ]


@pytest.mark.parametrize("folds", [True, False])
async def test_the_marks_of_what_goes_on_unchanged_are_remembered_where_it_may_be_folded(
    exchanged: Exchanged, folds: bool
) -> None:
    outcome = await exchanged([FINE], Room(), (QUESTION, MARKED), folds=folds)
    assert outcome.request.body.previous.marked_request.marks == ((2,) if folds else ())


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize("more", [0, 1])
async def test_a_long_history_goes_on_unread_if_none_of_it_is_known(known: int, more: int) -> None:
    _, request = understood([QUESTION, CALL] * FIRST_VALUES)
    made = request.body.messages * 2
    body = replace(request.body, messages=made[: LONG_HISTORY_MESSAGES + 1 + more])
    assert len(body.messages) == LONG_HISTORY_MESSAGES + 1 + more
    room: Any = Room(known=known)
    assert await request_handling._may_go_on_unread(replace(request, body=body), room) is (
        more == 1 and known == 0
    )
    assert room.counted == more
    assert not await request_handling._may_go_on_unread(
        replace(request, body=replace(body, read_rest=None)), room
    )
    assert room.counted == more


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize(
    ("messages", "may"),
    [
        ([QUESTION], True),
        ([QUESTION] * FEW_MESSAGES, True),
        ([QUESTION] * (FEW_MESSAGES + 1), False),
        ([{"role": "user", "content": "x" * FEW_CHARACTERS}], True),
        ([{"role": "user", "content": "x" * FEW_CHARACTERS}, QUESTION], False),
        ([QUESTION, CALL, result_of(CALL, "x" * FEW_CHARACTERS_OF_OUTPUTS)], True),
        ([QUESTION, CALL, result_of(CALL, "x" * (FEW_CHARACTERS_OF_OUTPUTS + 1))], False),
    ],
)
async def test_a_short_request_goes_on_unread_if_none_of_it_is_known(
    messages: Sequence[Json], may: bool, known: int
) -> None:
    _, request = understood(messages)
    room: Any = Room(known=known)
    assert await request_handling._may_go_on_unread(request, room) is (may and known == 0)
    assert room.counted == may


async def test_a_short_request_in_a_large_body_is_read_first() -> None:
    tools = [{**TOOLS[0], "description": "x" * LARGE_BODY_BYTES}]
    _, request = understood([QUESTION], tools=tools)
    room: Any = Room(known=0)
    assert not await request_handling._may_go_on_unread(request, room)


@pytest.mark.parametrize("session", ["s", ""])
async def test_a_long_history_is_recorded_behind_under_the_name_of_its_session(
    exchanged: Exchanged, monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    monkeypatch.setattr(request_handling, "SENDING_SECONDS", 0.0)
    room = Room(known=0)
    outcome = await exchanged([FINE], room, (QUESTION, ANSWER) * FIRST_VALUES, session=session)
    assert outcome.behind == [session or outcome.request.arrival.chain[0]]
    assert (outcome.kinds(), outcome.seen[0]) == (["tools"], 200)
    assert room.told == ["receive", "reply in talk: fine"]
    assert [(name, len(body["messages"])) for name, body in outcome.sent] == [
        ("talk", 2 * FIRST_VALUES)
    ]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_what_went_on_unread_is_read_after_it_was_sent_and_after_the_request_before(
    monkeypatch: pytest.MonkeyPatch, expect: Expect, fails: bool, waits: bool
) -> None:
    if fails:
        expect("a request could not be recorded; it goes on unfolded, without what was taken out")
    monkeypatch.setattr(request_handling, "SENDING_SECONDS", 0.0)
    incoming, request = understood([QUESTION])
    room: Any = Room(fails=fails)
    sending: Any = RequestForwarder(incoming, "", None, None, None)  # type: ignore[arg-type]
    exchange = AgentRequestHandler(
        sending, NotedMemory(lambda conversation, _body: room.told.append(f"sent {conversation}"))
    )

    async def say(words: str, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        room.told.append(words)

    before = OwnedTasks("before")
    now = OwnedTasks("now")
    reading = now.spawn_task(
        exchange._record_after_forwarding(request, room, before if waits else None), name="read"
    )
    now.spawn_task(say("sending", 0), name="send")
    if waits:
        before.spawn_task(say("the request before", 20), name="before")
    recorded = await reading
    assert recorded.request.body.places.content == request.body.places.content
    assert recorded.body["messages"] == recorded.request.body.value["messages"], "what went on"
    assert (recorded.ticket == UNREAD_TICKET) is fails
    expected = ["sending"]
    if waits:
        expected.append("the request before")
    expected.append("receive")
    if not fails:
        expected.append("sent talk")
    assert room.told == expected
    await before.aclose()
    await now.aclose()


@pytest.mark.parametrize("hides_call", [True, False])
async def test_what_went_on_unread_is_recorded_even_if_its_agent_hangs_up_meanwhile(
    hides_call: bool,
) -> None:
    _, request = understood([QUESTION])
    room: Any = Room()
    tasks = OwnedTasks("unread")
    exchange = OwnedTasks("exchange")
    is_read = asyncio.Event()

    async def read() -> RecordedRequest:
        await is_read.wait()
        room.told.append("read")
        return RecordedRequest(request, Ticket("talk", 1, "", 0, "anthropic"), {})

    recorder = UnreadRequestRecorder(
        room, tasks, tasks.spawn_task(read(), name="read"), is_short=True
    )
    replied = Replied((Piece(PieceKind.TEXT, "fine"),), "m", Stop.END, Usage())
    answering = recorder.answer_hidden_calls(UNREAD_TICKET, replied, ())
    recording = recorder.record_agent_reply(UNREAD_TICKET, replied, "")
    waiting = exchange.spawn_task(answering if hides_call else recording, name="reply")
    (recording if hides_call else answering).close()
    await asyncio.sleep(0)
    assert await exchange.aclose() == ()
    assert waiting.cancelled()
    is_read.set()
    await tasks.wait_for_all_tasks()
    expected = ["read"]
    if not hides_call:
        expected.append("reply in talk: fine")
    assert room.told == expected


# --- Requests beside a conversation, and those of which something was taken out


@dataclass
class _OneExchange:
    """A handler of one request in front of a provider. `seen`: status and body of what
    the agent got.
    """

    handler: AgentRequestHandler
    request: ParsedRequest
    seen: list[Any]


@asynccontextmanager
async def one_exchange(
    provider: Provider, replies: Sequence[Raw | list[Said]], *messages: Json
) -> AsyncIterator[_OneExchange]:
    LEFT[:] = replies
    provider.asked.clear()
    incoming, request = understood(messages)
    clients = ProviderHttpClients()
    seen: list[Any] = []

    async def start(status: int, _headers: object) -> None:
        seen.extend((status, b""))

    async def send(piece: bytes | bytearray) -> None:
        seen[1] += piece

    client = clients.get_client_for(GatewayRegistration("t", provider.url))
    sending = RequestForwarder(incoming, provider.url + "/v1/messages", client, start, send)
    try:
        yield _OneExchange(AgentRequestHandler(sending), request, seen)
    finally:
        await clients.aclose()
    assert LEFT == [], "every reply was asked for"


async def test_a_request_beside_a_conversation_goes_on_as_it_came_and_its_reply_is_recorded_there(
    provider: Provider,
) -> None:
    room: Any = Room()
    async with one_exchange(provider, [FINE], QUESTION) as exchange:
        recorder = SideReplyRecorder(
            lambda: "beside", RequestOrigin("", "", room), deque(), "", str
        )
        await exchange.handler.forward_side_request(exchange.request, recorder)
    assert [asked.raw for asked in provider.asked] == [bytes(exchange.request.body.places.content)]
    assert (exchange.seen[0], b"fine" in exchange.seen[1]) == (200, True)
    assert room.told == ["reply in beside: fine"]


@pytest.mark.parametrize("status", [400, 529])
async def test_a_request_beside_a_conversation_that_is_refused_is_not_asked_again(
    provider: Provider, status: int
) -> None:
    room: Any = Room()
    refusal = refused(status, "too long")
    async with one_exchange(provider, [refusal], QUESTION) as exchange:
        recorder = SideReplyRecorder(
            lambda: "beside", RequestOrigin("", "", room), deque(), "", str
        )
        await exchange.handler.forward_side_request(exchange.request, recorder)
    assert exchange.seen == [status, refusal.content]
    assert room.told == []
