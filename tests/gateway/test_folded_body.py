"""Requests with the view's entries in place of their messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from helix_desktop.gateway.folded_body import NO_RESULT, are_all_unchanged, build_folded_body, pair_calls_with_results
from helix_desktop.gateway.view_entries import As, Changed, Part, Returned, Says
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES
from tests.gateway.running import PROTOCOLS, Agent
from tests.peers.agent_provider import WRITERS, Asked, Block, Calls, complaint
from tests.peers.agent_provider import Says as Said

Json = Any
all_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


def worked(protocol: str, *, results: int = 1) -> Agent:
    """An agent that called something and has so many results of it."""
    agent = Agent(protocol, "")
    agent.say("look around")
    agent.units += _replied(protocol, [Said("I look"), Calls("Bash", {"command": "ls"}, "call-1")])
    for number in range(results):
        agent.results([("call-1", "Bash", f"output {number}")])
    agent.units += _replied(protocol, [Said("fine")])
    return agent


def _replied(protocol: str, blocks: Sequence[Block]) -> Sequence[Json]:
    wire: Any = WIRE_MODULES[protocol]
    units: Sequence[Json] = wire.answer(
        WRITERS[protocol].whole(blocks, {"input": 1, "read": 0, "write": 0}, "1")
    ).message.units
    return units


def asked(agent: Agent, body: Json) -> Asked:
    return Asked(agent.path, {}, json.dumps(body).encode(), agent.protocol)


@all_protocols
@pytest.mark.parametrize("results", [0, 1, 2])
def test_every_call_gets_one_result(protocol: str, results: int) -> None:
    agent = worked(protocol, results=results)
    body = agent.body()
    found = pair_calls_with_results(protocol, body, WIRE_MODULES[protocol].messages(body))
    if results == 1:
        assert found is None
        return
    assert complaint(asked(agent, body))
    assert found is not None
    assert not complaint(asked(agent, found))
    assert (NO_RESULT in str(found)) == (results == 0)
    assert "output 1" not in str(found)


@all_protocols
def test_messages_no_entry_changes_go_on_as_they_are(protocol: str) -> None:
    body = worked(protocol).body()
    wire: Any = WIRE_MODULES[protocol]
    messages = wire.messages(body)
    said = [message for message in messages if message.speaker.value != "system"]
    entries = [As(at) for at in range(len(said))]
    assert are_all_unchanged(entries, len(said))
    assert build_folded_body(protocol, body, messages, entries) == body


@all_protocols
def test_a_result_is_shown_shorter_and_a_fold_stands_for_what_it_covers(protocol: str) -> None:
    body = worked(protocol).body()
    wire: Any = WIRE_MODULES[protocol]
    messages = wire.messages(body)
    short = Changed(2, (Part("result", messages[-2].pieces[0].id, 0, "short"),), (messages[-2].pieces[0].id,))
    shown = build_folded_body(protocol, body, messages, [As(0), As(1), short, As(3)])
    assert "short" in str(shown)
    assert "output 0" not in str(shown)
    handed_over = build_folded_body(protocol, body, messages, [Says("what was done"), As(3)])
    assert "what was done" in str(handed_over)
    assert "Bash" not in str(handed_over[MESSAGE_FIELDS[protocol]])


@all_protocols
def test_a_hidden_call_stands_where_it_happened(protocol: str) -> None:
    body = worked(protocol).body()
    wire: Any = WIRE_MODULES[protocol]
    shown = build_folded_body(
        protocol, body, wire.messages(body), [As(0), As(1), As(2), Returned("x", "recall", "the text"), As(3)]
    )
    assert "the text" in str(shown)
