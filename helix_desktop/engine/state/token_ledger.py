"""The tokens of the view after every fact, and what requests have cost and saved.

A step's tokens are as reported by the provider, or else as counted here, times the
model's factor. What it would have cost without folds is estimated at the rate at which
requests grow: everything is sent, and once the window is full, a summary replaces it. It is full
where no room is left for the reply and a summary. So what could never have been sent is not called
saved, and without folds both are equal. What was
paid for a step is multiplied by what list prices say of the one and of the other, so a
provider that bills less saves nothing. A provider whose cache was empty would have had to
read everything anew without folds, too. All are running sums, so each question is one
look-up. Other programs' requests save us nothing.

What was saved is also known for each fold (`fold_savings.py`), in tokens as they are counted here.
What lies between their sum and what was saved has two names in `Savings`: what the summaries would
have changed that there would have been without folds, and how the model counts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TypeVar

from helix_desktop.engine import facts
from helix_desktop.engine.fold_economics import (
    USUAL_REPLY_RESERVE,
    USUAL_SUMMARY_RESERVE,
    RelativePrices,
    relative_prices,
    reserved_tokens_in_window,
)
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.state.fold_savings import (
    FoldSavings,
    Replaced,
    SavedByFolds,
    join_row_runs,
)
from helix_desktop.fast_dataclass import dataclass

# Claude models bill this many tokens for each one we count, as 600 requests showed.
CLAUDE_FACTOR = 1.32
# A report with a factor outside this range is ignored.
LEAST_RATE = 0.5
MOST_RATE = 3.0
MOST_MEASURED_RATE = 20.0  # The template of a short first message may be longer than it.
# The rate at which requests grow is learned from so many steps, if they differ by this share.
LEAST_STEPS_OF_GROWTH = 3
LEAST_GROWTH = 0.1
LEAST_SHARE_OF_PROPORTION = 0.4
PRIOR_WEIGHT = 2  # The expected factor counts as much as this many reports.
REPORTS_BESIDE_ESTIMATE = 3  # As many are enough where the next text is estimated, too.
# Of 100 estimates, 95 are off by no more than this share of what the server counts, and of those
# corrected by three reports all that were measured.
MOST_OFF_BEFORE_REPORTS = 0.16
MOST_OFF_AFTER_REPORTS = 0.05
# An estimate of texts is off by no more than this share. If a server reports tokens that are
# further off, its template has or lacks something, such as tools that it leaves out.
MOST_ERROR_OF_ESTIMATE = 0.3
REPORTS_USED = 9  # The factor is learned from this many of the latest reports.
_MOST_TOKENS = 2**40  # Reports that make no sense must not lead to sums of more than 64 bits.
SUMMARY_PARTS = 10  # A summary is expected to take one tenth of the context window.
# No provider is known to drop what it cached sooner after its last use. A request that reads
# nothing after such a pause has found the cache empty.
LEAST_CACHE_SECONDS = 300.0
LEAST_DOLLARS = 0.0005  # Nobody is told of smaller savings.
# With more requests of unknown cost, savings in dollars would leave out too much.
MOST_UNPRICED_SHARE = 0.1
# Connected agents that summarize their history themselves before the window is full, and at which
# share of it. The others that were tried do so when it is: their requests are refused otherwise.
OWN_SUMMARY_SHARES = {"Codex": 0.9}
Run = tuple[int, int]
T = TypeVar("T", int, float)
COLUMNS = (
    "steps",
    "sent",
    "without",
    "read",
    "output",
    "unpriced",
    "free",
    "shortening",
    "by_folds",
    "by_other_summaries",
)
# Requests that there would have been without folds, too.
NOT_FOR_FOLDS = frozenset(
    {
        facts.Purpose.STEP,  # Its reply broke off or never came.
        facts.Purpose.TITLE,
        facts.Purpose.TEST,
        facts.Purpose.KEEP_ALIVE,
        facts.Purpose.OTHER,
    }
)


def _median(values: Sequence[float]) -> float:
    """Return the median. Importing `statistics` would delay the program's start."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def _usual_factor(model: str) -> float:
    """Return the factor of a model of which nothing was reported yet."""
    if "claude" in model.lower():
        return CLAUDE_FACTOR
    return 1.0


def _correction_of_reports(corrections: Sequence[float]) -> float:
    """Return the median. With "no correction" among them, one odd report changes little."""
    return _median([*corrections, *[1.0] * PRIOR_WEIGHT])


@dataclass(frozen=True, slots=True)
class Savings:
    """Tokens and dollars; 0 dollars if nothing was paid. `without`: with a summary
    instead of folds.

    `sent` includes the requests that folds needed. `paid_before`: by other programs, or
    before a fork.

    `saved_tokens` is a sum: `by_folds`, and `by_other_summaries`, less `shortening`, and what the
    model counts more or fewer (`counted_otherwise`).
    """

    steps: int
    sent: int
    without: int
    cache_read: int
    paid: float
    paid_without: float
    paid_before: float = 0.0
    unpriced: int = 0  # Requests of unknown cost, beside others of known cost.
    free: int = 0  # Requests to models that cost nothing, because they run on this computer.
    # What the requests took that wrote summaries and notes. It is part of `sent` and `paid`.
    shortening: int = 0
    paid_for_shortening: float = 0.0
    # What all folds together kept out of requests, as it is counted here (`SavedByFolds`).
    by_folds: int = 0
    # What the summaries would have changed that there would have been without folds: their
    # requests are saved, and what they would have left out of later ones is not.
    by_other_summaries: int = 0

    @property
    def saved_as_counted(self) -> int:
        """Return how many tokens fewer were sent, as the texts of folds are counted here."""
        return self.by_folds + self.by_other_summaries - self.shortening

    @property
    def counted_otherwise(self) -> int:
        """Return how many more tokens were saved as the model counts; negative if fewer."""
        return self.saved_tokens - self.saved_as_counted

    @property
    def is_saved_in_dollars(self) -> bool:
        """Whether savings are said in dollars. If some requests were free, only tokens say
        something of all of them; so they do if many were sent before a price was known. A few of
        unknown cost, such as stopped replies, change little.
        """
        if not self.paid or self.free:
            return False
        return self.unpriced <= self.steps * MOST_UNPRICED_SHARE

    @property
    def saved_tokens(self) -> int:
        """Return how many tokens fewer were sent than without folds; negative if more were."""
        # `sent` is 0 for a stopped reply, which reports no tokens.
        if not self.sent:
            return 0
        return self.without - self.sent

    @property
    def saved_dollars(self) -> float:
        """Return how much less was paid than without folds; negative if it was more."""
        return self.paid_without - self.paid

    @property
    def saved_share(self) -> float:
        if not self.without:
            return 0.0
        return max(0.0, 1 - self.sent / self.without)

    @property
    def cache_read_share(self) -> float:
        if not self.sent:
            return 0.0
        return self.cache_read / self.sent


