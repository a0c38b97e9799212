"""A search field over a list: typing filters, arrows move, Enter chooses, Escape closes.

A subclass defines the rows, which of them can be chosen, and what choosing one does.
"""

from abc import abstractmethod
from collections.abc import Mapping

import shiboken6
from PySide6.QtCore import QAbstractItemModel, QEvent, QObject, QPoint, QRect, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QLineEdit,
    QListView,
    QStyledItemDelegate,
    QWidget,
)

from helix_desktop.gui import tab_order
from helix_desktop.gui.common.widgets import build_surface
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.theme import Theme

# The number of rows by which each key moves the highlight.
_STEPS: Mapping[int, int] = {
    Qt.Key.Key_Down: 1,
    Qt.Key.Key_Up: -1,
    Qt.Key.Key_PageDown: 10,
    Qt.Key.Key_PageUp: -10,
}


class SearchPopup(QWidget):
    """Covers its parent and follows its size. `box` is the visible part."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        # The widget that had the focus before this popup opened.
        self._focus_before: QWidget | None = None
        # The dialogs that would cover this popup, until it closes.
        self._dialogs_set_aside: list[QDialog] = []
        self.box = build_surface(self, "box")
        self.line = QLineEdit(self.box)
        self.line.setProperty("look", "palette")
        self.list = QListView(self.box, uniformItemSizes=True)
        self.list.setProperty("look", "plain")
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.inside = build_column(
            self.line, self.list, owner=self.box, margins=(1, 1, 1, 8), spacing=8
        )
        self.line.installEventFilter(self)
        self.list.clicked.connect(self.accept_current_row)
        parent.installEventFilter(self)
        QApplication.instance().focusChanged.connect(self._keep_focus)  # type: ignore[union-attr]
        self.hide()

    def set_rows_model(self, model: QAbstractItemModel, painter: QStyledItemDelegate) -> None:
        """Sets the list's rows and how they are drawn. Called once."""
        self.list.setModel(model)
        self.list.setItemDelegate(painter)

    @abstractmethod
    def selectable_rows(self) -> list[int]:
        """Returns the rows that can be chosen."""

    @abstractmethod
    def accept_current_row(self) -> None:
        """Chooses the current row."""

    @abstractmethod
    def place_popup(self) -> None:
        """Places the box after the parent or the list changed its size."""

    def open_popup(self, words: str = "") -> None:
        if self.isHidden():
            self._focus_before = self.window().focusWidget()
        self.line.setText(words)
        self.line.selectAll()
        self.place_popup()
        self._set_dialogs_aside()
        self.show()
        self.raise_()
        self.line.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def close_popup(self) -> None:
        self.hide()
        self._bring_dialogs_back()

    def _set_dialogs_aside(self) -> None:
        """Hides the dialogs that stand above the popup while the window has the keyboard, such as
        the settings. Otherwise, people could not see what they type.
        """
        place_of_box = QRect(self.box.mapToGlobal(QPoint(0, 0)), self.box.size())
        for dialog in self.window().findChildren(QDialog):
            is_in_the_way = dialog.isVisible() and dialog.isWindow() and not dialog.isModal()
            if is_in_the_way and dialog.frameGeometry().intersects(place_of_box):
                dialog.hide()
                self._dialogs_set_aside.append(dialog)

    def _bring_dialogs_back(self) -> None:
        for dialog in self._dialogs_set_aside:
            if shiboken6.isValid(dialog):
                dialog.show()
        self._dialogs_set_aside.clear()

    def close_and_return_focus(self) -> None:
        self.close_popup()
        if (
            self._focus_before is not None
            and shiboken6.isValid(self._focus_before)
            and self._focus_before.isVisible()
        ):
            self._focus_before.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _keep_focus(self, _before: QWidget | None, focused: QWidget | None) -> None:
        """Takes the keyboard back from what appears below an open popup. A workspace that has been
        opened gives it to the message box, where the words being searched for would be sent.
        """
        if focused is None or not self.isVisible() or focused.window() is not self.window():
            return
        if self.isAncestorOf(focused):
            return
        self._focus_before = focused
        self.line.setFocus(Qt.FocusReason.OtherFocusReason)

    def mousePressEvent(self, _event: object) -> None:
        self.close_and_return_focus()

    def focusNextPrevChild(self, following: bool) -> bool:  # noqa: FBT001 - Qt's
        """Keeps Tab within the box."""
        focused = self.window().focusWidget()
        return tab_order.focus_next_stop([self.box], focused, forward=following)

    def event(self, event: QEvent) -> bool:
        """Lets Escape close the popup when one of its buttons has the focus, too."""
        if isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            event.accept()
            if event.type() == QEvent.Type.KeyPress:
                self.close_and_return_focus()
            return True
        return super().event(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.parentWidget():
            if event.type() == QEvent.Type.Resize and self.isVisible():
                self.place_popup()
            return False
        if watched is not self.line or not isinstance(event, QKeyEvent):
            return False
        if event.type() == QEvent.Type.KeyPress:
            return self.handle_popup_key(event)
        if event.type() == QEvent.Type.ShortcutOverride and self.claims_shortcut_key(event):
            event.accept()
            return True
        return False

    def claims_shortcut_key(self, event: QKeyEvent) -> bool:
        """Claims keys that are shortcuts elsewhere but have a meaning in this popup."""
        return event.key() == Qt.Key.Key_Escape

    def handle_popup_key(self, event: QKeyEvent) -> bool:
        key = event.key()
        if key == Qt.Key.Key_Escape:
            self.close_and_return_focus()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.accept_current_row()
        elif key in _STEPS:
            self._move_highlight(_STEPS[key])
        else:
            return False
        return True

    def highlight_row(self, row: int) -> None:
        self.list.setCurrentIndex(self.list.model().index(row, 0))
        if row == next(iter(self.selectable_rows()), -1):
            self.list.scrollToTop()  # Scrolls to the heading above the first row.

    def _move_highlight(self, steps: int) -> None:
        """Moves the highlight past rows that cannot be chosen. A single step wraps at the ends."""
        rows = self.selectable_rows()
        if not rows:
            return
        current_row = self.list.currentIndex().row()
        if current_row in rows:
            index = rows.index(current_row) + steps
        elif steps > 0:
            index = 0  # Nothing is highlighted, so that the first step leads to the first row.
        else:
            index = -1
        is_single_step = abs(steps) == 1
        if is_single_step:
            index %= len(rows)
        else:
            index = max(index, 0)
            index = min(index, len(rows) - 1)
        self.highlight_row(rows[index])
