"""Sessions of opencode: the database `~/.local/share/opencode/opencode.db`, and the JSON files before it (`storage/`).

Tried with what 1.18.33 writes here, and 1.1.65 for the JSON files. A message has
parts; a tool's part has the call and the result. A result that opencode cleared is marked so, and is still there. A compaction is a part of
a message, and the reply to it, marked `summary`, is the summary.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories import sqlite_files
from helix_desktop.histories.beside import read_beneath
from helix_desktop.histories.recording import Compaction, Picture, RecordedMessage, Recording, reply
from helix_desktop.histories.rows import (
    Told,
    arguments_of,
    cost,
    from_data_url,
    mapping,
    number,
    objects,
    string,
    time_of,
)
from helix_desktop.values import dataclass

KIND = "opencode"
TABLES = frozenset({"session", "message", "part"})
CLEARED = "[Old tool result content cleared]"
_SESSIONS = "SELECT * FROM session WHERE ? IN ('', id) ORDER BY parent_id IS NOT NULL, id"
_PARTS = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
Parts = Sequence[Mapping[str, object]]


def is_database(tables: frozenset[str]) -> bool:
    return tables >= TABLES


def from_database(connection: sqlite3.Connection, path: Path, told: Told, only: str = "") -> Iterator[Recording]:
    """The sessions of the database, one by one. `only`: this one alone."""
    for session in sqlite_files.read(connection, _SESSIONS, [only], told):
        name = string(session, "id")
        parts: dict[str, list[Mapping[str, object]]] = {}
        for row in sqlite_files.read(connection, _PARTS, [name], told):
            if (part := sqlite_files.parsed(row["data"], f"{path}, part {row['id']}", told)) is not None:
                parts.setdefault(string(row, "message_id"), []).append(part.value)
        listed = sqlite_files.read(connection, _MESSAGES, [name], told)
        found = [
            ({"id": row["id"], **one.value}, parts.get(string(row, "id"), []))
            for row in listed
            if (one := sqlite_files.parsed(row["data"], f"{path}, message {row['id']}", told)) is not None
        ]
        yield from _recordings(session, found, path, told)


def is_file(path: Path) -> bool:
    """Whether it is the file of a session of the older kind: `storage/session/<project>/<id>.json`."""
    return path.suffix == ".json" and path.stem.startswith("ses_") and path.parent.parent.name == "session"


def from_file(path: Path, told: Told) -> Iterator[Recording]:
    """The session of an older file, with its messages and their parts from the folders beside."""
    storage = path.parent.parent.parent
    session = _loaded(storage, path, told)
    if session is None:
        return
    found = []
    for file in sorted((storage / "message" / path.stem).glob("*.json")):
        message = _loaded(storage, file, told)
        if message is not None:
            parts = [
                part
                for one in sorted((storage / "part" / file.stem).glob("*.json"))
                if (part := _loaded(storage, one, told))
            ]
            found.append((message, parts))
    found.sort(key=lambda one: time_of(mapping(one[0].get("time")).get("created")))
    yield from _recordings({**session, "parent_id": session.get("parentID")}, found, path, told)


def _loaded(storage: Path, path: Path, told: Told) -> Mapping[str, object] | None:
    try:
        content = read_beneath(storage, str(path.relative_to(storage)))
        value = json.loads(content.decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        value = None
    if isinstance(value, Mapping):
        return value
    told.complaints.append(f"{path}: this is not a JSON object; it was left out.")
    return None


def _recordings(
    session: Mapping[str, object], found: Sequence[tuple[Mapping[str, object], Parts]], path: Path, told: Told
) -> Iterator[Recording]:
    """The session; and where its end was reverted, a branch that still has it."""
    back = _reverted_from(session)
    stands = sum(not back or string(message, "id") < back for message, _ in found)
    writing, shared = _Writing(told), 0
    for at, (message, parts) in enumerate(found):
        if at == stands:
            shared = len(writing.made)
            yield _recording(session, writing, path)
        writing.take(message, parts)
    whole = _recording(session, writing, path)
    if stands == len(found):
        yield whole
        return
    name = f"{whole.session}#{back}"
    yield replace(whole, session=name, forked_from=whole.session, forked_at=shared, name=f"{path}#{name}")


def _reverted_from(session: Mapping[str, object]) -> str:
    """The message from which on opencode shows nothing any more: it is removed with the next prompt."""
    value = session.get("revert")
    try:
        return string(mapping(json.loads(value) if isinstance(value, str) else value), "messageID")
    except (ValueError, RecursionError):
        return ""


def _recording(session: Mapping[str, object], writing: _Writing, path: Path) -> Recording:
    return Recording(
        f"{path}#{string(session, 'id')}",
        tuple(writing.made),
        KIND,
        string(session, "id"),
        string(session, "title"),
        string(session, "directory"),
        string(session, "version"),
        tuple(writing.compactions),
        parent=string(session, "parent_id"),
    )


@dataclass(slots=True)
class _Writing:
    told: Told
    made: list[RecordedMessage] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)

    def take(self, message: Mapping[str, object], parts: Parts) -> None:
        time = time_of(mapping(message.get("time")).get("created"))
        if message.get("role") == "user":
            self._said(parts, time)
        elif message.get("role") == "assistant" and message.get("summary"):
            self._compacted(parts, time)
        elif message.get("role") == "assistant":
            self._replied(message, parts, time)
        else:
            self.told.complaints.append(f"A message of opencode has the role {message.get('role')!r}; it was left out.")

    def _said(self, parts: Parts, time: float) -> None:
        own = [part for part in parts if part.get("type") in ("text", "subtask") and not part.get("ignored")]
        texts = [string(part, "text", "prompt") for part in own]
        files = [found for part in parts if part.get("type") == "file" and (found := _file(part)) is not None]
        for part in parts:
            if part.get("type") not in ("text", "subtask", "file", "compaction"):
                self.told.left_out[f"part {part.get('type')}"] += 1
        text = "\n".join(text for text in texts if text)
        beside = bool(own) and all(part.get("synthetic") for part in own)
        if text.strip() or files:
            self.made.append(RecordedMessage("user", text, time=time, pictures=tuple(files), beside=beside))

    def _compacted(self, parts: Parts, time: float) -> None:
        text = "\n".join(string(part, "text") for part in parts if part.get("type") == "text")
        if self.made and text.strip():
            self.compactions.append(
                Compaction(len(self.made), len(self.made), text, time, "opencode compacted the conversation here")
            )

    def _replied(self, message: Mapping[str, object], parts: Parts, time: float) -> None:
        """A reply whose calls stand with their results; a step that went on after results is one of its own."""
        model, usage = string(message, "modelID"), _usage(message)
        written: list[ReplyPart] = []
        results: list[RecordedMessage] = []
        for part in parts:
            kind = part.get("type")
            if kind in ("step-start", "text", "reasoning") and results:
                self._reply(written, results, model, time)
            if kind == "text" and not part.get("ignored"):
                written.append(Text(string(part, "text")))
            elif kind == "reasoning":
                written.append(Reasoning(string(part, "text")))
            elif kind == "tool":
                written.append(_call(part))
                results.extend(_result(part, time))
            elif kind not in ("step-start", "step-finish", "text"):
                self.told.left_out[f"part {kind}"] += 1
        self._reply(written, results, model, time, usage)
        if (error := mapping(message.get("error"))) and not written and not results:
            why = string(mapping(error.get("data")), "message") or string(error, "name") or "error"
            self.made.append(RecordedMessage("failure", why, time=time))

    def _reply(
        self,
        written: list[ReplyPart],
        results: list[RecordedMessage],
        model: str,
        time: float,
        usage: Usage | None = None,
    ) -> None:
        if any(isinstance(part, ToolCall) or (isinstance(part, Text) and part.text) for part in written):
            self.made.append(reply(written, model=model, time=time, usage=usage))
            self.made.extend(results)
            written.clear()
            results.clear()


def _call(part: Mapping[str, object]) -> ToolCall:
    state = mapping(part.get("state"))
    name = string(part, "callID", "id") or "call"
    return ToolCall(name, string(part, "tool") or "tool", arguments_of(state.get("input")))


def _result(part: Mapping[str, object], time: float) -> Iterator[RecordedMessage]:
    state = mapping(part.get("state"))
    status = string(state, "status")
    if status not in ("completed", "error"):
        return
    times, about = mapping(state.get("time")), mapping(state.get("metadata"))
    files = [found for one in objects(state.get("attachments")) if (found := _file(one)) is not None]
    yield RecordedMessage(
        "tool",
        string(state, "output", "error"),
        answers=string(part, "callID", "id") or "call",
        ok=status == "completed",
        time=time_of(times.get("end")) or time,
        pictures=tuple(files),
        shown=CLEARED if times.get("compacted") else "",
        child=string(about, "sessionId", "sessionID"),
    )


def _file(part: Mapping[str, object]) -> Picture | None:
    found = from_data_url(part.get("url"))
    return Picture(found.media_type, found.data, string(part, "filename")) if found else None


def _usage(message: Mapping[str, object]) -> Usage:
    tokens = mapping(message.get("tokens"))
    cache = mapping(tokens.get("cache"))
    read, write, thoughts = number(cache.get("read")), number(cache.get("write")), number(tokens.get("reasoning"))
    whole, written = number(tokens.get("input")) + read + write, number(tokens.get("output")) + thoughts
    return Usage(whole, read, write, written, thoughts, cost(message.get("cost")))
