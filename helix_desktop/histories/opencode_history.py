"""Sessions of opencode: the database `~/.local/share/opencode/opencode.db`, and the
JSON files before it (`storage/`).

Tested with 1.18.33, and with 1.1.65 for the JSON files. A message has parts; a tool's part has both
the call and its result. A result that opencode cleared is only marked as cleared. A compaction is a
part of a message, and the reply to that message, which is marked `summary`, is the summary.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows, recorded_session
from helix_desktop.histories.companion_files import read_file_below
from helix_desktop.histories.foreign_sqlite import (
    ForeignConnection,
    parse_json_column,
    query_until_damage,
)
from helix_desktop.histories.opencode2_history import ids_of_opencode2_sessions
from helix_desktop.json_values import (
    first_text,
    number_at,
    object_at,
    objects_at,
    parse_json_or_none,
    text_at,
)

KIND = "opencode"
TABLES = frozenset({"session", "message", "part"})
CLEARED = "[Old tool result content cleared]"
_PARTS = "SELECT id, message_id, data FROM part WHERE session_id = ?"
_MESSAGES = "SELECT id, data, time_created FROM message WHERE session_id = ?"
Parts = Sequence[Mapping[str, object]]


def read_opencode_database(
    connection: ForeignConnection, path: Path, report: history_rows.ReadingReport
) -> Iterator[recorded_session.RecordedSession]:
    report.shape = KIND
    in_version_2 = ids_of_opencode2_sessions(connection)
    sessions = query_until_damage(connection, "SELECT * FROM session", (), report, ("id",))
    # A sub-agent's session comes behind the one that started it.
    for session in sorted(sessions, key=lambda row: row.get("parent_id") is not None):
        name = text_at(session, "id")
        if name in in_version_2:
            continue
        report.version = text_at(session, "version")
        parts = _read_parts_by_message(connection, name, path, report)
        messages = []
        rows = query_until_damage(connection, _MESSAGES, [name], report, ("time_created", "id"))
        for row in rows:
            message = parse_json_column(row["data"], f"{path}, message {row['id']}", report)
            if message is not None:
                own_parts = parts.get(text_at(row, "id"), [])
                messages.append(({"id": row["id"], **message.value}, own_parts))
        yield from _build_opencode_recordings(session, messages, path, report)


def _read_parts_by_message(
    connection: ForeignConnection, session: str, path: Path, report: history_rows.ReadingReport
) -> dict[str, list[Mapping[str, object]]]:
    parts: dict[str, list[Mapping[str, object]]] = {}
    for row in query_until_damage(connection, _PARTS, [session], report, ("message_id", "id")):
        part = parse_json_column(row["data"], f"{path}, part {row['id']}", report)
        if part is not None:
            parts.setdefault(text_at(row, "message_id"), []).append(part.value)
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
    messages: list[tuple[Mapping[str, object], Parts]] = []
    for file in sorted((storage / "message" / path.stem).glob("*.json")):
        message = _read_opencode_json(storage, file, report)
        if message is None:
            continue
        parts = []
        for part_file in sorted((storage / "part" / file.stem).glob("*.json")):
            part = _read_opencode_json(storage, part_file, report)
            if part:
                parts.append(part)
        messages.append((message, parts))
    messages.sort(key=lambda entry: _time_of_message(entry[0]))
    about = {**session, "parent_id": session.get("parentID")}
    yield from _build_opencode_recordings(about, messages, path, report)


def _time_of_message(message: Mapping[str, object]) -> float:
    return history_rows.parse_time(object_at(message, "time").get("created"))


def _read_opencode_json(
    storage: Path, path: Path, report: history_rows.ReadingReport
) -> Mapping[str, object] | None:
    content = b""
    with suppress(OSError):
        content = read_file_below(storage, str(path.relative_to(storage)))
    row = parse_json_column(content.decode("utf-8", "replace"), str(path), report)
    return row.value if row is not None else None


def _build_opencode_recordings(
    session: Mapping[str, object],
    found: Sequence[tuple[Mapping[str, object], Parts]],
    path: Path,
    report: history_rows.ReadingReport,
) -> Iterator[recorded_session.RecordedSession]:
    """Yield the session and, if its end was reverted, a branch that still has it."""
    back = _first_reverted_message_id(session)
    stands = sum(not back or text_at(message, "id") < back for message, _ in found)
    writing = _OpencodeMessages(report)
    for at, (message, parts) in enumerate(found):
        for value in (message, *parts):
            report.note_unknown_fields(history_rows.HistoryRow(value, str(path)))
        if at == stands:
            shared = len(writing.messages)
            yield _build_opencode_recording(session, writing, path)
        writing.read_opencode_message(message, parts)
    whole = _build_opencode_recording(session, writing, path)
    if stands == len(found):
        yield whole
        return
    name = f"{whole.session}#{back}"
    yield replace(
        whole, session=name, forked_from=whole.session, forked_at=shared, name=f"{path}#{name}"
    )


def _first_reverted_message_id(session: Mapping[str, object]) -> str:
    """Return the id of the first message that opencode hides now and deletes at the next prompt."""
    value = session.get("revert")
    return text_at(parse_json_or_none(value) if isinstance(value, str) else value, "messageID")


def _build_opencode_recording(
    session: Mapping[str, object], writing: "_OpencodeMessages", path: Path
) -> recorded_session.RecordedSession:
    return recorded_session.RecordedSession(
        f"{path}#{text_at(session, 'id')}",
        tuple(writing.messages),
        KIND,
        text_at(session, "id"),
        text_at(session, "title"),
        text_at(session, "directory"),
        text_at(session, "version"),
        tuple(writing.compactions),
        parent=text_at(session, "parent_id"),
    )


@dataclass(slots=True)
class _OpencodeMessages(history_rows.HistoryMessages):
    places: dict[str, int] = field(default_factory=dict)  # By message id: where it stands here.
    # By the id of the message that asked for a compaction: the first message that it keeps.
    first_kept: dict[str, str] = field(default_factory=dict)

    def read_opencode_message(self, message: Mapping[str, object], parts: Parts) -> None:
        time = _time_of_message(message)
        identity = text_at(message, "id")
        self.places[identity] = len(self.messages)
        if message.get("role") == "user":
            for part in parts:
                if part.get("type") == "compaction":
                    self.first_kept[identity] = text_at(part, "tail_start_id")
            self._read_opencode_user(parts, time)
        elif message.get("role") == "assistant" and message.get("summary"):
            self._read_opencode_compaction(message, parts, time)
        elif message.get("role") == "assistant":
            self._read_opencode_reply(message, parts, time)
        else:
            kind = f"message {message.get('role')}"
            self.report.add_left_out_row(kind, {**message, "parts": parts})

    def _read_opencode_compaction(
        self, message: Mapping[str, object], parts: Parts, time: float
    ) -> None:
        """Read a summary. The newest turns before it may stay behind it, word for word."""
        text = "\n".join(text_at(part, "text") for part in parts if part.get("type") == "text")
        if not self.messages or not text.strip():
            return
        first_kept = self.first_kept.get(text_at(message, "parentID"), "")
        keep = self.places.get(first_kept, len(self.messages))
        self.add_compaction(text, time, "opencode compacted the conversation here", keep)

    def _read_opencode_user(self, parts: Parts, time: float) -> None:
        texts: list[str] = []
        files: list[recorded_session.RecordedPicture] = []
        is_added = True  # Whether opencode added all of it.
        for part in parts:
            kind = part.get("type")
            if kind in ("text", "subtask"):
                if not part.get("ignored"):
                    texts.append(first_text(part, "text", "prompt"))
                    is_added = is_added and bool(part.get("synthetic"))
            elif kind == "file":
                file = _opencode_picture(part)
                if file is not None:
                    files.append(file)
            elif kind != "compaction":
                self.report.add_left_out_row(f"part {kind}", part)
        text = "\n".join(filter(None, texts))
        if text.strip() or files:
            beside = bool(texts) and is_added
            message = recorded_session.RecordedMessage(
                "user", text, time=time, pictures=tuple(files), beside=beside
            )
            self.messages.append(message)

    def _read_opencode_reply(
        self, message: Mapping[str, object], parts: Parts, time: float
    ) -> None:
        """Read a reply, whose calls contain their results. What follows them is another reply."""
        model = text_at(message, "modelID")
        written: list[ReplyPart] = []
        results: list[recorded_session.RecordedMessage] = []
        for part in parts:
            kind = part.get("type")
            if kind in ("step-start", "text", "reasoning") and results:
                self._add_opencode_reply(written, results, model, time)
            if kind == "text":
                if not part.get("ignored"):
                    written.append(Text(text_at(part, "text")))
            elif kind == "reasoning":
                written.append(Reasoning(text_at(part, "text")))
            elif kind == "tool":
                written.append(_opencode_call(part))
                results.extend(_opencode_result(part, time))
            elif kind not in ("step-start", "step-finish"):
                self.report.add_left_out_row(f"part {kind}", part)
        self._add_opencode_reply(written, results, model, time, _opencode_usage(message))
        error = object_at(message, "error")
        if error:
            why = text_at(error, "data", "message") or text_at(error, "name") or "error"
            self.messages.append(recorded_session.RecordedMessage("failure", why, time=time))

    def _add_opencode_reply(
        self,
        written: list[ReplyPart],
        results: list[recorded_session.RecordedMessage],
        model: str,
        time: float,
        usage: Usage | None = None,
    ) -> None:
        if any(
            isinstance(part, ToolCall) or (isinstance(part, Text) and part.text) for part in written
        ):
            self.messages.append(
                recorded_session.build_recorded_reply(written, model=model, time=time, usage=usage)
            )
            self.messages.extend(results)
            written.clear()
            results.clear()


def _opencode_call(part: Mapping[str, object]) -> ToolCall:
    arguments = history_rows.format_arguments(object_at(part, "state").get("input"))
    return ToolCall(_call_id_of_part(part), text_at(part, "tool") or "tool", arguments)


def _call_id_of_part(part: Mapping[str, object]) -> str:
    return first_text(part, "callID", "id") or "call"


def _opencode_result(
    part: Mapping[str, object], time: float
) -> Iterator[recorded_session.RecordedMessage]:
    state = object_at(part, "state")
    status = text_at(state, "status")
    if status not in ("completed", "error"):
        return
    files = []
    for attachment in objects_at(state, "attachments"):
        file = _opencode_picture(attachment)
        if file is not None:
            files.append(file)
    times = object_at(state, "time")
    yield recorded_session.RecordedMessage(
        "tool",
        first_text(state, "output", "error"),
        answers=_call_id_of_part(part),
        ok=status == "completed",
        time=history_rows.parse_time(times.get("end")) or time,
        pictures=tuple(files),
        shown=CLEARED if times.get("compacted") else "",
        child=first_text(object_at(state, "metadata"), "sessionId", "sessionID"),
    )


def _opencode_picture(part: Mapping[str, object]) -> recorded_session.RecordedPicture | None:
    picture = history_rows.picture_from_data_url(part.get("url"))
    if picture is None:
        return None
    return replace(picture, name=text_at(part, "filename"))


def _opencode_usage(message: Mapping[str, object]) -> Usage:
    tokens = object_at(message, "tokens")
    read = number_at(tokens, "cache", "read")
    write = number_at(tokens, "cache", "write")
    thoughts = number_at(tokens, "reasoning")
    return Usage(
        input=number_at(tokens, "input") + read + write,
        cache_read=read,
        cache_write=write,
        output=number_at(tokens, "output") + thoughts,
        reasoning=thoughts,
        cost=history_rows.cost_or_zero(message.get("cost")),
    )
