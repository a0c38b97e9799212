"""The port for connecting providers and choosing models; implemented by
`desktop/provider_administration.py`.

Nothing is requested before it is needed. A key is passed on to be stored, and the window does not
keep it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.engine.facts import ModelRole, ModelSet
from helix_desktop.engine.state.moment import Moment
from helix_desktop.fast_dataclass import dataclass

# These providers cost nothing, so the user is not asked for their prices.
LOCAL_PROVIDERS = frozenset({"ollama", "lmstudio", "llamacpp", "vllm", "jan", "koboldcpp", "demo"})


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """A service or a server. `key` describes who keeps its key, or is empty."""

    name: str
    title: str
    address: str
    kind: str = ""
    needs_key: bool = False
    key: str = ""
    variable: str = ""
    address_variable: str = ""  # The name of the environment variable that contains the address.


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model. `name` is `provider/model`. Prices are in dollars per million tokens, or
    0 if unknown.
    """

    name: str
    window: int = 0
    price_input: float = 0.0
    price_output: float = 0.0
    note: str = ""
    provider: str = ""  # The title of the provider.
    price_cache_read: float = 0.0
    price_cache_write: float = 0.0
    max_output: int = 0
    images: bool = True
    are_images_known: bool = True
    tools: bool = True
    thinking: bool = False
    temperature: bool = True  # True if the model accepts a temperature.
    local: bool = False
    sure: WindowSizeSource = WindowSizeSource.SHIPPED

    @property
    def id(self) -> str:
        """The name without its provider."""
        _provider, _slash, name = self.name.partition("/")
        return name or self.name


@dataclass(frozen=True, slots=True)
class RefreshedModels:
    """The current models of all providers. `silent`: which could not be asked, and why."""

    models: tuple[ModelChoice, ...]
    silent: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderTestResult:
    """The provider's answer to a test of its key."""

    models: tuple[ModelChoice, ...]
    best: str = ""


class ModelSetupPort(Protocol):
    """Every coroutine may raise a HelixError, such as ProviderKeyRefused,
    ProviderUnreachable or NoUsableKeyring.
    """

    def list_well_known_providers_with_key(self) -> Sequence[ProviderChoice]:
        """Lists services that need only a key."""

    async def list_configured_providers(self) -> Sequence[ProviderChoice]: ...
    async def find_local_providers(
        self,
    ) -> Sequence[tuple[ProviderChoice, Sequence[ModelChoice]]]: ...
    async def is_local_server_connected(self) -> bool: ...

    def is_provider_address(self, address: str) -> bool:
        """Whether a server could be at an address. Nothing is contacted."""
        ...

    async def check_provider_address(self, provider: ProviderChoice) -> None:
        """Contacts a provider without a key, before one is sent. The error says what is
        wrong with the address.
        """

    async def test_provider(self, provider: ProviderChoice, key: str) -> ProviderTestResult:
        """Requests the models with this key (empty: the stored one). Nothing is stored."""

    async def add_provider_with_key(
        self, provider: ProviderChoice, key: str, keep: str = "keyring"
    ) -> None:
        """Adds a provider and requests its models. `keep` is "keyring", "session" or "file"."""

    def allow_asking_keyring_again(self) -> None:
        """Lets a keyring that was not unlocked ask again."""

    async def remove_provider_and_key(self, name: str) -> None: ...
    async def list_provider_models(self, provider: str) -> Sequence[ModelChoice]: ...

    async def list_known_models(self) -> Sequence[ModelChoice]:
        """Lists the models of all providers from earlier answers. The built-in one is last."""

    async def refresh_model_lists(self) -> RefreshedModels:
        """Asks all providers at once. One that does not answer keeps its earlier list."""

    async def correct_model_values(self, model: str, values: Mapping[str, float | bool]) -> None:
        """Overrides values of `provider/model`: window, max_output, prices, images, tools."""

    async def reset_model_values(self, model: str) -> None:
        """Removes corrections and learned limits: the provider's and the catalogue's
        values apply.
        """


def lacks_price(state: Moment) -> bool:
    """Whether the price of the main model is unknown, although it runs elsewhere."""
    main_model = state.settings.model_for_role(ModelRole.MAIN)
    return main_model is not None and has_unknown_price(main_model)


def is_assumed_free(state: Moment) -> bool:
    """Whether nobody has set a price of the main model, which runs on this computer."""
    main_model = state.settings.model_for_role(ModelRole.MAIN)
    if main_model is None or main_model.price_input > 0:
        return False
    return not has_unknown_price(main_model)


def has_unknown_price(model: ModelSet) -> bool:
    provider, _slash, _name = model.model.partition("/")
    is_free = model.is_free or provider in LOCAL_PROVIDERS
    return model.price_input <= 0 and not is_free
