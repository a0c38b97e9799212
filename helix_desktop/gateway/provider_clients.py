"""Connections to providers: registrations that reach them in the same way share theirs."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.providers import http_transport

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30.0)


class ProviderHttpClients:
    """One HTTP client for each way to a provider."""

    def __init__(self) -> None:
        self._clients: dict[frozenset[tuple[str, str]] | None, httpx.AsyncClient] = {}

    def get_client_for(self, registration: GatewayRegistration) -> httpx.AsyncClient:
        """The client for a registration's requests."""
        local = bool(registration.upstream) and http_transport.is_loopback(registration.upstream)
        proxies = {} if local else registration.proxies
        way = None if proxies is None else frozenset(proxies.items())
        if way not in self._clients:
            self._clients[way] = _build_client_for_proxies(proxies)
        return self._clients[way]

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()


def _build_client_for_proxies(proxies: Mapping[str, str] | None) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        timeout=httpx.Timeout(connect=15.0, read=None, write=None, pool=None),
        limits=LIMITS,
        verify=http_transport.trusted_certificates(),
        follow_redirects=False,
        mounts=_proxy_mounts(proxies or {}),
        trust_env=proxies is None,
    )


def _proxy_mounts(proxies: Mapping[str, str]) -> dict[str, httpx.AsyncHTTPTransport | None]:
    """Which addresses go through which proxy, as the variables of an environment say it."""
    mounts: dict[str, httpx.AsyncHTTPTransport | None] = {}
    for scheme in ("all", "http", "https"):
        if proxy := proxies.get(f"{scheme}_proxy"):
            proxy = proxy if "://" in proxy else f"http://{proxy}"
            made = httpx.AsyncHTTPTransport(verify=http_transport.trusted_certificates(), proxy=proxy, limits=LIMITS)
            mounts[f"{scheme}://"] = made
    for host in filter(None, (name.strip().lstrip(".") for name in proxies.get("no_proxy", "").split(","))):
        if host == "*":
            return {}
        mounts |= {f"all://{host}": None, f"all://*.{host}": None}
    return mounts
