"""Sessions of pi: `~/.pi/agent/sessions/<folder>/<time>_<id>.jsonl`, a tree of entries by `parentId`.

Tried with what 0.73 writes here; the format is documented by pi itself (session-format, versions 1 to 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories.branches import ROOT, Node, Tree
from helix_desktop.histories.recording import Compaction, RecordedMessage, Recording, reply, sealed
from helix_desktop.histories.rows import (
    Row,
    Told,
    Unreadable,
    arguments_of,
    cost,
    mapping,
    number,
    objects,
    pictures_of,
    string,
    text_of,
    time_of,
)
from helix_desktop.values import dataclass

KIND = "pi"
_SHOWN = ("message", "custom_message", "branch_summary", "compaction")
_ABOUT = ("model_change", "thinking_level_change", "label", "custom", "session_info", "session")


def is_one(value: Mapping[str, object]) -> bool:
    """Whether a row is the header of a session, or an entry of its tree."""
    header = value.get("type") == "session" and "cwd" in value and isinstance(value.get("id"), str)
    return header or (value.get("type") in (*_SHOWN, *_ABOUT) and ("parentId" in value))


def recordings(rows: Sequence[Row], told: Told, path: Path) -> list[Recording]:
    """The lines of the session."""
    tree, title = Tree(), ""
    about: Mapping[str, object] = {}
    for index, row in enumerate(rows):
        kind = row.value.get("type")
        if kind == "session":
            about = row.value
        elif kind == "session_info":
            title = string(row.value, "name")
        elif kind not in (*_SHOWN, *_ABOUT):
            told.left_out[str(kind or "no type")] += 1
            continue
        if kind != "session":
            tree.add(index, _node(row.value))
    return _made(rows, tree, told, path, (about, title))


def _made(
    rows: Sequence[Row], tree: Tree, told: Told, path: Path, about: tuple[Mapping[str, object], str]
) -> list[Recording]:
    header, title = about
    session = string(header, "id") or path.stem
    made: list[Recording] = []
    for at, branch in enumerate(tree.branches):
        writing = _Writing(told if not at else Told()).taken([rows[i] for i in tree.path(at)])
        shared = len(_Writing(Told()).taken([rows[i] for i in tree.shared(at)]).made) if at else 0
        own = string(rows[branch.rows[0]].value, "id") if branch.rows else ""
        made.append(
            Recording(
                str(path) if not at else f"{path}#{at + 1}",
                tuple(writing.made),
                KIND,
                session if not at else f"{session}#{own}",
                title,
                string(header, "cwd"),
                f"format {number(header.get('version')) or 1}",
                tuple(writing.compactions),
                forked_from=made[branch.of].session if shared else "",
                forked_at=shared,
            )
        )
    return made


def _node(value: Mapping[str, object]) -> Node:
    message = mapping(value.get("message"))
    parent = string(value, "parentId") or (ROOT if "parentId" in value else "")
    begins = message.get("role") == "user" or value.get("type") == "branch_summary"
    step = string(value, "id") if message.get("role") == "assistant" else ""
    return Node(string(value, "id"), parent, begins, step)


@dataclass(slots=True)
class _Writing:
    told: Told
    made: list[RecordedMessage] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # of an entry: the message it became, or the next one

    def taken(self, rows: Sequence[Row]) -> _Writing:
        for row in rows:
            self.places[string(row.value, "id")] = len(self.made)
            try:
                self._take(row.value)
            except Unreadable as error:
                self.told.complaints.append(row.complaint(error))
        return self

    def _take(self, value: Mapping[str, object]) -> None:
        time, kind = time_of(value.get("timestamp")), value.get("type")
        if kind == "message":
            self._message(mapping(value.get("message")), time)
        elif kind == "custom_message":
            self._said(value.get("content"), time)
        elif kind == "branch_summary":
            self._said(f"[Summary of the branch that was left]\n{string(value, 'summary')}", time)
        elif kind == "compaction":
            keep = min(self.places.get(string(value, "firstKeptEntryId"), len(self.made)), len(self.made))
            text = string(value, "summary")
            if self.made and text:
                self.compactions.append(
                    Compaction(len(self.made), keep, text, time, "pi compacted the conversation here")
                )

    def _message(self, message: Mapping[str, object], time: float) -> None:
        time = time_of(message.get("timestamp")) or time
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            self._replied(message, time)
        elif role == "toolResult":
            self.made.append(_result(message, time))
        elif role == "user":
            self._said(content, time, beside=False)
        elif role == "bashExecution" and not message.get("excludeFromContext"):
            self._said(f"Ran `{string(message, 'command')}`\n```\n{string(message, 'output')}\n```", time)
        elif role in ("custom", "hookMessage"):
            self._said(content, time)
        elif role in ("branchSummary", "compactionSummary"):
            self._said(string(message, "summary"), time)
        elif role == "bashExecution":
            self.told.left_out["bash command outside the context"] += 1
        else:
            raise Unreadable(f"there is no role {role!r}")

    def _said(self, content: object, time: float, *, beside: bool = True) -> None:
        pictures = pictures_of(content)
        text = text_of([part for part in objects(content) if part.get("type") != "image"] if pictures else content)
        if text.strip() or pictures:
            self.made.append(RecordedMessage("user", text, time=time, pictures=pictures, beside=beside))

    def _replied(self, message: Mapping[str, object], time: float) -> None:
        content, model = message.get("content"), string(message, "model")
        if message.get("stopReason") == "error" and not objects(content):
            self.made.append(RecordedMessage("failure", string(message, "errorMessage") or "error", time=time))
            return
        parts = [_part(block, message) for block in objects(content)] or [Text(text_of(content))]
        self.made.append(reply(parts, model=model, time=time, usage=_usage(mapping(message.get("usage")))))


def _part(block: Mapping[str, object], message: Mapping[str, object]) -> ReplyPart:
    if block.get("type") == "toolCall":
        if not string(block, "id") or not string(block, "name"):
            raise Unreadable("a call has no id or no name")
        return ToolCall(string(block, "id"), string(block, "name"), arguments_of(block.get("arguments")))
    if block.get("type") == "thinking":
        return _thought(block, message)
    return Text(text_of([block]))


def _thought(block: Mapping[str, object], message: Mapping[str, object]) -> Reasoning:
    """Reasoning as its provider sealed it: only what came from the two providers' own addresses can go back."""
    text, signature = string(block, "thinking"), string(block, "thinkingSignature")
    api, model = string(message, "api"), string(message, "model")
    if signature and api == "anthropic-messages" and message.get("provider") == "anthropic":
        kind = {"type": "redacted_thinking", "data": signature} if block.get("redacted") else {"type": "thinking", "thinking": text, "signature": signature}  # fmt: skip
        return Reasoning(text, opaque=sealed(**kind), provider="anthropic api.anthropic.com", model=model)
    if signature.startswith("{") and api == "openai-responses" and message.get("provider") == "openai":
        return Reasoning(text, opaque=signature, provider="openai-responses api.openai.com", model=model)
    return Reasoning(text)


def _result(message: Mapping[str, object], time: float) -> RecordedMessage:
    answers, content = string(message, "toolCallId"), message.get("content")
    if not answers:
        raise Unreadable("a tool result names no call")
    pictures = pictures_of(content)
    text = text_of([part for part in objects(content) if part.get("type") != "image"] if pictures else content)
    return RecordedMessage("tool", text, answers=answers, ok=not message.get("isError"), time=time, pictures=pictures)


def _usage(found: Mapping[str, object]) -> Usage:
    read, write = number(found.get("cacheRead")), number(found.get("cacheWrite"))
    paid = cost(mapping(found.get("cost")).get("total"))
    return Usage(number(found.get("input")) + read + write, read, write, number(found.get("output")), cost=paid)
