"""Sessions of goose: the database `~/.local/share/goose/sessions/sessions.db`, and the
older `.jsonl` files.

Written from goose's public sources, and not tested with real files. A message that the
agent no longer sees (`agentVisible` is false) was summarised; the summary is a message
that only the agent sees.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
from helix_desktop.histories.foreign_sqlite import (
    ForeignConnection,
    parse_json_column,
    query_until_damage,
)
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedSession,
    build_recorded_reply,
)
from helix_desktop.json_values import first_text, number_at, object_at, objects_at, text_at

KIND = "goose"
TABLES = frozenset({"sessions", "messages"})
_CALLS = ("toolRequest", "frontendToolRequest")


def is_goose_row(value: Mapping[str, object]) -> bool:
    """Whether a row is from an older file: its head, or a message with a list of goose's parts."""
    return "working_dir" in value or (
        value.get("role") in ("user", "assistant") and "created" in value
    )


def read_goose_database(
    connection: ForeignConnection, path: Path, report: history_rows.ReadingReport
) -> Iterator[RecordedSession]:
    report.shape = KIND
    for session in query_until_damage(connection, "SELECT * FROM sessions", (), report, ("id",)):
        query = "SELECT * FROM messages WHERE session_id = ?"
        rows = []
        for row in query_until_damage(connection, query, [text_at(session, "id")], report, ("id",)):
            place = f"{path}, message {row.get('id')}"
            content = parse_json_column(
                f'{{"content": {row.get("content_json") or "[]"}}}', place, report
            )
            about = parse_json_column(row.get("metadata_json") or "{}", place, report)
            if content is not None:
                report.note_unknown_fields(content)
                value = {**row, **content.value, "metadata": about.value if about else {}}
                rows.append(
                    history_rows.HistoryRow(
                        {**value, "created": row.get("created_timestamp")}, place
                    )
                )
        yield _build_goose_recording(session, rows, f"{path}#{text_at(session, 'id')}", report)


def read_goose_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the session of an older file."""
    head = next((row.value for row in rows if "working_dir" in row.value), {})
    messages = [row for row in rows if "working_dir" not in row.value]
    return [_build_goose_recording({**head, "id": path.stem}, messages, str(path), report)]


def _build_goose_recording(
    session: Mapping[str, object],
    rows: Sequence[history_rows.HistoryRow],
    recording_name: str,
    report: history_rows.ReadingReport,
) -> RecordedSession:
    writing = _GooseMessages(report).read_rows(rows)
    identity, folder = text_at(session, "id"), text_at(session, "working_dir")
    title, compactions = first_text(session, "name", "description"), tuple(writing.compactions)
    return RecordedSession(
        recording_name, tuple(writing.made), KIND, identity, title, folder, compactions=compactions
    )


@dataclass(slots=True)
class _GooseMessages(history_rows.HistoryMessages):
    hidden: int = 0  # How many messages so far are hidden from the agent.

    def read_row(self, value: Mapping[str, object]) -> None:
        time, about = history_rows.parse_time(value.get("created")), object_at(value, "metadata")
        content = value.get("content")
        is_seen, is_shown = (
            about.get("agentVisible") is not False,
            about.get("userVisible") is not False,
        )
        if is_seen and not is_shown and self.hidden:
            text = history_rows.text_of_message_content(
                [part for part in objects_at(content) if part.get("type") == "text"]
            )
            if text:
                self.add_compaction(
                    text, time, "goose compacted the conversation here", self.hidden
                )
                self.hidden = 0
            return
        if value.get("role") == "assistant":
            parts = [found for part in objects_at(content) for found in _goose_reply_part(part)]
            if parts:
                self.made.append(build_recorded_reply(parts, time=time, usage=Usage()))
        elif value.get("role") == "user":
            self._read_goose_user(objects_at(content), time)
        else:
            raise history_rows.UnknownRow(f"there is no role {value.get('role')!r}")
        if not is_seen:
            self.hidden = len(self.made)

    def _read_goose_user(self, content: Sequence[Mapping[str, object]], time: float) -> None:
        for part in content:
            if part.get("type") == "toolResponse":
                self.made.append(_goose_result(part, time))
        words = [part for part in content if part.get("type") in ("text", "image")]
        self.add_user_message(words, time)


def _goose_reply_part(part: Mapping[str, object]) -> Iterator[ReplyPart]:
    kind = part.get("type")
    if kind in _CALLS:
        found = object_at(part, "toolCall")
        value = object_at(found, "value") or found
        name = text_at(value, "name") or "malformed"
        yield ToolCall(
            text_at(part, "id") or "call",
            name,
            history_rows.format_arguments(value.get("arguments")),
        )
    elif kind == "thinking":
        yield Reasoning(text_at(part, "thinking"))
    elif kind not in ("redactedThinking", "toolConfirmationRequest"):
        yield Text(history_rows.text_of_message_content([part]))


def _goose_result(part: Mapping[str, object], time: float) -> RecordedMessage:
    if not text_at(part, "id"):
        raise history_rows.UnreadableRow("a tool result names no call")
    found = object_at(part, "toolResult")
    value = found.get("value", found.get("error"))
    inner = object_at(value)
    content = inner.get("content", value) if inner else value
    text, pictures = history_rows.text_and_pictures(content)
    ok = (
        found.get("status") != "error"
        and not inner.get("isError")
        and number_at(inner, "error") == 0
    )
    return RecordedMessage(
        "tool", text, answers=text_at(part, "id"), ok=ok, time=time, pictures=pictures
    )
