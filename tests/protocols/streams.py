"""A reply's stream through a filter of hidden calls: what the client gets for every
event that comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helix_desktop.protocols.event_stream import RawEventSplitter, encode_event, parse_event_data
from helix_desktop.protocols.hidden_calls import HiddenCallFilter

DONE: Any = None  # An event without JSON: `data: [DONE]`


def through(veil: HiddenCallFilter, events: Sequence[Any]) -> list[list[Any]]:
    """For each event those the client gets then: one that goes on as it came is its
    number, one that was changed its value.
    """
    came = [
        b": %d\n%b" % (number, b"data: [DONE]\n\n" if event is DONE else encode_event(event))
        for number, event in enumerate(events)
    ]
    return [
        [
            _seen(raw, came)
            for raw in RawEventSplitter().feed_raw_chunk(veil.filter_event(bytes_, event))
        ]
        for bytes_, event in zip(came, events, strict=True)
    ]


def _seen(raw: bytes, came: Sequence[bytes]) -> Any:
    if raw in came:
        return came.index(raw)
    value: Any = parse_event_data(raw)
    assert raw == encode_event(value, value.get("type", "")), (
        "an event is called what its type says"
    )
    return value


def put_together(reading: Any, events: Sequence[Any]) -> dict[str, Any]:
    """The reply that a stream of these events says."""
    for event in events:
        reading.add_reply_event(event)
    value: dict[str, Any] = reading.whole_reply()
    return value
