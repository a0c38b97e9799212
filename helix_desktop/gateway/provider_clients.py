"""Shares HTTP connections among the registrations that reach a provider in the same way."""

import httpx

from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.providers.http_transport import build_http_client, is_loopback


class ProviderHttpClients:
    """One HTTP client for each way to a provider."""

    def __init__(self) -> None:
        self._clients: dict[frozenset[tuple[str, str]] | None, httpx.AsyncClient] = {}

    def get_client_for(self, registration: GatewayRegistration) -> httpx.AsyncClient:
        local = bool(registration.upstream) and is_loopback(registration.upstream)
        proxies = registration.proxies
        if local:
            proxies = {name: one for name, one in (proxies or {}).items() if not name.endswith("_proxy")}
        way = None if proxies is None else frozenset(proxies.items())
        if way not in self._clients:
            self._clients[way] = build_http_client(uses_environment=proxies is None, proxies=proxies)
        return self._clients[way]

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()
