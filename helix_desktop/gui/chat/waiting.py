"""The messages that wait while the agent works, above the composer: each can be changed or taken away."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from helix_desktop.gui.layouts import clear
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.harmless import hint
from helix_desktop.gui.words import tr


class WaitingMessages(QWidget):
    """`editing(index)`: take it back into the composer. `dropping(index)`: take it away."""

    editing = Signal(int)
    dropping = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._rows = QVBoxLayout(self)
        self._rows.setContentsMargins(0, 0, 0, 0)
        self._rows.setSpacing(4)
        self.setProperty("look", "plain")
        self.setAccessibleName(tr("Messages that wait"))
        self.hide()

    @property
    def number(self) -> int:
        return self._rows.count()

    def show_texts(self, texts: Sequence[str]) -> None:
        """One line for each, in the order in which they will be sent."""
        clear(self._rows)
        for index, text in enumerate(texts):
            self._rows.addWidget(self._row(index, text))
        self.setVisible(bool(texts))

    def _row(self, index: int, text: str) -> QWidget:
        row = QWidget(self)
        row.setProperty("look", "soft")
        row.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        line = QHBoxLayout(row)
        line.setContentsMargins(12, 4, 6, 4)
        line.setSpacing(4)
        waits = QLabel(tr("Waits"), row)
        waits.setProperty("look", "faint")
        words = QLabel(row)
        words.setTextFormat(Qt.TextFormat.PlainText)
        short = QFontMetrics(self._theme.font()).elidedText(
            " ".join(text[:400].split()), Qt.TextElideMode.ElideRight, self._theme.px(420)
        )
        words.setText(short)
        words.setToolTip(hint(text[:2_000]))
        line.addWidget(waits)
        line.addWidget(words, 1)
        for name, signal in ((tr("Edit"), self.editing), (tr("Remove"), self.dropping)):
            button = QPushButton(name, row)
            button.setProperty("look", "link")
            button.setAccessibleName(f"{name}: {short}")
            button.clicked.connect(lambda _checked=False, s=signal: s.emit(index))
            line.addWidget(button)
        row.show()
        return row
