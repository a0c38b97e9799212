"""Compares two versions of a file by lines, splits the difference into hunks, and
reverts some of them.
"""

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from helix_desktop.errors import ActionRefused
from helix_desktop.fast_dataclass import dataclass

EXACT = 120  # Ranges of more lines without a line that is unique in both are not compared further.
DEEPEST = 40  # Ranges within ranges within ranges, so that no text reaches Python's own limit.


@dataclass(frozen=True, slots=True)
class MatchingLines:
    """Lines `left` to `left + count` of the first text are lines `right` to `right +
    count` of the second.
    """

    left: int
    right: int
    count: int

    def is_followed_by(self, other: "MatchingLines") -> bool:
        """Whether `other` begins in both texts where these lines end."""
        left_end = self.left + self.count
        right_end = self.right + self.count
        return other.left == left_end and other.right == right_end


@dataclass(frozen=True, slots=True)
class _TwoRanges:
    """Lines `left` to `left_end` of the first text, and `right` to `right_end` of the second."""

    left: int
    left_end: int
    right: int
    right_end: int


class _LinePair(NamedTuple):
    """The numbers of a line that is the same in both texts."""

    left: int
    right: int


class _RunEnd(NamedTuple):
    """The last pair of a run, and the end of the run without it, which is None for the first."""

    pair: _LinePair
    before: "_RunEnd | None"


def find_matching_lines(
    left: Sequence[Any], right: Sequence[Any], exact: int = EXACT
) -> Iterator[MatchingLines]:
    """Yield the lines that two lists have in common. Lists of more than `exact` lines
    are compared less exactly.
    """
    all_lines = _TwoRanges(left=0, left_end=len(left), right=0, right_end=len(right))
    return _matches_in_ranges(left, right, all_lines, exact)


def _matches_in_ranges(
    left: Sequence[Any], right: Sequence[Any], ranges: _TwoRanges, exact: int, *, deep: int = 0
) -> Iterator[MatchingLines]:
    """Yield, in order, what two ranges of lines have in common: the lines at the start, those
    between the ends, and the lines at the end.
    """
    count_at_start = _count_common_lines_at_start(left, right, ranges)
    if count_at_start:
        yield MatchingLines(ranges.left, ranges.right, count_at_start)
    left_start = ranges.left + count_at_start
    right_start = ranges.right + count_at_start
    after_start = _TwoRanges(left_start, ranges.left_end, right_start, ranges.right_end)

    count_at_end = _count_common_lines_at_end(left, right, after_start)
    left_end = ranges.left_end - count_at_end
    right_end = ranges.right_end - count_at_end
    if left_start < left_end and right_start < right_end:
        between = _TwoRanges(left_start, left_end, right_start, right_end)
        yield from _match_between_ends(left, right, between, exact, deep)
    if count_at_end:
        yield MatchingLines(left_end, right_end, count_at_end)


def _count_common_lines_at_start(
    left: Sequence[Any], right: Sequence[Any], ranges: _TwoRanges
) -> int:
    most = min(ranges.left_end - ranges.left, ranges.right_end - ranges.right)
    for count in range(most):
        if left[ranges.left + count] != right[ranges.right + count]:
            return count
    return most


def _count_common_lines_at_end(
    left: Sequence[Any], right: Sequence[Any], ranges: _TwoRanges
) -> int:
    most = min(ranges.left_end - ranges.left, ranges.right_end - ranges.right)
    for count in range(most):
        if left[ranges.left_end - 1 - count] != right[ranges.right_end - 1 - count]:
            return count
    return most


def _match_between_ends(
    left: Sequence[Any], right: Sequence[Any], ranges: _TwoRanges, exact: int, deep: int
) -> Iterator[MatchingLines]:
    """Yield the common lines of two ranges whose first and last lines differ.

    Lines that are unique in both texts are anchors: they surely belong together, so only what is
    between two of them is compared further.
    """
    anchors: list[_LinePair] = []
    if deep < DEEPEST:
        anchors = _unique_line_anchors(left, right, ranges)
    if not anchors:
        # The exact comparison takes minutes for long texts. Without it, the ranges count as
        # different throughout.
        if ranges.left_end - ranges.left <= exact and ranges.right_end - ranges.right <= exact:
            yield from _match_exactly(left, right, ranges)
        return
    left_start = ranges.left
    right_start = ranges.right
    for anchor in anchors:
        before_anchor = _TwoRanges(left_start, anchor.left, right_start, anchor.right)
        yield from _matches_in_ranges(left, right, before_anchor, exact, deep=deep + 1)
        yield MatchingLines(anchor.left, anchor.right, 1)
        left_start = anchor.left + 1
        right_start = anchor.right + 1
    after_anchors = _TwoRanges(left_start, ranges.left_end, right_start, ranges.right_end)
    yield from _matches_in_ranges(left, right, after_anchors, exact, deep=deep + 1)


