"""Keeps streamed output that is not in facts yet, for conversations that are reopened."""

from helix_desktop.engine import session_events
from helix_desktop.engine.facts import ModelReplied, Rewound, ToolReturned, TurnEnded
from helix_desktop.gui.session_signals import SHOWN_OUTPUT_CHARACTERS, EventBatch

# The key under which a reply's text is kept. The other keys are call ids, which are
# never empty.
_REPLY = ""
_AT_REST = frozenset(
    {session_events.ConversationActivity.IDLE, session_events.ConversationActivity.FAILED}
)


class UnfinishedOutput:
    """Keeps for every conversation the streamed reply, and the last output of its running calls."""

    def __init__(self) -> None:
        self._batches_by_conversation: dict[str, dict[str, EventBatch]] = {}

    def unfinished_events_of(self, conversation: str) -> tuple[session_events.Event, ...]:
        events: list[session_events.Event] = []
        for batch in self._batches_by_conversation.get(conversation, {}).values():
            events.extend(batch.join_events())
        return tuple(events)

    def update_unfinished_output(self, event: session_events.Event) -> None:
        if isinstance(event, session_events.ReplyStreamed):
            self._batch_of_stream(event.conversation, _REPLY).add_event(event)
        elif isinstance(event, session_events.ToolPrinted):
            self._add_printed_output(event)
        elif isinstance(event, session_events.FactAppended):
            self._remove_recorded_stream(event)
        elif isinstance(event, session_events.ActivityChanged) and event.running in _AT_REST:
            self._batches_by_conversation.pop(event.conversation, None)

    def _batch_of_stream(self, conversation: str, stream: str) -> EventBatch:
        batches = self._batches_by_conversation.setdefault(conversation, {})
        if stream not in batches:
            batches[stream] = EventBatch()
        return batches[stream]

    def _add_printed_output(self, event: session_events.ToolPrinted) -> None:
        """Adds output. Only its end is kept, because a command may print without end."""
        batch = self._batch_of_stream(event.conversation, event.call)
        batch.add_event(event)
        if batch.size > 2 * SHOWN_OUTPUT_CHARACTERS:
            shorter = EventBatch()
            for joined in batch.join_events():
                shorter.add_event(joined)
            self._batches_by_conversation[event.conversation][event.call] = shorter

    def _remove_recorded_stream(self, event: session_events.FactAppended) -> None:
        fact = event.recorded.fact
        streams = self._batches_by_conversation.get(event.recorded.conversation, {})
        if isinstance(fact, ModelReplied | TurnEnded | Rewound):
            streams.pop(_REPLY, None)
        elif isinstance(fact, ToolReturned):
            streams.pop(fact.call, None)
