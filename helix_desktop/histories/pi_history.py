"""Sessions of pi: `~/.pi/agent/sessions/<folder>/<time>_<id>.jsonl`, a tree by `parentId`.

Tested with files of 0.73 and 1.5. The format is documented by pi itself
(session-format, versions 1 to 3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
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
    format_opaque_json,
)
from helix_desktop.json_values import number_at, object_at, objects_at, text_at

KIND = "pi"
_SHOWN = ("message", "custom_message", "branch_summary", "compaction")
_ABOUT = (
    "model_change",
    "thinking_level_change",
    "label",
    "custom",
    "session_info",
    "usage",
    "session",
)


def is_pi_row(value: Mapping[str, object]) -> bool:
    """Whether a row is a session's header or an entry of its tree."""
    if "parentId" in value:
        return value.get("type") in _SHOWN + _ABOUT
    return value.get("type") == "session" and "cwd" in value and isinstance(value.get("id"), str)


def read_pi_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the session of these rows, and a fork for each branch of it.

    The rows are put into the tree first: all but the session's header, and without those of unknown
    kinds, whose children follow their parent. Then each branch's messages are read.
    """
    file = _PiFile()
    for index, row in enumerate(rows):
        report.row = row
        file.add_row(index, row.value, report)

    def read_pi_messages(indices: Sequence[int], report: history_rows.ReadingReport) -> _PiMessages:
        rows_of_branch = [rows[index] for index in indices]
        return _PiMessages(report).read_rows(rows_of_branch)

    session = file.build_empty_session(path)
    row_ids = [text_at(row.value, "id") for row in rows]
    return build_branch_sessions(file.tree, session, row_ids, read_pi_messages, report)


@dataclass(slots=True)
class _PiFile:
    """What a file says of its session, and the tree of its entries."""

    header: Mapping[str, object] = field(default_factory=dict)
    title: str = ""
    tree: HistoryTree = field(default_factory=HistoryTree)

    def add_row(
        self, index: int, value: Mapping[str, object], report: history_rows.ReadingReport
    ) -> None:
        kind = value.get("type")
        if kind == "session":
            self.header = value
            return
        if kind not in _SHOWN + _ABOUT:
            report.add_left_out_row(str(kind or "no type"))
            self.tree.skip_row(text_at(value, "id"), text_at(value, "parentId"))
            return
        if kind == "session_info":
            self.title = text_at(value, "name")
        self.tree.add_node(index, _node_of_pi_entry(value))

    def build_empty_session(self, path: Path) -> RecordedSession:
        """Return the session without its messages, which each branch adds."""
        session_id = text_at(self.header, "id")
        if not session_id:  # The first line is damaged. The file's name ends in the id, too.
            _, _, session_id = path.stem.rpartition("_")
        # The header of the first version did not say its version.
        version = number_at(self.header, "version") or 1
        return RecordedSession(
            name=str(path),
            messages=(),
            kind=KIND,
            session=session_id,
            title=self.title,
            folder=text_at(self.header, "cwd"),
            version=f"format {version}",
        )


def _node_of_pi_entry(value: Mapping[str, object]) -> HistoryNode:
    """Return an entry's place in the tree of the session. An entry that names no parent is a
    root. A branch begins with a message of the user or with the summary of the branch that was
    left.
    """
    role = text_at(value, "message", "role")
    entry_id = text_at(value, "id")
    parent = text_at(value, "parentId")
    if not parent and "parentId" in value:
        parent = ROOT
    if role == "assistant":
        return HistoryNode(entry_id, parent, step=entry_id)
    begins = role == "user" or value.get("type") == "branch_summary"
    return HistoryNode(entry_id, parent, begins)


@dataclass(slots=True)
class _PiMessages(history_rows.HistoryMessages):
    # By entry id: the position of its message, or of the next one.
    places: dict[str, int] = field(default_factory=dict)

    def read_row(self, value: Mapping[str, object]) -> None:
        """Add an entry's message by its type, and note at which position it stands: a later
        compaction names by its id the first entry that it keeps.
        """
        self.places[text_at(value, "id")] = len(self.messages)
        time = history_rows.parse_time(value.get("timestamp"))
        kind = value.get("type")
        if kind == "message":
            self._read_pi_message(object_at(value, "message"), time)
        elif kind == "custom_message":
            self.add_user_message(value.get("content"), time, beside=True)
        elif kind == "branch_summary":
            text = f"[Summary of the branch that was left]\n{text_at(value, 'summary')}"
            self.add_user_message(text, time, beside=True)
        elif kind == "compaction":
            self._read_pi_compaction(value, time)

    def _read_pi_compaction(self, value: Mapping[str, object], time: float) -> None:
        """Add a compaction of the messages before the first one that it keeps."""
        message_count = len(self.messages)
        first_kept_entry = text_at(value, "firstKeptEntryId")
        first_kept = self.places.get(first_kept_entry, message_count)
        summarised_count = min(first_kept, message_count)
        summary = text_at(value, "summary")
        if self.messages and summary:
            self.add_compaction(
                summary, time, "pi compacted the conversation here", summarised_count
            )

    def _read_pi_message(self, message: Mapping[str, object], time: float) -> None:
        """Add a message by its role. `time`: that of the entry, if the message has none itself.

        Commands that the user ran, and what pi or its extensions added, stand `beside` the
        user's own messages.
        """
        time = history_rows.parse_time(message.get("timestamp")) or time
        role = message.get("role")
        content = message.get("content")
        if role == "assistant":
            self._read_pi_reply(message, time)
        elif role == "toolResult":
            self.messages.append(
                history_rows.read_tool_result(message, time, "toolCallId", "isError")
            )
        elif role == "user":
            self.add_user_message(content, time)
        elif role == "bashExecution":
            self._read_command_of_user(message, time)
        elif role in ("custom", "hookMessage"):
            self.add_user_message(content, time, beside=True)
        elif role in ("branchSummary", "compactionSummary"):
            self.add_user_message(text_at(message, "summary"), time, beside=True)
        elif role != "system":
            # A system message has prompt and tools, which pi writes anew where they changed.
            raise history_rows.UnknownRow(f"there is no role {role!r}")

    def _read_command_of_user(self, message: Mapping[str, object], time: float) -> None:
        """Add a command that the user ran, unless the model was not to see it."""
        if message.get("excludeFromContext"):
            self.report.add_left_out_row("bash command outside the context")
            return
        command = text_at(message, "command")
        output = text_at(message, "output")
        self.add_user_message(f"Ran `{command}`\n```\n{output}\n```", time, beside=True)

    def _read_pi_reply(self, message: Mapping[str, object], time: float) -> None:
        """Add a reply, or a note that the request failed."""
        content = message.get("content")
        model = text_at(message, "model")
        if message.get("stopReason") == "error" and not objects_at(content):
            why = text_at(message, "errorMessage") or "error"
            failure = RecordedMessage("failure", why, time=time)
            self.messages.append(failure)
            return
        parts = [_pi_reply_part(block, message) for block in objects_at(content)]
        if not parts:  # Its content is a text.
            text = history_rows.text_of_message_content(content)
            parts.append(Text(text))
        usage = _pi_usage(object_at(message, "usage"))
        reply = build_recorded_reply(parts, model=model, time=time, usage=usage)
        self.messages.append(reply)


def _pi_reply_part(block: Mapping[str, object], message: Mapping[str, object]) -> ReplyPart:
    if block.get("type") == "toolCall":
        return history_rows.checked_tool_call(
            text_at(block, "id"), text_at(block, "name"), block.get("arguments")
        )
    if block.get("type") == "thinking":
        return _pi_reasoning(block, message)
    return Text(history_rows.text_of_message_content([block]))


def _pi_reasoning(block: Mapping[str, object], message: Mapping[str, object]) -> Reasoning:
    """Return reasoning, signed if Anthropic or OpenAI themselves sent it: others can't read it."""
    text = text_at(block, "thinking")
    signature = text_at(block, "thinkingSignature")
    api = text_at(message, "api")
    model = text_at(message, "model")
    provider = message.get("provider")
    if signature and api == "anthropic-messages" and provider == "anthropic":
        if block.get("redacted"):
            opaque = format_opaque_json(type="redacted_thinking", data=signature)
        else:
            opaque = format_opaque_json(type="thinking", thinking=text, signature=signature)
        return Reasoning(text, opaque=opaque, provider="anthropic api.anthropic.com", model=model)
    if signature.startswith("{") and api == "openai-responses" and provider == "openai":
        provider_tag = "openai-responses api.openai.com"
        return Reasoning(text, opaque=signature, provider=provider_tag, model=model)
    return Reasoning(text)


def _pi_usage(usage: Mapping[str, object]) -> Usage:
    """Return how many tokens a reply took. pi counts what the cache has apart from the input."""
    cache_read = number_at(usage, "cacheRead")
    cache_write = number_at(usage, "cacheWrite")
    whole_input = number_at(usage, "input") + cache_read + cache_write
    costs = object_at(usage, "cost")
    cost = history_rows.cost_or_zero(costs.get("total"))
    return Usage(
        input=whole_input,
        cache_read=cache_read,
        cache_write=cache_write,
        output=number_at(usage, "output"),
        cost=cost,
    )


def _list_pi_folders(places: HistoryPlaces) -> Sequence[Path]:
    pi_home = places.folder_from_variable("PI_CODING_AGENT_DIR", ".pi", "agent")
    return [pi_home / "sessions"]


FORMAT = HistoryFormat(
    KIND,
    recognizes=is_pi_row,
    read=read_pi_recordings,
    keeps_lines=True,
    folders=_list_pi_folders,
    file_pattern="*.jsonl",
)
