"""Sessions of GitHub Copilot CLI: `~/.copilot/session-state/<session>/events.jsonl`, an event a line.

Tested with files of 1.0.102, which comes with a schema of its events. A reply has its calls, and
each result is an event of its own. What a reply took is in a usage record with the same
`apiCallId`. A sub-agent's events are among the others and name the sub-agent. A compaction has a
summary; earlier events stay in the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
from helix_desktop.histories.history_format import HistoryFormat, HistoryPlaces
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)
from helix_desktop.json_values import (
    number_at,
    object_at,
    objects_at,
    parse_json_or_none,
    text_at,
)

KIND = "copilot-cli"
_FILE_NAME = "events.jsonl"
_MESSAGES = ("user.message", "assistant.message", "tool.execution_complete")
_USAGE = "session.usage_record"
_PICTURE = "session.binary_asset"
# What Copilot itself told the model between the messages.
_TOLD_BY_PROGRAM = (
    "system.notification",
    "skill.context_delivered",
    "session.mode_notice_delivered",
)
CLEARED = "[The context was cleared here.]"


def is_copilot_row(value: Mapping[str, object]) -> bool:
    """Whether a row is an event of Copilot's log: its first one, or a message."""
    if value.get("type") not in (*_MESSAGES, "session.start"):
        return False
    return isinstance(value.get("data"), Mapping) and "parentId" in value


