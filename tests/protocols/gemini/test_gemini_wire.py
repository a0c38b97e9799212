from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.protocols.gemini import gemini_wire
from helix_desktop.protocols.gemini.gemini_wire import gemini_parameters

TEXT: Any = {"type": "string"}
KNOWN = {
    "type", "properties", "required", "items", "enum", "anyOf", "format", "description", "title", "nullable", "minimum", "maximum",
    "minItems", "maxItems", "minLength", "maxLength", "pattern",
}  # fmt: skip


def argument(schema: Any, **more: Any) -> Any:
    made: Any = gemini_parameters({"type": "object", "properties": {"a": schema}, **more})
    return made["parameters"]["properties"]["a"]


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"const": "x", "type": "string"}, {"type": "string", "enum": ["x"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer"}),
        (
            {"anyOf": [TEXT, {"type": "null"}], "description": "d"},
            {"type": "string", "description": "d", "nullable": True},
        ),
        ({"oneOf": [TEXT, {"type": "integer"}]}, {"anyOf": [TEXT, {"type": "integer"}]}),
        ({"allOf": [TEXT, {"maxLength": 3}]}, {"type": "string", "maxLength": 3}),
        ({"type": "array"}, {"type": "array", "items": TEXT}),
        ({"type": "string", "format": "uri"}, TEXT),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "object", "additionalProperties": TEXT}, {"type": "object"}),
        ({}, TEXT),
        (True, TEXT),
    ],
)
def test_what_it_does_not_know_is_put_otherwise_or_left_out(given_: Any, expected: Any) -> None:
    assert argument(given_) == expected


def test_references_become_what_they_point_at() -> None:
    definitions: Any = {"Path": {"type": "string", "description": "a path"}}
    assert argument({"$ref": "#/$defs/Path"}, **{"$defs": definitions}) == definitions["Path"]


def test_a_schema_that_points_at_itself_ends() -> None:
    definitions: Any = {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}
    assert argument({"$ref": "#/$defs/Node"}, **{"$defs": definitions})["properties"]["next"]["type"] == "object"


def test_required_names_are_there() -> None:
    made: Any = gemini_parameters({"type": "object", "properties": {"a": TEXT}, "required": ["a", "b", {}]})
    assert made["parameters"]["required"] == ["a"]


schemas = st.recursive(
    st.dictionaries(st.sampled_from(["type", "enum", "format", "const", "x-odd", "$schema"]), st.sampled_from(["string", "null", 7, None, ["a"]])),
    lambda inner: st.fixed_dictionaries(
        {}, optional={
            "type": st.sampled_from(["object", "array", ["object", "null"]]),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=3),
            "required": st.lists(st.sampled_from("abcd")),
            "additionalProperties": inner,
        },
    ),
    max_leaves=12,
)  # fmt: skip


@given(schemas)
def test_only_known_words_are_left_at_any_depth(schema: Any) -> None:
    def check(one: Any) -> None:
        assert set(one) <= KNOWN
        assert isinstance(one.get("type", ""), str)
        for inner in [
            *one.get("properties", {}).values(),
            *one.get("anyOf", []),
            *([one["items"]] if "items" in one else []),
        ]:
            check(inner)

    check(argument(schema))


def test_what_the_gateway_adds_is_as_gemini_reads_it() -> None:
    assert gemini_wire.said("go on") == {"role": "user", "parts": [{"text": "go on"}]}
    for ok, name in ((True, "output"), (False, "error")):
        response = {"name": "recall", "response": {name: "text"}}
        assert gemini_wire.result("c1", "recall", "text", ok=ok) == {
            "role": "user",
            "parts": [{"functionResponse": response}],
        }
