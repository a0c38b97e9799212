"""Rows for Qt's views of a list that is replaced as a whole, and the base of their painters."""

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from PySide6 import (
    QtWidgets,
)  # for QStyle: importing it itself would create its 500 members at the start
from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
    QTimer,
)
from PySide6.QtGui import QCursor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QAbstractItemView,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTreeWidget,
    QWidget,
)

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr

Index = QModelIndex | QPersistentModelIndex
NOWHERE = QModelIndex()
AIMING_SECONDS = 1.0  # A mouse that has not moved for so long over a list rests there.
LOOKS_FOR_REST_MS = 150
LONGEST_LINE_OF_WORDS = 70  # So many characters of a sentence in an empty list stand in one line.
T = TypeVar("T")


class ListRowModel(QAbstractListModel, Generic[T]):
    """A subclass defines a row's text and whether it can be chosen."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.items: list[T] = []

    def replace_rows(self, items: Sequence[T]) -> None:
        self.beginResetModel()
        self.items = list(items)
        self.endResetModel()

    def rowCount(self, parent: Index = NOWHERE) -> int:
        if parent.isValid():  # A row has no rows below it.
            return 0
        return len(self.items)


class RowPainter(QStyledItemDelegate):
    """Paints rows that are `height` high. A subclass draws the content in `draw_row`."""

    def __init__(self, theme: Theme, parent: QWidget, height: float) -> None:
        super().__init__(parent)
        self._theme = theme
        self._height = height

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(100, self._theme.zoomed_pixels(self._height))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self.draw_row(painter, option, index)
        if option.state & QtWidgets.QStyle.StateFlag.State_HasFocus:
            draw_row_focus(painter, option, self._theme.zoomed_pixels(8))
        painter.restore()

    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        raise NotImplementedError


class RowTree(QTreeWidget):
    """A tree or table that shows which row has the focus. An empty one shows the text `empty`."""

    def __init__(self, parent: QWidget, empty: str = "") -> None:
        super().__init__(parent)
        self._empty_words = empty or tr("This list is empty.")
        for changed in (
            self.model().rowsInserted,
            self.model().rowsRemoved,
            self.model().modelReset,
        ):
            changed.connect(self._describe_emptiness)
        self._describe_emptiness()

    def _describe_emptiness(self) -> None:
        """An empty list says so, and the keyboard passes it by."""
        if self.topLevelItemCount() == 0:
            self.setAccessibleDescription(self._empty_words)
            self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        else:
            self.setAccessibleDescription("")
            self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        words = self.accessibleDescription()
        if words:
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            place = self.viewport().rect()
            widest = self.fontMetrics().averageCharWidth() * LONGEST_LINE_OF_WORDS
            if place.width() > widest:
                margin = (place.width() - widest) // 2
                place.adjust(margin, 0, -margin, 0)
            QPainter(self.viewport()).drawText(place, flags, words)

    def drawRow(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        super().drawRow(painter, option, index)
        now = self.currentIndex()
        if self.hasFocus() and (index.row(), index.parent()) == (now.row(), now.parent()):
            draw_row_focus(painter, option, 0)


def draw_row_focus(painter: QPainter, option: QStyleOptionViewItem, inset: float) -> None:
    """Draws a frame around the focused row, if the focus came from the keyboard."""
    is_from_keyboard = option.state & QtWidgets.QStyle.StateFlag.State_KeyboardFocusChange
    if not is_from_keyboard:
        return
    painter.setBrush(Qt.BrushStyle.NoBrush)
    pen = QPen(option.palette.accent(), 1)
    painter.setPen(pen)
    # A line of one pixel is sharp only in the middle of a pixel.
    side = inset + 0.5
    frame = QRectF(option.rect).adjusted(side, 0.5, -side, -0.5)
    painter.drawRoundedRect(frame, inset, inset)


class AimWatch(QObject):
    """Lets the rows of a list stay where they are while somebody moves the mouse over them to press
    one. What waits is done as soon as the mouse rests or has left.
    """

    def __init__(self, view: QAbstractItemView) -> None:
        super().__init__(view)
        self._viewport = view.viewport()
        self._viewport.setMouseTracking(True)
        self._viewport.installEventFilter(self)
        self._moved_at = 0.0
        self._waiting: Callable[[], object] | None = None
        self._timer = QTimer(self, interval=LOOKS_FOR_REST_MS)
        self._timer.timeout.connect(self._act_if_at_rest)

    def run_once_at_rest(self, act: Callable[[], object]) -> None:
        """Calls `act` now or later. Of several that wait, only the last one is called."""
        self._waiting = act
        self._act_if_at_rest()

    def _act_if_at_rest(self) -> None:
        is_over_list = self._viewport.rect().contains(self._viewport.mapFromGlobal(QCursor.pos()))
        if is_over_list and time.monotonic() - self._moved_at < AIMING_SECONDS:
            self._timer.start()
            return
        self._timer.stop()
        act = self._waiting
        self._waiting = None
        if act is not None:
            act()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.MouseMove:
            self._moved_at = time.monotonic()
        return super().eventFilter(watched, event)
