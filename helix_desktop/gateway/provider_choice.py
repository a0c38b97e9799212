"""Chooses where an agent's request goes: the provider's address, the HTTP client that
reaches it, and a stored key if the agent sends none.
"""

from dataclasses import replace
from urllib.parse import unquote, urlsplit

import httpx

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import request_routes
from helix_desktop.gateway.agent_upstreams import CODEX_SUBSCRIPTION_URL
from helix_desktop.gateway.codex_workspace import (
    ACCOUNT_HEADER,
    REGION_HEADER,
    CodexWorkspaceRoutes,
)
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.request_parsing import IncomingRequest
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.providers.http_transport import build_http_client, is_loopback

_KEY_HEADERS = {anthropic_gateway.NAME: b"x-api-key", gemini_gateway.NAME: b"x-goog-api-key"}
_HEADERS_WITH_KEYS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")


@dataclass(frozen=True, slots=True)
class ChosenProvider:
    """Where a request goes. `incoming`: the request, with the headers that this provider needs."""

    url: str
    client: httpx.AsyncClient
    incoming: IncomingRequest


class ProviderChoice:
    """Knows the HTTP clients of all providers, and where Codex's accounts want their requests."""

    def __init__(self) -> None:
        self._clients = ProviderHttpClients()
        self._codex_workspaces = CodexWorkspaceRoutes()

    async def choose_provider(self, incoming: IncomingRequest) -> ChosenProvider:
        """Return where a request goes, by which client, and with which headers. Raises
        ProviderUnreachable if that must be asked first, and nobody answers.
        """
        _refuse_token_in_target(incoming)
        address = address_of_provider(incoming)
        with_key = _add_stored_key_if_missing(incoming, address)
        client = self._clients.get_client_for(incoming.registration)
        path = incoming.route.path
        if incoming.protocol != responses_gateway.NAME:
            url = request_routes.join_provider_address(address, path, incoming.query)
            return ChosenProvider(url, client, with_key)

        # Codex's account may belong to a workspace with an address and a region of its own.
        route = await self._codex_workspaces.find_route(address, incoming.headers, client)
        url = request_routes.join_provider_address(route.base_url, path, incoming.query)
        if not route.region:
            return ChosenProvider(url, client, with_key)
        region = route.region.encode("latin-1", "replace")
        with_region = _with_header(with_key, REGION_HEADER.encode(), region)
        return ChosenProvider(url, client, with_region)

    async def aclose(self) -> None:
        await self._clients.aclose()


def address_of_provider(incoming: IncomingRequest) -> str:
    """Return the address that the registration names, or else the protocol's usual one."""
    registration = incoming.registration
    if registration.upstream:
        return registration.upstream
    protocol = incoming.protocol
    if protocol == responses_gateway.NAME and ACCOUNT_HEADER in incoming.headers:
        return CODEX_SUBSCRIPTION_URL
    return registration.upstreams.get(protocol) or request_routes.UPSTREAMS[protocol]


def _refuse_token_in_target(incoming: IncomingRequest) -> None:
    """Raise InvalidURL if what would be sent on of the address still has its token.

    This happens where the token does not stand at the path's beginning, such as in an
    address that was put together wrongly. The provider must not see it.
    """
    target = unquote(f"{incoming.route.path}?{incoming.query}")
    if request_routes.has_token(target, incoming.registration.token):
        raise httpx.InvalidURL("the address has its token more than once, or in the wrong place")


def _add_stored_key_if_missing(incoming: IncomingRequest, address: str) -> IncomingRequest:
    """Add the key that the user has stored, if the request has none and goes to the host that the
    key is for. Each protocol has a header of its own for it.
    """
    registration = incoming.registration
    host = urlsplit(address).netloc.lower()
    if not registration.key or host != registration.key_host:
        return incoming
    for name in _HEADERS_WITH_KEYS:
        if incoming.headers.get(name):
            return incoming

    header = _KEY_HEADERS.get(incoming.protocol, b"authorization")
    value = registration.key
    if header == b"authorization":
        value = f"Bearer {value}"
    return _with_header(incoming, header, value.encode("latin-1"))


def _with_header(incoming: IncomingRequest, name: bytes, value: bytes) -> IncomingRequest:
    raw_headers = list(incoming.raw_headers)
    raw_headers.append((name, value))
    return replace(incoming, raw_headers=tuple(raw_headers))


@dataclass(frozen=True, slots=True)
class ProviderConnection:
    """What an HTTP client is for: a provider's address, and the proxy settings to reach it with
    (None: those of this process).
    """

    upstream: str
    proxies: frozenset[tuple[str, str]] | None


class ProviderHttpClients:
    """One HTTP client for each provider, and for each way through proxies to it."""

    def __init__(self) -> None:
        self._clients: dict[ProviderConnection, httpx.AsyncClient] = {}

    def get_client_for(self, registration: GatewayRegistration) -> httpx.AsyncClient:
        """Return the client for a registration's requests, which keeps its connections open."""
        proxies: frozenset[tuple[str, str]] | None = None
        if registration.proxies is not None:
            proxies = frozenset(registration.proxies.items())
        connection = ProviderConnection(registration.upstream, proxies)
        client = self._clients.get(connection)
        if client is None:
            client = _build_client_for(registration)
            self._clients[connection] = client
        return client

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()


def _build_client_for(registration: GatewayRegistration) -> httpx.AsyncClient:
    """Build the client for a registration's provider and proxies."""
    proxies = registration.proxies
    if not registration.upstream or not is_loopback(registration.upstream):
        return build_http_client(uses_environment=proxies is None, proxies=proxies)
    # No proxy is asked for a server on this computer, but the certificates are kept.
    settings_without_proxies: dict[str, str] = {}
    for name, value in (proxies or {}).items():
        if not name.endswith("_proxy"):
            settings_without_proxies[name] = value
    return build_http_client(uses_environment=False, proxies=settings_without_proxies)
