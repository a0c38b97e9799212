"""The limits on headers of the program's own HTTP servers, over real connections."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from helix_desktop import bounded_http_protocol
from helix_desktop.bounded_http_protocol import MOST_HEADER_BYTES, BoundedHttpProtocol
from helix_desktop.gateway.gateway_socket import listen_on_loopback

BEGIN = b"POST / HTTP/1.1\r\nHost: here\r\n"


async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Says how long the body was."""
    taken = 0
    more = True
    while more:
        event = await receive()
        taken += len(event.get("body", b""))
        more = event.get("more_body", False)
    text = f"{taken} bytes".encode()
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"%d" % len(text))],
        }
    )
    await send({"type": "http.response.body", "body": text})


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    sock = listen_on_loopback(0)
    config = uvicorn.Config(
        answer, http=BoundedHttpProtocol, log_config=None, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[sock]))
    reader, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
    yield reader, writer
    writer.close()
    server.should_exit = True
    await serving


@pytest.mark.parametrize(
    "endless", [b"a" * 1_000, b"a: b\r\n" * 200], ids=["one header", "many headers"]
)
async def test_endless_headers_are_refused(endless: bytes) -> None:
    headers = BEGIN + b"X: " + endless * (MOST_HEADER_BYTES // len(endless) + 1)
    async with connected() as (reader, writer):
        # The last byte is the one too many: a server that closes with unread bytes before it
        # resets the connection, and its answer may be lost.
        writer.write(headers[: MOST_HEADER_BYTES + 1])
        said = await asyncio.wait_for(reader.read(), 60)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.endswith(b"headers are too long.")


async def test_long_bodies_and_the_headers_of_a_next_request_are_taken() -> None:
    body = b"b" * (4 * MOST_HEADER_BYTES)
    long = b"X: " + b"a" * (MOST_HEADER_BYTES - 1_000) + b"\r\n"
    async with connected() as (reader, writer):
        for _ in range(3):
            writer.write(BEGIN + long + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            said = await asyncio.wait_for(reader.readuntil(b" bytes"), 60)
            assert b"200 OK" in said
            assert said.endswith(b"\r\n\r\n%d bytes" % len(body))


@pytest.mark.parametrize("sent", [b"", BEGIN])
async def test_a_connection_that_does_not_finish_its_headers_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http_protocol, "HEADER_SECONDS", 0.05)
    async with connected() as (reader, writer):
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 60) == b""


def test_every_server_of_the_program_reads_headers_through_it() -> None:
    package = Path(bounded_http_protocol.__file__).parent
    calls = {
        (file.relative_to(package).as_posix(), "http=BoundedHttpProtocol" in ast.unparse(node))
        for file in package.rglob("*.py")
        if "uvicorn" in file.read_text("utf-8")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("uvicorn.Config", "uvicorn.run", "Config")
    }
    assert calls == {
        ("gateway/gateway_server.py", True),
        ("mcp_server/mcp_over_http.py", True),
        ("phone_page/page_server.py", True),
    }
