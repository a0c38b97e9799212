"""Sessions of Gemini CLI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories import gemini_cli_history, history_reading
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)
from tests.histories import written

HEAD = {"sessionId": "chat-1", "projectHash": "0", "summary": "A title"}
AT = "1970-01-01T00:00:05.000Z"
INLINE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
PICTURE = RecordedPicture("image/png", b"\0\0\0")


def read(
    tmp_path: Path, *rows: Mapping[str, Any], folder: str = "chats"
) -> history_reading.ImportedSessions:
    path = written.lines(tmp_path / "project" / folder / "session-1.jsonl", [HEAD, *rows])
    report = ReadingReport()
    recordings = tuple(history_reading.read_sessions(path, report))
    return history_reading.ImportedSessions(recordings, report.complaint_sentences(path.name))


def one(tmp_path: Path, *rows: Mapping[str, Any]) -> RecordedSession:
    (recording,) = read(tmp_path, *rows).recordings
    return recording


def said(name: str, content: object, **more: Any) -> dict[str, Any]:
    return {"id": name, "timestamp": AT, "type": "user", "content": content, **more}


def reply(name: str, content: object, **more: Any) -> dict[str, Any]:
    return {"id": name, "timestamp": AT, "type": "gemini", "content": content, **more}


def answer(name: str, **response: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": name, "name": "f", "response": response}}


def texts(session: RecordedSession) -> list[str]:
    return [message.text for message in session.messages]


def test_a_session_has_its_title_and_the_folder_that_lies_beside_it(tmp_path: Path) -> None:
    found = one(tmp_path, said("1", "hi"))
    assert (found.kind, found.session, found.title, found.folder, found.parent) == (
        "gemini-cli", "chat-1", "A title", "", "",
    )  # fmt: skip
    (tmp_path / "project" / ".project_root").write_text("/home/me\n")
    assert one(tmp_path, said("1", "hi")).folder == "/home/me"
    later = {"$set": {"directories": ["/listed"], "summary": "Another", "sessionId": ""}}
    found = one(tmp_path, said("1", "hi"), later)
    assert (found.folder, found.title, found.session) == ("/listed", "Another", "session-1")


def test_a_folder_of_the_project_that_can_be_no_path_is_none(tmp_path: Path) -> None:
    one(tmp_path, said("1", "hi"))
    for size in (4096, 4097):
        (tmp_path / "project" / ".project_root").write_text("/" + "x" * (size - 1))
        assert len(one(tmp_path, said("1", "hi")).folder) == (4096 if size == 4096 else 0)
    (tmp_path / "project" / ".project_root").write_bytes(b"\xff")
    assert one(tmp_path, said("1", "hi")).folder == ""


def test_what_is_set_beside_an_id_alone_is_about_the_session(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        said("1", "go"),
        {"id": "2", "summary": "Another"},
        {"type": 5, "directories": ["/d"]},
    )
    assert ([one.title for one in found.recordings], found.recordings[0].folder) == (
        ["Another"],
        "/d",
    )
    assert found.complaints == ()


def test_a_sub_agents_session_names_the_one_that_made_it(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".project_root").write_text("/home/me")
    (found,) = read(tmp_path, said("1", "hi"), folder="chats/chat-0").recordings
    assert (found.parent, found.folder) == ("chat-0", "/home/me")


def test_a_reply_says_its_thoughts_calls_and_tokens(tmp_path: Path) -> None:
    thoughts = [{"subject": "One", "description": "hm"}, {"description": "so"}]
    call = {"id": "c1", "name": "shell", "args": {"command": "ls"}}
    tokens = {"input": 100, "cached": 60, "output": 20, "thoughts": 5}
    found = one(
        tmp_path,
        reply("1", "I look.", thoughts=thoughts, toolCalls=[call], tokens=tokens, model="m"),
    )
    parts: list[ReplyPart] = [
        Reasoning("One\nhm\n\nso"),
        Text("I look."),
        ToolCall("c1", "shell", '{"command": "ls"}'),
    ]
    assert found.messages == (
        build_recorded_reply(parts, model="m", time=5.0, usage=Usage(100, 60, 0, 25, 5)),
    )


def test_a_record_written_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    found = one(
        tmp_path, said("1", "go"), reply("2", "I"), said("3", "more"), reply("2", "I look.")
    )
    assert texts(found) == ["go", "I look.", "more"]


def test_thoughts_alone_are_no_reply(tmp_path: Path) -> None:
    rows = reply("1", "", thoughts=[{"subject": "One"}]), reply("2", ""), reply("3", "Yes.")
    assert texts(one(tmp_path, *rows)) == ["Yes."]


def test_a_call_alone_is_a_reply(tmp_path: Path) -> None:
    found = one(tmp_path, reply("1", "", toolCalls=[{"id": "c1", "name": "shell"}]))
    assert found.messages[0].parts == (ToolCall("c1", "shell", "{}"),)


def test_a_result_stands_with_its_call_and_is_not_taken_twice(tmp_path: Path) -> None:
    later = "1970-01-01T00:00:09.000Z"
    calls = [
        {
            "id": "c1",
            "name": "f",
            "result": [answer("c1", output="out")],
            "status": "success",
            "timestamp": later,
        },
        {"id": "c2", "name": "f", "result": [answer("c2", error="bad")], "status": "error"},
        {"id": "c3", "name": "f", "result": "stopped", "status": "cancelled"},
        {"id": "c4", "name": "f"},
        {
            "id": "c5",
            "name": "f",
            "result": [answer("c5", a=1), answer("c5", output="two"), INLINE],
        },
    ]
    given = [
        answer("c1", output="again"),
        answer("c4", output="late"),
        answer("c4", output="later"),
        answer(""),
    ]
    found = one(tmp_path, reply("1", "I look.", toolCalls=calls), said("2", given))
    assert found.messages[1:] == (
        RecordedMessage("tool", "out", answers="c1", time=9.0),
        RecordedMessage("tool", "bad", answers="c2", ok=False, time=5.0),
        RecordedMessage("tool", "stopped", answers="c3", ok=False, time=5.0),
        RecordedMessage("tool", '{"a": 1}\ntwo', answers="c5", time=5.0, pictures=(PICTURE,)),
        RecordedMessage("tool", "late", answers="c4", time=5.0),
    )


def test_a_result_in_a_users_record_says_whether_it_failed(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        said(
            "1", [answer("c1", error="ü"), answer("c2", number="ü"), {"text": "go"}, INLINE, "on"]
        ),
    )
    assert found.messages == (
        RecordedMessage("tool", "ü", answers="c1", ok=False, time=5.0),
        RecordedMessage("tool", '{"number": "ü"}', answers="c2", time=5.0),
        RecordedMessage("user", "go\non", time=5.0, pictures=(PICTURE,)),
    )


def test_what_the_program_says_at_the_beginning_stands_beside(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        said("1", "<session_context>today"),
        said("2", " "),
        said("3", [INLINE]),
        said("4", "go"),
    )
    assert [(message.text, message.beside) for message in found.messages] == [
        ("<session_context>today", True),
        ("", False),
        ("go", False),
    ]


def test_notes_are_counted_and_an_unknown_record_is_told(tmp_path: Path) -> None:
    rows = (
        said("1", "go"),
        {"id": "2", "type": "info"},
        {"id": "3", "type": "error"},
        {"id": "4", "type": "novelty"},
    )
    found = read(tmp_path, *rows)
    assert texts(found.recordings[0]) == ["go"]
    complaint, left = found.complaints
    assert complaint.endswith("there is no record of type 'novelty'; the line was left out.")
    assert left.endswith("as they are: error (1), info (1).")


@pytest.mark.parametrize("call", [{"id": "c1"}, {"name": "f"}])
def test_a_call_without_id_or_name_is_told(tmp_path: Path, call: Mapping[str, Any]) -> None:
    found = read(tmp_path, said("1", "go"), reply("2", "", toolCalls=[call]))
    assert texts(found.recordings[0]) == ["go"]
    assert "a call has no id or no name" in found.complaints[0]


def test_going_back_before_a_message_makes_a_branch(tmp_path: Path) -> None:
    rows = said("1", "one"), reply("2", "two"), said("3", "three"), reply("4", "four")
    stays, branch = read(
        tmp_path, *rows, {"$rewindTo": "3"}, said("5", "other"), reply("6", "more")
    ).recordings
    assert texts(stays) == ["one", "two", "three", "four"]
    assert texts(branch) == ["one", "two", "other", "more"]
    assert (branch.session, branch.forked_from, branch.forked_at) == ("chat-1#5", "chat-1", 2)


def test_asking_anew_behind_the_first_words_makes_a_branch(tmp_path: Path) -> None:
    rows = said("1", "one"), reply("2", "two"), {"$rewindTo": "2"}, said("3", "other")
    stays, branch = read(tmp_path, *rows).recordings
    assert (texts(stays), texts(branch)) == (["one", "two"], ["one", "other"])


@pytest.mark.parametrize("name", ["1", "unknown"])
def test_going_back_before_the_first_message_begins_anew(tmp_path: Path, name: str) -> None:
    rows = said("1", "one"), reply("2", "two"), {"$rewindTo": name}, said("5", "other")
    stays, branch = read(tmp_path, *rows).recordings
    assert (texts(stays), texts(branch), branch.forked_from) == (["one", "two"], ["other"], "")


def test_a_new_history_in_the_place_of_the_old_is_a_compaction(tmp_path: Path) -> None:
    fresh = [said("8", "The summary."), reply("9", "I see.", timestamp="1970-01-01T00:00:09.000Z")]
    rows = (
        said("1", "one"),
        reply("2", "two"),
        {"$set": {"messages": [*fresh, reply("2", "two")]}},
        said("10", "three"),
    )
    found = one(tmp_path, *rows)
    assert texts(found) == ["one", "two", "three"]
    text = "The summary.\n\nI see."
    why = "Gemini CLI compressed here"
    assert found.compactions == (RecordedCompaction(2, 1, text, 5.0, why),), "it keeps the reply"


def test_what_a_compressed_history_keeps_under_new_ids_stays_behind_the_summary(
    tmp_path: Path,
) -> None:
    """Gemini CLI keeps the newest turns and gives them new ids, and writes the whole again with
    each change. Each time, all that was there was replaced by the words of the whole.
    """
    rows = [said("1", "one"), reply("2", "two"), said("3", "three"), reply("4", "four")]
    context = said("20", "<session_context>today")
    kept = [said("23", "three"), reply("24", "four")]
    compressed = [context, said("21", "The summary."), reply("22", "Got it."), *kept]
    more = [said("5", "five"), reply("6", "six")]
    again = {"$set": {"messages": [*compressed, *more, said("7", "seven")]}}
    found = one(
        tmp_path, *rows, {"$set": {"messages": compressed}}, *more, said("7", "seven"), again
    )
    assert texts(found) == ["one", "two", "three", "four", "five", "six", "seven"]
    assert [(each.at, each.keep, each.text) for each in found.compactions] == [
        (4, 2, "The summary.\n\nGot it.")
    ]


def test_the_empty_result_of_a_command_stays_empty(tmp_path: Path) -> None:
    answer = {"functionResponse": {"id": "c1", "name": "f", "response": {"output": ""}}}
    call = {"id": "c1", "name": "f", "args": {}, "result": [answer], "status": "success"}
    found = one(tmp_path, said("1", "one"), reply("2", "two", toolCalls=[call]))
    assert texts(found) == ["one", "two", ""]


def test_a_history_that_only_grew_is_no_compaction(tmp_path: Path) -> None:
    rows = said("1", "one"), reply("2", "two")
    found = one(tmp_path, *rows, {"$set": {"messages": [*rows, said("3", "three")]}})
    assert (texts(found), found.compactions) == (["one", "two", "three"], ())
    found = one(tmp_path, *rows, {"$set": {"messages": [rows[0]]}})
    assert (texts(found), found.compactions) == (["one", "two"], ())


def test_an_older_document_holds_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "session-1.json"
    path.write_text(json.dumps({**HEAD, "messages": [said("1", "one"), reply("2", "two")]}))
    (found,) = history_reading.read_sessions(path, ReadingReport())
    assert (texts(found), found.title) == (["one", "two"], "A title")


def test_thoughts_among_the_content_are_not_said(tmp_path: Path) -> None:
    called = {"functionCall": {"id": "c1", "name": "f", "args": {}}}
    found = one(
        tmp_path, reply("1", [{"text": "hm", "thought": True}, {"text": "I look."}, called])
    )
    assert found.messages[0].parts == (Text("I look."), ToolCall("c1", "f", "{}"))


def test_a_file_is_known_by_its_head_or_what_is_set() -> None:
    known = gemini_cli_history.is_gemini_cli_row
    assert known(HEAD)
    assert not known({"sessionId": "1"})
    assert not known({"projectHash": "1"})
    assert known({"$set": {}})
    assert known({"$rewindTo": "1"})


def test_two_copies_of_a_record_are_equal_if_only_one_has_its_text_in_parts() -> None:
    """A part without a call has no id of one, which is no difference."""
    as_text = {"type": "user", "content": "Look here"}
    in_parts = {"type": "user", "content": [{"text": "Look here"}]}
    other = {"type": "user", "content": [{"functionResponse": {"id": "c1"}}, {"text": "Look here"}]}
    content_of = gemini_cli_history._content_of_record
    assert content_of(as_text) == content_of(in_parts)
    assert content_of(in_parts) != content_of(other)
