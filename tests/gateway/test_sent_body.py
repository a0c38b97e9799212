"""The body that goes to the provider: the agent's own, or with folds and the tools of recall."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helix_desktop.gateway import sent_body
from helix_desktop.gateway.conversations_port import Sent
from helix_desktop.gateway.request_handling import UNREAD_TICKET
from helix_desktop.gateway.sent_body import are_messages_unchanged, build_sent_body
from helix_desktop.gateway.view_entries import UnchangedMessage
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS
from tests.gateway.test_request_handling import ANSWER, QUESTION, SHORT, understood

Json = Any


def test_the_tools_of_recall_are_added_with_their_schemas() -> None:
    added = sent_body.list_recall_tools()
    assert {tool.name for tool in added} == set(HIDDEN_TOOLS)
    assert all(json.loads(tool.schema)["type"] == "object" and tool.description for tool in added)
    assert sent_body.list_recall_tools() is added


@pytest.mark.parametrize("has_tools", [False, True])
def test_unchanged_messages_are_sent_as_the_bytes_that_came(has_tools: bool) -> None:
    _, request = understood([QUESTION, ANSWER, QUESTION])
    sent = Sent(
        UNREAD_TICKET,
        (UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)),
        recallable=False,
    )
    assert are_messages_unchanged(request, sent)
    body = build_sent_body(request, sent, has_tools=has_tools, is_unchanged=True)
    assert body.has_tools is has_tools
    if not has_tools:
        assert (body.pieces, body.value) == (None, request.body.value)
        return
    assert body.pieces is not None
    value = json.loads(b"".join(body.pieces))
    assert value["messages"] == [QUESTION, ANSWER, QUESTION]
    assert {tool["name"] for tool in value["tools"]} > HIDDEN_TOOLS


def test_a_fold_stands_for_its_message() -> None:
    _, request = understood([QUESTION, ANSWER, QUESTION])
    sent = Sent(UNREAD_TICKET, (SHORT, UnchangedMessage(1), UnchangedMessage(2)), recallable=True)
    assert not are_messages_unchanged(request, sent)
    body = build_sent_body(request, sent, has_tools=False)
    assert body.pieces is not None
    value = json.loads(b"".join(body.pieces))
    assert value["messages"][1:] == [ANSWER, QUESTION]
    assert value["messages"][0] != QUESTION
