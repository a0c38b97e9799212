from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QLineEdit, QMenu, QPushButton, QWidget

from helix_desktop.gui.translation import tr


def build_plain_label(text: str = "", look: str = "", parent: QWidget | None = None, *, wraps: bool = True) -> QLabel:
    """A label that shows text as it is: no name or path in it is markup."""
    label = QLabel(text, parent)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(wraps)
    if look:
        label.setProperty("look", look)
    return label


def set_surface_look(widget: QWidget, look: str) -> None:
    """Lets the style sheet paint the ground of a plain widget."""
    widget.setProperty("look", look)
    widget.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)


def build_surface(parent: QWidget, look: str) -> QWidget:
    surface = QWidget(parent)
    set_surface_look(surface, look)
    return surface


def build_line_edit(name: str, example: str, parent: QWidget) -> QLineEdit:
    """`name` is for a screen reader; `example` stands in the field while it is empty."""
    line = QLineEdit(parent)
    line.setPlaceholderText(example)
    line.setAccessibleName(name)
    return line


def build_push_button(
    text: str, parent: QWidget, act: Callable[[], object] | None = None, look: str = ""
) -> QPushButton:
    """A button that Return presses only where it has the focus."""
    button = QPushButton(text, parent)
    button.setAutoDefault(False)
    if look:
        button.setProperty("look", look)
    if act is not None:
        button.clicked.connect(lambda _checked=False: act())
    return button


class TransientDialog(QDialog):
    """A dialog that is deleted once it is closed."""

    def __init__(self, title: str, parent: QWidget | None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)


def build_popup_menu(parent: QWidget) -> QMenu:
    """A menu that is opened once and then deleted."""
    menu = QMenu(parent)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return menu


def build_confirm_buttons(dialog: QDialog, yes: str, act: Callable[[], object]) -> QDialogButtonBox:
    """A dialog's buttons, in the order usual on this system. Return presses `yes`."""
    buttons = QDialogButtonBox(dialog)
    wanted = build_push_button(yes, dialog, look="primary")
    wanted.setDefault(True)
    buttons.addButton(wanted, QDialogButtonBox.ButtonRole.AcceptRole)
    buttons.addButton(tr("Cancel"), QDialogButtonBox.ButtonRole.RejectRole).setAutoDefault(False)
    buttons.accepted.connect(act)
    buttons.rejected.connect(dialog.reject)
    return buttons
