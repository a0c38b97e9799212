"""A stack of boxes and the text that runs through them.

Offsets run through the boxes' texts, one after another, with one for the line end between two.
"""

import time
from bisect import bisect_right
from collections.abc import Iterator

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.basic_boxes import HotSpot, LayoutBox, utf16_length
from helix_desktop.gui.transcript.code_box import CodeBox
from helix_desktop.gui.transcript.drawing_style import NO_MARKS, TextMarks


@dataclass(frozen=True, slots=True)
class HotSpotIndex:
    box: int
    hot: int


class BoxStack:
    """`pad` is the space at the left and right, and the space above and below."""

    def __init__(self, pad: tuple[float, float] = (0.0, 0.0)) -> None:
        self.boxes: list[LayoutBox] = []
        self._tops: list[float] = []
        self._starts: list[int] = []
        self.text_length = 0
        self._bottom = 0.0
        self._pad = pad

    @property
    def bottom_edge(self) -> float:
        """The bottom of the last box with the space below it."""
        return self._bottom + 2 * self._pad[1]

    @property
    def end_offset(self) -> int:
        return max(0, self.text_length - 1)

    @property
    def vertical_padding(self) -> float:
        """The space above the first box and below the last one."""
        return self._pad[1]

    def add_box(self, box: LayoutBox) -> None:
        self._tops.append(self._bottom + box.gap)
        self._starts.append(self.text_length)
        self._bottom += box.gap + box.height
        self.text_length += utf16_length(box.text) + 1
        self.boxes.append(box)

    def remove_last_box(self) -> None:
        self.boxes.pop()
        self.text_length = self._starts.pop()
        self._tops.pop()
        self._bottom = 0.0
        if self.boxes:
            self._bottom = self._tops[-1] + self.boxes[-1].height

    def draw_boxes(
        self, painter: QPainter, top: float, bottom: float, marks: TextMarks, near: LayoutBox | None
    ) -> None:
        """Draws what is between `top` and `bottom`. The painter's origin is the stack's."""
        painter.translate(*self._pad)
        for number in self._box_numbers_between(top, bottom):
            box = self.boxes[number]
            painter.save()
            painter.translate(box.left, self._tops[number])
            marks_of_box = marks
            if marks is not NO_MARKS:
                length = utf16_length(box.text)
                marks_of_box = marks.marks_within(self._starts[number], length)
            if box.is_from_subagent:
                line_left = box.ink.scaled_pixels(6) - box.left
                line = QRectF(line_left, -box.gap, 2, box.height + box.gap)
                painter.fillRect(line, box.ink.token_colour("line"))
            box.draw_box(painter, marks_of_box, near=box is near)
            painter.restore()
        painter.translate(-self._pad[0], -self._pad[1])

    def pieces_with_top_and_height(
        self, top: float, bottom: float
    ) -> Iterator[tuple[object, float, float]]:
        """Yields each drawn piece between `top` and `bottom` with its top and height,
        including the space above it.
        """
        for number in self._box_numbers_between(top, bottom):
            box = self.boxes[number]
            yield box, self._tops[number] + self._pad[1] - box.gap, box.gap + box.height

    def _box_numbers_between(self, top: float, bottom: float) -> range:
        first = max(0, bisect_right(self._tops, top - self._pad[1]) - 1)
        return range(first, bisect_right(self._tops, bottom - self._pad[1]))

    def nearest_box_and_inner_place(self, place: QPointF) -> tuple[int, QPointF]:
        """Returns the box nearest to a place, and the place in that box's coordinates."""
        inner = place - QPointF(*self._pad)
        if not self.boxes:
            return -1, inner
        last_number = len(self.boxes) - 1
        last_above = bisect_right(self._tops, inner.y()) - 1
        number = min(max(last_above, 0), last_number)
        corner_of_box = QPointF(self.boxes[number].left, self._tops[number])
        return number, inner - corner_of_box

    def text_offset_at(self, place: QPointF) -> int:
        number, inner = self.nearest_box_and_inner_place(place)
        if number < 0:
            return 0
        return self._starts[number] + self.boxes[number].nearest_offset(inner)

    def hot_spot_at(self, place: QPointF) -> HotSpot | None:
        number, inner = self.nearest_box_and_inner_place(place)
        if number < 0:
            return None
        return self.boxes[number].find_hot_spot(inner)

    def box_index_of_offset(self, offset: int) -> int:
        return min(max(bisect_right(self._starts, offset) - 1, 0), len(self.boxes) - 1)

    def caret_rect_at(self, offset: int) -> QRectF:
        number = self.box_index_of_offset(offset)
        if number < 0:
            return QRectF(0, 0, 1, 16)
        inner = self.boxes[number].caret_rect(offset - self._starts[number])
        return inner.translated(
            self.boxes[number].left + self._pad[0], self._tops[number] + self._pad[1]
        )

    def word_or_paragraph_at(self, offset: int, *, paragraph: bool) -> tuple[int, int]:
        number = self.box_index_of_offset(offset)
        if number < 0:
            return offset, offset
        box = self.boxes[number]
        start = self._starts[number]
        if paragraph:
            return start, start + utf16_length(box.text)
        first, last = box.word_range_at(offset - start)
        return start + first, start + last

    def list_hot_spots(self) -> list[HotSpotIndex]:
        """Returns what Tab visits, from the top."""
        indexes: list[HotSpotIndex] = []
        for box_number, box in enumerate(self.boxes):
            for spot_number in range(len(box.list_tab_stops())):
                indexes.append(HotSpotIndex(box_number, spot_number))
        return indexes

    def hot_spot_and_rect(self, spot: HotSpotIndex) -> tuple[HotSpot, QRectF]:
        box = self.boxes[spot.box]
        hot_spot = box.list_tab_stops()[spot.hot]
        left = box.left + self._pad[0]
        top = self._tops[spot.box] + self._pad[1]
        return hot_spot, hot_spot.place.translated(left, top)

    def find_starts_and_lengths(self, lowercase_needle: str) -> tuple[tuple[int, int], ...]:
        """Finds all places of a lower-case text in this item."""
        places: list[tuple[int, int]] = []
        size = utf16_length(lowercase_needle)
        for start, box in zip(self._starts, self.boxes, strict=True):
            text = box.text.lower()
            at = text.find(lowercase_needle)
            while at >= 0 and len(places) < 2_000:
                places.append((start + utf16_length(text[:at]), size))
                at = text.find(lowercase_needle, at + len(lowercase_needle))
        return tuple(places)

    def text_between_offsets(self, first: int, last: int) -> str:
        lines: list[str] = []
        for start, box in zip(self._starts, self.boxes, strict=True):
            begin = max(first - start, 0)
            end = min(last - start, utf16_length(box.text))
            # A picture or a rule has no text, but takes part in what is copied.
            is_empty_box_inside = begin == end == 0 and first <= start < last
            if begin < end or is_empty_box_inside:
                text = box.copyable_text(begin, end).replace("\N{LINE SEPARATOR}", "\n")
                if begin == 0:
                    text = box.copied_prefix + text
                lines.append(text)
        return "\n".join(lines)

    def colour_code_boxes_and_report_change(self, deadline: float) -> bool:
        changed = False
        for box in self.boxes:
            if isinstance(box, CodeBox) and box.needs_colours:
                changed = box.colour_code_and_report_completion(deadline) or changed
                if time.perf_counter() > deadline:
                    break
        return changed

    @property
    def has_uncoloured_code(self) -> bool:
        return any(isinstance(box, CodeBox) and box.needs_colours for box in self.boxes)
