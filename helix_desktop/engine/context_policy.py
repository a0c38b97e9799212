"""A workspace's policy. Each threshold is declared once in `resources/policy.json`,
with its defaults, a range and a sentence. There, `layered` is the default, and another
preset is named where its value differs.

The settings page, `--set`, the checks and the help are all made from these
declarations. What thresholds do is not known here; see `strategies/`.
"""

import dataclasses
import difflib
import functools
from collections.abc import Mapping
from typing import Any

from helix_desktop.engine.facts import PolicySet
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_json_resource

Value = float | int | str | bool
BOOLEAN_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_TABLE = read_json_resource("policy.json")
PRESETS: Mapping[str, str] = _TABLE["presets"]
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
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.value_type is bool:
            return "true or false"
        number = "a whole number" if self.value_type is int else "a number"
        return f"{number} from {self.low:g} to {self.high:g}{' ' + self.unit if self.unit else ''}"


def _read_threshold(name: str, row: Mapping[str, Any]) -> Threshold:
    defaults = {preset: row.get(preset, row[DEFAULT_PRESET]) for preset in PRESETS}
    low, high = row.get("within", (0, 0))
    choices, unit = tuple(row.get("choices", ())), row.get("unit", "")
    return Threshold(
        name, row["title"], row["group"], defaults, row["sentence"], choices, low, high, unit
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """The chosen strategies and their thresholds. Shares are of the model's window."""

    preset: str

    admission: str
    admission_tokens: int
    admission_command_tokens: int
    admission_batch_tokens: int
    admission_wait: float
    preview_tokens: int
    oversized_share: float

    caching: str
    caching_steps: int
    caching_tokens: int
    caching_least: int
    caching_cold_share: float
    arguments: bool
    argument_tokens: int

    observation: bool
    observation_share: float
    reflection_share: float

    handover: str
    handover_share: float
    handover_floor_tokens: int
    handover_floor_share: float
    handover_facts: int
    handover_cooldown: float
    handover_writer: str
    critical_tokens: int

    keep_alive_dollars: float

    tools_share: float
    catalogue_tokens: int

    truncation: bool
    tail_steps: int
    progress: float
    failures: int
    summary_wait: float
    panic_wait: float
    panic_silence: float
    window: int
    reserve_reply: int
    reserve_summary: int

    def to_policy_fact(self) -> PolicySet:
        usual = preset_policy(self.preset)
        names = [
            name for name in declared_thresholds() if getattr(self, name) != getattr(usual, name)
        ]
        return PolicySet(self.preset, tuple((name, getattr(self, name)) for name in names))

    def with_thresholds(self, values: Mapping[str, object]) -> "Policy":
        """Return the policy with some values changed. A wrong name or value raises InvalidInput."""
        changes: dict[str, Any] = {
            name: require_valid_threshold(name, value) for name, value in values.items()
        }
        return dataclasses.replace(self, **changes)


@functools.cache
def declared_thresholds() -> Mapping[str, Threshold]:
    """Return every threshold by name, in the order of the settings page."""
    return {name: _read_threshold(name, row) for name, row in _TABLE["thresholds"].items()}


@functools.cache
def preset_policy(name: str) -> Policy:
    """Return an unchanged preset. Raises InvalidInput if there is none of that name."""
    if name not in PRESETS:
        raise InvalidInput(
            f"There is no preset {name!r}.", remedy=_suggest_name(name, list(PRESETS))
        )
    defaults: dict[str, Any] = {
        key: declared.defaults[name] for key, declared in declared_thresholds().items()
    }
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
    """Return the value in its declared type. Raises InvalidInput with the value and
    what was expected.
    """
    if (declared := declared_thresholds().get(name)) is None:
        raise InvalidInput(
            f"There is no setting {name!r}.",
            remedy=_suggest_name(name, list(declared_thresholds())),
        )
    converted = _convert_threshold(declared, value)
    if converted is None:
        hint = _suggest_name(str(value), list(declared.choices)) if declared.choices else ""
        raise InvalidInput(
            f"{name} = {value!r} is not allowed: expected {declared.describe_allowed_values()}.",
            remedy=hint,
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
