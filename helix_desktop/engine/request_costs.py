"""Explains what each request read from the provider's cache, what was cached again and
why, and the cost.

This is a pure function of facts. Each request is compared with the last one to the same
model. Up to their first difference, the provider could read its cache. What was sent
before and comes after that had to be cached again, for the reasons that
`request_changes.py` names; several sufficient reasons share the tokens. Sizes are
fitted to what the provider reports, so that the causes add up to the billed input.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from itertools import accumulate, takewhile

from helix_desktop.engine.context_usage import compute_cost
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    ModelReplied,
    ModelRole,
    ModelSet,
    Recorded,
    Rewound,
    Spent,
    ToolsOffered,
    Usage,
)
from helix_desktop.engine.fold_economics import relative_prices
from helix_desktop.engine.messages import Block, Role, View
from helix_desktop.engine.prompt_cache_terms import (
    HOUR_SECONDS,
    LOOK_BACK_BLOCKS,
    cache_terms_of_model,
)
from helix_desktop.engine.request_changes import (
    Cause,
    CauseKind,
    ChangePlace,
    find_changes_between_requests,
    first_seq_in_piece,
)
from helix_desktop.engine.state.request_settings import RequestSettings
from helix_desktop.engine.state.token_ledger import newest_fact_seen_by
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass

CACHE_UNIT = 128  # Providers that need no cache marks cache in units of this many tokens.
# A recorded reply without a duration is assumed to have taken at most this many seconds.
UNTIMED_REPLY = 60.0
# If the bill exceeds the recorded parts by this share, the system prompt was not recorded.
HIDDEN_HEAD_SHARE = 0.2
# A provider that has read this share of the last request's messages still had them.
FAR_READ_SHARE = 0.25
CACHED_BY_CONTENTS = "gemini"  # Google's cache depends on what is sent, not on the thinking time.
READ_ALONE = 0.95  # A request that read this share continues one that had nothing else.
AVOIDABLE = (
    CauseKind.TIME,
    CauseKind.TOOLS,
    CauseKind.SYSTEM,
    CauseKind.ORDER,
    CauseKind.MODEL,
    CauseKind.EDIT,
    CauseKind.NOT_KEPT,
)

SentPiece = Block | ToolsOffered
# What is the same of two pieces if a provider can read the one from its cache for the other.
ComparablePiece = tuple[object, ...]
# A number of tokens, and causes that each explain all of them.
Segment = tuple[int, tuple[Cause, ...]]
Prices = Callable[[str], ModelSet | None]


@dataclass(frozen=True, slots=True)
class CauseCost:
    """Part of a request: its cause, its input tokens and its dollars."""

    cause: Cause
    tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The cost of a request. `seq`: the fact that answered or paid for it. `tokens`:
    its input, the causes' sum.
    """

    seq: int
    time: float
    model: str
    tokens: int
    cost: float
    causes: tuple[CauseCost, ...]

    def avoidable_causes(self) -> list[CauseCost]:
        """Return the avoidable causes, most expensive first."""
        avoidable = []
        for cause_cost in self.causes:
            if cause_cost.cause.kind in AVOIDABLE and cause_cost.tokens:
                avoidable.append(cause_cost)
        return sorted(avoidable, key=lambda cause_cost: -cause_cost.cost)


@dataclass(slots=True)
class _AskedRequest:
    """A request to a model, when it was sent, and where its pieces end."""

    reply: ModelReplied
    view: View
    asked: float  # When this request was sent, in seconds since 1970.
    pieces: Sequence[SentPiece]
    life: float  # How many seconds the provider caches this request.
    # The billed tokens up to the end of each piece.
    ends: list[int] = field(default_factory=list)
    # How many pieces each request so far had in all.
    places: list[int] = field(default_factory=list)

    @property
    def cached_tokens(self) -> int:
        """Return the tokens reported as cached, or all if no writing is reported."""
        usage = self.reply.usage
        if not usage.cache_write:
            return usage.input
        return usage.cache_read + usage.cache_write

    def tokens_before_piece(self, number: int) -> int:
        if number == 0:
            return 0
        return self.ends[number - 1]


