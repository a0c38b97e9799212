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
        begin = max(0, len(self.unfinished) - 3)
        self.unfinished += chunk
        end = self._find_end(begin)
        while end:
            self.events_left -= 1
            with memoryview(self.unfinished) as whole:
                event = bytes(whole[:end])
            yield event
            del self.unfinished[:end]
            end = self._find_end(0)

    def _find_end(self, begin: int) -> int:
        """Return where the first event ends, or 0. Of too many, where the last of them ends."""
        end = 0
        for match in _END.finditer(self.unfinished, begin):
            end = match.end()
            if self.events_left > 0:
                break
        return end


@dataclass(slots=True)
class EventStreamParser:
    longest: int = LONGEST_EVENT
    _splitter: RawEventSplitter = field(
        default_factory=lambda: RawEventSplitter(events_left=sys.maxsize)
    )

    def feed_bytes(self, chunk: bytes) -> list[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        for raw in self._splitter.feed_raw_chunk(chunk):
            self._check_event_length(len(raw))
            data, name = _read_event_fields(raw)
            if data is not None:
                events.append(
                    ServerSentEvent(data.decode(errors="replace"), name.decode(errors="replace"))
                )
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
        lines = (self._unfinished + chunk).split(b"\n")
        self._unfinished = lines.pop()
        if len(self._unfinished) > self.longest:
            raise EventTooLong(f"an event of more than {self.longest:,} bytes")
        whole_lines = [line for line in lines if line.strip()]
        return [ServerSentEvent(line.decode(errors="replace")) for line in whole_lines]


def _read_event_fields(raw: bytes) -> tuple[bytes | None, bytes]:
    """Return an event's data, or None, and its name."""
    data: list[bytes] = []
    event = b""
    # Split only at CR and LF: U+2028 may occur in JSON.
    for line in raw.removeprefix(_MARK).strip(b"\r\n").splitlines():
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            event = value.removeprefix(b" ")
    if not data:
        return None, event or b"message"
    return b"\n".join(data), event or b"message"


def parse_event_data(event: bytes) -> Json | None:
    """Return an event's object, or None for comments, `[DONE]`, other values and values
    too large to parse.
    """
    if _is_too_large_to_parse(event):
        return None
    data, _ = _read_event_fields(event)
    try:
        value = orjson.loads(data or b"0")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    return value


def _is_too_large_to_parse(event: bytes) -> bool:
    if len(event) <= MOST_EVENT_SIGNS:  # It cannot have too many signs, which saves counting.
        return False
    if len(event) > LONGEST_PARSED_EVENT:
        return True
    return event.count(b"[") + event.count(b"{") + event.count(b",") > MOST_EVENT_SIGNS


def encode_event(value: Json, name: str = "") -> bytes:
    data = b"data: " + orjson.dumps(value) + b"\n\n"
    if not name:
        return data
    return f"event: {name}\n".encode() + data
