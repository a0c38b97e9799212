"""Sessions of Claude Code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.histories import claude_code
from helix_desktop.histories.recording import RecordedCall, RecordedMessage, Recording
from helix_desktop.histories.rows import Row, Told


def reply(identity: str, *blocks: Mapping[str, object], **more: object) -> Mapping[str, object]:
    return {"type": "assistant", "message": {"id": identity, "role": "assistant", "content": list(blocks)}, **more}


def said(content: object, **more: object) -> Mapping[str, object]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def read(*values: Mapping[str, object]) -> tuple[list[RecordedMessage], list[str]]:
    told = Told()
    (first, *_) = all_of(*values, told=told)
    return list(first.messages), told.complaints


def all_of(*values: Mapping[str, object], told: Told | None = None) -> list[Recording]:
    rows = [Row(v, f"line {n}") for n, v in enumerate(values, 1)]
    return claude_code.recordings(rows, told or Told(), Path("s.jsonl"))


def plain(message: RecordedMessage) -> tuple[object, ...]:
    return message.role, message.text, message.calls, message.answers, message.ok, message.reasoning


TEXT = {"type": "text", "text": "I look."}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a.py"}}
RESULT: Mapping[str, object] = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}


def test_lines_of_one_reply_are_one_message() -> None:
    messages, complaints = read(
        said("read a.py"), reply("m1", THINKING), reply("m1", TEXT), reply("m1", CALL), said([RESULT])
    )
    assert complaints == []
    calls = (RecordedCall("t1", "Read", '{"file_path": "a.py"}'),)
    assert plain(messages[1]) == ("assistant", "I look.", calls, "", True, "hm")
    assert plain(messages[2]) == ("tool", "text", (), "t1", True, "")


def test_two_replies_stay_two() -> None:
    messages, _ = read(said("go"), reply("m1", TEXT), reply("m2", TEXT))
    assert len(messages) == 3


def test_other_events_are_named_and_sub_agents_are_conversations_of_their_own() -> None:
    other: Sequence[Mapping[str, object]] = [
        {"type": "summary", "summary": "x"},
        {"type": "file-history-snapshot"},
        reply("m0", TEXT, isSidechain=True),
    ]
    messages, complaints = read(*other, said("go"), reply("m1", TEXT))
    assert [message.role for message in messages] == ["user", "assistant"]
    assert complaints == []


def test_results_in_parts_errors_and_words_beside_them() -> None:
    result = {**RESULT, "content": [{"type": "text", "text": "a"}, {"type": "image"}], "is_error": True}
    messages, _ = read(reply("m1", CALL), said([result, {"type": "text", "text": "stop that"}]))
    assert plain(messages[1]) == ("tool", "a\n[image]", (), "t1", False, "")
    assert messages[2].text == "stop that"


def test_a_call_without_an_id_gets_a_sentence() -> None:
    messages, (complaint,) = read(said("go"), reply("m1", {"type": "tool_use", "name": "Read"}))
    assert len(messages) == 1
    assert complaint.startswith("line 2: a call has no id")
