"""The tokens of the view after every fact, and what requests have cost and saved.

A step's tokens are as reported by the provider, or else as counted here, times the
model's factor. What it would have cost without folds is estimated in proportion:
everything is sent, and once the window is full, a summary replaces it. So what could
never have been sent is not called saved, and without folds both are equal. What was
paid for a step is multiplied by what list prices say of the one and of the other, so a
provider that bills less saves nothing. All are running sums, so each question is one
look-up. Other programs' requests save us nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TypeVar

from helix_desktop.engine import facts
from helix_desktop.engine.fold_economics import RelativePrices, relative_prices
from helix_desktop.engine.messages import ContextKind
from helix_desktop.fast_dataclass import dataclass

CLAUDE_FACTOR = (
    1.32  # Claude models bill this many tokens for each one we count, as 600 requests showed.
)
LEAST_RATE, MOST_RATE = 0.5, 3.0  # A report with a factor outside this range is ignored.
MOST_MEASURED_RATE = 20.0  # The template of a short first message may be longer than it.
PRIOR_WEIGHT = 2  # The expected factor counts as much as this many reports.
REPORTS_USED = 9  # The factor is learned from this many of the latest reports.
_MOST_TOKENS = 2**40  # Reports that make no sense must not lead to sums of more than 64 bits.
SUMMARY_PARTS = 10  # A summary is expected to take one tenth of the context window.
Run = tuple[int, int]
T = TypeVar("T", int, float)
COLUMNS = ("steps", "sent", "without", "read", "output", "unpriced")
# Requests that there would have been without folds, too.
NOT_FOR_FOLDS = frozenset(
    {facts.Purpose.TITLE, facts.Purpose.TEST, facts.Purpose.KEEP_ALIVE, facts.Purpose.OTHER}
)


def _median(values: Sequence[float]) -> float:
    """Return the median. Importing `statistics` would delay the program's start."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


@dataclass(frozen=True, slots=True)
class Savings:
    """Tokens and dollars; 0 dollars if nothing was paid. `without`: with a summary
    instead of folds.

    `sent` includes the requests that folds needed. `paid_before`: by other programs, or
    before a fork.
    """

    steps: int
    sent: int
    without: int
    cache_read: int
    paid: float
    paid_without: float
    paid_before: float = 0.0
    unpriced: int = 0  # Requests of unknown cost, beside others of known cost.

    @property
    def saved_share(self) -> float:
        return max(0.0, 1 - self.sent / self.without) if self.without else 0.0

    @property
    def cache_read_share(self) -> float:
        return self.cache_read / self.sent if self.sent else 0.0


@dataclass(frozen=True, slots=True)
class MeasuredFactor:
    """Tokens of the model's own tokenizer for each that we count, from fact `seq` on."""

    seq: int
    factor: float


@dataclass(slots=True)
class BillingReports:
    """Counted and billed tokens of one model's replies."""

    seqs: array[int] = field(default_factory=lambda: array("q"))
    counted: array[int] = field(default_factory=lambda: array("q"))
    billed: array[int] = field(default_factory=lambda: array("q"))

    def last_proportions(self, seq: int) -> Iterator[tuple[int, float]]:
        """Yield the last reported proportions up to `seq`, with the reply's number."""
        end = bisect_right(self.seqs, seq)
        for row in range(max(0, end - REPORTS_USED), end):
            yield self.seqs[row], self.billed[row] / self.counted[row]


@dataclass(frozen=True, slots=True)
class BilledStep:
    """Tokens that a step sent, those of them that the provider had cached, and those of
    a summary before it.
    """

    sent: int
    cached: int
    summary: int = 0

    def list_price(self, reply: int, prices: RelativePrices) -> float:
        """Return the price of the step, in the unit of `prices`. `reply`: the reply's tokens."""
        sent = self.cached * prices.read + (self.sent - self.cached) * prices.write
        return sent + (reply + self.summary) * prices.output


