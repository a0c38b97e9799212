"""Lets Enter press the focused button, which Qt does only in dialogs."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication, QPushButton, QToolButton

_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)


def press_focused_button(event: QKeyEvent) -> bool:
    """Presses the focused button if nothing else used Enter. Returns whether it did."""
    if event.key() not in _ENTER or event.isAutoRepeat():
        return False
    # The Enter key of the number pad has a modifier of its own.
    other_modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
    if other_modifiers:
        return False
    focused = QApplication.focusWidget()
    if focused is None or not focused.isEnabled():
        return False
    if isinstance(focused, QToolButton) and focused.menu() is not None:
        focused.showMenu()
    elif isinstance(focused, QPushButton | QToolButton):
        focused.click()
    else:
        return False
    return True
