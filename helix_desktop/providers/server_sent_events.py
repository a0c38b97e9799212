"""Server-sent events, read from bytes as they come: any chunking, any line ending, comments, several data lines.

`EventStreamParser.feed_bytes` returns the events that became complete. What stands in an unfinished event when the connection ends is not
an event (the standard says so).
"""

from __future__ import annotations

import codecs

from helix_desktop.fast_dataclass import dataclass

LONGEST_EVENT = 64 * 1024 * 1024


class EventTooLong(ValueError):
    """A server sent more than `LONGEST_EVENT` characters without ending the event."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    data: str
    event: str = "message"


class EventStreamParser:
    """The state between two pieces of a stream: an unfinished line and an unfinished event."""

    def __init__(self, longest: int = LONGEST_EVENT) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
        self._longest = longest
        self._line: list[str] = []
        self._data: list[str] = []
        self._event = ""
        self._size = 0
        self._after_return = False  # a CR ended the last line; an LF that follows belongs to it

    def feed_bytes(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events this chunk completes."""
        text = self._decode(chunk)
        if self._after_return and text:
            self._after_return = False
            text = text.removeprefix("\n")
        if text.endswith("\r"):
            self._after_return = True
        # Only CR and LF end a line; str.splitlines would also cut at U+2028 inside JSON.
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        events = [event for line in lines if (event := self._end_line(line)) is not None]
        if rest:
            self._line.append(rest)
            self._check_event_length(len(rest))
        return events

    def _end_line(self, end: str) -> ServerSentEvent | None:
        line = "".join((*self._line, end))
        self._line.clear()
        self._check_event_length(len(end))
        if not line:
            return self._finish_event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        return None

    def _finish_event(self) -> ServerSentEvent | None:
        event = ServerSentEvent("\n".join(self._data), self._event or "message") if self._data else None
        self._data.clear()
        self._event = ""
        self._size = 0
        return event

    def _check_event_length(self, characters: int) -> None:
        self._size += characters
        if self._size > self._longest:
            raise EventTooLong(f"an event of more than {self._longest:,} characters")
