"""What a server over HTTP sends is read up to a size and a number of values."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from helix_desktop.mcp_client import server_message_limits
from helix_desktop.mcp_client.server_message_limits import (
    MOST_OPEN_REQUESTS,
    MOST_UNASKED_AT_ONCE,
    UNASKED_PER_SECOND,
    create_limited_client,
    limit_reply_body,
    limit_unasked_messages,
)


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece

    async def aclose(self) -> None:
        self.is_closed = True


async def read(pieces: Sequence[bytes], **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    stream = Pieces(pieces)
    response = httpx2.Response(200, headers=named, stream=stream)
    await limit_reply_body(response)
    try:
        return await response.aread()
    finally:
        await response.aclose()
        assert stream.is_closed


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_message_limits, "MOST_VALUES", 10)
    monkeypatch.setattr(server_message_limits, "LONGEST", 1_000)


async def test_a_reply_is_read_and_decompressed_once() -> None:
    assert await read([b'{"a"', b": 1}"], content_type="application/json") == b'{"a": 1}'
    packed = gzip.compress(b"[1, 2]")
    reply = await read(
        [packed[:5], packed[5:]], content_encoding="gzip", content_length=str(len(packed))
    )
    assert reply == b"[1, 2]"


async def test_headers_promise_no_coding_and_no_length_any_more() -> None:
    response = httpx2.Response(
        200, headers={"content-encoding": "gzip", "content-length": "5"}, stream=Pieces([])
    )
    await limit_reply_body(response)
    assert "content-encoding" not in response.headers
    assert "content-length" not in response.headers


@pytest.mark.parametrize(
    "pieces",
    [[b"x" * 1_001], [gzip.compress(b"x" * 1_001)], [b"[" + b"1," * 6, b"1," * 6]],
    ids=["long", "long when unpacked", "many values"],
)
async def test_a_reply_beyond_a_limit_fails(pieces: list[bytes]) -> None:
    coding = {"content_encoding": "gzip"} if pieces[0][:2] == b"\x1f\x8b" else {}
    with pytest.raises(httpx2.StreamError, match="the server's reply"):
        await read(pieces, **coding)


async def test_what_is_no_such_coding_fails_with_a_sentence() -> None:
    with pytest.raises(httpx2.StreamError, match="cannot be read"):
        await read([b"not gzip at all"], content_encoding="gzip")


@pytest.mark.parametrize("end", range(1, len(gzip.compress(b"[1, 2]"))))
async def test_half_a_compressed_reply_fails_with_a_sentence(end: int) -> None:
    half = gzip.compress(b"[1, 2]", mtime=0)[:end]
    with pytest.raises(httpx2.StreamError, match="a part is missing"):
        await read([half], content_encoding="gzip")
    # Whole events are whole, even if the server never ends its compression.
    event = gzip.compress(EVENT)[:-8]
    headers = {"content_encoding": "gzip", "content_type": "text/event-stream"}
    assert await read([event], **headers) == EVENT


EVENT = b"data: [1,2,3,4,5,6]\n\n"


async def test_each_event_of_a_stream_has_the_limit_for_itself() -> None:
    events = [EVENT] * 5
    assert await read(events, content_type="text/event-stream") == EVENT * 5
    crlf = EVENT.replace(b"\n", b"\r\n")
    assert await read([crlf] * 5, content_type="text/event-stream; charset=utf-8") == crlf * 5
    cut = [EVENT[:-1], b"\n" + EVENT[:-1], b"\n" + EVENT]
    assert await read(cut, content_type="text/event-stream") == EVENT * 3


@pytest.mark.parametrize(
    "pieces", [[b"data: [" + b"1," * 12], [b"data: [" + b"1," * 6, b"1," * 6], [EVENT, b"data: [" + b"1," * 12]]
)  # fmt: skip
async def test_an_event_of_very_many_values_fails(pieces: list[bytes]) -> None:
    with pytest.raises(httpx2.StreamError, match="more than 10 values"):
        await read(pieces, content_type="text/event-stream")


async def test_the_client_limits_each_reply() -> None:
    async with create_limited_client({"x-own": "1"}) as client:
        assert client.event_hooks["response"] == [limit_reply_body]
        assert client.headers["x-own"] == "1"


async def test_of_a_flood_of_notifications_most_are_left_out_and_every_reply_arrives() -> None:
    """The SDK starts a task for each. A changed list that was left out is asked for nevertheless."""
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](10_000)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](1)
    for number in range(4_000):
        progress = types.JSONRPCNotification(jsonrpc="2.0", method="notifications/progress")
        reply = types.JSONRPCResponse(jsonrpc="2.0", id=number, result={})
        to_client.send_nowait(SessionMessage(progress))
        to_client.send_nowait(SessionMessage(reply))
    changed = types.JSONRPCNotification(jsonrpc="2.0", method="notifications/tools/list_changed")
    for _ in range(50):
        to_client.send_nowait(SessionMessage(changed))
    to_client.close()

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        yield from_server, to_server

    relistings: list[None] = []
    replies: list[object] = []
    notifications = 0
    began = time.monotonic()
    with from_client, from_server, to_server:
        async with limit_unasked_messages(transport(), lambda: relistings.append(None)) as streams:
            async for received in streams[0]:
                assert isinstance(received, SessionMessage)
                if isinstance(received.message, types.JSONRPCResponse):
                    replies.append(received.message.id)
                else:
                    notifications += 1
    regained = (time.monotonic() - began) * UNASKED_PER_SECOND
    assert replies == list(range(4_000))
    assert MOST_UNASKED_AT_ONCE <= notifications <= MOST_UNASKED_AT_ONCE + regained + 1
    assert relistings


async def test_requests_that_a_server_cancels_or_sends_twice_do_not_hold_those_after_them() -> None:
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](10_000)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](1)
    for number in range(2 * MOST_OPEN_REQUESTS):
        ping = types.JSONRPCRequest(jsonrpc="2.0", id=number, method="ping")
        cancelled = types.JSONRPCNotification(
            jsonrpc="2.0", method="notifications/cancelled", params={"requestId": number}
        )
        for message in (ping, ping, cancelled):
            to_client.send_nowait(SessionMessage(message))
    to_client.close()

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        yield from_server, to_server

    requests: list[object] = []
    with from_client, from_server, to_server:
        async with (
            asyncio.timeout(60),
            limit_unasked_messages(transport(), lambda: None) as streams,
        ):
            async for received in streams[0]:
                assert isinstance(received, SessionMessage)
                if isinstance(received.message, types.JSONRPCRequest):
                    requests.append(received.message.id)
    assert requests == list(range(2 * MOST_OPEN_REQUESTS))
