"""Where a request asks its provider to remember it: behind its head, where it is known already, behind the last change, at its end.

A provider that is told what to cache finds a beginning again only at a mark of the new request or shortly before one, and only
where an earlier request was marked. So a mark stands at the last place that was marked before and is still the same. After a fold
another stands behind the last block that the fold changed, and stays there: what is folded next mostly lies behind it, so that all
before it is read and not written again. With the one behind the head there are never more than four. A client of the gateway has
its own behind the head: as many as are left stand where they matter most.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.fast_dataclass import dataclass

REMEMBERED = 64  # places; what was marked longer ago, the provider has forgotten


@dataclass(frozen=True, slots=True)
class MarkedRequest:
    """The last request. Its places are counts of blocks from the start: `known`, where earlier ones were marked; `stable`, the
    last of them; `settled`, up to the last block that a fold changed; `base`, `stable` of the request that it changed, and
    behind the first block until then; `marks`, where this one is marked.
    """

    blocks: Sequence[object] = ()
    known: tuple[int, ...] = ()
    marks: tuple[int, ...] = ()
    stable: int = 0
    settled: int = 0
    base: int = 1

    @property
    def marked_blocks(self) -> tuple[int, ...]:
        """The blocks, from 0, behind which a mark stands, besides the one behind the head."""
        return tuple(place - 1 for place in self.marks)

    def mark_next(self, now: Sequence[object]) -> MarkedRequest:
        """The request that follows."""
        same = count_equal_start(self.blocks, now)
        known = sorted(place for place in {*self.known, *self.marks} if place <= same)
        stable = known[-1] if known else 0
        settled, base = self.settled, self.base
        if same < len(self.blocks):
            settled, base = self._end_of_change(now, same), stable or 1
        marks = sorted({stable, settled, len(now)} - {0})
        return MarkedRequest(now, tuple(known[-REMEMBERED:]), tuple(marks), stable, settled, base)

    def limit_marks(self, count: int, *, near: bool) -> MarkedRequest:
        """The same request with so many marks. `first_hit_from`: looking back from its end, the provider sees what it knows."""
        known = self.stable or self.base
        order = (self.settled, self.base, known) if near else (known, self.settled, self.base)
        places = [place for place in dict.fromkeys((len(self.blocks), *order)) if 0 < place <= len(self.blocks)]
        return replace(self, marks=tuple(sorted(places[: max(0, count)])))

    def _end_of_change(self, now: Sequence[object], same: int) -> int:
        """What stands behind the last request's last block has been added, and is no change."""
        last = self.blocks[-1]
        end = next((place for place in range(len(now), same, -1) if now[place - 1] == last), 0)
        if not end:
            return min(self.settled, same)
        return max(same, end - count_equal_start(self.blocks[::-1], now[:end][::-1]))


def count_equal_start(before: Sequence[object], now: Sequence[object]) -> int:
    """How many blocks at the start are what they were in the request before."""
    same = count_identical_start(before, now)
    rest = zip(before[same:], now[same:], strict=False)
    changed = (at for at, (one, other) in enumerate(rest, same) if one != other)
    return next(changed, min(len(before), len(now)))


def count_identical_start(one: Sequence[object], other: Sequence[object]) -> int:
    """How many at the start are the very same objects."""
    try:
        return operator.indexOf(map(operator.is_, one, other), False)
    except ValueError:
        return min(len(one), len(other))
