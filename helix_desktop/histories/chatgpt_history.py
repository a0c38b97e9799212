"""Conversations of an export of ChatGPT: `conversations.json`, alone or in the ZIP file of the
export. Each conversation is a tree of messages by `mapping`, with a branch for each edited message
and each regenerated answer.

Written after the public descriptions of the format; tested with files made after them.
"""

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from helix_desktop import decompression
from helix_desktop.engine.facts import ToolCall
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
from helix_desktop.histories.history_format import HistoryFormat
from helix_desktop.histories.history_tree import (
    ROOT,
    HistoryNode,
    HistoryTree,
    build_branch_sessions,
)
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.json_values import first_text, list_at, object_at, objects_at, text_at

KIND = "chatgpt"
# What the user wrote about themselves, and what ChatGPT remembered of them.
_CONTEXTS = ("user_editable_context", "model_editable_context")
_MAY_BE_EMPTY = ("text", "multimodal_text", "code", "execution_output", "reasoning_recap")
LARGEST_DOCUMENT = 1 << 30  # Bytes of one conversations.json in a ZIP file.
# An export also has a file for each picture, which is not read.
MOST_MEMBERS = 200_000
_CONVERSATIONS = re.compile(r"(?:.*/)?conversations(?:-\d+)?\.json")
_TO_EVERYBODY = ("", "all", "final")
# In place of a reference to a page, an answer has such a mark, in signs that no font shows.
_REFERENCE_MARK = re.compile("\ue200[^\ue200\ue201]*\ue201")


def is_chatgpt_row(value: Mapping[str, object]) -> bool:
    if not isinstance(value.get("mapping"), Mapping):
        return False
    return "current_node" in value or "conversation_id" in value


def is_chatgpt_archive(path: Path) -> bool:
    return path.suffix.casefold() == ".zip" and zipfile.is_zipfile(path)


def read_documents_in_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files of conversations in the ZIP file of an export."""
    is_empty = True
    try:
        with decompression.open_foreign_archive(path, MOST_MEMBERS) as archive:
            for name in sorted(archive.namelist()):
                if not _CONVERSATIONS.fullmatch(name):
                    continue
                is_empty = False
                yield name, decompression.read_archive_member(archive, name, LARGEST_DOCUMENT)
    except (zipfile.BadZipFile, OSError) as error:
        raise InvalidInput(f"{path} is not a ZIP file that can be read: {error}.") from error
    if is_empty:
        raise InvalidInput(
            f"{path} has no conversations.json.",
            remedy="Choose the ZIP file that ChatGPT sent as “data export”.",
        )


def read_chatgpt_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the conversations of an export, each with its branches. A row is a conversation."""
    recordings: list[RecordedSession] = []
    for row in rows:
        report.row = row
        if is_chatgpt_row(row.value):
            recordings += _read_conversation(row, report, path)
        else:
            report.add_left_out_row("no conversation")
    return recordings


def _read_chatgpt_branch(
    rows: Sequence[history_rows.HistoryRow],
    indices: Sequence[int],
    report: history_rows.ReadingReport,
) -> "_ChatgptMessages":
    """Read the messages of one branch, which are the rows at these places."""
    rows_of_branch = [rows[index] for index in indices]
    return _ChatgptMessages(report).read_rows(rows_of_branch)


