"""Writes sessions that Gemini CLI 0.61.0 resumes with `gemini --resume ID`.

A reply's record contains its calls and results. Gemini CLI itself also writes each
result as a message, which its provider refuses on a resume, so original lines are never
used. A compaction replaces the whole history.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import Text, ToolCall
from helix_desktop.histories import gemini_cli_history, session_writing
from helix_desktop.histories.companion_files import read_file_below
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)
from helix_desktop.histories.session_writing import (
    AgentFormat,
    Line,
    format_iso_time,
    format_picture_data,
)
from helix_desktop.json_values import object_at, text_at

SEEN_VERSION = "0.61.0"
MARKER = ".project_root"
# Gemini CLI hides messages that begin so.
_HIDDEN_BEGINNINGS = ("/", "?", "<session_context>", "<hook_context>")


def choose_gemini_project_name(folders: Path, working_folder: str) -> str:
    """Return the name of the project folder that is marked for this working folder, or
    a new name.
    """
    name_by_working_folder: Mapping[str, object] = {}
    with suppress(OSError, ValueError):  # Gemini CLI may not have written its list yet.
        listed_projects = json.loads(read_file_below(folders.parent, "projects.json"))
        name_by_working_folder = object_at(listed_projects, "projects")
    owner_by_name: dict[str, str] = {}
    if folders.is_dir():
        for project_folder in folders.iterdir():
            owner_by_name[project_folder.name] = _read_project_marker(project_folder)

    listed_name = text_at(name_by_working_folder, working_folder)
    if listed_name:
        # A listed name counts unless the project folder is marked for another working folder.
        owner = owner_by_name.get(listed_name, "")
        if owner in ("", working_folder):
            return listed_name
    for name, owner in owner_by_name.items():
        if owner == working_folder and name:
            return name

    folder_name = Path(working_folder).name.lower()
    new_name = re.sub(r"[^a-z0-9]+", "-", folder_name).strip("-") or "project"
    used_names = set(owner_by_name)
    for used_name in name_by_working_folder.values():
        used_names.add(str(used_name))
    return _add_number_if_used(new_name, used_names)


def _add_number_if_used(name: str, used_names: set[str]) -> str:
    if name not in used_names:
        return name
    number = 1
    while f"{name}-{number}" in used_names:
        number += 1
    return f"{name}-{number}"


def _read_project_marker(project_folder: Path) -> str:
    """Return the working folder that a project folder is marked for, or an empty string."""
    with suppress(OSError, ValueError):
        return read_file_below(project_folder, MARKER).decode("utf-8").strip()
    return ""


def gemini_file_name(new_id: str, start_time: float) -> str:
    """Return a name like `session-2026-11-21T03-33-1a2b3c4d.jsonl`."""
    minute = format_iso_time(start_time)[: len("2026-11-21T03:33")]
    return f"session-{minute.replace(':', '-')}-{new_id[:8]}.jsonl"


def build_gemini_lines(
    session: RecordedSession, new_id: str, start_time: float
) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of the session's file. `new_id`: its id there."""
    header: Line = {
        "sessionId": new_id,
        "projectHash": hashlib.sha256(session.folder.encode()).hexdigest(),
        "startTime": format_iso_time(start_time),
        "lastUpdated": format_iso_time(start_time),
        "kind": "main",
    }
    if session.title:
        header["summary"] = session.title
    yield header
    items_with_results = session_writing.list_items_with_results(session)
    for number, (item, results) in enumerate(items_with_results):
        message: Line = {"id": f"{new_id}-{number}", "timestamp": format_iso_time(item.time)}
        if isinstance(item, RecordedCompaction):
            message["type"] = "user"
            message["content"] = [{"text": item.text}]
            # The summary takes the place of all messages before it.
            yield {"$set": {"messages": [message]}}
        elif item.role == "assistant":
            message["type"] = "gemini"
            message.update(_gemini_reply(item, results))
            yield message
        else:
            message["type"] = "user"
            message["content"] = _gemini_content(item)
            yield message


def _gemini_content(message: RecordedMessage) -> list[Line]:
    """Return the message's content, behind a note if Gemini CLI would otherwise hide it."""
    content: list[Line] = []
    if message.text.strip().startswith(_HIDDEN_BEGINNINGS):
        content.append({"text": "[The user:]\n"})
    if message.text:
        content.append({"text": message.text})
    content.extend(_gemini_pictures(message))
    return content


def _gemini_pictures(message: RecordedMessage) -> Iterator[Line]:
    for picture in message.pictures:
        data = format_picture_data(picture)
        yield {"inlineData": {"mimeType": picture.media_type, "data": data}}


def _gemini_reply(message: RecordedMessage, results: Mapping[str, RecordedMessage]) -> Line:
    texts: list[Line] = []
    calls: list[Line] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            calls.append(_gemini_call(part, results.get(part.id)))
        elif isinstance(part, Text) and part.text:
            texts.append({"text": part.text})
    return {"content": texts, "thoughts": [], "model": message.model, "toolCalls": calls}


def _gemini_call(call: ToolCall, result: RecordedMessage | None) -> Line:
    """Return a call with its result, or as cancelled if it has none."""
    written = session_writing.build_written_call(call)
    line: Line = {
        "id": written.id,
        "name": written.name,
        "args": written.arguments,
        "displayName": written.name,
    }
    if result is None:
        line["status"] = "cancelled"
        return line
    if result.ok:
        status = "success"
        response = {"output": result.text}
    else:
        status = "error"
        response = {"error": result.text}
    answer = {"id": written.id, "name": written.name, "response": response}
    parts: list[Line] = [{"functionResponse": answer}]
    parts.extend(_gemini_pictures(result))
    line["result"] = parts
    line["status"] = status
    line["timestamp"] = format_iso_time(result.time)
    line["resultDisplay"] = result.text
    return line


def _path_below_gemini_home(
    session_id: str, folder: str, gemini_home: Path, start_time: float
) -> str:
    project = choose_gemini_project_name(gemini_home / ".gemini" / "tmp", folder)
    return f".gemini/tmp/{project}/chats/{gemini_file_name(session_id, start_time)}"


def _path_of_project_marker(path_of_session: str) -> str:
    project_folder, _, _ = path_of_session.partition("/chats/")
    return f"{project_folder}/{MARKER}"


FORMAT = AgentFormat(
    gemini_cli_history.KIND,
    seen_version=SEEN_VERSION,
    resume="gemini --resume {}",
    variable="GEMINI_CLI_HOME",
    usual="",
    window=1_000_000,
    build_lines=build_gemini_lines,
    path_of_session=_path_below_gemini_home,
    path_of_marker=_path_of_project_marker,
    mcp_client="gemini",
)
