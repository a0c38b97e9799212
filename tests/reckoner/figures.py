"""What the view counts, what a request took, and the sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import median

from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    Folded,
    ModelReplied,
    ModelRole,
    ModelSet,
    Purpose,
    Spent,
    Text,
    Usage,
)
from tests.reckoner.journal import Conversation, settings, way
from tests.reckoner.moment import Moment, moment, view

PER_MESSAGE = 4


def shown_tokens(now: Moment) -> int:
    """All that is shown, and 4 for each message or document of which anything is shown."""
    items = [item for item in view(now) if item.shown]
    return sum(each.tokens for item in items for each in item.shown) + PER_MESSAGE * len(items)


@lru_cache(maxsize=100_000)
def counted(c: Conversation, n: int, *, folding: bool = True) -> int:
    """What the view counts at n; without `folding` the count without folds."""
    return shown_tokens(moment(c, n, folding=folding)) + sum(settings(c, n).tokens().values())


def main_model(c: Conversation, n: int) -> ModelSet | None:
    return settings(c, n).models.get(ModelRole.MAIN)


# --- one request


def reply_at(c: Conversation, n: int) -> ModelReplied:
    fact = c[n]
    assert isinstance(fact, ModelReplied)
    return fact


def replies(c: Conversation, n: int) -> list[tuple[int, ModelReplied]]:
    return [(m, fact) for m, fact in c.until(n) if isinstance(fact, ModelReplied)]


def saw(c: Conversation, n: int) -> int:
    field = reply_at(c, n).saw
    return field if 1 <= field <= n - 1 else n - 1


def expected(model: str) -> float:
    return 1.32 if "claude" in model.lower() else 1.0


def brought_in(c: Conversation, m: int, n: int) -> bool:
    """Whether fact m is one that another program wrote, as far as is known at n."""
    imports = [
        (fact.first, b) for b, fact in c.until(n) if isinstance(fact, BroughtIn) and not fact.undone
    ]
    before = [1, *(b for _, b in imports)]
    return any(
        max(first, earlier) <= m < b for (first, b), earlier in zip(imports, before, strict=False)
    )


def factor(c: Conversation, model: str, n: int) -> float:
    """The median of the last nine replies' tokens over what was counted, two of them expected."""
    told: list[tuple[int, float]] = []
    for m, fact in replies(c, n):
        if fact.model != model or fact.usage.input <= 0:
            continue
        count = counted(c, saw(c, m))
        if count > 0:
            told.append((m, fact.usage.input / count))
    fit: list[float] = []
    for m, share in told[-9:]:
        if 0.5 <= share <= 3 and not brought_in(c, m, n):
            fit.append(share)
    if not fit:
        return expected(model)
    return median([*fit, expected(model), expected(model)])


def next_takes(c: Conversation, model: str, n: int) -> int:
    """What the next request takes at n: as much as the model's last one by its report, and what
    is more or less since, by its factor.
    """
    return takes_of(c, model, n, counted(c, n))


def takes_of(c: Conversation, model: str, n: int, count: int) -> int:
    """The same of a request of so many counted tokens. What stands on another branch than the
    last request had is no part of it.
    """
    by = factor(c, model, n)
    here = set(way(c, n))
    told = [
        (fact.usage.input, counted(c, saw(c, m)), m)
        for m, fact in replies(c, n)
        if fact.model == model
        and fact.usage.input > 0
        and counted(c, saw(c, m)) > 0
        and saw(c, m) in here
    ]
    if not told:
        return round(count * by)
    took, had, m = told[-1]
    if brought_in(c, m, n) or not 0.5 <= took / had <= 3:
        return round(count * by)
    if count < had:  # what is gone was not more than a share of what was billed
        by = min(by, took / had)
    return took + round((count - had) * by)


def sent(c: Conversation, n: int) -> int:
    """What the request of the reply at n took."""
    fact = reply_at(c, n)
    if fact.usage.input > 0:
        return fact.usage.input
    return round(counted(c, saw(c, n)) * factor(c, fact.model, n))


@dataclass(frozen=True)
class Usual:
    """A step with the usual way out: what it counts, whether a summary was written
    first, what had been sent before, and which share of that was still in the cache. `rate`:
    what is billed for each of these tokens.
    """

    count: int
    rate: float
    summarised: bool
    before: int
    cached: float


def main_model_before(c: Conversation, n: int) -> ModelSet | None:
    models = [
        fact for _, fact in c.until(n) if isinstance(fact, ModelSet) and fact.role is ModelRole.MAIN
    ]
    return models[-1] if models else None


def agent_that_writes(c: Conversation, n: int) -> str:
    """The agent by which the conversation was begun. Empty: the user works in it here."""
    agents = [fact.agent for m, fact in c.until(n) if isinstance(fact, ConversationStarted)]
    if not agents:
        return ""
    return agents[-1]


