"""Sessions of Gemini CLI: `~/.gemini/tmp/<project>/chats/session-*.jsonl`, and the older `.json` documents.

Tried with what 0.61 writes here; the older documents are untried. A record with the id of an earlier one takes its place; `$rewindTo`
goes on from before a message; `$set` with messages puts a new history in the place of the old, which is how it compresses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories.beside import read_beneath
from helix_desktop.histories.branches import ROOT, Node, Tree
from helix_desktop.histories.recording import Compaction, RecordedMessage, Recording, reply
from helix_desktop.histories.rows import (
    Row,
    Told,
    Unreadable,
    arguments_of,
    mapping,
    number,
    objects,
    pictures_of,
    string,
    text_of,
    time_of,
)
from helix_desktop.values import dataclass

KIND = "gemini-cli"
_NOTES = ("info", "error", "warning")


def is_one(value: Mapping[str, object]) -> bool:
    """Whether a row is the head of a session, or one of its records."""
    head = isinstance(value.get("sessionId"), str) and isinstance(value.get("projectHash"), str)
    return head or "$set" in value or "$rewindTo" in value


def recordings(rows: Sequence[Row], told: Told, path: Path) -> list[Recording]:
    """The lines of the session."""
    log = _Log()
    for row in rows:
        log.take(row)
    session = string(log.about, "sessionId") or path.stem
    parent = path.parent.name if path.parent.parent.name == "chats" else ""
    made: list[Recording] = []
    for at, branch in enumerate(log.tree.branches):
        nodes = log.tree.path(at)
        writing = _Writing(told if not at else Told()).taken([(i, log.records[i]) for i in nodes], log.compacted)
        shared = len(_Writing(Told()).taken([(i, log.records[i]) for i in log.tree.shared(at)], {}).made) if at else 0
        own = string(log.records[branch.rows[0]].value, "id") if branch.rows else ""
        made.append(
            Recording(
                str(path) if not at else f"{path}#{at + 1}",
                tuple(writing.made),
                KIND,
                session if not at else f"{session}#{own}",
                string(log.about, "summary"),
                _folder(path, log.about),
                compactions=tuple(writing.compactions),
                forked_from=made[branch.of].session if shared else "",
                forked_at=shared,
                parent=parent,
            )
        )
    return made


def _folder(path: Path, about: Mapping[str, object]) -> str:
    """The project's folder: the program writes it beside the chats."""
    listed = about.get("directories")
    if isinstance(listed, list) and listed and isinstance(listed[0], str):
        return listed[0]
    for place in (path.parent.parent, path.parent.parent.parent):
        try:
            return read_beneath(place, ".project_root").decode("utf-8").strip()[:4096]
        except (OSError, ValueError):
            continue
    return ""


@dataclass(slots=True)
class _Log:
    """The records as they stand in the end, and where a new history took the place of the old."""

    about: dict[str, object] = field(default_factory=dict)
    records: list[Row] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    tree: Tree = field(default_factory=Tree)
    compacted: dict[int, list[Row]] = field(default_factory=dict)  # by the record they came behind: what stood instead
    rewound: str = ""

    def take(self, row: Row) -> None:
        value = row.value
        listed = mapping(value.get("$set", value)).get("messages")
        if "$rewindTo" in value:
            self._rewind(string(value, "$rewindTo"))
        elif isinstance(value.get("id"), str) and isinstance(value.get("type"), str):
            self._record(row)
        else:
            self.about |= {name: one for name, one in mapping(value.get("$set", value)).items() if name != "messages"}
        if isinstance(listed, list):
            self._listed([Row(one, row.place) for one in objects(listed)])

    def _record(self, row: Row) -> None:
        name = string(row.value, "id")
        if name in self.places:
            self.records[self.places[name]] = row
            return
        before = self.records[-1].value if self.records else {}
        parent = self.rewound or string(before, "id")
        self.places[name] = len(self.records)
        self.records.append(row)
        kind = row.value.get("type")
        self.tree.add(len(self.records) - 1, Node(name, parent, kind == "user", name if kind == "gemini" else ""))
        self.rewound = ""

    def _rewind(self, to: str) -> None:
        at = self.places.get(to)
        self.rewound = ROOT if not at else string(self.records[at - 1].value, "id")

    def _listed(self, rows: Iterable[Row]) -> None:
        """A whole history: what is new of it comes behind, and stands for what is no longer in it."""
        given = list(rows)
        fresh = [row for row in given if string(row.value, "id") not in self.places]
        kept = {string(row.value, "id") for row in given}
        if self.records and fresh and any(name not in kept for name in self.places):
            self.compacted[len(self.records) - 1] = fresh
            return
        for row in given:
            self._record(row)


