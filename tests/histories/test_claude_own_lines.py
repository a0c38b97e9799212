"""What Claude Code showed besides messages comes back where it stood, from the lines that an import
stored.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import BroughtIn, Recorded, Stored
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.histories import conversation_restoring as restoring
from helix_desktop.histories import history_reading
from helix_desktop.histories.claude_own_lines import ClaudeOwnLines, texts_of_own_lines
from helix_desktop.histories.conversation_restoring import RestoredSession, RestoreRequest
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.session_from_facts import origin_of_conversation
from tests.histories import written
from tests.histories.test_conversation_restoring import imported

REMINDER = "<system-reminder>\nToday is Monday.\n</system-reminder>"
Line = Mapping[str, Any]


def attachment(number: int, kind: str, *rendered: str) -> dict[str, Any]:
    shown = [{"role": "user", "content": text} for text in rendered]
    about = {"type": kind, "known_only_to_claude": number}
    return written.claude_line(number, "attachment", number - 1, attachment=about, rendered=shown)


def printed(number: int, text: str) -> dict[str, Any]:
    about = {"subtype": "local_command", "content": text, "level": "info"}
    return written.claude_line(number, "system", number - 1, **about)


def session_lines() -> list[dict[str, Any]]:
    result = {"tool_use_id": "t1", "type": "tool_result", "content": "a.txt", "is_error": False}
    typed = "<command-name>/context</command-name>\n<command-args></command-args>"
    caveat = "<local-command-caveat>The command below was run directly.</local-command-caveat>"
    kept = {"trigger": "manual", "preservedSegment": {"headUuid": "u15", "tailUuid": "u15"}}
    boundary = {"subtype": "compact_boundary", "compactMetadata": kept}
    boundary |= {"content": "Conversation compacted", "logicalParentUuid": "u15"}
    return [
        written.claude_said(1, None, "list the files"),
        attachment(2, "date", REMINDER),
        attachment(3, "session_context", "unseen"),
        attachment(4, "skill_listing", "<system-reminder>skills", "and more"),
        attachment(5, "prompt_snapshot"),
        written.claude_reply(6, 5, "m1", written.text("I look."), written.use("t1")),
        written.claude_said(7, 6, [result]),
        written.claude_reply(8, 7, "m2", written.text("One file.")),
        attachment(9, "prompt_snapshot"),
        written.claude_said(10, 9, caveat, isMeta=True),
        written.claude_said(11, 10, typed),
        printed(12, "<local-command-stdout>## Context Usage</local-command-stdout>"),
        written.claude_said(13, 12, "and again"),
        attachment(14, "date", REMINDER),
        written.claude_reply(15, 14, "m3", written.text("Again.")),
        written.claude_line(16, "system", None, **boundary),
        written.claude_said(17, 16, "Summary. " * 3, isCompactSummary=True),
        attachment(18, "file", "<system-reminder>Result of calling Read: a.txt"),
        written.claude_said(19, 18, "go on"),
    ]


def restore_without_file(
    path: Path, *, before_compaction: int = 0, forgotten: bool = False
) -> RestoredSession:
    report = ReadingReport()
    (session,) = history_reading.read_sessions(path, report)
    facts, read_content = imported(session)
    path.unlink()
    lines = b"\n".join(line.rstrip() for line in report.unread)
    stored = Stored(Digest.of_content(lines), len(lines))
    origin = origin_of_conversation(facts)
    facts.append(Recorded("c", len(facts) + 1, 0.0, BroughtIn(origin, "run", unread=stored)))
    assert stored.digest in restoring.digests_needed_for_restoring(facts)

    def read(digest: Digest) -> bytes | None:
        if digest == stored.digest:
            return None if forgotten else lines
        return read_content(digest)

    request = RestoreRequest("c", "claude", "/home/me/project", before_compaction)
    restored = restoring.build_restored_session(facts, read, request)
    assert not restored.is_original
    return restored


def what_is_sent(lines: Sequence[Line]) -> list[tuple[object, ...]]:
    """What Claude Code makes its next request of: all but ids, times and notes for people."""
    return [
        (
            line["type"],
            line.get("subtype"),
            line.get("attachment"),
            line.get("rendered"),
            line.get("content"),
            json.dumps(line.get("message", {}).get("content")),
        )
        for line in lines
        if line["type"] in ("user", "assistant", "attachment") or "subtype" in line
    ]


def test_without_the_file_the_next_request_is_made_of_the_same(tmp_path: Path) -> None:
    """8 added messages were left out, 22 after a compaction, and reminders came anew at the end,
    so that the whole conversation was written to the provider's cache again.
    """
    original = session_lines()
    restored = restore_without_file(written.lines(tmp_path / "session-1.jsonl", original))
    given = [json.loads(line) for line in restored.content.splitlines()]
    # The reply that the compaction kept stands behind the summary, as it was sent.
    sent = what_is_sent([*original[:14], *original[15:17], original[14], *original[17:]])
    assert what_is_sent(given) == sent
    assert restored.left_out_context == 0
    assert [line["parentUuid"] for line in given[1:16]] == [
        None if line.get("subtype") == "compact_boundary" else before["uuid"]
        for before, line in itertools.pairwise(given[:16])
    ]
    assert {line["sessionId"] for line in given} == {restored.session}


def test_what_a_search_for_tools_loaded_stays_loaded(tmp_path: Path) -> None:
    """Claude Code sends a deferred tool only while a reference to it is in its session."""
    loaded = [
        {"type": "tool_reference", "tool_name": "mcp__files__list"},
        {"type": "tool_reference", "tool_name": "WebSearch"},
    ]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": loaded}
    original = [
        written.claude_said(1, None, "list the files"),
        written.claude_reply(2, 1, "m1", written.use("t1", "ToolSearch", query="files")),
        written.claude_said(3, 2, [result]),
        written.claude_reply(4, 3, "m2", written.text("Loaded.")),
    ]
    restored = restore_without_file(written.lines(tmp_path / "session-1.jsonl", original))
    given = [json.loads(line) for line in restored.content.splitlines()]
    assert given[2]["message"]["content"] == [{**result, "tool_use_id": "t1"}]


def test_before_a_compaction_and_without_its_stored_lines(tmp_path: Path) -> None:
    original = session_lines()
    path = written.lines(tmp_path / "session-1.jsonl", original)
    restored = restore_without_file(path, before_compaction=1)
    given = [json.loads(line) for line in restored.content.splitlines()]
    assert what_is_sent(given)[:15] == what_is_sent(original[:15])
    path = written.lines(tmp_path / "session-1.jsonl", original)
    restored = restore_without_file(path, forgotten=True)
    assert restored.left_out_context == 4, "only what Claude Code says by lines of its own"
    assert b"## Context Usage" in restored.content
    assert b"known_only_to_claude" not in restored.content


def test_lines_come_in_the_order_of_the_file_each_once() -> None:
    stored = [json.dumps(line).encode() for line in session_lines()]
    lines = ClaudeOwnLines.from_stored_lines([*stored, b"not JSON", b"[]"])
    first = lines.pop_unseen_lines_before(10e10)
    assert first == [], "a line that is seen stands before them"
    date = f"[Claude Code showed: date]\n{REMINDER}"
    assert [one["known_only_to_claude"] for one in attachments(lines.pop_lines_up_to(date))] == [2]
    assert [one["type"] for one in attachments(lines.pop_unseen_lines_before(10e10))] == [
        "session_context"
    ]
    taken = attachments(lines.pop_lines_up_to(date))
    assert [one["type"] for one in taken] == ["prompt_snapshot", "prompt_snapshot", "date"]
    assert lines.pop_lines_up_to(date) == []
    assert date in texts_of_own_lines(stored)


def attachments(lines: Sequence[Line]) -> list[Line]:
    assert not any({"uuid", "parentUuid", "sessionId"} & set(line) for line in lines)
    return [line["attachment"] for line in lines]
