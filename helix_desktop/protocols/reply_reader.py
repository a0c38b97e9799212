"""The part of reading a reply that is the same for every protocol."""

from helix_desktop.errors import ModelFailed
from helix_desktop.json_values import Json
from helix_desktop.protocols.provider_failures import ProviderRefusal, failure_of_refusal
from helix_desktop.protocols.reply_draft import ReplyDraft


class ReplyReaderBase:
    """`tag` marks the reasoning it reads, `where` is the provider's name in sentences, `model` the one that was asked."""

    def __init__(self, tag: str, where: str, model: str) -> None:
        self._draft = ReplyDraft(tag)
        self._where = where
        self._asked = model
        self._model = ""  # The model that answers, as the provider reports it.

    def _failure_in_stream(self, status: int, body: Json) -> ModelFailed:
        return failure_of_refusal(ProviderRefusal(self._where, status, body, {}, self._asked))

    def _describe_abrupt_end(self, how: str = "") -> str:
        return f"{self._where} ended the reply {how or 'without saying why'}."
