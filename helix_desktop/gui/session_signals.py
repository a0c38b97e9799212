"""Turns a session's events into one Qt signal, emitted at most twenty times a second.

A model and a command can send thousands of events a second, and drawing each would freeze the
window. `EventBridge` keeps them in order, joins adjacent pieces of a stream, and emits them in
batches. Output of a running command beyond `SHOWN_OUTPUT_CHARACTERS` in one batch is left out; all
of it becomes an entry of the cache when the command ends.
"""

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal

from helix_desktop.engine.messages import CallDelta, ReasoningDelta, TextDelta
from helix_desktop.engine.session_events import Event, ReplyStreamed, ToolPrinted
from helix_desktop.fast_dataclass import dataclass

BATCH_INTERVAL_MS = 50  # The interval at which collected events are passed on as a group.
SHOWN_OUTPUT_CHARACTERS = 128 * 1024

Subscribe = Callable[[Callable[[Event], None]], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class JoinedEvent:
    """The first event of a stream in a batch, and the texts of all its events."""

    event: Event
    texts: list[str]


class EventBatch:
    """Events in order, with the pieces of each stream joined."""

    def __init__(self) -> None:
        self._joined: list[JoinedEvent] = []
        self.size = 0  # The number of characters collected in this batch.

    def __bool__(self) -> bool:
        return bool(self._joined)

    def add_event(self, event: Event) -> None:
        text = _streamed_text(event)
        self.size += len(text)
        if self._joined and text and _belong_to_same_stream(self._joined[-1].event, event):
            self._joined[-1].texts.append(text)
        else:
            self._joined.append(JoinedEvent(event, [text]))

    def join_events(self) -> tuple[Event, ...]:
        return tuple(_join_event_texts(joined.event, joined.texts) for joined in self._joined)


class EventBridge(QObject):
    """`events_arrived` carries a tuple of events, oldest first."""

    events_arrived = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._waiting = EventBatch()
        self._unsubscribe: Callable[[], None] | None = None
        self._timer = QTimer(self, interval=BATCH_INTERVAL_MS, singleShot=True)
        self._timer.timeout.connect(self.emit_waiting_events)

    def listen_to_session(self, subscribe: Subscribe) -> None:
        self.stop_listening_to_session()
        self._unsubscribe = subscribe(self.queue_event)

    def stop_listening_to_session(self) -> None:
        """Stops listening; events that have already arrived are emitted first."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self.emit_waiting_events()

    def queue_event(self, event: Event) -> None:
        self._waiting.add_event(event)
        if not self._timer.isActive():
            self._timer.start()

    def emit_waiting_events(self) -> None:
        self._timer.stop()
        if not self._waiting:
            return
        waiting = self._waiting
        self._waiting = EventBatch()
        self.events_arrived.emit(waiting.join_events())


def _streamed_text(event: Event) -> str:
    if isinstance(event, ToolPrinted):
        return event.text
    if isinstance(event, ReplyStreamed):
        if isinstance(event.delta, TextDelta | ReasoningDelta):
            return event.delta.text
        if isinstance(event.delta, CallDelta):
            return event.delta.arguments
    return ""


def _belong_to_same_stream(event: Event, next_event: Event) -> bool:
    if isinstance(event, ToolPrinted) and isinstance(next_event, ToolPrinted):
        return event.call == next_event.call
    if isinstance(event, ReplyStreamed) and isinstance(next_event, ReplyStreamed):
        piece = event.delta
        next_piece = next_event.delta
        if isinstance(piece, CallDelta) and isinstance(next_piece, CallDelta):
            return piece.index == next_piece.index
        is_same_kind = type(piece) is type(next_piece)
        return is_same_kind and isinstance(piece, TextDelta | ReasoningDelta)
    return False


def _join_event_texts(event: Event, texts: list[str]) -> Event:
    if len(texts) == 1:
        return event
    joined_text = "".join(texts)
    if isinstance(event, ToolPrinted):
        return replace(event, text=joined_text[-SHOWN_OUTPUT_CHARACTERS:])
    if not isinstance(event, ReplyStreamed):
        return event
    if isinstance(event.delta, TextDelta | ReasoningDelta):
        return replace(event, delta=replace(event.delta, text=joined_text))
    if isinstance(event.delta, CallDelta):
        return replace(event, delta=replace(event.delta, arguments=joined_text))
    return event
