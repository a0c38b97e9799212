"""What is exported reads back as the same conversation."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    Attachment,
    Fact,
    ModelReplied,
    Recorded,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.histories import history_facts, history_reading, openai_chat_export
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from tests.histories import written
from tests.histories.test_history_facts import Words

NOTHING_STORED: dict[Digest, bytes] = {}


def conversation(recording: RecordedSession) -> tuple[list[Recorded], dict[Digest, bytes]]:
    drafts = history_facts.draft_facts(recording, Words(), lambda _: "")
    contents = {
        Digest.of_content(content): content for draft in drafts for content, _ in draft.contents
    }
    return [
        Recorded("c", at, draft.time, draft.fact) for at, draft in enumerate(drafts, 1)
    ], contents


def said(message: RecordedMessage) -> tuple[object, ...]:
    return (
        message.role,
        message.text,
        [(one.id, one.name) for one in message.calls],
        message.answers,
        message.ok,
    )


@pytest.mark.parametrize("kind", written.KINDS)
def test_an_export_reads_back(tmp_path: Path, kind: str) -> None:
    (recording,) = history_reading.read_history_file(written.KINDS[kind](tmp_path)).recordings
    facts, contents = conversation(recording)
    path = written.lines(
        tmp_path / "out.jsonl", openai_chat_export.export_openai_lines(facts, contents.get)
    )
    imported = history_reading.read_history_file(path)
    assert imported.complaints == ()
    (again,) = imported.recordings
    expected = list(recording.messages)
    if not any(isinstance(one.fact, SystemSet) for one in facts):
        expected = [one for one in expected if one.role != "system"]
    assert [said(one) for one in again.messages] == [said(one) for one in expected]


def test_a_call_that_was_never_answered_gets_a_result_that_says_so(tmp_path: Path) -> None:
    (recording,) = history_reading.read_history_file(
        written.lines(
            tmp_path / "s.jsonl", [*written.claude_session()[:4], *written.claude_session()[6:]]
        )
    ).recordings
    facts, contents = conversation(recording)
    roles = [line["role"] for line in openai_chat_export.export_openai_lines(facts, contents.get)]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


def recorded_in_order(said: list[Fact]) -> list[Recorded]:
    return [Recorded("c", at, float(at), fact) for at, fact in enumerate(said, 1)]


def test_what_a_person_said_between_results_comes_once_behind_the_last_of_them() -> None:
    empty = Stored(Digest.of_content(b""), 0)
    said: list[Fact] = [
        UserSaid((Text("go"),)),
        ModelReplied(
            (ToolCall("c1", "ls", "{}"), ToolCall("c2", "ls", "{}")), "m", Stop.CALLS, Usage()
        ),
        ToolReturned("c1", empty, 0, head="one"),
        UserSaid((Text("wait"),)),
        ToolReturned("elsewhere", empty, 0, head="of no call"),
        UserSaid((Text("no, go on"),)),
        ToolReturned("c2", empty, 0, head="two"),
        ToolReturned("c2", empty, 0, head="two again"),
        ModelReplied((Text("done"),), "m", Stop.END, Usage()),
        UserSaid((Text("thanks"),)),
    ]
    lines = openai_chat_export.export_openai_lines(recorded_in_order(said), NOTHING_STORED.get)
    assert [(line["role"], line["content"]) for line in lines if not line.get("tool_calls")] == [
        ("user", "go"),
        ("tool", "one"),
        ("tool", "two"),
        ("user", "wait"),
        ("user", "no, go on"),
        ("assistant", "done"),
        ("user", "thanks"),
    ]
    without_the_second = openai_chat_export.export_openai_lines(
        recorded_in_order([*said[:6], *said[8:]]), NOTHING_STORED.get
    )
    roles = [line["role"] for line in without_the_second]
    assert roles == ["user", "assistant", "tool", "tool", "user", "user", "assistant", "user"]


def test_of_a_conversation_that_ends_amid_its_calls_the_last_words_come_behind_what_was_not_answered() -> (
    None
):
    said: list[Fact] = [
        ModelReplied((ToolCall("c1", "ls", "{}"),), "m", Stop.CALLS, Usage()),
        UserSaid((Text("stop"),)),
    ]
    assert [
        line["role"]
        for line in openai_chat_export.export_openai_lines(
            recorded_in_order(said), NOTHING_STORED.get
        )
    ] == [
        "assistant",
        "tool",
        "user",
    ]


def test_after_a_call_that_was_not_answered_the_next_calls_keep_their_results() -> None:
    empty = Stored(Digest.of_content(b""), 0)
    said: list[Fact] = [
        ModelReplied((ToolCall("c1", "ls", "{}"),), "m", Stop.CALLS, Usage()),
        ModelReplied((ToolCall("c2", "ls", "{}"),), "m", Stop.CALLS, Usage()),
        ToolReturned("c2", empty, 0, head="two"),
        UserSaid((Text("thanks"),)),
    ]
    lines = list(
        openai_chat_export.export_openai_lines(recorded_in_order(said), NOTHING_STORED.get)
    )
    assert [line["role"] for line in lines] == ["assistant", "tool", "assistant", "tool", "user"]
    assert lines[3]["content"] == "two"


def test_what_an_export_needs_is_named_once_and_what_is_missing_is_said() -> None:
    output, image, file = (
        Stored(Digest.of_content(content), 3) for content in (b"out", b"img", b"att")
    )
    call = ModelReplied((ToolCall("c1", "ls", "{}"),), "m", Stop.CALLS, Usage())
    said: list[Fact] = [
        UserSaid((Text("go"), Attachment("notes.txt", file, 1), Attachment("again.txt", file, 1))),
        call,
        ToolReturned("c1", output, 1, images=(image,)),
    ]
    recorded = recorded_in_order(said)
    assert openai_chat_export.digests_needed_for_export(recorded) == [
        file.digest,
        output.digest,
        image.digest,
    ]
    contents = {output.digest: b"out", file.digest: b"att"}
    user, _, result = openai_chat_export.export_openai_lines(recorded, contents.get)
    assert "[Attachment: notes.txt]\natt" in str(user["content"])
    assert "out" in str(result["content"])
    user, _, result = openai_chat_export.export_openai_lines(recorded, NOTHING_STORED.get)
    assert "[Attachment: notes.txt]\n[not available]" in str(user["content"])
    assert f"[{output.digest}: not available]" in str(result["content"])
