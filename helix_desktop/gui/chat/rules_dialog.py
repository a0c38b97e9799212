"""A rules file word for word, before it is followed: it goes to the model with every request."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QSizePolicy, QVBoxLayout, QWidget

from helix_desktop.engine import exact
from helix_desktop.gui.ports import RulesFile
from helix_desktop.gui.shared.exact_text import ExactText
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import tr


class RulesDialog(QDialog):
    """`trust` is called when the user agrees; closing it otherwise changes nothing."""

    def __init__(self, theme: Theme, file: RulesFile, trust: Callable[[], object], parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Rules for agents"))
        self.resize(680, 520)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 20)
        path = QLabel(exact.one_line(str(file.path)), self)
        path.setProperty("look", "mono")
        path.setTextFormat(Qt.TextFormat.PlainText)
        words = QLabel(
            tr("If you trust it, the model is sent this text with every request, until the file changes."), self
        )
        words.setProperty("look", "muted")
        words.setWordWrap(True)
        text = ExactText(theme, file.text, self)
        text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        length = QLabel(self)
        length.setProperty("look", "faint")
        text.setAccessibleName(tr("The rules"))
        buttons = QDialogButtonBox(self)
        agree = buttons.addButton(tr("Trust it"), QDialogButtonBox.ButtonRole.AcceptRole)
        agree.setProperty("look", "primary")
        buttons.addButton(tr("Not now"), QDialogButtonBox.ButtonRole.RejectRole).setDefault(True)
        buttons.accepted.connect(trust)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        for widget in (path, words, text, length, buttons):
            column.addWidget(widget)

        def read_on() -> None:
            length.setText(text.facts())
            agree.setEnabled(text.end_seen)

        text.changed.connect(read_on)
        read_on()
