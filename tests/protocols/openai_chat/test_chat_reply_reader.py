"""A stream of chat completions, piece by piece: what of it is reasoning, which piece
belongs to which call, and when it is whole.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall, Usage
from helix_desktop.engine.messages import Reply
from helix_desktop.errors import ModelFailed
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.openai_chat.chat_reply_reader import (
    ChatReplyReader,
    merge_reasoning_details,
)


def reading(
    *deltas: Any, finish: str | None = None, done: bool = False, **more: Any
) -> ChatReplyReader:
    reader = ChatReplyReader("tag", "peer", "m")
    for delta in deltas:
        reader.feed_event(
            ServerSentEvent(json.dumps({"choices": [{"index": 0, "delta": delta}], **more}))
        )
    if finish is not None:
        reader.feed_event(
            ServerSentEvent(json.dumps({"choices": [{"delta": {}, "finish_reason": finish}]}))
        )
    if done:
        reader.feed_event(ServerSentEvent(" [DONE] "))
    return reader


def replied(*deltas: Any, finish: str | None = "stop", **more: Any) -> Reply:
    return reading(*deltas, finish=finish, done=True, **more).reply_so_far()


def call(
    index: int | None, name: str = "", arguments: Any = "", call_id: str = ""
) -> dict[str, Any]:
    made: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    return {
        "tool_calls": [
            made
            | ({} if index is None else {"index": index})
            | ({"id": call_id} if call_id else {})
        ]
    }


def calls(reply: Reply) -> list[tuple[str, str]]:
    return [(part.name, part.arguments) for part in reply.parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_under_the_name_it_came_by(field: str) -> None:
    reply = replied(
        {field: "hm "},
        {field: "so"},
        {"content": "a"},
        {"content": "b"},
        {field: "more"},
        {"content": "c"},
    )
    own = json.dumps({"field": field}, separators=(",", ":"))
    assert reply.parts == (
        Reasoning("hm so", opaque=own, provider="tag"),
        Text("ab"),
        Reasoning("more", provider="tag"),
        Text("c"),
    )


def test_details_of_reasoning_go_back_word_for_word_and_not_its_name() -> None:
    details = [{"type": "reasoning.text", "text": "hm", "index": 0}]
    (first, _) = replied({"reasoning": "hm", "reasoning_details": details}, {"content": "a"}).parts
    assert isinstance(first, Reasoning)
    assert json.loads(first.opaque) == {"details": details}
    sealed = [{"type": "reasoning.encrypted", "data": "x"}]
    (hidden, text) = replied({"reasoning_details": sealed}, {"content": "a"}).parts
    assert isinstance(hidden, Reasoning)
    assert (hidden.text, json.loads(hidden.opaque), text) == ("", {"details": sealed}, Text("a"))


def test_pieces_of_details_are_joined_with_the_one_they_continue() -> None:
    def text(words: str, index: int = 0, **more: Any) -> dict[str, Any]:
        return {"type": "reasoning.text", "index": index, "text": words, **more}

    joined = merge_reasoning_details(
        [text("a"), text("b", signature="s", id=""), text("c", 1), text("d", 1, id="i")]
    )
    assert joined == [text("ab", signature="s"), text("cd", 1, id="i")]
    summary: Any = {"type": "reasoning.summary", "index": 1, "summary": "x"}
    assert merge_reasoning_details([text("a", 1), summary, summary]) == [
        text("a", 1),
        {**summary, "summary": "xx"},
    ]
    encrypted: Any = {"type": "reasoning.encrypted", "index": 0, "data": "x"}
    assert merge_reasoning_details([encrypted, encrypted, "odd"]) == [encrypted, encrypted, "odd"]
    given = [text("a"), text("b")]
    merge_reasoning_details([*given])
    assert given == [text("a"), text("b")], "what came stays as it is"


def test_a_call_is_its_pieces_by_index_id_or_order() -> None:
    by_index = (
        call(0, "a", "{", "id-of-call-0"),
        call(1, "b", "{", "id-of-call-1"),
        call(0, "", "}"),
        call(1, "", "}"),
    )
    assert calls(replied(*by_index)) == [("a", "{}"), ("b", "{}")]
    by_id = (
        call(None, "a", "{", "id-of-call-0"),
        call(None, "b", "{}", "id-of-call-1"),
        call(None, "", "}", "id-of-call-0"),
    )
    assert calls(replied(*by_id)) == [("a", "{}"), ("b", "{}")]
    in_order = (call(None, "a", "{"), call(None, "", "}"), call(None, "b", "{}"))
    assert calls(replied(*in_order)) == [("a", "{}"), ("b", "{}")]
    all_zero = (
        call(0, "a", "{}", "id-of-call-0"),
        call(0, "b", "{}", "id-of-call-1"),
        call(0, "", "", "id-of-call-1"),
    )
    assert calls(replied(*all_zero)) == [("a", "{}"), ("b", "{}")]
    once_named = (
        call(0, "a", "{", "id-of-call-0"),
        call(0, "", '"x":', "another-id-1"),
        call(0, "", "1}"),
    )
    assert calls(replied(*once_named)) == [("a", '{"x":1}')]


def test_words_between_two_calls_without_names_end_the_first() -> None:
    reply = replied(call(None, "a", "{}"), {"content": "and"}, call(None, "", "{}"))
    assert calls(reply) == [("a", "{}"), ("unnamed", "{}")]


def test_arguments_that_come_as_an_object_are_its_json() -> None:
    assert calls(replied(call(0, "a", {"x": 1}))) == [("a", '{"x":1}')]
    assert calls(replied({"function_call": {"name": "old", "arguments": "{}"}})) == [("old", "{}")]
    message = {
        "content": "a",
        "tool_calls": [call(0, name, "{}")["tool_calls"][0] for name in ("a", "b")],
    }
    reader = ChatReplyReader("tag", "peer", "m")
    reader.feed_event(
        ServerSentEvent(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}))
    )
    assert calls(reader.reply_so_far()) == [("a", "{}"), ("b", "{}")], (
        "a whole message counts by position"
    )


@pytest.mark.parametrize(
    "delta",
    [
        {"tool_calls": {}},
        {"tool_calls": ["x"]},
        {"content": 5},
        {"tool_calls": [{"function": "x"}]},
    ],
)
def test_what_is_no_piece_of_a_reply_is_refused(delta: Any) -> None:
    with pytest.raises(ValueError, match=r"is no|is an object"):
        reading(delta)


def test_a_refusal_and_thinking_in_a_list_are_read() -> None:
    assert replied({"refusal": "No."}, {"refusal": " Never."}).parts == (Text("No. Never."),)
    pieces = [{"thinking": [{"text": "h"}, {"text": "m"}]}, {"thinking": "so"}, {"text": "a"}]
    assert [
        (type(part), part.text)
        for part in replied({"content": pieces}).parts
        if not isinstance(part, ToolCall)
    ] == [
        (Reasoning, "hmso"),
        (Text, "a"),
    ]


@pytest.mark.parametrize(
    ("chunk", "status"),
    [
        ({"error": {"message": "busy", "code": 503}}, True),
        ({"choices": [{"error": {"message": "busy", "code": 503}}]}, True),
        ({"choices": [{"delta": {}}, {"error": {"message": "busy", "code": 503}}]}, False),
    ],
)
def test_an_error_in_the_stream_is_one_of_the_whole_or_of_the_first_choice(
    chunk: Any, status: bool
) -> None:
    reader = ChatReplyReader("tag", "peer", "m")
    if not status:
        assert reader.feed_event(ServerSentEvent(json.dumps(chunk))) == []
        return
    with pytest.raises(ModelFailed, match="busy"):
        reader.feed_event(ServerSentEvent(json.dumps(chunk)))


def test_an_event_that_is_called_an_error_is_one_whatever_it_says() -> None:
    reader = ChatReplyReader("tag", "peer", "m")
    with pytest.raises(ModelFailed):
        reader.feed_event(ServerSentEvent('{"choices": []}', "error"))


@pytest.mark.parametrize(
    ("finish", "done", "begun", "complete"),
    [
        ("stop", False, True, True),
        ("STOP", False, True, True),
        ("error", True, True, False),
        ("network_error", False, True, False),
        (None, True, True, True),
        (None, True, False, False),
        (None, False, True, False),
    ],
)
def test_a_reply_is_whole_when_its_end_is_told_or_the_stream_ends_in_form(
    finish: str | None, done: bool, begun: bool, complete: bool
) -> None:
    reader = reading(*[{"content": "a"}] * begun, finish=finish, done=done)
    assert (reader.is_reply_complete, reader.is_stream_over) == (complete, done)
    assert (reader.reply_so_far().stop is Stop.CUT) is not complete


@pytest.mark.parametrize(
    ("finish", "stop", "why"),
    [
        ("length", Stop.LENGTH, ""),
        ("tool_calls", Stop.END, ""),
        ("something new", Stop.END, ""),
        ("content_filter", Stop.FILTERED, "peer held back the rest of the reply (content filter)."),
        ("error", Stop.CUT, "peer ended the reply with 'error'."),
        (None, Stop.END, ""),
    ],
)
def test_why_a_reply_ended_is_told(finish: str | None, stop: Stop, why: str) -> None:
    reply = replied({"content": "a"}, finish=finish)
    assert (reply.stop, reply.why) == (stop, why)
    assert reading({"content": "a"}).reply_so_far("The line was cut.").why == "The line was cut."
    assert (
        reading({"content": "a"}).reply_so_far().why == "peer ended the reply without saying why."
    )


def test_calls_make_an_end_one_with_calls() -> None:
    assert replied(call(0, "a", "{}"), finish="stop").stop is Stop.CALLS
    assert replied(call(0, "a", "{}"), finish="length").stop is Stop.LENGTH


def test_the_usage_is_the_last_that_was_told_wherever_it_stands() -> None:
    told = {"prompt_tokens": 5, "completion_tokens": 2}
    usage = Usage(input=5, output=2)
    assert replied({"content": "a"}, usage=told).usage == usage
    assert replied({"content": "a"}, x_groq={"usage": told}).usage == usage
    reader = ChatReplyReader("tag", "peer", "m")
    reader.feed_event(
        ServerSentEvent(json.dumps({"choices": [{"delta": {"content": "a"}, "usage": told}]}))
    )
    reader.feed_event(
        ServerSentEvent(json.dumps({"choices": [{"delta": {"content": "b"}, "usage": None}]}))
    )
    assert reader.reply_so_far().usage == usage
    reader.feed_event(
        ServerSentEvent(json.dumps({"choices": [], "usage": {**told, "completion_tokens": 3}}))
    )
    assert reader.reply_so_far().usage.output == 3


@pytest.mark.parametrize("streamed", [{"content": "a"}, call(0, "a", "{}"), {"reasoning": "hm"}])
def test_a_whole_message_behind_the_pieces_adds_only_what_was_missing(
    streamed: dict[str, Any],
) -> None:
    reader = reading(streamed)
    message = {"content": "a", "reasoning": "hm", **call(0, "a", "{}")}
    reader.feed_event(
        ServerSentEvent(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}))
    )
    parts = reader.reply_so_far().parts
    assert sum(isinstance(part, ToolCall) for part in parts) == 1
    assert [part.text for part in parts if isinstance(part, Text)] == ["a"]
    assert [part.text for part in parts if isinstance(part, Reasoning)] == (
        ["hm"] if "reasoning" in streamed else []
    )


def test_a_piece_beside_the_whole_message_so_far_is_not_lost() -> None:
    reader = ChatReplyReader("tag", "peer", "m")
    for so_far, piece in (("", "On"), ("On", "e a"), ("One a", "nd two")):
        choice = {
            "delta": {"content": piece},
            "message": {"role": "assistant", "content": so_far + piece},
        }
        reader.feed_event(ServerSentEvent(json.dumps({"choices": [choice]})))
    reader.feed_event(
        ServerSentEvent(json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
    )
    assert reader.reply_so_far().parts == (Text("One and two"),)
