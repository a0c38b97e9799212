"""Sessions of Claude Code: `~/.claude/projects/<project>/<session>.jsonl`, one event per line.

Tested with files of 1.0, 2.0, 2.1.197 and 2.1.332. A reply has a line for each content
block, all with the same `message.id`, and results may come between them. Lines form a
tree by `parentUuid`. A compaction is a `compact_boundary` line followed by a message
with the summary; earlier lines stay in the file. What the program showed the model
besides the messages is in `attachment` lines, since 2.1.331 exactly as the model saw it
(`rendered`). Sub-agents are in the same file (`isSidechain`, until 2.0) or in
`<session>/subagents/`. A large result is in `<session>/tool-results/`, and its line has
what the model saw of it.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.companion_files import list_files_below, read_file_below
from helix_desktop.histories.history_format import HistoryFormat, HistoryPlaces
from helix_desktop.histories.history_rows import (
    HistoryMessages,
    HistoryRow,
    ReadingReport,
    checked_tool_call,
    parse_time,
    pictures_in_content,
    read_tool_result,
    text_and_pictures,
    text_of_message_content,
)
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
    format_opaque_json,
)
from helix_desktop.json_values import (
    first_text,
    list_at,
    object_at,
    objects_at,
    parse_json_or_none,
    text_at,
    value_at,
)
from helix_desktop.protocols.anthropic import anthropic_gateway

KIND = "claude-code"
TAG = "anthropic api.anthropic.com"
SUBAGENT_FILE = "agent-*"  # Until 2.0, such files lay beside the sessions.
LARGEST_RESULT_BYTES = 256 << 20
LONGEST_REPLY_SECONDS = 3_600.0  # Lines that are later than their request by more were rewritten.
BASE_58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
_TEXTS = ("prompt", "content", "snippet", "text", "message", "stdout")
SHOWED = "[Claude Code showed: "
_NOT_SHOWN = ("prompt_snapshot", "session_context")  # Attachments that the model does not see.
FOLDER_OF_SUBAGENTS = "subagents"
DELEGATES = ("Task", "Agent")  # The tools that start a sub-agent, in older and newer versions.
LARGEST_SETTINGS_BYTES = 1 << 20
_SAVED = re.compile(r"[\\/]tool-results[\\/]([\w.-]{1,200})")


def is_claude_code_row(value: Mapping[str, object]) -> bool:
    """Whether a row is a message of Claude Code. Rows of other programs have a `payload` or a
    `parentId`, or messages with `parts`.
    """
    if "payload" in value or "parentId" in value:
        return False
    if value.get("type") not in ("user", "assistant"):
        return False
    message = value.get("message")
    return isinstance(message, Mapping) and "parts" not in message


def read_claude_code_recordings(
    rows: Sequence[HistoryRow], report: ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the session of these lines and its sub-agents."""
    main_rows: list[HistoryRow] = []
    subagent_rows: list[HistoryRow] = []
    for row in rows:
        if row.value.get("isSidechain"):
            subagent_rows.append(row)
        else:
            main_rows.append(row)

    file_reader = _ClaudeCodeFile(report, path.parent / path.stem)
    # Since 2.1.331, a sub-agent's file also has rows about requests, which do not say
    # that they are a sub-agent's.
    has_main_messages = any(is_claude_code_row(row.value) for row in main_rows)
    if path.parent.name == FOLDER_OF_SUBAGENTS or not has_main_messages:
        _keep_settings_of_subagent(report, path)
        sessions = file_reader.read_recordings(rows, path.stem, str(path))
        return _mark_as_subagent(sessions, path, rows)

    session_id = _first_session_id(main_rows) or path.stem
    main_sessions = file_reader.read_recordings(main_rows, session_id, str(path))
    if report.unknown or report.complaints:
        _keep_results_that_no_message_has(report, main_sessions, path)
    subagents: list[RecordedSession] = []
    for rows_of_subagent in _group_by_subagent(subagent_rows):
        subagent = _read_subagent(rows_of_subagent, report, path, session_id, main_sessions)
        subagents.append(subagent)
    return _link_results_to_subagents(main_sessions, path, report) + subagents


