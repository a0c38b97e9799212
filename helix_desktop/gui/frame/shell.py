"""The window of the operating system: painted at once, furnished when everything else has been imported.

It knows where it stood, and that closing it is the program's to do. Light on purpose: nothing of the engine comes in.
"""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QPoint, QRect, QSize, Signal
from PySide6.QtGui import QCloseEvent, QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import QMainWindow, QWidget

from helix_desktop.gui.memory import Memory
from helix_desktop.gui.theme import Theme

FIRST_SIZE = QSize(1440, 900)
FRAME = QSize(16, 64)  # what the system may put around the window; under Wayland, its panels as well: nobody tells
LEAST = QSize(880, 520)
RAIL, SIDEBAR, BAR = 56, 252, 48


class Empty(QWidget):
    """The surfaces of the window before there is anything on them."""

    def __init__(self, theme: Theme, *, sidebar: bool) -> None:
        super().__init__()
        self._theme = theme
        self._sidebar = theme.px(SIDEBAR) if sidebar else 0
        self.painted = False

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, colour = QPainter(self), self._theme.colour
        left = RAIL + self._sidebar
        painter.fillRect(self.rect(), colour("panel"))
        painter.fillRect(0, 0, RAIL, self.height(), colour("rail"))
        painter.fillRect(RAIL, 0, self._sidebar, self.height(), colour("window"))
        for line in (RAIL - 1, left - 1):
            painter.fillRect(line, 0, 1, self.height(), colour("line"))
        if self._sidebar:
            painter.fillRect(left, self._theme.px(BAR) - 1, self.width(), 1, colour("line"))
        self.painted = True


class Shell(QMainWindow):
    """`closing`: the user closed it. It stays until the program has ended everything."""

    closing = Signal()

    def __init__(self, theme: Theme, memory: Memory, title: str) -> None:
        super().__init__()
        self._memory = memory
        self.setMinimumSize(LEAST)
        self.setWindowTitle(title)
        self.empty = Empty(theme, sidebar=bool(memory.get("workspace", default="")))
        self.setCentralWidget(self.empty)
        self._restore_place()

    def furnish(self, inside: QWidget) -> None:
        self.setCentralWidget(inside)

    def keep_place(self) -> None:
        self._memory.put("window", value=bytes(self.saveGeometry().toBase64().data()).decode())

    def _restore_place(self) -> None:
        """Where it stood; in the middle of the screen the first time, never outside of all screens."""
        kept = QByteArray.fromBase64(self._memory.get("window", default="").encode())
        if not kept.isEmpty() and self.restoreGeometry(kept) and self._on_a_screen():
            return
        screen = QGuiApplication.primaryScreen().availableGeometry()
        size = FIRST_SIZE.boundedTo(screen.size() - FRAME)
        corner = screen.center() - QPoint(size.width() // 2, size.height() // 2)
        self.setGeometry(QRect(corner, size))

    def _on_a_screen(self) -> bool:
        return any(screen.availableGeometry().intersects(self.geometry()) for screen in QGuiApplication.screens())

    def closeEvent(self, event: QCloseEvent) -> None:
        """Not here: first everything is brought to its end, then the program quits."""
        self.keep_place()
        self.closing.emit()
        event.ignore()
