"""The dialog to fold now: what to create, and what to keep in particular."""

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.context_usage import NOTHING_TO_FOLD
from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.model_setup_port import lacks_price
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import ShownSession
from helix_desktop.gui.translation import read_shown_names, tr, translate_name


class FoldNowDialog(widgets.TransientDialog):
    def __init__(
        self,
        session: ShownSession,
        doing: BackgroundRunner,
        parent: QWidget,
        kind: FoldKind = FoldKind.HANDOVER,
        *,
        can_tell_cost: bool = True,
    ) -> None:
        """Asks how to shorten the conversation and what must be kept, and says what it
        will cost. `kind` is the way that is chosen at first.
        """
        super().__init__(tr("Shorten now"), parent, 420)
        self._session = session
        # False if the workspace is open elsewhere, where alone the cost is known.
        self._can_tell_cost = can_tell_cost
        self._doing = doing

        self.kind = widgets.build_combo_box(tr("How to shorten"), self)
        offered_kinds = [FoldKind(name) for name in read_shown_names()["fold on request"]]
        for offered_kind in offered_kinds:
            self.kind.addItem(translate_name("fold on request", offered_kind), offered_kind)
        self.kind.setCurrentIndex(offered_kinds.index(kind))
        self.kind.currentIndexChanged.connect(self._show_fold_cost)

        wish_label = widgets.build_plain_label(tr("Details to keep"), "muted", self)
        example = tr("For example: the decisions about the API")
        self.wish = widgets.build_line_edit(wish_label.text(), example, self)
        self.cost = widgets.build_plain_label("", "small", self)
        nothing_is_lost = tr("You can keep working. Everything is kept, and you can undo this.")
        reassurance = widgets.build_plain_label(nothing_is_lost, "small", self)
        buttons = widgets.build_confirm_buttons(self, tr("Start"), self.accept)
        build_column(
            self.kind,
            wish_label,
            self.wish,
            self.cost,
            reassurance,
            buttons,
            owner=self,
            margins=20,
        )
        self._show_fold_cost()
        self.wish.setFocus()

    def _show_fold_cost(self) -> None:
        kind = FoldKind(self.kind.currentData())
        cost = self._session.folding.estimate_fold_cost(kind)
        self.cost.setText(self._describe_fold_cost(kind, cost))

    def _describe_fold_cost(self, kind: FoldKind, cost: float | None) -> str:
        if kind is FoldKind.MARKER:
            return tr("This costs nothing: no model is used.")
        if cost == 0:
            return translate_sentences(NOTHING_TO_FOLD)
        if cost is not None:
            return tr(
                "A model writes this text for at most about {price}.", price=format_dollars(cost)
            )
        if not self._can_tell_cost or lacks_price(self._session.conversation.state):
            return tr(
                "A model writes this text, and its provider may charge for it. The price is not known."
            )
        return tr("This costs nothing: the model runs on this computer.")

    def accept(self) -> None:
        kind = FoldKind(self.kind.currentData())
        wish = self.wish.text().strip()
        folding = self._session.fold_on_request(kind, wish=wish)
        super().accept()
        self._doing.run_in_background(folding, owner=self.parentWidget())
