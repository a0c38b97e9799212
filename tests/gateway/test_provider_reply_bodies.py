"""Replies that came whole: their JSON, also where they were compressed or are large."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from helix_desktop.gateway import provider_reply_bodies
from helix_desktop.gateway.provider_reply_bodies import parse_whole_reply
from helix_desktop.protocols.anthropic import anthropic_gateway

VALUE = {"id": "m", "content": [{"type": "text", "text": "word " * 200}]}
PLAIN = json.dumps(VALUE).encode()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_a_reply_is_read_whatever_its_coding_and_size(
    monkeypatch: pytest.MonkeyPatch, coding: str, *, large: bool
) -> None:
    monkeypatch.setattr(provider_reply_bodies, "LARGE_REPLY_BYTES", 100 if large else 1 << 20)
    content = gzip.compress(PLAIN) if coding else PLAIN
    assert await parse_whole_reply(bytearray(content), coding) == VALUE


@pytest.mark.parametrize(
    ("content", "coding"),
    [(b"{", ""), (b"not gzip", "gzip"), (gzip.compress(PLAIN, mtime=0)[:-20], "gzip")],
)
async def test_a_damaged_reply_is_a_value_error(content: bytes, coding: str) -> None:
    with pytest.raises(ValueError):
        await parse_whole_reply(bytearray(content), coding)


async def test_a_reply_that_stands_for_more_than_is_read_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider_reply_bodies, "MOST_REPLY_BYTES", 500)
    with pytest.raises(ValueError):
        await parse_whole_reply(bytearray(gzip.compress(PLAIN)), "gzip")


def response(content: bytes, *, status: int = 200, **headers: str) -> httpx.Response:
    """One that is read piece by piece, as from a network."""

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(content), 400):
            yield content[at : at + 400]

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=named, content=pieces())


@pytest.mark.parametrize(
    ("header", "coding"),
    [("", ""), ("identity", ""), (" Identity", ""), ("gzip", "gzip"), ("br, gzip", "br, gzip")],
)
def test_the_coding_of_a_reply(header: str, coding: str) -> None:
    assert provider_reply_bodies.coding_of_reply(response(b"", content_encoding=header)) == coding
    assert provider_reply_bodies.coding_of_reply(response(b"")) == ""


async def test_of_a_longer_body_than_the_limit_the_rest_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider_reply_bodies, "MOST_REPLY_BYTES", 800)
    chunks = response(b"x" * 1_600).aiter_raw()
    assert len(await provider_reply_bodies.read_raw_body(chunks)) == 1_200
    assert [len(chunk) async for chunk in chunks] == [400]
    assert len(await provider_reply_bodies.read_raw_body(response(b"x" * 800).aiter_raw())) == 800


async def test_a_refusal_is_read_as_far_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(content: bytes, coding: str = "") -> provider_reply_bodies.ProviderRefusal:
        came = response(content, status=400, content_encoding=coding)
        refusal = await provider_reply_bodies.read_refusal(came)
        assert (came.is_closed, bytes(refusal.content)) == (True, content)
        return refusal

    assert (await read(PLAIN)).parse_refusal_json() == VALUE
    assert (await read(gzip.compress(PLAIN), "gzip")).parse_refusal_json() == VALUE
    damaged = await read(b"not gzip", "gzip")
    assert (damaged.text, damaged.parse_refusal_json()) == (b"", None)
    monkeypatch.setattr(provider_reply_bodies, "MOST_REFUSAL_BYTES", 100)
    assert len((await read(gzip.compress(PLAIN), "gzip")).text) <= 100
    monkeypatch.setattr(provider_reply_bodies, "MOST_REPLY_BYTES", len(PLAIN))
    assert (await read(PLAIN)).content == PLAIN, "as much as may be"
    monkeypatch.setattr(provider_reply_bodies, "MOST_REPLY_BYTES", 100)
    with pytest.raises(httpx.DecodingError, match="more than 100 bytes"):
        await read(PLAIN)


@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_an_asked_reply_is_read_whole_or_from_a_stream(coding: str) -> None:
    said: dict[str, object] = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "fine"}],
    }
    events: list[dict[str, object]] = [
        {
            "type": "message_start",
            "message": {**said, "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "fine"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ]
    stream = "\n\n".join(
        f"event: {one['type']}\ndata: {json.dumps(one)}" for one in events
    ).encode()
    whole = json.dumps(said).encode()
    for content, kind in (
        (whole, "application/json"),
        (stream, "text/event-stream; charset=utf-8"),
    ):
        sent = gzip.compress(content) if coding else content
        came = response(sent, content_encoding=coding, content_type=kind)
        assert (await provider_reply_bodies.read_reply_to_own_question(anthropic_gateway, came))[
            "content"
        ] == said["content"]
        assert came.is_closed


async def test_a_chunk_that_stands_for_much_comes_in_pieces_and_as_it_came_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider_reply_bodies, "_PIECE", 100)
    sent = gzip.compress(b"ab" * 125)

    async def chunks() -> AsyncIterator[bytes]:
        yield sent

    found = [
        pair async for pair in provider_reply_bodies.decode_reply_chunks(chunks(), "gzip", bool)
    ]
    assert [(raw, len(piece)) for raw, piece in found] == [(sent, 100), (b"", 100), (b"", 50)]
    assert b"".join(piece for _, piece in found) == b"ab" * 125


async def test_a_chunk_that_cannot_be_read_is_given_back() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"plain words"

    with pytest.raises(provider_reply_bodies.UnreadableReply) as refused:
        [pair async for pair in provider_reply_bodies.decode_reply_chunks(chunks(), "gzip", bool)]
    assert refused.value.chunk == b"plain words"