def _match_exactly(
    left: Sequence[Any], right: Sequence[Any], ranges: _TwoRanges
) -> Iterator[MatchingLines]:
    """Yield the common lines of two short ranges, as Python's own comparison finds them."""
    matcher = SequenceMatcher(
        None,
        left[ranges.left : ranges.left_end],
        right[ranges.right : ranges.right_end],
        autojunk=False,
    )
    for match in matcher.get_matching_blocks():
        # The last block is always empty.
        if match.size:
            yield MatchingLines(ranges.left + match.a, ranges.right + match.b, match.size)


def _unique_line_anchors(
    left: Sequence[Any], right: Sequence[Any], ranges: _TwoRanges
) -> list[_LinePair]:
    """Return the longest run of line pairs that are unique in each text and in the same order."""
    return _longest_rising_run(_pairs_of_unique_lines(left, right, ranges))


def _pairs_of_unique_lines(
    left: Sequence[Any], right: Sequence[Any], ranges: _TwoRanges
) -> list[_LinePair]:
    """Return the lines that each range has once, in the order of the first text."""
    left_counts = Counter(left[ranges.left : ranges.left_end])
    right_counts = Counter(right[ranges.right : ranges.right_end])
    right_number_of: dict[Any, int] = {}
    for right_number in range(ranges.right, ranges.right_end):
        line = right[right_number]
        if right_counts[line] == 1:
            right_number_of[line] = right_number
    pairs: list[_LinePair] = []
    for left_number in range(ranges.left, ranges.left_end):
        line = left[left_number]
        if left_counts[line] == 1 and line in right_number_of:
            pairs.append(_LinePair(left_number, right_number_of[line]))
    return pairs


def _longest_rising_run(pairs: Sequence[_LinePair]) -> list[_LinePair]:
    """Return the longest run of pairs whose lines rise in both texts, by patience sorting.

    For each length, only the run whose last line in the second text is lowest is kept, because
    most later pairs can follow it. A pair goes behind the longest run that ends before it.
    """
    ends_of_runs: list[_RunEnd] = []  # The first is of a run of one pair, the next of two.
    lowest_lines: list[int] = []  # The last line of each of these runs in the second text.
    for pair in pairs:
        length_before = bisect_left(lowest_lines, pair.right)
        end_before = None
        if length_before:
            end_before = ends_of_runs[length_before - 1]
        run_end = _RunEnd(pair, end_before)
        is_longest_run = length_before == len(ends_of_runs)
        if is_longest_run:
            ends_of_runs.append(run_end)
            lowest_lines.append(pair.right)
        else:
            ends_of_runs[length_before] = run_end
            lowest_lines[length_before] = pair.right

    run: list[_LinePair] = []
    if ends_of_runs:
        end: _RunEnd | None = ends_of_runs[-1]
        while end is not None:
            run.append(end.pair)
            end = end.before
    run.reverse()
    return run


CONTEXT = 3
# As in git, a file with a zero byte among this many first bytes is binary.
BINARY_CHECK_BYTES = 8_000
LONGEST_LINE = 2_000  # Changed words are not marked within lines of more characters than this.
# Longer runs of words are not compared exactly, as repeated words would take minutes.
MOST_WORDS = 40
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
    same_before: int = 0  # How many hunks before it in the file are the same change.

    @property
    def unified_header(self) -> str:
        old_range = _format_line_range(self.old, self.old_end)
        new_range = _format_line_range(self.new, self.new_end)
        return f"@@ -{old_range} +{new_range} @@"

    @property
    def stable_id(self) -> str:
        """Return an ID that stays the same for the same change, wherever it is in the file. Of
        several that are the same, each has its own.
        """
        body = b"".join(sign.encode() + line for sign, line in self.rows)
        digest = hashlib.sha256(body).hexdigest()[:16]
        if self.same_before:
            return f"{digest}-{self.same_before}"
        return digest


def is_binary(*contents: bytes) -> bool:
    return any(b"\0" in content[:BINARY_CHECK_BYTES] for content in contents)


def split_into_lines(content: bytes) -> list[bytes]:
    """Split content into lines with their ends, which the last line may lack."""
    pieces = content.split(b"\n")
    rest = pieces.pop()
    lines = [piece + b"\n" for piece in pieces]
    if rest:
        lines.append(rest)
    return lines


