"""Writes sessions that opencode 1.18.33 resumes with `opencode --session ID`.

A session is the document that `opencode export` writes and `opencode import` reads. If opencode
has a database, the rows are added to it in one transaction, and existing rows stay as they are.
"""

import itertools
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import Text, ToolCall
from helix_desktop.errors import NotFound, StoreFailed
from helix_desktop.histories import foreign_sqlite, opencode2_history, opencode_history
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
)
from helix_desktop.histories.session_writing import (
    AgentFormat,
    KeptContext,
    Line,
    build_written_call,
    format_picture_url,
    list_items_with_results,
)

VERSION_2 = "This opencode is version 2, and Helix Desktop can't give conversations back to it yet."
REMEDY_FOR_VERSION_2 = (
    "Nothing was changed. The conversation can be continued here or in another agent."
)
SEEN_VERSION = "1.18.33"
USUAL_MODEL = "claude-sonnet-4-5"
_PROVIDERS = {
    "claude": "anthropic",
    "gpt": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "google",
}
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NO_TOKENS: Line = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def create_opencode_id(kind: str, number: int = 0) -> str:
    """Create an id as opencode does. `number`: its place in the order. Without one, as for
    sessions, ids shrink with time.
    """
    if not number:
        # opencode counts 4,096 ids to the millisecond.
        number = ~round(time.time() * 1000 * 0x1000)
    moment = number & ((1 << 48) - 1)
    random_digits = "".join(_DIGITS[byte % 62] for byte in os.urandom(14))
    return f"{kind}_{moment:012x}{random_digits}"


def build_opencode_lines(
    session: RecordedSession, session_id: str, start_time: float
) -> Iterator[Line]:
    """Yield the document with the id `session_id`, as one line.

    Messages and their parts get ids that grow, as opencode sorts by them. A reply names the message
    of the user that it answers.
    """
    start_ms = round(start_time * 1000)
    messages: list[Line] = []
    last_time_ms = 0
    for item, results in list_items_with_results(session):
        # Times grow, so that opencode keeps the order of the messages.
        last_time_ms = max(last_time_ms + 1, round(item.time * 1000))
        for info, parts in _opencode_messages(item, results, session.folder, last_time_ms):
            messages.append({"info": info, "parts": parts})
    _give_ids(messages, session_id, start_ms)
    _name_models_of_replies([message["info"] for message in messages])
    title = session.title or _first_words_of_user(session)
    session_info = _session_info(session_id, session.folder, title, start_ms)
    yield {"info": session_info, "messages": messages}


def _give_ids(messages: Sequence[Line], session_id: str, start_ms: int) -> None:
    id_numbers = itertools.count(start_ms * 0x1000)
    last_user_message_id = ""
    for message in messages:
        info = message["info"]
        message_id = create_opencode_id("msg", next(id_numbers))
        if info["role"] == "user":
            last_user_message_id = message_id
        for part in message["parts"]:
            part["id"] = create_opencode_id("prt", next(id_numbers))
            part["sessionID"] = session_id
            part["messageID"] = message_id
        info["id"] = message_id
        info["sessionID"] = session_id
        info["parentID"] = last_user_message_id


def _session_info(session_id: str, folder: str, title: str, start_ms: int) -> Line:
    return {
        "id": session_id,
        "slug": f"restored-{session_id[-8:].lower()}",
        "projectID": "global",
        "directory": folder,
        "title": title,
        "version": SEEN_VERSION,
        "cost": 0,
        "tokens": _NO_TOKENS,
        "time": {"created": start_ms, "updated": start_ms},
    }


def build_document_of_kept_lines(
    lines: Iterable[bytes], session_id: str, title: str, start_time: float
) -> bytes:
    """Return the document with the messages that opencode itself wrote, as `opencode_history` keeps
    them. They get new ids, because the old ones may still be in the database.
    """
    folder = ""
    old_session_id = ""
    messages: list[Line] = []
    for line in lines:
        value = json.loads(line)
        if "session" in value:
            folder = value["session"].get("directory") or ""
            old_session_id = value["session"]["id"]
        else:
            messages.append(value)

    start_ms = round(start_time * 1000)
    id_numbers = itertools.count(start_ms * 0x1000)
    new_ids = {old_session_id: session_id}
    for message in messages:
        new_ids[message["info"]["id"]] = create_opencode_id("msg", next(id_numbers))
    renamed_messages = _with_new_ids(messages, new_ids)
    for message in renamed_messages:
        for part in message["parts"]:
            part["id"] = create_opencode_id("prt", next(id_numbers))
    info = _session_info(session_id, folder, title, start_ms)
    document = {"info": info, "messages": renamed_messages}
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _with_new_ids(value: Any, new_ids: Mapping[str, str]) -> Any:
    """Return the value with new ids wherever an old one is a whole text."""
    if isinstance(value, str):
        return new_ids.get(value, value)
    if isinstance(value, list):
        return [_with_new_ids(item, new_ids) for item in value]
    if isinstance(value, dict):
        return {name: _with_new_ids(item, new_ids) for name, item in value.items()}
    return value


