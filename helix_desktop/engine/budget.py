"""Tokens, windows and prices: one number for the meter and for every trigger.

Tokens are counted once, when a fact is made, with the base encoding. What a model really bills is that times one
factor per model, learned from what the provider reports. Every threshold is compared with the corrected number, and
the meter shows the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helix_desktop.engine import economics
from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.economics import Prices
from helix_desktop.engine.facts import Cover, ModelRole, ModelSet, Usage
from helix_desktop.engine.history.ledger import Savings
from helix_desktop.engine.history.moment import Moment
from helix_desktop.engine.policy import Policy
from helix_desktop.engine.view import State

PER_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Meter:
    """How full the window is. `parts` are corrected tokens by kind and sum up to `used`."""

    parts: Mapping[Kind, int]
    used: int
    window: int
    reserve: int
    factor: float
    model: str = ""

    @property
    def utilization(self) -> float:
        """The share of the window the next request takes: what is shown and what every trigger compares."""
        return self.used / self.window

    @property
    def free(self) -> int:
        """What can still come in before the reserve is touched; negative when it does not fit."""
        return self.window - self.reserve - self.used

    @property
    def fits(self) -> bool:
        """Whether the next request fits with the reserve for the reply."""
        return self.free >= 0

    def figures(self) -> str:
        """For people: used, window and reserve in one line."""
        return f"{self.used:,} of {self.window:,} tokens ({self.utilization:.0%}), {self.reserve:,} kept for the reply"


@dataclass(frozen=True, slots=True)
class NextMessage:
    """About what the next request costs, in dollars. `reply`: the tokens expected back; 0: not known, not counted.

    Not in it: the text of the message itself, more steps where the reply calls tools, and folds.
    """

    warm: float
    cold: float
    reply: int


def meter(state: Moment, policy: Policy) -> Meter:
    """What the next request comes to, from the running sums: O(1)."""
    chosen = state.settings.model(ModelRole.MAIN)
    factor_now = state.factor()
    counted = {kind: state.branch.tokens[kind] for kind in Kind}
    counted[Kind.SYSTEM] += state.settings.tokens
    counted[Kind.CONVERSATION] += state.branch.total_tokens - state.branch.tokens.total()
    parts = {kind: round(tokens * factor_now) for kind, tokens in counted.items()}
    size = window(state, policy)
    return Meter(parts, sum(parts.values()), size, reserve(state, policy), factor_now, chosen.model if chosen else "")


def kept_whole(state: State, *more: Cover) -> int:
    """What no fold can make shorter: system prompt, tools, rules and pins, `more` among them; corrected tokens."""
    return corrected(state.settings.tokens + state.branch.tokens_pinned(*more), state)


def window(state: Moment, policy: Policy) -> int:
    """The main model's window, or the policy's where the model's own is not known."""
    chosen = state.settings.model(ModelRole.MAIN)
    return chosen.window if chosen and chosen.window > 0 else policy.window


def reserve(state: Moment, policy: Policy) -> int:
    """Room for the reply and for a summary of the conversation, in corrected tokens."""
    chosen = state.settings.model(ModelRole.MAIN)
    size = window(state, policy)
    reply = min(chosen.max_output if chosen and chosen.max_output > 0 else policy.reserve_reply, policy.reserve_reply)
    return min(reply, size // 10) + min(policy.reserve_summary, size // 20)


def corrected(tokens: int, state: Moment) -> int:
    """What the main model would bill for so many counted tokens."""
    return round(tokens * state.factor())


def prices(chosen: ModelSet | None) -> Prices:
    """The model's prices as shares of its input price; the usual ones where they are unknown."""
    if chosen is None:
        return Prices()
    return economics.prices(chosen.price_input, chosen.price_output, chosen.price_cache_read, chosen.price_cache_write)


def savings(state: Moment) -> Savings:
    """What was sent and paid until then, beside what it would have been without any fold."""
    return state.savings(prices(state.settings.model(ModelRole.MAIN)))


def cost(usage: Usage, chosen: ModelSet | None) -> float:
    """Dollars for a usage: the reported cost, else computed from the model's prices; 0 where they are unknown."""
    if usage.cost > 0 or chosen is None or chosen.price_input <= 0:
        return usage.cost
    rate = prices(chosen)
    plain = max(0, usage.input - usage.cache_read - usage.cache_write)
    shares = plain + usage.cache_read * rate.read + usage.cache_write * rate.write + usage.output * rate.output
    return shares * chosen.price_input / PER_MILLION


def next_message(state: Moment, policy: Policy) -> NextMessage | None:
    """What sending now costs with the last request still in the provider's cache, and without; None: no price known."""
    chosen = state.settings.model(ModelRole.MAIN)
    if chosen is None or chosen.price_input <= 0:
        return None
    used, ledger = meter(state, policy).used, state.record.ledger
    cached = min(used, ledger.cached(chosen.model, state.seq))
    reply = ledger.usual_reply(state.seq)
    warm = Usage(used, cache_read=cached, cache_write=used - cached, output=reply)
    cold = Usage(used, cache_write=used, output=reply)
    return NextMessage(cost(warm, chosen), cost(cold, chosen), reply)
