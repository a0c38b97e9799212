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
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.errors import InvalidInput
from helix_desktop.histories import claude_code_history, recorded_session, session_writing
from helix_desktop.histories.claude_own_lines import ClaudeOwnLines
from helix_desktop.histories.session_writing import (
    AgentFormat,
    KeptContext,
    Line,
    format_iso_time,
    plain_call_id,
)
from helix_desktop.json_values import parse_object, text_at

SEEN_VERSION = "2.1.332"
_LONGEST_NAME = 200  # Claude Code shortens longer folder names in its own way.
# Claude Code resumes in the mode of permissions and in the folder that these lines name, and connects
# itself to the session of another computer again.
_LINES_WITH_PERMISSIONS = ("permission-mode", "worktree-state", "relocated", "bridge-session")
_SAYS_WHETHER_IT_FAILED = ("Bash",)  # Other tools say it only if they failed.
Block = dict[str, Any]


def project_folder_name(folder: str) -> str:
    """Return the name of the folder for a working folder's sessions, or an empty string
    if it is too long.
    """
    # Claude Code replaces each UTF-16 unit other than a letter or digit: an emoji is two.
    name = re.sub(r"[\U00010000-\U0010ffff]", "--", folder)
    name = re.sub(r"[^a-zA-Z0-9]", "-", name)
    if len(name) > _LONGEST_NAME:
        return ""
    return name


def build_claude_code_lines(
    session: recorded_session.RecordedSession, new_id: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of the session's file. `new_id`: the session's id in it."""
    own_lines = ClaudeOwnLines.from_stored_lines(session.own_lines)
    tool_by_call_id: dict[str, str] = {}
    lines: list[Block] = []
    for item in session_writing.list_session_items(session):
        lines.extend(own_lines.pop_unseen_lines_before(item.time))
        if isinstance(item, recorded_session.RecordedCompaction):
            lines.extend(_compaction_lines(item.text, item.time))
            continue
        original_lines: Sequence[Block] = ()
        if item.beside:
            original_lines = own_lines.pop_lines_up_to(item.text)
        if original_lines:
            lines.extend(original_lines)
        else:
            message_lines = _message_lines(item, tool_by_call_id)
            loaded_tools = own_lines.loaded_tools.get(item.answers)
            if loaded_tools is not None:
                _put_back_loaded_tools(message_lines, loaded_tools)
            lines.extend(message_lines)
    lines.extend(own_lines.pop_unseen_lines_before(math.inf))
    yield from _chain_of_lines(lines, session.folder, new_id)
    if session.title:
        yield build_title_line(session.title, new_id)


def _chain_of_lines(
    lines: Sequence[Block], folder: str, new_id: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of the session, each with the one before it. A compaction begins anew."""
    previous_line_id: str | None = None
    for number, line in enumerate(lines):
        line_id = derive_id_from_session(new_id, str(number))
        chained_line: Block = {}
        if line.get("subtype") == "compact_boundary":
            chained_line["parentUuid"] = None
            chained_line["logicalParentUuid"] = previous_line_id
        else:
            chained_line["parentUuid"] = previous_line_id
        chained_line["isSidechain"] = False
        chained_line["userType"] = "external"
        chained_line["version"] = SEEN_VERSION
        # An original line keeps its own values of the fields above, but not of those below.
        chained_line.update(line)
        chained_line["cwd"] = folder
        chained_line["sessionId"] = new_id
        chained_line["uuid"] = line_id
        yield chained_line
        previous_line_id = line_id


def derive_id_from_session(session_id: str, name: str) -> str:
    """Return an id that is the same each time for something of this name in the session."""
    return str(uuid.uuid5(uuid.UUID(session_id), name))


def build_title_line(title: str, session_id: str) -> Mapping[str, str]:
    """Return the line that Claude Code writes when the user renames a session."""
    return {"type": "custom-title", "customTitle": title, "sessionId": session_id}


def _compaction_lines(text: str, time: float) -> list[Block]:
    """Return the line that marks a compaction, and the one with its summary."""
    timestamp = format_iso_time(time)
    boundary: Block = {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "isMeta": False,
        "level": "info",
        "compactMetadata": {"trigger": "manual", "preTokens": 0},
        "timestamp": timestamp,
    }
    summary: Block = {
        "type": "user",
        "message": {"role": "user", "content": text},
        "isCompactSummary": True,
        "isVisibleInTranscriptOnly": True,
        "timestamp": timestamp,
    }
    return [boundary, summary]


def _message_lines(
    message: recorded_session.RecordedMessage, tool_by_call_id: dict[str, str]
) -> list[Block]:
    """Return the line of a message, or none if it is empty. Replies add their calls to
    `tool_by_call_id`, in which results look up their tool.
    """
    timestamp = format_iso_time(message.time)
    if message.role == "assistant":
        for call in message.calls:
            tool_by_call_id[call.id] = call.name
        reply = _reply_message(message)
        if not reply["content"]:
            return []
        return [{"type": "assistant", "message": reply, "timestamp": timestamp}]

    blocks = _text_and_picture_blocks(message)
    content: object
    if message.pictures:
        content = blocks
    else:  # A text alone is written as such, as Claude Code does.
        content = message.text

    if message.role == "tool":
        result = _result_block(message, content, tool_by_call_id)
        return [
            {
                "type": "user",
                "message": {"role": "user", "content": [result]},
                "toolUseResult": message.text,
                "timestamp": timestamp,
            }
        ]
    if not blocks:
        return []
    line: Block = {"type": "user", "message": {"role": "user", "content": content}}
    if message.beside:
        line["isMeta"] = True
    line["timestamp"] = timestamp
    return [line]


def _put_back_loaded_tools(result_lines: list[Block], loaded_tools: list[object]) -> None:
    """Give the result of a search for tools its references again, in place of their text."""
    for line in result_lines:
        for block in line["message"]["content"]:
            block["content"] = loaded_tools


def _text_and_picture_blocks(message: recorded_session.RecordedMessage) -> list[Block]:
    blocks: list[Block] = []
    if message.text.strip():
        blocks.append({"type": "text", "text": message.text})
    for picture in message.pictures:
        data = session_writing.format_picture_data(picture)
        source = {"type": "base64", "media_type": picture.media_type, "data": data}
        if session_writing.is_image(picture):
            blocks.append({"type": "image", "source": source})
        elif picture.media_type == "application/pdf":
            blocks.append({"type": "document", "source": source})
        else:
            text = session_writing.describe_left_out_file(picture)
            blocks.append({"type": "text", "text": text})
    return blocks


def _result_block(
    message: recorded_session.RecordedMessage, content: object, tool_by_call_id: Mapping[str, str]
) -> Block:
    """Return a result in the order in which Claude Code writes it: its next request then has the
    same bytes.
    """
    call_id = plain_call_id(message.answers)
    if not message.ok:
        return {
            "type": "tool_result",
            "content": content,
            "is_error": True,
            "tool_use_id": call_id,
        }
    result: Block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
    if tool_by_call_id.get(message.answers) in _SAYS_WHETHER_IT_FAILED:
        result["is_error"] = False
    return result


def _reply_message(message: recorded_session.RecordedMessage) -> Block:
    """Return a reply as Anthropic's API has it."""
    blocks: list[Block] = []
    for part in message.parts:
        if isinstance(part, Reasoning) and part.opaque and part.provider.startswith("anthropic "):
            sealed_block = parse_object(part.opaque)
            # An import or a shared workspace may have brought anything.
            if sealed_block is not None:
                blocks.append(sealed_block)
        elif isinstance(part, Text) and part.text.strip():
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolCall):
            call = session_writing.build_written_call(part)
            blocks.append(
                {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            )

    stop_reason = "end_turn"
    has_calls = any(block["type"] == "tool_use" for block in blocks)
    if has_calls:
        stop_reason = "tool_use"

    usage = message.usage
    # Anthropic counts what was read from or written to the cache apart.
    uncached_tokens = max(0, usage.input - usage.cache_read - usage.cache_write)
    written_usage = {
        "input_tokens": uncached_tokens,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": usage.output,
    }
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": message.model,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "content": blocks,
        "usage": written_usage,
    }


