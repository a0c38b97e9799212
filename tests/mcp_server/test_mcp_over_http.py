from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client

from helix_desktop.errors import InvalidInput
from helix_desktop.mcp_server import cache_mcp_server, mcp_over_http
from tests.conftest import Expect
from tests.mcp_server.world import served

TOKEN = "token-of-the-test"
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
GOOD = {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"}


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    on, _ = await served()
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def started(port: int) -> None:
        ready.set_result(port)

    task = asyncio.ensure_future(  # noqa: TID251
        mcp_over_http.serve_mcp_over_http(
            cache_mcp_server.build_cache_server(on), 0, TOKEN, started
        )
    )
    try:
        yield f"http://127.0.0.1:{await ready}/mcp"
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_sdks_client_is_served() -> None:
    async with (
        serving() as url,
        httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as client,
        mcp.Client(streamable_http_client(url, http_client=client), cache=None) as agent,
    ):
        result = await agent.call_tool("cache_stats", {})
        assert result.structured_content == {"workspace": "w", "entries": 2}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({**GOOD, "origin": "https://evil.example"}, 403),
        ({**GOOD, "origin": "null"}, 403),
        ({**GOOD, "host": "evil.example"}, 421),
        ({**GOOD, "host": "127.0.0.1:1"}, 421),
    ],
)
async def test_what_a_web_page_or_a_stranger_could_send_is_refused_and_logged(
    headers: dict[str, str], status: int, expect: Expect
) -> None:
    expect("a request over HTTP was refused")
    async with serving() as url, httpx.AsyncClient(timeout=60) as client:
        assert (await client.post(url, json=HELLO, headers=headers)).status_code == status
        assert (await client.get(url, headers=headers)).status_code == status
        assert (await client.options(url, headers=headers)).status_code == status


@pytest.mark.parametrize("piece", [b"0,", b"[],", b'{"a":0},'])
async def test_a_message_of_millions_of_small_values_is_refused(
    piece: bytes, expect: Expect
) -> None:
    """Parsed, it would take a hundred times its length and hold the window."""
    expect("more than 500,000 values")
    values = piece * 600_000
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[' + values + b"0]}}"
    async with serving() as url, httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(url, content=body, headers=GOOD)
    assert answer.status_code == 413
    assert answer.text == "The message holds more than 500,000 values."


async def test_a_message_that_does_not_arrive_is_refused(
    expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect("did not arrive in time")
    monkeypatch.setattr(mcp_over_http, "MESSAGE_SECONDS", 0.05)
    head = b"POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer token-of-the-test\r\nContent-Length: 100\r\n\r\n"
    async with serving() as url, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(head % urlsplit(url).netloc.encode() + b"{")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_messages_that_arrive_at_once_are_limited_together(
    expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect("Too many long messages")
    monkeypatch.setattr(mcp_over_http, "MOST_ARRIVING_BYTES", 1_500)
    head = b"POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer token-of-the-test\r\nContent-Length: 2000\r\n\r\n"
    async with serving() as url, asyncio.timeout(60):
        host = urlsplit(url).netloc.encode()
        _, slow_writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        slow_writer.write(head % host + b" " * 1_000)
        async with httpx.AsyncClient(headers=GOOD) as client:
            while (await client.post(url, content=b" " * 1_000)).status_code != 503:
                pass
            slow_writer.close()
            while (await client.post(url, content=b" " * 1_000)).status_code == 503:
                pass


async def test_space_around_a_header_is_no_part_of_it() -> None:
    """As HTTP has it; found by the conformance suite. Raw, because clients take such space off."""
    asked = (
        b"POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization:  Bearer token-of-the-test \t\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Method:  tools/call \r\n"
        b"Mcp-Name:  cache_stats  \r\nMcp-Protocol-Version: 2026-07-28 \r\nContent-Length: %d\r\n\r\n%s"
    )
    meta = {
        "protocolVersion": "2026-07-28",
        "clientInfo": {"name": "t", "version": "1"},
        "clientCapabilities": {},
    }
    params = {
        "name": "cache_stats",
        "arguments": {},
        "_meta": {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()},
    }
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    ).encode()
    async with serving() as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(asked % (urlsplit(url).netloc.encode(), len(body), body))
        answer = (await reader.read()).decode()
        writer.close()
    assert answer.startswith("HTTP/1.1 200")
    assert '"workspace":"w"' in answer.replace(" ", "").replace("\\", "")


async def test_a_port_that_is_taken_gets_a_sentence() -> None:
    async with serving() as url:
        on, _ = await served()

        async def started(port: int) -> None:
            raise AssertionError(port)

        with pytest.raises(InvalidInput, match="cannot be used"):
            await mcp_over_http.serve_mcp_over_http(
                cache_mcp_server.build_cache_server(on),
                int(url.split(":")[2].split("/")[0]),
                TOKEN,
                started,
            )
