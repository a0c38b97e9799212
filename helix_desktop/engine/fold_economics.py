"""When saving context pays: clearing old parts, and handing over. Plain functions on plain numbers.

The unit of every price and cost is one fresh input token: a cost of 12,000 is what 12,000 uncached input tokens cost.
Tokens are those of the meter; shares of the window are for the caller to turn into tokens.

One idea answers all questions. A provider's cache makes a carried token cheap (`read`) and a rewritten one dear
(`write`), so a fold trades one rewrite now for less rent on every later step. Where the context grows steadily the
cheapest moment is when the rent paid so far equals the price of acting. Around that moment the cost is flat, while what
the agent still uses is lost for good: so a handover waits until the rent is some more than twice its price.

What a conversation has recalled counts too (`FoldExperience`): recalls take a share of what folds save, and where they take
all of it nothing more is folded for gain.

Measured over ten recorded sessions of 40,000 to 400,000 tokens in the price model of `helix-desktop replay` (window
128,000; cache read 0.1, write 1.25, output 5), as shares of sending everything every time. In a simulator with markers
of 60 and summaries of 3,000 tokens:

                                                                billed   sent   still in view   peak
    the rules of the design                                       0.405  0.212           0.878   0.49
    patience 2 instead of 1                                       0.400  0.223           0.886   0.63
    only what stays counts as rewritten (`find_clearing_start`)  0.386  0.198           0.885   0.44
    superseded arguments go first (`may_clear_argument`)         0.388  0.197           0.910   0.42

Through the real engine, whose markers and documents are longer, 0.397 / 0.209 / 0.909 / 0.42; and with outputs of commands
held back from 2,000 tokens on (context_policy.py) 0.382 / 0.201 / 0.907 / 0.42. Moved one at a time (patience 2 to 3, floor 28,000 to
44,000, superseded 150 to 600, worth 2 to 5) the constants changed billed by at most 0.006 and what is still in view by at
most 0.02. On twelve other sessions, made of pieces of these and of shorter ones, the last step took billed from 0.296 to
0.283 and what is in view from 0.944 to 0.949. These figures count 6,000 tokens
of system prompt and tools and leave recalls out. By the effective bill (`replay/cache_billing.py`, recalls of all that is used again) the
default policy is at 0.447 where the agent must search for what it recalls, with 0.916 of the identifiers in plain text still in view; a
policy that knew what will be used would be at 0.288 (`tests/benchmarks/foresight.py`). `python -m tests.benchmarks.policies --traces DIR` has the
table with other systems' policies under four price tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from helix_desktop.fast_dataclass import dataclass

UNKNOWN_READ, UNKNOWN_WRITE, UNKNOWN_OUTPUT = 0.1, 1.0, 5.0
LEAST_SAVING = 4_000  # A clearing that frees fewer tokens never pays for writing the prefix anew.
COLD_SHARE = 1 / 3  # The share of the context that a clearing must free while the provider's cache is cold.
USUAL_WINDOW = 128_000  # A larger window is treated like this one, because more room is no reason to pay more.
CROWDED_SHARE, CROWDED_TOKENS = 0.42, 48_000
CROWDED_EASE = 0.6  # In a crowded window this share of the threshold is enough, at a cache-read price of 0.1.
QUESTION_TOKENS = 300  # The tokens that the request for a summary adds to the context.
PATIENCE = 2.5  # a handover waits until the rent is this many times its price
HURRY_FROM, HURRY_TO = 0.40, 0.50  # Between these shares of the window, the patience falls to 1.
FLOOR_TOKENS, FLOOR_SHARE = 36_000, 0.30
LONG_ARGUMENT, SUPERSEDED_ARGUMENT = 1_000, 300  # In tokens.
PAYBACK_SHARE = 0.5  # a clearing pays within this share of as many steps as there were
RECALLS_EXPECTED, EXPECTED_WEIGHT = 0.3, 20_000  # of what folds save, and the tokens saved that weigh as much
RECALLED_TOKENS = 600  # that a recall brings
WRITES_WORTH = 3.0  # The newest text of a file stays until carrying it has cost as much as writing it this many times.


@dataclass(frozen=True, slots=True)
class RelativePrices:
    """Shares of the input price: a token read from the cache, written to it, put out."""

    read: float = UNKNOWN_READ
    write: float = UNKNOWN_WRITE
    output: float = UNKNOWN_OUTPUT


def relative_prices_of(
    price_input: float, price_output: float, cache_read: float, cache_write: float
) -> RelativePrices:
    """From prices in any one unit, 0 where unknown; what is unknown counts as 0.1, 1 and 5 times the input."""
    if price_input <= 0:
        return RelativePrices()
    return RelativePrices(
        read=cache_read / price_input if cache_read > 0 else UNKNOWN_READ,
        write=cache_write / price_input if cache_write > 0 else UNKNOWN_WRITE,
        output=price_output / price_input if price_output > 0 else UNKNOWN_OUTPUT,
    )


# --- clearing old parts ----------------------------------------------------------------------------------------------


class ClearablePart(NamedTuple):
    """One part of the view, in its order. `frees`: tokens a marker in its place would save; 0: it stays."""

    tokens: int
    frees: int = 0


@dataclass(frozen=True, slots=True)
class FoldExperience:
    """What a conversation has shown so far. `recalled`: what its recalls cost, as a share of what its folds saved; `steps`:
    how many there were, and as many are expected to come.
    """

    recalled: float = 0.0
    steps: float = math.inf

    @property
    def net_share(self) -> float:
        """The share of a saving that is left when recalls are paid."""
        return max(0.0, 1 - self.recalled)


NO_EXPERIENCE = FoldExperience()


def share_recalled(saved: float, recalls: float) -> float:
    """What recalls cost as a share of what folds saved. The first evidence counts little beside what is usual."""
    return (recalls + RECALLS_EXPECTED * EXPECTED_WEIGHT) / (saved + EXPECTED_WEIGHT)


def recall_cost(context: int, calls: int, price: RelativePrices) -> float:
    """What a request for recalls costs, with carrying what they bring."""
    brought = RECALLED_TOKENS * calls * (price.write + price.read * CARRIED_STEPS)
    return price.read * context + price.output * ASKING_TOKENS + brought


def clearing_threshold(
    rest: float, growth: float, price: RelativePrices, cold: float = 0.0, seen: FoldExperience = NO_EXPERIENCE
) -> float:
    """The tokens a clearing must free to pay, when `rest` tokens are written anew behind the first part it clears.

    `rest` is what stays there: what is cleared is not rewritten. `growth`: clearable tokens added per step (mean of the
    last 20); `cold`: the learned chance that the provider's cache is cold at the next request.
    """
    rent_per_token = (price.read * (1 - cold) + price.write * cold) * seen.net_share
    rewrite = (price.write - price.read) * (1 - cold)
    if rewrite <= 0:
        return LEAST_SAVING
    if rent_per_token <= 0:
        return math.inf if seen.net_share <= 0 else LEAST_SAVING
    certain = rewrite * max(0.0, rest) / (rent_per_token * PAYBACK_SHARE * seen.steps)
    return max(certain, math.sqrt(2 * rewrite * max(0.0, rest) * growth / rent_per_token))


def find_clearing_start(  # The parameters are the figures that the rule is about.
    view: Sequence[ClearablePart],
    growth: float,
    price: RelativePrices,
    cold: float = 0.0,
    *,
    least: int = LEAST_SAVING,
    crowded: bool = False,
    seen: FoldExperience = NO_EXPERIENCE,
) -> int | None:
    """The index from which on every part that frees something should be cleared now, or None: wait.

    Of the starts that pay it is the one with the largest surplus. Where it is `crowded` less will do, the dearer
    carrying is: with cheap cache reads a full window is no waste.
    """
    ease = crowded_threshold_share(price) if crowded else 1.0
    best, found = 0.0, None
    rest, freed = 0, 0
    for index in range(len(view) - 1, -1, -1):
        part = view[index]
        if part.frees > 0:
            threshold = max(ease * clearing_threshold(rest, growth, price, cold, seen), least)
            freed += part.frees
            surplus = freed - threshold
            if surplus > best or (found is None and surplus == best):
                best, found = surplus, index
        rest += part.tokens - part.frees
    return found


def crowded_threshold_share(price: RelativePrices) -> float:
    """The share of its threshold that is enough where it is crowded; the best fullness goes with the root of prices."""
    return min(1.0, CROWDED_EASE * math.sqrt(UNKNOWN_READ / price.read)) if price.read > 0 else 1.0


def is_window_crowded(context: int, window: int) -> bool:
    """Whether the view takes so much of the window that less must pay: 42 %, and at least 48,000 tokens."""
    return context > max(CROWDED_SHARE * min(window, USUAL_WINDOW), CROWDED_TOKENS)


def pays_to_clear_cold(freed: int, context: int, share: float = COLD_SHARE) -> bool:
    """After a pause that left the cache cold all is written anew in any case: clear if it frees a third."""
    return freed > 0 and freed >= share * context


def may_clear_argument(tokens: int, age: int, price: RelativePrices, *, newest: bool | None, tail: int = 8) -> bool:
    """Whether an argument `age` steps old may be cleared, besides the outputs.

    `newest`: it is the last long text (over `SUPERSEDED_ARGUMENT`) the agent gave for its path; None: it has no path.
    A text that a later one supersedes goes first, being of little use; the newest is what the agent builds on, and
    stays as long as carrying it is cheap beside having to bring it back.
    """
    if age < tail:
        return False
    if newest is None:
        return tokens > LONG_ARGUMENT
    if newest:
        return tokens > LONG_ARGUMENT and age >= steps_newest_text_stays(price)
    return tokens > SUPERSEDED_ARGUMENT


def steps_newest_text_stays(price: RelativePrices) -> float:
    """For how many steps the newest text of a file stays: 38 at the usual prices, 6 where cache reads cost half."""
    return WRITES_WORTH * price.write / price.read if price.read > 0 else math.inf


@dataclass(frozen=True, slots=True)
class HandoverPlan:
    """What one would come to now, in tokens."""

    context: int  # everything the next request would send
    stays: int  # What stays behind the document and must be written into the provider's cache again.
    summary: int  # what the document is expected to take


def carrying_cost(tokens: int, price: RelativePrices) -> float:
    """What one step pays to carry a part. Added up per part over the steps it stood there, and gone with the part:
    what was paid for an output that is a marker by now is no reason for a handover.
    """
    return price.read * tokens


def handover_cost(
    plan: HandoverPlan, price: RelativePrices, writer: RelativePrices | None = None, *, scale: float = 1.0
) -> float:
    """The price of handing over now.

    Without `writer` the main model writes over its own cached prefix; a writer reads the context uncached at its own
    prices, whose input costs `scale` times ours. Then the document and what stays enter the main model's cache.
    """
    if writer is None:
        writing = price.read * plan.context + price.write * QUESTION_TOKENS + price.output * plan.summary
    else:
        writing = scale * (plan.context + QUESTION_TOKENS + writer.output * plan.summary)
    return writing + price.write * (plan.summary + plan.stays)


def handover_pays(paid: float, cost: float, patience: float = PATIENCE) -> bool:
    """Rent or buy: whether the rent paid so far for what it would take away is `patience` times its cost."""
    return paid >= patience * cost


def handover_patience(context: int, window: int) -> float:
    """How many times its price a handover waits for: less, where clearing has left the window more than 40 % full."""
    if context <= CROWDED_TOKENS:
        return PATIENCE
    hurry = (context / min(window, USUAL_WINDOW) - HURRY_FROM) / (HURRY_TO - HURRY_FROM)
    return PATIENCE - (PATIENCE - 1) * min(1.0, max(0.0, hurry))


def handover_floor(window: int, tokens: int = FLOOR_TOKENS, share: float = FLOOR_SHARE) -> float:
    """The context below which no handover is made for gain.

    The tokens are less than the share of the usual window, so that a larger window never makes a session dearer.
    """
    return min(tokens, share * window)


# --- recalls ---------------------------------------------------------------------------------------------------------


ASKING_TOKENS = 150  # what an agent says and calls in a request for more
CARRIED_STEPS = 20  # for so many steps at most what a recall brings stands in the context


def whole_entry_tokens(context: int, steps: int, price: RelativePrices, least: int, most: int) -> int:
    """Up to how many tokens an entry that is recalled by its hash comes back whole.

    The rest behind a first page of `least` tokens is needed as often as not. Given at once it is written and carried
    also where it is not needed; asked for, another request reads the `context` again. Of the steps to come as many are
    expected as there were.
    """
    another_request = price.read * context + price.output * ASKING_TOKENS
    each_token = price.write + price.read * min(steps, CARRIED_STEPS)
    return min(most, least + round(another_request / each_token)) if each_token > 0 else most


# --- small windows ---------------------------------------------------------------------------------------------------


SMALL_WINDOW = 96_000
LEAST_LARGE = 500


def large_output_tokens(window: int, tokens: int = 4_000) -> int:
    """From how many tokens on an output is large: `tokens`, and in a window below 96,000 in proportion less."""
    return min(tokens, max(LEAST_LARGE, tokens * window // SMALL_WINDOW))


def panic_tail_tokens(window: int) -> int:
    """How many tokens of the tail stay at most when the next request would not fit: a quarter of the window."""
    return window // 4
