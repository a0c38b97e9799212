"""Measures tokens, windows and prices. The meter and every threshold use the same number.

Tokens are counted once, when a fact is made, with the base encoding. What a model
really bills is what the provider reported for the last request, and what was added since,
times one factor per model, learned from these reports.
Every threshold is compared with the corrected number, and the meter shows the same one.
"""

import math
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum

from helix_desktop.engine import facts
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.fold_economics import relative_prices, reserved_tokens_in_window
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.prompt_cache_terms import (
    HOUR_SECONDS,
    cache_lifetime_seconds,
    is_cached_for_an_hour,
    prices_of_main_model,
)
from helix_desktop.engine.request_changes import find_first_changed_seq
from helix_desktop.engine.state.live_folds import count_item_tokens
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.token_ledger import newest_fact_seen_by
from helix_desktop.engine.state.view_items import MESSAGE_TOKENS
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass

PER_MILLION = 1_000_000
NOTHING_TO_FOLD = (
    "There is nothing to shorten yet: the most recent part of a conversation is never shortened."
)
SPARE = 0.05  # A handover starts when this share of the window, besides the reserve, is left.


class WindowSizeSource(StrEnum):
    """How the size of a model's window is known, the most certain first."""

    USER = "user"
    LEARNED = "learned"  # The provider stated it when it refused a request.
    REPORTED = "reported"  # The provider's list of models states it.
    SHIPPED = "shipped"  # The list of models that comes with the program states it.
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class WindowMeter:
    """How full the window is. `parts` are corrected tokens by kind and sum up to `used`.
    `may_lack`: by how many tokens the next request may be longer than `used`, if it is estimated.
    The reserve is never smaller.

    `counted`: the tokens by kind as they were counted when each piece was made. People read these,
    because a summary or an output then has the same size in the chat, the timeline and the meter.
    """

    parts: Mapping[ContextKind, int]
    used: int
    window: int
    reserve: int
    factor: float
    model: str = ""
    is_estimate: bool = False  # Whether nobody but us has counted, neither provider nor tokenizer.
    counted: Mapping[ContextKind, int] = field(default_factory=dict)
    may_lack: int = 0

    @property
    def most_used(self) -> int:
        """Return up to how many tokens the next request takes, as far as is known."""
        return self.used + self.may_lack

    @property
    def used_share(self) -> float:
        """Return the share of the window that the next request takes, which is shown
        and triggers folds.
        """
        return self.used / self.window

    @property
    def free_tokens(self) -> int:
        """Return the tokens free before the reserve, negative if the request does not fit."""
        return self.window - self.reserve - self.used

    @property
    def request_fits(self) -> bool:
        """Whether the next request fits with the reserve for the reply."""
        return self.free_tokens >= 0

    def format_meter(self) -> str:
        """Return used tokens, window and reserve on one line, for people."""
        return f"{self.used:,} of {self.window:,} tokens ({self.used_share:.0%}), {self.reserve:,} reserved for the reply and a summary"


@dataclass(frozen=True, slots=True)
class NextMessageCost:
    """The approximate cost of the next request in dollars. `reply`: its expected tokens, or 0.

    `warm_until`: when the provider's cache expires, in seconds since 1970, or 0 if it
    has expired or this is unknown. `per_token`: the price of a new token. `kept`: what
    keeping the cache alive has cost since the last step.

    The text of the message itself, further steps and folds are not included.
    """

    warm: float
    cold: float
    reply: int
    warm_until: float = 0.0
    per_token: float = 0.0
    kept: float = 0.0
    cached: int = 0  # The tokens of the context that cost less while the cache is warm.
    forever: bool = False  # Whether the provider caches the context without saying for how long.
    lifetime: float = 0.0  # How many seconds the provider's cache lasts. 0: unknown.

    def is_cache_warm(self, now: float) -> bool:
        return self.forever or self.warm_seconds_left(now) > 0

    def warm_seconds_left(self, now: float) -> float:
        """Return how many seconds the provider's cache still lasts, or a number that is not above 0."""
        if not self.lifetime:
            return self.warm_until - now
        last_use = self.warm_until - self.lifetime
        return self.lifetime - seconds_since_use(last_use, now, self.lifetime)

    def cost_when_sent(self, now: float) -> float:
        if self.is_cache_warm(now):
            return self.warm
        return self.cold


