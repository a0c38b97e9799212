"""The limits on headers of the program's own HTTP servers, over real connections."""

from __future__ import annotations

import ast
import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from helix_desktop import bounded_http_protocol
from helix_desktop.bounded_http_protocol import MOST_HEADER_BYTES, BoundedHttpProtocol
from helix_desktop.gateway.gateway_socket import listen_on_loopback
from tests.conftest import Expect

BEGIN = b"POST / HTTP/1.1\r\nHost: here\r\n"
CHUNKED = BEGIN + b"Transfer-Encoding: chunked\r\n\r\n"


async def refuse(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """As a client without a token is refused: before its body is read."""
    await send(
        {"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"no"})


async def list_headers(scope: dict[str, Any], receive: Any, send: Any) -> None:
    while (await receive()).get("more_body", False):
        pass
    names = b" ".join(name for name, _ in scope["headers"])
    length = b"%d" % len(names)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]}
    )
    await send({"type": "http.response.body", "body": names})


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
async def listening(app: Any, **options: Any) -> AsyncIterator[int]:
    sock = listen_on_loopback(0)
    config = uvicorn.Config(
        app, http=BoundedHttpProtocol, log_config=None, lifespan="off", ws="none", **options
    )
    server = uvicorn.Server(config)
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[sock]))
    yield sock.getsockname()[1]
    server.should_exit = True
    await serving


@asynccontextmanager
async def connected(
    app: Any = answer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


async def send_until_closed(writer: asyncio.StreamWriter, piece: bytes, most_bytes: int) -> int:
    """Return how much was sent when the server closed the connection."""
    sent = 0
    with suppress(ConnectionError):
        while sent < most_bytes:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    return sent


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


@pytest.mark.parametrize("app", [answer, refuse])
@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"0\r\nX: ", b"a" * 10_000),
        (b"0\r\n", b"a: b\r\n" * 2_000),
        (b"5;", b"a" * 10_000),
    ],
    ids=["one trailer", "many trailers", "extension of a chunk"],
)
async def test_what_follows_a_body_without_an_end_is_not_read(
    app: Any, begin: bytes, piece: bytes
) -> None:
    most_bytes = 64 << 20
    async with connected(app) as (_, writer):
        writer.write(CHUNKED + begin)
        assert await send_until_closed(writer, piece, most_bytes) < most_bytes


async def test_what_follows_a_body_is_no_header_of_the_request() -> None:
    async with connected(list_headers) as (reader, writer):
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        writer.write(b"0\r\nAuthorization: Bearer later\r\n\r\n")
        said = await asyncio.wait_for(reader.readuntil(b"host transfer-encoding"), 60)
    assert b"authorization" not in said


async def test_a_body_in_tiny_chunks_is_taken() -> None:
    body = b"1\r\nb\r\n" * MOST_HEADER_BYTES
    async with connected() as (reader, writer):
        writer.write(CHUNKED + body + b"0\r\nX: y\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"%d bytes" % MOST_HEADER_BYTES), 60)


@pytest.mark.parametrize(
    ("request_bytes", "piece"),
    [
        (BEGIN + b"Content-Length: 1000000000\r\n\r\n", b"b"),
        (BEGIN + b"\r\n", b"\r\n"),
        (BEGIN + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"a"),
    ],
    ids=["body", "empty lines", "upgrade"],
)
async def test_a_connection_is_not_held_after_its_answer(
    request_bytes: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    if piece == b"a":
        expect("upgrade request|No supported WebSocket library|Invalid HTTP request")
    monkeypatch.setattr(bounded_http_protocol, "HEADER_SECONDS", 0.3)
    async with connected(refuse) as (reader, writer), asyncio.timeout(60):
        writer.write(request_bytes)
        await reader.readuntil(b"no")
        closed = asyncio.ensure_future(reader.read())  # noqa: TID251
        while not closed.done():
            with suppress(ConnectionError):
                writer.write(piece)
            await asyncio.wait([closed], timeout=0.02)
        closed.exception()  # It may have been reset.


async def test_requests_are_not_queued_without_an_end(expect: Expect) -> None:
    expect("Invalid HTTP request")
    async with connected(refuse) as (reader, writer), asyncio.timeout(60):
        writer.write((BEGIN + b"\r\n") * 300)
        with suppress(ConnectionError):
            said = await reader.read()
            assert said.count(b" 401 ") < 300


@pytest.mark.parametrize("sent", [b"", BEGIN, BEGIN + b"\r\n"], ids=["none", "part", "refused"])
async def test_clients_that_wait_do_not_keep_another_out(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http_protocol, "MOST_WAITING_CONNECTIONS", 8)
    async with listening(refuse) as port, asyncio.timeout(60):
        strangers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        for _ in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            strangers.append((reader, writer))
            writer.write(sent)
            if sent.endswith(b"\r\n\r\n"):
                await reader.readuntil(b"no")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(BEGIN + b"\r\n")
        await reader.readuntil(b"no")
        # The longest waiting were closed for the others.
        for stranger, _ in strangers[:4]:
            with suppress(ConnectionError):
                assert await stranger.read() == b""
        for _, stranger_writer in [*strangers, (reader, writer)]:
            stranger_writer.close()


async def test_half_of_the_connections_that_a_server_may_have_cannot_be_held_by_waiting() -> None:
    async with listening(refuse, limit_concurrency=8) as port, asyncio.timeout(60):
        strangers: list[asyncio.StreamWriter] = []
        for _ in range(20):
            _, stranger = await asyncio.open_connection("127.0.0.1", port)
            strangers.append(stranger)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(BEGIN + b"\r\n")
        assert b" 401 " in await reader.readuntil(b"no")
        for stranger in [*strangers, writer]:
            stranger.close()


@pytest.mark.parametrize("sent", [b"", BEGIN], ids=["none", "part"])
async def test_connections_that_come_all_at_once_keep_nobody_out(sent: bytes) -> None:
    """The one that waited longest was closed again and again, as it is gone only later: 500 idle
    connections kept paired phones from the page, and 5,000 were open at once.
    """
    async with listening(refuse, limit_concurrency=8) as port, asyncio.timeout(60):
        strangers: list[socket.socket] = []
        for _ in range(5):
            # The server accepts all of these in one go.
            for _ in range(90):
                stranger = socket.create_connection(("127.0.0.1", port))
                stranger.sendall(sent)
                strangers.append(stranger)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(BEGIN + b"\r\n")
            assert b" 401 " in await reader.readuntil(b"no")
            writer.close()
        still_open = 0
        for stranger in strangers:
            stranger.setblocking(False)
            try:
                still_open += stranger.recv(1) != b""
            except BlockingIOError:
                still_open += 1
            except ConnectionError:
                pass
            stranger.close()
        assert still_open <= 8


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
