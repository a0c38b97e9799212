"""Sessions of opencode: the database `~/.local/share/opencode/opencode.db`, and the
JSON files before it (`storage/`).

Tested with 1.18.33, and with 1.1.65 for the JSON files. A message has parts; a tool's part has both
the call and its result. A result that opencode cleared is only marked as cleared. A compaction is a
part of a message, and the reply to that message, which is marked `summary`, is the summary.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows, opencode2_history, recorded_session
from helix_desktop.histories.companion_files import list_files_below, read_file_below
from helix_desktop.histories.foreign_sqlite import (
    ForeignConnection,
    is_sqlite_file,
    open_foreign_database,
    ordinary_table_names,
    parse_json_column,
    query_until_damage,
)
from helix_desktop.histories.history_format import (
    DatabaseTables,
    FoundSessionFile,
    HistoryFormat,
    HistoryPlaces,
)
from helix_desktop.json_values import (
    first_text,
    object_at,
    objects_at,
    parse_json_or_none,
    text_at,
)

KIND = "opencode"
TABLES = frozenset({"session", "message", "part"})
# Programs that were made from opencode and keep its tables, by the name of their folder.
_MADE_FROM_OPENCODE = {"kilo": "Kilo"}
_LARGEST_DESCRIPTION_BYTES = 64 << 20  # Files that only describe a session are smaller.
CLEARED = "[Old tool result content cleared]"
_PARTS = "SELECT id, message_id, data FROM part WHERE session_id = ?"
_MESSAGES = "SELECT id, data, time_created FROM message WHERE session_id = ?"
Parts = Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class MessageWithParts:
    message: Mapping[str, object]
    parts: Parts


def read_opencode_database(
    connection: ForeignConnection, path: Path, report: history_rows.ReadingReport
) -> Iterator[recorded_session.RecordedSession]:
    """Yield the sessions of version 1 that version 2 has not taken over."""
    report.shape = KIND
    in_version_2 = opencode2_history.ids_of_opencode2_sessions(connection)
    sessions = query_until_damage(connection, "SELECT * FROM session", (), report, ("id",))
    # A sub-agent's session comes behind the one that started it.
    sessions.sort(key=lambda row: row.get("parent_id") is not None)
    for session in sessions:
        session_id = text_at(session, "id")
        if session_id in in_version_2:
            continue
        report.version = text_at(session, "version")
        messages = _read_messages_with_parts(connection, session_id, path, report)
        yield from _build_opencode_recordings(session, messages, path, report)


def _read_messages_with_parts(
    connection: ForeignConnection, session: str, path: Path, report: history_rows.ReadingReport
) -> list[MessageWithParts]:
    """Return a session's messages in their order, without those that cannot be read."""
    parts_by_message = _read_parts_by_message(connection, session, path, report)
    messages: list[MessageWithParts] = []
    rows = query_until_damage(connection, _MESSAGES, [session], report, ("time_created", "id"))
    for row in rows:
        data = parse_json_column(row["data"], f"{path}, message {row['id']}", report)
        if data is not None:
            message: dict[str, object] = {"id": row["id"]}
            message.update(data.value)
            parts = parts_by_message.get(text_at(row, "id"), [])
            messages.append(MessageWithParts(message, parts))
    return messages


def _read_parts_by_message(
    connection: ForeignConnection, session: str, path: Path, report: history_rows.ReadingReport
) -> dict[str, list[Mapping[str, object]]]:
    parts: dict[str, list[Mapping[str, object]]] = {}
    for row in query_until_damage(connection, _PARTS, [session], report, ("message_id", "id")):
        part = parse_json_column(row["data"], f"{path}, part {row['id']}", report)
        if part is not None:
            message_id = text_at(row, "message_id")
            parts_of_message = parts.setdefault(message_id, [])
            parts_of_message.append(part.value)
    return parts


