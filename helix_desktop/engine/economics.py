"""When saving context pays: clearing old outputs, and handing over. Plain functions on plain numbers.

The unit everywhere is the price of one fresh input token, so a cost of 12,000 means "what 12,000 uncached input tokens
cost". Tokens are those of the meter (corrected per model); shares of the window are for the caller to turn into tokens.

Two questions, one idea. A provider's cache makes a carried token cheap (`read`) and a rewritten one dear (`write`); so
every fold trades one rewrite now against less rent on every later step. Where the context grows steadily, the cheapest
moment is when the rent paid so far equals the price of acting, and the cost is flat around that moment: waiting up to
twice as long costs one or two percent and keeps more of what the agent still uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN_READ, UNKNOWN_WRITE, UNKNOWN_OUTPUT = 0.1, 1.0, 5.0
FLAT_SAVING = 4_000  # tokens a clearing must free where the provider caches nothing
COLD_SHARE = 1 / 3  # of the context a clearing must free while the provider's cache is cold
QUESTION_TOKENS = 300  # what the request for a summary adds to the context it reads


@dataclass(frozen=True, slots=True)
class Prices:
    """Shares of the input price: a token read from the cache, written to it, put out."""

    read: float = UNKNOWN_READ
    write: float = UNKNOWN_WRITE
    output: float = UNKNOWN_OUTPUT

    @property
    def caching(self) -> bool:
        """Whether carrying a token is cheaper than sending it anew."""
        return self.read < self.write


def prices(price_input: float, price_output: float, cache_read: float, cache_write: float) -> Prices:
    """From prices in any one unit, 0 where unknown; what is unknown counts as 0.1, 1 and 5 times the input."""
    if price_input <= 0:
        return Prices()
    return Prices(
        read=cache_read / price_input if cache_read > 0 else UNKNOWN_READ,
        write=cache_write / price_input if cache_write > 0 else UNKNOWN_WRITE,
        output=price_output / price_input if price_output > 0 else UNKNOWN_OUTPUT,
    )


# --- clearing old outputs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """One part of the view, in its order. `frees`: tokens a marker in its place would save; 0: it must stay."""

    tokens: int
    frees: int = 0


def clearing_threshold(after: float, growth: float, price: Prices, cold: float = 0.0) -> float:
    """The tokens a clearing must free to pay, when `after` tokens stand behind the first part it clears.

    `growth`: clearable tokens added per step (mean of the last 20); `cold`: the learned chance that the provider's
    cache is cold at the next request. Less than this: wait, and clear more at once later.
    """
    rent = price.read * (1 - cold) + price.write * cold
    rewrite = (price.write - price.read) * (1 - cold)
    if rewrite <= 0 or rent <= 0:
        return FLAT_SAVING
    return math.sqrt(2 * rewrite * after * growth / rent)


def clear_from(view: Sequence[Standing], growth: float, price: Prices, cold: float = 0.0) -> int | None:
    """The index from which on every part that frees something should be cleared now, or None: wait.

    Of the starting parts that pay it is the one with the largest surplus over its threshold.
    """
    best, found = 0.0, None
    after, freed = 0, 0
    for index in range(len(view) - 1, -1, -1):
        part = view[index]
        if part.frees > 0:
            freed += part.frees
            surplus = freed - clearing_threshold(after, growth, price, cold)
            if surplus > best:
                best, found = surplus, index
        after += part.tokens
    return found


def clear_when_cold(freed: int, context: int) -> bool:
    """After a pause that left the cache cold everything is written anew in any case: clear if it frees a third."""
    return freed > 0 and freed >= COLD_SHARE * context


# --- handing over ----------------------------------------------------------------------------------------------------

PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Handover:
    """What one would come to now, in tokens."""

    context: int  # everything the next request would send
    away: int  # of it, what the handover would take away
    stays: int  # the tail behind the document, written anew
    summary: int  # what the document is expected to take


def rent(away: int, price: Prices) -> float:
    """What one step pays to carry `away` tokens. Add it up over the steps of a part, forget it when the part goes."""
    return price.read * away


def handover_cost(plan: Handover, price: Prices, writer: Prices | None = None, *, scale: float = 1.0) -> float:
    """The price of handing over now.

    Without `writer` the main model writes over its own cached prefix; a writer reads the context uncached at its own
    prices, `scale` times ours. Then the document and what stays are written into the main model's cache.
    """
    question = price.write * QUESTION_TOKENS
    writing = price.read * plan.context + question + price.output * plan.summary
    if writer is not None:
        writing = scale * (plan.context + QUESTION_TOKENS + writer.output * plan.summary)
    return writing + price.write * (plan.summary + plan.stays)


def handover_pays(paid: float, cost: float, patience: float = PATIENCE) -> bool:
    """Rent or buy: whether the rent paid for what it would take away has reached `patience` times its cost."""
    return paid >= patience * cost


def handover_floor(window: int, tokens: int = 40_000, share: float = 0.30) -> float:
    """The context below which a handover is not worth the loss: 40,000 tokens or 30 % of the window, whichever is less."""
    return min(tokens, share * window)
