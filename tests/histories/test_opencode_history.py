"""Sessions of opencode: its database, and the JSON files of older versions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, Text, ToolCall, Usage
from helix_desktop.histories import history_reading, opencode_history
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)
from tests.histories import written

Part = Mapping[str, Any]
Message = tuple[Mapping[str, Any], Sequence[Part]]
PICTURE = {"type": "file", "url": "data:image/png;base64,AAAA", "filename": "a.png"}
SEEN = RecordedPicture("image/png", b"\0\0\0", "a.png")


def database(tmp_path: Path, *messages: Message) -> Path:
    """A session with these messages, at second 1, 2, 3 and so on."""
    path = written.opencode(tmp_path)
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("DELETE FROM message")
        made.execute("DELETE FROM part")
        for at, (message, parts) in enumerate(messages, 1):
            value = json.dumps({"time": {"created": at}, **message})
            made.execute("INSERT INTO message VALUES(?, 'ses_1', ?, ?)", (f"m{at}", at, value))
            for number, part in enumerate(parts):
                row = (f"p{number}", f"m{at}", json.dumps(part))
                made.execute("INSERT INTO part VALUES(?, ?, 'ses_1', ?)", row)
    return path


def read(tmp_path: Path, *messages: Message) -> history_reading.ImportedSessions:
    report = ReadingReport()
    recordings = tuple(history_reading.read_sessions(database(tmp_path, *messages), report))
    return history_reading.ImportedSessions(recordings, report.complaint_sentences("db"))


def one(tmp_path: Path, *messages: Message) -> RecordedSession:
    (recording,) = read(tmp_path, *messages).recordings
    return recording


def said(*parts: Part) -> Message:
    return {"role": "user"}, parts


def reply(*parts: Part, **more: Any) -> Message:
    return {"role": "assistant", "modelID": "m", **more}, parts


def tool(name: str = "c1", *, call: str = "callID", **state: Any) -> Part:
    return {
        "type": "tool",
        "tool": "bash",
        call: name,
        "state": {"status": "completed", "input": {"a": 1}, **state},
    }


CALLED = ToolCall("c1", "bash", '{"a": 1}')


def test_a_session_has_its_title_folder_and_version(tmp_path: Path) -> None:
    found = one(tmp_path, said(written.text("go")), reply(written.text("Done.")))
    path = tmp_path / "opencode" / "opencode.db"
    assert (found.name, found.kind, found.session) == (f"{path}#ses_1", "opencode", "ses_1")
    assert (found.title, found.folder, found.version, found.parent) == (
        "Files",
        "/home/me/project",
        "1.18",
        "",
    )
    assert found.messages == (
        RecordedMessage("user", "go", time=1.0),
        build_recorded_reply([Text("Done.")], model="m", time=2.0),
    )


def test_a_sub_agents_session_comes_behind_the_one_that_made_it(tmp_path: Path) -> None:
    path = database(tmp_path, said(written.text("go")))
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("INSERT INTO session VALUES('ses_0', 'ses_1', '/w', 'Aid', '1.18', 1, 1)")
    first, second = history_reading.read_sessions(path, ReadingReport())
    assert [(one.session, one.parent) for one in (first, second)] == [
        ("ses_1", ""),
        ("ses_0", "ses_1"),
    ]


def test_what_was_reverted_is_a_branch(tmp_path: Path) -> None:
    path = written.opencode(tmp_path)
    (before,) = history_reading.read_history_file(path).recordings
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("ALTER TABLE session ADD COLUMN revert")
        made.execute("UPDATE session SET revert = ?", (json.dumps({"messageID": "m4"}),))
    stands, branch = history_reading.read_history_file(path).recordings
    assert (stands.session, stands.messages) == ("ses_1", before.messages[:-2])
    assert (branch.session, branch.forked_from, branch.forked_at) == (
        "ses_1#m4",
        "ses_1",
        len(stands.messages),
    )
    assert branch.name == f"{path}#ses_1#m4"
    assert branch.messages == before.messages
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("UPDATE session SET revert = ?", (json.dumps({"messageID": "m1"}),))
    stands, branch = history_reading.read_history_file(path).recordings
    assert (stands.messages, branch.forked_at) == ((), 0)
    assert branch.messages == before.messages


def test_what_a_person_said_is_told_from_what_was_added(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        said(
            written.text("look"),
            PICTURE,
            {"type": "subtask", "prompt": "and aid"},
            {"type": "compaction"},
        ),
        said({**written.text("added"), "synthetic": True}, {**written.text("said")}),
        said({**written.text("added"), "synthetic": True}),
        said({**written.text("ignored"), "ignored": True}, {"type": "novelty"}),
        said({"type": "file", "url": "https://a.example/b.png"}, written.text(" ")),
        said(PICTURE),
    )
    assert found.recordings[0].messages == (
        RecordedMessage("user", "look\nand aid", time=1.0, pictures=(SEEN,)),
        RecordedMessage("user", "added\nsaid", time=2.0),
        RecordedMessage("user", "added", time=3.0, beside=True),
        RecordedMessage("user", "", time=6.0, pictures=(SEEN,)),
    )
    assert found.complaints[0].endswith(": part novelty (1).")


def test_a_reply_says_its_parts_its_model_and_what_it_cost(tmp_path: Path) -> None:
    tokens = {"input": 10, "output": 20, "reasoning": 5, "cache": {"read": 60, "write": 30}}
    parts = [
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm"},
        written.text("I look."),
        {**written.text("unseen"), "ignored": True},
        tool(output="out", time={"end": 9_000_000_000_000}),
        {"type": "step-finish"},
    ]
    found = read(tmp_path, reply(*parts, {"type": "patch"}, tokens=tokens, cost=0.25))
    assert found.recordings[0].messages == (
        build_recorded_reply(
            [Reasoning("hm"), Text("I look."), CALLED],
            model="m",
            time=1.0,
            usage=Usage(100, 60, 30, 25, 5, 0.25),
        ),
        RecordedMessage("tool", "out", answers="c1", time=9e9),
    )
    assert found.complaints[0].endswith(": part patch (1).")


@pytest.mark.parametrize(
    "goes_on", [{"type": "step-start"}, written.text("More."), {"type": "reasoning", "text": "so"}]
)
def test_a_step_that_goes_on_after_results_is_a_reply_of_its_own(
    tmp_path: Path, goes_on: Part
) -> None:
    parts = [tool("c1", output="one"), tool("c2", output="two"), goes_on, written.text("Done.")]
    found = one(tmp_path, reply(*parts, tokens={"input": 7}))
    assert [message.role for message in found.messages] == [
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert [len(message.calls) for message in found.messages] == [2, 0, 0, 0]
    assert [message.usage.input for message in found.messages] == [0, 0, 0, 7]
    assert found.messages[3].text.endswith("Done.")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"output": "out"}, RecordedMessage("tool", "out", answers="c1", time=1.0)),
        ({"status": "error", "error": "bad"}, RecordedMessage("tool", "bad", answers="c1", ok=False, time=1.0)),
        (
            {"output": "out", "time": {"compacted": 5}},
            RecordedMessage("tool", "out", answers="c1", time=1.0, shown="[Old tool result content cleared]"),
        ),
        (
            {"output": "out", "attachments": [PICTURE, {"url": "x"}], "metadata": {"sessionId": "ses_2"}},
            RecordedMessage("tool", "out", answers="c1", time=1.0, pictures=(SEEN,), child="ses_2"),
        ),
        ({"output": "out", "metadata": {"sessionID": "s"}}, RecordedMessage("tool", "out", answers="c1", time=1.0, child="s")),
        ({"status": "running"}, None),
    ],
)  # fmt: skip
def test_what_came_of_a_call(
    tmp_path: Path, state: Mapping[str, Any], message: RecordedMessage | None
) -> None:
    found = one(tmp_path, reply(tool(**state)))
    assert found.messages == (
        build_recorded_reply([CALLED], model="m", time=1.0),
        *([message] if message else []),
    )


def test_a_call_without_its_id_or_name_is_still_paired(tmp_path: Path) -> None:
    nameless = {"type": "tool", "state": {"status": "completed", "output": "out"}}
    found = one(tmp_path, reply(tool("c2", call="id", output="one")), reply(nameless))
    assert [call.id for message in found.messages for call in message.calls] == ["c2", "call"]
    assert [message.answers for message in found.messages if message.role == "tool"] == [
        "c2",
        "call",
    ]
    assert found.messages[2].calls[0].name == "tool"


def test_a_request_that_failed_is_noted_and_half_a_reply_is_a_reply(tmp_path: Path) -> None:
    failed = {"name": "APIError", "data": {"message": "overloaded"}}
    found = one(
        tmp_path,
        reply(error=failed),
        reply(error={"name": "Aborted"}),
        reply(error={"other": 1}),
        reply(written.text("Half"), error=failed),
        reply({"type": "reasoning", "text": "hm"}, error=failed),
        reply(),
    )
    assert [(message.role, message.text, message.time) for message in found.messages] == [
        ("failure", "overloaded", 1.0),
        ("failure", "Aborted", 2.0),
        ("failure", "error", 3.0),
        ("assistant", "Half", 4.0),
        ("failure", "overloaded", 4.0),
        ("failure", "overloaded", 5.0),
    ]


def test_a_summary_stands_for_what_came_before(tmp_path: Path) -> None:
    summary = reply(
        {"type": "step-start"}, written.text("The"), written.text("summary."), summary=True
    )
    found = one(
        tmp_path,
        summary,
        said(written.text("one")),
        summary,
        reply(written.text(" "), summary=True),
    )
    why = "opencode compacted the conversation here"
    assert found.compactions == (RecordedCompaction(1, 1, "The\nsummary.", 3.0, why),)
    assert [message.text for message in found.messages] == ["one"]


def test_damage_in_the_database_costs_what_is_damaged(tmp_path: Path) -> None:
    path = database(
        tmp_path, said(written.text("one")), said(written.text("two")), ({"role": "robot"}, [])
    )
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("INSERT INTO part VALUES('p9', 'm1', 'ses_1', '{broken')")
        made.execute("INSERT INTO message VALUES('m9', 'ses_1', 9, '{broken')")
        made.execute(
            "INSERT INTO message VALUES('m8', 'ses_1', 8, ?)", (json.dumps({"role": "user"}),)
        )
    report = ReadingReport()
    (found,) = history_reading.read_sessions(path, report)
    assert [message.text for message in found.messages] == ["one", "two"]
    assert sorted(f"{path}, part p9" in why for why in report.complaints) == [False, True]
    assert sorted(f"{path}, message m9" in why for why in report.complaints) == [False, True]
    assert report.left_out == {"message robot": 1}
    assert [line for line in report.unread if b"broken" in line] == [b"{broken"] * 2


def storage(tmp_path: Path) -> Path:
    """The older files: two messages whose names are not in the order of their times."""
    files: Mapping[str, object] = {
        "session/p1/ses_1.json": {
            "id": "ses_1",
            "title": "Files",
            "directory": "/w",
            "parentID": "ses_0",
        },
        "message/ses_1/m1.json": {"id": "m1", "role": "assistant", "time": {"created": 2_000}},
        "message/ses_1/m2.json": {"id": "m2", "role": "user", "time": {"created": 1_000}},
        "message/ses_1/m3.json": ["no message"],
        "part/m1/p1.json": written.text("two"),
        "part/m1/p2.json": {"type": "reasoning", "text": "hm"},
        "part/m2/p1.json": written.text("one"),
        "part/m2/p2.json": 5,
    }
    for name, value in files.items():
        file = tmp_path / "storage" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))
    return tmp_path / "storage" / "session" / "p1" / "ses_1.json"


def test_the_older_files_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    path = storage(tmp_path)
    report = ReadingReport()
    (found,) = history_reading.read_sessions(path, report)
    assert [(message.role, message.text) for message in found.messages] == [
        ("user", "one"),
        ("assistant", "two"),
    ]
    assert (found.title, found.folder, found.parent) == ("Files", "/w", "ses_0")
    below = tmp_path / "storage"
    assert report.complaints == [
        f"{below / name}: this is not a JSON object; the line was left out."
        for name in ("part/m2/p2.json", "message/ses_1/m3.json")
    ]
    path.write_text("[]")
    assert list(opencode_history.read_opencode_file(path, report)) == []


def test_which_file_is_a_session_of_older_versions() -> None:
    known = opencode_history.is_opencode_file
    assert known(Path("/s/session/p1/ses_1.json"))
    assert not known(Path("/s/session/p1/ses_1.txt"))
    assert not known(Path("/s/session/p1/msg_1.json"))
    assert not known(Path("/s/message/p1/ses_1.json"))


def test_the_newest_turns_that_a_summary_keeps_stay_behind_it(tmp_path: Path) -> None:
    """They are sent word for word by opencode. They were taken for a part of what was summarised."""
    found = one(
        tmp_path,
        said(written.text("one")),
        reply(written.text("done")),
        said(written.text("two")),
        said({"type": "compaction", "auto": True, "tail_start_id": "m3"}),
        reply(written.text("Sum."), summary=True, parentID="m4"),
        said(written.text("three")),
    )
    assert [message.text for message in found.messages] == ["one", "done", "two", "three"]
    assert [(each.at, each.keep, each.text) for each in found.compactions] == [(3, 2, "Sum.")]
