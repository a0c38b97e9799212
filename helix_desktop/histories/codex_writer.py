"""Writes rollouts that Codex 0.171.0 resumes with `codex exec resume ID`. See `codex_history`.

Original lines that still exist are written unchanged, except for the session's id.
Otherwise each message and call is an item of the Responses API. A compaction is a
`compacted` line with the items that replace all earlier ones.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from helix_desktop.engine.agent_additions import SEALED_SUMMARY
from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.engine.request_building import with_plain_name
from helix_desktop.histories import codex_history, session_writing
from helix_desktop.histories.openai_chat_export import parse_arguments_object
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)
from helix_desktop.histories.session_writing import (
    AgentFormat,
    KeptContext,
    Line,
    format_iso_time,
    format_picture_url,
    list_session_items,
    plain_call_id,
)
from helix_desktop.json_values import object_at, parse_object, text_at

SEEN_VERSION = "0.171.0"
# Codex resumes with these, in place of what its user's settings say: without a sandbox, for example.
_FIELDS_WITH_PERMISSIONS = frozenset(
    {
        "active_permission_profile",
        "approval_policy",
        "approvals_reviewer",
        "network",
        "permission_profile",
        "requested_approvals_reviewer",
        "runtime_workspace_roots",
        "sandbox_policy",
    }
)
_GATEWAY_AS_PROVIDER = re.compile(rb'"model_provider":\s*"helix",\s*')
Item = dict[str, Any]


def rollout_path_below_sessions(new_id: str, time: float) -> str:
    """Return the path, relative to `sessions`, of a rollout that began at this time."""
    local_time = datetime.fromtimestamp(time).astimezone()
    return f"{local_time:%Y/%m/%d}/rollout-{local_time:%Y-%m-%dT%H-%M-%S}-{new_id}.jsonl"


def build_codex_lines(
    session: RecordedSession, new_id: str, start_time: float
) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of the session's rollout. `new_id`: its id there."""
    items = list(list_session_items(session))
    session_meta: Item = {
        "id": new_id,
        "session_id": new_id,
        "timestamp": format_iso_time(start_time),
        "cwd": session.folder,
        "originator": "codex_exec",
        "cli_version": SEEN_VERSION,
        "source": "exec",
        "helix_title": session.title,
    }
    if items and _is_system_prompt(items[0]):
        system_prompt = items.pop(0)
        session_meta["base_instructions"] = {"text": system_prompt.text}
    yield _rollout_line("session_meta", start_time, session_meta)

    custom_calls: set[str] = set()
    texts_of_user: list[str] = []
    for item in items:
        if isinstance(item, RecordedCompaction):
            yield _compaction_line(item, texts_of_user)
            continue
        if item.role == "user" and not item.beside:
            texts_of_user.append(item.text)
        for response_item in _message_items(item, custom_calls):
            yield _rollout_line("response_item", item.time, response_item)


def _is_system_prompt(item: RecordedMessage | RecordedCompaction) -> bool:
    return isinstance(item, RecordedMessage) and item.role == "system" and not item.beside


def _rollout_line(kind: str, time: float, payload: Item) -> Item:
    return {"timestamp": format_iso_time(time), "type": kind, "payload": payload}


def _compaction_line(compaction: RecordedCompaction, texts_of_user: Sequence[str]) -> Item:
    """Return the line of a compaction. Its text begins with the messages of the user that Codex
    had kept (`texts_of_user` are all before it). Each is a message of its own again, as Codex had
    sent it.
    """
    kept_texts: list[str] = []
    summary = compaction.text
    for text in texts_of_user:
        beginning = f"{text}\n\n"
        if text.strip() and summary.startswith(beginning):
            kept_texts.append(text)
            summary = summary.removeprefix(beginning)

    replacement_history: list[Item] = []
    for text in kept_texts + [summary]:
        content = [{"type": "input_text", "text": text}]
        replacement_history.append({"type": "message", "role": "user", "content": content})
    payload = {"message": summary, "replacement_history": replacement_history}
    return _rollout_line("compacted", compaction.time, payload)


def _message_items(message: RecordedMessage, custom_calls: set[str]) -> Iterator[Item]:
    """Yield a message as items of the Responses API. `custom_calls`: ids of calls that take text,
    not arguments. Replies add to it, results look it up.
    """
    if message.role == "assistant":
        yield from _reply_items(message, custom_calls)
        return
    content = _content_of_message(message)
    if message.role == "tool":
        output: object = message.text
        if message.pictures:
            output = content
        kind = "function_call_output"
        if message.answers in custom_calls:
            kind = "custom_tool_call_output"
        yield {"type": kind, "call_id": plain_call_id(message.answers), "output": output}
    elif message.role in ("user", "system") and content:
        role = "developer"
        if message.role == "user":
            role = "user"
        yield {"type": "message", "role": role, "content": content}
    for sealed_text in message.sealed:
        sealed_item = parse_object(sealed_text)
        # An import or a shared workspace may have brought anything.
        if sealed_item is not None:
            yield sealed_item


