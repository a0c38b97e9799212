"""Decides when saving context pays: clearing old parts, and handing over. Plain
functions of numbers.

All prices and costs are in fresh input tokens: a cost of 12,000 is what 12,000 uncached
input tokens cost. Callers turn shares of the window into tokens.

A provider's cache makes a carried token cheap (`read`) and a rewritten one dear
(`write`). So a fold costs one rewrite now and makes every later step cheaper, as buying
ends a rent. If the context grows steadily, the best moment is when the rent paid equals
the price. Nobody knows how long a session will go on, so as many steps are expected as
there were, and a fold must pay for itself within half of them.

Recalls cost, too (`FoldExperience`): each reads the whole context again. They are
deducted from what folds save, and once they cost as much, nothing is folded for gain.
So many small or often used parts stay, and what the agent wrote itself stays until a
handover.

`resources/help/savings.md` has the figures. `python -m tests.benchmarks.policies --traces DIR`
measures them, beside other systems' policies and with four price tables.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from helix_desktop.engine.facts import ModelSet
from helix_desktop.fast_dataclass import dataclass

# Assumed without prices, by the input price.
UNKNOWN_READ = 0.1
UNKNOWN_WRITE = 1.0
UNKNOWN_OUTPUT = 5.0
LEAST_SAVING = 4_000  # Clearing fewer tokens never pays for caching what follows again.
# While the provider's cache is cold, a clearing must free this share of the context.
COLD_SHARE = 1 / 3
QUESTION_TOKENS = 300  # The request for a summary makes the context this many tokens longer.
# A fold must repay its cost within this share of the steps so far: one that replaces single
# outputs, and a handover, which costs more and leads to more recalls.
PAYBACK_SHARE = 0.5
HANDOVER_PAYBACK_SHARE = 0.35
# The expected cost of recalls as a share of savings, and how many saved tokens' worth
# of evidence it has.
RECALLS_EXPECTED = 0.3
EXPECTED_WEIGHT = 20_000
RETURN_SHARE = 0.5  # This share of conversations is expected to continue after a long pause.
# The longer a pause has lasted, the longer it will last: fitted to 3,218 pauses of
# Claude Code's users (issue 94177).
RETURN_SLOPE = 0.7
USUAL_PAUSES = 4  # The usual chance counts as much as this many observed pauses.
# A handover leads to about this many recalls. Each reads the system prompt again.
RECALLS_OF_HANDOVER = 10
USUAL_SETTINGS_TOKENS = 1_900  # System prompt and tools of this size are part of the shares above.
RECALLED_TOKENS = 600  # The expected number of tokens in a recalled text.


@dataclass(frozen=True, slots=True)
class RelativePrices:
    """Prices of a token read from the cache, written to it, and put out, by the input price."""

    read: float = UNKNOWN_READ
    write: float = UNKNOWN_WRITE
    output: float = UNKNOWN_OUTPUT


def relative_prices(chosen: ModelSet | None) -> RelativePrices:
    """Return a model's prices, as every bill is computed. So that no bill is too low,
    an unknown price (0) of cached tokens counts as that of input, one of output as five
    times that. Without an input price, all are the usual ones.
    """
    if chosen is None or chosen.price_input <= 0:
        return RelativePrices()
    read = 1.0
    if chosen.price_cache_read > 0:
        read = chosen.price_cache_read / chosen.price_input
    write = UNKNOWN_WRITE
    if chosen.price_cache_write > 0:
        write = chosen.price_cache_write / chosen.price_input
    output = UNKNOWN_OUTPUT
    if chosen.price_output > 0:
        output = chosen.price_output / chosen.price_input
    return RelativePrices(read, write, output)


# --- Deciding whether clearing old parts saves money ---


class ClearablePart(NamedTuple):
    """One part of the view. `frees`: the tokens that a marker in its place would save,
    or 0 if the part must stay. `first`: the number of its first fact.
    """

    tokens: int
    frees: int = 0
    first: int = 0


@dataclass(frozen=True, slots=True)
class FoldExperience:
    """What a conversation shows so far of what folds save. `recalled`: the cost of recalls as a
    share of savings. `steps`: how many there were. `recall`: the cost of the next recall.
    """

    recalled: float = 0.0
    steps: float = math.inf
    recall: float = 0.0

    @property
    def net_share(self) -> float:
        """Return the share of savings that remains after paying for recalls."""
        return max(0.0, 1 - self.recalled)


NO_EXPERIENCE = FoldExperience()


def recall_cost_share(saved: float, recalls: float) -> float:
    """Return the cost of recalls as a share of what folds have saved.

    As long as little was saved, the share says little, so it is mixed with the usual one.
    """
    return (recalls + RECALLS_EXPECTED * EXPECTED_WEIGHT) / (saved + EXPECTED_WEIGHT)


def recall_cost(context: int, calls: int, price: RelativePrices) -> float:
    """Return the cost of one request in which an agent recalls originals by some `calls`.

    It reads the whole context again, and all later steps send the results along.
    """
    reading_context = price.read * context
    writing_calls = price.output * ASKING_TOKENS
    carrying_one_token = price.write + price.read * CARRIED_STEPS
    carrying_results = RECALLED_TOKENS * calls * carrying_one_token
    return reading_context + writing_calls + carrying_results


def clearing_threshold(
    rest: float,
    growth: float,
    price: RelativePrices,
    cold: float = 0.0,
    experience: FoldExperience = NO_EXPERIENCE,
) -> float:
    """Return how many tokens a clearing must free to pay for itself.

    `rest`: tokens that stay after the first cleared part and must be cached again.
    `growth`: clearable tokens added per step. `cold`: the chance that the provider's
    cache has expired at the next request.
    """
    expected_read_price = price.read * (1 - cold) + price.write * cold
    rent_per_token = expected_read_price * experience.net_share
    rewrite_price = (price.write - price.read) * (1 - cold)
    if rewrite_price <= 0:
        return LEAST_SAVING
    if experience.net_share <= 0:
        return math.inf
    if rent_per_token <= 0:
        return LEAST_SAVING

    # The tokens that must be freed to repay rewriting and one recall within half as many steps as
    # so far. Without this limit, short conversations would pay for savings they never get.
    rewriting_cost = rewrite_price * max(0.0, rest)
    cost = rewriting_cost + experience.recall
    rent_until_payback = rent_per_token * PAYBACK_SHARE * experience.steps
    repaid_in_time = cost / rent_until_payback
    # With so many freed tokens, the rent paid since the last clearing equals the price of this one.
    rent_equals_price = math.sqrt(2 * rewriting_cost * growth / rent_per_token)
    return max(repaid_in_time, rent_equals_price)


def find_clearing_start(  # It has many parameters because the rule compares all these figures.
    view: Sequence[ClearablePart],
    growth: float,
    price: RelativePrices,
    cold: float = 0.0,
    *,
    least: int = LEAST_SAVING,
    experience: FoldExperience = NO_EXPERIENCE,
) -> int | None:
    """Return the index of the part from which clearing saves most now, or None if it does not pay.

    To clear is to replace old outputs with one line each. It saves what it frees beyond the
    threshold from which it pays for itself.
    """
    best_surplus = 0.0
    best_index = None
    tokens_after_part = 0  # What stays of the later parts, and must be cached again.
    freed = 0
    # The newest part comes first, because clearing from a part on also clears everything after it.
    for index in range(len(view) - 1, -1, -1):
        part = view[index]
        if part.frees > 0:
            threshold = clearing_threshold(tokens_after_part, growth, price, cold, experience)
            freed += part.frees
            surplus = freed - max(threshold, least)
            # A clearing that just pays for itself is made if there is no better one.
            is_first = best_index is None and surplus == best_surplus
            if is_first or surplus > best_surplus:
                best_surplus = surplus
                best_index = index
        tokens_after_part += part.tokens - part.frees
    return best_index


def pays_to_clear_when_cold(freed: int, context: int, share: float = COLD_SHARE) -> bool:
    """Whether to clear after a pause. Its cache is rewritten anyway, so a third is enough."""
    return freed > 0 and freed >= share * context


@dataclass(frozen=True, slots=True)
class HandoverPlan:
    """What a handover now would need, in tokens."""

    context: int  # The tokens of the whole next request.
    stays: int  # The tokens after the document, which the provider must cache again.
    summary: int  # The expected number of tokens in the document.


def carrying_cost(tokens: int, price: RelativePrices) -> float:
    """Return what it costs to send so many cached tokens once more."""
    return price.read * tokens


def handover_cost(
    plan: HandoverPlan,
    price: RelativePrices,
    writer: RelativePrices | None = None,
    *,
    scale: float = 1.0,
) -> float:
    """Return what a handover now would cost: a document that replaces older messages.

    It is written, and then the document and what stays must be cached.
    """
    caching = price.write * (plan.summary + plan.stays)
    return document_writing_cost(plan, price, writer, scale=scale) + caching


def document_writing_cost(
    plan: HandoverPlan,
    price: RelativePrices,
    writer: RelativePrices | None = None,
    *,
    scale: float = 1.0,
) -> float:
    """Return what the request for the document of a handover costs.

    Without `writer`, the main model writes it behind the messages, which it has cached. Another
    writer reads everything uncached at its own prices, whose input costs `scale` times ours.
    """
    if writer is not None:
        reading = plan.context + QUESTION_TOKENS
        writing = writer.output * plan.summary
        return scale * (reading + writing)
    asking = price.read * plan.context + price.write * QUESTION_TOKENS
    writing = price.output * plan.summary
    return asking + writing


def handover_pays(
    rent_paid: float,
    saved_per_step: float,
    cost: float,
    experience: FoldExperience = NO_EXPERIENCE,
    payback_share: float = HANDOVER_PAYBACK_SHARE,
) -> bool:
    """Whether a handover pays: carrying the messages until now has cost as much as it would
    cost (`rent_paid`), and it will be repaid within the expected further steps.
    """
    saved_in_time = saved_per_step * payback_share * experience.steps
    return experience.net_share * min(rent_paid, saved_in_time) >= cost


def expected_rewriting_cost(tokens: int, price: RelativePrices) -> float:
    """Return the expected cost of rewriting after a pause that outlives the provider's cache."""
    return max(0.0, price.write - price.read) * max(0, tokens) * RETURN_SHARE


