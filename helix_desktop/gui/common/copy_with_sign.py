"""Copies a text when a button is pressed, and lets the button say so for a moment."""

from functools import partial

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPushButton

from helix_desktop.gui.translation import tr

SIGN_MS = 2_000  # For so long, the button says that the text was copied.


def copy_and_say_so(text: str, button: QPushButton) -> None:
    """Puts a text on the clipboard. The button says "Copied" and then its own words again."""
    QGuiApplication.clipboard().setText(text)
    copied = tr("Copied")
    if button.text() == copied:
        return  # Its own words come back soon, after the first press.
    # The button keeps its width, so that nothing beside it moves.
    button.setMinimumWidth(button.width())
    timer = QTimer(button, interval=SIGN_MS, singleShot=True)
    timer.timeout.connect(partial(button.setText, button.text()))
    timer.timeout.connect(timer.deleteLater)
    timer.start()
    button.setText(copied)