@dataclass(slots=True)
class SummaryBaseline:
    """The conversation without folds: everything is sent, or a summary if that does not fit."""

    window: int = 0  # The main model's context window in tokens; 0 if unknown.
    _whole: int = 0  # How many tokens the last step would have had without any folds.
    _left_out: int = 0  # How many tokens of `_whole` the last summary replaced.
    _in_cache: int = 0  # How many of the last step's tokens the provider had cached, by our count.

    def bill_step(self, shown: int, whole: int, sent: int, read: int) -> BilledStep:
        """Return a step's tokens, with a summary before it if needed."""
        as_sent = BilledStep(sent, min(max(0, read), sent))
        if not shown or not whole:
            return as_sent
        factor, limit = sent / shown, max(self.window, sent) if self.window else 0
        if whole < self._whole:  # A rewind or an exclusion has shortened the conversation.
            self._left_out = 0
        # Without folds, the first step would have read as much from the cache.
        usual, before = (
            whole - self._left_out,
            self._in_cache or max(0, read) * shown // max(1, sent),
        )
        asked = written = 0
        if limit and round(usual * factor) > limit:
            summary = limit // SUMMARY_PARTS
            least = round(summary / factor) + max(0, usual - before)
            if round(least * factor) <= limit:
                asked, written, usual, before = round(before * factor), summary, least, 0
            else:  # A summary does not make enough room: what is new is shortened, as it is here.
                usual = shown
        self._whole, self._left_out, self._in_cache = whole, whole - usual, usual
        if usual == shown and not written:
            return as_sent
        without = round(usual * factor)
        old = round(without * min(before, usual) / usual) if usual else 0
        return BilledStep(asked + without, asked + old, written)


