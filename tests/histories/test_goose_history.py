"""Sessions of goose: its database, and the older files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall
from helix_desktop.histories import goose_history, history_reading
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)
from tests.histories import written

Message = tuple[str, Sequence[Mapping[str, Any]], Mapping[str, Any]]  # Role, content, metadata.
PICTURE = {"type": "image", "mimeType": "image/png", "data": "AAAA"}


def read(tmp_path: Path, *messages: Message) -> tuple[RecordedSession, tuple[str, ...]]:
    """The older file with these messages, at second 1, 2, 3 and so on."""
    rows: list[Mapping[str, Any]] = [{"working_dir": "/w", "description": "Files"}]
    rows += [
        {"role": role, "created": at, "content": content, "metadata": about}
        for at, (role, content, about) in enumerate(messages, 1)
    ]
    report = ReadingReport()
    (recording,) = history_reading.read_sessions(written.lines(tmp_path / "s1.jsonl", rows), report)
    return recording, tuple(report.complaints)


def said(words: str, role: str = "user", **about: Any) -> Message:
    return role, [written.text(words)], about


def response(value: object, name: str = "c1", **more: Any) -> Message:
    return (
        "user",
        [{"type": "toolResponse", "id": name, "toolResult": {"value": value, **more}}],
        {},
    )


def test_a_file_is_one_session_with_its_folder_and_title(tmp_path: Path) -> None:
    found, complaints = read(tmp_path, said("list the files"), said("Done.", "assistant"))
    assert (found.kind, found.session, found.title, found.folder) == ("goose", "s1", "Files", "/w")
    assert found.name == str(tmp_path / "s1.jsonl")
    assert found.messages == (
        RecordedMessage("user", "list the files", time=1.0),
        build_recorded_reply([Text("Done.")], time=2.0),
    )
    assert complaints == ()


def test_a_reply_keeps_its_parts_in_order(tmp_path: Path) -> None:
    call = {"status": "success", "value": {"name": "shell", "arguments": {"command": "ls"}}}
    content = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "redactedThinking", "data": "sealed"},
        written.text("I look."),
        {"type": "toolRequest", "id": "c1", "toolCall": call},
        {"type": "frontendToolRequest", "toolCall": {"name": "open"}},
        {"type": "toolConfirmationRequest", "id": "c1", "prompt": "May I?"},
        {"type": "toolRequest", "id": "c3", "toolCall": {"status": "error", "error": "no JSON"}},
    ]
    found, complaints = read(
        tmp_path, said("go"), ("assistant", content, {}), ("assistant", [], {})
    )
    parts: list[ReplyPart] = [
        Reasoning("hm"),
        Text("I look."),
        ToolCall("c1", "shell", '{"command": "ls"}'),
        ToolCall("call", "open", "{}"),
        ToolCall("c3", "malformed", "{}"),
    ]
    assert found.messages[1:] == (build_recorded_reply(parts, time=2.0),)
    assert complaints == ()


@pytest.mark.parametrize(
    ("value", "more", "text", "ok"),
    [
        ([written.text("out")], {"status": "success"}, "out", True),
        ("out", {}, "out", True),
        ({"content": [written.text("out")]}, {}, "out", True),
        ({"content": [written.text("out")], "isError": False}, {}, "out", True),
        ({"content": [written.text("bad")], "isError": True}, {}, "bad", False),
        ({"content": "bad", "error": 1}, {}, "bad", False),
        ({"type": "text", "text": "out"}, {}, "out", True),
        ([written.text("bad")], {"status": "error"}, "bad", False),
    ],
)
def test_a_result_says_whether_its_call_failed(
    tmp_path: Path, value: object, more: Mapping[str, Any], text: str, ok: bool
) -> None:
    found, _ = read(tmp_path, response(value, **more))
    assert found.messages == (RecordedMessage("tool", text, answers="c1", ok=ok, time=1.0),)


def test_the_error_of_a_call_that_never_ran_is_its_output(tmp_path: Path) -> None:
    part = {
        "type": "toolResponse",
        "id": "c1",
        "toolResult": {"status": "error", "error": "no such tool"},
    }
    found, _ = read(tmp_path, ("user", [part], {}))
    assert found.messages == (
        RecordedMessage("tool", "no such tool", answers="c1", ok=False, time=1.0),
    )


def test_pictures_of_results_and_of_people_are_kept(tmp_path: Path) -> None:
    picture = RecordedPicture("image/png", b"\0\0\0")
    together: Message = (
        "user",
        [*response([PICTURE])[1], written.text("look"), PICTURE, {"type": "other"}],
        {},
    )
    found, _ = read(tmp_path, together, ("user", [PICTURE], {}), ("user", [written.text(" ")], {}))
    assert found.messages == (
        RecordedMessage("tool", "", answers="c1", time=1.0, pictures=(picture,)),
        RecordedMessage("user", "look", time=1.0, pictures=(picture,)),
        RecordedMessage("user", "", time=2.0, pictures=(picture,)),
    )


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    found, complaints = read(tmp_path, said("go"), response("x", name=""), said("?", "robot"))
    assert [message.text for message in found.messages] == ["go"]
    assert [why.partition(": ")[2] for why in complaints] == [
        "a tool result names no call; the line was left out.",
        "there is no role 'robot'; the line was left out.",
    ]


def test_a_summary_stands_for_what_the_agent_no_longer_sees(tmp_path: Path) -> None:
    found, _ = read(
        tmp_path,
        said("one", agentVisible=False),
        said("two", "assistant", agentVisible=False),
        said("The summary.", userVisible=False),
        said("hidden, and no summary", userVisible=False),
        said("three", agentVisible=True),
    )
    assert [message.text for message in found.messages] == [
        "one",
        "two",
        "hidden, and no summary",
        "three",
    ]
    assert found.compactions == (
        RecordedCompaction(2, 2, "The summary.", 3.0, "goose compacted the conversation here"),
    )


def test_what_was_said_since_is_kept_behind_a_summary(tmp_path: Path) -> None:
    found, _ = read(
        tmp_path,
        said("one", agentVisible=False),
        said("two"),
        said("", userVisible=False),
        ("user", [PICTURE], {"userVisible": False}),
        said("The summary.", userVisible=False),
    )
    assert [(one.at, one.keep) for one in found.compactions] == [(2, 1)]
    assert [message.text for message in found.messages] == ["one", "two"]


def test_the_older_file_is_known_by_its_head_or_its_messages() -> None:
    known = goose_history.is_goose_row
    assert known({"working_dir": "/w"})
    assert [known({"role": role, "created": 1}) for role in ("user", "assistant", "system")] == [
        True,
        True,
        False,
    ]
    assert not known({"role": "user"})
    assert not known({"created": 1})


def database(tmp_path: Path) -> Path:
    path = written.goose(tmp_path)
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("INSERT INTO sessions VALUES('g2', 'More', '/other', '', '')")
        add = "INSERT INTO messages(session_id, role, content_json, created_timestamp, metadata_json) VALUES(?, ?, ?, ?, ?)"
        content = json.dumps([written.text("hello")])
        for row in (
            ("g2", "user", content, 7, None),
            ("g2", "user", "{broken", 8, "{}"),
            ("g2", "user", None, 9, "{}"),
            ("g2", "assistant", content, 10, "broken"),
            ("g2", "user", content, 11, '{"agentVisible": false}'),
            ("g2", "user", json.dumps([written.text("sum")]), 12, '{"userVisible": false}'),
        ):
            made.execute(add, row)
    return path


def test_a_database_holds_several_sessions_and_damage_costs_one_message(tmp_path: Path) -> None:
    path = database(tmp_path)
    imported = history_reading.read_history_file(path)
    first, second = imported.recordings
    assert (first.session, first.title, first.folder, first.name) == (
        "g1",
        "Files",
        "/home/me/project",
        f"{path}#g1",
    )
    assert (second.session, second.title, second.folder, second.name) == (
        "g2",
        "More",
        "/other",
        f"{path}#g2",
    )
    assert [(one.role, one.text, one.time) for one in second.messages] == [
        ("user", "hello", 7.0),
        ("assistant", "hello", 10.0),
        ("user", "hello", 11.0),
    ]
    assert [(one.text, one.at) for one in second.compactions] == [("sum", 3)]
    assert [
        f"{path}, message {number}" in why
        for number, why in zip((8, 10), imported.complaints, strict=True)
    ] == [
        True,
        True,
    ]


def test_what_goose_writes_is_known_in_its_older_files_and_in_its_database(tmp_path: Path) -> None:
    rows: list[Mapping[str, Any]] = [
        {"working_dir": "/w", "description": "Files", "message_count": 2, "total_tokens": 9},
        {
            "role": "user",
            "created": 1,
            "content": [written.text("go")],
            "metadata": {"userVisible": True, "agentVisible": False},
        },
    ]
    report = ReadingReport()
    list(history_reading.read_sessions(written.lines(tmp_path / "s1.jsonl", rows), report))
    assert list(report.sentences_about_unknown()) == []

    path = written.goose(tmp_path)
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("""UPDATE messages SET metadata_json = '{"agentVisibleV2": false}'""")
    list(history_reading.read_sessions(path, report))
    assert report.unknown == {"the field agentVisibleV2": 6}
