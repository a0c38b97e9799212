"""The rail of workspaces: initials on a coloured square, and a dot for its state."""

from collections.abc import Sequence
from functools import partial
from os.path import commonprefix
from pathlib import Path

from PySide6.QtCore import (
    QPoint,
    QPointF,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QApplication, QMenu, QSizePolicy, QWidget

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.colours import readable_text_colour
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.running_states import describe_running_state
from helix_desktop.gui.frame.top_level_window import RAIL_SQUARE, RAIL_WIDTH, rail_width
from helix_desktop.gui.rows_and_columns import build_column, clear_layout
from helix_desktop.gui.shown_workspace import OTHER_COMPUTER
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import read_shown_names, tr
from helix_desktop.gui.workbench_types import KnownWorkspace

GAP = 10
SSH_BADGE = "ssh"
USUAL_COLOUR = "#4a5fa5"  # Of a workspace whose settings have no colour that Qt knows.
_STATE_SIGNS = {ConversationActivity.ASKING: "?", ConversationActivity.FAILED: "!"}
_COLOURS_OF_SIGNS = {"?": "handover", "!": "danger"}


def choose_initials(names: Sequence[str]) -> list[str]:
    """Returns each name's first letter. Where others share it, the first letter or digit after
    their common beginning follows.
    """
    names_by_letter: dict[str, list[str]] = {}
    for name in names:
        names_by_letter.setdefault(name[:1].upper(), []).append(name)
    initials: list[str] = []
    for name in names:
        letter = name[:1].upper()
        common_beginning = commonprefix(names_by_letter[letter])  # noqa: RUF071 -- by characters
        # A name that shares its letter with no other is its own common beginning.
        end_of_name = name[max(1, len(common_beginning)) :]
        initials.append(letter + _first_letter_or_digit(end_of_name))
    return initials


def _first_letter_or_digit(text: str) -> str:
    for character in text:
        if character.isalnum():
            return character
    return ""


class WorkspaceButton(QAbstractButton):
    """A workspace on the rail. `dragged` carries its top during a drag, which `dropped` ends."""

    dragged = Signal(int)
    dropped = Signal()

    def __init__(
        self,
        theme: Theme,
        row: KnownWorkspace,
        number: int,
        initials: str,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent, checkable=True)
        self.initials = initials
        self._theme = theme
        self._colour = QColor(USUAL_COLOUR)
        if QColor.isValidColorName(row.settings.colour):
            self._colour = QColor(row.settings.colour)
        self.running_state = ConversationActivity.IDLE
        self.workspace = row.id
        self._is_on_other_computer = row.id.startswith(OTHER_COMPUTER)
        # Where in the square the mouse button went down, from the square's top.
        self._press_offset: int | None = None
        self._is_dragged = False
        # If a name such as “R&D” were the button's text, Qt would make Alt+D its shortcut.
        self._title = row.name
        self.setAutoExclusive(True)  # Screen readers then announce a radio button, not a check box.
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._hint = f"{row.name}\n{row.first_folder}"
        if number <= 9:
            self._hint += f"\nCtrl+{number}"
        self._update_button_name()

    def set_running_state(self, running: ConversationActivity) -> None:
        self.running_state = running
        self._update_button_name()
        self.update()

    def _update_button_name(self) -> None:
        name = tr("Workspace {name}", name=self._title)
        tooltip = self._hint
        if self.running_state is not ConversationActivity.IDLE:
            state = describe_running_state(self.running_state)
            name = f"{name}, {state}"
            tooltip = f"{tooltip}\n{state}"
        self.setAccessibleName(name)
        self.setToolTip(safe_tooltip(tooltip))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        self._press_offset = None
        if event.button() == Qt.MouseButton.LeftButton:
            self._press_offset = round(event.globalPosition().y()) - self.y()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        top = self.y()
        if self._press_offset is not None:
            top = round(event.globalPosition().y()) - self._press_offset
        least_distance = QApplication.startDragDistance() + self.height() // 4
        if self._is_dragged or abs(top - self.y()) >= least_distance:
            self._is_dragged = True
            self.dragged.emit(top)
        else:
            super().mouseMoveEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._press_offset = None
        if self._is_dragged:
            self._is_dragged = False
            self.setDown(False)
            self.dropped.emit()
        else:
            super().mouseReleaseEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the initials on a square of the workspace's colour.

        A bar at the edge marks the open workspace, a frame the one with the keyboard's focus, and
        a dot one in which an agent is at work, waits for the user or has failed.
        """
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        size = self.height()
        square = QRectF((self.width() - size) / 2, 0, size, size)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._colour)
        if self.underMouse():
            painter.setBrush(self._colour.lighter(110))
        painter.drawRoundedRect(square, 10, 10)

        text_colour = readable_text_colour(self._colour.name())
        painter.setPen(QColor(text_colour))
        initials_font = self._theme.build_font(13, weight=QFont.Weight.DemiBold)
        painter.setFont(initials_font)
        painter.drawText(square, Qt.AlignmentFlag.AlignCenter, self.initials)

        if self.isChecked():
            left = 0
            if self.layoutDirection() == Qt.LayoutDirection.RightToLeft:
                left = self.width() - 3
            bar = QRectF(left, 8, 3, size - 16)
            self._theme.fill_surface(painter, bar, "text", 1.5)

        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            frame_pen = QPen(self._theme.colour_of_token("text"), 2)
            painter.setPen(frame_pen)
            frame = square.adjusted(1, 1, -1, -1)
            painter.drawRoundedRect(frame, 9, 9)

        if self._is_on_other_computer:
            self._draw_ssh_badge(painter, square)
        if self.running_state is not ConversationActivity.IDLE:
            self._draw_state_dot(painter, square)

    def _draw_ssh_badge(self, painter: QPainter, square: QRectF) -> None:
        """Marks a workspace on another computer in the lower corner of its square."""
        font = self._theme.build_font(8, weight=QFont.Weight.Bold)
        width = QFontMetricsF(font).horizontalAdvance(SSH_BADGE) + 6
        height = 12 * self.height() / RAIL_SQUARE
        right = square.right() + 4
        bottom = square.bottom() + 1
        badge = QRectF(right - width, bottom - height, width, height)
        self._theme.fill_surface(painter, badge, "panel", 4)
        centred = Qt.AlignmentFlag.AlignCenter
        self._theme.draw_words(painter, badge, SSH_BADGE, font, "text", centred)

    def _draw_state_dot(self, painter: QPainter, square: QRectF) -> None:
        """Draws the state's dot with a symbol in it, for people who are colour-blind."""
        sign = _STATE_SIGNS.get(self.running_state, "")
        colour_token = _COLOURS_OF_SIGNS.get(sign, "output")
        middle = square.bottomRight() - QPointF(2, 8)
        if self._is_on_other_computer:  # Its lower corner has a badge.
            middle = square.topRight() + QPointF(-2, 8)
        radius = 5.5
        if sign:
            radius = 7.0
        radius *= self.height() / RAIL_SQUARE
        # The ring has the colour of what lies behind, so that the dot stands out on the square.
        ring_pen = QPen(self._theme.colour_of_token("rail"), 2)
        painter.setPen(ring_pen)
        painter.setBrush(self._theme.colour_of_token(colour_token))
        painter.drawEllipse(middle, radius, radius)
        if sign:
            box = QRectF(0, 0, 2 * radius, 2 * radius)
            box.moveCenter(middle)
            font = self._theme.build_font(9, weight=QFont.Weight.Bold)
            self._theme.draw_words(painter, box, sign, font, "panel", Qt.AlignmentFlag.AlignCenter)


class WorkspaceRail(QWidget):
    """`chosen` carries a workspace's id, `workspace_action_wanted` an action on it
    ("rename", "settings", "trash", ...), and `ordered` the ids in the user's order.
    `menu_wanted` carries the button that the window's menu opens at.
    """

    chosen = Signal(str)
    ordered = Signal(object)
    menu_wanted = Signal(QWidget)
    workspace_action_wanted = Signal(str, str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, accessibleName=tr("Workspaces"))
        self._theme = theme
        self._buttons: list[WorkspaceButton] = []
        widgets.set_surface_look(self, "rail")
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self._rows: Sequence[KnownWorkspace] = ()
        self._shown_buttons: list[tuple[str, str, str, Path]] = []
        self._inside = widgets.build_surface(self, "plain")
        self._column = build_column(owner=self._inside, margins=0, spacing=GAP)
        self.area = widgets.build_scroll_area(self._inside, self)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._layout = build_column((self.area, 1), owner=self, margins=(0, 12, 0, 12), spacing=GAP)
        self._layout.addStretch()
        self.menu_button = widgets.build_tool_button(tr("Menu"), self)
        self.menu_button.clicked.connect(self._request_menu)
        self._layout.addWidget(self.menu_button, 0, Qt.AlignmentFlag.AlignHCenter)
        self._fit_rail_to_theme()
        theme.changed.connect(self._fit_rail_to_theme)

    def show_workspace_buttons(self, rows: Sequence[KnownWorkspace], current: str) -> None:
        drawn = [(row.id, row.name, row.settings.colour, row.first_folder) for row in rows]
        if drawn != self._shown_buttons:
            self._shown_buttons = drawn
            self._build_workspace_buttons(rows)
        self.mark_open_workspace(current)

    def _build_workspace_buttons(self, rows: Sequence[KnownWorkspace]) -> None:
        self._rows = list(rows)
        clear_layout(self._column)
        names = [row.name for row in rows]
        all_initials = choose_initials(names)
        self._buttons = []
        for index, row in enumerate(rows):
            number = index + 1
            initials = all_initials[index]
            button = WorkspaceButton(self._theme, row, number, initials, self._inside)
            self._buttons.append(button)
            self._column.addWidget(button)
            button.clicked.connect(lambda _checked=False, name=row.id: self.chosen.emit(name))
            button.customContextMenuRequested.connect(partial(self._show_menu_of_button, button))
            button.dragged.connect(partial(self._move_dragged_button, button))
            button.dropped.connect(partial(self._move_workspace_to_dropped_place, button))
        self._fit_rail_to_theme()

    def _show_menu_of_button(self, button: WorkspaceButton, _point: QPoint) -> None:
        position = button.mapToGlobal(button.rect().topRight())
        self.show_workspace_menu(button.workspace, position)

    def _fit_rail_to_theme(self) -> None:
        width = rail_width(self._theme.text_zoom)
        square = width - RAIL_WIDTH + RAIL_SQUARE
        self.setFixedWidth(width)
        # The squares stay in the middle, also beside a scroll bar.
        self._inside.setMinimumWidth(width)
        for button in self._buttons:
            button.setFixedSize(width, square)
        self.menu_button.setIconSize(QSize(square // 2, square // 2))
        self.menu_button.setFixedSize(square, square - 8)
        self.menu_button.setIcon(build_icon("menu", self._theme.colour_of_token("muted")))
        height = max(len(self._buttons) * (square + GAP) - GAP, 0)
        self._inside.setFixedHeight(height)
        self.area.setMaximumHeight(height)
        self._layout.activate()
        self.update()

    def mark_open_workspace(self, current: str) -> None:
        had_focus = self.window().focusWidget() in self._buttons
        for button in self._buttons:
            button.setChecked(button.workspace == current)
            if button.isChecked() and had_focus:  # With its ring elsewhere, two look chosen.
                button.setFocus()
        # This waits until Qt has placed all squares.
        widgets.run_after_events(self, self._scroll_to_open_workspace)

    def _scroll_to_open_workspace(self) -> None:
        for button in self._buttons:
            if button.isChecked():
                self.area.ensureVisible(
                    0, button.y() + button.height() // 2, 0, button.height() * 3 // 2
                )

    def move_workspace(self, workspace: str, steps: int) -> None:
        """Moves a workspace's button down by a number of places, or up if it is negative, as far
        as there are places. All buttons are made again, and `ordered` reports the new order.
        """
        order = [button.workspace for button in self._buttons]
        old_index = order.index(workspace)
        last_index = len(order) - 1
        new_index = min(max(old_index + steps, 0), last_index)
        order.pop(old_index)
        order.insert(new_index, workspace)

        row_by_workspace = {row.id: row for row in self._rows}
        open_workspace = ""
        state_by_workspace: dict[str, ConversationActivity] = {}
        for button in self._buttons:
            state_by_workspace[button.workspace] = button.running_state
            if button.isChecked():
                open_workspace = button.workspace
        rows = [row_by_workspace[name] for name in order]
        self.show_workspace_buttons(rows, open_workspace)
        # The buttons are new ones, which do not know these states.
        for name, state in state_by_workspace.items():
            self.show_workspace_state(name, state)
        self.ordered.emit(order)

    def _move_dragged_button(self, button: WorkspaceButton, top: int) -> None:
        """Lets a square follow the mouse above the others, and scrolls the list along."""
        button.raise_()
        lowest_top = self._inside.height() - button.height()
        top_within_list = min(max(top, 0), lowest_top)
        button.move(0, top_within_list)
        middle = button.y() + button.height() // 2
        self.area.ensureVisible(0, middle, 0, button.height())

    def _move_workspace_to_dropped_place(self, button: WorkspaceButton) -> None:
        old_index = self._buttons.index(button)
        new_index = round(button.y() / (button.height() + GAP))
        self.move_workspace(button.workspace, new_index - old_index)

    def show_workspace_state(self, workspace: str, running: ConversationActivity) -> None:
        for button in self._buttons:
            if button.workspace == workspace:
                button.set_running_state(running)

    def workspace_id_at(self, number: int) -> str:
        """Returns the id of the n-th square, counted from 1, or an empty string."""
        if not 0 < number <= len(self._buttons):
            return ""
        return self._buttons[number - 1].workspace

    def _request_menu(self) -> None:
        self.menu_wanted.emit(self.menu_button)

    def show_workspace_menu(self, workspace: str, position: QPoint) -> None:
        menu = widgets.build_popup_menu(self)
        self.fill_workspace_menu(menu, workspace)
        menu.popup(position)

    def fill_workspace_menu(self, menu: QMenu, workspace: str) -> None:
        """Adds what can be done with a workspace."""
        for action, title in read_shown_names()["action of a workspace"].items():
            request = partial(self.workspace_action_wanted.emit, action, workspace)
            menu.addAction(tr(title)).triggered.connect(request)
        if len(self._buttons) > 1:
            menu.addSeparator()
            move_up = partial(self.move_workspace, workspace, -1)
            move_down = partial(self.move_workspace, workspace, 1)
            menu.addAction(tr("Move up")).triggered.connect(move_up)
            menu.addAction(tr("Move down")).triggered.connect(move_down)
