"""Computes what requests would be billed if a provider caches prompts as Anthropic documents it.

A request marks up to four of its blocks. It reads from the cache the longest beginning that an
earlier request marked at most 20 blocks before one of its own marks and that was used in the last
five minutes, or in the last hour where a recording shows that this was paid for. The rest, up to its last mark, is written to the cache. Beginnings of less than 1,024
tokens are not cached. The unit is one uncached input token (o200k_base; each message adds four).
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from enum import Enum

from helix_desktop.engine.facts import Reasoning, Text, ToolCall, Usage
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.engine.messages import Image, MessagePart, Request, Role, ToolResult
from helix_desktop.engine.prompt_cache_marks import MarkedRequest
from helix_desktop.engine.prompt_cache_terms import cache_terms_of_model
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.recorded_session import RecordedMessage

MESSAGE_TOKENS = 4  # What each message takes beside its parts.
IMAGE_TOKENS = 1_600  # About what providers bill for a picture.
# The number of tokens in the program's real system prompt and tools (see
# tests/tools/test_workspace_tools.py).
HEAD_TOKENS = 1_900
LOOK_BACK = 20  # In blocks. The provider looks for a cached beginning up to this far before a mark.
LEAST = 1_024  # In tokens. Shorter beginnings are not cached.
LIFETIME = 300.0  # In seconds. A beginning stays cached this long after its last use.
PAUSE = 10.0  # In seconds. The assumed pause between two requests if a session records no times.

OUTLIVED_SHARE = 0.5  # A request that reads this share of the one before found it in the cache.
QUESTION_TOKENS = 300  # What asks for a summary at the window's limit.
SUMMARY_TOKENS = 3_000

Count = Callable[[str], int]
Piece = tuple[object, int]  # A part of a request as a comparable value, and its number of tokens.


class RecallReason(Enum):
    """Why a part is in a request: whether the session itself has it, or a recall brought it."""

    NO = "it is the session's own"
    RECALLED = "a recall by hash brought it"
    SEARCHED = "a search brought it"


ReasonOf = Callable[[object], RecallReason]


def never_recalled(_: object) -> RecallReason:
    return RecallReason.NO


@dataclass(slots=True)
class BillingLedger:
    """Adds up what a session sent and cost. `window` decides which requests overflowed."""

    prices: RelativePrices
    window: int
    least: int = LEAST
    lifetime: float = LIFETIME
    for_an_hour: bool = False  # Writing is charged at the price for an hour, as usage tells.
    plain_tokens: int = 0  # The last tokens of each request, which are never written to the cache.
    sent: int = 0
    billed: float = 0.0
    # The cost of requesting recalls, and of writing and resending their results.
    recalls: float = 0.0
    searches: float = 0.0  # The part of `recalls` that was spent on what only a summary mentions.
    cache_read: int = 0
    output: int = 0
    peak: int = 0
    overflowed: int = 0
    steps: list[int] = field(default_factory=list)  # The number of tokens in each step's request.
    # The last request. Each block is represented by one number.
    _sent: MarkedRequest = MarkedRequest()
    # Hashes of marked beginnings, each with the time of its last use.
    _known: dict[int, float] = field(default_factory=dict)

    def bill_step(
        self,
        pieces: Sequence[Piece],
        output: int,
        seconds: float = 0.0,
        reason_of: ReasonOf = never_recalled,
    ) -> Usage:
        """Bill a step of the agent, and return the usage that a provider would report."""
        usage = self.bill_cached_request(pieces, output, seconds, reason_of, beside=False)
        self.steps.append(usage.input)
        return usage

    def bill_cached_request(
        self,
        pieces: Sequence[Piece],
        output: int,
        seconds: float = 0.0,
        reason_of: ReasonOf = never_recalled,
        *,
        beside: bool = True,
    ) -> Usage:
        """Bill a request to the main model, and return the usage that it would report.

        `seconds` is the time of the request, by which the cache forgets. `beside`: it is no
        step of the conversation, such as one for a summary. `reason_of` tells which parts were
        brought by recalls, whose cost is also counted apart.
        """
        total = sum(tokens for _, tokens in pieces)
        request_before = self._sent
        cached = self._update_cache(pieces, seconds)
        if beside:
            # The conversation's next request continues the one before this.
            self._sent = request_before

        self.sent += total
        self.output += output
        self.peak = max(self.peak, total)
        if total > self.window:
            self.overflowed += 1
        self.cache_read += cached.read
        self.billed += self._cost_of_request(total, cached, output)
        self._add_costs_of_recalled_pieces(pieces, cached, reason_of)

        usage = Usage(
            input=total, cache_read=cached.read, cache_write=cached.written, output=output
        )
        if self.for_an_hour:
            return replace(usage, cache_write_hour=cached.written)
        return usage

    def _cost_of_request(self, total: int, cached: "_CachedTokens", output: int) -> float:
        """Return the cost in tokens: an input token outside the cache costs 1."""
        cost = cached.read * self.prices.read
        cost += cached.written * self.prices.write
        cost += total - cached.read - cached.written
        cost += output * self.prices.output
        return cost

    def _add_costs_of_recalled_pieces(
        self, pieces: Sequence[Piece], cached: "_CachedTokens", reason_of: ReasonOf
    ) -> None:
        tokens_so_far = 0
        for content, tokens in pieces:
            tokens_so_far += tokens
            piece_cost = tokens * self._price_of_token_before(tokens_so_far, cached)
            self._add_cost_if_recalled(piece_cost, reason_of(content))

    def _price_of_token_before(self, end: int, cached: "_CachedTokens") -> float:
        """Return what a token costs by its place: first stand those read, then those written."""
        if end <= cached.read:
            return self.prices.read
        # The few plain tokens are the end of a part that was written but for them.
        if cached.written and end <= cached.read + cached.written + self.plain_tokens:
            return self.prices.write
        return 1.0

    def bill_recall(
        self,
        pieces: Sequence[Piece],
        output: int,
        seconds: float = 0.0,
        *,
        reason: RecallReason = RecallReason.RECALLED,
        reason_of: ReasonOf = never_recalled,
    ) -> Usage:
        """Bill a request whose answer is a recall: the context is read again, and a call written.

        All of it is the recall's cost, since without folds there would be no such request.
        """
        usage = self.bill_cached_request(pieces, output, seconds, reason_of, beside=False)
        own_tokens = 0
        for content, tokens in pieces:
            # What earlier recalls brought was billed to them above.
            if reason_of(content) is RecallReason.NO:
                own_tokens += tokens
        recall_cost = self.prices.read * own_tokens + self.prices.output * output
        self._add_cost_if_recalled(recall_cost, reason)
        return usage

    def _add_cost_if_recalled(self, cost: float, reason: RecallReason) -> None:
        if reason is not RecallReason.NO:
            self.recalls += cost
        if reason is RecallReason.SEARCHED:
            self.searches += cost

    def bill_uncached_request(self, pieces: Sequence[Piece], output: int) -> Usage:
        """Bill a request to another model, at the same prices but without its cache."""
        total = sum(tokens for _, tokens in pieces)
        self.sent += total
        self.output += output
        self.billed += total + output * self.prices.output
        return Usage(input=total, output=output)

    def _update_cache(self, pieces: Sequence[Piece], seconds: float) -> "_CachedTokens":
        """Mark a request as the engine does, and return what it reads from the cache and writes.

        A provider caches the beginning of a request up to each mark. So what was marked before
        and is unchanged can be read again, until its lifetime ends.
        """
        blocks = [hash(content) for content, _ in pieces]
        beginnings = _beginnings_of_request(blocks, pieces)
        self._sent = self._sent.mark_next_request(blocks)
        marks_in_messages = set(self._sent.numbers_of_marked_blocks)
        # Block 0 is the system prompt, after which there is always a mark.
        marked_blocks = sorted(marks_in_messages | {0})
        last_block_read = self._last_block_read(beginnings, marked_blocks, seconds)
        # Reading a beginning keeps all shorter ones in it cached, too.
        for beginning in beginnings[: last_block_read + 1]:
            if beginning.hash in self._known:
                self._known[beginning.hash] = seconds
        for number in marked_blocks:
            if beginnings[number].tokens >= self.least:
                self._known[beginnings[number].hash] = seconds
        tokens_read = 0
        if last_block_read >= 0:
            tokens_read = beginnings[last_block_read].tokens
        request_tokens = beginnings[-1].tokens
        if request_tokens < self.least:
            return _CachedTokens(tokens_read, written=0)
        tokens_written = max(0, request_tokens - tokens_read - self.plain_tokens)
        return _CachedTokens(tokens_read, tokens_written)

    def _last_block_read(
        self, beginnings: Sequence["_Beginning"], marked_blocks: Sequence[int], seconds: float
    ) -> int:
        """Return the number of the block with which the longest cached beginning ends, or -1.

        The provider looks for one only a few blocks before each mark.
        """
        blocks_looked_at: set[int] = set()
        for marked_block in marked_blocks:
            first_block = max(0, marked_block - LOOK_BACK + 1)
            blocks_looked_at.update(range(first_block, marked_block + 1))
        for number in sorted(blocks_looked_at, reverse=True):
            last_used = self._known.get(beginnings[number].hash, -math.inf)
            if seconds - last_used <= self.lifetime:
                return number
        return -1


@dataclass(frozen=True, slots=True)
class _CachedTokens:
    """How many tokens of a request were read from the cache, and how many written to it."""

    read: int
    written: int


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A request's blocks up to one of them, as the cache knows them, and their size."""

    hash: int
    tokens: int


