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

LONGEST = 4_000
KEPT = 300
SLICE = 0.004
PAD = 14


class TextLines(Protocol):
    """The shown lines. A list of strings is one implementation."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> str: ...


class TextLineView(TextSurface):
    """`selection_changed`: other lines were selected."""

    selection_changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
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
        y = round(number * self._line_height - self.viewport().height() / 3)
        self.verticalScrollBar().setValue(y)

    def selected_line_range(self) -> tuple[int, int] | None:
        """Returns the first and the last selected line, counted from 0, or None."""
        if self.selection.anchor.number < 0 or (
            self.selection.is_empty_selection and not self._by_line
        ):
            return None
        first, last = self.selection.ordered_ends
        end = last.number - int(
            last.offset == 0 and last.number > first.number and not self._by_line
        )
        return first.number, end

    def selected_text(self) -> str:
        lines = self.selected_line_range()
        if lines is None:
            return ""
        if self._by_line:
            return "\n".join(self.viewed_lines[i] for i in range(lines[0], lines[1] + 1))
        return super().selected_text()

    def line_text(self, number: int) -> str | None:
        return self.viewed_lines[number]

    def select_all_text(self) -> None:
        if len(self.viewed_lines):
            last = len(self.viewed_lines) - 1
            self.selection.set_both_ends(
                TextPosition(0, 0), TextPosition(last, len(self.viewed_lines[last]))
            )
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
        if self._labels is not None:
            return self._ink.code_letter_width * 12 + self._ink.scaled_pixels(PAD)
        digits = max(3, len(str(self._first_number + len(self.viewed_lines))))
        return self._ink.code_letter_width * digits + self._ink.scaled_pixels(PAD) * 1.5

    def _update_scroll_ranges(self) -> None:
        view = self.viewport()
        top = 2 * self._ink.scaled_pixels(10)
        bar = self.verticalScrollBar()
        bar.setRange(
            0, max(0, round(len(self.viewed_lines) * self._line_height) + top - view.height())
        )
        bar.setPageStep(view.height())
        bar.setSingleStep(round(self._line_height))
        across = self.horizontalScrollBar()
        across.setRange(0, max(0, round(self._widest + self._gutter_width + 4 - view.width())))
        across.setPageStep(view.width())
        across.setSingleStep(round(self._ink.code_letter_width * 4))

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
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), self._ink.token_colour("panel"))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._ink.theme.fill_surface(
            painter, self.viewport().rect(), "code", self._ink.scaled_pixels(8)
        )
        top = self._ink.scaled_pixels(10) - self.verticalScrollBar().value()
        first = max(0, int(-top / self._line_height))
        last = min(
            len(self.viewed_lines), first + int(self.viewport().height() / self._line_height) + 2
        )
        for number in range(first, last):
            self._draw_text_line(painter, number, top + number * self._line_height)
        painter.end()
        wanted = max(0, round(self._widest + self._gutter_width + 4 - self.viewport().width()))
        if wanted > self.horizontalScrollBar().maximum():
            self.horizontalScrollBar().setMaximum(wanted)

    def _draw_text_line(self, painter: QPainter, number: int, y: float) -> None:
        layout = self._layout_text_line(number)
        whole_line = QRectF(0, y, self.viewport().width(), self._line_height)
        colour = ""
        if self._tone is not None:
            colour = self._tone(number)
        if colour:
            painter.fillRect(whole_line, self._ink.token_colour(colour))
        selected = self._selected_columns(number, len(layout.text()))
        if self._by_line and selected != (0, 0):
            painter.fillRect(whole_line, self._ink.selection_colour)
            selected = (0, 0)
        painter.setPen(self._ink.token_colour("text"))
        x = self._gutter_width - self.horizontalScrollBar().value()
        painter.save()
        painter.setClipRect(
            QRectF(self._gutter_width - 2, 0, self.viewport().width(), self.viewport().height())
        )
        marks = TextMarks(selected, find_needle_spans(self._needles, layout.text()))
        layout.draw(painter, QPointF(x, y), self._ink.overlay_formats(marks))
        painter.restore()
        painter.setFont(self._ink.mono)
        painter.setPen(self._ink.token_colour("faint"))
        words = str(self._first_number + number)
        if self._labels is not None:
            words = self._labels(number)
        place = QRectF(0, y, self._gutter_width - self._ink.scaled_pixels(PAD), self._line_height)
        painter.drawText(place, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, words)

    def _selected_columns(self, number: int, length: int) -> tuple[int, int]:
        first, last = self.selection.ordered_ends
        if self._by_line and first.number <= number <= last.number:
            return 0, max(length, 1)
        return self.selection.selected_offsets_of(number, length)

    def _layout_text_line(self, number: int) -> QTextLayout:
        laid = self._laid.get(number)
        if laid is not None:
            self._laid.move_to_end(number)
            return laid
        line = self.viewed_lines[number]
        shown = make_safe_text(line[:LONGEST])
        if len(line) > LONGEST:
            shown += "…"
        laid = QTextLayout(shown.replace("\n", " "), self._ink.mono)
        self._laid[number] = laid
        laid.setTextOption(self._ink.build_code_option(QTextOption.WrapMode.NoWrap))
        laid.setCacheEnabled(True)
        laid.setFormats(self._ink.highlight_ranges(self._runs.get(number, ())))
        laid.beginLayout()
        made = laid.createLine()
        made.setLineWidth(1e7)
        made.setPosition(QPointF(0, (self._line_height - made.height()) / 2))
        laid.endLayout()
        self._widest = max(self._widest, laid.maximumWidth())
        if len(self._laid) > KEPT:
            self._laid.popitem(last=False)
        return laid

    def _continue_colouring_lines(self) -> None:
        """Colours for some milliseconds, and lays out the coloured lines again."""
        until = time.perf_counter() + SLICE
        self.viewport().update()
        for number, run in self._colouring:
            self._runs.setdefault(number, []).append(run)
            self._laid.pop(number, None)
            if time.perf_counter() > until:
                return
        self._slices.stop()

    def text_position_at(self, point: QPoint) -> TextPosition:
        if not len(self.viewed_lines):
            return NO_POSITION
        y = point.y() + self.verticalScrollBar().value() - self._ink.scaled_pixels(10)
        number = min(max(int(y / self._line_height), 0), len(self.viewed_lines) - 1)
        line = self._layout_text_line(number).lineAt(0)
        x = point.x() - self._gutter_width + self.horizontalScrollBar().value()
        return TextPosition(number, int(line.xToCursor(x)))

    def _begin_or_extend_selection(self, event: QMouseEvent, *, clicks: int) -> None:
        """Selects whole lines in the margin."""
        self._by_line = clicks == 1 and event.position().x() < self._gutter_width - 4
        super()._begin_or_extend_selection(event, clicks=clicks)

    def move_selection_end(self, key: Qt.Key, *, whole: bool) -> bool:
        page = max(1, int(self.viewport().height() / self._line_height) - 1)
        steps = {
            Qt.Key.Key_Up: -1,
            Qt.Key.Key_Down: 1,
            Qt.Key.Key_PageUp: -page,
            Qt.Key.Key_PageDown: page,
        }
        if key not in steps or not len(self.viewed_lines):
            return False
        if self.selection.anchor.number < 0:
            self.selection.set_both_ends(
                TextPosition(int(self.verticalScrollBar().value() / self._line_height), 0)
            )
        self._by_line = True
        wanted = min(max(self.selection.caret.number + steps[key], 0), len(self.viewed_lines) - 1)
        self.selection.caret = TextPosition(wanted, 0)
        self._keep_line_visible(wanted)
        self.show_selection()
        return True

    def _keep_line_visible(self, number: int) -> None:
        bar = self.verticalScrollBar()
        y = round(number * self._line_height)
        if y < bar.value():
            bar.setValue(y)
        elif y + 2 * self._line_height > bar.value() + self.viewport().height():
            bar.setValue(
                round(y + 2 * self._line_height)
                - self.viewport().height()
                + self._ink.scaled_pixels(10)
            )


def split_runs_by_line(runs: Iterator[Run], lines: Sequence[str]) -> Iterator[tuple[int, Run]]:
    """Splits the runs of a text into runs of its lines. A run over several lines
    becomes one for each.
    """
    number = 0
    start = 0
    for at, length, name in runs:
        while number < len(lines) and at > start + len(lines[number]):
            start += len(lines[number]) + 1
            number += 1
        line, begin, rest = number, start, at + length
        while line < len(lines) and begin < rest:
            first = max(at - begin, 0)
            size = min(rest - begin, len(lines[line])) - first
            if size > 0:
                yield line, (first, size, name)
            begin += len(lines[line]) + 1
            line += 1
