"""Signs in to a server over HTTP, by the SDK's OAuth, with tokens in the keyring and a
page only on request.

Until the user asks, no page is opened and nobody is registered anywhere.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared import auth
from pydantic import AnyUrl, ValidationError

from helix_desktop.concurrency import finish_even_if_cancelled
from helix_desktop.errors import ActionRefused
from helix_desktop.mcp_client.reply_limits import create_limited_client, limit_reply_body
from helix_desktop.secrets import McpSignIn

SECONDS = 300.0  # The user has this many seconds to sign in.
PATH = "/signed-in"
Read = Callable[[McpSignIn], Awaitable[str | None]]
Keep = Callable[[McpSignIn, str], Awaitable[None]]
Open = Callable[[str], Awaitable[object]]


class StoredSignIn:
    """The SDK's storage in one secret: the tokens, this program's registration, and
    where to renew tokens.

    The SDK itself loses the latter two, and a token's expiry, when the process ends.
    """

    def __init__(
        self, secret: McpSignIn, read: Read, keep: Keep, client: Mapping[str, str]
    ) -> None:
        self.context: OAuthContext | None = None
        self._given = client
        self._secret = secret
        self._read = read
        self._keep = keep
        self._values: dict[str, Any] = {}

    async def read_stored_sign_in(self) -> None:
        try:
            self._values = dict(json.loads(await self._read(self._secret) or "{}"))
        except (ValueError, TypeError):
            self._values = {}

    @property
    def registered_port(self) -> int:
        """Return the port of the registered redirect address, or 0."""
        if self._given.get("callbackPort", "").isdecimal():
            return int(self._given["callbackPort"])
        client = self._parse_stored_part(auth.OAuthClientInformationFull, "client")
        if client is None or not client.redirect_uris:
            return 0
        return client.redirect_uris[0].port or 0

    def _parse_stored_part(self, kind: Any, name: str) -> Any:
        with suppress(KeyError, ValidationError):
            return kind.model_validate(self._values[name])
        return None

    async def get_tokens(self) -> auth.OAuthToken | None:
        if self.context is not None:
            self.context.token_expiry_time = self._values.get("ends")
            self.context.oauth_metadata = self._parse_stored_part(auth.OAuthMetadata, "endpoints")
        tokens: auth.OAuthToken | None = self._parse_stored_part(auth.OAuthToken, "tokens")
        return tokens

    async def set_tokens(self, tokens: auth.OAuthToken) -> None:
        self._values["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        if self.context is not None:
            self._values["ends"] = self.context.token_expiry_time
            self._values["endpoints"] = None
            endpoints = self.context.oauth_metadata
            if endpoints is not None:
                self._values["endpoints"] = endpoints.model_dump(mode="json", exclude_none=True)
        await self._store_sign_in()

    async def get_client_info(self) -> auth.OAuthClientInformationFull | None:
        if not self._given.get("clientId"):
            stored: auth.OAuthClientInformationFull | None = self._parse_stored_part(
                auth.OAuthClientInformationFull, "client"
            )
            return stored
        secret = self._given.get("clientSecret") or None
        method: Literal["none", "client_secret_basic"] = "none"
        if secret is not None:
            method = "client_secret_basic"
        return auth.OAuthClientInformationFull(
            client_id=self._given["clientId"],
            client_secret=secret,
            token_endpoint_auth_method=method,
        )

    async def set_client_info(self, client_info: auth.OAuthClientInformationFull) -> None:
        self._values["client"] = client_info.model_dump(mode="json", exclude_none=True)
        await self._store_sign_in()

    def forget_registration(self) -> None:
        """Forget the registration, because its port is no longer usable."""
        self._values.pop("client", None)

    async def _store_sign_in(self) -> None:
        await self._keep(self._secret, json.dumps(self._values))


@asynccontextmanager
async def open_signed_in_client(
    url: str,
    kept: StoredSignIn,
    page: Open | None,
    headers: Mapping[str, str],
    wanted: Callable[[], None],
) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client that sends and renews the server's token. `page` opens an address if the user
    has asked to sign in; without it, a server that wants that is refused and `wanted` is called.
    """
    await kept.read_stored_sign_in()
    asked: list[str] = []  # The pending sign-in's `state`, which the browser returns.
    async with _listen_for_browser(kept, page, asked) as (port, came_back):
        metadata = auth.OAuthClientMetadata(
            client_name="Helix Desktop",
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{port or 1}{PATH}")],
        )

        async def open_sign_in_address(address: str) -> None:
            if page is None or urlsplit(address).scheme not in {"http", "https"}:
                raise ActionRefused("The server did not provide a sign-in page that can be opened.")
            asked[:] = parse_qs(urlsplit(address).query).get("state", [])
            await page(address)

        provider = OAuthClientProvider(
            url, metadata, kept, redirect_handler=open_sign_in_address, callback_handler=came_back
        )
        kept.context = provider.context

        async def raise_sign_in_wanted(response: httpx2.Response) -> None:
            if (
                page is None
                and response.status_code == 401
                and response.request.url.path == httpx2.URL(url).path
            ):
                wanted()
                raise ActionRefused("Sign-in required.")

        async with create_limited_client(headers=dict(headers), auth=provider) as client:
            client.event_hooks = {
                "request": [],
                "response": [raise_sign_in_wanted, limit_reply_body],
            }
            yield client


