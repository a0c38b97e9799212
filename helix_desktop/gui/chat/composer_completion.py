"""Offers what can be completed behind `@` and `/` in the message box."""

from collections.abc import Sequence

from PySide6.QtCore import QObject, QPoint, Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.chat.completion_list import CompletionList, CompletionOffer, CompletionRequest
from helix_desktop.gui.chat.composer_text import ComposerTextEdit
from helix_desktop.gui.theme import Theme


class ComposerCompletion(QObject):
    """`offers_wanted(request)` is answered with `show_completion_offers`; `offer_taken` carries an offer that is more than text."""

    offers_wanted = Signal(object)
    offer_taken = Signal(object)

    def __init__(self, theme: Theme, text: ComposerTextEdit, box: QWidget) -> None:
        super().__init__(text)
        self._theme, self._text, self._box = theme, text, box
        self._asked: CompletionRequest | None = None
        text.completion_requested.connect(self._request_completion_offers)

    def show_completion_offers(self, asked: CompletionRequest, offers: Sequence[CompletionOffer]) -> None:
        """Shows the offers for a request, unless the text has changed since it was made."""
        if asked != self._asked:
            return
        popup = self._ensure_completion_list()
        corner = self._box.mapTo(self._text.window(), QPoint(0, -4))
        popup.show_offers(offers, corner, min(self._box.width(), self._theme.zoomed_pixels(480)))

    def _request_completion_offers(self, asked: CompletionRequest | None) -> None:
        self._asked = asked
        if asked is not None:
            self.offers_wanted.emit(asked)
        elif self._text.completion is not None:
            self._text.completion.hide()

    def _ensure_completion_list(self) -> CompletionList:
        if self._text.completion is None:
            self._text.completion = CompletionList(self._theme, self._text.window())
            self._text.completion.offer_chosen.connect(self._insert_chosen_offer)
        return self._text.completion

    def _insert_chosen_offer(self, offer: CompletionOffer) -> None:
        if self._asked is not None:
            self._text.replace_completion_request(self._asked, offer.inserted_text)
        self._asked = None
        if offer.value is not None:
            self.offer_taken.emit(offer)
