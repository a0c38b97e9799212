"""Boxes one under another, and the text that runs through them.

Offsets count the boxes' texts, one after another, with one for the line end between two.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from helix_desktop.gui.transcript.boxes import Box, Hot, length
from helix_desktop.gui.transcript.code import CodeBox
from helix_desktop.gui.transcript.drawing import NO_MARKS, Marks
from helix_desktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Spot:
    """A hot place: which box, which of its hot places."""

    box: int
    hot: int


class Stack:
    """`pad` is the space at the left and right, and above and below."""

    def __init__(self, pad: tuple[float, float] = (0.0, 0.0)) -> None:
        self.boxes: list[Box] = []
        self._tops: list[float] = []
        self._starts: list[int] = []
        self._size = 0
        self._bottom = 0.0
        self._pad = pad

    @property
    def bottom(self) -> float:
        """Where the last box ends, and the space below it."""
        return self._bottom + 2 * self._pad[1]

    @property
    def length(self) -> int:
        return self._size

    @property
    def end(self) -> int:
        """The offset behind the last character."""
        return max(0, self._size - 1)

    @property
    def pad(self) -> float:
        """The space above the first box and below the last one."""
        return self._pad[1]

    def add(self, box: Box) -> None:
        self._tops.append(self._bottom + box.gap)
        self._starts.append(self._size)
        self._bottom += box.gap + box.height
        self._size += length(box.text) + 1
        self.boxes.append(box)

    def drop(self) -> None:
        """Take the last box off."""
        self.boxes.pop()
        self._size = self._starts.pop()
        self._tops.pop()
        self._bottom = self._tops[-1] + self.boxes[-1].height if self.boxes else 0.0

    def paint(self, painter: QPainter, top: float, bottom: float, marks: Marks, near: Box | None) -> None:
        """Draw what lies between `top` and `bottom`, the painter's origin being the stack's."""
        painter.translate(*self._pad)
        for number in self._between(top, bottom):
            box = self.boxes[number]
            painter.save()
            painter.translate(box.left, self._tops[number])
            inner = marks if marks is NO_MARKS else marks.within(self._starts[number], length(box.text))
            if box.nested:
                line = QRectF(-box.left + box.ink.px(6), -box.gap, 2, box.height + box.gap)
                painter.fillRect(line, box.ink.colour("line"))
            box.paint(painter, inner, near=box is near)
            painter.restore()
        painter.translate(-self._pad[0], -self._pad[1])

    def drawn(self, top: float, bottom: float) -> Iterator[tuple[object, float, float]]:
        """What is drawn between `top` and `bottom`, with the space above it: what, from where, and how high."""
        for number in self._between(top, bottom):
            box = self.boxes[number]
            yield box, self._tops[number] + self._pad[1] - box.gap, box.gap + box.height

    def _between(self, top: float, bottom: float) -> range:
        first = max(0, bisect_right(self._tops, top - self._pad[1]) - 1)
        return range(first, bisect_right(self._tops, bottom - self._pad[1]))

    # --- places and offsets

    def box_at(self, place: QPointF) -> tuple[int, QPointF]:
        """The box nearest to a place, and the place as that box sees it."""
        inner = place - QPointF(*self._pad)
        number = min(max(bisect_right(self._tops, inner.y()) - 1, 0), max(0, len(self.boxes) - 1))
        if not self.boxes:
            return -1, inner
        return number, inner - QPointF(self.boxes[number].left, self._tops[number])

    def offset_at(self, place: QPointF) -> int:
        number, inner = self.box_at(place)
        return self._starts[number] + self.boxes[number].offset_at(inner) if number >= 0 else 0

    def hot_at(self, place: QPointF) -> Hot | None:
        number, inner = self.box_at(place)
        return self.boxes[number].hot_at(inner) if number >= 0 else None

    def box_of(self, offset: int) -> int:
        return min(max(bisect_right(self._starts, offset) - 1, 0), len(self.boxes) - 1)

    def caret(self, offset: int) -> QRectF:
        number = self.box_of(offset)
        if number < 0:
            return QRectF(0, 0, 1, 16)
        inner = self.boxes[number].caret(offset - self._starts[number])
        return inner.translated(self.boxes[number].left + self._pad[0], self._tops[number] + self._pad[1])

    def word_at(self, offset: int) -> tuple[int, int]:
        number = self.box_of(offset)
        if number < 0:
            return offset, offset
        first, last = self.boxes[number].words_at(offset - self._starts[number])
        return first + self._starts[number], last + self._starts[number]

    def paragraph_at(self, offset: int) -> tuple[int, int]:
        number = self.box_of(offset)
        if number < 0:
            return offset, offset
        return self._starts[number], self._starts[number] + length(self.boxes[number].text)

    def spots(self) -> list[Spot]:
        """Every hot place, in reading order, for the keyboard."""
        return [Spot(b, h) for b, box in enumerate(self.boxes) for h in range(len(box.hots))]

    def spot(self, spot: Spot) -> tuple[Hot, QRectF]:
        """A hot place and where it is in the item."""
        box = self.boxes[spot.box]
        hot = box.hots[spot.hot]
        return hot, hot.place.translated(box.left + self._pad[0], self._tops[spot.box] + self._pad[1])

    # --- text

    def found(self, needle: str) -> tuple[tuple[int, int], ...]:
        """Where a text (in small letters) stands in this item."""
        places: list[tuple[int, int]] = []
        size = length(needle)
        for start, box in zip(self._starts, self.boxes, strict=True):
            text = box.text.lower()
            at = text.find(needle)
            while at >= 0 and len(places) < 2_000:
                places.append((start + length(text[:at]), size))
                at = text.find(needle, at + len(needle))
        return tuple(places)

    def text(self, first: int, last: int) -> str:
        """What is between two offsets, as it is pasted elsewhere."""
        lines: list[str] = []
        for start, box in zip(self._starts, self.boxes, strict=True):
            size = length(box.text)
            a, b = max(first - start, 0), min(last - start, size)
            if a < b or (a == b == 0 and first <= start < last):
                before = box.before if a == 0 else ""
                lines.append(before + box.copied(a, b).replace("\N{LINE SEPARATOR}", "\n"))
        return "\n".join(lines)

    def colour(self, until: float) -> bool:
        """Find the colours of code, until the time `until`; True when something looks different."""
        changed = False
        for box in self.boxes:
            if isinstance(box, CodeBox) and box.pending:
                changed = box.colour(until) or changed
                if time.perf_counter() > until:
                    break
        return changed

    @property
    def colourless(self) -> bool:
        return any(isinstance(box, CodeBox) and box.pending for box in self.boxes)
