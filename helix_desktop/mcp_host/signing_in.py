"""Signing in to a server over HTTP: OAuth as the SDK does it, tokens with the keyring, a page only when the user asks for it.

Until then a server that wants a token is asked for nothing more: no page is opened and nobody is registered anywhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from helix_desktop import tasks
from helix_desktop.errors import Refused
from helix_desktop.secrets import McpSignIn

SECONDS = 300.0  # that a person may take
PATH = "/signed-in"
Read = Callable[[McpSignIn], Awaitable[str | None]]
Keep = Callable[[McpSignIn, str], Awaitable[None]]
Open = Callable[[str], Awaitable[object]]


class Kept:
    """The SDK's storage: one secret that holds the tokens, what this program is registered as, and where they are renewed.

    The SDK forgets the last two, and when a token ends, with the process.
    """

    def __init__(self, secret: McpSignIn, read: Read, keep: Keep, client: Mapping[str, str]) -> None:
        self.context: OAuthContext | None = None
        self._given = client
        self._secret, self._read, self._keep = secret, read, keep
        self._values: dict[str, Any] = {}

    async def load(self) -> None:
        try:
            self._values = dict(json.loads(await self._read(self._secret) or "{}"))
        except (ValueError, TypeError):
            self._values = {}

    @property
    def port(self) -> int:
        """The one the registered address for coming back has; 0 where there is none."""
        if self._given.get("callbackPort", "").isdecimal():
            return int(self._given["callbackPort"])
        client = self._found(OAuthClientInformationFull, "client")
        uris = client.redirect_uris if client is not None else None
        return (uris[0].port or 0) if uris else 0

    def _found(self, kind: Any, name: str) -> Any:
        try:
            return kind.model_validate(self._values[name])
        except (KeyError, ValidationError):
            return None

    async def get_tokens(self) -> OAuthToken | None:
        if self.context is not None:
            self.context.token_expiry_time = self._values.get("ends")
            self.context.oauth_metadata = self._found(OAuthMetadata, "endpoints")
        tokens: OAuthToken | None = self._found(OAuthToken, "tokens")
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._values["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        if self.context is not None:
            self._values["ends"] = self.context.token_expiry_time
            endpoints = self.context.oauth_metadata
            self._values["endpoints"] = (
                endpoints.model_dump(mode="json", exclude_none=True) if endpoints is not None else None
            )
        await self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._given.get("clientId"):
            secret = self._given.get("clientSecret") or None
            method = "client_secret_basic" if secret else "none"
            return OAuthClientInformationFull(
                client_id=self._given["clientId"], client_secret=secret, token_endpoint_auth_method=method
            )
        client: OAuthClientInformationFull | None = self._found(OAuthClientInformationFull, "client")
        return client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._values["client"] = client_info.model_dump(mode="json", exclude_none=True)
        await self._write()

    def forget_client(self) -> None:
        """Be registered anew: the port of the old registration cannot be had."""
        self._values.pop("client", None)

    async def _write(self) -> None:
        await self._keep(self._secret, json.dumps(self._values))


@asynccontextmanager
async def signed_in(
    url: str, kept: Kept, page: Open | None, headers: Mapping[str, str], wanted: Callable[[], None]
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that sends the server's token and renews it. `page`: opens an address for the user, who has just asked to
    sign in; without it, a server that wants that is refused, and `wanted` is told.
    """
    from mcp.shared._httpx_utils import create_mcp_http_client

    await kept.load()
    asked: list[str] = []  # the state of the request that is out: who comes back without it is somebody else
    async with _waiting(kept, page, asked) as (port, came_back):
        metadata = OAuthClientMetadata(
            client_name="Helix Desktop", redirect_uris=[AnyUrl(f"http://127.0.0.1:{port or 1}{PATH}")]
        )

        async def send(address: str) -> None:
            if page is None or urlsplit(address).scheme not in {"http", "https"}:
                raise Refused("The server did not provide a sign-in page that can be opened.")
            asked[:] = parse_qs(urlsplit(address).query).get("state", [])
            await page(address)

        provider = OAuthClientProvider(url, metadata, kept, redirect_handler=send, callback_handler=came_back)
        kept.context = provider.context

        async def refuse(response: httpx2.Response) -> None:
            if page is None and response.status_code == 401 and response.request.url.path == httpx2.URL(url).path:
                wanted()
                raise Refused("Sign-in required.")

        async with create_mcp_http_client(headers=dict(headers), auth=provider) as client:
            client.event_hooks = {"request": [], "response": [refuse]}
            yield client


@asynccontextmanager
async def _waiting(
    kept: Kept, page: Open | None, asked: list[str]
) -> AsyncIterator[tuple[int, Callable[[], Awaitable[AuthorizationCodeResult]]]]:
    """Listen on this machine for the browser that comes back; on no port where nobody asked."""
    answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def come_back() -> AuthorizationCodeResult:
        async with asyncio.timeout(SECONDS):
            return await answer

    if page is None:
        yield kept.port, come_back
        return

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _meet(reader, writer, answer, asked)
        finally:
            writer.close()

    try:
        server = await tasks.made(asyncio.start_server(meet, "127.0.0.1", kept.port), _closed)
    except OSError:
        kept.forget_client()
        server = await tasks.made(asyncio.start_server(meet, "127.0.0.1", 0), _closed)
    async with server:
        yield server.sockets[0].getsockname()[1], come_back


async def _closed(server: asyncio.Server) -> None:
    server.close()


async def _meet(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: asyncio.Future[AuthorizationCodeResult],
    asked: list[str],
) -> None:
    """One request: the browser that comes back, or anything else on this machine."""
    try:
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
        target = urlsplit(head.split(b" ", 2)[1].decode("ascii"))
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError):
        return
    said = {name: values[0] for name, values in parse_qs(target.query).items()}
    ours = (
        target.path == PATH
        and said.get("state") in asked
        and bool({"code", "error"} & said.keys())
        and not answer.done()
    )
    if ours and "code" in said:  # before the browser is answered: it may be gone
        answer.set_result(AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss")))
    elif ours:
        answer.set_exception(Refused(f"Signing in was refused: {said['error'][:200]}."))
    words = "You are signed in. You can close this page." if "code" in said else "Signing in was refused."
    status = "200 OK" if ours else "404 Not Found"
    body = words if ours else "There is nothing here."
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n{body}".encode()
    )
    with suppress(OSError):
        await writer.drain()
