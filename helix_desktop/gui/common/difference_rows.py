"""A changed file as rows of a difference: hunk headers, lines with their signs, pairs
for two columns. No widgets.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from helix_desktop.engine.changes.diff_hunks import Hunk, find_changes_within_line
from helix_desktop.engine.hidden_characters import mark_text, marked_lines
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.translation import format_number, tr

Span = tuple[int, int]

_FILES = re.compile(r"--- [^\n]*\n\+\+\+ [^\n]*\n(?=@@)")
_HEAD = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
# Stands below the last line of a version that does not end in a newline.
_NO_END = "\\ No newline at end of file"
_NOTE_SIGN = _NO_END[0]
# Changed words are not marked in blocks with more lines than this.
MOST_LINES_WITH_CHANGED_WORDS = 200


@dataclass(frozen=True, slots=True)
class DifferenceLine:
    """A line of one version. Numbers count from 1; 0: none. `counterpart`: the other
    version's line.
    """

    mark: str
    text: str
    old_number: int = 0
    new_number: int = 0
    counterpart: str | None = None

    @property
    def number(self) -> int:
        """Where people find the line: in the new version, or in the old one if it was removed."""
        return self.new_number or self.old_number

    @property
    def changed_spans(self) -> Sequence[Span]:
        """The changed spans, computed when drawn, because a file of 25,000 lines took seconds."""
        if self.counterpart is None:
            return ()
        if self.mark == "-":
            old_spans, _ = find_changes_within_line(self.text, self.counterpart)
            return old_spans
        _, new_spans = find_changes_within_line(self.counterpart, self.text)
        return new_spans


@dataclass(frozen=True, slots=True)
class _SignedLine:
    """A line of a hunk: "-", "+", a blank or the sign of a note, and the text behind it.
    `is_continuation`: it goes on with a long line above, so it is no line of the file.
    """

    sign: str
    text: str
    is_continuation: bool = False


@dataclass(frozen=True, slots=True)
class _ReplacedBlock:
    """Lines that were removed, and those that were added in their place, by number."""

    removed: list[int]
    added: list[int]


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """A row: a hunk header, or one line in each column. With one column, `right` is the line.
    `hunk`: which one it belongs to, counted from 0; the names of the files belong to none (-1).
    """

    hunk: int
    head: str = ""
    left: DifferenceLine | None = None
    right: DifferenceLine | None = None


@dataclass(frozen=True, slots=True)
class DifferenceSheet:
    """The rows of a file, which of them are headers, and how many characters wide each row is
    at most: with two columns, its wider side.
    """

    is_two_columns: bool
    rows: Sequence[DifferenceRow]
    heads: Sequence[int]
    lengths: Sequence[int]


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A line, and the number of the row where it stands."""

    row_number: int
    line: DifferenceLine


def find_nearest_line(rows: Sequence[DifferenceRow], wanted: DifferenceLine) -> PlacedLine | None:
    """Finds a line again after the file has changed: the one with the same text, or else any
    other, that is nearest to where it was. None if no lines are left.
    """
    nearest: PlacedLine | None = None
    least_difference = (False, 0)
    for row_number, row in enumerate(rows):
        for line in (row.left, row.right):
            if line is None:
                continue
            is_other_text = (line.mark, line.text) != (wanted.mark, wanted.text)
            distance = abs(line.number - wanted.number)
            difference = (is_other_text, distance)
            if nearest is None or difference < least_difference:
                nearest = PlacedLine(row_number, line)
                least_difference = difference
    return nearest


def build_difference_sheet(rows: Sequence[DifferenceRow], *, two_columns: bool) -> DifferenceSheet:
    heads: list[int] = []
    lengths: list[int] = []
    for number, row in enumerate(rows):
        if row.head:
            heads.append(number)
        length = _estimate_width_in_letters(row.right)
        if two_columns:
            length = max(length, _estimate_width_in_letters(row.left))
        lengths.append(length)
    return DifferenceSheet(two_columns, rows, heads, lengths)


def describe_hunk_head(head: str) -> str:
    """Returns which lines a hunk is about, in words. Other heads, such as names of files, are
    returned as they are.
    """
    ranges = _HEAD.fullmatch(head)
    if ranges is None:
        return head
    old_first, old_count, new_first, new_count = ranges.groups("1")
    first = int(new_first)
    count = int(new_count)
    # Of lines that are only removed, only the old numbers say where they are.
    if count == 0:
        first = int(old_first)
        count = int(old_count)
    if count == 1:
        return tr("Line {n}", n=format_number(first))
    return tr(
        "Lines {first}–{last}", first=format_number(first), last=format_number(first + count - 1)
    )


