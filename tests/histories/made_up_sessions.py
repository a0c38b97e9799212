"""Sessions made up at random, as seven programs would write them: compactions at any moment, and
results in any order.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.histories import written


@dataclass(frozen=True)
class Said:
    """The user's words."""

    text: str


@dataclass(frozen=True)
class Replied:
    text: str
    calls: tuple[str, ...]


@dataclass(frozen=True)
class Returned:
    call: str
    text: str


@dataclass(frozen=True)
class Compacted:
    """Everything before the event at `keep` was replaced by `text`."""

    text: str
    keep: int


Event = Said | Replied | Returned | Compacted


@dataclass
class MadeUpSession:
    events: list[Event]
    # What the program itself would send next: the user's words and results.
    shown: set[str] = field(default_factory=set)

    @property
    def results(self) -> dict[str, str]:
        return {event.call: event.text for event in self.events if isinstance(event, Returned)}

    @property
    def has_unanswered_calls(self) -> bool:
        calls = {call for one in self.events if isinstance(one, Replied) for call in one.calls}
        return bool(calls - set(self.results))


def make_up_session(
    chance: random.Random, *, results_anywhere: bool, keeps_turns: bool
) -> MadeUpSession:
    """`results_anywhere`: also behind later replies and behind the user's next words. Some formats
    have no place for such a result but its call's. `keeps_turns`: whether a compaction may keep
    the newest turns.
    """
    events: list[Event] = []
    late: list[Returned] = []
    for turn in range(chance.randint(1, 4)):
        events.append(Said(f"words-{turn} " * chance.randint(3, 9)))
        for step in range(chance.randint(1, 3)):
            calls = tuple(f"c{turn}-{step}-{number}" for number in range(chance.randint(0, 3)))
            events.append(Replied(f"reply-{turn}-{step} " * 5, calls))
            late += [Returned(call, _output(chance, call)) for call in calls]
            chance.shuffle(late)
            waits = chance.randint(0, len(late)) if results_anywhere else 0
            events += late[waits:]
            del late[waits:]
    events += late[: chance.randint(0, len(late))]
    events.append(Said("the last words"))
    for number in range(chance.randint(0, 2)):
        _insert_compaction(events, chance, number, keeps_turns=keeps_turns)
    session = MadeUpSession(events)
    session.shown = _shown_at_the_end(events)
    return session


def _output(chance: random.Random, call: str) -> str:
    return chance.choice(["", f"output of {call} " * 30, f"output of {call} " * 60])


def _insert_compaction(
    events: list[Event], chance: random.Random, number: int, *, keeps_turns: bool
) -> None:
    """Insert it where no call waits for a result, as programs compact between requests."""
    quiet = [at for at in range(1, len(events)) if not _waiting(events[:at])]
    if not quiet:
        return
    at = chance.choice(quiet)
    earlier = max((n for n, e in enumerate(events[:at]) if isinstance(e, Compacted)), default=-1)
    later = any(isinstance(event, Compacted) for event in events[at:])
    kept = [
        position
        for position in range(earlier + 1, at)
        if isinstance(events[position], Said) and not _waiting(events[:position])
    ]
    keep = at
    if keeps_turns and kept and not later:
        keep = chance.choice([at, kept[-1]])
    for position, event in enumerate(events):
        if isinstance(event, Compacted) and event.keep >= at:
            events[position] = Compacted(event.text, event.keep + 1)
    events.insert(at, Compacted(f"summary-{number}", keep))


def _waiting(events: Sequence[Event]) -> set[str]:
    calls = {call for event in events if isinstance(event, Replied) for call in event.calls}
    return calls - {event.call for event in events if isinstance(event, Returned)}


def _shown_at_the_end(events: Sequence[Event]) -> set[str]:
    last = max((n for n, e in enumerate(events) if isinstance(e, Compacted)), default=-1)
    compacted = events[last] if last >= 0 else None
    begin = compacted.keep if isinstance(compacted, Compacted) else 0
    return {
        event.text.strip()
        for event in events[begin:]
        if isinstance(event, Said | Returned) and event.text
    }


def _rows_kept(events: Sequence[Event], at: int) -> tuple[Sequence[Event], Sequence[Event]]:
    compacted = events[at]
    assert isinstance(compacted, Compacted)
    return events[: compacted.keep], events[compacted.keep : at]


# --- Each program's own files


