"""What a fold leaves in a request: nothing that later requests need is dropped unsaid."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.facts import Usage
from helix_desktop.gateway.folded_request import PreviousBody, build_folded_body
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.view_entries import Entry, InsertedText, UnchangedMessage
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES
from tests.faults.gateway_histories import bench
from tests.gateway.running import PROTOCOLS
from tests.gateway.test_local_conversations import arrival
from tests.protocols import published_schemas as schemas
from tests.protocols.published_schemas import CARRIED, FOLDED

Json = Any
MARK = "what-this-is-about"  # In everything that is covered.


def says(protocol: str, text: str) -> Json:
    return WIRE_MODULES[protocol].user_message(text)


def folded(protocol: str, units: Sequence[Json], kept: PreviousBody | None = None) -> list[Json]:
    """The units behind a fold of all of them, but for one message before and one behind."""
    whole = [says(protocol, "the task"), *units, says(protocol, "go on")]
    body = {MESSAGE_FIELDS[protocol]: whole}
    messages = WIRE_MODULES[protocol].parse_messages(body)
    last = len(messages) - 1
    entries: list[Entry] = [
        UnchangedMessage(0),
        InsertedText("the handover", ((1, last),)),
        UnchangedMessage(last),
    ]
    shown: list[Json] = build_folded_body(protocol, body, messages, entries, previous=kept)[
        MESSAGE_FIELDS[protocol]
    ]
    return shown


def anthropic_units(kind: str) -> list[Json]:
    """A conversation's part with a block of this type where it may stand."""
    block: dict[str, Json] = {"type": kind, "about": MARK}
    if kind == "tool_use":
        return [
            {"role": "assistant", "content": [{**block, "id": "c1", "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]},
        ]
    if kind == "tool_result":
        call = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
        return [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{**block, "tool_use_id": "c1", "content": MARK}]},
        ]
    if kind == "tool_search_tool_result":
        search = {"type": "server_tool_use", "id": "s1", "name": "tool_search", "input": {}}
        return [{"role": "assistant", "content": [search, {**block, "tool_use_id": "s1"}]}]
    if kind in ("tool_addition", "tool_removal"):
        return [{"role": "system", "content": [block]}]
    if kind in ("text", "thinking"):
        block[kind] = MARK
    is_of_user = kind in ("text", "image", "document", "search_result", "container_upload")
    return [{"role": "user" if is_of_user else "assistant", "content": [block]}]


def responses_units(kind: str) -> list[Json]:
    item = {"type": kind, "about": MARK}
    if kind == "message":
        return [{**item, "role": "user", "content": [{"type": "input_text", "text": MARK}]}]
    if kind == "additional_tools":
        return [{**item, "role": "developer", "tools": []}]
    if kind in ("function_call", "custom_tool_call"):
        return [{**item, "call_id": "c1", "name": "read"}, {"type": f"{kind}_output", "call_id": "c1"}]  # fmt: skip
    if kind in ("function_call_output", "custom_tool_call_output"):
        call = {"type": kind.removesuffix("_output"), "call_id": "c1", "name": "read"}
        return [call, {**item, "call_id": "c1", "output": MARK}]
    return [item]


def gemini_units(kind: str) -> list[Json]:
    if kind == "functionResponse":
        call = {"functionCall": {"name": "read", "args": {}}}
        part = {"functionResponse": {"name": "read", "response": {"output": MARK}}}
        return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [part]}]
    return [{"role": "user", "parts": [{kind: MARK if kind == "text" else {"about": MARK}}]}]


def chat_units(role: str) -> list[Json]:
    message = {"role": role, "content": MARK}
    if role not in ("tool", "function"):
        return [message]
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [said, {**message, "tool_call_id": "c1", "name": "c1"}]


PLACES: list[tuple[str, list[Json], str]] = [
    *(("anthropic", anthropic_units(kind), fate) for kind, fate in schemas.ANTHROPIC_BLOCKS.items()),
    *(("openai-responses", responses_units(kind), fate) for kind, fate in schemas.RESPONSES_ITEMS.items()),
    *(("gemini", gemini_units(kind), fate) for kind, fate in schemas.GEMINI_PARTS.items()),
    *(("openai-chat", chat_units(role), fate) for role, fate in schemas.CHAT_ROLES.items()),
    *(("openai-chat", [{"role": "user", "content": [{"type": kind, "text": MARK}]}], fate) for kind, fate in schemas.CHAT_PARTS.items()),
    *(("openai-responses", [{"role": "user", "content": [{"type": kind, "text": MARK}]}], fate) for kind, fate in schemas.RESPONSES_PARTS.items()),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "units", "fate"), PLACES)
def test_all_that_the_libraries_publish_is_folded_or_carried_as_is_written_here(
    protocol: str, units: list[Json], fate: str
) -> None:
    shown = folded(protocol, units)
    if fate == FOLDED:
        assert MARK not in json.dumps(shown)
        return
    first = json.dumps(shown).index("the handover")
    assert first < json.dumps(shown).index(MARK) < json.dumps(shown).index("go on")
    if protocol == "anthropic":  # A block of the user's may stand in one message with the handover.
        shown = [block for unit in shown for block in unit["content"]]
        units = [block for unit in units for block in unit["content"]]
    assert [unit for unit in units if unit in shown] == units, "as they stood"


