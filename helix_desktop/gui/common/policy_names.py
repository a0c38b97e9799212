"""Describes policies in words."""

from helix_desktop.engine.context_policy import PRESETS, Policy
from helix_desktop.engine.context_usage import WindowMeter, tokens_at_which_handover_must_start
from helix_desktop.engine.messages import ContextKind
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
