"""The window of the operating system: painted at once, furnished when everything else has been imported.

It knows where it stood, and that closing it is the program's to do. Light on purpose: nothing of the engine comes in.
"""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QColor,
    QGuiApplication,
    QInputMethodEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPixmap,
)
from PySide6.QtWidgets import QMainWindow, QWidget

from helix_desktop.gui.frame.early_words import EarlyWords
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.tokens import DARK, LIGHT

FIRST_SIZE = QSize(1440, 900)
FRAME = QSize(16, 64)  # what the system may put around the window; under Wayland, its panels as well: nobody tells
LEAST = QSize(880, 520)
RAIL, SIDEBAR, BAR = 56, 252, 48
COLUMN, LINES, BELOW_WORDS = 720, 10, 74  # of the message box


class Empty(QWidget):
    """The surfaces of the window before there is anything on them, as they looked last, and the words that are typed already. The
    theme is made after the first paint.
    """

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        look = memory.get("look", default=dict[str, object]())
        zoom = look.get("zoom", 1.0)
        self._zoom = float(zoom) if isinstance(zoom, int | float) else 1.0
        self._tokens = DARK if look.get("dark", look.get("scheme") == "dark") else LIGHT
        self._sidebar = round(SIDEBAR * self._zoom) if memory.get("workspace", default="") else 0
        self.early = EarlyWords(memory)
        self.painted = False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.early.press(event):
            self.update()

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        if self.early.has_box and event.commitString():
            self.early.add(event.commitString())
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, tokens = QPainter(self), self._tokens
        left, width, height = RAIL + self._sidebar, self.width(), self.height()
        places = [(tokens.panel, 0, 0, width, height), (tokens.rail, 0, 0, RAIL, height)]
        places += [(tokens.window, RAIL, 0, self._sidebar, height)] if self._sidebar else []
        places += [(tokens.line, line, 0, 1, height) for line in (RAIL - 1, left - 1)]
        if self._sidebar:
            places.append((tokens.line, left, round(BAR * self._zoom) - 1, width, 1))
        for colour, *place in places:  # a brush needs the enums of Qt, which take PySide6 25 ms to make
            surface = QPixmap(1, 1)
            surface.fill(QColor(colour))
            painter.drawPixmap(QRect(*place), surface)
        if self.early.has_box and self.painted:  # not in the first paint: text needs the enums as well
            self._paint_words(painter, left, width, height)
        self.painted = True

    def _paint_words(self, painter: QPainter, left: int, width: int, height: int) -> None:
        """The words of the message box, where it will stand."""
        zoom, metrics = self._zoom, painter.fontMetrics()
        room = min(round(COLUMN * zoom), width - left - round(32 * zoom)) - round(28 * zoom)
        end = Qt.TextElideMode.ElideRight
        lines = [metrics.elidedText(line, end, room) for line in self.early.text.split("\n")[-LINES:]]
        messages = [line for each in self.early.sent for line in each["text"].split("\n")[:1]]
        x = left + (width - left - room) // 2
        bottom = height - round(BELOW_WORDS * zoom)
        painter.setPen(QColor(self._tokens.text))
        for at, line in enumerate(reversed([*messages, *lines])):
            painter.drawText(QPoint(x, bottom - at * metrics.lineSpacing()), line)


class Shell(QMainWindow):
    """`closing`: the user closed it. It stays until the program has ended everything."""

    closing = Signal()

    def __init__(self, memory: Memory, title: str) -> None:
        super().__init__()
        self._memory = memory
        self.is_closing = False  # also where nobody has heard of it yet
        self.setMinimumSize(LEAST)
        self.setWindowTitle(title)
        self.empty = Empty(memory)
        self.setCentralWidget(self.empty)
        self._restore_place()

    def take_input(self) -> None:
        """Type from now on, with an input method as well. After the first paint, since it makes the enums of Qt."""
        self.empty.setAttribute(Qt.WidgetAttribute.WA_InputMethodEnabled)
        self.empty.setFocus()
        self.empty.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.centralWidget() is self.empty:
            self.empty.keyPressEvent(event)
        else:
            super().keyPressEvent(event)

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
        self.is_closing = True
        self.closing.emit()
        event.ignore()
