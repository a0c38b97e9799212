"""Knows the windows, prices and abilities of models, from shipped data, providers'
lists and the user.

An unknown model gets a window of 128,000 tokens and a note that this is a guess. On this
computer the guess is small, because local servers silently cut what does not fit.
"""

import re
from dataclasses import field, replace
from functools import cache

from helix_desktop import resources
from helix_desktop.engine.context_usage import WindowSizeSource, compute_cost
from helix_desktop.engine.facts import ModelRole, ModelSet, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import (
    Object,
    amount_at,
    number_at,
    object_at,
    parse_object,
    text_at,
    value_at,
    without_fields,
)
from helix_desktop.protocols.protocol_dialect import ModelAbilities

DEFAULT_WINDOW = 128_000
ASSUMED_LOCAL_WINDOW = 8_192
MOST_ASSUMED_WINDOW = 131_072
# An assumed window is doubled once a request has filled this share of it and was read whole.
FILLED_SHARE = 0.6
# Some servers report only what they had not read before, which may be a few tokens. No server
# cuts a request to fewer than this.
LEAST_CUT_INPUT = 1_900

_PRICES = ("input", "output", "cache_read", "cache_write")

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
    # Whether anything says if the model reads images, or it is only assumed.
    are_images_known: bool = False
    # How many seconds the provider keeps its cache after a request; 0 if unknown.
    cache_seconds: int = 0
    server: str = ""  # What a local server says it is; see `LocalServerKind`.
    is_free: bool = False  # True for a model on this computer that nobody charges for.
    reply_limit: int = 0  # The most tokens that the user lets a reply have; 0: no limit.

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.id}"

    def as_model_set(self, role: ModelRole) -> ModelSet:
        """Return the fact to be recorded in a conversation that uses this model from now on."""
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
            is_free=self.is_free,
            can_call_tools=self.abilities.tools,
        )


@cache
def shipped_prices(model: str) -> ModelSet:
    """Return the shipped prices of a model, for lack of others."""
    return merge_model_knowledge("", model).as_model_set(ModelRole.MAIN)


def usage_cost(usage: Usage, prices: TokenPrices) -> float:
    """Return what a reply costs by these prices, in dollars, whatever the provider reported."""
    priced_model = ModelSet(
        role=ModelRole.MAIN,
        model="",
        window=0,
        max_output=0,
        price_input=prices.input,
        price_output=prices.output,
        price_cache_read=prices.cache_read,
        price_cache_write=prices.cache_write,
    )
    usage_without_cost = replace(usage, cost=0.0)
    return compute_cost(usage_without_cost, priced_model)


def fill_in_cost(usage: Usage, info: "ModelInfo") -> Usage:
    """Return the usage with the catalogue's cost, unless the provider told the cost."""
    if usage.cost:
        return usage
    return replace(usage, cost=usage_cost(usage, info.prices))


def price_usage_of_agent(
    usage: Usage, answering_model: str, requested_model: str, main_model: ModelSet | None
) -> Usage:
    """Return the usage priced for the model that answered, or else the one that was requested.

    Prices of the requested model that are others than the shipped ones hold before those: the user
    has set them, or its provider has told them. `main_model`: that of the conversation.
    """
    if usage.cost:
        return usage
    if main_model is not None and main_model.model == requested_model:
        prices = TokenPrices(
            main_model.price_input,
            main_model.price_output,
            main_model.price_cache_read,
            main_model.price_cache_write,
        )
        if prices != TokenPrices() and prices != merge_model_knowledge("", requested_model).prices:
            return replace(usage, cost=usage_cost(usage, prices))
    priced = fill_in_cost(usage, merge_model_knowledge("", answering_model))
    return fill_in_cost(priced, merge_model_knowledge("", requested_model))


# --- The list of models shipped with the program


@dataclass(frozen=True, slots=True)
class ShippedModels:
    """`resources/models.json`: what was known on `as_of`."""

    as_of: str
    models: Object

    def entry_for_model(self, model: str) -> Object:
        """Find a model's entry, although providers add a maker, a date or a variant to its name."""
        without_maker = model.rpartition("/")[2].lower().removesuffix(":free")
        plain = without_edition_date(without_maker)
        names = (without_maker, plain, plain.replace(".", "-"), _CODEX.sub("", plain))
        for name in names:
            entry = object_at(self.models, name)
            if entry:
                return entry
        return {}


@cache
def shipped_models() -> ShippedModels:
    content = parse_object((resources.resources_folder() / "models.json").read_bytes()) or {}
    return ShippedModels(text_at(content, "as_of"), object_at(content, "models"))


def model_info_from(provider: str, model: str, knowledge: Object, note: str = "") -> ModelInfo:
    """Return a model with what is known of it. A missing value is taken as usual for models.

    `knowledge` has the fields of the data file `models.json`, as do the user's corrections.
    """
    abilities = ModelAbilities(
        max_output=number_at(knowledge, "max_output"),
        images=value_at(knowledge, "images") is not False,
        tools=value_at(knowledge, "tools") is not False,
        reasoning=text_at(knowledge, "reasoning"),
        temperature=value_at(knowledge, "temperature") is not False,
    )
    prices = TokenPrices(
        input=amount_at(knowledge, "input"),
        output=amount_at(knowledge, "output"),
        cache_read=amount_at(knowledge, "cache_read"),
        cache_write=amount_at(knowledge, "cache_write"),
    )
    window = number_at(knowledge, "window") or DEFAULT_WINDOW
    return ModelInfo(provider, model, window, abilities, prices, note)