def claude(folder: Path, session: MadeUpSession) -> Path:
    rows: list[dict[str, Any]] = []

    def parent() -> int | None:
        return len(rows) or None

    uuids: dict[int, str] = {}
    for at, event in enumerate(session.events):
        number = len(rows) + 1
        uuids[at] = f"u{number}"
        if isinstance(event, Said):
            rows.append(written.claude_said(number, parent(), event.text))
        elif isinstance(event, Replied):
            blocks = [written.text(event.text), *map(written.use, event.calls)]
            rows.append(written.claude_reply(number, parent(), f"m{at}", *blocks))
        elif isinstance(event, Returned):
            content = [written.result(event.call, event.text)]
            rows.append(written.claude_said(number, parent(), content))
        else:
            about: dict[str, Any] = {"trigger": "auto"}
            if event.keep < at:
                about["preservedSegment"] = {
                    "headUuid": uuids[event.keep],
                    "tailUuid": f"u{number - 1}",
                }
            rows.append(
                written.claude_line(
                    number, "system", None, subtype="compact_boundary", compactMetadata=about,
                    logicalParentUuid=f"u{number - 1}",
                )
            )  # fmt: skip
            summary = written.claude_said(number + 1, number, event.text, isCompactSummary=True)
            rows.append(summary)
    return written.lines(folder / "projects" / "-p" / "session-1.jsonl", rows)


def codex(folder: Path, session: MadeUpSession) -> Path:
    def message(role: str, text: str) -> dict[str, Any]:
        content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
        return {"type": "message", "role": role, "content": content}

    about = {"id": "thread-1", "cwd": "/home/me/project", "cli_version": "0.171.0"}
    rows: list[dict[str, Any]] = [{"type": "session_meta", "payload": about}]
    for at, event in enumerate(session.events):
        items: list[dict[str, Any]] = []
        if isinstance(event, Said):
            items = [message("user", event.text)]
        elif isinstance(event, Replied):
            items = [message("assistant", event.text)]
            for call in event.calls:
                items.append({"type": "function_call", "call_id": call, "name": "exec_command", "arguments": "{}"})  # fmt: skip
        elif isinstance(event, Returned):
            items = [{"type": "function_call_output", "call_id": event.call, "output": event.text}]
        else:
            typed = [one.text for one in session.events[:at] if isinstance(one, Said)]
            kept = [message("user", text) for text in [*typed, event.text]]
            payload = {"message": event.text, "replacement_history": kept}
            rows.append({"type": "compacted", "payload": payload})
        rows += [{"type": "response_item", "payload": item} for item in items]
    for number, row in enumerate(rows):
        row["timestamp"] = f"2026-01-02T03:{number // 60:02}:{number % 60:02}.000Z"
    return written.lines(folder / "sessions" / "rollout-2026-01-02T03-04-00-thread-1.jsonl", rows)


def opencode(folder: Path, session: MadeUpSession) -> Path:
    path = written.opencode(folder)
    results = session.results
    messages: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    ids: dict[int, str] = {}
    for at, event in enumerate(session.events):
        ids[at] = f"m{len(messages):03}"
        if isinstance(event, Said):
            messages.append(({"role": "user"}, [written.text(event.text)]))
        elif isinstance(event, Replied):
            parts = [written.text(event.text)]
            for call in event.calls:
                state: dict[str, Any] = {
                    "status": "completed",
                    "input": {},
                    "output": results.get(call),
                }
                state |= {} if call in results else {"status": "running"}
                parts.append({"type": "tool", "tool": "bash", "callID": call, "state": state})
            messages.append(({"role": "assistant", "modelID": "m"}, parts))
        elif isinstance(event, Compacted):
            part = {"type": "compaction", "auto": True}
            if event.keep < at:
                part["tail_start_id"] = ids[event.keep]
            messages.append(({"role": "user"}, [part]))
            about = {"role": "assistant", "summary": True, "parentID": ids[at]}
            messages.append((about, [written.text(event.text)]))
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("DELETE FROM message")
        made.execute("DELETE FROM part")
        for at, (message, own) in enumerate(messages):
            row = (f"m{at:03}", at + 1, json.dumps({"time": {"created": at + 1}, **message}))
            made.execute("INSERT INTO message VALUES(?, 'ses_1', ?, ?)", row)
            for number, part in enumerate(own):
                values = (f"p{at:03}-{number:03}", f"m{at:03}", json.dumps(part))
                made.execute("INSERT INTO part VALUES(?, ?, 'ses_1', ?)", values)
    return path


def gemini(folder: Path, session: MadeUpSession) -> Path:
    results = session.results

    def record(at: int, event: Event, again: str = "") -> dict[str, Any]:
        about = {"id": f"r{at}{again}", "timestamp": "2026-01-02T03:04:05.000Z"}
        if isinstance(event, Said):
            return {**about, "type": "user", "content": [{"text": event.text}]}
        assert isinstance(event, Replied)
        calls = [_gemini_call(call, results.get(call)) for call in event.calls]
        if again:  # As it stands in the history that the model is sent.
            made = [{"functionCall": {"id": call["id"], "name": "f"}} for call in calls]
            return {**about, "type": "gemini", "content": [{"text": event.text}, *made]}
        return {**about, "type": "gemini", "content": event.text, "toolCalls": calls}

    rows: list[dict[str, Any]] = [{"sessionId": "chat-1", "projectHash": "0"}]
    for at, event in enumerate(session.events):
        if isinstance(event, Said | Replied):
            rows.append(record(at, event))
        elif isinstance(event, Compacted):
            _, kept = _rows_kept(session.events, at)
            begin = {"id": f"s{at}", "type": "user", "content": [{"text": event.text}]}
            new_ids = [
                record(event.keep + number, one, f"-{at}")
                for number, one in enumerate(kept)
                if isinstance(one, Said | Replied)
            ]
            rows.append({"$set": {"messages": [begin, *new_ids]}})
    return written.lines(folder / "tmp" / "p" / "chats" / "session-2026-chat.jsonl", rows)


