"""Forwards an agent's request to the provider, and the reply back, as it is or with
another body.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import httpx

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.provider_reply_bodies import ProviderRefusal
from helix_desktop.gateway.request_parsing import IncomingRequest
from helix_desktop.gateway.request_routes import CONNECTION_HEADERS
from helix_desktop.protocols.gateway_message import SLICE

LARGE_BODY_BYTES = 1 << 19  # In bytes. Larger bodies are processed in a thread and sent in slices.
SendToAgent = Callable[[bytes | bytearray], Awaitable[None]]
StartReplyToAgent = Callable[[int, Sequence[tuple[bytes, bytes]]], Awaitable[None]]


@dataclass(slots=True)
class RequestForwarder:
    """`start` sends status and headers to the agent, `send` sends bytes of the body."""

    incoming: IncomingRequest
    url: str
    client: httpx.AsyncClient
    start: StartReplyToAgent
    send: SendToAgent
    is_begun: bool = False

    async def forward_without_reading(self, pieces: BodyPieces | None = None) -> None:
        """Forward the request as it came, or with these bytes, and the reply as it comes."""
        response = await self.send_to_provider(pieces, reads_reply=False)
        async with aclosing(response):
            await self.start_reply(response)
            async for chunk in response.aiter_raw():
                await self.send(chunk)

    async def send_refusal(self, refusal: ProviderRefusal) -> None:
        await self.start(refusal.response.status_code, _reply_headers(refusal.response))
        await self.send(refusal.content)

    async def start_reply(
        self, response: httpx.Response, *, rewritten: bool = False, decoded: bool = False
    ) -> None:
        if not self.is_begun:
            self.is_begun = True
            gone = ({b"content-length"} if rewritten else set()) | (
                {b"content-encoding"} if decoded else set()
            )
            kept = [
                (name, value)
                for name, value in _reply_headers(response)
                if name.lower() not in gone
            ]
            await self.start(response.status_code, kept)

    async def send_to_provider(
        self, pieces: BodyPieces | None, *, reads_reply: bool
    ) -> httpx.Response:
        """`pieces` is None for the client's own bytes. `reads_reply`: the reply must
        not be compressed.
        """
        headers = self.incoming.headers_for_provider()
        if pieces is None:
            pieces = (self.incoming.content,)
        else:
            headers = [
                (name, value) for name, value in headers if name.lower() != b"content-encoding"
            ]
        if reads_reply:
            headers = [
                (name, value) for name, value in headers if name.lower() != b"accept-encoding"
            ]
            headers.append((b"accept-encoding", b"identity"))
        request = build_provider_request(self.incoming.method, self.url, headers, pieces)
        return await self.client.send(request, stream=True)


def build_provider_request(
    method: str, url: str, headers: Sequence[tuple[bytes, bytes]], pieces: BodyPieces
) -> httpx.Request:
    """Build a request with these bytes. Large ones are sent in slices."""
    size = sum(map(len, pieces))
    if size <= LARGE_BODY_BYTES:
        return httpx.Request(method, url, headers=headers, content=b"".join(pieces))
    headers = [*headers, (b"content-length", b"%d" % size)]
    return httpx.Request(method, url, headers=headers, content=_slices_of_pieces(pieces))


async def _slices_of_pieces(pieces: BodyPieces) -> AsyncIterator[bytes]:
    """Join short pieces and slice long ones into parts of similar size, since each part
    costs a write.
    """
    parts: list[memoryview] = []
    size = 0
    for piece in pieces:
        whole = memoryview(piece)
        for at in range(0, len(whole), SLICE):
            parts.append(whole[at : at + SLICE])
            size += len(parts[-1])
            if size >= SLICE:
                yield b"".join(parts)
                parts, size = [], 0
    if parts:
        yield b"".join(parts)


async def run_in_thread_if_large(size: int, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run the work in a thread if the body is large, so that other streams go on."""
    return (
        await asyncio.to_thread(work, *arguments) if size > LARGE_BODY_BYTES else work(*arguments)
    )


def _reply_headers(response: httpx.Response) -> list[tuple[bytes, bytes]]:
    return [
        (name, value)
        for name, value in response.headers.raw
        if name.decode("latin-1").lower() not in CONNECTION_HEADERS - {"content-length"}
    ]
