"""What public systems do with a full context, re-stated from their documentation on one
price model.

Figures made with these compare policies, not products: every policy gets the same sizes
(a marker 60 tokens, an excerpt 560, a summary 3,000 written over the cached prefix),
the same prices, the same head and the same sessions. What a reply uses and the context
no longer shows is brought back and billed for all of them: where a policy keeps
originals, by the rule of the replay and as this program's own tool hands it out, behind
a marker by its hash and behind a summary by a search; else by the original call, made
again. What the agent itself had said no call brings back: without originals it is lost,
and not billed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession, message_texts
from helix_desktop.replay.prompt_cache_billing import (
    HEAD_TOKENS,
    MESSAGE_TOKENS,
    BillingLedger,
    CacheOfSession,
    Count,
    Piece,
    ReasonOf,
    RecallReason,
    cache_of_recording,
    count_output_tokens,
    request_times,
)
from helix_desktop.replay.replay_figures import ReplayFigures
from helix_desktop.replay.retention import IDENTIFIER
from helix_desktop.replay.simulated_recalls import (
    MissedReferences,
    RecalledPage,
    ShownEntry,
    group_by_round,
    missing_from_view,
)
from tests.benchmarks.public_names import read_public_names

# Sizes in tokens.
MARKER = 60
EXCERPT = 560
SUMMARY = 3_000
QUESTION = 300  # which asks for a summary
SAID = 200  # characters of a call by which an agent tells what its output was
CALL = 60  # tokens of a call made for a recall
# tokens a search brings: the mean of this program's own on the ten sessions. It is
# taken to bring all that is missed
FOUND = 550
LARGE = 4_000  # tokens of an output that is held back
LARGE_BATCH = 12_000  # tokens of smaller outputs of one step that are held back together
# The forms of a part in the view.
WHOLE = "whole"
EXCERPTED = "excerpt"
MARKED = "marker"


@dataclass(eq=False, slots=True)
class Part:
    """A piece of a recorded message as it stands in the view. `turn` counts the user's messages."""

    kind: str  # user, text, call, output, summary
    tokens: int
    names: frozenset[str]
    step: int
    turn: int
    form: str = WHOLE
    paid: float = 0.0  # rent, since the last handover
    uses: frozenset[str] = frozenset()  # what a reply may need of it: identifiers, paths, lines
    recalled: bool = False
    text: str = ""

    def as_piece(self) -> Piece:
        """What the provider's cache compares."""
        return (id(self), self.form), self.tokens


