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
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
from helix_desktop.histories.companion_files import read_file_below
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
    text_at,
    value_at,
)

KIND = "gemini-cli"
_OWN_CONTEXT = "<session_context>"
_NOTES = ("info", "error", "warning")


def is_gemini_cli_row(value: Mapping[str, object]) -> bool:
    """Whether a row is a session's head or record."""
    head = isinstance(value.get("sessionId"), str) and isinstance(value.get("projectHash"), str)
    return head or "$set" in value or "$rewindTo" in value


def read_gemini_cli_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    log = _GeminiLog()
    for row in rows:
        log.read_gemini_row(row)

    def read_gemini_messages(
        indices: Sequence[int], report: history_rows.ReadingReport
    ) -> _GeminiMessages:
        records = [(index, log.records[index]) for index in indices]
        return _GeminiMessages(report).read_gemini_records(records, log.compacted)

    session = text_at(log.about, "sessionId") or path.stem
    title = text_at(log.about, "summary")
    parent = ""
    if path.parent.parent.name == "chats":
        parent = path.parent.name
    folder = value_at(log.about, "directories", 0)
    if not isinstance(folder, str):
        folder = read_gemini_project_folder(path)
    first = RecordedSession(str(path), (), KIND, session, title, folder, parent=parent)
    return build_branch_sessions(
        log.tree,
        first,
        lambda index: text_at(log.records[index].value, "id"),
        read_gemini_messages,
        report,
    )


def read_gemini_project_folder(path: Path) -> str:
    """Return the project's folder, which the program writes beside the chats. A
    sub-agent's file is one folder deeper.
    """
    for place in path.parents[1:3]:
        with suppress(OSError, ValueError):
            return read_file_below(place, ".project_root", 4096).decode("utf-8").strip()
    return ""


@dataclass(frozen=True, slots=True)
class GeminiCompression:
    """`beginning` replaced all records before the one at position `keep`."""

    beginning: Sequence[history_rows.HistoryRow]
    keep: int


@dataclass(slots=True)
class _GeminiLog:
    """The final records, and where a new history replaced the old one."""

    about: dict[str, object] = field(default_factory=dict)
    records: list[history_rows.HistoryRow] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    tree: HistoryTree = field(default_factory=HistoryTree)
    # What replaced the older records, by the position of the record before it.
    compacted: dict[int, GeminiCompression] = field(default_factory=dict)
    rewound: str = ""

    def read_gemini_row(self, row: history_rows.HistoryRow) -> None:
        value = row.value
        fields = object_at(value.get("$set", value))
        if "$rewindTo" in value:
            position = self.places.get(text_at(value, "$rewindTo"))
            self.rewound = ROOT
            if position:
                self.rewound = text_at(self.records[position - 1].value, "id")
        elif isinstance(value.get("type"), str):
            named = {**value, "id": text_at(value, "id") or row.place}
            self._add_or_replace_record(replace(row, value=named))
        else:
            self.about.update(fields)
            self.about.pop("messages", None)
        records = fields.get("messages")
        if isinstance(records, list):
            rows = [history_rows.HistoryRow(record, row.place) for record in objects_at(records)]
            self._replace_whole_history(rows)

    def _add_or_replace_record(self, row: history_rows.HistoryRow) -> None:
        name = text_at(row.value, "id")
        if name in self.places:
            self.records[self.places[name]] = row
            return
        parent = self.rewound
        if not parent and self.records:
            parent = text_at(self.records[-1].value, "id")
        self.places[name] = len(self.records)
        self.records.append(row)
        kind = row.value.get("type")
        node = HistoryNode(name, parent, begins=kind == "user")
        if kind == "gemini":
            node = replace(node, step=name)
        self.tree.add_node(len(self.records) - 1, node)
        self.rewound = ""

    def _replace_whole_history(self, rows: Iterable[history_rows.HistoryRow]) -> None:
        """Apply a whole history: append what is new in it, and replace what is no longer in it."""
        given = list(rows)
        fresh = [row for row in given if text_at(row.value, "id") not in self.places]
        kept = {text_at(row.value, "id") for row in given}
        if self.records and fresh and any(name not in kept for name in self.places):
            self._add_compression(given)
            return
        for row in given:
            self._add_or_replace_record(row)

    def _add_compression(self, given: Sequence[history_rows.HistoryRow]) -> None:
        """Note what a compressed history begins with, and which records it keeps at its end.

        Gemini CLI gives the records that it keeps new ids. After that, it writes the whole
        compressed history again with each change.
        """
        count = 0
        for row, record in zip(reversed(given), reversed(self.records), strict=False):
            if not _are_same_record(row.value, record.value):
                break
            count += 1
        beginning = tuple(given[: len(given) - count])
        ids = [text_at(row.value, "id") for row in beginning]
        for earlier in self.compacted.values():
            if ids == [text_at(row.value, "id") for row in earlier.beginning]:
                return
        keep = len(self.records) - count
        self.compacted[len(self.records) - 1] = GeminiCompression(beginning, keep)


def _are_same_record(value: Mapping[str, object], other: Mapping[str, object]) -> bool:
    same_id = text_at(value, "id") == text_at(other, "id")
    return same_id or _content_of_record(value) == _content_of_record(other)


