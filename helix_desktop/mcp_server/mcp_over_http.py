"""MCP over HTTP, only on this machine. Requests need a token, and no web page can make them."""

import asyncio
import hmac
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server

from helix_desktop.bounded_http_protocol import BoundedHttpProtocol
from helix_desktop.errors import InvalidInput
from helix_desktop.json_values import ValueLimit
from helix_desktop.mcp_server.client_line import LONGEST, MOST_VALUES

HOST = "127.0.0.1"
PATH = "/mcp"
MOST_ARRIVING_BYTES = 4 * LONGEST  # Of messages of all clients that have not arrived whole yet.
MESSAGE_SECONDS = 60.0
log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class RefusedMcpRequest(Exception):
    """A request breaks a rule of the guard. The status and the reason are its answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class RequestGuard:
    """Admits only requests that have the token, name this machine as host, have no other origin and
    hold no more than a message may.
    """

    def __init__(self, app: App, token: str, port: int) -> None:
        self._app = app
        self._token = f"Bearer {token}".encode()
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost", "[::1]")}
        self._origins = {b"http://" + host for host in self._hosts}
        self._arriving_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Strip values, because uvicorn keeps spaces after them.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        try:
            self._check_who_asks(dict(headers))
            message = await self._receive_message(receive)
        except RefusedMcpRequest as refused:
            await _answer_refused_request(send, refused)
            return

        unread_messages = [message]

        async def receive_message_first() -> MutableMapping[str, Any]:
            if unread_messages:
                return unread_messages.pop()
            return await receive()

        await self._app(dict(scope) | {"headers": headers}, receive_message_first, send)

    def _check_who_asks(self, headers: dict[bytes, bytes]) -> None:
        if headers.get(b"host", b"") not in self._hosts:
            raise RefusedMcpRequest(421, "Its host is not this computer.")
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._origins:
            raise RefusedMcpRequest(403, "It comes from a web page or another origin.")
        authorization = headers.get(b"authorization", b"")
        if not hmac.compare_digest(authorization, self._token):
            raise RefusedMcpRequest(401, "The token is missing or wrong.")

    async def _receive_message(self, receive: Receive) -> MutableMapping[str, Any]:
        """Return the whole body of a request, as the application would receive it."""
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(MESSAGE_SECONDS):
                return await self._receive_pieces(receive, pieces)
        except TimeoutError:
            raise RefusedMcpRequest(408, "The message did not arrive in time.") from None
        finally:
            self._arriving_bytes -= sum(map(len, pieces))

    async def _receive_pieces(
        self, receive: Receive, pieces: list[bytes]
    ) -> MutableMapping[str, Any]:
        values = ValueLimit(MOST_VALUES)
        size = 0
        is_whole = False
        while not is_whole:
            event = await receive()
            if event["type"] != "http.request":
                return event  # The client has gone.
            piece = event.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            self._arriving_bytes += len(piece)
            if size > LONGEST:
                raise RefusedMcpRequest(413, "The message is longer than 32 MB.")
            if self._arriving_bytes > MOST_ARRIVING_BYTES:
                raise RefusedMcpRequest(
                    503, "Too many long messages arrive at once. Send it again."
                )
            if values.is_exceeded_with(piece):
                raise RefusedMcpRequest(413, "The message holds more than 500,000 values.")
            is_whole = not event.get("more_body", False)
        return {"type": "http.request", "body": b"".join(pieces), "more_body": False}


async def _answer_refused_request(send: Send, refused: RefusedMcpRequest) -> None:
    log.warning("a request over HTTP was refused: %s", refused.reason)
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": refused.reason.encode()})


class _ServerWithoutSignals(uvicorn.Server):
    """A uvicorn server that does not install signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_mcp_over_http(
    server: Server[Any], port: int, token: str, on_listening: Callable[[int], Awaitable[None]]
) -> None:
    """Serve until cancelled. Once it listens, call `on_listening` with its port (0
    takes a free one).
    """
    # asyncio sends small packets without a 40 ms delay only on sockets whose protocol
    # is explicitly TCP.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise InvalidInput(
                f"Port {port} cannot be used: {error.strerror}.",
                remedy="Choose another port, or 0 for any free port.",
            ) from None
        listening.listen(128)
        port = listening.getsockname()[1]
        unguarded = server.streamable_http_app(
            streamable_http_path=PATH, host=HOST, max_request_body_size=LONGEST
        )
        app = RequestGuard(unguarded, token, port)
        config = uvicorn.Config(
            app,
            http=BoundedHttpProtocol,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
            lifespan="on",
            ws="none",
        )
        await on_listening(port)
        await _serve_until_cancelled(_ServerWithoutSignals(config), listening)


async def _serve_until_cancelled(server: _ServerWithoutSignals, listening: socket.socket) -> None:
    """Stop Uvicorn properly when cancelled. Otherwise, connections and its lifespan
    task would stay.
    """
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve([listening]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.should_exit = True
            await asyncio.wait([serving], timeout=3)
            raise
