"""Listens to the reply to a request that goes on unread, for what it says of its cost."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import httpx

from helix_desktop.decompression import DecodedTooLarge, UnreadableCoding
from helix_desktop.engine.facts import Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import provider_reply_bodies
from helix_desktop.gateway.request_parsing import IncomingRequest
from helix_desktop.json_values import object_at, text_at
from helix_desktop.protocols.gateway_message import Json
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.protocols.protocol_table import WIRE_MODULES

MOST_HEARD_BYTES = 4 << 20  # In bytes. What a longer reply cost is not known.


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """What a reply says of its cost. `model`: that answered; empty: it does not say."""

    usage: Usage = Usage()
    model: str = ""


class UnreadReply:
    """A reply as it is relayed. `status` is 0 until it has begun."""

    def __init__(self) -> None:
        self.status = 0
        self._coding = ""
        self._is_stream = False
        self._content = bytearray()
        self._is_too_long = False

    def begin_reply(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self._coding = provider_reply_bodies.coding_of_reply(response)
        self._is_stream = "event-stream" in response.headers.get("content-type", "")

    def add_chunk(self, chunk: bytes) -> None:
        if len(self._content) + len(chunk) > MOST_HEARD_BYTES:
            self._is_too_long = True
            self._content.clear()
        if not self._is_too_long:
            self._content += chunk

    async def read_reported_usage(self, incoming: IncomingRequest) -> ReportedUsage:
        """Return what the reply says, or nothing if it cannot be read."""
        if self._is_too_long:
            return ReportedUsage()
        # Whatever a provider may answer, the agent has it already.
        with suppress(
            ValueError, KeyError, TypeError, AttributeError, DecodedTooLarge, UnreadableCoding
        ):
            value: Json
            if self._is_stream:
                wire = WIRE_MODULES[incoming.protocol]
                value = await asyncio.to_thread(
                    provider_reply_bodies.parse_reply_events,
                    wire,
                    bytes(self._content),
                    self._coding,
                    may_be_cut=True,  # The agent may have stopped it. It has cost something.
                )
            else:
                value = await provider_reply_bodies.parse_whole_reply(self._content, self._coding)
            return _usage_in_reply(incoming.protocol, value)
        return ReportedUsage()


def _usage_in_reply(protocol: str, value: Json) -> ReportedUsage:
    """Return what a whole reply reports."""
    reply = value
    if isinstance(value, list) and value:
        reply = value[-1]  # Gemini streams a list, whose last part has the figures.
    if not isinstance(reply, dict):
        return ReportedUsage()
    figures = object_at(reply, "usage") or object_at(reply, "usageMetadata")
    if not figures:
        return ReportedUsage()
    wire = WIRE_MODULES[_protocol_of_figures(protocol, figures)]
    model = text_at(reply, "model") or text_at(reply, "modelVersion")
    return ReportedUsage(wire.parse_usage(figures), model)


def _protocol_of_figures(protocol: str, figures: Mapping[str, Json]) -> str:
    """Return whose figures these are. OpenAI's two protocols have the same headers, and a path that
    nobody knows may be of either.
    """
    if protocol in ("openai-chat", responses_gateway.NAME) and "input_tokens" in figures:
        return responses_gateway.NAME
    return protocol
