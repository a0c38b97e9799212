"""What the writers of the agents' formats share."""

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
)

Line = dict[str, Any]
SessionItem = RecordedMessage | RecordedCompaction


def list_session_items(session: RecordedSession) -> Iterator[SessionItem]:
    """The messages in their order, each compaction before the message it stands in front of."""
    compactions = {one.at: one for one in session.compactions}
    for at in range(len(session.messages) + 1):
        if at in compactions:
            yield compactions[at]
        yield from session.messages[at : at + 1]


def list_items_with_results(session: RecordedSession) -> Iterator[tuple[SessionItem, dict[str, RecordedMessage]]]:
    """The same for formats in which results stand in the reply that asked for them: each with its results by call."""
    held: tuple[SessionItem, dict[str, RecordedMessage]] | None = None
    for item in list_session_items(session):
        if isinstance(item, RecordedMessage) and item.role == "tool" and held:
            held[1][item.answers] = item
            continue
        if held:
            yield held
        held = item, {}
    if held:
        yield held


def plain_call_id(call: str) -> str:
    """A call's id as every provider takes it."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call)[:64]


def format_iso_time(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_picture_data(picture: RecordedPicture) -> str:
    return base64.b64encode(picture.data).decode("ascii")


def format_picture_url(picture: RecordedPicture) -> str:
    return f"data:{picture.media_type};base64,{format_picture_data(picture)}"
