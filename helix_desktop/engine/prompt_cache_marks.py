"""Decides where a request asks the provider to cache it: after its
head, after what is known, after the last change and at its end.

A provider looks for cached content only at a mark of the new request or shortly before
one, and only at places an earlier request marked. So one mark is set at the last place
that was marked before and is unchanged. After a fold, another is set after the last
block the fold changed. It stays there because the next fold usually lies after it, so
everything before it can be read from the cache. Together with the mark after the head
there are never more than four. A client of the gateway sets its own marks on the head;
the marks that are left go where they save most.
"""

import operator
from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.fast_dataclass import dataclass

# This many marks are remembered. Older ones have expired in every provider's cache.
REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class MarkedRequest:
    """Where the last request was marked. All places are counts of blocks from the start.

    `known`: where earlier requests were marked; `stable`: the last of those places. `settled`: up
    to the last block that a fold changed. `base`: `stable` of the request that the fold changed;
    before the first fold, the end of the first block. `marks`: where this request is marked.
    """

    blocks: Sequence[object] = ()
    known: tuple[int, ...] = ()
    marks: tuple[int, ...] = ()
    stable: int = 0
    settled: int = 0
    base: int = 1

    @property
    def numbers_of_marked_blocks(self) -> tuple[int, ...]:
        """Return the numbers of blocks, from 0, that a mark follows, without the mark
        after the head.
        """
        return tuple(place - 1 for place in self.marks)

    def mark_next_request(self, blocks: Sequence[object]) -> "MarkedRequest":
        """Return where the next request is marked, so that the provider reads what it shares with
        this one from its cache: at the last earlier mark before a difference, behind what was
        changed, and at its end.
        """
        same_count = count_equal_first_blocks(self.blocks, blocks)
        earlier_marks = set(self.known).union(self.marks)
        marks_still_cached = sorted(mark for mark in earlier_marks if mark <= same_count)
        stable = max(marks_still_cached, default=0)
        settled = self.settled
        base = self.base
        if same_count < len(self.blocks):
            settled = self._end_of_changed_part(blocks, same_count)
            base = stable or 1
        marks = {stable, settled, len(blocks)}
        marks.discard(0)
        return MarkedRequest(
            blocks=blocks,
            known=tuple(marks_still_cached[-REMEMBERED:]),
            marks=tuple(sorted(marks)),
            stable=stable,
            settled=settled,
            base=base,
        )

    def limit_marks(self, count: int, *, near: bool) -> "MarkedRequest":
        """Return the request with at most `count` marks. `near`: cached content is only
        found near its end.
        """
        request_end = len(self.blocks)
        end_of_cached = self.stable or self.base
        # The most important mark comes first, since only so many are allowed.
        if near:
            by_importance = (request_end, self.settled, self.base, end_of_cached)
        else:
            by_importance = (request_end, end_of_cached, self.settled, self.base)
        possible_marks: list[int] = []
        for mark in by_importance:
            if 0 < mark <= request_end and mark not in possible_marks:
                possible_marks.append(mark)
        most_marks = max(0, count)
        marks = sorted(possible_marks[:most_marks])
        return replace(self, marks=tuple(marks))

    def _end_of_changed_part(self, next_blocks: Sequence[object], same_count: int) -> int:
        """Return where the part of the next request that a fold has changed ends.

        What follows the last block of this request was only added, so that block is looked for
        first, and from there back those that are unchanged before it.
        """
        last_block = self.blocks[-1]
        for end in range(len(next_blocks), same_count, -1):
            if next_blocks[end - 1] != last_block:
                continue
            blocks_from_end = self.blocks[::-1]
            next_blocks_from_end = next_blocks[:end][::-1]
            same_at_end = count_equal_first_blocks(blocks_from_end, next_blocks_from_end)
            return max(same_count, end - same_at_end)
        return min(self.settled, same_count)


def count_equal_first_blocks(last_blocks: Sequence[object], next_blocks: Sequence[object]) -> int:
    """Count the first blocks that are equal to those of the last request."""
    # Most blocks are the same objects, and comparing their contents would take long.
    same_count = count_same_first_objects(last_blocks, next_blocks)
    shorter_length = min(len(last_blocks), len(next_blocks))
    while same_count < shorter_length and last_blocks[same_count] == next_blocks[same_count]:
        same_count += 1
    return same_count


def count_same_first_objects(last_objects: Sequence[object], next_objects: Sequence[object]) -> int:
    """Count the first objects that are the same ones, and not only equal. Lists may be long,
    so this runs without a step of Python for each object.
    """
    are_same = map(operator.is_, last_objects, next_objects)
    try:
        return operator.indexOf(are_same, False)
    except ValueError:  # There is no difference.
        return min(len(last_objects), len(next_objects))
