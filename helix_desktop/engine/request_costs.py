"""Explains what each request read from the provider's cache, what was cached again and
why, and the cost.

This is a pure function of facts. Each request is compared with the last one to the same
model. Up to their first difference, the provider could read its cache. What was sent
before and comes after that had to be cached again, for the reasons that
`request_changes.py` names; several sufficient reasons share the tokens. Sizes are
fitted to what the provider reports, so that the causes add up to the billed input.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from itertools import accumulate

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
from helix_desktop.engine.fold_economics import RelativePrices, relative_prices
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
    # Whether the provider's own figures show that text which it no longer has was in its cache.
    shows_lost_cache: bool = True
    # Whether the model's price of text that is sent again is lower.
    are_repeats_cheaper: bool = True

    def avoidable_causes(self) -> list[CauseCost]:
        """Return the avoidable causes, most expensive first."""
        avoidable: list[CauseCost] = []
        if not self.are_repeats_cheaper:
            return avoidable
        for cause_cost in self.causes:
            if cause_cost.cause.kind in AVOIDABLE and cause_cost.tokens:
                avoidable.append(cause_cost)
        return sorted(avoidable, key=lambda cause_cost: cause_cost.cost, reverse=True)


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
    # How many pieces each earlier request had whose pieces all begin this one, and this one.
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
    # The number of the newest fact that any request so far contained.
    _newest_seq_sent: int = 0
    _last_model: str = ""
    _brought_runs: list[tuple[int, int]] | None = None
    _marks_prefixes: bool = False  # Whether any provider has reported tokens written to its cache.

    def explain_and_remember_reply(
        self, recorded: Recorded, reply: ModelReplied, state: ConversationState, view: View
    ) -> RequestCost:
        """Explain a step's request, and remember it for the next. `view`: what was sent.

        It is compared, piece by piece, with the last request to the same model. A piece is the
        tools, or a part of a message.
        """
        chosen = _find_model_settings_for_reply(reply.model, state.record.settings_at(view.seq))
        request = self._read_request(recorded, reply, view, chosen)
        earlier = self._last.get(reply.model)
        same_count = 0
        if earlier is not None:
            same_count = _count_same_pieces(earlier.pieces, request.pieces)
            request.places = [place for place in earlier.places if place <= same_count]
        request.places.append(len(request.pieces))
        request.ends = _piece_ends_as_billed(request, earlier, same_count)

        self._marks_prefixes |= reply.usage.cache_write > 0
        segments = self._explain_request(request, earlier, same_count)
        priced = self._price_request(recorded, reply.model, reply.usage, segments, chosen)
        request_cost = replace(
            priced, shows_lost_cache=_shows_lost_cache(request, earlier, same_count)
        )

        self._note_request_aside(request, earlier, same_count)
        self._last[reply.model] = request
        self._last_model = reply.model
        if reply.usage.is_cached_for_an_hour:
            self._remember_life(reply.model, HOUR_SECONDS)
        self._newest_seq_sent = max(self._newest_seq_sent, view.seq)
        return request_cost

    def _read_request(
        self, recorded: Recorded, reply: ModelReplied, view: View, chosen: ModelSet | None
    ) -> _AskedRequest:
        """Return the request that a reply answers: when it was sent, and its pieces."""
        time_sent = recorded.time - reply.seconds
        if not reply.seconds:
            # Imported replies have only an end time, so their start is estimated.
            newest_in_view = self.facts[max(0, view.seq - 1)]
            time_sent = max(newest_in_view.time, recorded.time - UNTIMED_REPLY)
        pieces: list[SentPiece] = [ToolsOffered(view.tools, view.tools_tokens)]
        pieces += view.blocks
        cache_life = self._cache_life(reply.model, chosen)
        return _AskedRequest(reply, view, time_sent, pieces, cache_life)

    def _cache_life(self, model: str, chosen: ModelSet | None) -> float:
        """Return how long a model's request stays cached: as documented, or as was seen."""
        documented_seconds = cache_terms_of_model(model).seconds
        if chosen is not None and chosen.cache_seconds:
            documented_seconds = float(chosen.cache_seconds)
        return max(documented_seconds, self._lives.get(model, 0.0))

    def explain_request_beside_steps(
        self, recorded: Recorded, spent: Spent, state: ConversationState
    ) -> RequestCost:
        """Explain a request that is not a step, such as for a summary."""
        usage = spent.usage
        last_step = self._last.get(spent.model)
        if last_step and usage.cache_read:
            # Reading what the step had sent keeps it cached from now on.
            last_step.asked = max(last_step.asked, recorded.time)
        beside = Cause(CauseKind.BESIDE, spent.purpose.value)
        if spent.is_estimate:
            beside = Cause(CauseKind.UNANSWERED, spent.purpose.value)
        segments = [
            (usage.cache_read, (Cause(CauseKind.READ),)),
            (usage.input - usage.cache_read, (beside,)),
        ]
        chosen = _find_model_settings_for_reply(spent.model, state.settings)
        return self._price_request(recorded, spent.model, usage, segments, chosen)

    def reader_for_fork(self, facts: Sequence[Recorded], forked_at: int) -> "RequestCostReader":
        """Return a reader for a fork, which begins with this conversation's requests."""
        last_requests = {}
        for model, request in self._last.items():
            last_requests[model] = replace(request, view=replace(request.view, seq=forked_at))
        return replace(
            self,
            facts=facts,
            _last=last_requests,
            _newest_seq_sent=forked_at,
            _brought_runs=None,
        )

    def _remember_life(self, model: str, seconds: float) -> None:
        self._lives[model] = max(self._lives.get(model, 0.0), seconds)

    def _explain_request(
        self, request: _AskedRequest, earlier: _AskedRequest | None, same_count: int
    ) -> Iterator[Segment]:
        """Yield the request's tokens in order, each stretch with the causes why it was sent so:
        what was read from the cache, what should have been, and what came after it.

        `earlier`: the last request to the same model. `same_count`: how many first pieces
        the two have in common.
        """
        usage = request.reply.usage
        tokens_read = min(usage.cache_read, usage.input)
        yield tokens_read, (Cause(CauseKind.READ),)
        if not self._last:
            yield usage.input - tokens_read, (Cause(CauseKind.FIRST),)
            return

        # What the provider could have read, but did not.
        last = self._last[self._last_model]
        causes_of_everything = self._causes_of_everything(request, last, tokens_read)
        readable_tokens = 0
        if last is earlier:
            readable_tokens = self._readable_tokens(request, earlier, same_count)
        if tokens_read < readable_tokens:
            missing_tokens = readable_tokens - tokens_read
            yield (
                missing_tokens,
                self._why_not_cached(
                    missing_tokens, request, same_count, earlier, causes_of_everything
                ),
            )
        elif tokens_read > 0 and earlier is not None:
            self._remember_life(request.reply.model, request.asked - earlier.asked)

        # What is the same as in the earlier request, but behind the last place it could read from.
        changes = self._changes_between(last, request, kept_until=last.asked + request.life)
        explained_tokens = max(tokens_read, readable_tokens)
        same_tokens = request.tokens_before_piece(same_count)
        if explained_tokens < same_tokens:
            causes = causes_of_everything or _causes_of_first_place(changes)
            if not causes:
                causes = (Cause(CauseKind.RULES, "behind the last mark"),)
            yield same_tokens - explained_tokens, causes

        # What is new or changed. Some agents send pieces of the last request once more.
        sent_again = frozenset(map(_comparable_piece, last.pieces[same_count:]))
        yield from self._explain_uncached_pieces(
            request, same_count, explained_tokens, changes, causes_of_everything, sent_again
        )

    def _causes_of_everything(
        self, request: _AskedRequest, last: _AskedRequest, tokens_read: int
    ) -> tuple[Cause, ...]:
        """Return what makes a provider cache a whole request again: a pause or another model."""
        causes = []
        pause = request.asked - last.asked
        if pause > request.life:
            causes.append(Cause(CauseKind.TIME, describe_pause(pause)))
        has_other_effort = request.view.effort != last.view.effort
        if self._last_model != request.reply.model:
            causes.append(Cause(CauseKind.MODEL, f"from {self._last_model}"))
        elif has_other_effort and not _survives_another_effort(request, last, tokens_read):
            causes.append(Cause(CauseKind.MODEL, "another thinking time"))
        return tuple(causes)

    def _changes_between(
        self, last: _AskedRequest, request: _AskedRequest, *, kept_until: float
    ) -> list[ChangePlace]:
        """Return changes between two requests, without folds after the cache had expired."""
        has_same_head = _comparable_head(last.pieces) == _comparable_head(request.pieces)
        changes = []
        for change in find_changes_between_requests(
            self.facts, last.pieces[:1], request.pieces[:1], last.view.seq, request.view.seq
        ):
            kind = change.cause.kind
            if kind is CauseKind.FOLD and min(change.time, request.asked) > kept_until:
                continue
            if kind is CauseKind.SYSTEM and has_same_head:
                continue
            changes.append(change)
        same_count = _count_same_pieces(last.pieces, request.pieces)
        effective = _effective_changes(changes, request.pieces, same_count)
        return sorted(effective, key=lambda change: change.place)

    def _readable_tokens(
        self, request: _AskedRequest, earlier: _AskedRequest | None, same_count: int
    ) -> int:
        """Return how many tokens the provider could have read from its cache: up to the end of an
        earlier request whose pieces all begin this one.
        """
        if earlier is None or not same_count:
            return 0
        if same_count == len(earlier.pieces):
            return min(earlier.cached_tokens, request.ends[same_count - 1])
        if self.was_imported(request.view.seq):
            return 0
        ends_of_earlier_requests = request.places[:-1]  # The last one is its own.
        return request.tokens_before_piece(max(ends_of_earlier_requests, default=0))

    def _explain_uncached_pieces(
        self,
        request: _AskedRequest,
        same_count: int,
        explained_tokens: int,
        changes: Sequence[ChangePlace],
        causes_of_everything: tuple[Cause, ...],
        sent_again: frozenset[ComparablePiece],
    ) -> Iterator[Segment]:
        """Explain the pieces after the cached ones: new, or sent again after a change
        before them.
        """
        causes = list(causes_of_everything)
        changes_ahead = deque(changes)
        for number in range(same_count, len(request.pieces)):
            piece = request.pieces[number]
            first_seq = first_seq_in_piece(piece)
            # A change explains all that comes behind it.
            while changes_ahead and changes_ahead[0].place <= first_seq:
                cause = changes_ahead.popleft().cause
                if cause not in causes:
                    causes.append(cause)
            unexplained_from = max(explained_tokens, request.tokens_before_piece(number))
            tokens = request.ends[number] - unexplained_from
            if tokens <= 0:
                continue
            if self._is_new_piece(piece, first_seq, sent_again):
                yield tokens, (Cause(CauseKind.NEW),)
            elif causes:
                yield tokens, tuple(causes)
            else:
                yield tokens, (Cause(CauseKind.UNKNOWN),)

    def _is_new_piece(
        self, piece: SentPiece, first_seq: int, sent_again: frozenset[ComparablePiece]
    ) -> bool:
        """Whether no request so far had it. `sent_again`: what was just sent at another place."""
        if isinstance(piece, ToolsOffered) or piece.role is Role.SYSTEM:
            return False
        return first_seq > self._newest_seq_sent and _comparable_piece(piece) not in sent_again

    def _why_not_cached(
        self,
        missing_tokens: int,
        request: _AskedRequest,
        same_count: int,
        earlier: _AskedRequest | None,
        causes_of_everything: tuple[Cause, ...],
    ) -> tuple[Cause, ...]:
        """Explain why the provider did not read from its cache what it had been sent before.

        The first of these that holds is named: too little to matter, a cause that concerns the
        whole request, a rule of the provider, and what an imported recording may lack.
        """
        if missing_tokens <= CACHE_UNIT:
            return (Cause(CauseKind.RULES, "less than a unit of the cache"),)
        if causes_of_everything:
            return causes_of_everything
        broken_rule = self._find_broken_cache_rule(request, same_count, earlier)
        if broken_rule:
            return (Cause(CauseKind.RULES, broken_rule),)
        lacks_head = self.was_imported(request.view.seq) and not request.view.tools
        if not lacks_head:
            return (Cause(CauseKind.NOT_KEPT),)
        if self._joins_requests(request, earlier, same_count):
            return (Cause(CauseKind.EDIT, "messages of two requests at once were joined"),)
        return (Cause(CauseKind.UNKNOWN, "the recording lacks the system prompt and the tools"),)

    def _find_broken_cache_rule(
        self, request: _AskedRequest, same_count: int, earlier: _AskedRequest | None
    ) -> str:
        """Say which rule of the provider kept it from caching the same pieces, or nothing."""
        terms = cache_terms_of_model(request.reply.model)
        earlier_usage = Usage()
        if earlier is not None:
            earlier_usage = earlier.reply.usage
        was_cached = earlier_usage.cache_read > 0 or earlier_usage.cache_write > 0
        if not was_cached and request.ends[same_count - 1] < terms.least_tokens:
            return "too short"
        # A foreign agent sets its own marks, and a provider looks back only so far from one.
        has_own_marks = self._marks_prefixes and request.reply.stable is None
        look_back = terms.look_back_blocks or LOOK_BACK_BLOCKS
        if has_own_marks and len(request.pieces) - same_count > look_back:
            return "too far in front of a mark"
        return ""

    def _note_request_aside(
        self, request: _AskedRequest, earlier: _AskedRequest | None, same_count: int
    ) -> None:
        """Remember the last request's size if this one seems to continue another conversation
        beside it: it is smaller, and nearly all of it was cached.
        """
        model = request.reply.model
        usage = request.reply.usage
        if usage.input >= self._aside.get(model, 0):
            self._aside.pop(model, None)
        if earlier is None or same_count < len(earlier.pieces):
            return
        is_smaller = usage.input + CACHE_UNIT < earlier.reply.usage.input
        if is_smaller and usage.cache_read > usage.input * READ_ALONE:
            self._aside[model] = earlier.reply.usage.input

    def _joins_requests(
        self, request: _AskedRequest, earlier: _AskedRequest | None, same_count: int
    ) -> bool:
        """Whether two parallel requests were joined, as much more is new than was recorded."""
        if earlier is None:
            return False
        input_of_aside = self._aside.get(request.reply.model, 0)
        request_input = request.reply.usage.input
        recorded_tokens = sum(piece.tokens for piece in request.pieces[same_count:])
        growth = request_input - earlier.reply.usage.input
        return 0 < input_of_aside <= request_input and growth > 2 * recorded_tokens

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
        dollars = compute_cost(usage, settings)
        weighed_causes = _weigh_causes(segments, usage, relative_prices(settings))
        total_weight = sum(weighed.weight for weighed in weighed_causes.values())
        cause_costs = []
        for cause, weighed in weighed_causes.items():
            if not weighed.tokens and not weighed.weight:
                continue
            cost = 0.0
            if total_weight:
                cost = dollars * weighed.weight / total_weight
            cause_costs.append(CauseCost(cause, weighed.tokens, cost))
        return RequestCost(
            seq=recorded.seq,
            time=recorded.time,
            model=model,
            tokens=usage.input,
            cost=dollars,
            causes=tuple(cause_costs),
            are_repeats_cheaper=relative_prices(settings).read < 1,
        )


