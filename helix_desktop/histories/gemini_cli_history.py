"""Sessions of Gemini CLI: `~/.gemini/tmp/<project>/chats/session-*.jsonl`, and the
older `.json` documents.

Tested with files of 0.61, not with older documents. A record with the id of an earlier
one replaces it. `$rewindTo` continues before a message. `$set` with messages replaces
the whole history, which is how Gemini CLI compresses it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
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
    has_text_or_call,
)
from helix_desktop.json_values import (
    first_text,
    number_at,
    object_at,
    objects_at,
    text_at,
    value_at,
)

KIND = "gemini-cli"
SESSION_FILE = "chats/session-*"
_OWN_CONTEXT = "<session_context>"
_NOTES = ("info", "error", "warning")


def is_gemini_cli_row(value: Mapping[str, object]) -> bool:
    """Whether a row is a session's head or record."""
    if "$set" in value or "$rewindTo" in value:
        return True
    return isinstance(value.get("sessionId"), str) and isinstance(value.get("projectHash"), str)


def read_gemini_cli_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the session of these rows, and a fork for each branch of it."""
    log = _GeminiLog()
    for row in rows:
        log.read_gemini_row(row)
    parent = ""
    if path.parent.parent.name == "chats":  # It is a sub-agent's file.
        parent = path.parent.name
    folder = value_at(log.head, "directories", 0)
    if not isinstance(folder, str):
        folder = read_gemini_project_folder(path)
    session_id = text_at(log.head, "sessionId") or path.stem
    template = RecordedSession(
        name=str(path),
        messages=(),
        kind=KIND,
        session=session_id,
        title=text_at(log.head, "summary"),
        folder=folder,
        parent=parent,
    )
    record_ids = _ids_of_records(log.records)
    read_branch = partial(_read_gemini_branch, log)
    return build_branch_sessions(log.tree, template, record_ids, read_branch, report)


def _read_gemini_branch(
    log: "_GeminiLog", indices: Sequence[int], report: history_rows.ReadingReport
) -> "_GeminiMessages":
    """Read the messages of one branch, which are the records at these places."""
    records = [(index, log.records[index]) for index in indices]
    return _GeminiMessages(report).read_gemini_records(records, log.compressions)


def read_gemini_project_folder(path: Path) -> str:
    """Return the project's folder, which the program writes beside the chats. A
    sub-agent's file is one folder deeper.
    """
    for folder in path.parents[1:3]:
        with suppress(OSError, ValueError):
            return read_file_below(folder, ".project_root", 4096).decode("utf-8").strip()
    return ""


@dataclass(frozen=True, slots=True)
class GeminiCompression:
    """`beginning` replaced all records before the one at position `keep`."""

    beginning: Sequence[history_rows.HistoryRow]
    keep: int


@dataclass(slots=True)
class _GeminiLog:
    """The final records, and where a new history replaced the old one. `head`: the session's
    own fields.
    """

    head: dict[str, object] = field(default_factory=dict)
    records: list[history_rows.HistoryRow] = field(default_factory=list)
    index_by_record_id: dict[str, int] = field(default_factory=dict)
    tree: HistoryTree = field(default_factory=HistoryTree)
    # What replaced the older records, by the position of the record before it.
    compressions: dict[int, GeminiCompression] = field(default_factory=dict)
    parent_after_rewind: str = ""  # The record that the next one follows, if not the last one.

    def read_gemini_row(self, row: history_rows.HistoryRow) -> None:
        """Apply a row to the records so far: add one, rewind, or replace the whole
        history.
        """
        value = row.value
        fields = object_at(value.get("$set", value))
        if "$rewindTo" in value:
            # The conversation continues behind the record before the one that is named.
            index = self.index_by_record_id.get(text_at(value, "$rewindTo"))
            if index:
                self.parent_after_rewind = text_at(self.records[index - 1].value, "id")
            else:
                self.parent_after_rewind = ROOT
        elif isinstance(value.get("type"), str):
            record_with_id = dict(value)
            record_with_id["id"] = text_at(value, "id") or row.place
            self._add_or_replace_record(replace(row, value=record_with_id))
        else:
            self.head.update(fields)
            self.head.pop("messages", None)
        records = fields.get("messages")
        if isinstance(records, list):
            rows = [history_rows.HistoryRow(record, row.place) for record in objects_at(records)]
            self._replace_whole_history(rows)

    def _add_or_replace_record(self, row: history_rows.HistoryRow) -> None:
        """Add a record, or replace the earlier one with its id."""
        name = text_at(row.value, "id")
        if name in self.index_by_record_id:
            self.records[self.index_by_record_id[name]] = row
            return
        parent = self.parent_after_rewind
        if not parent and self.records:
            parent = text_at(self.records[-1].value, "id")
        self.index_by_record_id[name] = len(self.records)
        self.records.append(row)
        kind = row.value.get("type")
        node = HistoryNode(name, parent, begins=kind == "user")
        if kind == "gemini":
            node = replace(node, step=name)
        self.tree.add_node(len(self.records) - 1, node)
        self.parent_after_rewind = ""

    def _replace_whole_history(self, rows: Iterable[history_rows.HistoryRow]) -> None:
        """Apply a whole history: append what is new in it, and replace what is no longer in it."""
        new_history = list(rows)
        new_ids = {text_at(row.value, "id") for row in new_history}
        known_ids = set(self.index_by_record_id)
        has_new_records = bool(new_ids - known_ids)
        lacks_known_records = bool(known_ids - new_ids)
        if has_new_records and lacks_known_records:
            self._add_compression(new_history)
            return
        for row in new_history:
            self._add_or_replace_record(row)

    def _add_compression(self, new_history: Sequence[history_rows.HistoryRow]) -> None:
        """Note what a compressed history begins with, and which records it keeps at its end.

        Gemini CLI gives the records that it keeps new ids. After that, it writes the whole
        compressed history again with each change.
        """
        kept_count = 0
        for row, record in zip(reversed(new_history), reversed(self.records), strict=False):
            if not _are_same_record(row.value, record.value):
                break
            kept_count += 1
        beginning = tuple(new_history[: len(new_history) - kept_count])
        ids = _ids_of_records(beginning)
        for earlier in self.compressions.values():
            if ids == _ids_of_records(earlier.beginning):
                return
        keep = len(self.records) - kept_count
        self.compressions[len(self.records) - 1] = GeminiCompression(beginning, keep)


def _ids_of_records(rows: Sequence[history_rows.HistoryRow]) -> list[str]:
    return [text_at(row.value, "id") for row in rows]


def _are_same_record(value: Mapping[str, object], other: Mapping[str, object]) -> bool:
    same_id = text_at(value, "id") == text_at(other, "id")
    return same_id or _content_of_record(value) == _content_of_record(other)


def _content_of_record(value: Mapping[str, object]) -> object:
    """Return what is equal in two copies of a record. Outputs may be shortened in one of them."""
    content = value.get("content")
    call_ids: set[str] = set()
    answered_ids: set[str] = set()
    for part in objects_at(content):
        call_ids.add(text_at(part, "functionCall", "id"))
        answered_ids.add(text_at(part, "functionResponse", "id"))
    for call in objects_at(value, "toolCalls"):
        call_ids.add(text_at(call, "id"))
    # Parts without an id have an empty one.
    call_ids.discard("")
    answered_ids.discard("")
    text = history_rows.text_of_message_content(content).strip()
    return value.get("type"), text, call_ids, answered_ids


@dataclass(slots=True)
class _GeminiMessages(history_rows.HistoryMessages):
    answered: set[str] = field(default_factory=set)

    def read_gemini_records(
        self,
        rows: Sequence[tuple[int, history_rows.HistoryRow]],
        compressions: Mapping[int, GeminiCompression],
    ) -> "_GeminiMessages":
        """Read these records, given with their positions, and the compressions between
        them.
        """
        # By a record's position: that of its first message.
        message_index_by_record: dict[int, int] = {}
        for position, row in rows:
            message_index_by_record[position] = len(self.messages)
            self.read_rows([row])
            compression = compressions.get(position)
            if compression is not None and self.messages:
                keep = message_index_by_record.get(compression.keep, len(self.messages))
                self._add_gemini_compaction(compression.beginning, keep)
        return self

    def _add_gemini_compaction(
        self, beginning: Sequence[history_rows.HistoryRow], keep: int
    ) -> None:
        """Add what Gemini CLI put in the place of older records as a compaction, without the
        context that it adds to each session.
        """
        summary_texts: list[str] = []
        for row in beginning:
            text = history_rows.text_of_message_content(row.value.get("content"))
            if text.strip() and not text.startswith(_OWN_CONTEXT):
                summary_texts.append(text)
        if summary_texts:
            time = history_rows.parse_time(beginning[0].value.get("timestamp"))
            summary = "\n\n".join(summary_texts)
            self.add_compaction(summary, time, "Gemini CLI compressed here", keep)

    def read_row(self, value: Mapping[str, object]) -> None:
        """Add the messages of a record by its type. Notes of the program are no messages."""
        kind = value.get("type")
        time = history_rows.parse_time(value.get("timestamp"))
        if kind == "gemini":
            self._read_gemini_reply(value, time)
        elif kind == "user":
            self._read_gemini_user(value.get("content"), time)
        elif kind in _NOTES:
            self.report.add_left_out_row(str(kind))
        else:
            raise history_rows.UnknownRow(f"there is no record of type {kind!r}")

    def _read_gemini_user(self, content: object, time: float) -> None:
        """Read a message of the user, which may have results of calls among its parts."""
        content_without_results = content
        if isinstance(content, list):
            content_without_results = []
            for part in content:
                if isinstance(part, Mapping) and "functionResponse" in part:
                    self._read_gemini_result(object_at(part["functionResponse"]), time)
                else:
                    content_without_results.append(part)
        elif isinstance(content, Mapping) and "functionResponse" in content:
            self._read_gemini_result(object_at(content["functionResponse"]), time)
        text = history_rows.text_of_message_content(content_without_results)
        is_beside = text.startswith(_OWN_CONTEXT)
        self.add_user_message(content_without_results, time, beside=is_beside)

    def _read_gemini_result(self, response: Mapping[str, object], time: float) -> None:
        """Read a result, unless the reply's record already had it."""
        answers = text_at(response, "id")
        if answers in self.answered or not answers:
            return
        self.answered.add(answers)
        text = _text_of_gemini_response(response)
        ok = "error" not in object_at(response, "response")
        self.messages.append(RecordedMessage("tool", text, answers=answers, ok=ok, time=time))

    def _read_gemini_reply(self, value: Mapping[str, object], time: float) -> None:
        """Add a reply, and the results that its record has."""
        calls = _calls_of_record(value)
        parts: list[ReplyPart] = []
        thoughts = _thoughts_of_record(value)
        if thoughts:
            parts.append(Reasoning(thoughts))
        text = _text_of_record(value)
        parts.append(Text(text))
        for call in calls:
            call_id = text_at(call, "id")
            name = text_at(call, "name")
            tool_call = history_rows.checked_tool_call(call_id, name, call.get("args"))
            parts.append(tool_call)
        if has_text_or_call(parts):
            model = text_at(value, "model")
            usage = _usage_of_record(value)
            reply = build_recorded_reply(parts, model=model, time=time, usage=usage)
            self.messages.append(reply)
        for call in calls:
            self._read_gemini_call_result(call, time)

    def _read_gemini_call_result(self, call: Mapping[str, object], time: float) -> None:
        """Add the result that stands in a call, if it has one."""
        result = call.get("result")
        if result is None:
            return
        response_texts: list[str] = []
        for part in objects_at(result):
            if "functionResponse" in part:
                response = object_at(part["functionResponse"])
                response_texts.append(_text_of_gemini_response(response))
        if response_texts:
            text = "\n".join(response_texts)
        else:
            text = history_rows.text_of_message_content(result)
        call_id = text_at(call, "id")
        self.answered.add(call_id)
        message = RecordedMessage(
            "tool",
            text,
            answers=call_id,
            ok=text_at(call, "status") not in ("error", "cancelled"),
            time=history_rows.parse_time(call.get("timestamp")) or time,
            pictures=history_rows.pictures_in_content(result),
        )
        self.messages.append(message)