@dataclass(slots=True)
class TokenLedger:
    """Grows with the facts. `shown`, `whole`: the view's tokens after a fact, and without folds."""

    shown: array[int] = field(default_factory=lambda: array("q", [0]))
    whole: array[int] = field(
        default_factory=lambda: array("q", [0])
    )  # Like `shown`, if nothing had been folded.
    # Like `shown`, by `ContextKind`: for each fact one number per kind, one after another.
    kinds: array[int] = field(default_factory=lambda: array("q", [0] * len(ContextKind)))
    requests: array[int] = field(
        default_factory=lambda: array("q")
    )  # Fact numbers of replies and other requests.
    sums: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("q", [0]) for name in COLUMNS}
    )
    paid: array[float] = field(default_factory=lambda: array("d", [0.0]))
    paid_without: array[float] = field(default_factory=lambda: array("d", [0.0]))
    reports: dict[str, BillingReports] = field(default_factory=dict)
    # By model; not recorded, because the next request is counted again.
    measured: dict[str, MeasuredFactor] = field(default_factory=dict)
    elsewhere: list[Run] = field(
        default_factory=list
    )  # By import: its first fact, and the first after it.
    # The facts that the fork took over from another conversation.
    copied: list[Run] = field(default_factory=list)
    # By the number of an import: its whole cost if none of its steps states its own, or else 0.
    unstated: dict[int, float] = field(default_factory=dict)
    _baseline: SummaryBaseline = field(default_factory=SummaryBaseline)
    _prices: RelativePrices = field(default_factory=RelativePrices)  # The main model's.
    _last_paid: tuple[float, float, float] = (
        0.0,
        0.0,
        0.0,
    )  # Time, cost and usual cost of the last reply.
    _was_rewound: bool = False  # Since the last reply.

    def billing_factor(self, model: str, seq: int) -> float:
        """Return a model's billed tokens per counted one at `seq`: the median of
        reports and the expected.
        """
        measured = self.measured.get(model)
        if measured is not None and seq >= measured.seq:
            return measured.factor
        expected = CLAUDE_FACTOR if "claude" in model.lower() else 1.0
        known = self.reports.get(model)
        told = known.last_proportions(seq) if known else ()
        sound = [
            share
            for at, share in told
            if LEAST_RATE <= share <= MOST_RATE and not self._was_recorded_elsewhere(at, seq)
        ]
        return _median([expected] * PRIOR_WEIGHT + sound) if sound else expected

    def set_measured_factor(self, model: str, seq: int, factor: float) -> None:
        """Remember what the model's own tokenizer counted for the view at `seq`, until it
        counts again. It is better than any report, because it counted what is sent next.
        """
        if LEAST_RATE <= factor <= MOST_MEASURED_RATE:
            self.measured[model] = MeasuredFactor(seq, factor)

    def add_figures_of_fact(self, recorded: facts.Recorded) -> None:
        """Add a fact's cost, before `append_view_tokens_of_fact` for the same fact."""
        match recorded.fact:
            case facts.ModelReplied() as reply:
                self._add_step(recorded, reply)
            case facts.ModelSet(role=facts.ModelRole.MAIN) as chosen:
                self._baseline.window = chosen.window
                self._prices = relative_prices(chosen)
            case facts.Spent(purpose=purpose, usage=usage):
                share = int(purpose in NOT_FOR_FOLDS)
                self._append_running_sums(
                    recorded.seq, usage, sent=usage.input, without=usage.input * share
                )
                self.paid_without[-1] += usage.cost * share
            case facts.Rewound():
                self._was_rewound = True
            case facts.ConversationStarted(forked_from=origin) if origin:
                self.copied = [(1, recorded.seq)]
            case facts.BroughtIn(first=first, undone=False, cost=cost):
                stated = self.paid[-1] - self.paid[bisect_left(self.requests, first)]
                self.unstated[recorded.seq] = 0.0 if stated else cost
                before = self.elsewhere[-1][1] if self.elsewhere else 1
                self.elsewhere.append((min(max(first, before), recorded.seq), recorded.seq))

    def _was_recorded_elsewhere(self, fact_seq: int, seq: int) -> bool:
        """Whether it is known at `seq` that the fact `fact_seq` is another program's."""
        return any(first <= fact_seq < behind <= seq for first, behind in self.elsewhere)

    def append_view_tokens_of_fact(self, shown: int, whole: int, kinds: Iterable[int]) -> None:
        """Append the view's tokens after the next fact, also by kind."""
        self.shown.append(shown)
        self.whole.append(whole)
        self.kinds.extend(kinds)

    def view_tokens_by_kind(self, seq: int) -> array[int]:
        """Return the view's tokens of each kind at `seq`, in the order of `ContextKind`."""
        return self.kinds[seq * len(ContextKind) : (seq + 1) * len(ContextKind)]

    def dollars_until(self, seq: int) -> float:
        """Return what was paid until then, by other programs too, but not for what a
        fork copied.
        """
        copied = self.copied[-1][1] if self.copied else 0
        before, until = (self.paid[bisect_right(self.requests, at)] for at in (copied, seq))
        return max(0.0, until - before)

    def unstated_dollars_until(self, seq: int) -> float:
        return sum(dollars for at, dollars in self.unstated.items() if at <= seq)

    def request_tokens(self, seq: int) -> int:
        """Return the tokens of the request that the fact `seq` answered or paid for."""
        row = bisect_right(self.requests, seq)
        column = self.sums["sent"]
        return column[row] - column[row - 1] if row else 0

    def count_requests(self, seq: int) -> int:
        """Return the number of requests up to `seq`, without those of other programs."""
        return self._sum_paid_here(range(len(self.requests) + 1), seq)

    def count_steps(self, seq: int) -> int:
        return self.sums["steps"][bisect_right(self.requests, seq)]

    def last_billed_reply(self, model: str, seq: int) -> tuple[int, int]:
        """Return a model's last reply with reported tokens, or 0, and these tokens,
        which may still be cached.
        """
        reports = self.reports.get(model)
        row = bisect_right(reports.seqs, seq) if reports else 0
        if reports is None or not row or self._was_recorded_elsewhere(reports.seqs[row - 1], seq):
            return 0, 0
        return reports.seqs[row - 1], reports.billed[row - 1]

    def median_reply_tokens(self, seq: int) -> int:
        """Return the median tokens of the last replies reported, or 0 before the first."""
        row = bisect_right(self.requests, seq)
        column = self.sums["output"]
        last = (column[at] - column[at - 1] for at in range(row, max(0, row - REPORTS_USED), -1))
        known = [length for length in last if length]
        return round(_median(known)) if known else 0

    def savings_until(self, seq: int, *, is_priced: bool = False) -> Savings:
        """Return the savings up to `seq`. `is_priced`: whether the model's price is known."""
        at = {name: self._sum_paid_here(column, seq) for name, column in self.sums.items()}
        paid, ever = (
            self._sum_paid_here(self.paid, seq),
            self.paid[bisect_right(self.requests, seq)],
        )
        paid_without = self._sum_paid_here(self.paid_without, seq)
        before = max(0.0, ever - paid) + self.unstated_dollars_until(seq)
        tokens = at["steps"], at["sent"], at["without"], at["read"]
        return Savings(
            *tokens, paid, paid_without, before, at["unpriced"] if paid or is_priced else 0
        )

    def _sum_paid_here(self, column: Sequence[T], seq: int) -> T:
        """Return a running sum up to `seq`, without imports and copied facts."""
        total = column[bisect_right(self.requests, seq)]
        for run in self._runs_paid_elsewhere():
            first, behind = (bisect_left(self.requests, min(one, seq + 1)) for one in run)
            total -= column[behind] - column[first]
        return total

    def _runs_paid_elsewhere(self) -> list[Run]:
        """Return the runs of facts that another conversation or program paid for."""
        start = self.copied[-1][1] if self.copied else 0
        return [
            *self.copied,
            *((max(first, start), behind) for first, behind in self.elsewhere if behind > start),
        ]

    def _add_step(self, recorded: facts.Recorded, reply: facts.ModelReplied) -> None:
        saw, usage = newest_fact_seen_by(recorded), reply.usage
        shown, whole = self.shown[saw], self.whole[saw]
        sent = usage.input
        if sent > 0 and shown > 0:
            reports = self.reports.setdefault(reply.model, BillingReports())
            reports.seqs.append(recorded.seq)
            reports.counted.append(shown)
            reports.billed.append(sent)
        elif sent <= 0:
            sent = round(shown * self.billing_factor(reply.model, recorded.seq))
        usual = self._baseline.bill_step(shown, whole, sent, usage.cache_read)
        written = usage.output or sum(part.tokens for part in reply.parts)
        self._append_running_sums(
            recorded.seq,
            usage,
            steps=1,
            sent=sent,
            without=usual.sent,
            output=written if usage.input > 0 else 0,
        )
        listed = BilledStep(sent, min(max(0, usage.cache_read), sent)).list_price(
            written, self._prices
        )
        cost_without = usage.cost * (
            usual.list_price(written, self._prices) / listed if listed else 1
        )
        self.paid_without[-1] += cost_without
        # An import that was there before a reply's end rewinds to it and appends the whole reply.
        if self._was_rewound and self._last_paid[0] == recorded.time:
            self.paid[-1] -= self._last_paid[1]
            self.paid_without[-1] -= self._last_paid[2]
        self._last_paid, self._was_rewound = (recorded.time, usage.cost, cost_without), False

    def _append_running_sums(self, seq: int, usage: facts.Usage, **more: int) -> None:
        self.requests.append(seq)
        more.update(read=usage.cache_read, unpriced=int(usage.cost <= 0))
        for name, column in self.sums.items():
            column.append(column[-1] + max(-_MOST_TOKENS, min(more.get(name, 0), _MOST_TOKENS)))
        self.paid.append(self.paid[-1] + usage.cost)
        self.paid_without.append(self.paid_without[-1])


def newest_fact_seen_by(recorded: facts.Recorded) -> int:
    """Return the newest fact that a reply's request had. Version 0.1 stored 0 if unknown."""
    saw = recorded.fact.saw if isinstance(recorded.fact, facts.ModelReplied) else 0
    return saw if 0 < saw < recorded.seq else recorded.seq - 1
