"""What a client of OpenAI's chat completions sees of a stream when some of its calls are not for it."""

from __future__ import annotations

import json
from typing import Any

from helix_desktop.protocols.event_stream import parse_event_data
from helix_desktop.protocols.openai_chat.chat_wire import ChatCallFilter
from helix_desktop.protocols.wire_message import Json

HIDDEN, OWN = "recall_cached_content", "Bash"


def call(index: int, name: str = "", arguments: str = "") -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "id": f"c{index}", "type": "function", "function": function}


def given(veil: ChatCallFilter, delta: dict[str, Any], finish: str | None = None, **more: Json) -> list[dict[str, Any]]:
    """The chunks the client gets for one chunk of the provider."""
    value = {"id": "one", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
    raw = b"data: " + json.dumps(value).encode() + b"\n\n"
    out = veil.filter_event(raw, value)
    return [parse_event_data(part + b"\n\n") for part in out.split(b"\n\n") if part]  # type: ignore[misc]


def test_a_chunk_with_several_calls_keeps_the_clients_and_numbers_them_from_the_start() -> None:
    veil = ChatCallFilter(hold=False)
    (chunk,) = given(veil, {"role": "assistant", "tool_calls": [call(0, HIDDEN), call(1, OWN)]})
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "tool_calls": [{**call(1, OWN), "index": 0}]}
    (more,) = given(veil, {"tool_calls": [call(1, "", '{"command": "ls"}')]})
    assert more["choices"][0]["delta"]["tool_calls"][0]["index"] == 0
    assert given(veil, {"tool_calls": [call(0, "", "{}")]}) == [], "more of the hidden one"
    (end,) = given(veil, {}, "tool_calls")
    assert end["choices"][0]["finish_reason"] == "tool_calls"


def test_a_chunk_of_a_hidden_call_alone_is_not_sent_and_its_words_are() -> None:
    veil = ChatCallFilter(hold=False)
    assert given(veil, {"content": None, "tool_calls": [call(0, HIDDEN)]}) == []
    assert given(veil, {"content": "", "tool_calls": [call(0, "", "{}")]}) == []
    veil = ChatCallFilter(hold=False)
    (chunk,) = given(veil, {"content": "I look", "tool_calls": [call(0, HIDDEN)]})
    assert chunk["choices"][0]["delta"] == {"content": "I look"}


def test_an_untouched_chunk_is_the_bytes_that_came_and_a_second_reply_says_no_role() -> None:
    veil = ChatCallFilter(hold=False)
    raw = b'data: {"id":  "one", "choices": [{"delta": {"role": "assistant", "content": "a"}}]}\n\n'
    assert veil.filter_event(raw, parse_event_data(raw)) == raw
    given(veil, {"tool_calls": [call(0, HIDDEN, "{}")]})
    given(veil, {}, "tool_calls")
    veil.begin_next_reply(10)
    assert given(veil, {"role": "assistant"}) == []
    (chunk,) = given(veil, {"role": "assistant", "content": "well"}, id="two")
    assert chunk["choices"][0]["delta"] == {"content": "well"}
    assert chunk["id"] == "one", "one message has one id"
    (chunk,) = given(veil, {"tool_calls": [call(0, OWN)]})
    assert chunk["choices"][0]["delta"]["tool_calls"][0]["index"] == 0
