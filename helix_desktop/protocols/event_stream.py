"""Reads server-sent events, however they are split into chunks: as unchanged bytes to
pass on, or as text.

As the standard says, an event that is not finished when the connection ends is not an event.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import field

import orjson

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.protocols.gateway_message import Json

LONGEST_EVENT = 64 << 20
LONGEST_PARSED_EVENT = 16 << 20
# Parsing an event with more lists and objects than this would block other threads.
MOST_EVENT_SIGNS = 200_000
_MARK = b"\xef\xbb\xbf"  # UTF-8's byte order mark, which may precede the first event.
MOST_EVENTS = 500_000  # No model's reply has this many events. After that, they come in batches.
# CR LF is one line end, so it does not end an event. All empty lines after it belong to the end.
_END = re.compile(rb"(?>\r\n|[\r\n])(?:\r\n|[\r\n])++")


class EventTooLong(ValueError):
    """A server sent more than `LONGEST_EVENT` bytes in one event."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event: its data as text, and its name."""

    data: str
    event: str = "message"


@dataclass(slots=True)
class RawEventSplitter:
    """Splits a byte stream into unchanged, complete events, each with the empty lines
    that end it.
    """

    unfinished: bytearray = field(default_factory=bytearray)
    events_left: int = MOST_EVENTS

    def feed_raw_chunk(self, chunk: bytes) -> Iterator[bytes]:
        """Take in the next bytes, and yield the events that they complete.

        The rest is kept until more bytes come.
        """
        # The end of an event may have begun in the bytes before: it has at most three of them.
        search_from = max(0, len(self.unfinished) - 3)
        self.unfinished += chunk
        event_end = self._find_event_end(search_from)
        while event_end:
            self.events_left -= 1
            with memoryview(self.unfinished) as view:
                event = bytes(view[:event_end])
            yield event
            del self.unfinished[:event_end]
            event_end = self._find_event_end(0)

    def _find_event_end(self, search_from: int) -> int:
        """Return where the first complete event ends, or 0 if none is complete.

        After very many events, it is where the last complete one ends: then they are passed
        on together, as each by itself would take too long.
        """
        event_end = 0
        for match in _END.finditer(self.unfinished, search_from):
            event_end = match.end()
            if self.events_left > 0:
                break
        return event_end


@dataclass(slots=True)
class EventStreamParser:
    """Reads a stream of server-sent events as text."""

    longest: int = LONGEST_EVENT
    _splitter: RawEventSplitter = field(
        default_factory=lambda: RawEventSplitter(events_left=sys.maxsize)
    )

    def feed_bytes(self, chunk: bytes) -> list[ServerSentEvent]:
        """Take in the next bytes, and return the events that are complete by them."""
        events: list[ServerSentEvent] = []
        for raw_event in self._splitter.feed_raw_chunk(chunk):
            self._check_event_length(len(raw_event))
            fields = _read_event_fields(raw_event)
            if fields.data is not None:
                data = fields.data.decode(errors="replace")
                name = fields.name.decode(errors="replace")
                events.append(ServerSentEvent(data, name))
        self._check_event_length(len(self._splitter.unfinished))
        return events

    def _check_event_length(self, size: int) -> None:
        if size > self.longest:
            raise EventTooLong(f"an event of more than {self.longest:,} bytes")


@dataclass(slots=True)
class LineStreamParser:
    """Reads a stream with a JSON document on each line, as Ollama sends it."""

    longest: int = LONGEST_EVENT
    _unfinished: bytes = b""

    def feed_bytes(self, chunk: bytes) -> list[ServerSentEvent]:
        """Take in the next bytes, and return the lines that are complete by them."""
        lines = (self._unfinished + chunk).split(b"\n")
        self._unfinished = lines.pop()
        if len(self._unfinished) > self.longest:
            raise EventTooLong(f"an event of more than {self.longest:,} bytes")
        events: list[ServerSentEvent] = []
        for line in lines:
            if line.strip():
                events.append(ServerSentEvent(line.decode(errors="replace")))
        return events


@dataclass(frozen=True, slots=True)
class _EventFields:
    """What an event says, as bytes. An event without data is only a comment."""

    data: bytes | None
    name: bytes


def _read_event_fields(raw_event: bytes) -> _EventFields:
    """Return the data and the name in an event's lines. Other fields are ignored."""
    data_lines: list[bytes] = []
    event_name = b""
    # Split only at CR and LF: U+2028 may occur in JSON.
    for line in raw_event.removeprefix(_MARK).strip(b"\r\n").splitlines():
        field_name, _, value = line.partition(b":")
        if field_name == b"data":
            data_lines.append(value.removeprefix(b" "))
        elif field_name == b"event":
            event_name = value.removeprefix(b" ")
    data: bytes | None = None
    if data_lines:
        data = b"\n".join(data_lines)
    return _EventFields(data, event_name or b"message")


def parse_event_data(event: bytes) -> Json | None:
    """Return the JSON object that an event has as its data, or None if it has none.

    Comments, `[DONE]` and other values are none, and neither is one too large to parse.
    """
    if _is_too_large_to_parse(event):
        return None
    data = _read_event_fields(event).data
    if not data:
        return None
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    return value


def _is_too_large_to_parse(event: bytes) -> bool:
    """Whether parsing an event would block other threads for too long."""
    if len(event) <= MOST_EVENT_SIGNS:  # It cannot have too many signs, which saves counting.
        return False
    if len(event) > LONGEST_PARSED_EVENT:
        return True
    signs = event.count(b"[") + event.count(b"{") + event.count(b",")
    return signs > MOST_EVENT_SIGNS


def encode_event(value: Json, name: str = "") -> bytes:
    """Return an event with this value as its data. `name`: empty for one without a name."""
    data = b"data: " + orjson.dumps(value) + b"\n\n"
    if not name:
        return data
    return f"event: {name}\n".encode() + data