@dataclass(slots=True)
class Context:
    """What a policy sees and changes: the parts that stand, in order."""

    window: int
    prices: RelativePrices
    ledger: BillingLedger
    parts: list[Part] = field(default_factory=list)
    step: int = 0
    turn: int = 0
    head: int = HEAD_TOKENS  # with the session's own system prompt, which always stands
    said: int = 0  # tokens the recorded agent says and thinks with its calls, in the mean
    named: Counter[str] = field(default_factory=Counter)
    # What the parts that stand whole have to use.
    standing: Counter[str] = field(default_factory=Counter)
    gone: list[Part] = field(default_factory=list)
    folds: Counter[str] = field(default_factory=Counter)
    added: list[int] = field(default_factory=list)  # clearable tokens by step

    @property
    def tokens(self) -> int:
        return self.head + sum(part.tokens for part in self.parts)

    def pieces(self) -> list[Piece]:
        return [("system", self.head), *(part.as_piece() for part in self.parts)]

    @property
    def why(self) -> ReasonOf:
        """Why a piece is there."""
        recalled = {part.as_piece()[0] for part in self.parts if part.recalled}
        return lambda content: RecallReason.RECALLED if content in recalled else RecallReason.NO

    def shorten(self, part: Part, form: str, tokens: int) -> None:
        """A marker or an excerpt in place of a part; neither counts as remembering."""
        if part.form == WHOLE:
            self._leaves(part)
        part.form = form
        part.tokens = tokens
        self.folds[form] += 1

    def stands(self, part: Part) -> None:
        """A part as it came."""
        self.parts.append(part)
        self.named.update(part.names)
        self.standing.update(part.uses)

    def always(self, part: Part) -> None:
        """A system prompt."""
        self.head += part.tokens
        self.named.update(part.names)
        self.standing.update(part.uses)

    def _leaves(self, part: Part) -> None:
        self.named.subtract(part.names)
        self.standing.subtract(part.uses)
        if part.kind == "output" and not part.recalled:
            self.gone.append(replace(part))

    def bring_back(
        self,
        misses: MissedReferences,
        missed: set[str],
        reply: RecordedMessage,
        count: Count,
        at: float,
    ) -> None:
        """The pages that hold what is missed, asked for one after the other before the reply."""
        view: list[str] = []
        kept: list[ShownEntry] = []
        last_call = ""
        for number, part in enumerate(self.parts):
            if part.kind == "call":
                last_call = part.text[:SAID]
            if part.form == WHOLE:
                view.append(part.text)
            else:
                kept.append(ShownEntry(str(number), part.text, last_call))
        summarised = any(part.kind == "summary" for part in self.parts)
        pages = misses.pages_to_recall(missed, reply, kept, view, has_summary=summarised)

        searches = [page for page in pages if page.tool is ToolName.RECALL_HISTORY]
        others = [page for page in pages if page.tool is not ToolName.RECALL_HISTORY]
        found_by_search: set[str] = set()
        for together in group_by_round(others) + group_by_round(searches):
            asked = [page for page in together if not _is_found(page, found_by_search)]
            self._ask(len(asked), at)
            for page in asked:
                if not page.entry:
                    found_by_search |= page.seeks
                self._bring_page(page, count)

    def _bring_page(self, page: RecalledPage, count: Count) -> None:
        """A page of an entry, or what a search finds, which is taken to be all it seeks."""
        if page.entry:
            uses = page.holds
            names = _names([page.text])
            tokens = count(page.text)
        else:
            uses = page.seeks
            names = _names(page.seeks)
            tokens = FOUND
        self._recalled(Part("output", 0, names, 0, 0, uses=uses, text=page.text), tokens)

    def _ask(self, calls: int, at: float) -> None:
        """A request that is answered with so many calls, and with as many words as the
        agent says with a call.
        """
        if calls:
            self.ledger.bill_recall(self.pieces(), CALL * calls + self.said, at, reason_of=self.why)
            self._recalled(Part("text", 0, frozenset(), 0, 0), self.said - CALL)

    def call_again(self, missed: set[str], at: float) -> None:
        """The outputs that hold what is missed, by the same calls, in one request
        before the reply.
        """
        found: list[Part] = []
        left = set(missed)
        while left:
            best = max(self.gone, key=lambda part: len(part.uses & left), default=None)
            if best is None or left.isdisjoint(best.uses):
                break
            found.append(best)
            left -= best.uses
        self._ask(len(found), at)
        for part in found:
            self._recalled(part, part.tokens)

    def _recalled(self, part: Part, tokens: int) -> None:
        self.stands(
            replace(
                part,
                tokens=tokens + CALL,
                step=self.step,
                turn=self.turn,
                form=WHOLE,
                paid=0.0,
                recalled=True,
            )
        )

    def summarise(self, keep: Iterable[Part]) -> None:
        """One request over the same prefix, and the summary in place of everything but `keep`."""
        self.ledger.bill_cached_request([*self.pieces(), ("question", QUESTION)], SUMMARY)
        kept = list(keep)
        for part in self.parts:
            if part not in kept and part.form == WHOLE:
                self._leaves(part)
        for part in kept:
            part.paid = 0.0
        self.parts = [Part("summary", SUMMARY, frozenset(), -1, -1), *kept]
        self.folds["handover"] += 1


class Policy:
    """No management: everything is sent every time, and the session dies at the window."""

    excerpts = False
    recalls = False  # whether originals are kept behind a hash; without that the call is made again

    def before_step(self, context: Context) -> None:
        """Change the context before the next request."""


class Masking(Policy):
    """Rolling masking of observations: outputs older than ten steps become markers, one
    after the other.
    """

    def before_step(self, context: Context) -> None:
        for part in context.parts:
            if (
                part.kind == "output"
                and part.form == WHOLE
                and part.tokens > MARKER
                and context.step - part.step >= 10
            ):
                context.shorten(part, MARKED, MARKER)


@dataclass
class Summary(Policy):
    """A summary of everything where the window is nearly full, with the last tokens
    kept as they are.
    """

    share: float
    kept_tokens: int = 0

    def before_step(self, context: Context) -> None:
        if context.tokens <= self.share * context.window:
            return
        room = self.kept_tokens
        first = len(context.parts)
        while first and context.parts[first - 1].tokens <= room:
            first -= 1
            room -= context.parts[first].tokens
        context.summarise(context.parts[first:])


