"""The Protocol for connecting providers and choosing models; implemented by `desktop/provider_administration.py`.

Nothing here is asked before it is needed, and a key goes straight to where keys are kept: the window forgets it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from helix_desktop.engine.facts import ModelRole
from helix_desktop.engine.state.moment import Moment
from helix_desktop.fast_dataclass import dataclass

# These providers cost nothing, so the user is not asked for their prices.
LOCAL_PROVIDERS = frozenset({"ollama", "lmstudio", "llamacpp", "vllm", "demo"})


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """A service or a server. `key`: who keeps its key, in words, or empty."""

    name: str
    title: str
    address: str
    kind: str = ""
    needs_key: bool = False
    key: str = ""
    variable: str = ""
    address_variable: str = ""  # The name of the environment variable that contains the address.


class WindowSizeSource(StrEnum):
    TOLD = "told"  # The provider or the shipped list of models states the size.
    LEARNED = "learned"  # The provider stated the size when it refused a request.
    SET = "set"  # The user has set the size.
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model. `name` is `provider/model`; prices in dollars per million tokens, 0: unknown."""

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
    tools: bool = True
    thinking: bool = False
    temperature: bool = True  # True if the model accepts a temperature.
    local: bool = False
    sure: WindowSizeSource = WindowSizeSource.TOLD

    @property
    def id(self) -> str:
        """The name without its provider."""
        return self.name.partition("/")[2] or self.name


@dataclass(frozen=True, slots=True)
class RefreshedModels:
    """The models of all providers, asked just now; `silent`: who could not be asked, and why."""

    models: tuple[ModelChoice, ...]
    silent: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderTestResult:
    """What a provider answered when its key was tried."""

    models: tuple[ModelChoice, ...]
    best: str = ""


class ModelSetupPort(Protocol):
    """Every coroutine may raise a HelixError: BadKey, Unreachable, NoUsableKeyring, ..."""

    def list_well_known_providers(self) -> Sequence[ProviderChoice]:
        """Services that need nothing but a key."""

    async def list_configured_providers(self) -> Sequence[ProviderChoice]: ...
    async def find_local_providers(self) -> Sequence[tuple[ProviderChoice, Sequence[ModelChoice]]]: ...

    async def check_provider_address(self, provider: ProviderChoice) -> None:
        """Contact it without a key, before one is sent. The error says what is wrong with the address."""

    async def test_provider(self, provider: ProviderChoice, key: str) -> ProviderTestResult:
        """Ask for the models with this key (empty: the one that is kept). Nothing is kept."""

    async def add_provider_with_key(self, provider: ProviderChoice, key: str, keep: str = "keyring") -> None:
        """Set it up and ask for its models. A key goes to "keyring", "session" or "file"."""

    def allow_keyring_again(self) -> None:
        """The user tries again: a keyring that was not unlocked may ask once more."""

    async def remove_provider_and_key(self, name: str) -> None: ...
    async def list_provider_models(self, provider: str) -> Sequence[ModelChoice]: ...

    async def list_known_models(self) -> Sequence[ModelChoice]:
        """The models of all providers asked before, without asking again; the built-in one is last."""

    async def refresh_model_lists(self) -> RefreshedModels:
        """Ask all providers at once; one that does not answer keeps the list it gave before."""

    async def correct_model_values(self, model: str, values: Mapping[str, float | bool]) -> None:
        """What the user knows better about `provider/model`: window, max_output, prices, images, tools."""

    async def reset_model_values(self, model: str) -> None:
        """Back to what provider and catalogue say: corrections and learned limits go."""


def lacks_price(state: Moment) -> bool:
    """Whether no price is known for the main model, although it runs elsewhere."""
    chosen = state.settings.model_for_role(ModelRole.MAIN)
    return chosen is not None and chosen.price_input <= 0 and chosen.model.partition("/")[0] not in LOCAL_PROVIDERS