@dataclass(frozen=True, slots=True)
class FoldForecast:
    """What shortening now takes and brings, in billed tokens. `sent`: what one try sends to the
    model that writes the text; 0 if no model is asked. `freed`: by how many tokens each later
    request is probably shorter. `dollars`: what a try costs at most, or None where no price is
    known.
    """

    sent: int
    freed: int
    dollars: float | None


@dataclass(frozen=True, slots=True)
class PendingRewrite:
    """Cached tokens that the next request would write again. `until`: when the cache
    expires, or 0 if unknown.
    """

    tokens: int
    dollars: float  # The cost of writing these tokens to the cache again.
    until: float = 0.0
    lifetime: float = 0.0  # How many seconds the cache lasts. 0: unknown.
    # Whether the model or thinking time changed, and not the tools, system prompt or
    # rules.
    is_model: bool = False

    def has_expired(self, now: float) -> bool:
        if not self.lifetime:
            return False
        last_use = self.until - self.lifetime
        return seconds_since_use(last_use, now, self.lifetime) >= self.lifetime


def tokens_at_which_handover_must_start(meter: WindowMeter, policy: Policy) -> float:
    """Return above how many tokens the next request might not fit."""
    chosen_limit = policy.handover_share * meter.window
    last_moment = meter.window - meter.reserve - meter.window * SPARE
    return min(chosen_limit, last_moment)


def measure_window(state: Moment, policy: Policy) -> WindowMeter:
    """Measure the next request in constant time, from running sums."""
    chosen = state.settings.model_for_role(facts.ModelRole.MAIN)
    model = ""
    if chosen is not None:
        model = chosen.model
    ledger = state.record.ledger
    tokens_by_kind = state.branch.tokens_by_kind(state.settings.settings_tokens)
    counted = dict(zip(ContextKind, tokens_by_kind, strict=True))
    used = ledger.billed_view_tokens(model, state.seq, sum(tokens_by_kind))
    share_that_may_lack = ledger.share_that_estimate_may_lack(model, state.seq)
    may_lack = math.ceil(used * share_that_may_lack)
    reserve = max(reserved_tokens(chosen, policy), may_lack)
    is_estimate = ledger.is_view_estimated(model, state.seq)
    return WindowMeter(
        parts=_share_among_kinds(used, counted),
        used=used,
        window=window_tokens(chosen, policy),
        reserve=reserve,
        factor=state.billed_per_counted_token(),
        model=model,
        is_estimate=is_estimate,
        counted=counted,
        may_lack=may_lack,
    )


def _share_among_kinds(billed: int, counted: Mapping[ContextKind, int]) -> dict[ContextKind, int]:
    """Return the billed tokens of each kind in proportion to what was counted. They add up to
    `billed`: each kind ends where its rounded share of the sum ends.
    """
    counted_in_all = sum(counted.values()) or 1
    shares: dict[ContextKind, int] = {}
    counted_so_far = 0
    billed_so_far = 0
    for kind, tokens in counted.items():
        counted_so_far += tokens
        end = billed * counted_so_far // counted_in_all
        shares[kind] = end - billed_so_far
        billed_so_far = end
    return shares


def count_unfoldable_tokens(state: ConversationState, *more: facts.Cover) -> int:
    """Return the billed tokens of system prompt, tools, rules and pins (including
    `more`), which folds cannot save.
    """
    pinned = state.branch.count_pinned_tokens(*more)
    return estimate_billed_tokens(state.settings.settings_tokens + pinned, state)


def window_tokens(chosen: facts.ModelSet | None, policy: Policy) -> int:
    """Return the window of the main model that is chosen, or the policy's if it is unknown."""
    if chosen is not None and chosen.window > 0:
        return chosen.window
    return policy.window


def reserved_tokens(chosen: facts.ModelSet | None, policy: Policy) -> int:
    """Return the billed tokens that are kept free for the main model's reply and for a summary."""
    reply_tokens = policy.reserve_reply
    if chosen and chosen.max_output > 0:
        reply_tokens = min(chosen.max_output, reply_tokens)
    window = window_tokens(chosen, policy)
    return reserved_tokens_in_window(window, reply_tokens, policy.reserve_summary)


