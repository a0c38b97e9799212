"""Writes rollouts that Codex 0.171.0 resumes with `codex exec resume ID`. See `codex_history`.

Original lines that still exist are written unchanged, except for the session's id.
Otherwise each message and call is an item of the Responses API. A compaction is a
`compacted` line with the items that replace all earlier ones.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.histories.openai_chat_export import parse_arguments_object
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)
from helix_desktop.histories.session_writing import (
    format_iso_time,
    format_picture_url,
    list_session_items,
    plain_call_id,
)

SEEN_VERSION = "0.171.0"
Item = dict[str, Any]


def rollout_path_below_sessions(new_id: str, time: float) -> str:
    """Return the path, relative to `sessions`, of a rollout that began at this time."""
    when = datetime.fromtimestamp(time).astimezone()
    return f"{when:%Y/%m/%d}/rollout-{when:%Y-%m-%dT%H-%M-%S}-{new_id}.jsonl"


def build_codex_lines(
    session: RecordedSession, new_id: str, begun: float
) -> Iterator[Mapping[str, Any]]:
    items = list(list_session_items(session))
    about: Item = {
        "id": new_id,
        "session_id": new_id,
        "timestamp": format_iso_time(begun),
        "cwd": session.folder,
        "originator": "codex_exec",
        "cli_version": SEEN_VERSION,
        "source": "exec",
        "helix_title": session.title,
    }
    first = items[0] if items else None
    if isinstance(first, RecordedMessage) and first.role == "system" and not first.beside:
        about["base_instructions"] = {"text": first.text}
        items = items[1:]
    yield {"timestamp": format_iso_time(begun), "type": "session_meta", "payload": about}
    custom: set[str] = set()
    typed: list[str] = []
    for item in items:
        if isinstance(item, RecordedCompaction):
            yield _compaction_line(item, typed)
            continue
        if item.role == "user" and not item.beside:
            typed.append(item.text)
        for written in _message_items(item, custom):
            yield {
                "timestamp": format_iso_time(item.time),
                "type": "response_item",
                "payload": written,
            }


def _compaction_line(compaction: RecordedCompaction, typed: Sequence[str]) -> Item:
    """Return the line of a compaction. Its text begins with the messages of the user that Codex
    had kept (`typed` are all before it). Each is a message of its own again, as Codex had sent it.
    """
    kept: list[str] = []
    summary = compaction.text
    for text in typed:
        if text.strip() and summary.startswith(f"{text}\n\n"):
            kept.append(text)
            summary = summary[len(text) + 2 :]
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        for text in [*kept, summary]
    ]
    payload = {"message": summary, "replacement_history": history}
    return {"timestamp": format_iso_time(compaction.time), "type": "compacted", "payload": payload}


def _message_items(message: RecordedMessage, custom_calls: set[str]) -> Iterator[Item]:
    """`custom_calls`: ids of calls that take text, not arguments. Replies add to it,
    results read it.
    """
    if message.role == "assistant":
        yield from _reply_items(message, custom_calls)
        return
    content: list[Item] = []
    if message.text.strip():
        content.append({"type": "input_text", "text": message.text})
    for picture in message.pictures:
        content.append({"type": "input_image", "image_url": format_picture_url(picture)})
    if message.role == "tool":
        output: object = message.text
        if message.pictures:
            output = content
        kind = "function_call_output"
        if message.answers in custom_calls:
            kind = "custom_tool_call_output"
        yield {"type": kind, "call_id": plain_call_id(message.answers), "output": output}
    elif message.role in ("user", "system") and content:
        role = "user" if message.role == "user" else "developer"
        yield {"type": "message", "role": role, "content": content}


def _reply_items(message: RecordedMessage, custom_calls: set[str]) -> Iterator[Item]:
    for part in message.parts:
        if isinstance(part, Reasoning) and part.opaque:
            yield {"summary": [], **json.loads(part.opaque)}
        elif isinstance(part, Text) and part.text.strip():
            content = [{"type": "output_text", "text": part.text}]
            yield {"type": "message", "role": "assistant", "content": content}
        elif isinstance(part, ToolCall):
            call: Item = {"call_id": plain_call_id(part.id), "name": part.name}
            patch = _text_given_to_custom_tool(part)
            if part.name == "apply_patch" and patch:
                custom_calls.add(part.id)
                yield {"type": "custom_tool_call", **call, "input": patch}
            else:
                yield {"type": "function_call", **call, "arguments": part.arguments}


def _text_given_to_custom_tool(call: ToolCall) -> str:
    """Return the text given to a custom tool, or an empty string for a function."""
    arguments = parse_arguments_object(call.arguments)
    text = arguments.get("input")
    if set(arguments) != {"input"} or not isinstance(text, str):
        return ""
    return text
