"""From a session's events to one Qt signal, at most twenty times a second.

A model and a command can tell thousands of things a second; drawing each would freeze the window. `Bridge` keeps them
in order, joins what belongs together and hands them on in batches. What a running command prints beyond `SHOWN`
between two batches is left out here: the whole of it is an entry of the cache when the command is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal

from helix_desktop.engine.blocks import CallDelta, ReasoningDelta, TextDelta
from helix_desktop.engine.events import Event, Streamed, ToolShowed

EVERY = 50  # milliseconds
SHOWN = 128 * 1024

Subscribe = Callable[[Callable[[Event], None]], Callable[[], None]]


class Batch:
    """Events in order, the pieces of one stream joined."""

    def __init__(self) -> None:
        self._waiting: list[Event] = []
        self._texts: list[list[str]] = []  # the pieces of the event at the same place
        self.size = 0  # characters

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self, event: Event) -> None:
        text = _text_of(event)
        self.size += len(text)
        if self._waiting and text and _same_stream(self._waiting[-1], event):
            self._texts[-1].append(text)
        else:
            self._waiting.append(event)
            self._texts.append([text])

    def joined(self) -> tuple[Event, ...]:
        return tuple(_joined(event, texts) for event, texts in zip(self._waiting, self._texts, strict=True))


class Bridge(QObject):
    """`happened` carries a tuple of events, oldest first."""

    happened = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._waiting = Batch()
        self._leave: Callable[[], None] | None = None
        self._timer = QTimer(self, interval=EVERY, singleShot=True)
        self._timer.timeout.connect(self.flush)

    def listen(self, subscribe: Subscribe) -> None:
        """Hear a session (`session.subscribe`) instead of the one before."""
        self.leave()
        self._leave = subscribe(self.take)

    def leave(self) -> None:
        """Hear nothing any more; what came already is handed on first."""
        if self._leave is not None:
            self._leave()
            self._leave = None
        self.flush()

    def take(self, event: Event) -> None:
        """Keep an event for the next batch."""
        self._waiting.take(event)
        if not self._timer.isActive():
            self._timer.start()

    def flush(self) -> None:
        """Hand on what waits, now."""
        self._timer.stop()
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, Batch()
        self.happened.emit(waiting.joined())


def _text_of(event: Event) -> str:
    if isinstance(event, ToolShowed):
        return event.text
    if isinstance(event, Streamed):
        if isinstance(event.delta, TextDelta | ReasoningDelta):
            return event.delta.text
        if isinstance(event.delta, CallDelta):
            return event.delta.arguments
    return ""


def _same_stream(one: Event, other: Event) -> bool:
    if isinstance(one, ToolShowed) and isinstance(other, ToolShowed):
        return one.call == other.call
    if isinstance(one, Streamed) and isinstance(other, Streamed):
        a, b = one.delta, other.delta
        if isinstance(a, CallDelta) and isinstance(b, CallDelta):
            return a.index == b.index
        return type(a) is type(b) and isinstance(a, TextDelta | ReasoningDelta)
    return False


def _joined(event: Event, texts: list[str]) -> Event:
    if len(texts) == 1:
        return event
    whole = "".join(texts)
    if isinstance(event, ToolShowed):
        return replace(event, text=whole[-SHOWN:])
    if isinstance(event, Streamed) and isinstance(event.delta, TextDelta | ReasoningDelta):
        return replace(event, delta=replace(event.delta, text=whole))
    if isinstance(event, Streamed) and isinstance(event.delta, CallDelta):
        return replace(event, delta=replace(event.delta, arguments=whole))
    return event
