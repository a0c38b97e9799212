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
    TOKENS_AS_NOTHING_PAID = auto()


ABOUT_THE_SAME = 0.03  # A simulation says nothing about smaller differences.


@dataclass(frozen=True, slots=True)
class PresetCost:
    """`share`: of what was really paid, or sent. `dollars`: 0 where no price is known.
    `peak`: the share of the model's window that the longest request would have taken, if it would
    not have fitted, or else 0. `tokens`: what would have been sent, if that is compared, or else 0.
    `is_baseline`: the others are compared with it.
    """

    share: float
    dollars: float
    peak: float
    tokens: int = 0
    is_baseline: bool = False

    @property
    def fits(self) -> bool:
        return self.peak == 0

    @property
    def is_about_the_same(self) -> bool:
        return abs(self.share - 1) < ABOUT_THE_SAME


def choose_comparison(models: Sequence[ModelSet], paid: float) -> ComparedBy:
    """Chooses what to compare presets by. `models`: those in use. `paid`: see below."""
    if paid:
        return ComparedBy.COST
    for model in models:
        if model.role is ModelRole.MAIN and has_unknown_price(model):
            return ComparedBy.TOKENS_AS_PRICE_UNKNOWN
        if model.role is ModelRole.MAIN and model.price_input <= 0:
            return ComparedBy.TOKENS_AS_FREE
    return ComparedBy.TOKENS_AS_NOTHING_PAID


def find_baseline(outcomes: Sequence[PolicyOutcome], preset_in_use: str) -> PolicyOutcome:
    """Returns the outcome with which the others are compared: that of the preset with which the
    conversations were held, or if they were held with several, that of the one in use.
    """
    for outcome in outcomes:
        if outcome.is_real:
            return outcome
    for outcome in outcomes:
        if outcome.policy == preset_in_use:
            return outcome
    return outcomes[-1]


def compute_preset_costs(
    outcomes: Sequence[PolicyOutcome], preset_in_use: str, paid: float, compared_by: ComparedBy
) -> dict[str, PresetCost]:
    """`paid`: the dollars that these conversations really cost. That is the cost of the preset
    that the others are compared with, as the meter and the timeline say it; the others are in
    proportion to it.
    """
    baseline = find_baseline(outcomes, preset_in_use)
    costs: dict[str, PresetCost] = {}
    for outcome in outcomes:
        # What was really sent has fitted, though the window may have another size by now.
        peak = 0.0
        if outcome.peak > 1 and not outcome.is_real:
            peak = outcome.peak
        is_baseline = outcome is baseline
        if compared_by is not ComparedBy.COST:
            share = outcome.sent / max(1, baseline.sent)
            cost = PresetCost(share, 0.0, peak, outcome.sent, is_baseline)
        else:
            share = _share_of_what_was_paid(outcome, baseline)
            cost = PresetCost(share, paid * share, peak, 0, is_baseline)
        costs[outcome.policy] = cost
    return costs


def _share_of_what_was_paid(outcome: PolicyOutcome, baseline: PolicyOutcome) -> float:
    if outcome.share_from_meter:
        return outcome.share_from_meter
    if not baseline.billed:
        return 1.0
    return outcome.billed / baseline.billed


def describe_preset_cost(cost: PresetCost) -> str:
    """Returns "$0.42" for what was paid, and beside it "≈ $0.46, 10% more", or the same in tokens,
    or that it would have been too long.
    """
    if not cost.fits:
        # A little more than the window is not "100% of the context window": that would fit.
        shown_peak = max(cost.peak, 1.01)
        return tr("too long: {peak} of the context window", peak=format_percent(shown_peak))
    amount = format_amount(cost)
    if cost.is_baseline:
        return amount
    if cost.is_about_the_same:
        return tr("≈ {amount}, about the same", amount=amount)
    difference = format_percent(abs(cost.share - 1))
    if cost.share > 1:
        return tr("≈ {amount}, {share} more", amount=amount, share=difference)
    return tr("≈ {amount}, {share} less", amount=amount, share=difference)


def format_amount(cost: PresetCost) -> str:
    if cost.tokens:
        return describe_token_count(cost.tokens)
    return format_dollars(cost.dollars)
