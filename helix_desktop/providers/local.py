"""Model servers on this machine, found by themselves: the usual ports of loopback, all asked at once, briefly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from helix_desktop.errors import ModelFailed
from helix_desktop.providers import listing
from helix_desktop.providers.catalog import PRESETS, ProviderConfig
from helix_desktop.providers.models import ModelInfo
from helix_desktop.providers.transport import Connections
from helix_desktop.values import dataclass

USUAL = tuple(PRESETS[name] for name in ("ollama", "lmstudio", "llamacpp", "vllm"))
SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answered, and its models."""

    config: ProviderConfig
    models: tuple[ModelInfo, ...]


async def detect(
    connections: Connections, places: Sequence[ProviderConfig] = USUAL, seconds: float = SECONDS
) -> tuple[Found, ...]:
    """The servers that are there. Nothing else of this machine is touched, and nothing beyond it."""
    answers = await asyncio.gather(*(_look(config, connections, seconds) for config in places))
    return tuple(answer for answer in answers if answer is not None)


async def _look(config: ProviderConfig, connections: Connections, seconds: float) -> Found | None:
    try:
        models = await listing.models(config, None, connections, seconds)
    except ModelFailed:
        return None
    return Found(config, models) if models else None