@pytest.mark.parametrize(("kind", "fate"), schemas.ANTHROPIC_RESULT_PARTS.items())
def test_parts_of_results(kind: str, fate: str) -> None:
    part = {"type": kind, "text": MARK, "tool_name": MARK}
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    calls = [
        {"type": "tool_use", "id": "c1", "name": "ToolSearch", "input": {"query": "x"}},
        {"type": "tool_use", "id": "c2", "name": "Read", "input": {}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": [part]},
        {"type": "tool_result", "tool_use_id": "c2", "content": "a long file"},
        {"type": "text", "text": "Tool loaded."},
    ]
    units = [
        {"role": "assistant", "content": [thinking, *calls]},
        {"role": "user", "content": results},
    ]
    shown = folded("anthropic", units)
    assert "a long file" not in json.dumps(shown)
    if fate == FOLDED:
        assert MARK not in json.dumps(shown)
        return
    loaded = [
        {"role": "assistant", "content": [thinking, calls[0]]},
        {"role": "user", "content": [results[0], {"type": "text", "text": "go on"}]},
    ]
    assert shown[-2:] == loaded
    assert shown[0]["content"][-1]["text"] == "the handover"


def test_what_the_system_says_between_messages_stays_the_systems_with_its_settings() -> None:
    notice = {
        "role": "system",
        "content": "[SYSTEM NOTIFICATION] a task ended",
        "output_config": {"effort": "low"},
    }
    only_settings = {"role": "system", "output_config": {"effort": "max"}, "content": []}
    past = {"role": "system", "content": MARK, "clear_at": "next_user_message"}
    reply = {"role": "assistant", "content": [{"type": "text", "text": "fine"}]}
    shown = folded("anthropic", [reply, notice, past, reply, only_settings])
    assert shown[1:3] == [notice, only_settings]
    assert [unit["role"] for unit in shown] == ["user", "system", "system", "user"]
    assert MARK not in json.dumps(shown), "the provider no longer shows it either"


def tool_call(protocol: str, name: str) -> Json:
    if protocol == "anthropic":
        call = {"type": "tool_use", "id": "call-1", "name": name, "input": {}}
        return {"role": "assistant", "content": [call]}
    if protocol == "openai-chat":
        function = {"name": name, "arguments": "{}"}
        call = {"id": "call-1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if protocol == "openai-responses":
        return {"type": "function_call", "call_id": "call-1", "name": name, "arguments": "{}"}
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}}}]}


@pytest.mark.parametrize(("protocol", "name"), [*itertools.product(PROTOCOLS, ["Skill", "skill", "activate_skill"])])  # fmt: skip
def test_a_loaded_skill_is_not_folded(protocol: str, name: str) -> None:
    result = WIRE_MODULES[protocol].result_message("call-1", name, "Follow these steps.")
    words = says(protocol, "Base directory for this skill: /skills/pdf")
    shown = folded(
        protocol, [tool_call(protocol, name), result, words, says(protocol, "old words")]
    )
    text = json.dumps(shown)
    assert name in text
    assert "Follow these steps." in text
    assert "Base directory for this skill" in text
    assert "old words" not in text
    other = folded(protocol, [tool_call(protocol, "Read"), result, says(protocol, "old words")])
    assert "Follow these steps." not in json.dumps(other)


UNKNOWN: Mapping[str, Sequence[Json]] = {
    "anthropic": (
        {"role": "user", "content": [{"type": "of_tomorrow", "about": MARK}]},
        {"role": "assistant", "content": [{"type": "of_tomorrow", "about": MARK}]},
        {"role": "user", "content": MARK, "setting_of_tomorrow": 1},
        {"role": "of_tomorrow", "content": MARK},
    ),
    "openai-chat": (
        {"role": "user", "content": [{"type": "of_tomorrow", "about": MARK}]},
        {"role": "user", "content": MARK, "setting_of_tomorrow": 1},
        {"role": "of_tomorrow", "content": MARK},
    ),
    "openai-responses": (
        {"type": "of_tomorrow", "about": MARK},
        {"role": "user", "content": [{"type": "of_tomorrow", "about": MARK}]},
        {"role": "of_tomorrow", "content": MARK},
    ),
    "gemini": (
        {"role": "user", "parts": [{"ofTomorrow": MARK}]},
        {"role": "of_tomorrow", "parts": [{"text": MARK}]},
        {"role": "user", "parts": [{"text": MARK}], "settingOfTomorrow": 1},
    ),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=40)
