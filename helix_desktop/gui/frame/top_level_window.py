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
# A screen of 1440 x 900 pixels has half as many points where all is drawn twice as large.
SMALLEST_SIZE = QSize(700, 320)
RAIL_WIDTH = 56
RAIL_SQUARE = 36
SIDEBAR_WIDTH = 252
TOP_BAR_HEIGHT = 48
# The message box's width in pixels, its most lines, and the pixels below its text.
MESSAGE_BOX_WIDTH = 720
MESSAGE_BOX_LINES = 10
ROOM_BELOW_TEXT = 74


def rail_width(zoom: float) -> int:
    """The rail's squares grow with large text; the room beside them stays as it is."""
    return RAIL_WIDTH + round(RAIL_SQUARE * max(zoom - 1, 0))


class WindowPlaceholder(QWidget):
    """Draws the window as it looked last, with what is typed, until the real content is ready."""

    painted = Signal()

    def __init__(self, state_file: WindowStateFile) -> None:
        """Reads the colours and the width of the sidebar from the last time, so that
        what is painted first looks as the window will.
        """
        super().__init__()
        look = state_file.get_remembered("look", default=dict[str, object]())
        self._zoom = 1.0
        zoom = look.get("zoom")
        if isinstance(zoom, int | float):
            self._zoom = float(zoom)
        self._tokens = LIGHT
        if look.get("dark", look.get("scheme") == "dark"):
            self._tokens = DARK
        self._sidebar = 0  # Its width; there is none without a workspace.
        if state_file.get_remembered("workspace", default=""):
            self._sidebar = round(SIDEBAR_WIDTH * self._zoom)
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
        """Draws the window's surfaces and dividing lines while its parts are still being built:
        from left to right the rail of workspaces, the sidebar and the page.
        """
        painter = QtGui.QPainter(self)
        width = self.width()
        height = self.height()
        rail = rail_width(self._zoom)
        left = rail + self._sidebar

        self._fill_area(painter, "panel", QRect(0, 0, width, height))
        self._fill_area(painter, "rail", QRect(0, 0, rail, height))
        if self._sidebar:
            self._fill_area(painter, "window", QRect(rail, 0, self._sidebar, height))
        self._fill_area(painter, "line", QRect(rail - 1, 0, 1, height))
        self._fill_area(painter, "line", QRect(left - 1, 0, 1, height))
        if self._sidebar:
            below_top_bar = round(TOP_BAR_HEIGHT * self._zoom) - 1
            self._fill_area(painter, "line", QRect(left, below_top_bar, width, 1))

        # The first paint shows no text, because drawing text loads Qt's enums. The next one, at
        # once after it, says what is waited for: the rest of the start takes seconds.
        if self.was_painted:
            self._draw_words_while_opening(painter, left, width, height)
            if self.early_typing.has_box:
                self._draw_typed_text(painter, left, width, height)
        self.was_painted = True
        self.painted.emit()

    def _fill_area(self, painter: QtGui.QPainter, token: str, area: QRect) -> None:
        # Using QBrush would load Qt's enums, which takes 25 ms.
        surface = QtGui.QPixmap(1, 1)
        surface.fill(QtGui.QColor(self._tokens[token]))
        painter.drawPixmap(area, surface)

    def _draw_words_while_opening(
        self, painter: QtGui.QPainter, left: int, width: int, height: int
    ) -> None:
        words = self.early_typing.words_while_opening
        metrics = painter.fontMetrics()
        x = left + (width - left - metrics.horizontalAdvance(words)) // 2
        painter.setPen(QtGui.QColor(self._tokens["muted"]))
        painter.drawText(QPoint(x, height // 2), words)

    def _draw_typed_text(self, painter: QtGui.QPainter, left: int, width: int, height: int) -> None:
        """Draws what the user types before the message box exists, where the box will be: the
        first line of each message that was sent already, and the last lines being typed.
        """
        from PySide6.QtCore import Qt

        zoom = self._zoom
        metrics = painter.fontMetrics()
        page_width = width - left
        box_width = min(round(MESSAGE_BOX_WIDTH * zoom), page_width - round(32 * zoom))
        text_width = box_width - round(28 * zoom)

        lines: list[str] = []
        for message in self.early_typing.sent_messages:
            first_line, _, _ = message["text"].partition("\n")
            lines.append(first_line)
        for line in self.early_typing.typed_text.split("\n")[-MESSAGE_BOX_LINES:]:
            lines.append(metrics.elidedText(line, Qt.TextElideMode.ElideRight, text_width))

        painter.setPen(QtGui.QColor(self._tokens["text"]))
        x = left + (page_width - text_width) // 2
        # The last line stands lowest, where the message box will be.
        y = height - round(ROOM_BELOW_TEXT * zoom)
        for line in reversed(lines):
            painter.drawText(QPoint(x, y), line)
            y -= metrics.lineSpacing()


class TopLevelWindow(QMainWindow):
    """`closing`: the user closed the window. It stays open until everything has stopped."""

    closing = Signal()

    def __init__(self, state_file: WindowStateFile, title: str) -> None:
        super().__init__()
        self.state_file = state_file
        # The user may close the window before anything is connected to `closing`.
        self.is_closing = False
        self.setMinimumSize(SMALLEST_SIZE)
        self.setWindowTitle(title)
        self.placeholder = WindowPlaceholder(state_file)
        self.setCentralWidget(self.placeholder)
        self._restore_window_geometry()

    def enable_typing(self) -> None:
        """Accepts typing, also through an input method. Call it after the first paint."""
        # Loading Qt's enums takes a seventh of the time to the first paint.
        from PySide6.QtCore import Qt

        self.placeholder.setAttribute(Qt.WidgetAttribute.WA_InputMethodEnabled)
        self.placeholder.setFocus()
        self.placeholder.update()

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        if self.centralWidget() is self.placeholder:
            self.placeholder.keyPressEvent(event)
        else:
            super().keyPressEvent(event)

    def save_window_geometry(self) -> None:
        encoded = bytes(self.saveGeometry().toBase64().data()).decode()
        self.state_file.remember_value("window", value=encoded)

    def _restore_window_geometry(self) -> None:
        encoded = self.state_file.get_remembered("window", default="")
        saved_geometry = QByteArray.fromBase64(encoded.encode())
        if not saved_geometry.isEmpty() and self.restoreGeometry(saved_geometry):
            # The screen where it stood may have been disconnected since then.
            for screen in QtGui.QGuiApplication.screens():
                if screen.availableGeometry().intersects(self.geometry()):
                    return
        self._place_in_middle_of_screen()

    def _place_in_middle_of_screen(self) -> None:
        screen = QtGui.QGuiApplication.primaryScreen().availableGeometry()
        size = FIRST_SIZE.boundedTo(screen.size() - WINDOW_BORDER_SIZE)
        corner = screen.center() - QPoint(size.width() // 2, size.height() // 2)
        self.setGeometry(QRect(corner, size))

    def closeEvent(self, event: QtGui.QCloseEvent) -> None:
        """Keeps the window open: the program stops everything first, then quits."""
        self.is_closing = True
        self.closing.emit()
        event.ignore()
