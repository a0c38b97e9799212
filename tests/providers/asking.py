"""What the tests of every protocol need: a clock that does not wait, requests, and the
protocols side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from helix_desktop.engine.facts import Text, ToolCall, ToolSpec
from helix_desktop.engine.messages import (
    Delta,
    Message,
    MessagePart,
    Reply,
    Request,
    Role,
    ToolResult,
)
from helix_desktop.engine.ports import ModelClient
from helix_desktop.providers.http_transport import ProviderConnections, ProviderPatience
from helix_desktop.providers.provider_catalog import ProviderConfig, connect_model_client
from tests.peers import anthropic_server, chat_server, gemini_server, responses_server
from tests.peers.peer import Answer, Peer

READ = ToolSpec(
    "read",
    "Read a file.",
    '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}',
)
# Tests that wait give their own.
QUICK = ProviderPatience(connect=60, first_byte=60, silence=60, after_end=60, end_of_body=60)


@dataclass
class Instant:
    """A clock whose sleeps end at once and are written down."""

    slept: list[float] = field(default_factory=list)

    def current_time(self) -> float:
        return 1_000_000.0 + self.steady_time()

    def steady_time(self) -> float:
        return sum(self.slept)

    async def sleep_seconds(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


def user(*parts: MessagePart | str) -> Message:
    return Message(
        Role.USER, tuple(Text(part) if isinstance(part, str) else part for part in parts)
    )


def assistant(*parts: MessagePart | str) -> Message:
    return Message(
        Role.ASSISTANT, tuple(Text(part) if isinstance(part, str) else part for part in parts)
    )


def asking(
    *messages: Message, system: str = "Be brief.", tools: Sequence[ToolSpec] = (READ,), **more: Any
) -> Request:
    return Request("peer/scripted", system, messages or (user("Hello"),), tuple(tools), **more)


def after_a_call(call_id: str = "call_00000001", **more: Any) -> Request:
    """A request inside a tool loop."""
    call = ToolCall(call_id, "read", '{"path": "a.txt"}')
    return asking(
        user("Read it"),
        assistant("Reading.", call),
        user(ToolResult(call_id, "content of a")),
        **more,
    )


@dataclass(frozen=True)
class Protocol:
    """One protocol as the conformance tests need it: its peer, and how that says what
    all providers say.
    """

    kind: str
    peer: type[Peer]
    reply: Callable[..., Answer]
    refused: Callable[..., Answer]
    too_long: Answer
    bad_key: Answer
    unknown_model: Answer

    def config(self, peer: Peer, **more: Any) -> ProviderConfig:
        return ProviderConfig("peer", self.kind, peer.base_url, **{"patience": QUICK, **more})

    def client(
        self, peer: Peer, connections: ProviderConnections, clock: Instant, **more: Any
    ) -> ModelClient:
        return connect_model_client(
            self.config(peer, **more), "scripted", connections=connections, clock=clock
        )


PROTOCOLS = (
    Protocol(
        "openai-chat",
        chat_server.ChatServer,
        chat_server.reply,
        chat_server.refused,
        chat_server.too_long(),
        chat_server.refused(401, "Incorrect API key provided", code="invalid_api_key"),
        chat_server.refused(
            404,
            "The model `scripted` does not exist or you do not have access",
            code="model_not_found",
        ),
    ),
    Protocol(
        "openai-responses",
        responses_server.ResponsesServer,
        responses_server.reply,
        chat_server.refused,
        chat_server.refused(
            400,
            "Your input exceeds the context window of this model.",
            code="context_length_exceeded",
        ),
        chat_server.refused(401, "Incorrect API key provided", code="invalid_api_key"),
        chat_server.refused(
            400, "The requested model 'scripted' does not exist.", code="model_not_found"
        ),
    ),
    Protocol(
        "anthropic",
        anthropic_server.AnthropicServer,
        anthropic_server.reply,
        anthropic_server.refused,
        anthropic_server.refused(400, "prompt is too long: 208310 tokens > 200000 maximum"),
        anthropic_server.refused(401, "invalid x-api-key", kind="authentication_error"),
        anthropic_server.refused(404, "model: scripted", kind="not_found_error"),
    ),
    Protocol(
        "gemini",
        gemini_server.GeminiServer,
        gemini_server.reply,
        gemini_server.refused,
        gemini_server.refused(
            400,
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        ),
        gemini_server.refused(
            400,
            "API key not valid. Please pass a valid API key.",
            details=[{"reason": "API_KEY_INVALID"}],
        ),
        gemini_server.refused(
            404, "models/scripted is not found for API version v1beta", state="NOT_FOUND"
        ),
    ),
)


async def heard(client: ModelClient, request: Request) -> tuple[list[Delta], Reply]:
    """All deltas of one request; the last one, its reply."""
    deltas: list[Delta] = []
    async with aclosing(client.stream_reply(request)) as stream:  # type: ignore[type-var]
        deltas += [delta async for delta in stream]
    reply = deltas[-1]
    assert isinstance(reply, Reply)
    assert not any(isinstance(delta, Reply) for delta in deltas[:-1])
    return deltas, reply
