"""The table of entries: draws its cells. Selected rows are ranges, as there may be a million."""

import time
from collections.abc import Iterator
from functools import partial

from PySide6 import QtGui, QtWidgets
from PySide6.QtCore import QItemSelection, QModelIndex, QPoint, QRect, QSignalBlocker, Qt, Signal

from helix_desktop.engine.cache_entry_rows import EntryRow
from helix_desktop.gui.cache import entries_model
from helix_desktop.gui.cache.entry_columns import (
    COLUMNS_HIDDEN_FIRST,
    ENTRY_COLUMNS,
    SOURCE_COLUMN,
    EntryColumn,
    number_of_column,
)
from helix_desktop.gui.common.found_words import draw_text_with_found_words
from helix_desktop.gui.common.list_row_model import Index
from helix_desktop.gui.common.widgets import add_menu_choice, build_popup_menu
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr

# The heights of a row and of the header, the room at both sides of a cell, and the least width of
# the source's column, in pixels.
ROW = 35
HEADER = 34
PAD = 12
LEAST_SOURCE = 180
_KEYS_OF_QT = (
    Qt.Key.Key_Up,
    Qt.Key.Key_Down,
    Qt.Key.Key_PageUp,
    Qt.Key.Key_PageDown,
    Qt.Key.Key_Home,
    Qt.Key.Key_End,
)


class EntryCellDelegate(QtWidgets.QStyledItemDelegate):
    """Draws a cell without asking the model role by role."""

    def __init__(self, theme: Theme, table: "EntryTable") -> None:
        super().__init__(table)
        self._theme = theme
        self._table = table
        self.needles: tuple[str, ...] = ()
        self.update_cell_fonts()

    def update_cell_fonts(self) -> None:
        self._text = self._theme.build_font()
        self._mono = self._theme.monospaced_font()

    def paint(
        self, painter: QtGui.QPainter, option: QtWidgets.QStyleOptionViewItem, index: Index
    ) -> None:
        """Draws the ground of a cell, and on it the cell's text.

        A row that is not loaded yet shows a bar instead. In the column of sources, a search hit
        also shows the text that was found, and a pinned entry its pin.
        """
        theme = self._theme
        rect: QRect = option.rect
        if option.state & QtWidgets.QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, theme.colour_of_token("accent_soft"))
        line_below = QRect(rect.left(), rect.bottom(), rect.width(), 1)
        painter.fillRect(line_below, theme.colour_of_token("line"))

        padding = theme.zoomed_pixels(PAD)
        text_rect = rect.adjusted(padding, 0, -padding, -1)
        row = self._table.entries.get_or_load_row(index.row())
        if row is None:
            self._paint_bar_of_loading_row(painter, text_rect)
            return
        column = ENTRY_COLUMNS[index.column()]
        self._choose_font_and_pen(painter, row, column)
        text = column.text(row, self._table.now)
        if index.column() == SOURCE_COLUMN:
            hit = self._table.entries.search_hit_at(index.row())
            if hit is not None:
                self._paint_search_hit(painter, text_rect, text, hit.snippet)
                return
            if row.pinned:
                self._paint_pin(painter, rect)
        side = Qt.AlignmentFlag.AlignLeft
        if column.is_number:
            side = Qt.AlignmentFlag.AlignRight
        metrics = QtGui.QFontMetrics(painter.font())
        shown_text = metrics.elidedText(text, Qt.TextElideMode.ElideMiddle, text_rect.width())
        painter.drawText(text_rect, side | Qt.AlignmentFlag.AlignVCenter, shown_text)

    def _paint_bar_of_loading_row(self, painter: QtGui.QPainter, text_rect: QRect) -> None:
        """A bar stands for the text of a row that is being loaded."""
        bar_width = min(60, text_rect.width())
        bar = QRect(text_rect.left(), text_rect.center().y() - 3, bar_width, 6)
        painter.fillRect(bar, self._theme.colour_of_token("free"))

    def _choose_font_and_pen(
        self, painter: QtGui.QPainter, row: EntryRow, column: EntryColumn
    ) -> None:
        if column.is_code:
            painter.setFont(self._mono)
        else:
            painter.setFont(self._text)
        colour = "text"
        if row.gone or column.is_muted:
            colour = "muted"
        painter.setPen(self._theme.colour_of_token(colour))

    def _paint_pin(self, painter: QtGui.QPainter, rect: QRect) -> None:
        painter.setBrush(self._theme.colour_of_token("accent"))
        painter.setPen(Qt.PenStyle.NoPen)
        centre = QPoint(rect.left() + self._theme.zoomed_pixels(6), rect.center().y())
        painter.drawEllipse(centre, 2, 2)
        painter.setPen(self._theme.colour_of_token("text"))

    def _paint_search_hit(
        self, painter: QtGui.QPainter, text_rect: QRect, source: str, snippet: str
    ) -> None:
        """Draws where the hit is, in at most a third of the width, and the words found there."""
        metrics = QtGui.QFontMetrics(self._mono)
        most_name_width = text_rect.width() // 3
        name = metrics.elidedText(source, Qt.TextElideMode.ElideMiddle, most_name_width)
        painter.drawText(text_rect, Qt.AlignmentFlag.AlignVCenter, name)
        snippet_rect = QRect(text_rect)
        snippet_rect.setLeft(text_rect.left() + metrics.horizontalAdvance(name) + 14)
        painter.setPen(self._theme.colour_of_token("muted"))
        snippet_line = " ".join(make_safe_text(snippet).split())
        found_colour = self._theme.colour_of_token("found")
        draw_text_with_found_words(painter, snippet_rect, snippet_line, self.needles, found_colour)


