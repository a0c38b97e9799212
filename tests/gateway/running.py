"""A gateway on a real port with a real workspace, and agents that speak to it as real ones do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from helix_desktop import concurrency, program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.gateway import gateway_server, gateway_socket, wrapped_agent
from helix_desktop.gateway.gateway_memory import GatewayMemory
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.moving_conversations import MovingConversations
from helix_desktop.gateway.registration import GatewayRegistration, GatewayRegistrations
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.event_stream import RawEventSplitter, parse_event_data
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.resident.resident_client import HeldRegistration

Json = Any
WIRES: Mapping[str, Any] = {
    wire.NAME: wire for wire in (anthropic_gateway, chat_gateway, responses_gateway, gemini_gateway)
}
PROTOCOLS = tuple(WIRES)
TOOL = "Bash"


@contextmanager
def running(
    home: Path,
    upstream: str,
    *,
    serves: bool = False,
    others: Sequence[GatewayRegistration] = (),
    **options: Any,
) -> Iterator[str]:
    """The gateway's address; it ends in order. `others`: further registrations."""
    where = program_folders.find_program_folders(home)
    registration = GatewayRegistration(
        gateway_server.read_or_create_token(where), upstream, **options
    )
    sock = gateway_socket.listen_on_loopback(0)
    reading, writing = os.pipe()  # When it is closed, the gateway ends in order.

    async def nobody(workspace: Any) -> Any:
        return await workspace_access.listen_for_commands(workspace, where) if serves else None

    def work() -> None:
        known = GatewayRegistrations(registration, *others)
        with os.fdopen(reading, "rb") as told:
            asyncio.run(gateway_server.serve_gateway(where, sock, known, "", nobody, told))

    thread = concurrency.start_thread(work, name="gateway", daemon=True)
    try:
        yield gateway_socket.agent_address(sock.getsockname()[1], registration.token)
    finally:
        os.close(writing)
        thread.join(200)


def wrapped(home: Path, upstream: str, **options: Any) -> HeldRegistration:
    """A registration with the resident of a home, which is started: to be used as a context."""
    where = program_folders.find_program_folders(home)
    return HeldRegistration(
        where,
        [*wrapped_agent.command_of_this_program(where)],
        GatewayRegistration("", upstream, **options),
    )


async def open_here(memory: GatewayMemory) -> LocalAgentConversations:
    """The conversations of the only workspace that a gateway has open, in its own process."""
    (moving,) = memory.list_open_conversations()
    assert isinstance(moving, MovingConversations)
    conversations = await moving._find_open_conversations()
    assert isinstance(conversations, LocalAgentConversations)
    return conversations


@dataclass
class Agent:
    """A client of one protocol. `units` is its own copy of the conversation."""

    protocol: str
    url: str
    streams: bool = True
    session: str = ""
    units: list[Json] = field(default_factory=list)
    system: str = "You are an agent."
    headers: dict[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)  # names of all calls it was shown
    patience: float = 60.0  # seconds

    def body(self) -> dict[str, Json]:
        """Its request."""
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        match self.protocol:
            case "anthropic":
                tools = [{"name": TOOL, "description": "run it", "input_schema": schema}]
                return {"model": "claude-sonnet-4-5", "max_tokens": 4000, "system": self.system, "tools": tools, "stream": self.streams, "messages": self.units}  # fmt: skip
            case "openai-chat":
                tool = {
                    "type": "function",
                    "function": {"name": TOOL, "description": "run it", "parameters": schema},
                }
                first: list[Json] = [{"role": "system", "content": self.system}]
                return {
                    "model": "gpt-5",
                    "tools": [tool],
                    "stream": self.streams,
                    "messages": [*first, *self.units],
                }
            case "openai-responses":
                flat = {
                    "type": "function",
                    "name": TOOL,
                    "description": "run it",
                    "parameters": schema,
                }
                return {"model": "gpt-5", "instructions": self.system, "tools": [flat], "stream": self.streams, "store": False, "input": self.units}  # fmt: skip
        declared = {
            "functionDeclarations": [{"name": TOOL, "description": "run it", "parameters": schema}]
        }
        return {
            "systemInstruction": {"parts": [{"text": self.system}]},
            "tools": [declared],
            "contents": self.units,
        }

    @property
    def path(self) -> str:
        paths = {
            "anthropic": "/v1/messages",
            "openai-chat": "/v1/chat/completions",
            "openai-responses": "/v1/responses",
        }
        kind = "streamGenerateContent?alt=sse" if self.streams else "generateContent"
        return paths.get(self.protocol) or f"/v1beta/models/gemini-2.5-pro:{kind}"

    def say(self, text: str) -> None:
        self.units.append(WIRES[self.protocol].user_message(text))

    def ask(self) -> list[tuple[str, str, str]]:
        """One request; the calls it was shown: id, name, arguments. Its copy has the reply then."""
        headers = {"x-api-key": "secret-key-of-the-client", **self.headers}
        if self.session:
            headers["x-claude-code-session-id"] = self.session
        reply = httpx.post(
            self.url + self.path,
            json=self.body(),
            headers=headers,
            timeout=self.patience,
            verify=False,  # noqa: S501
        )
        if reply.status_code != 200:
            raise AssertionError(f"{reply.status_code}: {reply.text[:300]}")
        value = self._value(reply)
        answer = WIRES[self.protocol].parse_reply(value)
        self.value = value
        self.units.extend(self._copied(unit) for unit in answer.message.units)
        calls = [
            (piece.id, piece.name, piece.text)
            for piece in answer.message.pieces
            if piece.kind.value == "call"
        ]
        self.seen.extend(name for _, name, _ in calls)
        return calls

    def _copied(self, unit: Json) -> Json:
        return json.loads(json.dumps(unit))

    def _value(self, reply: httpx.Response) -> Json:
        if not self.streams:
            return reply.json()
        reading = WIRES[self.protocol].ReplyAssembler()
        for raw in RawEventSplitter().feed_raw_chunk(reply.content):
            if (event := parse_event_data(raw)) is not None:
                reading.add_reply_event(event)
        if not reading.is_done:
            raise AssertionError(f"the stream broke off: {reply.text[-300:]}")
        return reading.whole_reply()

    def results(self, outputs: Sequence[tuple[str, str, str]]) -> None:
        """Answer calls: id, name, output."""
        wire = WIRES[self.protocol]
        made = [wire.result_message(call, name, text) for call, name, text in outputs]
        if self.protocol == "anthropic":
            made = [
                {"role": "user", "content": [block for unit in made for block in unit["content"]]}
            ]
        elif self.protocol == "gemini":
            made = [{"role": "user", "parts": [part for unit in made for part in unit["parts"]]}]
        self.units.extend(made)
