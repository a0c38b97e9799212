"""Describes policies in words."""

from helix_desktop.engine.context_policy import PRESETS, Policy
from helix_desktop.engine.context_usage import WindowMeter, tokens_at_which_handover_must_start
from helix_desktop.engine.messages import ContextKind
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.sentence_translation import join_sentences
from helix_desktop.gui.translation import format_number, format_percent, tr, translate_name

# What happens, the kind of the result, and the share of the window.
FoldThreshold = tuple[str, ContextKind, float]


def list_policy_choices() -> list[tuple[str, str]]:
    return [(name, translate_name("preset", name)) for name in PRESETS]


def list_fold_thresholds(policy: Policy, meter: WindowMeter) -> list[FoldThreshold]:
    """Lists the latest points at which a policy folds: observe at 30%, reflect at 50%,
    handover document at 85%.
    """
    thresholds: list[FoldThreshold] = []
    if policy.observation:
        notes_share = policy.observation_share
        words = tr("dated notes at {share}", share=format_percent(notes_share))
        thresholds.append((words, ContextKind.OBSERVATIONS, notes_share))
        merging_share = policy.reflection_share
        words = tr("notes merged at {share}", share=format_percent(merging_share))
        thresholds.append((words, ContextKind.OBSERVATIONS, merging_share))
    if policy.handover != "off":
        tokens = tokens_at_which_handover_must_start(meter, policy)
        summary_share = tokens / max(1, meter.window)
        words = tr("summary at {share}", share=format_percent(summary_share))
        thresholds.append((words, ContextKind.HANDOVER, summary_share))
    return thresholds


@dataclass(frozen=True, slots=True)
class PresetChoice:
    """A preset as people read it. `preset` is its name in the settings file, and `meaning` says
    what it does, `brief` in the few words of a menu. `measured`: what it cost in recorded
    sessions, if that is not what it is compared with.
    """

    preset: str
    title: str
    brief: str
    meaning: str
    measured: str = ""

    @property
    def sentence(self) -> str:
        return join_sentences(self.meaning, self.measured)


# By how many percent each preset cost more than sending everything as long as it fits, in the 31
# sessions of the help page on savings, all in the same way (`tests/benchmarks/bill.py`).
MEASURED_PERCENT = {"layered": -25.0, "keeps_most": -16.0, "helix": 2.5, "observational": 9.0}


def _describe_measured_cost(preset: str) -> str:
    percent = MEASURED_PERCENT[preset]
    decimals = 0 if percent == round(percent) else 1
    share = tr("{n}%", n=format_number(abs(percent), decimals))
    if percent < 0:
        return tr(
            "Cost in 31 recorded sessions: {share} less than sending everything as long as it fits.",
            share=share,
        )
    return tr(
        "Cost in 31 recorded sessions: {share} more than sending everything as long as it fits.",
        share=share,
    )


def list_plain_choices() -> tuple[PresetChoice, ...]:
    cheapest = tr(
        "Shortens when that saves money at the model's prices. If a price is not known, typical prices are assumed."
    )
    keep_more = tr("Shortens when more than half of a large window is used.")
    leave = tr("Shortens nothing. When the model's window is full, the conversation ends.")
    return (
        PresetChoice(
            "layered",
            tr("Cheapest"),
            tr("when that saves money"),
            cheapest,
            _describe_measured_cost("layered"),
        ),
        PresetChoice(
            "keeps_most",
            tr("Keep more"),
            tr("from half of a large window on"),
            keep_more,
            _describe_measured_cost("keeps_most"),
        ),
        PresetChoice("none", tr("Leave everything"), tr("never shortened"), leave),
    )


def list_named_presets() -> tuple[PresetChoice, ...]:
    return (
        PresetChoice("helix", tr("Old outputs first"), tr("to one line after ten to twenty steps"), tr("Old outputs become one line after ten to twenty steps, and a summary replaces older messages shortly before the window is full."), _describe_measured_cost("helix")),
        PresetChoice("observational", tr("Dated notes"), tr("in place of older messages"), tr("The agent is asked which parts of a large output it needs, and older messages become dated notes."), _describe_measured_cost("observational")),
    )  # fmt: skip


def describe_preset_plainly(preset: str) -> str:
    """Returns what a preset does, in the words of the settings."""
    for choice in list_plain_choices() + list_named_presets():
        if choice.preset == preset:
            return choice.meaning
    return ""