def _keep_settings_of_subagent(report: ReadingReport, path: Path) -> None:
    """Keep the file beside a sub-agent's that says what kind of agent it is. Claude Code needs it
    to go on with the sub-agent.
    """
    with suppress(OSError):
        content = read_file_below(path.parent, f"{path.stem}.meta.json", LARGEST_SETTINGS_BYTES)
        text = content.decode("utf-8", "replace")
        settings = object_at(parse_json_or_none(text))
        if is_settings_of_subagent(settings):
            one_line = b" ".join(content.splitlines())
            report.unread.append(one_line + b"\n")


def _keep_results_that_no_message_has(
    report: ReadingReport, sessions: Sequence[RecordedSession], path: Path
) -> None:
    """Keep the complete results that lie beside a file of which something is not read: the row that
    names one may be among that, and then no message has it.
    """
    names_in_messages: set[str] = set()
    for session in sessions:
        for message in session.messages:
            saved_path = _SAVED.search(message.shown or "")
            if saved_path is not None:
                names_in_messages.add(saved_path[1])
    folder = path.parent / path.stem / "tool-results"
    for file in list_files_below(folder, "*", allowed_root=path.parent):
        if file.name in names_in_messages:
            continue
        with suppress(OSError):
            name = str(file.relative_to(path.parent))
            content = read_file_below(path.parent, name, LARGEST_RESULT_BYTES)
            kept_result = {"tool-result": file.name, "text": content.decode("utf-8", "replace")}
            report.unread.append(json.dumps(kept_result, ensure_ascii=False).encode())


def is_settings_file_of_subagent(file: Path) -> bool:
    return FOLDER_OF_SUBAGENTS in file.parts and file.name.endswith(".meta.json")


def is_settings_of_subagent(value: Mapping[str, object]) -> bool:
    """Whether it is what Claude Code notes beside a sub-agent's file, and no line of a session."""
    return "agentType" in value and "type" not in value


def _first_session_id(rows: Sequence[HistoryRow]) -> str:
    for row in rows:
        session = text_at(row.value, "sessionId")
        if session:
            return session
    return ""


@dataclass(slots=True)
class _ClaudeCodeFile:
    """Reads one file. `companion_folder`: the one with the session's other files."""

    report: ReadingReport
    companion_folder: Path

    def read_recordings(
        self, rows: Sequence[HistoryRow], session_id: str, name: str
    ) -> list[RecordedSession]:
        """Return the session in these rows, and a fork for each branch of it.

        The rows are put into a tree by the ids of their parents, without those that are no part of
        the conversation: their children follow their parent. Rows that a compaction has kept are
        continued behind its summary.
        """
        tree = HistoryTree()
        title = ""
        kept_row_ids: list[str] = []
        for index, row in enumerate(rows):
            value = row.value
            self.report.row = row
            kind = text_at(value, "type")
            if kind in _TITLES:
                title = text_at(value, _TITLES[kind]) or title
            node = _node_of_event(value)
            if node is None:
                tree.skip_row(text_at(value, "uuid"), text_at(value, "parentUuid"))
                if kind not in _TITLES:
                    self.report.add_left_out_row(_name_of_kind(value))
                continue
            tree.add_node(index, node)
            if value.get("subtype") == "compact_boundary":
                kept_row_ids = _row_ids_kept_by_compaction(value)
            elif value.get("isCompactSummary"):
                tree.redirect_followers_to_newest_row(kept_row_ids)
        return self._build_claude_recordings(rows, tree, session_id, name, title)

    def _build_claude_recordings(
        self, rows: Sequence[HistoryRow], tree: HistoryTree, session_id: str, name: str, title: str
    ) -> list[RecordedSession]:
        """Read the messages of each branch of the tree, with what all have in common."""
        folder = ""
        version = ""
        for row in rows:
            folder = text_at(row.value, "cwd")
            if folder:
                version = text_at(row.value, "version")
                break

        def read_claude_messages(
            indices: Sequence[int], report: ReadingReport
        ) -> _ClaudeCodeMessages:
            reader = _ClaudeCodeMessages(report, companion_folder=self.companion_folder)
            reader.read_rows(rows[index] for index in indices)
            reader.correct_message_times()
            return reader

        template = RecordedSession(
            name=name,
            messages=(),
            kind=KIND,
            session=session_id,
            title=title,
            folder=folder,
            version=version,
        )
        row_ids = [text_at(row.value, "uuid") for row in rows]
        return build_branch_sessions(tree, template, row_ids, read_claude_messages, self.report)


