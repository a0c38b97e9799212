"""Says in one sentence what shortening has saved, for the meter, the inspector, the timeline and
the comparison of settings.

The figures are the engine's (`engine/state/token_ledger.py`). They have one comparison, which the
sentence names: everything is sent as long as it fits. Where it does not, a summary is written. What
was saved is the difference of both sums as they are shown. The lines of the timeline add up to it:
each has its share, in the same unit and count.
"""

import math
from collections.abc import Callable, Sequence

from helix_desktop.engine.facts import ModelRole, Usage
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.token_ledger import LEAST_DOLLARS, Savings
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import (
    dollar_rounding,
    format_dollars,
    round_dollars_as_shown,
)
from helix_desktop.gui.context_meter import (
    describe_token_count,
    round_tokens_as_shown,
    token_rounding,
)
from helix_desktop.gui.translation import format_count, format_percent, tr


def describe_savings_of(state: Moment, agents_cost: float = 0.0) -> str:
    """Returns the sentence for a conversation. Empty if nothing was shortened, or nothing was
    sent since. `agents_cost`: what its sub-agents have cost.
    """
    figures = state.savings_until_moment()
    words = describe_savings(figures, agents_cost)
    has_saved = _is_gain(figures)
    if has_saved or not figures.sent or not state.live_folds:
        return words
    saved_by_folds = state.saved_by_folds(fold.fold for fold in state.live_folds)
    has_fitted_in_no_request = bool(saved_by_folds.requests) and not saved_by_folds.counted
    if has_fitted_in_no_request or _is_larger_than_window_without_folds(state):
        # A summary alone would not have made room, so the comparison shortens the same text.
        return _say_that_it_would_not_fit(figures)
    if words:
        return words
    if not saved_by_folds.requests_in_all:
        return tr("So far, shortening has saved nothing: it takes effect from the next request on.")
    return tr("So far, shortening has saved nothing.")


def _is_larger_than_window_without_folds(state: Moment) -> bool:
    chosen = state.settings.model_for_role(ModelRole.MAIN)
    if chosen is None or not chosen.window:
        return False
    return state.record.ledger.whole[state.seq] > chosen.window


def _is_gain(figures: Savings) -> bool:
    if figures.is_saved_in_dollars:
        return figures.saved_dollars >= LEAST_DOLLARS
    return figures.saved_tokens > 0


def _say_that_it_would_not_fit(figures: Savings) -> str:
    """Nobody could have gone on without shortening, so it is no loss beside that. What it took is
    what its requests took, as their rows in the timeline say.
    """
    if figures.is_saved_in_dollars and figures.paid_for_shortening >= LEAST_DOLLARS:
        amount = format_dollars(figures.paid_for_shortening)
    elif figures.shortening and not figures.is_saved_in_dollars:
        amount = describe_token_count(figures.shortening)
    else:
        return tr(
            "Without shortening, this conversation would not fit into the model's context window."
        )
    return tr(
        "Without shortening, this conversation would not fit into the model's context window; shortening it has taken {amount} so far.",
        amount=amount,
    )


def describe_savings(figures: Savings, agents_cost: float = 0.0) -> str:
    """Returns what was saved or lost, and beside what. Empty if it is nothing.

    Sub-agents would have cost the same, so their cost is part of both sums.
    """
    if figures.is_saved_in_dollars:
        return _describe_dollars(figures, agents_cost)
    return _describe_tokens(figures)


def _describe_dollars(figures: Savings, agents_cost: float) -> str:
    if abs(figures.saved_dollars) < LEAST_DOLLARS:
        return ""
    amount = format_dollars(abs(_saved_dollars_as_shown(figures, agents_cost)))
    if figures.saved_dollars < 0:
        return f"{_say_what_was_lost(amount)} {_explain_loss_of_dollars(figures)}"
    share = figures.saved_dollars / (figures.paid_without + agents_cost)
    return _say_what_was_saved(amount, share)


def _saved_dollars_as_shown(figures: Savings, agents_cost: float) -> float:
    """Returns the difference of both sums as they are shown, or the real one if both look alike."""
    without = round_dollars_as_shown(figures.paid_without + agents_cost)
    return without - round_dollars_as_shown(figures.paid + agents_cost) or figures.saved_dollars


def _explain_loss_of_dollars(figures: Savings) -> str:
    if figures.paid_for_shortening >= -figures.saved_dollars:
        return _say_that_writing_must_be_saved_first()
    return tr(
        "Each time something is shortened, the provider charges the full price once for what follows."
    )


def _describe_tokens(figures: Savings) -> str:
    if not figures.saved_tokens:
        return ""
    amount = describe_token_count(abs(_saved_tokens_as_shown(figures)))
    if figures.saved_tokens < 0:
        return f"{_say_what_was_lost(amount)} {_explain_loss_of_tokens(figures)}"
    return _say_what_was_saved(amount, figures.saved_share)


def _saved_tokens_as_shown(figures: Savings) -> float:
    """Returns the difference of both sums as they are shown, or the real one if both look alike."""
    without = round_tokens_as_shown(figures.without)
    return without - round_tokens_as_shown(figures.sent) or figures.saved_tokens


