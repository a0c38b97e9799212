"""OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from helix_desktop.histories import openai_history
from helix_desktop.histories.history_rows import HistoryRow
from helix_desktop.histories.recorded_session import RecordedMessage


def read(*values: Mapping[str, object]) -> tuple[list[RecordedMessage], list[str]]:
    complaints: list[str] = []
    rows = [HistoryRow(value, f"f, line {number}") for number, value in enumerate(values, 1)]
    return openai_history.read_openai_messages(rows, complaints), complaints


def test_content_in_parts_is_joined_and_a_picture_is_noted() -> None:
    parts = [{"type": "text", "text": "look:"}, {"type": "image_url", "image_url": {"url": "data:..."}}]
    messages, _ = read({"role": "user", "content": parts})
    assert messages[0].text == "look:\n[image_url]"


def test_developer_messages_are_the_systems() -> None:
    messages, _ = read({"role": "developer", "content": "be brief"})
    assert messages[0].role == "system"


def test_old_function_calls_are_paired_by_name() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    messages, complaints = read(call, {"role": "function", "name": "f", "content": "1"})
    assert messages[1].answers == messages[0].calls[0].id
    assert complaints == []


def test_arguments_given_as_an_object_become_json() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": {"a": "ü"}}}
    messages, _ = read({"role": "assistant", "content": "", "tool_calls": [call]})
    assert messages[0].calls[0].arguments == '{"a": "ü"}'


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, "call 1 has no name"),
        ({"role": "assistant", "tool_calls": "x"}, "not a list"),
        ({"role": "tool", "content": "x"}, "answers no call"),
        ({"role": "user", "content": 5}, "type int"),
        ({"role": "user", "content": [5]}, "neither a text nor an object"),
        ({"content": "x"}, "no role None"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(value: Mapping[str, object], why: str) -> None:
    messages, (complaint,) = read(value)
    assert messages == []
    assert complaint.startswith("f, line 1: ")
    assert why in complaint


def test_objects_with_a_list_of_messages_are_told_from_messages() -> None:
    assert openai_history.messages_in_object({"messages": [{"role": "user"}]}) == [{"role": "user"}]
    assert openai_history.messages_in_object({"role": "user", "messages": [{}]}) is None
    assert openai_history.messages_in_object({"messages": []}) is None


def test_a_result_that_names_its_function_alone_answers_the_last_call_of_that_name() -> None:
    def called(identity: str, name: str) -> dict[str, object]:
        return {"id": identity, "function": {"name": name, "arguments": "{}"}}

    asked = {"role": "assistant", "content": "", "tool_calls": [called("1", "read"), called("2", "run")]}
    rows: list[Mapping[str, object]] = [
        asked,
        {"role": "function", "name": "run", "content": "x"},
        {"role": "function", "content": "y"},
    ]
    found = openai_history.read_openai_messages([HistoryRow(row, "line") for row in rows], [])
    assert [message.answers for message in found[1:]] == ["2", "1"]
