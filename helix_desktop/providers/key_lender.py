"""Sends requests of another computer's agent to providers, with the keys of this one.

The other computer is not trusted. It names one of the user's providers and hands over a request; it
never sees a key. A request that asks a model is sent to the provider's own address, and no other one.
"""

import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Protocol
from urllib.parse import unquote, urlsplit

from helix_desktop.errors import InvalidInput
from helix_desktop.providers import provider_catalog
from helix_desktop.providers.demo_model import DEMO
from helix_desktop.providers.http_transport import (
    LONGEST_REFUSAL,
    HttpAnswer,
    ProviderConnections,
)
from helix_desktop.providers.lent_providers import LentProvider, LentRequest
from helix_desktop.providers.provider_catalog import PRESETS, KeySource, ProviderConfig

# What the protocols of this program ask of a provider's address. A key opens much more, such as an
# account's stored files.
_PATHS_THAT_ASK_A_MODEL = re.compile(
    r"/chat/completions|/responses|/messages|/v1/messages|(/v1beta)?/models/[\w.:-]+:streamGenerateContent"
)
# Headers that change how a protocol is spoken. Others of the other computer are not sent.
_PASSED_HEADERS = frozenset({"content-type", "accept", "anthropic-version", "anthropic-beta"})
# Headers of an answer that the other computer needs. Others are for the holder of the key: some
# servers answer a key with a cookie that is as good as the key, or name the account.
_RETURNED_HEADERS = ("content-type", "retry-after", "retry-after-ms")
_FIRST_STATUS_OF_FAILURE = 400
_HIDDEN_KEY = b"[key]"


class ProviderSource(Protocol):
    """The providers whose keys are lent, such as `ConfiguredProviders`."""

    def find_provider(self, name: str) -> ProviderConfig: ...

    def list_providers(self) -> Sequence[ProviderConfig]: ...


class KeyLender:
    """`ProviderLender` for the user's own providers. Keys are read for each request, and kept nowhere."""

    def __init__(
        self, configured: ProviderSource, keys: KeySource, connections: ProviderConnections
    ) -> None:
        self.computer = secrets.token_hex(12)
        self.conversation = ""
        self._configured = configured
        self._keys = keys
        self._connections = connections
        self.providers: Sequence[LentProvider] = list_lendable_providers(configured)

    def describe_provider(self, name: str) -> LentProvider:
        config = provider_catalog.check_provider_config(self._configured.find_provider(name))
        return LentProvider(config.name, config.kind, config.base_url)

    @asynccontextmanager
    async def open_lent_answer(self, request: LentRequest) -> AsyncIterator["AnswerWithoutKey"]:
        """Send a request of the other computer with the user's key, and yield the answer.

        Raises InvalidInput before anything is sent if the request does not ask a model.
        """
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
            is_sendable = value.isascii() and value.isprintable()
            if name.lower() in _PASSED_HEADERS and is_sendable:
                headers[name.lower()] = value
        async with transport.open_post(path, request.content, headers) as answer:
            yield AnswerWithoutKey(answer, usable_key)

    def end_lending(self) -> None:
        """Nothing is open here that a later connection does not open again."""

    def dismiss(self) -> None:
        """It is the user's own, which nobody dismisses."""


class AnswerWithoutKey:
    """What the other computer gets of a provider's answer. Some servers quote a key that they refuse."""

    def __init__(self, answer: HttpAnswer, key: str) -> None:
        self._answer = answer
        self._key = key.encode()

    @property
    def status_code(self) -> int:
        return self._answer.status_code

    @property
    def response_headers(self) -> Mapping[str, str]:
        returned: dict[str, str] = {}
        for name in _RETURNED_HEADERS:
            if name in self._answer.response_headers:
                returned[name] = self._answer.response_headers[name]
        return returned

    async def body_chunks(self) -> AsyncGenerator[bytes]:
        if self.status_code >= _FIRST_STATUS_OF_FAILURE:
            # Read whole, as a key could be divided between two pieces.
            refusal = await self._answer.read_whole_body(LONGEST_REFUSAL)
            if self._key:
                refusal = refusal.replace(self._key, _HIDDEN_KEY)
            yield refusal
            return
        async with aclosing(self._answer.body_chunks()) as chunks:
            async for chunk in chunks:
                yield chunk


def list_lendable_providers(configured: ProviderSource) -> list[LentProvider]:
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
    """Return the path behind the provider's address that a request of the other computer is for.

    Raises InvalidInput if it is for another address, or for a path that does not ask a model:
    the user's key must not open anything else.
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
    # Quoted letters (%2e) could lead elsewhere once the provider has read them.
    has_quoted_letters = unquote(path) != path
    if has_quoted_letters or not _PATHS_THAT_ASK_A_MODEL.fullmatch(path):
        raise InvalidInput(
            f"The other computer asked {config.name} for something else than a model's reply. Nothing was sent."
        )
    if asked.query == "alt=sse":  # Gemini's parameter for a reply as a stream.
        return f"{path}?alt=sse"
    return path
