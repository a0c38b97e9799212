"""Sessions of OpenCode 2, as its public source writes them. No real database could be had."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.errors import StoreFailed
from helix_desktop.histories import history_finding, history_reading, opencode_writer
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)
from tests.histories import written

Row = tuple[str, Mapping[str, Any]]
FOLDER = "/home/me/project"


def database(
    path: Path, sessions: Mapping[str, Sequence[Row]], *, table: str = "session_v2", **about: Any
) -> Path:
    """A database with these sessions. `about`: more columns of the last session."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = "id, parent_id, fork_session_id, directory, title, version, revert, time_created, time_updated"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute(f"CREATE TABLE IF NOT EXISTS {table}({columns})")
        made.execute("CREATE TABLE session_message(id, session_id, type, seq, time_created, data)")
        for number, (name, rows) in enumerate(sessions.items(), 1):
            known = about if number == len(sessions) else {}
            made.execute(
                f"INSERT INTO {table} VALUES(?, ?, ?, ?, 'Files', '2.2.0', ?, ?, ?)",
                (name, known.get("parent_id"), known.get("fork"), FOLDER, known.get("revert"), number * 1_000_000, 9_000_000),
            )  # fmt: skip
            for seq, (kind, data) in enumerate(rows):
                value = json.dumps({"time": {"created": (seq + 1) * 1_000_000_000_00}, **data})
                row = (f"msg_{name}_{seq}", name, kind, seq, seq, value)
                made.execute("INSERT INTO session_message VALUES(?, ?, ?, ?, ?, ?)", row)
    return path


def user(text: str, **more: Any) -> Row:
    return "user", {"text": text, **more}


def reply(*content: Mapping[str, Any], **more: Any) -> Row:
    return "assistant", {"agent": "build", "model": {"id": "m", "providerID": "p"}, "content": content, **more}  # fmt: skip


def tool(name: str, **state: Any) -> dict[str, Any]:
    return {"type": "tool", "id": name, "name": "bash", "state": {"input": {"command": "ls"}, **state}}  # fmt: skip


def done(name: str, *content: Mapping[str, Any]) -> dict[str, Any]:
    return tool(name, status="completed", content=content, structured={})


def read(path: Path) -> tuple[list[RecordedSession], ReadingReport]:
    report = ReadingReport()
    return list(history_reading.read_sessions(path, report)), report


def one(tmp_path: Path, *rows: Row) -> tuple[RecordedSession, ReadingReport]:
    ((session,), report) = read(database(tmp_path / "opencode.db", {"ses_1": rows}))
    return session, report


def test_a_session_with_a_call_its_result_and_its_bill(tmp_path: Path) -> None:
    tokens = {"input": 10, "output": 20, "reasoning": 5, "cache": {"read": 60, "write": 30}}
    session, report = one(
        tmp_path,
        user("list the files"),
        reply(
            {"type": "reasoning", "id": "r", "text": "hm"},
            {"type": "text", "id": "t", "text": "I look."},
            done("c1", {"type": "text", "text": "a.txt"}, {"type": "text", "text": "b.txt"}),
            tokens=tokens,
            cost=0.25,
        ),
        reply({"type": "text", "text": "Two."}, error={"type": "unknown", "message": "cut"}),
    )
    assert (session.kind, session.session, session.title, session.folder, session.version) == (
        "opencode", "ses_1", "Files", FOLDER, "2.2.0",
    )  # fmt: skip
    call = ToolCall("c1", "bash", '{"command": "ls"}')
    usage = Usage(100, 60, 30, 25, 5, 0.25)
    parts: list[ReplyPart] = [Reasoning("hm"), Text("I look."), call]
    times = [1e8, 2e8, 3e8]
    assert session.messages == (
        RecordedMessage("user", "list the files", time=times[0]),
        build_recorded_reply(parts, model="m", time=times[1], usage=usage),
        RecordedMessage("tool", "a.txt\nb.txt", answers="c1", time=times[1]),
        build_recorded_reply([Text("Two.")], model="m", time=times[2]),
        RecordedMessage("failure", "cut", time=times[2]),
    )
    assert (report.complaints, report.left_out, [*report.sentences_about_unknown()]) == ([], {}, [])


def test_what_stands_beside_the_users_words(tmp_path: Path) -> None:
    picture = {"mime": "image/png", "data": base64.b64encode(b"PNG").decode(), "name": "a.png"}
    notes = {"mime": "text/plain", "data": base64.b64encode(b"note").decode(), "name": "n.txt"}
    lost = {"mime": "image/png", "uri": "file:///gone.png"}
    session, report = one(
        tmp_path,
        user("look", files=[picture, notes, lost], skills=[{"text": "a skill"}]),
        ("synthetic", {"text": "added"}),
        ("system", {"text": "be brief"}),
        ("shell", {"command": "ls", "output": {"output": "a.txt"}}),
        ("shell", {"command": "pwd", "output": "/w"}),
        ("location-switched", {"location": {"directory": "/other"}}),
        ("agent-switched", {"agent": "plan"}),
    )
    assert [(message.role, message.beside) for message in session.messages] == [
        ("user", False), ("user", True), ("system", True), ("user", True), ("user", True), ("user", True),
    ]  # fmt: skip
    texts = [message.text for message in session.messages]
    assert texts[0] == "a skill\n\nlook\n\nAttached file: n.txt\n\nnote"
    assert session.messages[0].pictures == (RecordedPicture("image/png", b"PNG", "a.png"),)
    assert texts[3:] == [
        "Ran `ls`\n```\na.txt\n```", "Ran `pwd`\n```\n/w\n```",
        "The working directory has been changed to /other.",
    ]  # fmt: skip
    assert report.left_out == {"message agent-switched": 1, "file of a message": 1}


