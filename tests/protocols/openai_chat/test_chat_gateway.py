"""What a client of OpenAI's chat completions sees of a stream when some of its calls are not for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helix_desktop.protocols.event_stream import parse_event_data
from helix_desktop.protocols.gateway_message import Json
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.protocols.openai_chat.chat_gateway import ChatCallFilter
from tests.protocols.streams import DONE, put_together, through

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
    veil.count_and_reset_reply(10)
    assert given(veil, {"role": "assistant"}) == []
    (chunk,) = given(veil, {"role": "assistant", "content": "well"}, id="two")
    assert chunk["choices"][0]["delta"] == {"content": "well"}
    assert chunk["id"] == "one", "one message has one id"
    (chunk,) = given(veil, {"tool_calls": [call(0, OWN)]})
    assert chunk["choices"][0]["delta"]["tool_calls"][0]["index"] == 0


def chunk(finish: str | None = None, id_: str = "one", **delta: Any) -> Any:
    return {"id": id_, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def used(output: int, **more: Any) -> Any:
    usage = {"prompt_tokens": 5, "completion_tokens": output, "total_tokens": 5 + output}
    return {"id": "one", "choices": [], "usage": usage, **more}


THOUGHT, WORDS, END = chunk(reasoning_content="hm"), chunk(content="a"), chunk("tool_calls")
RECALL, RUN = call(0, HIDDEN), call(0, OWN)


def test_a_reply_is_put_together_of_its_pieces() -> None:
    reading = chat_gateway.ReplyAssembler()
    pieces = [
        {**chunk(role="assistant", content="", refusal=None), "object": "chat.completion.chunk", "model": "m"},
        chunk(reasoning="h"),
        chunk(reasoning="m", content="a", annotations=[1], audio={"id": "x"}),
        chunk(content="b", annotations=[2], role="user"),
        chunk(tool_calls=[call(1, OWN, "{"), call(0, "look", "[")]),
        chunk(tool_calls=[{"index": 1, "id": "", "function": {"arguments": "}", "name": None}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": "]"}}]),
        {"choices": [{"index": 1, "delta": {"content": "another choice"}, "finish_reason": "stop"}]},
    ]
    put_together(reading, pieces)
    assert not reading.is_done
    value = put_together(reading, [END, {**used(3), "id": None, "system_fingerprint": None}])
    assert reading.is_done
    message = {"role": "user", "content": "ab", "reasoning": "hm", "annotations": [1, 2], "audio": {"id": "x"}}
    calls = [
        {"id": "c0", "type": "function", "function": {"name": "look", "arguments": "[]"}},
        {"id": "c1", "type": "function", "function": {"name": OWN, "arguments": "{}"}},
    ]
    assert value == {
        "id": "one",
        "model": "m",
        "choices": [{"index": 0, "message": {**message, "tool_calls": calls}, "finish_reason": "tool_calls"}],
        "usage": used(3)["usage"],
    }
    assert chat_gateway.ReplyAssembler().whole_reply()["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
    }


def test_a_whole_reply_keeps_an_empty_content_and_drops_other_empty_fields() -> None:
    found = chat_gateway.parse_reply({"choices": [{"message": {"content": None, "refusal": None, "audio": 1}}]})
    assert found.message.units == ({"role": "assistant", "content": None, "audio": 1},)


@pytest.mark.parametrize(
    ("hold", "events", "seen"),
    [
        (False, [THOUGHT, WORDS, chunk(tool_calls=[RUN]), END, used(3), DONE], [[0], [1], [2], [3], [4], [5]]),
        (True, [THOUGHT, WORDS, chunk("stop")], [[], [0, 1], [2]]),
        (True, [chunk(reasoning_content="hm", content="a"), chunk(reasoning_content="hm", tool_calls=[RUN])], [[0], [1]]),
        (True, [THOUGHT, chunk(tool_calls=[RUN]), THOUGHT, END], [[], [0, 1], [], [2, 3]]),
        (True, [THOUGHT, chunk("stop")], [[], [0, 1]]),
        (True, [THOUGHT, chunk(role="assistant"), WORDS], [[], [1], [0, 2]]),
        (True, [THOUGHT, chunk(tool_calls=[RECALL]), END, used(3), DONE], [[], [], [], [], []]),
        (True, [THOUGHT, chunk(tool_calls=[RECALL], content="a"), END], [[], [0, chunk(content="a")], []]),
        (
            False,
            [chunk(tool_calls=[RECALL, call(1, OWN)]), END, used(3), DONE],
            [[chunk(tool_calls=[{**call(1, OWN), "index": 0}])], [1], [used(3)], [3]],
        ),
        (False, [chunk(tool_calls=[RUN, call(1, HIDDEN)]), chunk("stop", content="a")], [[chunk(tool_calls=[RUN])], [1]]),
        (False, [{**chunk(), "usage": None}, {**WORDS, **used(3, choices=WORDS["choices"])}], [[], [1]]),
        (False, [chunk(tool_calls=[RECALL]), chunk("stop", content="a"), used(3)], [[], [{**WORDS, "usage": None}], []]),
        (False, [chunk(tool_calls=[RECALL]), {**WORDS, **used(3, choices=WORDS["choices"])}], [[], [{**WORDS, "usage": None}]]),
        (
            False,
            [{**chunk("tool_calls", content="a", tool_calls=[RECALL]), "usage": used(3)["usage"]}],
            [[{**WORDS, "usage": None}]],
        ),
        (False, [chunk("tool_calls", content="", tool_calls=[RECALL], role="assistant")], [[]]),
    ],
)  # fmt: skip
def test_the_client_sees_a_stream_without_the_hidden_calls(hold: bool, events: list[Any], seen: Any) -> None:
    assert through(ChatCallFilter(hold=hold), events) == seen


@pytest.mark.parametrize(
    ("first", "second", "seen"),
    [
        (
            [WORDS, chunk(tool_calls=[RECALL]), END],
            [THOUGHT, chunk(content="b"), chunk("stop"), used(3, id="two"), DONE],
            [[], [chunk(content="b")], [chunk("stop")], [used(13)], [4]],
        ),
        (
            [chunk(tool_calls=[RECALL]), END],
            [THOUGHT, chunk(id_="two", tool_calls=[RUN]), chunk("stop", id_="two"), {"id": "two", "choices": []}],
            [[], [0, chunk(tool_calls=[RUN])], [chunk("stop")], [3]],
        ),
    ],
)
def test_the_reply_after_a_hidden_call_goes_on_with_the_first(first: Any, second: Any, seen: Any) -> None:
    veil = ChatCallFilter(hold=True)
    through(veil, first)
    assert veil.has_only_hidden_calls
    veil.count_and_reset_reply(10)
    assert through(veil, second) == seen


def test_the_thoughts_of_the_next_reply_are_shown_at_once_where_nothing_came_before() -> None:
    veil = ChatCallFilter(hold=False)
    through(veil, [chunk(tool_calls=[RECALL]), END])
    veil.count_and_reset_reply(10)
    assert through(veil, [{**THOUGHT, "id": "two"}, WORDS, THOUGHT]) == [[THOUGHT], [WORDS], []]


def test_whole_replies_become_one_with_all_their_words_and_output() -> None:
    def whole(id_: str, output: int, **message: Any) -> dict[str, Any]:
        return {**used(output, id=id_), "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    merge = ChatCallFilter(hold=True).merge_whole_replies
    first = whole("one", 3, content="a", tool_calls=[RECALL])
    assert merge([first, whole("two", 4, content="b", tool_calls=[RUN, RECALL])]) == whole(
        "one", 7, content="ab", tool_calls=[RUN]
    )
    assert merge([first, first, whole("two", 4, content=None)]) == whole("one", 10, content="aa")
    assert merge([whole("one", 3, content=None, tool_calls=[RECALL])]) == whole("one", 3, content=None)


@pytest.mark.parametrize(("cost", "read"), [(0.5, 0.5), (2, 2.0), (0, 0.0), (-1, 0.0), ("1", 0.0)])
def test_a_cost_is_a_number_above_nothing(cost: Any, read: float) -> None:
    assert chat_gateway.parse_usage({"cost": cost}).cost == read
