"""The rail of workspaces at the left: an initial on a coloured square, and a dot for what goes on in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal, SignalInstance
from PySide6.QtGui import QColor, QFont, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QMenu, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from helix_desktop.engine.events import Running
from helix_desktop.gui.icons import icon
from helix_desktop.gui.ports import WorkspaceRow
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.tokens import on
from helix_desktop.gui.transcript.harmless import hint
from helix_desktop.gui.words import tr

WIDTH = 56
SQUARE = 36
_SIGN = {Running.ASKING: "?", Running.FAILED: "!"}


def state_words(running: Running) -> str:
    """What a workspace or conversation is doing, in the user's language."""
    return {
        Running.IDLE: tr("idle"),
        Running.THINKING: tr("running"),
        Running.TOOLS: tr("running"),
        Running.ASKING: tr("waiting for you"),
        Running.FAILED: tr("failed"),
    }[running]


class WorkspaceButton(QAbstractButton):
    """One workspace of the rail."""

    def __init__(self, theme: Theme, row: WorkspaceRow, number: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._colour = QColor(row.colour) if QColor.isValidColorName(row.colour) else QColor("#4a5fa5")
        self._running = Running.IDLE
        self.workspace = row.id
        self._title = row.name  # not the button's text, in which “R&D” would take Alt+D
        self.setCheckable(True)
        self.setFixedSize(WIDTH, SQUARE)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._hint = f"{row.name}\n{row.folder}" + (f"\nCtrl+{number}" if number <= 9 else "")
        self._name()

    def show_running(self, running: Running) -> None:
        self._running = running
        self._name()
        self.update()

    def _name(self) -> None:
        state = "" if self._running is Running.IDLE else state_words(self._running)
        self.setAccessibleName(", ".join(filter(None, [tr("Workspace {name}", name=self._title), state])))
        self.setToolTip(hint("\n".join(filter(None, [self._hint, state]))))

    def sizeHint(self) -> QSize:
        return QSize(WIDTH, SQUARE)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        square = QRectF((WIDTH - SQUARE) / 2, 0, SQUARE, SQUARE)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._colour.lighter(110) if self.underMouse() else self._colour)
        painter.drawRoundedRect(square, 10, 10)
        painter.setPen(QColor(on(self._colour.name())))
        painter.setFont(self._theme.font(13, weight=QFont.Weight.DemiBold))
        painter.drawText(square, Qt.AlignmentFlag.AlignCenter, self._title[:1].upper())
        if self.isChecked():
            self._paint_mark(painter)
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(self._theme.colour("text"), 2))
            painter.drawRoundedRect(square.adjusted(1, 1, -1, -1), 9, 9)
        if self._running is not Running.IDLE:
            self._paint_dot(painter, square)

    def _paint_mark(self, painter: QPainter) -> None:
        left = WIDTH - 3 if self.layoutDirection() == Qt.LayoutDirection.RightToLeft else 0
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.colour("text"))
        painter.drawRoundedRect(QRectF(left, 8, 3, 20), 1.5, 1.5)

    def _paint_dot(self, painter: QPainter, square: QRectF) -> None:
        """A sign in the dot, since a colour alone says nothing to some."""
        sign = _SIGN.get(self._running, "")
        name = {"?": "handover", "!": "danger"}.get(sign, "output")
        middle = square.bottomRight() - QPointF(2, 8)
        radius = 7.0 if sign else 5.5
        painter.setPen(QPen(self._theme.colour("rail"), 2))
        painter.setBrush(self._theme.colour(name))
        painter.drawEllipse(middle, radius, radius)
        if sign:
            painter.setPen(self._theme.colour("panel"))
            painter.setFont(self._theme.font(9, weight=QFont.Weight.Bold))
            box = QRectF(middle.x() - radius, middle.y() - radius, 2 * radius, 2 * radius)
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, sign)


