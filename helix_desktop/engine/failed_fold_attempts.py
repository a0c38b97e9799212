"""Counts the folds in a row that could not be written, and says when no more are tried.

A model that cannot write a handover would be asked again every few steps: 152 requests
beside 237 steps were paid for in one conversation, and none was of use. So each attempt
waits twice as long as the one before, and after the last one old parts are shortened
without a model. A rewind changes nothing here, because what was tried was paid.
"""

from collections import defaultdict

from helix_desktop.engine import facts
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.fold_kinds import KINDS_WRITTEN_BY_MODEL
from helix_desktop.fast_dataclass import dataclass

FIRST_PAUSE_SECONDS = 60.0


@dataclass(slots=True)
class FailedAttempts:
    """The attempts since a fold of this kind last worked, and what was paid for them."""

    count: int = 0
    last_time: float = 0.0
    tokens: int = 0
    dollars: float = 0.0

    @property
    def pause_seconds(self) -> float:
        """Return how long to wait: twice as long after each failure."""
        if not self.count:
            return 0.0
        doublings = self.count - 1
        return FIRST_PAUSE_SECONDS * 2.0**doublings

    def describe_cost(self) -> str:
        if self.dollars:
            return f"${self.dollars:.2f}"
        return f"{self.tokens:,} tokens"


class FailedFoldAttempts:
    """Follows a conversation's facts. Each fact is read once."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._read_count = 0  # How many of the facts were read.
        self._attempts: dict[facts.FoldKind, FailedAttempts] = defaultdict(FailedAttempts)

    def attempts_of(self, kind: facts.FoldKind) -> FailedAttempts:
        recorded_facts = self._conversation.state.facts
        for recorded in recorded_facts[self._read_count :]:
            self._read_fact(recorded)
        self._read_count = len(recorded_facts)
        return self._attempts[kind]

    def is_over(self, kind: facts.FoldKind) -> bool:
        """Whether so many attempts failed that no more are made."""
        return self.attempts_left(kind) <= 0

    def attempts_left(self, kind: facts.FoldKind) -> int:
        return self._conversation.policy.failures - self.attempts_of(kind).count

    def next_way(self, kind: facts.FoldKind) -> slice:
        """Return which of the ways to write a document the next attempt uses: one it has not."""
        count = self.attempts_of(kind).count
        return slice(count, count + 1)

    def ways_left(self, kind: facts.FoldKind) -> slice:
        """Return all ways that may still be tried, if there is no time to wait between them."""
        first_untried = self.attempts_of(kind).count
        return slice(first_untried, self._conversation.policy.failures)

    def is_waiting(self, kind: facts.FoldKind, now: float) -> bool:
        attempts = self.attempts_of(kind)
        seconds_since_failure = now - attempts.last_time
        # It is negative if the computer's clock has been set back.
        return 0 <= seconds_since_failure < attempts.pause_seconds

    def _read_fact(self, recorded: facts.Recorded) -> None:
        """Count a failure and what attempts have cost. A success begins the count anew, and so
        does the user who wants it to be tried again.
        """
        match recorded.fact:
            case facts.FoldFailed(kind=kind):
                attempts = self._attempts[kind]
                attempts.count += 1
                attempts.last_time = recorded.time
            case facts.Folded(kind=kind) | facts.BreakerClosed(kind=kind):
                self._attempts[kind] = FailedAttempts()
            case facts.Spent(purpose=purpose, usage=usage) if (
                purpose.value in KINDS_WRITTEN_BY_MODEL
            ):
                attempts = self._attempts[facts.FoldKind(purpose.value)]
                attempts.tokens += usage.input + usage.output
                attempts.dollars += usage.cost

    def describe_failure(self, kind: facts.FoldKind, why: str) -> str:
        """Return the reason to record with a failure: the last one also says what follows."""
        if kind not in KINDS_WRITTEN_BY_MODEL or self.attempts_left(kind) != 1:
            return why
        attempts = self.attempts_of(kind)
        return (
            f"After {attempts.count + 1} failed attempts, which cost {attempts.describe_cost()}, "
            "nothing of this kind is tried in this conversation any more. "
            "Old parts are shortened without a model instead. "
            f"The last attempt failed: {why}"
        )
