"""One item laid out, as far as it is: its boxes with their places, and the text that runs through them.

Offsets into an item count its boxes' texts, one after another, with one for the line end between two.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter

from helix_desktop.gui.transcript.boxes import Box, Hot, length, piece
from helix_desktop.gui.transcript.code import CodeBox
from helix_desktop.gui.transcript.ink import NO_MARKS, Ink, Marks
from helix_desktop.gui.transcript.items import Item, ItemKind
from helix_desktop.gui.transcript.layout import boxes, text_of
from helix_desktop.gui.transcript.page import Page

_GROWING = frozenset({ItemKind.REPLY, ItemKind.LIVE_REPLY})


@dataclass(frozen=True, slots=True)
class Spot:
    """A hot place of an item: which box, which of its hot places."""

    box: int
    hot: int


class Laid:
    """`height` is right for what is laid out and a guess for the rest, until `done`."""

    def __init__(self, page: Page, index: int, guess: int) -> None:
        self.item: Item = page.items.all[index]
        self.boxes: list[Box] = []
        self.done = False
        self._tops: list[float] = []
        self._starts: list[int] = []
        self._size = 0
        self._bottom = 0.0
        self._guess = guess
        self._pad = (float(page.ink.px(14)), float(page.ink.px(10))) if self.item.kind is ItemKind.USER else (0.0, 0.0)
        self._page = page
        self._inner = page
        if self._pad[0]:
            self._inner = page.nested(page.items, 2 * self._pad[0], page.prefix)
        self._more: Iterator[Box] = boxes(self._inner, index)

    @property
    def height(self) -> int:
        bottom = self._bottom + 2 * self._pad[1]
        return round(bottom) if self.done else max(round(bottom), self._guess)

    @property
    def length(self) -> int:
        return self._size

    def advance(self, until: float) -> bool:
        """Lay out more, until the time `until`; True when all is laid out."""
        while not self.done:
            box = next(self._more, None)
            if box is None:
                self.done = True
            else:
                self._add(box)
                if time.perf_counter() > until:
                    break
        return self.done

    def grow(self, index: int) -> None:
        """The answer has become longer: all but its last chunk stays as it is."""
        self.item = self._page.items.all[index]
        start = max((box.chunk for box in self.boxes if not box.continues), default=-1)
        while self.boxes and (self.boxes[-1].chunk < 0 or self.boxes[-1].chunk >= start) and len(self.boxes) > self.item.head:
            self._drop()
        self.done = False
        self._guess = 0
        self._more = boxes(self._inner, index, max(start, 0)) if self.boxes and start > 0 else self._again(index)

    def becomes(self, index: int) -> bool:
        """Whether the item now at `index` is this one, written to its end; then it is laid out already."""
        item = self._page.items.all[index]
        same = item.kind in _GROWING and self.item.kind in _GROWING and item.head == self.item.head
        if not same or not text_of(item).startswith(text_of(self.item)):
            return False
        if text_of(item) == text_of(self.item) and self.done:
            self.item = item
        else:
            self.grow(index)
        return True

    def _again(self, index: int) -> Iterator[Box]:
        while self.boxes:
            self._drop()
        return boxes(self._inner, index)

    # --- drawing

    def paint(self, painter: QPainter, top: float, bottom: float, marks: Marks, near: Box | None) -> None:
        """Draw what lies between `top` and `bottom`, the painter's origin being the item's."""
        ink = self._page.ink
        if self.item.kind is ItemKind.USER:
            self._surface(painter, ink)
        painter.translate(*self._pad)
        first = max(0, bisect_right(self._tops, top) - 1)
        for number in range(first, len(self.boxes)):
            box = self.boxes[number]
            if self._tops[number] > bottom:
                break
            painter.save()
            painter.translate(box.left, self._tops[number])
            inner = marks if marks is NO_MARKS else marks.within(self._starts[number], length(box.text))
            if box.nested:
                painter.fillRect(QRectF(-box.left + ink.px(6), -box.gap, 2, box.height + box.gap), ink.colour("line"))
            box.paint(painter, inner, near=box is near)
            painter.restore()
        painter.translate(-self._pad[0], -self._pad[1])

    def _surface(self, painter: QPainter, ink: Ink) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(ink.colour("code"))
        painter.drawRoundedRect(QRectF(0, 0, self._page.width, self.height), ink.px(10), ink.px(10))

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
                lines.append(before + piece(box.text, a, b).replace("\N{LINE SEPARATOR}", "\n"))
        return "\n".join(lines)

    def markdown(self, first: int, last: int) -> str:
        """The same as it was written, for chunks that are wholly chosen; the others as text."""
        source = text_of(self.item)
        if first <= 0 and last >= self._size and self.done:
            return source or self.text(first, last)
        parts: list[str] = []
        for chunk, a, b, end in self._chunks():
            if b <= first or a >= last:
                continue
            whole = chunk >= 0 and a >= first and b <= last
            parts.append(source[chunk:end].strip("\n") if whole else self.text(max(a, first), min(b, last)))
        return "\n\n".join(parts)

    def _chunks(self) -> Iterator[tuple[int, int, int, int]]:
        """Each chunk: where it begins in the source, its first and last offset, where it ends in the source."""
        open_chunk: tuple[int, int, int, int] | None = None
        for start, box in zip(self._starts, self.boxes, strict=True):
            end = start + length(box.text)
            if open_chunk is not None and box.chunk >= 0 and open_chunk[0] == box.chunk:
                open_chunk = (box.chunk, open_chunk[1], end, box.last)
                continue
            if open_chunk is not None:
                yield open_chunk
            open_chunk = (box.chunk, start, end, box.last)
        if open_chunk is not None:
            yield open_chunk

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

    def _add(self, box: Box) -> None:
        self._tops.append(self._bottom + box.gap)
        self._starts.append(self._size)
        self._bottom += box.gap + box.height
        self._size += length(box.text) + 1
        self.boxes.append(box)

    def _drop(self) -> None:
        self.boxes.pop()
        self._size = self._starts.pop()
        self._tops.pop()
        self._bottom = self._tops[-1] + self.boxes[-1].height if self.boxes else 0.0