def _name_of_kind(value: Mapping[str, object]) -> str:
    """Return a row's kind as reports name it, such as "system/turn_duration"."""
    kind = text_at(value, "type") or "no type"
    subtype = text_at(value, "subtype")
    if not subtype:
        return kind
    return f"{kind}/{subtype}"


def _node_of_event(value: Mapping[str, object]) -> HistoryNode | None:
    """Return an event's place in the tree, or None if it is no part of the conversation."""
    if not _is_part_of_conversation(value):
        return None
    kind = value.get("type")
    message = object_at(value, "message")
    own_id = text_at(value, "uuid")
    parent = first_text(value, "parentUuid", "logicalParentUuid")
    if not parent and "parentUuid" in value and value.get("subtype") != "compact_boundary":
        parent = ROOT
    if kind == "assistant":
        step = text_at(message, "id") or own_id
        return HistoryNode(own_id, parent, step=step)
    is_typed = kind == "user" and _is_typed_by_person(value, message)
    return HistoryNode(own_id, parent, begins=is_typed)


def _is_part_of_conversation(value: Mapping[str, object]) -> bool:
    kind = value.get("type")
    if kind == "system":
        return value.get("subtype") in ("compact_boundary", "local_command")
    if kind == "attachment":
        return isinstance(value.get("attachment"), Mapping)
    return kind in ("user", "assistant") and bool(object_at(value, "message"))


def _is_typed_by_person(value: Mapping[str, object], message: Mapping[str, object]) -> bool:
    """Whether a person typed it: it is no result or summary, and the program did not insert it."""
    if value.get("isMeta") or value.get("isCompactSummary") or "toolUseResult" in value:
        return False
    content = message.get("content")
    if isinstance(content, str):
        return not content.startswith(("<local-command-", "<command-", "[Request interrupted"))
    blocks = objects_at(content)
    for block in blocks:
        if block.get("type") == "tool_result":
            return False
    if not blocks:
        return True
    return not text_at(blocks[0], "text").startswith("[Request interrupted")


def _row_ids_kept_by_compaction(boundary: Mapping[str, object]) -> list[str]:
    """Return the ids of the rows that stay in the context behind a compaction's summary."""
    details = object_at(boundary, "compactMetadata")
    segment = object_at(details, "preservedSegment")
    row_ids: list[str] = []
    for row_id in list_at(details, "preservedMessages", "uuids"):
        if isinstance(row_id, str):
            row_ids.append(row_id)
    first = text_at(segment, "headUuid")
    last = text_at(segment, "tailUuid")
    for row_id in (first, last, text_at(boundary, "logicalParentUuid")):
        if row_id and row_id not in row_ids:
            row_ids.append(row_id)
    return row_ids


# --- Turning a session's lines into messages


