"""Finds what two texts have in common, line by line.

Lines that occur once in both texts serve as anchors (the longest run of them in the same order). Between anchors, small
pieces are compared exactly and large ones count as replaced. This bounds the work whatever the texts are.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from helix_desktop.fast_dataclass import dataclass

EXACT = 120
DEEPEST = 40

Span = tuple[int, int, int, int]  # from, to in the first; from, to in the second


@dataclass(frozen=True, slots=True)
class MatchingLines:
    """Lines `left` to `left + count` of the first text are lines `right` to `right + count` of the second."""

    left: int
    right: int
    count: int


def find_matching_lines(left: Sequence[Any], right: Sequence[Any], exact: int = EXACT) -> Iterator[MatchingLines]:
    """What two lists of lines (text or bytes) have in common. `exact`: up to how many lines are compared exactly."""
    return _match_span(left, right, (0, len(left), 0, len(right)), exact)


def _match_span(
    left: Sequence[Any], right: Sequence[Any], span: Span, exact: int, *, deep: int = 0
) -> Iterator[MatchingLines]:
    """Yields what lines a to b of one text and c to d of the other have in common, in order."""
    a, b, c, d = span
    start = a
    while start < b and start - a + c < d and left[start] == right[start - a + c]:
        start += 1
    if start > a:
        yield MatchingLines(a, c, start - a)
    a, c = start, c + start - a
    end = b
    while end > a and end - b + d > c and left[end - 1] == right[end - b + d - 1]:
        end -= 1
    if a < end and c < end - b + d:
        yield from _match_between_ends(left, right, (a, end, c, end - b + d), exact, deep)
    if end < b:
        yield MatchingLines(end, end - b + d, b - end)


def _match_between_ends(
    left: Sequence[Any], right: Sequence[Any], span: Span, exact: int, deep: int
) -> Iterator[MatchingLines]:
    """Does the same where neither the first nor the last lines are equal."""
    a, b, c, d = span
    anchors = _unique_line_anchors(left, right, span) if deep < DEEPEST else []
    if not anchors:
        if b - a <= exact and d - c <= exact:
            matcher = SequenceMatcher(None, left[a:b], right[c:d], autojunk=False)
            yield from (MatchingLines(a + m.a, c + m.b, m.size) for m in matcher.get_matching_blocks() if m.size)
        return
    for x, y in anchors:
        yield from _match_span(left, right, (a, x, c, y), exact, deep=deep + 1)
        yield MatchingLines(x, y, 1)
        a, c = x + 1, y + 1
    yield from _match_span(left, right, (a, b, c, d), exact, deep=deep + 1)


def _unique_line_anchors(left: Sequence[Any], right: Sequence[Any], span: Span) -> list[tuple[int, int]]:
    """The longest run of line pairs that occur once in each text and in the same order in both."""
    a, b, c, d = span
    once_left = {line for line, times in Counter(left[a:b]).items() if times == 1}
    once_right = {line for line, times in Counter(right[c:d]).items() if times == 1}
    where = {right[j]: j for j in range(c, d) if right[j] in once_right}
    pairs = [(i, where[left[i]]) for i in range(a, b) if left[i] in once_left and left[i] in where]
    tails: list[int] = []
    chain: list[tuple[int, int]] = []  # each pair with the index in `chain` of the pair before it
    ends: list[int] = []
    for number, (_, j) in enumerate(pairs):
        place = bisect_left(tails, j)
        chain.append((number, ends[place - 1] if place else -1))
        tails[place : place + 1] = [j]
        ends[place : place + 1] = [number]
    found: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(pairs[at])
        at = chain[at][1]
    return found[::-1]
