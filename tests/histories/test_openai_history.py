"""OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from helix_desktop.histories import openai_history
from helix_desktop.histories.history_rows import HistoryRow, ReadingReport
from helix_desktop.histories.recorded_session import RecordedMessage


def read(*values: Mapping[str, object]) -> tuple[list[RecordedMessage], list[str]]:
    report = ReadingReport()
    rows = [HistoryRow(value, f"f, line {number}") for number, value in enumerate(values, 1)]
    return openai_history.OpenaiMessages(report).read_rows(rows).messages, report.complaints


def test_content_in_parts_is_joined_and_a_picture_is_noted() -> None:
    parts = [
        {"type": "text", "text": "look:"},
        {"type": "image_url", "image_url": {"url": "data:..."}},
    ]
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

    asked = {
        "role": "assistant",
        "content": "",
        "tool_calls": [called("1", "read"), called("2", "run")],
    }
    rows: list[Mapping[str, object]] = [
        asked,
        {"role": "function", "name": "run", "content": "x"},
        {"role": "function", "content": "y"},
    ]
    found = (
        openai_history.OpenaiMessages(ReadingReport())
        .read_rows(HistoryRow(row, "line") for row in rows)
        .messages
    )
    assert [message.answers for message in found[1:]] == ["2", "1"]


def recording(*values: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """The texts of the one session of a file, and what is told of it."""
    report = ReadingReport()
    rows = [HistoryRow(value, f"f, line {number}") for number, value in enumerate(values, 1)]
    found = openai_history.read_openai_recordings(rows, report, Path("a") / "trace.jsonl")
    assert all((one.kind, one.session) == (openai_history.KIND, "trace") for one in found)
    return [message.text for one in found for message in one.messages], report.complaints


def test_a_file_of_messages_is_one_session_and_lines_that_are_none_are_told() -> None:
    assert recording({"role": "user", "content": "look"}, {"odd": 1}) == (
        ["look"],
        ["f, line 2: there is no role None; the line was left out."],
    )
    assert recording({"odd": 1}, {"other": 2}) == (
        [],
        ["a/trace.jsonl: no line of it is a message: none has a role."],
    )
    assert recording() == ([], [])


@pytest.mark.parametrize("name", ["messages", "input", "conversation", "history"])
def test_whatever_the_list_is_called_what_is_no_message_in_it_keeps_its_place(name: str) -> None:
    found = openai_history.messages_in_object({name: [{"role": "user"}, "odd"], "model": "m"})
    assert found == [{"role": "user"}, {"role": None}]
    assert openai_history.messages_in_object({name: "text"}) is None


def test_a_reply_keeps_its_thoughts_its_model_and_what_it_cost() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    reply = {
        "role": "assistant",
        "content": "fine",
        "reasoning": "hm",
        "model": "gpt-5",
        "usage": usage,
        "_ts": 5,
    }
    (message,), _ = read(reply)
    assert (message.text, message.reasoning, message.model, message.time) == (
        "fine",
        "hm",
        "gpt-5",
        5,
    )
    assert (message.usage.input, message.usage.output) == (7, 3) if message.usage else False
    (other,), _ = read({**reply, "reasoning_content": "deep", "_ts": None, "timestamp": 6})
    assert (other.reasoning, other.time) == ("deep", 0)


def test_calls_without_ids_get_one_by_their_place_and_later_kinds_are_read() -> None:
    plain = {"function": {"name": "f", "arguments": "{}"}}
    custom = {"custom": {"name": "g", "input": "free text"}}
    calling = {
        "role": "assistant",
        "content": "",
        "tool_calls": [plain, custom],
        "function_call": {"name": "h"},
    }
    messages, complaints = read({"role": "user", "content": "go"}, calling)
    assert complaints == []
    assert [(call.id, call.name, call.arguments) for call in messages[1].calls] == [
        ("call-1-0", "f", "{}"),
        ("call-1-1", "g", "free text"),
        ("call-1-2", "h", "{}"),
    ]
    _, (complaint,) = read({"role": "assistant", "tool_calls": [plain, {"id": "x"}]})
    assert "call 2 has no name" in complaint


def test_a_result_may_show_a_picture_and_a_users_words_too() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    content = [{"type": "text", "text": "see"}, picture]
    messages, _ = read(
        {"role": "tool", "tool_call_id": "c", "content": content},
        {"role": "user", "content": content},
    )
    assert [len(message.pictures) for message in messages] == [1, 1]
    assert [message.answers for message in messages] == ["c", ""]
