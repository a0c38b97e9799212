"""Every field of every message that the providers' libraries on npm publish, folded for real: it goes on, or it is
recorded, or decided_fields.json says that nothing stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from helix_desktop.gateway.carried_state import carried_units
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import Arrival
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.protocols.gateway_message import PieceEdit, PieceKind
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES
from tests.faults.gateway_histories import _nobody, bench
from tests.protocols import published_schemas as schemas
from tests.protocols.published_requests import TYPES, Json, Place, RequestGenerator, words_in
from tests.protocols.test_published_fields import DECIDED, LEFT_OUT, recorded_words

PROTOCOLS = [name for name in TYPES if name not in ("versions", "bodies")]
BODIES = {
    "anthropic": schemas.ANTHROPIC_BODY,
    "openai-responses": schemas.RESPONSES_BODY,
    "openai-chat": schemas.CHAT_BODY,
}
MESSAGES_OF_CONVERSATION = 600


def is_decided_to_go(protocol: str, place: Place) -> bool:
    """Whether it is written down that nothing stands for what is at this place."""
    for step in place:
        kind, _, field = step.rpartition(".")
        if step in schemas.FORM_INSIDE.get(protocol, ()) or field == "cache_control":
            return True
        for group, kinds in DECIDED.items():
            if group.startswith(protocol) and kinds.get(kind, {}).get(field) in (
                schemas.FORM,
                LEFT_OUT,
            ):
                return True
    return False


def with_partner(protocol: str, message: Json) -> list[Json]:
    """Return a message with the result of its call, or the call of its result."""
    match protocol:
        case "anthropic":
            return anthropic_pair(message)
        case "openai-responses":
            return responses_pair(message)
        case "openai-chat":
            return chat_pair(message)
    return gemini_pair(message)


def anthropic_pair(message: Json) -> list[Json]:
    blocks = message.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        if block["type"] == "tool_use":
            result = {"type": "tool_result", "tool_use_id": block["id"], "content": "fine"}
            return [
                {**message, "role": "assistant"},
                {"role": "user", "content": [result]},
            ]
        if block["type"] == "tool_result":
            call = {"type": "tool_use", "id": block["tool_use_id"], "name": "read", "input": {}}
            return [{"role": "assistant", "content": [call]}, {**message, "role": "user"}]
    return [message]


def responses_pair(item: Json) -> list[Json]:
    match item.get("type"):
        case "function_call" | "custom_tool_call" as kind:
            return [
                item,
                {"type": f"{kind}_output", "call_id": item["call_id"], "output": "fine"},
            ]
        case "function_call_output" | "custom_tool_call_output" as kind if "call_id" in item:
            called = kind.removesuffix("_output")
            return [{"type": called, "call_id": item["call_id"], "name": "read"}, item]
    return [item]


def chat_pair(message: Json) -> list[Json]:
    if message["role"] in ("tool", "function"):
        call_id = message.get("tool_call_id") or message["name"]
        call = {"id": call_id, "function": {"name": "read", "arguments": "{}"}}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}, message]
    for call in message.get("tool_calls", ()):
        return [message, {"role": "tool", "tool_call_id": call["id"], "content": "fine"}]
    return [message]


def gemini_pair(message: Json) -> list[Json]:
    for part in message.get("parts", ()):
        if "functionCall" in part:
            name = part["functionCall"].get("name", "")
            response = {"functionResponse": {"name": name, "response": {"output": "fine"}}}
            return [{**message, "role": "model"}, {"role": "user", "parts": [response]}]
        if "functionResponse" in part:
            call = {"functionCall": {"name": part["functionResponse"].get("name", ""), "args": {}}}
            return [{"role": "model", "parts": [call]}, {**message, "role": "user"}]
    return [message]


def describe_lost(generator: RequestGenerator, protocol: str, words: set[str]) -> set[str]:
    lost = set[str]()
    for word in words:
        place = generator.place_by_word[word]
        if not is_decided_to_go(protocol, place):
            lost.add(" > ".join(place))
    return lost


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_no_published_field_is_dropped_unsaid_by_a_fold(
    protocol: str, tmp_path: Path
) -> None:
    generator = RequestGenerator(protocol)
    wire = WIRE_MODULES[protocol]
    lost = set[str]()
    async with bench(tmp_path) as made:
        for number, group in enumerate(groups_of(generator.list_messages())):
            units = [wire.user_message("the task")]
            for message in group:
                units += [*with_partner(protocol, message), wire.user_message("so")]
            messages = wire.parse_messages({MESSAGE_FIELDS[protocol]: units})
            chain = compute_message_hashes(protocol, messages)
            conversations = LocalAgentConversations(made, _nobody)
            arrival = Arrival(protocol, "an agent", f"session {number}", "", "m", "", (), chain)
            sent = await conversations.receive_request(arrival, messages)
            await conversations.aclose()  # Once it is recorded.
            recorded = await recorded_words(made, sent.ticket.conversation)
            goes_on = carried_units(wire, messages[1:])
            lost |= describe_lost(
                generator, protocol, words_in(units) - words_in(goes_on) - words_in(recorded)
            )
    assert len(generator.place_by_word) > 60
    assert "\n".join(sorted(lost)) == ""


def groups_of(messages: Sequence[Json]) -> Iterator[Sequence[Json]]:
    for start in range(0, len(messages), MESSAGES_OF_CONVERSATION):
        yield messages[start : start + MESSAGES_OF_CONVERSATION]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_shortened_part_of_a_message_keeps_every_published_field(protocol: str) -> None:
    generator = RequestGenerator(protocol)
    wire = WIRE_MODULES[protocol]
    lost = set[str]()
    for unit in generator.list_messages():
        for message in wire.parse_messages({MESSAGE_FIELDS[protocol]: [unit]}):
            for position, piece in enumerate(message.pieces):
                is_shortened = piece.has_own_text and piece.kind is not PieceKind.REASONING
                if is_shortened and words_in(piece.text):
                    shown = wire.apply_edits(message, [PieceEdit(position, '{"note": "short"}')])
                    gone = words_in(message.units) - words_in(shown) - words_in(piece.text)
                    lost.update(" > ".join(generator.place_by_word[word]) for word in gone)
                    assert "short" in str(shown)
    assert "\n".join(sorted(lost)) == ""


@pytest.mark.parametrize("protocol", BODIES)
def test_every_published_field_of_a_body_is_known(protocol: str) -> None:
    assert set(TYPES["bodies"][protocol]) <= set(BODIES[protocol])