@dataclass(frozen=True, slots=True)
class TokenFactor:
    """Tokens of the model's own tokenizer for each that we count, from fact `seq` on."""

    seq: int
    factor: float


@dataclass(frozen=True, slots=True)
class BillingReport:
    """Counted and billed tokens of the request for reply `seq`. `seen`: the newest fact in it."""

    seq: int
    seen: int
    counted: int
    billed: int

    @property
    def factor(self) -> float:
        return self.billed / self.counted


@dataclass(slots=True)
class BillingReports:
    """Counted and billed tokens of one model's replies."""

    seqs: array[int] = field(default_factory=lambda: array("q"))
    seen: array[int] = field(default_factory=lambda: array("q"))
    counted: array[int] = field(default_factory=lambda: array("q"))
    billed: array[int] = field(default_factory=lambda: array("q"))

    def last_report(self, seq: int) -> BillingReport | None:
        row = bisect_right(self.seqs, seq) - 1
        if row < 0:
            return None
        return self._report_in_row(row)

    def last_report_of_runs(self, seq: int, runs: Sequence[Run]) -> BillingReport | None:
        """Return the last report up to `seq` of a request that ended within one of these runs of
        facts, each given by its first and its last.
        """
        for row in reversed(range(bisect_right(self.seqs, seq))):
            seen = self.seen[row]
            if any(first <= seen <= last for first, last in runs):
                return self._report_in_row(row)
        return None

    def _report_in_row(self, row: int) -> BillingReport:
        return BillingReport(self.seqs[row], self.seen[row], self.counted[row], self.billed[row])

    def last_reports(self, seq: int) -> Iterator[BillingReport]:
        """Yield the last reports up to `seq`, the oldest first."""
        end = bisect_right(self.seqs, seq)
        for row in range(max(0, end - REPORTS_USED), end):
            yield self._report_in_row(row)


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


@dataclass(frozen=True, slots=True)
class StepWithoutFolds:
    """A step of the conversation without folds: what it would have been billed.

    `longer`: how many tokens its request would have had more, as we count them, beside one for a
    summary. `asked`: what the provider would have billed for that one. `replaced`: what a summary
    stands for from this step on.
    """

    billed: BilledStep
    longer: int = 0
    asked: int = 0
    replaced: Replaced = Replaced.NOTHING


@dataclass(frozen=True, slots=True)
class _Summary:
    """A summary that replaces what was sent last. `asked`, `written`: its request and its text,
    in billed tokens; `cached`: what its request reads from the cache; `left`: its text in tokens
    as we count them.
    """

    asked: int
    cached: int
    written: int
    left: int

    def bill_with_step(self, sent_after_summary: int, factor: float) -> BilledStep:
        """Return what is billed for the request for this summary, and for a step after it, of
        which nothing is cached yet.
        """
        step = _bill_counted_tokens(sent_after_summary, 0, factor)
        return BilledStep(
            sent=self.asked + step.sent,
            cached=self.cached + step.cached,
            summary=self.written,
        )


def _summarise_if_that_makes_room(
    old_tokens: int, new_tokens: int, factor: float, limit: int, read_share: float
) -> _Summary | None:
    """Return the summary that replaces the old tokens, or None if that and what is new would
    still exceed the limit. `read_share`: how much of them the provider reads from its cache.
    """
    written = limit // SUMMARY_PARTS
    counted_tokens = round(written / factor)
    if round((counted_tokens + new_tokens) * factor) > limit:
        return None
    asked = round(old_tokens * factor)
    cached = round(asked * read_share)
    return _Summary(asked, cached, written, counted_tokens)


@dataclass(frozen=True, slots=True)
class _PaidReply:
    """When a reply was recorded, its cost, and its cost without folds."""

    time: float
    cost: float
    cost_without: float


@dataclass(slots=True)
class TokenGrowth:
    """How many tokens a provider bills for each one that we count, without what it bills for
    every request alike.

    Each request has tokens that we do not count, such as the names of its fields. If they were
    taken for a part of the text, text that a fold left out would seem to have them, too: with
    Codex, a quarter too much would be called saved. So the rate is that at which requests grow and
    shrink: the slope of the line through counted and billed tokens of all steps.
    """

    _steps: int = 0
    _least_shown: int = 0
    _most_shown: int = 0
    _shown_sum: int = 0
    _sent_sum: int = 0
    _shown_squares: int = 0
    _products: int = 0

    def add_step(self, shown: int, sent: int) -> None:
        """Add a step: its tokens as we count them, and as the provider billed them."""
        if not self._steps:
            self._least_shown = shown
        self._least_shown = min(self._least_shown, shown)
        self._most_shown = max(self._most_shown, shown)
        self._steps += 1
        self._shown_sum += shown
        self._sent_sum += sent
        self._shown_squares += shown * shown
        self._products += shown * sent

    def billed_per_counted_token(self, proportion: float) -> float:
        """Return the slope, or the proportion of the last step if there are too few steps or
        they are too much alike.
        """
        grown = self._most_shown - self._least_shown
        if self._steps < LEAST_STEPS_OF_GROWTH or grown < LEAST_GROWTH * self._most_shown:
            return proportion
        variance = self._steps * self._shown_squares - self._shown_sum * self._shown_sum
        covariance = self._steps * self._products - self._shown_sum * self._sent_sum
        slope = covariance / variance
        # What every request has alike cannot be less than nothing.
        return min(proportion, max(slope, proportion * LEAST_SHARE_OF_PROPORTION))


