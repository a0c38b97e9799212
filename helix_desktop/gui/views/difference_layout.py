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
KEPT_LAYOUTS = 400  # So many lines stay laid out after they were visible.
COLOURING_SECONDS = 0.004  # Colouring may take at most this long of each frame.
# In pixels: the column of a line number, and the box of a comment.
GUTTER = 44
BOX = 128
# In pixels: a heading with buttons and the gap above it, and a heading of an exact difference.
HEADING_HEIGHT = 34
HEADING_GAP = 14
LOW_HEADING_HEIGHT = 19
LOW_HEADING_GAP = 0


class DifferenceLines:
    """The lines of a file in a view of this width, in one column or two. `is_exact`: no
    line is cut.
    """

    def __init__(
        self, ink: DrawingStyle, width: int, language: str, *, two_columns: bool, is_exact: bool
    ) -> None:
        """Works out what all lines have in common: the font's measures, and the width
        that a line's text has in one column or two. `is_exact`: every character is
        shown, as the user agrees to what stands there.
        """
        self.ink = ink
        self.width = width
        self.has_two_columns = two_columns
        self._language = language
        self._is_exact = is_exact
        if is_exact:
            self.heading = ink.scaled_pixels(LOW_HEADING_HEIGHT)
            self.heading_gap = ink.scaled_pixels(LOW_HEADING_GAP)
        else:
            self.heading = ink.scaled_pixels(HEADING_HEIGHT)
            self.heading_gap = ink.scaled_pixels(HEADING_GAP)
        metrics = QFontMetricsF(ink.mono)
        # The distance from the top of a line to its baseline.
        self._base = (ink.code_line_height - metrics.height()) / 2 + metrics.ascent()
        self._option = ink.build_code_option(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self._laid: OrderedDict[tuple[int, bool], QTextLayout] = OrderedDict()
        # Lines that are shown without colours and still have to be coloured, oldest first.
        self.plain: dict[tuple[int, bool], DifferenceLine] = {}
        column_width = width
        if two_columns:
            column_width = width // 2
        text_width = column_width - self.left_edge(right=False) - ink.scaled_pixels(6)
        least_text_width = 8 * ink.code_letter_width
        self.text_width = max(text_width, least_text_width)

    def left_edge(self, *, right: bool) -> int:
        gutter = self.ink.scaled_pixels(GUTTER)
        sign_width = round(2 * self.ink.code_letter_width)
        if not self.has_two_columns:  # The numbers of both versions stand before the line.
            return 2 * gutter + sign_width
        if right:
            return self.width // 2 + gutter + sign_width
        return gutter + sign_width

    def count_wrapped_lines_of_row(self, number: int, row: DifferenceRow) -> int:
        line_counts: list[int] = []
        if self.has_two_columns and row.left is not None:
            line_counts.append(self.lay_out_line(number, row.left, right=False).lineCount())
        if row.right is not None:
            line_counts.append(self.lay_out_line(number, row.right, right=True).lineCount())
        return max(line_counts)

    def lay_out_line(
        self, number: int, line: DifferenceLine, *, right: bool, coloured: bool = False
    ) -> QTextLayout:
        """Lays out the text of a line, or takes the layout that is still there. A line
        is first shown without colours, which take longer, and laid out again with them
        (`coloured`) when there is time. `right`: the new version of the line, not the
        old one.
        """
        key = (number, right)
        existing_layout = self._laid.get(key)
        if existing_layout is not None and not coloured:
            self._laid.move_to_end(key)
            return existing_layout
        text = line.text
        if not self._is_exact:
            text = make_safe_text(text[:LONGEST])
            if len(line.text) > LONGEST:
                text += "…"
        layout = QTextLayout(text, self.ink.mono)
        self._laid[key] = layout
        layout.setTextOption(self._option)
        layout.setCacheEnabled(True)  # Without this, Qt would shape the text again for every paint.
        if coloured:
            formats = self.ink.highlight_ranges(highlight_code(text, self._language))
            changed_format = self.ink.changed_word_format(line.mark)
            for start, length in line.changed_spans:
                formats.append(build_format_range(start, length, changed_format))
            layout.setFormats(formats)
        else:
            self.plain[key] = line
        self._wrap_at_text_width(layout)
        if len(self._laid) > KEPT_LAYOUTS:
            self._laid.popitem(last=False)
        return layout

    def _wrap_at_text_width(self, layout: QTextLayout) -> None:
        line_height = self.ink.code_line_height
        top = 0.0
        layout.beginLayout()
        text_line = layout.createLine()
        while text_line.isValid():
            text_line.setLineWidth(self.text_width)
            text_line.setPosition(QPointF(0, top + (line_height - text_line.height()) / 2))
            top += line_height
            text_line = layout.createLine()
        layout.endLayout()

    def colour_visible_lines_briefly(self, visible: range) -> Iterator[int]:
        """Colours visible lines for a moment, and yields their rows. Invisible lines
        are dropped.
        """
        deadline = time.perf_counter() + COLOURING_SECONDS
        while self.plain:
            key = next(iter(self.plain))
            line = self.plain.pop(key)
            number, right = key
            if number in visible:
                self.lay_out_line(number, line, right=right, coloured=True)
                yield number
            else:
                self._laid.pop(key, None)
            if time.perf_counter() > deadline:
                return

    def draw_line(
        self,
        painter: QPainter,
        number: int,
        line: DifferenceLine | None,
        line_rect: QRectF,
        selection: TextSelection | None,
        *,
        right: bool,
    ) -> None:
        """Draws one line. `selection` is None if nothing is selected in this column."""
        if line is None:
            painter.fillRect(line_rect, self.ink.token_colour("free"))
            return
        if line.mark == "-":
            painter.fillRect(line_rect, self.ink.token_colour("danger_soft"))
        elif line.mark == "+":
            painter.fillRect(line_rect, self.ink.token_colour("added_soft"))

        text_left = self.left_edge(right=right)
        # The line numbers and the sign are drawn as one text, as drawing several texts is slower.
        margin_text = self._text_in_margin(line, right=right)
        painter.setFont(self.ink.mono)
        painter.setPen(self.ink.token_colour("faint"))
        margin_left = text_left - (len(margin_text) + 1) * self.ink.code_letter_width
        margin_start = QPointF(margin_left, line_rect.top() + self._base)
        painter.drawText(margin_start, margin_text)

        layout = self.lay_out_line(number, line, right=right)
        painter.setPen(self.ink.token_colour("text"))
        overlays: list[QTextLayout.FormatRange] = []
        if selection is not None:
            selected = selection.selected_offsets_of(number, len(layout.text()))
            overlays = self.ink.overlay_formats(TextMarks(selected))
        text_start = QPointF(text_left, line_rect.top())
        layout.draw(painter, text_start, overlays)

    def _text_in_margin(self, line: DifferenceLine, *, right: bool) -> str:
        """Returns a line's number in each version that the column shows, and its sign."""
        if not self.has_two_columns:
            line_numbers = [line.old_number, line.new_number]
        elif right:
            line_numbers = [line.new_number]
        else:
            line_numbers = [line.old_number]
        text = ""
        for line_number in line_numbers:
            # A line that one version does not have has no number there.
            text += f"{line_number or '':>5} "
        return text + (line.mark or " ")


class DifferenceRowHeights:
    """The place of each row. A wrapped row's height is estimated until it is visible,
    to save seconds.
    """

    def __init__(
        self, sheet: DifferenceSheet, lines: DifferenceLines, commented_row: int = -1
    ) -> None:
        """Estimates the height of each row from its number of letters, so that
        thousands of rows need not be laid out. A row's true height is measured when it
        comes into sight.
        """
        self._sheet = sheet
        self._lines = lines
        self._letters = lines.text_width / lines.ink.code_letter_width  # As many fit on a line.
        line_height = lines.ink.code_line_height
        self._heights: list[float] = []
        for length in sheet.lengths:
            wrapped_lines = max(1, ceil(length / self._letters))
            self._heights.append(line_height * wrapped_lines)
        for number in sheet.heads:
            self._heights[number] = lines.heading
            if number > 0:
                self._heights[number] += lines.heading_gap
        self._measured: set[int] = set()
        self.commented_row = -1
        self.reserve_room_for_comment_below(commented_row)

    def reserve_room_for_comment_below(self, row: int) -> None:
        """Reserves room for the comment box below a row only; -1: below none."""
        box_height = self._lines.ink.scaled_pixels(BOX)
        if self.commented_row >= 0:
            self._heights[self.commented_row] -= box_height
        if row >= 0:
            self._heights[row] += box_height
        self.commented_row = row
        self.tops = list(accumulate(self._heights, initial=0.0))

    def measure_wrapped_rows(self, numbers: Iterable[int]) -> bool:
        """Measures rows. Returns True if one was not as high as estimated."""
        was_estimate_wrong = False
        for number in numbers:
            is_wrapped = self._sheet.lengths[number] > self._letters
            if not is_wrapped or number in self._measured:
                continue
            self._measured.add(number)
            lines = self._lines.count_wrapped_lines_of_row(number, self._sheet.rows[number])
            height = self._lines.ink.code_line_height * lines
            if number == self.commented_row:
                height += self._lines.ink.scaled_pixels(BOX)
            if height != self._heights[number]:
                self._heights[number] = height
                was_estimate_wrong = True
        if was_estimate_wrong:
            self.tops = list(accumulate(self._heights, initial=0.0))
        return was_estimate_wrong

    def nearest_row(self, y: float) -> int:
        last_row = len(self._heights) - 1
        row_begun_above = bisect_right(self.tops, y) - 1
        return min(max(row_begun_above, 0), last_row)

    def rows_between(self, top: float, bottom: float) -> range:
        first_row = max(0, bisect_right(self.tops, top) - 1)
        end_row = bisect_right(self.tops, bottom)
        return range(first_row, min(end_row, len(self._heights)))
