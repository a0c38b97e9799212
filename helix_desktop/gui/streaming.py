"""What is being written and printed and is no fact yet, so that a conversation shown again shows it from its beginning."""

from __future__ import annotations

from helix_desktop.engine.events import Event, FactAppended, Running, StateChanged, Streamed, ToolShowed
from helix_desktop.engine.facts import ModelReplied, Rewound, ToolReturned, TurnEnded
from helix_desktop.gui.bridge import SHOWN, Batch

_REPLY = ""  # no call has this id
_AT_REST = frozenset({Running.IDLE, Running.FAILED})


class Unfinished:
    """Of every conversation the reply that streams, and what its running calls have printed last."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Batch]] = {}

    def of(self, conversation: str) -> tuple[Event, ...]:
        """All of it once more, as events."""
        return tuple(event for batch in self._of.get(conversation, {}).values() for event in batch.joined())

    def take(self, event: Event) -> None:
        if isinstance(event, Streamed):
            self._batch(event.conversation, _REPLY).take(event)
        elif isinstance(event, ToolShowed):
            self._print(event)
        elif isinstance(event, FactAppended):
            self._settle(event)
        elif isinstance(event, StateChanged) and event.running in _AT_REST:
            self._of.pop(event.conversation, None)

    def _batch(self, conversation: str, stream: str) -> Batch:
        return self._of.setdefault(conversation, {}).setdefault(stream, Batch())

    def _print(self, event: ToolShowed) -> None:
        """A command may print without end: only its last words are kept."""
        batch = self._batch(event.conversation, event.call)
        batch.take(event)
        if batch.size > 2 * SHOWN:
            kept = self._of[event.conversation][event.call] = Batch()
            for each in batch.joined():
                kept.take(each)

    def _settle(self, event: FactAppended) -> None:
        """What has become a fact is shown as such."""
        streams, fact = self._of.get(event.recorded.conversation, {}), event.recorded.fact
        if isinstance(fact, ModelReplied | TurnEnded | Rewound):
            streams.pop(_REPLY, None)
        elif isinstance(fact, ToolReturned):
            streams.pop(fact.call, None)
