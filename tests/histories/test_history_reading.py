"""Sessions from files of every form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.histories import history_reading
from helix_desktop.histories.recorded_session import RecordedCall

HELLO = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}


def written(folder: Path, name: str, *lines: object) -> Path:
    path = folder / name
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def test_the_form_of_the_traces(tmp_path: Path) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "x.py"}'}}
    result = {"role": "tool", "content": "text", "tool_call_id": "a"}
    path = written(tmp_path, "s.jsonl", HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}, result)
    imported = history_reading.read_history_file(path)
    (recording,) = imported.recordings
    assert [message.role for message in recording.messages] == ["user", "assistant", "tool"]
    assert recording.messages[1].calls == (RecordedCall("a", "read", '{"path": "x.py"}'),)
    assert recording.messages[2].answers == "a"
    assert imported.complaints == ()


def test_a_bad_line_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "s.jsonl", HELLO, "{broken", ANSWER, '{"role": "stranger", "content": "?"}', "17")
    imported = history_reading.read_history_file(path)
    assert len(imported.recordings[0].messages) == 2
    assert [complaint.split(": ")[0] for complaint in imported.complaints] == [
        f"{path}, line 2",
        f"{path}, line 5",
        f"{path}, line 4",
    ]
    assert "stranger" in imported.complaints[2]


def test_a_file_without_a_session_is_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, "usage.jsonl", {"message": 1, "input": 2})
    with pytest.raises(InvalidInput, match="doesn't contain a session") as caught:
        history_reading.read_history_file(path)
    assert "line 1" in str(caught.value) or "role" in str(caught.value)


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


def test_each_line_with_a_list_of_messages_is_a_session(tmp_path: Path) -> None:
    path = written(tmp_path, "many.jsonl", {"messages": [HELLO, ANSWER]}, {"messages": [HELLO, ANSWER, HELLO]})
    recordings = history_reading.read_history_file(path).recordings
    assert [recording.name for recording in recordings] == [f"{path}#1", f"{path}#2"]
    assert len(recordings[1].messages) == 3


def test_a_broken_document_names_the_line_where_it_breaks(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('[\n {"role": "user", "content": "a"},\n {"role":\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"line 4: the JSON is broken"):
        history_reading.read_history_file(path)


def test_a_folder_is_all_its_sessions_without_what_recorders_put_beside(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    written(tmp_path, "b.jsonl", HELLO, ANSWER)
    written(tmp_path / "deep", "a.jsonl", HELLO, ANSWER)
    written(tmp_path, "b.usage.json", [{"message": 1}])
    names = [Path(recording.name).name for recording in history_reading.read_history_files([tmp_path]).recordings]
    assert sorted(names) == ["a.jsonl", "b.jsonl"]


def test_a_file_of_a_folder_that_is_no_session_is_told_and_the_others_are_played(tmp_path: Path) -> None:
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
    with pytest.raises(InvalidInput, match=r"no \.jsonl or \.json"):
        history_reading.read_history_files([tmp_path])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.dictionaries(
    st.sampled_from(
        ["role", "content", "tool_calls", "tool_call_id", "type", "message", "payload", "messages", "input"]
    ),
    json_values | st.sampled_from(["user", "assistant", "tool", "response_item", "function_call", "message"]),
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
        read, said = False, str(error)
    assert read or str(path) in said