@dataclass(slots=True)
class RequestCostReader:
    """Explains requests in order. `prices` returns a model's prices if no fact has them."""

    facts: Sequence[Recorded]
    prices: Prices
    _last: dict[str, _AskedRequest] = field(default_factory=dict)  # The last request to each model.
    # The longest pause that a model's cache survived.
    _lives: dict[str, float] = field(default_factory=dict)
    _aside: dict[str, int] = field(default_factory=dict)  # Inputs that the next request lacked.
    _seen: int = 0  # The number of the newest fact that any request so far contained.
    _last_model: str = ""
    _brought_runs: list[tuple[int, int]] | None = None
    _marks_prefixes: bool = False  # Whether any provider has reported tokens written to its cache.

    def explain_and_remember_reply(
        self, recorded: Recorded, reply: ModelReplied, state: ConversationState, view: View
    ) -> RequestCost:
        """Explain a step's request, and remember it for the next. `view`: what was sent."""
        chosen = _find_model_settings_for_reply(reply.model, state.record.settings_at(view.seq))
        asked = recorded.time - reply.seconds
        if not reply.seconds:
            # Imported replies have only an end time, so their start is estimated.
            asked = max(self.facts[max(0, view.seq - 1)].time, asked - UNTIMED_REPLY)
        life = cache_terms_of_model(reply.model).seconds
        if chosen is not None and chosen.cache_seconds:
            life = float(chosen.cache_seconds)
        life = max(life, self._lives.get(reply.model, 0.0))
        pieces: list[SentPiece] = [ToolsOffered(view.tools, view.tools_tokens)]
        pieces += view.blocks
        now = _AskedRequest(reply, view, asked, pieces, life)
        before = self._last.get(reply.model)
        same = 0
        if before is not None:
            same = _count_same_pieces(before.pieces, now.pieces)
            now.places = [place for place in before.places if place <= same]
        now.places.append(len(now.pieces))
        now.ends = _piece_ends_as_billed(now, before, same)
        self._marks_prefixes |= reply.usage.cache_write > 0
        segments = self._explain_request(now, before, same)
        cost = self._price_request(recorded, reply.model, reply.usage, segments, chosen)
        self._note_request_aside(now, before, same)
        self._last[reply.model] = now
        self._last_model = reply.model
        if reply.usage.is_cached_for_an_hour:
            self._remember_life(reply.model, HOUR_SECONDS)
        self._seen = max(self._seen, view.seq)
        return cost

    def explain_request_beside_steps(
        self, recorded: Recorded, spent: Spent, state: ConversationState
    ) -> RequestCost:
        """Explain a request that is not a step, such as for a summary."""
        usage = spent.usage
        before = self._last.get(spent.model)
        if before and usage.cache_read:
            before.asked = max(before.asked, recorded.time)
        beside = Cause(CauseKind.BESIDE, spent.purpose.value)
        segments = [
            (usage.cache_read, (Cause(CauseKind.READ),)),
            (usage.input - usage.cache_read, (beside,)),
        ]
        return self._price_request(
            recorded,
            spent.model,
            usage,
            segments,
            _find_model_settings_for_reply(spent.model, state.settings),
        )

    def reader_for_fork(self, facts: Sequence[Recorded], forked_at: int) -> "RequestCostReader":
        """Return a reader for a fork, which begins with this conversation's requests."""
        last_requests = {}
        for model, asked in self._last.items():
            last_requests[model] = replace(asked, view=replace(asked.view, seq=forked_at))
        return replace(self, facts=facts, _last=last_requests, _seen=forked_at, _brought_runs=None)

    def _remember_life(self, model: str, seconds: float) -> None:
        self._lives[model] = max(self._lives.get(model, 0.0), seconds)

    def _explain_request(
        self, now: _AskedRequest, before: _AskedRequest | None, same: int
    ) -> Iterator[Segment]:
        """Yield what was read from the cache, what should have been, and what came after it.

        `same`: how many of its first pieces are those of the request before.
        """
        usage = now.reply.usage
        read = min(usage.cache_read, usage.input)
        yield read, (Cause(CauseKind.READ),)
        if not self._last:
            yield usage.input - read, (Cause(CauseKind.FIRST),)
            return
        last = self._last[self._last_model]
        always = self._causes_of_everything(now, last, read)
        readable = 0
        if last is before:
            readable = self._readable_tokens(now, before, same)
        if read < readable:
            missing = readable - read
            yield missing, self._why_not_cached(missing, now, same, before, always)
        elif read > 0 and before is not None:
            self._remember_life(now.reply.model, now.asked - before.asked)
        changes = self._changes_between(last, now, kept_until=last.asked + now.life)
        start = max(read, readable)
        shared = now.tokens_before_piece(same)
        if start < shared:
            causes = always or _causes_of_first_place(changes)
            yield shared - start, causes or (Cause(CauseKind.RULES, "behind the last mark"),)
        # Some agents send these once more.
        sent_again = frozenset(map(_comparable_piece, last.pieces[same:]))
        yield from self._explain_uncached_pieces(now, same, start, changes, always, sent_again)

    def _causes_of_everything(
        self, now: _AskedRequest, last: _AskedRequest, read: int
    ) -> tuple[Cause, ...]:
        """Return what makes a provider cache a whole request again: a pause or another model."""
        causes = []
        pause = now.asked - last.asked
        if pause > now.life:
            causes.append(Cause(CauseKind.TIME, describe_pause(pause)))
        if self._last_model != now.reply.model:
            causes.append(Cause(CauseKind.MODEL, f"from {self._last_model}"))
        elif now.view.effort != last.view.effort and not _survives_another_effort(now, last, read):
            causes.append(Cause(CauseKind.MODEL, "another thinking time"))
        return tuple(causes)

    def _changes_between(
        self, last: _AskedRequest, now: _AskedRequest, *, kept_until: float
    ) -> list[ChangePlace]:
        """Return changes between two requests, without folds after the cache had expired."""
        has_same_head = _comparable_head(last.pieces) == _comparable_head(now.pieces)
        changes = []
        for change in find_changes_between_requests(
            self.facts, last.pieces[:1], now.pieces[:1], last.view.seq, now.view.seq
        ):
            kind = change.cause.kind
            if kind is CauseKind.FOLD and min(change.time, now.asked) > kept_until:
                continue
            if kind is CauseKind.SYSTEM and has_same_head:
                continue
            changes.append(change)
        same = _count_same_pieces(last.pieces, now.pieces)
        effective = _effective_changes(changes, now.pieces, same)
        return sorted(effective, key=lambda change: change.place)

    def _readable_tokens(self, now: _AskedRequest, before: _AskedRequest | None, same: int) -> int:
        """Return how far it could read: to an earlier request's end before a difference."""
        if before is None or not same:
            return 0
        if same == len(before.pieces):
            return min(before.cached_tokens, now.ends[same - 1])
        place = max(now.places[:-1], default=0)
        if self.was_imported(now.view.seq):
            return 0
        return now.tokens_before_piece(place)

    def _explain_uncached_pieces(
        self,
        now: _AskedRequest,
        same: int,
        start: int,
        changes: Sequence[ChangePlace],
        always: tuple[Cause, ...],
        sent_again: frozenset[ComparablePiece],
    ) -> Iterator[Segment]:
        """Explain the pieces after the cached ones: new, or sent again after a change
        before them.
        """
        causes = list(always)
        changes_ahead = deque(changes)
        for number in range(same, len(now.pieces)):
            piece = now.pieces[number]
            place = first_seq_in_piece(piece)
            # A change explains all that comes behind it.
            while changes_ahead and changes_ahead[0].place <= place:
                cause = changes_ahead.popleft().cause
                if cause not in causes:
                    causes.append(cause)
            tokens = now.ends[number] - max(start, now.tokens_before_piece(number))
            if tokens <= 0:
                continue
            if self._is_new_piece(piece, place, sent_again):
                yield tokens, (Cause(CauseKind.NEW),)
            elif causes:
                yield tokens, tuple(causes)
            else:
                yield tokens, (Cause(CauseKind.UNKNOWN),)

    def _is_new_piece(
        self, piece: SentPiece, place: int, sent_again: frozenset[ComparablePiece]
    ) -> bool:
        """Whether no request so far had it. `sent_again`: what was just sent at another place."""
        if isinstance(piece, ToolsOffered) or piece.role is Role.SYSTEM:
            return False
        return place > self._seen and _comparable_piece(piece) not in sent_again

    def _why_not_cached(
        self,
        missing: int,
        now: _AskedRequest,
        same: int,
        before: _AskedRequest | None,
        always: tuple[Cause, ...],
    ) -> tuple[Cause, ...]:
        """Explain why the provider did not read from its cache what it had been sent before."""
        if missing <= CACHE_UNIT:
            return (Cause(CauseKind.RULES, "less than a unit of the cache"),)
        if always:
            return always
        broken_rule = self._find_broken_cache_rule(now, same, before)
        if broken_rule:
            return (Cause(CauseKind.RULES, broken_rule),)
        lacks_head = self.was_imported(now.view.seq) and not now.view.tools
        if not lacks_head:
            return (Cause(CauseKind.NOT_KEPT),)
        if self._joins_requests(now, before, same):
            return (Cause(CauseKind.EDIT, "messages of two requests at once were joined"),)
        return (Cause(CauseKind.UNKNOWN, "the recording lacks the system prompt and the tools"),)

    def _find_broken_cache_rule(
        self, now: _AskedRequest, same: int, before: _AskedRequest | None
    ) -> str:
        """Say which rule of the provider kept it from caching the same pieces, or nothing."""
        terms = cache_terms_of_model(now.reply.model)
        usage = Usage()
        if before is not None:
            usage = before.reply.usage
        was_cached = usage.cache_read > 0 or usage.cache_write > 0
        if not was_cached and now.ends[same - 1] < terms.least_tokens:
            return "too short"
        # A foreign agent sets its own marks, and a provider looks back only so far from one.
        has_own_marks = self._marks_prefixes and now.reply.stable is None
        look_back = terms.look_back_blocks or LOOK_BACK_BLOCKS
        if has_own_marks and len(now.pieces) - same > look_back:
            return "too far in front of a mark"
        return ""

    def _note_request_aside(
        self, now: _AskedRequest, before: _AskedRequest | None, same: int
    ) -> None:
        """Remember the last request if this one continues something else: small and cached."""
        model = now.reply.model
        usage = now.reply.usage
        if usage.input >= self._aside.get(model, 0):
            self._aside.pop(model, None)
        if before is None or same < len(before.pieces):
            return
        is_smaller = usage.input + CACHE_UNIT < before.reply.usage.input
        if is_smaller and usage.cache_read > usage.input * READ_ALONE:
            self._aside[model] = before.reply.usage.input

    def _joins_requests(self, now: _AskedRequest, before: _AskedRequest | None, same: int) -> bool:
        """Whether two parallel requests were joined, as much more is new than was recorded."""
        if before is None:
            return False
        aside = self._aside.get(now.reply.model, 0)
        whole = now.reply.usage.input
        recorded = sum(piece.tokens for piece in now.pieces[same:])
        growth = whole - before.reply.usage.input
        return 0 < aside <= whole and growth > 2 * recorded

    def was_imported(self, seq: int) -> bool:
        """Whether the fact came from another program's recording, which may lack something."""
        if self._brought_runs is None:
            self._brought_runs = []
            for recorded in self.facts:
                if isinstance(recorded.fact, BroughtIn) and not recorded.fact.undone:
                    self._brought_runs.append((recorded.fact.first, recorded.seq))
        return any(first <= seq < last for first, last in self._brought_runs)

    def _price_request(
        self,
        recorded: Recorded,
        model: str,
        usage: Usage,
        segments: Iterable[Segment],
        chosen: ModelSet | None,
    ) -> RequestCost:
        """Split the billed dollars between the causes, by how many of their tokens were
        read, written or neither.
        """
        settings = chosen or self.prices(model)
        rate = relative_prices(settings)
        dollars = compute_cost(usage, settings)
        written = min(usage.input, usage.cache_read + usage.cache_write)
        write_rate = rate.write * usage.priced_cache_write / max(1, usage.cache_write)
        tokens_of_cause: Counter[Cause] = Counter()
        share_of_cause: dict[Cause, float] = {}
        start = 0
        for cause, tokens in _split_between_causes(segments):
            end = start + tokens
            read = max(0, min(end, usage.cache_read) - start)
            wrote = max(0, min(end, written) - max(start, usage.cache_read))
            share = read * rate.read + wrote * write_rate + (tokens - read - wrote)
            tokens_of_cause[cause] += tokens
            share_of_cause[cause] = share_of_cause.get(cause, 0.0) + share
            start = end
        share_of_cause[Cause(CauseKind.REPLY)] = usage.output * rate.output
        whole = sum(share_of_cause.values())
        cause_costs = []
        for cause, share in share_of_cause.items():
            tokens = tokens_of_cause[cause]
            if not tokens and not share:
                continue
            cost = 0.0
            if whole:
                cost = dollars * share / whole
            cause_costs.append(CauseCost(cause, tokens, cost))
        return RequestCost(
            recorded.seq, recorded.time, model, usage.input, dollars, tuple(cause_costs)
        )


