"""Sessions of Claude Code: `~/.claude/projects/<project>/<session>.jsonl`, one event per line.

Tried with what 2.1.197 writes here and with files of 1.0 and 2.0. A reply stands in several lines with one `message.id`, one per
content block, and results may stand between them. Lines form a tree by `parentUuid`. A compaction is a `compact_boundary` and,
behind it, the summary as a message; what came before is still in the file. What the program showed the model beside the messages
stands in `attachment` lines. Sub-agents stand in the same file (`isSidechain`, until 2.0) or in `<session>/subagents/`. A large
result stands in `<session>/tool-results/`, and the line has what the model saw of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories.beside import read_beneath
from helix_desktop.histories.branches import ROOT, Node, Tree
from helix_desktop.histories.recording import Compaction, RecordedMessage, Recording, reply, sealed
from helix_desktop.histories.rows import (
    Row,
    Told,
    Unreadable,
    anthropic_usage,
    arguments_of,
    mapping,
    objects,
    pictures_of,
    string,
    text_of,
    time_of,
)
from helix_desktop.values import dataclass

KIND = "claude-code"
TAG = "anthropic api.anthropic.com"
LARGEST_RESULT = 256 << 20
_TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
_TEXTS = ("prompt", "content", "snippet", "text", "message", "stdout")
_SAVED = re.compile(r"[\\/]tool-results[\\/]([\w.-]{1,200})")


def is_one(value: Mapping[str, object]) -> bool:
    """Whether a row is an event of Claude Code."""
    known = value.get("type") in ("user", "assistant") and isinstance(value.get("message"), Mapping)
    return known and "payload" not in value and "parentId" not in value


def recordings(rows: Sequence[Row], told: Told, path: Path) -> list[Recording]:
    """The lines of the session and its sub-agents."""
    main = [row for row in rows if not row.value.get("isSidechain")]
    aside = [row for row in rows if row.value.get("isSidechain")]
    alone = not main or path.parent.name == "subagents"
    session = path.stem if alone else _session(main) or path.stem
    made = _Reading(told, path.parent / path.stem).all(main or aside, session, str(path))
    if alone:
        return _as_child(made, path, rows)
    children = [child for group in _groups(aside) for child in _child(group, told, path, session, made)]
    beside = _linked(made, path)
    return [*beside, *children]


def _session(rows: Sequence[Row]) -> str:
    return next((string(row.value, "sessionId") for row in rows if string(row.value, "sessionId")), "")


# --- lines ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """Everything of one file. `beside`: the folder of what belongs to the session."""

    told: Told
    beside: Path
    title: str = ""

    def all(self, rows: Sequence[Row], session: str, name: str) -> list[Recording]:
        tree, title = Tree(), ""
        kept: list[str] = []
        for index, row in enumerate(rows):
            value = row.value
            kind = string(value, "type")
            if kind in _TITLES:
                title = string(value, _TITLES[kind]) or title
            node = _node(value)
            if node is None:
                if kind not in _TITLES:
                    self.told.left_out[_label(value)] += 1
                continue
            tree.add(index, node)
            if kind == "system" and value.get("subtype") == "compact_boundary":
                kept = _kept(value)
            elif value.get("isCompactSummary"):
                tree.at_the_end(kept)
        return self._made(rows, tree, session, name, title)

    def _made(self, rows: Sequence[Row], tree: Tree, session: str, name: str, title: str) -> list[Recording]:
        first = next((row.value for row in rows if string(row.value, "cwd")), {})
        made: list[Recording] = []
        for number, branch in enumerate(tree.branches):
            writing = _Writing(self.told if number == 0 else Told(), self.beside).taken(
                rows[i] for i in tree.path(number)
            )
            shared = (
                len(_Writing(Told(), self.beside).taken(rows[i] for i in tree.shared(number)).made) if number else 0
            )
            own = string(rows[branch.rows[0]].value, "uuid") if branch.rows else ""
            made.append(
                Recording(
                    name if not number else f"{name}#{number + 1}",
                    tuple(writing.made),
                    KIND,
                    session if not number else f"{session}#{own}",
                    title,
                    string(first, "cwd"),
                    string(first, "version"),
                    tuple(writing.compactions),
                    forked_from="" if not shared else session if not branch.of else made[branch.of].session,
                    forked_at=shared,
                )
            )
        return made


def _node(value: Mapping[str, object]) -> Node | None:
    """Its place in the tree; None for what is not part of the conversation."""
    kind, message = value.get("type"), mapping(value.get("message"))
    boundary = kind == "system" and value.get("subtype") == "compact_boundary"
    shown = kind == "attachment" and isinstance(value.get("attachment"), Mapping)
    if not (boundary or shown or (kind in ("user", "assistant") and message)):
        return None
    parent = string(value, "parentUuid", "logicalParentUuid")
    if not parent and "parentUuid" in value and not boundary:
        parent = ROOT
    step = string(message, "id") or string(value, "uuid") if kind == "assistant" else ""
    return Node(string(value, "uuid"), parent, kind == "user" and _begins(value, message), step)


def _begins(value: Mapping[str, object], message: Mapping[str, object]) -> bool:
    """Whether a person says something: no result, no summary, nothing the program put in."""
    if value.get("isMeta") or value.get("isCompactSummary") or "toolUseResult" in value:
        return False
    content = message.get("content")
    if isinstance(content, str):
        return not content.startswith(("<local-command-", "<command-", "[Request interrupted"))
    blocks = objects(content)
    first = string(blocks[0], "text") if blocks else ""
    return all(block.get("type") != "tool_result" for block in blocks) and not first.startswith("[Request interrupted")


def _kept(boundary: Mapping[str, object]) -> list[str]:
    """The rows a compaction left word for word."""
    details = mapping(boundary.get("compactMetadata"))
    segment, messages = mapping(details.get("preservedSegment")), mapping(details.get("preservedMessages"))
    listed = messages.get("uuids")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    ends = [string(segment, "headUuid"), string(segment, "tailUuid")]
    return [*names, *(name for name in [*ends, string(boundary, "logicalParentUuid")] if name and name not in names)]


def _label(value: Mapping[str, object]) -> str:
    return "/".join(filter(None, (string(value, "type") or "no type", string(value, "subtype"))))


# --- messages -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Writing:
    """The messages so far. `steps`: where the reply of each message id stands, while it is still being written."""

    told: Told
    beside: Path
    made: list[RecordedMessage] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # of a line: the message it became
    boundary: Mapping[str, object] | None = None
    of: dict[str, str] = field(default_factory=dict)  # of a line of a reply: the reply's message id

    def taken(self, rows: Iterator[Row]) -> _Writing:
        for row in rows:
            try:
                self._take(row.value)
            except Unreadable as error:
                self.told.complaints.append(row.complaint(error))
        return self

    def _take(self, value: Mapping[str, object]) -> None:
        at = len(self.made)
        kind, message = value.get("type"), mapping(value.get("message"))
        if kind == "system":
            self.boundary = value
        elif kind == "attachment":
            self._attached(value)
        elif value.get("isCompactSummary"):
            self._compacted(value, text_of(message.get("content")))
        elif kind == "assistant" and value.get("isApiErrorMessage"):
            self._add(RecordedMessage("failure", text_of(message.get("content")), time=time_of(value.get("timestamp"))))
        elif kind == "assistant":
            self._replied(value, message)
        else:
            self._said(value, message)
        self.places.setdefault(string(value, "uuid"), min(at, max(0, len(self.made) - 1)))

    def _add(self, message: RecordedMessage) -> None:
        if message.role in ("user", "failure"):
            self.steps.clear()
        self.made.append(message)

    def _replied(self, value: Mapping[str, object], message: Mapping[str, object]) -> None:
        time, name = time_of(value.get("timestamp")), string(message, "id")
        model = string(message, "model")
        found = reply(_parts(message.get("content"), model), model=model, time=time, usage=_usage(message))
        at = self.steps.get(name) if name else None
        self.of[string(value, "uuid")] = name
        if at is not None and (at == len(self.made) - 1 or self.of.get(string(value, "parentUuid")) == name):
            before = self.made[at]
            joined = reply((*before.parts, *found.parts), model=model, time=before.time, usage=found.usage)
            self.made[at] = joined
            return
        self._add(found)
        self.steps[name] = len(self.made) - 1

    def _said(self, value: Mapping[str, object], message: Mapping[str, object]) -> None:
        time, content = time_of(value.get("timestamp")), message.get("content")
        for block in objects(content):
            if block.get("type") == "tool_result":
                self._add(self._result(value, block, time))
        words = [block for block in objects(content) if block.get("type") != "tool_result"]
        texts = [block for block in words if block.get("type") not in ("image", "document")]
        text = text_of(texts) if isinstance(content, list) else text_of(content)
        pictures = pictures_of(words)
        if text.strip() or pictures:
            beside = bool(value.get("isMeta")) or not _begins(value, message)
            self._add(RecordedMessage("user", text, time=time, pictures=pictures, beside=beside))

    def _result(self, value: Mapping[str, object], block: Mapping[str, object], time: float) -> RecordedMessage:
        answers, content = string(block, "tool_use_id"), block.get("content")
        if not answers:
            raise Unreadable("a tool result names no call")
        pictures = pictures_of(content)
        parts = [part for part in objects(content) if part.get("type") != "image"] if pictures else content
        text = text_of(parts)
        ok, child = not block.get("is_error"), string(mapping(value.get("toolUseResult")), "agentId")
        whole = self._whole(text, value.get("toolUseResult"))
        shown = text if whole else ""
        return RecordedMessage(
            "tool", whole or text, answers=answers, ok=ok, time=time, pictures=pictures, shown=shown, child=child
        )

    def _whole(self, text: str, result: object) -> str:
        """All of a result the model saw the beginning of: from its file, or as the line has it."""
        if not text.startswith("<persisted-output>"):
            return ""
        if (found := _SAVED.search(text)) is not None:
            with suppress(OSError):
                name = f"{self.beside.name}/tool-results/{found[1]}"
                return read_beneath(self.beside.parent, name, LARGEST_RESULT).decode("utf-8", "replace")
        there = string(mapping(result), "stdout")
        return there if len(there) > len(text) else ""

    def _attached(self, value: Mapping[str, object]) -> None:
        """What the program showed the model beside the messages."""
        found = mapping(value.get("attachment"))
        kind = string(found, "type") or "attachment"
        text = (
            text_of(found.get("prompt"))
            if kind == "queued_command"
            else f"[Claude Code showed: {kind}]\n{_shown(found)}"
        )
        if text.strip():
            pictures = pictures_of(found.get("prompt")) if isinstance(found.get("prompt"), list) else ()
            message = RecordedMessage(
                "user", text, time=time_of(value.get("timestamp")), pictures=pictures, beside=True
            )
            self.made.append(message)

    def _compacted(self, value: Mapping[str, object], text: str) -> None:
        """A summary in the place of what came before; where nothing came before in this file, it is a message."""
        time, boundary = time_of(value.get("timestamp")), self.boundary or {}
        self.boundary = None
        if not self.made:
            self._add(RecordedMessage("user", text, time=time, beside=True))
            return
        details = mapping(boundary.get("compactMetadata"))
        segment = string(mapping(details.get("preservedSegment")), "headUuid")
        keep = self.places.get(segment, len(self.made)) if segment else len(self.made)
        trigger = string(details, "trigger")
        why = "Claude Code compacted the conversation here" + (f" ({trigger})" if trigger else "")
        self.compactions.append(Compaction(len(self.made), keep, text, time, why))
        self.steps.clear()


def _parts(content: object, model: str) -> list[ReplyPart]:
    if not isinstance(content, list):
        return [Text(text_of(content))]
    parts: list[ReplyPart] = []
    for block in objects(content):
        kind = block.get("type")
        if kind == "text":
            parts.append(Text(string(block, "text")))
        elif kind in ("thinking", "redacted_thinking"):
            parts.append(thought(block, TAG, model))
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            parts.append(call(block))
        else:
            parts.append(Text(text_of([block])))
    return parts


def thought(block: Mapping[str, object], tag: str, model: str) -> Reasoning:
    """A block of thinking as Anthropic signed it; what is not signed cannot go back."""
    if block.get("type") == "redacted_thinking":
        return Reasoning(
            "", opaque=sealed(type="redacted_thinking", data=string(block, "data")), provider=tag, model=model
        )
    text, signature = string(block, "thinking"), string(block, "signature")
    opaque = sealed(type="thinking", thinking=text, signature=signature) if signature else ""
    return Reasoning(text, opaque=opaque, provider=tag if opaque else "", model=model if opaque else "")


def call(block: Mapping[str, object]) -> ToolCall:
    """A call of a tool, as Anthropic writes it."""
    identity, name = string(block, "id"), string(block, "name")
    if not identity or not name:
        raise Unreadable("a call has no id or no name")
    return ToolCall(identity, name, arguments_of(block.get("input")))


def _usage(message: Mapping[str, object]) -> Usage:
    return anthropic_usage(message.get("usage"))


def _shown(found: Mapping[str, object]) -> str:
    """The text of an attachment: the field that has it, or all of it."""
    for name in _TEXTS:
        value = found.get(name)
        if isinstance(value, str) and value.strip():
            names = string(found, "filename", "path")
            return f"{names}\n{value}" if names else value
    if isinstance(lines := found.get("addedLines"), list):
        return "\n".join(map(str, lines))
    return json.dumps({name: value for name, value in found.items() if name != "type"}, ensure_ascii=False)


# --- sub-agents -----------------------------------------------------------------------------------------------------


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """The sub-agents of one file: each begins with a row that has no parent among them."""
    groups: dict[str, list[Row]] = {}
    of: dict[str, str] = {}
    for row in rows:
        name, parent = string(row.value, "uuid"), string(row.value, "parentUuid")
        root = of.get(parent) or string(row.value, "agentId") or name
        of[name] = root
        groups.setdefault(root, []).append(row)
    return list(groups.values())


def _child(rows: list[Row], told: Told, path: Path, session: str, main: Sequence[Recording]) -> Iterator[Recording]:
    name = string(rows[0].value, "agentId") or string(rows[0].value, "uuid")
    made = _Reading(told, path.parent / path.stem).all(rows, f"agent-{name}", f"{path}#agent-{name}")
    task = made[0].messages[0].text if made[0].messages else ""
    yield replace(made[0], parent=session, parent_call=_asked(main, task), title=" ".join(task.split())[:60])


def _asked(main: Sequence[Recording], task: str) -> str:
    """The call that gave a sub-agent this task."""
    for message in (message for one in main for message in one.messages):
        for one in message.calls:
            if task.strip() and one.name in ("Task", "Agent") and _prompt(one.arguments) == task.strip():
                return one.id
    return ""


def _prompt(arguments: str) -> str:
    try:
        return string(mapping(json.loads(arguments)), "prompt").strip()
    except (ValueError, RecursionError):
        return ""


def _as_child(made: list[Recording], path: Path, rows: Sequence[Row]) -> list[Recording]:
    """A file of one sub-agent: the session that started it is named in its rows, or by its folder."""
    parent = _session(rows) or path.parent.parent.name
    task = made[0].messages[0].text if made and made[0].messages else ""
    return [
        replace(one, parent=parent, title=" ".join(task.split())[:60]) if not one.forked_from else one for one in made
    ]


def _linked(made: list[Recording], path: Path) -> list[Recording]:
    """Results of calls of sub-agents name the conversation they came from."""
    folder = path.parent / path.stem / "subagents"

    def named(message: RecordedMessage) -> RecordedMessage:
        if not message.child:
            return message
        there = (folder / f"agent-{message.child}.jsonl").is_file() or (
            path.parent / f"agent-{message.child}.jsonl"
        ).is_file()
        return replace(message, child=f"agent-{message.child}" if there else "")

    return [replace(one, messages=tuple(map(named, one.messages))) for one in made]
