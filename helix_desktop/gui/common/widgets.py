from collections.abc import Callable
from typing import Any

from PySide6 import QtWidgets
from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt, QTimer
from PySide6.QtGui import QAction, QKeyEvent, QPaintEvent

from helix_desktop.gui.enter_key import press_focused_button
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.screen_fitting import keep_on_screen
from helix_desktop.gui.theme import Theme, make_default_button
from helix_desktop.gui.translation import tr

COLUMN = 720  # The maximum width in pixels of the transcript and of the composer below it.
Action = Callable[[], object]
_GAP_BELOW_HINT = 4


def build_plain_label(
    text: str = "",
    look: str = "",
    parent: QtWidgets.QWidget | None = None,
    *,
    wraps: bool = True,
    **properties: Any,
) -> QtWidgets.QLabel:
    """Builds a label that shows text literally, so that no name or path in it acts as markup."""
    label = QtWidgets.QLabel(
        text, parent, textFormat=Qt.TextFormat.PlainText, wordWrap=wraps, **properties
    )
    if look:
        label.setProperty("look", look)
    return label


def run_after_events(owner: QObject, act: Action) -> None:
    """Run `act` once Qt has done what waits now, above all layouts, or never if `owner` is gone by then.

    `QTimer.singleShot` would keep `act` for ever in that case, and with it all that it belongs to.
    """
    timer = QTimer(owner, interval=0, singleShot=True)
    timer.timeout.connect(act)
    timer.timeout.connect(timer.deleteLater)
    timer.start()


def set_surface_look(widget: QtWidgets.QWidget, look: str) -> None:
    """Lets the style sheet paint the background of a plain widget."""
    widget.setProperty("look", look)
    widget.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)


def build_surface(parent: QtWidgets.QWidget, look: str) -> QtWidgets.QWidget:
    surface = QtWidgets.QWidget(parent)
    set_surface_look(surface, look)
    return surface


def build_line_edit(
    name: str, example: str, parent: QtWidgets.QWidget, **properties: Any
) -> QtWidgets.QLineEdit:
    """Builds a line edit. `name` is for screen readers; `example` is shown while the
    field is empty.
    """
    line: QtWidgets.QLineEdit = QtWidgets.QLineEdit(parent, placeholderText=example, **properties)
    line.setAccessibleName(name)
    return line


def build_combo_box(name: str, parent: QtWidgets.QWidget) -> QtWidgets.QComboBox:
    """Builds a combo box. On Linux, Qt passes its name to screen readers only through a label."""
    box = QtWidgets.QComboBox(parent)
    box.setAccessibleName(name)
    label = build_plain_label(name.replace("&", "&&"), parent=parent)
    label.setBuddy(box)
    label.hide()
    return box


class WrappingButton(QtWidgets.QPushButton):
    """A button whose text wraps if the button is too narrow."""

    def __init__(self, text: str, parent: QtWidgets.QWidget, **properties: Any) -> None:
        super().__init__(text, parent, **properties)
        policy = QtWidgets.QSizePolicy(
            QtWidgets.QSizePolicy.Policy.Preferred, QtWidgets.QSizePolicy.Policy.Minimum
        )
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def heightForWidth(self, width: int) -> int:
        more_lines = self._wrap_words(width).count("\n")
        return self.sizeHint().height() + more_lines * self.fontMetrics().lineSpacing()

    def paintEvent(self, event: QPaintEvent) -> None:
        option = QtWidgets.QStyleOptionButton()
        self.initStyleOption(option)
        option.text = self._wrap_words(self.width())
        QtWidgets.QStylePainter(self).drawControl(
            QtWidgets.QStyle.ControlElement.CE_PushButton, option
        )

    def _wrap_words(self, width: int) -> str:
        metrics = self.fontMetrics()
        frame_width = self.sizeHint().width() - metrics.size(0, self.text()).width()
        room = width - frame_width
        lines: list[str] = []
        for word in self.text().split(" "):
            if lines and metrics.horizontalAdvance(f"{lines[-1]} {word}") <= room:
                lines[-1] = f"{lines[-1]} {word}"
            else:
                lines.append(word)
        return "\n".join(lines)


class HintAboveFilter(QObject):
    """Shows the hints of a widget above it. Qt shows them below the pointer, and at the lower edge
    of the screen on the widget itself.
    """

    def __init__(self, widget: QtWidgets.QWidget) -> None:
        super().__init__(widget)
        self._widget = widget
        widget.installEventFilter(self)

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        if event.type() is not QEvent.Type.ToolTip or not self._widget.toolTip():
            return False
        corner = self._widget.mapToGlobal(QPoint(0, 0))
        QtWidgets.QToolTip.showText(corner, self._widget.toolTip(), self._widget)
        for window in QtWidgets.QApplication.topLevelWidgets():
            if window.inherits("QTipLabel") and window.isVisible():
                window.move(window.x(), corner.y() - window.height() - _GAP_BELOW_HINT)
        return True


