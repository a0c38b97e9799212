"""Try a client against any server that speaks a provider's protocol, and time it.
Nobody's verdict but the figures'.

    python -m tests.benchmarks.providers KIND BASE_URL MODEL [KEY]

Asks for text, then offers a tool, runs what was called, and gives the result back;
prints what came and how fast.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing

from helix_desktop.engine.facts import Text, ToolCall, ToolSpec
from helix_desktop.engine.messages import (
    Delta,
    Message,
    Reply,
    Request,
    RetryDelay,
    Role,
    ToolResult,
)
from helix_desktop.engine.ports import ModelClient
from helix_desktop.errors import HelixError
from helix_desktop.providers import model_listing
from helix_desktop.providers.http_transport import ProviderConnections, ProviderPatience
from helix_desktop.providers.provider_catalog import ProviderConfig, connect_model_client

TOOL = ToolSpec(
    "read_file",
    "Read a file.",
    '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}',
)


def main(kind: str, base_url: str, model: str, key: str | None = None) -> int:
    return asyncio.run(
        _all(
            ProviderConfig(
                "server", kind, base_url, patience=ProviderPatience(first_byte=60, silence=20)
            ),
            model,
            key,
        )
    )


async def _all(config: ProviderConfig, model: str, key: str | None) -> int:
    connections = ProviderConnections()
    try:
        await _list(config, key, connections)
        client = connect_model_client(config, model, key, connections=connections)
        plain = Request(model, "Be brief.", (_user("Hello"),), max_output=512)
        await _ask("text", client, plain)
        offered = Request(
            model, "Be brief.", (_user("Read the file a.txt"),), (TOOL,), max_output=512
        )
        reply = await _ask("a call", client, offered)
        calls = [part for part in reply.parts if isinstance(part, ToolCall)] if reply else []
        if reply and calls:
            results = tuple(ToolResult(call.id, "the content of a.txt") for call in calls)
            messages = (
                *offered.messages,
                Message(Role.ASSISTANT, reply.parts),
                Message(Role.USER, results),
            )
            await _ask(
                "its result", client, Request(model, "Be brief.", messages, (TOOL,), max_output=512)
            )
        await _ask("text again, warm", client, plain)
    finally:
        await connections.aclose()
    return 0


async def _list(config: ProviderConfig, key: str | None, connections: ProviderConnections) -> None:
    try:
        models = await model_listing.list_models(config, key, connections)
        print(f"{'models':<20} {len(models)}: {', '.join(model.id for model in models[:6])}")
    except HelixError as error:
        print(f"{'models':<20} {error}")


def _user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


async def _ask(name: str, client: ModelClient, request: Request) -> Reply | None:
    started = time.perf_counter()
    first = 0.0
    pieces = 0
    waits = 0
    last: Delta | None = None
    try:
        async with aclosing(client.stream_reply(request)) as stream:  # type: ignore[type-var]
            async for last in stream:
                waits += isinstance(last, RetryDelay)
                pieces += not isinstance(last, RetryDelay | Reply)
                first = first or time.perf_counter() - started
    except HelixError as error:
        print(f"{name:<20} {type(error).__name__}: {error}")
        return None
    assert isinstance(last, Reply)
    seconds = time.perf_counter() - started
    said = " ".join(
        part.text
        if isinstance(part, Text)
        else f"{type(part).__name__}({getattr(part, 'arguments', '')})"
        for part in last.parts
    )
    print(
        f"{name:<20} {last.stop.value:<8} {pieces:>4} pieces, {waits} waits, first {first * 1000:6.1f} ms, all "
        f"{seconds * 1000:7.1f} ms, {last.usage.input}+{last.usage.output} tokens: {said[:90]!r} {last.why}"
    )
    return last


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
