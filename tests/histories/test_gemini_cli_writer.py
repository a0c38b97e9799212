"""Sessions as Gemini CLI keeps them, line by line."""

from __future__ import annotations

import json
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.histories import gemini_cli_writer
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)

WORK = "/home/me/My Work!"


def project(folders: Path, name: str, owner: str) -> None:
    (folders / name).mkdir(parents=True)
    (folders / name / gemini_cli_writer.MARKER).write_text(f"{owner}\n")


def test_a_project_is_found_by_the_list_then_by_its_marker(tmp_path: Path) -> None:
    folders = tmp_path / "tmp"
    assert gemini_cli_writer.choose_gemini_project_name(folders, WORK) == "my-work"
    assert gemini_cli_writer.choose_gemini_project_name(folders, "/") == "project"
    project(folders, "my-work", "/elsewhere")
    assert gemini_cli_writer.choose_gemini_project_name(folders, WORK) == "my-work-1"
    (tmp_path / "projects.json").write_text(json.dumps({"projects": {"/third": "my-work-1"}}))
    assert gemini_cli_writer.choose_gemini_project_name(folders, WORK) == "my-work-2"
    project(folders, "marked", WORK)
    assert gemini_cli_writer.choose_gemini_project_name(folders, WORK) == "marked"
    (tmp_path / "projects.json").write_text(json.dumps({"projects": {WORK: "listed"}}))
    assert gemini_cli_writer.choose_gemini_project_name(folders, WORK) == "listed", (
        "though its folder is not there yet"
    )
    (folders / "listed").mkdir()
    assert gemini_cli_writer.choose_gemini_project_name(folders, WORK) == "listed", (
        "though nobody marked it"
    )
    (folders / "listed" / gemini_cli_writer.MARKER).write_text("/elsewhere")
    assert gemini_cli_writer.choose_gemini_project_name(folders, WORK) == "marked"
    (tmp_path / "projects.json").write_text("{")
    assert gemini_cli_writer.choose_gemini_project_name(folders, WORK) == "marked"


def test_the_lines_of_a_session() -> None:
    picture = RecordedPicture("image/png", b"\0\0\0")
    reply = build_recorded_reply(
        [
            Reasoning("hm"),
            Text("I look"),
            ToolCall("c:1", "Bash", '{"command": "ls"}'),
            ToolCall("c2", "Bash", "{}"),
            ToolCall("c3", "Bash", "{}"),
        ],
        model="g",
        time=2.0,
    )
    messages = (
        RecordedMessage("user", "look", time=1.0, pictures=(picture,)),
        reply,
        RecordedMessage("tool", "a.txt", answers="c:1", time=3.0, pictures=(picture,)),
        RecordedMessage("tool", "no such file", answers="c2", ok=False, time=3.0),
        RecordedMessage("user", "/help me", time=4.0),
    )
    head, *lines = gemini_cli_writer.build_gemini_lines(
        RecordedSession("s", messages, folder=WORK), "abc", 1.0
    )
    assert (head["sessionId"], head["kind"], head["startTime"]) == (
        "abc",
        "main",
        "1970-01-01T00:00:01.000Z",
    )
    assert [one["id"] for one in lines] == ["abc-0", "abc-1", "abc-2"]
    data = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    assert lines[0]["content"] == [{"text": "look"}, data]
    assert lines[2]["content"] == [{"text": "[The user:]\n"}, {"text": "/help me"}]
    assert (lines[1]["content"], lines[1]["model"], lines[1]["thoughts"]) == (
        [{"text": "I look"}],
        "g",
        [],
    )
    done, failed, cancelled = lines[1]["toolCalls"]
    assert (done["id"], done["status"], done["args"]) == ("c_1", "success", {"command": "ls"})
    assert done["result"][0]["functionResponse"]["response"] == {"output": "a.txt"}
    assert (done["result"][1:], done["resultDisplay"]) == ([data], "a.txt")
    assert (failed["status"], failed["timestamp"]) == ("error", "1970-01-01T00:00:03.000Z")
    assert failed["result"][0]["functionResponse"]["response"] == {"error": "no such file"}
    assert cancelled["status"] == "cancelled"
    assert "result" not in cancelled
    assert (
        gemini_cli_writer.gemini_file_name("0123456789", 61.0)
        == "session-1970-01-01T00-01-01234567.jsonl"
    )
