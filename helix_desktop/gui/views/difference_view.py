"""A file's difference in one or two columns. Only visible lines are laid out; long ones wrap."""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import cast

from PySide6.QtCore import (
    QElapsedTimer,
    QEvent,
    QObject,
    QPoint,
    QRect,
    QRectF,
    Qt,
    QTimer,
    Signal,
    SignalInstance,
)
from PySide6.QtGui import (
    QCursor,
    QFontMetrics,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QToolTip, QWidget

from helix_desktop.engine.changes.diff_hunks import Hunk
from helix_desktop.gui.common import difference_rows
from helix_desktop.gui.common.text_selection import NO_POSITION, TextPosition, TextSelection
from helix_desktop.gui.common.widgets import build_push_button
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.theme import Theme, set_widget_mark
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.selectable_text_area import TextSurface
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.comment_box import CommentBox
from helix_desktop.gui.views.difference_layout import BOX, DifferenceLines, DifferenceRowHeights

TAIL = 24
LOOKS_FOR_MOUSE_MS = 100
MOVED_ON = 12  # Pixels. A mouse that moved less is still where it was.
# Whoever presses again so long after what is under the mouse has changed has seen what it is now.
SEEN_AFTER_MS = 1_500
NO_ROWS = difference_rows.build_difference_sheet((), two_columns=False)


class HunkButtons(QWidget):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.hunk = -1
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.back = build_push_button(tr("Undo"), self, look="pill")
        self.keep = build_push_button(tr("Keep"), self, look="pill")
        build_row(self.back, self.keep, owner=self, margins=0, spacing=8)


class DifferenceView(TextSurface):
    """`hunk_undo_requested` and `hunk_keep_requested` carry a hunk's id, `commented` a
    line and the comment.
    """

    hunk_undo_requested = Signal(str)
    hunk_keep_requested = Signal(str)
    commented = Signal(int, str, str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Sets up an empty difference, in one column."""
        super().__init__(theme, parent)
        self._ink = DrawingStyle(theme)
        self._hunks: Sequence[Hunk] = ()
        self._patch = ""
        self._language = ""
        self._known_file = ""
        self._kept: frozenset[str] = frozenset()
        self._sheet = NO_ROWS
        self._lines = DifferenceLines(self._ink, 0, "", two_columns=False, is_exact=False)
        self._heights = DifferenceRowHeights(NO_ROWS, self._lines)
        self.has_two_columns = False
        self.tail = TAIL  # The room below the last row, in pixels.

        # The height of the content that the outer layout was last told about.
        self._announced_height = 0

        self._colouring = QTimer(self, interval=0, singleShot=True)
        self._colouring.timeout.connect(self._colour_visible_lines)
        self._buttons: list[HunkButtons] = []
        self._actions = True
        self._has_hunk_buttons = True
        # Where the mouse pressed Undo last, and whether it is still there. Another part's Undo that
        # comes there by itself is not what a second click means.
        self._undo_pressed_at = QPoint()
        self._unchanged = QElapsedTimer()
        self._watching_mouse = QTimer(self, interval=LOOKS_FOR_MOUSE_MS)
        self._watching_mouse.timeout.connect(self._has_mouse_moved_on)
        self._right = True  # True if the selected text is in the right column.

        self._comment = CommentBox(theme, self.viewport())
        self._comment.hide()
        self._comment.sent.connect(self.commented)
        self._comment.sent.connect(self._close_comment)
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
        is_decided: bool = False,
        is_same_file: bool = False,
    ) -> None:
        """Shows another file from its top. `made`: rows built in a thread. Without
        `actions`, it is read-only. `is_decided`: nothing is left to undo or keep here, but lines
        can be commented on. `is_same_file`: the shown file was read again, so the place in
        it and a comment that is being written stay.
        """
        if hunks != self._hunks:
            self._unchanged.start()
        self._hunks = hunks
        self._language = language
        self._kept = kept
        self._actions = actions
        self._has_hunk_buttons = actions and not is_decided
        self._patch = ""
        scrolled_to = 0
        if is_same_file:
            scrolled_to = self.verticalScrollBar().value()
        else:
            self._close_comment()
        commented_line = self._line_being_commented()
        # Otherwise, the old rows would be laid out.
        self._heights = DifferenceRowHeights(NO_ROWS, self._lines)
        self.verticalScrollBar().setValue(0)
        self._build_difference_rows(made)
        self._keep_comment_at_line(commented_line)
        self.verticalScrollBar().setValue(scrolled_to)

    def show_patch(self, text: str, *, language: str = "", known_file: str = "") -> bool:
        """Shows every line of a unified difference exactly, read-only. Returns False
        for any other text. `known_file`: the file whose name stands above already.
        """
        self._patch = text
        self._known_file = known_file
        self._language = language
        self._actions = False
        self._has_hunk_buttons = False
        self._build_difference_rows()
        return bool(self._sheet.rows)

    def show_columns(self, *, two: bool) -> None:
        """Shows one or two columns. A comment that is being written stays at its line."""
        commented_line = self._line_being_commented()
        self._heights.reserve_room_for_comment_below(-1)
        self.has_two_columns = two
        self._build_difference_rows()
        self._keep_comment_at_line(commented_line)

    def _line_being_commented(self) -> difference_rows.DifferenceLine | None:
        if self._heights.commented_row < 0:
            return None
        return self._comment.line

    def _keep_comment_at_line(self, line: difference_rows.DifferenceLine | None) -> None:
        """Places the comment that is being written below its line, or where that line was."""
        if line is None:
            return
        nearest = difference_rows.find_nearest_line(self._sheet.rows, line)
        if nearest is None:
            return
        if nearest.line.text == line.text:
            self._comment.show_line(nearest.line)
        self._heights.reserve_room_for_comment_below(nearest.row_number)
        self._update_scroll_range_and_buttons()

    @property
    def shown_lines(self) -> Iterator[difference_rows.DifferenceLine]:
        for row in self._sheet.rows:
            # An unchanged line stands in both columns, but it is one line.
            is_other_line = row.left is not row.right
            if self.has_two_columns and is_other_line and row.left is not None:
                yield row.left
            if row.right is not None:
                yield row.right

    @property
    def content_height(self) -> int:
        return round(self._heights.tops[-1]) + self._ink.scaled_pixels(self.tail)

    def _build_difference_rows(self, made: difference_rows.DifferenceSheet | None = None) -> None:
        two_columns = self.has_two_columns
        if made is not None and made.is_two_columns == two_columns:
            self._sheet = made
        else:
            if self._patch:
                rows = difference_rows.build_patch_rows(
                    self._patch, two_columns=two_columns, known_file=self._known_file
                )
            else:
                rows = difference_rows.build_hunk_rows(self._hunks, two_columns=two_columns)
            self._sheet = difference_rows.build_difference_sheet(rows, two_columns=two_columns)
        self.selection.clear_selection()
        self._lay_out_rows()

    def _lay_out_rows(self) -> None:
        is_exact = bool(self._patch)
        self._lines = DifferenceLines(
            self._ink,
            self.viewport().width(),
            self._language,
            two_columns=self.has_two_columns,
            is_exact=is_exact,
        )
        self._heights = DifferenceRowHeights(self._sheet, self._lines, self._heights.commented_row)
        if is_exact:
            self._heights.measure_wrapped_rows(range(len(self._sheet.rows)))
        self._update_scroll_range_and_buttons()

    def _update_scroll_range_and_buttons(self) -> None:
        if self.content_height != self._announced_height:
            self._announced_height = self.content_height
            self.updateGeometry()
        view_height = self.viewport().height()
        hidden_height = max(0, self.content_height - view_height)
        bar = self.verticalScrollBar()
        bar.setRange(0, hidden_height)
        bar.setPageStep(view_height)
        height_of_three_lines = round(self._ink.code_line_height * 3)
        bar.setSingleStep(height_of_three_lines)
        if self._heights.measure_wrapped_rows(self._visible_rows()):
            self._update_scroll_range_and_buttons()
        else:
            self._place_hunk_buttons()
            self.viewport().update()

    def _place_hunk_buttons(self) -> None:
        """Places the buttons and the comment box if they are visible."""
        heads: list[int] = []
        if self._has_hunk_buttons:
            heads = [number for number in self._visible_rows() if self._sheet.rows[number].head]
        while len(self._buttons) < len(heads):
            self._buttons.append(self._build_hunk_buttons())
        for buttons, number in zip(self._buttons, heads, strict=False):
            buttons.hunk = self._sheet.rows[number].hunk
            is_kept = bool(self._kept) and self._hunks[buttons.hunk].stable_id in self._kept
            if is_kept:
                buttons.keep.setText(tr("Kept"))
            else:
                buttons.keep.setText(tr("Keep"))
            buttons.keep.setEnabled(not is_kept)
            size = buttons.sizeHint()
            room_above = (self._lines.heading - size.height()) / 2
            top = round(self._top_of_hunk_head(number) + room_above)
            left = self.viewport().width() - size.width() - 10
            buttons.setGeometry(left, top, size.width(), size.height())
            buttons.show()
        for unused_buttons in self._buttons[len(heads) :]:
            unused_buttons.hide()
        self._show_which_undo_waits()
        if self._heights.commented_row >= 0:
            self._place_comment_box()

    def _build_hunk_buttons(self) -> HunkButtons:
        """Builds buttons that act on the hunk where they stand, which changes with scrolling."""
        buttons = HunkButtons(self.viewport())
        buttons.back.installEventFilter(self)
        buttons.back.clicked.connect(lambda: self._request_undo(buttons))
        buttons.keep.clicked.connect(lambda: self._emit_hunk(self.hunk_keep_requested, buttons))
        return buttons

    def _request_undo(self, buttons: HunkButtons) -> None:
        # The same buttons serve the next part, which a press of Space would undo, too.
        if self.window().focusWidget() is buttons.back:
            self.setFocus()
        self._emit_hunk(self.hunk_undo_requested, buttons)
        self._show_which_undo_waits()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Ignores presses of Undo where one was just pressed, until the mouse has moved on."""
        if event.type() in (QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonDblClick):
            if self._watching_mouse.isActive() and not self._has_mouse_moved_on():
                self.setFocus()  # The press has given the focus to the button.
                explanation = tr("To undo something else here, wait a moment or move the mouse.")
                QToolTip.showText(QCursor.pos(), explanation, self)
                return True
            self._undo_pressed_at = QCursor.pos()
            self._unchanged.start()
            self._watching_mouse.start()
        return super().eventFilter(watched, event)

    def _has_mouse_moved_on(self) -> bool:
        """Whether it is elsewhere, or was meanwhile, or has stood over the same part for long."""
        moved = QCursor.pos() - self._undo_pressed_at
        has_seen_it = self._unchanged.hasExpired(SEEN_AFTER_MS)
        if moved.manhattanLength() > MOVED_ON or has_seen_it:
            self._watching_mouse.stop()
            self._show_which_undo_waits()
            return True
        return False

    def _show_which_undo_waits(self) -> None:
        """Lets the Undo look disabled that takes no press until the mouse has moved. It takes keys."""
        for buttons in self._buttons:
            button = buttons.back
            pressed_at = button.mapFromGlobal(self._undo_pressed_at)
            is_there = button.rect().contains(pressed_at) and not button.isDown()
            set_widget_mark(button, "waits", is_set=self._watching_mouse.isActive() and is_there)

    def _emit_hunk(self, signal: SignalInstance, buttons: HunkButtons) -> None:
        hunk = self._hunks[buttons.hunk]
        signal.emit(hunk.stable_id)

    def _place_comment_box(self) -> None:
        """Places the box in the room that is reserved at the end of the commented row."""
        px = self._ink.scaled_pixels
        end_of_row = self._heights.tops[self._heights.commented_row + 1]
        bottom = end_of_row - self.verticalScrollBar().value()
        left = self._lines.left_edge(right=self.has_two_columns)
        top = round(bottom - px(BOX - 6))
        width = self.viewport().width() - left - px(16)
        height = px(BOX - 12)
        self._comment.setGeometry(left, top, width, height)

    def _top_of_hunk_head(self, number: int) -> float:
        row_top = self._heights.tops[number] - self.verticalScrollBar().value()
        if number == 0:
            return row_top
        return row_top + self._lines.heading_gap

    def _visible_rows(self, top: int = 0, bottom: int = 0) -> range:
        """Returns the rows between two places in the viewport, or in all of it."""
        scrolled_pixels = self.verticalScrollBar().value()
        if not bottom:
            bottom = self.viewport().height()
        return self._heights.rows_between(scrolled_pixels + top, scrolled_pixels + bottom)

    # --- Drawing the lines and the frames around hunks

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the rows that lie in the parts to be painted, then the frames around
        the hunks (changed places) they belong to. Colours of code follow later, for
        lines drawn without them.
        """
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), self._ink.token_colour("panel"))
        rows_to_draw: set[int] = set()
        for part in cast("Iterable[QRect]", event.region()):
            rows_to_draw.update(self._visible_rows(part.top(), part.bottom()))

        visible_hunks: set[int] = set()
        for number in sorted(rows_to_draw):
            row = self._sheet.rows[number]
            visible_hunks.add(row.hunk)
            if row.head:
                self._draw_hunk_head(painter, number, row)
            else:
                self._draw_difference_row(painter, number, row)

        visible_hunks.discard(-1)  # The names of the files above the hunks belong to none.
        for hunk in visible_hunks:
            self._draw_hunk_frame(painter, hunk)
        painter.end()
        if self._lines.plain and not self._colouring.isActive():
            self._colouring.start()

    def _draw_difference_row(
        self, painter: QPainter, number: int, row: difference_rows.DifferenceRow
    ) -> None:
        """Draws a row: the new version of a line, and beside it the old one if there
        are two columns.
        """
        top = self._heights.tops[number]
        height = self._heights.tops[number + 1] - top
        if number == self._heights.commented_row:
            height -= self._ink.scaled_pixels(BOX)
        drawn_top = top - self.verticalScrollBar().value()
        width = self.viewport().width()
        # Text is selected in one column at a time.
        selection_at_left: TextSelection | None = None
        selection_at_right: TextSelection | None = None
        if not self.selection.is_empty_selection:
            if self._right:
                selection_at_right = self.selection
            else:
                selection_at_left = self.selection
        if self.has_two_columns:
            middle = width // 2
            left_column = QRectF(0, drawn_top, middle - 1, height)
            right_column = QRectF(middle, drawn_top, middle or width, height)
            self._lines.draw_line(
                painter, number, row.left, left_column, selection_at_left, right=False
            )
        else:
            right_column = QRectF(0, drawn_top, width, height)
        self._lines.draw_line(
            painter, number, row.right, right_column, selection_at_right, right=True
        )

    def _draw_hunk_frame(self, painter: QPainter, hunk: int) -> None:
        heads = self._sheet.heads
        next_hunk = hunk + 1
        if next_hunk < len(heads):
            end_row = heads[next_hunk]
        else:
            end_row = len(self._sheet.rows)
        top = self._top_of_hunk_head(heads[hunk])
        bottom = self._heights.tops[end_row] - self.verticalScrollBar().value()
        # A line of one pixel is sharp half a pixel beside the edge.
        frame = QRectF(0.5, top + 0.5, self.viewport().width() - 1, bottom - top - 1)
        self._ink.draw_frame(painter, frame, "", 8)

    def _draw_hunk_head(
        self, painter: QPainter, number: int, row: difference_rows.DifferenceRow
    ) -> None:
        top = self._top_of_hunk_head(number)
        head_rect = QRectF(0, top, self.viewport().width(), self._lines.heading)
        painter.fillRect(head_rect, self._ink.token_colour("code"))
        text_rect = head_rect.adjusted(self._ink.scaled_pixels(12), 0, 0, 0)
        text = self._elided_hunk_head(row)
        self._ink.draw_words(painter, text_rect, text, self._ink.mono, "faint")

    def _elided_hunk_head(self, row: difference_rows.DifferenceRow) -> str:
        right_edge = self.viewport().width()
        for buttons in self._buttons:
            if buttons.isVisible() and buttons.hunk == row.hunk:
                right_edge = buttons.x()
                break
        width = right_edge - self._ink.scaled_pixels(20)
        metrics = QFontMetrics(self._ink.mono)
        words = difference_rows.describe_hunk_head(row.head)
        return metrics.elidedText(words, Qt.TextElideMode.ElideRight, width)

    def _colour_visible_lines(self) -> None:
        tops = self._heights.tops
        offset = self.verticalScrollBar().value()
        for number in self._lines.colour_visible_lines_briefly(self._visible_rows()):
            row_height = tops[number + 1] - tops[number]
            row_top = int(tops[number] - offset)
            # A pixel more, because a row may begin within a pixel.
            self.viewport().update(0, row_top, self.viewport().width(), ceil(row_height) + 1)
        if self._lines.plain:
            self._colouring.start()

    def text_position_at(self, point: QPoint) -> TextPosition:
        """Returns the character nearest to a point, in the column of the selection."""
        if not self._sheet.rows:
            return NO_POSITION
        y = point.y() + self.verticalScrollBar().value()
        number = self._heights.nearest_row(y)
        line = self._line_of_row(number)
        if line is None:
            return TextPosition(number, 0)
        layout = self._lines.lay_out_line(number, line, right=self._right)
        y_in_row = y - self._heights.tops[number]
        line_at_point = int(y_in_row / self._ink.code_line_height)
        last_line = layout.lineCount() - 1
        wrapped_line = layout.lineAt(min(max(line_at_point, 0), last_line))
        x = point.x() - self._lines.left_edge(right=self._right)
        return TextPosition(number, int(wrapped_line.xToCursor(x)))

    def _line_of_row(self, number: int) -> difference_rows.DifferenceLine | None:
        row = self._sheet.rows[number]
        if self._right:
            return row.right
        return row.left

    def line_text(self, number: int) -> str | None:
        line = self._line_of_row(number)
        if line is not None:
            return line.text
        return self._sheet.rows[number].head or None

    def select_all_text(self) -> None:
        if self._sheet.rows:
            last_row = len(self._sheet.rows) - 1
            last_text = self.line_text(last_row) or ""
            self.selection.set_both_ends(TextPosition(0, 0), TextPosition(last_row, len(last_text)))
            self.viewport().update()

    def _begin_or_extend_selection(self, event: QMouseEvent, *, clicks: int) -> None:
        """Starts or extends a selection, which stays in the column where it began."""
        middle = self.viewport().width() // 2
        self._right = not self.has_two_columns or event.position().x() >= middle
        super()._begin_or_extend_selection(event, clicks=clicks)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Opens the comment box after a click on a line. A drag selects text instead."""
        y = event.position().toPoint().y() + self.verticalScrollBar().value()
        is_click = event.button() == Qt.MouseButton.LeftButton and self.selection.is_empty_selection
        super().mouseReleaseEvent(event)
        is_on_row = 0 <= y < self._heights.tops[-1]
        if is_click and is_on_row and self._actions:
            self.open_comment_on_row(self._heights.nearest_row(y))

    def open_comment_on_row(self, number: int) -> None:
        row = self._sheet.rows[number]
        line = row.right or row.left
        if line is None:
            return
        self._comment.open_comment(line)
        self._heights.reserve_room_for_comment_below(number)
        self._update_scroll_range_and_buttons()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Cancel) and self._heights.commented_row >= 0:
            self._close_comment()
        else:
            super().keyPressEvent(event)

    def _close_comment(self) -> None:
        self._comment.hide()
        if self._heights.commented_row >= 0:
            self._heights.reserve_room_for_comment_below(-1)
            self._update_scroll_range_and_buttons()
            self.setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.viewport().width() == self._lines.width:
            self._update_scroll_range_and_buttons()
        else:
            self._lay_out_rows()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """Moves what stays visible instead of drawing it again."""
        if self._heights.measure_wrapped_rows(self._visible_rows()):
            self._update_scroll_range_and_buttons()
        else:
            self.viewport().scroll(dx, dy)
            self._place_hunk_buttons()

    def _restyle_difference(self) -> None:
        self._ink = DrawingStyle(self.theme)
        self._build_difference_rows()
