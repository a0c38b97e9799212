"""The protocols by name. A new one needs a line in each of these tables."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import Json
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.hidden_calls import HiddenCallFilter
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.protocols.openai_responses import responses_gateway

# All have the same functions. `parse_messages`: `before` has the first messages, if already parsed.
# `ReplyAssembler.whole_reply` returns a streamed reply as it would be without a stream.
WIRE_MODULES: Mapping[str, ModuleType] = {
    wire.NAME: wire for wire in (anthropic_gateway, chat_gateway, responses_gateway, gemini_gateway)
}
MESSAGE_FIELDS = {
    anthropic_gateway.NAME: "messages",
    chat_gateway.NAME: "messages",
    responses_gateway.NAME: "input",
    gemini_gateway.NAME: "contents",
}
CALL_FILTERS: Mapping[str, Callable[..., HiddenCallFilter]] = {
    anthropic_gateway.NAME: anthropic_gateway.AnthropicCallFilter,
    chat_gateway.NAME: chat_gateway.ChatCallFilter,
    responses_gateway.NAME: responses_gateway.ResponsesCallFilter,
    gemini_gateway.NAME: gemini_gateway.GeminiCallFilter,
}


def with_messages(wire: str, body: Mapping[str, Json], units: Sequence[Json]) -> dict[str, Json]:
    """Return the request with these messages. In OpenAI's Responses, a text alone is one, too."""
    changed_body = dict(body)
    changed_body[MESSAGE_FIELDS[wire]] = _value_of_messages(wire, units)
    return changed_body


def _value_of_messages(wire: str, units: Sequence[Json]) -> Json:
    """Return what a request has in its field for messages."""
    if wire != responses_gateway.NAME:
        return list(units)
    if len(units) == 1 and isinstance(units[0], str):
        return units[0]
    items: list[Json] = []
    for unit in units:
        if isinstance(unit, str):
            items.append(responses_gateway.user_message(unit))
        else:
            items.append(unit)
    return items