@dataclass(slots=True)
class SummaryBaseline:
    """The conversation without folds: everything is sent, or a summary if that does not fit."""

    window: int = 0  # The main model's context window in tokens; 0 if unknown.
    usable_share: float = 1.0  # A longer request than this share of it is not sent.
    reserve: int = 0  # What stays free in it for the reply and a summary.
    _whole: int = 0  # How many tokens the last step would have had without any folds.
    _left_out: int = 0  # How many tokens of `_whole` the last summary replaced.
    _sent_before: int = 0  # How many tokens the last step would have sent, by our count.
    _billed_before: int = 0  # How many tokens the provider billed for the last step.
    _folded_before: int = 0  # How many tokens folds left out of the last step.
    # How much of the last step a provider reads from its cache, as it was last seen to read.
    _usual_read_share: float = 1.0
    _growth: TokenGrowth = field(default_factory=TokenGrowth)

    def bill_step(
        self, shown: int, whole: int, sent: int, read: int, *, is_cold: bool = False
    ) -> StepWithoutFolds:
        """Return what a step would have been billed without folds, with a summary if needed.

        `shown`, `whole`: the view's tokens by our count, as it is and without folds. `sent`,
        `read`: what the provider billed for the step, and how much of it came from its cache.
        `is_cold`: the provider's cache was empty, whatever was sent before.
        """
        tokens_read = min(max(0, read), sent)
        as_sent = BilledStep(sent, tokens_read)
        if not shown or not whole:
            return StepWithoutFolds(as_sent)
        read_share = self._read_share_without_folds(shown, whole, sent, tokens_read)
        if is_cold:
            read_share = 0.0
        replaced = Replaced.NOTHING
        if whole < self._whole:  # A rewind or an exclusion has shortened the conversation.
            self._left_out = 0
            replaced = Replaced.NOTHING_ANY_MORE
        # What the step would have sent without folds, in tokens as we count them.
        unfolded_tokens = whole - self._left_out
        self._growth.add_step(shown, sent)
        factor = self._billed_per_unfolded_token(unfolded_tokens, shown, sent)
        old_tokens = self._sent_before
        if not old_tokens:
            # Without folds, the first step would have read as much from the cache.
            old_tokens = max(0, read) * shown // max(1, sent)

        usable_tokens = round(self.window * self.usable_share) - self.reserve
        limit = max(usable_tokens, sent)
        factor_that_fits = factor
        if sent < LEAST_RATE * shown:
            # The meter does not believe such a report either, and measures by our count.
            factor_that_fits = max(factor, 1.0)
        if self.window == 0 or round(unfolded_tokens * factor_that_fits) <= limit:
            self._remember_step(whole, unfolded_tokens)
            if unfolded_tokens == shown:
                return StepWithoutFolds(as_sent, replaced=replaced)
            billed = _bill_counted_tokens(unfolded_tokens, round(old_tokens * read_share), factor)
            return StepWithoutFolds(billed, unfolded_tokens - shown, replaced=replaced)

        # It does not fit the window, so a summary would have replaced what is old.
        new_tokens = max(0, unfolded_tokens - old_tokens)
        summary = None
        if round(new_tokens * factor_that_fits) <= limit:
            summary = _summarise_if_that_makes_room(
                old_tokens, new_tokens, factor, limit, read_share
            )
        if summary is None:
            # What is new is shortened, as it is here.
            self._remember_step(whole, shown)
            return StepWithoutFolds(as_sent, replaced=Replaced.AS_HERE)
        sent_after_summary = summary.left + new_tokens
        self._remember_step(whole, sent_after_summary)
        return StepWithoutFolds(
            summary.bill_with_step(sent_after_summary, factor),
            longer=sent_after_summary - shown,
            asked=summary.asked,
            replaced=Replaced.OLD_MESSAGES,
        )

    def _billed_per_unfolded_token(self, unfolded_tokens: int, shown: int, sent: int) -> float:
        """Return how many tokens the provider would bill for one that we count, if none were
        folded: as many as for the view, and for the others what more of them cost so far.
        """
        factor = sent / shown
        if unfolded_tokens <= 0:
            return factor
        rate = self._growth.billed_per_counted_token(factor)
        return (sent + (unfolded_tokens - shown) * rate) / unfolded_tokens

    def _read_share_without_folds(self, shown: int, whole: int, sent: int, read: int) -> float:
        """Return how much of the last step the provider would have read from its cache without
        folds, and remember the step for the next one.

        If nothing was folded since the last step, that is as much as it really read: some servers
        read only a part, which folds do not cause. Otherwise, it is as much as it read before.
        """
        folded_tokens = whole - shown
        read_share = self._usual_read_share
        is_continued = self._billed_before > 0 and whole >= self._whole
        if is_continued and folded_tokens == self._folded_before:
            read_share = min(1.0, read / self._billed_before)
        if read:
            self._usual_read_share = read_share
        self._billed_before = sent
        self._folded_before = folded_tokens
        return read_share

    def _remember_step(self, whole: int, sent: int) -> None:
        """Remember what a step would have sent without folds, by our count: the next one
        begins with it.
        """
        self._whole = whole
        self._left_out = whole - sent
        self._sent_before = sent


