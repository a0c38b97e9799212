"""Limits the size of remote MCP servers' replies, which the SDK reads and decompresses
without limits.
"""

from collections.abc import AsyncIterator

import httpx2
from mcp.shared._httpx_utils import create_mcp_http_client

from helix_desktop.decompression import BodyDecompressor, DecodedTooLarge, UnreadableCoding
from helix_desktop.mcp_client.process_transport import LONGEST

MOST_VALUES = 500_000  # The maximum number of lists and objects in a reply.


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
    # A stream of events has no end. Each event is limited where it is read.
    is_endless = not coding and content_type.startswith("text/event-stream")
    if not is_endless and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _LimitedReplyStream(response.stream, coding)


class _LimitedReplyStream(httpx2.AsyncByteStream):
    """The decompressed body, up to the limit for a server's message."""

    def __init__(self, stream: httpx2.AsyncByteStream, coding: str) -> None:
        self._stream = stream
        self._coding = coding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the decompressed pieces, and fail once they exceed a limit."""
        values = 0
        try:
            body = BodyDecompressor(self._coding, LONGEST)
            async for piece in self._stream:
                decoded = body.decode_piece(piece)
                values += decoded.count(b"[") + decoded.count(b"{")
                if values > MOST_VALUES:
                    break
                yield decoded
        except (DecodedTooLarge, UnreadableCoding) as error:
            raise httpx2.StreamError(f"the server's reply cannot be read: {error}") from error
        if values > MOST_VALUES:
            raise httpx2.StreamError(
                f"the server's reply holds more than {MOST_VALUES:,} lists and objects"
            )

    async def aclose(self) -> None:
        await self._stream.aclose()
