"""Sessions of Qwen Code: `~/.qwen/projects/<project>/chats/<session>.jsonl`, one record per line.

Tested with files of 0.24.4. Records form a tree by `parentUuid`; a session that was rewound
continues behind an earlier record. Messages have Gemini's parts. A compression is a record with
the history that the model sees from then on; earlier records stay in the file. A sub-agent's
records are in `<project>/subagents/<session>/`, beside a file that names the call.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
from helix_desktop.histories.companion_files import list_files_below, read_file_below
from helix_desktop.histories.history_format import HistoryFormat, HistoryPlaces
from helix_desktop.histories.history_tree import (
    ROOT,
    HistoryNode,
    HistoryTree,
    build_branch_sessions,
)
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
    parse_json_or_none,
    text_at,
)

KIND = "qwen-code"
_MESSAGES = ("user", "assistant", "tool_result")
_COMPRESSION = "chat_compression"
# What the program itself says to the model in the user's place.
_SAID_BY_PROGRAM = ("notification", "cron")


def is_qwen_code_row(value: Mapping[str, object]) -> bool:
    """Whether a row is a record of Qwen Code. Claude Code's messages have `content`, no `parts`."""
    if "parentUuid" not in value or "sessionId" not in value:
        return False
    if "systemPayload" in value:
        return True
    parts = object_at(value, "message").get("parts")
    return value.get("type") in _MESSAGES and isinstance(parts, list)


def read_qwen_code_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the session of these records, and a fork for each branch of it."""
    tree = HistoryTree()
    title = ""
    newest: Mapping[str, object] = {}
    for index, row in enumerate(rows):
        newest = row.value
        if row.value.get("subtype") == "custom_title":
            title = text_at(row.value, "systemPayload", "customTitle") or title
        tree.add_node(index, _node_of_record(row.value))
    session = replace(_empty_session_of_record(newest, path), title=title)
    record_ids = [text_at(row.value, "uuid") for row in rows]
    read_branch = partial(_read_qwen_branch, rows)
    return build_branch_sessions(tree, session, record_ids, read_branch, report)


def _empty_session_of_record(value: Mapping[str, object], path: Path) -> RecordedSession:
    """Return what a record says of its session, or of the sub-agent whose record it is."""
    session = RecordedSession(
        name=str(path),
        messages=(),
        kind=KIND,
        session=text_at(value, "sessionId") or path.stem,
        folder=text_at(value, "cwd"),
        version=text_at(value, "version"),
    )
    if not value.get("isSidechain"):
        return session
    return replace(
        session,
        session=text_at(value, "agentId") or path.stem,
        parent=session.session,
        parent_call=_read_call_of_subagent(path),
    )


def _read_qwen_branch(
    rows: Sequence[history_rows.HistoryRow],
    indices: Sequence[int],
    report: history_rows.ReadingReport,
) -> "_QwenMessages":
    """Read the messages of one branch, which are the rows at these places."""
    rows_of_branch = [rows[index] for index in indices]
    return _QwenMessages(report).read_rows(rows_of_branch)


def _node_of_record(value: Mapping[str, object]) -> HistoryNode:
    """Return a record's place in the tree. A branch begins with what a person typed."""
    record_id = text_at(value, "uuid")
    parent = text_at(value, "parentUuid") or ROOT
    if value.get("type") == "assistant":
        return HistoryNode(record_id, parent, step=record_id)
    return HistoryNode(record_id, parent, begins=value.get("type") == "user")


def _read_call_of_subagent(path: Path) -> str:
    """Return the call that started a sub-agent, which a file beside its records names."""
    with suppress(OSError):
        content = read_file_below(path.parent, f"{path.stem}.meta.json")
        return text_at(object_at(parse_json_or_none(content)), "toolUseId")
    return ""


