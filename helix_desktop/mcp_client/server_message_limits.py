"""Limits what MCP servers send: the size of remote servers' replies, which the SDK reads and
decompresses without limits, and how much any server sends that nobody asked for, for which the SDK
starts a task each.
"""

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import anyio
import httpx2
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage

from helix_desktop.decompression import BodyDecompressor, DecodedTooLarge, UnreadableCoding
from helix_desktop.json_values import ValueLimit, object_at
from helix_desktop.mcp_client.process_transport import LONGEST, MOST_VALUES

MOST_UNASKED_AT_ONCE = 1_000
UNASKED_PER_SECOND = 100
# A server's requests that are not answered yet. If it does not read the answers, no more are read.
MOST_OPEN_REQUESTS = 100
_ENDS_OF_EVENT = (b"\n\n", b"\n\r\n")


def create_limited_client(
    headers: dict[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: httpx2.Auth | None = None,
) -> httpx2.AsyncClient:
    """Create the SDK's client for servers over HTTP, with limits."""
    client = create_mcp_http_client(headers, timeout, auth)
    client.event_hooks = {"request": [], "response": [limit_reply_body]}
    return client


async def limit_reply_body(response: httpx2.Response) -> None:
    """Limit a response before anybody reads it.

    It is decompressed here, so the headers must not promise a coding or a length any more.
    """
    coding = response.headers.pop("content-encoding", "")
    response.headers.pop("content-length", None)
    content_type = response.headers.get("content-type", "")
    if not isinstance(response.stream, httpx2.AsyncByteStream):
        return
    # A stream of events has no end. Each event's length is limited where it is read.
    is_event_stream = content_type.startswith("text/event-stream")
    if not coding and is_event_stream:
        response.stream = _LimitedEventStream(response.stream)
    else:
        response.stream = _LimitedReplyStream(response.stream, coding, may_be_cut=is_event_stream)


def _too_many_values_error() -> httpx2.StreamError:
    return httpx2.StreamError(f"the server's reply holds more than {MOST_VALUES:,} values")


class _LimitedReplyStream(httpx2.AsyncByteStream):
    """The decompressed body, up to the limit for a server's message.

    `may_be_cut`: each event in it is whole by itself, so its compression need not end.
    """

    def __init__(
        self, stream: httpx2.AsyncByteStream, coding: str, *, may_be_cut: bool = False
    ) -> None:
        self._stream = stream
        self._coding = coding
        self._may_be_cut = may_be_cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the decompressed pieces, and fail once they exceed a limit."""
        limit = ValueLimit(MOST_VALUES)
        try:
            body = BodyDecompressor(self._coding, LONGEST)
            async for piece in self._stream:
                decoded = body.decode_piece(piece)
                if limit.is_exceeded_with(decoded):
                    raise _too_many_values_error()
                yield decoded
            if not self._may_be_cut:
                body.require_end()
        except (DecodedTooLarge, UnreadableCoding) as error:
            raise httpx2.StreamError(f"the server's reply cannot be read: {error}") from error

    async def aclose(self) -> None:
        await self._stream.aclose()


class _LimitedEventStream(httpx2.AsyncByteStream):
    """A stream of events, up to the limit of values for each."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces, and fail once an event exceeds the limit."""
        limit = ValueLimit(MOST_VALUES)
        end_of_last_piece = b""
        async for piece in self._stream:
            with_last = end_of_last_piece + piece
            end = max(with_last.rfind(mark) for mark in _ENDS_OF_EVENT)
            if end != -1:
                limit.begin_text()
            if limit.is_exceeded_with(piece):
                raise _too_many_values_error()
            yield piece
            end_of_last_piece = piece[-3:]

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def limit_unasked_messages(
    transport: AbstractAsyncContextManager[TransportStreams], request_relisting: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """Yield the streams of a connection, of which a flood of a server's own messages takes neither the
    memory nor all of the time. `request_relisting` is called where the notification of a changed list
    is left out.
    """
    limits = _UnaskedMessageLimits(request_relisting)
    async with transport as (from_server, to_server):
        # The SDK uses no other method of its streams.
        from_server_with_limits: Any = _LimitedReadStream(from_server, limits)
        yield from_server_with_limits, _WatchedWriteStream(to_server, limits)


class _UnaskedMessageLimits:
    """Counts what a server sends by itself. Too many notifications are left out, and requests wait,
    and with them all that the server sends after them.
    """

    def __init__(self, request_relisting: Callable[[], None]) -> None:
        self._request_relisting = request_relisting
        self._left_at_once = float(MOST_UNASKED_AT_ONCE)
        self._counted_at = time.monotonic()
        # The ids of the requests that the session works on. To the SDK, 1 and "1" are the same.
        self._open_requests: set[str] = set()
        self._has_ended = asyncio.Event()

    async def admit_message(self, message: types.JSONRPCMessage) -> bool:
        """Return whether the session gets a message, as soon as it may get it."""
        if isinstance(message, types.JSONRPCNotification):
            return self._admit_notification(message)
        if isinstance(message, types.JSONRPCRequest):
            return await self._admit_request(str(message.id))
        return True

    def note_end_of_request(self, request_id: object) -> None:
        """Note that a request of the server was answered, or that the server has cancelled it."""
        self._open_requests.discard(str(request_id))
        self._has_ended.set()

    def _admit_notification(self, message: types.JSONRPCNotification) -> bool:
        self._add_passed_time()
        if self._left_at_once < 1:
            if message.method == "notifications/tools/list_changed":
                self._request_relisting()
            return False
        self._left_at_once -= 1
        if message.method == "notifications/cancelled":
            # The SDK ends such a request without an answer.
            self.note_end_of_request(object_at(message.params).get("requestId"))
        return True

    async def _admit_request(self, request_id: str) -> bool:
        if request_id in self._open_requests:
            return False  # Two of one id could not be told apart when one of them ends.
        while len(self._open_requests) >= MOST_OPEN_REQUESTS:
            self._has_ended.clear()
            await self._has_ended.wait()
        self._add_passed_time()
        self._left_at_once -= 1
        if self._left_at_once < 0:
            await asyncio.sleep(-self._left_at_once / UNASKED_PER_SECOND)
        self._open_requests.add(request_id)
        return True

    def _add_passed_time(self) -> None:
        now = time.monotonic()
        regained = (now - self._counted_at) * UNASKED_PER_SECOND
        self._left_at_once = min(self._left_at_once + regained, float(MOST_UNASKED_AT_ONCE))
        self._counted_at = now


class _StreamWithLimits:
    """A direction of a connection, which ends with the stream that it wraps."""

    def __init__(self, stream: Any, limits: _UnaskedMessageLimits) -> None:
        self._stream = stream
        self._limits = limits
        self.aclose = stream.aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _LimitedReadStream(_StreamWithLimits):
    """What a server sends, without the notifications that are too many."""

    @property
    def last_context(self) -> contextvars.Context | None:
        """Return what the SDK asks its own streams for."""
        return getattr(self._stream, "last_context", None)

    async def receive_admitted(self) -> SessionMessage | Exception:
        """Return the next message that the session gets."""
        while True:
            received: SessionMessage | Exception = await self._stream.receive()
            if isinstance(received, Exception):
                return received
            if await self._limits.admit_message(received.message):
                return received

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive_admitted()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _WatchedWriteStream(_StreamWithLimits):
    """What the session sends, of which the answers are noted."""

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message, and wait until the transport has taken it."""
        try:
            await self._stream.send(item)
        finally:
            if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                self._limits.note_end_of_request(item.message.id)
