"""Writes sessions that pi 0.73.1 and 1.5.2 resume with `pi --session ID`. See `pi_history`.

Each message is an entry that names the one before. A compaction names itself as the
first entry kept.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import Text, ToolCall
from helix_desktop.engine.request_building import with_plain_name
from helix_desktop.histories import pi_history
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)
from helix_desktop.histories.session_writing import (
    AgentFormat,
    KeptContext,
    Line,
    build_written_call,
    describe_left_out_file,
    format_iso_time,
    format_picture_data,
    is_image,
    list_session_items,
    plain_call_id,
)

SEEN_VERSION = "format 3"
_BEFORE_SUMMARY = (
    "The conversation history before this point was compacted into the following summary:"
    "\n\n<summary>\n"
)
_BEHIND_SUMMARY = "\n</summary>"
_NO_USAGE: Line = {
    "input": 0,
    "output": 0,
    "cacheRead": 0,
    "cacheWrite": 0,
    "totalTokens": 0,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
}


def build_relative_pi_session_path(working_folder: str, new_id: str, start_time: float) -> str:
    """Return the path, relative to `sessions`, of a session of this working folder."""
    without_root = re.sub(r"^[/\\]", "", working_folder)
    folder_name = re.sub(r"[/\\:]", "-", without_root)
    timestamp = re.sub("[:.]", "-", format_iso_time(start_time))
    return f"--{folder_name}--/{timestamp}_{new_id}.jsonl"


def build_pi_lines(
    session: RecordedSession, new_id: str, start_time: float
) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of the session's file. `new_id`: its id there."""
    yield {
        "type": "session",
        "version": 3,
        "id": new_id,
        "timestamp": format_iso_time(start_time),
        "cwd": session.folder,
    }
    previous_entry_id: str | None = None
    tool_by_call_id: dict[str, str] = {}
    for number, item in enumerate(list_session_items(session)):
        entry_id = f"{number:08x}"
        if isinstance(item, RecordedCompaction):
            entry = _new_entry("compaction", entry_id, previous_entry_id, item.time)
            entry["summary"] = _summary_without_frame(item.text)
            entry["firstKeptEntryId"] = entry_id
            entry["tokensBefore"] = 0
        elif item.beside:
            entry = _new_entry("custom_message", entry_id, previous_entry_id, item.time)
            entry["customType"] = "note"
            entry["content"] = _pi_content(item)
            entry["display"] = True
        else:
            entry = _new_entry("message", entry_id, previous_entry_id, item.time)
            entry["message"] = _pi_message(item, tool_by_call_id)
        yield entry
        previous_entry_id = entry_id
    if session.title:
        entry = _new_entry("session_info", "title", previous_entry_id, start_time)
        entry["name"] = session.title
        yield entry


def _summary_without_frame(text: str) -> str:
    """Return a summary without what pi puts around it whenever it sends it. The gateway records it
    as it was sent.
    """
    summary = text.strip()
    if summary.startswith(_BEFORE_SUMMARY) and summary.endswith(_BEHIND_SUMMARY):
        return summary.removeprefix(_BEFORE_SUMMARY).removesuffix(_BEHIND_SUMMARY)
    return text


def _new_entry(kind: str, entry_id: str, parent_id: str | None, time: float) -> Line:
    return {
        "type": kind,
        "id": entry_id,
        "parentId": parent_id,
        "timestamp": format_iso_time(time),
    }


def _pi_message(message: RecordedMessage, tool_by_call_id: dict[str, str]) -> Line:
    """Return the message as pi has it. Replies add their calls to `tool_by_call_id`, in which
    results look up their tool.
    """
    time_ms = round(message.time * 1000)
    if message.role == "assistant":
        for part in message.parts:
            if isinstance(part, ToolCall):
                tool_by_call_id[part.id] = with_plain_name(part).name
        reply = _pi_reply(message)
        reply["timestamp"] = time_ms
        return reply
    if message.role == "tool":
        call_id = plain_call_id(message.answers)
        tool_name = tool_by_call_id.get(message.answers, "tool")
        return {
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": tool_name,
            "content": _pi_content(message),
            "isError": not message.ok,
            "timestamp": time_ms,
        }
    return {"role": "user", "content": _pi_content(message), "timestamp": time_ms}


def _pi_content(message: RecordedMessage) -> list[Line]:
    content: list[Line] = []
    if message.text:
        content.append({"type": "text", "text": message.text})
    for picture in message.pictures:
        if is_image(picture):
            data = format_picture_data(picture)
            content.append({"type": "image", "data": data, "mimeType": picture.media_type})
        else:
            content.append({"type": "text", "text": describe_left_out_file(picture)})
    return content


def _pi_reply(message: RecordedMessage) -> Line:
    """Write a reply as pi records it: texts and calls, without the model's reasoning."""
    content: list[Line] = []
    for part in message.parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolCall):
            call = build_written_call(part)
            content.append(
                {
                    "type": "toolCall",
                    "id": call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                }
            )
    stop_reason = "stop"
    if message.calls:
        stop_reason = "toolUse"
    return {
        "role": "assistant",
        "content": content,
        "api": "anthropic-messages",
        # pi would go on with the last reply's provider if it knew it. It does not know this
        # name, so it asks the user's own default.
        "provider": "restored",
        "model": message.model,
        "usage": _NO_USAGE,
        "stopReason": stop_reason,
    }


def _path_below_pi_home(session_id: str, folder: str, _pi_home: Path, start_time: float) -> str:
    return f"sessions/{build_relative_pi_session_path(folder, session_id, start_time)}"


FORMAT = AgentFormat(
    pi_history.KIND,
    seen_version=SEEN_VERSION,
    resume="pi --session {}",
    variable="PI_CODING_AGENT_DIR",
    usual=".pi/agent",
    window=200_000,
    build_lines=build_pi_lines,
    path_of_session=_path_below_pi_home,
    id_fields="id",
    compaction=("type", "compaction"),
    kept_context=KeptContext.BESIDE,
    mcp_client="pi",
)
