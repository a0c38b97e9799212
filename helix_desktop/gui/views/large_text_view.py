"""A text of any number of lines, of which only visible ones are laid out: numbers, colours,
selection, marks.

It shows anything with a length that returns lines: a page of an entry, hex computed on demand, a
difference. A line of a megabyte is cut; copying uses the full source.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from PySide6.QtCore import QPoint, QPointF, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QResizeEvent, QTextLayout, QTextOption
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.found_words import find_needle_spans
from helix_desktop.gui.common.text_selection import NO_POSITION, TextPosition
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.code_highlighting import Run
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.selectable_text_area import TextSurface
from helix_desktop.gui.translation import tr

LONGEST = 4_000  # Longer lines are cut to this many characters.
KEPT_LAYOUTS = 300  # So many lines stay laid out after they were visible.
SLICE_SECONDS = 0.004  # So long is coloured before the window takes its turn.
PAD = 14  # The space in pixels between the numbers and the text.
SPACE_ABOVE = 10  # The space in pixels above the first line, and below the last.


class TextLines(Protocol):
    """The shown lines. A list of strings is one implementation."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> str: ...


class TextLineView(TextSurface):
    """`selection_changed`: other lines were selected."""

    selection_changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Sets up an empty view of lines of equal height, so that a text of any length
        is shown at once.
        """
        super().__init__(theme, parent)
        self._ink = DrawingStyle(theme)
        self.viewed_lines: TextLines = []
        self._first_number = 1
        self._tone: Callable[[int], str] | None = None
        self._labels: Callable[[int], str] | None = None
        self._laid: OrderedDict[int, QTextLayout] = OrderedDict()
        self._runs: dict[int, list[Run]] = {}
        self._colouring: Iterator[tuple[int, Run]] = iter(())
        self._needles: Sequence[str] = ()
        self._by_line = False
        self._widest = 0.0
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._continue_colouring_lines)
        self.setCornerWidget(QWidget(self))
        self.setAccessibleName(tr("Text"))
        theme.changed.connect(self._restyle_lines)

    def show_text_lines(
        self,
        lines: TextLines,
        *,
        first_number: int = 1,
        colours: Iterator[tuple[int, Run]] | None = None,
        tone: Callable[[int], str] | None = None,
        labels: Callable[[int], str] | None = None,
    ) -> None:
        """Shows another text from its top. `tone(i)` names a line's background;
        `labels` replace line numbers.
        """
        self.viewed_lines = lines
        self._first_number = first_number
        self._tone = tone
        self._labels = labels
        self._laid.clear()
        self._runs.clear()
        self._widest = 0.0
        self.selection.clear_selection()
        self._colouring = colours or iter(())
        self._update_scroll_ranges()
        self.verticalScrollBar().setValue(0)
        self.horizontalScrollBar().setValue(0)
        self._slices.start()
        self.viewport().update()
        self.selection_changed.emit()

    def highlight_matches(self, needles: Sequence[str]) -> None:
        self._needles = needles
        self.viewport().update()

    def scroll_to_line(self, number: int) -> None:
        """Scrolls to a line, counted from 0."""
        room_above = self.viewport().height() / 3  # For the lines that precede it.
        self.verticalScrollBar().setValue(round(number * self._line_height - room_above))

    def selected_line_range(self) -> tuple[int, int] | None:
        """Returns the first and the last selected line, counted from 0, or None."""
        if self.selection.anchor.number < 0:
            return None
        first, last = self.selection.ordered_ends
        if self._by_line:
            return first.number, last.number
        if self.selection.is_empty_selection:
            return None
        # Of a line at whose beginning the selection ends, nothing is selected.
        ends_before_last_line = last.offset == 0 and last.number > first.number
        if ends_before_last_line:
            return first.number, last.number - 1
        return first.number, last.number

    def selected_text(self) -> str:
        selected_range = self.selected_line_range()
        if selected_range is None:
            return ""
        if not self._by_line:
            return super().selected_text()
        first, last = selected_range
        return "\n".join(self.viewed_lines[number] for number in range(first, last + 1))

    def line_text(self, number: int) -> str | None:
        return self.viewed_lines[number]

    def select_all_text(self) -> None:
        if len(self.viewed_lines):
            last_line = len(self.viewed_lines) - 1
            last_length = len(self.viewed_lines[last_line])
            self.selection.set_both_ends(TextPosition(0, 0), TextPosition(last_line, last_length))
            self._by_line = False
            self.show_selection()

    def show_selection(self) -> None:
        self.viewport().update()
        self.selection_changed.emit()

    @property
    def _line_height(self) -> float:
        return self._ink.code_line_height

    @property
    def _gutter_width(self) -> float:
        letter_width = self._ink.code_letter_width
        padding = self._ink.scaled_pixels(PAD)
        if self._labels is not None:
            return letter_width * 12 + padding
        last_number = str(self._first_number + len(self.viewed_lines))
        digits = max(3, len(last_number))
        return letter_width * digits + padding * 1.5

    def _update_scroll_ranges(self) -> None:
        view = self.viewport()
        room_above_and_below = 2 * self._ink.scaled_pixels(SPACE_ABOVE)
        text_height = round(len(self.viewed_lines) * self._line_height) + room_above_and_below
        hidden_height = max(0, text_height - view.height())
        vertical_bar = self.verticalScrollBar()
        vertical_bar.setRange(0, hidden_height)
        vertical_bar.setPageStep(view.height())
        vertical_bar.setSingleStep(round(self._line_height))
        horizontal_bar = self.horizontalScrollBar()
        horizontal_bar.setRange(0, self._hidden_width())
        horizontal_bar.setPageStep(view.width())
        width_of_four_letters = round(self._ink.code_letter_width * 4)
        horizontal_bar.setSingleStep(width_of_four_letters)

    def _hidden_width(self) -> int:
        """Returns by how many pixels the widest line laid out until now is too wide."""
        needed_width = self._widest + self._gutter_width + 4
        return max(0, round(needed_width - self.viewport().width()))

    def _restyle_lines(self) -> None:
        self._ink = DrawingStyle(self.theme)
        self._laid.clear()
        self._widest = 0.0
        self._update_scroll_ranges()
        self.viewport().update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._update_scroll_ranges()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        self.viewport().update()

    # --- Drawing the lines and their numbers

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the lines in sight, and nothing else of the text."""
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), self._ink.token_colour("panel"))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        whole_view = self.viewport().rect()
        corner = self._ink.scaled_pixels(8)
        self._ink.theme.fill_surface(painter, whole_view, "code", corner)
        top = self._ink.scaled_pixels(SPACE_ABOVE) - self.verticalScrollBar().value()
        first = max(0, int(-top / self._line_height))
        # Two more than fit: the first and the last one may be visible in part.
        visible_count = int(self.viewport().height() / self._line_height) + 2
        end = min(len(self.viewed_lines), first + visible_count)
        for number in range(first, end):
            line_top = top + number * self._line_height
            self._draw_text_line(painter, number, line_top)
        painter.end()
        # A line that was drawn for the first time may be wider than all before.
        hidden_width = self._hidden_width()
        if hidden_width > self.horizontalScrollBar().maximum():
            self.horizontalScrollBar().setMaximum(hidden_width)

    def _draw_text_line(self, painter: QPainter, number: int, line_top: float) -> None:
        """Draws a line: its ground, its text with what is selected or found in it, and
        its number.
        """
        layout = self._layout_text_line(number)
        line_rect = QRectF(0, line_top, self.viewport().width(), self._line_height)
        colour = ""
        if self._tone is not None:
            colour = self._tone(number)
        if colour:
            painter.fillRect(line_rect, self._ink.token_colour(colour))

        selected_columns = self._selected_columns(number, len(layout.text()))
        if self._by_line and selected_columns != (0, 0):
            # The whole line is marked, so no part of it needs a mark.
            painter.fillRect(line_rect, self._ink.selection_colour)
            selected_columns = (0, 0)

        painter.setPen(self._ink.token_colour("text"))
        text_left = self._gutter_width - self.horizontalScrollBar().value()
        painter.save()
        # A text that is scrolled to the left does not run into the numbers.
        view = self.viewport().rect()
        right_of_numbers = QRectF(self._gutter_width - 2, 0, view.width(), view.height())
        painter.setClipRect(right_of_numbers)
        found_spans = find_needle_spans(self._needles, layout.text())
        marks = TextMarks(selected_columns, found_spans)
        text_start = QPointF(text_left, line_top)
        overlays = self._ink.overlay_formats(marks)
        layout.draw(painter, text_start, overlays)
        painter.restore()

        painter.setFont(self._ink.mono)
        painter.setPen(self._ink.token_colour("faint"))
        if self._labels is None:
            label = str(self._first_number + number)
        else:
            label = self._labels(number)
        label_width = self._gutter_width - self._ink.scaled_pixels(PAD)
        label_rect = QRectF(0, line_top, label_width, self._line_height)
        alignment = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(label_rect, alignment, label)

    def _selected_columns(self, number: int, length: int) -> tuple[int, int]:
        first, last = self.selection.ordered_ends
        if self._by_line and first.number <= number <= last.number:
            return 0, max(length, 1)
        return self.selection.selected_offsets_of(number, length)

    def _layout_text_line(self, number: int) -> QTextLayout:
        """Lays out a line's text, or takes the layout that is still there. Very long
        lines are cut.
        """
        known_layout = self._laid.get(number)
        if known_layout is not None:
            self._laid.move_to_end(number)  # The lines used last are kept the longest.
            return known_layout
        line = self.viewed_lines[number]
        text = make_safe_text(line[:LONGEST])
        if len(line) > LONGEST:
            text += "…"
        layout = QTextLayout(text.replace("\n", " "), self._ink.mono)
        self._laid[number] = layout
        never_wrap = self._ink.build_code_option(QTextOption.WrapMode.NoWrap)
        layout.setTextOption(never_wrap)
        layout.setCacheEnabled(True)
        runs_of_line = self._runs.get(number, ())
        layout.setFormats(self._ink.highlight_ranges(runs_of_line))
        layout.beginLayout()
        only_line = layout.createLine()
        only_line.setLineWidth(1e7)  # Wider than any line, so that none is wrapped.
        top = (self._line_height - only_line.height()) / 2
        only_line.setPosition(QPointF(0, top))
        layout.endLayout()
        self._widest = max(self._widest, layout.maximumWidth())
        if len(self._laid) > KEPT_LAYOUTS:
            self._laid.popitem(last=False)
        return layout

    def _continue_colouring_lines(self) -> None:
        """Colours for some milliseconds, and lays out the coloured lines again."""
        deadline = time.perf_counter() + SLICE_SECONDS
        self.viewport().update()
        for number, run in self._colouring:
            self._runs.setdefault(number, []).append(run)
            self._laid.pop(number, None)
            if time.perf_counter() > deadline:
                return
        self._slices.stop()

    def text_position_at(self, point: QPoint) -> TextPosition:
        if not len(self.viewed_lines):
            return NO_POSITION
        y = point.y() + self.verticalScrollBar().value() - self._ink.scaled_pixels(SPACE_ABOVE)
        line_below_point = int(y / self._line_height)
        last_line = len(self.viewed_lines) - 1
        number = min(max(line_below_point, 0), last_line)
        text_line = self._layout_text_line(number).lineAt(0)
        x = point.x() - self._gutter_width + self.horizontalScrollBar().value()
        return TextPosition(number, int(text_line.xToCursor(x)))

    def _begin_or_extend_selection(self, event: QMouseEvent, *, clicks: int) -> None:
        """Selects whole lines in the margin."""
        self._by_line = clicks == 1 and event.position().x() < self._gutter_width - 4
        super()._begin_or_extend_selection(event, clicks=clicks)

    def move_selection_end(self, key: Qt.Key, *, whole: bool) -> bool:
        """Extends the selection by whole lines as a key says. Returns whether the key
        was one that does.
        """
        visible_count = int(self.viewport().height() / self._line_height)
        page = max(1, visible_count - 1)
        steps = {
            Qt.Key.Key_Up: -1,
            Qt.Key.Key_Down: 1,
            Qt.Key.Key_PageUp: -page,
            Qt.Key.Key_PageDown: page,
        }
        if key not in steps or not len(self.viewed_lines):
            return False
        if self.selection.anchor.number < 0:
            first_visible = int(self.verticalScrollBar().value() / self._line_height)
            self.selection.set_both_ends(TextPosition(first_visible, 0))
        self._by_line = True
        last_line = len(self.viewed_lines) - 1
        wanted_line = self.selection.caret.number + steps[key]
        caret_line = min(max(wanted_line, 0), last_line)
        self.selection.caret = TextPosition(caret_line, 0)
        self._keep_line_visible(caret_line)
        self.show_selection()
        return True

    def _keep_line_visible(self, number: int) -> None:
        bar = self.verticalScrollBar()
        view_height = self.viewport().height()
        line_top = round(number * self._line_height)
        end_of_next_line = line_top + 2 * self._line_height
        if line_top < bar.value():
            bar.setValue(line_top)
        elif end_of_next_line > bar.value() + view_height:
            bar.setValue(
                round(end_of_next_line) - view_height + self._ink.scaled_pixels(SPACE_ABOVE)
            )


def split_runs_by_line(runs: Iterator[Run], lines: Sequence[str]) -> Iterator[tuple[int, Run]]:
    """Splits the runs of a text into runs of its lines. A run over several lines
    becomes one for each.
    """
    first_line = 0  # The line in which the run begins, and its place in the text.
    first_line_start = 0
    for run_start, length, name in runs:
        run_end = run_start + length
        while first_line < len(lines) and run_start > first_line_start + len(lines[first_line]):
            first_line_start += len(lines[first_line]) + 1  # The line end is a character too.
            first_line += 1
        number = first_line
        line_start = first_line_start
        while number < len(lines) and line_start < run_end:
            start_in_line = max(run_start - line_start, 0)
            end_in_line = min(run_end - line_start, len(lines[number]))
            if end_in_line > start_in_line:
                yield number, (start_in_line, end_in_line - start_in_line, name)
            line_start += len(lines[number]) + 1
            number += 1