class Observational(Policy):
    """Excerpts on arrival; raw history beyond 30 % of the window becomes observations,
    the last steps stay.
    """

    excerpts = True
    recalls = True

    def before_step(self, context: Context) -> None:
        raw = sum(part.tokens for part in context.parts if part.kind != "summary")
        if raw <= 0.30 * context.window:
            return
        recent = [
            part
            for part in context.parts
            if part.kind != "summary" and part.step > context.step - 8
        ]
        context.summarise(recent)


@dataclass
class Design(Policy):
    """The design's row: excerpts; clearing and handover when they pay, as its page on
    context states the rules.
    """

    tail: int = 8
    arguments: bool = True
    floor_tokens: int = 40_000
    floor_share: float = 0.30
    excerpts = True
    recalls = True

    def before_step(self, context: Context) -> None:
        if not self._hand_over(context):
            self._clear(context)

    def _hand_over(self, context: Context) -> bool:
        """Rent or buy: what was paid for what it would take away reaches what it costs."""
        price = context.prices
        kept = list(self._tail_of(context))
        for part in context.parts:
            if part not in kept and part.kind != "summary":
                part.paid += price.read * part.tokens
        paid = sum(part.paid for part in context.parts)
        stays = sum(part.tokens for part in kept)
        cost = (
            price.read * context.tokens
            + price.write * (QUESTION + SUMMARY + stays)
            + price.output * SUMMARY
        )
        least_tokens = min(self.floor_tokens, self.floor_share * context.window)
        pays = paid >= cost and context.tokens >= least_tokens
        is_nearly_full = context.tokens > 0.85 * context.window
        taken_away = len(context.parts) - len(kept)
        if taken_away < 6 or not (pays or is_nearly_full):
            return False
        context.summarise(kept)
        return True

    def _tail_of(self, context: Context) -> Iterator[Part]:
        for part in context.parts:
            if part.kind == "summary":
                continue
            is_recent = part.step > context.step - self.tail
            is_of_this_turn = part.kind == "user" and part.turn == context.turn
            if is_recent or is_of_this_turn:
                yield part

    def _clear(self, context: Context) -> None:
        """From the start with the largest surplus over sqrt(2·b·A·g/a)."""
        price = context.prices
        rewrite = price.write - price.read
        lately_added = context.added[-20:]
        growth = sum(lately_added) / max(1, len(lately_added))
        largest_surplus = 0.0
        start = None
        behind = 0  # tokens that would be written to the cache again
        freed = 0
        for index in range(len(context.parts) - 1, -1, -1):
            part = context.parts[index]
            if self._clearable(context, part):
                freed += part.tokens - MARKER
                needed = 4_000.0
                if rewrite > 0:
                    needed = math.sqrt(2 * rewrite * behind * growth / price.read)
                surplus = freed - needed
                if surplus > largest_surplus:
                    largest_surplus = surplus
                    start = index
            behind += part.tokens
        if start is None:
            return
        for part in context.parts[start:]:
            if self._clearable(context, part):
                context.shorten(part, MARKED, MARKER)

    def _clearable(self, context: Context, part: Part) -> bool:
        if part.form == MARKED or context.step - part.step < self.tail:
            return False
        long_call = self.arguments and part.kind == "call" and part.tokens > 1_000
        return long_call or (part.kind == "output" and part.tokens > MARKER)


PEERS: Mapping[str, Callable[[], Policy]] = {
    "no management": Policy,
    "outputs masked after 10 steps": Masking,
    "summary at 80%, 15,000 tokens kept": lambda: Summary(0.80, 15_000),
    "summary at 90%": lambda: Summary(0.90),
    "excerpts, observations at 30%": Observational,
    "excerpts, 4 recent steps unfolded, handover from 30%": lambda: Design(
        4, arguments=False, floor_tokens=10**9
    ),
    "simplified `layered`": Design,
    "simplified `layered`, handover from 64,000 tokens": lambda: Design(
        floor_tokens=64_000, floor_share=0.5
    ),
}


