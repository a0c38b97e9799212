"""The centred column below the transcript, shared by the composer and the lines above it."""

from PySide6.QtWidgets import QWidget

from helix_desktop.gui.layouts import build_row
from helix_desktop.gui.shared.plain_widgets import set_surface_look
from helix_desktop.gui.theme import Theme

COLUMN = 720


def build_centred_column(owner: QWidget, theme: Theme) -> QWidget:
    """The column in the middle of `owner`, as wide as the text above it at every zoom."""
    set_surface_look(owner, "page")
    middle = QWidget(owner)
    middle.setProperty("look", "plain")
    build_row(1, (middle, 100), 1, owner=owner, margins=(16, 0, 16, 0))
    theme.keep_scaled(middle, middle.setMaximumWidth, COLUMN)
    return middle