@dataclass(slots=True)
class _ClaudeCodeMessages(HistoryMessages):
    """`unfinished_replies`: the position of each reply that is not finished, by message id."""

    companion_folder: Path = Path()
    unfinished_replies: dict[str, int] = field(default_factory=dict)
    # Each message's position, by its line's id.
    message_index_by_row_id: dict[str, int] = field(default_factory=dict)
    boundary: Mapping[str, object] | None = None
    # When Anthropic received a reply's request, by the reply's position.
    request_times: dict[int, float] = field(default_factory=dict)

    def correct_message_times(self) -> None:
        """Correct the times of rewritten lines: no message is later than a request that
        contains it.

        Claude Code writes lines again, with the time at which it does so. When a reply's request was
        received is known from the request's id. The messages are corrected from the last to the
        first, as each is earlier than the next request behind it.
        """
        latest_time = math.inf
        for position in reversed(range(len(self.messages))):
            message = self.messages[position]
            request_time = self.request_times.get(position, 0.0)
            stated_time = message.time
            if request_time and not 0 <= stated_time - request_time < LONGEST_REPLY_SECONDS:
                stated_time = request_time
            time = min(stated_time, latest_time)
            seconds = 0.0
            if request_time:
                seconds = max(0.0, time - request_time)
                latest_time = request_time
            if (time, seconds) != (message.time, message.seconds):
                self.messages[position] = replace(message, time=time, seconds=seconds)

    def read_row(self, value: Mapping[str, object]) -> None:
        """Add a row's message by its kind, then note the position of that message by the row's id."""
        position = len(self.messages)
        kind = value.get("type")
        message = object_at(value, "message")
        if kind == "system" and value.get("subtype") == "compact_boundary":
            self.boundary = value
        elif kind in ("attachment", "system"):
            self._read_line_of_program(value)
        elif value.get("isCompactSummary"):
            summary = text_of_message_content(message.get("content"))
            self._read_claude_compaction(value, summary)
        elif kind == "assistant" and value.get("isApiErrorMessage"):
            reason = text_of_message_content(message.get("content"))
            time = parse_time(value.get("timestamp"))
            failure = RecordedMessage("failure", reason, time=time)
            self._add_recorded_message(failure)
        elif kind == "assistant":
            self._read_claude_reply(value, message)
        else:
            self._read_claude_user_message(value, message)
        # A row that added no message stands where the one before it does.
        last_position = max(0, len(self.messages) - 1)
        row_id = text_at(value, "uuid")
        self.message_index_by_row_id.setdefault(row_id, min(position, last_position))

    def _add_recorded_message(self, message: RecordedMessage) -> None:
        if message.role in ("user", "failure"):
            self.unfinished_replies.clear()
        self.messages.append(message)

    def _read_claude_reply(
        self, value: Mapping[str, object], message: Mapping[str, object]
    ) -> None:
        """Add a reply, or what this row adds to one: Claude Code writes a row for each
        block.
        """
        model = text_at(message, "model")
        parts = read_claude_reply_parts(message.get("content"), model)
        usage = anthropic_gateway.parse_usage(object_at(message, "usage"))
        message_id = text_at(message, "id")
        unfinished_position = self.unfinished_replies.get(message_id)
        # Results may stand between a reply's lines. Claude Code sends these as one reply, too.
        if unfinished_position is not None:
            unfinished = self.messages[unfinished_position]
            all_parts = list(unfinished.parts) + parts
            self.messages[unfinished_position] = build_recorded_reply(
                all_parts, model=model, time=unfinished.time, usage=usage
            )
            return
        time = parse_time(value.get("timestamp"))
        self._add_recorded_message(build_recorded_reply(parts, model=model, time=time, usage=usage))
        position = len(self.messages) - 1
        if message_id:
            self.unfinished_replies[message_id] = position
        request_time = parse_time_of_request_id(text_at(value, "requestId"))
        if request_time:
            self.request_times[position] = request_time

    def _read_claude_user_message(
        self, value: Mapping[str, object], message: Mapping[str, object]
    ) -> None:
        """Add the results in a message of the user, and then what else it says."""
        time = parse_time(value.get("timestamp"))
        content = message.get("content")
        content_without_results: object = content
        if isinstance(content, list):
            other_blocks: list[Mapping[str, object]] = []
            for block in objects_at(content):
                if block.get("type") != "tool_result":
                    other_blocks.append(block)
                    continue
                if has_loaded_tools(block):
                    # The message does not say what Claude Code needs to have them again.
                    self.report.keep_row_as_it_is()
                result = self._read_claude_tool_result(value, block, time)
                self._add_recorded_message(result)
            content_without_results = other_blocks

        text, pictures = text_and_pictures(content_without_results)
        if text.strip() or pictures:
            is_beside = bool(value.get("isMeta")) or not _is_typed_by_person(value, message)
            said = RecordedMessage("user", text, time=time, pictures=pictures, beside=is_beside)
            self._add_recorded_message(said)

    def _read_claude_tool_result(
        self, value: Mapping[str, object], block: Mapping[str, object], time: float
    ) -> RecordedMessage:
        result = read_tool_result(block, time, "tool_use_id", "is_error")
        result = replace(result, child=text_at(value, "toolUseResult", "agentId"))
        untruncated_text = self._find_untruncated_result(result.text, value.get("toolUseResult"))
        if not untruncated_text:
            return result
        return replace(result, text=untruncated_text, shown=result.text)

    def _find_untruncated_result(self, shown_text: str, stored_result: object) -> str:
        """Return the complete text of a result of which the model saw only the beginning, or ""."""
        if not shown_text.startswith("<persisted-output>"):
            return ""
        saved_path = _SAVED.search(shown_text)
        if saved_path is not None:
            name = f"{self.companion_folder.name}/tool-results/{saved_path[1]}"
            with suppress(OSError):  # The user may have deleted the file.
                content = read_file_below(self.companion_folder.parent, name, LARGEST_RESULT_BYTES)
                return content.decode("utf-8", "replace")
        output = text_at(stored_result, "stdout")
        if len(output) > len(shown_text):
            return output
        return ""

    def _read_line_of_program(self, value: Mapping[str, object]) -> None:
        """Add, as a message, what the program showed the model besides messages."""
        kind = text_at(value, "attachment", "type")
        if kind in _NOT_SHOWN:
            self.report.add_left_out_row(f"attachment/{kind}")
            return
        if value.get("type") == "attachment" and not kind:
            self.report.unknown["the field attachment in another form"] += 1
        # The text is not all that Claude Code needs to send the same again.
        self.report.keep_row_as_it_is()
        text = text_shown_by_line(value)
        if text.strip():
            pictures = pictures_in_content(value_at(value, "attachment", "prompt"))
            time = parse_time(value.get("timestamp"))
            self.messages.append(
                RecordedMessage("user", text, time=time, pictures=pictures, beside=True)
            )

    def _read_claude_compaction(self, value: Mapping[str, object], text: str) -> None:
        """Add a compaction with this summary, or a message if the file has nothing before it."""
        time = parse_time(value.get("timestamp"))
        boundary = self.boundary or {}
        self.boundary = None
        if not self.messages:
            self._add_recorded_message(
                RecordedMessage("user", text, time=time, beside=True, is_summary=True)
            )
            return
        details = object_at(boundary, "compactMetadata")
        kept_row_ids = list_at(details, "preservedMessages", "uuids")
        first_kept_row_id = text_at(details, "preservedSegment", "headUuid")
        if not first_kept_row_id and kept_row_ids:
            first_kept_row_id = str(kept_row_ids[0])
        first_kept = self.message_index_by_row_id.get(first_kept_row_id, len(self.messages))
        why = "Claude Code compacted the conversation here"
        trigger = text_at(details, "trigger")
        if trigger:
            why += f" ({trigger})"
        self.add_compaction(text, time, why, first_kept)
        self.unfinished_replies.clear()


