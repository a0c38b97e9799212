"""The layout of one item, built in slices. A growing answer keeps its existing layout."""

import time
from collections.abc import Iterator

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter

from helix_desktop.gui.transcript.basic_boxes import LayoutBox, utf16_length
from helix_desktop.gui.transcript.box_stack import BoxStack
from helix_desktop.gui.transcript.drawing_style import TextMarks
from helix_desktop.gui.transcript.item_boxes import build_item_boxes
from helix_desktop.gui.transcript.layout_context import LayoutContext
from helix_desktop.gui.transcript.transcript_item import (
    TranscriptItem,
    TranscriptItemKind,
    item_source_text,
)

LONGER = 0.006  # A slice of work may take this many more seconds if it lays out visible items.
BESIDE_REPLACED = 14  # How far the ground of what a rewind removed goes beyond the text, in pixels.
_GROWING = frozenset({TranscriptItemKind.REPLY, TranscriptItemKind.LIVE_REPLY})


class ItemLayout(BoxStack):
    """`current_height` is exact for what is laid out and an estimate for the rest, until `done`."""

    def __init__(self, page: LayoutContext, index: int, guess: int) -> None:
        self.item: TranscriptItem = page.items.all[index]
        user = self.item.kind is TranscriptItemKind.USER
        super().__init__(
            (page.ink.scaled_pixels(14), page.ink.scaled_pixels(10)) if user else (0.0, 0.0)
        )
        self.done = False
        self._guess = guess
        self._page = page
        self._is_replaced = page.items.is_shown_though_replaced(index)
        self._has_rewound_header = page.items.rewind_opened_above(index) >= 0
        self._inner = page.nested_context(page.items, 2 * self._pad[0], page.key_prefix)
        self._more: Iterator[LayoutBox] = build_item_boxes(self._inner, index)

    @property
    def current_height(self) -> int:
        return round(self.bottom_edge) if self.done else max(round(self.bottom_edge), self._guess)

    def lay_out_slice(self, deadline: float, down_to: float = 0.0) -> bool:
        """Lays out until `deadline`, or longer to reach `down_to`. True when all is done."""
        while not self.done:
            box = next(self._more, None)
            if box is None:
                self.done = True
            else:
                self.add_box(box)
                now = time.perf_counter()
                if now > deadline and (self.bottom_edge > down_to or now > deadline + LONGER):
                    break
        return self.done

    def extend_answer_layout(self, index: int) -> None:
        """Lays out the end of an answer that has grown. All but its last chunk stays as it is."""
        self.item = self._page.items.all[index]
        start = max(
            (box.chunk_start for box in self.boxes if not box.is_table_continuation), default=-1
        )
        while (
            self.boxes
            and (self.boxes[-1].chunk_start < 0 or self.boxes[-1].chunk_start >= start)
            and len(self.boxes) > self.item.is_first_of_answer
        ):
            self.remove_last_box()
        if not self.boxes or start < 0:
            start = 0
        while self.boxes and not start:
            self.remove_last_box()
        self.done = False
        self._guess = 0
        self._more = build_item_boxes(self._inner, index, start)

    def take_over_continued_answer(self, index: int) -> bool:
        """Takes over the item at `index`, with its layout, if it is this one, finished
        or longer.
        """
        item = self._page.items.all[index]
        same = {
            item.kind,
            self.item.kind,
        } <= _GROWING and item.is_first_of_answer == self.item.is_first_of_answer
        if not same or not item_source_text(item).startswith(item_source_text(self.item)):
            return False
        if (
            item.is_first_of_answer
            and self.boxes
            and self.boxes[0].text != self._page.items.writer_of_answer(index)
        ):
            return False  # The provider named a different model from the one that was chosen.
        if item_source_text(item) == item_source_text(self.item) and self.done:
            self.item = item
        else:
            self.extend_answer_layout(index)
        return True

    def draw_boxes(
        self, painter: QPainter, top: float, bottom: float, marks: TextMarks, near: LayoutBox | None
    ) -> None:
        ink, width, height = self._page.ink, self._page.width, self.current_height
        if self._is_replaced:
            edge = ink.scaled_pixels(BESIDE_REPLACED)
            painter.fillRect(QRectF(-edge, 0, width + 2 * edge, height), ink.token_colour("window"))
            painter.fillRect(
                QRectF(-edge, 0, ink.scaled_pixels(2), height), ink.token_colour("faint")
            )
        if self.item.kind is TranscriptItemKind.USER:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            above = self._tops[1] if self._has_rewound_header and len(self.boxes) > 1 else 0
            ink.theme.fill_surface(
                painter, QRectF(0, above, width, height - above), "code", ink.scaled_pixels(10)
            )
        super().draw_boxes(painter, top, bottom, marks, near)

    def pieces_with_top_and_height(
        self, top: float, bottom: float
    ) -> Iterator[tuple[object, float, float]]:
        if self.item.kind is TranscriptItemKind.USER or self._is_replaced:
            yield self, 0.0, float(self.current_height)
        yield from super().pieces_with_top_and_height(top, bottom)

    def copyable_markdown(self, first: int, last: int) -> str:
        """The Markdown source for chunks that are selected whole, plain text for the others."""
        source = item_source_text(self.item)
        if first <= 0 and last >= self.text_length and self.done:
            return source or self.text_between_offsets(first, last)
        chosen, before = "", -1
        for chunk, a, b, end in self._laid_out_chunks():
            if b <= first or a >= last:
                continue
            whole = chunk >= 0 and a >= first and b <= last
            between = (
                "\n" if chunk == before else "\n\n"
            )  # Either the list goes on, or a new block begins.
            chosen += between if chosen else ""
            chosen += (
                source[chunk:end].strip("\n")
                if whole
                else self.text_between_offsets(max(a, first), min(b, last))
            )
            before = end
        return chosen

    def _laid_out_chunks(self) -> list[tuple[int, int, int, int]]:
        """Returns for each chunk its start in the source, its first and last offset,
        and its end in the source.
        """
        found: list[tuple[int, int, int, int]] = []
        for start, box in zip(self._starts, self.boxes, strict=True):
            end = start + utf16_length(box.text)
            goes_on = bool(found) and found[-1][0] == box.chunk_start >= 0
            first = found.pop()[1] if goes_on else start
            found.append((box.chunk_start, first, end, box.chunk_end))
        return found
