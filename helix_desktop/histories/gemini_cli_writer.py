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
from helix_desktop.engine.request_building import with_plain_name
from helix_desktop.histories import session_writing
from helix_desktop.histories.companion_files import read_file_below
from helix_desktop.histories.openai_chat_export import parse_arguments_object
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)
from helix_desktop.histories.session_writing import Line, format_iso_time, format_picture_data
from helix_desktop.json_values import object_at, text_at

SEEN_VERSION = "0.61.0"
MARKER = ".project_root"
_UNHEARD = ("/", "?", "<session_context>", "<hook_context>")  # Gemini CLI hides such messages.


def choose_gemini_project_name(folders: Path, working_folder: str) -> str:
    """Return the name of the project folder that is marked for this working folder, or
    a new name.
    """
    listed: Mapping[str, object] = {}
    with suppress(OSError, ValueError):
        listed = object_at(json.loads(read_file_below(folders.parent, "projects.json")), "projects")
    known = text_at(listed, working_folder)
    owners = {
        one.name: _read_project_marker(one)
        for one in (folders.iterdir() if folders.is_dir() else ())
    }
    if known and owners.get(known, working_folder) in ("", working_folder):
        return known
    if found := next((name for name, owner in owners.items() if owner == working_folder), ""):
        return found
    begins = re.sub(r"[^a-z0-9]+", "-", Path(working_folder).name.lower()).strip("-") or "project"
    taken = {*owners, *map(str, listed.values())}
    return next(
        name
        for name in (begins, *(f"{begins}-{n}" for n in range(1, len(taken) + 2)))
        if name not in taken
    )


def _read_project_marker(place: Path) -> str:
    with suppress(OSError, ValueError):
        return read_file_below(place, MARKER).decode("utf-8").strip()
    return ""


def gemini_file_name(new_id: str, begun: float) -> str:
    return f"session-{format_iso_time(begun)[:16].replace(':', '-')}-{new_id[:8]}.jsonl"


def build_gemini_lines(
    session: RecordedSession, new_id: str, begun: float
) -> Iterator[Mapping[str, Any]]:
    when = {
        "startTime": format_iso_time(begun),
        "lastUpdated": format_iso_time(begun),
        "kind": "main",
    }
    project = hashlib.sha256(session.folder.encode()).hexdigest()
    yield {
        "sessionId": new_id,
        "projectHash": project,
        **when,
        **({"summary": session.title} if session.title else {}),
    }
    for number, (item, results) in enumerate(session_writing.list_items_with_results(session)):
        about: Line = {"id": f"{new_id}-{number}", "timestamp": format_iso_time(item.time)}
        if isinstance(item, RecordedCompaction):
            yield {
                "$set": {"messages": [{**about, "type": "user", "content": [{"text": item.text}]}]}
            }
        elif item.role == "assistant":
            yield {**about, "type": "gemini", **_gemini_reply(item, results)}
        else:
            yield {**about, "type": "user", "content": _gemini_content(item)}


def _gemini_content(message: RecordedMessage) -> list[Line]:
    """Return the message's content, behind a note if Gemini CLI would otherwise hide it."""
    note = [{"text": "[The user:]\n"}] if message.text.strip().startswith(_UNHEARD) else []
    return [*note, *([{"text": message.text}] if message.text else []), *_gemini_pictures(message)]


def _gemini_pictures(message: RecordedMessage) -> Iterator[Line]:
    for one in message.pictures:
        yield {"inlineData": {"mimeType": one.media_type, "data": format_picture_data(one)}}


def _gemini_reply(message: RecordedMessage, results: Mapping[str, RecordedMessage]) -> Line:
    words: list[Line] = [
        {"text": part.text} for part in message.parts if isinstance(part, Text) and part.text
    ]
    calls = [
        _gemini_call(part, results.get(part.id))
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    return {"content": words, "thoughts": [], "model": message.model, "toolCalls": calls}


def _gemini_call(call: ToolCall, result: RecordedMessage | None) -> Line:
    identity, name = session_writing.plain_call_id(call.id), with_plain_name(call).name
    about = {
        "id": identity,
        "name": name,
        "args": parse_arguments_object(call.arguments),
        "displayName": name,
    }
    if result is None:
        return {**about, "status": "cancelled"}
    said = {"output" if result.ok else "error": result.text}
    parts = [
        {"functionResponse": {"id": identity, "name": name, "response": said}},
        *_gemini_pictures(result),
    ]
    status, when = "success" if result.ok else "error", format_iso_time(result.time)
    return {
        **about,
        "result": parts,
        "status": status,
        "timestamp": when,
        "resultDisplay": result.text,
    }
