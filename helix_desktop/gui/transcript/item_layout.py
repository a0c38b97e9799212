"""The layout of one item, built in slices. A growing answer keeps its existing layout."""

import time
from collections.abc import Iterator

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter

from helix_desktop.fast_dataclass import dataclass
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


@dataclass(frozen=True, slots=True)
class _LaidOutChunk:
    """A chunk of the Markdown source, and where its text stands among that of all boxes.
    `source_start` is -1 for a box that shows no Markdown.
    """

    source_start: int
    source_end: int
    first_offset: int
    last_offset: int


class ItemLayout(BoxStack):
    """`current_height` is exact for what is laid out and an estimate for the rest, until `done`."""

    def __init__(self, page: LayoutContext, index: int, guess: int) -> None:
        self.item: TranscriptItem = page.items.all[index]
        padding = (0.0, 0.0)
        # A user's message has a ground of its own.
        if self.item.kind is TranscriptItemKind.USER:
            side = page.ink.scaled_pixels(14)
            above_and_below = page.ink.scaled_pixels(10)
            padding = (side, above_and_below)
        super().__init__(padding)
        self.done = False
        self._guess = guess
        self._page = page
        self._is_replaced = page.items.is_shown_though_replaced(index)
        self._has_rewound_header = page.items.rewind_opened_above(index) >= 0
        self._inner = page.nested_context(page.items, 2 * self._pad[0], page.key_prefix)
        self._more: Iterator[LayoutBox] = build_item_boxes(self._inner, index)

    @property
    def current_height(self) -> int:
        height = round(self.bottom_edge)
        if self.done:
            return height
        return max(height, self._guess)

    def lay_out_slice(self, deadline: float, down_to: float = 0.0) -> bool:
        """Lays out until `deadline`, or longer to reach `down_to`. True when all is done."""
        while not self.done:
            box = next(self._more, None)
            if box is None:
                self.done = True
                break
            self.add_box(box)
            now = time.perf_counter()
            is_late = now > deadline
            if is_late and self.bottom_edge > down_to:
                break
            if now > deadline + LONGER:
                break
        return self.done

    def extend_answer_layout(self, index: int) -> None:
        """Lays out the end of an answer that has grown. All but its last chunk stays as it is."""
        self.item = self._page.items.all[index]
        # Later pieces of a table have no header of their own, so a table begins again as a whole.
        chunk_starts = [box.chunk_start for box in self.boxes if not box.is_table_continuation]
        last_chunk_start = max(chunk_starts, default=-1)

        boxes_to_keep = 0
        if self.item.is_first_of_answer:
            boxes_to_keep = 1  # The name over the answer, which is in no chunk.
        while len(self.boxes) > boxes_to_keep:
            if 0 <= self.boxes[-1].chunk_start < last_chunk_start:
                break
            self.remove_last_box()

        start = last_chunk_start
        if not self.boxes or last_chunk_start <= 0:
            # Everything is built again, the name too.
            start = 0
            while self.boxes:
                self.remove_last_box()
        self.done = False
        self._guess = 0
        self._more = build_item_boxes(self._inner, index, start)

    def take_over_continued_answer(self, index: int) -> bool:
        """Takes over the item at `index`, with its layout, if it is this one, finished
        or longer.
        """
        item = self._page.items.all[index]
        if item.kind not in _GROWING or self.item.kind not in _GROWING:
            return False
        if item.is_first_of_answer != self.item.is_first_of_answer:
            return False
        new_text = item_source_text(item)
        old_text = item_source_text(self.item)
        if not new_text.startswith(old_text):
            return False
        if item.is_first_of_answer and self.boxes:
            shown_writer = self.boxes[0].text
            # The provider may name a different model from the one that was chosen.
            if shown_writer != self._page.items.writer_of_answer(index):
                return False
        if self.done and new_text == old_text:
            self.item = item
        else:
            self.extend_answer_layout(index)
        return True

    def draw_boxes(
        self, painter: QPainter, top: float, bottom: float, marks: TextMarks, near: LayoutBox | None
    ) -> None:
        """Draws the ground of the whole item, and then its boxes on it.

        A user's message has a ground of its own. An item that a rewind removed, and that is shown
        only because the user opened what was removed, also has a line at its left edge.
        """
        ink = self._page.ink
        width = self._page.width
        height = self.current_height
        if self._is_replaced:
            edge = ink.scaled_pixels(BESIDE_REPLACED)
            ground = QRectF(-edge, 0, width + 2 * edge, height)
            painter.fillRect(ground, ink.token_colour("window"))
            line_at_edge = QRectF(-edge, 0, ink.scaled_pixels(2), height)
            painter.fillRect(line_at_edge, ink.token_colour("faint"))
        if self.item.kind is TranscriptItemKind.USER:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            message_top = 0.0
            # The line that closes what a rewind removed stands above the message.
            if self._has_rewound_header and len(self.boxes) > 1:
                message_top = self._tops[1]
            message = QRectF(0, message_top, width, height - message_top)
            ink.theme.fill_surface(painter, message, "code", ink.scaled_pixels(10))
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
        is_all_selected = first <= 0 and last >= self.text_length
        if is_all_selected and self.done:
            return source or self.text_between_offsets(first, last)

        copied = ""
        end_of_last_chunk = -1
        for chunk in self._laid_out_chunks():
            if chunk.last_offset <= first or chunk.first_offset >= last:
                continue
            if copied:
                # Either the list goes on, or a new block begins.
                is_continued = chunk.source_start == end_of_last_chunk
                copied += "\n" if is_continued else "\n\n"
            copied += self._copyable_chunk(chunk, source, first, last)
            end_of_last_chunk = chunk.source_end
        return copied

    def _copyable_chunk(self, chunk: _LaidOutChunk, source: str, first: int, last: int) -> str:
        is_whole = chunk.first_offset >= first and chunk.last_offset <= last
        if is_whole and chunk.source_start >= 0:
            return source[chunk.source_start : chunk.source_end].strip("\n")
        first_selected = max(chunk.first_offset, first)
        last_selected = min(chunk.last_offset, last)
        return self.text_between_offsets(first_selected, last_selected)

    def _laid_out_chunks(self) -> list[_LaidOutChunk]:
        chunks: list[_LaidOutChunk] = []
        for start, box in zip(self._starts, self.boxes, strict=True):
            first_offset = start
            # A chunk may have more than one box.
            if chunks and box.chunk_start >= 0 and chunks[-1].source_start == box.chunk_start:
                first_offset = chunks.pop().first_offset
            last_offset = start + utf16_length(box.text)
            chunks.append(_LaidOutChunk(box.chunk_start, box.chunk_end, first_offset, last_offset))
        return chunks
