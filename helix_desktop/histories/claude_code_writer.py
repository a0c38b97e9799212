"""Writes sessions that Claude Code 2.1.332 resumes with `claude --resume ID`.

Original lines that still exist are written unchanged, except for the session's id.
Otherwise each message is a line that names the line before it. A compaction is a
`compact_boundary` line followed by the summary.
"""

import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.engine.request_building import with_plain_name
from helix_desktop.histories import recorded_session, session_writing
from helix_desktop.histories.claude_own_lines import ClaudeOwnLines
from helix_desktop.histories.openai_chat_export import parse_arguments_object
from helix_desktop.histories.session_writing import format_iso_time, plain_call_id

SEEN_VERSION = "2.1.332"
_LONGEST_NAME = 200  # Claude Code shortens longer folder names in its own way.
_SAYS_WHETHER_IT_FAILED = ("Bash",)  # Other tools say it only if they failed.
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
    own_lines = ClaudeOwnLines.from_stored_lines(session.own_lines)
    tools: dict[str, str] = {}
    lines: list[Block] = []
    for item in session_writing.list_session_items(session):
        lines += own_lines.take_unseen_lines_before(item.time)
        if isinstance(item, recorded_session.RecordedCompaction):
            lines += _compaction_lines(item.text, item.time)
        else:
            given_back = own_lines.take_lines_up_to(item.text) if item.beside else []
            lines += given_back or _message_lines(item, tools)
    lines += own_lines.take_unseen_lines_before(math.inf)
    yield from _chain_of_lines(lines, session.folder, new_id)
    if session.title:
        yield build_title_line(session.title, new_id)


def _chain_of_lines(
    lines: Sequence[Block], folder: str, new_id: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of the session, each with the one before it. A compaction begins anew."""
    before: str | None = None
    for number, line in enumerate(lines):
        identity = str(uuid.uuid5(uuid.UUID(new_id), str(number)))
        links: Block = {"parentUuid": before}
        if line.get("subtype") == "compact_boundary":
            links = {"parentUuid": None, "logicalParentUuid": before}
        about = {"isSidechain": False, "userType": "external", "version": SEEN_VERSION}
        place = {"cwd": folder, "sessionId": new_id, "uuid": identity}
        yield {**links, **about, **line, **place}
        before = identity


def build_title_line(title: str, session_id: str) -> Mapping[str, str]:
    """Return the line that Claude Code writes when the user renames a session."""
    return {"type": "custom-title", "customTitle": title, "sessionId": session_id}


def _compaction_lines(text: str, time: float) -> list[Block]:
    when = format_iso_time(time)
    boundary: Block = {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "isMeta": False,
        "level": "info",
        "compactMetadata": {"trigger": "manual", "preTokens": 0},
        "timestamp": when,
    }
    summary: Block = {
        "type": "user",
        "message": {"role": "user", "content": text},
        "isCompactSummary": True,
        "isVisibleInTranscriptOnly": True,
        "timestamp": when,
    }
    return [boundary, summary]


def _message_lines(message: recorded_session.RecordedMessage, tools: dict[str, str]) -> list[Block]:
    """`tools`: the tool of each call, by call id. Replies add to it, results look it up."""
    when = format_iso_time(message.time)
    if message.role == "assistant":
        reply = _reply_message(message)
        tools |= {call.id: call.name for call in message.calls}
        if not reply["content"]:
            return []
        return [{"type": "assistant", "message": reply, "timestamp": when}]
    blocks: list[Block] = []
    if message.text.strip():
        blocks.append({"type": "text", "text": message.text})
    for picture in message.pictures:
        data = session_writing.format_picture_data(picture)
        source = {"type": "base64", "media_type": picture.media_type, "data": data}
        blocks.append({"type": "image", "source": source})
    # A text alone is written as such, as Claude Code does.
    content: object = blocks if message.pictures else message.text
    if message.role == "tool":
        said = {"role": "user", "content": [_result_block(message, content, tools)]}
        return [{"type": "user", "message": said, "toolUseResult": message.text, "timestamp": when}]
    if not blocks:
        return []
    typed: Block = {"role": "user", "content": content}
    line: Block = {"type": "user", "message": typed}
    if message.beside:
        line["isMeta"] = True
    return [{**line, "timestamp": when}]


def _result_block(
    message: recorded_session.RecordedMessage, content: object, tools: Mapping[str, str]
) -> Block:
    """Return a result in the order in which Claude Code writes it: its next request then has the
    same bytes.
    """
    answers = plain_call_id(message.answers)
    if not message.ok:
        failed: Block = {"type": "tool_result", "content": content, "is_error": True}
        return {**failed, "tool_use_id": answers}
    result: Block = {"tool_use_id": answers, "type": "tool_result", "content": content}
    if tools.get(message.answers) in _SAYS_WHETHER_IT_FAILED:
        result["is_error"] = False
    return result


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
