from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.blocks import ToolResult
from helix_desktop.engine.facts import ToolCall, ToolSpec
from helix_desktop.protocols import request_parts
from tests.providers.asking import assistant, user

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.text(max_size=30))
def test_any_arguments_become_an_object(text: str) -> None:
    call = ToolCall("call_000000001", "read", text)
    assert isinstance(request_parts.arguments_as_object(call), dict)
    if text.strip():
        assert json.loads(request_parts.arguments_as_json(call).encode("utf-8", "replace")) is not None


@given(st.lists(texts.filter(bool), min_size=1, max_size=6, unique=True))
def test_ids_stay_different_and_become_legal(ids: list[str]) -> None:
    calls = [ToolCall(one, "read", "{}") for one in ids]
    results = [ToolResult(one, "x") for one in ids]
    legal = re.compile(r"[A-Za-z0-9]{9}")
    made = request_parts.legal_ids([assistant(*calls), user(*results)], legal, 9)
    assert len(set(made.values())) == len(ids)
    assert all(legal.fullmatch(one) for one in made.values())


def test_a_schema_that_is_none_is_an_empty_one() -> None:
    assert request_parts.schema_of_tool(ToolSpec("t", "", "broken")) == request_parts.EMPTY_SCHEMA


def test_the_open_loop_begins_behind_the_last_message_without_results() -> None:
    call = ToolCall("call_000000001", "read", "{}")
    loop = [assistant(call), user(ToolResult(call.id, "x"), "steer")]
    assert request_parts.start_of_open_tool_loop([user("a"), *loop]) == 1
    assert request_parts.start_of_open_tool_loop([user("a"), *loop, assistant("done"), user("b")]) == 5
    assert request_parts.start_of_open_tool_loop(loop) == 0
