"""Sessions as opencode exports and imports them."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.errors import NotFound, StoreFailed
from helix_desktop.histories import opencode_writer
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)

SAYS = RecordedMessage("user", "look", time=1.0)


def document(*messages: RecordedMessage, **more: Any) -> dict[str, Any]:
    session = RecordedSession("s", messages, folder="/work", **more)
    (found,) = opencode_writer.build_opencode_lines(session, "ses_ABCDEFGHIJ", 1.0)
    return found


def test_ids_grow_with_their_number_and_those_of_sessions_fall_with_time() -> None:
    first, second = (opencode_writer.create_opencode_id("msg", number) for number in (0x0F, 0x10))
    assert (first[:16], second[:16]) == ("msg_00000000000f", "msg_000000000010")
    assert first < second
    assert len(first) == len("msg_") + 12 + 14
    assert first[16:] != second[16:]
    earlier = opencode_writer.create_opencode_id("ses")
    assert opencode_writer.create_opencode_id("ses")[:16] <= earlier[:16]


def test_the_id_of_a_session_counts_down_from_its_time_as_opencodes_own_do() -> None:
    """The program lists sessions by their ids: 48 bits of the milliseconds times 4,096,
    inverted.
    """
    before = time.time()
    moment = int(opencode_writer.create_opencode_id("ses")[4:16], 16)
    ms = ((1 << 48) - 1 - moment) / 0x1000
    whole = round(before * 1000) >> 36 << 36  # The highest bits do not fit.
    assert -2 <= whole + ms - before * 1000 <= (time.time() - before) * 1000 + 2


def test_messages_and_parts_are_numbered_from_the_sessions_beginning_on() -> None:
    made = document(SAYS, RecordedMessage("user", "more", time=1.0))
    ids = [
        name
        for one in made["messages"]
        for name in (one["info"]["id"], *(part["id"] for part in one["parts"]))
    ]
    assert [int(name[4:16], 16) for name in ids] == [1000 * 0x1000 + number for number in range(4)]
    assert made["info"]["time"] == {"created": 1000, "updated": 1000}
    assert (made["info"]["slug"], made["info"]["cost"]) == ("restored-cdefghij", 0)


def test_the_title_is_the_sessions_or_what_the_user_said_first() -> None:
    system = RecordedMessage("system", "Be brief.")
    long = RecordedMessage("user", "w" * 81)
    assert document(system, SAYS, long)["info"]["title"] == "look"
    assert document(long)["info"]["title"] == "w" * 80
    assert document(SAYS, title="Named")["info"]["title"] == "Named"
    assert document()["info"]["title"] == ""


def test_replies_have_the_last_known_model_and_its_provider() -> None:
    """The agent goes on with the model of the user's messages: at api.anthropic.com,
    whatever the user has set up.

    Without one, it takes the user's own default.
    """

    def models(*names: str) -> list[tuple[str, str]]:
        replies = [build_recorded_reply([Text("a")], model=name, time=2.0) for name in names]
        asked, *infos = [one["info"] for one in document(SAYS, *replies)["messages"]]
        assert not {"model", "providerID", "modelID"} & asked.keys()
        return [(one["providerID"], one["modelID"]) for one in infos]

    assert models("gpt-5", "unheard-of") == [("openai", "gpt-5")] * 2
    assert models("unheard-of") == [("anthropic", "claude-sonnet-4-5")]
    assert models("gemini-3") == [("google", "gemini-3")]


def test_parts_calls_and_results() -> None:
    picture = RecordedPicture("image/png", b"\0\0\0", "a.png")
    reply = build_recorded_reply(
        [
            Reasoning("hm"),
            Text("I look"),
            Text("  "),
            *(ToolCall(f"c{n}", "Bash", '{"a": 1}') for n in (1, 2, 3)),
        ],
        time=1.0,
    )
    messages = document(
        RecordedMessage("user", "look", time=1.0, pictures=(picture,)),
        reply,
        RecordedMessage("tool", "out", answers="c1", pictures=(picture,)),
        RecordedMessage("tool", "no", answers="c2", ok=False),
        RecordedMessage("user", "a note", time=0.5, beside=True),
    )["messages"]
    asked, replied, beside = messages
    times = [one["info"]["time"]["created"] for one in messages]
    assert times == [1000, 1001, 1002], "each is later than the one before"
    assert [part["type"] for part in asked["parts"]] == ["text", "file"]
    assert (asked["parts"][1]["filename"], "synthetic" in asked["parts"][0]) == ("a.png", False)
    assert beside["parts"][0]["synthetic"] is True
    assert replied["info"]["parentID"] == asked["info"]["id"]
    assert replied["info"]["finish"] == "tool-calls"
    assert [part["type"] for part in replied["parts"]] == [
        "step-start",
        "text",
        "tool",
        "tool",
        "tool",
    ]
    done, failed, cut = (part["state"] for part in replied["parts"][2:])
    assert (done["status"], done["output"], done["input"], len(done["attachments"])) == (
        "completed",
        "out",
        {"a": 1},
        1,
    )
    assert [(one["status"], one["error"]) for one in (failed, cut)] == [
        ("error", "no"),
        ("error", "Interrupted"),
    ]
    assert {part["messageID"] for part in replied["parts"]} == {replied["info"]["id"]}
    (plain,) = document(build_recorded_reply([Text("done")], time=1.0))["messages"]
    assert plain["info"]["finish"] == "stop"


def test_a_compaction_is_asked_for_and_answered_by_its_summary() -> None:
    messages = document(SAYS, compactions=(RecordedCompaction(1, 1, "short", 2.0),))["messages"]
    _, asked, answer = messages
    assert [part["type"] for part in asked["parts"]] == ["compaction"]
    assert (answer["info"]["summary"], answer["info"]["mode"]) == (True, "compaction")
    assert (answer["info"]["parentID"], answer["parts"][0]["text"]) == (
        asked["info"]["id"],
        "short",
    )


SCHEMA = """
CREATE TABLE project(id TEXT PRIMARY KEY, worktree TEXT NOT NULL, vcs TEXT, name TEXT, time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, sandboxes TEXT NOT NULL);
CREATE TABLE session(id TEXT PRIMARY KEY, project_id TEXT REFERENCES project(id), slug, directory, title, version, time_created, time_updated);
CREATE TABLE message(id TEXT PRIMARY KEY, session_id REFERENCES session(id), time_created, time_updated, data);
CREATE TABLE part(id TEXT PRIMARY KEY, message_id REFERENCES message(id), session_id, time_created, time_updated, data);
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as made, made:
        made.executescript(SCHEMA)
        made.execute("INSERT INTO project VALUES('p1', '/work', 'git', NULL, 5, 6, '[]')")
    return tmp_path / "opencode.db"


