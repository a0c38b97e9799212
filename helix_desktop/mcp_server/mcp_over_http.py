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
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.mcp_server.client_line import LONGEST

HOST = "127.0.0.1"
PATH = "/mcp"
log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The status and the sentence with which a request is refused."""

    status: int
    reason: str


class RequestGuard:
    """Admits only requests that have the token, name this machine as host and have no
    other origin.
    """

    def __init__(self, app: App, token: str, port: int) -> None:
        self._app = app
        self._token = f"Bearer {token}".encode()
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost", "[::1]")}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Strip values, because uvicorn keeps spaces after them.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        refusal = self._find_refusal(dict(headers))
        if refusal is None:
            await self._app(dict(scope) | {"headers": headers}, receive, send)
            return
        log.warning("a request over HTTP was refused: %s", refusal.reason)
        answer_headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"www-authenticate", b"Bearer"),
        ]
        await send(
            {
                "type": "http.response.start",
                "status": refusal.status,
                "headers": answer_headers,
            }
        )
        await send({"type": "http.response.body", "body": refusal.reason.encode()})

    def _find_refusal(self, headers: dict[bytes, bytes]) -> Refusal | None:
        """Return why a request is refused, or None if it is admitted."""
        if headers.get(b"host", b"") not in self._hosts:
            return Refusal(421, "Its host is not this computer.")
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._origins:
            return Refusal(403, "It comes from a web page or another origin.")
        authorization = headers.get(b"authorization", b"")
        if not hmac.compare_digest(authorization, self._token):
            return Refusal(401, "The token is missing or wrong.")
        return None


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
