"""Notices before each request with which window a local server runs a model now.

A server may have been started again with another window, or may have dropped the model
from memory, since its models were listed.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Object, value_at, without_fields
from helix_desktop.protocols.openai_chat import chat_client
from helix_desktop.providers import http_transport, local_server_details, provider_catalog
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections, ProviderTransport
from helix_desktop.providers.local_server_details import LocalServerKind
from helix_desktop.providers.provider_catalog import ProviderConfig

ASKING_SECONDS = 2.0  # What a turn waits at most for a busy server. It keeps what was known.
# A server that did not say who it is, or did not answer, is not asked before each request.
PAUSE_SECONDS = 60.0


@dataclass(slots=True)
class LocalModelState:
    """Asks local servers about the model that is used next. Shared by all workspaces."""

    configured: ConfiguredProviders
    connections: ProviderConnections
    clock: Callable[[], float] = time.monotonic
    _unknown_since: dict[str, float] = field(default_factory=dict)

    async def update_model(self, provider: str, model: str, *, may_load: bool) -> None:
        """Ask a local server about a model before a request, and save what has changed.

        `may_load`: make the server load the model if it has not, because nothing else tells
        with which window it will run. Does nothing for a provider elsewhere.
        """
        config = await asyncio.to_thread(self.configured.find_provider, provider)
        is_here = provider_catalog.has_address_of_this_computer(config)
        if not is_here or config.kind != chat_client.KIND:
            return
        # Importing the library for requests would hold up the window.
        await asyncio.to_thread(http_transport.load_http_and_certificates)
        known_details = config.reported.get(model, {})
        # A window that the user set is asked for by the request itself. Loading the model
        # with its usual window first would load it twice.
        has_user_set_window = "window" in config.corrections.get(model, {})
        reported = await self._ask_model_server(
            config, model, known_details, may_load=may_load and not has_user_set_window
        )
        if reported and reported != known_details:
            await asyncio.to_thread(self.configured.save_reported_model, provider, model, reported)

    async def _ask_model_server(
        self, config: ProviderConfig, model: str, known_details: Object, *, may_load: bool
    ) -> Object:
        """Return what the server says of a model now, or an empty object if it says nothing.

        First it is asked as the kind of server that it was last time. If that gives nothing,
        it may be another one now, so it is asked who it is, but only once a minute.
        """
        dialect = provider_catalog.dialect_of_provider(config)
        transport = provider_catalog.transport_to_provider(config, dialect, "", self.connections)
        root = local_server_details.server_root(transport)
        kind = provider_catalog.local_server_kind(known_details)
        details = await _fetch_details_now(root, kind, model)
        if not details and not self._was_asked_in_vain(config):
            # Another server may listen at this address now.
            kind = await local_server_details.identify_local_server(root, ASKING_SECONDS)
            details = await _fetch_details_now(root, kind, model)
            if not details:
                self._unknown_since[config.base_url] = self.clock()
        if kind is None or not details:
            return {}

        is_loaded = value_at(details, "is_loaded") is True
        if may_load and not is_loaded and local_server_details.is_loaded_when_needed(kind):
            details_once_loaded = await local_server_details.load_model(root, kind, model)
            details = details_once_loaded or details
        # What the list of models said and the server does not repeat still holds.
        merged = without_fields(known_details, "window", "note", "is_loaded", "largest_window")
        merged.update(details)
        merged["server"] = kind.value
        return merged

    def _was_asked_in_vain(self, config: ProviderConfig) -> bool:
        """Whether the server did not say who it is when it was asked a short while ago."""
        asked_at = self._unknown_since.get(config.base_url)
        if asked_at is None:
            return False
        return self.clock() - asked_at < PAUSE_SECONDS


async def _fetch_details_now(
    root: ProviderTransport, kind: LocalServerKind | None, model: str
) -> Object:
    """Return what a server of this kind says of a model, or an empty object."""
    if kind is None:
        return {}
    details = await local_server_details.fetch_details_of_kind(root, kind, (model,), ASKING_SECONDS)
    return details.get(model, {})
