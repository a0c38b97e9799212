"""A workspace's policy. Each threshold is declared once, with defaults by preset, a range and a sentence.

The settings page, `--set`, the checks and the help are all made from these
declarations. What thresholds do is not known here; see `strategies/`.
"""

import dataclasses
import difflib
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

from helix_desktop.engine.facts import PolicySet
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass

Value = float | int | str | bool
BOOLEAN_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
V = TypeVar("V", float, int, str, bool)
PRESETS: Mapping[str, str] = {
    "helix": "Old outputs are replaced with one-line markers after a number of steps, and a handover document replaces older messages when the context window is nearly full. Short conversations can cost more than they would without folding.",
    "observational": "When a large output arrives, the agent is asked which parts it needs. Older messages are condensed into a dated list of observations, and long lists are merged.",
    "layered": "Large outputs become excerpts, old outputs become one-line markers, and older messages become a handover document, each only when this saves money at the model's prices.",
    "keeps_most": "Keeps more text in the context than the layered preset and writes a handover document only when half of a large context window is used. This preset costs more.",
    "none": "Nothing is folded. When the context window is full, the conversation cannot be continued.",
}
DEFAULT_PRESET = "layered"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One declared value: its default in each preset, what it may be, and what it means."""

    name: str
    title: str
    group: str
    defaults: Mapping[str, Value]
    sentence: str
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    unit: str = ""

    @property
    def value_type(self) -> type:
        """Return bool, int, float or str."""
        return type(self.defaults[DEFAULT_PRESET])

    def describe_allowed_values(self) -> str:
        """Describe the allowed values, for an error message."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.value_type is bool:
            return "true or false"
        number = "a whole number" if self.value_type is int else "a number"
        return f"{number} from {self.low:g} to {self.high:g}{' ' + self.unit if self.unit else ''}"


def _declare_threshold(  # noqa: PLR0913  # a declaration is a table row
    layered: V,
    title: str,
    sentence: str,
    *,
    group: str,
    helix: V | None = None,
    observational: V | None = None,
    none: V | None = None,
    keeps_most: V | None = None,
    choices: tuple[str, ...] = (),
    within: tuple[float, float] = (0, 0),
    unit: str = "",
) -> V:
    others = {"helix": helix, "observational": observational, "keeps_most": keeps_most, "none": none}
    defaults = {"layered": layered, **{name: layered if value is None else value for name, value in others.items()}}
    declared = Threshold("", title, group, defaults, sentence, choices, *within, unit)
    return dataclasses.field(default=layered, metadata={"threshold": declared})


