"""Sessions of OpenCode 2: the tables `session_v2` and `session_message` of its database.

Written from OpenCode's public source (2.0 to 2.2), and not tested with a real database:
no registry has that version yet. A message is one row, with its parts in `content`; a
tool's part has both the call and its result. A compaction has a summary and the newest
messages as text. Sessions of version 1 that 2 took over are in the older tables, too.
Early versions of 2 kept their sessions in the table `session`.
"""

import base64
import binascii
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from helix_desktop.histories.history_format import DatabaseTables
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
    ids: set[str] = set()
    for row in query_rows(connection, _WITH_MESSAGES):
        ids.add(text_at(row, "id"))
    if SESSIONS in tables:
        for row in query_rows(connection, "SELECT id FROM session_v2"):
            ids.add(text_at(row, "id"))
    return frozenset(ids)


def read_opencode2_database(
    connection: ForeignConnection, path: Path, report: history_rows.ReadingReport
) -> Iterator[RecordedSession]:
    """Yield the sessions of version 2, with the messages that a fork shares with its
    source.
    """
    ids = ids_of_opencode2_sessions(connection)
    tables = ordinary_table_names(connection) & {SESSIONS, "session"}
    session_by_id: dict[str, Mapping[str, object]] = {}
    for table in sorted(tables):  # What is in both is newer in `session_v2`.
        query = f"SELECT * FROM {table}"  # noqa: S608 -- one of two names
        for row in query_until_damage(connection, query, (), report, ("time_created", "id")):
            session_by_id[text_at(row, "id")] = row

    sessions = list(session_by_id.values())
    # A sub-agent's session comes behind the one that started it, and a fork behind its source.
    sessions.sort(key=lambda row: row.get("parent_id") is not None)
    messages_by_session: dict[str, tuple[RecordedMessage, ...]] = {}
    for session in sessions:
        if text_at(session, "id") not in ids:
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
    session_id = text_at(session, "id")
    first_reverted_id = _first_reverted_id_of_version_2(session)
    reader = _Opencode2Messages(report)
    without_messages = RecordedSession(
        name=f"{path}#{session_id}",
        messages=(),
        kind=KIND,
        session=session_id,
        title=text_at(session, "title"),
        folder=text_at(session, "directory"),
        version=text_at(session, "version"),
        parent=text_at(session, "parent_id"),
    )
    without_reverted_end: RecordedSession | None = None
    for row in query_until_damage(connection, _MESSAGES, [session_id], report, ("seq", "id")):
        if first_reverted_id and row["id"] == first_reverted_id:
            without_reverted_end = _with_messages(without_messages, reader)
        message_id = row["id"]
        data = parse_json_column(row["data"], f"{path}, message {message_id}", report)
        if data is not None:
            message = dict(data.value)
            # The id and the type are in columns of their own.
            message["id"] = message_id
            message["type"] = row["type"]
            complete_row = replace(data, value=message)
            report.note_unknown_fields(complete_row)
            reader.read_rows([complete_row])

    if without_reverted_end is None:
        yield _with_messages(without_messages, reader)
        return
    yield without_reverted_end
    branch_id = f"{session_id}#{first_reverted_id}"
    with_reverted_end = _with_messages(without_messages, reader)
    yield replace(
        with_reverted_end,
        name=f"{path}#{branch_id}",
        session=branch_id,
        forked_from=session_id,
        forked_at=len(without_reverted_end.messages),
    )


def _with_messages(session: RecordedSession, reader: "_Opencode2Messages") -> RecordedSession:
    compactions = tuple(reader.compactions)
    return replace(session, messages=tuple(reader.messages), compactions=compactions)


def _first_reverted_id_of_version_2(session: Mapping[str, object]) -> str:
    """Return the id of the first message that opencode hides now and deletes at the next prompt."""
    revert = session.get("revert")
    if isinstance(revert, str):
        revert = parse_json_or_none(revert)
    return text_at(revert, "messageID")


def _with_shared_beginning(
    recording: RecordedSession, session: Mapping[str, object], source: Sequence[RecordedMessage]
) -> RecordedSession:
    """Return a fork with the number of messages that it shares with its source."""
    if recording.forked_from:
        return recording
    shared_count = 0
    for message, source_message in zip(recording.messages, source, strict=False):
        is_same_text = (message.role, message.text) == (source_message.role, source_message.text)
        if not is_same_text or message.calls != source_message.calls:
            break
        shared_count += 1
    if shared_count == 0:
        return recording
    source_id = text_at(session, "fork_session_id")
    return replace(recording, forked_from=source_id, forked_at=shared_count)