def chance_of_return(away: float, life: float, pauses: Sequence[float]) -> float:
    """Return the chance that a pause of `away` seconds ends within the next `life` seconds."""
    usual_chance = 1.0
    if away > 0:
        usual_chance = 1 - (away / (away + life)) ** RETURN_SLOPE
    # Of the pauses so far that lasted as long, some ended within that time.
    longer_count = 0
    ended_count = 0
    for pause in pauses:
        if pause <= away:
            continue
        longer_count += 1
        if pause <= away + life:
            ended_count += 1
    expected_ends = usual_chance * USUAL_PAUSES + ended_count
    return expected_ends / (USUAL_PAUSES + longer_count)


def least_context_for_handover(window: int, tokens: int, share: float) -> float:
    """Return the context below which no handover is made for gain, however large the window is."""
    return min(tokens, share * window)


# --- What a recall costs ---


ASKING_TOKENS = 150  # The tokens that an agent writes to recall something.
# A recalled text is expected to stay in the context for at most this many steps.
CARRIED_STEPS = 20


def most_tokens_of_whole_entry(
    context: int, steps: int, price: RelativePrices, least: int, most: int
) -> int:
    """Return up to how many tokens a recalled entry is returned whole.

    What follows a first page of `least` tokens is needed half of the time. If it comes
    at once, it is cached and carried even if not needed; if not, another request reads
    the whole `context` again.
    """
    another_request = price.read * context + price.output * ASKING_TOKENS
    carrying_one_token = price.write + price.read * min(steps, CARRIED_STEPS)
    if carrying_one_token <= 0:
        return most
    tokens_worth_a_request = round(another_request / carrying_one_token)
    return min(most, least + tokens_worth_a_request)


# --- Limits for models with a small context window ---


SMALL_WINDOW = 96_000  # In a window of fewer tokens, shorter outputs already count as large.
# What is kept free by the usual policy: for the reply, and for a summary.
USUAL_REPLY_RESERVE = 8_000
USUAL_SUMMARY_RESERVE = 3_000
LEAST_LARGE = 500  # Outputs of fewer tokens never count as large, even in a small window.


def large_output_limit_tokens(window: int, tokens: int = 4_000) -> int:
    """Return from which size an output is large: `tokens`, or less in a small window."""
    share_of_window = tokens * window // SMALL_WINDOW
    return min(tokens, max(LEAST_LARGE, share_of_window))


def reserved_tokens_in_window(window: int, for_reply: int, for_summary: int) -> int:
    """Return how much is kept free for a reply and a summary. In a small window, both reserves
    together would leave too little for the conversation.
    """
    return min(for_reply, window // 10) + min(for_summary, window // 20)


def most_tail_tokens_in_panic(window: int) -> int:
    """Return a quarter of the window, for the last steps that stay in panic."""
    return window // 4
