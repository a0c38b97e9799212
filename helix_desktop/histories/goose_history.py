"""Sessions of goose: the database `~/.local/share/goose/sessions/sessions.db`, and the
older `.jsonl` files.

Written from goose's public sources, and not tested with real files. A message that the
agent no longer sees (`agentVisible` is false) was summarised; the summary is a message
that only the agent sees.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
from helix_desktop.histories.foreign_sqlite import (
    ForeignConnection,
    parse_json_column,
    query_until_damage,
)
from helix_desktop.histories.history_format import DatabaseTables, HistoryFormat, HistoryPlaces
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedSession,
    build_recorded_reply,
)
from helix_desktop.json_values import (
    first_text,
    number_at,
    object_at,
    objects_at,
    text_at,
    value_at,
)

KIND = "goose"
TABLES = frozenset({"sessions", "messages"})
_CALLS = ("toolRequest", "frontendToolRequest")


def is_goose_row(value: Mapping[str, object]) -> bool:
    """Whether a row is from an older file: its head, or a message with a list of goose's parts."""
    if "working_dir" in value:
        return True
    return value.get("role") in ("user", "assistant") and "created" in value


def read_goose_database(
    connection: ForeignConnection, path: Path, report: history_rows.ReadingReport
) -> Iterator[RecordedSession]:
    """Yield all sessions of a database of goose."""
    report.shape = KIND
    for session in query_until_damage(connection, "SELECT * FROM sessions", (), report, ("id",)):
        session_id = text_at(session, "id")
        query = "SELECT * FROM messages WHERE session_id = ?"
        rows: list[history_rows.HistoryRow] = []
        for message in query_until_damage(connection, query, [session_id], report, ("id",)):
            row = _row_of_stored_message(message, path, report)
            if row is not None:
                rows.append(row)
        yield _build_goose_recording(session, rows, f"{path}#{session_id}", report)


def _row_of_stored_message(
    message: Mapping[str, object], path: Path, report: history_rows.ReadingReport
) -> history_rows.HistoryRow | None:
    """Return a message of the database as a row of an older file would have it, or None if its
    content cannot be read.
    """
    place = f"{path}, message {message.get('id')}"
    # The column has a list, and only an object can be a row.
    list_of_parts = message.get("content_json") or "[]"
    content = parse_json_column(f'{{"content": {list_of_parts}}}', place, report)
    metadata_json = message.get("metadata_json") or "{}"
    metadata = parse_json_column(metadata_json, place, report)
    if content is None:
        return None
    parsed_columns = dict(content.value)
    parsed_columns["metadata"] = {}
    if metadata is not None:
        parsed_columns["metadata"] = metadata.value
    # The other columns of the table are checked with the table.
    report.note_unknown_fields(history_rows.HistoryRow(parsed_columns, place))
    value = dict(message)
    value.update(parsed_columns)
    value["created"] = message.get("created_timestamp")
    return history_rows.HistoryRow(value, place)


