"""Builds what the provider is sent for an agent's request: the agent's own bytes, or a
changed body with folds and with the tools by which the model recalls.
"""

import functools
from collections.abc import Sequence
from typing import Any

import httpx
import orjson

from helix_desktop.engine.facts import ToolSpec
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import folded_request
from helix_desktop.gateway.conversations_port import Sent
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.request_parsing import ParsedRequest
from helix_desktop.protocols.gateway_message import Json
from helix_desktop.protocols.protocol_table import WIRE_MODULES


@dataclass(frozen=True, slots=True)
class SentBody:
    """A body as it goes to the provider. `pieces`: its bytes (None: the agent's own).
    `has_tools`: with the recall tools.
    """

    pieces: BodyPieces | None
    value: dict[str, Json]
    has_tools: bool = False


@dataclass(frozen=True, slots=True)
class AnsweredBody:
    """What was sent, and the provider's response to it."""

    response: httpx.Response
    value: dict[str, Json]
    has_tools: bool


def are_messages_unchanged(request: ParsedRequest, sent: Sent) -> bool:
    """Whether every message is sent as it came."""
    count = len(request.messages_after_instructions)
    return folded_request.are_all_unchanged(sent.entries, count)


def build_sent_body(
    request: ParsedRequest, sent: Sent, *, has_tools: bool, is_unchanged: bool = False
) -> SentBody:
    """Build what the provider is sent: the messages as `sent` says, and, with `has_tools`, the
    tools by which the model recalls what was shortened.

    `is_unchanged`: every message is sent as it came.
    """
    parsed = request.body
    if is_unchanged and not has_tools:
        return SentBody(None, parsed.value)

    value: dict[str, Json] = parsed.value
    if has_tools:
        wire: Any = WIRE_MODULES[parsed.wire]
        value = wire.with_added_tools(value, _recall_tools_of_protocol(parsed.wire))
    if not is_unchanged:
        value = folded_request.build_folded_body(
            parsed.wire, value, parsed.messages, sent.entries, parsed.marked, parsed.previous
        )
    return SentBody(parsed.encode_changed_body(value), value, has_tools)


@functools.cache
def _recall_tools_of_protocol(protocol: str) -> list[dict[str, Json]]:
    wire: Any = WIRE_MODULES[protocol]
    tools: list[dict[str, Json]] = wire.tools_as_json(list_recall_tools())
    return tools


@functools.cache
def list_recall_tools() -> Sequence[ToolSpec]:
    """Return the tools to add to the agent's. Imported late, so that a restarted
    gateway listens sooner.
    """
    from helix_desktop.tools import recall_tools

    tools: list[ToolSpec] = []
    # Their order stays the same, so that the provider's cache stays valid.
    for declared in (recall_tools.RECALL, recall_tools.SEARCH_CACHE, recall_tools.RECALL_HISTORY):
        schema = orjson.dumps(declared.schema).decode()
        tools.append(ToolSpec(declared.name, declared.description, schema))
    return tuple(tools)
