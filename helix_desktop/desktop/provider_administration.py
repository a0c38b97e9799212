"""Implements `gui/model_setup_port.py`: providers, keys and models for the window."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from helix_desktop.errors import HelixError, ModelFailed, NotFound, NoUsableKeyring
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import model_setup_port
from helix_desktop.gui.model_setup_port import ModelChoice, ProviderChoice
from helix_desktop.gui.translation import tr
from helix_desktop.providers import provider_catalog
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections, strip_and_check_key
from helix_desktop.providers.known_providers import KNOWN_PROVIDERS
from helix_desktop.providers.model_prices import ModelInfo, without_edition_date
from helix_desktop.resources import resources_folder
from helix_desktop.secrets import ProviderKey, SecretKeeper, SecretStorage

TITLES: Mapping[str, str] = {known.name: known.title for known in KNOWN_PROVIDERS}
# Patterns of the models that most people want: without dates, and without variants at
# ten times the price.
_WANTED = tuple((resources_folder() / "usual_models.txt").read_text("utf-8").split())
REFRESH = 20.0  # A provider must list its models within this many seconds.
_WHERE = {
    "keyring": SecretKeeper.KEYRING,
    "session": SecretKeeper.SESSION,
    "file": SecretKeeper.FILE,
}
DEMO = "demo/demo"


@dataclass(eq=False)
class ProviderAdministration:
    """Changes providers and keys. `allow_file` records that the user allows keys to be
    stored in a file.
    """

    configured: ConfiguredProviders
    secrets: SecretStorage
    connections: ProviderConnections
    allow_file: Callable[[], object] = lambda: None
    # Where servers on this computer may listen; empty: at their usual ports.
    local_places: Sequence[provider_catalog.ProviderConfig] = ()

    def list_well_known_providers_with_key(self) -> Sequence[ProviderChoice]:
        return [
            self._build_choice_from_environment(config)
            for config in provider_catalog.PRESETS.values()
            if config.needs_key
        ]

    def _build_choice_from_environment(
        self, config: provider_catalog.ProviderConfig
    ) -> ProviderChoice:
        """Builds a choice with the address and key that the environment names, if any."""
        variable, address = self.secrets.find_address_in_environment(config.provider_key)
        config = replace(config, base_url=address or config.base_url)
        key = (
            SecretKeeper.ENVIRONMENT.value
            if self.secrets.is_in_environment(config.provider_key)
            else ""
        )
        return replace(_build_provider_choice(config), address_variable=variable, key=key)

    async def list_configured_providers(self) -> Sequence[ProviderChoice]:
        configs = await asyncio.to_thread(self.configured.list_providers)
        return [await self._build_choice_with_key_state(config) for config in configs]

    async def find_local_providers(self) -> Sequence[tuple[ProviderChoice, Sequence[ModelChoice]]]:
        from helix_desktop.providers import local_servers

        choices: list[tuple[ProviderChoice, Sequence[ModelChoice]]] = []
        places = self.local_places or local_servers.USUAL
        for server in await local_servers.detect_local_servers(self.connections, places):
            provider = _build_provider_choice(server.config)
            if server.title:
                provider = replace(provider, title=server.title)
            choices.append((provider, [_build_model_choice(info) for info in server.models]))
        return choices

    async def test_provider(
        self, provider: ProviderChoice, key: str
    ) -> model_setup_port.ProviderTestResult:
        from helix_desktop.providers import model_listing

        config = self._config_of_provider(provider)
        self.secrets.allow_asking_keyring()
        if key:
            await self.check_provider_address(provider)
        else:
            key = await provider_catalog.find_provider_key(config, self.secrets) or ""
        models = tuple(
            _build_model_choice(info)
            for info in await model_listing.list_models(config, key or None, self.connections)
        )
        return model_setup_port.ProviderTestResult(models, pick_default_model(models))

    async def check_provider_address(self, provider: ProviderChoice) -> None:
        from helix_desktop.providers import model_listing

        await model_listing.check_provider_address(
            self._config_of_provider(provider), self.connections
        )

    async def add_provider_with_key(
        self, provider: ProviderChoice, key: str, keep: str = "keyring"
    ) -> None:
        """Stores the key before the provider, so that nothing changes if it cannot be stored."""
        config = self._config_of_provider(provider)
        if key and keep == "file":
            self.allow_file()
        if key:
            await self.check_provider_address(provider)
            config = replace(config, key_host=config.host)
            await self.secrets.store_secret_at(
                config.provider_key, strip_and_check_key(key, provider.name), where=_WHERE[keep]
            )
        await asyncio.to_thread(self.configured.save_provider, config)
        with contextlib.suppress(ModelFailed, NoUsableKeyring):  # The models can be listed later.
            await self.list_provider_models(provider.name)

    def allow_asking_keyring_again(self) -> None:
        self.secrets.allow_asking_keyring()

    async def remove_provider_and_key(self, name: str) -> None:
        await asyncio.to_thread(self.configured.remove_provider, name)
        await self.secrets.delete_secret(ProviderKey(name))

    async def list_provider_models(self, provider: str) -> Sequence[ModelChoice]:
        from helix_desktop.providers import model_listing

        config = await asyncio.to_thread(self.configured.find_provider, provider)
        key = await provider_catalog.find_provider_key(config, self.secrets)
        found = await model_listing.list_and_save_models(
            self.configured, provider, key, self.connections
        )
        return [_build_model_choice(info) for info in found]

    async def list_known_models(self) -> Sequence[ModelChoice]:
        return await asyncio.to_thread(self._list_models_of_all_providers)

    def _list_models_of_all_providers(self) -> Sequence[ModelChoice]:
        named = [
            _build_model_choice(provider_catalog.describe_model(config, model))
            for config in self.configured.list_providers()
            for model in sorted({*config.reported, *config.learned, *config.corrections})
        ]
        return [
            *named,
            ModelChoice(
                DEMO,
                32_000,
                note=_provider_title("demo"),
                provider=_provider_title("demo"),
                images=False,
                local=True,
            ),
        ]

    async def refresh_model_lists(self) -> model_setup_port.RefreshedModels:
        configs = await asyncio.to_thread(self.configured.list_providers)
        failed = await asyncio.gather(
            *(self._refresh_provider_models(config.name) for config in configs)
        )
        silent = tuple(
            (_provider_title(config.name), why)
            for config, why in zip(configs, failed, strict=True)
            if why
        )
        *models, demo = await self.list_known_models()
        models += await self._list_models_running_here(configs)
        return model_setup_port.RefreshedModels((*models, demo), silent)

    async def _list_models_running_here(
        self, configs: Sequence[provider_catalog.ProviderConfig]
    ) -> Sequence[ModelChoice]:
        """Lists the models of servers that run on this computer and were never added."""
        added = {config.name for config in configs} | {config.base_url for config in configs}
        choices: list[ModelChoice] = []
        for provider, models in await self.find_local_providers():
            if provider.name not in added and provider.address not in added:
                choices += models
        return choices

    async def _refresh_provider_models(self, provider: str) -> str:
        """Returns why the provider could not be asked, or an empty string if it answered."""
        try:
            async with asyncio.timeout(REFRESH):
                await self.list_provider_models(provider)
        except TimeoutError:
            return f"{_provider_title(provider)} did not respond within {REFRESH:.0f} seconds."
        except HelixError as error:
            return str(error)
        return ""

    async def correct_model_values(self, model: str, values: Mapping[str, float | bool]) -> None:
        provider, _, name = model.partition("/")
        await asyncio.to_thread(self.configured.correct_model, provider, name, values)

    async def reset_model_values(self, model: str) -> None:
        provider, _, name = model.partition("/")
        await asyncio.to_thread(self.configured.forget_corrections, provider, name)

    async def _build_choice_with_key_state(
        self, config: provider_catalog.ProviderConfig
    ) -> ProviderChoice:
        provider = _build_provider_choice(config)
        try:
            where = await self.secrets.find_secret_keeper(config.provider_key)
        except NoUsableKeyring:
            where = None
        return replace(provider, key=where.value if where else "")

    def _config_of_provider(self, provider: ProviderChoice) -> provider_catalog.ProviderConfig:
        try:
            config = self.configured.find_provider(provider.name)
        except NotFound:
            config = provider_catalog.ProviderConfig(provider.name)
        if provider.address:
            config = provider_catalog.with_base_url(config, provider.address)
        given = {"kind": provider.kind, "variable": provider.variable}
        return replace(config, **{name: value for name, value in given.items() if value})  # type: ignore[arg-type]


def pick_default_model(models: Sequence[ModelChoice]) -> str:
    """Returns the newest model of a well-known kind, or the only one, or none."""
    for wanted in _WANTED:
        named = [model for model in models if re.fullmatch(wanted, without_edition_date(model.id))]
        if named:
            return max(
                named,
                key=lambda model: (
                    [*map(int, re.findall(r"\d+", without_edition_date(model.id)))],
                    model.name,
                ),
            ).name
    return models[0].name if len(models) == 1 else ""


def _build_provider_choice(config: provider_catalog.ProviderConfig) -> ProviderChoice:
    return ProviderChoice(
        config.name,
        _provider_title(config.name),
        config.base_url,
        config.kind,
        needs_key=config.needs_key
        or "" != config.key_host == config.host,  # A key was entered for this host before.
        variable=config.variable,
    )


def _provider_title(provider: str) -> str:
    return (
        tr("Demo (a script, not a language model)")
        if provider == "demo"
        else TITLES.get(provider, provider)
    )


def _build_model_choice(info: ModelInfo) -> ModelChoice:
    return ModelChoice(
        info.name,
        info.window,
        info.prices.input,
        info.prices.output,
        info.note,
        provider=_provider_title(info.provider),
        price_cache_read=info.prices.cache_read,
        price_cache_write=info.prices.cache_write,
        max_output=info.abilities.max_output,
        images=info.abilities.images,
        are_images_known=info.are_images_known,
        tools=info.abilities.tools,
        thinking=bool(info.abilities.reasoning),
        temperature=info.abilities.temperature,
        local=info.is_free,
        sure=info.window_from,
    )
