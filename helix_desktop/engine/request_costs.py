"""Explains what each request read from the provider's cache, what was cached again and
why, and the cost.

This is a pure function of facts. Each request is compared with the last one to the same
model. Up to their first difference, the provider could read its cache. What was sent
before and comes after that had to be cached again, for the reasons that
`request_changes.py` names; several sufficient reasons share the tokens. Sizes are
fitted to what the provider reports, so that the causes add up to the billed input.
"""

import asyncio
from collections import Counter
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
UNTIMED_REPLY = (
    60.0  # A recorded reply without a duration is assumed to have taken at most this many seconds.
)
HIDDEN_HEAD_SHARE = (
    0.2  # If the bill exceeds the recorded parts by this share, the system prompt was not recorded.
)
FAR_READ_SHARE = (
    0.25  # A provider that has read this share of the last request's messages still had them.
)
CACHED_BY_CONTENTS = "gemini"  # Google's cache depends on what is sent, not on the thinking time.
READ_ALONE = 0.95  # A request that read this share continues one that had nothing else.
AVOIDABLE = (CauseKind.TIME, CauseKind.TOOLS, CauseKind.SYSTEM, CauseKind.ORDER, CauseKind.MODEL, CauseKind.EDIT, CauseKind.NOT_KEPT)  # fmt: skip

SentPiece = Block | ToolsOffered
Segment = tuple[
    int, tuple[Cause, ...]
]  # A number of tokens, and causes that each explain all of them.
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
        found = [one for one in self.causes if one.cause.kind in AVOIDABLE and one.tokens]
        return sorted(found, key=lambda one: -one.cost)


@dataclass(slots=True)
class _AskedRequest:
    """A request to a model, when it was sent, and where its pieces end."""

    reply: ModelReplied
    view: View
    asked: float  # When this request was sent, in seconds since 1970.
    pieces: Sequence[SentPiece]
    life: float  # How many seconds the provider caches this request.
    ends: list[int] = field(default_factory=list)  # The billed tokens up to the end of each piece.
    places: list[int] = field(
        default_factory=list
    )  # How many pieces each request so far had in all.

    @property
    def cached_tokens(self) -> int:
        """Return the tokens reported as cached, or all if no writing is reported."""
        usage = self.reply.usage
        return usage.cache_read + usage.cache_write if usage.cache_write else usage.input