@dataclass(slots=True)
class _QwenMessages(history_rows.HistoryMessages):
    def read_row(self, value: Mapping[str, object]) -> None:
        """Add a record's message by its type. Other records of the program are no messages."""
        kind = value.get("type")
        time = history_rows.parse_time(value.get("timestamp"))
        if kind == "assistant":
            self._read_qwen_reply(value, time)
        elif kind in ("user", "tool_result"):
            self._read_user_parts(value, time)
        elif kind == "system" and value.get("subtype") == _COMPRESSION:
            self._read_compression(object_at(value, "systemPayload"), time)
        elif kind == "system":
            self.report.add_left_out_row(f"system/{text_at(value, 'subtype')}")
        else:
            raise history_rows.UnknownRow(f"there is no record of type {kind!r}")

    def _read_qwen_reply(self, value: Mapping[str, object], time: float) -> None:
        """Add a reply. What it thought stands in parts that say so."""
        parts: list[ReplyPart] = []
        for part in objects_at(value, "message", "parts"):
            call = object_at(part, "functionCall")
            if call:
                call_id = text_at(call, "id")
                name = text_at(call, "name")
                tool_call = history_rows.checked_tool_call(call_id, name, call.get("args"))
                parts.append(tool_call)
            elif part.get("thought"):
                thought = text_at(part, "text")
                parts.append(Reasoning(thought))
            else:
                text = history_rows.text_of_message_content([part])
                parts.append(Text(text))
        if not parts:
            return
        usage = _usage_of_reply(object_at(value, "usageMetadata"))
        model = text_at(value, "model")
        reply = build_recorded_reply(parts, model=model, time=time, usage=usage)
        self.messages.append(reply)

    def _read_user_parts(self, value: Mapping[str, object], time: float) -> None:
        """Add the results among a record's parts, and then what else they say."""
        other_parts: list[Mapping[str, object]] = []
        for part in objects_at(value, "message", "parts"):
            result = object_at(part, "functionResponse")
            if result:
                self._read_qwen_result(result, time)
            else:
                other_parts.append(part)
        is_typed_by_person = value.get("subtype") not in _SAID_BY_PROGRAM
        is_beside = value.get("type") == "tool_result" or not is_typed_by_person
        self.add_user_message(other_parts, time, beside=is_beside)

    def _read_qwen_result(self, result: Mapping[str, object], time: float) -> None:
        """Add a call's result. Pictures stand in parts of their own within it."""
        call_id = text_at(result, "id")
        if not call_id:
            raise history_rows.UnreadableRow("a tool result names no call")
        response = object_at(result, "response")
        output = first_text(response, "output", "error", "content")
        has_failed = "error" in response
        pictures = history_rows.pictures_in_content(result.get("parts"))
        message = RecordedMessage(
            "tool",
            output,
            answers=call_id,
            ok=not has_failed,
            time=time,
            pictures=pictures,
        )
        self.messages.append(message)

    def _read_compression(self, payload: Mapping[str, object], time: float) -> None:
        """Add what took the place of the history: a summary, and files that were read again."""
        texts: list[str] = []
        for content in objects_at(payload, "compressedHistory"):
            if content.get("role") == "user":
                text = history_rows.text_of_message_content(content.get("parts"))
                texts.append(text)
        summary = history_rows.join_nonempty_texts(texts, "\n\n")
        if self.messages and summary:
            self.add_compaction(summary, time, "Qwen Code compressed here")


def _usage_of_reply(usage: Mapping[str, object]) -> Usage:
    """Return how many tokens a reply took. Its output has its thoughts, too."""
    return Usage(
        input=number_at(usage, "promptTokenCount"),
        cache_read=number_at(usage, "cachedContentTokenCount"),
        output=number_at(usage, "candidatesTokenCount"),
        reasoning=number_at(usage, "thoughtsTokenCount"),
    )


def _list_qwen_folders(places: HistoryPlaces) -> Sequence[Path]:
    return [places.folder_from_variable("QWEN_HOME", ".qwen") / "projects"]


def _is_session_or_subagent(file: Path) -> bool:
    return file.parent.name == "chats" or file.parent.parent.name == "subagents"


def _is_main_qwen_session(file: Path) -> bool:
    return file.parent.name == "chats"


def _list_subagents_of_session(file: Path) -> Sequence[Path]:
    if not _is_main_qwen_session(file):
        return ()
    project = file.parent.parent
    return list_files_below(project / "subagents" / file.stem, "*.jsonl", allowed_root=project)


FORMAT = HistoryFormat(
    KIND,
    recognizes=is_qwen_code_row,
    read=read_qwen_code_recordings,
    keeps_lines=True,
    folders=_list_qwen_folders,
    file_pattern="*.jsonl",
    holds_session=_is_session_or_subagent,
    is_main_session=_is_main_qwen_session,
    list_subagents=_list_subagents_of_session,
)
