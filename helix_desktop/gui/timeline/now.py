"""Fold now: what kind, and what to keep in particular."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QDialog, QDialogButtonBox, QLabel, QLineEdit, QVBoxLayout, QWidget

from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.theme import set_look
from helix_desktop.gui.words import tr

WIDTH = 420


class FoldNow(QDialog):
    """`start` is called with the kind and the wish when the user agrees."""

    def __init__(self, start: Callable[[FoldKind, str], None], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._start = start
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
        said = QLabel(tr("You can keep working. Everything stays in the journal, and you can undo this."), self)
        said.setWordWrap(True)
        set_look(said, "small")
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
        kind = self.kind.currentData()
        super().accept()
        self._start(FoldKind(kind), self.wish.text().strip())