def _beginnings_of_request(blocks: Sequence[int], pieces: Sequence[Piece]) -> list[_Beginning]:
    """Return the beginning that ends with each block of a request.

    Its hash is made of the hash before and the block, so that equal ones have equal content.
    """
    beginnings: list[_Beginning] = []
    chained_hash = 0
    tokens_so_far = 0
    for block, (_, tokens) in zip(blocks, pieces, strict=True):
        chained_hash = hash((chained_hash, block))
        tokens_so_far += tokens
        beginnings.append(_Beginning(chained_hash, tokens_so_far))
    return beginnings


def billing_pieces(request: Request, system_tokens: int, count: Count) -> list[Piece]:
    """Return the system prompt and each part of a request, with the tokens that each takes."""
    pieces: list[Piece] = [(request.system, system_tokens)]
    for message in request.messages:
        has_only_calls = all(isinstance(part, ToolCall) for part in message.parts)
        # Calls do not count the tokens of the message that they begin, unlike all other parts.
        uncounted_tokens = 0
        if has_only_calls and message.role is not Role.USER:
            uncounted_tokens = MESSAGE_TOKENS
        for part in message.parts:
            pieces.append((part, count_part_tokens(part, count) + uncounted_tokens))
            uncounted_tokens = 0
    return pieces


