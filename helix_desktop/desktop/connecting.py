"""Providers and models for the window: what `gui/setup.py` asks for, done with the providers, the keys and the catalogue."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from helix_desktop.errors import HelixError, ModelFailed, NoKeyring
from helix_desktop.gui.setup import Model, Provider, Refreshed, Sure, Tested
from helix_desktop.gui.words import tr
from helix_desktop.secrets import ProviderKey, Secrets, Where

if TYPE_CHECKING:
    from helix_desktop.providers.catalog import ProviderConfig
    from helix_desktop.providers.configured import Configured
    from helix_desktop.providers.models import ModelInfo
    from helix_desktop.providers.transport import Connections

TITLES = {
    "anthropic": "Anthropic",
    "openai": "OpenAI",
    "gemini": "Google Gemini",
    "openrouter": "OpenRouter",
    "deepseek": "DeepSeek",
    "mistral": "Mistral",
    "xai": "xAI",
    "groq": "Groq",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
}
# What a person most likely wants of a provider's list: names without a date, and without a variant that costs ten times as much.
_WANTED = (
    r"claude-sonnet-[\d-]+",
    r"claude-opus-[\d-]+",
    r"gpt-[\d.]+",
    r"gemini-[\d.]+-pro",
    r"deepseek-(chat|v\d+-pro)",
    r"mistral-large(-\d+)?",
    r"grok-[\d.]+",
)
LOCAL = frozenset({"ollama", "lmstudio", "llamacpp", "vllm", "demo"})
REFRESH = 20.0  # seconds a provider has to list its models
_WHERE = {"keyring": Where.KEYRING, "session": Where.SESSION, "file": Where.FILE}
DEMO = "demo/demo"


class Connecting:
    """Given what the desk holds: the providers' file, the keys, the connections. `allow_file` records that the user said
    keys may stand in a file.
    """

    def __init__(
        self,
        configured: Configured,
        secrets: Secrets,
        connections: Connections,
        allow_file: Callable[[], object] = lambda: None,
    ) -> None:
        self._allow_file = allow_file
        self._configured = configured
        self._secrets = secrets
        self._connections = connections

    def well_known(self) -> Sequence[Provider]:
        from helix_desktop.providers.catalog import PRESETS

        return [_provider(config) for config in PRESETS.values() if config.needs_key]

    async def providers(self) -> Sequence[Provider]:
        configs = await asyncio.to_thread(self._configured.list)
        return [await self._with_key(config) for config in configs]

    async def local(self) -> Sequence[tuple[Provider, Sequence[Model]]]:
        from helix_desktop.providers import local

        found = await local.detect(self._connections)
        return [(replace(_provider(each.config), ready=True), [_model(info) for info in each.models]) for each in found]

    async def test(self, provider: Provider, key: str) -> Tested:
        from helix_desktop.providers import listing
        from helix_desktop.providers.catalog import key_for

        config = self._config(provider)
        self._secrets.ask_again()
        if not key:
            key = await key_for(config, self._secrets) or ""
        models = tuple(_model(info) for info in await listing.models(config, key or None, self._connections))
        return Tested(models, best(models))

    async def add(self, provider: Provider, key: str, keep: str = "keyring") -> None:
        """The key first, so that a key that cannot be kept changes nothing."""
        from helix_desktop.providers.transport import checked_key

        config = self._config(provider)
        if key and keep == "file":
            self._allow_file()
        if key:
            config = replace(config, key_host=config.host)
            await self._secrets.set(config.key, checked_key(key, provider.name), where=_WHERE[keep])
        await asyncio.to_thread(self._configured.put, config)
        with contextlib.suppress(ModelFailed, NoKeyring):  # it can be asked for its models later as well
            await self.models(provider.name)

    def ask_keyring_again(self) -> None:
        self._secrets.ask_again()

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self._configured.remove, name)
        await self._secrets.delete(ProviderKey(name))

    async def models(self, provider: str) -> Sequence[Model]:
        from helix_desktop.providers import listing
        from helix_desktop.providers.catalog import key_for

        config = await asyncio.to_thread(self._configured.get, provider)
        key = await key_for(config, self._secrets)
        found = await listing.refreshed(self._configured, provider, key, self._connections)
        return [_model(info) for info in found]

    async def known(self) -> Sequence[Model]:
        return await asyncio.to_thread(self._known)

    def _known(self) -> Sequence[Model]:
        from helix_desktop.providers.catalog import model_info

        named = [
            _model(model_info(config, model))
            for config in self._configured.list()
            for model in sorted({*config.reported, *config.learned, *config.corrections})
        ]
        return [*named, Model(DEMO, 32_000, note=_title("demo"), provider=_title("demo"), images=False, local=True)]

    async def refresh(self) -> Refreshed:
        configs = await asyncio.to_thread(self._configured.list)
        failed = await asyncio.gather(*(self._refreshed(config.name) for config in configs))
        silent = tuple((_title(config.name), why) for config, why in zip(configs, failed, strict=True) if why)
        return Refreshed(tuple(await self.known()), silent)

    async def _refreshed(self, provider: str) -> str:
        """Why it could not be asked; empty when it answered."""
        try:
            async with asyncio.timeout(REFRESH):
                await self.models(provider)
        except TimeoutError:
            return f"{_title(provider)} did not respond within {REFRESH:.0f} seconds."
        except HelixError as error:
            return str(error)
        return ""

    async def correct(self, model: str, values: Mapping[str, float | bool]) -> None:
        provider, _, name = model.partition("/")
        await asyncio.to_thread(self._configured.correct, provider, name, values)

    async def reset(self, model: str) -> None:
        provider, _, name = model.partition("/")
        await asyncio.to_thread(self._configured.uncorrect, provider, name)

    async def _with_key(self, config: ProviderConfig) -> Provider:
        provider = _provider(config)
        try:
            where = await self._secrets.where(config.key)
        except NoKeyring:
            where = None
        return replace(provider, key=where.value if where else "", ready=where is not None or not config.needs_key)

    def _config(self, provider: Provider) -> ProviderConfig:
        from helix_desktop.errors import NotThere
        from helix_desktop.providers.catalog import ProviderConfig, moved

        try:
            config = self._configured.get(provider.name)
        except NotThere:
            config = ProviderConfig(provider.name)
        if provider.address:
            config = moved(config, provider.address)
        given = {"kind": provider.kind, "variable": provider.variable}
        return replace(config, **{name: value for name, value in given.items() if value})  # type: ignore[arg-type]


def best(models: Sequence[Model]) -> str:
    """The model to begin with: the newest of a well-known kind, or the only one. Of an unknown server's models the user chooses."""
    from helix_desktop.providers.models import undated

    for wanted in _WANTED:
        named = [model for model in models if re.fullmatch(wanted, undated(model.id))]
        if named:
            return max(named, key=lambda model: ([*map(int, re.findall(r"\d+", undated(model.id)))], model.name)).name
    return models[0].name if len(models) == 1 else ""


def _provider(config: ProviderConfig) -> Provider:
    return Provider(
        config.name,
        _title(config.name),
        config.base_url,
        config.kind,
        needs_key=config.needs_key,
        local=config.is_local,
        variable=config.variable,
    )


def _title(provider: str) -> str:
    return tr("Demo (a script, not a language model)") if provider == "demo" else TITLES.get(provider, provider)


def _model(info: ModelInfo) -> Model:
    from helix_desktop.providers.models import WindowFrom

    sure = {WindowFrom.USER: Sure.SET, WindowFrom.LEARNED: Sure.LEARNED, WindowFrom.ASSUMED: Sure.ASSUMED}
    return Model(
        info.name,
        info.window,
        info.prices.input,
        info.prices.output,
        info.note,
        provider=_title(info.provider),
        price_cache_read=info.prices.cache_read,
        price_cache_write=info.prices.cache_write,
        max_output=info.abilities.max_output,
        images=info.abilities.images,
        tools=info.abilities.tools,
        thinking=bool(info.abilities.reasoning),
        temperature=info.abilities.temperature,
        local=info.provider in LOCAL,
        sure=sure.get(info.window_from, Sure.TOLD),
    )
