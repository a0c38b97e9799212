"""The table of entries: draws its cells. Selected rows are ranges, as there may be a million."""

import time
from collections.abc import Iterator
from functools import partial

from PySide6 import QtGui, QtWidgets
from PySide6.QtCore import QItemSelection, QModelIndex, QPoint, QRect, QSignalBlocker, Qt, Signal

from helix_desktop.engine.cache_entry_rows import EntrySort
from helix_desktop.gui.cache import entries_model
from helix_desktop.gui.cache.entries_model import NUMERIC_COLUMNS, EntryColumn
from helix_desktop.gui.common.found_words import draw_text_with_found_words
from helix_desktop.gui.common.list_row_model import Index
from helix_desktop.gui.common.widgets import add_menu_choice, build_popup_menu
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr

ROW = 35
HEADER = 34
PAD = 12
# The width of each column in pixels, in a wide table and in a narrow one.
WIDTHS = {
    EntryColumn.HASH: (160, 132),
    EntryColumn.TOOL: (190, 122),
    EntryColumn.SIZE: (100, 82),
    EntryColumn.TOKENS: (106, 78),
    EntryColumn.USES: (78, 58),
    EntryColumn.TIME: (140, 112),
    EntryColumn.RECALLED: (128, 98),
}
# These columns are hidden if room is short, the first ones first. The viewer shows an entry's hash.
COLUMNS_HIDDEN_FIRST = (EntryColumn.USES, EntryColumn.TOKENS, EntryColumn.HASH, EntryColumn.SIZE)
LEAST_SOURCE = 120
_MONO = frozenset({EntryColumn.HASH, EntryColumn.SOURCE})
_MUTED = frozenset({EntryColumn.TIME, EntryColumn.RECALLED})
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
        self._text, self._mono = self._theme.build_font(), self._theme.monospaced_font()

    def paint(
        self, painter: QtGui.QPainter, option: QtWidgets.QStyleOptionViewItem, index: Index
    ) -> None:
        theme, number, column = self._theme, index.row(), EntryColumn(index.column())
        rect: QRect = option.rect
        if option.state & QtWidgets.QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, theme.colour_of_token("accent_soft"))
        painter.fillRect(
            QRect(rect.left(), rect.bottom(), rect.width(), 1), theme.colour_of_token("line")
        )
        row = self._table.entries.get_or_load_row(number)
        inner = rect.adjusted(theme.zoomed_pixels(PAD), 0, -theme.zoomed_pixels(PAD), -1)
        if row is None:
            painter.fillRect(
                QRect(inner.left(), inner.center().y() - 3, min(60, inner.width()), 6),
                theme.colour_of_token("free"),
            )
            return
        painter.setFont(self._mono if column in _MONO else self._text)
        faint = row.gone or column in _MUTED
        painter.setPen(theme.colour_of_token("muted" if faint else "text"))
        text = entries_model.cell_text(row, column, self._table.now)
        found = self._table.entries.search_hit_at(number) if column is EntryColumn.SOURCE else None
        if found is not None:
            self._paint_search_hit(painter, inner, text, found.snippet)
            return
        if column is EntryColumn.SOURCE and row.pinned:
            painter.setBrush(theme.colour_of_token("accent"))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.drawEllipse(
                QPoint(rect.left() + theme.zoomed_pixels(6), rect.center().y()), 2, 2
            )
            painter.setPen(theme.colour_of_token("text"))
        side = (
            Qt.AlignmentFlag.AlignRight if column in NUMERIC_COLUMNS else Qt.AlignmentFlag.AlignLeft
        )
        shown = QtGui.QFontMetrics(painter.font()).elidedText(
            text, Qt.TextElideMode.ElideMiddle, inner.width()
        )
        painter.drawText(inner, side | Qt.AlignmentFlag.AlignVCenter, shown)

    def _paint_search_hit(
        self, painter: QtGui.QPainter, inner: QRect, source: str, snippet: str
    ) -> None:
        metrics = QtGui.QFontMetrics(self._mono)
        name = metrics.elidedText(source, Qt.TextElideMode.ElideMiddle, inner.width() // 3)
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter, name)
        rest = inner.adjusted(metrics.horizontalAdvance(name) + 14, 0, 0, 0)
        painter.setPen(self._theme.colour_of_token("muted"))
        text = " ".join(make_safe_text(snippet).split())
        marked = self._theme.colour_of_token("found")
        draw_text_with_found_words(painter, rest, text, self.needles, marked)


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
        super().__init__(parent)
        self.entries = entries
        self.now = time.time()
        self._theme = theme
        self.is_current_row_loading = False  # True while the current row is being loaded.
        self._columns_without_room: set[EntryColumn] = set()
        self.cells = EntryCellDelegate(theme, self)
        # This must be connected before Qt's own handler, which would select the entry
        # above and thereby open it.
        entries.rowsAboutToBeRemoved.connect(self._clear_if_row_removed)
        self.setModel(entries)
        self.selectionModel().currentRowChanged.connect(self._announce_current_row)
        self.setItemDelegate(self.cells)
        self.setSelectionBehavior(QtWidgets.QAbstractItemView.SelectionBehavior.SelectRows)
        self.setTabKeyNavigation(False)
        self.setEditTriggers(QtWidgets.QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QtWidgets.QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollMode(QtWidgets.QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setShowGrid(False)
        self.setFrameShape(QtWidgets.QFrame.Shape.NoFrame)
        self.setWordWrap(False)
        self.setCornerButtonEnabled(False)
        self.setCornerWidget(QtWidgets.QWidget(self))
        self.setAccessibleName(tr("Cache entries"))
        self._set_up_header()
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QtWidgets.QHeaderView.ResizeMode.Fixed)
        self._apply_table_style()
        theme.changed.connect(self._apply_table_style)
        entries.rows_loaded.connect(self._repaint_and_open_loaded_row)

    def _update_sort_indicator(self) -> None:
        """Hides the sort indicator for search hits, which are sorted by relevance."""
        header, by_column = self.horizontalHeader(), not self.entries.shows_search_hits
        if header.isSortIndicatorShown() != by_column:
            header.setSortIndicatorShown(by_column)
            header.setSectionsClickable(by_column)

    def _set_up_header(self) -> None:
        header = self.horizontalHeader()
        header.setSectionsMovable(True)
        header.setSortIndicatorShown(True)
        header.setSectionsClickable(True)
        header.setHighlightSections(False)
        header.setSortIndicator(EntryColumn.TIME, Qt.SortOrder.DescendingOrder)
        header.sortIndicatorChanged.connect(self._sort_and_scroll_to_top)
        self.entries.modelReset.connect(self._update_sort_indicator)
        header.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        header.customContextMenuRequested.connect(self._show_column_menu)
        header.hideSection(EntryColumn.RECALLED)

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
        narrow = self.viewport().width() < self._theme.zoomed_pixels(900)
        least, room = self._theme.zoomed_pixels(LEAST_SOURCE), self.viewport().width()
        wide = {
            column: self._theme.zoomed_pixels(widths[narrow])
            for column, widths in WIDTHS.items()
            if column in self._columns_without_room or not header.isSectionHidden(column)
        }
        for column in COLUMNS_HIDDEN_FIRST:
            drop = column in wide and sum(wide.values()) + least > room
            if drop or column in self._columns_without_room:
                header.setSectionHidden(column, drop)
            if drop:
                del wide[column]
            (self._columns_without_room.add if drop else self._columns_without_room.discard)(column)
        for column, width in wide.items():
            header.resizeSection(column, width)
        header.resizeSection(EntryColumn.SOURCE, max(least, room - sum(wide.values())))

    @property
    def current_row(self) -> int:
        """The number of the row that is open in the viewer, or -1."""
        return self.currentIndex().row()

    @property
    def selected_ranges(self) -> list[tuple[int, int]]:
        """The selected ranges of rows in ascending order, including their ends."""
        return sorted(
            {(part.top(), part.bottom()) for part in self.selectionModel().selection().toList()}
        )

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
        with_control = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if event.matches(QtGui.QKeySequence.StandardKey.Copy):
            self.copy_wanted.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.entry_opened.emit()
        elif (
            event.matches(QtGui.QKeySequence.StandardKey.SelectAll)
            or event.key() in _KEYS_OF_QT
            or (event.key() == Qt.Key.Key_Space and with_control)
        ):
            super().keyPressEvent(event)
        else:
            event.ignore()

    def contextMenuEvent(self, event: QtGui.QContextMenuEvent) -> None:
        if event.reason() is QtGui.QContextMenuEvent.Reason.Keyboard:
            row = max(self.current_row, 0)
            below = QPoint(0, self.rowViewportPosition(row) + self.rowHeight(row))
            self.menu_wanted.emit(self.viewport().mapToGlobal(below))
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
            y = self.rowViewportPosition(self.current_row)
            painter.drawRect(0, y, self.viewport().width() - 1, self._theme.zoomed_pixels(ROW) - 2)
            painter.end()

    def _sort_and_scroll_to_top(self, section: int, order: Qt.SortOrder) -> None:
        self.clear_current_row()
        self.verticalScrollBar().setValue(0)
        sort = EntrySort[EntryColumn(section).name]
        self.entries.set_sort_order(sort, descending=order is Qt.SortOrder.DescendingOrder)

    def _show_column_menu(self, place: QPoint) -> None:
        header = self.horizontalHeader()
        menu = build_popup_menu(self)
        for column in EntryColumn:
            shown = not header.isSectionHidden(column)
            toggle = partial(self._set_column_shown, column, shown=not shown)
            add_menu_choice(
                menu, entries_model.column_title(column), toggle, chosen=shown
            ).setEnabled(column is not EntryColumn.SOURCE)
        menu.popup(header.mapToGlobal(place))

    def _set_column_shown(self, column: EntryColumn, *, shown: bool) -> None:
        self.horizontalHeader().setSectionHidden(column, not shown)
        self._fit_columns()

    def _repaint_and_open_loaded_row(self) -> None:
        self.viewport().update()
        row = self.current_row
        if (
            self.is_current_row_loading
            and row >= 0
            and self.entries.get_or_load_row(row) is not None
        ):
            self.is_current_row_loading = False
            self.current_row_changed.emit(row)

    def _clear_if_row_removed(self, _parent: QModelIndex, first: int, _last: int) -> None:
        if self.current_row >= first:
            self.clear_current_row()
