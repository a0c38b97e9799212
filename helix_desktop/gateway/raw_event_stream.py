"""Server-sent events as the bytes they came as: a stream is cut at its empty lines, and nothing else is touched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

import orjson

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.wire.wire_message import Json

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
MOST_EVENT_SIGNS = 200_000  # of lists and objects in an event; one with more is not read


@dataclass(slots=True)
class RawEventSplitter:
    """Splits a byte stream into complete server-sent events, unchanged, each with the empty line that ends it."""

    unfinished: bytearray = field(default_factory=bytearray)

    def feed_raw_chunk(self, chunk: bytes) -> Iterator[bytes]:
        """The events that became whole."""
        begin = max(0, len(self.unfinished) - 3)
        self.unfinished += chunk
        while (found := _END.search(self.unfinished, begin)) is not None:
            yield bytes(self.unfinished[: found.end()])
            del self.unfinished[: found.end()]
            begin = 0


def parse_event_data(event: bytes) -> Json | None:
    """The JSON of an event; None for a comment, `[DONE]`, what is no JSON, or what has too many values to be made."""
    if len(event) > MOST_EVENT_SIGNS and event.count(b"[") + event.count(b"{") > MOST_EVENT_SIGNS:
        return None
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    if not lines:
        return None
    try:
        return orjson.loads(b"\n".join(lines))
    except orjson.JSONDecodeError:
        return None


def encode_event(value: Json, name: str = "") -> bytes:
    """A value as an event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + orjson.dumps(value) + b"\n\n"