@dataclass(frozen=True, slots=True)
class Policy:
    """The chosen strategies and their thresholds. Shares are of the model's window."""

    preset: str = DEFAULT_PRESET

    admission: str = _declare_threshold(
        "ahead", "When a large output arrives", "How to handle a large output: keep all of it, ask the agent which parts it needs, have the agent name these parts in advance, or show the agent an excerpt.",
        group="Large outputs", helix="off", observational="ask", none="off", choices=("off", "ask", "ahead", "auto"),
    )  # fmt: skip
    admission_tokens: int = _declare_threshold(
        4_000, "Shorten outputs longer than", "Outputs longer than this are shortened as soon as they arrive.",
        group="Large outputs", within=(500, 200_000), unit="tokens",
    )  # fmt: skip
    admission_command_tokens: int = _declare_threshold(
        2_000, "Shorten command outputs longer than", "Command outputs longer than this are shortened as soon as they arrive. In a log, the beginning, the end and the errors usually matter most.",
        group="Large outputs", helix=4_000, observational=4_000, none=4_000, within=(500, 200_000), unit="tokens",
    )  # fmt: skip
    admission_batch_tokens: int = _declare_threshold(
        12_000, "Shorten outputs of parallel calls that total more than", "If the outputs of parallel tool calls add up to more than this, the longest outputs are shortened.",
        group="Large outputs", within=(1_000, 500_000), unit="tokens",
    )  # fmt: skip
    admission_wait: float = _declare_threshold(
        10.0, "Wait for outputs to be shortened", "How long to wait for the agent to shorten outputs before using excerpts instead.",
        group="Large outputs", within=(0, 120), unit="seconds",
    )  # fmt: skip
    preview_tokens: int = _declare_threshold(
        500, "Length of an excerpt", "Approximate length of the excerpt that replaces a large output.",
        group="Large outputs", within=(100, 4_000), unit="tokens",
    )  # fmt: skip
    oversized_share: float = _declare_threshold(
        0.25, "Shorten messages larger than", "Messages and attachments larger than this share of the context window are stored in full, but only an excerpt is sent.",
        group="Large outputs", none=1.0, within=(0.05, 1),
    )  # fmt: skip

    caching: str = _declare_threshold(
        "pays", "Replace old outputs with one-line markers", "When old outputs are replaced with one-line markers: never, after a number of steps, or when doing so saves money.",
        group="Old outputs", helix="steps", observational="off", keeps_most="off", none="off", choices=("off", "steps", "pays"),
    )  # fmt: skip
    caching_steps: int = _declare_threshold(
        10, "Steps before an output is replaced with a marker", "The number of steps after which an output is replaced with a one-line marker.",
        group="Old outputs", within=(1, 1_000), unit="steps",
    )  # fmt: skip
    caching_tokens: int = _declare_threshold(
        500, "Shortest tool output to replace", "Tool outputs shorter than this are never replaced with markers.",
        group="Old outputs", within=(100, 100_000), unit="tokens",
    )  # fmt: skip
    caching_least: int = _declare_threshold(
        4_000, "Minimum tokens freed by replacing outputs", "To save money, old outputs are replaced only if this frees at least this many tokens, or an eighth of the context window, whichever is less.",
        group="Old outputs", within=(0, 200_000), unit="tokens",
    )  # fmt: skip
    caching_cold_share: float = _declare_threshold(
        1 / 3, "After a pause, free at least this share of the context", "After a pause that is long enough for the provider's cache to expire, old outputs are replaced if at least this share of the context would be freed.",
        group="Old outputs", within=(0.01, 1),
    )  # fmt: skip
    arguments: bool = _declare_threshold(
        False, "Also replace long arguments of old tool calls", "Long arguments of old tool calls are also replaced with one-line markers.",
        group="Old outputs",
    )  # fmt: skip
    argument_tokens: int = _declare_threshold(
        1_000, "Shortest tool-call argument to replace", "Shorter arguments of old tool calls are kept.",
        group="Old outputs", within=(200, 100_000), unit="tokens",
    )  # fmt: skip

    observation: bool = _declare_threshold(
        False, "Condense older messages into observations", "A long history is condensed into a dated list of observations.",
        group="Observations", observational=True,
    )  # fmt: skip
    observation_share: float = _declare_threshold(
        0.30, "Condense messages that take up more than", "If older messages take up more than this share of the context window at the end of a turn, they are condensed into dated observations.",
        group="Observations", within=(0.02, 0.9),
    )  # fmt: skip
    reflection_share: float = _declare_threshold(
        0.50, "Merge observations that take up more than", "If observations take up more than this share of the context window, they are merged into a shorter list, called a reflection.",
        group="Observations", within=(0.02, 0.9),
    )  # fmt: skip

    handover: str = _declare_threshold(
        "pays", "Write handover documents", "When a handover document replaces older messages: never, only when the next request wouldn't fit, when a set share of the context window is used, or when doing so saves money.",
        group="Handover", helix="share", observational="panic", none="off", choices=("off", "panic", "share", "pays"),
    )  # fmt: skip
    handover_share: float = _declare_threshold(
        0.85, "Always write a handover document at", "When the model's context window is this full, a handover document always replaces older messages.",
        group="Handover", within=(0.1, 0.98),
    )  # fmt: skip
    handover_floor_tokens: int = _declare_threshold(
        38_400, "Minimum context for a handover document (tokens)", "To save money, a handover document is written only if the conversation is longer than this many tokens, or than the share of the model's context window in the next setting, whichever is less.",
        group="Handover", keeps_most=1_000_000, within=(0, 1_000_000), unit="tokens",
    )  # fmt: skip
    handover_floor_share: float = _declare_threshold(
        0.30, "Minimum context for a handover document (share of the context window)", "To save money, a handover document is written only if the conversation is longer than this share of the model's context window, or than the number of tokens in the previous setting, whichever is less.",
        group="Handover", keeps_most=0.5, within=(0, 1),
    )  # fmt: skip
    handover_facts: int = _declare_threshold(
        6, "Minimum records that a handover document replaces", "A handover document is written only if it replaces at least this many records, such as messages and outputs.",
        group="Handover", within=(1, 1_000), unit="records",
    )  # fmt: skip
    handover_cooldown: float = _declare_threshold(
        60.0, "Time between handover documents", "Minimum time between two handover documents.",
        group="Handover", within=(0, 86_400), unit="seconds",
    )  # fmt: skip
    handover_writer: str = _declare_threshold(
        "cheapest", "Model that writes handover documents", "Which model writes handover documents: the main model, the fast model, or whichever is cheaper.",
        group="Handover", choices=("cheapest", "main", "fast"),
    )  # fmt: skip
    critical_tokens: int = _declare_threshold(
        1_500, "Space for details in a handover document", "Space in a handover document for important details that the model left out.",
        group="Handover", within=(200, 20_000), unit="tokens",
    )  # fmt: skip

    keep_alive_dollars: float = _declare_threshold(
        0.0, "Keep the provider's cache alive during a pause", "The maximum cost of keeping the context in the provider's cache during one pause. The cache is kept alive only while this is likely to cost less than sending the whole context again. 0 means that the cache is not kept alive.",
        group="Pauses", within=(0, 100), unit="dollars",
    )  # fmt: skip

    tools_share: float = _declare_threshold(
        0.08, "Use tool search when tools exceed", "If MCP tools would take up more than this share of the context window, the agent searches for tools instead.",
        group="Tools", within=(0, 1),
    )  # fmt: skip
    catalogue_tokens: int = _declare_threshold(
        2_000, "Space for tool lists", "Space in each request for listing servers, skills and agents. The agent can search for those that are not listed.",
        group="Tools", within=(0, 50_000), unit="tokens",
    )  # fmt: skip

    truncation: bool = _declare_threshold(
        True, "Cut off history as a last resort", "If everything else fails, old history is replaced with its important details and hashes. No model is used.",
        group="Safety", none=False,
    )  # fmt: skip
    tail_steps: int = _declare_threshold(
        4, "Recent steps to leave unfolded", "In a running turn, this many recent steps are never folded.",
        group="Safety", helix=8, observational=8, none=8, keeps_most=8, within=(1, 200), unit="steps",
    )  # fmt: skip
    progress: float = _declare_threshold(
        0.10, "Minimum reduction per fold", "A fold must shorten the text it replaces by at least this share.",
        group="Safety", within=(0, 0.9),
    )  # fmt: skip
    failures: int = _declare_threshold(
        3, "Failures in a row before a folding strategy is turned off", "After this many failures in a row, a folding strategy is turned off until you turn it back on.",
        group="Safety", within=(1, 100),
    )  # fmt: skip
    summary_wait: float = _declare_threshold(
        180.0, "Time limit for a summary", "How long a model may take to write a summary before another model is tried.",
        group="Safety", within=(0.01, 3_600), unit="seconds",
    )  # fmt: skip
    panic_wait: float = _declare_threshold(
        60.0, "Time limit for a summary when the context window is full", "How long to wait for a summary before continuing without one, if the next request wouldn't fit in the context window.",
        group="Safety", within=(0, 3_600), unit="seconds",
    )  # fmt: skip
    panic_silence: float = _declare_threshold(
        15.0, "Time limit for a model that doesn't respond", "If the model that writes a summary doesn't respond for this long, Helix Desktop stops waiting for it.",
        group="Safety", within=(0, 3_600), unit="seconds",
    )  # fmt: skip
    window: int = _declare_threshold(
        128_000, "Default size of a model's context window", "The size to assume if a model does not report the size of its context window.",
        group="Safety", within=(2_000, 100_000_000), unit="tokens",
    )  # fmt: skip
    reserve_reply: int = _declare_threshold(
        8_000, "Space for the reply", "Space reserved for the reply, up to a tenth of the model's context window.",
        group="Safety", within=(0, 1_000_000), unit="tokens",
    )  # fmt: skip
    reserve_summary: int = _declare_threshold(
        3_000, "Space for a summary", "Space reserved for a summary, up to a twentieth of the context window.",
        group="Safety", within=(0, 100_000), unit="tokens",
    )  # fmt: skip

    def to_policy_fact(self) -> PolicySet:
        usual = preset_policy(self.preset)
        names = [name for name in declared_thresholds() if getattr(self, name) != getattr(usual, name)]
        return PolicySet(self.preset, tuple((name, getattr(self, name)) for name in names))

    def with_thresholds(self, values: Mapping[str, object]) -> "Policy":
        """Return the policy with some values changed. A wrong name or value raises InvalidInput."""
        changes: dict[str, Any] = {name: require_valid_threshold(name, value) for name, value in values.items()}
        return dataclasses.replace(self, **changes)