def parse_time_of_request_id(request_id: str) -> float:
    """Return when Anthropic received a request, in seconds since 1970, by its id (a
    version 7 UUID in base 58), or 0.
    """
    digits = request_id.removeprefix("req_01")
    # 16 bytes take 22 digits of base 58.
    if len(digits) != 22 or not set(digits) <= set(BASE_58):
        return 0.0
    uuid_number = 0
    for digit in digits:
        uuid_number = uuid_number * 58 + BASE_58.index(digit)
    # The fields of a UUID as RFC 9562 places them in its 128 bits.
    milliseconds = uuid_number >> 80
    version = uuid_number >> 76 & 0b1111
    variant = uuid_number >> 62 & 0b11
    if version != 7 or variant != 2:
        return 0.0
    return milliseconds / 1_000


def read_claude_reply_parts(content: object, model: str) -> list[ReplyPart]:
    """Return the blocks of a reply as parts. Blocks of unknown kinds become notes in
    its text.
    """
    if not isinstance(content, list):
        return [Text(text_of_message_content(content))]
    parts: list[ReplyPart] = []
    for block in objects_at(content):
        kind = block.get("type")
        if kind == "text":
            text = text_at(block, "text")
            parts.append(Text(text))
        elif kind in ("thinking", "redacted_thinking"):
            thinking = read_claude_thinking(block, TAG, model)
            parts.append(thinking)
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            call_id = text_at(block, "id")
            name = text_at(block, "name")
            call = checked_tool_call(call_id, name, block.get("input"))
            parts.append(call)
        else:
            note = text_of_message_content([block])
            parts.append(Text(note))
    return parts