def _explain_loss_of_tokens(figures: Savings) -> str:
    if figures.shortening >= -figures.saved_tokens:
        return _say_that_writing_must_be_saved_first()
    return tr("Where not everything fits, one summary would be shorter than what is kept here.")


def _say_what_was_saved(amount: str, share: float) -> str:
    return tr(
        "Saved about {amount} ({share}), compared with sending everything as long as it fits.",
        amount=amount,
        share=format_saved_share(share),
    )


def _say_what_was_lost(amount: str) -> str:
    return tr(
        "Shortening has cost about {amount} more so far than sending everything as long as it fits.",
        amount=amount,
    )


def _say_that_writing_must_be_saved_first() -> str:
    return tr("What requests for summaries took must be saved by later requests first.")


def describe_both_sums(figures: Savings, agents_cost: float = 0.0) -> str:
    """Returns the two sums whose difference was saved, for a tooltip of the sentence."""
    requests = format_count(figures.steps, "{n} request", "{n} requests")
    if figures.is_saved_in_dollars:
        paid = format_dollars(figures.paid + agents_cost)
        without = format_dollars(figures.paid_without + agents_cost)
    else:
        paid = describe_token_count(figures.sent)
        without = describe_token_count(figures.without)
    return tr(
        "{requests}: {paid}, instead of about {without}",
        requests=requests,
        paid=paid,
        without=without,
    )


def share_of_line(figures: Savings, kept_out: int, writing: Usage) -> float:
    """Returns what a line of the timeline has of what was saved, in dollars or in tokens as the
    sentence says it: negative while writing took more. All lines together come to the sentence.

    `kept_out`: how many tokens its folds kept out of requests. In this proportion, the lines share
    what the requests saved. `writing`: what the requests took that wrote it.
    """
    if figures.is_saved_in_dollars:
        saved_by_requests = figures.saved_dollars + figures.paid_for_shortening
        taken = writing.cost
    else:
        saved_by_requests = float(figures.saved_tokens + figures.shortening)
        taken = float(writing.input)
    if saved_by_requests <= 0 or figures.by_folds <= 0:
        return -taken
    return saved_by_requests * kept_out / figures.by_folds - taken


@dataclass(frozen=True, slots=True)
class LineOfTimeline:
    """A line's share of what was saved, as `share_of_line` returns it. `is_fixed`: its figure also
    stands elsewhere, as what a request took does.
    """

    share: float
    is_fixed: bool = False


def find_roundings_of_lines(
    figures: Savings, lines: Sequence[LineOfTimeline], agents_cost: float = 0.0
) -> list[float]:
    """Returns what to add to the share of each line, so that the lines as they are shown add up to
    the sentence as it is shown: a reader who added them up came to 245.9K below a head of 245.8K.

    A line changes by at most one of its last digit, those first that were rounded furthest the
    other way. Where the lines are not all of what was saved, none changes.
    """
    roundings = [0.0] * len(lines)
    whole = float(figures.saved_tokens)
    head = float(_saved_tokens_as_shown(figures))
    round_as_shown: Callable[[float], float] = round_tokens_as_shown
    find_unit: Callable[[float], float] = token_rounding
    if figures.is_saved_in_dollars:
        whole = figures.saved_dollars
        head = _saved_dollars_as_shown(figures, agents_cost)
        round_as_shown = round_dollars_as_shown
        find_unit = dollar_rounding
    are_lines_all = abs(sum(line.share for line in lines) - whole) <= 1e-6 * max(1.0, abs(whole))
    if not lines or not are_lines_all:
        return roundings

    shown = [math.copysign(round_as_shown(abs(line.share)), line.share) for line in lines]
    units = [find_unit(abs(line.share)) for line in lines]
    coarsest_unit = max(units)
    most_missing = max(coarsest_unit, find_unit(abs(head))) / 2
    missing = head - sum(shown)
    direction = math.copysign(1.0, missing)

    def rounded_away(number: int) -> float:
        return direction * (shown[number] - lines[number].share)

    for number in sorted(range(len(lines)), key=rounded_away):
        if abs(missing) <= most_missing:
            break
        # A line with finer digits is small, and would change by more than its rounding.
        if lines[number].is_fixed or units[number] < coarsest_unit:
            continue
        change = direction * coarsest_unit
        roundings[number] = shown[number] + change - lines[number].share
        missing -= change
    return roundings


def format_share_of_line(figures: Savings, share: float) -> str:
    """Formats what `share_of_line` returns, without its sign. Empty if it is next to nothing."""
    if not figures.is_saved_in_dollars:
        tokens = round(abs(share))
        return describe_token_count(tokens) if tokens else ""
    if abs(share) < LEAST_DOLLARS:
        return ""
    return format_dollars(abs(share))


def format_saved_share(share: float) -> str:
    """Formats a share, never as 100 % unless it is all."""
    if share >= 1:
        return format_percent(1)
    return format_percent(min(share, 0.99))  # From 0.995 on, it would be rounded to 100 %.
