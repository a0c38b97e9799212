"""Where a request asks its provider to remember it: behind its head, before the first change, at its end.

A provider that is told what to cache finds a beginning again only near a mark of the new request, and only where an earlier
request ended or was marked. After a fold in the middle the end of the request is far from anything it knows: so one mark stands
right before the first block that is not what it was. Never more than four.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST = 4
LOOK_BACK = 20  # blocks a provider looks back from a mark


def common(before: Sequence[object], now: Sequence[object]) -> int:
    """How many blocks at the start are what they were in the request before."""
    same = 0
    for one, other in zip(before, now, strict=False):
        if one is not other and one != other:
            break
        same += 1
    return same


def places(count: int, same: int) -> tuple[int, ...]:
    """The blocks, from 0, behind which a mark stands: of `count`, of which the first `same` did not change."""
    if count <= 0:
        return ()
    found = {0, count - 1}
    if 0 < same < count:
        found.add(same - 1)
    if count - same > LOOK_BACK:  # so much at once that what follows could not look back over it
        found.add((same + count - 1) // 2)
    return tuple(sorted(found))
