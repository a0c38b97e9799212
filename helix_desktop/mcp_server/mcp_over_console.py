"""MCP over a console: one JSON message per line. The console may be that of a distant caller."""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from helix_desktop.mcp_server.client_line import LONGEST, MOST_VALUES, iterate_input_lines

log = logging.getLogger(__name__)

Read = Callable[[], Awaitable[bytes]]
Write = Callable[[bytes], Awaitable[None]]
Incoming = SessionMessage | Exception


async def serve_mcp_over_console(server: Server[Any], read: Read, write: Write) -> None:
    """Serve until the input ends."""
    async with open_message_streams(read, write) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def open_message_streams(
    read: Read, write: Write
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
]:
    """Yield the input and output lines as the SDK's streams."""
    # The SDK reads `incoming` and writes `outgoing`. We have the other ends.
    to_server, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    # Closed with the input, so that pending requests fail instead of waiting for ever.
    answers = outgoing.clone()

    async def receive_messages() -> None:
        async with to_server, answers:
            async for line in iterate_input_lines(read):
                received = parse_message_line(line)
                if isinstance(received, types.JSONRPCError):
                    await answers.send(SessionMessage(received))
                else:
                    await to_server.send(received)

    async def send_messages() -> None:
        async with from_server:
            async for message in from_server:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await write(text.encode() + b"\n")

    async with anyio.create_task_group() as group:
        group.start_soon(receive_messages)
        group.start_soon(send_messages)
        yield incoming, outgoing
        group.cancel_scope.cancel()


def parse_message_line(line: bytes) -> SessionMessage | types.JSONRPCError:
    """Return the message, or an error that says what is wrong with the line."""
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        log.warning("a message of %d bytes over stdio is no JSON-RPC", len(line))
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return _build_error_message(
            None,
            types.PARSE_ERROR,
            f"This is no JSON, or a line of more than {LONGEST:,} bytes or {MOST_VALUES:,} values.",
        )
    return _build_error_message(
        _request_id_of(request), types.INVALID_REQUEST, "This is no message of JSON-RPC 2.0."
    )


def _request_id_of(request: Any) -> types.RequestId | None:
    """Return the id of a request, or None for an answer, whose id is not ours to use."""
    if not isinstance(request, dict) or "method" not in request:
        return None
    number = request.get("id")
    if type(number) in {int, str} and str(number).isprintable():
        return number
    return None


def _build_error_message(
    request_id: types.RequestId | None, code: int, words: str
) -> types.JSONRPCError:
    return types.JSONRPCError(
        jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=words)
    )