def written(database: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as opened:
        return opened.execute(query).fetchall()


@pytest.mark.parametrize(("folder", "project"), [("/work", "p1"), ("/elsewhere", "global")])
def test_a_session_stands_in_opencodes_database_with_all_its_parts(
    database: Path, folder: str, project: str
) -> None:
    reply = build_recorded_reply([Text("I look"), ToolCall("c1", "Bash", "{}")], time=2.0)
    session = RecordedSession(
        "s", (SAYS, reply, RecordedMessage("tool", "out", answers="c1")), folder=folder
    )
    (made,) = opencode_writer.build_opencode_lines(session, "ses_ABCDEFGHIJ", 1.0)
    opencode_writer.insert_opencode_session(database, json.dumps(made).encode())
    info = made["info"]
    _session_and_project_are_as_opencode_makes_them(database, info, folder, project)
    _messages_and_parts_are_rows_of_their_own(database, made)
    _a_second_copy_is_refused_and_another_session_is_not(database, json.dumps(made), project)


def _session_and_project_are_as_opencode_makes_them(
    database: Path, info: dict[str, Any], folder: str, project: str
) -> None:
    ((*row, created, updated),) = written(database, "SELECT * FROM session")
    assert row == [info["id"], project, info["slug"], folder, info["title"], info["version"]]
    assert (created, updated) == (info["time"]["created"], info["time"]["updated"])
    # As opencode makes it outside of repositories. In one, it gives the folder's
    # sessions to the folder's project.
    expected = []
    if project == "global":
        expected = [("global", "/", None, None, created, created, "[]")]
    assert written(database, "SELECT * FROM project WHERE id = 'global'") == expected


def _messages_and_parts_are_rows_of_their_own(database: Path, made: dict[str, Any]) -> None:
    session_id = made["info"]["id"]
    messages = written(
        database,
        "SELECT id, session_id, time_created, time_updated, data FROM message ORDER BY rowid",
    )
    message_data = [json.loads(row[4]) for row in messages]
    assert [data["role"] for data in message_data] == ["user", "assistant"]
    parts = written(
        database, "SELECT id, message_id, session_id, time_created, data FROM part ORDER BY rowid"
    )
    expected_messages = []
    expected_parts = []
    for message in made["messages"]:
        message_id = message["info"]["id"]
        when = message["info"]["time"]["created"]
        expected_messages.append((message_id, session_id, when, when))
        for part in message["parts"]:
            expected_parts.append((part["id"], message_id, session_id))
    assert [row[:4] for row in messages] == expected_messages
    assert [row[:3] for row in parts] == expected_parts
    assert {row[3] for row in parts} == {row[2] for row in messages}
    part_data = [json.loads(row[4]) for row in parts]
    for data in message_data + part_data:
        assert not {"id", "sessionID", "messageID"} & data.keys(), "they have columns of their own"
    assert part_data[-1]["type"] == made["messages"][-1]["parts"][-1]["type"]


def _a_second_copy_is_refused_and_another_session_is_not(
    database: Path, session: str, project: str
) -> None:
    with pytest.raises(StoreFailed, match="did not accept the session") as refused:
        opencode_writer.insert_opencode_session(database, session.encode())
    assert "Nothing was changed" in refused.value.remedy
    assert len(written(database, "SELECT * FROM session")) == 1
    other = (
        session.replace("ses_ABCDEFGHIJ", "ses_other")
        .replace("msg_", "msg_1")
        .replace("prt_", "prt_1")
    )
    opencode_writer.insert_opencode_session(database, other.encode())
    assert {row[1] for row in written(database, "SELECT * FROM session")} == {project}
    projects = {row[0] for row in written(database, "SELECT * FROM project")}
    assert projects == {"p1", project}


def test_a_session_is_in_the_database_whole_or_not_at_all_and_runs_nobodys_triggers(
    database: Path,
) -> None:
    made = document(SAYS)
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("CREATE TRIGGER more AFTER INSERT ON part BEGIN DELETE FROM project; END")
    with pytest.raises(StoreFailed):
        opencode_writer.insert_opencode_session(database, json.dumps(made).encode())
    assert written(database, "SELECT * FROM session") == []
    assert len(written(database, "SELECT * FROM project")) == 1


def test_where_opencode_has_no_database_none_is_made(tmp_path: Path, database: Path) -> None:
    (tmp_path / "text.db").write_text("no database")
    (tmp_path / "link.db").symlink_to(database)
    for name in ("none.db", "text.db", "link.db"):
        with pytest.raises(NotFound, match="opencode has no database at") as refused:
            opencode_writer.insert_opencode_session(tmp_path / name, b"{}")
        assert "--to" not in refused.value.remedy, (
            "another file would be in the format of the agent it came from"
        )
    assert not (tmp_path / "none.db").exists()


def test_messages_that_opencode_wrote_come_back_with_new_ids_and_nothing_else_changed() -> None:
    session = {"id": "ses_1", "directory": "/work", "title": "Named"}
    asked = {"id": "msg_1", "role": "user", "time": {"created": 5}}
    told = {"id": "msg_2", "role": "assistant", "parentID": "msg_1", "time": {"created": 6}}
    thought = {"type": "reasoning", "text": "hm", "metadata": {"anthropic": {"signature": "s"}}}
    parts_of_reply = [thought, {"type": "text", "text": "msg_2 is said"}]
    lines = [
        {"session": session},
        {"info": asked, "parts": [{"type": "text", "text": 'says "msg_1"'}]},
        {"info": told, "parts": parts_of_reply},
    ]
    content = opencode_writer.build_document_of_kept_lines(
        [json.dumps(line).encode() for line in lines], "ses_NEWNEWNEW", "Copy", 1.0
    )
    made = json.loads(content)
    assert made["info"]["directory"] == "/work"
    assert (made["info"]["id"], made["info"]["title"]) == ("ses_NEWNEWNEW", "Copy")
    first, second = made["messages"]
    assert second["info"]["parentID"] == first["info"]["id"] != "msg_1"
    assert {**second["info"], "id": "", "parentID": ""} == {**told, "id": "", "parentID": ""}
    assert first["parts"][0]["text"] == 'says "msg_1"'
    for part in second["parts"]:
        del part["id"]
    assert second["parts"] == parts_of_reply