@dataclass(slots=True)
class _Opencode2Messages(history_rows.HistoryMessages):
    time: float = field(default=0.0)

    def read_row(self, value: Mapping[str, object]) -> None:
        """Add a row's message by its kind. What the program itself added stands `beside` the
        user's own messages. Other kinds are listed in the report as left out.
        """
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
        """Add a message of the user, with the texts of the skills and files in it."""
        texts = [text_at(skill, "text") for skill in objects_at(value, "skills")]
        texts.append(text_at(value, "text"))
        pictures = []
        for file in objects_at(value, "files"):
            content = _content_of_file(file)
            name = first_text(file, "name", "filename", "uri")
            media_type = text_at(file, "mime")
            if content is None:
                self.report.add_left_out_row("file of a message", file)
            elif media_type.startswith("text/"):
                text_of_file = content.decode("utf-8", "replace")
                texts.append(f"Attached file: {name}\n\n{text_of_file}")
            else:
                pictures.append(RecordedPicture(media_type, content, name))
        text = history_rows.join_nonempty_texts(texts, "\n\n")
        if text.strip() or pictures:
            message = RecordedMessage("user", text, time=self.time, pictures=tuple(pictures))
            self.messages.append(message)

    def _read_shell_command(self, value: Mapping[str, object]) -> None:
        """Read a command that the user ran, and what it printed."""
        output = text_at(value, "output") or text_at(value, "output", "output")
        text = f"Ran `{text_at(value, 'command')}`\n```\n{output}\n```"
        self.add_user_message(text, self.time, beside=True)

    def _read_compaction(self, value: Mapping[str, object]) -> None:
        """Add a summary as a compaction. One that is not finished, or whose text only its
        provider can read, is reported as left out.
        """
        if text_at(value, "status") not in ("", "completed"):
            self.report.add_left_out_row("compaction open")
            return
        # The newest messages follow the summary as text, also the user's.
        texts = [text_at(value, "summary"), text_at(value, "recent")]
        text = history_rows.join_nonempty_texts(texts, "\n\n")
        if not text.strip():
            self.report.add_left_out_row("compaction sealed")
        elif self.messages:
            self.add_compaction(text, self.time, "opencode compacted the conversation here")

    def _read_reply(self, value: Mapping[str, object]) -> None:
        """Add a reply with the results of its calls, and the error that ended it."""
        parts: list[ReplyPart] = []
        results: list[RecordedMessage] = []
        for part in objects_at(value, "content"):
            kind = part.get("type")
            if kind == "text":
                text = text_at(part, "text")
                parts.append(Text(text))
            elif kind == "reasoning":
                thought = text_at(part, "text")
                parts.append(Reasoning(thought))
            elif kind == "tool":
                state = object_at(part, "state")
                call_id = text_at(part, "id")
                tool_name = text_at(part, "name")
                call = history_rows.checked_tool_call(call_id, tool_name, state.get("input"))
                parts.append(call)
                results += self._results_of_tool(call, state, part)
            else:
                self.report.add_left_out_row(f"part {kind}", part)
        has_content = any(isinstance(part, ToolCall) or part.text for part in parts)
        if has_content:
            model = text_at(value, "model", "id")
            usage = read_usage_of_opencode(value)
            reply = build_recorded_reply(parts, model=model, time=self.time, usage=usage)
            self.messages.append(reply)
            self.messages += results
        error = object_at(value, "error")
        if error:
            reason = first_text(error, "message", "type") or "error"
            failure = RecordedMessage("failure", reason, time=self.time)
            self.messages.append(failure)

    def _results_of_tool(
        self, call: ToolCall, state: Mapping[str, object], part: Mapping[str, object]
    ) -> Iterator[RecordedMessage]:
        """Yield the result of a call, if it has one."""
        status = text_at(state, "status")
        if status not in ("completed", "error"):
            return
        texts: list[str] = []
        if status == "error":
            texts.append(text_at(state, "error", "message"))
        pictures: list[RecordedPicture] = []
        for block in objects_at(state, "content"):
            content = _content_of_file(block)
            kind = block.get("type")
            if kind == "text":
                texts.append(text_at(block, "text"))
            elif content is not None:
                name = text_at(block, "name")
                media_type = text_at(block, "mime")
                pictures.append(RecordedPicture(media_type, content, name))
            else:
                self.report.add_left_out_row(f"part {kind} of a result", block)
        times = object_at(part, "time")
        end_time = history_rows.parse_time(times.get("completed"))
        structured = object_at(state, "structured")
        child = first_text(structured, "sessionID", "sessionId")
        yield RecordedMessage(
            "tool",
            "\n".join(texts),
            answers=call.id,
            ok=status == "completed",
            time=end_time or self.time,
            pictures=tuple(pictures),
            child=child,
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


def read_usage_of_opencode(value: Mapping[str, object]) -> Usage:
    """Return how many tokens a reply took, and what it cost. Both versions write it in this way."""
    tokens = object_at(value, "tokens")
    cache_read = number_at(tokens, "cache", "read")
    cache_write = number_at(tokens, "cache", "write")
    reasoning = number_at(tokens, "reasoning")
    # opencode counts apart what is part of the input and of the output here.
    whole_input = number_at(tokens, "input") + cache_read + cache_write
    whole_output = number_at(tokens, "output") + reasoning
    cost = history_rows.cost_or_zero(value.get("cost"))
    return Usage(
        input=whole_input,
        cache_read=cache_read,
        cache_write=cache_write,
        output=whole_output,
        reasoning=reasoning,
        cost=cost,
    )


def _opencode2_session_queries(tables: Collection[str]) -> Iterator[str]:
    if SESSIONS in tables:
        yield "SELECT directory, time_created, time_updated FROM session_v2 WHERE parent_id IS NULL"


DATABASE = DatabaseTables(TABLES, read_opencode2_database, _opencode2_session_queries)
