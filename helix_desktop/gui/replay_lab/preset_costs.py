"""What each preset would have cost, in dollars where something was paid, and as a share."""

from collections.abc import Sequence

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome
from helix_desktop.gui.translation import format_percent, tr


@dataclass(frozen=True, slots=True)
class PresetCost:
    """`share`: of what the preset in use cost. `dollars`: 0 where no price is known. `fits`:
    whether each request would have fitted into the model's window.
    """

    share: float
    dollars: float
    fits: bool


def find_baseline(outcomes: Sequence[PolicyOutcome], preset_in_use: str) -> PolicyOutcome:
    """Returns the outcome of the preset in use, with which the others are compared."""
    for outcome in outcomes:
        if outcome.policy == preset_in_use:
            return outcome
    return outcomes[-1]


def compute_preset_costs(
    outcomes: Sequence[PolicyOutcome], preset_in_use: str, paid: float
) -> dict[str, PresetCost]:
    """`paid`: the dollars that these conversations really cost. That is the cost of the preset in
    use, as the meter and the timeline say it; the others are in proportion to it.
    """
    baseline = find_baseline(outcomes, preset_in_use)
    costs: dict[str, PresetCost] = {}
    for outcome in outcomes:
        share = 1.0
        dollars = 0.0
        if baseline.billed:
            share = outcome.billed / baseline.billed
            if baseline.policy == preset_in_use:
                dollars = paid * share
        costs[outcome.policy] = PresetCost(share, dollars, outcome.peak <= 1)
    return costs


def describe_preset_cost(cost: PresetCost) -> str:
    """Returns "$0.42 · 62%", or the share alone."""
    share = format_percent(cost.share)
    if not cost.fits:
        return tr("would not have fit")
    if cost.dollars:
        return f"{format_dollars(cost.dollars)} · {share}"
    return share
