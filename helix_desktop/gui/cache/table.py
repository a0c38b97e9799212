"""The table itself: draws its cells, and keeps what is chosen as ranges, so that a million rows are chosen at once."""

from __future__ import annotations

import time

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPoint, QRect, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFontMetrics,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QMenu,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from helix_desktop.gui.cache.model import NUMBERS, SORT, Column, EntriesModel, title, words
from helix_desktop.gui.shared.ranges import Ranges
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.words import tr

ROW = 35
HEADER = 34
PAD = 12
WIDTHS = {
    Column.HASH: 179,
    Column.TOOL: 190,
    Column.SIZE: 100,
    Column.TOKENS: 106,
    Column.USES: 78,
    Column.STORED: 141,
    Column.RECALLED: 128,
}
NARROW = {
    Column.HASH: 132,
    Column.TOOL: 122,
    Column.SIZE: 82,
    Column.TOKENS: 78,
    Column.USES: 58,
    Column.STORED: 112,
    Column.RECALLED: 98,
}
GIVE_WAY = (Column.USES, Column.TOKENS)  # hidden where there is no room
LEAST_SOURCE = 120
_MONO = frozenset({Column.HASH, Column.SOURCE})
_MUTED = frozenset({Column.STORED, Column.RECALLED})


class Cells(QStyledItemDelegate):
    """Draws a cell without asking the model role by role."""

    def __init__(self, theme: Theme, table: EntryTable) -> None:
        super().__init__(table)
        self._theme = theme
        self._table = table
        self.needles: tuple[str, ...] = ()
        self.restyle()

    def restyle(self) -> None:
        self._text, self._mono = self._theme.font(), self._theme.mono()

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        theme, number, column = self._theme, index.row(), Column(index.column())
        rect: QRect = option.rect
        if number in self._table.selected:
            painter.fillRect(rect, theme.colour("accent_soft"))
        painter.fillRect(QRect(rect.left(), rect.bottom(), rect.width(), 1), theme.colour("line"))
        row = self._table.entries.row(number)
        inner = rect.adjusted(theme.px(PAD), 0, -theme.px(PAD), -1)
        if row is None:
            painter.fillRect(
                QRect(inner.left(), inner.center().y() - 3, min(60, inner.width()), 6), theme.colour("free")
            )
            return
        painter.setFont(self._mono if column in _MONO else self._text)
        faint = row.gone or column in _MUTED
        painter.setPen(theme.colour("muted" if faint else "text"))
        text = words(row, column, self._table.now)
        found = self._table.entries.found(number) if column is Column.SOURCE else None
        if found is not None:
            self._paint_found(painter, inner, text, found.snippet)
            return
        if column is Column.HASH and row.pinned:
            painter.setBrush(theme.colour("accent"))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.drawEllipse(QPoint(rect.left() + theme.px(6), rect.center().y()), 2, 2)
            painter.setPen(theme.colour("text"))
        side = Qt.AlignmentFlag.AlignRight if column in NUMBERS else Qt.AlignmentFlag.AlignLeft
        shown = QFontMetrics(painter.font()).elidedText(text, Qt.TextElideMode.ElideMiddle, inner.width())
        painter.drawText(inner, side | Qt.AlignmentFlag.AlignVCenter, shown)

    def _paint_found(self, painter: QPainter, inner: QRect, source: str, snippet: str) -> None:
        """The source, then the line that was found with the words marked."""
        metrics = QFontMetrics(self._mono)
        name = metrics.elidedText(source, Qt.TextElideMode.ElideMiddle, inner.width() // 3)
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter, name)
        rest = inner.adjusted(metrics.horizontalAdvance(name) + 14, 0, 0, 0)
        text = metrics.elidedText(" ".join(harmless(snippet).split()), Qt.TextElideMode.ElideRight, rest.width())
        low = text.lower()
        for needle in self.needles:
            at = low.find(needle)
            while at >= 0:
                left = rest.left() + metrics.horizontalAdvance(text[:at])
                width = metrics.horizontalAdvance(text[at : at + len(needle)])
                painter.fillRect(QRect(left, rest.center().y() - 9, width, 18), self._theme.colour("found"))
                at = low.find(needle, at + len(needle))
        painter.setPen(self._theme.colour("muted"))
        painter.drawText(rest, Qt.AlignmentFlag.AlignVCenter, text)


