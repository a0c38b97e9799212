from __future__ import annotations

import itertools

import pytest

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.engine.messages import CallDelta, ReasoningDelta, TextDelta
from helix_desktop.protocols import reply_draft
from helix_desktop.protocols.reply_draft import ReplyDraft


def draft() -> ReplyDraft:
    numbers = itertools.count(1)
    return ReplyDraft("tag", lambda: f"new{next(numbers)}")


def test_parts_stand_in_the_order_they_began_in() -> None:
    made = draft()
    assert made.add_reasoning("r", "hm") == [ReasoningDelta("hm")]
    assert made.add_text("t", "Yes") == [TextDelta("Yes")]
    assert made.add_call_piece("c", call_id="call_00000001", name="read") == [
        CallDelta(0, "call_00000001", "read", "")
    ]
    assert made.add_reasoning("r", " so") == [ReasoningDelta(" so")]
    made.seal_reasoning("r", signature="ä", id=1)
    assert made.finished_parts() == (
        Reasoning("hm so", opaque='{"signature":"ä","id":1}', provider="tag"),
        Text("Yes"),
        ToolCall("call_00000001", "read", "{}"),
    )


def test_what_is_empty_is_no_part() -> None:
    made = draft()
    assert (made.add_text("t", ""), made.add_reasoning("r", ""), made.finished_parts()) == (
        [],
        [],
        (),
    )


def test_a_call_without_a_name_is_told_to_the_model_and_not_lost() -> None:
    made = draft()
    made.add_call_piece("nameless", call_id="call_00000001")
    assert made.finished_parts() == (ToolCall("call_00000001", "unnamed", "{}"),)
    assert made.finished_parts(cut=True) == ()


def test_a_sign_that_comes_in_two_halves_is_whole() -> None:
    made = draft()
    deltas = [
        *made.add_text("t", "a\ud83d"),
        *made.add_text("t", "\ude00b"),
        *made.add_text("t", "\ude00c\ud83d"),
    ]
    assert deltas == [TextDelta("a"), TextDelta("😀b"), TextDelta("\N{REPLACEMENT CHARACTER}c")]
    assert made.finished_parts() == (
        Text("a😀b\N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}"),
    )
    made.add_call_piece("c", name="write", arguments='{"t":"\ud83d')
    made.add_call_piece("c", arguments='\ude00"}')
    assert made.finished_parts()[-1] == ToolCall(
        made.finished_parts()[-1].id,  # type: ignore[union-attr]
        "write",
        '{"t":"😀"}',
    )


def test_ids_that_are_short_or_taken_are_replaced() -> None:
    made = draft()
    for key, call_id in enumerate(
        ["call_00000001", "call_00000001", "0", "", "call_0001", "call_002"]
    ):
        made.add_call_piece(key, call_id=call_id, name="read")
    assert [part.id for part in made.finished_parts() if isinstance(part, ToolCall)] == [
        "call_00000001", "call_00000001_new1", "0_new2", "call_new3", "call_0001", "call_002_new4",
    ]  # fmt: skip


def test_whole_arguments_add_what_was_missing_or_correct_what_came() -> None:
    made = draft()
    made.add_call_piece("c", call_id="call_00000001", name="read", arguments='{"a"')
    assert made.set_whole_arguments("c", '{"a":1}') == [
        CallDelta(0, "call_00000001", "read", ":1}")
    ]
    assert made.set_whole_arguments("c", '{"a":1}') == []
    assert made.set_whole_arguments("c", '{"b":1}') == [
        CallDelta(0, "call_00000001", "read", '{"b":1}')
    ]
    assert made.finished_parts() == (ToolCall("call_00000001", "read", '{"b":1}'),)


def test_what_a_draft_tells_of_its_parts() -> None:
    made = draft()
    assert (made.has_begun, made.call_count, made.last_key, made.kind_of_part("t")) == (
        False,
        0,
        None,
        "",
    )
    made.seal_reasoning("r", signature="opaque")
    assert not made.has_begun, "what the provider needs back is nothing that anybody saw"
    made.add_text("t", "Yes")
    assert (made.has_begun, made.last_key, made.first_key_of_kind("call")) == (True, "t", None)
    assert made.add_call_piece("c", call_id="call_00000001", name="read") == [
        CallDelta(0, "call_00000001", "read", "")
    ]
    assert made.add_call_piece("d", call_id="call_00000001", arguments="{") == [
        CallDelta(1, "call_00000001_new1", "", "{")
    ]
    assert made.add_call_piece("c") == []
    assert (made.call_count, made.last_key, made.first_key_of_kind("call")) == (2, "d", "c")
    assert [made.kind_of_part(key) for key in "rtc"] == ["reasoning", "text", "call"]


def test_a_name_alone_is_a_beginning() -> None:
    made = draft()
    made.add_call_piece("c", name="read")
    assert made.has_begun


def test_whole_arguments_add_only_what_had_not_come() -> None:
    made = draft()
    made.add_call_piece("c", call_id="call_00000001", name="read", arguments='{"a"')
    assert made.set_whole_arguments("c", '{"a": 1}') == [
        CallDelta(0, "call_00000001", "read", ": 1}")
    ]
    assert made.set_whole_arguments("c", '{"a": 1}') == []
    assert made.set_whole_arguments("c", "[]") == [CallDelta(0, "call_00000001", "read", "[]")]
    assert made.finished_parts() == (ToolCall("call_00000001", "read", "[]"),)


def test_a_reply_has_as_many_calls_as_may_be_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_draft, "MOST_CALLS", 3)
    made = draft()
    for key in range(3):
        made.add_call_piece(key, call_id=f"call_0000000{key}", name="read")
    with pytest.raises(ValueError, match="too many calls"):
        made.add_call_piece(3, call_id="call_00000003", name="read")
