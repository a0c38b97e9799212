"""What all pages of the settings share: a heading, sentences, rows, and a column that scrolls."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QLabel, QLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from helix_desktop.gui.layouts import clear
from helix_desktop.gui.shared.plain import plain_label, push_button

W = TypeVar("W", bound=QWidget)
INTRODUCED = 3  # the title, a first sentence, and the room below


class Page(QScrollArea):
    """Add to it with `heading`, `sentence`, `add`, `button`."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # it shows none; what is in it takes it, and is scrolled to
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(title)
        self._inside = QWidget(self)
        self._inside.setProperty("look", "page")
        self._inside.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._column = QVBoxLayout(self._inside)
        self._column.setContentsMargins(24, 20, 24, 24)
        self._column.setSpacing(4)
        self._column.addStretch(1)
        self.setWidget(self._inside)
        self._title = self._put(plain_label(title, "large", self._inside))

    @property
    def inside(self) -> QWidget:
        return self._inside

    def heading(self, text: str) -> QLabel:
        label = plain_label(text, "heading", self._inside)
        label.setContentsMargins(0, 16, 0, 2)
        return self._put(label)

    def sentence(self, text: str, look: str = "muted") -> QLabel:
        label = self._put(plain_label(text, look, self._inside))
        if text and look == "muted" and self._column.count() == INTRODUCED:
            label.setContentsMargins(0, 0, 0, 8)
        return label

    def add(self, widget: W) -> W:
        return self._put(widget)

    def add_layout(self, layout: QLayout) -> None:
        self._column.insertLayout(self._column.count() - 1, layout)

    def button(self, text: str, look: str = "") -> QPushButton:
        button = push_button(text, self._inside, look=look)
        self._column.insertWidget(self._column.count() - 1, button, 0, Qt.AlignmentFlag.AlignLeft)
        return button

    def clear(self) -> None:
        """Everything but the heading."""
        self._column.removeWidget(self._title)
        clear(self._column)
        self._column.addWidget(self._title)
        self._column.addStretch(1)

    def _put(self, widget: W) -> W:
        self._column.insertWidget(self._column.count() - 1, widget)
        return widget
