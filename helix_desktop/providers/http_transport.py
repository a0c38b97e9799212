"""Connects to providers: proxies, certificates and time limits. Failures become errors
of `errors.py`.

Redirects are not followed, since a key for one host must not reach another. No error names a key.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

from helix_desktop import __version__
from helix_desktop.cancellation import end_if_cancelled
from helix_desktop.decompression import BodyDecompressor, DecodedTooLarge, UnreadableCoding
from helix_desktop.errors import ModelFailed, ProviderKeyRefused, ProviderUnreachable
from helix_desktop.fast_dataclass import dataclass

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    import httpx  # Imported when needed: it takes 9 MB, which a window without a model saves.

LONGEST_REFUSAL = 1024 * 1024
LONGEST_BODY = 256 * 1024 * 1024
# Environment variables in which agents expect certificate files, or a client
# certificate and its key.
EXTRA_CERTIFICATES = ("node_extra_ca_certs", "codex_ca_certificate", "requests_ca_bundle")
CLIENT_CERTIFICATE = "claude_code_client_cert"
CLIENT_KEY = "claude_code_client_key"
CLIENT_KEY_PASSPHRASE = "claude_code_client_key_passphrase"  # noqa: S105 -- a variable's name
CERTIFICATE_VARIABLES = frozenset(
    {
        "ssl_cert_file",
        "ssl_cert_dir",
        CLIENT_CERTIFICATE,
        CLIENT_KEY,
        CLIENT_KEY_PASSPHRASE,
    }
).union(EXTRA_CERTIFICATES)


@dataclass(frozen=True, slots=True)
class ProviderPatience:
    """Seconds and attempts. Local servers read a long prompt for minutes before the first word."""

    connect: float = 15.0
    first_byte: float = 600.0
    silence: float = 300.0  # Some models think for minutes without sending anything.
    after_end: float = 5.0  # How long we wait for usage figures after the stop reason.
    end_of_body: float = 0.1  # Seconds within which a server that is done ends its answer.
    longest_wait: float = 600.0  # A longer Retry-After is treated as an error.
    attempts: int = 8
    attempts_unreachable: int = 6
    attempts_local: int = 3  # Attempts for a server on this machine that is not running.
    first_pause: float = 1.0
    longest_pause: float = 60.0


class UnmendableFailure(ProviderUnreachable):
    """A failure that no retry can mend: an untrusted certificate, or an invalid address."""


class NoConnection(ProviderUnreachable):
    """No connection could be made."""


class ProviderConnections:
    """A program's open connections, shared by all models. They are created on first
    use, on that loop.
    """

    def __init__(self, *, connect: float = 15.0) -> None:
        self._connect = connect
        self._clients: dict[bool, httpx.AsyncClient] = {}

    def direct_or_proxied_client(self, url: str) -> httpx.AsyncClient:
        """Return the client for an address: without proxy if it is on this machine, or else
        with the system's proxy. Each of the two is built when it is first needed.
        """
        is_local = is_loopback(url)
        client = self._clients.get(is_local)
        if client is None:
            client = build_http_client(
                self._connect, write=120.0, uses_environment=not is_local, kept=16
            )
            self._clients[is_local] = client
        return client

    async def aclose(self) -> None:
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.aclose()


def load_http_and_certificates() -> None:
    """Import what requests need and read the certificates.

    It takes 0.1 s, so it is done in a thread before the first message.
    """
    import httpx  # noqa: F401

    with suppress(UnmendableFailure):  # The first request reports failures.
        trusted_certificates()


def build_http_client(
    connect: float = 15.0,
    *,
    write: float | None = None,
    uses_environment: bool,
    kept: int = 64,  # How many idle connections stay open.
    proxies: Mapping[str, str] | None = None,
) -> httpx.AsyncClient:
    """Build an HTTP client, which opens no connection yet.

    `connect` and `write` are time limits in seconds. `uses_environment`: it takes the proxy
    from this program's environment. `proxies`: variables for proxies and certificates from
    another program's environment, by their names in lower case.
    """
    import httpx

    if proxies is None:
        trusted = trusted_certificates()
    else:
        trusted = trusted_certificates(frozenset(proxies.items()))
    timeout = httpx.Timeout(connect=connect, read=None, write=write, pool=None)
    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=kept, keepalive_expiry=30.0
    )
    headers = {"user-agent": f"helix-desktop/{__version__}", "accept-encoding": "identity"}
    try:
        mounts = _proxy_mounts(proxies or {}, limits, trusted)
        return httpx.AsyncClient(
            timeout=timeout,
            limits=limits,
            headers=headers,
            verify=trusted,
            mounts=mounts,
            trust_env=uses_environment,
            follow_redirects=False,
            cookies=_cookie_jar_that_keeps_none(),
        )
    except (ValueError, ImportError) as error:
        raise UnmendableFailure(
            f"The system's proxy setting is not valid: {error}",
            remedy="Fix HTTPS_PROXY or ALL_PROXY. The value should look like http://host:port or socks5://host:port.",
        ) from error


async def send_for_stream(client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """Send a request, and return its answer once the head has come.

    Before it sends, httpx closes connections that the server has left, and it closes its own if
    the request fails. Only anyio's way to cancel lets it end that: `Task.cancel` would leave
    them open, with nobody to close them. So the request is sent by a task of its own, which is
    cancelled by anyio.
    """
    import anyio
    import httpx

    scope = anyio.CancelScope()

    async def send_within_scope() -> httpx.Response:
        with scope:
            return await client.send(request, stream=True)
        raise asyncio.CancelledError  # The scope ends here if it was cancelled.

    return await end_if_cancelled(send_within_scope(), httpx.Response.aclose, hurry=scope.cancel)


def _cookie_jar_that_keeps_none() -> CookieJar:
    """No provider needs a cookie, and a cookie does not know ports: that of one server on this
    computer would be sent to every other one.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