def _gemini_call(call: str, result: str | None) -> dict[str, Any]:
    made: dict[str, Any] = {"id": call, "name": "run_shell_command", "args": {}}
    if result is None:
        return made
    answer = {"id": call, "name": "run_shell_command", "response": {"output": result}}
    return {**made, "status": "success", "result": [{"functionResponse": answer}]}


def pi(folder: Path, session: MadeUpSession) -> Path:
    head = {"type": "session", "version": 3, "id": "pi-1", "cwd": "/home/me/project"}
    rows: list[dict[str, Any]] = [head]
    for at, event in enumerate(session.events):
        about: dict[str, Any] = {"id": f"e{at}", "parentId": f"e{at - 1}" if at else None}
        about["timestamp"] = "2026-01-02T03:04:05.000Z"
        if isinstance(event, Compacted):
            kept = {"firstKeptEntryId": f"e{event.keep}", "summary": event.text}
            rows.append({"type": "compaction", **about, **kept})
            continue
        message: dict[str, Any] = {"role": "user", "content": event.text if isinstance(event, Said) else ""}  # fmt: skip
        if isinstance(event, Replied):
            calls = [
                {"type": "toolCall", "id": call, "name": "bash", "arguments": {}}
                for call in event.calls
            ]
            message = {"role": "assistant", "content": [written.text(event.text), *calls]}
        elif isinstance(event, Returned):
            content = [written.text(event.text)]
            message = {"role": "toolResult", "toolCallId": event.call, "content": content}
        rows.append({"type": "message", **about, "message": message})
    return written.lines(folder / "sessions" / "--p--" / "2026_pi-1.jsonl", rows)


def _anthropic_rows(session: MadeUpSession) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for event in session.events:
        if isinstance(event, Said):
            rows.append({"role": "user", "content": [written.text(event.text)]})
        elif isinstance(event, Replied):
            blocks = [written.text(event.text), *map(written.use, event.calls)]
            rows.append({"role": "assistant", "content": blocks})
        elif isinstance(event, Returned):
            rows.append({"role": "user", "content": [written.result(event.call, event.text)]})
    return rows


def cline(folder: Path, session: MadeUpSession) -> Path:
    path = folder / "tasks" / "1767323045000" / "api_conversation_history.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(_anthropic_rows(session)), encoding="utf-8")
    return path


def goose(folder: Path, session: MadeUpSession) -> Path:
    path = written.goose(folder)
    last = max((n for n, e in enumerate(session.events) if isinstance(e, Compacted)), default=-1)
    rows: list[tuple[str, list[dict[str, Any]], Mapping[str, Any]]] = []
    for at, event in enumerate(session.events):
        compacted = session.events[last] if last >= 0 else None
        hidden = isinstance(compacted, Compacted) and at < compacted.keep
        about: Mapping[str, Any] = {"agentVisible": not hidden}
        if isinstance(event, Said):
            rows.append(("user", [written.text(event.text)], about))
        elif isinstance(event, Replied):
            call = {"status": "success", "value": {"name": "shell", "arguments": {}}}
            requests = [{"type": "toolRequest", "id": one, "toolCall": call} for one in event.calls]
            rows.append(("assistant", [written.text(event.text), *requests], about))
        elif isinstance(event, Returned):
            result = {"status": "success", "value": [written.text(event.text)]}
            answer = {"type": "toolResponse", "id": event.call, "toolResult": result}
            rows.append(("user", [answer], about))
        elif at == last:
            only_agent = {"agentVisible": True, "userVisible": False}
            rows.append(("assistant", [written.text(event.text)], only_agent))
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("DELETE FROM messages")
        for at, (role, content, about) in enumerate(rows):
            made.execute(
                "INSERT INTO messages(session_id, role, content_json, created_timestamp, metadata_json)"
                " VALUES('g1', ?, ?, ?, ?)",
                (role, json.dumps(content), at + 1, json.dumps(about)),
            )
    return path


WRITERS: Mapping[str, Callable[[Path, MadeUpSession], Path]] = {
    "claude-code": claude,
    "codex": codex,
    "opencode": opencode,
    "gemini-cli": gemini,
    "pi": pi,
    "cline": cline,
    "goose": goose,
}
# In these, a result stands with its call.
RESULTS_WITH_CALLS = ("opencode", "gemini-cli")
