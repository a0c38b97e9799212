"""Functions that the writers of all agents' formats share."""

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from helix_desktop.engine.facts import ToolCall
from helix_desktop.histories import recorded_session

Line = dict[str, Any]
SessionItem = recorded_session.RecordedMessage | recorded_session.RecordedCompaction


def list_session_items(session: recorded_session.RecordedSession) -> Iterator[SessionItem]:
    """Yield messages in order, each compaction before the message it precedes."""
    compactions = {one.at: one for one in session.compactions}
    taken: set[str] = set()
    names: dict[str, str] = {}
    for at in range(len(session.messages) + 1):
        if at in compactions:
            yield compactions[at]
        yield from (
            _with_unique_call_ids(message, taken, names)
            for message in session.messages[at : at + 1]
        )


def _with_unique_call_ids(
    message: recorded_session.RecordedMessage, taken_ids: set[str], new_ids: dict[str, str]
) -> recorded_session.RecordedMessage:
    """Make call ids unique, as some servers repeat them in each reply and providers refuse that."""
    parts = list(message.parts)
    for at, part in enumerate(parts):
        if isinstance(part, ToolCall):
            name = plain = plain_call_id(part.id)
            while name in taken_ids:
                name = f"{plain[:54]}_{len(taken_ids)}"
            taken_ids.add(name)
            new_ids[part.id] = name
            parts[at] = replace(part, id=name)
    return replace(
        message, parts=tuple(parts), answers=new_ids.get(message.answers, message.answers)
    )


def list_items_with_results(
    session: recorded_session.RecordedSession,
) -> list[tuple[SessionItem, dict[str, recorded_session.RecordedMessage]]]:
    """Return each item with its results by call, for formats in which a reply contains
    its results.
    """
    found: list[tuple[SessionItem, dict[str, recorded_session.RecordedMessage]]] = []
    for item in list_session_items(session):
        if isinstance(item, recorded_session.RecordedMessage) and item.role == "tool" and found:
            found[-1][1][item.answers] = item
        else:
            found.append((item, {}))
    return found


def plain_call_id(call: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call)[:64]


def format_iso_time(time: float) -> str:
    return (
        datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def format_picture_data(picture: recorded_session.RecordedPicture) -> str:
    return base64.b64encode(picture.data).decode("ascii")


def format_picture_url(picture: recorded_session.RecordedPicture) -> str:
    return f"data:{picture.media_type};base64,{format_picture_data(picture)}"
