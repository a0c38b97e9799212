"""Sends requests of another computer's agent to providers, with the keys of this one.

The other computer is not trusted. It names one of the user's providers and hands over a request; it
never sees a key. A request that asks a model is sent to the provider's own address, and no other one.
"""

import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

from helix_desktop.errors import InvalidInput
from helix_desktop.providers import provider_catalog
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.demo_model import DEMO
from helix_desktop.providers.http_transport import HttpAnswer, ProviderConnections
from helix_desktop.providers.lent_providers import LentProvider, LentRequest
from helix_desktop.providers.provider_catalog import PRESETS, KeySource, ProviderConfig

# What the protocols of this program ask of a provider's address. A key opens much more, such as an
# account's stored files.
_PATHS_THAT_ASK_A_MODEL = re.compile(
    r"/chat/completions|/responses|/messages|/v1/messages|(/v1beta)?/models/[\w.:-]+:streamGenerateContent"
)
# Headers that change how a protocol is spoken. Others of the other computer are not sent.
_PASSED_HEADERS = frozenset({"content-type", "accept", "anthropic-version", "anthropic-beta"})


class KeyLender:
    """`ProviderLender` for the user's own providers. Keys are read for each request, and kept nowhere."""

    def __init__(
        self, configured: ConfiguredProviders, keys: KeySource, connections: ProviderConnections
    ) -> None:
        self.computer = secrets.token_hex(12)
        self._configured = configured
        self._keys = keys
        self._connections = connections
        self.providers: Sequence[LentProvider] = list_lendable_providers(configured)

    @asynccontextmanager
    async def open_lent_answer(self, request: LentRequest) -> AsyncIterator[HttpAnswer]:
        config = provider_catalog.check_provider_config(
            self._configured.find_provider(request.provider)
        )
        path = check_lent_address(config, request.url)
        key = await provider_catalog.find_provider_key(config, self._keys)
        usable_key = provider_catalog.require_usable_key(config, key)
        dialect = provider_catalog.dialect_of_provider(config)
        transport = provider_catalog.transport_to_provider(
            config, dialect, usable_key, self._connections
        )
        headers: dict[str, str] = {}
        for name, value in request.headers:
            if name.lower() in _PASSED_HEADERS:
                headers[name] = value
        async with transport.open_post(path, request.content, headers) as answer:
            yield answer

    def end_lending(self) -> None:
        """Nothing is open here that a later connection does not open again."""


def list_lendable_providers(configured: ConfiguredProviders) -> list[LentProvider]:
    """Return the user's providers, and those that are known and may have a key in a variable."""
    configs = {name: preset for name, preset in PRESETS.items() if preset.variable}
    for config in configured.list_providers():
        configs[config.name] = config
    lendable: list[LentProvider] = []
    for config in configs.values():
        if config.kind == DEMO:
            continue
        checked = provider_catalog.check_provider_config(config)
        lendable.append(LentProvider(checked.name, checked.kind, checked.base_url))
    return lendable


def check_lent_address(config: ProviderConfig, url: str) -> str:
    """Return the path behind the provider's address. InvalidInput if the request is for another
    address, or does not ask a model.
    """
    own = urlsplit(config.base_url)
    try:
        asked = urlsplit(url)
        is_same_server = (asked.scheme, asked.netloc.lower()) == (own.scheme, own.netloc.lower())
    except ValueError:
        is_same_server = False
    own_path = own.path.rstrip("/")
    if not is_same_server or not asked.path.startswith(f"{own_path}/"):
        raise InvalidInput(
            f"The other computer asked for an address that is not that of {config.name}. Nothing was sent."
        )
    path = asked.path.removeprefix(own_path)
    if unquote(path) != path or not _PATHS_THAT_ASK_A_MODEL.fullmatch(path):
        raise InvalidInput(
            f"The other computer asked {config.name} for something else than a model's reply. Nothing was sent."
        )
    if asked.query == "alt=sse":
        return f"{path}?alt=sse"
    return path
