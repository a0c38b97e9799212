"""Sessions from files of every form."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.facts import ToolCall
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.histories import history_reading
from helix_desktop.histories.history_rows import HistoryRow, ReadingReport
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession

HELLO = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}


def written(folder: Path, name: str, *lines: object) -> Path:
    path = folder / name
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def test_the_form_of_the_traces(tmp_path: Path) -> None:
    call = {
        "id": "a",
        "type": "function",
        "function": {"name": "read", "arguments": '{"path": "x.py"}'},
    }
    result = {"role": "tool", "content": "text", "tool_call_id": "a"}
    path = written(
        tmp_path,
        "s.jsonl",
        HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        result,
    )
    imported = history_reading.read_history_file(path)
    (recording,) = imported.recordings
    assert [message.role for message in recording.messages] == ["user", "assistant", "tool"]
    assert recording.messages[1].calls == (ToolCall("a", "read", '{"path": "x.py"}'),)
    assert recording.messages[2].answers == "a"
    assert imported.complaints == ()


def test_a_bad_line_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path, "s.jsonl", HELLO, "{broken", ANSWER, '{"role": "stranger", "content": "?"}', "17"
    )
    imported = history_reading.read_history_file(path)
    assert len(imported.recordings[0].messages) == 2
    assert [complaint.split(": ")[0] for complaint in imported.complaints] == [
        f"{path}, line 2",
        f"{path}, line 5",
        f"{path}, line 4",
    ]
    assert "stranger" in imported.complaints[2]


def test_a_line_that_is_too_long_to_be_read_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of 300 MB took 3 GB, in several processes at once."""
    monkeypatch.setattr(history_reading, "LONGEST_LINE_BYTES", 1_000)
    long_line = json.dumps({"role": "assistant", "content": "y" * 2_000})
    path = written(tmp_path, "s.jsonl", HELLO, long_line, ANSWER)
    report = ReadingReport()
    recordings = list(history_reading.read_sessions(path, report))
    assert len(recordings[0].messages) == 2
    assert report.unread == [long_line.encode()]
    assert report.is_damaged
    assert report.complaints == [
        f"{path}, line 2: it has 0 MB, and lines of more than 0 MB are kept as they are, but not read; the line was left out."
    ]


def test_a_line_of_very_many_values_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_reading, "MOST_VALUES_IN_LINE", 1_000)
    long_line = json.dumps({"role": "assistant", "content": [[]] * 2_000})
    table = json.dumps({"role": "assistant", "content": "[1, 2], " * 2_000})
    path = written(tmp_path, "s.jsonl", HELLO, long_line, table)
    report = ReadingReport()
    recordings = list(history_reading.read_sessions(path, report))
    assert len(recordings[0].messages) == 2
    assert report.unread == [long_line.encode()]
    assert report.complaints == [
        f"{path}, line 2: it has more than 1,000 values, and such lines are kept as they are, but not read; the line was left out."
    ]


def test_a_document_of_very_many_values_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_reading, "MOST_VALUES_IN_DOCUMENT", 1_000)
    path = tmp_path / "s.json"
    path.write_text(json.dumps([HELLO, {"role": "assistant", "content": [[]] * 2_000}]))
    with pytest.raises(InvalidInput, match="more than 1,000 values"):
        history_reading.read_history_file(path)


def test_a_file_without_a_session_is_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, "usage.jsonl", {"message": 1, "input": 2})
    with pytest.raises(InvalidInput, match="doesn't contain a session") as caught:
        history_reading.read_history_file(path)
    assert "line 1" in str(caught.value) or "role" in str(caught.value)


def test_of_a_file_that_is_nonsense_it_is_said_which_line_is_not_json(tmp_path: Path) -> None:
    """The window said, of notes as text, that their first line was left out, and then nothing."""
    path = tmp_path / "notes.jsonl"
    path.write_text("Dear diary,\ntoday it rained.\n")
    with pytest.raises(InvalidInput) as caught:
        history_reading.read_history_file(path)
    refusal = f"{path} doesn't contain a session that can be read."
    assert str(caught.value) == f"{refusal} Line 1 is not JSON. {history_reading.FORMS}"


CUT_OFF = "the last line is cut off; everything before it was read."


