"""A workspace's policy: a value for each threshold that `policy_thresholds.py` declares.

What thresholds do is not known here; see `strategies/`.
"""

import dataclasses
import difflib
import functools
from collections.abc import Mapping
from typing import Any

from helix_desktop.engine.facts import PolicySet
from helix_desktop.engine.policy_thresholds import THRESHOLDS, Threshold, Value
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass

DEFAULT_PRESET = "layered"

PRESETS: Mapping[str, str] = {
    "helix": (
        "Old outputs are replaced with one-line markers after a number of steps, and a handover "
        "document replaces older messages when the context window is nearly full. This preset "
        "saves room, not money: in 31 recorded sessions, it cost 2.5% more than sending "
        "everything as long as it fits, and in one session 30% more."
    ),
    "observational": (
        "When a large output arrives, the agent is asked which parts it needs. Older messages "
        "are condensed into a dated list of observations, and long lists are merged."
    ),
    "layered": (
        "Large outputs become excerpts, old outputs become one-line markers, and older messages "
        "become a handover document, each only when this saves money at the model's prices."
    ),
    "keeps_most": (
        "Keeps more text in the context than the layered preset and writes a handover document "
        "only when more than half of a large context window is used. This preset costs more."
    ),
    "none": (
        "Nothing is folded. When the context window is full, the conversation cannot be continued."
    ),
}

BOOLEAN_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


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
        """Return the fact that records this policy: the preset, and what differs from it."""
        unchanged_preset = preset_policy(self.preset)
        changed_values = []
        for name in declared_thresholds():
            value = getattr(self, name)
            if value != getattr(unchanged_preset, name):
                changed_values.append((name, value))
        return PolicySet(self.preset, tuple(changed_values))

    def with_thresholds(self, values: Mapping[str, object]) -> "Policy":
        """Return the policy with some values changed. A wrong name or value raises InvalidInput."""
        changes: dict[str, Any] = {
            name: require_valid_threshold(name, value) for name, value in values.items()
        }
        return dataclasses.replace(self, **changes)


@functools.cache
def declared_thresholds() -> Mapping[str, Threshold]:
    """Return every threshold by name, in the order of the settings page."""
    return {declared.name: declared for declared in THRESHOLDS}


@functools.cache
def preset_policy(name: str) -> Policy:
    """Return an unchanged preset. Raises InvalidInput if there is none of that name."""
    if name not in PRESETS:
        raise InvalidInput(
            f"There is no preset {name!r}.", remedy=_suggest_name(name, list(PRESETS))
        )
    values: dict[str, Any] = {
        declared.name: declared.value_in_preset(name) for declared in THRESHOLDS
    }
    return Policy(preset=name, **values)


def policy_from_fact(fact: PolicySet | None) -> Policy:
    """Return the policy that a conversation has recorded, or the default one for None.

    The fact may be from another version of the program. What this one does not know in it
    becomes the default.
    """
    if fact is None:
        return preset_policy(DEFAULT_PRESET)
    preset = DEFAULT_PRESET
    if fact.preset in PRESETS:
        preset = fact.preset
    valid_values: dict[str, object] = {}
    for name, value in fact.values:
        try:
            valid_values[name] = require_valid_threshold(name, value)
        except InvalidInput:
            continue
    return preset_policy(preset).with_thresholds(valid_values)


def require_valid_threshold(name: str, value: object) -> Value:
    """Return the value in its declared type. Raises InvalidInput with the value and
    what was expected.
    """
    declared = declared_thresholds().get(name)
    if declared is None:
        all_names = list(declared_thresholds())
        suggestion = _suggest_name(name, all_names)
        raise InvalidInput(f"There is no setting {name!r}.", remedy=suggestion)
    converted = _convert_threshold(declared, value)
    if converted is None:
        hint = ""
        if declared.choices:
            hint = _suggest_name(str(value), list(declared.choices))
        raise InvalidInput(
            f"{name} = {value!r} is not allowed: expected {declared.describe_allowed_values()}.",
            remedy=hint,
        )
    return converted


def _convert_threshold(declared: Threshold, value: object) -> Value | None:
    """Return a value in the type of a threshold, or None if it is not allowed."""
    if declared.value_type is bool:
        return BOOLEAN_WORDS.get(str(value).lower())
    if declared.value_type is not str:
        return _convert_number(declared, value)
    if value in declared.choices:
        return str(value)
    return None


def _convert_number(declared: Threshold, value: object) -> Value | None:
    number = _parse_number(value)
    if number is None or not declared.low <= number <= declared.high:
        return None
    if declared.value_type is float:
        return number
    if number == int(number):
        return int(number)
    return None


def _parse_number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(str(value).replace("_", ""))
    except ValueError:
        return None


def _suggest_name(name: str, known_names: list[str]) -> str:
    """Return a remedy for a name that is not known: the most similar one, or all of them."""
    similar_names = difflib.get_close_matches(name, known_names, n=1, cutoff=0.5)
    if similar_names:
        return f"Did you mean {similar_names[0]!r}?"
    return f"Available: {', '.join(known_names)}."
