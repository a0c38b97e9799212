"""Where a connected agent writes: a line in place of the composer, and the way to go on here."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QWidget

from helix_desktop.gui.chat.approvals import COLUMN
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.words import tr


class ForeignLine(QWidget):
    """`continuing`: the user wants a fork for this program's own agent."""

    continuing = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setProperty("look", "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._words = QLabel(self)
        self._words.setProperty("look", "muted")
        self._words.setWordWrap(True)
        self.button = QPushButton(tr("Continue here"), self)
        self.button.setAutoDefault(False)
        self.button.setToolTip(tr("Opens a copy of this conversation that you continue with a model of your own"))
        self.button.clicked.connect(self.continuing)
        self._middle = QWidget(self)
        self._middle.setProperty("look", "plain")
        line = QHBoxLayout(self._middle)
        line.setContentsMargins(0, 12, 0, 20)
        line.setSpacing(12)
        line.addWidget(self._words, 1)
        line.addWidget(self.button)
        whole = QHBoxLayout(self)
        whole.setContentsMargins(16, 0, 16, 0)
        whole.addStretch(1)
        whole.addWidget(self._middle, 100)
        whole.addStretch(1)
        theme.changed.connect(self._restyled)
        self._restyled()
        self.hide()

    def show_agent(self, agent: str) -> None:
        """The agent that writes in the conversation; empty: this program's own."""
        name = harmless(agent)
        self._words.setText(tr("{agent} writes in this conversation. It grows here while {agent} works.", agent=name))
        self.setVisible(bool(agent))

    def _restyled(self) -> None:
        self._middle.setMaximumWidth(self._theme.px(COLUMN))
