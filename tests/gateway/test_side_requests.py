"""Which requests are beside a conversation, and where their cost goes."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.gateway.conversations_port import Replied, Ticket
from helix_desktop.gateway.incremental_parsing import BodyParser
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.request_parsing import (
    SIDE_REQUEST_BYTES,
    IncomingRequest,
    ParsedRequest,
    parse_incoming_request,
)
from helix_desktop.gateway.request_routes import parse_route
from helix_desktop.gateway.side_requests import (
    MOST_WAITING,
    RequestOrigin,
    SideReplyRecorder,
    SideRequests,
    count_same_words,
    origin_of_request,
)

TOOLS = [{"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}]
REPLIED = Replied((), "m", Stop.END, Usage(1))
TICKET = Ticket("", 0, "", 0, "anthropic")


class Recording:
    """Knows so many messages of every request, and keeps what it is told to record."""

    def __init__(self, known: int = 0) -> None:
        self.known = known
        self.told: list[str] = []
        self.by_session: dict[tuple[str, str], str] = {}

    async def count_known_messages(self, _: object) -> int:
        return self.known

    async def find_conversation_asked_about(self, agent: str, session: str, text: str) -> str:
        return self.by_session.get((agent, session), text)

    async def record_agent_reply(self, ticket: Ticket, replied: object, shown_key: str) -> None:
        assert (replied, shown_key) == (REPLIED, "")
        self.told.append(ticket.conversation)


def request_of(
    *texts: str, agent: str = "", tools: bool = False, first: str = "user", session: str = ""
) -> tuple[ParsedRequest, GatewayRegistration]:
    roles = [first, "user" if first == "assistant" else "assistant"]
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    body = {"model": "m", "messages": messages, "tools": TOOLS if tools else []}
    registration = GatewayRegistration("token", agent=agent)
    headers = {"user-agent": "script/1", "x-session-id": session}
    content = json.dumps(body).encode()
    incoming = IncomingRequest("POST", parse_route("/v1/messages"), "", (), headers, content, registration)  # fmt: skip
    request = parse_incoming_request(incoming, BodyParser(), folds=True)
    assert request is not None
    return request, registration


async def is_side(*texts: str, known: int = 0, **more: Any) -> bool:
    room: Any = Recording(known)
    return await SideRequests().is_side_request(*request_of(*texts, **more), room)


LONG = "x" * SIDE_REQUEST_BYTES


@pytest.mark.parametrize(
    ("agent", "text", "known", "expected"),
    [
        ("", "title", 0, True),
        ("", LONG, 0, False),
        ("aider", "title", 0, False),
        ("aider", LONG, 0, False),
        ("gemini", "title", 0, True),
        ("gemini", "title", 3, True),
        ("gemini", LONG, 0, True),
        ("gemini", LONG, 1, False),
        ("claude", LONG, 0, True),
    ],
)
async def test_a_request_without_tools(agent: str, text: str, known: int, expected: bool) -> None:
    assert await is_side(text, agent=agent, known=known) is expected


async def test_a_request_with_tools_is_a_step_and_a_reply_alone_is_none() -> None:
    for agent in ("", "aider", "gemini"):
        assert not await is_side("title", agent=agent, tools=True)
        assert await is_side("a reply", "go on", agent=agent, first="assistant")
        assert not await is_side("a reply", "go on", agent=agent, first="assistant", tools=True)


async def test_who_has_offered_tools_has_side_requests_from_then_on() -> None:
    room: Any = Recording()
    requests = SideRequests()
    title, registration = request_of("title", agent="my-agent")
    step, _ = request_of("work", agent="my-agent", tools=True)
    other, other_registration = request_of("title", agent="aider")
    assert not await requests.is_side_request(title, registration, room)
    assert not await requests.is_side_request(step, registration, room)
    assert await requests.is_side_request(title, registration, room)
    assert not await requests.is_side_request(other, other_registration, room)


def test_only_an_agent_without_tools_and_session_has_its_run_as_session() -> None:
    def session(**more: Any) -> str:
        requests = SideRequests()
        return requests.name_run_as_session(*request_of("hello", **more)).arrival.session

    named = session(agent="aider")
    assert named.startswith("run ")
    assert "token" not in named
    assert session(agent="aider") == named
    assert session() == ""
    assert session(agent="aider", tools=True) == ""
    assert session(agent="aider", session="own") == "own"
    # It works with tools: what it asks without them is about its conversation.
    assert session(agent="Gemini CLI") == ""


async def test_a_reply_is_recorded_at_once_or_when_its_conversation_sends_again() -> None:
    room: Any = Recording()
    requests = SideRequests()
    mine, other = RequestOrigin("a", "s", room), RequestOrigin("a", "t", room)
    remembered: list[str] = []
    earlier = RequestOrigin("a", "of an earlier gateway", room)
    room.by_session["a", "of an earlier gateway"] = "earlier"
    for conversation, origin in (("known", mine), ("", mine), ("", other), ("", earlier)):
        recorder = SideReplyRecorder(
            partial(str, conversation), origin, requests.waiting, "token", remembered.append
        )
        await recorder.record_agent_reply(TICKET, REPLIED, "key")
    assert (room.told, remembered) == (["known", "earlier"], ["earlier"])
    assert (requests.count_waiting("token"), requests.count_waiting("other")) == (2, 0)
    tasks = OwnedTasks("test")
    requests.record_waiting(mine, "begun", tasks)
    await tasks.wait_for_all_tasks()
    assert room.told == ["known", "earlier", "begun"]
    assert [reply.origin for reply in requests.waiting] == [other]
    assert requests.waiting.maxlen == MOST_WAITING


def test_a_side_request_is_about_what_the_user_said() -> None:
    step, _ = request_of("count the files", "three", "and the folders", tools=True)
    for asked, expected in (
        ("Write a title for: count the files", True),
        ("folders", True),
        ("three", False),
        ("something else", False),
        (" ", False),
    ):
        assert bool(count_same_words(request_of("before", "x", asked)[0], step)) is expected
    assert not count_same_words(request_of("count the files", "x", "another")[0], step)
    room: Any = Recording()
    assert origin_of_request(step, room) == RequestOrigin("script", "", room)
