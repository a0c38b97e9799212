"""Sessions of goose: the database `~/.local/share/goose/sessions/sessions.db`, and the older `.jsonl` files.

Untried: written after goose's public sources. A message that the agent no longer sees (`agentVisible` false) was summarised; the
summary is a message that only the agent sees.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories import sqlite_files
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

KIND = "goose"
TABLES = frozenset({"sessions", "messages"})
_CALLS = ("toolRequest", "frontendToolRequest")


def is_database(tables: frozenset[str]) -> bool:
    return tables >= TABLES


def is_one(value: Mapping[str, object]) -> bool:
    """Whether a row is of an older file: its head, or a message with a list of goose's parts."""
    return "working_dir" in value or (value.get("role") in ("user", "assistant") and "created" in value)


def from_database(connection: sqlite3.Connection, path: Path, told: Told, only: str = "") -> Iterator[Recording]:
    """The sessions of the database, one by one. `only`: this one alone."""
    for session in sqlite_files.read(
        connection, "SELECT * FROM sessions WHERE ? IN ('', id) ORDER BY id", [only], told
    ):
        query = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
        rows = []
        for row in sqlite_files.read(connection, query, [string(session, "id")], told):
            place = f"{path}, message {row.get('id')}"
            content = sqlite_files.parsed(f'{{"content": {row.get("content_json") or "[]"}}}', place, told)
            about = sqlite_files.parsed(row.get("metadata_json") or "{}", place, told)
            if content is not None:
                value = {**row, **content.value, "metadata": about.value if about else {}}
                rows.append(Row({**value, "created": row.get("created_timestamp")}, place))
        yield _recording(session, rows, f"{path}#{string(session, 'id')}", told)


def recordings(rows: Sequence[Row], told: Told, path: Path) -> list[Recording]:
    """The one session of an older file."""
    head = next((row.value for row in rows if "working_dir" in row.value), {})
    messages = [row for row in rows if "working_dir" not in row.value]
    return [_recording({**head, "id": path.stem}, messages, str(path), told)]


def _recording(session: Mapping[str, object], rows: Sequence[Row], name: str, told: Told) -> Recording:
    writing = _Writing()
    for row in rows:
        try:
            writing.take(row.value)
        except Unreadable as error:
            told.complaints.append(row.complaint(error))
    return Recording(
        name,
        tuple(writing.made),
        KIND,
        string(session, "id"),
        string(session, "name", "description"),
        string(session, "working_dir"),
        compactions=tuple(writing.compactions),
    )


@dataclass(slots=True)
class _Writing:
    made: list[RecordedMessage] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    hidden: int = 0  # messages so far that the agent no longer sees

    def take(self, value: Mapping[str, object]) -> None:
        time, about = time_of(value.get("created")), mapping(value.get("metadata"))
        content = value.get("content")
        if about.get("agentVisible") is False:
            self.hidden = len(self.made) + 1
        elif about.get("userVisible") is False and self.hidden:
            text = text_of([part for part in objects(content) if part.get("type") == "text"])
            if text and self.hidden <= len(self.made):
                self.compactions.append(
                    Compaction(len(self.made), self.hidden, text, time, "goose compacted the conversation here")
                )
                self.hidden = 0
            return
        if value.get("role") == "assistant":
            self._replied(objects(content), time)
        elif value.get("role") == "user":
            self._said(objects(content), time)
        else:
            raise Unreadable(f"there is no role {value.get('role')!r}")
        if about.get("agentVisible") is False:
            self.hidden = len(self.made)

    def _replied(self, content: Sequence[Mapping[str, object]], time: float) -> None:
        parts = [found for part in content for found in _part(part)]
        if parts:
            self.made.append(reply(parts, time=time, usage=Usage()))

    def _said(self, content: Sequence[Mapping[str, object]], time: float) -> None:
        for part in content:
            if part.get("type") == "toolResponse":
                self.made.append(_result(part, time))
        words = [part for part in content if part.get("type") in ("text", "image")]
        pictures = pictures_of(words)
        text = text_of([part for part in words if part.get("type") == "text"])
        if text.strip() or pictures:
            self.made.append(RecordedMessage("user", text, time=time, pictures=pictures))


def _part(part: Mapping[str, object]) -> Iterator[ReplyPart]:
    kind = part.get("type")
    if kind in _CALLS:
        found = mapping(part.get("toolCall"))
        value = mapping(found.get("value")) or found
        name = string(value, "name") or "malformed"
        yield ToolCall(string(part, "id") or "call", name, arguments_of(value.get("arguments")))
    elif kind == "thinking":
        yield Reasoning(string(part, "thinking"))
    elif kind not in ("redactedThinking", "toolConfirmationRequest"):
        yield Text(text_of([part]))


def _result(part: Mapping[str, object], time: float) -> RecordedMessage:
    if not string(part, "id"):
        raise Unreadable("a tool result names no call")
    found = mapping(part.get("toolResult"))
    value = found.get("value", found.get("error"))
    inner = mapping(value)
    content = inner.get("content", value) if inner else value
    pictures = pictures_of(content)
    text = text_of([one for one in objects(content) if one.get("type") != "image"] if pictures else content)
    ok = found.get("status") != "error" and not inner.get("isError") and number(inner.get("error")) == 0
    return RecordedMessage("tool", text, answers=string(part, "id"), ok=ok, time=time, pictures=pictures)