@dataclass(slots=True)
class _WeighedCause:
    """A cause's tokens, and what they cost in proportion to the request's other tokens."""

    tokens: int = 0
    weight: float = 0.0


def _weigh_causes(
    segments: Iterable[Segment], usage: Usage, prices: RelativePrices
) -> dict[Cause, _WeighedCause]:
    """Return the causes of a request's tokens, and at the end that of the reply.

    A request's tokens stand in this order: read from the cache, written to it, neither.
    """
    end_of_read = usage.cache_read
    end_of_written = min(usage.input, usage.cache_read + usage.cache_write)
    write_price = prices.write * usage.priced_cache_write / max(1, usage.cache_write)
    weighed_causes: dict[Cause, _WeighedCause] = {}
    start = 0
    for cause, tokens in _split_between_causes(segments):
        end = start + tokens
        tokens_read = max(0, min(end, end_of_read) - start)
        tokens_written = max(0, min(end, end_of_written) - max(start, end_of_read))
        plain_tokens = tokens - tokens_read - tokens_written
        weighed = weighed_causes.setdefault(cause, _WeighedCause())
        weighed.tokens += tokens
        weighed.weight += tokens_read * prices.read + tokens_written * write_price + plain_tokens
        start = end
    weighed_causes[Cause(CauseKind.REPLY)] = _WeighedCause(weight=usage.output * prices.output)
    return weighed_causes


