"""Requests with the view's entries in place of their messages."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from helix_desktop.engine.prompt_cache_marks import count_equal_first_blocks
from helix_desktop.gateway.folded_request import (
    NO_RESULT,
    PreviousBody,
    are_all_unchanged,
    build_folded_body,
    pair_calls_with_results,
    remember_client_marks,
)
from helix_desktop.gateway.view_entries import (
    ChangedMessage,
    ChangedPart,
    HiddenReply,
    HiddenResult,
    InsertedText,
    UnchangedMessage,
)
from helix_desktop.protocols.anthropic import anthropic_gateway
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
    entries = [UnchangedMessage(at) for at in range(len(said))]
    assert are_all_unchanged(entries, len(said))
    assert build_folded_body(protocol, body, messages, entries) == body


@all_protocols
def test_a_result_is_shown_shorter_and_a_fold_stands_for_what_it_covers(protocol: str) -> None:
    body = worked(protocol).body()
    wire: Any = WIRE_MODULES[protocol]
    messages = wire.parse_messages(body)
    short = ChangedMessage(
        2,
        (ChangedPart("result", messages[-2].pieces[0].id, 0, "short"),),
        (messages[-2].pieces[0].id,),
    )
    shown = build_folded_body(
        protocol,
        body,
        messages,
        [UnchangedMessage(0), UnchangedMessage(1), short, UnchangedMessage(3)],
    )
    assert "short" in str(shown)
    assert "output 0" not in str(shown)
    handed_over = build_folded_body(
        protocol, body, messages, [InsertedText("what was done"), UnchangedMessage(3)]
    )
    assert "what was done" in str(handed_over)
    assert "Bash" not in str(handed_over[MESSAGE_FIELDS[protocol]])


@all_protocols
def test_a_hidden_call_stands_where_it_happened(protocol: str) -> None:
    body = worked(protocol).body()
    wire: Any = WIRE_MODULES[protocol]
    shown = build_folded_body(
        protocol,
        body,
        wire.parse_messages(body),
        [
            UnchangedMessage(0),
            UnchangedMessage(1),
            UnchangedMessage(2),
            HiddenResult("x", "recall", "the text"),
            UnchangedMessage(3),
        ],
    )
    assert "the text" in str(shown)


# --- what is kept from one request to the next

MARK = {"type": "ephemeral"}


def marked(text: str, *, mark: Json = None, role: str = "user") -> Json:
    return {
        "role": role,
        "content": [{"type": "text", "text": text, **({"cache_control": mark} if mark else {})}],
    }


def bare(body: Json) -> Json:
    return [anthropic_gateway.without_cache_marks(unit) for unit in body["messages"]]


def places_of_marks(body: Json) -> list[int]:
    return [
        at
        for at, unit in enumerate(body["messages"])
        if anthropic_gateway.last_cache_mark(unit) is not None
    ]


def test_a_request_that_goes_on_is_built_as_one_that_is_built_anew() -> None:
    """Whatever of the last request is used again: also where an entry changed or the
    end was taken back.
    """
    system = {"role": "system", "content": "Be brief."}
    units = [system, *(marked(f"word {at}", mark=MARK if at == 5 else None) for at in range(6))]
    kept = PreviousBody()
    wire: Any = WIRE_MODULES["anthropic"]
    said = wire.parse_messages({"messages": units})
    turns: list[tuple[int, list[Any]]] = [
        (3, [UnchangedMessage(0), UnchangedMessage(1)]),
        (5, [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2), UnchangedMessage(3)]),
        (5, [InsertedText("folded"), UnchangedMessage(2), UnchangedMessage(3)]),
        (
            7,
            [
                InsertedText("folded"),
                UnchangedMessage(2),
                ChangedMessage(3, (ChangedPart("said", "", 0, "short"),)),
                UnchangedMessage(4),
                UnchangedMessage(5),
            ],
        ),
        (
            7,
            [
                InsertedText("folded"),
                UnchangedMessage(2),
                ChangedMessage(3, (ChangedPart("said", "", 0, "shorter"),)),
                UnchangedMessage(4),
                UnchangedMessage(5),
            ],
        ),
        (4, [InsertedText("folded"), UnchangedMessage(2)]),
        (1, []),
        (7, [UnchangedMessage(at) for at in range(6)]),
    ]
    for count, entries in turns:
        body = {"messages": units[:count], "model": "m"}
        made = build_folded_body("anthropic", body, said[:count], entries, previous=kept)
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
        return build_folded_body("anthropic", {"messages": units}, said, entries, previous=kept)

    first = build(UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2))
    assert places_of_marks(first) == [0, 2]
    units += [marked("four", role="assistant"), marked("five", mark=MARK)]
    assert places_of_marks(build(*map(UnchangedMessage, range(5)))) == [0, 2, 4]
    again = build(*map(UnchangedMessage, range(5)))
    assert places_of_marks(again) == [0, 4]
    folded = build(InsertedText("sum"), UnchangedMessage(3), UnchangedMessage(4))
    assert places_of_marks(folded)[-1] == 2
    assert all(
        anthropic_gateway.last_cache_mark(unit) in (None, MARK) for unit in folded["messages"]
    )


def test_a_client_that_sets_no_marks_gets_none_and_another_mark_replaces_the_last() -> None:
    wire: Any = WIRE_MODULES["anthropic"]
    kept = PreviousBody()
    for mark in (None, MARK, {"type": "ephemeral", "ttl": "1h"}):
        units = [
            marked("one", mark=mark),
            marked("two", role="assistant"),
            marked("three", mark=mark),
        ]
        said = wire.parse_messages({"messages": units})
        made = build_folded_body(
            "anthropic",
            {"messages": units},
            said,
            [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)],
            previous=kept,
        )
        found = [
            anthropic_gateway.last_cache_mark(made["messages"][at]) for at in places_of_marks(made)
        ]
        assert found == ([mark, mark] if mark else [])


def test_only_messages_that_may_carry_a_mark_are_searched_for_one() -> None:
    wire: Any = WIRE_MODULES["anthropic"]
    units = [marked("one", mark=MARK), marked("two", role="assistant"), marked("three", mark=MARK)]
    said = wire.parse_messages({"messages": units})
    entries = [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)]
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
        made = build_folded_body(
            "anthropic",
            {"messages": units, "system": head},
            said,
            [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)],
        )
        assert len(places_of_marks(made)) == min(2, 4 - count)


def test_what_is_sent_as_it_came_is_remembered_for_the_next_marks() -> None:
    units = [marked("one", mark=MARK), marked("two", role="assistant"), marked("three", mark=MARK)]
    for marks, places in ((None, (1, 3)), ({0, 1}, (1,)), (set(), ())):
        kept = PreviousBody()
        remember_client_marks("anthropic", units, marks, kept)
        assert kept.marked_request.marks == places
        searched = {0, 1, 2}
        if marks is not None:
            searched = marks
        expected = []
        for at, unit in enumerate(units):
            if at in searched:
                expected.append(anthropic_gateway.without_cache_marks(unit))
            else:
                expected.append(unit)
        assert list(kept.marked_request.blocks) == expected
    kept = PreviousBody()
    remember_client_marks("gemini", units, None, kept)
    assert kept.marked_request.blocks == ()


def test_entries_go_on_as_they_came_only_whole_and_in_order() -> None:
    assert are_all_unchanged([], 3)
    assert are_all_unchanged([UnchangedMessage(0), UnchangedMessage(1)], 2)
    assert not are_all_unchanged([UnchangedMessage(0), UnchangedMessage(1)], 3)
    assert not are_all_unchanged([UnchangedMessage(1), UnchangedMessage(0)], 2)
    assert not are_all_unchanged([UnchangedMessage(0), InsertedText("x")], 2)


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (ChangedPart("result", "c1", 0, "short"), ["short", "other", "words"]),
        (ChangedPart("result", "c2", 0, "short"), ["output", "short", "words"]),
        (ChangedPart("result", "c3", 0, "short"), ["output", "other", "words"]),
        (ChangedPart("call", "c1", 0, "short"), ["output", "other", "words"]),
        (ChangedPart("said", "", 0, "short"), ["output", "other", "short"]),
        (ChangedPart("said", "", 1, "short"), ["output", "other", "words"]),
        (ChangedPart("text", "words", 0, "short"), ["output", "other", "short"]),
    ],
)
def test_a_part_of_a_message_is_found_by_its_call_or_its_place(
    part: ChangedPart, shown: list[str]
) -> None:
    wire: Any = WIRE_MODULES["anthropic"]
    results = [
        anthropic_gateway.result_message(call, "Bash", text)["content"][0]
        for call, text in (("c1", "output"), ("c2", "other"))
    ]
    units = [{"role": "user", "content": results + [{"type": "text", "text": "words"}]}]
    said = wire.parse_messages({"messages": units})
    made = build_folded_body(
        "anthropic", {"messages": units}, said, [ChangedMessage(0, (part,), ("c1", "c2"))]
    )
    (message,) = wire.parse_messages(made)
    assert [piece.text for piece in message.pieces] == shown


# --- messages that meet because of what was left out, and parts that are used again

# Who speaks at even places of a conversation, and who at odd ones.
ROLES = ("user", "assistant")
MAKERS: dict[str, Any] = {
    "anthropic": marked,
    "gemini": lambda text, role="user": {
        "role": "model" if role == "assistant" else role,
        "parts": [{"text": text}],
    },
}


def built(protocol: str, units: Sequence[Json], entries: Sequence[Any], **more: Any) -> list[Json]:
    field = MESSAGE_FIELDS[protocol]
    wire = WIRE_MODULES[protocol]
    body = {field: list(units)}
    made: list[Json] = build_folded_body(
        protocol, body, wire.parse_messages(body), entries, **more
    )[field]
    return made


@pytest.mark.parametrize("protocol", MAKERS)
def test_messages_of_one_role_become_one_where_what_stood_between_is_gone_and_nowhere_else(
    protocol: str,
) -> None:
    make = MAKERS[protocol]
    a = make("a")
    b = make("b", role="assistant")
    c = make("c")
    d = make("d")
    one = {**a, **{name: a[name] + c[name] for name in ("content", "parts") if name in a}}
    gone = ChangedMessage(1, (ChangedPart("text", "b", 0, None),))
    assert built(
        protocol, [a, b, c], [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)]
    ) == [a, b, c]
    assert built(protocol, [a, b, c], [UnchangedMessage(0), UnchangedMessage(2)]) == [one]
    assert built(protocol, [a, b, c], [UnchangedMessage(0), gone, UnchangedMessage(2)]) == [one]
    assert built(
        protocol, [a, c, d], [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)]
    ) == [a, c, d], "the client's own stay apart"
    assert built(
        protocol,
        [a, b, c, d],
        [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2), UnchangedMessage(3)],
    ) == [a, b, c, d]
    assert built(protocol, [a], [UnchangedMessage(0)]) == [a]
    assert built(
        protocol, [a, b, b], [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)]
    ) == [a, b, b]


@pytest.mark.parametrize("protocol", MAKERS)
def test_whatever_changes_from_one_request_to_the_next_it_is_built_as_if_it_were_the_first(
    protocol: str,
) -> None:
    """Messages that another text has, entries that come, go and change: by chance, the
    same on every run.
    """
    rng = random.Random(4711)
    kept = PreviousBody()
    make = MAKERS[protocol]
    wire = WIRE_MODULES[protocol]
    field = MESSAGE_FIELDS[protocol]
    units: list[Json] = []
    last: list[Json] = []
    before: Sequence[Any] = ()
    for turn in range(150):
        if len(units) > 12:
            del units[rng.randrange(len(units)) :]
        if units and rng.random() < 0.3:
            at = rng.randrange(len(units))
            units[at] = make(f"written anew {turn}", role=ROLES[at % 2])
        for at in range(len(units), len(units) + rng.randrange(3)):
            units.append(make(f"{turn}.{at}", role=ROLES[at % 2]))
        body = {field: list(units)}
        same = count_equal_first_blocks(last, units)
        messages = wire.parse_messages(body, before[:same])
        last = list(units)
        entries: list[Any] = [UnchangedMessage(at) for at in range(len(units))]
        for at in range(len(units)):
            if rng.random() < 0.25:
                text = units[at][{"anthropic": "content", "gemini": "parts"}[protocol]][0]["text"]
                entries[at] = ChangedMessage(
                    at, (ChangedPart("text", text, 0, rng.choice(["short", "shorter", None])),)
                )
        if (first := rng.randrange(len(units) + 1)) > 1 and rng.random() < 0.5:
            entries[:first] = [InsertedText(rng.choice(["sum", "other sum"]))]
        shown = build_folded_body(protocol, body, messages, entries, previous=kept)
        fresh = build_folded_body(protocol, body, wire.parse_messages(body), entries)
        assert shown == fresh, (turn, entries)
        before = messages


def test_what_was_built_before_is_the_same_value_again() -> None:
    units = [marked("a"), marked("b", role="assistant"), marked("c")]
    kept = PreviousBody()
    wire = WIRE_MODULES["anthropic"]
    short = ChangedMessage(1, (ChangedPart("text", "b", 0, "short"),))
    body = {"messages": units}
    said = wire.parse_messages(body)
    first = build_folded_body(
        "anthropic", body, said, [UnchangedMessage(0), short, UnchangedMessage(2)], previous=kept
    )
    more = {"messages": units + [marked("d", role="assistant")]}
    said = list(said) + list(wire.parse_messages({"messages": more["messages"][3:]}))
    second = build_folded_body(
        "anthropic",
        more,
        said,
        [UnchangedMessage(0), short, UnchangedMessage(2), UnchangedMessage(3)],
        previous=kept,
    )
    assert second["messages"][1] is first["messages"][1]
    assert second["messages"][1] == marked("short", role="assistant")
    said[1] = wire.parse_message(marked("b again", role="assistant"))
    third = build_folded_body(
        "anthropic",
        more,
        said,
        [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2), UnchangedMessage(3)],
        previous=kept,
    )
    assert third["messages"][1] == marked("b again", role="assistant")


@pytest.mark.parametrize("inner", range(6))
def test_marks_within_results_leave_fewer_for_messages_also_the_next_time(inner: int) -> None:
    parts = [
        {"type": "text", "text": f"{at}", **({"cache_control": MARK} if at < inner else {})}
        for at in range(6)
    ]
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": parts}],
    }
    call = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "Bash", "input": {}}],
    }
    kept = PreviousBody()
    units = [marked("one", mark=MARK), call, result, marked("two", mark=MARK)]
    for _ in range(2):
        made = built(
            "anthropic", units, [UnchangedMessage(at) for at in range(len(units))], previous=kept
        )
        assert anthropic_gateway.count_cache_marks(made) <= max(4, inner)
        assert (
            min(2, max(0, 4 - inner))
            <= len(places_of_marks({"messages": made}))
            <= max(0, 4 - inner)
        )
        units = units + [marked("on", role="assistant"), marked("three", mark=MARK)]


def test_a_mark_on_the_first_message_alone_is_the_clients_mark() -> None:
    units = [
        {"role": "system", "content": "Be brief."},
        marked("one", mark=MARK),
        marked("two", role="assistant"),
        marked("three"),
    ]
    entries = [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)]
    assert built("anthropic", units, entries, marked={0, 1}) == built("anthropic", units, entries)
    assert places_of_marks({"messages": built("anthropic", units, entries, marked={1})})[-1] == 3


@all_protocols
def test_a_hidden_reply_stands_before_its_results_as_the_provider_wrote_it(protocol: str) -> None:
    body = worked(protocol).body()
    wire = WIRE_MODULES[protocol]
    messages = wire.parse_messages(body)
    units = list(_replied(protocol, [Said("I recall"), Calls("recall", {"x": 1}, "h1")]))
    name = next(
        p.id
        for p in wire.parse_messages({MESSAGE_FIELDS[protocol]: units})[0].pieces
        if p.kind.value == "call"
    )

    def shown(*parts: ChangedPart) -> Json:
        entries: list[Any] = [
            UnchangedMessage(0),
            UnchangedMessage(1),
            UnchangedMessage(2),
            HiddenReply(json.dumps(units), parts),
            HiddenResult(name, "recall", "the text"),
            UnchangedMessage(3),
        ]
        return build_folded_body(protocol, body, messages, entries)

    whole = shown()
    assert not complaint(asked(worked(protocol), whole))
    texts = [piece.text for message in wire.parse_messages(whole) for piece in message.pieces]
    at = texts.index("I recall")
    assert texts[at - 1] == "output 0"
    assert "the text" in texts[at + 1 :]
    assert texts[-1] == "fine"
    short = [
        piece.text
        for message in wire.parse_messages(shown(ChangedPart("text", "I recall", 0, "short")))
        for piece in message.pieces
    ]
    expected = list(texts)
    expected[at] = "short"
    assert short == expected


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


@pytest.mark.parametrize(
    ("content", "part", "shown"),
    [
        ([THOUGHT, "I look"], ChangedPart("text", "I look", 0, None), None),
        ([THOUGHT, "I look", "more"], ChangedPart("text", "I look", 0, None), [THOUGHT, "more"]),
        ([THOUGHT, "I look"], ChangedPart("text", "I look", 0, "short"), [THOUGHT, "short"]),
        ([THOUGHT, "I look", THOUGHT], ChangedPart("reasoning", "", 0, None), ["I look"]),
        (
            ["I look", "I look around"],
            ChangedPart("text", "I  look", 0, "short"),
            ["short", "I look around"],
        ),
        (
            ["He said: I look around.", "other"],
            ChangedPart("text", "I look", 0, "short"),
            ["short", "other"],
        ),
        (
            ["I look", "around", "other"],
            ChangedPart("text", "I look around", 0, "short"),
            ["short", "short", "other"],
        ),
        (["other"], ChangedPart("text", "I look", 0, "short"), ["other"]),
    ],
)
def test_a_text_of_a_reply_is_found_by_its_words_and_a_reply_is_not_reasoning_alone(
    content: list[Any], part: ChangedPart, shown: list[Any] | None
) -> None:
    def reply(parts: list[Any]) -> Json:
        blocks = []
        for block in parts:
            if isinstance(block, str):
                blocks.append({"type": "text", "text": block})
            else:
                blocks.append(block)
        return {"role": "assistant", "content": blocks}

    units = [marked("a"), reply(content), marked("c")]
    made = built(
        "anthropic", units, [UnchangedMessage(0), ChangedMessage(1, (part,)), UnchangedMessage(2)]
    )
    expected = []
    if shown is not None:
        expected = [reply(shown)]
    assert made[1:-1] == expected


def test_a_block_nobody_knows_is_found_by_its_beginning() -> None:
    novelty = {"type": "novelty", "words": "x" * 300}
    units = [
        marked("a"),
        {"role": "assistant", "content": [novelty, {"type": "text", "text": "fine"}]},
        marked("c"),
    ]
    text = json.dumps(novelty, separators=(",", ":"))
    for name, left in ((f"[{text[:200]}]", ["fine"]), ("[something else]", ["novelty", "fine"])):
        made = built(
            "anthropic",
            units,
            [
                UnchangedMessage(0),
                ChangedMessage(1, (ChangedPart("text", name, 0, None),)),
                UnchangedMessage(2),
            ],
        )
        assert [block.get("text", "novelty") for block in made[1]["content"]] == left


def test_what_a_user_says_beside_results_is_counted_without_the_results_that_answer() -> None:
    results = [
        anthropic_gateway.result_message(call, "Bash", call)["content"][0] for call in ("c1", "c2")
    ]
    units = [{"role": "user", "content": results + [{"type": "text", "text": "words"}]}]
    for place, shown in (
        (0, ["c1", "short", "words"]),
        (1, ["c1", "c2", "short"]),
        (2, ["c1", "c2", "words"]),
    ):
        made = built(
            "anthropic",
            units,
            [ChangedMessage(0, (ChangedPart("said", "", place, "short"),), ("c1",))],
        )
        (message,) = WIRE_MODULES["anthropic"].parse_messages({"messages": made})
        assert [piece.text for piece in message.pieces] == shown


def test_a_message_with_its_mark_is_the_same_value_as_long_as_it_is_the_same_message() -> None:
    units = [marked("a"), marked("b", role="assistant"), marked("c", mark=MARK)]
    kept = PreviousBody()
    wire = WIRE_MODULES["anthropic"]
    body = {"messages": units}
    said = wire.parse_messages(body)
    one, other = (
        build_folded_body(
            "anthropic",
            body,
            said,
            [UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)],
            previous=kept,
        )
        for _ in range(2)
    )
    assert places_of_marks(one) == places_of_marks(other)
    assert other["messages"][2] is one["messages"][2]


def test_a_message_that_says_nothing_stays_where_calls_are_paired() -> None:
    call = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "Bash", "input": {}}],
    }
    empty = {"role": "assistant", "content": []}
    body = {"messages": [marked("a"), empty, call, marked("on")]}
    found = pair_calls_with_results(
        "anthropic", body, WIRE_MODULES["anthropic"].parse_messages(body)
    )
    assert found is not None
    assert found["messages"][1] == empty
    assert NO_RESULT in str(found["messages"][3])