def count_part_tokens(part: MessagePart, count: Count) -> int:
    """Return the number of tokens in a part, including four if the part begins a message."""
    match part:
        case Text(text=text):
            return count(text) + MESSAGE_TOKENS
        case Reasoning(text=text):
            return count(text)
        case ToolCall(name=name, arguments=arguments):
            return count(name) + count(arguments)
        case ToolResult(text=text, images=images):
            return count(text) + MESSAGE_TOKENS + IMAGE_TOKENS * len(images)
        case Image():
            return IMAGE_TOKENS + MESSAGE_TOKENS


def pieces_of_recorded_message(message: RecordedMessage, count: Count) -> Iterator[Piece]:
    yield message, count(message.text) + MESSAGE_TOKENS
    for call in message.calls:
        yield call, count(call.name) + count(call.arguments)


def count_output_tokens(message: RecordedMessage, count: Count) -> int:
    """Return the number of tokens that are billed as output for an assistant's message."""
    return sum(tokens for _, tokens in pieces_of_recorded_message(message, count))


def request_times(messages: Sequence[RecordedMessage]) -> Iterator[float]:
    """Yield the time of each request of a session, in seconds from its beginning.

    A recording without times has the usual pause before each request.
    """
    request_time = 0.0
    last_recorded_time = 0.0
    for message in messages:
        if message.role != "assistant":
            continue
        pause = PAUSE
        if last_recorded_time and message.time:
            pause = max(0.0, message.time - last_recorded_time)
        request_time += pause
        last_recorded_time = message.time or last_recorded_time
        yield request_time


@dataclass(frozen=True, slots=True)
class CacheOfSession:
    """What caching cost in a session, and how long it lasted."""

    prices: RelativePrices
    lifetime: float = LIFETIME
    for_an_hour: bool = False
    plain_tokens: int = 0  # How many tokens of a request were neither read nor written.

    def open_ledger(self, window: int) -> BillingLedger:
        return BillingLedger(
            self.prices,
            window,
            lifetime=self.lifetime,
            for_an_hour=self.for_an_hour,
            plain_tokens=self.plain_tokens,
        )