def test_of_a_file_whose_last_line_is_cut_off_everything_before_it_is_read(tmp_path: Path) -> None:
    """A crash leaves such a line. It was said to be no JSON object, as if it were damaged."""
    path = tmp_path / "s.jsonl"
    reply = json.dumps(ANSWER)
    path.write_text("\n".join([json.dumps(HELLO), reply, reply[: len(reply) // 2]]))
    imported = history_reading.read_history_file(path)
    assert texts(path) == [["hello", "hi"]]
    assert imported.complaints == (f"{path}: {CUT_OFF}",)


def test_a_question_whose_reply_is_cut_off_is_read(tmp_path: Path) -> None:
    """Such a file was refused as a whole, because no reply was in it."""
    path = tmp_path / "s.jsonl"
    reply = json.dumps(ANSWER)
    path.write_text("\n".join([json.dumps(HELLO), reply[: len(reply) // 2]]))
    imported = history_reading.read_history_file(path)
    assert texts(path) == [["hello"]]
    assert imported.complaints == (f"{path}: {CUT_OFF}",)


def test_a_question_whose_reply_is_cut_off_in_a_document_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps([HELLO, ANSWER])[:-8])
    imported = history_reading.read_history_file(path)
    assert texts(path) == [["hello"]]
    assert imported.complaints == (
        f"{path}, line 1: the JSON is broken here; messages read before it: 1.",
    )


def test_zeros_at_the_end_of_a_file_are_a_line_that_is_cut_off(tmp_path: Path) -> None:
    """Some file systems leave them where the power failed."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(json.dumps(HELLO).encode() + b"\n" + bytes(512))
    imported = history_reading.read_history_file(path)
    assert texts(path) == [["hello"]]
    assert imported.complaints == (f"{path}: {CUT_OFF}",)


def test_a_file_of_nothing_but_a_line_that_is_cut_off_is_refused_by_its_number(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(HELLO)[:10])
    with pytest.raises(InvalidInput, match=r"Line 1 is not JSON\."):
        history_reading.read_history_file(path)


def test_a_question_without_any_reply_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="doesn't contain a session"):
        history_reading.read_history_file(written(tmp_path, "s.jsonl", HELLO))


FIXTURES = Path(__file__).parent / "fixtures"
SESSION_FILES = [
    path for path in sorted(FIXTURES.rglob("*.jsonl")) if "subagents" not in path.parts
]


@pytest.mark.parametrize(
    "fixture", SESSION_FILES, ids=lambda path: path.relative_to(FIXTURES).parts[0]
)
def test_of_every_program_a_session_is_read_up_to_the_line_that_is_cut_off(
    tmp_path: Path, fixture: Path
) -> None:
    lines = fixture.read_bytes().splitlines(keepends=True)
    whole_part = tmp_path / "whole" / fixture.name
    cut_file = tmp_path / "cut" / fixture.name
    for file in (whole_part, cut_file):
        file.parent.mkdir()
    whole_part.write_bytes(b"".join(lines[:-1]))
    cut_file.write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    expected = history_reading.read_history_file(whole_part)
    imported = history_reading.read_history_file(cut_file)
    assert [one.messages for one in imported.recordings] == [
        one.messages for one in expected.recordings
    ]
    assert f"{cut_file}: {CUT_OFF}" in imported.complaints


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cannot be read"):
        history_reading.read_history_file(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize("wrapped", [True, False])
def test_json_documents_with_a_list_of_messages(tmp_path: Path, *, wrapped: bool) -> None:
    document = {"messages": [HELLO, ANSWER]} if wrapped else [HELLO, ANSWER]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
    (recording,) = history_reading.read_history_file(path).recordings
    assert [message.text for message in recording.messages] == ["hello", "hi"]


@pytest.mark.parametrize(
    "beginning",
    [
        '{"messages": [\n',
        '{ "messages":\n[',
        '\ufeff{"messages": [',
        '{"model": "m",\n"messages": [',
    ],
)
def test_a_document_whose_first_line_has_more_than_a_brace_is_read_whole(
    tmp_path: Path, beginning: str
) -> None:
    path = tmp_path / "s.json"
    path.write_text(f"{beginning}{json.dumps(HELLO)},\n{json.dumps(ANSWER)}\n]}}\n", "utf-8")
    imported = history_reading.read_history_file(path)
    (recording,) = imported.recordings
    assert [message.text for message in recording.messages] == ["hello", "hi"]
    assert imported.complaints == ()


def test_each_line_with_a_list_of_messages_is_a_session(tmp_path: Path) -> None:
    path = written(
        tmp_path, "many.jsonl", {"messages": [HELLO, ANSWER]}, {"messages": [HELLO, ANSWER, HELLO]}
    )
    recordings = history_reading.read_history_file(path).recordings
    assert [recording.name for recording in recordings] == [f"{path}#1", f"{path}#2"]
    assert len(recordings[1].messages) == 3


def test_a_broken_document_names_the_line_where_it_breaks(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('[\n {"role": "user", "content": "a"},\n {"role":\n', encoding="utf-8")
    (complaint,) = history_reading.read_history_file(path).complaints
    assert "line 4: the JSON is broken" in complaint


def test_a_folder_is_all_its_sessions_without_what_recorders_put_beside(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    written(tmp_path, "b.jsonl", HELLO, ANSWER)
    written(tmp_path / "deep", "a.jsonl", HELLO, ANSWER)
    written(tmp_path, "b.usage.json", [{"message": 1}])
    names = [
        Path(recording.name).name
        for recording in history_reading.read_history_files([tmp_path]).recordings
    ]
    assert sorted(names) == ["a.jsonl", "b.jsonl"]


def test_a_file_of_a_folder_that_is_no_session_is_told_and_the_others_are_played(
    tmp_path: Path,
) -> None:
    written(tmp_path, "b.jsonl", HELLO, ANSWER)
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "package.json").write_text('{"name": "x"}\n')
    imported = history_reading.read_history_files([tmp_path])
    assert [Path(recording.name).name for recording in imported.recordings] == ["b.jsonl"]
    assert [complaint.split(" doesn't contain")[0] for complaint in imported.complaints] == [
        str(tmp_path / "empty.jsonl"),
        str(tmp_path / "package.json"),
    ]
    with pytest.raises(InvalidInput, match=r"empty\.jsonl doesn't contain a session"):
        history_reading.read_history_files([tmp_path, tmp_path / "empty.jsonl"])


def test_a_folder_without_a_session_is_refused(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}\n')
    with pytest.raises(InvalidInput, match="doesn't contain a session"):
        history_reading.read_history_files([tmp_path])


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no file under .* \*\.jsonl, \*\.json"):
        history_reading.read_history_files([tmp_path])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
fields = st.dictionaries(
    st.sampled_from(
        [
            "role",
            "content",
            "tool_calls",
            "tool_call_id",
            "type",
            "message",
            "payload",
            "messages",
            "input",
        ]
    ),
    json_values
    | st.sampled_from(["user", "assistant", "tool", "response_item", "function_call", "message"]),
)


@settings(max_examples=40)
@given(st.lists(fields | json_values, max_size=6))
def test_whatever_stands_in_a_file_it_is_read_or_refused_in_a_sentence(tmp_path_factory: pytest.TempPathFactory, values: list[object]) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("any") / "s.jsonl"
    path.write_text("\n".join(json.dumps(value) for value in values), encoding="utf-8")
    said = ""
    try:
        read = bool(history_reading.read_history_file(path).recordings)
    except InvalidInput as error:
        read = False
        said = str(error)
    assert read or str(path) in said


def texts(path: Path) -> list[list[str]]:
    return [
        [message.text for message in one.messages]
        for one in history_reading.read_history_file(path).recordings
    ]


def test_a_replay_plays_what_the_model_was_shown_of_the_first_line_of_each_session() -> None:
    shown = RecordedMessage("tool", "whole", answers="c", shown="less")
    messages = (
        RecordedMessage("user", "go"),
        shown,
        RecordedMessage("failure", "busy"),
        RecordedMessage("assistant", "x"),
    )
    first = RecordedSession("a", messages)
    fork = replace(first, name="b", forked_from="s")
    child = replace(first, name="c", parent="s")
    found = history_reading.sessions_for_replay(
        history_reading.ImportedSessions((first, fork, child), ("told",))
    )
    assert [one.name for one in found.recordings] == ["a"]
    assert [message.text for message in found.recordings[0].messages] == ["go", "less", "x"]
    assert found.complaints == ("told",)
    alone = history_reading.sessions_for_replay(history_reading.ImportedSessions((fork, child), ()))
    assert [one.name for one in alone.recordings] == ["b", "c"], "where there is no first line"


def test_a_damaged_document_is_read_up_to_where_it_breaks(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(
        json.dumps([HELLO, ANSWER, 5, HELLO], indent=1)[:-20] + "\n{broken", encoding="utf-8"
    )
    imported = history_reading.read_history_file(path)
    assert texts(path) == [["hello", "hi"]]
    assert "messages read before it: 2." in imported.complaints[0]
    path.write_text("{\n broken", encoding="utf-8")
    with pytest.raises(
        InvalidInput, match="line 2: the JSON is broken here; the file was left out"
    ):
        history_reading.read_history_file(path)


def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    lines = written(tmp_path, "s.jsonl", HELLO, "", ANSWER)
    lines.write_bytes(b"\xef\xbb\xbf" + lines.read_bytes())
    assert texts(lines) == [["hello", "hi"]]
    whole = tmp_path / "s.json"
    whole.write_bytes(b"\xef\xbb\xbf  " + json.dumps([HELLO, ANSWER]).encode())
    assert texts(whole) == [["hello", "hi"]]


def test_lists_in_a_list_are_sessions_and_each_place_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps([[HELLO, ANSWER], [HELLO, {"role": "stranger"}, ANSWER]]))
    imported = history_reading.read_history_file(path)
    assert texts(path) == [["hello", "hi"], ["hello", "hi"]]
    assert [one.session for one in imported.recordings] == ["s#1", "s#2"]
    assert imported.complaints[0].startswith(f"{path}, entry 2, message 2: ")
    path.write_text(json.dumps({"messages": [HELLO, {"role": "stranger"}, ANSWER]}, indent=1))
    (complaint,) = history_reading.read_history_file(path).complaints
    assert complaint.startswith(f"{path}, message 2: ")


def test_rows_beside_sessions_are_one_more_session(tmp_path: Path) -> None:
    path = written(tmp_path, "s.jsonl", {"messages": [HELLO, ANSWER]}, HELLO, ANSWER, HELLO)
    assert texts(path) == [["hello", "hi"], ["hello", "hi", "hello"]]


def test_a_system_prompt_beside_the_messages_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    for system, first in (
        ("Be good.", ["Be good."]),
        ([{"type": "text", "text": "Be."}], ["Be."]),
        ("", []),
        (5, []),
    ):
        path.write_text(json.dumps({"system": system, "messages": [HELLO, ANSWER]}))
        assert texts(path) == [[*first, "hello", "hi"]]


def test_a_line_that_is_not_quite_json_is_read_where_it_can_be(tmp_path: Path) -> None:
    path = written(tmp_path, "s.jsonl", '{"role": "user", "content": "x", "n": NaN}', ANSWER)
    path.write_bytes(path.read_bytes().replace(b'"x"', b'"\xff"'))
    assert texts(path) == [["\ufffd", "hi"]]


def test_the_kind_is_what_the_caller_says_or_the_name_or_the_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "s.jsonl", HELLO, ANSWER)

    def kind(name: str, path: Path = path) -> str:
        return next(iter(history_reading.read_sessions(path, ReadingReport(), name))).kind

    assert [kind(name) for name in ("", "openai", "cline")] == ["messages", "messages", "cline"]
    with pytest.raises(InvalidInput, match="Unknown kind of history: 'what'") as refused:
        kind("what")
    assert "cline" in refused.value.remedy
    task = written(tmp_path, "api_conversation_history.json", json.dumps([HELLO, ANSWER]))
    assert [kind("", task), kind("openai", task)] == ["cline", "messages"]


def test_what_is_no_file_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="is not a file"):
        list(history_reading.read_sessions(tmp_path, ReadingReport()))
    path = written(tmp_path, "s.jsonl", HELLO, ANSWER)
    monkeypatch.setattr(history_reading, "LARGEST_FILE_BYTES", path.stat().st_size)
    assert texts(path) == [["hello", "hi"]]
    monkeypatch.setattr(history_reading, "LARGEST_FILE_BYTES", path.stat().st_size - 1)
    with pytest.raises(InvalidInput, match="is larger than"):
        texts(path)


def test_a_copy_is_read_in_the_place_of_a_file_that_may_have_changed(tmp_path: Path) -> None:
    copy = written(tmp_path, "copy", HELLO, ANSWER)
    path = tmp_path / "s.jsonl"
    (found,) = history_reading.read_sessions(path, ReadingReport(), copy=copy)
    assert (found.session, len(found.messages)) == ("s", 2)


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"SQLite format 3\0" + b"?" * 5_000)
    report = ReadingReport()
    assert list(history_reading.read_sessions(path, report)) == []
    assert report.complaints[0].startswith(f"{path}: the database cannot be read: ")


def test_links_that_lead_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    outside = written(tmp_path, "outside.jsonl", HELLO, ANSWER)
    (tmp_path / "in").mkdir()
    kept = written(tmp_path / "in", "s.jsonl", HELLO, ANSWER)
    (tmp_path / "in" / "link.jsonl").symlink_to(outside)
    written(tmp_path / "in", "msg_1.json", HELLO)
    assert history_reading.list_history_files(tmp_path / "in") == [kept]


def test_of_a_list_that_is_cut_the_whole_messages_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    for end, count in (("", 2), (",", 2), (', {"role": "us', 2), ("  \t\r\n ", 2)):
        path.write_text("[" + json.dumps(HELLO) + " ,\n" + json.dumps(ANSWER) + end)
        found = history_reading.read_history_file(path)
        assert [message.text for message in found.recordings[0].messages] == ["hello", "hi"]
        assert f"messages read before it: {count}." in found.complaints[0]
    path.write_text("[")
    with pytest.raises(InvalidInput, match="the file was left out"):
        history_reading.read_history_file(path)


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    for name, lines in (("s.jsonl", [HELLO, ANSWER]), ("t.json", [[HELLO, ANSWER]])):
        (tmp_path / name).write_bytes(
            b"\xef\xbb\xbf" + b"\n".join(json.dumps(line).encode() for line in lines)
        )
        assert texts(tmp_path / name) == [["hello", "hi"]]


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"type": "session", "id": "s", "cwd": "/w"}, "pi"),
        ({"type": "user", "message": {"role": "user", "content": "hello"}}, "claude-code"),
        (
            {
                "type": "response_item",
                "payload": {"type": "message", "role": "user", "content": []},
            },
            "codex",
        ),
        ({"sessionId": "s", "projectHash": "p"}, "gemini-cli"),
        ({"working_dir": "/w"}, "goose"),
        ({"trajectory": [], "info": {}}, "trajectory"),
        ({"steps": [], "agent": {}, "session_id": "s"}, "trajectory"),
        ({"type": "agent.message"}, "trajectory"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}, "anthropic"),
        (HELLO, "openai"),
        ({"anything": 1}, "openai"),
    ],
)
def test_the_form_of_a_file_is_what_any_of_its_rows_shows(
    row: dict[str, object], kind: str
) -> None:
    unknown: dict[str, object] = {"unknown": True}
    for values in ([row], [unknown, row]):
        rows = [HistoryRow(value, "place") for value in values]
        chosen = history_reading._choose_format_of_rows(rows, Path("s.jsonl"), "")
        assert chosen is not None
        assert chosen.kind == kind


def test_a_mark_of_the_byte_order_within_a_file_is_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    lines = [
        json.dumps(HELLO).encode(),
        b"\xef\xbb\xbf" + json.dumps(ANSWER).encode(),
        json.dumps(ANSWER).encode(),
    ]
    path.write_bytes(b"\n".join(lines))
    imported = history_reading.read_history_file(path)
    assert texts(path) == [["hello", "hi"]]
    assert imported.complaints == (
        f"{path}, line 2: this is not a JSON object; the line was left out.",
    )


def test_a_document_that_is_nested_too_deeply_is_told_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text("[\n" * 100_000)
    with pytest.raises(
        InvalidInput, match="line 1: the JSON is broken here; the file was left out"
    ):
        history_reading.read_history_file(path)


@pytest.mark.parametrize(
    "row",
    [
        {"trajectory": [], "history": [HELLO]},
        {"steps": [], "agent": {}, "session_id": "s", "messages": [HELLO]},
        {"sessionId": "s", "projectHash": "p", "messages": [HELLO]},
    ],
)
def test_a_session_that_has_messages_among_other_things_is_read_in_its_own_form(
    row: dict[str, object],
) -> None:
    rows = [HistoryRow(row, "place"), HistoryRow({"messages": [HELLO, ANSWER]}, "other")]
    grouped = [[one.place for one in group] for group in history_reading._group_into_sessions(rows)]
    assert grouped == [["other, message 1", "other, message 2"], ["place"]]
