"""The centred column below the transcript, shared by the composer and the lines above it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QWidget

from helix_desktop.gui.theme import Theme

COLUMN = 720


def build_centred_column(owner: QWidget, theme: Theme) -> QWidget:
    """The column in the middle of `owner`, as wide as the text above it at every zoom."""
    owner.setProperty("look", "page")
    owner.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
    middle = QWidget(owner)
    middle.setProperty("look", "plain")
    whole = QHBoxLayout(owner)
    whole.setContentsMargins(16, 0, 16, 0)
    whole.addStretch(1)
    whole.addWidget(middle, 100)
    whole.addStretch(1)
    theme.keep_scaled(middle, middle.setMaximumWidth, COLUMN)
    return middle
