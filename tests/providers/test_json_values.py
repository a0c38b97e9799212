from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.blocks import ToolResult
from helix_desktop.engine.facts import ToolCall, ToolSpec
from helix_desktop.providers import json_values
from tests.providers.asking import assistant, user

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts, values, max_size=5))
def test_a_body_made_item_by_item_is_the_same(body: Any) -> None:
    assert json_values.dump_json_body(body) == json_values.dump_json(body)
    assert json_values.parse_json(json_values.dump_json_body(body)) == body


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a": Infinity}', "[" * 100_000, '{"a":' * 50_000, "9" * 5000])
def test_what_is_no_json_is_a_value_error_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_values.parse_json(text)
    assert json_values.parse_object(text) is None


@given(values, st.lists(texts | st.integers(-3, 3), max_size=4))
def test_looking_something_up_never_fails(value: Any, path: list[Any]) -> None:
    json_values.value_at(value, *path)
    assert isinstance(json_values.text_at(value, *path), str)
    assert json_values.number_at(value, *path) >= 0
    assert isinstance(json_values.list_at(value, *path), list)
    assert isinstance(json_values.object_at(value, *path), dict)


@given(st.text(max_size=30))
def test_any_arguments_become_an_object(text: str) -> None:
    call = ToolCall("call_000000001", "read", text)
    assert isinstance(json_values.arguments_as_object(call), dict)
    if text.strip():
        assert json.loads(json_values.arguments_as_json(call).encode("utf-8", "replace")) is not None


@given(st.lists(texts.filter(bool), min_size=1, max_size=6, unique=True))
def test_ids_stay_different_and_become_legal(ids: list[str]) -> None:
    calls = [ToolCall(one, "read", "{}") for one in ids]
    results = [ToolResult(one, "x") for one in ids]
    legal = re.compile(r"[A-Za-z0-9]{9}")
    made = json_values.legal_ids([assistant(*calls), user(*results)], legal, 9)
    assert len(set(made.values())) == len(ids)
    assert all(legal.fullmatch(one) for one in made.values())


def test_a_schema_that_is_none_is_an_empty_one() -> None:
    assert json_values.schema_of_tool(ToolSpec("t", "", "broken")) == json_values.EMPTY_SCHEMA


def test_the_open_loop_begins_behind_the_last_message_without_results() -> None:
    call = ToolCall("call_000000001", "read", "{}")
    loop = [assistant(call), user(ToolResult(call.id, "x"), "steer")]
    assert json_values.start_of_open_tool_loop([user("a"), *loop]) == 1
    assert json_values.start_of_open_tool_loop([user("a"), *loop, assistant("done"), user("b")]) == 5
    assert json_values.start_of_open_tool_loop(loop) == 0