def usable_window_before(c: Conversation, n: int) -> int:
    """Codex writes its own summary earlier than others. Of our own requests, a tenth of the window
    is for the reply and a twentieth for a summary, up to what both need.
    """
    model = main_model_before(c, n)
    if model is None or not model.window:
        return 0
    agent = agent_that_writes(c, n)
    if agent == "Codex":
        return round(model.window * 0.9)
    if agent:
        return model.window
    reply = min(8_000, model.max_output or 8_000, model.window // 10)
    return model.window - reply - min(3_000, model.window // 20)


def found_cache_empty(c: Conversation, n: int) -> bool:
    """Whether the provider had nothing of what was sent before, by its own report: it never had
    anything of this model's requests, or the last was more than five minutes ago.
    """
    reply = reply_at(c, n)
    if reply.usage.input <= 0 or reply.usage.cache_read > 0:
        return False
    earlier = replies(c, n - 1)
    if not any(each.model == reply.model and each.usage.cache_read > 0 for _, each in earlier):
        return True
    asked = c.times[n - 1] - reply.seconds if c.times else 0.0
    answered = c.times[earlier[-1][0] - 1] if c.times else 0.0
    return asked - answered > 300


def growth(steps: Sequence[tuple[int, int]]) -> float:
    """Billed tokens for each more that a request has: the slope of the line through the counted
    and billed tokens of all steps, or the proportion of the last, if they say no more.
    """
    counts = [count for count, _ in steps]
    count, billed = steps[-1]
    proportion = billed / count
    if len(steps) < 3 or max(counts) - min(counts) < 0.1 * max(counts):
        return proportion
    mean_count = Fraction(sum(counts), len(steps))
    mean_billed = Fraction(sum(billed for _, billed in steps), len(steps))
    over = sum((count - mean_count) * (billed - mean_billed) for count, billed in steps)
    slope = float(over / sum((count - mean_count) ** 2 for count in counts))
    return min(proportion, max(slope, 0.4 * proportion))


@lru_cache(maxsize=100_000)
def usual_steps(c: Conversation, n: int) -> dict[int, Usual]:
    """Of every reply that had seen something."""
    found: dict[int, Usual] = {}
    summarised_away = last_whole = last_count = 0
    steps: list[tuple[int, int]] = []
    usual_share = 1.0
    last_billed = 0
    last_folded = 0
    for m, answer in replies(c, n):
        c_ = counted(c, saw(c, m))
        w = counted(c, saw(c, m), folding=False)
        if not c_ or not w:
            continue
        if not last_count:  # what was in the cache before the first step is there either way
            last_count = max(0, answer.usage.cache_read) * c_ // max(1, sent(c, m))
        # Without a new fold, the provider reads the same share either way.
        read = actual_bill(c, m).read
        share = usual_share
        if last_billed and w >= last_whole and w - c_ == last_folded:
            share = min(1.0, read / last_billed)
        if read:
            usual_share = share
        last_billed = sent(c, m)
        last_folded = w - c_
        if w < last_whole:
            summarised_away = 0
        count = w - summarised_away
        steps.append((c_, sent(c, m)))
        f = sent(c, m) / c_
        if count > 0:
            f = (sent(c, m) + (count - c_) * growth(steps)) / count
        limit = _limit_of_step(c, m)
        # A report of less than half of our count is not believed where something has to fit.
        least = max(f, 1.0) if 2 * sent(c, m) < c_ else f
        full = bool(limit) and round(count * least) > limit
        if full:
            new = max(0, count - last_count)
            rest = round((limit // 10) / f) + new
            full = round(rest * f) <= limit  # else no summary makes enough room
            full = full and round(new * least) <= limit
            count = rest if full else c_
        found[m] = Usual(count, f, full, last_count, 0.0 if found_cache_empty(c, m) else share)
        summarised_away = w - count
        last_whole = w
        last_count = count
    return found


def _limit_of_step(c: Conversation, m: int) -> int:
    """What could be sent, at least what was; 0 where no window is known."""
    limit = usable_window_before(c, m)
    return max(limit, sent(c, m)) if limit else 0


@dataclass(frozen=True)
class Bill:
    """What the usual way out would have been billed for a step, its summary with it."""

    read: int
    new: int
    written: int


def actual_bill(c: Conversation, n: int) -> Bill:
    read = min(max(0, reply_at(c, n).usage.cache_read), sent(c, n))
    return Bill(read, sent(c, n) - read, 0)


def usual_bill(c: Conversation, n: int) -> Bill:
    usual = usual_steps(c, n).get(n)
    if usual is None:
        return actual_bill(c, n)
    if usual.count == counted(c, saw(c, n)) and not usual.summarised:  # as it was sent
        return actual_bill(c, n)
    request = round(usual.count * usual.rate)
    asked = round(usual.before * usual.rate)  # for a summary
    if usual.summarised:
        wrote = max(usable_window_before(c, n), sent(c, n)) // 10
        read = round(asked * usual.cached)
        return Bill(read, asked - read + request, wrote)
    before = round(usual.before * usual.cached)
    read = round(request * min(before, usual.count) / usual.count) if usual.count else 0
    return Bill(read, request - read, 0)


def without_folds(c: Conversation, n: int) -> int:
    """What it would have taken with a summary at the limit instead of folds."""
    bill = usual_bill(c, n)
    return bill.read + bill.new


# --- sums


@dataclass(frozen=True)
class Sums:
    steps: int
    sent: int
    without: int
    cache_read: int
    paid: float

    @property
    def saved(self) -> float:
        return max(0, 1 - self.sent / self.without) if self.without else 0


def copied(c: Conversation, m: int) -> bool:
    """Whether a fact was copied from the conversation that this one is a fork of."""
    return any(isinstance(fact, ConversationStarted) and fact.forked_from for fact in c.facts[m:])


def sums(c: Conversation, n: int) -> Sums:
    steps: list[int] = []
    usages: list[Usage] = []
    aside = 0
    anyway = 0
    for m, fact in c.until(n):
        if brought_in(c, m, len(c.facts)) or copied(c, m):
            continue
        if isinstance(fact, ModelReplied):
            steps.append(m)
            usages.append(fact.usage)
        elif isinstance(fact, Spent):
            usages.append(fact.usage)
            aside += fact.usage.input
            if fact.purpose in ANYWAY:
                anyway += fact.usage.input
    return Sums(
        steps=len(steps),
        sent=sum(sent(c, m) for m in steps) + aside,
        without=sum(without_folds(c, m) for m in steps) + anyway,
        cache_read=sum(usage.cache_read for usage in usages),
        paid=sum(usage.cost for usage in usages),
    )


ANYWAY = (
    Purpose.STEP,
    Purpose.TITLE,
    Purpose.TEST,
    Purpose.KEEP_ALIVE,
    Purpose.OTHER,
)  # requests that there would be without folds, too
Prices = tuple[float, float, float]  # of cached tokens, of writing, of output; dollars per million


USUAL_PRICES: Prices = (0.1, 1.0, 5.0)  # by that of input, if none is known


def prices(model: ModelSet | None) -> Prices:
    return (
        (model.price_cache_read, model.price_cache_write, model.price_output)
        if model
        else (0.0, 0.0, 0.0)
    )


def money_without_folds(
    c: Conversation, n: int, priced: Callable[[ModelSet | None], Prices] = prices
) -> float:
    """What was paid besides what folds needed, each step in the proportion of the two
    bills by list prices.
    """
    total = 0.0
    for m, fact in c.until(n):
        if brought_in(c, m, len(c.facts)) or copied(c, m):
            continue
        if isinstance(fact, Spent) and fact.purpose in ANYWAY:
            total += fact.usage.cost
        if isinstance(fact, ModelReplied):
            prices = priced(main_model(c, m))
            cached, writing, output = prices if prices[1] else USUAL_PRICES
            wrote = (fact.usage.output or sum(part.tokens for part in fact.parts)) * output
            bill = usual_bill(c, m)
            was = actual_bill(c, m)
            usual = bill.read * cached + bill.new * writing + bill.written * output + wrote
            actual = was.read * cached + was.new * writing + wrote
            total += fact.usage.cost * usual / actual if actual else fact.usage.cost
    return total


def usual_reply(c: Conversation, n: int) -> int:
    """The median of what the replies among the last nine requests wrote, as far as a
    provider reported them.
    """
    asked = [fact for _, fact in c.until(n) if isinstance(fact, ModelReplied | Spent)]
    written: list[int] = []
    for fact in asked[-9:]:
        if isinstance(fact, ModelReplied) and fact.usage.input > 0:
            wrote = fact.usage.output or sum(part.tokens for part in fact.parts)
            if wrote:
                written.append(wrote)
    return round(median(written)) if written else 0


def miscounted(c: Conversation, n: int, count: Callable[[str], int]) -> list[int]:
    """Facts with a text whose tokens are not what `count` says. Nothing else here
    counts texts: tokens stand in the facts.
    """
    found = []
    for m, fact in c.until(n):
        texts = [fact] if isinstance(fact, Folded) else getattr(fact, "parts", ())
        if any(
            isinstance(each, Text | Folded) and each.tokens != count(each.text) for each in texts
        ):
            found.append(m)
    return found