def is_opencode_file(path: Path) -> bool:
    """Whether it is an older session file: `storage/session/<project>/<id>.json`."""
    return (
        path.suffix == ".json"
        and path.stem.startswith("ses_")
        and path.parent.parent.name == "session"
    )


def read_opencode_file(
    path: Path, report: history_rows.ReadingReport
) -> Iterator[recorded_session.RecordedSession]:
    """Yield the session of an older file, with messages and parts from the folders beside it."""
    report.shape = KIND
    storage = path.parent.parent.parent
    session = _read_opencode_json(storage, path, report)
    if session is None:
        return
    messages: list[MessageWithParts] = []
    for file in sorted((storage / "message" / path.stem).glob("*.json")):
        message = _read_opencode_json(storage, file, report)
        if message is None:
            continue
        parts: list[Mapping[str, object]] = []
        for part_file in sorted((storage / "part" / file.stem).glob("*.json")):
            part = _read_opencode_json(storage, part_file, report)
            if part:
                parts.append(part)
        messages.append(MessageWithParts(message, parts))
    messages.sort(key=lambda entry: _time_of_message(entry.message))
    # The field has the name of the database's column.
    session_row = dict(session)
    session_row["parent_id"] = session.get("parentID")
    yield from _build_opencode_recordings(session_row, messages, path, report)


def _time_of_message(message: Mapping[str, object]) -> float:
    return history_rows.parse_time(object_at(message, "time").get("created"))


def _read_opencode_json(
    storage: Path, path: Path, report: history_rows.ReadingReport
) -> Mapping[str, object] | None:
    """Return the object in a file below `storage`, or None if it cannot be read, which is
    reported.
    """
    content = b""
    with suppress(OSError):
        content = read_file_below(storage, str(path.relative_to(storage)))
    row = parse_json_column(content.decode("utf-8", "replace"), str(path), report)
    if row is None:
        return None
    return row.value


def _build_opencode_recordings(
    session: Mapping[str, object],
    messages: Sequence[MessageWithParts],
    path: Path,
    report: history_rows.ReadingReport,
) -> Iterator[recorded_session.RecordedSession]:
    """Yield the session and, if its end was reverted, a branch that still has it."""
    for entry in messages:
        message_row = history_rows.HistoryRow(entry.message, str(path))
        report.note_unknown_fields(message_row)
        for part in entry.parts:
            part_row = history_rows.HistoryRow(part, str(path))
            report.note_unknown_fields(part_row)

    # The ids of messages grow, so those before the first reverted one are smaller.
    first_reverted_id = _first_reverted_message_id(session)
    standing_messages: list[MessageWithParts] = []
    reverted_messages: list[MessageWithParts] = []
    for entry in messages:
        if not first_reverted_id or text_at(entry.message, "id") < first_reverted_id:
            standing_messages.append(entry)
        else:
            reverted_messages.append(entry)

    reader = _OpencodeMessages(report)
    for entry in standing_messages:
        reader.read_opencode_message(entry.message, entry.parts)
    recording = _build_opencode_recording(session, reader, path)
    if not reverted_messages:
        kept_lines = _lines_to_keep(session, messages)
        yield replace(recording, lines=tuple(kept_lines))
        return

    yield recording

    for entry in reverted_messages:
        reader.read_opencode_message(entry.message, entry.parts)
    branch_id = f"{recording.session}#{first_reverted_id}"
    recording_to_the_end = _build_opencode_recording(session, reader, path)
    yield replace(
        recording_to_the_end,
        name=f"{path}#{branch_id}",
        session=branch_id,
        forked_from=recording.session,
        forked_at=len(recording.messages),
    )


def _lines_to_keep(
    session: Mapping[str, object], messages: Sequence[MessageWithParts]
) -> Iterator[bytes]:
    """Yield a line for the session, and one for each message with its parts, from which
    `opencode_writer` makes the same rows again.
    """
    yield _line_of_json({"session": session})
    for entry in messages:
        yield _line_of_json({"info": entry.message, "parts": entry.parts})


