"""Forwards an agent's request to the provider, and the reply back, as it is or with
another body.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

import httpx

from helix_desktop.decompression import DecodedTooLarge
from helix_desktop.errors import HelixError, ProviderUnreachable
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.provider_reply_bodies import ProviderRefusal
from helix_desktop.gateway.request_parsing import IncomingRequest
from helix_desktop.gateway.request_routes import CONNECTION_HEADERS
from helix_desktop.protocols.gateway_message import SLICE
from helix_desktop.providers.http_transport import send_for_stream

LARGE_BODY_BYTES = 1 << 19  # In bytes. Larger bodies are processed in a thread and sent in slices.
SendToAgent = Callable[[bytes | bytearray], Awaitable[None]]
StartReplyToAgent = Callable[[int, Sequence[tuple[bytes, bytes]]], Awaitable[None]]


class ReplyListener(Protocol):
    """Is told of a reply that is relayed as it comes."""

    def begin_reply(self, response: httpx.Response) -> None: ...
    def add_chunk(self, chunk: bytes) -> None: ...


@dataclass(slots=True)
class RequestForwarder:
    """`start` sends status and headers to the agent, `send` sends bytes of the body."""

    incoming: IncomingRequest
    url: str
    client: httpx.AsyncClient
    start: StartReplyToAgent
    send: SendToAgent
    is_begun: bool = False

    async def forward_without_reading(
        self, pieces: BodyPieces | None = None, listener: ReplyListener | None = None
    ) -> None:
        """Forward the request as it came, or with these bytes, and the reply as it comes. What
        listens to the reply is told of each part before the agent has it.
        """
        response = await self.send_to_provider(pieces, reads_reply=False)
        async with aclosing(response):
            if listener is not None:
                listener.begin_reply(response)
            await self.start_reply(response)
            async for chunk in response.aiter_raw():
                if listener is not None:
                    listener.add_chunk(chunk)
                await self.send(chunk)

    async def send_refusal(self, refusal: ProviderRefusal) -> None:
        """Send the agent what the provider answered instead of a reply."""
        await self.start(refusal.response.status_code, _reply_headers(refusal.response))
        await self.send(refusal.content)

    async def start_reply(
        self, response: httpx.Response, *, rewritten: bool = False, decoded: bool = False
    ) -> None:
        """Send status and headers, once. `rewritten`: the body's length will differ.
        `decoded`: it is sent decompressed.
        """
        if self.is_begun:
            return
        self.is_begun = True

        untrue_headers = set[bytes]()
        if rewritten:
            untrue_headers.add(b"content-length")
        if decoded:
            untrue_headers.add(b"content-encoding")
        headers = _headers_without(_reply_headers(response), untrue_headers)
        await self.start(response.status_code, headers)

    async def send_to_provider(
        self, pieces: BodyPieces | None, *, reads_reply: bool
    ) -> httpx.Response:
        """Send the request and return the response, whose body is yet to be read.

        `pieces` is None for the client's own bytes. `reads_reply`: the reply must
        not be compressed.
        """
        left_out_headers = set[bytes]()
        if pieces is None:
            sent_pieces: BodyPieces = (self.incoming.content,)
        else:
            sent_pieces = pieces
            # What was changed is not compressed, whatever the agent's own bytes were.
            left_out_headers.add(b"content-encoding")
        if reads_reply:
            left_out_headers.add(b"accept-encoding")

        headers = _headers_without(self.incoming.headers_for_provider(), left_out_headers)
        if reads_reply:
            headers.append((b"accept-encoding", b"identity"))
        request = build_provider_request(self.incoming.method, self.url, headers, sent_pieces)
        return await send_for_stream(self.client, request)


def build_provider_request(
    method: str, url: str, headers: Sequence[tuple[bytes, bytes]], pieces: BodyPieces
) -> httpx.Request:
    """Build a request with these bytes. Large ones are sent in slices."""
    size = sum(map(len, pieces))
    if size <= LARGE_BODY_BYTES:
        return httpx.Request(method, url, headers=headers, content=b"".join(pieces))
    # httpx cannot know how much a generator will yield, and would send chunks without a length.
    headers_with_length = list(headers)
    headers_with_length.append((b"content-length", b"%d" % size))
    slices = _slices_of_pieces(pieces)
    return httpx.Request(method, url, headers=headers_with_length, content=slices)


async def _slices_of_pieces(pieces: BodyPieces) -> AsyncIterator[bytes]:
    """Join short pieces and slice long ones into parts of similar size, since each part
    costs a write.
    """
    waiting_parts: list[memoryview] = []
    waiting_bytes = 0
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), SLICE):
            part = view[start : start + SLICE]
            waiting_parts.append(part)
            waiting_bytes += len(part)
            if waiting_bytes >= SLICE:
                yield b"".join(waiting_parts)
                waiting_parts = []
                waiting_bytes = 0
    if waiting_parts:
        yield b"".join(waiting_parts)


async def run_in_thread_if_large(size: int, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run the work in a thread if the body is large, so that other streams go on."""
    if size > LARGE_BODY_BYTES:
        return await asyncio.to_thread(work, *arguments)
    return work(*arguments)


@dataclass(frozen=True, slots=True)
class FailureAnswer:
    """What an agent is answered whose request failed."""

    status: int
    sentence: str


def _host_of_failed_request(error: Exception) -> str:
    """Return the host that was asked, or a word for it if the error does not name one."""
    if isinstance(error, httpx.HTTPError):
        with suppress(RuntimeError):  # The error occurred before there was a request.
            return error.request.url.netloc.decode()
    return "The provider"


def explain_failure(error: Exception) -> FailureAnswer:
    """Return the answer to a request that failed before its provider replied."""
    if isinstance(error, DecodedTooLarge):
        sentence = (
            "A request of more than 64 MB after decompression is refused. Nothing was sent on."
        )
        return FailureAnswer(413, sentence)
    if isinstance(error, httpx.InvalidURL):
        sentence = (
            "The path of the request or the address of a proxy is not valid. Nothing was sent."
        )
        return FailureAnswer(400, sentence)
    if isinstance(error, TimeoutError):
        sentence = "The provider did not answer for hours. Nothing was lost; send it again."
        return FailureAnswer(504, sentence)
    if isinstance(error, ProviderUnreachable):
        return FailureAnswer(502, error.what)
    if isinstance(error, HelixError):
        return FailureAnswer(400, error.what)

    host = _host_of_failed_request(error)
    reason = str(error) or type(error).__name__
    sentence = f"{host} could not be reached ({reason}). Check the address and the proxy."
    return FailureAnswer(502, sentence)


def _headers_without(
    headers: Sequence[tuple[bytes, bytes]], names: Collection[bytes]
) -> list[tuple[bytes, bytes]]:
    """Return the headers but for those of these names, which are in lower case."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def _reply_headers(response: httpx.Response) -> list[tuple[bytes, bytes]]:
    """Return the headers that are meant for the agent, and not for this connection alone."""
    not_for_agent = CONNECTION_HEADERS - {"content-length"}
    headers: list[tuple[bytes, bytes]] = []
    for name, value in response.headers.raw:
        if name.decode("latin-1").lower() not in not_for_agent:
            headers.append((name, value))
    return headers