def build_hunk_rows(hunks: Sequence[Hunk], *, two_columns: bool) -> list[DifferenceRow]:
    rows: list[DifferenceRow] = []
    for number, hunk in enumerate(hunks):
        lines: list[_SignedLine] = []
        for sign, raw_line in hunk.rows:
            text_with_end = raw_line.decode("utf-8", "replace")
            text = text_with_end.removesuffix("\n").removesuffix("\r")
            lines.append(_SignedLine(sign, text))
        numbered_lines = _number_hunk_lines(lines, hunk.old, hunk.new)
        rows += _build_rows_of_hunk(number, hunk.unified_header, numbered_lines, two_columns)
    return rows


def build_patch_rows(text: str, *, two_columns: bool, known_file: str = "") -> list[DifferenceRow]:
    """Builds rows for every line of a unified difference as we write them, with hidden characters
    marked. Empty for other texts, which the caller shows as they are. Other programs, for example,
    add words to a header, which would not be read there before the user agrees to the change.

    `known_file`: the file whose name stands above. It is not named twice more.
    """
    names = _FILES.match(text)
    if names is None:
        return []
    rows: list[DifferenceRow] = []
    if names[0] != f"--- {known_file}\n+++ {known_file}\n":
        rows = _build_rows_of_file_names(names[0], two_columns=two_columns)
    lines = text[names.end() :].removesuffix("\n").split("\n")
    hunk_number = 0
    hunk_start = 0
    while hunk_start < len(lines):
        head = _HEAD.fullmatch(lines[hunk_start])
        if head is None:
            return []
        hunk_end = _find_hunk_end(lines, hunk_start + 1, head)
        if hunk_end == 0:
            return []
        marked = _mark_hidden_characters(lines[hunk_start + 1 : hunk_end])
        # The header counts from 1, the numbering from the line before.
        old_before = max(0, int(head[1]) - 1)
        new_before = max(0, int(head[3]) - 1)
        numbered_lines = _number_hunk_lines(marked, old_before, new_before)
        rows += _build_rows_of_hunk(hunk_number, lines[hunk_start], numbered_lines, two_columns)
        hunk_start = hunk_end
        hunk_number += 1
    return rows


def _build_rows_of_file_names(names: str, *, two_columns: bool) -> list[DifferenceRow]:
    # Only "\n" ends a line here: other ends of lines are part of a name, and are marked.
    old_line, new_line = names.removesuffix("\n").split("\n")
    old_name = DifferenceLine("", mark_text(old_line))
    new_name = DifferenceLine("", mark_text(new_line))
    if two_columns:
        return [DifferenceRow(-1, left=old_name, right=new_name)]
    return [DifferenceRow(-1, right=old_name), DifferenceRow(-1, right=new_name)]


def _mark_hidden_characters(lines: Sequence[str]) -> list[_SignedLine]:
    """A very long line becomes several, which all have its sign."""
    marked: list[_SignedLine] = []
    for line in lines:
        sign = line[:1]
        is_continuation = False
        for piece in marked_lines(line[1:]):
            marked.append(_SignedLine(sign, piece, is_continuation))
            is_continuation = True
    return marked


def find_changed_words(lines: Sequence[str]) -> Iterator[tuple[int, str, Span]]:
    """Finds changed words in a textual difference: the line, its mark, and the span."""
    signs = [line[:1] for line in lines]
    for number in range(len(lines) - 1):
        if _are_file_names(lines, number):
            signs[number] = ""
            signs[number + 1] = ""
    for block in _find_replaced_blocks(signs):
        yield from _find_changed_words_of_block(lines, block.removed, block.added)


def _are_file_names(lines: Sequence[str], number: int) -> bool:
    """Whether this line and the next one name the files. A removed line `-- comment` of SQL
    begins in the same way, but stands in a hunk.
    """
    if not lines[number].startswith("--- ") or not lines[number + 1].startswith("+++ "):
        return False
    is_at_start = number == 0
    is_before_hunk = number + 2 < len(lines) and lines[number + 2].startswith("@@")
    return is_at_start or is_before_hunk


def _find_replaced_blocks(signs: Sequence[str]) -> list[_ReplacedBlock]:
    """Finds removed lines that added ones follow. A note belongs to the line above it, so
    it ends no block.
    """
    blocks: list[_ReplacedBlock] = []
    block = _ReplacedBlock([], [])
    for number, sign in enumerate(signs):
        if sign == _NOTE_SIGN:
            continue
        if sign == "+":
            block.added.append(number)
        elif sign == "-" and not block.added:
            block.removed.append(number)
        else:
            blocks.append(block)
            block = _ReplacedBlock([], [])
            if sign == "-":
                block.removed.append(number)
    blocks.append(block)
    return blocks


