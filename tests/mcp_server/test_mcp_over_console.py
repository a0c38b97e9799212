from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from helix_desktop.mcp_server import cache_mcp_server, mcp_over_console
from tests.conftest import Expect
from tests.mcp_server.world import served

INFO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


async def exchanged(*sent: bytes, answers: int) -> list[dict[str, Any]]:
    """Send bytes to a server over stdio; the first `answers` messages it writes."""
    on, _ = await served()
    pieces = list(sent)
    out: list[dict[str, Any]] = []
    enough = asyncio.Event()
    if not answers:
        enough.set()

    async def read() -> bytes:
        if pieces:
            return pieces.pop(0)
        await enough.wait()
        return b""

    async def write(data: bytes) -> None:
        out.append(json.loads(data))
        if len(out) >= answers:
            enough.set()

    async with asyncio.timeout(60):
        await mcp_over_console.serve_mcp_over_console(
            cache_mcp_server.build_cache_server(on), read, write
        )
    return out


def request(number: int, method: str, **params: Any) -> bytes:
    return (
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        + b"\n"
    )


HELLO = (
    request(1, "initialize", **INFO) + b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


async def test_messages_are_lines_however_they_are_cut() -> None:
    whole = HELLO + request(2, "tools/call", name="cache_stats", arguments={})
    out = await exchanged(*(whole[at : at + 7] for at in range(0, len(whole), 7)), answers=2)
    assert [message["id"] for message in out] == [1, 2]
    assert out[1]["result"]["structuredContent"] == {"workspace": "w", "entries": 2}


async def test_rubbish_does_not_end_the_connection_and_stands_in_no_log(
    expect: Expect, caplog: pytest.LogCaptureFixture
) -> None:
    expect("no JSON-RPC")
    out = await exchanged(
        HELLO, b'rubbish\n[]\n{"rubbish": 1}\n\n', request(2, "tools/list"), answers=5
    )
    assert sorted(str(message["id"]) for message in out) == ["1", "2", "None", "None", "None"]
    assert "no JSON-RPC" in caplog.text
    assert "rubbish" not in caplog.text


@pytest.mark.parametrize(
    ("line", "number", "code"),
    [
        (
            b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "x\\ud800"}}',
            7,
            -32600,
        ),
        (b'{"jsonrpc": "1.0", "id": "a", "method": "ping"}', "a", -32600),
        (b'{"jsonrpc": "1.0", "id": true, "method": "ping"}', None, -32600),
        (b'{"jsonrpc": "2.0", "id": "x\\ud800", "method": "ping"}', None, -32600),
        (b'{"jsonrpc": "2.0", "id": 7, "result": 3}', None, -32600),
        (b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}]', None, -32600),
        (b'{"jsonrpc": "2.0", "id": 7, "met', None, -32700),
        (b"[" * 100_000, None, -32700),
        (b"\xff\xfe\x00", None, -32700),
    ],
)
async def test_who_sends_what_cannot_be_read_is_told_and_does_not_wait(
    line: bytes, number: int | str | None, code: int, expect: Expect
) -> None:
    expect("no JSON-RPC")
    out = await exchanged(HELLO, line + b"\n", request(2, "ping"), answers=3)
    (told,) = (message for message in out if "error" in message)
    assert (told["id"], told["error"]["code"]) == (number, code)


async def test_the_end_of_the_input_ends_the_server() -> None:
    assert await exchanged(answers=0) == []
