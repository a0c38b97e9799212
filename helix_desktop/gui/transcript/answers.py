"""Several answers to one message: each begins after the message, or with the rewind that asked again, and goes on to its own end."""

from __future__ import annotations

from dataclasses import field

from helix_desktop.engine.facts import Rewound, UserSaid
from helix_desktop.engine.history.record import Record, Run
from helix_desktop.values import dataclass


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
            if fact.to not in self._begins:
                self._begins[fact.to] = self._first_of(fact.to, seq, record)
            self._begins[fact.to].append(seq)
        self._left(seq, [begin for begins in self._begins.values() for begin in begins], record)

    def _first_of(self, message: int, seq: int, record: Record) -> list[int]:
        """Where the first answer begins, if what follows the message goes on from it; where it was left is looked up."""
        begin = message + 1
        if not on(record.path(begin), message):
            return []
        for rewind in record.rewinds:
            if begin < rewind <= seq:
                self._left(rewind, [begin], record)
        return [begin]

    def _left(self, rewind: int, begins: list[int], record: Record) -> None:
        """A rewind leaves the answers that are on the way to the fact before it."""
        way = record.path(rewind - 1) if begins else []
        for begin in begins:
            if on(way, begin):
                self._ends[begin] = rewind - 1

    def of(self, message: int, record: Record, now: int) -> Choice:
        begins = self._begins.get(message, ())
        if len(begins) < 2:
            return Choice()
        way = record.path(now)
        shown = next((number for number, begin in enumerate(begins, 1) if on(way, begin)), 0)
        if not shown:
            return Choice()
        return Choice(shown, tuple(now if at == shown else self._ends[begin] for at, begin in enumerate(begins, 1)))


def on(way: list[Run], seq: int) -> bool:
    """Whether a fact lies on a way."""
    return any(first <= seq <= last for first, last in way)