def _line_of_json(value: Mapping[str, object]) -> bytes:
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return line.encode("utf-8", "replace") + b"\n"


def read_opencode_lines(
    lines: Iterable[bytes], path: Path, report: history_rows.ReadingReport
) -> Iterator[recorded_session.RecordedSession]:
    """Yield the session of such lines."""
    session: Mapping[str, object] = {}
    messages: list[MessageWithParts] = []
    for line in lines:
        text = line.decode("utf-8", "replace")
        value = object_at(parse_json_or_none(text))
        if "session" in value:
            session = object_at(value, "session")
        else:
            message = object_at(value, "info")
            parts = objects_at(value.get("parts"))
            messages.append(MessageWithParts(message, parts))
    yield from _build_opencode_recordings(session, messages, path, report)


def _first_reverted_message_id(session: Mapping[str, object]) -> str:
    """Return the id of the first message that opencode hides now and deletes at the next prompt."""
    revert = session.get("revert")
    if isinstance(revert, str):
        revert = parse_json_or_none(revert)
    return text_at(revert, "messageID")


def _build_opencode_recording(
    session: Mapping[str, object], reader: "_OpencodeMessages", path: Path
) -> recorded_session.RecordedSession:
    """Return a session with the messages that were read so far."""
    session_id = text_at(session, "id")
    return recorded_session.RecordedSession(
        name=f"{path}#{session_id}",
        messages=tuple(reader.messages),
        kind=KIND,
        session=session_id,
        title=text_at(session, "title"),
        folder=text_at(session, "directory"),
        version=text_at(session, "version"),
        compactions=tuple(reader.compactions),
        parent=text_at(session, "parent_id"),
    )