def _bill_counted_tokens(sent: int, cached: int, factor: float) -> BilledStep:
    """Return the billed tokens of a step from its tokens as we count them."""
    billed_sent = round(sent * factor)
    if not sent:
        return BilledStep(billed_sent, cached=0)
    billed_cached = round(billed_sent * min(cached, sent) / sent)
    return BilledStep(billed_sent, billed_cached)


@dataclass(slots=True)
class TokenLedger:
    """Grows with the facts. `shown`, `whole`: the view's tokens after a fact, and without folds."""

    shown: array[int] = field(default_factory=lambda: array("q", [0]))
    # Like `shown`, if nothing had been folded.
    whole: array[int] = field(default_factory=lambda: array("q", [0]))
    # Like `shown`, by `ContextKind`: for each fact one number per kind, one after another.
    kinds: array[int] = field(default_factory=lambda: array("q", [0] * len(ContextKind)))
    # Fact numbers of replies and other requests.
    requests: array[int] = field(default_factory=lambda: array("q"))
    sums: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("q", [0]) for name in COLUMNS}
    )
    paid: array[float] = field(default_factory=lambda: array("d", [0.0]))
    paid_without: array[float] = field(default_factory=lambda: array("d", [0.0]))
    paid_for_shortening: array[float] = field(default_factory=lambda: array("d", [0.0]))
    reports: dict[str, BillingReports] = field(default_factory=dict)
    # By model; not recorded, because the next request is counted again.
    measured: dict[str, TokenFactor] = field(default_factory=dict)
    # By model, in the order of the facts; not recorded, because the next request is
    # estimated again.
    estimated: dict[str, list[TokenFactor]] = field(default_factory=dict)
    # By import: its first fact, and the first after it.
    elsewhere: list[Run] = field(default_factory=list)
    # The facts that the fork took over from another conversation.
    copied: list[Run] = field(default_factory=list)
    # By the number of an import: its whole cost if none of its steps states its own, or else 0.
    unstated: dict[int, float] = field(default_factory=dict)
    # The user's messages that began a turn, and the ends of turns.
    messages: array[int] = field(default_factory=lambda: array("q"))
    turn_ends: array[int] = field(default_factory=lambda: array("q"))
    # By rewind: its fact, and the one it went back to.
    rewinds: list[Run] = field(default_factory=list)
    # Where another main model, or another price of it, was chosen.
    model_changes: array[int] = field(default_factory=lambda: array("q"))
    # What each fold has saved. It follows the facts by itself.
    fold_savings: FoldSavings = field(default_factory=FoldSavings)
    _baseline: SummaryBaseline = field(default_factory=SummaryBaseline)
    # Connected agents fill the window up to the point where they summarize, or are refused.
    _is_agents_conversation: bool = False
    _main_model: facts.ModelSet | None = None
    _prices: RelativePrices = field(default_factory=RelativePrices)  # The main model's.
    _free_models: set[str] = field(default_factory=set)
    _last_paid: _PaidReply = _PaidReply(0.0, 0.0, 0.0)
    _was_rewound: bool = False  # Since the last reply.
    _time_of_last_step: float = 0.0
    # The models of which a request was read from the provider's cache, at least in part.
    _cached_models: set[str] = field(default_factory=set)

    def billing_factor(self, model: str, seq: int) -> float:
        """Return a model's billed tokens per counted one at `seq`: the expected factor, times
        the median of what recent reports had in proportion to the factor expected then.

        In proportion, because the expected factor changes with the text: after a long
        Chinese text, the reports on English ones before it still say how far it was off.
        """
        if self._has_measured(model, seq):
            return self.measured[model].factor
        if self._goes_by_record(model, seq):
            return self._recorded_factor(model, seq)
        expected = self._expected_factor(model, seq)
        reports = self._sound_reports(model, seq)
        if not reports:
            return expected
        if model in self.estimated:
            return self._factor_of_corrected_estimate(model, seq, reports)
        corrections = [
            report.factor / self._expected_factor(model, report.seq) for report in reports
        ]
        return expected * _correction_of_reports(corrections)

    def _recorded_factor(self, model: str, seq: int) -> float:
        """Return the factor by what is recorded alone. What was sent and saved must be the same
        when the conversation is read again, and estimates and measured factors are gone then.
        """
        usual = _usual_factor(model)
        reports = self._sound_reports(model, seq)
        return usual * _correction_of_reports([report.factor / usual for report in reports])

    def _sound_reports(self, model: str, seq: int) -> list[BillingReport]:
        """Return the last reports on a model that its factor can be learned from."""
        reports = self.reports.get(model)
        if reports is None:
            return []
        sound_reports: list[BillingReport] = []
        for report in reports.last_reports(seq):
            is_sound = LEAST_RATE <= report.factor <= MOST_RATE
            if is_sound and not self._was_recorded_elsewhere(report.seq, seq):
                sound_reports.append(report)
        return sound_reports

    def _factor_of_corrected_estimate(
        self, model: str, seq: int, reports: Sequence[BillingReport]
    ) -> float:
        """Return the factor of an estimate that was off for the last requests.

        Usually an estimate of each text is off by the same share as just before. If it was
        further off than texts can explain, the template has as many tokens more or less in each
        request: taken for a share, tools that a template leaves out would halve the estimate of
        a long text that comes next, and the server would cut the beginning of the request.
        """
        expected = self._expected_factor(model, seq)
        shares: list[float] = []
        tokens_off: list[float] = []
        for report in reports[-REPORTS_BESIDE_ESTIMATE:]:
            expected_then = self._expected_factor(model, report.seq)
            shares.append(report.factor / expected_then)
            tokens_off.append(report.billed - report.counted * expected_then)
        # With "no correction" among them, one odd report changes little.
        missing = REPORTS_BESIDE_ESTIMATE - len(shares)
        share = _median(shares + [1.0] * missing)
        # A fact that is just being added, or only expected, has no tokens here yet.
        counted_tokens = self.shown[min(seq, len(self.shown) - 1)]
        if abs(share - 1) <= MOST_ERROR_OF_ESTIMATE or not counted_tokens:
            return expected * share
        offset = _median(tokens_off + [0.0] * missing)
        return max(LEAST_RATE, expected + offset / counted_tokens)

    def billed_view_tokens(self, model: str, seq: int, counted_tokens: int) -> int:
        """Return how many tokens a model bills for a view of so many counted ones at `seq`: as many
        as it billed for its last request, and what has changed since then at its factor.

        Every request has tokens that we do not count, such as how tools are written. With a factor
        for all of it, the meter said less than was just billed until enough reports had come.
        """
        factor = self.billing_factor(model, seq)
        report = self._last_sound_report(model, seq)
        return _bill_view(counted_tokens, factor, report)

    def recorded_view_tokens(self, model: str, seq: int, counted_tokens: int) -> int:
        """Return the same by what is recorded alone, so that it is the same when the conversation
        is read again: what a tokenizer counted or estimated for the next request is gone then.
        """
        factor = self._recorded_factor(model, seq)
        report = self._last_recorded_report(model, seq)
        return _bill_view(counted_tokens, factor, report)

    def is_view_estimated(self, model: str, seq: int) -> bool:
        """Whether nobody but us has counted what `billed_view_tokens` is computed from."""
        return not self._has_measured(model, seq) and self._last_sound_report(model, seq) is None

    def share_that_estimate_may_lack(self, model: str, seq: int) -> float:
        """Return by which share of an estimated request it may be longer, or 0 if it was counted."""
        if model not in self.estimated or not self.is_view_estimated(model, seq):
            return 0.0
        most_off = MOST_OFF_AFTER_REPORTS
        if len(self._sound_reports(model, seq)) < REPORTS_BESIDE_ESTIMATE:
            most_off = MOST_OFF_BEFORE_REPORTS
        return most_off / (1 - most_off)

    def _has_measured(self, model: str, seq: int) -> bool:
        measured = self.measured.get(model)
        return measured is not None and seq >= measured.seq

    def _last_sound_report(self, model: str, seq: int) -> BillingReport | None:
        """Return a model's last report of a request that began as the next one does. None if there
        is none, if it makes no sense, or if the model's own tokenizer has counted, or a longer
        request was estimated, since.
        """
        if self._has_measured(model, seq):
            return None
        report = self._last_recorded_report(model, seq)
        if report is None or self._goes_by_record(model, seq):
            return report
        estimates = self.estimated.get(model, [])
        if any(report.seq < estimate.seq <= seq for estimate in estimates[-1:]):
            return None
        return report

    def _last_recorded_report(self, model: str, seq: int) -> BillingReport | None:
        """Return a model's last report that makes sense.

        What a rewind has left says nothing: a long output there, of which a token was billed for
        more than one of the rest, would leave a part of its bill behind.
        """
        reports = self.reports.get(model)
        if reports is None:
            return None
        report = reports.last_report_of_runs(seq, self._runs_leading_to(seq))
        if report is None or self._was_recorded_elsewhere(report.seq, seq):
            return None
        if not LEAST_RATE <= report.factor <= MOST_RATE:
            return None
        return report

    def _goes_by_record(self, model: str, seq: int) -> bool:
        """Whether the turn of the last estimate is over, and the provider has reported a request.

        The next turn estimates anew before it sends anything. Until then, the record alone says
        what the meter and an Undo say, so that they agree, also once it is read again.
        """
        estimates = self.estimated.get(model, [])
        row = bisect_right(estimates, seq, key=lambda estimate: estimate.seq) - 1
        turns_until_now = bisect_right(self.turn_ends, seq)
        if row < 0 or not turns_until_now:
            return False
        is_turn_over = estimates[row].seq < self.turn_ends[turns_until_now - 1]
        return is_turn_over and self._last_recorded_report(model, seq) is not None

    def _runs_leading_to(self, seq: int) -> list[Run]:
        """Return the facts that lead to `seq`, without what rewinds left, the newest run first."""
        runs: list[Run] = []
        last = seq
        for rewind, target in reversed(self.rewinds):
            if rewind <= last:
                runs.append((rewind, last))
                last = target
        runs.append((1, last))
        return runs

    def _expected_factor(self, model: str, seq: int) -> float:
        """Return the factor that is expected at `seq` if no reply has been reported."""
        estimates = self.estimated.get(model)
        if estimates:
            row = bisect_right(estimates, seq, key=lambda estimate: estimate.seq) - 1
            # Of what came before the first estimate, that one is the best known.
            return estimates[max(0, row)].factor
        return _usual_factor(model)

    def set_measured_factor(self, model: str, seq: int, factor: float) -> None:
        """Remember what the model's own tokenizer counted for the view at `seq`, until it
        counts again. It is better than any report, because it counted what is sent next.
        """
        if LEAST_RATE <= factor <= MOST_MEASURED_RATE:
            self.measured[model] = TokenFactor(seq, factor)

    def set_estimated_factor(self, model: str, seq: int, factor: float) -> None:
        """Remember what is expected of the model's tokenizer for the view at `seq`."""
        if LEAST_RATE <= factor <= MOST_RATE:
            self.estimated.setdefault(model, []).append(TokenFactor(seq, factor))

    def add_figures_of_fact(self, recorded: facts.Recorded) -> None:
        """Add a fact's cost, before `append_view_tokens_of_fact` for the same fact."""
        match recorded.fact:
            case facts.ModelReplied() as reply:
                self._add_step(recorded, reply)
            case facts.ModelSet() as chosen:
                self._note_model(recorded.seq, chosen)
            case facts.UserSaid(steering=False, by=""):
                self.messages.append(recorded.seq)
            case facts.TurnEnded():
                self.turn_ends.append(recorded.seq)
            case facts.Spent() as spent:
                self._add_other_request(recorded.seq, spent)
            case facts.Rewound() as rewound:
                self._was_rewound = True
                target = max(0, min(rewound.to, recorded.seq - 1))
                self.rewinds.append((recorded.seq, target))
            case facts.ConversationStarted() as started:
                self._note_start(recorded.seq, started)
            case facts.BroughtIn(undone=False) as brought_in:
                self._add_import(recorded.seq, brought_in)

    def _note_start(self, seq: int, started: facts.ConversationStarted) -> None:
        self._is_agents_conversation = bool(started.agent)
        self._baseline.usable_share = OWN_SUMMARY_SHARES.get(started.agent, 1.0)
        if started.forked_from:
            self.copied = [(1, seq)]

    def _note_model(self, seq: int, chosen: facts.ModelSet) -> None:
        if chosen.role is facts.ModelRole.MAIN:
            if _is_other_model_or_price(self._main_model, chosen):
                self.model_changes.append(seq)
            self._main_model = chosen
            self._baseline.window = chosen.window
            self._baseline.reserve = 0
            if not self._is_agents_conversation:
                reply_reserve = USUAL_REPLY_RESERVE
                if chosen.max_output:
                    reply_reserve = min(chosen.max_output, USUAL_REPLY_RESERVE)
                self._baseline.reserve = reserved_tokens_in_window(
                    chosen.window, reply_reserve, USUAL_SUMMARY_RESERVE
                )
            self._prices = relative_prices(chosen)
        self._free_models.discard(chosen.model)
        if chosen.is_free:
            self._free_models.add(chosen.model)

    def _add_other_request(self, seq: int, spent: facts.Spent) -> None:
        usage = spent.usage
        if spent.purpose in NOT_FOR_FOLDS:
            self._append_running_sums(
                seq, usage, spent.model, sent=usage.input, without=usage.input
            )
            self.paid_without[-1] += usage.cost
        else:
            self._append_running_sums(
                seq, usage, spent.model, sent=usage.input, shortening=usage.input
            )
            self.paid_for_shortening[-1] += usage.cost

    def _add_import(self, seq: int, brought_in: facts.BroughtIn) -> None:
        """Remember which facts another program recorded, and what it says that they cost."""
        row_before_import = bisect_left(self.requests, brought_in.first)
        cost_stated_by_steps = self.paid[-1] - self.paid[row_before_import]
        if cost_stated_by_steps:
            self.unstated[seq] = 0.0
        else:
            self.unstated[seq] = brought_in.cost
        # An import that overlaps the one before must not be subtracted twice.
        end_of_last = 1
        if self.elsewhere:
            end_of_last = self.elsewhere[-1][1]
        first = min(max(brought_in.first, end_of_last), seq)
        self.elsewhere.append((first, seq))

    def _was_recorded_elsewhere(self, fact_seq: int, seq: int) -> bool:
        """Whether it is known at `seq` that the fact `fact_seq` is another program's."""
        for first_of_import, seq_of_import in self.elsewhere:
            if first_of_import <= fact_seq < seq_of_import <= seq:
                return True
        return False

    def append_view_tokens_of_fact(self, shown: int, whole: int, kinds: Iterable[int]) -> None:
        """Append the view's tokens after the next fact, also by kind."""
        self.shown.append(shown)
        self.whole.append(whole)
        self.kinds.extend(kinds)

    def append_unknown_facts(self, count: int) -> None:
        """Append as many facts of which nothing is known."""
        nothing = array("q", [0])
        self.shown.extend(nothing * count)
        self.whole.extend(nothing * count)
        self.kinds.extend(nothing * (count * len(ContextKind)))

    def view_tokens_by_kind(self, seq: int) -> array[int]:
        """Return the view's tokens of each kind at `seq`, in the order of `ContextKind`."""
        kind_count = len(ContextKind)
        start = seq * kind_count
        return self.kinds[start : start + kind_count]

    def dollars_until(self, seq: int) -> float:
        """Return what was paid until then, by other programs too, but not for what a
        fork copied.
        """
        copied_requests = bisect_right(self.requests, self._end_of_copied_facts())
        requests = bisect_right(self.requests, seq)
        return max(0.0, self.paid[requests] - self.paid[copied_requests])

    def _end_of_copied_facts(self) -> int:
        """Return the first fact of this conversation's own after those a fork copied, or 0."""
        if not self.copied:
            return 0
        return self.copied[-1][1]

    def unstated_dollars_until(self, seq: int) -> float:
        """Return what imports cost whose steps do not say what each of them cost."""
        dollars = 0.0
        for import_seq, cost_of_import in self.unstated.items():
            if import_seq <= seq:
                dollars += cost_of_import
        return dollars

    def request_tokens(self, seq: int) -> int:
        """Return the tokens of the request that the fact `seq` answered or paid for."""
        row = bisect_right(self.requests, seq)
        if row == 0:
            return 0
        sent_tokens = self.sums["sent"]
        return sent_tokens[row] - sent_tokens[row - 1]

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
        if reports is None:
            return 0, 0
        report = reports.last_report(seq)
        if report is None or self._was_recorded_elsewhere(report.seq, seq):
            return 0, 0
        return report.seq, report.billed

    def median_reply_tokens(self, seq: int) -> int:
        """Return the median tokens of the last replies reported, or 0 before the first."""
        last_row = bisect_right(self.requests, seq)
        first_row = max(0, last_row - REPORTS_USED) + 1
        output_tokens = self.sums["output"]
        reply_lengths: list[int] = []
        for row in range(first_row, last_row + 1):
            reply_length = output_tokens[row] - output_tokens[row - 1]
            # Requests that are no replies, and replies without a report, have none.
            if reply_length:
                reply_lengths.append(reply_length)
        if not reply_lengths:
            return 0
        return round(_median(reply_lengths))

    def list_costs_of_messages(self, seq: int, most: int) -> list[float]:
        """Return what each of the last messages cost, with all requests until the next message,
        oldest first.

        Messages that have not been answered in full, that another model answered, or that
        another program sent say nothing about the next one. Those that cost nothing were commands,
        or have no known price.
        """
        newest_change = 0
        changes_until_then = bisect_right(self.model_changes, seq)
        if changes_until_then:
            newest_change = self.model_changes[changes_until_then - 1]
        end_of_turns = 0
        turns_until_then = bisect_right(self.turn_ends, seq)
        if turns_until_then:
            end_of_turns = self.turn_ends[turns_until_then - 1]

        costs: list[float] = []
        next_message = seq + 1
        for row in reversed(range(bisect_right(self.messages, seq))):
            message = self.messages[row]
            if next_message <= newest_change or len(costs) == most:
                break
            # A model is recorded before or behind the first message that it answers.
            cost = self._paid_between(max(message, newest_change), next_message)
            next_message = message
            is_answered = end_of_turns > message
            is_paid_here = cost > 0 and not self._was_recorded_elsewhere(message, seq)
            if is_answered and is_paid_here:
                costs.append(cost)
        costs.reverse()
        return costs

    def _paid_between(self, first_seq: int, end_seq: int) -> float:
        first_row = bisect_left(self.requests, first_seq)
        end_row = bisect_left(self.requests, end_seq)
        return self.paid[end_row] - self.paid[first_row]

    def savings_until(self, seq: int, *, is_priced: bool = False) -> Savings:
        """Return the savings up to `seq`. `is_priced`: whether the model's price is known."""
        sums_here: dict[str, int] = {}
        for name, column in self.sums.items():
            sums_here[name] = self._sum_paid_here(column, seq)
        paid_here = self._sum_paid_here(self.paid, seq)
        request_count = bisect_right(self.requests, seq)
        paid_in_all = self.paid[request_count]
        # Rounding could make the difference a little less than nothing.
        paid_elsewhere = max(0.0, paid_in_all - paid_here)
        paid_before = paid_elsewhere + self.unstated_dollars_until(seq)
        paid_without = self._sum_paid_here(self.paid_without, seq)
        paid_for_shortening = self._sum_paid_here(self.paid_for_shortening, seq)
        # Without a price or a payment, no request is an exception: none has a known cost.
        unpriced = 0
        if paid_here or is_priced:
            unpriced = sums_here["unpriced"]
        return Savings(
            steps=sums_here["steps"],
            sent=sums_here["sent"],
            without=sums_here["without"],
            cache_read=sums_here["read"],
            paid=paid_here,
            paid_without=paid_without,
            paid_before=paid_before,
            unpriced=unpriced,
            free=sums_here["free"],
            shortening=sums_here["shortening"],
            paid_for_shortening=paid_for_shortening,
            by_folds=sums_here["by_folds"],
            by_other_summaries=sums_here["by_other_summaries"],
        )

    def saved_by_folds_until(self, seq: int, names: Iterable[str]) -> SavedByFolds:
        """Return what these folds have saved together up to `seq`, in requests that were paid for
        here.
        """
        tokens = 0
        runs_in_force: list[Run] = []
        runs_that_count: list[Run] = []
        for name in names:
            for run in self.fold_savings.runs.get(name, ()):
                rows = (run.first, run.end)
                runs_in_force.append(rows)
                if run.counts:
                    runs_that_count.append(rows)
                    tokens += run.tokens * self._count_steps_paid_here((rows,), seq)
        joined_in_force = join_row_runs(runs_in_force)
        steps = self.sums["steps"]
        end_of_rows = bisect_right(self.requests, seq)
        requests_in_all = 0
        for first, end in joined_in_force:
            if first < end_of_rows:
                requests_in_all += steps[min(end, end_of_rows)] - steps[first]
        return SavedByFolds(
            tokens=tokens,
            counted=self._count_steps_paid_here(join_row_runs(runs_that_count), seq),
            requests=self._count_steps_paid_here(joined_in_force, seq),
            requests_in_all=requests_in_all,
        )

    def was_paid_elsewhere(self, seq: int) -> bool:
        """Whether another conversation or program paid for what was done at a fact."""
        return any(first <= seq < end for first, end in self._runs_paid_elsewhere())

    def _count_steps_paid_here(self, runs_of_rows: Iterable[Run], seq: int) -> int:
        """Return how many steps up to `seq` are in these rows, without imports and copied facts."""
        steps = self.sums["steps"]
        end_of_rows = bisect_right(self.requests, seq)
        rows_paid_elsewhere: list[Run] = []
        for first_seq, end_seq in self._runs_paid_elsewhere():
            first_row = bisect_left(self.requests, first_seq)
            rows_paid_elsewhere.append((first_row, bisect_left(self.requests, end_seq)))
        count = 0
        for first, end in runs_of_rows:
            last_end = min(end, end_of_rows)
            if first >= last_end:
                continue
            count += steps[last_end] - steps[first]
            for first_elsewhere, end_elsewhere in rows_paid_elsewhere:
                first_common = max(first, first_elsewhere)
                end_common = min(last_end, end_elsewhere)
                if first_common < end_common:
                    count -= steps[end_common] - steps[first_common]
        return count

    def _sum_paid_here(self, column: Sequence[T], seq: int) -> T:
        """Return a running sum up to `seq`, without imports and copied facts."""
        total = column[bisect_right(self.requests, seq)]
        for first_seq, end_seq in self._runs_paid_elsewhere():
            first_row = bisect_left(self.requests, min(first_seq, seq + 1))
            end_row = bisect_left(self.requests, min(end_seq, seq + 1))
            total -= column[end_row] - column[first_row]
        return total

    def _runs_paid_elsewhere(self) -> list[Run]:
        """Return the runs of facts that another conversation or program paid for."""
        runs = list(self.copied)
        # An import among the copied facts is not counted twice.
        start = self._end_of_copied_facts()
        for first, end in self.elsewhere:
            if end > start:
                runs.append((max(first, start), end))
        return runs

    def _add_step(self, recorded: facts.Recorded, reply: facts.ModelReplied) -> None:
        """Add a reply to all sums: what its request sent and cost, and what both would have been
        without folds.
        """
        newest_seen = newest_fact_seen_by(recorded)
        shown = self.shown[newest_seen]
        whole = self.whole[newest_seen]
        usage = reply.usage
        sent = self._sent_tokens_of_step(recorded.seq, newest_seen, reply, shown)
        written = usage.output or sum(part.tokens for part in reply.parts)
        reported_output = 0
        if usage.input > 0:
            reported_output = written
        request_time = recorded.time - reply.seconds
        is_cold = self._found_cache_empty(request_time, reply)
        without_folds = self._baseline.bill_step(
            shown, whole, sent, usage.cache_read, is_cold=is_cold
        )
        by_folds = self.fold_savings.count_request_of_step(
            len(self.requests), newest_seen, without_folds.replaced
        )
        self._time_of_last_step = recorded.time
        self._append_running_sums(
            recorded.seq,
            usage,
            reply.model,
            steps=1,
            sent=sent,
            without=without_folds.billed.sent,
            output=reported_output,
            by_folds=by_folds,
            by_other_summaries=without_folds.longer - by_folds + without_folds.asked,
        )

        read_from_cache = min(max(0, usage.cache_read), sent)
        as_sent = BilledStep(sent, read_from_cache)
        cost_without = self._cost_without_folds(usage.cost, as_sent, without_folds.billed, written)
        self.paid_without[-1] += cost_without
        paid_now = _PaidReply(recorded.time, usage.cost, cost_without)
        self._take_back_reply_imported_in_part(paid_now)
        self._last_paid = paid_now
        self._was_rewound = False

    def _take_back_reply_imported_in_part(self, whole_reply: _PaidReply) -> None:
        """Take the last reply's cost out of the sums if this is the same reply.

        An import that was there before a reply's end rewinds to it and appends the whole reply.
        """
        last_reply = self._last_paid
        if self._was_rewound and last_reply.time == whole_reply.time:
            self.paid[-1] -= last_reply.cost
            self.paid_without[-1] -= last_reply.cost_without

    def _cost_without_folds(
        self, cost: float, as_sent: BilledStep, without_folds: BilledStep, written: int
    ) -> float:
        """Return what was paid, multiplied by what list prices say of the step without folds."""
        list_price = as_sent.list_price(written, self._prices)
        if not list_price:
            return cost
        return cost * (without_folds.list_price(written, self._prices) / list_price)

    def _found_cache_empty(self, request_time: float, reply: facts.ModelReplied) -> bool:
        """Return whether a request found nothing in the provider's cache for a reason other than
        folds: it was never read, or the pause before the request was too long.
        """
        if reply.usage.cache_read > 0:
            self._cached_models.add(reply.model)
            return False
        if reply.usage.input <= 0:
            return False  # Nothing was reported.
        if reply.model not in self._cached_models:
            return True
        return request_time - self._time_of_last_step > LEAST_CACHE_SECONDS

    def _sent_tokens_of_step(
        self, seq: int, seen: int, reply: facts.ModelReplied, shown: int
    ) -> int:
        """Return the tokens of a step's request as they were reported, and remember the report.
        Without one, return an estimate from what was `shown`, by our count and earlier reports.
        """
        reported = reply.usage.input
        if reported <= 0:
            return round(shown * self._recorded_factor(reply.model, seq))
        if shown > 0:
            reports = self.reports.setdefault(reply.model, BillingReports())
            reports.seqs.append(seq)
            reports.seen.append(seen)
            reports.counted.append(shown)
            reports.billed.append(reported)
        return reported

    def _append_running_sums(
        self, seq: int, usage: facts.Usage, model: str, **figures: int
    ) -> None:
        """Append a request to all columns, each of which is a running sum.

        `figures`: what is added to a column, by its name. The others stay equal.
        """
        self.requests.append(seq)
        figures["read"] = usage.cache_read
        if usage.cost <= 0 and model in self._free_models:
            figures["free"] = 1
        elif usage.cost <= 0:
            figures["unpriced"] = 1
        for name, column in self.sums.items():
            figure = figures.get(name, 0)
            if not -_MOST_TOKENS <= figure <= _MOST_TOKENS:
                figure = max(-_MOST_TOKENS, min(figure, _MOST_TOKENS))
            column.append(column[-1] + figure)
        self.paid.append(self.paid[-1] + usage.cost)
        self.paid_without.append(self.paid_without[-1])
        self.paid_for_shortening.append(self.paid_for_shortening[-1])


def _bill_view(counted_tokens: int, factor: float, report: BillingReport | None) -> int:
    """Return what a model bills for a view of so many counted tokens: as much as it reported, and
    what has changed since then at its factor.
    """
    if report is None:
        return round(counted_tokens * factor)
    changed_tokens = counted_tokens - report.counted
    if changed_tokens < 0:
        # What was removed cannot have been billed more than the whole was.
        factor = min(factor, report.factor)
    return report.billed + round(changed_tokens * factor)


def _is_other_model_or_price(before: facts.ModelSet | None, chosen: facts.ModelSet) -> bool:
    if before is None:
        return True
    return before.model != chosen.model or before.price_input != chosen.price_input


def newest_fact_seen_by(recorded: facts.Recorded) -> int:
    """Return the newest fact that a reply's request had. Version 0.1 stored 0 if unknown."""
    if isinstance(recorded.fact, facts.ModelReplied) and 0 < recorded.fact.saw < recorded.seq:
        return recorded.fact.saw
    return recorded.seq - 1
