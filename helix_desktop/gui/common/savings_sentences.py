"""Says in one sentence what shortening has saved, for the meter, the inspector, the timeline and
the comparison of settings.

The figures are the engine's (`engine/state/token_ledger.py`). They have one comparison, which the
sentence names: everything is sent as long as it fits. Where it does not, a summary is written. What
was saved is the difference of both sums as they are shown. The lines of the timeline add up to it,
less what `describe_sum_of_lines` names.
"""

from helix_desktop.engine.facts import ModelRole
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.token_ledger import LEAST_DOLLARS, Savings
from helix_desktop.gui.common.figure_formats import format_dollars, round_dollars_as_shown
from helix_desktop.gui.context_meter import (
    describe_token_count,
    format_token_count,
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
    saved = figures.saved_dollars
    if abs(saved) < LEAST_DOLLARS:
        return ""
    whole_paid = figures.paid + agents_cost
    whole_without = figures.paid_without + agents_cost
    paid = format_dollars(whole_paid)
    without = format_dollars(whole_without)
    shown_difference = round_dollars_as_shown(whole_without) - round_dollars_as_shown(whole_paid)
    amount = format_dollars(abs(shown_difference or saved))
    if saved < 0:
        words = tr(
            "Shortening has cost about {amount} more so far: {paid}, instead of about {without} if everything were sent as long as it fits.",
            amount=amount,
            paid=paid,
            without=without,
        )
        return f"{words} {_explain_loss_of_dollars(figures)}"
    share = format_saved_share(saved / (figures.paid_without + agents_cost))
    return _say_what_was_saved(figures, amount=amount, share=share, paid=paid, without=without)


def _explain_loss_of_dollars(figures: Savings) -> str:
    if figures.paid_for_shortening >= -figures.saved_dollars:
        return _say_that_writing_took(format_dollars(figures.paid_for_shortening))
    return tr(
        "Each time something is shortened, the provider charges the full price once for what follows."
    )


def _describe_tokens(figures: Savings) -> str:
    saved = figures.saved_tokens
    if not saved:
        return ""
    sent = format_token_count(figures.sent)
    without = describe_token_count(figures.without)
    saved_as_shown = _saved_tokens_as_shown(figures)
    if saved < 0:
        amount = describe_token_count(abs(saved_as_shown))
        words = tr(
            "Shortening has cost about {amount} more so far: {paid}, instead of about {without} if everything were sent as long as it fits.",
            amount=amount,
            paid=sent,
            without=without,
        )
        return f"{words} {_explain_loss_of_tokens(figures)}"
    return _say_what_was_saved(
        figures,
        amount=format_token_count(abs(saved_as_shown)),
        share=format_saved_share(figures.saved_share),
        paid=sent,
        without=without,
    )


def _saved_tokens_as_shown(figures: Savings) -> float:
    """Returns the difference of both sums as they are shown, or the real one if both look alike."""
    without = round_tokens_as_shown(figures.without)
    return without - round_tokens_as_shown(figures.sent) or figures.saved_tokens


def _say_what_was_saved(
    figures: Savings, *, amount: str, share: str, paid: str, without: str
) -> str:
    return tr(
        "Saved about {amount} of {without} in {requests} ({share}), leaving {paid}. This is compared with sending everything as long as it fits.",
        amount=amount,
        requests=format_count(figures.steps, "{n} request", "{n} requests"),
        share=share,
        paid=paid,
        without=without,
    )


def _explain_loss_of_tokens(figures: Savings) -> str:
    if figures.shortening >= -figures.saved_tokens:
        return _say_that_writing_took(describe_token_count(figures.shortening))
    return tr("Where not everything fits, one summary would be shorter than what is kept here.")


def _say_that_writing_took(amount: str) -> str:
    return tr(
        "Requests for summaries took {amount}, which later requests must save first.",
        amount=amount,
    )


def describe_sum_of_lines(figures: Savings) -> str:
    """Says how the lines of the timeline add up to what was saved, with all that is taken off or
    added. Empty where the lines alone are the sum, or there are none.

    The lines have tokens as they are counted here, for every model alike. Where a model counts
    otherwise, the last sentence says what the sum is in its count: the figure of the whole.
    """
    if not figures.by_folds:
        return ""
    parts = [tr("The lines below add up to {n}", n=describe_token_count(figures.by_folds))]
    if figures.shortening:
        amount = format_token_count(figures.shortening)
        parts.append(tr("less {n} for writing summaries", n=amount))
    other = format_token_count(abs(figures.by_other_summaries))
    if figures.by_other_summaries < 0:
        parts.append(tr("less {n} that would not have fit anyway", n=other))
    elif figures.by_other_summaries > 0:
        parts.append(tr("plus {n} for summaries that were not needed", n=other))
    of_model = _say_what_the_model_counts(figures)
    if len(parts) == 1 and not of_model:
        return ""
    words, *others = parts
    for part in others:
        words = tr("{words}, {more}", words=words, more=part)
    sentence = tr("{words}.", words=words)
    return " ".join(filter(None, [sentence, of_model]))


def _say_what_the_model_counts(figures: Savings) -> str:
    """Empty if the model counts as we do, as far as the rounded figures of a sum can show it."""
    rounded_parts = [figures.by_folds, figures.shortening, figures.by_other_summaries]
    rounding = sum(token_rounding(abs(part)) for part in rounded_parts if part)
    if abs(figures.counted_otherwise) <= rounding:
        return ""
    saved_as_shown = _saved_tokens_as_shown(figures)
    saved = format_token_count(abs(saved_as_shown))
    if saved_as_shown < 0:
        saved = f"−{saved}"
    return tr("The model counts this as {n}.", n=saved)


def format_saved_share(share: float) -> str:
    """Formats a share, never as 100 % unless it is all."""
    if share >= 1:
        return format_percent(1)
    return format_percent(min(share, 0.99))  # From 0.995 on, it would be rounded to 100 %.
