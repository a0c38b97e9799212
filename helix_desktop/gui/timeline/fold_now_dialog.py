"""The dialog to fold now: what to create, and what to keep in particular."""

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.context_usage import NOTHING_TO_FOLD, FoldForecast
from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.context_meter import describe_token_count
from helix_desktop.gui.model_setup_port import lacks_price
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
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
        can_forecast: bool = True,
    ) -> None:
        """Asks how to shorten the conversation and what must be kept, and says what it
        takes and brings. `kind` is the way that is chosen at first.
        """
        super().__init__(tr("Shorten now"), parent, 420)
        self._session = session
        # False if the workspace is open elsewhere, where alone this is known.
        self._can_forecast = can_forecast
        self._doing = doing

        self.kind = widgets.build_combo_box(tr("How to shorten"), self)
        offered_kinds = [FoldKind(name) for name in read_shown_names()["fold on request"]]
        for offered_kind in offered_kinds:
            self.kind.addItem(translate_name("fold on request", offered_kind), offered_kind)
        self.kind.setCurrentIndex(offered_kinds.index(kind))
        self.kind.currentIndexChanged.connect(self._show_forecast)

        wish_label = widgets.build_plain_label(tr("Details to keep"), "muted", self)
        example = tr("For example: the decisions about the API")
        self.wish = widgets.build_line_edit(wish_label.text(), example, self)
        self.forecast = widgets.build_plain_label("", "small", self)
        nothing_is_lost = tr("You can keep working. Everything is kept, and you can undo this.")
        reassurance = widgets.build_plain_label(nothing_is_lost, "small", self)
        buttons = widgets.build_confirm_buttons(self, tr("Start"), self.accept)
        build_column(
            self.kind,
            wish_label,
            self.wish,
            self.forecast,
            reassurance,
            buttons,
            owner=self,
            margins=20,
        )
        self._show_forecast()
        self.wish.setFocus()

    def _show_forecast(self) -> None:
        kind = FoldKind(self.kind.currentData())
        if self._can_forecast:
            forecast = self._session.folding.forecast_fold_on_demand(kind)
            self.forecast.setText(self._describe_forecast(forecast))
        elif kind is FoldKind.MARKER:
            self.forecast.setText(tr("This sends nothing: no model is used."))
        else:
            words = tr("A model writes this text, and its provider may charge for it. The price is not known.")  # fmt: skip
            self.forecast.setText(words)

    def _describe_forecast(self, forecast: FoldForecast | None) -> str:
        """Says what is sent to shorten the conversation, and what that brings."""
        if forecast is None:
            return translate_sentences(NOTHING_TO_FOLD)
        sentences = [self._describe_sending(forecast)]
        if forecast.sent:
            sentences.append(
                tr("If the text cannot be used, another try sends about as much again.")
            )
        if forecast.freed:
            freed = describe_token_count(forecast.freed)
            sentences.append(
                tr("Afterwards, each request sends about {amount} less.", amount=freed)
            )
        return join_sentences(*sentences)

    def _describe_sending(self, forecast: FoldForecast) -> str:
        if not forecast.sent:
            return tr("This sends nothing: no model is used.")
        sent = describe_token_count(forecast.sent)
        if forecast.dollars:
            price = format_dollars(forecast.dollars)
            return tr(
                "This sends about {amount} to a model, which writes the text for at most about {price}.",
                amount=sent,
                price=price,
            )
        sending = tr("This sends about {amount} to a model, which writes the text.", amount=sent)
        if lacks_price(self._session.conversation.state):
            return f"{sending} {tr('The price is not known.')}"
        return sending

    def accept(self) -> None:
        kind = FoldKind(self.kind.currentData())
        wish = self.wish.text().strip()
        folding = self._session.fold_on_request(kind, wish=wish)
        super().accept()
        self._doing.run_in_background(folding, owner=self.parentWidget())