def _find_changed_words_of_block(
    lines: Sequence[str], removed: Sequence[int], added: Sequence[int]
) -> Iterator[tuple[int, str, Span]]:
    """Compares removed lines with the added ones that stand in their place, both by number."""
    if max(len(removed), len(added)) > MOST_LINES_WITH_CHANGED_WORDS:
        return
    for old_number, new_number in zip(removed, added, strict=False):
        old_spans, new_spans = find_changes_within_line(
            lines[old_number][1:], lines[new_number][1:]
        )
        # The sign was not compared, so the words stand one character later.
        for start, length in old_spans:
            yield old_number, "-", (start + 1, length)
        for start, length in new_spans:
            yield new_number, "+", (start + 1, length)


def _find_hunk_end(lines: Sequence[str], first_line: int, head: re.Match[str]) -> int:
    """The end of a hunk's lines; 0 if they do not match its header."""
    missing_old = _line_count_of_head(head[2])
    missing_new = _line_count_of_head(head[4])
    end = first_line
    while (missing_old or missing_new) and end < len(lines):
        line = lines[end]
        end += 1
        if line == _NO_END:
            continue
        sign = line[:1]
        if sign not in ("+", "-", " "):
            return 0
        if sign != "+":
            missing_old -= 1
        if sign != "-":
            missing_new -= 1
    if missing_old or missing_new:
        return 0
    if end < len(lines) and lines[end] == _NO_END:
        end += 1
    return end


def _line_count_of_head(figure: str | None) -> int:
    """A header leaves out the number of lines if it is 1."""
    if figure is None:
        return 1
    return int(figure)


def _build_rows_of_hunk(
    number: int,
    head: str,
    lines: list[DifferenceLine],
    two_columns: bool,  # noqa: FBT001 -- one of two forms
) -> list[DifferenceRow]:
    rows = [DifferenceRow(number, head=head)]
    if two_columns:
        for left, right in _pair_for_two_columns(lines):
            rows.append(DifferenceRow(number, left=left, right=right))
    else:
        for line in lines:
            rows.append(DifferenceRow(number, right=line))
    return rows


def _number_hunk_lines(
    lines: Sequence[_SignedLine], old_before: int, new_before: int
) -> list[DifferenceLine]:
    """Adds line numbers and changed words. `old_before` and `new_before` are the numbers of the
    lines before the hunk. A continuation of a wrapped line has no number.
    """
    numbered: list[DifferenceLine] = []
    last_old = old_before
    last_new = new_before
    for line in lines:
        old_number = 0
        new_number = 0
        if not line.is_continuation and line.sign in ("-", " "):
            last_old += 1
            old_number = last_old
        if not line.is_continuation and line.sign in ("+", " "):
            last_new += 1
            new_number = last_new
        numbered.append(DifferenceLine(line.sign, line.text, old_number, new_number))
    _pair_replaced_lines(numbered)
    return numbered


def _pair_replaced_lines(lines: list[DifferenceLine]) -> None:
    """Gives each removed line the added line that stands in its place, and the other way round."""
    marks = [line.mark for line in lines]
    for block in _find_replaced_blocks(marks):
        lines_of_larger_side = max(len(block.removed), len(block.added))
        if lines_of_larger_side > MOST_LINES_WITH_CHANGED_WORDS:
            continue
        for old_index, new_index in zip(block.removed, block.added, strict=False):
            old_line = lines[old_index]
            new_line = lines[new_index]
            lines[old_index] = replace(old_line, counterpart=new_line.text)
            lines[new_index] = replace(new_line, counterpart=old_line.text)


def _pair_for_two_columns(
    lines: Sequence[DifferenceLine],
) -> Iterator[tuple[DifferenceLine | None, DifferenceLine | None]]:
    """Puts removed and added lines that follow each other beside each other, and
    unchanged lines beside themselves. Where one side has more lines, the other has
    None. A note, such as "no newline at the end", belongs to the line above it.
    """
    removed: list[DifferenceLine] = []
    added: list[DifferenceLine] = []
    for line in lines:
        # Removed lines come first, so another one after added lines begins a new block.
        is_start_of_block = line.mark == "-" and bool(added)
        if is_start_of_block:
            yield from zip_longest(removed, added)
            removed = []
            added = []
        side = line.mark
        if line.mark == _NOTE_SIGN and added:
            side = "+"
        elif line.mark == _NOTE_SIGN and removed:
            side = "-"
        if side == "+":
            added.append(line)
        elif side == "-":
            removed.append(line)
        else:
            # An unchanged line or its note, which stand in both versions.
            yield from zip_longest(removed, added)
            removed = []
            added = []
            yield line, line
    yield from zip_longest(removed, added)


def _estimate_width_in_letters(line: DifferenceLine | None) -> int:
    """Returns an upper bound for the number of characters that a line is wide."""
    if line is None:
        return 0
    text = line.text
    if not text.isprintable():
        text = text.expandtabs(4)
    if not text.isprintable():  # What cannot be printed is shown as a mark, which is wider.
        return len(text) * 6
    if text.isascii():
        return len(text)
    return len(text) * 3
