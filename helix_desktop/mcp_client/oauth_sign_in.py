"""Signs in to a server over HTTP, by the SDK's OAuth, with tokens in the keyring and a
page only on request.

Until the user asks, no page is opened and nobody is registered anywhere.
"""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv6Address, ip_address
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import extract_field_from_www_auth
from mcp.shared import auth
from pydantic import AnyUrl, ValidationError

from helix_desktop.cancellation import end_if_cancelled
from helix_desktop.errors import ActionRefused
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import text_at
from helix_desktop.mcp_client.server_message_limits import create_limited_client, limit_reply_body
from helix_desktop.secrets import McpSignIn

SECONDS = 300.0  # The user has this many seconds to sign in.
PATH = "/signed-in"
_METADATA_SECONDS = 10.0
_CLOCK_TOLERANCE_SECONDS = 5.0  # Clocks are set by so much all the time.
_MOST_FOLDERS = 5  # Of a page's path.
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
        self._users_client = client  # What the user registered with the server, if anything.
        self._secret = secret
        self._read = read
        self._keep = keep
        self._values: dict[str, Any] = {}

    async def read_stored_sign_in(self) -> None:
        """Read what is stored. What cannot be read counts as nothing: the user signs in again."""
        stored = await self._read(self._secret)
        try:
            self._values = dict(json.loads(stored or "{}"))
        except (ValueError, RecursionError, TypeError):
            self._values = {}

    @property
    def registered_port(self) -> int:
        """Return the port of the registered redirect address, or 0."""
        users_port = self._users_client.get("callbackPort", "")
        if users_port.isdecimal():
            return int(users_port)
        client = self._parse_stored_part(auth.OAuthClientInformationFull, "client")
        if client is None or not client.redirect_uris:
            return 0
        return client.redirect_uris[0].port or 0

    def _parse_stored_part(self, kind: Any, name: str) -> Any:
        """Return a stored part in the SDK's form, or None if there is none that it accepts."""
        with suppress(KeyError, ValidationError):
            return kind.model_validate(self._values[name])
        return None

    async def get_tokens(self) -> auth.OAuthToken | None:
        """Return the stored tokens, or None. The SDK calls this when it needs them.

        It also needs to know when they end and where they are renewed, which it would
        otherwise forget with each start of the program.
        """
        tokens: auth.OAuthToken | None = self._parse_stored_part(auth.OAuthToken, "tokens")
        if self.context is not None:
            ends = self._values.get("ends")
            if tokens is not None and _ends_too_late(tokens, ends):
                ends = time.time()  # So it is renewed, without asking the user to sign in again.
            self.context.token_expiry_time = ends
            self.context.oauth_metadata = self._parse_stored_part(auth.OAuthMetadata, "endpoints")
        return tokens

    async def set_tokens(self, tokens: auth.OAuthToken) -> None:
        """Store new tokens, with when they end and where they are renewed."""
        self._values["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        if self.context is not None:
            self._values["ends"] = self.context.token_expiry_time
            self._values["users_client"] = self._describe_users_client()
            self._values["endpoints"] = None
            endpoints = self.context.oauth_metadata
            if endpoints is not None:
                self._values["endpoints"] = endpoints.model_dump(mode="json", exclude_none=True)
        await self._store_sign_in()

    async def get_client_info(self) -> auth.OAuthClientInformationFull | None:
        """Return as whom this program signs in (a "client" of OAuth), or None.

        That is what the user registered with the server, or else what an earlier sign-in did.
        """
        client_id = self._users_client.get("clientId")
        if not client_id:
            stored: auth.OAuthClientInformationFull | None = self._parse_stored_part(
                auth.OAuthClientInformationFull, "client"
            )
            return stored

        secret = self._users_client.get("clientSecret") or None
        method: Literal["none", "client_secret_basic"] = "none"
        if secret is not None:
            method = "client_secret_basic"
        return auth.OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret,
            token_endpoint_auth_method=method,
            issuer=self._issuer_of_users_client(),
        )

    def _issuer_of_users_client(self) -> str | None:
        """Return with whom the user has signed in as this client before. The server may name somebody
        else later, who must not get the client's secret.
        """
        if self._values.get("users_client") != self._describe_users_client():
            return None
        endpoints: auth.OAuthMetadata | None = self._parse_stored_part(
            auth.OAuthMetadata, "endpoints"
        )
        if endpoints is None:
            return None
        return str(endpoints.issuer)

    def _describe_users_client(self) -> list[str]:
        """Return the client and its server. The user may change either."""
        server_url = ""
        if self.context is not None:
            server_url = self.context.server_url
        return [self._users_client.get("clientId", ""), server_url]

    async def set_client_info(self, client_info: auth.OAuthClientInformationFull) -> None:
        self._values["client"] = client_info.model_dump(mode="json", exclude_none=True)
        await self._store_sign_in()

    def forget_registration(self) -> None:
        """Forget the registration, because its port is no longer usable."""
        self._values.pop("client", None)

    async def _store_sign_in(self) -> None:
        await self._keep(self._secret, json.dumps(self._values))


