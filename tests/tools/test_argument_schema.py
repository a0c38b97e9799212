from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.errors import InvalidInput
from helix_desktop.tools import argument_schema

OWN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer", "minimum": 1},
        "all": {"type": "boolean"},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"state": {"enum": ["a", "b"]}}},
        },
    },
    "required": ["path"],
}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ('{"a": 1', "not valid JSON"),
        ('{"a": Infinity}', "Infinity is not JSON"),
        ("[]", "one JSON object"),
        ("null", "one JSON object"),
        ('"x"', "one JSON object"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_arguments_that_are_no_object_get_a_sentence(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        argument_schema.parse_argument_text(text)


def test_no_arguments_at_all_are_none() -> None:
    assert (
        argument_schema.parse_argument_text("") == argument_schema.parse_argument_text(" {} ") == {}
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "needs the argument 'path'"),
        ({"path": None}, "needs the argument 'path'"),
        ({"path": 1.10}, "path must be of type string, not number"),
        ({"path": True}, "path must be of type string, not boolean"),
        ({"path": "a", "x": 1}, "no argument 'x'.* takes: path, count, all, items"),
        ({"path": "a", "count": -2}, "1 or more"),
        ({"path": ["a"], "count": False}, "path must be of type string"),
        ({"path": "a", "count": True}, "type integer, not boolean"),
        ({"path": "a", "count": 1.5}, "type integer, not number"),
        ({"path": "a", "count": "--5"}, "type integer, not string"),
        ({"path": "a", "all": "yes"}, "type boolean"),
        ({"path": "a", "items": {}}, "type array"),
        ({"path": "a", "items": [{"state": "c"}]}, "item 1: state must be one of a, b"),
    ],
)
def test_what_does_not_fit_is_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        argument_schema.fit_arguments_to_schema(values, OWN, "tool")


def test_what_models_write_instead_is_understood() -> None:
    values = {"path": "a", "count": "5", "all": "true", "items": '[{"state": "a"}]'}
    assert argument_schema.fit_arguments_to_schema(values, OWN, "t") == {
        "path": "a",
        "count": 5,
        "all": True,
        "items": [{"state": "a"}],
    }
    assert argument_schema.fit_arguments_to_schema(
        {"path": 404, "count": 2.0, "all": None}, OWN, "t"
    ) == {
        "path": "404",
        "count": 2,
    }


@pytest.mark.parametrize("none", [None, "", 0, -1])
def test_an_argument_given_for_the_sake_of_completeness_is_left_out(none: object) -> None:
    assert argument_schema.fit_arguments_to_schema({"path": "", "count": none}, OWN, "t") == {
        "path": ""
    }
    assert argument_schema.fit_arguments_to_schema(
        {"path": "a", "all": "", "items": ""}, OWN, "t"
    ) == {"path": "a"}


@pytest.mark.parametrize("text", ['{"content": "a\nb\tc"}', json.dumps('{"content": "a\\nb\\tc"}')])
def test_an_object_is_understood_where_it_is_one_beyond_doubt(text: str) -> None:
    assert argument_schema.parse_argument_text(text) == {"content": "a\nb\tc"}


@pytest.mark.parametrize(
    "text", ['{"path": "\\uD83d"}', '{"path": "\ud83d"}', '{"a": [{"\\udc00": 1}]}']
)
def test_half_of_a_character_gets_a_sentence_and_a_whole_one_does_not(text: str) -> None:
    with pytest.raises(InvalidInput, match="half of a character"):
        argument_schema.parse_argument_text(text)
    assert argument_schema.parse_argument_text('{"path": "\\ud83d\\ude00 \\\\ud83d"}') == {
        "path": "\U0001f600 \\ud83d"
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_checked_without_failing(value: Any) -> None:
    for values in ({"path": value}, {"path": "a", "items": value}, {"path": "a", "count": value}):
        with contextlib.suppress(InvalidInput):
            assert set(argument_schema.fit_arguments_to_schema(values, OWN, "t")) <= set(values)


def test_keep_is_offered_and_taken_off() -> None:
    spec = argument_schema.spec_with_keep("t", "d", OWN)
    assert list(json.loads(spec.schema)["properties"]) == ["path", "count", "all", "items", "keep"]
    assert json.loads(spec.schema)["required"] == ["path"]
    assert argument_schema.split_off_keep_argument({"path": "a", "keep": " errors "}, OWN) == (
        {"path": "a"},
        "errors",
    )
    assert argument_schema.split_off_keep_argument({"path": "a", "keep": 3}, OWN) == (
        {"path": "a"},
        "",
    )


@pytest.mark.parametrize(
    "taken", [["keep"], ["keep", "keep_of_output"], ["keep", "keep_of_output", "keep_of_output_"]]
)
def test_keep_collides_with_no_argument_of_the_tool(taken: list[str]) -> None:
    own = {"type": "object", "properties": {name: {"type": "string"} for name in taken}}
    values = dict.fromkeys(taken, "own")
    name = argument_schema.keep_argument_name(own)
    assert name not in taken
    assert argument_schema.split_off_keep_argument({**values, name: "mine"}, own) == (
        values,
        "mine",
    )


@pytest.mark.parametrize("own", [{}, {"properties": []}, {"type": "object"}, {"properties": None}])
def test_a_servers_schema_may_be_anything(own: dict[str, Any]) -> None:
    assert "keep" in json.loads(argument_schema.spec_with_keep("t", "d", own).schema)["properties"]
    assert argument_schema.correct_arguments_of_server_tool({"a": "1", "b": None}, own) == {
        "a": "1",
        "b": None,
    }


def test_a_call_of_a_servers_tool_is_put_right_where_it_is_plain() -> None:
    own = {
        "properties": {
            "ids": {"type": "array"},
            "count": {"type": "integer"},
            "deep": {"type": "boolean"},
            "name": {"type": "string"},
            "filter": {"type": ["object", "null"]},
            "any": {},
            "odd": True,
        },
        "required": ["name"],
    }
    given = {
        "ids": '["a"]',
        "count": "5",
        "deep": "true",
        "name": None,
        "filter": None,
        "any": None,
        "odd": None,
    }
    meant = {
        "ids": ["a"],
        "count": 5,
        "deep": True,
        "name": None,
        "filter": None,
        "any": None,
        "odd": None,
    }
    assert argument_schema.correct_arguments_of_server_tool(given, own) == meant
    assert argument_schema.correct_arguments_of_server_tool(
        {"ids": None, "count": None, "other": None}, own
    ) == {"other": None}
    as_written = {"ids": '{"a": 1}', "count": "five", "deep": "yes", "name": "5", "other": "[1]"}
    assert argument_schema.correct_arguments_of_server_tool(as_written, own) == as_written


def test_a_value_that_is_nothing_is_named_as_null() -> None:
    with pytest.raises(InvalidInput, match="items, item 2 must be of type object, not null"):
        argument_schema.fit_arguments_to_schema({"path": "a", "items": [{}, None]}, OWN, "t")


@pytest.mark.parametrize("value", [True, False])
def test_what_is_true_or_false_is_a_boolean_and_no_number(value: bool) -> None:
    fitted = argument_schema.fit_arguments_to_schema({"path": "a", "all": value}, OWN, "t")
    assert fitted["all"] is value
    with pytest.raises(InvalidInput, match="count must be of type integer, not boolean"):
        argument_schema.fit_arguments_to_schema({"path": "a", "count": value}, OWN, "t")
