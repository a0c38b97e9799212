"""Fold now: what kind, and what to keep in particular."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QDialog, QLineEdit, QVBoxLayout, QWidget

from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.background import Doing
from helix_desktop.gui.ports import Session
from helix_desktop.gui.shared.plain import plain_label, yes_or_cancel
from helix_desktop.gui.words import tr

WIDTH = 420


class FoldNow(QDialog):
    def __init__(self, session: Session, doing: Doing, parent: QWidget) -> None:
        super().__init__(parent)
        self._session = session
        self._doing = doing
        self.setWindowTitle(tr("Fold now"))
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
        keep = plain_label(tr("What to keep in particular"), "muted", self)
        self.wish.setPlaceholderText(tr("For example: the API decisions"))
        self.wish.setAccessibleName(keep.text())
        words = tr("You can keep working. Everything stays in the journal, and you can undo this.")
        said = plain_label(words, "small", self)
        buttons = yes_or_cancel(self, tr("Start"), self.accept)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 20)
        for widget in (self.kind, keep, self.wish, said, buttons):
            column.addWidget(widget)
        self.setMinimumWidth(WIDTH)
        self.wish.setFocus()

    def accept(self) -> None:
        folding = self._session.fold_now(FoldKind(self.kind.currentData()), wish=self.wish.text().strip())
        super().accept()
        self._doing.do(folding, name="fold now", owner=self.parentWidget())
