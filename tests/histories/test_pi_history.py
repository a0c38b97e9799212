"""Sessions of pi."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories import history_reading, pi_history
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)
from tests.histories import written

HEAD = {
    "type": "session",
    "version": 3,
    "id": "p1",
    "cwd": "/w",
    "timestamp": "2026-01-02T03:04:05.000Z",
}
AT = "1970-01-01T00:00:05.000Z"


def read(
    tmp_path: Path, *rows: Mapping[str, Any], head: Mapping[str, Any] = HEAD
) -> history_reading.ImportedSessions:
    """The file with these entries; each follows the one before where it names no other."""
    values = [dict(head)]
    before: str | None = None
    for number, row in enumerate(rows, 1):
        values.append({"id": f"e{number}", "parentId": before, "timestamp": AT, **row})
        before = str(values[-1]["id"])
    report = ReadingReport()
    path = written.lines(tmp_path / "file-1.jsonl", values)
    recordings = tuple(history_reading.read_sessions(path, report))
    return history_reading.ImportedSessions(recordings, report.complaint_sentences(path.name))


def one(tmp_path: Path, *rows: Mapping[str, Any]) -> RecordedSession:
    (recording,) = read(tmp_path, *rows).recordings
    return recording


def message(role: str, content: object = "", **more: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": role, "content": content, **more}}


def test_a_session_has_its_name_folder_and_format(tmp_path: Path) -> None:
    found = one(tmp_path, message("user", "hi"), {"type": "session_info", "name": "A title"})
    assert (found.kind, found.session, found.title, found.folder, found.version) == (
        "pi", "p1", "A title", "/w", "format 3",
    )  # fmt: skip
    old = {"type": "session", "id": "", "cwd": "/w"}
    (found,) = read(tmp_path, message("user", "hi"), head=old).recordings
    assert (found.session, found.version, found.title) == ("file-1", "format 1", "")


def test_a_reply_says_its_parts_its_model_and_what_it_cost(tmp_path: Path) -> None:
    content = [
        {"type": "thinking", "thinking": "hm"},
        written.text("I look."),
        {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}},
    ]
    usage = {"input": 10, "cacheRead": 60, "cacheWrite": 30, "output": 20, "cost": {"total": 0.25}}
    found = one(
        tmp_path,
        message("user", "go", timestamp=9_000_000_000_000),
        message("assistant", content, model="m", usage=usage),
        message("toolResult", [written.text("out")], toolCallId="c1", isError=False),
        message("toolResult", "bad", toolCallId="c2", isError=True),
        message("assistant", "Done."),
    )
    parts: list[ReplyPart] = [
        Reasoning("hm"),
        Text("I look."),
        ToolCall("c1", "bash", '{"command": "ls"}'),
    ]
    assert found.messages == (
        RecordedMessage("user", "go", time=9_000_000_000.0),
        build_recorded_reply(parts, model="m", time=5.0, usage=Usage(100, 60, 30, 20, cost=0.25)),
        RecordedMessage("tool", "out", answers="c1", time=5.0),
        RecordedMessage("tool", "bad", answers="c2", ok=False, time=5.0),
        build_recorded_reply([Text("Done.")], time=5.0),
    )


def test_a_request_that_failed_is_noted_and_half_a_reply_is_a_reply(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        message("user", "go"),
        message("assistant", [], stopReason="error", errorMessage="overloaded"),
        message("assistant", [], stopReason="error"),
        message("assistant", [written.text("Half")], stopReason="error", errorMessage="cut"),
        message("assistant", [written.text("Whole")], stopReason="stop"),
    )
    assert [(one.role, one.text, one.time) for one in found.messages] == [
        ("user", "go", 5.0),
        ("failure", "overloaded", 5.0),
        ("failure", "error", 5.0),
        ("assistant", "Half", 5.0),
        ("assistant", "Whole", 5.0),
    ]


SEALED = '{"type":"reasoning","id":"rs_1"}'
ANTHROPIC = {"api": "anthropic-messages", "provider": "anthropic"}
OPENAI = {"api": "openai-responses", "provider": "openai"}


@pytest.mark.parametrize(
    ("about", "block", "opaque"),
    [
        (
            ANTHROPIC,
            {"thinkingSignature": "s"},
            '{"type":"thinking","thinking":"hm","signature":"s"}',
        ),
        (
            ANTHROPIC,
            {"thinkingSignature": "s", "redacted": True},
            '{"type":"redacted_thinking","data":"s"}',
        ),
        (ANTHROPIC, {}, ""),
        ({**ANTHROPIC, "provider": "proxy"}, {"thinkingSignature": "s"}, ""),
        ({**ANTHROPIC, "api": "other"}, {"thinkingSignature": "s"}, ""),
        (OPENAI, {"thinkingSignature": SEALED}, SEALED),
        (OPENAI, {"thinkingSignature": "s"}, ""),
        ({**OPENAI, "provider": "proxy"}, {"thinkingSignature": SEALED}, ""),
        ({**OPENAI, "api": "openai-completions"}, {"thinkingSignature": SEALED}, ""),
    ],
)
def test_reasoning_goes_back_only_to_the_provider_that_sealed_it(
    tmp_path: Path, about: Mapping[str, Any], block: Mapping[str, Any], opaque: str
) -> None:
    thought = {"type": "thinking", "thinking": "hm", **block}
    found = one(
        tmp_path, message("user", "go"), message("assistant", [thought], model="m", **about)
    )
    provider = {
        "anthropic": "anthropic api.anthropic.com",
        "openai": "openai-responses api.openai.com",
    }
    expected: ReplyPart = Reasoning("hm")
    if opaque:
        expected = Reasoning("hm", opaque=opaque, provider=provider[about["provider"]], model="m")
    assert found.messages[1].parts == (expected,)


def test_what_no_person_said_stands_beside(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        message("user", "go"),
        {"type": "custom_message", "content": "from an extension"},
        message("custom", "from another"),
        message("hookMessage", "from a hook"),
        message("bashExecution", command="ls", output="a b"),
        message("bashExecution", command="ls", output="unseen", excludeFromContext=True),
        message("branchSummary", summary="went astray"),
        message("compactionSummary", summary="went on"),
        message("user", " "),
        {"type": "branch_summary", "summary": "left that"},
    )
    (recording,) = found.recordings
    assert recording.messages == (
        RecordedMessage("user", "go", time=5.0),
        *(
            RecordedMessage("user", text, time=5.0, beside=True)
            for text in (
                "from an extension", "from another", "from a hook", "Ran `ls`\n```\na b\n```", "went astray", "went on",
                "[Summary of the branch that was left]\nleft that",
            )
        ),
    )  # fmt: skip
    assert "bash command outside the context (1)" in found.complaints[0]


def test_a_picture_that_a_person_sent_is_kept(tmp_path: Path) -> None:
    content = [written.text("look"), {"type": "image", "mimeType": "image/png", "data": "AAAA"}]
    found = one(tmp_path, message("user", content))
    assert found.messages[0].pictures == (RecordedPicture("image/png", b"\0\0\0"),)


@pytest.mark.parametrize(("kept", "keep"), [("e2", 1), ("e4", 2), ("nowhere", 2), ("e1", 0)])
def test_a_compaction_stands_for_what_came_before_its_first_kept_entry(
    tmp_path: Path, kept: str, keep: int
) -> None:
    found = one(
        tmp_path,
        message("user", "one"),
        message("assistant", [written.text("two")]),
        {"type": "compaction", "summary": "", "firstKeptEntryId": "e1"},
        {"type": "compaction", "summary": "The summary.", "firstKeptEntryId": kept},
        message("user", "three"),
    )
    why = "pi compacted the conversation here"
    assert found.compactions == (RecordedCompaction(2, keep, "The summary.", 5.0, why),)
    assert [message.text for message in found.messages] == ["one", "two", "three"]


def test_a_compaction_of_nothing_is_none(tmp_path: Path) -> None:
    found = one(tmp_path, {"type": "compaction", "summary": "Nothing."}, message("user", "one"))
    assert found.compactions == ()


def test_going_back_to_an_earlier_entry_makes_a_branch(tmp_path: Path) -> None:
    stays, branch = read(
        tmp_path,
        message("user", "one"),
        message("assistant", [written.text("two")]),
        message("user", "three"),
        {**message("user", "other"), "parentId": "e2"},
        message("assistant", [written.text("four")]),
        {**message("assistant", [written.text("late")]), "parentId": "e3"},
    ).recordings
    assert [one.text for one in stays.messages] == ["one", "two", "three", "late"]
    assert [one.text for one in branch.messages] == ["one", "two", "other", "four"]
    assert (branch.session, branch.forked_from, branch.forked_at) == ("p1#e4", "p1", 2)


def test_an_entry_of_an_unknown_kind_leads_to_its_parent(tmp_path: Path) -> None:
    stays, branch = read(
        tmp_path,
        message("user", "one"),
        message("assistant", [written.text("two")]),
        message("user", "three"),
        {"type": "novelty", "parentId": "e2"},
        message("user", "other"),
    ).recordings
    assert [one.text for one in stays.messages] == ["one", "two", "three"]
    assert [one.text for one in branch.messages] == ["one", "two", "other"]


def test_asking_anew_behind_the_first_words_makes_a_branch(tmp_path: Path) -> None:
    rows = message("user", "one"), message("assistant", [written.text("two")])
    stays, branch = read(tmp_path, *rows, {**message("user", "other"), "parentId": "e1"}).recordings
    assert [one.text for one in stays.messages] == ["one", "two"]
    assert [one.text for one in branch.messages] == ["one", "other"]


def test_a_summary_of_the_branch_left_begins_a_branch(tmp_path: Path) -> None:
    stays, branch = read(
        tmp_path,
        message("user", "one"),
        message("assistant", [written.text("two")]),
        message("user", "three"),
        {"type": "branch_summary", "summary": "left", "parentId": "e2"},
    ).recordings
    assert [one.text for one in stays.messages] == ["one", "two", "three"]
    assert branch.forked_at == 2


def test_a_second_root_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    stays, branch = read(
        tmp_path, message("user", "one"), {**message("user", "again"), "parentId": None}
    ).recordings
    assert [one.text for one in stays.messages] == ["one"]
    assert ([one.text for one in branch.messages], branch.forked_from) == (["again"], "")


def test_entries_of_the_first_format_follow_one_another(tmp_path: Path) -> None:
    rows = [
        {"type": "session", "id": "p1", "cwd": "/w"},
        message("user", "one"),
        message("user", "two"),
    ]
    (found,) = history_reading.read_sessions(
        written.lines(tmp_path / "old.jsonl", rows), ReadingReport()
    )
    assert [one.text for one in found.messages] == ["one", "two"]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (message("robot"), "there is no role 'robot'"),
        (message("toolResult"), "a tool result names no call"),
        (
            message("assistant", [{"type": "toolCall", "name": "bash"}]),
            "a call has no id or no name",
        ),
        (message("assistant", [{"type": "toolCall", "id": "c1"}]), "a call has no id or no name"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, row: Mapping[str, Any], why: str) -> None:
    found = read(tmp_path, message("user", "one"), row)
    assert [message.text for message in found.recordings[0].messages] == ["one"]
    assert why in found.complaints[0]


def test_entries_of_an_unknown_kind_are_counted_and_those_about_the_session_are_not(
    tmp_path: Path,
) -> None:
    found = read(
        tmp_path,
        message("user", "one"),
        {"type": "model_change"},
        {"type": "novelty"},
        {"type": ""},
    )
    (complaint,) = found.complaints
    assert complaint.endswith("as they are: no type (1), novelty (1).")


def test_the_agents_own_prompt_and_what_it_paid_beside_are_no_messages_and_not_complained_about(
    tmp_path: Path,
) -> None:
    """Seen with pi 1.5: each session has its prompt as a message, and the import
    complained about each.
    """
    prompt = {"sections": {"preamble": "You are an expert."}, "toolsAdded": [{"name": "bash"}]}
    rows = (
        message("system", **prompt),
        message("user", "one"),
        {"type": "usage", "kind": "cache_warm", "usage": {}},
    )
    found = read(tmp_path, *rows, message("assistant", [written.text("two")]))
    assert ([one.text for one in found.recordings[0].messages], found.complaints) == (
        ["one", "two"],
        (),
    )


def test_a_file_is_known_by_its_head_or_its_entries() -> None:
    known = pi_history.is_pi_row
    assert known({"type": "session", "cwd": "/w", "id": "1"})
    assert not known({"type": "session", "cwd": "/w", "id": 1})
    assert not known({"type": "session", "id": "1"})
    assert not known({"type": "other", "cwd": "/w", "id": "1"})
    assert known({"type": "message", "parentId": None})
    assert known({"type": "model_change", "parentId": "e1"})
    assert not known({"type": "message"})
    assert not known({"type": "other", "parentId": None})