class Rail(QWidget):
    """`chosen` carries a workspace's id; `wants` what is asked for one: "rename", "settings", "trash", ...

    `add_menu` carries the name of an action that brings another one.
    """

    chosen = Signal(str)
    adding = Signal()
    palette_wanted = Signal()
    settings_wanted = Signal()
    wants = Signal(str, str)
    add_menu = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._buttons: list[WorkspaceButton] = []
        self.setProperty("look", "rail")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedWidth(WIDTH)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self.setAccessibleName(tr("Workspaces"))
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 12, 0, 12)
        self._layout.setSpacing(10)
        self._add = self._tool("plus", tr("Open folder as workspace"), self.adding)
        self._add.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._add.customContextMenuRequested.connect(lambda _at: self._more_ways())
        self._layout.addStretch(1)
        self._everything = self._tool("command", tr("Search everything"), self.palette_wanted)
        self._settings = self._tool("settings", tr("Settings"), self.settings_wanted)
        theme.changed.connect(self._restyled)

    def show_workspaces(self, rows: Sequence[WorkspaceRow], current: str) -> None:
        """The squares from the top, the one that is open marked."""
        for old in self._buttons:
            self._layout.removeWidget(old)
            old.hide()
            old.deleteLater()
        self._buttons = [WorkspaceButton(self._theme, row, n, self) for n, row in enumerate(rows, 1)]
        for at, button in enumerate(self._buttons):
            self._layout.insertWidget(at, button)
            button.clicked.connect(lambda _checked=False, b=button: self.chosen.emit(b.workspace))
            button.customContextMenuRequested.connect(lambda _at, b=button: self._menu(b))
        self.mark(current)

    def mark(self, current: str) -> None:
        for button in self._buttons:
            button.setChecked(button.workspace == current)

    def show_running(self, workspace: str, running: Running) -> None:
        for button in self._buttons:
            if button.workspace == workspace:
                button.show_running(running)

    def workspace_at(self, number: int) -> str:
        """The id of the n-th square, from 1; empty when there is none."""
        return self._buttons[number - 1].workspace if 0 < number <= len(self._buttons) else ""

    def _tool(self, name: str, text: str, signal: SignalInstance) -> QToolButton:
        button = QToolButton(self)
        button.setObjectName(name)
        button.setProperty("look", "icon")
        button.setIcon(icon(name, self._theme.colour("muted")))
        button.setIconSize(QSize(18, 18))
        button.setFixedSize(SQUARE, 28)
        button.setToolTip(text)
        button.setAccessibleName(text)
        button.clicked.connect(signal)
        self._layout.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        return button

    def _menu(self, button: WorkspaceButton) -> None:
        menu = QMenu(self)
        for what, text in (
            ("rename", tr("Rename…")),
            ("recolour", tr("Change colour")),
            ("folders", tr("Choose another folder…")),
            ("settings", tr("Workspace settings")),
            ("export", tr("Export…")),
            ("trash", tr("Move to trash")),
        ):
            menu.addAction(text).triggered.connect(partial(self.wants.emit, what, button.workspace))
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(button.mapToGlobal(button.rect().topRight()))

    def _more_ways(self) -> None:
        """What else brings a workspace here: actions by their names."""
        menu = QMenu(self)
        for name, text in (
            ("open-folder", tr("Open folder as workspace…")),
            ("bring-in", tr("Import conversations…")),
            ("connect-agent", tr("Connect an agent…")),
            ("join-workspace", tr("Join a shared workspace…")),
            ("import-workspace", tr("Import workspace…")),
            ("workspace-trash", tr("Workspaces in the trash…")),
        ):
            menu.addAction(text).triggered.connect(partial(self.add_menu.emit, name))
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self._add.mapToGlobal(self._add.rect().topRight()))

    def _restyled(self) -> None:
        for button in (self._add, self._everything, self._settings):
            button.setIcon(icon(button.objectName(), self._theme.colour("muted")))
        self.update()
