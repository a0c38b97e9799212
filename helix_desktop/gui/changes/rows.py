"""A changed file as rows of the difference: heads of hunks, lines with their marks, pairs for two columns. Plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from helix_desktop.engine.changes.hunks import Hunk, within

Span = tuple[int, int]
MOST = 200  # rows of a block in which changed words are looked for


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one version. `number` counts from 1; 0: of the other version alone. `marks`: what changed within it."""

    sign: str
    text: str
    old: int = 0
    new: int = 0
    marks: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A row: the head of a hunk, or one line in each column. In one column `right` is the line."""

    hunk: int
    head: str = ""
    left: Line | None = None
    right: Line | None = None


def rows(hunks: Sequence[Hunk], *, columns: bool) -> list[Row]:
    """All rows of a file."""
    found: list[Row] = []
    for number, hunk in enumerate(hunks):
        found.append(Row(number, head=hunk.header))
        lines = _lines(hunk)
        if columns:
            found += [Row(number, left=left, right=right) for left, right in _pairs(lines)]
        else:
            found += [Row(number, right=line) for line in lines]
    return found


def _lines(hunk: Hunk) -> list[Line]:
    found: list[Line] = []
    old, new = hunk.old, hunk.new
    gone: list[Line] = []
    come: list[Line] = []
    for sign, raw in (*hunk.rows, ("", b"")):
        if sign in (" ", "") and (gone or come):
            found += _marked(gone, come)
            gone, come = [], []
        if not sign:
            break
        text = raw.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
        if sign == "-":
            old += 1
            gone.append(Line(sign, text, old=old))
        elif sign == "+":
            new += 1
            come.append(Line(sign, text, new=new))
        else:
            old, new = old + 1, new + 1
            found.append(Line(sign, text, old, new))
    return found


def _marked(gone: list[Line], come: list[Line]) -> list[Line]:
    """With the words that differ, where a line took another's place."""
    if len(gone) > MOST or len(come) > MOST:
        return [*gone, *come]
    for number in range(min(len(gone), len(come))):
        before, after = gone[number], come[number]
        went, came = within(before.text, after.text)
        gone[number] = Line("-", before.text, old=before.old, marks=tuple(went))
        come[number] = Line("+", after.text, new=after.new, marks=tuple(came))
    return [*gone, *come]


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