def _causes_of_first_place(changes: Sequence[ChangePlace]) -> tuple[Cause, ...]:
    """Return the causes of all changes that are at the place of the first one."""
    return tuple(change.cause for change in changes if change.place == changes[0].place)


def _split_between_causes(segments: Iterable[Segment]) -> Iterator[tuple[Cause, int]]:
    """Yield each cause with its part of a segment's tokens, so that the parts add up to them."""
    for tokens, causes in segments:
        for number, cause in enumerate(causes):
            start = tokens * number // len(causes)
            end = tokens * (number + 1) // len(causes)
            yield cause, end - start


def explain_requests(
    facts: Sequence[Recorded], prices: Prices, original: Sequence[Recorded] = ()
) -> list[RequestCost]:
    """Explain every reported request in order. `original`: a fork's source, compared
    with its first one.
    """
    fork = _find_start_of_fork(facts)
    if fork is None:
        return list(_explain_requests_after(RequestCostReader(facts, prices)))
    if not original:
        costs = _explain_requests_after(RequestCostReader(facts, prices))
        return [cost for cost in costs if cost.seq > fork.seq]
    facts_until_fork = [recorded for recorded in original if recorded.time <= fork.time]
    reader = RequestCostReader(facts_until_fork, prices)
    list(_explain_requests_after(reader))  # The reader remembers the original's last request.
    reader = reader.reader_for_fork(facts, fork.seq - 1)
    return list(_explain_requests_after(reader, fork.seq))


