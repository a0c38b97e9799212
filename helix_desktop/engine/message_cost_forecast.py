"""Says what the next message will probably cost, by what the last ones of the conversation cost.

A message costs more than the request that sends it: the reply, a request for each step with
tools, recalls, and summaries. How many there will be, nobody knows before, but people go on as they
began. On recorded sessions, the request alone was in the middle a sixth of what the message cost,
and the middle of the last nine messages was 1.04 times of it.
"""

from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine import context_usage
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.facts import Folded, ModelRole, Span
from helix_desktop.engine.state.fold_covers import cover_contains, first_and_last
from helix_desktop.engine.state.live_folds import count_item_tokens
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass

# With more messages, the forecast follows too late when the work changes.
MOST_MESSAGES = 9
# The first message of a conversation costs more than others: nothing is cached before it.
FEWEST_MESSAGES = 2


@dataclass(frozen=True, slots=True)
class MessageCostForecast:
    """`dollars` is the middle of what so many `messages` cost. Half of them cost between `low`
    and `high`.
    """

    dollars: float
    low: float
    high: float
    messages: int


@dataclass(frozen=True, slots=True)
class NextMessageEstimate:
    """What sending a message now takes, in billed tokens and in dollars, which are 0 if the price
    is not known.

    `context`: the tokens that are sent before the message, `cached` those of them that cost less,
    because the provider still has them. `message`: its own tokens.
    """

    context: int
    message: int
    cached: int = 0
    reply: int = 0
    dollars_of_request: float = 0.0
    forecast: MessageCostForecast | None = None

    @property
    def tokens(self) -> int:
        return self.context + self.message

    @property
    def is_forecast(self) -> bool:
        """Whether messages of this conversation usually cost more than the first request."""
        if self.forecast is None or not self.dollars_of_request:
            return False
        return self.forecast.dollars > self.dollars_of_request

    @property
    def dollars(self) -> float:
        if self.forecast is not None and self.is_forecast:
            return self.forecast.dollars
        return self.dollars_of_request


@dataclass(frozen=True, slots=True)
class ContextAfterUndo:
    """What the context holds once folds are undone, in billed tokens of the model's `window`, and
    what the next request then costs without the message, 0 if no price is known.

    `folds`: how many are undone. Of these, `behind_summary` add nothing now, because a summary or
    notes stand in place of what they cover, and come back once that is undone, too.

    `reserve`: what stays free of the window. `is_shortened_again`: it is so full then that the
    next message is shortened first. Unless it `fits` beside the reserve, the Undo is refused.
    """

    used: int
    window: int
    reserve: int
    dollars: float
    is_shortened_again: bool
    folds: int = 1
    behind_summary: int = 0

    @property
    def adds_nothing(self) -> bool:
        return 0 < self.folds <= self.behind_summary

    @property
    def most_that_fits(self) -> int:
        return self.window - self.reserve

    @property
    def fits(self) -> bool:
        return self.used <= self.most_that_fits

    @property
    def used_share(self) -> float:
        return self.used / max(1, self.window)


def estimate_context_after_undo(
    state: ConversationState, policy: Policy, folds: Sequence[str], now: float
) -> ContextAfterUndo:
    """Return what the context holds if these folds are undone, and what the next request costs.

    The provider has what stands before the first of them in its cache, if it has anything.
    """
    meter = context_usage.measure_window(state, policy)
    added_tokens = 0
    live_count = 0
    count_behind_summary = 0
    first_changed = state.seq
    for name in folds:
        fold = state.branch.folds.get(name)
        if fold is not None and name in state.branch.live:
            live_count += 1
            tokens_without_fold = state.branch.view_tokens_without_fold(name)
            added_by_fold = tokens_without_fold - state.branch.total_tokens
            added_tokens += added_by_fold
            if added_by_fold == 0 and _is_behind_summary(state, fold, folds):
                count_behind_summary += 1
            first_covered, _last_covered = first_and_last(fold.cover)
            first_changed = min(first_changed, first_covered)
    used = context_usage.count_tokens_after_undo(state, meter, added_tokens)

    dollars = 0.0
    request_cost = context_usage.estimate_next_message_cost(state, policy)
    if request_cost is not None:
        cached_tokens = 0
        if request_cost.is_cache_warm(now):
            unchanged_items = (item for item in state.branch.items if item.first < first_changed)
            unchanged_tokens = state.settings.settings_tokens + count_item_tokens(unchanged_items)
            billed_unchanged = context_usage.estimate_billed_tokens(unchanged_tokens, state)
            cached_tokens = min(request_cost.cached, billed_unchanged)
        dollars = context_usage.compute_next_request_cost(
            state, used, cached_tokens, request_cost.reply
        )
        forecast = forecast_message_cost(state)
        if forecast is not None:
            dollars = max(dollars, forecast.dollars)
    must_shorten_from = float(meter.window - meter.reserve)
    if policy.handover != "off":
        must_shorten_from = context_usage.tokens_at_which_handover_must_start(meter, policy)
    return ContextAfterUndo(
        used=used,
        window=meter.window,
        reserve=meter.reserve,
        dollars=dollars,
        is_shortened_again=used >= must_shorten_from,
        folds=live_count,
        behind_summary=count_behind_summary,
    )


def _is_behind_summary(state: ConversationState, fold: Folded, undone: Sequence[str]) -> bool:
    """Whether a summary or notes that stay in force stand in place of what this fold covers."""
    for other in state.live_folds:
        is_document = isinstance(other.cover, Span)
        stays = other.fold not in undone
        if is_document and stays and cover_contains(other.cover, fold.cover):
            return True
    return False


def forecast_message_cost(state: Moment) -> MessageCostForecast | None:
    """Return what the next message will probably cost, or None if too little is known."""
    if _is_other_model_chosen(state):
        return None
    costs = state.record.ledger.list_costs_of_messages(state.seq, MOST_MESSAGES)
    if len(costs) < FEWEST_MESSAGES:
        return None
    costs.sort()
    return MessageCostForecast(
        dollars=_quantile(costs, 0.5),
        low=_quantile(costs, 0.25),
        high=_quantile(costs, 0.75),
        messages=len(costs),
    )


def estimate_next_message(
    state: Moment, policy: Policy, counted_tokens: int, now: float, *, before: int = 0
) -> NextMessageEstimate:
    """Return what sending a message of so many counted tokens takes now. `before`: the first
    message that it replaces.
    """
    estimate = NextMessageEstimate(
        context=context_usage.count_context_of_next_message(state, policy, before),
        message=context_usage.estimate_billed_tokens(counted_tokens, state),
        reply=state.record.ledger.median_reply_tokens(state.seq),
    )
    request_cost = context_usage.estimate_next_message_cost(state, policy, before=before)
    if request_cost is None:
        return estimate
    cached_tokens = 0
    # Where no price is known for what is cached, it costs as much as the rest.
    if request_cost.is_cache_warm(now) and request_cost.warm < request_cost.cold:
        cached_tokens = request_cost.cached
    cost_of_message = estimate.message * request_cost.per_token
    return replace(
        estimate,
        cached=cached_tokens,
        dollars_of_request=request_cost.cost_when_sent(now) + cost_of_message,
        forecast=forecast_message_cost(state),
    )


def _is_other_model_chosen(state: Moment) -> bool:
    """Whether the next message goes to another model than the last ones did."""
    chosen = state.settings.model_for_role(ModelRole.MAIN)
    recorded = state.record.settings_at(state.seq).model_for_role(ModelRole.MAIN)
    if chosen is None or recorded is None:
        return chosen is not recorded
    return chosen.model != recorded.model


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies, between two if need be."""
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
