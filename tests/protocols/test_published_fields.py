"""Every field that the providers' libraries publish of what a request may hold, and what a fold
does to it: nothing is dropped unsaid.

A shortened output keeps all fields of its message but the text. What goes on although a fold
covers it keeps all of its fields but the client's cache mark, as ours stand elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.gateway.carried_state import carried_units
from helix_desktop.protocols.gateway_message import PieceEdit, PieceKind
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from tests.protocols import published_schemas as schemas
from tests.protocols.published_schemas import CARRIED

Json = Any
TABLE: Mapping[str, Mapping[str, Sequence[str]]] = json.loads(
    Path(__file__).with_name("published_fields.json").read_text("utf-8")
)
# What a fold does to each published field. The entries of today follow from what is done with each
# kind; a new field has none, and needs one before the trial passes again.
DECIDED: Mapping[str, Mapping[str, Mapping[str, str]]] = json.loads(
    Path(__file__).with_name("decided_fields.json").read_text("utf-8")
)
LEFT_OUT = "left out"
SHORT = "[shortened]"
# The fields that a shorter text stands for.
SHORTENED = {
    "anthropic": {"text": {"text"}, "tool_use": {"input"}, "tool_result": set()},
    "openai-responses": {"function_call": {"arguments"}, "custom_tool_call": {"input"}, "function_call_output": {"output"}, "custom_tool_call_output": {"output"}},
}  # fmt: skip


def mark_of(kind: str, field: str) -> str:
    return f"{kind}-{field}-there"


def block_of(kind: str, fields: Sequence[str]) -> dict[str, Json]:
    """A block that has every field, each with words of its own."""
    block: dict[str, Json] = {}
    for field in fields:
        block[field] = mark_of(kind, field)
    block["type"] = kind
    return block


def marks_in(value: Json) -> set[str]:
    return {word for word in json.dumps(value).replace('"', " ").split() if word.endswith("-there")}


def anthropic_message(kind: str) -> Json:
    block = block_of(kind, TABLE["anthropic"][kind])
    if kind == "tool_use":
        block["input"] = {"about": block["input"]}
    if kind == "tool_result":
        parts = []
        for part_kind, fields in TABLE["anthropic results"].items():
            parts.append(block_of(part_kind, fields))
        block["content"] = parts
    role = "user" if kind == "tool_result" else "assistant"
    return {"role": role, "content": [block]}


@pytest.mark.parametrize("kind", SHORTENED["anthropic"])
def test_a_shortened_block_of_messages_keeps_its_other_fields(kind: str) -> None:
    message = anthropic_message(kind)
    wire = WIRE_MODULES["anthropic"]
    read = wire.parse_message(message)
    text = SHORT
    if kind == "tool_use":
        text = json.dumps({"note": SHORT})
    (shown,) = wire.apply_edits(read, [PieceEdit(0, text)])
    assert SHORT in json.dumps(shown)
    gone = {mark_of(kind, field) for field in SHORTENED["anthropic"][kind]}
    if kind == "tool_result":
        gone = {mark_of("text", "text")}
    assert marks_in(message) - marks_in(shown) == gone


@pytest.mark.parametrize("kind", SHORTENED["openai-responses"])
def test_a_shortened_item_of_responses_keeps_its_other_fields(kind: str) -> None:
    item = block_of(kind, TABLE["openai-responses"][kind])
    wire = WIRE_MODULES["openai-responses"]
    read = wire.parse_messages({"input": [item]})[0]
    (shown,) = wire.apply_edits(read, [PieceEdit(0, SHORT)])
    gone = {mark_of(kind, field) for field in SHORTENED["openai-responses"][kind]}
    assert marks_in(item) - marks_in(shown) == gone


@pytest.mark.parametrize("protocol", ["openai-responses", "openai-chat"])
def test_a_shortened_output_of_openai_keeps_the_other_parts_and_its_cache_mark(
    protocol: str,
) -> None:
    parts = []
    for part_kind, fields in TABLE[f"{protocol} parts"].items():
        parts.append(block_of(part_kind, fields))
    if protocol == "openai-chat":
        item: Json = {"role": "tool", "tool_call_id": "c1", "content": parts}
        field = "messages"
    else:
        item = {"type": "function_call_output", "call_id": "c1", "output": parts}
        field = "input"
    wire = WIRE_MODULES[protocol]
    read = wire.parse_messages({field: [item]})[0]
    (position,) = (at for at, piece in enumerate(read.pieces) if piece.kind is PieceKind.RESULT)
    (shown,) = wire.apply_edits(read, [PieceEdit(position, SHORT)])
    text_kind = "text" if protocol == "openai-chat" else "input_text"
    assert marks_in(item) - marks_in(shown) == {mark_of(text_kind, "text")}


@pytest.mark.parametrize("kind", ["functionCall", "functionResponse"])
def test_a_shortened_call_or_response_of_gemini_keeps_its_other_fields(kind: str) -> None:
    value: dict[str, Json] = {field: mark_of(kind, field) for field in TABLE["gemini"][kind]}
    text_field = "args" if kind == "functionCall" else "response"
    value[text_field] = {"output": value[text_field]}
    part: dict[str, Json] = {kind: value}
    for detail in schemas.GEMINI_PART_DETAILS:
        part[detail] = mark_of("part", detail)
    wire = WIRE_MODULES["gemini"]
    read = wire.parse_messages({"contents": [{"role": "model", "parts": [part]}]})[0]
    text = json.dumps({"note": SHORT}) if kind == "functionCall" else SHORT
    (shown,) = wire.apply_edits(read, [PieceEdit(0, text)])
    assert marks_in(part) - marks_in(shown) == {mark_of(kind, text_field)}
    assert SHORT in json.dumps(shown)


def test_a_part_of_a_result_that_nobody_knows_yet_stays_although_it_has_a_text() -> None:
    strange = {"type": "of_tomorrow", "text": "the words of tomorrow"}
    content = [{"type": "text", "text": "old words"}, strange]
    message = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": content}],
    }
    wire = WIRE_MODULES["anthropic"]
    (shown,) = wire.apply_edits(wire.parse_message(message), [PieceEdit(0, SHORT)])
    assert shown["content"][0]["content"] == [{"type": "text", "text": SHORT}, strange]


ALL_CARRIED = [
    *(("anthropic", kind) for kind, fate in schemas.ANTHROPIC_BLOCKS.items() if fate == CARRIED),
    *(("openai-responses", kind) for kind, fate in schemas.RESPONSES_ITEMS.items() if fate == CARRIED),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "kind"), ALL_CARRIED)
def test_what_goes_on_behind_a_fold_keeps_its_fields(protocol: str, kind: str) -> None:
    wire = WIRE_MODULES[protocol]
    block = block_of(kind, TABLE[protocol][kind])
    message = block
    if protocol == "anthropic":
        message = {"role": "assistant", "content": [block]}
        read = [wire.parse_message(message)]
        if kind == "tool_search_tool_result":
            search = {
                "type": "server_tool_use",
                "id": block["tool_use_id"],
                "name": "x",
                "input": {},
            }
            message = {"role": "assistant", "content": [search, block]}
            read = [wire.parse_message(message)]
    else:
        if kind == "additional_tools":
            block["tools"] = [{"type": "function", "name": block["tools"]}]
        read = wire.parse_messages({"input": [block]})
    shown = carried_units(wire, read)
    left_out = set()
    for field, fate in DECIDED[protocol][kind].items():
        if fate == LEFT_OUT:
            left_out.add(mark_of(kind, field))
    assert marks_in(message) - marks_in(shown) <= left_out


def test_every_published_kind_has_a_fate() -> None:
    assert set(TABLE["anthropic"]) == set(schemas.ANTHROPIC_BLOCKS)
    assert set(TABLE["anthropic results"]) == set(schemas.ANTHROPIC_RESULT_PARTS)
    assert set(TABLE["openai-responses"]) == set(schemas.RESPONSES_ITEMS)
    assert set(TABLE["openai-responses parts"]) <= set(schemas.RESPONSES_PARTS)
    assert set(TABLE["openai-chat"]) == set(schemas.CHAT_ROLES)
    assert set(TABLE["openai-chat parts"]) <= set(schemas.CHAT_PARTS)
    assert set(TABLE["openai-chat"]["assistant"]) == set(schemas.CHAT_ASSISTANT_FIELDS)
    assert set(TABLE["gemini"]) <= set(schemas.GEMINI_PARTS) | set(schemas.GEMINI_PART_DETAILS)


def undecided_fields(table: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Return a sentence for each field that is published and for which nobody wrote a fate."""
    sentences = []
    for protocol, kinds in table.items():
        if protocol == "versions":
            continue
        for kind, fields in kinds.items():
            decided = DECIDED.get(protocol, {}).get(kind, {})
            for field in fields:
                if field not in decided:
                    sentences.append(
                        f"{protocol}: the field {field} of {kind} is new. Decide what a fold does to it "
                        "(folded: its text stands for it, carried: it goes on where it stood, left out: "
                        "ours stands elsewhere), see that it does, and write it in decided_fields.json."
                    )
    return sentences


def test_every_published_field_has_a_fate() -> None:
    assert undecided_fields(TABLE) == []


def test_every_fate_is_one_of_a_field_that_is_published() -> None:
    for protocol, kinds in DECIDED.items():
        for kind, fates in kinds.items():
            assert set(fates) <= set(TABLE[protocol][kind])
            assert set(fates.values()) <= {schemas.FOLDED, CARRIED, LEFT_OUT}


@pytest.mark.parametrize("protocol", list(DECIDED))
def test_a_new_field_of_a_known_kind_has_no_fate(protocol: str) -> None:
    for kind, fields in TABLE[protocol].items():
        (sentence,) = undecided_fields({protocol: {kind: [*fields, "of_tomorrow"]}})
        assert f"the field of_tomorrow of {kind} is new. Decide" in sentence
