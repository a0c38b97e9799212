"""The rail of workspaces at the left: an initial on a coloured square, and a dot for what goes on in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer, Signal, SignalInstance
from PySide6.QtGui import QColor, QFont, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QMenu,
    QScrollArea,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.events import Running
from helix_desktop.gui.icons import icon
from helix_desktop.gui.ports import WorkspaceRow
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.tokens import on
from helix_desktop.gui.transcript.harmless import hint
from helix_desktop.gui.words import tr

WIDTH = 56
SQUARE, GAP = 36, 10
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
    """One workspace of the rail. `dragged` carries the top to which the mouse has moved it; `dropped`: it is let go."""

    dragged = Signal(int)
    dropped = Signal()

    def __init__(self, theme: Theme, row: WorkspaceRow, number: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._colour = QColor(row.colour) if QColor.isValidColorName(row.colour) else QColor("#4a5fa5")
        self._running = Running.IDLE
        self.workspace = row.id
        self._pressed_at: int | None = None
        self._is_dragged = False
        self._title = row.name  # not the button's text, in which “R&D” would take Alt+D
        self.setCheckable(True)
        self.setFixedSize(WIDTH, SQUARE)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._hint = f"{row.name}\n{row.folder}" + (f"\nCtrl+{number}" if number <= 9 else "")
        self._name()

    @property
    def running(self) -> Running:
        return self._running

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

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        left = event.button() == Qt.MouseButton.LeftButton
        self._pressed_at = round(event.globalPosition().y()) - self.y() if left else None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        top = round(event.globalPosition().y()) - self._pressed_at if self._pressed_at is not None else self.y()
        if self._is_dragged or abs(top - self.y()) >= QApplication.startDragDistance() + SQUARE // 4:
            self._is_dragged = True
            self.dragged.emit(top)
        else:
            super().mouseMoveEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._pressed_at = None
        if self._is_dragged:
            self._is_dragged = False
            self.setDown(False)
            self.dropped.emit()
        else:
            super().mouseReleaseEvent(event)

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

    `add_menu` carries the name of an action that brings another one; `ordered` the ids as the user has ordered them.
    """

    chosen = Signal(str)
    ordered = Signal(object)
    adding = Signal()
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
        self._rows: Sequence[WorkspaceRow] = ()
        self._drawn: list[tuple[str, str, str, Path]] = []
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 12, 0, 12)
        self._layout.setSpacing(GAP)
        self.area = QScrollArea(self)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setWidgetResizable(True)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._inside = QWidget(self.area)
        self._inside.setProperty("look", "plain")
        self._column = QVBoxLayout(self._inside)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(GAP)
        self.area.setWidget(self._inside)
        self._layout.addWidget(self.area, 1)
        self._add = self._tool("plus", tr("Open folder as workspace"), self.adding)
        self._add.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._add.customContextMenuRequested.connect(lambda _at: self._more_ways())
        self._layout.addStretch()
        self._settings = self._tool("settings", tr("Settings"), self.settings_wanted)
        theme.changed.connect(self._restyled)

    def show_workspaces(self, rows: Sequence[WorkspaceRow], current: str) -> None:
        """The squares from the top, the one that is open marked."""
        drawn = [(row.id, row.name, row.colour, row.folder) for row in rows]
        if drawn != self._drawn:
            self._drawn = drawn
            self._make_squares(rows)
        self.mark(current)

    def _make_squares(self, rows: Sequence[WorkspaceRow]) -> None:
        self._rows = list(rows)
        for old in self._buttons:
            self._column.removeWidget(old)
            old.hide()
            old.deleteLater()
        self._buttons = [WorkspaceButton(self._theme, row, n, self._inside) for n, row in enumerate(rows, 1)]
        for button in self._buttons:
            self._column.addWidget(button)
            button.clicked.connect(lambda _checked=False, b=button: self.chosen.emit(b.workspace))
            button.customContextMenuRequested.connect(lambda _at, b=button: self._menu(b))
            button.dragged.connect(partial(self._drag, button))
            button.dropped.connect(partial(self._drop, button))
        height = len(rows) * (SQUARE + GAP) - GAP
        self._inside.setFixedHeight(max(height, 0))
        self.area.setMaximumHeight(max(height, 0))
        self._layout.activate()

    def mark(self, current: str) -> None:
        for button in self._buttons:
            button.setChecked(button.workspace == current)
        QTimer.singleShot(0, self, self._show_open)  # once the squares have their places

    def _show_open(self) -> None:
        for button in self._buttons:
            if button.isChecked():
                self.area.ensureWidgetVisible(button, 0, SQUARE)

    def move_workspace(self, workspace: str, steps: int) -> None:
        """Up or down by so many squares."""
        order = [button.workspace for button in self._buttons]
        at = order.index(workspace)
        order.insert(min(max(at + steps, 0), len(order) - 1), order.pop(at))
        rows = {row.id: row for row in self._rows}
        current = next((button.workspace for button in self._buttons if button.isChecked()), "")
        states = {button.workspace: button.running for button in self._buttons}
        self.show_workspaces([rows[name] for name in order], current)
        for name, running in states.items():
            self.show_running(name, running)
        self.ordered.emit(order)

    def _drag(self, button: WorkspaceButton, top: int) -> None:
        """It follows the mouse above the others, and the list follows it."""
        button.raise_()
        button.move(0, min(max(top, 0), self._inside.height() - SQUARE))
        self.area.ensureWidgetVisible(button, 0, SQUARE // 2)

    def _drop(self, button: WorkspaceButton) -> None:
        at = self._buttons.index(button)
        self.move_workspace(button.workspace, round(button.y() / (SQUARE + GAP)) - at)

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
        for steps, text in ((-1, tr("Move up")), (1, tr("Move down"))):
            menu.addAction(text).triggered.connect(partial(self._step, button.workspace, steps))
        menu.addSeparator()
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

    def _step(self, workspace: str, steps: int) -> None:
        self.move_workspace(workspace, steps)

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
        for button in (self._add, self._settings):
            button.setIcon(icon(button.objectName(), self._theme.colour("muted")))
        self.update()
