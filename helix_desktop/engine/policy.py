"""A workspace's policy: every threshold declared once, with its default in each preset, its range and its sentence.

The settings page, the command line's `--set`, the checks and the help are all made from these declarations.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from helix_desktop.engine.facts import PolicySet
from helix_desktop.errors import WrongUse

Value = float | int | str | bool
V = TypeVar("V", float, int, str, bool)
PRESETS: Mapping[str, str] = {
    "helix": "Old outputs become markers after some steps, and a handover is written when the window is nearly full.",
    "observational": "Large outputs are asked about on arrival; history becomes observations, then reflections.",
    "layered": "Everything that pays for itself at the model's own prices: previews, markers, handovers.",
    "none": "Nothing is folded. A conversation ends where the window does.",
}
DEFAULT_PRESET = "layered"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One declared value: its default in each preset, what it may be, and what it means."""

    name: str
    group: str
    defaults: Mapping[str, Value]
    sentence: str
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    unit: str = ""

    @property
    def kind(self) -> type:
        """bool, int, float or str."""
        return type(self.defaults[DEFAULT_PRESET])

    def expected(self) -> str:
        """What a value may be, for the reader of an error."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        number = "a whole number" if self.kind is int else "a number"
        return f"{number} from {self.low:g} to {self.high:g}{' ' + self.unit if self.unit else ''}"


def _declared(  # noqa: PLR0913  # a declaration is a table row
    layered: V,
    sentence: str,
    *,
    group: str,
    helix: V | None = None,
    observational: V | None = None,
    none: V | None = None,
    choices: tuple[str, ...] = (),
    within: tuple[float, float] = (0, 0),
    unit: str = "",
) -> V:
    others = {"helix": helix, "observational": observational, "none": none}
    defaults = {"layered": layered, **{name: layered if value is None else value for name, value in others.items()}}
    declared = Threshold("", group, defaults, sentence, choices, *within, unit)
    return dataclasses.field(default=layered, metadata={"threshold": declared})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A choice of strategies and their thresholds. Shares are of the model's window."""

    preset: str = DEFAULT_PRESET

    admission: str = _declared(
        "ahead", "What happens to a large output on arrival: nothing, the agent is asked, it says so with the call, or a preview is kept.",
        group="Large outputs", helix="off", observational="ask", none="off", choices=("off", "ask", "ahead", "auto"),
    )  # fmt: skip
    admission_tokens: int = _declared(
        4_000, "An output longer than this is held back on arrival.",
        group="Large outputs", within=(500, 200_000), unit="tokens",
    )  # fmt: skip
    admission_command_tokens: int = _declared(
        2_000,
        "The output of a command longer than this is held back on arrival: of a log the ends and the errors matter.",
        group="Large outputs",
        observational=4_000,
        within=(500, 200_000),
        unit="tokens",
    )  # fmt: skip
    admission_batch_tokens: int = _declared(
        12_000, "The largest outputs of a parallel batch are held back when together they are longer than this.",
        group="Large outputs", within=(1_000, 500_000), unit="tokens",
    )  # fmt: skip
    admission_wait: float = _declared(
        10.0, "How long a batch waits for its compactions before previews are kept instead.",
        group="Large outputs", within=(0, 120), unit="seconds",
    )  # fmt: skip
    preview_tokens: int = _declared(
        500, "How long the preview of a held-back output is, about.",
        group="Large outputs", within=(100, 4_000), unit="tokens",
    )  # fmt: skip
    oversized_share: float = _declared(
        0.25, "A message or an attachment of more than this share of the window is stored and shown as an excerpt.",
        group="Large outputs", none=1.0, within=(0.05, 1),
    )  # fmt: skip

    caching: str = _declared(
        "pays", "When old outputs become markers: never, after some steps, or when clearing them pays for itself.",
        group="Old outputs", helix="steps", observational="off", none="off", choices=("off", "steps", "pays"),
    )  # fmt: skip
    caching_steps: int = _declared(
        10, "After how many steps an output becomes a marker (mode: after some steps).",
        group="Old outputs", within=(1, 1_000), unit="steps",
    )  # fmt: skip
    caching_tokens: int = _declared(
        500, "Outputs shorter than this stay as they are (mode: after some steps).",
        group="Old outputs", within=(100, 100_000), unit="tokens",
    )  # fmt: skip
    caching_least: int = _declared(
        4_000, "What a clearing must free at least where the provider's cache saves nothing.",
        group="Old outputs", within=(0, 200_000), unit="tokens",
    )  # fmt: skip
    caching_cold_share: float = _declared(
        1 / 3, "After a pause that has left the provider's cache cold, clear when it frees this share of the context.",
        group="Old outputs", within=(0.01, 1),
    )  # fmt: skip
    arguments: bool = _declared(
        True, "Long arguments of old calls become markers together with the outputs.",
        group="Old outputs", helix=False, observational=False, none=False,
    )  # fmt: skip
    argument_tokens: int = _declared(
        1_000, "Arguments shorter than this stay as they are.",
        group="Old outputs", within=(200, 100_000), unit="tokens",
    )  # fmt: skip

    observation: bool = _declared(
        False, "History becomes dated observations when it has grown long.",
        group="Observations", observational=True,
    )  # fmt: skip
    observation_share: float = _declared(
        0.30, "Raw history longer than this share of the window is observed at the end of a turn.",
        group="Observations", within=(0.02, 0.9),
    )  # fmt: skip
    reflection_share: float = _declared(
        0.50, "Observations longer than this share of the window are merged by a reflection.",
        group="Observations", within=(0.02, 0.9),
    )  # fmt: skip

    handover: str = _declared(
        "pays", "When a handover is written: never, only where the next request would not fit, at a share of the window, or when it pays.",
        group="Handover", helix="share", observational="panic", none="off", choices=("off", "panic", "share", "pays"),
    )  # fmt: skip
    handover_share: float = _declared(
        0.85, "A handover is written at the latest when the window is this full.",
        group="Handover", within=(0.1, 0.98),
    )  # fmt: skip
    handover_floor_tokens: int = _declared(
        36_000, "No handover for gain below so many tokens, or below the share that follows, whichever is less.",
        group="Handover", within=(0, 1_000_000), unit="tokens",
    )  # fmt: skip
    handover_floor_share: float = _declared(
        0.30, "No handover for gain while the window is less full than this.",
        group="Handover", within=(0, 1),
    )  # fmt: skip
    handover_facts: int = _declared(
        6, "A handover covers at least so many facts.",
        group="Handover", within=(1, 1_000), unit="facts",
    )  # fmt: skip
    handover_cooldown: float = _declared(
        60.0, "The shortest time between two handovers.",
        group="Handover", within=(0, 86_400), unit="seconds",
    )  # fmt: skip
    handover_writer: str = _declared(
        "cheapest", "Who writes handovers: the main model over its cached prefix, the fast model, or whichever is cheaper.",
        group="Handover", choices=("cheapest", "main", "fast"),
    )  # fmt: skip
    critical_tokens: int = _declared(
        1_500, "Room in a handover for what must not be lost and the summary left out.",
        group="Handover", within=(200, 20_000), unit="tokens",
    )  # fmt: skip

    tools_share: float = _declared(
        0.08, "Where the tools of MCP servers would take more than this share of the window, the agent searches for them.",
        group="Tools", within=(0, 1),
    )  # fmt: skip
    catalogue_tokens: int = _declared(
        2_000, "Room for the lines that name servers, skills and agents in front of every request; the rest is found by search.",
        group="Tools", within=(0, 50_000), unit="tokens",
    )  # fmt: skip

    truncation: bool = _declared(
        True, "When everything else has failed, old history is replaced by its details and hashes, without a model.",
        group="Safety", none=False,
    )  # fmt: skip
    tail_steps: int = _declared(
        8, "The last steps of a running turn stay as they are.",
        group="Safety", within=(1, 200), unit="steps",
    )  # fmt: skip
    progress: float = _declared(
        0.10, "A fold must shrink what it covers by this share.",
        group="Safety", within=(0, 0.9),
    )  # fmt: skip
    failures: int = _declared(
        3, "After so many failures in a row a strategy rests until it is switched on again.",
        group="Safety", within=(1, 100),
    )  # fmt: skip
    summary_wait: float = _declared(
        180.0, "How long a model may take over a summary before the next one is asked.",
        group="Safety", within=(0.01, 3_600), unit="seconds",
    )  # fmt: skip
    panic_wait: float = _declared(
        60.0, "How long a turn waits for a summary when the next request would not fit, before it goes on without.",
        group="Safety", within=(0, 3_600), unit="seconds",
    )  # fmt: skip
    panic_silence: float = _declared(
        15.0, "A model that has said nothing for so long in that time is not waited for any more.",
        group="Safety", within=(0, 3_600), unit="seconds",
    )  # fmt: skip
    window: int = _declared(
        128_000, "The window of a model that does not say its own.",
        group="Safety", within=(2_000, 100_000_000), unit="tokens",
    )  # fmt: skip
    reserve_reply: int = _declared(
        8_000, "Room kept free for the reply, up to a tenth of the window.",
        group="Safety", within=(0, 1_000_000), unit="tokens",
    )  # fmt: skip
    reserve_summary: int = _declared(
        3_000, "Room kept free for a summary, up to a twentieth of the window.",
        group="Safety", within=(0, 100_000), unit="tokens",
    )  # fmt: skip

    def to_fact(self) -> PolicySet:
        """The preset and what differs from it."""
        usual = preset(self.preset)
        names = [name for name in thresholds() if getattr(self, name) != getattr(usual, name)]
        return PolicySet(self.preset, tuple((name, getattr(self, name)) for name in names))

    def with_values(self, values: Mapping[str, object]) -> Policy:
        """The policy with some values changed; WrongUse for a name or a value that cannot be."""
        changes: dict[str, Any] = {name: checked(name, value) for name, value in values.items()}
        return dataclasses.replace(self, **changes)


