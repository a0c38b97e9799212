"""Fold now: what kind, and what to keep in particular."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QDialog, QDialogButtonBox, QLineEdit, QVBoxLayout, QWidget

from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.background import Doing
from helix_desktop.gui.ports import Session
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.theme import set_look
from helix_desktop.gui.words import tr

WIDTH = 420


class FoldNow(QDialog):
    def __init__(self, session: Session, doing: Doing, parent: QWidget) -> None:
        super().__init__(parent)
        self._session = session
        self._doing = doing
        self.setWindowTitle(tr("Hand over now"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.kind = QComboBox(self)
        for name, kind in (
            (tr("Handover: a document with six sections"), FoldKind.HANDOVER),
            (tr("Observations: a dated list"), FoldKind.OBSERVATIONS),
            (tr("Cache old outputs"), FoldKind.MARKER),
        ):
            self.kind.addItem(name, kind)
        self.kind.setAccessibleName(tr("What to create"))
        self.wish = QLineEdit(self)
        self.wish.setPlaceholderText(tr("Anything in particular to keep? (for example: the API decisions)"))
        self.wish.setAccessibleName(tr("What to keep in particular"))
        words = tr("You can keep working. Everything stays in the journal, and you can undo this.")
        said = plain_label(words, "small", self)
        buttons = QDialogButtonBox(self)
        go = buttons.addButton(tr("Start"), QDialogButtonBox.ButtonRole.AcceptRole)
        set_look(go, "primary")
        buttons.addButton(tr("Cancel"), QDialogButtonBox.ButtonRole.RejectRole)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        for widget in (self.kind, self.wish, said, buttons):
            column.addWidget(widget)
        self.setMinimumWidth(WIDTH)
        self.wish.setFocus()

    def accept(self) -> None:
        folding = self._session.fold_now(FoldKind(self.kind.currentData()), wish=self.wish.text().strip())
        super().accept()
        self._doing.do(folding, name="fold now", owner=self.parentWidget())