def estimate_billed_tokens(tokens: int, state: Moment) -> int:
    """Return what the main model would bill for so many counted tokens."""
    return round(tokens * state.billed_per_counted_token())


def count_tokens_after_undo(state: Moment, meter: WindowMeter, put_back: int) -> int:
    """Return the billed tokens of the next request with so many counted ones more. They are the
    same after a restart, where the meter may go by what a tokenizer has counted since the last one.
    """
    counted_tokens = sum(meter.counted.values()) + put_back
    return state.record.ledger.recorded_view_tokens(meter.model, state.seq, counted_tokens)


def estimate_usage_of_request(state: ConversationState) -> facts.Usage:
    """Estimate what the last request of a conversation cost whose reply never came.

    What the request before it had sent is taken as read from the provider's cache.
    """
    chosen = state.settings.model_for_role(facts.ModelRole.MAIN)
    model = ""
    if chosen is not None:
        model = chosen.model
    ledger = state.record.ledger
    sent_tokens = ledger.billed_view_tokens(model, state.seq, state.counted_tokens)
    last_usage = _usage_of_last_reply(state)
    cache_read = 0
    if last_usage.cache_read or last_usage.cache_write:
        # No more can be read than this request has, as a fold may have made it shorter.
        cache_read = min(sent_tokens, last_usage.input)
    return facts.Usage(input=sent_tokens, cache_read=cache_read)


def _usage_of_last_reply(state: ConversationState) -> facts.Usage:
    for recorded in reversed(state.facts):
        if isinstance(recorded.fact, facts.ModelReplied) and recorded.fact.usage.input:
            return recorded.fact.usage
    return facts.Usage()


def compute_cost(usage: facts.Usage, chosen: facts.ModelSet | None) -> float:
    """Return the reported dollars, or compute them from the model's prices; 0 if unknown."""
    if usage.cost > 0 or chosen is None or chosen.price_input <= 0:
        return usage.cost
    prices = relative_prices(chosen)
    uncached_tokens = max(0, usage.input - usage.cache_read - usage.cache_write)
    # What was used would cost as much as so many uncached input tokens.
    input_tokens_of_same_price = (
        uncached_tokens
        + usage.cache_read * prices.read
        + usage.priced_cache_write * prices.write
        + usage.output * prices.output
    )
    return input_tokens_of_same_price * chosen.price_input / PER_MILLION


def estimate_next_message_cost(
    state: Moment, policy: Policy, *, before: int = 0
) -> NextMessageCost | None:
    """Estimate what the next request costs if the provider still has the context in its cache
    ("warm"), and if it has not. Return None without a price.

    `before`: the first message that the next one replaces, as a rewind does.
    """
    chosen = state.settings.model_for_role(facts.ModelRole.MAIN)
    if chosen is None or chosen.price_input <= 0:
        return None
    context_tokens = count_context_of_next_message(state, policy, before)
    cached_tokens = min(context_tokens, count_cached_tokens(state, chosen.model))
    uncached_tokens = context_tokens - cached_tokens
    reply_tokens = state.record.ledger.median_reply_tokens(state.seq)
    for_an_hour = is_cached_for_an_hour(state)
    usage_if_warm = _usage_that_writes(
        uncached_tokens, cached_tokens, reply_tokens, for_an_hour=for_an_hour
    )
    usage_if_cold = _usage_that_writes(context_tokens, 0, reply_tokens, for_an_hour=for_an_hour)
    relative_price_of_writing = prices_of_main_model(state).write
    price_of_written_token = relative_price_of_writing * chosen.price_input / PER_MILLION

    lifetime_seconds = _documented_lifetime(state, chosen)
    warm_until = 0.0
    is_warm_forever = False
    if cached_tokens and lifetime_seconds:
        warm_until = _last_request_time(state, chosen.model) + lifetime_seconds
    elif cached_tokens:  # The provider does not say when its cache expires.
        is_warm_forever = True
    return NextMessageCost(
        warm=compute_cost(usage_if_warm, chosen),
        cold=compute_cost(usage_if_cold, chosen),
        reply=reply_tokens,
        warm_until=warm_until,
        per_token=price_of_written_token,
        kept=_cost_of_keeping_alive(state, chosen),
        cached=cached_tokens,
        forever=is_warm_forever,
        lifetime=lifetime_seconds,
    )