@functools.cache
def declared_thresholds() -> Mapping[str, Threshold]:
    """Return every threshold by name, in the order of the settings page."""
    declared = [item for item in dataclasses.fields(Policy) if "threshold" in item.metadata]
    return {item.name: dataclasses.replace(item.metadata["threshold"], name=item.name) for item in declared}


@functools.cache
def preset_policy(name: str) -> Policy:
    """Return an unchanged preset. Raises InvalidInput if there is none of that name."""
    if name not in PRESETS:
        raise InvalidInput(f"There is no preset {name!r}.", remedy=_suggest_name(name, list(PRESETS)))
    defaults: dict[str, Any] = {key: declared.defaults[name] for key, declared in declared_thresholds().items()}
    return Policy(preset=name, **defaults)


def policy_from_fact(fact: PolicySet | None) -> Policy:
    """Return the policy in force. Unknown names and values of an old fact become defaults."""
    if fact is None:
        return preset_policy(DEFAULT_PRESET)
    chosen = preset_policy(fact.preset if fact.preset in PRESETS else DEFAULT_PRESET)
    sound: dict[str, object] = {}
    for name, value in fact.values:
        try:
            sound[name] = require_valid_threshold(name, value)
        except InvalidInput:
            continue
    return chosen.with_thresholds(sound)


def require_valid_threshold(name: str, value: object) -> Value:
    """Return the value in its declared type. Raises InvalidInput with the value and what was expected."""
    if (declared := declared_thresholds().get(name)) is None:
        raise InvalidInput(f"There is no setting {name!r}.", remedy=_suggest_name(name, list(declared_thresholds())))
    converted = _convert_threshold(declared, value)
    if converted is None:
        hint = _suggest_name(str(value), list(declared.choices)) if declared.choices else ""
        raise InvalidInput(
            f"{name} = {value!r} is not allowed: expected {declared.describe_allowed_values()}.", remedy=hint
        )
    return converted


def _convert_threshold(declared: Threshold, value: object) -> Value | None:
    if declared.value_type is bool:
        return BOOLEAN_WORDS.get(str(value).lower())
    if declared.value_type is str:
        return str(value) if value in declared.choices else None
    try:
        number = float(str(value).replace("_", "")) if not isinstance(value, bool) else None
    except ValueError:
        return None
    if number is None or not declared.low <= number <= declared.high:
        return None
    if declared.value_type is int:
        return int(number) if number == int(number) else None
    return number


def _suggest_name(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"Available: {', '.join(known)}."
