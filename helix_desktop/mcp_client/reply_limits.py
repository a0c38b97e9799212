"""Limits the size of remote MCP servers' replies, which the SDK reads and decompresses
without limits.
"""

from collections.abc import AsyncIterator

import httpx2
from mcp.shared._httpx_utils import create_mcp_http_client

from helix_desktop.decompression import BodyDecompressor, DecodedTooLarge, UnreadableCoding
from helix_desktop.json_values import ValueLimit
from helix_desktop.mcp_client.process_transport import LONGEST, MOST_VALUES

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
