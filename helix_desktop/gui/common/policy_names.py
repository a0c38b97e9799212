"""Describes policies in words."""

from helix_desktop.engine.context_policy import PRESETS, Policy
from helix_desktop.engine.context_usage import WindowMeter, tokens_at_which_handover_must_start
from helix_desktop.engine.messages import ContextKind
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.translation import format_percent, tr, translate_name

FoldThreshold = tuple[
    str, ContextKind, float
]  # What happens, the kind of the result, and the share of the window.


def list_policy_choices() -> list[tuple[str, str]]:
    return [(name, translate_name("preset", name)) for name in PRESETS]


def list_fold_thresholds(chosen: Policy, meter: WindowMeter) -> list[FoldThreshold]:
    """Lists the latest points at which a policy folds: observe at 30%, reflect at 50%,
    handover document at 85%.
    """
    observe, reflect = chosen.observation_share, chosen.reflection_share
    handover = tokens_at_which_handover_must_start(meter, chosen) / max(1, meter.window)
    found: list[FoldThreshold] = []
    if chosen.observation:
        found.append(
            (
                tr("observe {share}", share=format_percent(observe)),
                ContextKind.OBSERVATIONS,
                observe,
            )
        )
        found.append(
            (
                tr("reflect {share}", share=format_percent(reflect)),
                ContextKind.OBSERVATIONS,
                reflect,
            )
        )
    if chosen.handover != "off":
        words = tr("handover document at {share}", share=format_percent(handover))
        found.append((words, ContextKind.HANDOVER, handover))
    return found


@dataclass(frozen=True, slots=True)
class PresetChoice:
    """A preset as people read it. `preset` is its name in the settings file."""

    preset: str
    title: str
    sentence: str


def list_plain_choices() -> tuple[PresetChoice, ...]:
    return (
        PresetChoice("layered", tr("Cheapest"), tr("Shortens when that saves money at the model's prices.")),
        PresetChoice("keeps_most", tr("Keep more"), tr("Shortens when more than half of a large window is used.")),
        PresetChoice("none", tr("Leave everything"), tr("Shortens nothing. When the model's window is full, the conversation ends.")),
    )  # fmt: skip


def list_named_presets() -> tuple[PresetChoice, ...]:
    return (
        PresetChoice("helix", tr("Helix"), tr("Old outputs become one line after some steps, and a summary replaces older messages near the end of the window. This saves room, not money: in a trial, it cost 4% more than sending everything.")),
        PresetChoice("observational", tr("Observational memory"), tr("The agent says which parts of large outputs it needs, and older messages become dated notes.")),
    )  # fmt: skip


def describe_preset_plainly(preset: str) -> str:
    """Returns what a preset does, in the words of the settings."""
    choices = (*list_plain_choices(), *list_named_presets())
    return next((choice.sentence for choice in choices if choice.preset == preset), "")
