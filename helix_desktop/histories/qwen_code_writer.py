"""Writes sessions of Qwen Code: `~/.qwen/projects/<project>/chats/<session>.jsonl`, a record a line.

Tested with 0.24.4. Each record names the one before it. A compression is a record with the history
that the model sees from then on.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import Text, ToolCall
from helix_desktop.histories import qwen_code_history, session_writing
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
    list_session_items,
    plain_call_id,
)
from helix_desktop.json_values import text_at

SEEN_VERSION = "0.24.4"
_MESSAGES = ("user", "assistant", "tool_result")
# Other records of the program make Qwen Code do something when it resumes: it goes on with a goal by
# itself, takes another model, or has other sources.
_HARMLESS_RECORDS = ("chat_compression", "custom_title", "ui_telemetry", "rewind")
# What a record needs so that others can follow it.
_FIELDS_OF_PLACE = ("uuid", "parentUuid", "sessionId", "timestamp", "type", "cwd", "version")
_NOT_IN_FOLDER_NAME = re.compile(r"[^a-zA-Z0-9]")


def build_qwen_lines(
    session: RecordedSession, new_id: str, _start_time: float
) -> Iterator[Mapping[str, Any]]:
    """Yield the records of the session's file. `new_id`: its id there."""
    name_by_call: dict[str, str] = {}
    previous_id: str | None = None
    for number, item in enumerate(list_session_items(session)):
        record_id = f"{new_id}-{number}"
        record = _new_record(session, new_id, record_id, previous_id, item.time)
        if isinstance(item, RecordedCompaction):
            record.update(_compression_record(item))
        elif item.role == "assistant":
            record.update(_reply_record(item, name_by_call))
        elif item.role == "tool":
            record.update(_result_record(item, name_by_call))
        else:
            record["type"] = "user"
            record["message"] = {"role": "user", "parts": _parts_of_message(item)}
        yield record
        previous_id = record_id
    if session.title and previous_id is not None:
        last_time = session.messages[-1].time
        record = _new_record(session, new_id, f"{new_id}-title", previous_id, last_time)
        record["type"] = "system"
        record["subtype"] = "custom_title"
        record["systemPayload"] = {"customTitle": session.title}
        yield record


def _new_record(
    session: RecordedSession, new_id: str, record_id: str, previous_id: str | None, time: float
) -> Line:
    """Return what every record begins with: its place in the session."""
    return {
        "uuid": record_id,
        "parentUuid": previous_id,
        "sessionId": new_id,
        "timestamp": format_iso_time(time),
        "cwd": session.folder,
        "version": session.version or SEEN_VERSION,
    }


def _compression_record(compaction: RecordedCompaction) -> Line:
    summary = {"role": "user", "parts": [{"text": compaction.text}]}
    return {
        "type": "system",
        "subtype": "chat_compression",
        "systemPayload": {"compressedHistory": [summary]},
    }


def _reply_record(reply: RecordedMessage, name_by_call: dict[str, str]) -> Line:
    parts: list[Line] = []
    for part in reply.parts:
        if isinstance(part, Text) and part.text:
            parts.append({"text": part.text})
        elif isinstance(part, ToolCall):
            call = session_writing.build_written_call(part)
            name_by_call[call.id] = call.name
            parts.append(
                {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
            )
    return {
        "type": "assistant",
        "model": reply.model,
        "message": {"role": "model", "parts": parts},
    }


def _result_record(result: RecordedMessage, name_by_call: Mapping[str, str]) -> Line:
    call_id = plain_call_id(result.answers)
    response = {"output": result.text}
    if not result.ok:
        response = {"error": result.text}
    answer: Line = {"id": call_id, "name": name_by_call.get(call_id, ""), "response": response}
    pictures = _picture_parts(result)
    if pictures:
        answer["parts"] = pictures
    return {
        "type": "tool_result",
        "message": {"role": "user", "parts": [{"functionResponse": answer}]},
    }


def _parts_of_message(message: RecordedMessage) -> list[Line]:
    parts: list[Line] = []
    if message.text:
        parts.append({"text": message.text})
    parts.extend(_picture_parts(message))
    return parts


def _picture_parts(message: RecordedMessage) -> list[Line]:
    parts: list[Line] = []
    for picture in message.pictures:
        data = format_picture_data(picture)
        parts.append({"inlineData": {"mimeType": picture.media_type, "data": data}})
    return parts


def _without_what_it_does_by_itself(content: bytes) -> bytes:
    """Return the records with nothing that the program would do by itself when it resumes.

    A reader of lines may take a carriage return, which is a blank in JSON, for the end of a record.
    """
    content_without_returns = content.replace(b"\r", b" ")
    return session_writing.change_json_lines(content_without_returns, _make_record_harmless)


def _make_record_harmless(record: Line) -> Line | None:
    """Return the record, or what is left of it: others follow it by its id."""
    kind = text_at(record, "type")
    if kind in _MESSAGES:
        return record
    if kind != "system":
        return None
    if text_at(record, "subtype") in _HARMLESS_RECORDS:
        return record
    return {name: record[name] for name in _FIELDS_OF_PLACE if name in record}


def _path_below_qwen_home(
    session_id: str, folder: str, _qwen_folder: Path, _start_time: float
) -> str:
    project = _NOT_IN_FOLDER_NAME.sub("-", folder)
    return f"projects/{project}/chats/{session_id}.jsonl"


FORMAT = AgentFormat(
    qwen_code_history.KIND,
    seen_version=SEEN_VERSION,
    resume="qwen --resume {}",
    variable="QWEN_HOME",
    usual=".qwen",
    window=1_000_000,
    build_lines=build_qwen_lines,
    path_of_session=_path_below_qwen_home,
    id_fields="sessionId",
    compaction=("subtype", "chat_compression"),
    without_permissions=_without_what_it_does_by_itself,
    mcp_client="qwen-code",
)
