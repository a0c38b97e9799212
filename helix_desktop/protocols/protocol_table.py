"""The protocols by name, each declared in its own module."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from helix_desktop.json_values import text_at
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import Json
from helix_desktop.protocols.gateway_protocol import GatewayProtocol
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.hidden_calls import HiddenCallFilter
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.protocols.openai_responses import responses_gateway

# All have the same functions. `parse_messages`: `before` has the first messages, if already parsed.
# `ReplyAssembler.whole_reply` returns a streamed reply as it would be without a stream.
WIRE_MODULES: Mapping[str, ModuleType] = {
    wire.NAME: wire for wire in (anthropic_gateway, chat_gateway, responses_gateway, gemini_gateway)
}
PROTOCOLS: Mapping[str, GatewayProtocol] = {
    name: wire.PROTOCOL for name, wire in WIRE_MODULES.items()
}
MESSAGE_FIELDS: Mapping[str, str] = {
    name: protocol.messages_field for name, protocol in PROTOCOLS.items()
}
CALL_FILTERS: Mapping[str, Callable[..., HiddenCallFilter]] = {
    name: protocol.call_filter for name, protocol in PROTOCOLS.items()
}
# What people know the protocols by.
PROTOCOL_TITLES: Mapping[str, str] = {
    anthropic_gateway.NAME: "Anthropic Messages",
    chat_gateway.NAME: "OpenAI Chat Completions",
    responses_gateway.NAME: "OpenAI Responses",
    gemini_gateway.NAME: "Gemini",
}


def find_protocol_of_reply(value: Json) -> str:
    """Return the protocol of a whole reply or of an event of a stream, or an empty string if
    the value alone does not say it.
    """
    kind = text_at(value, "type")
    object_kind = text_at(value, "object")
    if object_kind.startswith("chat.completion"):
        return chat_gateway.NAME
    if object_kind == "response" or kind.startswith("response."):
        return responses_gateway.NAME
    if kind in ("message", "message_start"):
        return anthropic_gateway.NAME
    if isinstance(value, dict) and "candidates" in value:
        return gemini_gateway.NAME
    return ""


def with_messages(wire: str, body: Mapping[str, Json], units: Sequence[Json]) -> dict[str, Json]:
    """Return the request with these messages."""
    protocol = PROTOCOLS[wire]
    changed_body = dict(body)
    changed_body[protocol.messages_field] = protocol.value_of_messages(units)
    return changed_body
