"""The dialog to fold now: what to create, and what to keep in particular."""

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.layouts import build_column
from helix_desktop.gui.shared import plain_widgets
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Session


class FoldNowDialog(plain_widgets.TransientDialog):
    def __init__(self, session: Session, doing: BackgroundRunner, parent: QWidget) -> None:
        super().__init__(tr("Fold now"), parent, 420)
        self._session = session
        self._doing = doing
        self.kind = plain_widgets.build_combo_box(tr("What to replace, and with what"), self)
        for name, kind in (
            (tr("Handover: one document in place of most older messages"), FoldKind.HANDOVER),
            (tr("Observations: a dated list in place of older messages"), FoldKind.OBSERVATIONS),
            (tr("Markers: one line in place of each old output"), FoldKind.MARKER),
        ):
            self.kind.addItem(name, kind)
        keep = plain_widgets.build_plain_label(tr("Details to keep"), "muted", self)
        self.wish = plain_widgets.build_line_edit(keep.text(), tr("For example: the decisions about the API"), self)
        words = tr("You can keep working. Everything stays in the journal, and you can undo this.")
        said = plain_widgets.build_plain_label(words, "small", self)
        buttons = plain_widgets.build_confirm_buttons(self, tr("Start"), self.accept)
        build_column(self.kind, keep, self.wish, said, buttons, owner=self, margins=20)
        self.wish.setFocus()

    def accept(self) -> None:
        folding = self._session.start_fold(FoldKind(self.kind.currentData()), wish=self.wish.text().strip())
        super().accept()
        self._doing.run_in_background(folding, owner=self.parentWidget())
