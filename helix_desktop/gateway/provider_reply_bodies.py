"""Reads the bodies of a provider's replies within limits of memory and time.

What exceeds them is not lost: the agent gets the bytes as they came.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import httpx
import orjson

from helix_desktop.decompression import (
    BodyDecompressor,
    DecodedTooLarge,
    UnreadableCoding,
    decompress_body,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.incremental_parsing import check_bracket_count, parse_whole_body
from helix_desktop.protocols.event_stream import RawEventSplitter, parse_event_data
from helix_desktop.protocols.gateway_message import Json

MOST_REPLY_BYTES = 64 << 20  # In bytes. The maximum size of a reply, compressed or not.
MOST_REFUSAL_BYTES = 1 << 20  # In bytes. The maximum decompressed size of a provider's refusal.
LARGE_REPLY_BYTES = 1 << 19  # In bytes. Larger replies are parsed in a thread.
MOST_REPLY_SIGNS = 500_000  # Replies with more lists and objects are not parsed.
_PIECE = 64 << 10  # In bytes. After decompressing this much, we let other work run.


class UnreadableReply(ValueError):
    """A stream can't be read any further. `chunk`: the unread bytes, as they came."""

    def __init__(self, why: str, chunk: bytes) -> None:
        super().__init__(why)
        self.chunk = chunk


@dataclass(frozen=True, slots=True)
class ProviderRefusal:
    """A refusal. `content` is its body as it came, `text` its readable text."""

    response: httpx.Response
    content: bytes | bytearray
    text: bytes | bytearray

    def parse_refusal_json(self) -> Json:
        try:
            return orjson.loads(self.text)
        except ValueError:
            return None


def build_own_refusal(status: int, kind: str, sentence: str) -> ProviderRefusal:
    """Build a refusal of our own, in a form that clients of all protocols understand."""
    error = {"type": kind, "message": sentence}
    response = httpx.Response(status, json={"type": "error", "error": error})
    return ProviderRefusal(response, content=response.content, text=response.content)


def coding_of_reply(response: httpx.Response) -> str:
    """Return the body's compression, or an empty string."""
    coding: str = response.headers.get("content-encoding", "").strip()
    if coding.lower() == "identity":
        return ""
    return coding


async def read_raw_body(chunks: AsyncIterator[bytes]) -> bytearray:
    """Read the body as it came. If it exceeds the limit, the rest stays in `chunks`."""
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > MOST_REPLY_BYTES:
            break
    return content


async def read_refusal(response: httpx.Response) -> ProviderRefusal:
    """Read the whole refusal and close the response."""
    async with aclosing(response):
        content = await read_raw_body(response.aiter_raw())
    if len(content) > MOST_REPLY_BYTES:
        raise httpx.DecodingError(f"a refusal of more than {MOST_REPLY_BYTES:,} bytes")
    try:
        text: bytes | bytearray = decompress_body(
            content, coding_of_reply(response), MOST_REFUSAL_BYTES, may_be_cut=True
        )
    except DecodedTooLarge as error:
        text = error.decoded
    except UnreadableCoding:
        text = b""
    return ProviderRefusal(response, content, text)


async def parse_whole_reply(content: bytearray, coding: str) -> Json:
    """Parse a complete reply. Raises ValueError if it is damaged or too large."""
    if coding or len(content) > LARGE_REPLY_BYTES:
        return await asyncio.to_thread(_parse_reply_value, content, coding)
    return _parse_reply_value(content, coding)


def _parse_reply_value(content: bytearray, coding: str) -> Json:
    """Decompress and parse a reply, unless parsing it would delay others for too long."""
    decoded: bytes | bytearray = content
    if coding:
        decoded = decompress_body(content, coding, MOST_REPLY_BYTES)
    check_bracket_count(decoded, 0, MOST_REPLY_SIGNS)
    return parse_whole_body(decoded)


async def read_reply_to_own_question(wire: Any, response: httpx.Response) -> Json:
    """Parse the reply to a question of our own, even if it came as a stream."""
    async with aclosing(response):
        content = await read_raw_body(response.aiter_raw())
    coding = coding_of_reply(response)
    if "event-stream" in response.headers.get("content-type", ""):
        return await asyncio.to_thread(parse_reply_events, wire, bytes(content), coding)
    return await parse_whole_reply(content, coding)


def parse_reply_events(wire: Any, content: bytes, coding: str, *, may_be_cut: bool = False) -> Json:
    """Return a stream's reply as it would be without a stream. Raises ValueError if it is cut off
    within its compression, unless it may be.
    """
    assembler = wire.ReplyAssembler()
    decoded = bytes(decompress_body(content, coding, MOST_REPLY_BYTES, may_be_cut=may_be_cut))
    # The empty line ends an event that the server has not ended.
    for raw_event in RawEventSplitter().feed_raw_chunk(decoded + b"\n\n"):
        event = parse_event_data(raw_event)
        if event is not None:
            assembler.add_reply_event(event)
    return assembler.whole_reply()


async def decode_reply_chunks(
    chunks: AsyncIterator[bytes], coding: str, has_last_event: Callable[[], bool]
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield each chunk of a stream as it came, with its decompressed content in small
    pieces: the chunk comes with the first.

    Raises UnreadableReply for what cannot be decompressed, and for compressed data that ends too
    early, unless the last event was in it: some servers never end it.
    """
    chunk = b""
    try:
        body = BodyDecompressor(coding, MOST_REPLY_BYTES)
        async for chunk in chunks:
            if coding:
                decoded = await asyncio.to_thread(body.decode_piece, chunk)
            else:
                decoded = body.decode_piece(chunk)
            yield chunk, decoded[:_PIECE]
            for begin in range(_PIECE, len(decoded), _PIECE):
                await asyncio.sleep(0)
                yield b"", decoded[begin : begin + _PIECE]
        chunk = b""
        if not has_last_event():
            body.require_end()
    except (DecodedTooLarge, UnreadableCoding) as error:
        raise UnreadableReply(str(error), chunk) from error
