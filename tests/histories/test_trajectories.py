"""What harnesses write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories import history_reading, trajectories
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedSession,
    build_recorded_reply,
)

PICTURE = {"type": "image", "source": {"media_type": "image/png", "data": "AAAA"}}
LISTING_CALL = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "ls"}}


Events = list[Mapping[str, Any]]


def words(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    texts = [json.dumps(line) for line in lines]
    path.write_text("\n".join(texts))
    return path


def read_with_report(path: Path) -> tuple[list[RecordedSession], ReadingReport]:
    report = ReadingReport()
    sessions = list(history_reading.read_sessions(path, report))
    return sessions, report


def read_one(path: Path) -> RecordedSession:
    (session,), _report = read_with_report(path)
    return session


def roles(session: RecordedSession) -> list[str]:
    return [message.role for message in session.messages]


# --- Which of them a file is


@pytest.mark.parametrize("field", ["history", "environment", "info"])
def test_a_trajectory_with_one_of_its_other_fields_is_of_swe_agent(field: str) -> None:
    assert trajectories.is_swe_agent_trajectory({"trajectory": [], field: 1})


def test_a_trajectory_alone_or_one_that_is_no_list_is_not_of_swe_agent() -> None:
    assert not trajectories.is_swe_agent_trajectory({"trajectory": [], "other": 1})
    assert not trajectories.is_swe_agent_trajectory({"trajectory": {}, "info": 1})


@pytest.mark.parametrize("field", ["schema_version", "session_id"])
def test_steps_of_an_agent_with_a_version_or_a_session_are_atif(field: str) -> None:
    assert trajectories.is_atif_trajectory({"steps": [], "agent": {}, field: 1})


def test_steps_without_an_agent_or_that_are_no_list_are_not_atif() -> None:
    assert not trajectories.is_atif_trajectory({"steps": [], "agent": {}, "other": 1})
    assert not trajectories.is_atif_trajectory({"steps": [], "session_id": 1})
    assert not trajectories.is_atif_trajectory({"steps": {}, "session_id": 1, "agent": {}})


@pytest.mark.parametrize("kind", ["agent.message", "session.idle", "span.end"])
def test_an_event_of_a_managed_agent_is_known_by_its_type(kind: str) -> None:
    assert trajectories.is_managed_agent_log({"type": kind})


@pytest.mark.parametrize("kind", ["agent", "user.message", 5])
def test_an_event_that_others_write_too_is_not_taken_for_one(kind: object) -> None:
    assert not trajectories.is_managed_agent_log({"type": kind})


# --- SWE-agent


def write_run(path: Path, steps: Sequence[Any], history: Sequence[Any]) -> Path:
    run = {"info": {}, "environment": "e", "trajectory": steps, "history": history}
    path.write_text(json.dumps(run))
    return path


SAID_BEFORE = [
    {"role": "system", "content": "Be good."},
    {"role": "assistant", "content": "a demonstration", "is_demo": True},
    {"role": "user", "content": "Fix it."},
    {"role": "assistant", "content": "I look."},
    {"role": "user", "content": "not the task"},
]


def test_a_run_of_swe_agent_is_named_by_its_file(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.traj", [], SAID_BEFORE)
    session = read_one(path)
    assert session.kind == "trajectory"
    assert session.session == "run"
    assert session.name == str(path)


def test_the_task_and_demonstrations_stand_before_the_steps_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    path = write_run(tmp_path / "run.traj", [], SAID_BEFORE)
    assert read_one(path).messages == (
        RecordedMessage("system", "Be good."),
        RecordedMessage("user", "a demonstration"),
        RecordedMessage("user", "Fix it."),
    )


def test_a_step_of_swe_agent_is_a_reply_with_its_action_as_a_call(tmp_path: Path) -> None:
    step = {"action": "ls\n", "observation": "a.py", "response": "I look.\nls\n", "thought": ""}
    path = write_run(tmp_path / "run.traj", [step], SAID_BEFORE)
    call = ToolCall("step-0", "bash", '{"command": "ls\\n"}')
    assert read_one(path).messages[3:] == (
        build_recorded_reply([Text("I look."), call]),
        RecordedMessage("tool", "a.py", answers="step-0"),
    )


def test_a_step_of_swe_agent_without_an_action_is_only_what_it_thought(tmp_path: Path) -> None:
    step = {"action": " ", "observation": "nothing ran", "response": "hm", "thought": "Think."}
    path = write_run(tmp_path / "run.traj", [step], SAID_BEFORE)
    assert read_one(path).messages[3:] == (build_recorded_reply([Text("Think.")]),)


def test_an_action_without_any_output_has_a_result_all_the_same(tmp_path: Path) -> None:
    submit = {"action": "submit", "observation": "", "response": "Done.", "thought": "Done."}
    path = write_run(tmp_path / "run.traj", [submit], [])
    assert roles(read_one(path)) == ["assistant", "tool"]


def test_a_history_with_calls_is_taken_as_it_is(tmp_path: Path) -> None:
    call = {"id": "c1", "function": {"name": "bash", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    ]
    session = read_one(write_run(tmp_path / "run.traj", [{"action": "x"}], history))
    assert roles(session) == ["user", "assistant", "tool"]
    assert [message.text for message in session.messages] == ["Fix it.", "I look.", "a.py"]


# --- ATIF


def write_atif(path: Path, steps: Sequence[Any]) -> Path:
    agent = {"name": "a", "model_name": "m"}
    run = {"schema_version": "ATIF-v1.4", "session_id": "s1", "agent": agent, "steps": steps}
    path.write_text(json.dumps(run))
    return path


def test_steps_of_atif_say_who_spoke_and_when(tmp_path: Path) -> None:
    steps = [
        {"source": "system", "message": "Be good.", "timestamp": 5},
        {"source": "user", "message": "Fix it.", "timestamp": 6},
        {"source": "agent", "message": "Done.", "timestamp": 7},
    ]
    session = read_one(write_atif(tmp_path / "one.json", steps))
    assert session.session == "s1"
    assert session.messages == (
        RecordedMessage("system", "Be good.", time=5.0),
        RecordedMessage("user", "Fix it.", time=6.0),
        build_recorded_reply([Text("Done.")], model="m", time=7.0),
    )


def test_a_step_of_atif_has_its_thoughts_its_words_and_its_calls(tmp_path: Path) -> None:
    step = {
        "step_id": 3,
        "source": "agent",
        "message": "I look.",
        "reasoning_content": "hm",
        "tool_calls": [
            {"function_name": "", "arguments": {"a": 1}},
            {"tool_call_id": "c2", "function_name": "ls"},
        ],
    }
    (reply,) = read_one(write_atif(tmp_path / "one.json", [step])).messages
    without_id = ToolCall("step-3-0", "tool", '{"a": 1}')
    without_arguments = ToolCall("c2", "ls", "{}")
    parts: list[ReplyPart] = [Reasoning("hm"), Text("I look."), without_id, without_arguments]
    assert reply == build_recorded_reply(parts, model="m")


def test_a_step_of_atif_says_what_it_cost(tmp_path: Path) -> None:
    metrics = {"prompt_tokens": 100, "cached_tokens": 60, "completion_tokens": 20, "cost_usd": 0.25}
    step = {"source": "agent", "message": "I look.", "metrics": metrics}
    (reply,) = read_one(write_atif(tmp_path / "one.json", [step])).messages
    usage = Usage(100, 60, 0, 20, cost=0.25)
    assert reply == build_recorded_reply([Text("I look.")], model="m", usage=usage)


def test_a_step_of_atif_may_be_of_another_model(tmp_path: Path) -> None:
    step = {"source": "agent", "message": "Done.", "model_name": "other"}
    (reply,) = read_one(write_atif(tmp_path / "one.json", [step])).messages
    assert reply == build_recorded_reply([Text("Done.")], model="other")


def test_a_result_of_atif_has_the_time_and_the_pictures_of_its_step(tmp_path: Path) -> None:
    result = {"source_call_id": "c1", "content": [words("out"), PICTURE]}
    step = {
        "source": "agent",
        "message": "I look.",
        "timestamp": 7,
        "tool_calls": [LISTING_CALL],
        "observation": {"results": [result]},
    }
    _reply, answer = read_one(write_atif(tmp_path / "one.json", [step])).messages
    assert answer.role == "tool"
    assert answer.answers == "c1"
    assert answer.time == 7.0
    assert len(answer.pictures) == 1


def test_results_of_atif_without_a_call_answer_the_first_that_waits(tmp_path: Path) -> None:
    calls = []
    for name in ("c1", "c2", "c3"):
        calls.append({"tool_call_id": name, "function_name": "bash", "arguments": "{}"})
    results = [
        {"source_call_id": "c2", "content": "second"},
        {"content": "first"},
        {"source_call_id": "c2", "content": "second again"},
        {"content": "third"},
        {"content": "nobody asked"},
    ]
    observation = {"results": results}
    step = {"source": "agent", "message": "a", "tool_calls": calls, "observation": observation}
    session = read_one(write_atif(tmp_path / "one.json", [step]))
    answers = [(message.role, message.answers, message.text) for message in session.messages[1:]]
    assert answers == [
        ("tool", "c2", "second"),
        ("tool", "c1", "first"),
        ("user", "", "second again"),
        ("tool", "c3", "third"),
        ("user", "", "nobody asked"),
    ]


def test_what_stands_behind_a_step_of_nobody_is_left_out_and_told(tmp_path: Path) -> None:
    steps = [
        {"source": "user", "message": "Fix it."},
        {"source": "robot"},
        {"source": "user", "message": "more"},
    ]
    path = write_atif(tmp_path / "one.json", steps)
    (session,), report = read_with_report(path)
    assert [message.text for message in session.messages] == ["Fix it."]
    (complaint,) = report.complaint_sentences("one.json")
    assert complaint.endswith("there is no source 'robot'; what stands behind it was left out.")


def test_several_trajectories_in_one_file_are_told_apart(tmp_path: Path) -> None:
    runs: list[Mapping[str, Any]] = []
    for name in ("s1", "s2"):
        steps = [{"source": "user", "message": "Fix it."}]
        runs.append({"session_id": name, "agent": {}, "steps": steps})
    other = {"type": "agent.message", "content": "x"}
    path = write_lines(tmp_path / "all.jsonl", [*runs, other])
    sessions, _report = read_with_report(path)
    assert [session.name for session in sessions] == [str(path), f"{path}#2"]
    assert [session.session for session in sessions] == ["s1", "s2"]


# --- Events of a managed agent


def test_words_of_the_user_have_their_time_and_their_pictures(tmp_path: Path) -> None:
    said = {"type": "user.message", "content": [words("Fix it."), PICTURE], "created_at": 5}
    answered = {"type": "agent.message", "content": "Done.", "processed_at": 9}
    session = read_one(write_lines(tmp_path / "log.jsonl", [said, answered]))
    first, reply = session.messages
    assert first.text == "Fix it.\n[image]"
    assert first.time == 5.0
    assert [picture.data for picture in first.pictures] == [b"\0\0\0"]
    assert reply == build_recorded_reply([Text("Done.")], time=9.0)


def test_a_log_of_a_managed_agent_is_named_by_its_file(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", [{"type": "agent.message", "content": "Done."}])
    session = read_one(path)
    assert session.session == "log"
    assert session.name == str(path)


def test_what_is_thought_and_called_before_a_result_is_one_reply(tmp_path: Path) -> None:
    call = {"type": "agent.mcp_tool_use", "id": "t1", "name": "ls", "input": {"a": 1}}
    events: Events = [
        {"type": "agent.thinking", "content": "hm", "processed_at": 6},
        {**call, "processed_at": 7},
        {"type": "agent.custom_tool_use"},
        {"type": "agent.mcp_tool_result", "mcp_tool_use_id": "t1", "content": "out", "processed_at": 8},
        {"type": "agent.message", "content": "Done."},
    ]  # fmt: skip
    session = read_one(write_lines(tmp_path / "log.jsonl", events))
    of_server = ToolCall("t1", "ls", '{"a": 1}')
    without_name = ToolCall("call", "tool", "{}")
    assert session.messages == (
        build_recorded_reply([Reasoning("hm"), of_server, without_name], time=6.0),
        RecordedMessage("tool", "out", answers="t1", time=8.0),
        build_recorded_reply([Text("Done.")]),
    )


def test_a_result_that_is_an_error_is_not_ok(tmp_path: Path) -> None:
    failed = {"type": "user.custom_tool_result", "tool_use_id": "t1", "is_error": True}
    events: Events = [
        {"type": "agent.tool_use", "id": "t1", "name": "bash", "input": {}},
        {**failed, "content": "bad"},
    ]
    session = read_one(write_lines(tmp_path / "log.jsonl", events))
    assert session.messages[1] == RecordedMessage("tool", "bad", answers="t1", ok=False)


def test_events_that_say_nothing_are_left_out_and_counted(tmp_path: Path) -> None:
    events: Events = [{"type": "agent.message", "content": "x"}, {"type": "span.end"}, {}]
    path = write_lines(tmp_path / "log.jsonl", events)
    _sessions, report = read_with_report(path)
    assert report.left_out == {"span.end": 1, "no type": 1}
    complaint = history_reading.read_history_file(path).complaints[0]
    assert "span.end (1)" in complaint


# --- Lines that have only roles


def test_role_lines_with_tool_use_blocks_have_their_calls(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}
    lines: Events = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "done"},
    ]
    session = read_one(write_lines(tmp_path / "roles.jsonl", lines))
    assert roles(session) == ["user", "assistant", "tool", "assistant"]