def _ends_too_late(tokens: auth.OAuthToken, ends: Any) -> bool:
    """Whether tokens end later than ones that the server gave out now: the computer's clock was set
    back since, and nobody knows whether they have ended.
    """
    if not tokens.expires_in or not tokens.refresh_token or not isinstance(ends, int | float):
        return False
    return ends > time.time() + tokens.expires_in + _CLOCK_TOLERANCE_SECONDS


@asynccontextmanager
async def open_signed_in_client(
    url: str,
    stored_sign_in: StoredSignIn,
    open_page: Open | None,
    headers: Mapping[str, str],
    is_connecting: Callable[[], bool],
    on_sign_in_wanted: Callable[[], None],
) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client that sends and renews the server's token.

    `open_page` opens an address in the browser if the user has asked to sign in. It is called once,
    and only while `is_connecting`: hours later, nobody would know why a page opens. Otherwise, a
    server that wants a sign-in is refused and `on_sign_in_wanted` is called.

    What was stored is read first, because it says at which port the browser is expected. While
    the client is open, its OAuth provider calls `open_sign_in_address` to send the user to the
    sign-in page, and then waits for the browser to come back with a code.
    """
    await stored_sign_in.read_stored_sign_in()
    async with _listen_for_browser(stored_sign_in, open_page) as returning_browser:
        # Port 1 stands in the address while nobody signs in: no browser is sent there then.
        port = returning_browser.port or 1
        metadata = auth.OAuthClientMetadata(
            client_name="Helix Desktop",
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}{PATH}")],
        )

        was_page_opened = False

        async def open_sign_in_address(address: str) -> None:
            nonlocal was_page_opened
            parts = urlsplit(address)
            if open_page is None or parts.scheme not in {"http", "https"}:
                raise ActionRefused("The server did not provide a sign-in page that can be opened.")
            await refuse_this_computer(httpx2.URL(address))
            if provider.context.oauth_metadata is not None:
                await _check_page_is_of_issuer(provider.context.oauth_metadata)
            # Only a browser that comes back with this state is answered as the user's own.
            returning_browser.expected_states = parse_qs(parts.query).get("state", [])
            was_page_opened = True
            await open_page(address)

        provider = OAuthClientProvider(
            url,
            metadata,
            stored_sign_in,
            redirect_handler=open_sign_in_address,
            callback_handler=returning_browser.wait_for_authorization_code,
        )
        stored_sign_in.context = provider.context

        async def raise_sign_in_wanted(response: httpx2.Response) -> None:
            is_for_server = response.request.url.path == httpx2.URL(url).path
            may_open_page = open_page is not None and not was_page_opened and is_connecting()
            if is_for_server and not may_open_page and _wants_sign_in(response):
                on_sign_in_wanted()
                raise ActionRefused("Sign-in required.")

        server_address = httpx2.URL(url)

        async def refuse_this_computer(address: httpx2.URL) -> None:
            """Raise ActionRefused if a server elsewhere names an address of this computer.

            The programs that answer there trust what comes from this computer, and some of them stop
            or delete something at a request.
            """
            if address.host == server_address.host or not await _leads_to_this_computer(address):
                return
            if not await _leads_to_this_computer(server_address):
                raise ActionRefused(
                    f"The server names an address of this computer for its sign-in: {address.host}."
                )

        async def check_request(request: httpx2.Request) -> None:
            await refuse_this_computer(request.url)

        async with create_limited_client(headers=dict(headers), auth=provider) as client:
            client.event_hooks = {
                "request": [check_request],
                "response": [raise_sign_in_wanted, limit_reply_body],
            }
            yield client


def _wants_sign_in(response: httpx2.Response) -> bool:
    """Whether the SDK would now register this program and open a sign-in page: the server knows
    nobody, or wants a further permission.
    """
    if response.status_code == 403:
        return extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response.status_code == 401


async def _check_page_is_of_issuer(metadata: auth.OAuthMetadata) -> None:
    """Raise ActionRefused if the sign-in page is one of another authorization server.

    A hostile server can name the page of a server at which the user is signed in already. What comes
    back from there would be brought to the hostile server, which could then act as the user.
    """
    page = httpx2.URL(str(metadata.authorization_endpoint))
    receiver = httpx2.URL(str(metadata.token_endpoint))
    if _origin_of(page) == _origin_of(receiver):
        return
    async with create_limited_client(timeout=httpx2.Timeout(_METADATA_SECONDS)) as client:
        for address in _list_metadata_addresses(page):
            issuer = await _fetch_issuer(client, address)
            if issuer and issuer.rstrip("/") != str(metadata.issuer).rstrip("/"):
                raise ActionRefused(
                    f"The sign-in page at {page.host} belongs to another server than the one that "
                    f"would get the answer, {receiver.host}."
                )


async def _leads_to_this_computer(url: httpx2.URL) -> bool:
    """Whether a name, or an address in any notation, leads to this computer, or to what only its
    neighbours reach, as where clouds tell a computer its keys.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(url.host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # It cannot be reached, or only by a proxy.
        return False
    for *_, place in found:
        address = ip_address(str(place[0]).partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if address.is_loopback or address.is_link_local or address.is_unspecified:
            return True
    return False


def _origin_of(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _list_metadata_addresses(page: httpx2.URL) -> list[httpx2.URL]:
    """Return where whoever has a sign-in page tells its name, also for one of many in a path."""
    addresses: list[httpx2.URL] = []
    folders = page.path.strip("/").split("/")[:_MOST_FOLDERS]
    for count in range(len(folders)):
        name = "/".join(["", *folders[:count]])
        paths = [f"{name}/.well-known/openid-configuration"]
        for kind in ("oauth-authorization-server", "openid-configuration"):
            paths.append(f"/.well-known/{kind}{name}")
        for path in dict.fromkeys(paths):
            addresses.append(page.copy_with(path=path, query=None, fragment=None))
    return addresses


async def _fetch_issuer(client: httpx2.AsyncClient, address: httpx2.URL) -> str:
    """Return the issuer that metadata at an address name, or nothing if there are none."""
    try:
        response = await client.get(address, follow_redirects=False)
        return text_at(response.json(), "issuer")
    except (httpx2.HTTPError, httpx2.StreamError, ValueError, RecursionError):
        return ""


class _ReturningBrowser:
    """Waits for the browser in which the user signs in, which the server sends back to `port`."""

    def __init__(self, port: int) -> None:
        self.port = port
        # The `state` of the pending sign-in, which only its page knows. Empty: there is none.
        self.expected_states: Sequence[str] = ()
        self._answer: asyncio.Future[auth.AuthorizationCodeResult] = (
            asyncio.get_running_loop().create_future()
        )

    async def wait_for_authorization_code(self) -> auth.AuthorizationCodeResult:
        async with asyncio.timeout(SECONDS):
            return await self._answer

    async def answer_browser(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request, from the returning browser or anything else on this machine."""
        try:
            target = await _read_requested_address(reader)
            if target is not None:
                page = self._handle_request(target)
                writer.write(page.as_http_response())
                with suppress(OSError):  # The browser may be closed already.
                    await writer.drain()
        finally:
            writer.close()

    def _handle_request(self, target: SplitResult) -> "_BrowserPage":
        """Take the answer of the sign-in if the request has it, and return what is shown.

        The answer is set before the page is written, because the browser may be closed.
        """
        parameters = {name: values[0] for name, values in parse_qs(target.query).items()}
        state = parameters.get("state", "")
        is_of_sign_in = target.path == PATH and state in self.expected_states
        if is_of_sign_in and not self._answer.done():
            if "code" in parameters:
                result = auth.AuthorizationCodeResult(
                    code=parameters["code"], state=state, iss=parameters.get("iss")
                )
                self._answer.set_result(result)
                return _BrowserPage("200 OK", "You are signed in. You can close this page.")
            if "error" in parameters:
                reason = parameters["error"][:200]
                refusal = ActionRefused(f"The sign-in was refused: {reason}.")
                self._answer.set_exception(refusal)
                return _BrowserPage("200 OK", "The sign-in was refused.")
        return _BrowserPage("404 Not Found", "There is nothing here.")


@dataclass(frozen=True, slots=True)
class _BrowserPage:
    """What the user's browser shows after signing in."""

    status: str
    text: str

    def as_http_response(self) -> bytes:
        head = (
            f"HTTP/1.1 {self.status}\r\n"
            "Content-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(self.text)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return (head + self.text).encode()


@asynccontextmanager
async def _listen_for_browser(
    stored_sign_in: StoredSignIn, open_page: Open | None
) -> AsyncIterator[_ReturningBrowser]:
    """Listen on this machine for the returning browser, if somebody asked to sign in."""
    returning_browser = _ReturningBrowser(stored_sign_in.registered_port)
    if open_page is None:
        yield returning_browser
        return

    try:
        server = await _start_browser_server(returning_browser, stored_sign_in.registered_port)
    except OSError:
        # The registered port is taken, so a new one must be registered.
        stored_sign_in.forget_registration()
        server = await _start_browser_server(returning_browser, 0)
    async with server:
        returning_browser.port = server.sockets[0].getsockname()[1]
        yield returning_browser


async def _start_browser_server(returning_browser: _ReturningBrowser, port: int) -> asyncio.Server:
    starting = asyncio.start_server(returning_browser.answer_browser, "127.0.0.1", port)
    return await end_if_cancelled(starting, _close_browser_server)


async def _close_browser_server(server: asyncio.Server) -> None:
    server.close()


async def _read_requested_address(reader: asyncio.StreamReader) -> SplitResult | None:
    """Return the address in the first line of an HTTP request, or None if it is no request."""
    try:
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
        requested_address = head.split(b" ", 2)[1].decode("ascii")
        return urlsplit(requested_address)
    except (
        OSError,
        asyncio.IncompleteReadError,
        asyncio.LimitOverrunError,
        ValueError,
        IndexError,
    ):
        return None