class EntryTableHeader(QtWidgets.QHeaderView):
    """A header whose arrow points down for what gets smaller downwards, such as the newest first.
    Qt's points up there.
    """

    def __init__(self, parent: QtWidgets.QWidget) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)

    def initStyleOptionForIndex(self, option: QtWidgets.QStyleOptionHeader, section: int) -> None:
        super().initStyleOptionForIndex(option, section)
        indicator = QtWidgets.QStyleOptionHeader.SortIndicator
        opposite = {indicator.SortUp: indicator.SortDown, indicator.SortDown: indicator.SortUp}
        drawn_indicator = option.sortIndicator
        if drawn_indicator in opposite:
            option.sortIndicator = opposite[drawn_indicator]


class EntryTable(QtWidgets.QTableView):
    """`current_row_changed`: another row was opened. `selected_rows_changed`: the
    selection changed.
    """

    current_row_changed = Signal(int)
    selected_rows_changed = Signal()
    menu_wanted = Signal(QPoint)
    entry_opened = Signal()
    copy_wanted = Signal()

    def __init__(
        self,
        theme: Theme,
        entries: entries_model.EntriesModel,
        parent: QtWidgets.QWidget | None = None,
    ) -> None:
        """Builds the table over its model, and keeps it styled and its newest rows in
        place.
        """
        super().__init__(parent)
        self._theme = theme
        self.entries = entries
        self.now = time.time()
        self._sorted_by = (number_of_column("time"), Qt.SortOrder.DescendingOrder)
        self.is_current_row_loading = False  # True while the current row is being loaded.
        self._columns_without_room: set[int] = set()
        # This must be connected before Qt's own handler, which would select the entry
        # above and thereby open it.
        entries.rowsAboutToBeRemoved.connect(self._clear_if_row_removed)
        self.setModel(entries)
        self.selectionModel().currentRowChanged.connect(self._announce_current_row)
        self.cells = EntryCellDelegate(theme, self)
        self.setItemDelegate(self.cells)
        self.setAccessibleName(tr("Stored outputs"))
        self._set_up_look_and_keys()
        self._set_up_header()
        self._apply_table_style()
        theme.changed.connect(self._apply_table_style)
        entries.rows_loaded.connect(self._repaint_and_open_loaded_row)

    def _set_up_look_and_keys(self) -> None:
        per_pixel = QtWidgets.QAbstractItemView.ScrollMode.ScrollPerPixel
        self.setVerticalScrollMode(per_pixel)
        self.setHorizontalScrollMode(per_pixel)
        self.setSelectionBehavior(QtWidgets.QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QtWidgets.QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setTabKeyNavigation(False)
        self.setShowGrid(False)
        self.setFrameShape(QtWidgets.QFrame.Shape.NoFrame)
        self.setWordWrap(False)
        self.setCornerButtonEnabled(False)
        self.setCornerWidget(QtWidgets.QWidget(self))
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QtWidgets.QHeaderView.ResizeMode.Fixed)

    def _update_sort_indicator(self) -> None:
        """Hides the sort indicator for search hits, which are sorted by relevance."""
        header = self.horizontalHeader()
        is_sorted_by_column = not self.entries.shows_search_hits
        if header.isSortIndicatorShown() != is_sorted_by_column:
            header.setSortIndicatorShown(is_sorted_by_column)
            header.setSectionsClickable(is_sorted_by_column)

    def _set_up_header(self) -> None:
        header = EntryTableHeader(self)
        self.setHorizontalHeader(header)
        header.setSectionsMovable(True)
        header.setSortIndicatorShown(True)
        header.setSectionsClickable(True)
        header.setHighlightSections(False)
        header.setSortIndicator(number_of_column("time"), Qt.SortOrder.DescendingOrder)
        header.sortIndicatorChanged.connect(self._sort_and_scroll_to_top)
        self.entries.modelReset.connect(self._update_sort_indicator)
        header.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        header.customContextMenuRequested.connect(self._show_column_menu)
        for number, column in enumerate(ENTRY_COLUMNS):
            header.setSectionHidden(number, not column.is_shown_at_first)

    def _apply_table_style(self) -> None:
        self.cells.update_cell_fonts()
        self.verticalHeader().setDefaultSectionSize(self._theme.zoomed_pixels(ROW))
        self.verticalHeader().setMinimumSectionSize(self._theme.zoomed_pixels(ROW))
        self.horizontalHeader().setFixedHeight(self._theme.zoomed_pixels(HEADER))
        self._fit_columns()
        self.viewport().update()

    def resizeEvent(self, event: QtGui.QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns()

    def _fit_columns(self) -> None:
        """Gives the source column the remaining width. If room is short, others shrink."""
        header = self.horizontalHeader()
        room = self.viewport().width()
        least_source_width = self._theme.zoomed_pixels(LEAST_SOURCE)
        widths = self._list_widths_of_wanted_columns()
        for column in COLUMNS_HIDDEN_FIRST:
            needed_width = sum(widths.values()) + least_source_width
            if column in widths and needed_width > room:
                header.setSectionHidden(column, True)
                del widths[column]
                self._columns_without_room.add(column)
            elif column in self._columns_without_room:
                header.setSectionHidden(column, False)
                self._columns_without_room.discard(column)
        for column, width in widths.items():
            header.resizeSection(column, width)
        remaining_width = room - sum(widths.values())
        header.resizeSection(SOURCE_COLUMN, max(least_source_width, remaining_width))

    def _list_widths_of_wanted_columns(self) -> dict[int, int]:
        """The widths of the columns that the user has not hidden, except the source's."""
        is_narrow = self.viewport().width() < self._theme.zoomed_pixels(900)
        widths: dict[int, int] = {}
        for number, column in enumerate(ENTRY_COLUMNS):
            # The source takes the room that is left.
            if column.width == 0 or self._was_hidden_by_user(number):
                continue
            width = column.width
            if is_narrow:
                width = column.narrow_width
            widths[number] = self._theme.zoomed_pixels(width)
        return widths

    def _was_hidden_by_user(self, column: int) -> bool:
        is_hidden = self.horizontalHeader().isSectionHidden(column)
        return is_hidden and column not in self._columns_without_room

    @property
    def current_row(self) -> int:
        """The number of the row that is open in the viewer, or -1."""
        return self.currentIndex().row()

    @property
    def selected_ranges(self) -> list[tuple[int, int]]:
        """The selected ranges of rows in ascending order, including their ends."""
        # Qt may list the columns of the same rows separately.
        ranges: set[tuple[int, int]] = set()
        for selected in self.selectionModel().selection().toList():
            ranges.add((selected.top(), selected.bottom()))
        return sorted(ranges)

    @property
    def selected_count(self) -> int:
        return sum(last - first + 1 for first, last in self.selected_ranges)

    def selected_rows(self) -> Iterator[int]:
        for first, last in self.selected_ranges:
            yield from range(first, last + 1)

    def select_row_and_open_entry(self, row: int) -> None:
        """Selects only this row and opens it, even if it is open already."""
        if self.entries.rowCount():
            self.clear_current_row()
            self.setCurrentIndex(self.entries.index(row, 0))

    def move_current_row_without_opening(self, row: int) -> None:
        """Marks the row to which the open entry has moved."""
        with QSignalBlocker(self):
            self.setCurrentIndex(self.entries.index(row, 0))
        self.selected_rows_changed.emit()

    def clear_current_row(self) -> None:
        """Marks no row, because the open entry is not in the table."""
        self.setCurrentIndex(QModelIndex())
        self.clearSelection()

    def _announce_current_row(self, index: QModelIndex) -> None:
        self.is_current_row_loading = (
            index.isValid() and self.entries.get_or_load_row(index.row()) is None
        )
        if index.isValid():
            self.current_row_changed.emit(index.row())

    def selectionChanged(self, selected: QItemSelection, deselected: QItemSelection) -> None:
        super().selectionChanged(selected, deselected)
        self.selected_rows_changed.emit()

    def scroll_past_rows_added_above(self, rows: int) -> None:
        """Scrolls past rows that were added above, so that the visible rows stay where they are."""
        bar = self.verticalScrollBar()
        if bar.value() > 0:
            bar.setValue(bar.value() + rows * self._theme.zoomed_pixels(ROW))

    def mouseDoubleClickEvent(self, event: QtGui.QMouseEvent) -> None:
        self.entry_opened.emit()

    def moveCursor(
        self, action: QtWidgets.QAbstractItemView.CursorAction, modifiers: Qt.KeyboardModifier
    ) -> QModelIndex:
        """Lets Home and End move through the rows; Qt's would move through the columns."""
        if action is QtWidgets.QAbstractItemView.CursorAction.MoveHome:
            return self.entries.index(0, 0)
        if action is QtWidgets.QAbstractItemView.CursorAction.MoveEnd:
            return self.entries.index(self.entries.rowCount() - 1, 0)
        return super().moveCursor(action, modifiers)

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        """Passes on only keys that move between rows: Qt would search all rows for a letter."""
        if event.matches(QtGui.QKeySequence.StandardKey.Copy):
            self.copy_wanted.emit()
            return
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.entry_opened.emit()
            return
        has_control = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        selects_one = event.key() == Qt.Key.Key_Space and has_control
        selects_all = event.matches(QtGui.QKeySequence.StandardKey.SelectAll)
        if event.key() in _KEYS_OF_QT or selects_one or selects_all:
            super().keyPressEvent(event)
        else:
            event.ignore()

    def contextMenuEvent(self, event: QtGui.QContextMenuEvent) -> None:
        if event.reason() is QtGui.QContextMenuEvent.Reason.Keyboard:
            row = max(self.current_row, 0)
            row_bottom = self.rowViewportPosition(row) + self.rowHeight(row)
            below_row = self.viewport().mapToGlobal(QPoint(0, row_bottom))
            self.menu_wanted.emit(below_row)
            return
        row = self.rowAt(event.pos().y())
        if row >= 0 and not self.selectionModel().isRowSelected(row):
            self.select_row_and_open_entry(row)
        self.menu_wanted.emit(event.globalPos())

    def paintEvent(self, event: object) -> None:
        self.now = time.time()
        super().paintEvent(event)  # type: ignore[arg-type]
        if self.hasFocus() and self.current_row >= 0:
            painter = QtGui.QPainter(self.viewport())
            painter.setPen(QtGui.QPen(self._theme.colour_of_token("accent"), 1))
            row_top = self.rowViewportPosition(self.current_row)
            row_height = self._theme.zoomed_pixels(ROW)
            painter.drawRect(0, row_top, self.viewport().width() - 1, row_height - 2)
            painter.end()

    def _sort_and_scroll_to_top(self, section: int, order: Qt.SortOrder) -> None:
        sort = ENTRY_COLUMNS[section].sort
        if sort is None:
            # The index has no such order: the table and its heading keep the one they have.
            with QSignalBlocker(self.horizontalHeader()):
                self.horizontalHeader().setSortIndicator(*self._sorted_by)
            return
        self._sorted_by = (section, order)
        self.clear_current_row()
        self.verticalScrollBar().setValue(0)
        self.entries.set_sort_order(sort, descending=order is Qt.SortOrder.DescendingOrder)

    def _show_column_menu(self, clicked_at: QPoint) -> None:
        header = self.horizontalHeader()
        menu = build_popup_menu(self)
        for number, column in enumerate(ENTRY_COLUMNS):
            is_hidden = header.isSectionHidden(number)
            toggle = partial(self._set_column_hidden, number, hidden=not is_hidden)
            choice = add_menu_choice(menu, column.title(), toggle, chosen=not is_hidden)
            choice.setEnabled(number != SOURCE_COLUMN)  # This one is always shown.
        menu.popup(header.mapToGlobal(clicked_at))

    def _set_column_hidden(self, column: int, *, hidden: bool) -> None:
        self.horizontalHeader().setSectionHidden(column, hidden)
        self._fit_columns()

    def _repaint_and_open_loaded_row(self) -> None:
        self.viewport().update()
        row = self.current_row
        if not self.is_current_row_loading or row < 0:
            return
        if self.entries.get_or_load_row(row) is not None:
            self.is_current_row_loading = False
            self.current_row_changed.emit(row)

    def _clear_if_row_removed(self, _parent: QModelIndex, first: int, _last: int) -> None:
        if self.current_row >= first:
            self.clear_current_row()
