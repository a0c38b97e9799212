"""What a workspace's conversations have cost since midnight."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from helix_desktop.engine.facts import BroughtIn, ModelReplied, Recorded, Spent


class DailyCost:
    """`cost_today` in dollars; it begins anew with each day, also where nothing is spent in it."""

    def __init__(self) -> None:
        self._cost = 0.0
        self._day = _local_day(time.time())

    @property
    def cost_today(self) -> float:
        return self._cost if _local_day(time.time()) == self._day else 0.0

    def charge_fact(self, recorded: Recorded) -> None:
        """Count a fact, if it is one of today that cost something."""
        day = _local_day(time.time())
        if day != self._day:
            self._day, self._cost = day, 0.0
        if isinstance(recorded.fact, ModelReplied | Spent) and _local_day(recorded.time) == day:
            self._cost += recorded.fact.usage.cost


def facts_paid_here(facts: Sequence[Recorded]) -> Iterator[Recorded]:
    """Yields the facts that this program paid for, and leaves out those of imported histories."""
    brought = [(one.fact.first, one.seq) for one in facts if isinstance(one.fact, BroughtIn)]
    return (one for one in facts if not any(first <= one.seq < last for first, last in brought))


def last_midnight() -> float:
    """When today began here."""
    return datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def _local_day(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().date().isoformat()
