"""Connections to providers: registrations that reach them in the same way share theirs."""

from __future__ import annotations

from collections.abc import Hashable

import httpx

from helix_desktop.gateway.registration import Registration
from helix_desktop.providers import transport


class ProviderClients:
    """One HTTP client for each way to a provider."""

    def __init__(self) -> None:
        self._clients: dict[Hashable, httpx.AsyncClient] = {}

    def client(self, registration: Registration) -> httpx.AsyncClient:
        """The client for a registration's requests."""
        local = bool(registration.upstream) and transport.is_loopback(registration.upstream)
        found = self._clients.get(local)
        if found is None:
            found = self._clients[local] = _client(uses_environment=not local)
        return found

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()


def _client(*, uses_environment: bool) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        timeout=httpx.Timeout(connect=15.0, read=None, write=None, pool=None),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30.0),
        verify=transport.certificates(),
        follow_redirects=False,
        trust_env=uses_environment,
    )