def _proxy_mounts(
    proxies: Mapping[str, str], limits: httpx.Limits, trusted: ssl.SSLContext
) -> dict[str, httpx.AsyncHTTPTransport | None]:
    """Return which addresses are reached by which proxy, as an environment's variables say.

    httpx takes it as a table from the beginnings of addresses. None: without a proxy.
    """
    import httpx

    mounts: dict[str, httpx.AsyncHTTPTransport | None] = {}
    for scheme in ("all", "http", "https"):
        proxy = proxies.get(f"{scheme}_proxy")
        if not proxy:
            continue
        proxy_address = proxy
        if "://" not in proxy:
            proxy_address = f"http://{proxy}"
        mounts[f"{scheme}://"] = httpx.AsyncHTTPTransport(
            verify=trusted, proxy=proxy_address, limits=limits
        )

    # Hosts that are reached without a proxy, with all below them.
    for name in proxies.get("no_proxy", "").split(","):
        host = name.strip().lstrip(".")
        if host == "*":
            return {}
        if host:
            mounts[f"all://{host}"] = None
            mounts[f"all://*.{host}"] = None
    return mounts


@cache
def trusted_certificates(variables: frozenset[tuple[str, str]] | None = None) -> ssl.SSLContext:
    """Return which certificates of servers are trusted, and the one that we show to them.

    Trusted are those in SSL_CERT_FILE or SSL_CERT_DIR, or else the system's and certifi's
    lists. Added are files that the variables of coding agents name, such as a company's
    proxy. `variables`: those of another program's environment, with names in lower case.
    """
    if variables is None:
        environment = {name.lower(): value for name, value in os.environ.items()}
    else:
        environment = dict(variables)
    certificate_file = environment.get("ssl_cert_file")
    certificate_folder = environment.get("ssl_cert_dir")
    context = _read_base_certificates(certificate_file, certificate_folder)

    for name in EXTRA_CERTIFICATES:
        extra_file = environment.get(name)
        if extra_file:
            with _name_variable_in_errors(name):
                context.load_verify_locations(extra_file)

    client_certificate = environment.get(CLIENT_CERTIFICATE)
    if client_certificate:
        key_file = environment.get(CLIENT_KEY) or None
        passphrase = environment.get(CLIENT_KEY_PASSPHRASE, "")
        with _name_variable_in_errors(CLIENT_CERTIFICATE):
            # Without the function, OpenSSL would ask for a passphrase in the terminal.
            context.load_cert_chain(client_certificate, key_file, lambda: passphrase)
    return context


@contextmanager
def _name_variable_in_errors(name: str) -> Iterator[None]:
    """Say of a file that cannot be read within this block which variable names it."""
    try:
        yield
    except OSError as error:
        raise UnmendableFailure(
            f"The certificates in {name.upper()} cannot be read: {error.strerror or error}",
            remedy="Fix or unset this environment variable.",
        ) from error


def _read_base_certificates(own_file: str | None, own_folder: str | None) -> ssl.SSLContext:
    """Return whom to trust: the user's own file or folder, or else the system's list.

    Windows and macOS are asked themselves, by truststore. On Linux, where the list may be
    missing, certifi's list is read, too.
    """
    if own_file or own_folder:
        variable = "ssl_cert_dir"
        if own_file:
            variable = "ssl_cert_file"
        with _name_variable_in_errors(variable):
            return ssl.create_default_context(cafile=own_file or None, capath=own_folder or None)

    if sys.platform in {"win32", "darwin"}:
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    import certifi

    context = ssl.create_default_context(cafile=certifi.where())
    context.load_default_certs()
    return context


