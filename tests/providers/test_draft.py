from __future__ import annotations

import itertools

from helix_desktop.engine.blocks import CallDelta, ReasoningDelta, TextDelta
from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.providers.draft import Draft


def draft() -> Draft:
    numbers = itertools.count(1)
    return Draft("tag", lambda: f"new{next(numbers)}")


def test_parts_stand_in_the_order_they_began_in() -> None:
    made = draft()
    assert made.reasoning("r", "hm") == [ReasoningDelta("hm")]
    assert made.text("t", "Yes") == [TextDelta("Yes")]
    assert made.call("c", call_id="call_00000001", name="read") == [CallDelta(0, "call_00000001", "read", "")]
    assert made.reasoning("r", " so") == [ReasoningDelta(" so")]
    made.seal("r", "opaque")
    assert made.parts() == (
        Reasoning("hm so", opaque="opaque", provider="tag"),
        Text("Yes"),
        ToolCall("call_00000001", "read", "{}"),
    )


def test_what_is_empty_is_no_part() -> None:
    made = draft()
    assert (made.text("t", ""), made.reasoning("r", ""), made.parts()) == ([], [], ())
    made.call("nameless", arguments="{}")
    assert made.parts() == ()


def test_ids_that_are_short_or_taken_are_replaced() -> None:
    made = draft()
    for key, call_id in enumerate(["call_00000001", "call_00000001", "0", ""]):
        made.call(key, call_id=call_id, name="read")
    assert [part.id for part in made.parts() if isinstance(part, ToolCall)] == [
        "call_00000001", "call_00000001_new1", "0_new2", "call_new3",
    ]  # fmt: skip


def test_whole_arguments_add_what_was_missing_or_correct_what_came() -> None:
    made = draft()
    made.call("c", call_id="call_00000001", name="read", arguments='{"a"')
    assert made.whole_arguments("c", '{"a":1}') == [CallDelta(0, "call_00000001", "read", ":1}")]
    assert made.whole_arguments("c", '{"a":1}') == []
    assert made.whole_arguments("c", '{"b":1}') == [CallDelta(0, "call_00000001", "read", '{"b":1}')]
    assert made.parts() == (ToolCall("call_00000001", "read", '{"b":1}'),)