def _shows_lost_cache(
    request: _AskedRequest, earlier: _AskedRequest | None, same_count: int
) -> bool:
    """Return whether the provider's own figures show that it had cached something and lost it: it
    reported what it wrote, or it read more of the same pieces before.

    Some servers report only what they read. Of the rest, nobody knows whether it was ever cached.
    """
    if earlier is None:
        return False
    usage = request.reply.usage
    earlier_usage = earlier.reply.usage
    if usage.cache_write > 0 or earlier_usage.cache_write > 0:
        return True
    same_tokens = request.tokens_before_piece(same_count)
    read_before = min(earlier_usage.cache_read, same_tokens)
    return usage.cache_read + CACHE_UNIT < read_before


def _causes_of_first_place(changes: Sequence[ChangePlace]) -> tuple[Cause, ...]:
    """Return the causes of all changes that are at the place of the first one."""
    if not changes:
        return ()
    first_place = changes[0].place
    return tuple(change.cause for change in changes if change.place == first_place)


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
    """Explain every reported request in order.

    A fork is a conversation that begins with a copy of another one's facts. Only its own requests
    are explained. `original`: the facts of the other one, whose last request before the fork is
    in the provider's cache, too.
    """
    fork = _find_start_of_fork(facts)
    if fork is None:
        return list(_explain_requests_after(RequestCostReader(facts, prices)))
    if not original:
        costs = _explain_requests_after(RequestCostReader(facts, prices))
        return [cost for cost in costs if cost.seq > fork.seq]

    facts_until_fork = [recorded for recorded in original if recorded.time <= fork.time]
    original_reader = RequestCostReader(facts_until_fork, prices)
    for _ in _explain_requests_after(original_reader):
        pass  # The reader remembers the original's last request, and nothing else is needed.
    fork_reader = original_reader.reader_for_fork(facts, fork.seq - 1)
    return list(_explain_requests_after(fork_reader, fork.seq))


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
    replies_and_rewinds = []
    for recorded in facts:
        if isinstance(recorded.fact, ModelReplied | Rewound):
            replies_and_rewinds.append(recorded)
    seqs_of_partial_replies = set()
    for index in range(len(replies_and_rewinds) - 2):
        reply, rewind, same_reply_again = replies_and_rewinds[index : index + 3]
        if isinstance(rewind.fact, Rewound) and reply.time == same_reply_again.time:
            seqs_of_partial_replies.add(reply.seq)
    return seqs_of_partial_replies


