"""A body on its way: whole, and in parts that are neither tiny nor huge. Headers on
their way: each where it belongs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.gateway import request_forwarding
from helix_desktop.gateway.provider_reply_bodies import ProviderRefusal, build_own_refusal
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.request_forwarding import LARGE_BODY_BYTES, RequestForwarder
from helix_desktop.gateway.request_parsing import IncomingRequest
from helix_desktop.gateway.request_routes import RequestRoute
from helix_desktop.protocols.gateway_message import SLICE


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 700, SLICE - 1, SLICE, 3 * SLICE + 5]), max_size=4),
    st.integers(0, 300),
)
async def test_short_pieces_go_together_and_long_ones_in_parts(
    sizes: list[int], short: int
) -> None:
    pieces = [bytes([at % 256]) * size for at, size in enumerate([*sizes, *[9] * short])]
    parts = [part async for part in request_forwarding._slices_of_pieces(pieces)]
    whole = b"".join(pieces)
    assert b"".join(parts) == whole
    assert all(len(part) < 2 * SLICE for part in parts)
    assert len(parts) <= len(whole) // SLICE + 1


Headers = Sequence[tuple[bytes, bytes]]
AGENT_HEADERS = (
    (b"Host", b"127.0.0.1:1"), (b"Content-Encoding", b"gzip"), (b"Accept-Encoding", b"gzip, br"),
    (b"x-api-key", b"k"), (b"X-Helix-Token", b"t"), (b"Content-Length", b"999"),
)  # fmt: skip
REPLY = (
    b"HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\nContent-Encoding: gzip\r\n"
    b"content-length: 7\r\nconnection: keep-alive\r\n\r\nas sent"
)


@dataclass
class RawProvider:
    """A provider that keeps requests as they came over the line, and answers each with
    the same bytes.
    """

    head: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        self.head = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        self.body = await reader.readexactly(int(self.head["content-length"]))
        writer.write(REPLY)
        await writer.drain()
        writer.close()


@dataclass
class AgentSide:
    """What the agent gets."""

    starts: list[tuple[int, dict[bytes, bytes]]] = field(default_factory=list)
    body: bytes = b""

    async def start(self, status: int, headers: Headers) -> None:
        self.starts.append((status, {name.lower(): value for name, value in headers}))

    async def send(self, chunk: bytes | bytearray) -> None:
        assert self.starts, "the headers come first"
        self.body += chunk


@asynccontextmanager
async def forwarding(
    content: bytes = b"{}",
) -> AsyncIterator[tuple[RequestForwarder, RawProvider, AgentSide]]:
    provider, agent = RawProvider(), AgentSide()
    server = await asyncio.start_server(provider.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/messages"
    route = RequestRoute("/v1/messages", "anthropic")
    incoming = IncomingRequest(
        "POST", route, "", AGENT_HEADERS, {}, content, GatewayRegistration("t")
    )
    async with server, httpx.AsyncClient(trust_env=False) as client:
        yield RequestForwarder(incoming, url, client, agent.start, agent.send), provider, agent


async def test_a_request_and_its_reply_go_on_as_they_came_without_what_is_only_for_the_gateway() -> (
    None
):
    async with forwarding(b"packed by the agent") as (sending, provider, agent):
        await sending.forward_without_reading()
    assert provider.body == b"packed by the agent"
    assert provider.head["content-encoding"] == "gzip", "the agent's own bytes are still compressed"
    assert (provider.head["accept-encoding"], provider.head["x-api-key"]) == ("gzip, br", "k")
    assert (provider.head["content-length"], "x-helix-token" in provider.head) == ("19", False)
    assert agent.starts == [
        (
            201,
            {b"content-type": b"text/plain", b"content-encoding": b"gzip", b"content-length": b"7"},
        )
    ]
    assert agent.body == b"as sent"


@pytest.mark.parametrize("reads_reply", [False, True])
async def test_a_changed_body_is_not_called_compressed_and_a_reply_that_is_read_comes_plain(
    *, reads_reply: bool
) -> None:
    async with forwarding() as (sending, provider, _):
        response = await sending.send_to_provider((b"chan", b"ged"), reads_reply=reads_reply)
        await response.aclose()
    assert provider.body == b"changed"
    assert "content-encoding" not in provider.head
    assert provider.head["accept-encoding"] == ("identity" if reads_reply else "gzip, br")
    assert provider.head["x-api-key"] == "k"


@pytest.mark.parametrize("size", [0, LARGE_BODY_BYTES, LARGE_BODY_BYTES + 1])
async def test_a_body_of_any_size_arrives_whole_and_with_its_length(size: int) -> None:
    whole = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    pieces = (whole[:10], whole[10:])
    async with forwarding() as (sending, provider, _):
        await (await sending.send_to_provider(pieces, reads_reply=True)).aclose()
    assert provider.body == whole
    assert provider.head["content-length"] == str(size)
    built = request_forwarding.build_provider_request("POST", sending.url, [], pieces)
    assert isinstance(built.stream, httpx.ByteStream) == (size <= LARGE_BODY_BYTES), (
        "only a large one goes in slices"
    )


@pytest.mark.parametrize(
    ("rewritten", "decoded", "gone"),
    [
        (False, False, set()),
        (True, False, {b"content-length"}),
        (False, True, {b"content-encoding"}),
        (True, True, {b"content-length", b"content-encoding"}),
    ],
)
async def test_a_changed_reply_starts_once_and_without_the_headers_that_are_wrong_now(
    rewritten: bool, decoded: bool, gone: set[bytes]
) -> None:
    headers = [
        ("Content-Length", "7"),
        ("Content-Encoding", "gzip"),
        ("X-Request-Id", "r"),
        ("Transfer-Encoding", "x"),
    ]
    response = httpx.Response(200, headers=headers)
    async with forwarding() as (sending, _, agent):
        await sending.start_reply(response, rewritten=rewritten, decoded=decoded)
        assert sending.is_begun
        await sending.start_reply(httpx.Response(500))
    ((status, headers_of_reply),) = agent.starts
    assert (status, headers_of_reply[b"x-request-id"]) == (200, b"r")
    assert (
        headers_of_reply.keys() == {b"content-length", b"content-encoding", b"x-request-id"} - gone
    )


async def test_a_refusal_reaches_the_agent_with_its_status_headers_and_body() -> None:
    async with forwarding() as (sending, _, agent):
        own = build_own_refusal(429, "rate_limit_error", "Wait.")
        own.response.headers["retry-after"] = "7"
        await sending.send_refusal(ProviderRefusal(own.response, b"as it came", own.text))
    ((status, headers),) = agent.starts
    assert (status, headers[b"retry-after"], agent.body) == (429, b"7", b"as it came")


@pytest.mark.parametrize(
    ("size", "in_a_thread"), [(LARGE_BODY_BYTES, False), (LARGE_BODY_BYTES + 1, True)]
)
async def test_only_the_work_on_a_large_body_leaves_the_loop(size: int, in_a_thread: bool) -> None:
    def work(one: int, other: int) -> tuple[int, bool]:
        return one - other, threading.current_thread() is not threading.main_thread()

    assert await request_forwarding.run_in_thread_if_large(size, work, 5, 3) == (2, in_a_thread)