def is_loopback(url: str) -> bool:
    """Whether an address leads to this computer."""
    import httpx

    try:
        host = httpx.URL(url).host
    except httpx.InvalidURL:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def strip_and_check_key(key: str, provider: str) -> str:
    """Return a key without the space around it. Raises ProviderKeyRefused for what cannot be in
    a header, before a library refuses it and quotes the key in its message.
    """
    stripped_key = key.strip()
    is_plain_text = stripped_key.isascii() and stripped_key.isprintable()
    if not is_plain_text or " " in stripped_key:
        raise ProviderKeyRefused(
            f"The key for {provider} contains characters that cannot be part of a key, such as line breaks, spaces or accented letters.",
            remedy="Copy the key again and enter it.",
        )
    return stripped_key


class HttpAnswer:
    """A response whose head has arrived. Its body is read once, in chunks or whole."""

    def __init__(self, response: httpx.Response, where: str, patience: ProviderPatience) -> None:
        self._response = response
        self._where = where
        self._patience = patience
        self._is_reply_complete = False

    @property
    def status_code(self) -> int:
        return self._response.status_code

    @property
    def response_headers(self) -> Mapping[str, str]:
        return self._response.headers

    @property
    def is_stream(self) -> bool:
        content_type = self.response_headers.get("content-type", "")
        media_type = content_type.partition(";")[0].strip().lower()
        return media_type != "application/json"

    @property
    def has_a_document_on_each_line(self) -> bool:
        """Whether the body is a stream of JSON documents, as Ollama sends it."""
        return "ndjson" in self.response_headers.get("content-type", "")

    @property
    def is_web_page(self) -> bool:
        """Whether it is a web page, such as a site's front page instead of its interface."""
        return self.response_headers.get("content-type", "").startswith("text/html")

    def shorten_wait_for_rest(self) -> None:
        """Wait only briefly for more, because the reply is complete."""
        self._is_reply_complete = True

    async def read_to_end_briefly(self, rest: AsyncIterator[object]) -> None:
        """Read the answer briefly to its end, without which its connection cannot be reused."""
        # If it fails or takes long, the next request makes a new connection.
        with suppress(ProviderUnreachable, TimeoutError):
            async with asyncio.timeout(self._patience.end_of_body):
                async for _ in rest:
                    pass

    async def body_chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it comes. Silence and a lost connection raise ProviderUnreachable.

        The first piece may take long, as the model reads the request before. Once the reply
        is complete, hardly anything is worth waiting for.
        """
        seconds = self._patience.first_byte
        async with aclosing(self._response):
            pieces = self._decoded_pieces()
            while True:
                piece = await self._wait_for_piece(pieces, seconds)
                if piece is None:
                    return
                yield piece
                if self._is_reply_complete:
                    seconds = self._patience.after_end
                else:
                    seconds = self._patience.silence

    async def _wait_for_piece(self, pieces: AsyncIterator[bytes], seconds: float) -> bytes | None:
        """Return the next piece, or None at the end of the body."""
        import httpx

        try:
            async with asyncio.timeout(seconds):
                return await anext(pieces)
        except StopAsyncIteration:
            return None
        except TimeoutError as error:
            raise ProviderUnreachable(
                f"{self._where} sent nothing for {seconds:.0f} seconds."
            ) from error
        except (httpx.HTTPError, OSError) as error:
            raise error_of_lost_connection(error, self._where) from error

    async def _decoded_pieces(self) -> AsyncGenerator[bytes]:
        """Yield the body decompressed, and raise ProviderUnreachable if it gets too large.

        httpx would decompress each piece at once, however large that makes it.
        """
        try:
            body = BodyDecompressor(self.response_headers.get("content-encoding", ""), LONGEST_BODY)
            async for piece in self._response.aiter_raw():
                decoded = body.decode_piece(piece)
                if decoded:
                    yield decoded
            body.require_end()
        except (DecodedTooLarge, UnreadableCoding) as error:
            raise ProviderUnreachable(
                f"The reply from {self._where} cannot be read: {error}."
            ) from error

    async def read_whole_body(self, longest: int = LONGEST_BODY) -> bytes:
        """Return the body, or its first `longest` bytes."""
        content = bytearray()
        async with aclosing(self.body_chunks()) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) >= longest:
                    break
        return bytes(content[:longest])


@dataclass(frozen=True, slots=True)
class ProviderTransport:
    """How to reach one provider. `where`: its name in sentences. `headers` have the
    key, and are never shown.
    """

    base_url: str
    where: str
    headers: Mapping[str, str]
    connections: ProviderConnections
    patience: ProviderPatience = ProviderPatience()
    query: tuple[tuple[str, str], ...] = ()

    def full_url(self, path: str) -> httpx.URL:
        """Return the address for a path of the provider. Raises UnmendableFailure if it is none."""
        import httpx

        try:
            url = httpx.URL(self.base_url.rstrip("/") + path)
        except httpx.InvalidURL as error:
            raise UnmendableFailure(
                f"The address of {self.where} is not valid: {error}", remedy="Correct the address."
            ) from error
        if url.scheme not in {"http", "https"} or not url.host:
            raise UnmendableFailure(
                f"The address of {self.where} must start with http:// or https://.",
                remedy="Correct the address.",
            )
        if not self.query:
            return url
        return url.copy_merge_params(dict(self.query))

    @asynccontextmanager
    async def open_post(
        self, path: str, content: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[HttpAnswer]:
        """Send a JSON document and yield the answer once its head has come.

        `headers` are those of the protocol. They override the ones that all requests have.
        """
        request_headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
        }
        request_headers.update(headers)
        seconds = self.patience.first_byte
        async with self._open_http_request(
            "POST", path, content, request_headers, seconds
        ) as answer:
            yield answer

    @asynccontextmanager
    async def open_get(self, path: str, seconds: float) -> AsyncIterator[HttpAnswer]:
        """Ask for a JSON document and yield the answer once its head has come."""
        headers = {"accept": "application/json"}
        async with self._open_http_request("GET", path, None, headers, seconds) as answer:
            yield answer

    @asynccontextmanager
    async def _open_http_request(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
    ) -> AsyncIterator[HttpAnswer]:
        """Send a request, and yield its answer once the head has come within so many seconds.

        The body is read by the caller, and the answer is closed afterwards. A request without
        an answer raises ProviderUnreachable with what went wrong.
        """
        import httpx

        client = self.connections.direct_or_proxied_client(self.base_url)
        headers_with_key = dict(headers)
        headers_with_key.update(self.headers)
        request = client.build_request(
            method, self.full_url(path), content=content, headers=headers_with_key
        )
        try:
            async with asyncio.timeout(seconds):
                response = await send_for_stream(client, request)
        except TimeoutError as error:
            raise ProviderUnreachable(
                f"{self.where} did not respond within {seconds:.0f} seconds."
            ) from error
        except (httpx.HTTPError, OSError) as error:
            raise error_of_lost_connection(error, self.where, self.base_url) from error
        async with aclosing(response):
            yield HttpAnswer(response, self.where, self.patience)


CHECK = "Check the network connection, and make sure that the server is running."


def _build_no_connection_error(
    error: BaseException, provider: str, url: str, library_message: str
) -> NoConnection:
    """Say why no connection could be made.

    The libraries' own error says only that all attempts failed, so the one below it, which
    the system raised, is looked at.
    """
    original_error = _original_cause(error)
    at_address = ""
    if url:
        at_address = f" at {url}"
    if isinstance(original_error, ConnectionRefusedError):
        return NoConnection(
            f"No connection to {provider}{at_address}: connection refused.", remedy=CHECK
        )
    if isinstance(original_error, socket.gaierror):
        return NoConnection(
            f"No connection to {provider}{at_address}: host not found.",
            remedy="Check the address and the network connection.",
        )
    return NoConnection(
        f"No connection to {provider}{at_address}: {library_message}.", remedy=CHECK
    )


def _original_cause(error: BaseException) -> BaseException:
    """Return the error by which all others came about."""
    while True:
        cause = error.__cause__ or error.__context__
        if cause is None:
            return error
        error = cause


def error_of_lost_connection(error: Exception, provider_name: str, url: str = "") -> ModelFailed:
    """Return what a person is told of a connection that was not made, or broke off."""
    import httpx

    library_message = (str(error) or type(error).__name__).rstrip(".")
    if "CERTIFICATE_VERIFY_FAILED" in library_message:
        return UnmendableFailure(
            f"The certificate of {provider_name} is not trusted on this computer.",
            remedy="If you are behind a company proxy, set SSL_CERT_FILE to the path of its certificate (a .pem file).",
        )
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return UnmendableFailure(
            f"The request to {provider_name} could not be made.",
            remedy="Check the provider's address and headers.",
        )
    if isinstance(error, httpx.ProxyError):
        return ProviderUnreachable(
            f"The proxy refused the connection to {provider_name}: {library_message}.",
            remedy="Check the system's proxy settings.",
        )
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return _build_no_connection_error(error, provider_name, url, library_message)
    return ProviderUnreachable(f"The connection to {provider_name} was lost: {library_message}.")