def _explain_requests_after(reader: RequestCostReader, after_seq: int = 0) -> Iterator[RequestCost]:
    """Explain the requests of a conversation that were answered after the fact `after_seq`."""
    newest_seqs_in_requests: set[int] = set()
    for recorded in reader.facts:
        if isinstance(recorded.fact, ModelReplied):
            newest_seqs_in_requests.add(newest_fact_seen_by(recorded))
    partial_replies = _replies_imported_in_part(reader.facts)

    state = ConversationState()
    # By the newest fact that a request contained: the view that it sent.
    views: dict[int, View] = {}
    for recorded in reader.facts:
        state.advance_state(recorded)
        if recorded.seq in newest_seqs_in_requests:
            views[recorded.seq] = state.get_view()
        if recorded.seq <= after_seq or recorded.seq in partial_replies:
            continue
        fact = recorded.fact
        if isinstance(fact, ModelReplied) and fact.usage.input > 0:
            view_sent = views.get(newest_fact_seen_by(recorded))
            if view_sent is None:
                view_sent = state.past_moment(0).get_view()
            yield reader.explain_and_remember_reply(recorded, fact, state, view_sent)
        elif isinstance(fact, Spent) and fact.usage.input > 0:
            yield reader.explain_request_beside_steps(recorded, fact, state)


