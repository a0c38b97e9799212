"""Knows the windows, prices and abilities of models, from shipped data, providers'
lists and the user.

An unknown model gets a window of 128,000 tokens and a note that this is a guess.
"""

import re
from dataclasses import field, replace
from functools import cache

from helix_desktop import resources
from helix_desktop.engine.context_usage import WindowSizeSource, compute_cost
from helix_desktop.engine.facts import ModelRole, ModelSet, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Object, number_at, object_at, parse_object, text_at, value_at
from helix_desktop.protocols.protocol_dialect import ModelAbilities

DEFAULT_WINDOW = 128_000

# Name suffixes to ignore: "-20251001", "-2025-08-07", "-preview-05-20", ":thinking", "-latest".
_DATE = re.compile(
    r"([-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{4}|latest|preview(-\d\d-\d{2,4})?)|:[a-z0-9-]+)+$"
)
_CODEX = re.compile(r"-codex(-max)?$")  # OpenAI's Codex models cost as much as their base models.


def without_edition_date(model: str) -> str:
    """Return a model's name without the edition's date or label."""
    return _DATE.sub("", model)


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Dollars per million tokens; 0: unknown or free."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model of a provider. `name` is `provider/id`, as in commands and settings."""

    provider: str
    id: str
    window: int = DEFAULT_WINDOW
    abilities: ModelAbilities = field(default_factory=ModelAbilities)
    prices: TokenPrices = TokenPrices()
    note: str = ""  # A note for the user, such as that a figure is a guess.
    window_from: WindowSizeSource = WindowSizeSource.ASSUMED
    are_images_known: bool = (
        False  # Whether anything says if the model reads images, or it is only assumed.
    )
    cache_seconds: int = (
        0  # How many seconds the provider keeps its cache after a request; 0 if unknown.
    )

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.id}"

    def as_model_set(self, role: ModelRole) -> ModelSet:
        return ModelSet(
            role=role,
            model=self.name,
            window=self.window,
            max_output=self.abilities.max_output,
            price_input=self.prices.input,
            price_output=self.prices.output,
            price_cache_read=self.prices.cache_read,
            price_cache_write=self.prices.cache_write,
            cache_seconds=self.cache_seconds,
        )


@cache
def shipped_prices(model: str) -> ModelSet:
    """Return the shipped prices of a model, for lack of others."""
    return merge_model_knowledge("", model).as_model_set(ModelRole.MAIN)


def usage_cost(usage: Usage, prices: TokenPrices) -> float:
    """Return dollars by the prices, whatever the provider has reported."""
    chosen = ModelSet(
        ModelRole.MAIN, "", 0, 0, prices.input, prices.output, prices.cache_read, prices.cache_write
    )
    return compute_cost(replace(usage, cost=0.0), chosen)


# --- The list of models shipped with the program


@dataclass(frozen=True, slots=True)
class ShippedModels:
    """`resources/models.json`: what was known on `as_of`."""

    as_of: str
    models: Object

    def entry_for_model(self, model: str) -> Object:
        """Find a model's entry, although providers add a maker, a date or a variant to its name."""
        bare = model.rpartition("/")[2].lower().removesuffix(":free")
        if exact := object_at(self.models, bare):
            return exact
        plain = without_edition_date(bare)
        found = object_at(self.models, plain) or object_at(self.models, plain.replace(".", "-"))
        return found or object_at(self.models, _CODEX.sub("", plain))


@cache
def shipped_models() -> ShippedModels:
    content = parse_object((resources.resources_folder() / "models.json").read_bytes()) or {}
    return ShippedModels(text_at(content, "as_of"), object_at(content, "models"))


def model_info_from(provider: str, model: str, known: Object, note: str = "") -> ModelInfo:
    """Build a model from an entry of the data file or the user's corrections, which
    have the same fields.
    """
    abilities = ModelAbilities(
        max_output=number_at(known, "max_output"),
        images=value_at(known, "images") is not False,
        tools=value_at(known, "tools") is not False,
        reasoning=text_at(known, "reasoning"),
        temperature=value_at(known, "temperature") is not False,
    )
    prices = TokenPrices(
        *(_price_or_zero(known, name) for name in ("input", "output", "cache_read", "cache_write"))
    )
    window = number_at(known, "window") or DEFAULT_WINDOW
    return ModelInfo(provider, model, window, abilities, prices, note)


def _price_or_zero(known: Object, name: str) -> float:
    value = value_at(known, name)
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def merge_model_knowledge(
    provider: str,
    model: str,
    *,
    reported: Object | None = None,
    learned: Object | None = None,
    corrected: Object | None = None,
) -> ModelInfo:
    """Merge what is known: by the user, from refusals, from the provider's list, and
    from the shipped data.
    """
    ours = shipped_models().entry_for_model(model)
    layers = {
        WindowSizeSource.USER: corrected or {},
        WindowSizeSource.LEARNED: learned or {},
        WindowSizeSource.REPORTED: reported or {},
        WindowSizeSource.SHIPPED: ours,
    }
    merged = {**ours, **(reported or {}), **(learned or {}), **(corrected or {})}
    source = next(
        (name for name, layer in layers.items() if "window" in layer), WindowSizeSource.ASSUMED
    )
    info = model_info_from(provider, model, merged, _window_note(ours, reported or {}, source))
    return replace(info, window_from=source, are_images_known=bool(ours) or "images" in merged)


def _window_note(shipped: Object, reported: Object, source: WindowSizeSource) -> str:
    if source is WindowSizeSource.USER:
        return "window as you set it"
    if source is WindowSizeSource.LEARNED:
        return "window learned from the model's own error"
    if source is WindowSizeSource.REPORTED:
        return text_at(reported, "note") or "window as the provider reports it"
    if source is WindowSizeSource.SHIPPED:
        return text_at(shipped, "note") or f"window and prices as of {shipped_models().as_of}"
    return f"unknown model: a window of {DEFAULT_WINDOW:,} tokens is assumed; correct it with `model set --window`"