def _content_of_record(value: Mapping[str, object]) -> object:
    """Return what is equal in two copies of a record. Outputs may be shortened in one of them."""
    content = value.get("content")
    parts = objects_at(content)
    calls = {text_at(part, "functionCall", "id") for part in parts}
    calls |= {text_at(call, "id") for call in objects_at(value, "toolCalls")}
    answers = {text_at(part, "functionResponse", "id") for part in parts}
    text = history_rows.text_of_message_content(content).strip()
    return value.get("type"), text, calls - {""}, answers - {""}


@dataclass(slots=True)
class _GeminiMessages(history_rows.HistoryMessages):
    answered: set[str] = field(default_factory=set)

    def read_gemini_records(
        self,
        rows: Sequence[tuple[int, history_rows.HistoryRow]],
        compacted: Mapping[int, GeminiCompression],
    ) -> "_GeminiMessages":
        places: dict[int, int] = {}  # By a record's position: that of its first message.
        for position, row in rows:
            places[position] = len(self.messages)
            self.read_rows([row])
            compression = compacted.get(position)
            if compression is not None and self.messages:
                keep = places.get(compression.keep, len(self.messages))
                self._add_gemini_compaction(compression.beginning, keep)
        return self

    def _add_gemini_compaction(
        self, beginning: Sequence[history_rows.HistoryRow], keep: int
    ) -> None:
        texts = [
            history_rows.text_of_message_content(row.value.get("content")) for row in beginning
        ]
        said = [text for text in texts if text.strip() and not text.startswith(_OWN_CONTEXT)]
        if said:
            time = history_rows.parse_time(beginning[0].value.get("timestamp"))
            self.add_compaction("\n\n".join(said), time, "Gemini CLI compressed here", keep)

    def read_row(self, value: Mapping[str, object]) -> None:
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
        words = content
        if isinstance(content, list):
            words = []
            for part in content:
                if isinstance(part, Mapping) and "functionResponse" in part:
                    self._read_gemini_result(object_at(part["functionResponse"]), time)
                else:
                    words.append(part)
        elif isinstance(content, Mapping) and "functionResponse" in content:
            self._read_gemini_result(object_at(content["functionResponse"]), time)
        beside = history_rows.text_of_message_content(words).startswith(_OWN_CONTEXT)
        self.add_user_message(words, time, beside=beside)

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
        calls = _calls_of_record(value)
        parts: list[ReplyPart] = []
        thoughts = _thoughts_of_record(value)
        if thoughts:
            parts.append(Reasoning(thoughts))
        parts.append(Text(_text_of_record(value)))
        for call in calls:
            identity = text_at(call, "id")
            name = text_at(call, "name")
            parts.append(history_rows.checked_tool_call(identity, name, call.get("args")))
        says_something = any(
            isinstance(part, ToolCall) or (isinstance(part, Text) and bool(part.text))
            for part in parts
        )
        if says_something:
            model = text_at(value, "model")
            usage = _usage_of_record(value)
            self.messages.append(build_recorded_reply(parts, model=model, time=time, usage=usage))
        for call in calls:
            self._read_gemini_call_result(call, time)

    def _read_gemini_call_result(self, call: Mapping[str, object], time: float) -> None:
        result = call.get("result")
        if result is None:
            return
        responses = [
            object_at(part["functionResponse"])
            for part in objects_at(result)
            if "functionResponse" in part
        ]
        if responses:
            text = "\n".join(map(_text_of_gemini_response, responses))
        else:
            text = history_rows.text_of_message_content(result)
        answers = text_at(call, "id")
        self.answered.add(answers)
        message = RecordedMessage(
            "tool",
            text,
            answers=answers,
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
    parts = objects_at(value.get("content"))
    return [object_at(part, "functionCall") for part in parts if "functionCall" in part]


def _thoughts_of_record(value: Mapping[str, object]) -> str:
    thoughts = []
    for thought in objects_at(value, "thoughts"):
        lines = (text_at(thought, "subject"), text_at(thought, "description"))
        thoughts.append("\n".join(filter(None, lines)))
    return "\n\n".join(thoughts)


def _text_of_record(value: Mapping[str, object]) -> str:
    content = value.get("content")
    parts = objects_at(content)
    if not parts:
        return history_rows.text_of_message_content(content)
    said = [part for part in parts if "functionCall" not in part and not part.get("thought")]
    return history_rows.text_of_message_content(said)


def _usage_of_record(value: Mapping[str, object]) -> Usage:
    tokens = object_at(value, "tokens")
    thoughts = number_at(tokens, "thoughts")
    return Usage(
        input=number_at(tokens, "input"),
        cache_read=number_at(tokens, "cached"),
        output=number_at(tokens, "output") + thoughts,
        reasoning=thoughts,
    )


def _text_of_gemini_response(found: Mapping[str, object]) -> str:
    response = object_at(found, "response")
    text = first_text(response, "output", "error")
    if not text and response.get("output") != "":  # A command may have printed nothing.
        return json.dumps(response, ensure_ascii=False)
    return text
