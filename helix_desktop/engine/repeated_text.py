"""Notices when a model has begun to say the same thing again and again.

Small models fall into this, and then write until the window is full. What repeats must
follow itself without a gap, so a model that shows the same code twice is left alone.
"""

from dataclasses import field

from helix_desktop.engine.messages import CallDelta, Delta, ReasoningDelta, TextDelta
from helix_desktop.fast_dataclass import dataclass

# About 400 tokens: 4 characters are a token in most languages, and a Chinese character,
# which has 3 bytes, is one.
REPEATED_BYTES = 1_600
# A file may rightly repeat itself, so the arguments of calls are given more.
REPEATED_BYTES_IN_CALL = 16_000
LONGEST_PERIOD_BYTES = 8_000
CHECKED_EVERY_BYTES = 200  # A check costs about 0.02 ms.


@dataclass(frozen=True, slots=True)
class Repetition:
    """`kept_bytes`: how much of the text stands before what repeats itself a third time."""

    period_bytes: int
    kept_bytes: int


def find_repetition(text: bytes, repeated_bytes: int = REPEATED_BYTES) -> Repetition | None:
    """Return how the end of a text repeats itself, or None if less than `repeated_bytes`
    at its end is a repetition of what stands right before.
    """
    tail = text[-repeated_bytes:]
    if len(tail) < repeated_bytes:
        return None
    earliest = max(0, len(text) - repeated_bytes - LONGEST_PERIOD_BYTES)
    earlier = text.rfind(tail, earliest, len(text) - 1)
    if earlier < 0:
        return None
    period = len(text) - repeated_bytes - earlier
    if period > repeated_bytes and text[-period:] != text[-2 * period : -period]:
        return None  # The same passage, but not one after the other.
    start = len(text) - repeated_bytes - period
    while start > 0 and text[start - 1] == text[start - 1 + period]:
        start -= 1
    return Repetition(period, min(start + 2 * period, len(text)))


@dataclass(slots=True)
class _WatchedText:
    most_repeated_bytes: int = REPEATED_BYTES
    text: bytearray = field(default_factory=bytearray)
    unchecked_bytes: int = 0

    def add_watched_piece(self, piece: str) -> Repetition | None:
        encoded = piece.encode("utf-8", "replace")
        self.text += encoded
        self.unchecked_bytes += len(encoded)
        if self.unchecked_bytes < CHECKED_EVERY_BYTES:
            return None
        self.unchecked_bytes = 0
        recent = bytes(self.text[-(self.most_repeated_bytes + 2 * LONGEST_PERIOD_BYTES) :])
        repetition = find_repetition(recent, self.most_repeated_bytes)
        if repetition is None:
            return None
        left_out = len(self.text) - len(recent)
        return Repetition(repetition.period_bytes, left_out + repetition.kept_bytes)


@dataclass(slots=True)
class RepetitionWatch:
    """Reads a streamed reply: its text, its thoughts and the arguments of its calls."""

    text: _WatchedText = field(default_factory=_WatchedText)
    thoughts: _WatchedText = field(default_factory=_WatchedText)
    arguments: _WatchedText = field(default_factory=lambda: _WatchedText(REPEATED_BYTES_IN_CALL))
    text_repetition: Repetition | None = None

    def is_repeating(self, delta: Delta) -> bool:
        """Whether the reply repeats itself with this delta."""
        if isinstance(delta, TextDelta):
            self.text_repetition = self.text.add_watched_piece(delta.text)
            return self.text_repetition is not None
        if isinstance(delta, ReasoningDelta):
            return self.thoughts.add_watched_piece(delta.text) is not None
        if isinstance(delta, CallDelta):
            return self.arguments.add_watched_piece(delta.arguments) is not None
        return False

    def written_text(self) -> str:
        """Return the reply's text so far, as the model wrote it."""
        return self.text.text.decode("utf-8", "ignore")

    def text_without_repetitions(self) -> str:
        """Return the reply's text so far, with two of what it repeated."""
        if self.text_repetition is None:
            return self.written_text()
        return self.text.text[: self.text_repetition.kept_bytes].decode("utf-8", "ignore")
