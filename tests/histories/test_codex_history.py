"""Rollouts of Codex, new and old."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from helix_desktop.histories import codex_history, history_reading
from helix_desktop.histories.history_rows import HistoryRow, ReadingComplaints
from helix_desktop.histories.recorded_session import RecordedCall, RecordedMessage
from tests.histories import written

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


def read(*rows: HistoryRow) -> tuple[list[RecordedMessage], ReadingComplaints]:
    told = ReadingComplaints()
    (recording,) = codex_history.read_codex_recordings(rows, told, Path("rollout.jsonl"))
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
    messages, told = read(*(HistoryRow(value, "f") for value in around))
    assert list(map(plain, messages)) == list(map(plain, EXPECTED))
    assert told.complaints == []


def test_a_shell_call_keeps_its_action() -> None:
    item = {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}}
    (message,), _ = read(HistoryRow(item, "f"))
    assert message.calls == (RecordedCall("c", "shell", '{"command": ["ls"]}'),)


def test_what_cannot_be_read_gets_a_sentence() -> None:
    rows = [
        HistoryRow({"type": "function_call", "name": "x"}, "f, line 1"),
        HistoryRow({"type": "function_call_output"}, "f, line 2"),
    ]
    messages, told = read(*rows)
    assert messages == []
    assert [complaint[:9] for complaint in told.complaints] == ["f, line 1", "f, line 2"]


def test_what_the_provider_ran_is_a_call_and_no_item_is_left_out_in_silence() -> None:
    items: list[Mapping[str, object]] = [
        *ITEMS[:2],
        {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "qt"}, "status": "completed"},
        {"type": "tool_search_call", "call_id": "ts_1", "arguments": {"query": "mail"}},
        {"type": "tool_search_output", "call_id": "ts_1", "tools": [{"name": "send"}]},
        {"type": "agent_message", "author": "reviewer", "content": [{"type": "input_text", "text": "looks good"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    messages, told = read(*(HistoryRow({"type": "response_item", "payload": item}, "f") for item in items), HistoryRow({"type": "response_item", "payload": {"type": "new_thing"}}, "f"))  # fmt: skip
    assert [(message.role, [call.name for call in message.calls]) for message in messages] == [
        ("user", []),
        ("assistant", ["web_search"]),
        ("tool", []),
        ("assistant", ["tool_search"]),
        ("tool", []),
        ("user", []),
        ("assistant", []),
    ]
    assert '"name": "send"' in messages[4].text
    assert messages[5].text == "[Message of the agent reviewer]\nlooks good"
    assert told.left_out == {"item new_thing": 1}


def test_a_commands_whole_output_and_what_a_request_cost() -> None:
    whole = "\n".join(f"line {number}" for number in range(100))
    usage = {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 20, "reasoning_output_tokens": 5}
    events: list[Mapping[str, object]] = [
        {"type": "turn_context", "payload": {"model": "gpt-5"}},
        {
            "type": "response_item",
            "payload": {"type": "function_call", "name": "exec_command", "arguments": "{}", "call_id": "c"},
        },
        {"type": "event_msg", "payload": {"type": "exec_command_end", "call_id": "c", "aggregated_output": whole}},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": "line 0\n…"}},
        {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": usage}}},
    ]
    messages, _ = read(*(HistoryRow(event, "f") for event in events))
    assert (messages[1].text, messages[1].shown) == (whole, "line 0\n…")
    assert (messages[0].model, messages[0].usage.input, messages[0].usage.cache_read) == ("gpt-5", 100, 60)


def test_a_compaction_stands_where_it_happened() -> None:
    rows = [HistoryRow({"type": "response_item", "payload": item}, "f") for item in ITEMS]
    compacted = HistoryRow({"type": "compacted", "payload": {"message": "What happened."}}, "f")
    told = ReadingComplaints()
    (recording,) = codex_history.read_codex_recordings([*rows, compacted], told, Path("rollout.jsonl"))
    (compaction,) = recording.compactions
    assert (compaction.at, compaction.text) == (5, "What happened.")


def test_a_fork_shares_what_it_copied(tmp_path: Path) -> None:
    source = written.codex(tmp_path)
    values = [json.loads(line) for line in source.read_text().splitlines()]
    about = {**values[0]["payload"], "id": "thread-2", "forked_from_id": "thread-1"}
    copied = [{**one, "timestamp": "2026-01-03T00:00:00.000Z"} for one in (values[0], *values[1:9])]
    own = [{**values[-1], "payload": {**values[-1]["payload"], "content": [{"type": "output_text", "text": "Other."}]}}]
    path = written.lines(
        tmp_path / "sessions" / "2026" / "01" / "03" / "rollout-2026-01-03T00-00-00-thread-2.jsonl",
        [{**values[0], "payload": about}, *copied, *values[9:10], *own],
    )
    (fork,) = history_reading.read_history_file(path).recordings
    (whole,) = history_reading.read_history_file(source).recordings
    assert (fork.session, fork.forked_from, fork.forked_at) == ("thread-2", "thread-1", len(whole.messages) - 1)
    assert fork.messages[-1].text == "Other."
    source.unlink()
    (alone,) = history_reading.read_history_file(path).recordings
    assert (alone.forked_from, len(alone.messages)) == ("", len(fork.messages))


def test_what_another_agent_said_stands_beside_the_persons_words() -> None:
    item = {"type": "agent_message", "author": "reviewer", "content": [{"type": "input_text", "text": "Done."}]}
    rows = [HistoryRow({"type": "response_item", "payload": item}, "line")]
    (session,) = codex_history.read_codex_recordings(rows, ReadingComplaints(), Path("rollout.jsonl"))
    (message,) = session.messages
    assert (message.role, message.text, message.beside) == ("user", "[Message of the agent reviewer]\nDone.", True)