def merge_model_knowledge(
    provider: str,
    model: str,
    *,
    reported: Object | None = None,
    learned: Object | None = None,
    corrected: Object | None = None,
    is_local: bool = False,
) -> ModelInfo:
    """Return what is known of a model, of which the most certain counts.

    That is what the user `corrected`, then what refused requests showed (`learned`), then what
    the provider's list says (`reported`), and then the data shipped with the program.
    `is_local`: the model runs on this computer.
    """
    reported = reported or {}
    learned = _without_outdated_assumption(learned or {}, reported)
    corrected = corrected or {}
    shipped = shipped_models().entry_for_model(model)
    server = text_at(reported, "server")
    runs_here = is_local or bool(server)
    if server:
        # The catalogue knows what others charge for a model, and how large its window
        # may be. A server on this computer charges nothing, and usually runs it with less.
        shipped = without_fields(shipped, "window", *_PRICES)
    source = _source_of_window(shipped, reported, learned, corrected)

    merged: Object = {}
    for knowledge in (shipped, reported, learned, corrected):
        merged.update(knowledge)  # It overrides what was merged before.
    if source is WindowSizeSource.ASSUMED and runs_here:
        merged.setdefault("window", ASSUMED_LOCAL_WINDOW)
    _limit_window_to_largest(merged)

    window = number_at(merged, "window")
    note = _window_note(shipped, reported, source, window)
    info = model_info_from(provider, model, merged, note)
    has_price = any(amount_at(merged, name) for name in _PRICES)
    is_free = runs_here and not has_price
    are_images_known = bool(shipped) or "images" in merged
    reply_limit = number_at(corrected, "max_output")
    return replace(
        info,
        window_from=source,
        are_images_known=are_images_known,
        server=server,
        is_free=is_free,
        reply_limit=reply_limit,
    )


def _without_outdated_assumption(learned: Object, reported: Object) -> Object:
    """Leave out a window that was assumed before the provider's list was read."""
    if "window" in reported and value_at(learned, "is_assumed") is True:
        return {}
    return learned


def _limit_window_to_largest(merged: Object) -> None:
    """Let a window be no larger than the largest that the model can have, where that is known."""
    largest_window = number_at(merged, "largest_window")
    if largest_window and number_at(merged, "window") > largest_window:
        merged["window"] = largest_window


def _source_of_window(
    shipped: Object, reported: Object, learned: Object, corrected: Object
) -> WindowSizeSource:
    """Return how the window is known, by the most certain of those who name one."""
    if "window" in corrected:
        return WindowSizeSource.USER
    if "window" in learned:
        if value_at(learned, "is_assumed") is True:
            return WindowSizeSource.ASSUMED
        return WindowSizeSource.LEARNED
    if "window" in reported:
        return WindowSizeSource.REPORTED
    if "window" in shipped:
        return WindowSizeSource.SHIPPED
    return WindowSizeSource.ASSUMED


def _window_note(
    shipped: Object, reported: Object, source: WindowSizeSource, assumed_window: int
) -> str:
    """Say to the user where a window's size comes from."""
    if source is WindowSizeSource.USER:
        return "window as you set it"
    if source is WindowSizeSource.LEARNED:
        return "window learned from the model's own error"
    if source is WindowSizeSource.REPORTED:
        return text_at(reported, "note") or "window as the provider reports it"
    if source is WindowSizeSource.SHIPPED:
        return text_at(shipped, "note") or f"window and prices as of {shipped_models().as_of}"
    window = assumed_window or DEFAULT_WINDOW
    return f"unknown model: a window of {window:,} tokens is assumed; correct it with `model set --window`"


def window_shown_by_reply(info: ModelInfo, counted: int, usage: Usage) -> Object:
    """Return what a reply shows of an assumed window, to be saved, or an empty object.

    A server on this computer may not say how many tokens fit into its window. `counted` is
    our own count of the request. A server that read much less of a long request has cut its
    beginning. A request that filled most of the assumed window and was read whole shows that
    the window may be larger.
    """
    is_assumed = info.window_from is WindowSizeSource.ASSUMED
    if not is_assumed or not usage.input or not info.is_free:
        return {}

    is_long_request = counted > info.window // 4
    has_read_much_less = LEAST_CUT_INPUT <= usage.input < counted // 2
    if is_long_request and has_read_much_less:
        return {"window": usage.input}

    used_tokens = usage.input + usage.output
    has_filled_window = used_tokens > FILLED_SHARE * info.window
    if has_filled_window and info.window < MOST_ASSUMED_WINDOW:
        larger_window = 2 * info.window
        while larger_window < used_tokens:
            larger_window *= 2
        return {"window": min(larger_window, MOST_ASSUMED_WINDOW), "is_assumed": True}
    return {}