@dataclass(slots=True)
class RequestCostReader:
    """Explains requests in order. `prices` returns a model's prices if no fact has them."""

    facts: Sequence[Recorded]
    prices: Prices
    _last: dict[str, _AskedRequest] = field(default_factory=dict)  # The last request to each model.
    _lives: dict[str, float] = field(
        default_factory=dict
    )  # The longest pause that a model's cache survived.
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
        documented = float(chosen.cache_seconds if chosen else 0)
        documented = documented or cache_terms_of_model(reply.model).seconds
        life = max(documented, self._lives.get(reply.model, 0.0))
        pieces: list[SentPiece] = [ToolsOffered(view.tools, view.tools_tokens), *view.blocks]
        now = _AskedRequest(reply, view, asked, pieces, life)
        before = self._last.get(reply.model)
        same = _count_same_pieces(before.pieces, now.pieces) if before else 0
        now.ends = _piece_ends_as_billed(now, before, same)
        places_before = before.places if before else []
        now.places = [place for place in places_before if place <= same]
        now.places.append(len(now.pieces))
        self._marks_prefixes |= reply.usage.cache_write > 0
        segments = self._explain_request(now, before, same)
        cost = self._price_request(recorded, reply.model, reply.usage, segments, chosen)
        self._note_request_aside(now, before, same)
        self._last[reply.model] = now
        self._last_model = reply.model
        if reply.usage.is_cached_for_an_hour:
            self._lives[reply.model] = max(self._lives.get(reply.model, 0.0), HOUR_SECONDS)
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
        last = {
            model: replace(last, view=replace(last.view, seq=forked_at))
            for model, last in self._last.items()
        }
        return replace(self, facts=facts, _last=last, _seen=forked_at, _brought_runs=None)

    def _explain_request(
        self, now: _AskedRequest, before: _AskedRequest | None, same: int
    ) -> Iterator[Segment]:
        usage = now.reply.usage
        read = min(usage.cache_read, usage.input)
        yield read, (Cause(CauseKind.READ),)
        if not self._last:
            yield usage.input - read, (Cause(CauseKind.FIRST),)
            return
        last = self._last[self._last_model]
        pause = now.asked - last.asked
        always: tuple[Cause, ...] = ()
        if pause > now.life:
            always += (Cause(CauseKind.TIME, describe_pause(pause)),)
        if self._last_model != now.reply.model:
            always += (Cause(CauseKind.MODEL, f"from {self._last_model}"),)
        elif now.view.effort != last.view.effort and not _survives_another_effort(now, last, read):
            always += (Cause(CauseKind.MODEL, "another thinking time"),)
        known = self._readable_tokens(now, before, same) if last is before else 0
        if read < known:
            yield known - read, self._why_not_cached(known - read, now, same, before, always)
        elif read > 0 and before is not None:
            self._lives[now.reply.model] = max(
                self._lives.get(now.reply.model, 0.0), now.asked - before.asked
            )
        changes = self._changes_between(last, now, kept_until=last.asked + now.life)
        # Some agents send these once more.
        again = frozenset(map(_comparable_piece, last.pieces[same:]))
        yield from self._explain_uncached(now, same, max(read, known), changes, always, again)

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
        if not place or self.was_imported(now.view.seq):
            return 0
        return now.ends[place - 1]

    def _explain_uncached(
        self,
        now: _AskedRequest,
        same: int,
        start: int,
        changes: Sequence[ChangePlace],
        always: tuple[Cause, ...],
        again: frozenset[tuple[object, ...]],
    ) -> Iterator[Segment]:
        """Explain the pieces after the cached ones: new, or sent again after a change
        before them.
        """
        shared = now.ends[same - 1] if same else 0
        if start < shared:  # These unchanged pieces come after the last cache mark.
            first = tuple(change.cause for change in changes if change.place == changes[0].place)
            behind_mark = (Cause(CauseKind.RULES, "behind the last mark"),)
            yield shared - start, always or first or behind_mark
        active = always
        waiting = list(changes)
        for number in range(same, len(now.pieces)):
            piece = now.pieces[number]
            place = first_seq_in_piece(piece)
            while waiting and waiting[0].place <= place:
                cause = waiting.pop(0).cause
                if cause not in active:
                    active = (*active, cause)
            piece_start = now.ends[number - 1] if number else 0
            tokens = now.ends[number] - max(start, piece_start)
            if tokens <= 0:
                continue
            if self._is_new_piece(piece, place, again):
                yield tokens, (Cause(CauseKind.NEW),)
            else:
                yield tokens, active or (Cause(CauseKind.UNKNOWN),)

    def _is_new_piece(
        self, piece: SentPiece, place: int, again: frozenset[tuple[object, ...]]
    ) -> bool:
        """Whether no request so far contained it. `again`: what was just sent at another place."""
        is_head = isinstance(piece, ToolsOffered) or piece.role is Role.SYSTEM
        return place > self._seen and not is_head and _comparable_piece(piece) not in again

    def _why_not_cached(
        self,
        missing: int,
        now: _AskedRequest,
        same: int,
        before: _AskedRequest | None,
        always: tuple[Cause, ...],
    ) -> tuple[Cause, ...]:
        """Explain why the provider did not read from its cache what it had been sent before."""
        usage = before.reply.usage if before else Usage()
        terms = cache_terms_of_model(now.reply.model)
        if missing <= CACHE_UNIT:
            return (Cause(CauseKind.RULES, "less than a unit of the cache"),)
        if always:
            return always
        if not (usage.cache_read or usage.cache_write) and now.ends[same - 1] < terms.least_tokens:
            return (Cause(CauseKind.RULES, "too short"),)
        has_own_marks = self._marks_prefixes and now.reply.stable is None
        look_back = terms.look_back_blocks or LOOK_BACK_BLOCKS
        if has_own_marks and len(now.pieces) - same > look_back:
            return (Cause(CauseKind.RULES, "too far in front of a mark"),)
        lacks_head = self.was_imported(now.view.seq) and not now.view.tools
        if not lacks_head:
            cause = Cause(CauseKind.NOT_KEPT)
        elif self._joins_requests(now, before, same):
            cause = Cause(CauseKind.EDIT, "messages of two requests at once were joined")
        else:
            cause = Cause(CauseKind.UNKNOWN, "the recording lacks the system prompt and the tools")
        return (cause,)

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
        aside = self._aside.get(now.reply.model, 0)
        whole = now.reply.usage.input
        recorded = sum(piece.tokens for piece in now.pieces[same:])
        growth = whole - before.reply.usage.input if before else 0
        return 0 < aside <= whole and growth > 2 * recorded

    def was_imported(self, seq: int) -> bool:
        if self._brought_runs is None:
            self._brought_runs = [
                (recorded.fact.first, recorded.seq)
                for recorded in self.facts
                if isinstance(recorded.fact, BroughtIn) and not recorded.fact.undone
            ]
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
        causes = tuple(
            CauseCost(cause, tokens_of_cause[cause], dollars * share / whole if whole else 0.0)
            for cause, share in share_of_cause.items()
            if tokens_of_cause[cause] or share
        )
        return RequestCost(recorded.seq, recorded.time, model, usage.input, dollars, causes)


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
    if fork is not None and original:
        earlier = RequestCostReader([one for one in original if one.time <= fork.time], prices)
        list(_explain_requests_after(earlier))
        return list(_explain_requests_after(earlier.reader_for_fork(facts, fork.seq - 1), fork.seq))
    found = _explain_requests_after(RequestCostReader(facts, prices))
    return [one for one in found if fork is None or one.seq > fork.seq]


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
    return next((one for one in reversed(facts) if getattr(one.fact, "forked_from", "")), None)