async def read_original_and_explain_requests(
    facts: Sequence[Recorded],
    prices: Prices,
    read_facts: Callable[[str], Awaitable[Sequence[Recorded]]] | None,
) -> list[RequestCost]:
    """Explain all requests. `read_facts` reads the conversation from which this was forked."""
    fork = _find_start_of_fork(facts)
    original: Sequence[Recorded] = ()
    if read_facts is not None and fork is not None and isinstance(fork.fact, ConversationStarted):
        with suppress(NotFound):
            original = await read_facts(fork.fact.forked_from)
    return await asyncio.to_thread(explain_requests, facts, prices, original)


def _find_start_of_fork(facts: Sequence[Recorded]) -> Recorded | None:
    for recorded in reversed(facts):
        if isinstance(recorded.fact, ConversationStarted) and recorded.fact.forked_from:
            return recorded
    return None


def _replies_imported_in_part(facts: Sequence[Recorded]) -> set[int]:
    """Return the replies that an import has appended again, since it had read them
    before their end.
    """
    steps = [recorded for recorded in facts if isinstance(recorded.fact, ModelReplied | Rewound)]
    in_part = set()
    for first, between, later in zip(steps, steps[1:], steps[2:], strict=False):
        if isinstance(between.fact, Rewound) and first.time == later.time:
            in_part.add(first.seq)
    return in_part


