"""Functions that the writers of all agents' formats share."""

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from helix_desktop.engine.facts import ReplyPart, ToolCall
from helix_desktop.histories import recorded_session

Line = dict[str, Any]
SessionItem = recorded_session.RecordedMessage | recorded_session.RecordedCompaction


def list_session_items(session: recorded_session.RecordedSession) -> Iterator[SessionItem]:
    """Yield messages in order, each compaction before the message it precedes."""
    compactions = {compaction.at: compaction for compaction in session.compactions}
    taken_ids: set[str] = set()
    new_ids: dict[str, str] = {}
    for position, message in enumerate(session.messages):
        if position in compactions:
            yield compactions[position]
        yield _with_unique_call_ids(message, taken_ids, new_ids)
    compaction_at_end = compactions.get(len(session.messages))
    if compaction_at_end is not None:
        yield compaction_at_end


def _with_unique_call_ids(
    message: recorded_session.RecordedMessage, taken_ids: set[str], new_ids: dict[str, str]
) -> recorded_session.RecordedMessage:
    """Make call ids unique, as some servers repeat them in each reply and providers refuse that.

    Both collections are filled on the way: a later result of a call finds its new id in `new_ids`.
    """
    parts: list[ReplyPart] = []
    for part in message.parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
            continue
        plain_id = plain_call_id(part.id)
        unique_id = plain_id
        while unique_id in taken_ids:
            unique_id = f"{plain_id[:54]}_{len(taken_ids)}"
        taken_ids.add(unique_id)
        new_ids[part.id] = unique_id
        parts.append(replace(part, id=unique_id))
    answered_call = new_ids.get(message.answers, message.answers)
    return replace(message, parts=tuple(parts), answers=answered_call)


def list_items_with_results(
    session: recorded_session.RecordedSession,
) -> list[tuple[SessionItem, dict[str, recorded_session.RecordedMessage]]]:
    """Return each item with its results by call, for formats in which a reply contains
    its results.
    """
    items: list[tuple[SessionItem, dict[str, recorded_session.RecordedMessage]]] = []
    for item in list_session_items(session):
        if items and isinstance(item, recorded_session.RecordedMessage) and item.role == "tool":
            _last_item, results_by_call = items[-1]
            results_by_call[item.answers] = item
        else:
            items.append((item, {}))
    return items


def plain_call_id(call: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call)[:64]


def format_iso_time(time: float) -> str:
    moment = datetime.fromtimestamp(time, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_picture_data(picture: recorded_session.RecordedPicture) -> str:
    return base64.b64encode(picture.data).decode("ascii")


def format_picture_url(picture: recorded_session.RecordedPicture) -> str:
    return f"data:{picture.media_type};base64,{format_picture_data(picture)}"
