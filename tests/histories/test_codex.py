"""Rollouts of Codex, new and old."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from helix_desktop.histories import codex
from helix_desktop.histories.recording import RecordedCall, RecordedMessage
from helix_desktop.histories.rows import Row, Told

ITEMS: tuple[Mapping[str, object], ...] = (
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "think"}], "encrypted_content": "x"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
    {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"},
    {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", "call_id": "c2"},
    {"type": "function_call_output", "call_id": "c1", "output": {"content": "a.py", "success": True}},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
)
EXPECTED = [
    RecordedMessage("user", "fix it"),
    RecordedMessage(
        "assistant",
        "I look.",
        (
            RecordedCall("c1", "shell", '{"command": ["ls"]}'),
            RecordedCall("c2", "apply_patch", '{"input": "*** Begin"}'),
        ),
        reasoning="think",
    ),
    RecordedMessage("tool", "a.py", answers="c1"),
    RecordedMessage("tool", "done", answers="c2"),
    RecordedMessage("assistant", "Done."),
]


def read(*rows: Row) -> tuple[list[RecordedMessage], Told]:
    told = Told()
    (recording,) = codex.recordings(rows, told, Path("rollout.jsonl"))
    return list(recording.messages), told


def plain(message: RecordedMessage) -> tuple[object, ...]:
    return message.role, message.text, message.calls, message.answers, message.ok, message.reasoning


@pytest.mark.parametrize("wrapped", [True, False])
def test_items_of_one_reply_are_one_message(*, wrapped: bool) -> None:
    values = [{"type": "response_item", "payload": item} if wrapped else item for item in ITEMS]
    around: list[Mapping[str, object]] = [
        {"type": "session_meta", "payload": {}},
        *values,
        {"type": "event_msg", "payload": {}},
    ]
    messages, told = read(*(Row(value, "f") for value in around))
    assert list(map(plain, messages)) == list(map(plain, EXPECTED))
    assert told.complaints == []


def test_a_shell_call_keeps_its_action() -> None:
    item = {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}}
    (message,), _ = read(Row(item, "f"))
    assert message.calls == (RecordedCall("c", "shell", '{"command": ["ls"]}'),)


def test_what_cannot_be_read_gets_a_sentence() -> None:
    rows = [
        Row({"type": "function_call", "name": "x"}, "f, line 1"),
        Row({"type": "function_call_output"}, "f, line 2"),
    ]
    messages, told = read(*rows)
    assert messages == []
    assert [complaint[:9] for complaint in told.complaints] == ["f, line 1", "f, line 2"]
