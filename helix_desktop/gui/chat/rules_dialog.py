"""A rules file word for word, before it is followed: it goes to the model with every request."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from helix_desktop.gui.chat.approvals import shown_preview
from helix_desktop.gui.ports import RulesFile
from helix_desktop.gui.words import tr


class RulesDialog(QDialog):
    """`trust` is called when the user agrees; closing it otherwise changes nothing."""

    def __init__(self, file: RulesFile, trust: Callable[[], object], parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Rules for agents"))
        self.resize(680, 520)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 20)
        path = QLabel(str(file.path), self)
        path.setProperty("look", "mono")
        path.setTextFormat(Qt.TextFormat.PlainText)
        words = QLabel(
            tr("If you trust it, the model is sent this text with every request, until the file changes."), self
        )
        words.setProperty("look", "muted")
        words.setWordWrap(True)
        text = QPlainTextEdit(shown_preview(file.text), self)
        text.setReadOnly(True)
        text.setProperty("look", "code")
        text.setAccessibleName(tr("The rules"))
        buttons = QDialogButtonBox(self)
        agree = buttons.addButton(tr("Trust it"), QDialogButtonBox.ButtonRole.AcceptRole)
        agree.setProperty("look", "primary")
        buttons.addButton(tr("Not now"), QDialogButtonBox.ButtonRole.RejectRole).setDefault(True)
        buttons.accepted.connect(trust)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        for widget in (path, words, text, buttons):
            column.addWidget(widget)
