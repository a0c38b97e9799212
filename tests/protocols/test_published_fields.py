"""Every field that the providers' libraries publish of what a request may hold, and what a fold
does to it: nothing is dropped unsaid.

A shortened output keeps all fields of its message but the text. What goes on although a fold
covers it keeps all of its fields but the client's cache mark, as ours stand elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Stored
from helix_desktop.gateway.carried_state import carried_units
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import Arrival
from helix_desktop.gateway.folded_request import build_folded_body
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.view_entries import Entry, InsertedText, UnchangedMessage
from helix_desktop.json_values import without_fields
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import PieceEdit, PieceKind
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES
from helix_desktop.workbench.open_workbench import Workbench
from tests.faults.gateway_histories import _nobody, bench
from tests.protocols import published_schemas as schemas
from tests.protocols.published_schemas import CARRIED

Json = Any
TABLE: Mapping[str, Mapping[str, Sequence[str]]] = json.loads(
    Path(__file__).with_name("published_fields.json").read_text("utf-8")
)
# What a fold does to each published field. A new field has no entry, and needs one before the trial
# passes again.
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
                        "(folded: its text stands for it, carried: it goes on where it stood, left out: ours "
                        "stands elsewhere, form: nothing stands for it), and write it in decided_fields.json."
                    )
    return sentences


def test_every_published_field_has_a_fate() -> None:
    assert undecided_fields(TABLE) == []


def test_every_fate_is_one_of_a_field_that_is_published() -> None:
    for protocol, kinds in DECIDED.items():
        for kind, fates in kinds.items():
            assert set(fates) <= set(TABLE[protocol][kind])
            assert set(fates.values()) <= {schemas.FOLDED, schemas.FORM, CARRIED, LEFT_OUT}


@pytest.mark.parametrize("protocol", list(DECIDED))
def test_a_new_field_of_a_known_kind_has_no_fate(protocol: str) -> None:
    for kind, fields in TABLE[protocol].items():
        (sentence,) = undecided_fields({protocol: {kind: [*fields, "of_tomorrow"]}})
        assert f"the field of_tomorrow of {kind} is new. Decide" in sentence


# --- Field by field: what is written in decided_fields.json is what happens

# Values in the forms that providers know. The others are texts.
REAL_FORMS: Mapping[str, Callable[[str], Json]] = {
    "cache_control": lambda mark: {"type": "ephemeral", "ttl": mark},
    "prompt_cache_breakpoint": lambda mark: {"mode": mark},
    "anthropic document source": lambda mark: {"type": "text", "data": mark},
    "anthropic results document source": lambda mark: {"type": "text", "data": mark},
    "anthropic image source": lambda mark: {"type": "base64", "media_type": "image/png", "data": mark},
    "anthropic results image source": lambda mark: {"type": "base64", "media_type": "image/png", "data": mark},
    "anthropic text citations": lambda mark: [{"cited_text": mark}],
    "anthropic tool_use input": lambda mark: {"about": mark},
    "openai-responses additional_tools tools": lambda mark: [{"type": "function", "name": mark}],
    "openai-responses message content": lambda mark: [{"type": "input_text", "text": mark}],
    "openai-responses reasoning content": lambda mark: [{"type": "reasoning_text", "text": mark}],
    "openai-responses reasoning summary": lambda mark: [{"type": "summary_text", "text": mark}],
    "openai-chat assistant function_call": lambda mark: {"name": "read", "arguments": mark},
    "openai-chat assistant audio": lambda mark: {"id": mark},
    "openai-chat assistant tool_calls": lambda mark: [{"id": mark, "function": {"name": mark, "arguments": mark}}],
    "openai-chat parts file file": lambda mark: {"filename": mark, "file_id": mark},
    "gemini functionCall args": lambda mark: {"about": mark},
    "gemini functionResponse response": lambda mark: {"output": mark},
    "gemini functionResponse parts": lambda mark: [{"inlineData": {"mimeType": "image/png", "data": mark}}],
}  # fmt: skip
PARTS_OF = {"anthropic results": "anthropic", "openai-responses parts": "openai-responses", "openai-chat parts": "openai-chat"}  # fmt: skip
ALL_KINDS = [(group, kind) for group, kinds in DECIDED.items() for kind in kinds]


def marked_block(group: str, kind: str, place: str, fields: Sequence[str]) -> dict[str, Json]:
    block: dict[str, Json] = {}
    for field in fields:
        mark = f"{place}-{mark_of(kind, field)}"
        form = REAL_FORMS.get(f"{group} {kind} {field}") or REAL_FORMS.get(field)
        block[field] = form(mark) if form is not None else mark
    if group not in ("openai-chat", "gemini"):
        block["type"] = kind
    return block


def units_with_kind(group: str, kind: str, place: str) -> list[Json]:
    """A part of a conversation in which this kind stands with all of its fields."""
    fields = TABLE[group][kind]
    block = marked_block(group, kind, place, fields)
    match group:
        case "anthropic":
            return anthropic_units_around(kind, block)
        case "anthropic results":
            call = {"type": "tool_use", "id": f"{place}1", "name": "read", "input": {}}
            result = {"type": "tool_result", "tool_use_id": f"{place}1", "content": [block]}
            return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        case "openai-responses":
            return responses_units_around(kind, block)
        case "openai-chat":
            return chat_units_around(kind, {**block, "role": kind}, place)
        case "gemini":
            return gemini_units_around(kind, block)
    parts = [block]
    if kind == "input_file":  # It has one of these.
        addresses = ("file_data", "file_id", "file_url")
        parts = []
        for address in addresses:
            others = [field for field in fields if field not in addresses or field == address]
            parts.append(marked_block(group, kind, place, others))
    return [{"role": "user", "content": parts}]


def anthropic_units_around(kind: str, block: dict[str, Json]) -> list[Json]:
    said: Json = {"role": "assistant", "content": [block]}
    match kind:
        case "tool_use":
            result = {"type": "tool_result", "tool_use_id": block["id"], "content": "fine"}
            return [said, {"role": "user", "content": [result]}]
        case "tool_result":
            call = {"type": "tool_use", "id": block["tool_use_id"], "name": "read", "input": {}}
            return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [block]}]
        case "tool_search_tool_result":
            search = {
                "type": "server_tool_use",
                "id": block["tool_use_id"],
                "name": "x",
                "input": {},
            }
            return [{"role": "assistant", "content": [search, block]}]
        case "tool_addition" | "tool_removal":
            return [{"role": "system", "content": [block]}]
        case "image" | "document" | "search_result" | "container_upload":
            return [{"role": "user", "content": [block]}]
    return [said]


def responses_units_around(kind: str, item: dict[str, Json]) -> list[Json]:
    match kind:
        case "message":
            return [{**item, "role": "user"}]
        case "additional_tools":
            return [{**item, "role": "developer"}]
        case "function_call" | "custom_tool_call":
            return [item, {"type": f"{kind}_output", "call_id": item["call_id"], "output": "fine"}]
        case "function_call_output" | "custom_tool_call_output":
            call = {
                "type": kind.removesuffix("_output"),
                "call_id": item["call_id"],
                "name": "read",
            }
            return [call, item]
    return [item]


def chat_units_around(role: str, message: dict[str, Json], place: str) -> list[Json]:
    if role == "assistant":
        call_id = message["tool_calls"][0]["id"]
        return [message, {"role": "tool", "tool_call_id": call_id, "content": "fine"}]
    if role in ("tool", "function"):
        call_id = message.get("tool_call_id") or message["name"]
        call = {"id": call_id, "function": {"name": "read", "arguments": "{}"}}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}, message]
    return [message]


def gemini_units_around(kind: str, value: dict[str, Json]) -> list[Json]:
    if kind == "functionCall":
        response = {"functionResponse": {"name": value["name"], "response": {"output": "fine"}}}
        return [{"role": "model", "parts": [{kind: value}]}, {"role": "user", "parts": [response]}]
    if kind == "functionResponse":
        call = {"functionCall": {"name": value["name"], "args": {}}}
        return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [{kind: value}]}]
    if kind in schemas.GEMINI_PART_DETAILS:
        audio = {"mimeType": "audio/wav", "data": "AAAA"}
        return [{"role": "user", "parts": [{"inlineData": audio, kind: value}]}]
    return [{"role": "user", "parts": [{kind: value}]}]


@pytest.mark.parametrize(("group", "kind"), ALL_KINDS)
def test_each_field_goes_on_as_is_written_here(group: str, kind: str) -> None:
    """In a message behind a fold, all fields; of one that a fold covers, those that are carried."""
    protocol = PARTS_OF.get(group, group)
    wire = WIRE_MODULES[protocol]
    task = wire.user_message("the task")
    covered = units_with_kind(group, kind, "covered")
    kept = units_with_kind(group, kind, "kept")
    field = MESSAGE_FIELDS[protocol]
    body = {field: [task, *covered, wire.user_message("so"), *kept, wire.user_message("go on")]}
    messages = wire.parse_messages(body)
    end = len(wire.parse_messages({field: [task, *covered]}))
    entries: list[Entry] = [UnchangedMessage(0), InsertedText("the handover", ((1, end),))]
    entries.extend(UnchangedMessage(position) for position in range(end, len(messages)))
    shown = build_folded_body(protocol, body, messages, entries)[field]

    fates = DECIDED[group][kind]
    assert blocks_without_marks(kept) <= blocks_without_marks(shown)
    goes_on = {mark for mark in marks_in(covered) if fates[field_of_mark(mark)] == CARRIED}
    moved = {mark for mark in marks_in(covered) if fates[field_of_mark(mark)] == LEFT_OUT}
    shown_marks = {mark for mark in marks_in(shown) if mark.startswith("covered-")}
    assert shown_marks - moved == goes_on
    if protocol == "anthropic":
        assert anthropic_gateway.count_cache_marks(shown) <= anthropic_gateway.MOST_MARKS
        assert not marks_in_results(shown) & moved


def marks_in_results(units: Sequence[Json]) -> set[str]:
    """The words in what results are made of, where no mark of ours stands."""
    marks = set[str]()
    for unit in units:
        for block in unit["content"]:
            marks |= marks_in(block.get("content"))
    return marks


def field_of_mark(mark: str) -> str:
    return mark.removesuffix("-there").rpartition("-")[2]


def blocks_without_marks(units: Sequence[Json]) -> set[str]:
    """All parts of these messages, without the client's cache marks, as ours stand elsewhere."""
    blocks = set[str]()
    for unit in units:
        content = unit.get("content") or unit.get("parts")
        for block in content if isinstance(content, list) else [unit]:
            blocks.add(json.dumps(without_fields(block, "cache_control"), sort_keys=True))
    return blocks