def _content_of_message(message: RecordedMessage) -> list[Item]:
    """Return a message's text and pictures. What stands for sealed items is not among its words,
    since these become items again.
    """
    content: list[Item] = []
    text = message.text
    for _ in message.sealed:
        text = text.replace(SEALED_SUMMARY, "", 1)
    if text.strip():
        content.append({"type": "input_text", "text": text})
    for picture in message.pictures:
        if session_writing.is_image(picture):
            content.append({"type": "input_image", "image_url": format_picture_url(picture)})
        else:
            left_out = session_writing.describe_left_out_file(picture)
            content.append({"type": "input_text", "text": left_out})
    return content


def _reply_items(message: RecordedMessage, custom_calls: set[str]) -> Iterator[Item]:
    """Yield the reasoning, the texts and the calls of a reply."""
    for part in message.parts:
        if isinstance(part, Reasoning) and part.opaque:
            sealed_reasoning = parse_object(part.opaque)
            if sealed_reasoning is not None:
                yield {"summary": [], **sealed_reasoning}
        elif isinstance(part, Text) and part.text.strip():
            content = [{"type": "output_text", "text": part.text}]
            yield {"type": "message", "role": "assistant", "content": content}
        elif isinstance(part, ToolCall):
            call_id = plain_call_id(part.id)
            patch = _text_given_to_custom_tool(part)
            if part.name == "apply_patch" and patch:
                custom_calls.add(part.id)
                yield {
                    "type": "custom_tool_call",
                    "call_id": call_id,
                    "name": part.name,
                    "input": patch,
                }
            else:
                yield {
                    "type": "function_call",
                    "call_id": call_id,
                    "name": with_plain_name(part).name,
                    "arguments": part.arguments,
                }


def _text_given_to_custom_tool(call: ToolCall) -> str:
    """Return the text given to a custom tool, or an empty string for a function."""
    arguments = parse_arguments_object(call.arguments)
    text = arguments.get("input")
    if set(arguments) != {"input"} or not isinstance(text, str):
        return ""
    return text


def _path_below_codex_home(
    session_id: str, _folder: str, _codex_home: Path, start_time: float
) -> str:
    return f"sessions/{rollout_path_below_sessions(session_id, start_time)}"


def _with_title_in_first_line(content: bytes, _session_id: str, title: str) -> bytes:
    """The first line's "payload" describes the session. The title becomes its first field.

    If the line names the gateway as the provider, that is left out: Codex refuses to resume the
    session where nobody has set up a provider with this name, and takes its usual one.
    """
    first_line, line_end, other_lines = content.partition(b"\n")
    first_line = _GATEWAY_AS_PROVIDER.sub(b"", first_line, count=1)
    beginning = re.search(rb'"payload":\s*\{', first_line)
    if beginning is not None:
        field = b'"helix_title":%b,' % json.dumps(title).encode()
        first_line = first_line[: beginning.end()] + field + first_line[beginning.end() :]
    return first_line + line_end + other_lines


def _without_thread_permissions(content: bytes) -> bytes:
    return session_writing.change_json_lines(content, _leave_thread_permissions_out)


def _leave_thread_permissions_out(line: Line) -> Line:
    if text_at(line, "type") == "turn_context":
        # It says what the model has been told. Codex takes no permission from it.
        return line
    payload = object_at(line, "payload")
    settings = object_at(payload, "thread_settings")
    kept_settings = _fields_without_permissions(settings)
    kept_payload = _fields_without_permissions(payload)
    if kept_settings == settings and kept_payload == payload:
        return line
    if settings:
        kept_payload["thread_settings"] = kept_settings
    return line | {"payload": kept_payload}


def _fields_without_permissions(fields: Mapping[str, Any]) -> Line:
    return {name: value for name, value in fields.items() if name not in _FIELDS_WITH_PERMISSIONS}


FORMAT = AgentFormat(
    codex_history.KIND,
    seen_version=SEEN_VERSION,
    resume="codex resume {}",
    variable="CODEX_HOME",
    usual=".codex",
    window=272_000,
    build_lines=build_codex_lines,
    path_of_session=_path_below_codex_home,
    provider=codex_history.TAG,
    id_fields="id|session_id|thread_id",
    compaction=("type", "compacted"),
    with_title=_with_title_in_first_line,
    kept_context=KeptContext.BESIDE_AND_SYSTEM,
    mcp_client="codex",
    without_permissions=_without_thread_permissions,
)
