"""A second opinion on requests: it agrees with the engine's laws on what is illegal."""

from __future__ import annotations

import pytest

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.engine.messages import Image, Message, MessagePart, Request, Role, ToolResult
from tests import request_legality

HELLO = Message(Role.USER, (Text("hello"),))


def user(*parts: MessagePart) -> Message:
    return Message(Role.USER, parts)


def reply(*parts: MessagePart) -> Message:
    return Message(Role.ASSISTANT, parts)


def call(name: str = "a", arguments: str = "{}") -> ToolCall:
    return ToolCall(name, "read", arguments)


def test_a_legal_request() -> None:
    messages = (
        HELLO,
        reply(Reasoning("hm"), Text("I look"), call(), call("b")),
        user(ToolResult("b", "x"), ToolResult("a", "y"), Text("go on")),
    )
    assert request_legality.find_complaints(Request("", "", messages)) == []
    assert request_legality.find_complaints(Request("", "", (user(Image("image/png", b"")),))) == []


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (reply(Text("hello")),),
        (HELLO, HELLO),
        (HELLO, reply(Text("x")), reply(Text("y")), HELLO),
        (HELLO, reply(Text(" ")), HELLO),
        (HELLO, reply(Reasoning("hm")), HELLO),
        (HELLO, reply(call()), HELLO),
        (HELLO, reply(call()), user(ToolResult("b", "x"))),
        (HELLO, reply(call(), call("b")), user(ToolResult("a", "x"))),
        (HELLO, reply(call(), call()), user(ToolResult("a", "x"), ToolResult("a", "x"))),
        (
            HELLO,
            reply(call()),
            user(ToolResult("a", "x")),
            reply(call()),
            user(ToolResult("a", "x")),
        ),
        (HELLO, reply(call(arguments="[1]")), user(ToolResult("a", "x"))),
        (HELLO, reply(call(arguments="{")), user(ToolResult("a", "x"))),
        (HELLO, reply(call()), user(ToolResult("a", " "))),
        (user(ToolResult("a", "x")),),
    ],
)
def test_what_no_provider_takes(messages: tuple[Message, ...]) -> None:
    request = Request("", "", messages)
    assert request_legality.find_complaints(request)
    assert request_building.find_violations(request)
