"""Shown in place of the composer while a connected agent or another computer writes,
with a button to continue here.
"""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.widgets import (
    build_centred_column,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import make_safe_text, safe_tooltip
from helix_desktop.gui.translation import tr


class ForeignWriterLine(QWidget):
    """`continuing`: the user wants a fork for our own agent. `taking_over`: the user
    wants to write here.
    """

    continuing = Signal()
    taking_over = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._words = build_plain_label("", "muted", self)
        self.button = build_push_button(tr("Continue here"), self, self._continue_or_take_over)
        self._machine = ""
        column = build_centred_column(self, theme)
        margins = (0, 12, 0, 20)
        build_row((self._words, 1), self.button, owner=column, margins=margins, spacing=12)
        self.hide()

    def show_foreign_writer(self, agent: str, machine: str = "") -> None:
        """Shows the agent or computer that writes. If both are empty, this program writes."""
        self._machine = machine
        if machine:
            words = tr(
                "{machine} is working in this conversation. You can follow its work live.",
                machine=make_safe_text(machine),
            )
            hint = tr(
                "The conversation continues on this computer. If {machine} also continues it, both versions are kept.",
                machine=machine,
            )
        else:
            words = tr(
                "This is a conversation of {agent}. What it does there appears here.",
                agent=make_safe_text(agent),
            )
            hint = tr("Opens a copy of this conversation that you can continue with your own model")
        self._words.setText(words)
        self.button.setToolTip(safe_tooltip(hint))
        self.setVisible(bool(agent or machine))

    def _continue_or_take_over(self) -> None:
        if self._machine:
            self.taking_over.emit()
        else:
            self.continuing.emit()