def cache_of_recording(
    messages: Sequence[RecordedMessage], assumed: RelativePrices
) -> CacheOfSession:
    """Return the cache that a recorded session really had, where its usage tells.

    Claude Code pays twice the input price for an hour. OpenAI charges nothing for
    writing, and how long it keeps a prompt is seen in what it read after pauses.
    """
    replies = [message for message in messages if message.role == "assistant"]
    models = [reply.model for reply in replies if reply.model and reply.usage.input]
    if not models:
        return CacheOfSession(assumed)
    tokens_written = sum(reply.usage.cache_write for reply in replies)
    tokens_written_for_an_hour = sum(reply.usage.cache_write_hour for reply in replies)
    for_an_hour = tokens_written_for_an_hour > tokens_written / 2
    terms = cache_terms_of_model(models[-1], for_an_hour=for_an_hour)
    lifetime = terms.seconds
    if not terms.is_exact:
        lifetime = max(lifetime, _longest_pause_outlived(replies))
    prices = replace(assumed, write=terms.write)
    return CacheOfSession(prices, lifetime, for_an_hour, _plain_tokens_of_a_request(replies))


def _plain_tokens_of_a_request(replies: Sequence[RecordedMessage]) -> int:
    """Return how many tokens a request pays at the plain price beside what it caches.

    Claude Code pays two. Where a provider reports no writing, nothing is known of them.
    """
    plain_counts = []
    for reply in replies:
        usage = reply.usage
        if usage.cache_write:
            plain_counts.append(usage.input - usage.cache_read - usage.cache_write)
    if not plain_counts:
        return 0
    return max(0, statistics.median_low(plain_counts))


def _longest_pause_outlived(replies: Sequence[RecordedMessage]) -> float:
    """Return the seconds of the longest pause after which a request was still read from the cache."""
    longest_pause = 0.0
    for earlier, later in itertools.pairwise(replies):
        has_times = earlier.time and later.time
        if not has_times or not earlier.usage.input:
            continue
        if later.usage.cache_read >= earlier.usage.input * OUTLIVED_SHARE:
            longest_pause = max(longest_pause, later.time - earlier.time)
    return longest_pause


def bill_with_compaction_at_limit(
    messages: Sequence[RecordedMessage],
    ledger: BillingLedger,
    count: Count,
    head_tokens: int = HEAD_TOKENS,
) -> BillingLedger:
    """Bill a session in which everything is sent as long as it fits, and is summarised then.

    No provider takes a request that is longer than the window, so this is what sending
    everything really means. What a summary lost is not brought back, and costs nothing.
    """
    head: Piece = ("", head_tokens)
    question: Piece = ("question", QUESTION_TOKENS)
    pieces = [head]
    times_of_requests = request_times(messages)
    for message in messages:
        if message.role == "assistant":
            seconds = next(times_of_requests)
            output = count_output_tokens(message, count)
            tokens_to_send = sum(tokens for _, tokens in pieces)
            if tokens_to_send + output > ledger.window:
                pieces.append(question)
                ledger.bill_cached_request(pieces, SUMMARY_TOKENS, seconds)
                # The text only has to differ from that of other summaries.
                summary: Piece = (f"summary before {message.text[:40]}", SUMMARY_TOKENS)
                pieces = [head, summary]
            ledger.bill_step(list(pieces), output, seconds)
        pieces.extend(pieces_of_recorded_message(message, count))
    return ledger


def bill_without_folds(
    messages: Sequence[RecordedMessage],
    ledger: BillingLedger,
    count: Count,
    head_tokens: int = HEAD_TOKENS,
) -> BillingLedger:
    """Bill a session in which everything is sent every time, even beyond the window."""
    pieces: list[Piece] = [("", head_tokens)]
    times_of_requests = request_times(messages)
    for message in messages:
        if message.role == "assistant":
            output = count_output_tokens(message, count)
            ledger.bill_step(list(pieces), output, next(times_of_requests))
        pieces.extend(pieces_of_recorded_message(message, count))
    return ledger