def read_claude_thinking(block: Mapping[str, object], tag: str, model: str) -> Reasoning:
    """Return a block of thinking with the signature that Anthropic needs back."""
    if block.get("type") == "redacted_thinking":
        opaque = format_opaque_json(type="redacted_thinking", data=text_at(block, "data"))
        return Reasoning("", opaque=opaque, provider=tag, model=model)
    text = text_at(block, "thinking")
    signature = text_at(block, "signature")
    if not signature:
        return Reasoning(text)
    opaque = format_opaque_json(type="thinking", thinking=text, signature=signature)
    return Reasoning(text, opaque=opaque, provider=tag, model=model)


def has_loaded_tools(block: Mapping[str, object]) -> bool:
    """Whether a block is the result of a search for tools, with references to them."""
    for part in objects_at(block, "content"):
        if part.get("type") == "tool_reference":
            return True
    return False


def text_shown_by_line(value: Mapping[str, object]) -> str:
    """Return what the model sees of a line of the program itself, or an empty string."""
    if value.get("subtype") == "local_command":
        return text_at(value, "content")
    attachment = object_at(value, "attachment")
    kind = text_at(attachment, "type") or "attachment"
    if kind in _NOT_SHOWN:
        return ""
    if kind == "queued_command":
        return text_of_message_content(attachment.get("prompt"))
    rendered_texts: list[str] = []
    for rendered in objects_at(value, "rendered"):
        rendered_texts.append(text_of_message_content(rendered.get("content")))
    text = "\n".join(rendered_texts) or _text_of_claude_attachment(attachment)
    return f"{SHOWED}{kind}]\n{text}"


def _text_of_claude_attachment(attachment: Mapping[str, object]) -> str:
    """Return an attachment's text: the field with it, or everything."""
    for name in _TEXTS:
        value = attachment.get(name)
        if isinstance(value, str) and value.strip():
            file_name = first_text(attachment, "filename", "path")
            if file_name:
                return f"{file_name}\n{value}"
            return value
    added_lines = attachment.get("addedLines")
    if isinstance(added_lines, list):
        return "\n".join(str(line) for line in added_lines)
    fields = dict(attachment)
    fields.pop("type", None)
    return json.dumps(fields, ensure_ascii=False)


# --- Sub-agents and their conversations


def _group_by_subagent(rows: Sequence[HistoryRow]) -> list[list[HistoryRow]]:
    """Group rows by sub-agent: each begins with a row whose parent is not among the rows."""
    groups: dict[str, list[HistoryRow]] = {}
    root_by_row: dict[str, str] = {}
    for row in rows:
        row_id = text_at(row.value, "uuid")
        root = root_by_row.get(text_at(row.value, "parentUuid"), "")
        if not root:
            root = text_at(row.value, "agentId") or row_id
        root_by_row[row_id] = root
        groups.setdefault(root, []).append(row)
    return list(groups.values())


def _read_subagent(
    rows: list[HistoryRow],
    report: ReadingReport,
    path: Path,
    parent: str,
    main_sessions: Sequence[RecordedSession],
) -> RecordedSession:
    """Return a sub-agent's session, linked to the call that started it."""
    name = f"agent-{first_text(rows[0].value, 'agentId', 'uuid')}"
    file_reader = _ClaudeCodeFile(report, path.parent / path.stem)
    session = file_reader.read_recordings(rows, name, f"{path}#{name}")[0]
    task = _task_of_subagent(session)
    return replace(
        session,
        parent=parent,
        parent_call=_find_call_with_task(main_sessions, task),
        title=_title_from_claude_text(task),
    )


