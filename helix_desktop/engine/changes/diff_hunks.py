"""Compares two versions of a file by lines, splits the difference into hunks, and
reverts some of them.
"""

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from helix_desktop.errors import ActionRefused
from helix_desktop.fast_dataclass import dataclass

EXACT = 120
DEEPEST = 40

RangePair = tuple[
    int, int, int, int
]  # The start and end of a range in the first text, and of a range in the second.


@dataclass(frozen=True, slots=True)
class MatchingLines:
    """Lines `left` to `left + count` of the first text are lines `right` to `right +
    count` of the second.
    """

    left: int
    right: int
    count: int


def find_matching_lines(
    left: Sequence[Any], right: Sequence[Any], exact: int = EXACT
) -> Iterator[MatchingLines]:
    """Yield the lines that two lists have in common. Lists of more than `exact` lines
    are compared less exactly.
    """
    return _matches_in_span(left, right, (0, len(left), 0, len(right)), exact)


def _matches_in_span(
    left: Sequence[Any], right: Sequence[Any], span: RangePair, exact: int, *, deep: int = 0
) -> Iterator[MatchingLines]:
    """Yield, in order, what two ranges of lines have in common."""
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
    left: Sequence[Any], right: Sequence[Any], span: RangePair, exact: int, deep: int
) -> Iterator[MatchingLines]:
    """Yield the common lines of two ranges whose first and last lines differ."""
    a, b, c, d = span
    anchors = _unique_line_anchors(left, right, span) if deep < DEEPEST else []
    if not anchors:
        if b - a <= exact and d - c <= exact:
            matcher = SequenceMatcher(None, left[a:b], right[c:d], autojunk=False)
            yield from (
                MatchingLines(a + m.a, c + m.b, m.size)
                for m in matcher.get_matching_blocks()
                if m.size
            )
        return
    for x, y in anchors:
        yield from _matches_in_span(left, right, (a, x, c, y), exact, deep=deep + 1)
        yield MatchingLines(x, y, 1)
        a, c = x + 1, y + 1
    yield from _matches_in_span(left, right, (a, b, c, d), exact, deep=deep + 1)


def _unique_line_anchors(
    left: Sequence[Any], right: Sequence[Any], span: RangePair
) -> list[tuple[int, int]]:
    """Return the longest run of line pairs that are unique in each text and in the same order."""
    a, b, c, d = span
    once_left = {line for line, times in Counter(left[a:b]).items() if times == 1}
    once_right = {line for line, times in Counter(right[c:d]).items() if times == 1}
    where = {right[j]: j for j in range(c, d) if right[j] in once_right}
    pairs = [(i, where[left[i]]) for i in range(a, b) if left[i] in once_left and left[i] in where]
    tails: list[int] = []
    chain: list[
        tuple[int, int]
    ] = []  # For each pair, its number and where its predecessor is in `chain`.
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


