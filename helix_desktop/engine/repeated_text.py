"""Notices when a model has begun to say the same thing again and again.

Small models fall into this, and then write until the window is full. What repeats must
follow itself without a gap, so a model that shows the same code twice is left alone. The
numbers of a list count on while its entries are the same, so they are not compared.
"""

import re
from dataclasses import field

from helix_desktop.engine.messages import CallDelta, Delta, ReasoningDelta, TextDelta
from helix_desktop.fast_dataclass import dataclass

_WORD_OR_SIGN = re.compile(r"[A-Za-z]+|[^A-Za-z ]| (?=[0-9])")
# A shorter end of a text is not looked for before it: a line may stand there a few times.
LEAST_REPEATED_BYTES = 400
LONGEST_PERIOD_BYTES = 8_000
CHECKED_EVERY_BYTES = 200  # A check costs about 0.2 ms.
_NUMBER_OF_LIST_ENTRY = re.compile(rb"(?m)^[ \t]*\d+(?=[.)])")
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")


@dataclass(frozen=True, slots=True)
class RepetitionLimit:
    """A repetition that has so many bytes, or so many tokens, is stopped. Each word and each
    other character is counted as a token, because the model's own tokens are not known here.
    """

    most_bytes: int
    most_tokens: int


LIMIT_IN_TEXT = RepetitionLimit(most_bytes=1_600, most_tokens=400)
# A file may rightly repeat itself, so the arguments of calls are given more.
LIMIT_IN_CALL = RepetitionLimit(most_bytes=16_000, most_tokens=16_000)


@dataclass(frozen=True, slots=True)
class Repetition:
    """`kept_bytes`: how much of the text stands before what repeats itself a third time.
    `start`: where the first of what repeats itself begins.
    """

    period_bytes: int
    kept_bytes: int
    start: int


def find_repetition(text: bytes) -> Repetition | None:
    """Return how the end of a text repeats what stands right before, or None.

    The last bytes of the text are looked for before it. Their distance is the length of what
    repeats itself, the period. From there, its first occurrence is looked for further back.
    """
    compared = _NUMBER_OF_LIST_ENTRY.sub(_number_as_zeros, text)
    if len(compared) < LEAST_REPEATED_BYTES:
        return None
    tail_start = len(compared) - LEAST_REPEATED_BYTES
    tail = compared[tail_start:]
    earliest = max(0, tail_start - LONGEST_PERIOD_BYTES)
    earlier_start = compared.rfind(tail, earliest, len(compared) - 1)
    if earlier_start < 0:
        return None
    period = tail_start - earlier_start
    is_longer_than_tail = period > LEAST_REPEATED_BYTES
    if is_longer_than_tail and compared[-period:] != compared[-2 * period : -period]:
        return None  # The same passage, but not one after the other.

    start = earlier_start
    while start > 0 and compared[start - 1] == compared[start - 1 + period]:
        start -= 1
    kept_bytes = min(start + 2 * period, len(compared))
    return Repetition(period, kept_bytes=kept_bytes, start=start)


def find_repetition_over_limit(text: bytes, limit: RepetitionLimit) -> Repetition | None:
    """Return how the end of a text repeats itself if it does so up to the limit, or None."""
    repetition = find_repetition(text)
    if repetition is None:
        return None
    first_end = repetition.start + repetition.period_bytes
    repeated = text[first_end:]
    if len(repeated) >= limit.most_bytes:
        return repetition
    tokens = _WORD_OR_SIGN.findall(repeated.decode("utf-8", "ignore"))
    if len(tokens) < limit.most_tokens:
        return None
    return repetition


def _number_as_zeros(number: re.Match[bytes]) -> bytes:
    """Return zeros in the place of a list's number, as many as it has digits."""
    return number[0].translate(_DIGITS_TO_ZERO)


@dataclass(slots=True)
class _WatchedText:
    limit: RepetitionLimit = LIMIT_IN_TEXT
    text: bytearray = field(default_factory=bytearray)
    unchecked_bytes: int = 0

    def add_watched_piece(self, piece: str) -> Repetition | None:
        """Add a piece of the text as it arrives. Return a repetition that exceeds the limit.

        Only every `CHECKED_EVERY_BYTES` bytes, the end of the text is searched. What is found
        there is then counted from the beginning of the whole text.
        """
        encoded = piece.encode("utf-8", "replace")
        self.text += encoded
        self.unchecked_bytes += len(encoded)
        if self.unchecked_bytes < CHECKED_EVERY_BYTES:
            return None
        self.unchecked_bytes = 0
        recent = bytes(self.text[-(self.limit.most_bytes + 2 * LONGEST_PERIOD_BYTES) :])
        repetition = find_repetition_over_limit(recent, self.limit)
        if repetition is None:
            return None
        left_out = len(self.text) - len(recent)
        return Repetition(
            repetition.period_bytes,
            kept_bytes=left_out + repetition.kept_bytes,
            start=left_out + repetition.start,
        )


@dataclass(slots=True)
class RepetitionWatch:
    """Reads a streamed reply: its text, its thoughts and the arguments of its calls."""

    text: _WatchedText = field(default_factory=_WatchedText)
    thoughts: _WatchedText = field(default_factory=_WatchedText)
    arguments: _WatchedText = field(default_factory=lambda: _WatchedText(LIMIT_IN_CALL))
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
        kept_content = self.text.text[: self.text_repetition.kept_bytes]
        return kept_content.decode("utf-8", "ignore")
