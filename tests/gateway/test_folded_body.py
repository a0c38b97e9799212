"""Requests with the view's entries in place of their messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from helix_desktop.gateway.folded_body import (
    NO_RESULT,
    PreviousBody,
    are_all_unchanged,
    build_folded_body,
    pair_calls_with_results,
    remember_client_marks,
)
from helix_desktop.gateway.view_entries import As, Changed, Part, Returned, Says
from helix_desktop.protocols.anthropic import anthropic_wire
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
    units: Sequence[Json] = wire.parse_reply(
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
    found = pair_calls_with_results(protocol, body, WIRE_MODULES[protocol].parse_messages(body))
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
    messages = wire.parse_messages(body)
    said = [message for message in messages if message.speaker.value != "system"]
    entries = [As(at) for at in range(len(said))]
    assert are_all_unchanged(entries, len(said))
    assert build_folded_body(protocol, body, messages, entries) == body


@all_protocols
def test_a_result_is_shown_shorter_and_a_fold_stands_for_what_it_covers(protocol: str) -> None:
    body = worked(protocol).body()
    wire: Any = WIRE_MODULES[protocol]
    messages = wire.parse_messages(body)
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
        protocol, body, wire.parse_messages(body), [As(0), As(1), As(2), Returned("x", "recall", "the text"), As(3)]
    )
    assert "the text" in str(shown)


# --- what is kept from one request to the next --------------------------------------------------------------------------

MARK = {"type": "ephemeral"}


def marked(text: str, *, mark: Json = None, role: str = "user") -> Json:
    return {"role": role, "content": [{"type": "text", "text": text, **({"cache_control": mark} if mark else {})}]}


def bare(body: Json) -> Json:
    return [anthropic_wire.without_cache_marks(unit) for unit in body["messages"]]


def places_of_marks(body: Json) -> list[int]:
    return [at for at, unit in enumerate(body["messages"]) if anthropic_wire.last_cache_mark(unit) is not None]


def test_a_request_that_goes_on_is_built_as_one_that_is_built_anew() -> None:
    """Whatever of the last request is used again: also where an entry changed or the end was taken back."""
    system = {"role": "system", "content": "Be brief."}
    units = [system, *(marked(f"word {at}", mark=MARK if at == 5 else None) for at in range(6))]
    kept = PreviousBody()
    wire: Any = WIRE_MODULES["anthropic"]
    said = wire.parse_messages({"messages": units})
    turns: list[tuple[int, list[Any]]] = [
        (3, [As(0), As(1)]),
        (5, [As(0), As(1), As(2), As(3)]),
        (5, [Says("folded"), As(2), As(3)]),
        (7, [Says("folded"), As(2), Changed(3, (Part("said", "", 0, "short"),)), As(4), As(5)]),
        (7, [Says("folded"), As(2), Changed(3, (Part("said", "", 0, "shorter"),)), As(4), As(5)]),
        (4, [Says("folded"), As(2)]),
        (1, []),
        (7, [As(at) for at in range(6)]),
    ]
    for count, entries in turns:
        body = {"messages": units[:count], "model": "m"}
        made = build_folded_body("anthropic", body, said[:count], entries, kept=kept)
        fresh = build_folded_body("anthropic", body, said[:count], entries)
        assert bare(made) == bare(fresh), entries
        assert made["model"] == "m"
    assert len(bare(made)) == 7


def test_marks_of_the_client_are_set_where_the_cache_is_found() -> None:
    units = [marked("one", mark=MARK), marked("two", role="assistant"), marked("three", mark=MARK)]
    kept = PreviousBody()
    wire: Any = WIRE_MODULES["anthropic"]

    def build(*entries: Any) -> Json:
        said = wire.parse_messages({"messages": units})
        return build_folded_body("anthropic", {"messages": units}, said, entries, kept=kept)

    first = build(As(0), As(1), As(2))
    assert places_of_marks(first) == [0, 2]
    units += [marked("four", role="assistant"), marked("five", mark=MARK)]
    assert places_of_marks(build(*map(As, range(5)))) == [0, 2, 4]
    again = build(*map(As, range(5)))
    assert places_of_marks(again) == [0, 4]
    folded = build(Says("sum"), As(3), As(4))
    assert places_of_marks(folded)[-1] == 2
    assert all(anthropic_wire.last_cache_mark(unit) in (None, MARK) for unit in folded["messages"])


def test_a_client_that_sets_no_marks_gets_none_and_another_mark_replaces_the_last() -> None:
    wire: Any = WIRE_MODULES["anthropic"]
    kept = PreviousBody()
    for mark in (None, MARK, {"type": "ephemeral", "ttl": "1h"}):
        units = [marked("one", mark=mark), marked("two", role="assistant"), marked("three", mark=mark)]
        said = wire.parse_messages({"messages": units})
        made = build_folded_body("anthropic", {"messages": units}, said, [As(0), As(1), As(2)], kept=kept)
        found = [anthropic_wire.last_cache_mark(made["messages"][at]) for at in places_of_marks(made)]
        assert found == ([mark, mark] if mark else [])


def test_only_messages_that_may_carry_a_mark_are_searched_for_one() -> None:
    wire: Any = WIRE_MODULES["anthropic"]
    units = [marked("one", mark=MARK), marked("two", role="assistant"), marked("three", mark=MARK)]
    said = wire.parse_messages({"messages": units})
    entries = [As(0), As(1), As(2)]
    made = build_folded_body("anthropic", {"messages": units}, said, entries, marked={0})
    assert places_of_marks(made) == [0, 2]
    none = build_folded_body("anthropic", {"messages": units}, said, entries, marked=set())
    assert none["messages"] == units, "nothing is set where nobody said there is a mark"


def test_marks_in_the_head_leave_fewer_for_messages() -> None:
    wire: Any = WIRE_MODULES["anthropic"]
    units = [marked("one", mark=MARK), marked("two", role="assistant"), marked("three", mark=MARK)]
    said = wire.parse_messages({"messages": units})
    for count in range(5):
        head = [{"type": "text", "text": "x", "cache_control": MARK}] * count
        made = build_folded_body("anthropic", {"messages": units, "system": head}, said, [As(0), As(1), As(2)])
        assert len(places_of_marks(made)) == min(2, 4 - count)


def test_what_is_sent_as_it_came_is_remembered_for_the_next_marks() -> None:
    units = [marked("one", mark=MARK), marked("two", role="assistant"), marked("three", mark=MARK)]
    for marks, places in ((None, (1, 3)), ({0, 1}, (1,)), (set(), ())):
        kept = PreviousBody()
        remember_client_marks("anthropic", units, marks, kept)
        assert kept.marked_request.marks == places
        searched = {0, 1, 2} if marks is None else marks
        expected = [anthropic_wire.without_cache_marks(one) if at in searched else one for at, one in enumerate(units)]
        assert list(kept.marked_request.blocks) == expected
    kept = PreviousBody()
    remember_client_marks("gemini", units, None, kept)
    assert kept.marked_request.blocks == ()


def test_entries_go_on_as_they_came_only_whole_and_in_order() -> None:
    assert are_all_unchanged([], 3)
    assert are_all_unchanged([As(0), As(1)], 2)
    assert not are_all_unchanged([As(0), As(1)], 3)
    assert not are_all_unchanged([As(1), As(0)], 2)
    assert not are_all_unchanged([As(0), Says("x")], 2)


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (Part("result", "c1", 0, "short"), ["short", "other", "words"]),
        (Part("result", "c2", 0, "short"), ["output", "short", "words"]),
        (Part("result", "c3", 0, "short"), ["output", "other", "words"]),
        (Part("call", "c1", 0, "short"), ["output", "other", "words"]),
        (Part("said", "", 0, "short"), ["output", "other", "short"]),
        (Part("said", "", 1, "short"), ["output", "other", "words"]),
        (Part("text", "words", 0, "short"), ["output", "other", "short"]),
    ],
)
def test_a_part_of_a_message_is_found_by_its_call_or_its_place(part: Part, shown: list[str]) -> None:
    wire: Any = WIRE_MODULES["anthropic"]
    results = [
        anthropic_wire.result_message(call, "Bash", text)["content"][0]
        for call, text in (("c1", "output"), ("c2", "other"))
    ]
    units = [{"role": "user", "content": [*results, {"type": "text", "text": "words"}]}]
    said = wire.parse_messages({"messages": units})
    made = build_folded_body("anthropic", {"messages": units}, said, [Changed(0, (part,), ("c1", "c2"))])
    (message,) = wire.parse_messages(made)
    assert [piece.text for piece in message.pieces] == shown
