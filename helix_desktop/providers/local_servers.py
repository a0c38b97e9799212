"""Finds model servers on this machine by asking the usual ports, all at once and briefly."""

import asyncio
from collections.abc import Sequence

from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.providers import model_listing
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.known_providers import LOCAL_SERVERS
from helix_desktop.providers.model_prices import ModelInfo
from helix_desktop.providers.provider_catalog import PRESETS, ProviderConfig

USUAL = tuple(PRESETS[server.name] for server in LOCAL_SERVERS)
SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class LocalServer:
    config: ProviderConfig
    models: tuple[ModelInfo, ...]

    @property
    def title(self) -> str:
        """Return what the server says it is. At the port of one there may be another."""
        if not self.models:
            return ""
        return self.models[0].server


async def detect_local_servers(
    connections: ProviderConnections,
    places: Sequence[ProviderConfig] = USUAL,
    seconds: float = SECONDS,
) -> tuple[LocalServer, ...]:
    """Return the servers that answer. Touches nothing else, here or elsewhere."""
    probes = [_probe_server(config, connections, seconds) for config in places]
    answers = await asyncio.gather(*probes)
    return tuple(answer for answer in answers if answer is not None)


async def _probe_server(
    config: ProviderConfig, connections: ProviderConnections, seconds: float
) -> LocalServer | None:
    """Return the server at an address with its models, or None if none answers."""
    try:
        models = await model_listing.list_models(config, None, connections, seconds)
    except ModelFailed:
        return None
    if not models:
        return None
    return LocalServer(config, models)