def _name_models_of_replies(infos: list[Line]) -> None:
    """Give each reply a model and its provider: opencode refuses a reply without. It goes on with
    the model of the last user's message; without one, it asks the user's own default.
    """
    replies = [info for info in infos if info["role"] == "assistant"]
    last_named_model = USUAL_MODEL
    for info in replies:
        if info["modelID"]:
            last_named_model = info["modelID"]

    provider = ""
    for beginning_of_model, name in _PROVIDERS.items():
        if last_named_model.startswith(beginning_of_model):
            provider = name
    for info in replies:
        info["providerID"] = provider
        if not info["modelID"]:
            info["modelID"] = last_named_model


def _first_words_of_user(session: RecordedSession) -> str:
    for message in session.messages:
        if message.role == "user":
            return message.text[:80]
    return ""


def _opencode_messages(
    item: RecordedMessage | RecordedCompaction,
    results: Mapping[str, RecordedMessage],
    folder: str,
    time_ms: int,
) -> Iterator[tuple[Line, list[Line]]]:
    """Yield the messages of an item, each with its parts. A compaction is a message of the user
    and a reply.
    """
    user_info: Line = {"role": "user", "time": {"created": time_ms}, "agent": "build"}
    if isinstance(item, RecordedCompaction):
        yield user_info, [{"type": "compaction", "auto": False}]
        summary_info = _opencode_reply_info(RecordedMessage("assistant", ""), folder, time_ms)
        summary_info["summary"] = True
        summary_info["mode"] = "compaction"
        summary_info["agent"] = "compaction"
        yield summary_info, [_text_part(item.text)]
    elif item.role == "assistant":
        reply_info = _opencode_reply_info(item, folder, time_ms)
        yield reply_info, _parts_of_reply(item, results, time_ms)
    else:
        yield user_info, _parts_of_user_message(item)


def _parts_of_reply(
    reply: RecordedMessage, results: Mapping[str, RecordedMessage], time_ms: int
) -> list[Line]:
    """Return a reply's parts: a mark for its beginning, texts, and calls with their results."""
    texts: list[Line] = []
    tools: list[Line] = []
    for part in reply.parts:
        if isinstance(part, ToolCall):
            result = results.get(part.id)
            tools.append(_opencode_tool(part, result, time_ms))
        elif isinstance(part, Text) and part.text.strip():
            texts.append(_text_part(part.text))
    step_start: Line = {"type": "step-start"}
    return [step_start] + texts + tools


def _parts_of_user_message(message: RecordedMessage) -> list[Line]:
    """Return the parts of a message of the user: its text, and its pictures."""
    parts: list[Line] = []
    if message.text:
        text_part = _text_part(message.text)
        if message.beside:  # opencode's word for what the user did not write.
            text_part["synthetic"] = True
        parts.append(text_part)
    for picture in message.pictures:
        name = picture.name or "picture"
        parts.append(_picture_part(picture, name))
    return parts


def _picture_part(picture: RecordedPicture, name: str) -> Line:
    return {
        "type": "file",
        "mime": picture.media_type,
        "filename": name,
        "url": format_picture_url(picture),
    }


def _text_part(text: str) -> Line:
    return {"type": "text", "text": text}


def _opencode_reply_info(message: RecordedMessage, folder: str, time_ms: int) -> Line:
    """Return what opencode notes about a reply beside its parts. The model is named only if it
    begins with a provider's name that is known here.
    """
    model = ""
    if message.model.startswith(tuple(_PROVIDERS)):
        model = message.model
    finish = "stop"
    if message.calls:
        finish = "tool-calls"
    return {
        "role": "assistant",
        "mode": "build",
        "agent": "build",
        "path": {"cwd": folder, "root": folder},
        "cost": 0,
        "tokens": _NO_TOKENS,
        "modelID": model,
        "time": {"created": time_ms, "completed": time_ms},
        "finish": finish,
    }


def _opencode_tool(call: ToolCall, result: RecordedMessage | None, time_ms: int) -> Line:
    """Return a call with its result. Without one, it counts as interrupted."""
    written = build_written_call(call)
    state: Line = {
        "input": written.arguments,
        "time": {"start": time_ms, "end": time_ms},
    }
    if result is None:
        state["status"] = "error"
        state["error"] = "Interrupted"
    elif not result.ok:
        state["status"] = "error"
        state["error"] = result.text
    else:
        state["status"] = "completed"
        state["output"] = result.text
        state["title"] = ""
        state["metadata"] = {}
        state["attachments"] = [_picture_part(picture, picture.name) for picture in result.pictures]
    return {
        "type": "tool",
        "tool": written.name,
        "callID": written.id,
        "state": state,
    }