def compute_next_request_cost(state: Moment, context: int, cached: int, reply: int) -> float:
    """Return the dollars of a request with so many tokens, some of them cached, or 0 without a
    price.
    """
    chosen = state.settings.model_for_role(facts.ModelRole.MAIN)
    for_an_hour = is_cached_for_an_hour(state)
    usage = _usage_that_writes(context - cached, cached, reply, for_an_hour=for_an_hour)
    return compute_cost(usage, chosen)


def count_context_of_next_message(state: Moment, policy: Policy, before: int) -> int:
    """Return the tokens of the next request, without those from message `before` on."""
    return measure_window_without_end(state, policy, before).used


def measure_window_without_end(state: Moment, policy: Policy, before: int) -> WindowMeter:
    """Measure the next request without what stands from message `before` on, as it is after a
    rewind to there. 0: with everything.

    What the provider billed just before that message says more than what it billed last.
    """
    meter = measure_window(state, policy)
    if not before:
        return meter
    counted = dict(meter.counted)
    for item in state.branch.items_from_fact(before):
        if item.blocks:
            counted[ContextKind.CONVERSATION] -= MESSAGE_TOKENS
        for block in item.blocks:
            counted[block.kind] -= block.tokens
    ledger = state.record.ledger
    used = ledger.billed_view_tokens(meter.model, before - 1, sum(counted.values()))
    return replace(meter, parts=_share_among_kinds(used, counted), used=used, counted=counted)


def _cost_of_keeping_alive(state: Moment, chosen: facts.ModelSet) -> float:
    """Return the dollars of the keep-alive requests since the last reply."""
    seq_of_billed_reply, _ = state.record.ledger.last_billed_reply(chosen.model, state.seq)
    dollars = 0.0
    for _, usage in keep_alive_times_and_usages_since(state, seq_of_billed_reply):
        dollars += compute_cost(usage, chosen)
    return dollars


def _documented_lifetime(state: Moment, chosen: facts.ModelSet) -> float:
    """Return for how many seconds what was sent is cached, or 0 if the provider does not say."""
    if is_cached_for_an_hour(state):
        return HOUR_SECONDS
    return chosen.cache_seconds


def _usage_that_writes(written: int, read: int, output: int, *, for_an_hour: bool) -> facts.Usage:
    """Return the usage of a request that writes all that it does not read."""
    usage = facts.Usage(written + read, cache_read=read, cache_write=written, output=output)
    if not for_an_hour:
        return usage
    return replace(usage, cache_write_hour=written)


def count_cached_tokens(state: Moment, model: str) -> int:
    """Return how many tokens at the start of the next request were in a model's last one, too.

    So many can be read from the provider's cache, up to the first change since then.
    """
    ledger = state.record.ledger
    seq_of_billed_reply, billed_tokens = ledger.last_billed_reply(model, state.seq)
    if not seq_of_billed_reply or will_request_head_change(state):
        return 0
    settings_tokens = state.settings.settings_tokens
    recorded_model = state.record.settings_at(state.seq).model_for_role(facts.ModelRole.MAIN)
    chosen_model = state.settings.model_for_role(facts.ModelRole.MAIN)
    if recorded_model and chosen_model and recorded_model.effort != chosen_model.effort:
        # Another thinking time leaves only the system prompt and the tools in the cache.
        return min(billed_tokens, estimate_billed_tokens(settings_tokens, state))

    billed_reply = state.record.facts[seq_of_billed_reply - 1]
    first_changed = _first_changed_message(state, newest_fact_seen_by(billed_reply))
    if first_changed is None:
        return billed_tokens
    if first_changed == 0:
        return 0
    unchanged_items = (item for item in state.branch.items if item.first < first_changed)
    unchanged_tokens = settings_tokens + count_item_tokens(unchanged_items)
    return min(billed_tokens, estimate_billed_tokens(unchanged_tokens, state))


def is_cache_cold(state: ConversationState, now: float) -> bool:
    """Whether the provider's cache has expired since the last step."""
    return seconds_until_cold(state, now) < 0


