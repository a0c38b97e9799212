"""Sessions as Claude Code's own lines: what it needs to resume them, line by line."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, Text, ToolCall, Usage
from helix_desktop.histories.claude_code_writer import build_claude_code_lines, project_folder_name
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
)

NAME = "12345678-1234-5678-1234-567812345678"
AT = 1767323045.25
WHEN = "2026-01-02T03:04:05.250Z"


def written(
    *messages: RecordedMessage, compactions: tuple[RecordedCompaction, ...] = ()
) -> list[dict[str, Any]]:
    recording = RecordedSession("s", messages, folder="/home/me/a", compactions=compactions)
    return [dict(line) for line in build_claude_code_lines(recording, NAME)]


def test_lines_are_one_chain_of_the_session_and_the_same_each_time() -> None:
    messages = (RecordedMessage("user", "go", time=AT), RecordedMessage("user", "on", time=AT))
    first, second = written(*messages)
    assert first["parentUuid"] is None
    assert second["parentUuid"] == first["uuid"] == str(uuid.uuid5(uuid.UUID(NAME), "0"))
    assert (first["sessionId"], first["cwd"], first["isSidechain"], first["userType"]) == (
        NAME,
        "/home/me/a",
        False,
        "external",
    )
    assert (first["type"], first["message"], first["timestamp"]) == (
        "user",
        {"role": "user", "content": "go"},
        WHEN,
    )
    assert "isMeta" not in first
    assert written(*messages) == [first, second]


def test_a_compaction_is_a_boundary_that_begins_a_chain_and_its_summary() -> None:
    before, boundary, summary, after = written(
        RecordedMessage("user", "go", time=AT),
        RecordedMessage("user", "on", time=AT),
        compactions=(RecordedCompaction(1, 1, "What happened.", AT),),
    )
    assert (boundary["type"], boundary["subtype"], boundary["isMeta"]) == (
        "system",
        "compact_boundary",
        False,
    )
    assert (boundary["parentUuid"], boundary["logicalParentUuid"]) == (None, before["uuid"])
    assert boundary["compactMetadata"] == {"trigger": "manual", "preTokens": 0}
    assert (summary["parentUuid"], summary["message"]["content"]) == (
        boundary["uuid"],
        "What happened.",
    )
    assert (summary["isCompactSummary"], summary["isVisibleInTranscriptOnly"]) == (True, True)
    assert boundary["timestamp"] == summary["timestamp"] == WHEN
    assert after["parentUuid"] == summary["uuid"]


def test_a_reply_keeps_its_thinking_its_calls_and_its_bill() -> None:
    thinking = '{"type": "thinking", "thinking": "hm", "signature": "s"}'
    parts = (
        Reasoning("hm", opaque=thinking, provider="anthropic a"),
        Reasoning("of another", opaque="{}", provider="openai b"),
        Text(" "),
        Text("I look"),
        ToolCall("call:1", "Bash", '{"command": "ls"}'),
    )
    usage = Usage(input=100, cache_read=60, cache_write=30, output=7)
    (line,) = written(
        RecordedMessage("assistant", "I look", time=AT, parts=parts, model="claude", usage=usage)
    )
    message = line["message"]
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "ls"}},
    ]
    assert message["usage"] == {
        "input_tokens": 10,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 30,
        "output_tokens": 7,
    }
    assert (message["stop_reason"], message["model"], message["role"]) == (
        "tool_use",
        "claude",
        "assistant",
    )
    (said,) = written(RecordedMessage("assistant", "done", time=AT, parts=(Text("done"),)))
    assert said["message"]["stop_reason"] == "end_turn"
    assert said["message"]["usage"]["input_tokens"] == 0
    assert written(RecordedMessage("assistant", "", time=AT, parts=(Text(""),))) == []


@pytest.mark.parametrize("sealed", ["{", "[" * 100_000, "5"])
def test_sealed_thinking_that_is_no_object_is_left_out(sealed: str) -> None:
    """An imported workspace can bring any text. It ended the restore with a traceback."""
    parts = (Reasoning("hm", opaque=sealed, provider="anthropic a"), Text("I look"))
    (line,) = written(RecordedMessage("assistant", "I look", time=AT, parts=parts))
    assert line["message"]["content"] == [{"type": "text", "text": "I look"}]


def test_results_pictures_and_what_stands_beside_the_users_words() -> None:
    picture = RecordedPicture("image/png", b"\0\0\0")
    source = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    }
    plain, shown, failed = written(
        RecordedMessage("tool", "", time=AT, answers="call:1"),
        RecordedMessage("tool", "seen", time=AT, answers="c2", pictures=(picture,)),
        RecordedMessage("tool", "no such file", time=AT, answers="c3", ok=False),
    )
    (result,) = plain["message"]["content"]
    assert result == {"tool_use_id": "call_1", "type": "tool_result", "content": ""}
    assert shown["message"]["content"][0]["content"] == [{"type": "text", "text": "seen"}, source]
    (pictured,) = written(RecordedMessage("tool", "", time=AT, answers="c4", pictures=(picture,)))
    assert pictured["message"]["content"][0]["content"] == [source]
    assert failed["message"]["content"][0]["is_error"]
    assert (failed["type"], failed["toolUseResult"]) == ("user", "no such file")
    (both,) = written(RecordedMessage("user", "look", time=AT, pictures=(picture,)))
    assert both["message"]["content"] == [{"type": "text", "text": "look"}, source]
    (alone,) = written(RecordedMessage("user", " ", time=AT, pictures=(picture,)))
    assert alone["message"]["content"] == [source]
    assert written(RecordedMessage("user", " ", time=AT)) == []
    assert written(RecordedMessage("user", "a reminder", time=AT, beside=True))[0]["isMeta"] is True


def test_the_folder_of_a_project() -> None:
    assert project_folder_name("/home/me/a.b_c") == "-home-me-a-b-c"
    assert project_folder_name("/home/Ü 🦊") == "-home-----", (
        "Claude Code is JavaScript: the fox is two characters"
    )
    assert len(project_folder_name("/" + "a" * 199)) == 200
    assert project_folder_name("/" + "a" * 200) == "", "Claude Code would give it another name"


def test_a_result_has_the_fields_that_claude_code_writes_in_its_order() -> None:
    """They are sent as they stand, and other bytes would make the provider's cache cold."""
    calls = (
        ToolCall("c1", "Bash", "{}"),
        ToolCall("c2", "Read", "{}"),
        ToolCall("c3", "Bash", "{}"),
    )
    reply = RecordedMessage("assistant", "", calls=calls, parts=calls)
    results = [
        RecordedMessage("tool", "x", answers="c1"),
        RecordedMessage("tool", "x", answers="c2"),
        RecordedMessage("tool", "x", answers="c3", ok=False),
    ]
    _, *lines = written(reply, *results)
    assert [list(line["message"]["content"][0]) for line in lines] == [
        ["tool_use_id", "type", "content", "is_error"],
        ["tool_use_id", "type", "content"],
        ["type", "content", "is_error", "tool_use_id"],
    ]
