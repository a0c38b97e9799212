"""Lays out a difference: its lines, which are coloured after they are first drawn, and its rows."""

import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import ceil

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QFontMetricsF, QPainter, QTextLayout, QTextOption

from helix_desktop.gui.common.difference_rows import DifferenceLine, DifferenceRow, DifferenceSheet
from helix_desktop.gui.common.text_selection import TextSelection
from helix_desktop.gui.transcript.code_highlighting import highlight_code
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks, build_format_range
from helix_desktop.gui.transcript.safe_text import make_safe_text

LONGEST = 5_000  # Longer lines are cut to this many characters.
LAID = 400
COLOURING = 0.004  # Colouring may take at most this many seconds of each frame.
GUTTER, BOX = 44, 128
HEADING, LOW_HEADING = (
    (34, 14),
    (19, 0),
)  # The height of a heading, with and without buttons, and the gap above it.


class DifferenceLines:
    """The lines of a file in a view of this width, in one column or two. `is_exact`: no
    line is cut.
    """

    def __init__(
        self, ink: DrawingStyle, width: int, language: str, *, two_columns: bool, is_exact: bool
    ) -> None:
        self.ink, self.width, self.has_two_columns = ink, width, two_columns
        self._language, self._is_exact = language, is_exact
        self.heading, self.heading_gap = map(
            ink.scaled_pixels, LOW_HEADING if is_exact else HEADING
        )
        metrics = QFontMetricsF(ink.mono)
        # The distance from the top of a line to its baseline.
        self._base = (ink.code_line_height - metrics.height()) / 2 + metrics.ascent()
        self._option = ink.build_code_option(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self._laid: OrderedDict[tuple[int, bool], QTextLayout] = OrderedDict()
        # Lines that are shown without colours and still have to be coloured, oldest first.
        self.plain: dict[tuple[int, bool], DifferenceLine] = {}
        end = width // 2 if two_columns else width
        self.text_width = max(
            end - self.left_edge(right=False) - ink.scaled_pixels(6), 8 * ink.code_letter_width
        )

    def left_edge(self, *, right: bool) -> int:
        gutter, sign = self.ink.scaled_pixels(GUTTER), round(2 * self.ink.code_letter_width)
        if self.has_two_columns:
            return (self.width // 2 if right else 0) + gutter + sign
        return 2 * gutter + sign

    def count_wrapped_lines_of_row(self, number: int, row: DifferenceRow) -> int:
        sides = [(row.left, False)] if self.has_two_columns and row.left is not None else []
        sides += [(row.right, True)] if row.right is not None else []
        return max(
            self.lay_out_line(number, line, right=right).lineCount() for line, right in sides
        )

    def lay_out_line(
        self, number: int, line: DifferenceLine, *, right: bool, coloured: bool = False
    ) -> QTextLayout:
        key = (number, right)
        laid = self._laid.get(key)
        if laid is not None and not coloured:
            self._laid.move_to_end(key)
            return laid
        text = line.text
        if not self._is_exact:
            text = make_safe_text(text[:LONGEST]) + ("…" if len(text) > LONGEST else "")
        laid = self._laid[key] = QTextLayout(text, self.ink.mono)
        laid.setTextOption(self._option)
        laid.setCacheEnabled(True)  # Without this, Qt would shape the text again for every paint.
        if coloured:
            formats = self.ink.highlight_ranges(highlight_code(text, self._language))
            changed = self.ink.changed_word_format(line.mark)
            laid.setFormats(
                [
                    *formats,
                    *(build_format_range(at, size, changed) for at, size in line.changed_spans),
                ]
            )
        else:
            self.plain[key] = line
        laid.beginLayout()
        at = 0.0
        while (made := laid.createLine()).isValid():
            made.setLineWidth(self.text_width)
            made.setPosition(QPointF(0, at + (self.ink.code_line_height - made.height()) / 2))
            at += self.ink.code_line_height
        laid.endLayout()
        if len(self._laid) > LAID:
            self._laid.popitem(last=False)
        return laid

    def colour_visible_lines_briefly(self, visible: range) -> Iterator[int]:
        """Colours visible lines for a moment, and yields their rows. Invisible lines
        are dropped.
        """
        until = time.perf_counter() + COLOURING
        while self.plain:
            number, right = key = next(iter(self.plain))
            line = self.plain.pop(key)
            if number in visible:
                self.lay_out_line(number, line, right=right, coloured=True)
                yield number
            else:
                self._laid.pop(key, None)
            if time.perf_counter() > until:
                break

    def draw_line(
        self,
        painter: QPainter,
        number: int,
        line: DifferenceLine | None,
        place: QRectF,
        selection: TextSelection | None,
        *,
        right: bool,
    ) -> None:
        """Draws one line. `selection` is None if nothing is selected in this column."""
        tone = (
            "free" if line is None else {"-": "danger_soft", "+": "added_soft"}.get(line.mark, "")
        )
        if tone:
            painter.fillRect(place, self.ink.token_colour(tone))
        if line is None:
            return
        left = self.left_edge(right=right)
        # The line numbers and the sign are drawn as one text, as drawing several texts is slower.
        both = [line.old_number, line.new_number]
        figures = both[right : right + 1] if self.has_two_columns else both
        text = "".join(f"{figure or '':>5} " for figure in figures) + (line.mark or " ")
        painter.setFont(self.ink.mono)
        painter.setPen(self.ink.token_colour("faint"))
        start = left - (len(text) + 1) * self.ink.code_letter_width
        painter.drawText(QPointF(start, place.top() + self._base), text)
        layout = self.lay_out_line(number, line, right=right)
        painter.setPen(self.ink.token_colour("text"))
        chosen = (
            selection.selected_offsets_of(number, len(layout.text()))
            if selection is not None
            else (0, 0)
        )
        marks = self.ink.overlay_formats(TextMarks(chosen)) if selection is not None else []
        layout.draw(painter, QPointF(left, place.top()), marks)


class DifferenceRowHeights:
    """The place of each row. A wrapped row's height is estimated until it is visible,
    to save seconds.
    """

    def __init__(
        self, sheet: DifferenceSheet, lines: DifferenceLines, commented_row: int = -1
    ) -> None:
        self._sheet, self._lines = sheet, lines
        self._letters = letters = (
            lines.text_width / lines.ink.code_letter_width
        )  # As many fit on a line.
        line = lines.ink.code_line_height
        self._heights = [
            line if length <= letters else line * ceil(length / letters) for length in sheet.lengths
        ]
        for number in sheet.heads:
            self._heights[number] = lines.heading + (lines.heading_gap if number else 0)
        self._measured: set[int] = set()
        self.commented_row = -1
        self.reserve_room_for_comment_below(commented_row)

    def reserve_room_for_comment_below(self, row: int) -> None:
        """Reserves room for the comment box below a row only; -1: below none."""
        for at, more in ((self.commented_row, -1), (row, 1)):
            if at >= 0:
                self._heights[at] += more * self._lines.ink.scaled_pixels(BOX)
        self.commented_row = row
        self.tops = list(accumulate(self._heights, initial=0.0))

    def measure_wrapped_rows(self, numbers: Iterable[int]) -> bool:
        """Measures rows. Returns True if one was not as high as estimated."""
        unseen = (number for number in numbers if number not in self._measured)
        wrapped = [number for number in unseen if self._sheet.lengths[number] > self._letters]
        self._measured.update(wrapped)
        before = [self._heights[number] for number in wrapped]
        for number in wrapped:
            lines = self._lines.count_wrapped_lines_of_row(number, self._sheet.rows[number])
            room = self._lines.ink.scaled_pixels(BOX) if number == self.commented_row else 0
            self._heights[number] = self._lines.ink.code_line_height * lines + room
        if before == [self._heights[number] for number in wrapped]:
            return False
        self.tops = list(accumulate(self._heights, initial=0.0))
        return True

    def nearest_row(self, y: float) -> int:
        return min(max(bisect_right(self.tops, y) - 1, 0), len(self._heights) - 1)

    def rows_between(self, top: float, bottom: float) -> range:
        last = bisect_right(self.tops, bottom)
        return range(max(0, bisect_right(self.tops, top) - 1), min(last, len(self._heights)))