def _calls_of_record(value: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """Return a reply's calls. In a resumed session, they are only in its content."""
    calls = objects_at(value, "toolCalls")
    if calls:
        return calls
    calls_in_content: list[Mapping[str, object]] = []
    for part in objects_at(value.get("content")):
        if "functionCall" in part:
            calls_in_content.append(object_at(part, "functionCall"))
    return calls_in_content


def _thoughts_of_record(value: Mapping[str, object]) -> str:
    thoughts: list[str] = []
    for thought in objects_at(value, "thoughts"):
        lines = [text_at(thought, "subject"), text_at(thought, "description")]
        thoughts.append(history_rows.join_nonempty_texts(lines, "\n"))
    return "\n\n".join(thoughts)


def _text_of_record(value: Mapping[str, object]) -> str:
    """Return what a reply says, without its calls and thoughts."""
    content = value.get("content")
    parts = objects_at(content)
    if not parts:
        return history_rows.text_of_message_content(content)
    spoken_parts: list[Mapping[str, object]] = []
    for part in parts:
        if "functionCall" not in part and not part.get("thought"):
            spoken_parts.append(part)
    return history_rows.text_of_message_content(spoken_parts)


def _usage_of_record(value: Mapping[str, object]) -> Usage:
    """Return how many tokens a reply took."""
    tokens = object_at(value, "tokens")
    reasoning = number_at(tokens, "thoughts")
    input_tokens = number_at(tokens, "input")
    cached_tokens = number_at(tokens, "cached")
    # Gemini CLI counts thoughts apart from the output.
    output_tokens = number_at(tokens, "output") + reasoning
    return Usage(
        input=input_tokens,
        cache_read=cached_tokens,
        output=output_tokens,
        reasoning=reasoning,
    )


def _text_of_gemini_response(function_response: Mapping[str, object]) -> str:
    response = object_at(function_response, "response")
    text = first_text(response, "output", "error")
    if not text and response.get("output") != "":  # A command may have printed nothing.
        return json.dumps(response, ensure_ascii=False)
    return text


def _list_gemini_folders(places: HistoryPlaces) -> Sequence[Path]:
    return [places.folder_from_variable("GEMINI_CLI_HOME") / ".gemini" / "tmp"]


def _is_gemini_session_or_subagent(file: Path) -> bool:
    return "chats" in file.parts


def _is_main_gemini_session(file: Path) -> bool:
    return file.match(SESSION_FILE)


def _list_gemini_subagents(file: Path) -> Sequence[Path]:
    """Return the files in folders named by the session's id, with whose first digits the name of
    the session's own file ends.
    """
    if not _is_main_gemini_session(file):
        return ()
    files: list[Path] = []
    _, _, beginning_of_id = file.stem.rpartition("-")
    for subagents_folder in sorted(file.parent.glob(f"{beginning_of_id}-*/")):
        files.extend(list_files_below(subagents_folder, "*.jsonl", allowed_root=file.parent))
    return files


def _read_folder_beside_chats(file: Path, _beginning: bytes) -> str:
    return read_gemini_project_folder(file)


FORMAT = HistoryFormat(
    KIND,
    recognizes=is_gemini_cli_row,
    read=read_gemini_cli_recordings,
    folders=_list_gemini_folders,
    file_pattern="*.json*",
    holds_session=_is_gemini_session_or_subagent,
    is_main_session=_is_main_gemini_session,
    list_subagents=_list_gemini_subagents,
    working_folder=_read_folder_beside_chats,
)
