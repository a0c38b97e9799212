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
from helix_desktop.gui.sentence_translation import translate_provider_name
from helix_desktop.gui.translation import tr
from helix_desktop.providers import provider_catalog
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections, strip_and_check_key
from helix_desktop.providers.model_prices import ModelInfo, without_edition_date
from helix_desktop.resources import resources_folder
from helix_desktop.secrets import ProviderKey, SecretKeeper, SecretStorage

# Patterns of the models that most people want: without dates, and without variants at
# ten times the price.
_USUAL_MODELS = tuple((resources_folder() / "usual_models.txt").read_text("utf-8").split())
REFRESH_SECONDS = 20.0  # A provider must list its models within this many seconds.
_KEEPER_BY_PLACE = {
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
        choices: list[ProviderChoice] = []
        for config in provider_catalog.PRESETS.values():
            if config.needs_key:
                choices.append(self._build_choice_from_environment(config))
        return choices

    def _build_choice_from_environment(
        self, config: provider_catalog.ProviderConfig
    ) -> ProviderChoice:
        """Builds a choice with the address and key that the environment names, if any."""
        variable, address = self.secrets.find_address_in_environment(config.provider_key)
        if address:
            config = replace(config, base_url=address)
        key_place = ""
        if self.secrets.is_in_environment(config.provider_key):
            key_place = SecretKeeper.ENVIRONMENT.value
        choice = _build_provider_choice(config)
        return replace(choice, address_variable=variable, key=key_place)

    async def list_configured_providers(self) -> Sequence[ProviderChoice]:
        configs = await asyncio.to_thread(self.configured.list_providers)
        return [await self._build_choice_with_key_state(config) for config in configs]

    async def is_local_server_connected(self) -> bool:
        """Tells whether a provider at an address of this computer was added. The demo is none."""
        configs = await asyncio.to_thread(self.configured.list_providers)
        return any(config.is_local and config.name != "demo" for config in configs)

    async def find_local_providers(self) -> Sequence[tuple[ProviderChoice, Sequence[ModelChoice]]]:
        from helix_desktop.providers import local_servers

        choices: list[tuple[ProviderChoice, Sequence[ModelChoice]]] = []
        places = self.local_places or local_servers.USUAL
        for server in await local_servers.detect_local_servers(self.connections, places):
            provider = _build_provider_choice(server.config)
            if server.title:
                provider = replace(provider, title=server.title)
            models = [_build_model_choice(info) for info in server.models]
            choices.append((provider, models))
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
        listed = await model_listing.list_models(config, key or None, self.connections)
        models = tuple(_build_model_choice(info) for info in listed)
        return model_setup_port.ProviderTestResult(models, pick_default_model(models))

    def is_provider_address(self, address: str) -> bool:
        return provider_catalog.is_provider_address(address)

    async def check_provider_address(self, provider: ProviderChoice) -> None:
        from helix_desktop.providers import model_listing

        config = self._config_of_provider(provider)
        await model_listing.check_provider_address(config, self.connections)

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
            clean_key = strip_and_check_key(key, provider.name)
            keeper = _KEEPER_BY_PLACE[keep]
            await self.secrets.store_secret_at(config.provider_key, clean_key, where=keeper)
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
        listed = await model_listing.list_and_save_models(
            self.configured, provider, key, self.connections
        )
        return [_build_model_choice(info) for info in listed]

    async def list_known_models(self) -> Sequence[ModelChoice]:
        return await asyncio.to_thread(self._list_models_of_all_providers)

    def _list_models_of_all_providers(self) -> Sequence[ModelChoice]:
        choices: list[ModelChoice] = []
        for config in self.configured.list_providers():
            known_models = set(config.reported).union(config.learned, config.corrections)
            for model in sorted(known_models):
                info = provider_catalog.describe_model(config, model)
                choices.append(_build_model_choice(info))
        choices.append(_build_demo_choice())
        return choices

    async def refresh_model_lists(self) -> model_setup_port.RefreshedModels:
        configs = await asyncio.to_thread(self.configured.list_providers)
        refreshing = [self._refresh_provider_models(config.name) for config in configs]
        complaints = await asyncio.gather(*refreshing)
        silent_providers: list[tuple[str, str]] = []
        for config, complaint in zip(configs, complaints, strict=True):
            if complaint:
                silent_providers.append((_provider_title(config.name), complaint))
        models = list(await self.list_known_models())
        demo = models.pop()  # The demo comes last.
        models += await self._list_models_running_here(configs)
        models.append(demo)
        return model_setup_port.RefreshedModels(tuple(models), tuple(silent_providers))

    async def _list_models_running_here(
        self, configs: Sequence[provider_catalog.ProviderConfig]
    ) -> Sequence[ModelChoice]:
        """Lists the models of servers that run on this computer and were never added."""
        added_names = {config.name for config in configs}
        added_addresses = {config.base_url for config in configs}
        choices: list[ModelChoice] = []
        for provider, models in await self.find_local_providers():
            is_added = provider.name in added_names or provider.address in added_addresses
            if not is_added:
                choices += models
        return choices

    async def _refresh_provider_models(self, provider: str) -> str:
        """Returns why the provider could not be asked, or an empty string if it answered."""
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                await self.list_provider_models(provider)
        except TimeoutError:
            return (
                f"{_provider_title(provider)} did not respond within {REFRESH_SECONDS:.0f} seconds."
            )
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
            keeper = await self.secrets.find_secret_keeper(config.provider_key)
        except NoUsableKeyring:
            return provider
        if keeper is None:
            return provider
        return replace(provider, key=keeper.value)

    def _config_of_provider(self, provider: ProviderChoice) -> provider_catalog.ProviderConfig:
        try:
            config = self.configured.find_provider(provider.name)
        except NotFound:
            config = provider_catalog.ProviderConfig(provider.name)
        if provider.address:
            config = provider_catalog.with_base_url(config, provider.address)
        if provider.kind:
            config = replace(config, kind=provider.kind)
        if provider.variable:
            config = replace(config, variable=provider.variable)
        return config


def pick_default_model(models: Sequence[ModelChoice]) -> str:
    """Returns the newest model of a well-known kind, or the only one, or none."""
    for pattern in _USUAL_MODELS:
        models_of_kind: list[ModelChoice] = []
        for model in models:
            if re.fullmatch(pattern, without_edition_date(model.id)):
                models_of_kind.append(model)
        if models_of_kind:
            newest_model = max(models_of_kind, key=_version_of_model)
            return newest_model.name
    if len(models) == 1:
        return models[0].name
    return ""


def _version_of_model(model: ModelChoice) -> tuple[list[int], str]:
    """Returns the numbers in a model's name, by which newer models come after older ones."""
    numbers = re.findall(r"\d+", without_edition_date(model.id))
    return [int(number) for number in numbers], model.name


def _build_provider_choice(config: provider_catalog.ProviderConfig) -> ProviderChoice:
    was_key_entered_for_host = bool(config.key_host) and config.key_host == config.host
    return ProviderChoice(
        config.name,
        _provider_title(config.name),
        config.base_url,
        config.kind,
        needs_key=config.needs_key or was_key_entered_for_host,
        variable=config.variable,
    )


def _provider_title(provider: str) -> str:
    if provider == "demo":
        return tr("Demo (a script, not a language model)")
    return translate_provider_name(provider_catalog.name_provider_in_sentences(provider))


def _build_demo_choice() -> ModelChoice:
    title = _provider_title("demo")
    return ModelChoice(DEMO, 32_000, note=title, provider=title, images=False, local=True)


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
