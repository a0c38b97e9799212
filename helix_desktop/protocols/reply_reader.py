"""Reads replies as far as that is the same for all protocols."""

from abc import ABC, abstractmethod

from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.engine.messages import Delta, Reply
from helix_desktop.errors import ModelFailed
from helix_desktop.json_values import Json
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.provider_failures import ProviderRefusal, failure_of_refusal
from helix_desktop.protocols.reply_draft import ReplyDraft


class ReplyReaderBase(ABC):
    """Reads a stream or a whole reply. `tag` marks its reasoning, `where` is the
    provider's name, `model` the one requested.
    """

    def __init__(self, tag: str, where: str, model: str) -> None:
        self._draft = ReplyDraft(tag)
        self._where = where
        self._requested_model = model
        self._model = ""  # The model that answered, as reported by the provider.
        self._usage = Usage()
        self.is_stream_over = False  # True if nothing more will come, not even usage figures.

    @abstractmethod
    def feed_event(self, event: ServerSentEvent) -> list[Delta]:
        """Return the event's deltas. ModelFailed: the provider's error; ValueError: an
        unknown event.
        """

    @property
    @abstractmethod
    def is_reply_complete(self) -> bool:
        """Whether the provider has said why the reply ended, after which no failure matters."""

    @abstractmethod
    def _ending_so_far(self, cut: str) -> tuple[Stop, str]:
        """Return how the reply ended, and a sentence that says why if it is incomplete."""

    def reply_so_far(self, cut: str = "") -> Reply:
        """Return the reply so far. `cut`: a sentence on why the stream ended early."""
        stop, why = self._ending_so_far(cut)
        if stop is Stop.END and self._draft.call_count:
            stop = Stop.CALLS
        parts = self._draft.finished_parts(cut=stop in (Stop.CUT, Stop.LENGTH))
        return Reply(parts, stop, self._usage, self._model, why)

    def _failure_in_stream(self, status: int, body: Json) -> ModelFailed:
        """Return the error that a provider reports within its reply."""
        refusal = ProviderRefusal(self._where, status, body, {}, self._requested_model)
        return failure_of_refusal(refusal)

    def _describe_abrupt_end(self, how: str = "") -> str:
        return f"{self._where} ended the reply {how or 'without saying why'}."
