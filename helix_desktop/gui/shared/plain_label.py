from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget


def plain_label(text: str = "", look: str = "", parent: QWidget | None = None, *, wraps: bool = True) -> QLabel:
    """A label that shows text as it is: no name or path in it is markup."""
    label = QLabel(text, parent)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(wraps)
    if look:
        label.setProperty("look", look)
    return label