def explain_costs_of_last_turn(state: ConversationState) -> list[RequestCost]:
    """Explain the last turn's steps, compared with the last request before it, if made here."""
    first_seq_of_turn = min(state.branch.turn.words, default=1)
    reader = RequestCostReader(state.facts, lambda _: None)
    replies_before_turn: list[int] = []
    replies_to_read: list[int] = []
    for seq in _seqs_of_own_billed_replies(state):
        if seq < first_seq_of_turn:
            replies_before_turn.append(seq)
        else:
            replies_to_read.append(seq)
    # What an import brought in may lack what the provider was sent.
    if replies_before_turn and not reader.was_imported(replies_before_turn[-1]):
        replies_to_read.insert(0, replies_before_turn[-1])
    costs = []
    for seq in replies_to_read:
        recorded = state.facts[seq - 1]
        if isinstance(recorded.fact, ModelReplied):
            view = state.past_moment(newest_fact_seen_by(recorded)).get_view()
            costs.append(reader.explain_and_remember_reply(recorded, recorded.fact, state, view))
    return [cost for cost in costs if cost.seq >= first_seq_of_turn]


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


def _piece_ends_as_billed(
    request: _AskedRequest, earlier: _AskedRequest | None, same_count: int
) -> list[int]:
    """Return the billed tokens up to each piece's end.

    A provider bills only the whole request. Pieces that an earlier request had keep their
    tokens, and the others share the rest in proportion to what was counted for them.
    """
    billed_tokens = request.reply.usage.input
    known_ends: list[int] = []
    if earlier is not None:
        known_ends = earlier.ends[:same_count]
    counted = [piece.tokens for piece in request.pieces[len(known_ends) :]]
    start_of_others = 0
    if known_ends:
        start_of_others = known_ends[-1]
        if billed_tokens - start_of_others < sum(counted) // 3:
            # The provider now bills less for the same text.
            start_of_others = max(0, billed_tokens - sum(counted))
    elif not request.view.tools and billed_tokens > sum(counted) * (1 + HIDDEN_HEAD_SHARE):
        # The recording lacks its system prompt and tools.
        counted[0] = billed_tokens - sum(counted)

    ends = [min(end, start_of_others) for end in known_ends]
    tokens_to_share = billed_tokens - start_of_others
    total_counted = max(1, sum(counted))
    for counted_so_far in accumulate(counted):
        ends.append(start_of_others + tokens_to_share * counted_so_far // total_counted)
    ends[-1] = billed_tokens
    return ends


def _count_same_pieces(
    earlier_pieces: Sequence[SentPiece], later_pieces: Sequence[SentPiece]
) -> int:
    """Return how many of the first pieces are the same bytes for a provider."""
    same_count = 0
    for earlier, later in zip(earlier_pieces, later_pieces, strict=False):
        if earlier is not later and _comparable_piece(earlier) != _comparable_piece(later):
            break
        same_count += 1
    return same_count


def _comparable_piece(piece: SentPiece) -> ComparablePiece:
    if isinstance(piece, ToolsOffered):
        return (piece.tools,)
    return piece.role, piece.content, piece.call, piece.ok


def _comparable_head(pieces: Sequence[SentPiece]) -> list[ComparablePiece]:
    """Return the system prompt and rules of a request, without its tools."""
    return [_comparable_piece(piece) for piece in pieces[1 : _count_head_pieces(pieces)]]


def _survives_another_effort(request: _AskedRequest, last: _AskedRequest, tokens_read: int) -> bool:
    """Whether the cache is valid for any thinking time, as it always is or as the
    provider read many of the messages.
    """
    if CACHED_BY_CONTENTS in request.reply.model:
        return True
    head_tokens = last.ends[_count_head_pieces(last.pieces) - 1]
    message_tokens = last.ends[-1] - head_tokens
    return tokens_read > head_tokens + message_tokens * FAR_READ_SHARE


def _count_head_pieces(pieces: Sequence[SentPiece]) -> int:
    """Count the tools and the parts of the system prompt, which stand before all messages."""
    count = 0
    for piece in pieces:
        if first_seq_in_piece(piece) > 0:
            break
        count += 1
    return count


def _effective_changes(
    changes: Sequence[ChangePlace], pieces: Sequence[SentPiece], same_count: int
) -> list[ChangePlace]:
    """Return the changes after the last equal piece: only these changed what was sent."""
    if not same_count:
        return list(changes)
    last_equal_seq = first_seq_in_piece(pieces[same_count - 1])
    changes_behind = [change for change in changes if change.place >= last_equal_seq]
    return changes_behind or list(changes)