def seconds_until_cold(state: ConversationState, now: float) -> float:
    """Return how long the provider keeps what the last step sent, or a negative number."""
    lifetime_seconds = cache_lifetime_seconds(state)
    branch = state.branch
    if not branch.steps:
        return lifetime_seconds
    last_use = branch.step_times[-1]
    # A keep-alive request renews the cache, too.
    for keep_alive_time, _ in keep_alive_times_and_usages_since(state, branch.steps[-1]):
        last_use = max(last_use, keep_alive_time)
    return lifetime_seconds - seconds_since_use(last_use, now, lifetime_seconds)


def seconds_since_use(last_use: float, now: float, lifetime_seconds: float) -> float:
    """Return how long ago a cache was used. If the computer's clock has been set back by more than
    the cache lasts, nobody knows, and the cache counts as expired: else it would be warm until
    that time comes again.
    """
    seconds_since = now - last_use
    if seconds_since < -lifetime_seconds:
        return math.inf
    return max(0.0, seconds_since)


def keep_alive_times_and_usages_since(state: Moment, seq: int) -> list[tuple[float, facts.Usage]]:
    """Return the time and the usage of each keep-alive request after `seq`."""
    requests = []
    for recorded in state.record.facts[seq : state.seq]:
        fact = recorded.fact
        if isinstance(fact, facts.Spent) and fact.purpose is facts.Purpose.KEEP_ALIVE:
            requests.append((recorded.time, fact.usage))
    return requests


def will_request_head_change(state: Moment) -> bool:
    """Whether tools, system prompt or rules will differ from the recorded ones."""
    current_settings = state.settings
    recorded_settings = state.record.settings_at(state.seq)
    if current_settings is recorded_settings:
        return False
    if current_settings.tools.tools != recorded_settings.tools.tools:
        return True
    return current_settings.settings_blocks != recorded_settings.settings_blocks


def estimate_pending_rewrite(state: Moment, recorded: Moment) -> PendingRewrite | None:
    """Return what choices made since the last request, such as another model, make the provider
    write to its cache again, or None.

    `recorded` is the conversation as it was sent last, `state` as it will be sent.
    """
    model_before = recorded.settings.model_for_role(facts.ModelRole.MAIN)
    model_after = state.settings.model_for_role(facts.ModelRole.MAIN)
    if model_before is None or model_after is None or model_after.price_input <= 0:
        return None
    cached_before = count_cached_tokens(recorded, model_before.model)
    cached_after = count_cached_tokens(state, model_after.model)
    lost_tokens = cached_before - cached_after
    if lost_tokens <= 0:
        return None

    prices = prices_of_main_model(state)
    if prices.read >= prices.write:
        return None  # To read them again would cost as much, so nothing is lost.
    dollars = lost_tokens * prices.write * model_after.price_input / PER_MILLION
    lifetime_seconds = _documented_lifetime(recorded, model_before)
    cached_until = 0.0
    if lifetime_seconds:
        cached_until = _last_request_time(recorded, model_before.model) + lifetime_seconds
    is_other_model = model_before.model != model_after.model
    is_other_effort = model_before.effort != model_after.effort
    return PendingRewrite(
        lost_tokens,
        dollars,
        cached_until,
        lifetime_seconds,
        is_model=is_other_model or is_other_effort,
    )


def _first_changed_message(state: Moment, newest_seq: int) -> int | None:
    """Return the first changed message's number, 0 for system prompt or tools, or None."""
    first_changed = None
    for recorded in state.record.facts[newest_seq : state.seq]:
        changed = find_first_changed_seq(recorded.fact, state.branch.folds)
        if changed is None:
            continue
        if first_changed is None or changed < first_changed:
            first_changed = changed
    return first_changed


def _last_request_time(state: Moment, model: str) -> float:
    """Return when a model was last sent a request, in seconds since 1970."""
    seq_of_billed_reply, _ = state.record.ledger.last_billed_reply(model, state.seq)
    billed_reply = state.record.facts[seq_of_billed_reply - 1]
    request_time = billed_reply.time
    if isinstance(billed_reply.fact, facts.ModelReplied):
        # The reply was recorded when it was complete.
        request_time -= billed_reply.fact.seconds
    for keep_alive_time, _ in keep_alive_times_and_usages_since(state, seq_of_billed_reply):
        request_time = max(request_time, keep_alive_time)
    return request_time
