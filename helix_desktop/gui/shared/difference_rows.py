"""A changed file as rows of the difference: heads of hunks, lines with their marks, pairs for two columns. Plain Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from helix_desktop.engine import exact
from helix_desktop.engine.changes.hunks import Hunk, within
from helix_desktop.values import dataclass

Span = tuple[int, int]
_Version = tuple[str, str, int, int]  # sign, text and numbers
_FILES = re.compile(r"--- [^\n]*\n\+\+\+ [^\n]*\n(?=@@)")
_HEAD = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NO_END = "\\ No newline at end of file"
MOST = 200  # rows of a block in which changed words are looked for


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one version. `old` and `new` count from 1; 0: of the other version alone. `other`: the line in its place there."""

    sign: str
    text: str
    old: int = 0
    new: int = 0
    other: str | None = None

    @property
    def marks(self) -> Sequence[Span]:
        """What changed within it. Found when it is drawn: of a file of 25,000 lines it took seconds."""
        if self.other is None:
            return ()
        return within(self.text, self.other)[0] if self.sign == "-" else within(self.other, self.text)[1]


@dataclass(frozen=True, slots=True)
class Row:
    """A row: the head of a hunk, or one line in each column. In one column `right` is the line."""

    hunk: int
    head: str = ""
    left: Line | None = None
    right: Line | None = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """The rows of a file in one column or two, which of them are heads, and how many letters wide each is at most."""

    columns: bool
    rows: Sequence[Row]
    heads: Sequence[int]
    lengths: Sequence[int]


def sheet(found: Sequence[Row], *, columns: bool) -> Sheet:
    heads = [number for number, row in enumerate(found) if row.head]
    lengths = [max(_length(row.left) if columns else 0, _length(row.right)) for row in found]
    return Sheet(columns, found, heads, lengths)


def rows(hunks: Sequence[Hunk], *, columns: bool) -> list[Row]:
    """All rows of a file."""
    found: list[Row] = []
    for number, hunk in enumerate(hunks):
        texts = ((sign, raw.decode("utf-8", "replace")) for sign, raw in hunk.rows)
        lines = [(sign, text.removesuffix("\n").removesuffix("\r")) for sign, text in texts]
        found += _of_hunk(number, hunk.header, _numbered(lines, hunk.old, hunk.new), columns)
    return found


def patch_rows(text: str, *, columns: bool) -> list[Row]:
    """A unified difference of one file, shown exactly: every line of it, with what hides in it marked. Nothing for any other text."""
    names = _FILES.match(text)
    if names is None:
        return []
    first, second = (exact.shown(line) for line in names[0].splitlines())
    found = [Row(-1, left=Line("", first), right=Line("", second))] if columns else [Row(-1, right=Line("", first))]
    found += [] if columns else [Row(-1, right=Line("", second))]
    lines = text[names.end() :].removesuffix("\n").split("\n")
    at = number = 0
    while at < len(lines):
        head = _HEAD.fullmatch(lines[at])
        end = _end(lines, at + 1, head) if head is not None else 0
        if head is None or not end:
            return []
        old, new = (max(0, int(head[group]) - 1) for group in (1, 3))
        shown = [(line[:1], piece) for line in lines[at + 1 : end] for piece in exact.lines(line[1:])]
        found += _of_hunk(number, lines[at], _numbered(shown, old, new), columns)
        at, number = end, number + 1
    return found


def changed_words(lines: Sequence[str]) -> Iterator[tuple[int, str, Span]]:
    """The same words in a difference as text: the line, its sign, and where in the line they stand."""
    gone: list[int] = []
    come: list[int] = []
    for number, line in enumerate([*lines, ""]):
        sign = line[:1]
        if sign == "+":
            come.append(number)
        elif sign == "-" and not come:
            gone.append(number)
        else:
            for one, other in zip(gone, come, strict=False) if max(len(gone), len(come)) <= MOST else ():
                went, came = within(lines[one][1:], lines[other][1:])
                yield from ((one, "-", (at + 1, length)) for at, length in went)
                yield from ((other, "+", (at + 1, length)) for at, length in came)
            gone, come = ([number] if sign == "-" else []), []


def _end(lines: Sequence[str], at: int, head: re.Match[str]) -> int:
    """Where the lines of a hunk end; 0 where they are not what its head says."""
    old, new = (1 if head[group] is None else int(head[group]) for group in (2, 4))
    while (old or new) and at < len(lines):
        sign = lines[at][:1]
        if lines[at] != _NO_END:
            if sign not in ("+", "-", " "):
                return 0
            old, new = old - (sign != "+"), new - (sign != "-")
        at += 1
    if old or new:
        return 0
    return at + (at < len(lines) and lines[at] == _NO_END)


def _of_hunk(number: int, head: str, lines: list[Line], columns: bool) -> list[Row]:  # noqa: FBT001 -- one of two forms
    found = [Row(number, head=head)]
    if columns:
        return found + [Row(number, left=left, right=right) for left, right in _pairs(lines)]
    return found + [Row(number, right=line) for line in lines]


def _numbered(lines: Sequence[tuple[str, str]], old: int, new: int) -> list[Line]:
    """With the numbers of the lines, and the words that differ. A piece of a line that goes on has no number."""
    found: list[Line] = []
    gone: list[_Version] = []
    come: list[_Version] = []
    goes_on = False
    for sign, text in (*lines, ("", "")):
        if sign not in ("-", "+") and (gone or come):
            found += _beside(gone, come)
            gone, come = [], []
        if not sign:
            break
        if not goes_on:
            old, new = old + (sign in "- "), new + (sign in "+ ")
        line = sign, text, 0 if goes_on or sign in "+\\" else old, 0 if goes_on or sign in "-\\" else new
        if sign in "-+":
            (gone if sign == "-" else come).append(line)
        else:
            found.append(Line(*line))
        goes_on = text.endswith(exact.GOES_ON)
    return found


def _beside(gone: list[_Version], come: list[_Version]) -> Iterator[Line]:
    """Each with the line whose place it took."""
    pairs = min(len(gone), len(come)) if max(len(gone), len(come)) <= MOST else 0
    for one, other in ((gone, come), (come, gone)):
        yield from (Line(*line, other[at][1]) if at < pairs else Line(*line) for at, line in enumerate(one))


def _pairs(lines: Sequence[Line]) -> Iterator[tuple[Line | None, Line | None]]:
    gone: list[Line] = []
    come: list[Line] = []
    for line in lines:
        if line.sign == "-":
            gone.append(line)
        elif line.sign == "+":
            come.append(line)
        else:
            yield from zip_longest(gone, come)
            gone, come = [], []
            yield line, line
    yield from zip_longest(gone, come)


def _length(line: Line | None) -> int:
    """At most so many letters wide."""
    if line is None:
        return 0
    text = line.text if line.text.isprintable() else line.text.expandtabs(4)
    return len(text) * (6 if not text.isprintable() else 1 if text.isascii() else 3)
