"""The dialog to fold now: what to create, and what to keep in particular."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QDialog, QLineEdit, QVBoxLayout, QWidget

from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.shared.plain_widgets import build_confirm_buttons, build_plain_label
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Session

WIDTH = 420


class FoldNowDialog(QDialog):
    def __init__(self, session: Session, doing: BackgroundRunner, parent: QWidget) -> None:
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
        keep = build_plain_label(tr("What to keep in particular"), "muted", self)
        self.wish.setPlaceholderText(tr("For example: the API decisions"))
        self.wish.setAccessibleName(keep.text())
        words = tr("You can keep working. Everything stays in the journal, and you can undo this.")
        said = build_plain_label(words, "small", self)
        buttons = build_confirm_buttons(self, tr("Start"), self.accept)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 20)
        for widget in (self.kind, keep, self.wish, said, buttons):
            column.addWidget(widget)
        self.setMinimumWidth(WIDTH)
        self.wish.setFocus()

    def accept(self) -> None:
        folding = self._session.start_fold(FoldKind(self.kind.currentData()), wish=self.wish.text().strip())
        super().accept()
        self._doing.run_in_background(folding, owner=self.parentWidget())