def _build_lines_without_start(
    session: recorded_session.RecordedSession, new_id: str, _start_time: float
) -> Iterator[Mapping[str, Any]]:
    """Yield Claude Code's lines. Its file has no time of the session's start."""
    return build_claude_code_lines(session, new_id)


def _path_below_claude_home(
    session_id: str, folder: str, _claude_home: Path, _start_time: float
) -> str:
    project = project_folder_name(folder)
    if not project:
        raise InvalidInput(
            f"The path of the folder {folder} is too long. Claude Code names the folder for its sessions after this path.",
            remedy="Write to a file with `--to FILE`.",
        )
    return f"projects/{project}/{session_id}.jsonl"


def _with_title_line(content: bytes, session_id: str, title: str) -> bytes:
    line = build_title_line(title, session_id)
    return content + json.dumps(line).encode() + b"\n"


def _without_permission_mode(content: bytes) -> bytes:
    return session_writing.change_json_lines(content, _leave_permission_mode_out)


def _leave_permission_mode_out(line: Line) -> Line | None:
    if text_at(line, "type") in _LINES_WITH_PERMISSIONS:
        return None
    if "permissionMode" not in line:
        return line
    return {name: value for name, value in line.items() if name != "permissionMode"}


FORMAT = AgentFormat(
    claude_code_history.KIND,
    seen_version=SEEN_VERSION,
    resume="claude --resume {}",
    variable="CLAUDE_CONFIG_DIR",
    usual=".claude",
    window=200_000,
    build_lines=_build_lines_without_start,
    path_of_session=_path_below_claude_home,
    provider=claude_code_history.TAG,
    id_fields="sessionId",
    compaction=("subtype", "compact_boundary"),
    with_title=_with_title_line,
    kept_context=KeptContext.OWN_LINES,
    mcp_client="claude-code",
    mcp_fields={"alwaysLoad": True},  # It waits for such a server before its first request.
    without_permissions=_without_permission_mode,
)
