"""Several answers to one message: each begins after the message, or with the rewind that asked again, and goes on to its own end."""

from __future__ import annotations

from dataclasses import dataclass, field

from helix_desktop.engine.facts import Rewound, UserSaid
from helix_desktop.engine.history.record import Record, Run


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of the answers is shown, from 1, and the newest fact of each. One answer is no choice."""

    number: int = 0
    ends: tuple[int, ...] = ()

    def beside(self, by: int) -> int:
        """The end of the answer before or after the one shown; 0 where there is none."""
        at = self.number - 1 + by
        return self.ends[at] if 0 <= at < len(self.ends) else 0


@dataclass(slots=True)
class Answers:
    """`_begins`: of every message that was answered again, where each answer begins; `_ends`: where it was left."""

    _begins: dict[int, list[int]] = field(default_factory=dict)
    _ends: dict[int, int] = field(default_factory=dict)

    def rewound(self, seq: int, fact: Rewound, record: Record) -> None:
        """A rewind at `seq`: the answers on the way to the fact before it are left there."""
        if fact.again and 0 < fact.to < seq - 1 and isinstance(record.facts[fact.to - 1].fact, UserSaid):
            self._begins.setdefault(fact.to, [fact.to + 1]).append(seq)
        way = record.path(seq - 1)
        for begins in self._begins.values():
            for begin in begins:
                if _on(way, begin):
                    self._ends[begin] = seq - 1

    def of(self, message: int, record: Record, now: int) -> Choice:
        begins = self._begins.get(message, ())
        way = record.path(now) if begins else []
        shown = next((number for number, begin in enumerate(begins, 1) if _on(way, begin)), 0)
        if not shown:
            return Choice()
        return Choice(shown, tuple(now if at == shown else self._ends[begin] for at, begin in enumerate(begins, 1)))


def _on(way: list[Run], seq: int) -> bool:
    return any(first <= seq <= last for first, last in way)