def find_changed_lines(
    old: Sequence[Any], new: Sequence[Any], exact: int = EXACT
) -> Iterator[ChangedLines]:
    """Yield what is between the lines that two versions have in common, in order."""
    old_number = 0
    new_number = 0
    for unchanged in _merge_touching_matches(old, new, exact):
        if unchanged.left > old_number or unchanged.right > new_number:
            yield ChangedLines(old_number, unchanged.left, new_number, unchanged.right)
        old_number = unchanged.left + unchanged.count
        new_number = unchanged.right + unchanged.count
    if old_number < len(old) or new_number < len(new):
        yield ChangedLines(old_number, len(old), new_number, len(new))


def _merge_touching_matches(
    old: Sequence[Any], new: Sequence[Any], exact: int = EXACT
) -> Iterator[MatchingLines]:
    """Yield matching lines, with neighbouring matches as one."""
    merged: MatchingLines | None = None
    for match in find_matching_lines(old, new, exact):
        if merged is None:
            merged = match
        elif merged.is_followed_by(match):
            merged = MatchingLines(merged.left, merged.right, merged.count + match.count)
        else:
            yield merged
            merged = match
    if merged is not None:
        yield merged


def collect_removed_and_added_lines(before: bytes, after: bytes) -> tuple[set[bytes], set[bytes]]:
    """Return the lines that a change took away and those that it added, each once."""
    old_lines = split_into_lines(before)
    new_lines = split_into_lines(after)
    removed: set[bytes] = set()
    added: set[bytes] = set()
    for block in find_changed_lines(old_lines, new_lines):
        removed.update(old_lines[block.old : block.old_end])
        added.update(new_lines[block.new : block.new_end])
    return removed, added


def count_added_and_removed_lines(before: bytes, after: bytes) -> tuple[int, int]:
    """Return (0, 0) for a binary file."""
    if is_binary(before, after):
        return 0, 0
    added = 0
    removed = 0
    for block in find_changed_lines(split_into_lines(before), split_into_lines(after)):
        added += block.new_end - block.new
        removed += block.old_end - block.old
    return added, removed


def find_hunks(before: bytes, after: bytes, context: int = CONTEXT) -> tuple[Hunk, ...]:
    """Return the changed lines between two versions. Changes close together are one hunk."""
    old_lines = split_into_lines(before)
    new_lines = split_into_lines(after)
    groups: list[list[ChangedLines]] = []
    end_of_last_change = 0
    for block in find_changed_lines(old_lines, new_lines):
        # Changes whose context would touch or overlap are one hunk.
        if groups and block.old - end_of_last_change <= 2 * context:
            groups[-1].append(block)
        else:
            groups.append([block])
        end_of_last_change = block.old_end
    counts = Counter[tuple[tuple[str, bytes], ...]]()
    hunks: list[Hunk] = []
    for group in groups:
        hunk = _build_hunk(group, old_lines, new_lines, context)
        hunks.append(replace(hunk, same_before=counts[hunk.rows]))
        counts[hunk.rows] += 1
    return tuple(hunks)


def _build_hunk(
    group: Sequence[ChangedLines],
    old_lines: Sequence[bytes],
    new_lines: Sequence[bytes],
    context: int,
) -> Hunk:
    """Join changed lines that are close together, with the unchanged lines around them."""
    first_block = group[0]
    last_block = group[-1]
    # There are fewer lines of context at the start and at the end of a file.
    lines_above = min(context, first_block.old, first_block.new)
    old_lines_behind = len(old_lines) - last_block.old_end
    new_lines_behind = len(new_lines) - last_block.new_end
    lines_below = min(context, old_lines_behind, new_lines_behind)
    old_start = first_block.old - lines_above
    old_end = last_block.old_end + lines_below
    new_start = first_block.new - lines_above
    new_end = last_block.new_end + lines_below

    rows: list[tuple[str, bytes]] = []
    unchanged_start = old_start
    for block in group:
        unchanged_lines = old_lines[unchanged_start : block.old]
        removed_lines = old_lines[block.old : block.old_end]
        added_lines = new_lines[block.new : block.new_end]
        rows += [(" ", line) for line in unchanged_lines]
        rows += [("-", line) for line in removed_lines]
        rows += [("+", line) for line in added_lines]
        unchanged_start = block.old_end
    lines_behind_last_block = old_lines[unchanged_start:old_end]
    rows += [(" ", line) for line in lines_behind_last_block]
    return Hunk(
        old=old_start,
        old_end=old_end,
        new=new_start,
        new_end=new_end,
        blocks=tuple(group),
        rows=tuple(rows),
    )


