"""A changed file as rows of a difference: hunk headers, lines with their signs, pairs
for two columns. Plain Python.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from helix_desktop.engine.changes.diff_hunks import Hunk, find_changes_within_line
from helix_desktop.engine.hidden_characters import GOES_ON, mark_text, marked_lines
from helix_desktop.fast_dataclass import dataclass

Span = tuple[int, int]
_Version = tuple[
    str, str, int, int
]  # The sign, the text, the old number and the new number of a line.
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
            return find_changes_within_line(self.text, self.counterpart)[0]
        return find_changes_within_line(self.counterpart, self.text)[1]


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


def build_difference_sheet(found: Sequence[DifferenceRow], *, two_columns: bool) -> DifferenceSheet:
    heads = [number for number, row in enumerate(found) if row.head]
    lengths = [
        max(
            _estimate_width_in_letters(row.left) if two_columns else 0,
            _estimate_width_in_letters(row.right),
        )
        for row in found
    ]
    return DifferenceSheet(two_columns, found, heads, lengths)


def build_hunk_rows(hunks: Sequence[Hunk], *, two_columns: bool) -> list[DifferenceRow]:
    found: list[DifferenceRow] = []
    for number, hunk in enumerate(hunks):
        texts = ((sign, raw.decode("utf-8", "replace")) for sign, raw in hunk.rows)
        lines = [(sign, text.removesuffix("\n").removesuffix("\r")) for sign, text in texts]
        numbered = _number_hunk_lines(lines, hunk.old, hunk.new)
        found += _build_rows_of_hunk(number, hunk.unified_header, numbered, two_columns)
    return found


def build_patch_rows(text: str, *, two_columns: bool) -> list[DifferenceRow]:
    """Builds rows for every line of a unified difference, with hidden characters
    marked. Empty for other texts.
    """
    if (names := _FILES.match(text)) is None:
        return []
    first, second = (DifferenceLine("", mark_text(line)) for line in names[0].splitlines())
    found = [DifferenceRow(-1, right=first), DifferenceRow(-1, right=second)]
    if two_columns:
        found = [DifferenceRow(-1, left=first, right=second)]
    lines = text[names.end() :].removesuffix("\n").split("\n")
    at = number = 0
    while at < len(lines):
        head = _HEAD.fullmatch(lines[at])
        end = _find_hunk_end(lines, at + 1, head) if head is not None else 0
        if head is None or not end:
            return []
        old, new = (max(0, int(head[group]) - 1) for group in (1, 3))
        shown = [
            (line[:1], piece) for line in lines[at + 1 : end] for piece in marked_lines(line[1:])
        ]
        found += _build_rows_of_hunk(
            number, lines[at], _number_hunk_lines(shown, old, new), two_columns
        )
        at, number = end, number + 1
    return found


def find_changed_words(lines: Sequence[str]) -> Iterator[tuple[int, str, Span]]:
    """Finds changed words in a textual difference: the line, its mark, and the span."""
    gone: list[int] = []
    come: list[int] = []
    for number, line in enumerate([*lines, ""]):
        sign = "" if line.startswith(("--- ", "+++ ")) else line[:1]
        if sign == "+":
            come.append(number)
        elif sign == "-" and not come:
            gone.append(number)
        else:
            for one, other in (
                zip(gone, come, strict=False) if max(len(gone), len(come)) <= MOST else ()
            ):
                went, came = find_changes_within_line(lines[one][1:], lines[other][1:])
                yield from ((one, "-", (at + 1, length)) for at, length in went)
                yield from ((other, "+", (at + 1, length)) for at, length in came)
            gone, come = ([number] if sign == "-" else []), []


def _find_hunk_end(lines: Sequence[str], at: int, head: re.Match[str]) -> int:
    """The end of a hunk's lines; 0 if they do not match its header."""
    old, new = (1 if head[group] is None else int(head[group]) for group in (2, 4))
    while (old or new) and at < len(lines):
        sign = lines[at][:1]
        if lines[at] != _NO_END:
            if sign not in ("+", "-", " "):
                return 0
            old, new = old - (sign != "+"), new - (sign != "-")
        at += 1
    return 0 if old or new else at + (at < len(lines) and lines[at] == _NO_END)


def _build_rows_of_hunk(
    number: int,
    head: str,
    lines: list[DifferenceLine],
    two_columns: bool,  # noqa: FBT001 -- one of two forms
) -> list[DifferenceRow]:
    found = [DifferenceRow(number, head=head)]
    if two_columns:
        return found + [
            DifferenceRow(number, left=left, right=right)
            for left, right in _pair_for_two_columns(lines)
        ]
    return found + [DifferenceRow(number, right=line) for line in lines]


def _number_hunk_lines(
    lines: Sequence[tuple[str, str]], old: int, new: int
) -> list[DifferenceLine]:
    """Adds line numbers and changed words. A continuation of a wrapped line has no number."""
    found: list[DifferenceLine] = []
    gone: list[_Version] = []
    come: list[_Version] = []
    goes_on = False
    for sign, text in (*lines, ("", "")):
        if sign not in ("-", "+") and (gone or come):
            found += _pair_replaced_lines(gone, come)
            gone, come = [], []
        if not sign:
            break
        if not goes_on:
            old, new = old + (sign in "- "), new + (sign in "+ ")
        line = (
            sign,
            text,
            0 if goes_on or sign in "+\\" else old,
            0 if goes_on or sign in "-\\" else new,
        )
        if sign in "-+":
            (gone if sign == "-" else come).append(line)
        else:
            found.append(DifferenceLine(*line))
        goes_on = text.endswith(GOES_ON)
    return found


def _pair_replaced_lines(gone: list[_Version], come: list[_Version]) -> Iterator[DifferenceLine]:
    pairs = min(len(gone), len(come)) if max(len(gone), len(come)) <= MOST else 0
    for one, other in ((gone, come), (come, gone)):
        for at, line in enumerate(one):
            yield DifferenceLine(*line, other[at][1] if at < pairs else None)


def _pair_for_two_columns(
    lines: Sequence[DifferenceLine],
) -> Iterator[tuple[DifferenceLine | None, DifferenceLine | None]]:
    gone: list[DifferenceLine] = []
    come: list[DifferenceLine] = []
    for line in lines:
        if line.mark == "-":
            gone.append(line)
        elif line.mark == "+":
            come.append(line)
        else:
            yield from zip_longest(gone, come)
            gone, come = [], []
            yield line, line
    yield from zip_longest(gone, come)


def _estimate_width_in_letters(line: DifferenceLine | None) -> int:
    """Returns an upper bound for the number of characters that a line is wide."""
    if line is None:
        return 0
    text = line.text if line.text.isprintable() else line.text.expandtabs(4)
    return len(text) * (6 if not text.isprintable() else 1 if text.isascii() else 3)