def _explain_requests_after(reader: RequestCostReader, after: int = 0) -> Iterator[RequestCost]:
    state = ConversationState()
    views: dict[int, View] = {}
    in_part = _replies_imported_in_part(reader.facts)
    seqs_of_requests = set()
    for recorded in reader.facts:
        if isinstance(recorded.fact, ModelReplied):
            seqs_of_requests.add(newest_fact_seen_by(recorded))
    for recorded in reader.facts:
        state.advance_state(recorded)
        if recorded.seq in seqs_of_requests:
            views[recorded.seq] = state.get_view()
        if recorded.seq <= after or recorded.seq in in_part:
            continue
        if isinstance(recorded.fact, ModelReplied) and recorded.fact.usage.input > 0:
            view = views.get(newest_fact_seen_by(recorded)) or state.past_moment(0).get_view()
            yield reader.explain_and_remember_reply(recorded, recorded.fact, state, view)
        elif isinstance(recorded.fact, Spent) and recorded.fact.usage.input > 0:
            yield reader.explain_request_beside_steps(recorded, recorded.fact, state)


def explain_costs_of_last_turn(state: ConversationState) -> list[RequestCost]:
    """Explain the last turn's steps, compared with the last request before it, if made here."""
    since = min(state.branch.turn.words, default=1) - 1
    reader = RequestCostReader(state.facts, lambda _: None)
    earlier_replies: list[int] = []
    replies: list[int] = []
    for seq in _seqs_of_own_billed_replies(state):
        if seq <= since:
            earlier_replies.append(seq)
        else:
            replies.append(seq)
    # What an import brought in may lack what the provider was sent.
    if earlier_replies and not reader.was_imported(earlier_replies[-1]):
        replies.insert(0, earlier_replies[-1])
    costs = []
    for seq in replies:
        recorded = state.facts[seq - 1]
        if isinstance(recorded.fact, ModelReplied):
            view = state.past_moment(newest_fact_seen_by(recorded)).get_view()
            costs.append(reader.explain_and_remember_reply(recorded, recorded.fact, state, view))
    return [cost for cost in costs if cost.seq > since]