@functools.cache
def thresholds() -> Mapping[str, Threshold]:
    """Every threshold by name, in the order of the settings page."""
    found = {
        item.name: dataclasses.replace(item.metadata["threshold"], name=item.name)
        for item in dataclasses.fields(Policy)
        if "threshold" in item.metadata
    }
    return dict(found)


@functools.cache
def preset(name: str) -> Policy:
    """A preset as it comes; WrongUse for a name that is none."""
    if name not in PRESETS:
        raise WrongUse(f"There is no preset {name!r}.", remedy=_near(name, list(PRESETS)))
    defaults: dict[str, Any] = {key: declared.defaults[name] for key, declared in thresholds().items()}
    return Policy(preset=name, **defaults)


def from_fact(fact: PolicySet | None) -> Policy:
    """The policy in force. An unknown name or value in an old fact is left at its default: a view never fails."""
    if fact is None:
        return preset(DEFAULT_PRESET)
    chosen = preset(fact.preset if fact.preset in PRESETS else DEFAULT_PRESET)
    sound: dict[str, object] = {}
    for name, value in fact.values:
        try:
            sound[name] = checked(name, value)
        except WrongUse:
            continue
    return chosen.with_values(sound)


def checked(name: str, value: object) -> Value:
    """The value in its declared type; WrongUse says which value, and what was expected."""
    declared = thresholds().get(name)
    if declared is None:
        raise WrongUse(f"There is no setting {name!r}.", remedy=_near(name, list(thresholds())))
    converted = _converted(declared, value)
    if converted is None:
        hint = _near(str(value), list(declared.choices)) if declared.choices else ""
        raise WrongUse(f"{name} = {value!r} cannot be: expected {declared.expected()}.", remedy=hint)
    return converted


def _converted(declared: Threshold, value: object) -> Value | None:
    if declared.kind is bool:
        return _switch(value)
    if declared.kind is str:
        return str(value) if value in declared.choices else None
    try:
        number = float(str(value).replace("_", "")) if not isinstance(value, bool) else None
    except ValueError:
        return None
    if number is None or not declared.low <= number <= declared.high:
        return None
    if declared.kind is int:
        return int(number) if number == int(number) else None
    return number


def _switch(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}.get(str(value).lower())


def _near(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(known)}."