@given(data=st.data())
def test_what_nobody_knows_yet_goes_on_in_its_order(protocol: str, data: st.DataObject) -> None:
    known = [says(protocol, "old words"), WIRE_MODULES[protocol].user_message("more old words")]
    choices = st.sampled_from([*UNKNOWN[protocol], *known])
    units = data.draw(st.lists(choices, min_size=1, max_size=6))
    shown = json.dumps(folded(protocol, units))
    strange = [unit for unit in units if unit not in known]
    assert shown.count(MARK) == len(strange)
    assert "old words" not in shown
    kept = PreviousBody()
    once = folded(protocol, units, kept)
    assert folded(protocol, units, kept) == once


@pytest.mark.parametrize(
    ("protocol", "fields"),
    [
        ("anthropic", schemas.ANTHROPIC_BODY),
        ("openai-chat", schemas.CHAT_BODY),
        ("openai-responses", schemas.RESPONSES_BODY),
        ("gemini", schemas.GEMINI_BODY),
    ],
)
def test_every_field_of_the_body_stays_as_it_is(protocol: str, fields: Sequence[str]) -> None:
    name = MESSAGE_FIELDS[protocol]
    assert name in fields
    body: dict[str, Json] = {field: {"value": field} for field in [*fields, "of_tomorrow"]}
    body |= {"messages": [], "system": "s", "tools": [], "instructions": "i"}
    body[name] = [says(protocol, "old words"), says(protocol, "go on")]
    messages = WIRE_MODULES[protocol].parse_messages(body)
    entries: list[Entry] = [InsertedText("the handover", ((0, 1),)), UnchangedMessage(1)]
    shown = build_folded_body(protocol, body, messages, entries)
    assert {**shown, name: None} == {**body, name: None}
    assert "the handover" in json.dumps(shown[name])


def test_every_published_fate_is_one_of_two() -> None:
    tables = (schemas.ANTHROPIC_BLOCKS, schemas.RESPONSES_ITEMS, schemas.CHAT_ROLES)
    assert {fate for table in tables for fate in table.values()} == {FOLDED, CARRIED}


async def summarize(*_: object) -> tuple[str, Usage, str]:
    return "## Goal\nCount the files.\n## State\nAll are counted.\n" * 3, Usage(9, 0, 0, 9), "m"


async def test_after_a_handover_loaded_tools_and_the_systems_settings_are_still_there(
    tmp_path: Path,
) -> None:
    """Claude Code lost the tools that it had searched for, and its settings for a turn."""
    searched = {"type": "tool_use", "id": "ts1", "name": "ToolSearch", "input": {"query": "x"}}
    loaded = [{"type": "tool_reference", "tool_name": "mcp__a__b"}]
    notice = {"role": "system", "content": "[SYSTEM NOTIFICATION]", "output_config": {"effort": "low"}}  # fmt: skip
    units: list[Json] = [
        {"role": "user", "content": "do the work"},
        {"role": "assistant", "content": [searched]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "ts1", "content": loaded}]},
        notice,
    ]  # fmt: skip
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, summarize)
        for number in range(40):
            call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {}}
            lines = "\n".join(f"line {number} {line * 7919}" for line in range(600))
            units.append({"role": "assistant", "content": [call]})
            units.append(anthropic_gateway.result_message(f"c{number}", "Bash", lines))
            sent = await room.receive_request(*arrival(units))
            await room._tasks.wait_for_all_tasks()
        while not any(isinstance(entry, InsertedText) and entry.covered for entry in sent.entries):
            shorter = await room.fold_after_overflow(sent.ticket)
            assert shorter is not None
            sent = shorter
    body = {"messages": units}
    messages = anthropic_gateway.parse_messages(body)
    shown = build_folded_body("anthropic", body, messages, sent.entries)["messages"]
    assert len(shown) < 30
    blocks = [block for unit in shown if isinstance(unit["content"], list) for block in unit["content"]]  # fmt: skip
    assert searched in blocks
    assert [block["content"] for block in blocks if block.get("tool_use_id") == "ts1"] == [loaded]
    assert notice in shown


@pytest.mark.parametrize("detail", schemas.GEMINI_PART_DETAILS)
def test_details_of_a_part_go_with_it(detail: str) -> None:
    part = {"text": MARK, detail: True}
    assert MARK not in json.dumps(folded("gemini", [{"role": "model", "parts": [part]}]))
    alone = {"role": "user", "parts": [{detail: {"about": MARK}}]}
    is_history = detail == "thought"
    assert (MARK not in json.dumps(folded("gemini", [alone]))) == is_history


@pytest.mark.parametrize("field", schemas.CHAT_ASSISTANT_FIELDS)
def test_fields_of_a_reply_go_with_it(field: str) -> None:
    reply = {"role": "assistant", "content": "words"}
    reply.setdefault(field, MARK)
    assert MARK not in json.dumps(folded("openai-chat", [reply]))


@pytest.mark.parametrize(("role", "fields"), schemas.ANTHROPIC_ROLES.items())
def test_fields_of_messages_are_known_or_their_message_goes_on(
    role: str, fields: Sequence[str]
) -> None:
    message = dict.fromkeys(fields, MARK) | {"role": role, "content": MARK}
    shown = folded("anthropic", [message])
    assert (message in shown) == (role == "system")
    assert (MARK in json.dumps(shown)) == (role == "system")
