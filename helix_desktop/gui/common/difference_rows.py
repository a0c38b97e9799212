"""A changed file as rows of a difference: hunk headers, lines with their signs, pairs
for two columns. Plain Python.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from helix_desktop.engine.changes.diff_hunks import Hunk, find_changes_within_line
from helix_desktop.engine.hidden_characters import GOES_ON, mark_text, marked_lines
from helix_desktop.fast_dataclass import dataclass

Span = tuple[int, int]

_FILES = re.compile(r"--- [^\n]*\n\+\+\+ [^\n]*\n(?=@@)")
_HEAD = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NO_END = "\\ No newline at end of file"
MOST = 200  # Changed words are not marked in blocks with more lines than this.


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
    """A line of a hunk: "-", "+" or a blank, and the text behind it."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """A row: a hunk header, or one line in each column. With one column, `right` is the line."""

    hunk: int
    head: str = ""
    left: DifferenceLine | None = None
    right: DifferenceLine | None = None


@dataclass(frozen=True, slots=True)
class DifferenceSheet:
    """The rows of a file, which of them are headers, and the most characters in a row
    of each column.
    """

    is_two_columns: bool
    rows: Sequence[DifferenceRow]
    heads: Sequence[int]
    lengths: Sequence[int]


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


def build_hunk_rows(hunks: Sequence[Hunk], *, two_columns: bool) -> list[DifferenceRow]:
    rows: list[DifferenceRow] = []
    for number, hunk in enumerate(hunks):
        lines: list[_SignedLine] = []
        for sign, raw_line in hunk.rows:
            text = raw_line.decode("utf-8", "replace")
            lines.append(_SignedLine(sign, text.removesuffix("\n").removesuffix("\r")))
        numbered_lines = _number_hunk_lines(lines, hunk.old, hunk.new)
        rows += _build_rows_of_hunk(number, hunk.unified_header, numbered_lines, two_columns)
    return rows


def build_patch_rows(text: str, *, two_columns: bool) -> list[DifferenceRow]:
    """Builds rows for every line of a unified difference, with hidden characters
    marked. Empty for other texts.
    """
    names = _FILES.match(text)
    if names is None:
        return []
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
    old_line, new_line = names.splitlines()
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
        for piece in marked_lines(line[1:]):
            marked.append(_SignedLine(sign, piece))
    return marked


def find_changed_words(lines: Sequence[str]) -> Iterator[tuple[int, str, Span]]:
    """Finds changed words in a textual difference: the line, its mark, and the span."""
    removed: list[int] = []
    added: list[int] = []
    for number, line in enumerate(lines):
        sign = line[:1]
        if line.startswith(("--- ", "+++ ")):  # The name of a file.
            sign = ""
        if sign == "+":
            added.append(number)
        elif sign == "-" and not added:
            removed.append(number)
        else:
            yield from _find_changed_words_of_block(lines, removed, added)
            removed = []
            added = []
            if sign == "-":
                removed.append(number)
    yield from _find_changed_words_of_block(lines, removed, added)


def _find_changed_words_of_block(
    lines: Sequence[str], removed: Sequence[int], added: Sequence[int]
) -> Iterator[tuple[int, str, Span]]:
    """Compares removed lines with the added ones that stand in their place, both by number."""
    if max(len(removed), len(added)) > MOST:
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
    removed: list[DifferenceLine] = []
    added: list[DifferenceLine] = []
    last_old = old_before
    last_new = new_before
    is_continuation = False
    for line in lines:
        old_number = 0
        new_number = 0
        if not is_continuation and line.sign in ("-", " "):
            last_old += 1
            old_number = last_old
        if not is_continuation and line.sign in ("+", " "):
            last_new += 1
            new_number = last_new
        is_continuation = line.text.endswith(GOES_ON)

        numbered_line = DifferenceLine(line.sign, line.text, old_number, new_number)
        if line.sign == "-":
            removed.append(numbered_line)
        elif line.sign == "+":
            added.append(numbered_line)
        else:
            numbered += _pair_replaced_lines(removed, added)
            removed = []
            added = []
            numbered.append(numbered_line)
    numbered += _pair_replaced_lines(removed, added)
    return numbered


def _pair_replaced_lines(
    removed: list[DifferenceLine], added: list[DifferenceLine]
) -> list[DifferenceLine]:
    """Gives each removed line the added line that stands in its place, and the other way round."""
    if max(len(removed), len(added)) > MOST:
        return removed + added
    removed_with_counterparts = list(removed)
    added_with_counterparts = list(added)
    for index in range(min(len(removed), len(added))):
        old_line = removed[index]
        new_line = added[index]
        removed_with_counterparts[index] = replace(old_line, counterpart=new_line.text)
        added_with_counterparts[index] = replace(new_line, counterpart=old_line.text)
    return removed_with_counterparts + added_with_counterparts


def _pair_for_two_columns(
    lines: Sequence[DifferenceLine],
) -> Iterator[tuple[DifferenceLine | None, DifferenceLine | None]]:
    removed: list[DifferenceLine] = []
    added: list[DifferenceLine] = []
    for line in lines:
        if line.mark == "-":
            removed.append(line)
        elif line.mark == "+":
            added.append(line)
        else:
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