def _read_conversation(
    row: history_rows.HistoryRow, report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return a conversation and its branches, which arise where the user edited a
    message or asked for another answer.
    """
    nodes = _list_nodes_from_root(object_at(row.value, "mapping"))
    message_rows = [history_rows.HistoryRow(node.message, row.place, row.line) for node in nodes]
    tree = HistoryTree()
    for index, node in enumerate(nodes):
        history_node = HistoryNode(node.id, node.parent, node.begins_branch, step=node.id)
        tree.add_node(index, history_node)

    read_branch = partial(_read_chatgpt_branch, message_rows)
    conversation_id = first_text(row.value, "conversation_id", "id")
    template = RecordedSession(
        name=f"{path}#{conversation_id}",
        messages=(),
        kind=KIND,
        session=conversation_id,
        title=text_at(row.value, "title"),
    )
    node_ids = [node.id for node in nodes]
    branches = build_branch_sessions(tree, template, node_ids, read_branch, report)
    return [session for session in branches if session.messages]


@dataclass(frozen=True, slots=True)
class _MessageNode:
    """`begins_branch`: its parent has several children, because a message was edited or an answer
    regenerated.
    """

    id: str
    parent: str
    begins_branch: bool
    message: Mapping[str, object]


def _list_nodes_from_root(mapping: Mapping[str, object]) -> list[_MessageNode]:
    """Return the nodes that have a message, each behind its parent, in the order in which they
    were written.

    The export names for each node its parent and its children. The tree is walked from its
    roots, with the nodes that are still to be visited in a list instead of by recursion, as a
    conversation may be long.
    """
    roots = [name for name, node in mapping.items() if text_at(node, "parent") not in mapping]
    # The next one to visit is the last. A node's children are visited before its siblings.
    pending = [_PendingNode(name, ROOT, begins_branch=False) for name in reversed(roots)]
    visited_ids: set[str] = set()
    nodes: list[_MessageNode] = []
    while pending:
        current = pending.pop()
        node = mapping.get(current.id)
        if current.id in visited_ids or not isinstance(node, Mapping):
            continue
        visited_ids.add(current.id)

        # Nodes without a message are left out: their children follow their parent.
        parent = current.parent
        message = object_at(node, "message")
        if message:
            nodes.append(_MessageNode(current.id, parent, current.begins_branch, message))
            parent = current.id
        children = [child for child in list_at(node, "children") if isinstance(child, str)]
        has_branches = len(children) > 1
        for child in reversed(children):
            pending.append(_PendingNode(child, parent, has_branches))
    return nodes


@dataclass(frozen=True, slots=True)
class _PendingNode:
    """A node that is still to be visited, and the node with a message that it follows."""

    id: str
    parent: str
    begins_branch: bool


@dataclass(slots=True)
class _ChatgptMessages(history_rows.HistoryMessages):
    reasoning: list[str] = field(default_factory=list)  # Of the answer that follows.
    open_calls: list[ToolCall] = field(default_factory=list)  # Those without a result yet.

    def report_unknown_parts(self, value: Mapping[str, object]) -> None:
        """Its parts have kinds of their own, which `_text_of_content` reports."""

    def read_row(self, value: Mapping[str, object]) -> None:
        """Add the messages of one row of the export, by its kind of content or else its role.

        Raise `UnknownRow` for another role: the row is then named in the report.
        """
        role = text_at(value, "author", "role")
        time = history_rows.parse_time(value.get("create_time"))
        content = object_at(value, "content")
        text = self._text_of_content(content)
        if content.get("content_type") in ("thoughts", "reasoning_recap"):
            self.reasoning.append(text)
        elif content.get("content_type") in _CONTEXTS:
            self._add_instructions(text, time)
        elif role == "user":
            self.add_user_message(text, time)
        elif role == "system":
            self._add_instructions(text, time)
        elif role == "assistant":
            self._add_answer(value, text, time)
        elif role == "tool":
            self._add_result(value, text, time)
        else:
            raise history_rows.UnknownRow(f"there is no role {role!r}")

    def _add_instructions(self, text: str, time: float) -> None:
        if text.strip():
            self.messages.append(RecordedMessage("system", text, time=time))

    def _add_answer(self, value: Mapping[str, object], text: str, time: float) -> None:
        """Add what the model said to the user, or its call of a tool."""
        text = write_references_out(text, value)
        model = text_at(value, "metadata", "model_slug")
        recipient = text_at(value, "recipient")
        answer = RecordedMessage("assistant", text, time=time, model=model)
        if recipient not in _TO_EVERYBODY:
            # What is said to a tool is a call.
            arguments = history_rows.format_arguments({"input": text})
            call = ToolCall(text_at(value, "id"), recipient, arguments)
            self.open_calls.append(call)
            answer = replace(answer, text="", calls=(call,))
        if not answer.text.strip() and not answer.calls:
            return
        reasoning = history_rows.join_nonempty_texts(self.reasoning, "\n")
        self.reasoning.clear()
        self.messages.append(replace(answer, reasoning=reasoning))

    def _add_result(self, value: Mapping[str, object], text: str, time: float) -> None:
        """A result does not name its call: it answers the last call of that tool."""
        name = text_at(value, "author", "name")
        for call in reversed(self.open_calls):
            if call.name == name or name.startswith(f"{call.name}.") or not name:
                self.open_calls.remove(call)
                self.messages.append(RecordedMessage("tool", text, answers=call.id, time=time))
                return
        if text.strip():  # What a tool added unasked, such as the text of an attached file.
            self.add_user_message(f"[{name}]\n{text}", time, beside=True)

    def _text_of_content(self, content: Mapping[str, object]) -> str:
        """Return the text of a message's content, which has another form for each kind."""
        kind = text_at(content, "content_type")
        if kind == "thoughts":
            thoughts: list[str] = []
            for thought in objects_at(content, "thoughts"):
                thoughts.append(first_text(thought, "content", "summary"))
            return "\n".join(thoughts)
        if kind == "user_editable_context":
            texts = [text_at(content, "user_profile"), text_at(content, "user_instructions")]
            return history_rows.join_nonempty_texts(texts, "\n")
        if kind == "model_editable_context":
            return text_at(content, "model_set_context")
        parts = list_at(content, "parts")
        if not parts:
            text = first_text(content, "text", "result", "content")
            if not text and kind not in _MAY_BE_EMPTY:
                self.report.add_left_out_row(f"content {kind or 'no type'}")
            return text
        texts = [self._text_of_chatgpt_part(part) for part in parts]
        return history_rows.join_nonempty_texts(texts, "\n")

    def _text_of_chatgpt_part(self, part: object) -> str:
        """Return a part's text, or a note in place of a picture or a recording."""
        if isinstance(part, str):
            return part
        pointer = text_at(part, "asset_pointer")
        if pointer:
            # "image_asset_pointer" becomes "[image file-1a2b]".
            kind, _, _ = text_at(part, "content_type").partition("_")
            _, _, name = pointer.rpartition("/")
            return f"[{kind} {name}]"
        text = text_at(part, "text")
        if not text:
            self.report.add_left_out_row(f"part {text_at(part, 'content_type')}")
        return text


def write_references_out(text: str, message: Mapping[str, object]) -> str:
    """Puts links where the answer's text has marks for them, as ChatGPT itself shows it.

    The message says beside the text what stands for each mark. A mark for something else, such as
    a picture beside the answer, is left out.
    """
    for reference in objects_at(message, "metadata", "content_references"):
        mark = text_at(reference, "matched_text")
        if _REFERENCE_MARK.fullmatch(mark):
            text = text.replace(mark, text_at(reference, "alt"))
    return _REFERENCE_MARK.sub("", text)


FORMAT = HistoryFormat(KIND, recognizes=is_chatgpt_row, read=read_chatgpt_recordings)
