"""Messages of Anthropic's API by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.histories import anthropic_history
from helix_desktop.histories.history_rows import HistoryRow, ReadingReport


@pytest.mark.parametrize("kind", ["tool_use", "tool_result", "thinking", "redacted_thinking"])
def test_a_message_is_known_by_its_blocks(kind: str) -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": kind}]
    assert anthropic_history.is_anthropic_message({"role": "user", "content": blocks}) is True
    assert anthropic_history.is_anthropic_message({"role": "assistant", "content": blocks}) is True
    assert anthropic_history.is_anthropic_message({"role": "system", "content": blocks}) is False
    assert anthropic_history.is_anthropic_message({"role": "user", "content": blocks[:1]}) is False
    assert anthropic_history.is_anthropic_message({"role": "user", "content": kind}) is False


def test_messages_are_read_and_those_of_no_role_are_told() -> None:
    values: list[dict[str, object]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "look", "ts": 1767323045250},
        {
            "role": "assistant",
            "model": "m",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sealed"},
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}},
            ],
            "usage": {"input_tokens": 7, "output_tokens": 2},
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and this"},
                {"type": "tool_result", "tool_use_id": "c1", "content": "a.txt", "is_error": True},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "b"}]},
        {"role": "nobody", "content": "x"},
        {"role": "user", "content": " "},
    ]
    report = ReadingReport()
    rows = [HistoryRow(value, f"line {at}") for at, value in enumerate(values, 1)]
    (read,) = anthropic_history.read_anthropic_recordings(rows, report, Path("/tmp/task.json"))
    assert (read.name, read.kind, read.session) == (
        "/tmp/task.json",
        anthropic_history.KIND,
        "task",
    )
    assert [(one.role, one.text) for one in read.messages] == [
        ("system", "Be brief."),
        ("user", "look"),
        ("assistant", "I look"),
        ("tool", "a.txt"),
        ("user", "and this"),
        ("tool", "b"),
    ]
    reply = read.messages[2]
    result = read.messages[3]
    assert reply.parts == (
        Reasoning("hm"),
        Text("I look"),
        ToolCall("c1", "Bash", '{"command": "ls"}'),
    )
    assert (reply.model, reply.usage.output) == ("m", 2)
    assert (read.messages[1].time, result.answers, result.ok) == (1767323045.25, "c1", False)
    assert report.complaints == ["line 6: there is no role 'nobody'; the line was left out."]
