"""What harnesses write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories import history_reading, trajectories
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import RecordedMessage, build_recorded_reply


def roles(path: Path) -> list[str]:
    (recording,) = history_reading.read_history_file(path).recordings
    return [message.role for message in recording.messages]


def test_a_trajectory_of_swe_agent_has_its_actions_as_calls(tmp_path: Path) -> None:
    steps = [
        {"action": "ls", "observation": "a.py", "response": "I look.\nls", "thought": "I look."},
        {"action": "submit", "observation": "", "response": "Done.\nsubmit", "thought": "Done."},
    ]
    history = [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "I look."},
    ]
    path = tmp_path / "one.traj"
    path.write_text(
        json.dumps({"environment": "e", "trajectory": steps, "history": history, "info": {}})
    )
    assert roles(path) == ["system", "user", "assistant", "tool", "assistant", "tool"]


def test_atif(tmp_path: Path) -> None:
    steps = [
        {"step_id": 1, "source": "user", "message": "Fix it."},
        {
            "step_id": 2,
            "source": "agent",
            "message": "I look.",
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "ls"}}
            ],
            "observation": {"results": [{"source_call_id": "c1", "content": "a.py"}]},
            "metrics": {"prompt_tokens": 10, "completion_tokens": 5},
        },
    ]
    path = tmp_path / "trajectory.json"
    path.write_text(
        json.dumps(
            {
                "schema_version": "ATIF-v1.4",
                "session_id": "s",
                "agent": {"name": "a", "model_name": "m"},
                "steps": steps,
            }
        )
    )
    assert roles(path) == ["user", "assistant", "tool"]


def test_events_of_a_managed_agent(tmp_path: Path) -> None:
    events = [
        {"type": "user.message", "content": [{"type": "text", "text": "Fix it."}]},
        {"type": "agent.thinking"},
        {"type": "agent.message", "content": [{"type": "text", "text": "I look."}]},
        {"type": "agent.tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
        {
            "type": "agent.tool_result",
            "tool_use_id": "t1",
            "content": [{"type": "text", "text": "a.py"}],
        },
        {"type": "session.status_idle"},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))
    assert roles(path) == ["user", "assistant", "tool"]
    assert "session.status_idle (1)" in history_reading.read_history_file(path).complaints[0]


def test_role_lines_with_tool_use_blocks_have_their_calls(tmp_path: Path) -> None:
    lines = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "text"}],
        },
        {"role": "assistant", "content": "done"},
    ]
    path = tmp_path / "roles.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert roles(path) == ["user", "assistant", "tool", "assistant"]


def test_results_of_atif_without_a_call_answer_the_first_that_waits(tmp_path: Path) -> None:
    calls = [
        {"tool_call_id": name, "function_name": "bash", "arguments": "{}"}
        for name in ("c1", "c2", "c3")
    ]
    results = [
        {"source_call_id": "c2", "content": "second"},
        {"content": "first"},
        {"source_call_id": "c2", "content": "second again"},
        {"content": "third"},
        {"content": "nobody asked"},
    ]
    steps = [
        {
            "step_id": 1,
            "source": "agent",
            "message": "a",
            "tool_calls": calls,
            "observation": {"results": results},
        }
    ]
    path = tmp_path / "trajectory.json"
    path.write_text(
        json.dumps({"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {}, "steps": steps})
    )
    (recording,) = history_reading.read_history_file(path).recordings
    assert [(one.role, one.answers, one.text) for one in recording.messages[1:]] == [
        ("tool", "c2", "second"),
        ("tool", "c1", "first"),
        ("user", "", "second again"),
        ("tool", "c3", "third"),
        ("user", "", "nobody asked"),
    ]


def document(
    tmp_path: Path, value: Mapping[str, Any], name: str = "one.json"
) -> history_reading.ImportedSessions:
    path = tmp_path / name
    path.write_text(json.dumps(value))
    report = ReadingReport()
    recordings = tuple(history_reading.read_sessions(path, report))
    return history_reading.ImportedSessions(recordings, report.complaint_sentences(name))


def test_each_of_the_three_is_known_by_what_it_has() -> None:
    swe, atif, managed = trajectories.is_swe_agent_trajectory, trajectories.is_atif_trajectory, trajectories.is_managed_agent_log  # fmt: skip
    steps: Mapping[str, Any] = {"trajectory": []}
    assert [swe({**steps, name: 1}) for name in ("history", "environment", "info", "other")] == [
        True,
        True,
        True,
        False,
    ]
    assert not swe({"trajectory": {}, "info": 1})
    found: Mapping[str, Any] = {"steps": [], "agent": {}}
    assert [atif({**found, name: 1}) for name in ("schema_version", "session_id", "other")] == [
        True,
        True,
        False,
    ]
    assert not atif({"steps": [], "session_id": 1})
    assert not atif({"steps": {}, "session_id": 1, "agent": {}})
    kinds = ("agent.message", "session.idle", "span.end", "agent", "user.message", 5)
    assert [managed({"type": kind}) for kind in kinds] == [True, True, True, False, False, False]


def test_steps_of_swe_agent_are_replies_with_their_results(tmp_path: Path) -> None:
    steps = [
        {"action": "ls\n", "observation": "a.py", "response": "I look.\nls\n", "thought": ""},
        {"action": " ", "observation": "nothing ran", "response": "hm", "thought": "Think."},
    ]
    history = [
        {"role": "system", "content": "Be good."},
        {"role": "assistant", "content": "a demonstration", "is_demo": True},
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "I look."},
        {"role": "user", "content": "not the task"},
    ]
    value = {"info": {}, "trajectory": steps, "history": history}
    (found,) = document(tmp_path, value, "run.traj").recordings
    assert (found.kind, found.session, found.name) == (
        "trajectory",
        "run",
        str(tmp_path / "run.traj"),
    )
    assert found.messages == (
        RecordedMessage("system", "Be good."),
        RecordedMessage("user", "a demonstration"),
        RecordedMessage("user", "Fix it."),
        build_recorded_reply([Text("I look."), ToolCall("step-0", "bash", '{"command": "ls\\n"}')]),
        RecordedMessage("tool", "a.py", answers="step-0"),
        build_recorded_reply([Text("Think.")]),
    )


def test_a_history_with_calls_is_taken_as_it_is(tmp_path: Path) -> None:
    call = {"id": "c1", "function": {"name": "bash", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    ]
    (found,) = document(
        tmp_path, {"info": {}, "trajectory": [{"action": "x"}], "history": history}
    ).recordings
    assert [(one.role, one.text) for one in found.messages] == [("user", "Fix it."), ("assistant", "I look."), ("tool", "a.py")]  # fmt: skip


def test_steps_of_atif_say_who_spoke_when_and_what_it_cost(tmp_path: Path) -> None:
    metrics = {"prompt_tokens": 100, "cached_tokens": 60, "completion_tokens": 20, "cost_usd": 0.25}
    image = {"type": "image", "source": {"media_type": "image/png", "data": "AAAA"}}
    calls = [
        {"function_name": "", "arguments": {"a": 1}},
        {"tool_call_id": "c2", "function_name": "ls"},
    ]
    results = [{"source_call_id": "c2", "content": [{"type": "text", "text": "out"}, image]}]
    steps = [
        {"source": "system", "message": "Be good.", "timestamp": 5},
        {"source": "user", "message": "Fix it.", "timestamp": 6},
        {
            "step_id": 3, "source": "agent", "message": "I look.", "reasoning_content": "hm", "timestamp": 7,
            "tool_calls": calls, "metrics": metrics, "observation": {"results": results},
        },
        {"source": "agent", "message": "Done.", "model_name": "other"},
    ]  # fmt: skip
    value = {"session_id": "s1", "agent": {"model_name": "m"}, "steps": steps}
    (found,) = document(tmp_path, value).recordings
    parts: list[ReplyPart] = [
        Reasoning("hm"),
        Text("I look."),
        ToolCall("step-3-0", "tool", '{"a": 1}'),
        ToolCall("c2", "ls", "{}"),
    ]
    assert found.session == "s1"
    assert found.messages[:3] == (
        RecordedMessage("system", "Be good.", time=5.0),
        RecordedMessage("user", "Fix it.", time=6.0),
        build_recorded_reply(parts, model="m", time=7.0, usage=Usage(100, 60, 0, 20, cost=0.25)),
    )
    assert (found.messages[3].answers, found.messages[3].time, len(found.messages[3].pictures)) == (
        "c2",
        7.0,
        1,
    )
    assert found.messages[4] == build_recorded_reply([Text("Done.")], model="other")


def test_what_stands_behind_a_step_of_nobody_is_left_out_and_told(tmp_path: Path) -> None:
    steps = [
        {"source": "user", "message": "Fix it."},
        {"source": "robot"},
        {"source": "user", "message": "more"},
    ]
    found = document(tmp_path, {"session_id": "s1", "agent": {}, "steps": steps})
    assert [one.text for one in found.recordings[0].messages] == ["Fix it."]
    assert found.complaints[0].endswith(
        "there is no source 'robot'; what stands behind it was left out."
    )


def test_several_trajectories_in_one_file_are_told_apart(tmp_path: Path) -> None:
    steps = [{"source": "user", "message": "Fix it."}]
    values: list[Mapping[str, Any]] = [
        {"session_id": name, "agent": {}, "steps": steps} for name in ("s1", "s2")
    ]
    path = tmp_path / "all.jsonl"
    path.write_text(
        "\n".join(
            json.dumps(value) for value in [*values, {"type": "agent.message", "content": "x"}]
        )
    )
    found = list(history_reading.read_sessions(path, ReadingReport()))
    assert [(one.name, one.session) for one in found] == [(str(path), "s1"), (f"{path}#2", "s2")]


def test_events_of_a_managed_agent_are_replies_results_and_words(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"media_type": "image/png", "data": "AAAA"}}
    events: list[Mapping[str, Any]] = [
        {
            "type": "user.message",
            "content": [{"type": "text", "text": "Fix it."}, image],
            "created_at": 5,
        },
        {"type": "agent.thinking", "content": "hm", "processed_at": 6},
        {
            "type": "agent.mcp_tool_use",
            "id": "t1",
            "name": "ls",
            "input": {"a": 1},
            "processed_at": 7,
        },
        {"type": "span.end"},
        {"type": "agent.custom_tool_use"},
        {
            "type": "agent.mcp_tool_result",
            "mcp_tool_use_id": "t1",
            "content": "out",
            "processed_at": 8,
        },
        {
            "type": "user.custom_tool_result",
            "tool_use_id": "call",
            "content": "bad",
            "is_error": True,
        },
        {"type": "agent.message", "content": "Done.", "processed_at": 9},
        {},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))
    report = ReadingReport()
    (found,) = history_reading.read_sessions(path, report)
    parts: list[ReplyPart] = [
        Reasoning("hm"),
        ToolCall("t1", "ls", '{"a": 1}'),
        ToolCall("call", "tool", "{}"),
    ]
    assert found.messages[0].time == 5.0
    assert [picture.data for picture in found.messages[0].pictures] == [b"\0\0\0"]
    assert found.messages[1:] == (
        build_recorded_reply(parts, time=6.0),
        RecordedMessage("tool", "out", answers="t1", time=8.0),
        RecordedMessage("tool", "bad", answers="call", ok=False),
        build_recorded_reply([Text("Done.")], time=9.0),
    )
    assert report.left_out == {"span.end": 1, "no type": 1}
    assert (found.session, found.name) == ("log", str(path))
