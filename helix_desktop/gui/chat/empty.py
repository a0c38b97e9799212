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
            tr("The agent reads and edits files here and runs commands. It asks before it changes anything."),
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
            tr("Explain this project"),
            tr("Find unfinished work"),
            tr("Run the tests"),
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
        self._title.setText(tr("What should we work on in {name}?", name=name))
