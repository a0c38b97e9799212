"""A file's difference, in one column or two: only what is in sight is laid out, whatever its length. Long lines wrap."""

import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import ceil
from typing import cast

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QFontMetrics,
    QFontMetricsF,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.changes.diff_hunks import Hunk
from helix_desktop.gui.layouts import build_row
from helix_desktop.gui.shared import difference_rows
from helix_desktop.gui.shared.plain_widgets import build_push_button
from helix_desktop.gui.shared.text_selection import NO_POSITION, TextPosition
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.code_highlighting import highlight_code
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks, build_format_range
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.text_surface import TextSurface
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.comment_box import CommentBox

LONGEST = 5_000  # In characters. A longer line is cut.
LAID = 400
COLOURING = 0.004  # In seconds. Colouring may take this much of each frame.
GUTTER, HEAD, GAP, BOX, TAIL = 44, 34, 14, 128, 24


class HunkButtons(QWidget):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.hunk = -1
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.back, self.keep = (build_push_button(words, self, look="pill") for words in (tr("Undo"), tr("Keep")))
        build_row(self.back, self.keep, owner=self, margins=0, spacing=8)


class DifferenceView(TextSurface):
    """`hunk_undo_requested` and `keep` carry a hunk's id; `commented` a line's number, its text, and what the user says about it."""

    hunk_undo_requested = Signal(str)
    hunk_keep_requested = Signal(str)
    commented = Signal(int, str, str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._rebuild_drawing_style()
        self._hunks: Sequence[Hunk] = ()
        self._patch = ""
        self._kept: frozenset[str] = frozenset()
        self._rows: Sequence[difference_rows.DifferenceRow] = ()
        self._heads: Sequence[int] = ()
        self._tops: list[float] = [0.0]
        self.has_two_columns = False
        self.tail = TAIL  # In pixels: the room below the last row.
        self._lengths: Sequence[int] = ()  # How many characters each row has.
        self._heights: list[float] = []
        self._exact: set[int] = set()  # Wrapped rows whose height was measured, not estimated.
        self._letters = 0.0  # How many characters a line holds before it wraps.
        self._wide = 0.0  # The width that lines were wrapped to.
        self._language = ""
        self._laid: OrderedDict[tuple[int, bool], QTextLayout] = OrderedDict()
        # Lines shown without colours that still have to be coloured, the oldest first.
        self._plain: dict[tuple[int, bool], difference_rows.DifferenceLine] = {}
        self._colouring = QTimer(self, interval=0, singleShot=True)
        self._colouring.timeout.connect(self._colour_visible_lines)
        self._buttons: list[HunkButtons] = []
        self._asking = -1  # The row that the user writes a comment on; -1: none.
        self._actions = True
        self._right = True  # True if the selected text is in the right column.
        self._comment = CommentBox(theme, self.viewport())
        self._comment.hide()
        self._comment.sent.connect(self._send_comment_on_line)
        self._comment.cancelled.connect(self._close_comment)
        self.setAccessibleName(tr("Difference"))
        theme.changed.connect(self._restyle_difference)

    def show_hunks(
        self,
        hunks: Sequence[Hunk],
        *,
        language: str = "",
        kept: frozenset[str] = frozenset(),
        made: difference_rows.DifferenceSheet | None = None,
        actions: bool = True,
    ) -> None:
        """Another file, from its top. `made`: its rows, where they were made in a thread. Without `actions`: to be read only."""
        self._hunks, self._language, self._kept, self._actions = hunks, language, kept, actions
        self._patch = ""
        self._close_comment()
        self._rows = ()  # otherwise the previous file's rows would be laid out at the top
        self.verticalScrollBar().setValue(0)
        self._build_difference_rows(made)

    def show_patch(self, text: str, *, language: str = "") -> bool:
        """A unified difference, every line of it exactly; to be read only. False: it is none."""
        self._patch, self._language, self._actions = text, language, False
        self._build_difference_rows()
        return bool(self._rows)

    def show_columns(self, *, two: bool) -> None:
        """Show before and after in one or two columns. A comment being written stays at its line."""
        line, self._asking = self._commented_line(), -1
        self.has_two_columns = two
        self._build_difference_rows()
        if line is not None:
            self._make_room_for_comment(
                next(number for number, row in enumerate(self._rows) if line in (row.left, row.right))
            )

    @property
    def shown_lines(self) -> Iterator[difference_rows.DifferenceLine]:
        for row in self._rows:
            sides = [row.left] if self.has_two_columns and row.left is not row.right else []
            yield from (line for line in (*sides, row.right) if line is not None)

    @property
    def content_height(self) -> int:
        return round(self._tops[-1]) + self._ink.scaled_pixels(self.tail)

    def height_of_lines(self, lines: int) -> int:
        return round(lines * self._ink.code_line_height) + self._ink.scaled_pixels(self.tail)

    def _build_difference_rows(self, made: difference_rows.DifferenceSheet | None = None) -> None:
        two = self.has_two_columns
        if made is None or made.is_two_columns != two:
            found = (
                difference_rows.build_patch_rows(self._patch, columns=two)
                if self._patch
                else difference_rows.build_hunk_rows(self._hunks, columns=two)
            )
            made = difference_rows.build_difference_sheet(found, columns=two)
        self._rows, self._heads, self._lengths = made.rows, made.heads, made.lengths
        self._laid.clear()
        self._plain.clear()
        self.selection.clear_selection()
        self._estimate_row_heights()

    def _estimate_row_heights(self) -> None:
        self._wide = self._text_width()
        self._letters = self._wide / self._ink.code_letter_width
        self._exact = set()
        letters, line = self._letters, self._ink.code_line_height
        self._heights = [line if length <= letters else line * ceil(length / letters) for length in self._lengths]
        for number in self._heads:
            self._heights[number] = self._ink.scaled_pixels(HEAD) + (self._ink.scaled_pixels(GAP) if number else 0)
        if self._asking >= 0:
            self._heights[self._asking] += self._ink.scaled_pixels(BOX)
        if self._patch:
            self._measure_wrapped_rows(range(len(self._rows)))
        self._compute_row_tops()

    def _compute_row_tops(self) -> None:
        tops = list(accumulate(self._heights, initial=0.0))
        if tops[-1] != self._tops[-1]:
            self.updateGeometry()
        self._tops = tops
        self._update_vertical_range()

    def _measure_wrapped_rows(self, numbers: Iterable[int]) -> bool:
        """Measures wrapped rows in sight; True if one was not as high as estimated. Measuring all
        of a file of 25,000 long lines took seconds.
        """
        wrapped = [number for number in numbers if self._lengths[number] > self._letters and number not in self._exact]
        self._exact.update(wrapped)
        other = False
        for number in wrapped:
            high = self._ink.code_line_height * self._count_row_lines(number, self._rows[number])
            high += self._ink.scaled_pixels(BOX) if number == self._asking else 0
            other |= high != self._heights[number]
            self._heights[number] = high
        return other

    def _text_width(self) -> float:
        right = self.viewport().width() // 2 if self.has_two_columns else self.viewport().width()
        return max(right - self._left_edge_of_code(False) - self._ink.scaled_pixels(6), 8 * self._ink.code_letter_width)

    def _count_row_lines(self, number: int, row: difference_rows.DifferenceRow) -> int:
        sides = [(row.left, False)] if self.has_two_columns and row.left is not None else []
        sides += [(row.right, True)] if row.right is not None else []
        return max(self._layout_difference_line(number, line, right=right).lineCount() for line, right in sides)

    def _update_vertical_range(self) -> None:
        bar = self.verticalScrollBar()
        bar.setRange(0, max(0, self.content_height - self.viewport().height()))
        bar.setPageStep(self.viewport().height())
        bar.setSingleStep(round(self._ink.code_line_height * 3))
        self._arrange_visible_rows()

    def _arrange_visible_rows(self) -> None:
        if self._measure_wrapped_rows(range(*self._visible_row_range())):
            self._compute_row_tops()  # This calls `_arrange_visible_rows` again.
        else:
            self._place_hunk_buttons()
            self.viewport().update()

    def _place_hunk_buttons(self) -> None:
        """Buttons and the comment's box, where they are in sight."""
        first, last = self._visible_row_range()
        heads = [number for number in range(first, last) if self._rows[number].head] if self._actions else []
        while len(self._buttons) < len(heads):
            buttons = HunkButtons(self.viewport())
            wanted = ((buttons.back, self.hunk_undo_requested), (buttons.keep, self.hunk_keep_requested))
            for button, want in wanted:
                button.clicked.connect(lambda _=False, b=buttons, w=want: w.emit(self._hunks[b.hunk].stable_id))
            self._buttons.append(buttons)
        for buttons, number in zip(self._buttons, heads, strict=False):
            buttons.hunk = self._rows[number].hunk
            kept = bool(self._kept) and self._hunks[buttons.hunk].stable_id in self._kept
            buttons.keep.setText(tr("Kept") if kept else tr("Keep"))
            buttons.keep.setEnabled(not kept)
            size = buttons.sizeHint()
            top = self._top_of_hunk_head(number) + (self._ink.scaled_pixels(HEAD) - size.height()) / 2
            buttons.setGeometry(self.viewport().width() - size.width() - 10, round(top), size.width(), size.height())
            buttons.show()
        for buttons in self._buttons[len(heads) :]:
            buttons.hide()
        if self._asking >= 0:
            bottom = self._tops[self._asking + 1] - self.verticalScrollBar().value()
            left, px = self._left_edge_of_code(self.has_two_columns), self._ink.scaled_pixels
            wide = self.viewport().width() - left - px(16)
            self._comment.setGeometry(left, round(bottom - px(BOX - 6)), wide, px(BOX - 12))

    def _top_of_hunk_head(self, number: int) -> float:
        gap = self._ink.scaled_pixels(GAP) if number else 0
        return self._tops[number] + gap - self.verticalScrollBar().value()

    def _visible_row_range(self, top: int = 0, bottom: int = 0) -> tuple[int, int]:
        """The visible rows, or those in part of the view: the first, and the one after the last."""
        at = self.verticalScrollBar().value()
        first = max(0, bisect_right(self._tops, at + top) - 1)
        last = bisect_right(self._tops, at + (bottom or self.viewport().height()))
        return first, min(last, len(self._rows))

    def _left_edge_of_code(self, right: bool) -> int:  # noqa: FBT001 -- which column
        gutter, sign = self._ink.scaled_pixels(GUTTER), round(2 * self._ink.code_letter_width)
        if self.has_two_columns:
            return (self.viewport().width() // 2 if right else 0) + gutter + sign
        return 2 * gutter + sign

    # --- Drawing the lines and the frames around hunks

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), self._ink.token_colour("panel"))
        parts = (self._visible_row_range(part.top(), part.bottom()) for part in cast("Iterable[QRect]", event.region()))
        numbers = sorted({number for part in parts for number in range(*part)})
        offset = self.verticalScrollBar().value()
        for number in numbers:
            row, y = self._rows[number], self._tops[number] - offset
            high = self._tops[number + 1] - offset - y - (self._ink.scaled_pixels(BOX) if number == self._asking else 0)
            if row.head:
                self._draw_hunk_head(painter, number, row)
            elif self.has_two_columns:
                half = self.viewport().width() // 2
                self._draw_difference_line(painter, number, row.left, QRectF(0, y, half - 1, high), right=False)
                self._draw_difference_line(painter, number, row.right, QRectF(half, y, half, high), right=True)
            else:
                whole = QRectF(0, y, self.viewport().width(), high)
                self._draw_difference_line(painter, number, row.right, whole, right=True)
        for number in {self._rows[at].hunk for at in numbers} - {-1}:
            self._draw_hunk_frame(painter, number)
        painter.end()

    def _draw_hunk_frame(self, painter: QPainter, hunk: int) -> None:
        head = self._heads[hunk]
        end = self._heads[hunk + 1] if hunk + 1 < len(self._heads) else len(self._rows)
        top, bottom = self._top_of_hunk_head(head), self._tops[end] - self.verticalScrollBar().value()
        place = QRectF(0.5, top + 0.5, self.viewport().width() - 1, bottom - top - 1)
        self._ink.draw_frame(painter, place, "", 8)

    def _draw_hunk_head(self, painter: QPainter, number: int, row: difference_rows.DifferenceRow) -> None:
        top = self._top_of_hunk_head(number)
        place = QRectF(0, top, self.viewport().width(), self._ink.scaled_pixels(HEAD))
        painter.fillRect(place, self._ink.token_colour("code"))
        painter.setFont(self._ink.mono)
        painter.setPen(self._ink.token_colour("faint"))
        place.setLeft(self._ink.scaled_pixels(12))
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, self._elided_hunk_head(row))

    def _elided_hunk_head(self, row: difference_rows.DifferenceRow) -> str:
        """The head, shortened to the room beside its buttons."""
        buttons = (each.x() for each in self._buttons if each.isVisible() and each.hunk == row.hunk)
        room = next(buttons, self.viewport().width()) - self._ink.scaled_pixels(20)
        return QFontMetrics(self._ink.mono).elidedText(row.head, Qt.TextElideMode.ElideRight, room)

    def _draw_difference_line(
        self, painter: QPainter, number: int, line: difference_rows.DifferenceLine | None, place: QRectF, *, right: bool
    ) -> None:
        tone = "free" if line is None else {"-": "danger_soft", "+": "added_soft"}.get(line.mark, "")
        if tone:
            painter.fillRect(place, self._ink.token_colour(tone))
        if line is None:
            return
        painter.setFont(self._ink.mono)
        painter.setPen(self._ink.token_colour("faint"))
        self._draw_line_numbers(painter, line, place, right=right)
        layout = self._layout_difference_line(number, line, right=right)
        left = self._left_edge_of_code(right)
        painter.setPen(self._ink.token_colour("text"))
        some = right is self._right and not self.selection.is_empty_selection
        chosen = self.selection.selected_offsets_of(number, len(layout.text())) if some else (0, 0)
        layout.draw(painter, QPointF(left, place.top()), self._ink.overlay_formats(TextMarks(chosen)) if some else [])

    def _draw_line_numbers(
        self, painter: QPainter, line: difference_rows.DifferenceLine, place: QRectF, *, right: bool
    ) -> None:
        """They and the sign are one text, up to a letter before the line's own: each text that is drawn takes its time."""
        both = [line.old_number, line.new_number]
        figures = both[right : right + 1] if self.has_two_columns else both
        text = "".join(f"{figure or '':>5} " for figure in figures) + (line.mark or " ")
        left = self._left_edge_of_code(right) - (len(text) + 1) * self._ink.code_letter_width
        painter.drawText(QPointF(left, place.top() + self._base), text)

    def _layout_difference_line(
        self, number: int, line: difference_rows.DifferenceLine, *, right: bool, coloured: bool = False
    ) -> QTextLayout:
        key = (number, right)
        laid = self._laid.get(key)
        if laid is not None and not coloured:
            self._laid.move_to_end(key)
            return laid
        text = (
            line.text
            if self._patch
            else make_safe_text(line.text[:LONGEST]) + ("…" if len(line.text) > LONGEST else "")
        )
        laid = self._laid[key] = QTextLayout(text, self._ink.mono)
        laid.setTextOption(self._option)
        laid.setCacheEnabled(True)  # Without this, Qt would shape the text again for every paint.
        if coloured:
            formats = self._ink.highlight_ranges(highlight_code(text, self._language))
            formats += [
                build_format_range(at, size, self._ink.changed_word_format(line.mark))
                for at, size in line.changed_spans
            ]
            laid.setFormats(formats)
        else:
            self._plain[key] = line
            if not self._colouring.isActive():
                self._colouring.start()
        laid.beginLayout()
        at = 0.0
        while (made := laid.createLine()).isValid():
            made.setLineWidth(self._wide)
            made.setPosition(QPointF(0, at + (self._ink.code_line_height - made.height()) / 2))
            at += self._ink.code_line_height
        laid.endLayout()
        if len(self._laid) > LAID:
            self._laid.popitem(last=False)
        return laid

    def _colour_visible_lines(self) -> None:
        """Colours lines that were first drawn without colours, in slices, so no frame is late."""
        until = time.perf_counter() + COLOURING
        first, last = self._visible_row_range()
        while self._plain:
            number, right = key = next(iter(self._plain))
            line = self._plain.pop(key)
            if first <= number < last:
                self._layout_difference_line(number, line, right=right, coloured=True)
                top = self._tops[number] - self.verticalScrollBar().value()
                high = self._tops[number + 1] - self._tops[number]
                self.viewport().update(0, int(top), self.viewport().width(), ceil(high) + 1)
            else:
                self._laid.pop(key, None)
            if time.perf_counter() > until:
                break
        if self._plain:
            self._colouring.start()

    def row_at(self, point: QPoint) -> int:
        number = bisect_right(self._tops, point.y() + self.verticalScrollBar().value()) - 1
        return number if 0 <= number < len(self._rows) else -1

    def text_position_at(self, point: QPoint) -> TextPosition:
        """The letter nearest to a point, in the column of the selection."""
        if not self._rows:
            return NO_POSITION
        y = point.y() + self.verticalScrollBar().value()
        number = min(max(bisect_right(self._tops, y) - 1, 0), len(self._rows) - 1)
        line = self._line_of_row(number)
        if line is None:
            return TextPosition(number, 0)
        laid = self._layout_difference_line(number, line, right=self._right)
        at = min(max(int((y - self._tops[number]) / self._ink.code_line_height), 0), laid.lineCount() - 1)
        return TextPosition(number, int(laid.lineAt(at).xToCursor(point.x() - self._left_edge_of_code(self._right))))

    def _line_of_row(self, number: int) -> difference_rows.DifferenceLine | None:
        row = self._rows[number]
        return row.right if self._right else row.left

    def line_text(self, number: int) -> str | None:
        line = self._line_of_row(number)
        return line.text if line is not None else self._rows[number].head or None

    def select_all_text(self) -> None:
        if self._rows:
            last = len(self._rows) - 1
            self.selection.set_both_ends(TextPosition(0, 0), TextPosition(last, len(self.line_text(last) or "")))
            self.viewport().update()

    def _handle_press(self, event: QMouseEvent, *, clicks: int) -> None:
        """A selection stays in the column it began in."""
        self._right = not self.has_two_columns or event.position().x() >= self.viewport().width() // 2
        super()._handle_press(event, clicks=clicks)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """A click on a line opens the box for a comment about it; a drag selects text."""
        number = self.row_at(event.position().toPoint())
        click = event.button() == Qt.MouseButton.LeftButton and self.selection.is_empty_selection
        super().mouseReleaseEvent(event)
        if click and self._actions and number >= 0 and not self._rows[number].head:
            self.open_comment_on_row(number)

    def open_comment_on_row(self, number: int) -> None:
        row = self._rows[number]
        line = row.right or row.left
        if line is None:
            return
        self._comment.open_comment(tr("Line {number}", number=line.new_number or line.old_number))
        self._make_room_for_comment(number)

    def _make_room_for_comment(self, number: int) -> None:
        """Make room for the box below a row, and below no other; -1: below none."""
        for at, more in ((self._asking, -1), (number, 1)):
            if at >= 0:
                self._heights[at] += more * self._ink.scaled_pixels(BOX)
        self._asking = number
        self._compute_row_tops()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Cancel) and self._asking >= 0:
            self._close_comment()
        else:
            super().keyPressEvent(event)

    def _commented_line(self) -> difference_rows.DifferenceLine | None:
        row = self._rows[self._asking] if self._asking >= 0 else None
        return (row.right or row.left) if row is not None else None

    def _send_comment_on_line(self, words: str) -> None:
        line = self._commented_line()
        if line is not None:
            self.commented.emit(line.new_number or line.old_number, line.text, words)
        self._close_comment()

    def _close_comment(self) -> None:
        self._comment.hide()
        if self._asking >= 0:
            self._make_room_for_comment(-1)
            self.setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._text_width() == self._wide:
            self._update_vertical_range()
        else:
            self._laid.clear()
            self._estimate_row_heights()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """What stays in sight is moved, not drawn again."""
        if self._measure_wrapped_rows(range(*self._visible_row_range())):
            self._compute_row_tops()
        else:
            self.viewport().scroll(dx, dy)
            self._place_hunk_buttons()

    def _rebuild_drawing_style(self) -> None:
        self._ink = DrawingStyle(self.theme)
        metrics = QFontMetricsF(self._ink.mono)
        # How far a line's baseline is below its top.
        self._base = (self._ink.code_line_height - metrics.height()) / 2 + metrics.ascent()
        self._option = self._ink.build_code_option(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)

    def _restyle_difference(self) -> None:
        self._rebuild_drawing_style()
        self._build_difference_rows()