def build_push_button(
    text: str,
    parent: QtWidgets.QWidget,
    act: Action | None = None,
    look: str = "",
    *,
    wraps: bool = False,
    name: str = "",
    **properties: Any,
) -> QtWidgets.QPushButton:
    """Builds a button that Return presses only if it has the focus. Screen readers say
    `name`, or else the text.
    """
    button_class: type[QtWidgets.QPushButton] = QtWidgets.QPushButton
    if wraps:
        button_class = WrappingButton
    button = button_class(text, parent, autoDefault=False, **properties)
    button.setAccessibleName(name)
    if look:
        button.setProperty("look", look)
    if act is not None:
        button.clicked.connect(lambda _checked=False: act())
    return button


def build_tool_button(
    hint: str, parent: QtWidgets.QWidget, text: str = "", look: str = "icon"
) -> QtWidgets.QToolButton:
    """Builds a small button with a sign or an icon. `hint` describes it, for screen readers too."""
    button = QtWidgets.QToolButton(parent)
    button.setText(text)
    button.setProperty("look", look)
    button.setToolTip(hint)
    button.setAccessibleName(hint)
    return button


def build_scroll_area(
    inside: QtWidgets.QWidget, parent: QtWidgets.QWidget
) -> QtWidgets.QScrollArea:
    """Builds an area that shows `inside` at its full width and scrolls. Tab moves to
    what is inside.
    """
    area = QtWidgets.QScrollArea(parent, widgetResizable=True)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setWidget(inside)
    return area


class TransientDialog(QtWidgets.QDialog):
    """A dialog that is deleted when closed. Enter presses the focused button, or else
    the default one, which Ctrl+Enter presses from a field in which Enter breaks the line.
    """

    def __init__(
        self, title: str, parent: QtWidgets.QWidget | None, width: int = 0, height: int = 0
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        keep_on_screen(self, width, height)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_control_held = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if is_control_held and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            event.accept()  # The field that has not used it has marked it as unused.
            self._press_default_button()
        elif not press_focused_button(event):
            super().keyPressEvent(event)

    def _press_default_button(self) -> None:
        for button in self.findChildren(QtWidgets.QPushButton):
            if button.isDefault() and button.isEnabled():
                button.click()
                return


def build_popup_menu(parent: QtWidgets.QWidget) -> QtWidgets.QMenu:
    """Builds a menu that is deleted after it was open."""
    menu = QtWidgets.QMenu(parent)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return menu


def open_menu_below(menu: QtWidgets.QMenu, button: QtWidgets.QWidget, gap: int = 0) -> None:
    """Opens a menu below a button, further left if it would hang over the window's right edge."""
    window = button.window()
    place = button.mapToGlobal(QPoint(0, button.height() + gap))
    left_edge = window.mapToGlobal(QPoint(0, 0)).x()
    last_left = left_edge + window.width() - menu.sizeHint().width()
    place.setX(max(left_edge, min(place.x(), last_left)))
    menu.popup(place)


def add_menu_choice(menu: QtWidgets.QMenu, words: str, act: Action, *, chosen: bool) -> QAction:
    """Adds a line to a menu, checked if it is the current choice."""
    action = menu.addAction(words.replace("&", "&&"), act)
    action.setCheckable(True)
    action.setChecked(chosen)
    return action


def build_confirm_buttons(
    dialog: QtWidgets.QDialog, yes: str | QtWidgets.QPushButton, act: Action, no: str = ""
) -> QtWidgets.QDialogButtonBox:
    """Builds a dialog's buttons in the system's usual order. Return presses `yes`. `no`
    is "Cancel" by default.
    """
    roles = QtWidgets.QDialogButtonBox.ButtonRole
    buttons = QtWidgets.QDialogButtonBox(dialog)
    if isinstance(yes, str):
        yes = build_push_button(yes, dialog)
    make_default_button(yes)
    buttons.addButton(yes, roles.AcceptRole)
    refuse = buttons.addButton(no or tr("Cancel"), roles.RejectRole)
    refuse.setAutoDefault(False)
    buttons.accepted.connect(act)
    buttons.rejected.connect(dialog.reject)
    return buttons


def build_centred_column(owner: QtWidgets.QWidget, theme: Theme) -> QtWidgets.QWidget:
    """Builds a centred column, as wide as the transcript's text."""
    set_surface_look(owner, "page")
    middle = build_surface(owner, "plain")
    build_row(1, (middle, 100), 1, owner=owner, margins=(16, 0, 16, 0))
    theme.keep_lengths_scaled(middle, middle.setMaximumWidth, COLUMN)
    return middle
