"""What requests would be billed: a provider's cache that holds the longest common prefix with the request before.

The unit is one fresh input token. Tokens are those of o200k_base, four more for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from helix_desktop.engine.blocks import Image, MessagePart, Request, Role, ToolResult
from helix_desktop.engine.economics import Prices
from helix_desktop.engine.facts import Reasoning, Text, ToolCall, Usage
from helix_desktop.histories.recording import RecordedMessage

MESSAGE_TOKENS = 4
IMAGE_TOKENS = 1_600
SYSTEM_TOKENS = 6_000  # system prompt and tools, in every request

Count = Callable[[str], int]
Piece = tuple[object, int]  # what stands there, to be compared, and its tokens


@dataclass(slots=True)
class Ledger:
    """What one session sent and what it was billed. `window` decides what overflowed."""

    prices: Prices
    window: int
    sent: int = 0
    billed: float = 0.0
    cache_read: int = 0
    output: int = 0
    peak: int = 0
    overflowed: int = 0
    steps: list[int] = field(default_factory=list)  # the tokens of each step's request
    _before: Sequence[Piece] = ()

    def step(self, pieces: Sequence[Piece], output: int) -> Usage:
        """One request of the agent itself, and the usage a provider would report."""
        usage = self.cached(pieces, output)
        self.steps.append(usage.input)
        return usage

    def cached(self, pieces: Sequence[Piece], output: int) -> Usage:
        """A request to the main model: a step, or a summary over the same prefix."""
        total, known = sum(tokens for _, tokens in pieces), common(self._before, pieces)
        self._before = pieces
        self._count(total, output)
        self.cache_read += known
        self.billed += known * self.prices.read + (total - known) * self.prices.write + output * self.prices.output
        return Usage(input=total, cache_read=known, cache_write=total - known, output=output)

    def aside(self, pieces: Sequence[Piece], output: int) -> Usage:
        """A request to another model, at the same prices and without its cache."""
        total = sum(tokens for _, tokens in pieces)
        self.sent += total
        self.output += output
        self.billed += total + output * self.prices.output
        return Usage(input=total, output=output)

    def _count(self, total: int, output: int) -> None:
        self.sent += total
        self.output += output
        self.peak = max(self.peak, total)
        self.overflowed += total > self.window


def common(before: Sequence[Piece], now: Sequence[Piece]) -> int:
    """The tokens of the longest common prefix."""
    known = 0
    for (one, _), (other, tokens) in zip(before, now, strict=False):
        if one is not other and one != other:
            break
        known += tokens
    return known


def pieces_of(request: Request, system_tokens: int, count: Count) -> list[Piece]:
    """A request as the cache sees it: the system prompt, then part after part."""
    made: list[Piece] = [(request.system, system_tokens)]
    for message in request.messages:
        said = any(not isinstance(part, ToolCall) for part in message.parts)
        silent = 0 if said or message.role is Role.USER else MESSAGE_TOKENS
        for part in message.parts:
            made.append((part, part_tokens(part, count) + silent))
            silent = 0
    return made


def part_tokens(part: MessagePart, count: Count) -> int:
    """What a part counts, with the four tokens of the message it begins."""
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


def recorded_pieces(message: RecordedMessage, count: Count) -> Iterator[Piece]:
    """A recorded message sent as it is."""
    yield message, count(message.text) + MESSAGE_TOKENS
    for call in message.calls:
        yield call, count(call.name) + count(call.arguments)


def output_tokens(message: RecordedMessage, count: Count) -> int:
    """What an assistant's message was billed as output."""
    return sum(tokens for _, tokens in recorded_pieces(message, count))


def unmanaged(messages: Sequence[RecordedMessage], prices: Prices, window: int, count: Count) -> Ledger:
    """What sending everything every time would have come to, as if it had been possible beyond the window too."""
    ledger = Ledger(prices, window)
    standing: list[Piece] = [("", SYSTEM_TOKENS)]
    for message in messages:
        if message.role == "assistant":
            ledger.step(list(standing), output_tokens(message, count))
        standing.extend(recorded_pieces(message, count))
    return ledger
