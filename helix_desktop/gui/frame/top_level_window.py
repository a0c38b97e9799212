"""The top-level window. It is painted at once, and gets its content when everything else has been
imported.

It saves its position and leaves closing to the program. The first paint imports it, so it must not
import the engine.
"""

from PySide6 import QtGui
from PySide6.QtCore import QByteArray, QPoint, QRect, QSize, Signal
from PySide6.QtWidgets import QMainWindow, QWidget

from helix_desktop.gui.colours import DARK, LIGHT
from helix_desktop.gui.frame.early_typing import EarlyTyping
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile

FIRST_SIZE = QSize(1440, 900)
# Room for the window's frame and, under Wayland, for the desktop's panels, whose size is unknown.
WINDOW_BORDER_SIZE = QSize(16, 64)
SMALLEST_SIZE = QSize(880, 520)
RAIL_WIDTH, RAIL_SQUARE, SIDEBAR_WIDTH, TOP_BAR_HEIGHT = 56, 36, 252, 48
# The message box's width in pixels, its most lines, and the pixels below its text.
MESSAGE_BOX_WIDTH, MESSAGE_BOX_LINES, ROOM_BELOW_TEXT = 720, 10, 74


def rail_width(zoom: float) -> int:
    """The rail's squares grow with large text; the room beside them stays as it is."""
    return RAIL_WIDTH + round(RAIL_SQUARE * max(zoom - 1, 0))


class WindowPlaceholder(QWidget):
    """Draws the window as it looked last, with what is typed, until the real content is ready."""

    painted = Signal()

    def __init__(self, state_file: WindowStateFile) -> None:
        super().__init__()
        look = state_file.get_remembered("look", default=dict[str, object]())
        zoom = look.get("zoom", 1.0)
        self._zoom = float(zoom) if isinstance(zoom, int | float) else 1.0
        self._tokens = DARK if look.get("dark", look.get("scheme") == "dark") else LIGHT
        self._sidebar = (
            round(SIDEBAR_WIDTH * self._zoom)
            if state_file.get_remembered("workspace", default="")
            else 0
        )
        self.early_typing = EarlyTyping(state_file)
        self.was_painted = False

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        if self.early_typing.apply_key_to_message(event):
            self.update()

    def inputMethodEvent(self, event: QtGui.QInputMethodEvent) -> None:
        if self.early_typing.has_box and event.commitString():
            self.early_typing.append_typed_text(event.commitString())
            self.update()

    def paintEvent(self, event: QtGui.QPaintEvent) -> None:
        painter, tokens = QtGui.QPainter(self), self._tokens
        rail, width, height = rail_width(self._zoom), self.width(), self.height()
        left = rail + self._sidebar
        places = [(tokens["panel"], 0, 0, width, height), (tokens["rail"], 0, 0, rail, height)]
        places += [(tokens["window"], rail, 0, self._sidebar, height)] if self._sidebar else []
        places += [(tokens["line"], line, 0, 1, height) for line in (rail - 1, left - 1)]
        if self._sidebar:
            places.append((tokens["line"], left, round(TOP_BAR_HEIGHT * self._zoom) - 1, width, 1))
        for colour, *place in places:  # Using QBrush would load Qt's enums, which takes 25 ms.
            surface = QtGui.QPixmap(1, 1)
            surface.fill(QtGui.QColor(colour))
            painter.drawPixmap(QRect(*place), surface)
        # The first paint shows no text, because drawing text loads Qt's enums.
        if self.early_typing.has_box and self.was_painted:
            self._draw_typed_text(painter, left, width, height)
        self.was_painted = True
        self.painted.emit()

    def _draw_typed_text(self, painter: QtGui.QPainter, left: int, width: int, height: int) -> None:
        from PySide6.QtCore import Qt

        zoom, metrics = self._zoom, painter.fontMetrics()
        room = min(round(MESSAGE_BOX_WIDTH * zoom), width - left - round(32 * zoom)) - round(
            28 * zoom
        )
        end = Qt.TextElideMode.ElideRight
        lines = [
            metrics.elidedText(line, end, room)
            for line in self.early_typing.typed_text.split("\n")[-MESSAGE_BOX_LINES:]
        ]
        messages = [
            line
            for each in self.early_typing.sent_messages
            for line in each["text"].split("\n")[:1]
        ]
        x = left + (width - left - room) // 2
        bottom = height - round(ROOM_BELOW_TEXT * zoom)
        painter.setPen(QtGui.QColor(self._tokens["text"]))
        for at, line in enumerate(reversed([*messages, *lines])):
            painter.drawText(QPoint(x, bottom - at * metrics.lineSpacing()), line)


class TopLevelWindow(QMainWindow):
    """`closing`: the user closed the window. It stays open until everything has stopped."""

    closing = Signal()

    def __init__(self, state_file: WindowStateFile, title: str) -> None:
        super().__init__()
        self.state_file = state_file
        self.is_closing = (
            False  # The user may close the window before anything is connected to `closing`.
        )
        self.setMinimumSize(SMALLEST_SIZE)
        self.setWindowTitle(title)
        self.placeholder = WindowPlaceholder(state_file)
        self.setCentralWidget(self.placeholder)
        self._restore_window_geometry()

    def enable_typing(self) -> None:
        """Accepts typing, also through an input method. Call it after the first paint."""
        from PySide6.QtCore import (
            Qt,
        )  # Loading Qt's enums takes a seventh of the time to the first paint.

        self.placeholder.setAttribute(Qt.WidgetAttribute.WA_InputMethodEnabled)
        self.placeholder.setFocus()
        self.placeholder.update()

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        if self.centralWidget() is self.placeholder:
            self.placeholder.keyPressEvent(event)
        else:
            super().keyPressEvent(event)

    def save_window_geometry(self) -> None:
        self.state_file.remember_value(
            "window", value=bytes(self.saveGeometry().toBase64().data()).decode()
        )

    def _restore_window_geometry(self) -> None:
        kept = QByteArray.fromBase64(self.state_file.get_remembered("window", default="").encode())
        is_restored = not kept.isEmpty() and self.restoreGeometry(kept)
        screens = [each.availableGeometry() for each in QtGui.QGuiApplication.screens()]
        if is_restored and any(screen.intersects(self.geometry()) for screen in screens):
            return
        screen = QtGui.QGuiApplication.primaryScreen().availableGeometry()
        size = FIRST_SIZE.boundedTo(screen.size() - WINDOW_BORDER_SIZE)
        corner = screen.center() - QPoint(size.width() // 2, size.height() // 2)
        self.setGeometry(QRect(corner, size))

    def closeEvent(self, event: QtGui.QCloseEvent) -> None:
        """Keeps the window open: the program stops everything first, then quits."""
        self.is_closing = True
        self.closing.emit()
        event.ignore()
