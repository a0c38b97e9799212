"""What harnesses write."""

from __future__ import annotations

import json
from pathlib import Path

from helix_desktop.histories import history_reading


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
    path.write_text(json.dumps({"environment": "e", "trajectory": steps, "history": history, "info": {}}))
    assert roles(path) == ["system", "user", "assistant", "tool", "assistant", "tool"]


def test_atif(tmp_path: Path) -> None:
    steps = [
        {"step_id": 1, "source": "user", "message": "Fix it."},
        {
            "step_id": 2,
            "source": "agent",
            "message": "I look.",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "ls"}}],
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
        {"type": "agent.tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a.py"}]},
        {"type": "session.status_idle"},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))
    assert roles(path) == ["user", "assistant", "tool"]
    assert "session.status_idle (1)" in history_reading.read_history_file(path).complaints[0]


def test_role_lines_with_tool_use_blocks_have_their_calls(tmp_path: Path) -> None:
    lines = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "text"}]},
        {"role": "assistant", "content": "done"},
    ]
    path = tmp_path / "roles.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert roles(path) == ["user", "assistant", "tool", "assistant"]


def test_results_of_atif_without_a_call_answer_the_first_that_waits(tmp_path: Path) -> None:
    calls = [{"tool_call_id": name, "function_name": "bash", "arguments": "{}"} for name in ("c1", "c2", "c3")]
    results = [
        {"source_call_id": "c2", "content": "second"},
        {"content": "first"},
        {"source_call_id": "c2", "content": "second again"},
        {"content": "third"},
        {"content": "nobody asked"},
    ]
    steps = [
        {"step_id": 1, "source": "agent", "message": "a", "tool_calls": calls, "observation": {"results": results}}
    ]
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps({"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {}, "steps": steps}))
    (recording,) = history_reading.read_history_file(path).recordings
    assert [(one.role, one.answers, one.text) for one in recording.messages[1:]] == [
        ("tool", "c2", "second"),
        ("tool", "c1", "first"),
        ("user", "", "second again"),
        ("tool", "c3", "third"),
        ("user", "", "nobody asked"),
    ]
