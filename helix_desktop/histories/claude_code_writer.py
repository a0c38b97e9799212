"""Writes sessions that Claude Code 2.1.332 resumes with `claude --resume ID`.

Original lines that still exist are written unchanged, except for the session's id.
Otherwise each message is a line that names the line before it. A compaction is a
`compact_boundary` line followed by the summary.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.engine.request_building import with_plain_name
from helix_desktop.histories import recorded_session, session_writing
from helix_desktop.histories.openai_chat_export import parse_arguments_object
from helix_desktop.histories.session_writing import format_iso_time, plain_call_id

SEEN_VERSION = "2.1.332"
_LONGEST_NAME = 200  # Claude Code shortens longer folder names in its own way.
Block = dict[str, Any]


def project_folder_name(folder: str) -> str:
    """Return the name of the folder for a working folder's sessions, or an empty string
    if it is too long.
    """
    # Claude Code counts UTF-16 units: an emoji is two.
    name = re.sub(r"[^a-zA-Z0-9]", lambda found: "--" if found[0] > "\uffff" else "-", folder)
    return name if len(name) <= _LONGEST_NAME else ""


def build_claude_code_lines(
    session: recorded_session.RecordedSession, new_id: str
) -> Iterator[Mapping[str, Any]]:
    before: str | None = None
    for at, item in enumerate(session_writing.list_session_items(session)):
        if isinstance(item, recorded_session.RecordedCompaction):
            lines = _compaction_lines(item.text, item.time, before)
        else:
            lines = _message_lines(item)
        for number, line in enumerate(lines):
            identity = str(uuid.uuid5(uuid.UUID(new_id), f"{at} {number}"))
            parent = None if line.get("subtype") == "compact_boundary" else before
            about = {
                "isSidechain": False,
                "userType": "external",
                "cwd": session.folder,
                "sessionId": new_id,
            }
            yield {"parentUuid": parent, **about, "version": SEEN_VERSION, **line, "uuid": identity}
            before = identity
    if session.title:
        yield build_title_line(session.title, new_id)


def build_title_line(title: str, session_id: str) -> Mapping[str, str]:
    """Return the line that Claude Code writes when the user renames a session."""
    return {"type": "custom-title", "customTitle": title, "sessionId": session_id}


def _compaction_lines(text: str, time: float, parent: str | None) -> list[Block]:
    when, about = (
        format_iso_time(time),
        {"isCompactSummary": True, "isVisibleInTranscriptOnly": True},
    )
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "isMeta": False,
    }
    details = {
        "logicalParentUuid": parent,
        "level": "info",
        "compactMetadata": {"trigger": "manual", "preTokens": 0},
    }
    summary = {
        "type": "user",
        "message": {"role": "user", "content": text},
        **about,
        "timestamp": when,
    }
    return [{**boundary, **details, "timestamp": when}, summary]


def _message_lines(message: recorded_session.RecordedMessage) -> list[Block]:
    when = format_iso_time(message.time)
    sources = (
        (one.media_type, session_writing.format_picture_data(one)) for one in message.pictures
    )
    pictures = [
        {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
        for kind, data in sources
    ]
    if message.role == "assistant":
        reply = _reply_message(message)
        return (
            [{"type": "assistant", "message": reply, "timestamp": when}] if reply["content"] else []
        )
    words: list[Block] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    if message.role == "tool":
        result = {
            "type": "tool_result",
            "tool_use_id": plain_call_id(message.answers),
            "is_error": not message.ok,
        }
        content: object = [*words, *pictures] if pictures else message.text
        said = {"role": "user", "content": [{**result, "content": content}]}
        return [{"type": "user", "message": said, "toolUseResult": message.text, "timestamp": when}]
    if not (words or pictures):
        return []
    blocks: object = [*words, *pictures] if pictures else message.text
    about = {"isMeta": True} if message.beside else {}
    return [
        {"type": "user", "message": {"role": "user", "content": blocks}, **about, "timestamp": when}
    ]


def _reply_message(message: recorded_session.RecordedMessage) -> Block:
    blocks: list[Block] = []
    for part in message.parts:
        if isinstance(part, Reasoning) and part.opaque and part.provider.startswith("anthropic "):
            blocks.append(json.loads(part.opaque))
        elif isinstance(part, Text) and part.text.strip():
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolCall):
            call = {
                "type": "tool_use",
                "id": plain_call_id(part.id),
                "name": with_plain_name(part).name,
            }
            blocks.append({**call, "input": parse_arguments_object(part.arguments)})
    usage = message.usage
    figures = {
        "input_tokens": max(0, usage.input - usage.cache_read - usage.cache_write),
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": usage.output,
    }
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    about = {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": message.model,
    }
    return {
        **about,
        "stop_reason": reason,
        "stop_sequence": None,
        "content": blocks,
        "usage": figures,
    }