def _seqs_of_own_billed_replies(state: ConversationState) -> Iterator[int]:
    """Yield the replies of a conversation with their usage, in a fork only those of its own."""
    first_own = 0
    fork = _find_start_of_fork(state.facts)
    if fork is not None:
        first_own = fork.seq + 1
    for seq in state.branch.steps:
        fact = state.facts[seq - 1].fact
        if seq >= first_own and isinstance(fact, ModelReplied) and fact.usage.input > 0:
            yield seq


def describe_pause(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"


def _find_model_settings_for_reply(model: str, settings: RequestSettings) -> ModelSet | None:
    """Return a model's settings, or the main model's if the provider answers under another name."""
    for _, chosen in settings.models:
        if chosen.model == model:
            return chosen
    return settings.model_for_role(ModelRole.MAIN)


def _piece_ends_as_billed(now: _AskedRequest, before: _AskedRequest | None, same: int) -> list[int]:
    """Return the billed tokens up to each piece's end: as before, then in proportion."""
    billed = now.reply.usage.input
    ends: list[int] = []
    if before is not None:
        ends += before.ends[:same]
    counted = [piece.tokens for piece in now.pieces[len(ends) :]]
    start = 0
    if ends:
        start = ends[-1]
        if billed - start < sum(counted) // 3:
            # The provider now bills less for the same text.
            start = max(0, billed - sum(counted))
            ends = [min(end, start) for end in ends]
    elif not now.view.tools and billed > sum(counted) * (1 + HIDDEN_HEAD_SHARE):
        counted[0] = billed - sum(counted)  # The recording lacks its system prompt and tools.
    whole = max(1, sum(counted))
    for counted_so_far in accumulate(counted):
        ends.append(start + (billed - start) * counted_so_far // whole)
    ends[-1] = billed
    return ends


def _count_same_pieces(before: Sequence[SentPiece], now: Sequence[SentPiece]) -> int:
    """Return how many of the first pieces are the same bytes for a provider."""
    same = 0
    for piece, other in zip(before, now, strict=False):
        if piece is not other and _comparable_piece(piece) != _comparable_piece(other):
            break
        same += 1
    return same


def _comparable_piece(piece: SentPiece) -> ComparablePiece:
    if isinstance(piece, ToolsOffered):
        return (piece.tools,)
    return piece.role, piece.content, piece.call, piece.ok


def _comparable_head(pieces: Sequence[SentPiece]) -> list[ComparablePiece]:
    """Return the system prompt and rules of a request, without its tools."""
    return [_comparable_piece(piece) for piece in pieces[1 : _count_head_pieces(pieces)]]


def _survives_another_effort(now: _AskedRequest, last: _AskedRequest, read: int) -> bool:
    """Whether the cache is valid for any thinking time, as it always is or as the
    provider read many of the messages.
    """
    if CACHED_BY_CONTENTS in now.reply.model:
        return True
    head = last.ends[_count_head_pieces(last.pieces) - 1]
    return read > head + (last.ends[-1] - head) * FAR_READ_SHARE


def _count_head_pieces(pieces: Sequence[SentPiece]) -> int:
    """Count the tools and the parts of the system prompt."""
    return sum(1 for _ in takewhile(lambda piece: first_seq_in_piece(piece) <= 0, pieces))


def _effective_changes(
    changes: Sequence[ChangePlace], pieces: Sequence[SentPiece], same: int
) -> list[ChangePlace]:
    """Return the changes after the last equal piece: only these changed what was sent."""
    last_equal = -1
    if same:
        last_equal = first_seq_in_piece(pieces[same - 1])
    changes_behind = [change for change in changes if change.place >= last_equal]
    return changes_behind or list(changes)
