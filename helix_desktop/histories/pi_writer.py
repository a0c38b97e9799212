"""Writes sessions that pi 0.73.1 and 1.5.2 resume with `pi --session ID`. See `pi_history`.

Each message is an entry that names the one before. A compaction names itself as the
first entry kept.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from helix_desktop.engine.facts import Text, ToolCall
from helix_desktop.engine.request_building import with_plain_name
from helix_desktop.histories.openai_chat_export import parse_arguments_object
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)
from helix_desktop.histories.session_writing import (
    Line,
    format_iso_time,
    format_picture_data,
    list_session_items,
    plain_call_id,
)

SEEN_VERSION = "format 3"
_COUNTS = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
_NO_USAGE: Line = {**_COUNTS, "totalTokens": 0, "cost": {**_COUNTS, "total": 0}}


def build_relative_pi_session_path(working_folder: str, new_id: str, begun: float) -> str:
    """Return the path, relative to `sessions`, of a session of this working folder."""
    safe = re.sub(r"[/\\:]", "-", re.sub(r"^[/\\]", "", working_folder))
    return f"--{safe}--/{re.sub('[:.]', '-', format_iso_time(begun))}_{new_id}.jsonl"


def build_pi_lines(
    session: RecordedSession, new_id: str, begun: float
) -> Iterator[Mapping[str, Any]]:
    yield {
        "type": "session",
        "version": 3,
        "id": new_id,
        "timestamp": format_iso_time(begun),
        "cwd": session.folder,
    }
    before, tools = None, dict[str, str]()
    for number, item in enumerate(list_session_items(session)):
        identity = f"{number:08x}"
        about: Line = {"id": identity, "parentId": before, "timestamp": format_iso_time(item.time)}
        if isinstance(item, RecordedCompaction):
            yield {
                "type": "compaction",
                **about,
                "summary": item.text,
                "firstKeptEntryId": identity,
                "tokensBefore": 0,
            }
        elif item.beside:
            words = {"customType": "note", "content": _pi_content(item), "display": True}
            yield {"type": "custom_message", **about, **words}
        else:
            yield {"type": "message", **about, "message": _pi_message(item, tools)}
        before = identity
    if session.title:
        about = {"id": "title", "parentId": before, "timestamp": format_iso_time(begun)}
        yield {"type": "session_info", **about, "name": session.title}


def _pi_message(message: RecordedMessage, tool_names: dict[str, str]) -> Line:
    """`tool_names`: the tool of each call, by call id. Replies add to it, results look it up."""
    time = round(message.time * 1000)
    if message.role == "assistant":
        tool_names |= {
            part.id: with_plain_name(part).name
            for part in message.parts
            if isinstance(part, ToolCall)
        }
        return {**_pi_reply(message), "timestamp": time}
    content = _pi_content(message)
    if message.role == "tool":
        answers = {
            "toolCallId": plain_call_id(message.answers),
            "toolName": tool_names.get(message.answers, "tool"),
        }
        return {
            "role": "toolResult",
            **answers,
            "content": content,
            "isError": not message.ok,
            "timestamp": time,
        }
    return {"role": "user", "content": content, "timestamp": time}


def _pi_content(message: RecordedMessage) -> list[Line]:
    words: list[Line] = [{"type": "text", "text": message.text}] if message.text else []
    pictures = ((one.media_type, format_picture_data(one)) for one in message.pictures)
    return [*words, *({"type": "image", "data": data, "mimeType": kind} for kind, data in pictures)]


def _pi_reply(message: RecordedMessage) -> Line:
    content: list[Line] = []
    for part in message.parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolCall):
            call = {
                "type": "toolCall",
                "id": plain_call_id(part.id),
                "name": with_plain_name(part).name,
            }
            content.append({**call, "arguments": parse_arguments_object(part.arguments)})
    # pi goes on with the last reply's provider if it knows it. The user's own default
    # is asked instead.
    about = {
        "api": "anthropic-messages",
        "provider": "restored",
        "model": message.model,
        "usage": _NO_USAGE,
    }
    return {
        "role": "assistant",
        "content": content,
        **about,
        "stopReason": "toolUse" if message.calls else "stop",
    }