@dataclass(slots=True)
class _OpencodeMessages(history_rows.HistoryMessages):
    message_index_by_id: dict[str, int] = field(default_factory=dict)
    # By the id of the message that asked for a compaction: the first message that it keeps.
    first_kept: dict[str, str] = field(default_factory=dict)

    def read_opencode_message(self, message: Mapping[str, object], parts: Parts) -> None:
        """Add a message of the user or the model, or a compaction.

        A compaction is two messages: the user's names the first message that is kept, and the
        reply after it (with `summary`) has the text.
        """
        time = _time_of_message(message)
        message_id = text_at(message, "id")
        self.message_index_by_id[message_id] = len(self.messages)
        role = message.get("role")
        if role == "user":
            for part in parts:
                if part.get("type") == "compaction":
                    self.first_kept[message_id] = text_at(part, "tail_start_id")
            self._read_opencode_user(parts, time)
        elif role == "assistant" and message.get("summary"):
            self._read_opencode_compaction(message, parts, time)
        elif role == "assistant":
            self._read_opencode_reply(message, parts, time)
        else:
            message_and_parts = dict(message)
            message_and_parts["parts"] = parts
            self.report.add_left_out_row(f"message {role}", message_and_parts)

    def _read_opencode_compaction(
        self, message: Mapping[str, object], parts: Parts, time: float
    ) -> None:
        """Read a summary. The newest turns before it may stay behind it, word for word."""
        texts: list[str] = []
        for part in parts:
            if part.get("type") == "text":
                texts.append(text_at(part, "text"))
        text = "\n".join(texts)
        if not self.messages or not text.strip():
            return
        first_kept = self.first_kept.get(text_at(message, "parentID"), "")
        keep = self.message_index_by_id.get(first_kept, len(self.messages))
        self.add_compaction(text, time, "opencode compacted the conversation here", keep)

    def _read_opencode_user(self, parts: Parts, time: float) -> None:
        """Add a message of the user. What opencode alone has added is beside the
        conversation.
        """
        texts: list[str] = []
        files: list[recorded_session.RecordedPicture] = []
        has_words_of_user = False
        for part in parts:
            kind = part.get("type")
            if kind in ("text", "subtask"):
                if part.get("ignored"):
                    continue
                texts.append(first_text(part, "text", "prompt"))
                if not part.get("synthetic"):  # opencode's word for what it added itself.
                    has_words_of_user = True
            elif kind == "file":
                file = _opencode_picture(part)
                if file is not None:
                    files.append(file)
            elif kind != "compaction":
                self.report.add_left_out_row(f"part {kind}", part)
        text = history_rows.join_nonempty_texts(texts, "\n")
        if text.strip() or files:
            is_beside = bool(texts) and not has_words_of_user
            message = recorded_session.RecordedMessage(
                "user", text, time=time, pictures=tuple(files), beside=is_beside
            )
            self.messages.append(message)

    def _read_opencode_reply(
        self, message: Mapping[str, object], parts: Parts, time: float
    ) -> None:
        """Read a reply, whose calls contain their results. What follows them is another reply."""
        model = text_at(message, "modelID")
        reply_parts: list[ReplyPart] = []
        results: list[recorded_session.RecordedMessage] = []
        for part in parts:
            kind = part.get("type")
            if kind in ("step-start", "text", "reasoning") and results:
                self._add_opencode_reply(reply_parts, results, model, time)
            if kind == "text":
                if not part.get("ignored"):
                    reply_parts.append(Text(text_at(part, "text")))
            elif kind == "reasoning":
                reply_parts.append(Reasoning(text_at(part, "text")))
            elif kind == "tool":
                reply_parts.append(_opencode_call(part))
                results.extend(_opencode_result(part, time))
            elif kind not in ("step-start", "step-finish"):
                self.report.add_left_out_row(f"part {kind}", part)
        usage = opencode2_history.read_usage_of_opencode(message)
        self._add_opencode_reply(reply_parts, results, model, time, usage)
        error = object_at(message, "error")
        if error:
            reason = text_at(error, "data", "message") or text_at(error, "name") or "error"
            failure = recorded_session.RecordedMessage("failure", reason, time=time)
            self.messages.append(failure)

    def _add_opencode_reply(
        self,
        reply_parts: list[ReplyPart],
        results: list[recorded_session.RecordedMessage],
        model: str,
        time: float,
        usage: Usage | None = None,
    ) -> None:
        """Add a reply with its results, unless it says and calls nothing, and empty both lists."""
        if not recorded_session.has_text_or_call(reply_parts):
            return
        reply = recorded_session.build_recorded_reply(
            reply_parts, model=model, time=time, usage=usage
        )
        self.messages.append(reply)
        self.messages.extend(results)
        reply_parts.clear()
        results.clear()


def _opencode_call(part: Mapping[str, object]) -> ToolCall:
    arguments = history_rows.format_arguments(object_at(part, "state").get("input"))
    return ToolCall(_call_id_of_part(part), text_at(part, "tool") or "tool", arguments)


def _call_id_of_part(part: Mapping[str, object]) -> str:
    return first_text(part, "callID", "id") or "call"


def _opencode_result(
    part: Mapping[str, object], time: float
) -> Iterator[recorded_session.RecordedMessage]:
    """Yield the result that a call contains, if it has ended."""
    state = object_at(part, "state")
    status = text_at(state, "status")
    if status not in ("completed", "error"):
        return
    pictures: list[recorded_session.RecordedPicture] = []
    for attachment in objects_at(state, "attachments"):
        picture = _opencode_picture(attachment)
        if picture is not None:
            pictures.append(picture)
    times = object_at(state, "time")
    end_time = history_rows.parse_time(times.get("end"))
    shown_text = ""
    if times.get("compacted"):
        shown_text = CLEARED
    output = first_text(state, "output", "error")
    child = first_text(object_at(state, "metadata"), "sessionId", "sessionID")
    yield recorded_session.RecordedMessage(
        "tool",
        output,
        answers=_call_id_of_part(part),
        ok=status == "completed",
        time=end_time or time,
        pictures=tuple(pictures),
        shown=shown_text,
        child=child,
    )