@asynccontextmanager
async def _listen_for_browser(
    kept: StoredSignIn, page: Open | None, asked: list[str]
) -> AsyncIterator[tuple[int, Callable[[], Awaitable[auth.AuthorizationCodeResult]]]]:
    """Listen on this machine for the returning browser, if somebody asked to sign in."""
    answer: asyncio.Future[auth.AuthorizationCodeResult] = (
        asyncio.get_running_loop().create_future()
    )

    async def wait_for_authorization_code() -> auth.AuthorizationCodeResult:
        async with asyncio.timeout(SECONDS):
            return await answer

    if page is None:
        yield kept.registered_port, wait_for_authorization_code
        return

    async def answer_browser(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _answer_browser_request(reader, writer, answer, asked)
        finally:
            writer.close()

    try:
        server = await finish_even_if_cancelled(
            asyncio.start_server(answer_browser, "127.0.0.1", kept.registered_port),
            _close_browser_server,
        )
    except OSError:
        kept.forget_registration()
        server = await finish_even_if_cancelled(
            asyncio.start_server(answer_browser, "127.0.0.1", 0), _close_browser_server
        )
    async with server:
        yield server.sockets[0].getsockname()[1], wait_for_authorization_code


async def _close_browser_server(server: asyncio.Server) -> None:
    server.close()


async def _answer_browser_request(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: asyncio.Future[auth.AuthorizationCodeResult],
    asked: list[str],
) -> None:
    """Answer one request, from the returning browser or anything else on this machine."""
    try:
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
        target = urlsplit(head.split(b" ", 2)[1].decode("ascii"))
    except (
        OSError,
        asyncio.IncompleteReadError,
        asyncio.LimitOverrunError,
        ValueError,
        IndexError,
    ):
        return
    parameters = {name: values[0] for name, values in parse_qs(target.query).items()}
    # Only the sign-in page knows this sign-in's `state`.
    is_ours = target.path == PATH and parameters.get("state") in asked and not answer.done()
    status = "404 Not Found"
    body = "There is nothing here."
    # The answer is set before the page is written, because the browser may be closed.
    if is_ours and "code" in parameters:
        status = "200 OK"
        body = "You are signed in. You can close this page."
        answer.set_result(
            auth.AuthorizationCodeResult(
                code=parameters["code"], state=parameters["state"], iss=parameters.get("iss")
            )
        )
    elif is_ours and "error" in parameters:
        status = "200 OK"
        body = "The sign-in was refused."
        answer.set_exception(
            ActionRefused(f"The sign-in was refused: {parameters['error'][:200]}.")
        )
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n{body}".encode()
    )
    with suppress(OSError):
        await writer.drain()