def revert_hunks(before: bytes, after: bytes, now: bytes, chosen: Sequence[Hunk]) -> bytes:
    """Return the file's content `now` without the chosen changes, which led from `before`
    to `after`. Raises ActionRefused if lines in or beside them have changed since.
    """
    old_lines = split_into_lines(before)
    new_lines = split_into_lines(after)
    current_lines = split_into_lines(now)
    if now == after:
        unchanged_since = [MatchingLines(left=0, right=0, count=len(new_lines))]
    else:
        unchanged_since = list(_merge_touching_matches(new_lines, current_lines))
    blocks: list[ChangedLines] = []
    for hunk in chosen:
        blocks += hunk.blocks
    # From the end to the start, as lines that come back would move those below them.
    blocks.sort(key=lambda block: block.new, reverse=True)
    reverted_lines = list(current_lines)
    for block in blocks:
        start = _position_in_later_version(
            block, unchanged_since, len(new_lines), len(current_lines)
        )
        end = start + block.new_end - block.new
        restored_lines = old_lines[block.old : block.old_end]
        has_lines_behind = end < len(reverted_lines)
        if has_lines_behind and restored_lines and not restored_lines[-1].endswith(b"\n"):
            # It was the file's last line, and somebody has added lines since.
            restored_lines[-1] += b"\n"
        reverted_lines[start:end] = restored_lines
    return b"".join(reverted_lines)


def _position_in_later_version(
    block: ChangedLines,
    unchanged_since: Sequence[MatchingLines],
    new_line_count: int,
    current_line_count: int,
) -> int:
    """Return where the block's lines are in the current version, in which the lines
    `unchanged_since` stand that the version made by the block had, too.
    """
    made_empty_file = block.new == block.new_end == new_line_count == 0
    if made_empty_file and current_line_count == 0:
        return 0
    for run in unchanged_since:
        run_end = run.left + run.count
        if block.new < run.left or run_end < block.new_end:
            continue
        # A block that only removed lines has none to find again, but neighbours.
        has_lines = block.new < block.new_end
        if has_lines or _has_same_neighbours(block.new, run, new_line_count, current_line_count):
            return block.new - run.left + run.right
    raise ActionRefused(
        "These lines were changed later, so this hunk cannot be undone on its own.",
        remedy="Undo all changes to the file, or edit it yourself.",
    )


def _has_same_neighbours(
    line_number: int, run: MatchingLines, new_line_count: int, current_line_count: int
) -> bool:
    """Whether the lines around the place for restored lines are the same as before."""
    run_end = run.left + run.count
    current_run_end = run.right + run.count
    both_start_here = line_number == 0 and run.right == 0
    both_end_here = line_number == new_line_count and current_run_end == current_line_count
    same_above = line_number > run.left or both_start_here
    same_below = line_number < run_end or both_end_here
    return same_above and same_below


class LetterRange(NamedTuple):
    start: int
    length: int


def find_changes_within_line(old: str, new: str) -> tuple[list[LetterRange], list[LetterRange]]:
    """Return what differs in each line, or nothing if they are too different."""
    if max(len(old), len(new)) > LONGEST_LINE:
        return [], []
    old_words = _WORD.findall(old)
    new_words = _WORD.findall(new)
    removed: list[LetterRange] = []
    added: list[LetterRange] = []
    for block in find_changed_lines(old_words, new_words, MOST_WORDS):
        _append_word_range(removed, old_words, block.old, block.old_end)
        _append_word_range(added, new_words, block.new, block.new_end)
    letters_in_common = len(old) - sum(letters.length for letters in removed)
    old_length = len(old.strip())
    new_length = len(new.strip())
    # Lines that have less than a third in common are two lines, and not a changed one.
    if letters_in_common * 3 < max(old_length, new_length):
        return [], []
    return removed, added


def _append_word_range(
    ranges: list[LetterRange], words: Sequence[str], first_word: int, end_word: int
) -> None:
    if end_word > first_word:
        start = sum(map(len, words[:first_word]))
        length = sum(map(len, words[first_word:end_word]))
        ranges.append(LetterRange(start, length))


def _format_line_range(start: int, end: int) -> str:
    """Return a range as in a unified diff, which counts lines from 1. An empty range has the
    number of the line before it.
    """
    length = end - start
    first_line = start
    if length:
        first_line += 1
    return f"{first_line},{length}"
