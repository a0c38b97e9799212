"""Sessions for pi."""

from __future__ import annotations

from typing import Any

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.histories import pi_writer
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)


def lines(*messages: RecordedMessage, **more: Any) -> list[dict[str, Any]]:
    session = RecordedSession("s", messages, folder="/work", **more)
    return [dict(line) for line in pi_writer.build_pi_lines(session, "p1", 61.0)]


def test_the_head_says_where_and_when() -> None:
    assert lines() == [
        {
            "type": "session",
            "version": 3,
            "id": "p1",
            "timestamp": "1970-01-01T00:01:01.000Z",
            "cwd": "/work",
        }
    ]


def test_entries_follow_one_another() -> None:
    said = (RecordedMessage("user", text, time=2.0) for text in ("one", "two"))
    _, *entries = lines(*said, compactions=(RecordedCompaction(2, 2, "Sum.", 3.0),))
    assert [(one["id"], one["parentId"]) for one in entries] == [
        ("00000000", None),
        ("00000001", "00000000"),
        ("00000002", "00000001"),
    ]
    when = {"parentId": "00000001", "timestamp": "1970-01-01T00:00:03.000Z"}
    kept = {"summary": "Sum.", "firstKeptEntryId": "00000002", "tokensBefore": 0}
    assert entries[2] == {"type": "compaction", "id": "00000002", **when, **kept}


def test_what_pi_puts_around_a_summary_is_not_written() -> None:
    before = "The conversation history before this point was compacted into the following summary:"
    sent = f"{before}\n\n<summary>\nSum.\n</summary>"
    _, *entries = lines(
        RecordedMessage("user", "hi", time=1.0), compactions=(RecordedCompaction(1, 1, sent, 3.0),)
    )
    assert entries[-1]["summary"] == "Sum."


def test_messages_of_every_kind() -> None:
    picture = RecordedPicture("image/png", b"\0\0\0")
    call = ToolCall("c 1", "ba sh", '{"a": 1}')
    _, asked, replied, returned, failed, beside, done = lines(
        RecordedMessage("user", "look", time=2.5, pictures=(picture,)),
        build_recorded_reply([Reasoning("hm"), Text("I look."), call], model="m"),
        RecordedMessage("tool", "", answers="c 1"),
        RecordedMessage("tool", "bad", answers="elsewhere", ok=False),
        RecordedMessage("user", "note", beside=True),
        build_recorded_reply([Text("Done.")]),
    )
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    content = [{"type": "text", "text": "look"}, image]
    assert asked["message"] == {"role": "user", "content": content, "timestamp": 2500}
    made = {"type": "toolCall", "id": "c_1", "name": "ba_sh", "arguments": {"a": 1}}
    assert replied["message"]["content"] == [{"type": "text", "text": "I look."}, made]
    assert (replied["message"]["model"], replied["message"]["stopReason"]) == ("m", "toolUse")
    spent = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
    assert replied["message"]["usage"] == {**spent, "totalTokens": 0, "cost": {**spent, "total": 0}}
    about = {"role": "toolResult", "timestamp": 0}
    assert returned["message"] == {
        **about,
        "toolCallId": "c_1",
        "toolName": "ba_sh",
        "content": [],
        "isError": False,
    }
    text = [{"type": "text", "text": "bad"}]
    lost = {"toolCallId": "elsewhere", "toolName": "tool", "content": text, "isError": True}
    assert failed["message"] == {**about, **lost}
    assert (beside["type"], beside["customType"], beside["display"]) == (
        "custom_message",
        "note",
        True,
    )
    assert beside["content"] == [{"type": "text", "text": "note"}]
    assert done["message"]["stopReason"] == "stop"


def test_a_file_is_named_by_folder_and_time() -> None:
    name = "1970-01-01T00-01-01-000Z_p1.jsonl"
    assert (
        pi_writer.build_relative_pi_session_path("/home/me: x", "p1", 61.0)
        == f"--home-me- x--/{name}"
    )
    assert pi_writer.build_relative_pi_session_path("C:\\work", "p1", 61.0) == f"--C--work--/{name}"


def test_a_reply_names_no_provider_that_pi_knows() -> None:
    """The agent goes on with the last reply's provider: at api.anthropic.com, whatever
    the user has set up.
    """
    _, line = lines(build_recorded_reply([Text("a")], model="claude-opus-4-8"))
    assert (line["message"]["provider"], line["message"]["model"]) == (
        "restored",
        "claude-opus-4-8",
    )
