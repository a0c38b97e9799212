"""What each preset would have cost, in dollars where something was paid, and as a share.

Where nothing has a price, the tokens that would have been sent are compared instead.
"""

from collections.abc import Sequence
from enum import Enum, auto

from helix_desktop.engine.facts import ModelRole, ModelSet
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.context_meter import describe_token_count
from helix_desktop.gui.model_setup_port import has_unknown_price
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome
from helix_desktop.gui.translation import format_percent, tr


class ComparedBy(Enum):
    """What presets are compared by: their cost, or tokens, and why tokens."""

    COST = auto()
    TOKENS_AS_FREE = auto()
    TOKENS_AS_PRICE_UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class PresetCost:
    """`share`: of what the preset in use cost, or sent. `dollars`: 0 where no price is known.
    `fits`: whether each request would have fitted into the model's window. `tokens`: what would
    have been sent, if that is compared, or else 0.
    """

    share: float
    dollars: float
    fits: bool
    tokens: int = 0


def choose_comparison(models: Sequence[ModelSet], paid: float) -> ComparedBy:
    """Chooses what to compare presets by. `models`: those in use. `paid`: see below."""
    if paid:
        return ComparedBy.COST
    for model in models:
        if model.role is ModelRole.MAIN and has_unknown_price(model):
            return ComparedBy.TOKENS_AS_PRICE_UNKNOWN
        if model.role is ModelRole.MAIN and model.price_input <= 0:
            return ComparedBy.TOKENS_AS_FREE
    return ComparedBy.COST


def find_baseline(outcomes: Sequence[PolicyOutcome], preset_in_use: str) -> PolicyOutcome:
    """Returns the outcome of the preset in use, with which the others are compared."""
    for outcome in outcomes:
        if outcome.policy == preset_in_use:
            return outcome
    return outcomes[-1]


def compute_preset_costs(
    outcomes: Sequence[PolicyOutcome], preset_in_use: str, paid: float, compared_by: ComparedBy
) -> dict[str, PresetCost]:
    """`paid`: the dollars that these conversations really cost. That is the cost of the preset in
    use, as the meter and the timeline say it; the others are in proportion to it.
    """
    baseline = find_baseline(outcomes, preset_in_use)
    is_in_use_known = baseline.policy == preset_in_use
    costs: dict[str, PresetCost] = {}
    for outcome in outcomes:
        fits = outcome.peak <= 1
        if compared_by is not ComparedBy.COST:
            share_of_tokens = outcome.sent / max(1, baseline.sent)
            costs[outcome.policy] = PresetCost(share_of_tokens, 0.0, fits, outcome.sent)
        elif not baseline.billed:
            costs[outcome.policy] = PresetCost(1.0, 0.0, fits)
        else:
            share = outcome.billed / baseline.billed
            dollars = 0.0
            if is_in_use_known:
                dollars = paid * share
            costs[outcome.policy] = PresetCost(share, dollars, fits)
    return costs


def describe_preset_cost(cost: PresetCost) -> str:
    """Returns "$0.42 · 62%", "35.1K tokens · 62%", or the share alone."""
    share = format_percent(cost.share)
    if not cost.fits:
        return tr("would not have fit")
    if cost.dollars:
        return f"{format_dollars(cost.dollars)} · {share}"
    if cost.tokens:
        return f"{describe_token_count(cost.tokens)} · {share}"
    return share
