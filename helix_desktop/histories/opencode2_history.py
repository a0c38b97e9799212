"""Sessions of OpenCode 2: the tables `session_v2` and `session_message` of its database.

Written from OpenCode's public source (2.0 to 2.2), and not tested with a real database:
no registry has that version yet. A message is one row, with its parts in `content`; a
tool's part has both the call and its result. A compaction has a summary and the newest
messages as text. Sessions of version 1 that 2 took over are in the older tables, too.
Early versions of 2 kept their sessions in the table `session`.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
from helix_desktop.histories.foreign_sqlite import (
    ForeignConnection,
    ordinary_table_names,
    parse_json_column,
    query_rows,
    query_until_damage,
)
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)
from helix_desktop.json_values import (
    first_text,
    number_at,
    object_at,
    objects_at,
    parse_json_or_none,
    text_at,
)

KIND = "opencode"
SESSIONS = "session_v2"
TABLES = frozenset({"session_message"})
_MESSAGES = "SELECT id, type, seq, data FROM session_message WHERE session_id = ?"
# Sessions that have messages here. The others are of version 1, and in its own tables.
_WITH_MESSAGES = (
    "SELECT DISTINCT session_id AS id FROM session_message WHERE type IN ('user', 'assistant')"
)


def ids_of_opencode2_sessions(connection: ForeignConnection) -> frozenset[str]:
    """Return the sessions that have messages in the tables of version 2."""
    tables = ordinary_table_names(connection)
    if not tables >= TABLES:
        return frozenset()
    ids = {text_at(row, "id") for row in query_rows(connection, _WITH_MESSAGES)}
    if SESSIONS in tables:
        ids |= {text_at(row, "id") for row in query_rows(connection, "SELECT id FROM session_v2")}
    return frozenset(ids)


def read_opencode2_database(
    connection: ForeignConnection, path: Path, report: history_rows.ReadingReport
) -> Iterator[RecordedSession]:
    ids = ids_of_opencode2_sessions(connection)
    tables = ordinary_table_names(connection) & {SESSIONS, "session"}
    rows: dict[str, Mapping[str, object]] = {}
    for table in sorted(tables):  # What is in both is newer in `session_v2`.
        query = f"SELECT * FROM {table}"  # noqa: S608 -- one of two names
        for row in query_until_damage(connection, query, (), report, ("time_created", "id")):
            rows[text_at(row, "id")] = row
    messages_by_session: dict[str, tuple[RecordedMessage, ...]] = {}
    # A sub-agent's session comes behind the one that started it, and a fork behind its source.
    for session in sorted(rows.values(), key=lambda row: row.get("parent_id") is not None):
        name = text_at(session, "id")
        if name not in ids:
            continue
        report.shape = f"{KIND}-2"
        report.version = text_at(session, "version")
        for recording in _read_session(connection, session, path, report):
            messages_by_session[recording.session] = recording.messages
            source_name = text_at(session, "fork_session_id")
            source_messages = messages_by_session.get(source_name, ())
            yield _with_shared_beginning(recording, session, source_messages)


def _read_session(
    connection: ForeignConnection,
    session: Mapping[str, object],
    path: Path,
    report: history_rows.ReadingReport,
) -> Iterator[RecordedSession]:
    """Yield the session and, if its end was reverted, a branch that still has it."""
    name = text_at(session, "id")
    hidden_from = _first_reverted_id_of_version_2(session)
    reader = _Opencode2Messages(report)
    without_messages = RecordedSession(
        f"{path}#{name}",
        (),
        KIND,
        name,
        text_at(session, "title"),
        text_at(session, "directory"),
        text_at(session, "version"),
        parent=text_at(session, "parent_id"),
    )
    before_revert: RecordedSession | None = None
    for row in query_until_damage(connection, _MESSAGES, [name], report, ("seq", "id")):
        value = parse_json_column(row["data"], f"{path}, message {row['id']}", report)
        if hidden_from and row["id"] == hidden_from:
            before_revert = _with_messages(without_messages, reader)
        if value is not None:
            # The id and the type are in columns of their own.
            columns = {"id": row["id"], "type": row["type"]}
            complete_row = replace(value, value={**value.value, **columns})
            report.note_unknown_fields(complete_row)
            reader.read_rows([complete_row])
    if before_revert is None:
        yield _with_messages(without_messages, reader)
        return
    yield before_revert
    branch = f"{name}#{hidden_from}"
    yield replace(
        _with_messages(without_messages, reader),
        name=f"{path}#{branch}",
        session=branch,
        forked_from=name,
        forked_at=len(before_revert.messages),
    )


def _with_messages(session: RecordedSession, reader: "_Opencode2Messages") -> RecordedSession:
    compactions = tuple(reader.compactions)
    return replace(session, messages=tuple(reader.messages), compactions=compactions)


def _first_reverted_id_of_version_2(session: Mapping[str, object]) -> str:
    """Return the id of the first message that opencode hides now and deletes at the next prompt."""
    value = session.get("revert")
    return text_at(parse_json_or_none(value) if isinstance(value, str) else value, "messageID")


def _with_shared_beginning(
    recording: RecordedSession, session: Mapping[str, object], source: Sequence[RecordedMessage]
) -> RecordedSession:
    """Return a fork with the number of messages that it shares with its source."""
    shared = 0
    for own, other in zip(recording.messages, source, strict=False):
        if (own.role, own.text, own.calls) != (other.role, other.text, other.calls):
            break
        shared += 1
    if not shared or recording.forked_from:
        return recording
    return replace(recording, forked_from=text_at(session, "fork_session_id"), forked_at=shared)


@dataclass(slots=True)
class _Opencode2Messages(history_rows.HistoryMessages):
    time: float = field(default=0.0)

    def read_row(self, value: Mapping[str, object]) -> None:
        self.time = history_rows.parse_time(object_at(value, "time").get("created"))
        kind = value.get("type")
        if kind == "user":
            self._read_user(value)
        elif kind == "assistant":
            self._read_reply(value)
        elif kind == "compaction":
            self._read_compaction(value)
        elif kind in ("synthetic", "skill"):
            self.add_user_message(text_at(value, "text"), self.time, beside=True)
        elif kind == "system":
            text = text_at(value, "text")
            self.messages.append(RecordedMessage("system", text, time=self.time, beside=True))
        elif kind == "shell":
            self._read_shell_command(value)
        elif kind == "location-switched":
            folder = text_at(value, "location", "directory")
            text = f"The working directory has been changed to {folder}."
            self.add_user_message(text, self.time, beside=True)
        else:
            self.report.add_left_out_row(f"message {kind}")

    def report_unknown_parts(self, value: Mapping[str, object]) -> None:
        """Nothing: the parts of a reply have kinds of their own, and `_read_reply` knows them."""

    def _read_user(self, value: Mapping[str, object]) -> None:
        texts = [text_at(skill, "text") for skill in objects_at(value, "skills")]
        texts.append(text_at(value, "text"))
        pictures = []
        for file in objects_at(value, "files"):
            content = _content_of_file(file)
            name = first_text(file, "name", "filename", "uri")
            if content is None:
                self.report.add_left_out_row("file of a message", file)
            elif text_at(file, "mime").startswith("text/"):
                texts.append(f"Attached file: {name}\n\n{content.decode('utf-8', 'replace')}")
            else:
                pictures.append(RecordedPicture(text_at(file, "mime"), content, name))
        text = "\n\n".join(filter(None, texts))
        if text.strip() or pictures:
            message = RecordedMessage("user", text, time=self.time, pictures=tuple(pictures))
            self.messages.append(message)

    def _read_shell_command(self, value: Mapping[str, object]) -> None:
        """Read a command that the user ran, and what it printed."""
        output = text_at(value, "output") or text_at(value, "output", "output")
        text = f"Ran `{text_at(value, 'command')}`\n```\n{output}\n```"
        self.add_user_message(text, self.time, beside=True)

    def _read_compaction(self, value: Mapping[str, object]) -> None:
        if text_at(value, "status") not in ("", "completed"):
            self.report.add_left_out_row("compaction open")
            return
        # The newest messages follow the summary as text, also the user's.
        text = "\n\n".join(filter(None, (text_at(value, "summary"), text_at(value, "recent"))))
        if not text.strip():
            self.report.add_left_out_row("compaction sealed")
        elif self.messages:
            self.add_compaction(text, self.time, "opencode compacted the conversation here")

    def _read_reply(self, value: Mapping[str, object]) -> None:
        parts: list[ReplyPart] = []
        results: list[RecordedMessage] = []
        for part in objects_at(value, "content"):
            kind = part.get("type")
            if kind == "text":
                parts.append(Text(text_at(part, "text")))
            elif kind == "reasoning":
                parts.append(Reasoning(text_at(part, "text")))
            elif kind == "tool":
                state = object_at(part, "state")
                call = history_rows.checked_tool_call(
                    text_at(part, "id"), text_at(part, "name"), state.get("input")
                )
                parts.append(call)
                results += self._results_of_tool(call, state, part)
            else:
                self.report.add_left_out_row(f"part {kind}", part)
        if any(isinstance(part, ToolCall) or part.text for part in parts):
            model = text_at(value, "model", "id")
            usage = _usage_of_reply(value)
            self.messages.append(
                build_recorded_reply(parts, model=model, time=self.time, usage=usage)
            )
            self.messages += results
        error = object_at(value, "error")
        if error:
            why = first_text(error, "message", "type") or "error"
            self.messages.append(RecordedMessage("failure", why, time=self.time))

    def _results_of_tool(
        self, call: ToolCall, state: Mapping[str, object], part: Mapping[str, object]
    ) -> Iterator[RecordedMessage]:
        status = text_at(state, "status")
        if status not in ("completed", "error"):
            return
        texts = [text_at(state, "error", "message")] if status == "error" else []
        pictures = []
        for block in objects_at(state, "content"):
            content = _content_of_file(block)
            if block.get("type") == "text":
                texts.append(text_at(block, "text"))
            elif content is not None:
                name = text_at(block, "name")
                pictures.append(RecordedPicture(text_at(block, "mime"), content, name))
            else:
                self.report.add_left_out_row(f"part {block.get('type')} of a result", block)
        yield RecordedMessage(
            "tool",
            "\n".join(texts),
            answers=call.id,
            ok=status == "completed",
            time=history_rows.parse_time(object_at(part, "time").get("completed")) or self.time,
            pictures=tuple(pictures),
            child=first_text(object_at(state, "structured"), "sessionID", "sessionId"),
        )


def _content_of_file(file: Mapping[str, object]) -> bytes | None:
    """Return a file's content, from base64 text or an address that contains it."""
    picture = history_rows.picture_from_data_url(file.get("uri"))
    if picture is not None:
        return picture.data
    data = file.get("data")
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        return None


def _usage_of_reply(value: Mapping[str, object]) -> Usage:
    tokens = object_at(value, "tokens")
    read = number_at(tokens, "cache", "read")
    write = number_at(tokens, "cache", "write")
    thoughts = number_at(tokens, "reasoning")
    return Usage(
        input=number_at(tokens, "input") + read + write,
        cache_read=read,
        cache_write=write,
        output=number_at(tokens, "output") + thoughts,
        reasoning=thoughts,
        cost=history_rows.cost_or_zero(value.get("cost")),
    )