def _replies_imported_in_part(facts: Sequence[Recorded]) -> set[int]:
    """Return the replies that an import has appended again, since it had read them
    before their end.
    """
    recorded = [one for one in facts if isinstance(one.fact, ModelReplied | Rewound)]
    in_part = set()
    for first, between, later in zip(recorded, recorded[1:], recorded[2:], strict=False):
        if isinstance(between.fact, Rewound) and first.time == later.time:
            in_part.add(first.seq)
    return in_part


def _explain_requests_after(reader: RequestCostReader, after: int = 0) -> Iterator[RequestCost]:
    state = ConversationState()
    views: dict[int, View] = {}
    in_part = _replies_imported_in_part(reader.facts)
    wanted = {
        newest_fact_seen_by(recorded)
        for recorded in reader.facts
        if isinstance(recorded.fact, ModelReplied)
    }
    for recorded in reader.facts:
        state.advance_state(recorded)
        if recorded.seq in wanted:
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
    fork = _find_start_of_fork(state.facts)
    first_own = fork.seq + 1 if fork is not None else 0
    replies = []
    for seq in state.branch.steps:
        fact = state.facts[seq - 1].fact
        if seq >= first_own and isinstance(fact, ModelReplied) and fact.usage.input > 0:
            replies.append(seq)
    first = sum(seq <= since for seq in replies)
    reader = RequestCostReader(state.facts, lambda _: None)
    before = max(0, first - 1)
    if before < first and reader.was_imported(replies[before]):
        before = first
    costs = []
    for seq in replies[before:]:
        recorded = state.facts[seq - 1]
        if isinstance(recorded.fact, ModelReplied):
            view = state.past_moment(newest_fact_seen_by(recorded)).get_view()
            costs.append(reader.explain_and_remember_reply(recorded, recorded.fact, state, view))
    return [cost for cost in costs if cost.seq > since]


def describe_pause(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def _find_model_settings_for_reply(model: str, settings: RequestSettings) -> ModelSet | None:
    """Return a model's settings, or the main model's if the provider answers under another name."""
    for _, chosen in settings.models:
        if chosen.model == model:
            return chosen
    return settings.model_for_role(ModelRole.MAIN)


def _piece_ends_as_billed(now: _AskedRequest, before: _AskedRequest | None, same: int) -> list[int]:
    """Return the billed tokens up to each piece's end: as before, then in proportion."""
    billed = now.reply.usage.input
    known = list(before.ends[:same]) if before else []
    counted = [piece.tokens for piece in now.pieces[len(known) :]]
    if not known and not now.view.tools and billed > sum(counted) * (1 + HIDDEN_HEAD_SHARE):
        counted[0] = billed - sum(counted)  # The recording lacks its system prompt and tools.
    start = known[-1] if known else 0
    whole = sum(counted)
    if known and billed - start < whole // 3:  # The provider now bills less for the same text.
        start = max(0, billed - whole)
        known = [min(end, start) for end in known]
    known += [start + (billed - start) * so_far // max(1, whole) for so_far in accumulate(counted)]
    return [*known[:-1], billed]


def _count_same_pieces(before: Sequence[SentPiece], now: Sequence[SentPiece]) -> int:
    """Return how many of the first pieces are the same bytes for a provider."""
    same = 0
    for piece, other in zip(before, now, strict=False):
        if piece is not other and _comparable_piece(piece) != _comparable_piece(other):
            break
        same += 1
    return same


def _comparable_piece(piece: SentPiece) -> tuple[object, ...]:
    if isinstance(piece, ToolsOffered):
        return (piece.tools,)
    return piece.role, piece.content, piece.call, piece.ok


def _comparable_head(pieces: Sequence[SentPiece]) -> list[tuple[object, ...]]:
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
    last = first_seq_in_piece(pieces[same - 1]) if same else -1
    behind = [change for change in changes if change.place >= last]
    return behind or list(changes)
