"""What stands in the place of a conversation that has not begun: what will be here, and a first step."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import tr

WIDTH = 460


class EmptyChat(QWidget):
    """`suggested` carries the words of a first step, to be put into the composer and not sent."""

    suggested = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("look", "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        column = QVBoxLayout(self)
        column.addStretch(2)
        self._title = QLabel(self)
        self._title.setProperty("look", "large")
        self._title.setTextFormat(Qt.TextFormat.PlainText)
        words = QLabel(
            tr(
                "The agent reads and changes files of this workspace and runs commands. It asks where your permission is needed."
            ),
            self,
        )
        words.setProperty("look", "muted")
        words.setWordWrap(True)
        self._words = words
        theme.fit(self, self._fit_words, WIDTH)
        words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        for widget in (self._title, words):
            column.addWidget(widget, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addSpacing(12)
        for suggestion in (
            tr("Explain how this project is built up."),
            tr("Find what is unfinished here, and propose a next step."),
            tr("Run the tests and tell me what fails."),
        ):
            button = QPushButton(suggestion, self)
            button.setAutoDefault(False)
            button.clicked.connect(lambda _checked=False, s=suggestion: self.suggested.emit(s))
            column.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addStretch(3)

    def _fit_words(self, width: int) -> None:
        self._words.setFixedWidth(width)
        self._words.setMinimumHeight(self._words.heightForWidth(width))

    def show_name(self, name: str) -> None:
        self._title.setText(tr("What shall be done in {name}?", name=name))