def read_copilot_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the session of these events, and one for each of its sub-agents."""
    log = _CopilotLog()
    for row in rows:
        log.note_event(row)

    session_id = text_at(log.start, "sessionId") or path.parent.name
    folder = text_at(log.start, "context", "cwd")
    version = text_at(log.start, "copilotVersion")
    sessions: list[RecordedSession] = []
    # The rows without an agent are those of the session itself.
    for agent_id, rows_of_agent in log.rows_by_agent.items():
        reader = _CopilotMessages(report, log=log).read_rows(rows_of_agent)
        parent_call = log.call_by_agent.get(agent_id, "")
        session = RecordedSession(
            name=str(path),
            messages=tuple(reader.messages),
            kind=KIND,
            session=session_id,
            folder=folder,
            version=version,
            compactions=tuple(reader.compactions),
            parent_call=parent_call,
        )
        if agent_id:
            name = f"{path}#{agent_id}"
            session = replace(session, name=name, session=agent_id, parent=session_id)
        sessions.append(session)
    return sessions


@dataclass(slots=True)
class _CopilotLog:
    """The events of a file, by the agent that they are of: "" is the main one."""

    start: Mapping[str, object] = field(default_factory=dict)
    rows_by_agent: dict[str, list[history_rows.HistoryRow]] = field(default_factory=dict)
    call_by_agent: dict[str, str] = field(default_factory=dict)
    usage_by_request: dict[str, Usage] = field(default_factory=dict)
    picture_by_id: dict[str, RecordedPicture] = field(default_factory=dict)

    def note_event(self, row: history_rows.HistoryRow) -> None:
        """Note what other events need of this one, and to which agent it belongs."""
        agent_id = text_at(row.value, "agentId")
        self.rows_by_agent.setdefault(agent_id, []).append(row)
        kind = row.value.get("type")
        data = object_at(row.value, "data")
        if kind == "session.start":
            self.start = data
        elif kind == "subagent.started":
            self.call_by_agent[agent_id] = text_at(data, "toolCallId")
        elif kind == _USAGE:
            usage = object_at(data, "usage")
            self.usage_by_request[text_at(usage, "apiCallId")] = _read_usage(usage)
        elif kind == _PICTURE:
            picture = history_rows.decode_picture(data.get("mimeType"), data.get("data"))
            if picture is not None:
                self.picture_by_id[text_at(data, "assetId")] = picture

    def read_pictures(self, parts: Sequence[Mapping[str, object]]) -> tuple[RecordedPicture, ...]:
        """Return the pictures in parts that have them, or name an event that has."""
        pictures: list[RecordedPicture] = []
        for part in parts:
            name = text_at(part, "displayName")
            picture = history_rows.decode_picture(part.get("mimeType"), part.get("data"), name)
            if picture is None:
                picture = self.picture_by_id.get(text_at(part, "assetId"))
            if picture is not None:
                pictures.append(picture)
        return tuple(pictures)


def _read_usage(usage: Mapping[str, object]) -> Usage:
    return Usage(
        input=number_at(usage, "inputTokens"),
        cache_read=number_at(usage, "cacheReadTokens"),
        cache_write=number_at(usage, "cacheWriteTokens"),
        output=number_at(usage, "outputTokens"),
        reasoning=number_at(usage, "reasoningTokens"),
    )


@dataclass(slots=True)
class _CopilotMessages(history_rows.HistoryMessages):
    log: _CopilotLog = field(default_factory=_CopilotLog)

    def read_row(self, value: Mapping[str, object]) -> None:
        """Add an event's message by its type. Most events are no messages."""
        kind = text_at(value, "type")
        data = object_at(value, "data")
        time = history_rows.parse_time(value.get("timestamp"))
        if kind == "user.message":
            self._read_copilot_user(data, time)
        elif kind == "assistant.message":
            self._read_copilot_reply(data, time)
        elif kind == "tool.execution_complete":
            self._read_copilot_result(data, time)
        elif kind in _TOLD_BY_PROGRAM:
            self.add_user_message(text_at(data, "content"), time, beside=True)
        elif kind == "session.compaction_complete":
            self._read_copilot_compaction(text_at(data, "summaryContent"), time)
        elif kind == "session.context_cleared":
            self._read_copilot_compaction(CLEARED, time)
        elif kind == "session.error":
            why = text_at(data, "message") or "error"
            self.messages.append(RecordedMessage("failure", why, time=time))
        else:
            self.report.add_left_out_row(kind or "no type")

    def _read_copilot_user(self, data: Mapping[str, object], time: float) -> None:
        """Add a message of the user, or one that Copilot itself wrote in their place."""
        text = text_at(data, "content")
        pictures = self.log.read_pictures(objects_at(data, "attachments"))
        if not text.strip() and not pictures:
            return
        source = text_at(data, "source")
        # A sub-agent's task comes from the agent that started it.
        is_beside = source.startswith("skill-") or bool(data.get("isAutopilotContinuation"))
        message = RecordedMessage("user", text, time=time, pictures=pictures, beside=is_beside)
        self.messages.append(message)

    def _read_copilot_reply(self, data: Mapping[str, object], time: float) -> None:
        parts: list[ReplyPart] = []
        thought = text_at(data, "reasoningText")
        if thought:
            parts.append(Reasoning(thought))
        text = text_at(data, "content")
        parts.append(Text(text))
        for call in objects_at(data, "toolRequests"):
            call_id = text_at(call, "toolCallId")
            name = text_at(call, "name")
            tool_call = history_rows.checked_tool_call(call_id, name, call.get("arguments"))
            parts.append(tool_call)
        model = text_at(data, "model")
        usage = self._usage_of_copilot_reply(data)
        reply = build_recorded_reply(parts, model=model, time=time, usage=usage)
        self.messages.append(reply)

    def _usage_of_copilot_reply(self, data: Mapping[str, object]) -> Usage:
        """Return what a reply took. If a response was split, its last message has it."""
        chunks = number_at(data, "chunkCount")
        if chunks and number_at(data, "chunkIndex") < chunks - 1:
            return Usage()
        return self.log.usage_by_request.get(text_at(data, "apiCallId"), Usage())

    def _read_copilot_result(self, data: Mapping[str, object], time: float) -> None:
        call_id = text_at(data, "toolCallId")
        if not call_id:
            raise history_rows.UnreadableRow("a tool result names no call")
        result = object_at(data, "result")
        if data.get("success") and "result" not in data:
            raise history_rows.UnreadableRow("a tool result says nothing")
        # A command that ran and failed counts as a success there.
        exit_code = number_at(data, "shellExecution", "exitCode")
        is_ok = bool(data.get("success")) and not exit_code
        text = text_at(result, "content")
        if not is_ok:
            text = text_at(data, "error", "message") or text
        pictures = self.log.read_pictures(objects_at(result, "binaryResultsForLlm"))
        message = RecordedMessage(
            "tool", text, answers=call_id, ok=is_ok, time=time, pictures=pictures
        )
        self.messages.append(message)

    def _read_copilot_compaction(self, summary: str, time: float) -> None:
        """Add a compaction. One that failed has no summary, and replaced nothing."""
        if self.messages and summary:
            self.add_compaction(summary, time, "Copilot CLI compacted the conversation here")


def _list_copilot_folders(places: HistoryPlaces) -> Sequence[Path]:
    return [places.folder_from_variable("COPILOT_HOME", ".copilot") / "session-state"]


def _is_copilot_log(file: Path) -> bool:
    return file.name == _FILE_NAME


def _read_folder_of_first_event(_file: Path, beginning: bytes) -> str:
    first_line, _, _ = beginning.partition(b"\n")
    return text_at(object_at(parse_json_or_none(first_line)), "data", "context", "cwd")


FORMAT = HistoryFormat(
    KIND,
    recognizes=is_copilot_row,
    read=read_copilot_recordings,
    folders=_list_copilot_folders,
    file_pattern=_FILE_NAME,
    holds_session=_is_copilot_log,
    working_folder=_read_folder_of_first_event,
)
