"""What folding has saved: what was sent and paid, beside what the same steps would have sent without any fold.

Without management every step sends all that was said so far; a provider with a cache reads the part it had before
and writes the rest. Sums in the base encoding, kept step by step; `budget.factor` brings them to the model's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from helix_desktop.engine.economics import Prices
from helix_desktop.engine.facts import (
    ModelReplied,
    Recorded,
    Rewound,
    RulesSet,
    Spent,
    SystemSet,
    ToolReturned,
    ToolsOffered,
    Usage,
    UserSaid,
)
from helix_desktop.engine.history.shown import MESSAGE_TOKENS


@dataclass(frozen=True, slots=True)
class Savings:
    """Tokens and dollars. `sent` counts the requests of strategies too; dollars are 0 where no price is known."""

    steps: int
    sent: int
    without: int
    cache_read: int
    paid: float
    paid_without: float

    @property
    def share(self) -> float:
        """The share of tokens that was not sent."""
        return max(0.0, 1 - self.sent / self.without) if self.without else 0.0

    @property
    def cache_share(self) -> float:
        return self.cache_read / self.sent if self.sent else 0.0


@dataclass(slots=True)
class Tally:
    """Takes the facts in as they come; a step costs the same however long the conversation is."""

    taken: int = 0
    steps: int = 0
    _sent: int = 0
    _cache_read: int = 0
    _paid: float = 0.0
    _line: int = 0
    _before: int = 0  # what the last step without management would have sent: cached by the provider
    _old: int = 0
    _new: int = 0
    _output: int = 0
    _heads: dict[str, int] = field(default_factory=dict)
    _lines: list[int] = field(default_factory=lambda: [0])  # by seq: what the line comes to there

    def take(self, facts: Sequence[Recorded]) -> None:
        """Everything that came since the last time."""
        for recorded in facts[self.taken :]:
            self._advance(recorded)
        self.taken = len(facts)

    def _advance(self, recorded: Recorded) -> None:
        match recorded.fact:
            case SystemSet(tokens=tokens) | ToolsOffered(tokens=tokens):
                self._heads[type(recorded.fact).__name__] = tokens
            case RulesSet(path=path, tokens=tokens):
                self._heads[path] = tokens
            case Rewound(to=to):
                self._line = self._lines[min(to, len(self._lines) - 1)]
            case ModelReplied() as reply:
                self._step(reply)
            case Spent(usage=usage):
                self._pay(usage)
            case UserSaid(parts=parts):
                self._line += MESSAGE_TOKENS + sum(part.tokens for part in parts)
            case ToolReturned(tokens=tokens):
                self._line += MESSAGE_TOKENS + tokens
            case _:
                pass
        self._lines.append(self._line)

    def _step(self, reply: ModelReplied) -> None:
        self.steps += 1
        self._pay(reply.usage)
        whole = sum(self._heads.values()) + self._line
        old = min(self._before, whole)
        self._old += old
        self._new += whole - old
        self._before = whole
        written = sum(part.tokens for part in reply.parts)
        self._output += reply.usage.output or written
        self._line += MESSAGE_TOKENS + written

    def _pay(self, usage: Usage) -> None:
        self._sent += usage.input
        self._cache_read += usage.cache_read
        self._paid += usage.cost

    def figures(self, factor: float, prices: Prices | None = None, *, per_million: float = 0.0) -> Savings:
        """`prices` as shares of the input price, which is `per_million` dollars; without them no money is told."""
        old, new = round(self._old * factor), round(self._new * factor)
        paid_without = 0.0
        if prices is not None and per_million:
            paid_without = (old * prices.read + new * prices.write + self._output * prices.output) * per_million / 1e6
        return Savings(self.steps, self._sent, old + new, self._cache_read, self._paid, paid_without)