async def test_each_field_that_is_folded_is_recorded_and_can_be_recalled(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        for group, kind in ALL_KINDS:
            protocol = PARTS_OF.get(group, group)
            wire = WIRE_MODULES[protocol]
            units = [*units_with_kind(group, kind, "covered"), wire.user_message("go on")]
            messages = wire.parse_messages({MESSAGE_FIELDS[protocol]: units})
            chain = compute_message_hashes(protocol, messages)
            conversations = LocalAgentConversations(made, _nobody)
            arrival = Arrival(protocol, "an agent", f"{group} {kind}", "", "m", "", (), chain)
            sent = await conversations.receive_request(arrival, messages)
            recorded = await recorded_words(made, sent.ticket.conversation)
            await conversations.aclose()
            for field, fate in DECIDED[group][kind].items():
                mark = f"covered-{mark_of(kind, field)}"
                if mark in json.dumps(units) and (kind, field) != ("tool_result", "is_error"):
                    is_recorded = mark in recorded
                    assert is_recorded == (fate == schemas.FOLDED) or fate == CARRIED, (
                        group,
                        kind,
                        field,
                        fate,
                    )


async def recorded_words(made: Workbench, conversation: str) -> str:
    """All that the facts of a conversation say, with the contents to which they refer."""
    words: list[str] = []
    for recorded in await made.read_conversation_facts(conversation):
        words.append(repr(recorded.fact))
        for stored in stored_in(recorded.fact):
            content = await made.workspace.cache.read_content(stored.digest)
            words.append(content.decode("utf-8", "replace"))
    return "\n".join(words)


def stored_in(value: object) -> Iterator[Stored]:
    if isinstance(value, Stored):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from stored_in(item)
    elif is_dataclass(value):
        for name in value.__slots__:  # type: ignore[union-attr]
            yield from stored_in(getattr(value, name))