@dataclass(slots=True)
class _Writing:
    told: Told
    made: list[RecordedMessage] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)

    def taken(self, rows: Sequence[tuple[int, Row]], compacted: Mapping[int, list[Row]]) -> _Writing:
        for at, row in rows:
            try:
                self._take(row.value)
            except Unreadable as error:
                self.told.complaints.append(row.complaint(error))
            if at in compacted and self.made:
                text = "\n\n".join(text_of(one.value.get("content")) for one in compacted[at])
                time = time_of(compacted[at][0].value.get("timestamp"))
                self.compactions.append(
                    Compaction(len(self.made), len(self.made), text, time, "Gemini CLI compressed here")
                )
        return self

    def _take(self, value: Mapping[str, object]) -> None:
        kind, time = value.get("type"), time_of(value.get("timestamp"))
        if kind == "gemini":
            self._replied(value, time)
        elif kind == "user":
            self._said(value.get("content"), time)
        elif kind in _NOTES:
            self.told.left_out[str(kind)] += 1
        else:
            raise Unreadable(f"there is no record of type {kind!r}")

    def _said(self, content: object, time: float) -> None:
        answers = [part for part in objects(content) if "functionResponse" in part]
        for part in answers:
            self._answer(mapping(part["functionResponse"]), time)
        words = [part for part in content if part not in answers] if isinstance(content, list) else content
        pictures = pictures_of(words)
        text = text_of([part for part in objects(words) if "inlineData" not in part] if pictures else words)
        if text.strip() or pictures:
            beside = text.startswith("<session_context>")
            self.made.append(RecordedMessage("user", text, time=time, pictures=pictures, beside=beside))

    def _answer(self, found: Mapping[str, object], time: float) -> None:
        """Results stand in the reply's record as well; what stood there is not taken twice."""
        name = string(found, "id")
        if name in self.answered or not name:
            return
        self.answered.add(name)
        self.made.append(RecordedMessage("tool", _output(found), answers=name, ok="error" not in mapping(found.get("response")), time=time))  # fmt: skip

    def _replied(self, value: Mapping[str, object], time: float) -> None:
        thoughts = "\n\n".join(
            "\n".join(filter(None, (string(one, "subject"), string(one, "description"))))
            for one in objects(value.get("thoughts"))
        )
        parts: list[ReplyPart] = [Reasoning(thoughts)] if thoughts else []
        parts.append(Text(text_of(value.get("content"))))
        calls = objects(value.get("toolCalls"))
        parts += [_call(call) for call in calls]
        if any(not isinstance(part, Reasoning) and (isinstance(part, ToolCall) or part.text) for part in parts):
            self.made.append(
                reply(parts, model=string(value, "model"), time=time, usage=_usage(mapping(value.get("tokens"))))
            )
        for call in calls:
            self._called(call, time)

    def _called(self, call: Mapping[str, object], time: float) -> None:
        result = call.get("result")
        if result is None:
            return
        time = time_of(call.get("timestamp")) or time
        found = [mapping(part["functionResponse"]) for part in objects(result) if "functionResponse" in part]
        pictures = pictures_of(result)
        text = "\n".join(map(_output, found)) if found else text_of(result)
        ok = string(call, "status") not in ("error", "cancelled")
        self.answered.add(string(call, "id"))
        self.made.append(RecordedMessage("tool", text, answers=string(call, "id"), ok=ok, time=time, pictures=pictures))


def _call(call: Mapping[str, object]) -> ToolCall:
    if not string(call, "id") or not string(call, "name"):
        raise Unreadable("a call has no id or no name")
    return ToolCall(string(call, "id"), string(call, "name"), arguments_of(call.get("args")))


def _output(found: Mapping[str, object]) -> str:
    response = mapping(found.get("response"))
    text = string(response, "output", "error")
    return text or json.dumps(response, ensure_ascii=False)


def _usage(found: Mapping[str, object]) -> Usage:
    thoughts = number(found.get("thoughts"))
    written = number(found.get("output")) + thoughts
    return Usage(number(found.get("input")), number(found.get("cached")), 0, written, thoughts)