def play(
    recording: RecordedSession,
    policy: Policy,
    window: int,
    prices: RelativePrices,
    count: Count,
    head: int = HEAD_TOKENS,
    *,
    is_cache_recorded: bool = True,
) -> ReplayFigures:
    """One session under a policy. Without one it is not stopped at the window, so that
    shares have a whole.
    """
    cache = CacheOfSession(prices)
    if is_cache_recorded:
        cache = cache_of_recording(recording.messages, prices)
    ledger = cache.open_ledger(window)
    said = _mean_words_with_calls(recording, count)
    context = Context(window, cache.prices, ledger, head=head, said=said)
    earlier: set[str] = set()
    used = 0
    standing = 0
    waiting: list[Part] = []
    misses = MissedReferences(_Counter(count), read_public_names())
    times = request_times(recording.messages)
    for message in recording.messages:
        names = _names(message_texts(message))
        if message.role == "assistant":
            now = next(times)
            _arrive(context, policy, waiting)
            waiting = []
            policy.before_step(context)
            known = names & earlier
            used += len(known)
            standing += sum(context.named[name] > 0 for name in known)
            _recall_what_is_missed(context, policy, misses, message, count, now)
            output = count_output_tokens(message, count)
            context.ledger.bill_step(context.pieces(), output, now, context.why)
            context.step += 1
        if message.role == "user":
            context.turn += 1
        parts = parts_of(message, context.step, context.turn, count, misses)
        if message.role == "system":
            context.always(next(parts))
        else:
            waiting.extend(parts)
        misses.add_earlier_message(message)
        earlier |= names
    return ReplayFigures(
        name=recording.name, window=window, steps=tuple(ledger.steps), sent=ledger.sent,
        billed=round(ledger.billed - ledger.recalls), recalls_billed=round(ledger.recalls), head_tokens=head,
        cache_read=ledger.cache_read, peak=ledger.peak,
        overflowed=int(ledger.overflowed > 0), plain_sent=0, plain_billed=0, folds=context.folds,
        used=used, standing=standing, standing_plain=standing,
    )  # fmt: skip


def _mean_words_with_calls(recording: RecordedSession, count: Count) -> int:
    """How many tokens the agent says and thinks with its calls, in the mean."""
    said = [
        count(message.text) + count(message.reasoning)
        for message in recording.messages
        if message.calls
    ]
    if not said:
        return 0
    return round(sum(said) / len(said))


def _recall_what_is_missed(
    context: Context,
    policy: Policy,
    misses: MissedReferences,
    reply: RecordedMessage,
    count: Count,
    now: float,
) -> None:
    """Before a reply, what it uses and no longer sees: recalled, or called again."""
    missed = {
        reference
        for reference in misses.session_references_used_by(reply)
        if context.standing[reference] <= 0
    }
    whole_texts = (part.text for part in context.parts if part.form == WHOLE)
    missed = missing_from_view(missed, whole_texts)
    if missed and policy.recalls:
        context.bring_back(misses, missed, reply, count, now)
    elif missed:
        context.call_again(missed, now)


def _arrive(context: Context, policy: Policy, parts: list[Part]) -> None:
    for part in parts:
        context.stands(part)
    if policy.excerpts:
        for part in held_back(parts):
            context.shorten(part, EXCERPTED, EXCERPT)
    clearable = 0
    for part in parts:
        if part.kind == "output":
            clearable += max(0, part.tokens - MARKER)
        if part.kind == "call" and part.tokens > 1_000:
            clearable += part.tokens - MARKER
    context.added.append(clearable)


def _is_found(page: RecalledPage, found_by_search: set[str]) -> bool:
    """All that is sought there came with an earlier search."""
    return bool(page.seeks) and found_by_search.issuperset(page.seeks)


def held_back(parts: list[Part]) -> list[Part]:
    """Outputs that are large, and the largest of the others while together they are too large."""
    large: list[Part] = []
    others: list[Part] = []
    for part in parts:
        if part.kind == "output":
            is_large = part.tokens > LARGE
            (large if is_large else others).append(part)
    others.sort(key=lambda part: -part.tokens)
    total = sum(part.tokens for part in others)
    for part in others:
        if total > LARGE_BATCH and part.tokens > EXCERPT:
            large.append(part)
            total -= part.tokens - EXCERPT
    return large


def parts_of(
    message: RecordedMessage, step: int, turn: int, count: Count, misses: MissedReferences
) -> Iterator[Part]:
    """A message as it comes."""

    def part(kind: str, text: str, tokens: int) -> Part:
        uses = misses.references_in(text)
        return Part(kind, tokens, _names([text]), step, turn, uses=uses, text=text)

    kind = {"assistant": "text", "tool": "output"}.get(message.role, "user")
    yield part(kind, message.text, count(message.text) + MESSAGE_TOKENS)
    for call in message.calls:
        yield part("call", call.arguments, count(call.name) + count(call.arguments))


@dataclass(frozen=True, slots=True)
class _Counter:
    count_tokens: Count


def _names(texts: Iterable[str]) -> frozenset[str]:
    names: set[str] = set()
    for text in texts:
        names.update(IDENTIFIER.findall(text))
    return frozenset(names)
