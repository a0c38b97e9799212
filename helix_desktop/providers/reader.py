"""What reading a reply begins with, whatever the protocol."""

from __future__ import annotations

from helix_desktop.errors import ModelFailed
from helix_desktop.providers.draft import Draft
from helix_desktop.providers.failures import Refusal, failure_of
from helix_desktop.providers.wire import Json


class Reader:
    """`tag` marks the reasoning it reads, `where` is the provider's name in sentences, `model` the one that was asked."""

    def __init__(self, tag: str, where: str, model: str) -> None:
        self._draft = Draft(tag)
        self._where = where
        self._asked = model
        self._model = ""  # the one that answers, as it says itself

    def _refusal(self, status: int, body: Json) -> ModelFailed:
        """The failure a provider reports in the middle of a stream."""
        return failure_of(Refusal(self._where, status, body, {}, self._asked))

    def _ended(self, how: str = "") -> str:
        return f"{self._where} ended the reply {how or 'without saying why'}."