CONTEXT = 3
BINARY_CHECK_BYTES = (
    8_000  # As in git, a file with a zero byte among this many first bytes is binary.
)
LONGEST_LINE = 2_000  # Changed words are not marked within lines of more characters than this.
MOST_WORDS = (
    40  # Longer runs of words are not compared exactly, as repeated words would take minutes.
)
_WORD = re.compile(r"\w+|\s+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ChangedLines:
    """Lines `old` to `old_end` became lines `new` to `new_end`; counted from 0."""

    old: int
    old_end: int
    new: int
    new_end: int


@dataclass(frozen=True, slots=True)
class Hunk(ChangedLines):
    """Changed lines close together, with some lines of context. `rows`: sign and line,
    as in a unified diff.
    """

    blocks: tuple[ChangedLines, ...]
    rows: tuple[tuple[str, bytes], ...]

    @property
    def unified_header(self) -> str:
        return f"@@ -{_format_line_range(self.old, self.old_end)} +{_format_line_range(self.new, self.new_end)} @@"

    @property
    def stable_id(self) -> str:
        """Return an ID that stays the same for the same change, wherever it is in the file."""
        body = b"".join(sign.encode() + line for sign, line in self.rows)
        return hashlib.sha256(body).hexdigest()[:16]


def is_binary(*contents: bytes) -> bool:
    return any(b"\0" in content[:BINARY_CHECK_BYTES] for content in contents)


def split_into_lines(content: bytes) -> list[bytes]:
    """Split content into lines with their ends, which the last line may lack."""
    lines = content.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def find_changed_lines(
    old: Sequence[Any], new: Sequence[Any], exact: int = EXACT
) -> Iterator[ChangedLines]:
    a = b = 0
    for same in _merge_touching_matches(old, new, exact):
        if same.left > a or same.right > b:
            yield ChangedLines(a, same.left, b, same.right)
        a, b = same.left + same.count, same.right + same.count
    if a < len(old) or b < len(new):
        yield ChangedLines(a, len(old), b, len(new))


def _merge_touching_matches(
    old: Sequence[Any], new: Sequence[Any], exact: int = EXACT
) -> Iterator[MatchingLines]:
    held: MatchingLines | None = None
    for same in find_matching_lines(old, new, exact):
        if held is not None and (held.left + held.count, held.right + held.count) == (
            same.left,
            same.right,
        ):
            held = MatchingLines(held.left, held.right, held.count + same.count)
            continue
        if held is not None:
            yield held
        held = same
    if held is not None:
        yield held


def count_added_and_removed_lines(before: bytes, after: bytes) -> tuple[int, int]:
    """Return (0, 0) for a binary file."""
    if is_binary(before, after):
        return 0, 0
    found = list(find_changed_lines(split_into_lines(before), split_into_lines(after)))
    return sum(one.new_end - one.new for one in found), sum(one.old_end - one.old for one in found)


def find_hunks(before: bytes, after: bytes, context: int = CONTEXT) -> tuple[Hunk, ...]:
    old, new = split_into_lines(before), split_into_lines(after)
    groups: list[list[ChangedLines]] = []
    for block in find_changed_lines(old, new):
        if groups and block.old - groups[-1][-1].old_end <= 2 * context:
            groups[-1].append(block)
        else:
            groups.append([block])
    return tuple(_build_hunk(group, old, new, context) for group in groups)


def _build_hunk(
    group: Sequence[ChangedLines], old: Sequence[bytes], new: Sequence[bytes], context: int
) -> Hunk:
    first, last = group[0], group[-1]
    lead = min(context, first.old, first.new)
    tail = min(context, len(old) - last.old_end, len(new) - last.new_end)
    rows: list[tuple[str, bytes]] = []
    at = first.old - lead
    for block in group:
        rows += [(" ", line) for line in old[at : block.old]]
        rows += [("-", line) for line in old[block.old : block.old_end]]
        rows += [("+", line) for line in new[block.new : block.new_end]]
        at = block.old_end
    rows += [(" ", line) for line in old[at : at + tail]]
    return Hunk(
        first.old - lead,
        last.old_end + tail,
        first.new - lead,
        last.new_end + tail,
        tuple(group),
        tuple(rows),
    )


def revert_hunks(before: bytes, after: bytes, now: bytes, chosen: Sequence[Hunk]) -> bytes:
    """Return `now` without these hunks. Raises ActionRefused if lines in or beside them
    have changed.
    """
    old, new, current = split_into_lines(before), split_into_lines(after), split_into_lines(now)
    same = (
        list(_merge_touching_matches(new, current))
        if now != after
        else [MatchingLines(0, 0, len(new))]
    )
    result = list(current)
    for block in sorted(
        (block for hunk in chosen for block in hunk.blocks), key=lambda block: -block.new
    ):
        at = _position_in_later_version(block, same, len(new), len(current))
        result[at : at + block.new_end - block.new] = old[block.old : block.old_end]
    return b"".join(result)


def _position_in_later_version(
    block: ChangedLines, same: Sequence[MatchingLines], new: int, current: int
) -> int:
    if block.new == block.new_end == new == current == 0:
        return 0
    for run in same:
        inside = run.left <= block.new and block.new_end <= run.left + run.count
        if inside and (
            block.new < block.new_end or _has_same_neighbours(block.new, run, new, current)
        ):
            return block.new - run.left + run.right
    raise ActionRefused(
        "These lines were changed later, so this hunk cannot be undone on its own.",
        remedy="Undo all changes to the file, or edit it yourself.",
    )


def _has_same_neighbours(at: int, run: MatchingLines, new: int, current: int) -> bool:
    """Whether the lines around the place for restored lines are the same as before."""
    end = run.left + run.count
    above = at > run.left or (at == 0 and run.right == 0)
    below = at < end or (at == new and run.right + run.count == current)
    return above and below


class LetterRange(NamedTuple):
    start: int
    length: int


def find_changes_within_line(old: str, new: str) -> tuple[list[LetterRange], list[LetterRange]]:
    """Return what differs in each line, or nothing if they are too different."""
    if max(len(old), len(new)) > LONGEST_LINE:
        return [], []
    left, right = _WORD.findall(old), _WORD.findall(new)
    found = list(find_changed_lines(left, right, MOST_WORDS))
    common = len(old) - sum(
        len(word) for block in found for word in left[block.old : block.old_end]
    )
    if common * 3 < max(len(old.strip()), len(new.strip())):
        return [], []
    gone: list[LetterRange] = []
    come: list[LetterRange] = []
    for block in found:
        _append_word_range(gone, left, block.old, block.old_end)
        _append_word_range(come, right, block.new, block.new_end)
    return gone, come


def _append_word_range(
    places: list[LetterRange], words: Sequence[str], first: int, last: int
) -> None:
    if last > first:
        places.append(LetterRange(sum(map(len, words[:first])), sum(map(len, words[first:last]))))


def _format_line_range(start: int, end: int) -> str:
    length = end - start
    return f"{start + (1 if length else 0)},{length}"