class EntryTable(QTableView):
    """`current_changed`: another row is looked at. `chosen_changed`: other rows are chosen."""

    current_changed = Signal(int)
    chosen_changed = Signal()
    menu_wanted = Signal(QPoint)
    opened = Signal()
    copy_wanted = Signal()

    def __init__(self, theme: Theme, entries: EntriesModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.entries = entries
        self.selected = Ranges()
        self.now = time.time()
        self._theme = theme
        self._anchor = 0
        self._at = -1
        self._waiting = False
        self._dropped: set[Column] = set()
        self.cells = Cells(theme, self)
        self.setModel(entries)
        self.setItemDelegate(self.cells)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setShowGrid(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWordWrap(False)
        self.setCornerButtonEnabled(False)
        self.setCornerWidget(QWidget(self))
        self.setAccessibleName(tr("Cache entries"))
        self._set_header()
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self._restyled()
        theme.changed.connect(self._restyled)
        entries.arrived.connect(self._repaint)
        entries.modelReset.connect(self._kept_place)

    def _show_order(self) -> None:
        """What a search found stands by relevance, which no column has; its titles order nothing then."""
        header, by_column = self.horizontalHeader(), not self.entries.searching
        if header.isSortIndicatorShown() != by_column:
            header.setSortIndicatorShown(by_column)
            header.setSectionsClickable(by_column)

    def _set_header(self) -> None:
        header = self.horizontalHeader()
        header.setSectionsMovable(True)
        header.setSortIndicatorShown(True)
        header.setSectionsClickable(True)
        header.setHighlightSections(False)
        header.setSortIndicator(Column.STORED, Qt.SortOrder.DescendingOrder)
        header.sortIndicatorChanged.connect(self._sorted)
        self.entries.modelReset.connect(self._show_order)
        header.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        header.customContextMenuRequested.connect(self._choose_columns)
        header.hideSection(Column.RECALLED)

    def _restyled(self) -> None:
        self.cells.restyle()
        self.verticalHeader().setDefaultSectionSize(self._theme.px(ROW))
        self.verticalHeader().setMinimumSectionSize(self._theme.px(ROW))
        self.horizontalHeader().setFixedHeight(self._theme.px(HEADER))
        self._fit_columns()
        self.viewport().update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns()

    def _fit_columns(self) -> None:
        """The source takes what the others leave; where there is little, they give way."""
        header = self.horizontalHeader()
        narrow = self.viewport().width() < self._theme.px(900)
        least, room = self._theme.px(LEAST_SOURCE), self.viewport().width()
        wide = {
            column: self._theme.px(width)
            for column, width in (NARROW if narrow else WIDTHS).items()
            if column in self._dropped or not header.isSectionHidden(column)
        }
        for column in GIVE_WAY:
            drop = column in wide and sum(wide.values()) + least > room
            if drop or column in self._dropped:
                header.setSectionHidden(column, drop)
            if drop:
                del wide[column]
            (self._dropped.add if drop else self._dropped.discard)(column)
        for column, width in wide.items():
            header.resizeSection(column, width)
        header.resizeSection(Column.SOURCE, max(least, room - sum(wide.values())))

    # --- what is chosen

    @property
    def at(self) -> int:
        """The row that is looked at; -1 for none."""
        return self._at

    def go_to(self, row: int, *, extend: bool = False) -> None:
        """Look at a row. `extend`: choose all from where choosing began."""
        count = self.entries.rowCount()
        if not count:
            return
        row = min(max(row, 0), count - 1)
        if extend:
            self.selected.set(self._anchor, row)
        else:
            self._anchor = row
            self.selected.set(row, row)
        self._look_at(row)

    def stand_at(self, row: int) -> None:
        """What is looked at stands in this row by now."""
        self._at = self._anchor = row
        self.selected.set(row, row)
        self._chosen()

    @property
    def waiting(self) -> bool:
        """The row that is looked at is on its way."""
        return self._waiting

    def look_away(self) -> None:
        """No row is looked at: what is shown stands in none that is here."""
        self._at, self._waiting = -1, False
        self.selected.clear()
        self._chosen()

    def select_all(self) -> None:
        if self.entries.rowCount():
            self.selected.set(0, self.entries.rowCount() - 1)
            self._chosen()

    def _look_at(self, row: int) -> None:
        self._at = row
        self._waiting = self.entries.row(row) is None
        self.setCurrentIndex(self.entries.index(row, max(0, self.currentIndex().column())))
        self.scrollTo(self.entries.index(row, 0))
        self._chosen()
        self.current_changed.emit(row)

    def _chosen(self) -> None:
        self.viewport().update()
        self.chosen_changed.emit()

    def shift(self, by: int) -> None:
        """Rows came in above: what is chosen and what is in sight stays."""
        self.selected.shift(by)
        self._anchor += by
        if self._at >= 0:
            self._at += by
        bar = self.verticalScrollBar()
        if bar.value() > 0:
            bar.setValue(bar.value() + by * self._theme.px(ROW))

    # --- hands

    def mousePressEvent(self, event: QMouseEvent) -> None:
        row = self.rowAt(int(event.position().y()))
        if row < 0 or event.button() != Qt.MouseButton.LeftButton:
            return
        control = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if control:
            self._anchor = row
            self.selected.toggle(row)
            self._look_at(row)
        else:
            self.go_to(row, extend=bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            row = self.rowAt(int(event.position().y()))
            if row >= 0 and row != self._at:
                self.go_to(row, extend=True)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        event.accept()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.opened.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        page = max(1, self.viewport().height() // self._theme.px(ROW) - 1)
        last = self.entries.rowCount() - 1
        steps = {
            Qt.Key.Key_Up: self._at - 1,
            Qt.Key.Key_Down: self._at + 1,
            Qt.Key.Key_PageUp: self._at - page,
            Qt.Key.Key_PageDown: self._at + page,
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: last,
        }
        key = Qt.Key(event.key())
        if event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all()
        elif event.matches(QKeySequence.StandardKey.Copy):
            self.copy_wanted.emit()
        elif key in steps:
            self.go_to(steps[key], extend=bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier))
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit()
        elif key == Qt.Key.Key_Space and event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.selected.toggle(max(self._at, 0))
            self._chosen()
        else:
            event.ignore()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if event.reason() is QContextMenuEvent.Reason.Keyboard:
            below = QPoint(0, self.rowViewportPosition(max(self._at, 0)) + self.rowHeight(max(self._at, 0)))
            self.menu_wanted.emit(self.viewport().mapToGlobal(below))
            return
        row = self.rowAt(event.pos().y())
        if row >= 0 and row not in self.selected:
            self.go_to(row)
        self.menu_wanted.emit(event.globalPos())

    def paintEvent(self, event: object) -> None:
        self.now = time.time()
        super().paintEvent(event)  # type: ignore[arg-type]
        if self.hasFocus() and self._at >= 0:
            painter = QPainter(self.viewport())
            painter.setPen(QPen(self._theme.colour("accent"), 1))
            y = self.rowViewportPosition(self._at)
            painter.drawRect(0, y, self.viewport().width() - 1, self._theme.px(ROW) - 2)
            painter.end()

    def _sorted(self, section: int, order: Qt.SortOrder) -> None:
        self.selected.clear()
        self._at = -1
        self.verticalScrollBar().setValue(0)
        self.entries.order(SORT[Column(section)], descending=order is Qt.SortOrder.DescendingOrder)
        self._chosen()

    def _choose_columns(self, place: QPoint) -> None:
        header = self.horizontalHeader()
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for column in Column:
            action = menu.addAction(title(column))
            action.setCheckable(True)
            action.setChecked(not header.isSectionHidden(column))
            action.setEnabled(column is not Column.HASH)
            action.toggled.connect(lambda shown, column=column: self._show_column(column, shown=shown))
        menu.popup(header.mapToGlobal(place))

    def _show_column(self, column: Column, *, shown: bool) -> None:
        self.horizontalHeader().setSectionHidden(column, not shown)
        self._fit_columns()

    def _repaint(self) -> None:
        self.viewport().update()
        if self._waiting and self._at >= 0 and self.entries.row(self._at) is not None:
            self._waiting = False
            self.current_changed.emit(self._at)

    def _kept_place(self) -> None:
        if self._at >= self.entries.rowCount():
            self._at = -1
            self.selected.clear()
