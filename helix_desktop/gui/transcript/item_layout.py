"""One item laid out, as far as it is. A long one is laid out in slices; an answer that grows keeps what it has."""

from __future__ import annotations

import time
from collections.abc import Iterator

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter

from helix_desktop.gui.transcript.boxes import Box, length
from helix_desktop.gui.transcript.drawing import Marks
from helix_desktop.gui.transcript.item import Item, ItemKind, text_of
from helix_desktop.gui.transcript.layout import boxes
from helix_desktop.gui.transcript.page import Page
from helix_desktop.gui.transcript.stack import Stack

LONGER = 0.006  # seconds
_GROWING = frozenset({ItemKind.REPLY, ItemKind.LIVE_REPLY})


class Laid(Stack):
    """`height` is right for what is laid out and a guess for the rest, until `done`."""

    def __init__(self, page: Page, index: int, guess: int) -> None:
        self.item: Item = page.items.all[index]
        user = self.item.kind is ItemKind.USER
        super().__init__((float(page.ink.px(14)), float(page.ink.px(10))) if user else (0.0, 0.0))
        self.done = False
        self._guess = guess
        self._page = page
        self._inner = page
        if self._pad[0]:
            self._inner = page.nested(page.items, 2 * self._pad[0], page.prefix)
        self._more: Iterator[Box] = boxes(self._inner, index)

    @property
    def height(self) -> int:
        return round(self.bottom) if self.done else max(round(self.bottom), self._guess)

    def advance(self, until: float, down_to: float = 0.0) -> bool:
        """Lay out more, until the time `until`, and a little longer where what is `down_to` there is still missing; True when all is
        laid out.
        """
        while not self.done:
            box = next(self._more, None)
            if box is None:
                self.done = True
            else:
                self.add(box)
                now = time.perf_counter()
                if now > until and (self.bottom > down_to or now > until + LONGER):
                    break
        return self.done

    def grow(self, index: int) -> None:
        """The answer has become longer: all but its last chunk stays as it is."""
        self.item = self._page.items.all[index]
        start = max((box.chunk for box in self.boxes if not box.continues), default=-1)
        while (
            self.boxes
            and (self.boxes[-1].chunk < 0 or self.boxes[-1].chunk >= start)
            and len(self.boxes) > self.item.head
        ):
            self.drop()
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
            self.drop()
        return boxes(self._inner, index)

    def paint(self, painter: QPainter, top: float, bottom: float, marks: Marks, near: Box | None) -> None:
        if self.item.kind is ItemKind.USER:
            self._surface(painter)
        super().paint(painter, top, bottom, marks, near)

    def drawn(self, top: float, bottom: float) -> Iterator[tuple[object, float, float]]:
        if self.item.kind is ItemKind.USER:
            yield self, 0.0, float(self.height)
        yield from super().drawn(top, bottom)

    def _surface(self, painter: QPainter) -> None:
        ink = self._page.ink
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(ink.colour("code"))
        painter.drawRoundedRect(QRectF(0, 0, self._page.width, self.height), ink.px(10), ink.px(10))

    def markdown(self, first: int, last: int) -> str:
        """The same as it was written, for chunks that are wholly chosen; the others as text."""
        source = text_of(self.item)
        if first <= 0 and last >= self._size and self.done:
            return source or self.text(first, last)
        chosen, before = "", -1
        for chunk, a, b, end in self._chunks():
            if b <= first or a >= last:
                continue
            whole = chunk >= 0 and a >= first and b <= last
            between = "\n" if chunk == before else "\n\n"  # a long list goes on, or something else begins
            chosen += between if chosen else ""
            chosen += source[chunk:end].strip("\n") if whole else self.text(max(a, first), min(b, last))
            before = end
        return chosen

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
