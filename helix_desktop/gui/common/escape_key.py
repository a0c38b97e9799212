"""Escape closes the nearest thing first, and only then stops the agent.

In the chat, Escape is the shortcut of "Stop the agent", so without this the shortcut would take the
key before the widget in which the user is.
"""

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QKeyEvent, Qt
from PySide6.QtWidgets import QWidget


class EscapeCloser(QObject):
    """Closes something when Escape is pressed in `widget` or in a widget within it."""

    def __init__(
        self, widget: QWidget, is_open: Callable[[], bool], close: Callable[[], object]
    ) -> None:
        super().__init__(widget)
        self._is_open = is_open
        self._close = close
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if not isinstance(event, QKeyEvent) or event.key() != Qt.Key.Key_Escape:
            return False
        if event.type() == QEvent.Type.ShortcutOverride and self._is_open():
            event.accept()  # Qt then sends the key to the widget, not to the window's action.
            return True
        if event.type() == QEvent.Type.KeyPress and self._is_open():
            self._close()
            return True
        return False