def read_goose_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the session of an older file."""
    session: dict[str, object] = {}
    message_rows: list[history_rows.HistoryRow] = []
    for row in rows:
        if "working_dir" not in row.value:
            message_rows.append(row)
        elif not session:  # The head of the file.
            session = dict(row.value)
    session["id"] = path.stem
    return [_build_goose_recording(session, message_rows, str(path), report)]


def _build_goose_recording(
    session: Mapping[str, object],
    rows: Sequence[history_rows.HistoryRow],
    recording_name: str,
    report: history_rows.ReadingReport,
) -> RecordedSession:
    """Return a session with the messages in these rows."""
    reader = _GooseMessages(report).read_rows(rows)
    return RecordedSession(
        name=recording_name,
        messages=tuple(reader.messages),
        kind=KIND,
        session=text_at(session, "id"),
        title=first_text(session, "name", "description"),
        folder=text_at(session, "working_dir"),
        compactions=tuple(reader.compactions),
    )


@dataclass(slots=True)
class _GooseMessages(history_rows.HistoryMessages):
    hidden: int = 0  # How many messages so far are hidden from the agent.

    def read_row(self, value: Mapping[str, object]) -> None:
        """Add a row's message. A summary is a row that only the agent sees, and counts as one
        only if messages before it are hidden from the agent.
        """
        time = history_rows.parse_time(value.get("created"))
        content = objects_at(value.get("content"))
        is_seen_by_agent = value_at(value, "metadata", "agentVisible") is not False
        is_shown_to_user = value_at(value, "metadata", "userVisible") is not False
        if is_seen_by_agent and not is_shown_to_user and self.hidden:
            self._read_goose_summary(content, time)
            return
        role = value.get("role")
        if role == "assistant":
            self._read_goose_reply(content, time)
        elif role == "user":
            self._read_goose_user(content, time)
        else:
            raise history_rows.UnknownRow(f"there is no role {role!r}")
        if not is_seen_by_agent:
            self.hidden = len(self.messages)

    def _read_goose_summary(self, content: Sequence[Mapping[str, object]], time: float) -> None:
        texts = [part for part in content if part.get("type") == "text"]
        summary = history_rows.text_of_message_content(texts)
        if summary:
            why = "goose compacted the conversation here"
            self.add_compaction(summary, time, why, self.hidden)
            self.hidden = 0

    def _read_goose_reply(self, content: Sequence[Mapping[str, object]], time: float) -> None:
        parts: list[ReplyPart] = []
        for part in content:
            parts.extend(_goose_reply_part(part))
        if parts:
            self.messages.append(build_recorded_reply(parts, time=time, usage=Usage()))

    def _read_goose_user(self, content: Sequence[Mapping[str, object]], time: float) -> None:
        for part in content:
            if part.get("type") == "toolResponse":
                self.messages.append(_goose_result(part, time))
        texts_and_images = [part for part in content if part.get("type") in ("text", "image")]
        self.add_user_message(texts_and_images, time)


def _goose_reply_part(part: Mapping[str, object]) -> Iterator[ReplyPart]:
    """Yield a part of a reply: a call, reasoning or text. Sealed reasoning and goose's own
    questions are left out.
    """
    kind = part.get("type")
    if kind in _CALLS:
        wrapped = object_at(part, "toolCall")
        call = object_at(wrapped, "value") or wrapped
        call_id = text_at(part, "id") or "call"
        name = text_at(call, "name") or "malformed"
        arguments = history_rows.format_arguments(call.get("arguments"))
        yield ToolCall(call_id, name, arguments)
    elif kind == "thinking":
        yield Reasoning(text_at(part, "thinking"))
    elif kind not in ("redactedThinking", "toolConfirmationRequest"):
        yield Text(history_rows.text_of_message_content([part]))


def _goose_result(part: Mapping[str, object], time: float) -> RecordedMessage:
    """Return the result of a call. A failed one may have an error in place of a value."""
    call_id = text_at(part, "id")
    if not call_id:
        raise history_rows.UnreadableRow("a tool result names no call")
    wrapped = object_at(part, "toolResult")
    value = wrapped.get("error")
    if "value" in wrapped:
        value = wrapped["value"]
    # The value is the content itself, or an object with it.
    result = object_at(value)
    content = result.get("content", value)
    text, pictures = history_rows.text_and_pictures(content)
    is_error = wrapped.get("status") == "error" or bool(result.get("isError"))
    has_error_number = number_at(result, "error") != 0
    is_ok = not is_error and not has_error_number
    return RecordedMessage("tool", text, answers=call_id, ok=is_ok, time=time, pictures=pictures)


def _list_goose_folders(places: HistoryPlaces) -> Sequence[Path]:
    return [places.data_folder() / "goose" / "sessions"]


def _goose_session_queries(tables: Collection[str]) -> Iterator[str]:
    if "sessions" in tables:
        yield "SELECT working_dir, created_at, updated_at FROM sessions"


FORMAT = HistoryFormat(
    KIND,
    recognizes=is_goose_row,
    read=read_goose_recordings,
    databases=[DatabaseTables(TABLES, read_goose_database, _goose_session_queries)],
    folders=_list_goose_folders,
    file_pattern="*.jsonl",
)
