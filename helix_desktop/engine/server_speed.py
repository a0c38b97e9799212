"""How fast the main model's server reads a prompt and writes a reply, as measured.

A model on this computer may read a long prompt for minutes before its first word. That
is no silence, and nothing that waits for it may give up meanwhile.
"""

from collections import deque
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass

REMEMBERED = 5  # The speeds of so many replies are remembered.
# Fewer tokens take the time of the connection, not of the model.
LEAST_TOKENS = 200
LEAST_WRITTEN_TOKENS = 50
# Tokens in a second of a model of some billion parameters on a processor without a
# graphics card, for as long as nothing has been measured.
SLOW_READING = 40.0
SLOW_WRITING = 4.0
DOCUMENT_TOKENS = 1_500  # A usual summary.
PATIENCE = 2.0  # A server may take this many times as long as measured.


@dataclass(slots=True)
class ServerSpeed:
    """Speeds in tokens a second of the last replies of one conversation."""

    reading: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    writing: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def measure_reply(
        self, *, read_tokens: int, first_word_seconds: float, written_tokens: int, seconds: float
    ) -> None:
        """Remember how fast a reply came. `read_tokens`: those that the server had not cached.

        `first_word_seconds`: until the first word, while the prompt was read.
        """
        if read_tokens >= LEAST_TOKENS and first_word_seconds > 0:
            self.reading.append(read_tokens / first_word_seconds)
        writing_seconds = seconds - first_word_seconds
        if written_tokens >= LEAST_WRITTEN_TOKENS and writing_seconds > 0:
            self.writing.append(written_tokens / writing_seconds)

    def reading_seconds(self, tokens: int, *, is_local: bool) -> float:
        """Return how long the server may be silent while it reads so many tokens. A
        provider's server that was never measured gets no time of its own.
        """
        if self.reading:
            return PATIENCE * tokens / min(self.reading)
        if not is_local:
            return 0.0
        return PATIENCE * tokens / SLOW_READING

    def document_seconds(self, tokens: int, *, is_local: bool) -> float:
        """Return how long reading so many tokens and writing a summary may take."""
        reading_seconds = self.reading_seconds(tokens, is_local=is_local)
        if self.writing:
            tokens_per_second = min(self.writing)
        elif is_local:
            tokens_per_second = SLOW_WRITING
        else:
            return reading_seconds
        return reading_seconds + PATIENCE * DOCUMENT_TOKENS / tokens_per_second