def insert_opencode_session(database: Path, content: bytes) -> None:
    """Add the session to opencode's own database. Raises NotFound or StoreFailed if
    that cannot be used.
    """
    document = json.loads(content)
    remedy = "Nothing was changed. Start opencode once, and try again."
    if database.is_symlink() or not foreign_sqlite.is_sqlite_file(database):
        raise NotFound(f"opencode has no database at {database}.", remedy=remedy)
    try:
        with closing(
            foreign_sqlite.connect_foreign_database(database, "rw", timeout=10.0)
        ) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.set_authorizer(foreign_sqlite.deny_triggers_and_views)
            connection.limit_time_of_next_statement()
            if opencode2_history.SESSIONS in foreign_sqlite.ordinary_table_names(connection):
                raise StoreFailed(VERSION_2, remedy=REMEDY_FOR_VERSION_2)
            with connection:
                connection.limit_time_of_next_statement()
                _insert_rows(connection, document)
    except sqlite3.Error as error:
        raise StoreFailed(f"opencode's database {database} did not accept the session: {error}.", remedy=remedy) from error  # fmt: skip


def _insert_rows(connection: sqlite3.Connection, document: Mapping[str, Any]) -> None:
    """Insert the rows of a session, its messages and their parts."""
    info = document["info"]
    session_id = info["id"]
    project_id = _find_or_insert_project(connection, info)
    session_row = {
        "id": session_id,
        "project_id": project_id,
        "slug": info["slug"],
        "directory": info["directory"],
        "title": info["title"],
        "version": info["version"],
        "time_created": info["time"]["created"],
        "time_updated": info["time"]["updated"],
    }
    _insert_row(connection, "session", session_row)
    for message in document["messages"]:
        message_info = message["info"]
        message_id = message_info["id"]
        message_time = message_info["time"]["created"]
        message_row = {
            "id": message_id,
            "session_id": session_id,
            "time_created": message_time,
            "time_updated": message_time,
            "data": _format_without_ids(message_info),
        }
        _insert_row(connection, "message", message_row)
        for part in message["parts"]:
            part_row = {
                "id": part["id"],
                "message_id": message_id,
                "session_id": session_id,
                "time_created": message_time,
                "time_updated": message_time,
                "data": _format_without_ids(part),
            }
            _insert_row(connection, "part", part_row)


def _find_or_insert_project(connection: sqlite3.Connection, info: Mapping[str, Any]) -> str:
    """Return the id of the folder's project, or of the one for all other folders."""
    query = "SELECT id FROM project WHERE worktree = ? UNION ALL SELECT id FROM project WHERE id = 'global'"
    project_row = connection.execute(query, [info["directory"]]).fetchone()
    if project_row is not None:
        project_id: str = project_row[0]
        return project_id
    # In a repository, opencode gives the folder's sessions to its project when it starts there.
    global_project = {
        "id": "global",
        "worktree": "/",
        "time_created": info["time"]["created"],
        "time_updated": info["time"]["updated"],
        "sandboxes": "[]",
    }
    _insert_row(connection, "project", global_project)
    return "global"


def _insert_row(connection: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    """Insert a row. The names of the table and of its columns are our own."""
    columns = ", ".join(row)
    placeholders = ", ".join("?" for _ in row)
    connection.execute(
        f"INSERT INTO {table} ({columns}) VALUES ({placeholders})",  # noqa: S608 -- our own names
        tuple(row.values()),
    )


def _format_without_ids(value: Line) -> str:
    """Return the value for its column, without the ids, which have their own columns."""
    without_ids = dict(value)
    for key in ("id", "sessionID", "messageID"):
        without_ids.pop(key, None)
    return json.dumps(without_ids)


def _create_id_of_session() -> str:
    return create_opencode_id("ses")


def _add_to_database(data_folder: Path, content: bytes) -> Path:
    database = data_folder / "opencode" / "opencode.db"
    insert_opencode_session(database, content)
    return database


FORMAT = AgentFormat(
    opencode_history.KIND,
    seen_version=SEEN_VERSION,
    resume="opencode --session {}",
    variable="XDG_DATA_HOME",
    usual=".local/share",
    window=200_000,
    build_lines=build_opencode_lines,
    add_to_store=_add_to_database,
    create_session_id=_create_id_of_session,
    kept_context=KeptContext.BESIDE,
    build_document_of_kept_lines=build_document_of_kept_lines,
    mcp_client="opencode",
)
