"""The protocols by their names. A new one has its line in each of these tables."""

from collections.abc import Callable, Mapping
from types import ModuleType

from helix_desktop.protocols.anthropic import anthropic_wire
from helix_desktop.protocols.gemini import gemini_wire
from helix_desktop.protocols.hidden_calls import HiddenCallFilter
from helix_desktop.protocols.openai_chat import chat_wire
from helix_desktop.protocols.openai_responses import responses_wire

WIRE_MODULES: Mapping[str, ModuleType] = {
    wire.NAME: wire for wire in (anthropic_wire, chat_wire, responses_wire, gemini_wire)
}
MESSAGE_FIELDS = {
    anthropic_wire.NAME: "messages",
    chat_wire.NAME: "messages",
    responses_wire.NAME: "input",
    gemini_wire.NAME: "contents",
}
CALL_FILTERS: Mapping[str, Callable[..., HiddenCallFilter]] = {
    anthropic_wire.NAME: anthropic_wire.AnthropicCallFilter,
    chat_wire.NAME: chat_wire.ChatCallFilter,
    responses_wire.NAME: responses_wire.ResponsesCallFilter,
    gemini_wire.NAME: gemini_wire.GeminiCallFilter,
}
