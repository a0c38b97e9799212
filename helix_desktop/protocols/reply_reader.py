"""The part of reading a reply that is the same for every protocol."""

from abc import ABC, abstractmethod

from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.engine.messages import Delta, Reply
from helix_desktop.errors import ModelFailed
from helix_desktop.json_values import Json
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.provider_failures import ProviderRefusal, failure_of_refusal
from helix_desktop.protocols.reply_draft import ReplyDraft


class ReplyReaderBase(ABC):
    """A stream, or one whole reply, being read. `tag` marks the reasoning it reads, `where` is the provider's name in sentences, `model` the one that was asked."""

    def __init__(self, tag: str, where: str, model: str) -> None:
        self._draft = ReplyDraft(tag)
        self._where = where
        self._asked = model
        self._model = ""  # The model that answers, as the provider reports it.
        self._usage = Usage()
        self.is_stream_over = False  # Whether nothing more will come (the figures have been sent too).

    @abstractmethod
    def feed_event(self, event: ServerSentEvent) -> list[Delta]:
        """The deltas of this event. Raises a ModelFailed when the provider reports an error in the
        stream, and ValueError when the event is not what the protocol knows.
        """

    @property
    @abstractmethod
    def is_reply_complete(self) -> bool:
        """Whether the provider has said why the reply ended. Nothing that fails after that can take it back."""

    @abstractmethod
    def _ending_so_far(self, cut: str) -> tuple[Stop, str]:
        """How the reply ended, and in a sentence why, where it is not whole."""

    def reply_so_far(self, cut: str = "") -> Reply:
        """The reply so far; `cut` says in a sentence why the stream ended before its time."""
        stop, why = self._ending_so_far(cut)
        if stop is Stop.END and self._draft.count_calls:
            stop = Stop.CALLS
        parts = self._draft.finished_parts(cut=stop in (Stop.CUT, Stop.LENGTH))
        return Reply(parts, stop, self._usage, self._model, why)

    def _failure_in_stream(self, status: int, body: Json) -> ModelFailed:
        return failure_of_refusal(ProviderRefusal(self._where, status, body, {}, self._asked))

    def _describe_abrupt_end(self, how: str = "") -> str:
        return f"{self._where} ended the reply {how or 'without saying why'}."
