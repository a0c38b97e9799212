"""Policies in words."""

from helix_desktop.engine.context_policy import PRESETS
from helix_desktop.gui.translation import tr


def list_policy_choices() -> list[tuple[str, str]]:
    words = {
        "helix": tr("Helix policy"),
        "observational": tr("Observational policy"),
        "layered": tr("Layered policy"),
        "keeps_most": tr("Policy that keeps the most text"),
        "none": tr("No folding"),
    }
    return [(name, words.get(name, name)) for name in PRESETS]