def _task_of_subagent(session: RecordedSession) -> str:
    if not session.messages:
        return ""
    return session.messages[0].text


def _title_from_claude_text(task: str) -> str:
    return " ".join(task.split())[:60]


def _find_call_with_task(main_sessions: Sequence[RecordedSession], task: str) -> str:
    """Return the id of the call that gave a sub-agent this task, or an empty string."""
    if not task.strip():
        return ""
    for session in main_sessions:
        for message in session.messages:
            for call in message.calls:
                if call.name not in DELEGATES:
                    continue
                prompt = text_at(parse_json_or_none(call.arguments), "prompt")
                if prompt.strip() == task.strip():
                    return call.id
    return ""


def _mark_as_subagent(
    sessions: list[RecordedSession], path: Path, rows: Sequence[HistoryRow]
) -> list[RecordedSession]:
    """Mark a sub-agent's session. Its rows or its folder name the session that started it."""
    parent = _first_session_id(rows) or path.parent.parent.name
    marked_sessions: list[RecordedSession] = []
    for session in sessions:
        if session.forked_from:
            marked_sessions.append(session)
        else:
            title = _title_from_claude_text(_task_of_subagent(sessions[0]))
            marked_sessions.append(replace(session, parent=parent, title=title))
    return marked_sessions


def _link_results_to_subagents(
    sessions: list[RecordedSession], path: Path, report: ReadingReport
) -> list[RecordedSession]:
    """Name the sub-agent's session in each result that came from one, if the session has a file."""
    linked: list[RecordedSession] = []
    for session in sessions:
        messages = tuple(_with_existing_child(message, path) for message in session.messages)
        linked.append(replace(session, messages=messages))
    _note_results_without_subagent(linked, path, report)
    return linked


def _note_results_without_subagent(
    sessions: Sequence[RecordedSession], path: Path, report: ReadingReport
) -> None:
    """Note results that should name a sub-agent and do not, while no result names one of the files
    of sub-agents: a tool's structured result may have any fields, so this one is not missed there.
    """
    unnamed_subagents = {file.stem for file in _list_claude_subagents(path)}
    if not unnamed_subagents:
        return
    delegating_calls: set[str] = set()
    results_without_subagent: set[str] = set()
    for session in sessions:
        for message in session.messages:
            unnamed_subagents.discard(message.child)
            delegating_calls.update(call.id for call in message.calls if call.name in DELEGATES)
            if message.role == "tool" and message.ok and not message.child:
                results_without_subagent.add(message.answers)
    results_without_subagent &= delegating_calls
    if unnamed_subagents and results_without_subagent:
        report.unknown["the field agentId in another place"] += len(results_without_subagent)


def _with_existing_child(message: RecordedMessage, path: Path) -> RecordedMessage:
    if not message.child:
        return message
    session_id = f"agent-{message.child}"
    own_folder = path.parent / path.stem / "subagents"
    for folder in (own_folder, path.parent):
        if (folder / f"{session_id}.jsonl").is_file():
            return replace(message, child=session_id)
    return replace(message, child="")


def _list_claude_code_folders(places: HistoryPlaces) -> Sequence[Path]:
    claude_home = places.folder_from_variable("CLAUDE_CONFIG_DIR", ".claude")
    return [claude_home / "projects"]


def _is_main_claude_session(file: Path) -> bool:
    return "subagents" not in file.parts and not file.match(SUBAGENT_FILE)


def _list_claude_subagents(file: Path) -> Sequence[Path]:
    subagents = file.parent / file.stem / "subagents"
    return list_files_below(subagents, f"{SUBAGENT_FILE}.jsonl", allowed_root=file.parent)


FORMAT = HistoryFormat(
    KIND,
    recognizes=is_claude_code_row,
    read=read_claude_code_recordings,
    keeps_lines=True,
    folders=_list_claude_code_folders,
    file_pattern="*.jsonl",
    is_main_session=_is_main_claude_session,
    list_subagents=_list_claude_subagents,
)