def test_calls_that_run_fail_or_show_a_picture(tmp_path: Path) -> None:
    shown = {"type": "file", "mime": "image/png", "data": base64.b64encode(b"PNG").decode()}
    session, _ = one(
        tmp_path,
        reply(
            tool("c1", status="running"),
            tool("c2", status="error", error={"message": "no such file"}, content=[]),
            done("c3", shown),
            done("c4"),
        ),
    )
    results = session.messages[1:]
    assert [(one.answers, one.text, one.ok, len(one.pictures)) for one in results] == [
        ("c2", "no such file", False, 0), ("c3", "", True, 1), ("c4", "", True, 0),
    ]  # fmt: skip


def test_a_compaction_is_its_summary_and_the_newest_messages(tmp_path: Path) -> None:
    session, report = one(
        tmp_path,
        user("go"),
        reply({"type": "text", "text": "Done."}),
        ("compaction", {"status": "failed", "summary": "Half"}),
        ("compaction", {"summary": "Sum.", "recent": "[User]: go", "reason": "auto"}),
        ("compaction", {"status": "completed", "providerContext": {}}),
        user("more"),
    )
    assert [(one.at, one.keep, one.text) for one in session.compactions] == [
        (2, 2, "Sum.\n\n[User]: go")
    ]
    assert report.left_out == {"compaction open": 1, "compaction sealed": 1}


def test_what_was_reverted_is_a_branch(tmp_path: Path) -> None:
    rows = [user("one"), reply({"type": "text", "text": "two"}), user("three")]
    revert = json.dumps({"messageID": "msg_ses_1_2"})
    path = database(tmp_path / "opencode.db", {"ses_1": rows}, revert=revert)
    (stays, branch), _ = read(path)
    assert [one.text for one in stays.messages] == ["one", "two"]
    assert [one.text for one in branch.messages] == ["one", "two", "three"]
    assert (branch.session, branch.forked_from, branch.forked_at) == (
        "ses_1#msg_ses_1_2", "ses_1", 2,
    )  # fmt: skip


def test_a_fork_shares_what_it_has_in_common_with_its_source(tmp_path: Path) -> None:
    first = [user("one"), reply({"type": "text", "text": "two"}), user("three")]
    second = [*first[:2], user("other")]
    path = database(tmp_path / "opencode.db", {"ses_1": first, "ses_2": second}, fork="ses_1")
    (_, fork), _ = read(path)
    assert (fork.forked_from, fork.forked_at) == ("ses_1", 2)
    path = database(tmp_path / "b.db", {"ses_1": first, "ses_2": second}, parent_id="ses_1")
    (_, child), _ = read(path)
    assert (child.parent, child.forked_from) == ("ses_1", "")


@pytest.mark.parametrize("table", ["session_v2", "session"])
def test_sessions_that_version_2_took_over_are_read_once(tmp_path: Path, table: str) -> None:
    """Both versions keep their tables in one database, and a session that was taken over is in
    both. Early versions of 2 kept theirs in the table of version 1.
    """
    share = tmp_path / ".local" / "share"
    path = written.opencode(share)
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("ALTER TABLE session RENAME TO old")
        made.execute(
            "CREATE TABLE session(id, parent_id, fork_session_id, directory, title, version, revert, time_created, time_updated)"
        )
        made.execute(
            "INSERT INTO session SELECT id, parent_id, NULL, directory, title, version, NULL, time_created, time_updated FROM old"
        )
        made.execute("DROP TABLE old")
        made.execute("DELETE FROM session WHERE ?", (table == "session",))
    rows = [user("taken over"), reply({"type": "text", "text": "yes"})]
    database(path, {"ses_1": rows, "ses_2": [user("new"), rows[1]]}, table=table)
    sessions, report = read(path)
    assert [(one.session, one.messages[0].text) for one in sessions] == [
        ("ses_1", "taken over"), ("ses_2", "new"),
    ]  # fmt: skip
    assert report.complaints == []
    (found,) = history_finding.find_histories(HistoryPlaces(tmp_path, {}))
    assert (found.path, found.folder, found.conversations) == (path, FOLDER, 2)


def test_databases_of_each_channel_and_the_named_one_are_found(tmp_path: Path) -> None:
    """With only the tables of version 2, "No conversations from other programs were found"."""
    rows = [user("one"), reply({"type": "text", "text": "two"})]
    share = tmp_path / ".local" / "share" / "opencode"
    paths = [
        database(place, {"ses_1": rows})
        for place in (share / "opencode-beta.db", share / "opencode.db", tmp_path / "own" / "my.db")
    ]
    places = HistoryPlaces(tmp_path, {"OPENCODE_DB": str(paths[2])})
    found = list(history_finding.find_histories(places))
    assert [(one.kind, one.path, one.conversations) for one in found] == [
        ("opencode", path, 1) for path in paths
    ]
    changed = history_finding.find_history_of_changed_file
    assert [changed("opencode", path) for path in paths] == paths
    in_home = HistoryPlaces(tmp_path, {"OPENCODE_DB": str(tmp_path / "x.db")})
    folders = history_finding.history_folders(in_home)["opencode"]
    assert folders == [share, share.with_name("kilo")], "not all of the home"


def test_giving_back_says_that_it_cannot_yet(tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", {"ses_1": [user("one")]})
    before = path.read_bytes()
    with pytest.raises(StoreFailed, match="opencode is version 2") as raised:
        opencode_writer.insert_opencode_session(path, b'{"info": {}, "messages": []}')
    assert raised.value.remedy.startswith("Nothing was changed.")
    assert path.read_bytes() == before