def _opencode_picture(part: Mapping[str, object]) -> recorded_session.RecordedPicture | None:
    picture = history_rows.picture_from_data_url(part.get("url"))
    if picture is None:
        return None
    return replace(picture, name=text_at(part, "filename"))


# --- Where its sessions are


def _list_opencode_folders(places: HistoryPlaces) -> Sequence[Path]:
    """Return opencode's folder, those of programs made from it, and those of databases that
    variables name.
    """
    data = places.data_folder()
    folders = [data / "opencode"]
    for name in _MADE_FROM_OPENCODE:
        folders.append(data / name)
    for variable in ("OPENCODE_DB", "KILO_DB"):
        folder = _folder_of_named_database(places, variable)
        if folder is not None and folder not in folders:
            folders.append(folder)
    return folders


def _folder_of_named_database(places: HistoryPlaces, variable: str) -> Path | None:
    """Return the folder of the database that a variable names, unless it is a folder with much
    else in it: the recorder looks at all that is in a folder of histories.
    """
    database = Path(places.variables.get(variable, ""))
    if not database.is_absolute() or database.suffix != ".db":
        return None
    folder = database.parent
    has_much_else = folder == places.home or folder in places.home.parents
    if has_much_else:
        return None
    return folder


def _opencode_session_queries(tables: Collection[str]) -> Iterator[str]:
    if "session" not in tables:
        return
    query = "SELECT directory, time_created, time_updated FROM session WHERE parent_id IS NULL"
    if opencode2_history.SESSIONS in tables:
        # Version 2 has taken these over.
        query += " AND id NOT IN (SELECT id FROM session_v2)"
    yield query


def _find_sessions_before_database(data: Path) -> Iterator[FoundSessionFile]:
    """Yield the sessions of versions before the database, which wrote a file for each."""
    for file in list_files_below(data / "storage" / "session", "ses_*.json"):
        with suppress(OSError):
            session_file = _describe_session_file(data, file)
            if session_file is not None:
                yield session_file


def _describe_session_file(data: Path, file: Path) -> FoundSessionFile | None:
    """Return what a file says of its session, or None for a sub-agent's."""
    path_within_data = str(file.relative_to(data))
    content = read_file_below(data, path_within_data, _LARGEST_DESCRIPTION_BYTES)
    description = object_at(parse_json_or_none(content))
    if description.get("parentID"):
        return None
    size = file.stat().st_size
    message_folder = data / "storage" / "message" / file.stem
    for message_file in list_files_below(message_folder, "*.json"):
        size += message_file.stat().st_size
    times = object_at(description, "time")
    start_time = history_rows.parse_time(times.get("created"))
    end_time = history_rows.parse_time(times.get("updated"))
    return FoundSessionFile(
        file,
        folder=text_at(description, "directory"),
        size=size,
        start_time=start_time,
        end_time=end_time,
    )


def is_opencode2_in_use(places: HistoryPlaces) -> bool:
    """Whether a database of opencode has the tables of version 2."""
    for folder in _list_opencode_folders(places):
        if folder.name in _MADE_FROM_OPENCODE:
            continue
        for database in folder.glob("*.db"):
            with suppress(sqlite3.Error, OSError):
                if not is_sqlite_file(database):
                    continue
                with open_foreign_database(database) as connection:
                    tables = ordinary_table_names(connection)
                if opencode2_history.SESSIONS in tables:
                    return True
    return False


FORMAT = HistoryFormat(
    KIND,
    recognizes_file=is_opencode_file,
    read_file=read_opencode_file,
    databases=[
        DatabaseTables(TABLES, read_opencode_database, _opencode_session_queries),
        opencode2_history.DATABASE,
    ],
    read_kept_lines=read_opencode_lines,
    folders=_list_opencode_folders,
    find_older_sessions=_find_sessions_before_database,
    made_from_it=_MADE_FROM_OPENCODE,
)
