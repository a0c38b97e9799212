"""What a client of OpenAI's chat completions sees of a stream when some of its calls
are not for it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.protocols.event_stream import parse_event_data
from helix_desktop.protocols.gateway_message import (
    Json,
    Piece,
    PieceEdit,
    PieceKind,
    Speaker,
    WireReply,
)
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.protocols.openai_chat.chat_gateway import ChatCallFilter
from helix_desktop.protocols.protocol_table import with_messages
from tests.protocols.streams import DONE, put_together, through

HIDDEN = "recall_cached_content"
OWN = "Bash"


def call(index: int, name: str = "", arguments: str = "") -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "id": f"c{index}", "type": "function", "function": function}


def given(
    veil: ChatCallFilter, delta: dict[str, Any], finish: str | None = None, **more: Json
) -> list[dict[str, Any]]:
    """The chunks the client gets for one chunk of the provider."""
    value = {
        "id": "one",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }
    raw = b"data: " + json.dumps(value).encode() + b"\n\n"
    out = veil.filter_event(raw, value)
    return [parse_event_data(part + b"\n\n") for part in out.split(b"\n\n") if part]  # type: ignore[misc]


def test_a_chunk_with_several_calls_keeps_the_clients_and_numbers_them_from_the_start() -> None:
    veil = ChatCallFilter(hold=False)
    (chunk,) = given(veil, {"role": "assistant", "tool_calls": [call(0, HIDDEN), call(1, OWN)]})
    assert chunk["choices"][0]["delta"] == {
        "role": "assistant",
        "tool_calls": [{**call(1, OWN), "index": 0}],
    }
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
    veil.continue_in_next_reply(10)
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


THOUGHT = chunk(reasoning_content="hm")
WORDS = chunk(content="a")
END = chunk("tool_calls")
RECALL = call(0, HIDDEN)
RUN = call(0, OWN)


def test_a_reply_is_put_together_of_its_pieces() -> None:
    reading = chat_gateway.ReplyAssembler()
    pieces = [
        {
            **chunk(role="assistant", content="", refusal=None),
            "object": "chat.completion.chunk",
            "model": "m",
        },
        chunk(reasoning="h"),
        chunk(reasoning="m", content="a", annotations=[1], audio={"id": "x"}),
        chunk(content="b", annotations=[2], role="user"),
        chunk(tool_calls=[call(1, OWN, "{"), call(0, "look", "[")]),
        chunk(tool_calls=[{"index": 1, "id": "", "function": {"arguments": "}", "name": None}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": "]"}}]),
        {
            "choices": [
                {"index": 1, "delta": {"content": "another choice"}, "finish_reason": "stop"}
            ]
        },
    ]
    put_together(reading, pieces)
    assert not reading.is_done
    value = put_together(reading, [END, {**used(3), "id": None, "system_fingerprint": None}])
    assert reading.is_done
    message = {
        "role": "user",
        "content": "ab",
        "reasoning": "hm",
        "annotations": [1, 2],
        "audio": {"id": "x"},
    }
    calls = [
        {"id": "c0", "type": "function", "function": {"name": "look", "arguments": "[]"}},
        {"id": "c1", "type": "function", "function": {"name": OWN, "arguments": "{}"}},
    ]
    assert value == {
        "id": "one",
        "model": "m",
        "choices": [
            {"index": 0, "message": {**message, "tool_calls": calls}, "finish_reason": "tool_calls"}
        ],
        "usage": used(3)["usage"],
    }
    assert chat_gateway.ReplyAssembler().whole_reply()["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
    }


def test_a_call_of_a_custom_tool_is_put_together_of_its_pieces() -> None:
    reading = chat_gateway.ReplyAssembler()
    begun = {"index": 0, "id": "c0", "type": "custom", "custom": {"name": "patch", "input": "+o"}}
    more = {"index": 0, "custom": {"input": "ne"}}
    value = put_together(reading, [chunk(tool_calls=[begun]), chunk(tool_calls=[more]), END])
    (made,) = value["choices"][0]["message"]["tool_calls"]
    assert made == {"id": "c0", "type": "custom", "custom": {"name": "patch", "input": "+one"}}
    assert chat_gateway.parse_reply(value).message.pieces == (
        Piece(CALL, "+one", (0, "tool_calls", 0), "c0", "patch", media_type="custom"),
    )


def test_a_whole_reply_keeps_an_empty_content_and_drops_other_empty_fields() -> None:
    found = chat_gateway.parse_reply(
        {"choices": [{"message": {"content": None, "refusal": None, "audio": 1}}]}
    )
    assert found.message.units == ({"role": "assistant", "content": None, "audio": 1},)


def shown_at_once(*events: Any) -> Any:
    """What a client sees at each event: the number of one that is passed on as it came, or another
    one in its place.
    """
    return through(ChatCallFilter(hold=False), list(events))


def shown_while_held(*events: Any) -> Any:
    """The same, where thoughts are held until it is known that the reply shows something."""
    return through(ChatCallFilter(hold=True), list(events))


def with_usage(event: Any) -> Any:
    """An event that says what the reply took, as some servers say it in the last one."""
    return {**event, "usage": used(3)["usage"]}


WITH_RECALL = chunk(tool_calls=[RECALL])
WITH_RUN = chunk(tool_calls=[RUN])
# The usage of a reply that goes on is said with the last one.
WORDS_BEFORE_USAGE = {**WORDS, "usage": None}


def test_without_a_hidden_call_every_event_is_passed_on_as_it_came() -> None:
    seen = shown_at_once(THOUGHT, WORDS, WITH_RUN, END, used(3), DONE)
    assert seen == [[0], [1], [2], [3], [4], [5]]


def test_held_thoughts_come_with_the_first_words_or_call_or_else_at_the_end() -> None:
    assert shown_while_held(THOUGHT, WORDS, chunk("stop")) == [[], [0, 1], [2]]
    assert shown_while_held(THOUGHT, WITH_RUN, THOUGHT, END) == [[], [0, 1], [], [2, 3]]
    assert shown_while_held(THOUGHT, chunk("stop")) == [[], [0, 1]]


def test_an_event_with_words_or_a_call_of_its_own_holds_nothing() -> None:
    with_words = chunk(reasoning_content="hm", content="a")
    with_call = chunk(reasoning_content="hm", tool_calls=[RUN])
    assert shown_while_held(with_words, with_call) == [[0], [1]]


def test_who_speaks_is_passed_on_while_thoughts_are_held() -> None:
    assert shown_while_held(THOUGHT, chunk(role="assistant"), WORDS) == [[], [1], [0, 2]]


def test_of_a_reply_with_nothing_but_a_hidden_call_nothing_is_shown() -> None:
    seen = shown_while_held(THOUGHT, WITH_RECALL, END, used(3), DONE)
    assert seen == [[], [], [], [], []]
    in_one_event = chunk("tool_calls", content="", tool_calls=[RECALL], role="assistant")
    assert shown_at_once(in_one_event) == [[]]


def test_words_beside_a_hidden_call_are_shown_with_the_thoughts_before_them() -> None:
    seen = shown_while_held(THOUGHT, chunk(tool_calls=[RECALL], content="a"), END)
    assert seen == [[], [0, WORDS], []]


def test_a_call_beside_a_hidden_one_is_shown_as_the_first_and_the_reply_ends() -> None:
    seen = shown_at_once(chunk(tool_calls=[RECALL, call(1, OWN)]), END, used(3), DONE)
    renumbered = chunk(tool_calls=[{**call(1, OWN), "index": 0}])
    assert seen == [[renumbered], [1], [used(3)], [3]]
    after_it = shown_at_once(chunk(tool_calls=[RUN, call(1, HIDDEN)]), chunk("stop", content="a"))
    assert after_it == [[WITH_RUN], [1]]


def test_an_event_that_says_nothing_is_not_sent() -> None:
    empty = {**chunk(), "usage": None}
    words_with_usage = with_usage(WORDS)
    assert shown_at_once(empty, words_with_usage) == [[], [1]]


def test_words_after_a_hidden_call_neither_end_the_reply_nor_say_what_it_took() -> None:
    end_comes_with_words = shown_at_once(WITH_RECALL, chunk("stop", content="a"), used(3))
    assert end_comes_with_words == [[], [WORDS_BEFORE_USAGE], []]
    usage_comes_with_words = shown_at_once(WITH_RECALL, with_usage(WORDS))
    assert usage_comes_with_words == [[], [WORDS_BEFORE_USAGE]]
    all_in_one = with_usage(chunk("tool_calls", content="a", tool_calls=[RECALL]))
    assert shown_at_once(all_in_one) == [[WORDS_BEFORE_USAGE]]


def continued(first: list[Any], second: list[Any]) -> Any:
    """What a client sees of the second reply, after one with a hidden call of 10 tokens."""
    call_filter = ChatCallFilter(hold=True)
    through(call_filter, first)
    assert call_filter.has_only_hidden_calls
    call_filter.continue_in_next_reply(10)
    return through(call_filter, second)


def test_the_reply_after_a_hidden_call_goes_on_with_the_first_and_has_the_output_of_both() -> None:
    more = chunk(content="b")
    second = [THOUGHT, more, chunk("stop"), used(3, id="two"), DONE]
    seen = continued([WORDS, WITH_RECALL, END], second)
    assert seen == [[], [more], [chunk("stop")], [used(13)], [4]]


def test_a_call_of_the_second_reply_is_shown_with_its_thoughts_under_the_first_ones_id() -> None:
    run_of_second = chunk(id_="two", tool_calls=[RUN])
    empty = {"id": "two", "choices": []}
    second = [THOUGHT, run_of_second, chunk("stop", id_="two"), empty]
    seen = continued([WITH_RECALL, END], second)
    assert seen == [[], [0, WITH_RUN], [chunk("stop")], [3]]


def test_the_thoughts_of_the_next_reply_are_shown_at_once_where_nothing_came_before() -> None:
    veil = ChatCallFilter(hold=False)
    through(veil, [chunk(tool_calls=[RECALL]), END])
    veil.continue_in_next_reply(10)
    assert through(veil, [{**THOUGHT, "id": "two"}, WORDS, THOUGHT]) == [[THOUGHT], [WORDS], []]


def test_whole_replies_become_one_with_all_their_words_and_output() -> None:
    def whole(id_: str, output: int, **message: Any) -> dict[str, Any]:
        return {
            **used(output, id=id_),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }

    merge = ChatCallFilter(hold=True).merge_whole_replies
    first = whole("one", 3, content="a", tool_calls=[RECALL])
    assert merge([first, whole("two", 4, content="b", tool_calls=[RUN, RECALL])]) == whole(
        "one", 7, content="ab", tool_calls=[RUN]
    )
    assert merge([first, first, whole("two", 4, content=None)]) == whole("one", 10, content="aa")
    assert merge([whole("one", 3, content=None, tool_calls=[RECALL])]) == whole(
        "one", 3, content=None
    )


@pytest.mark.parametrize(("cost", "read"), [(0.5, 0.5), (2, 2.0), (0, 0.0), (-1, 0.0), ("1", 0.0)])
def test_a_cost_is_a_number_above_nothing(cost: Any, read: float) -> None:
    assert chat_gateway.parse_usage({"cost": cost}).cost == read


TEXT = PieceKind.TEXT
CALL = PieceKind.CALL
RESULT = PieceKind.RESULT
REASONING = PieceKind.REASONING
IMAGE = PieceKind.IMAGE
OTHER = PieceKind.OTHER
PNG = "data:image/png;base64,AAAA"


def pieces_of(unit: Any) -> list[Piece]:
    return list(chat_gateway.parse_message(unit).pieces)


@pytest.mark.parametrize(
    ("role", "speaker"),
    [
        ("user", Speaker.USER),
        ("assistant", Speaker.ASSISTANT),
        ("system", Speaker.SYSTEM),
        ("developer", Speaker.SYSTEM),
        ("tool", Speaker.USER),
        ("function", Speaker.USER),
    ],
)
def test_who_speaks(role: str, speaker: Speaker) -> None:
    assert chat_gateway.parse_message({"role": role, "content": "x"}).speaker is speaker


def test_reasoning_words_and_calls_of_a_message_are_pieces_that_know_their_place() -> None:
    unit = {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "hm",
        "tool_calls": [call(0, OWN, "{}"), RUN],
    }
    assert pieces_of(unit) == [
        Piece(REASONING, "hm", (0, "reasoning_content")),
        Piece(TEXT, "a", (0, "content")),
        Piece(CALL, "{}", (0, "tool_calls", 0), "c0", "Bash", media_type="function"),
        Piece(
            CALL,
            RUN["function"]["arguments"],
            (0, "tool_calls", 1),
            RUN["id"],
            "Bash",
            media_type="function",
        ),
    ]
    assert pieces_of({"role": "assistant", "reasoning": "hm"}) == [
        Piece(REASONING, "hm", (0, "reasoning"))
    ]
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "input_audio"},
        {"type": "smell"},
    ]
    assert pieces_of({"role": "user", "content": parts}) == [
        Piece(TEXT, "a", (0, "content", 0)),
        Piece(IMAGE, "AAAA", (0, "content", 1), media_type="image/png"),
        Piece(OTHER, '{"type":"input_audio"}', (0, "content", 2)),
        Piece(OTHER, '{"type":"smell"}', (0, "content", 3), outlives_folds=True),
    ]
    result = Piece(RESULT, "out", (0,), "1")
    assert pieces_of({"role": "tool", "tool_call_id": "1", "name": "2", "content": "out"}) == [
        result
    ]
    assert pieces_of(
        {"role": "function", "name": "1", "content": [{"type": "text", "text": "out"}]}
    ) == [result]


def test_the_head_of_a_request_is_its_model_system_prompt_and_tools() -> None:
    mine = ToolSpec("run", "runs", '{"type":"object","properties":{"a":{"type":"string"}}}')
    said = [{"role": role, "content": role} for role in ("system", "user", "developer")]
    theirs = {"type": "function", "function": {"name": "theirs"}}
    body = chat_gateway.with_added_tools(
        {"model": "m", "messages": said, "tools": [theirs]},
        chat_gateway.tools_as_json([mine]),
    )
    head = chat_gateway.parse_head(body)
    assert (head.model, head.system, head.effort) == ("m", "system\n\ndeveloper", "")
    assert head.tools == (mine, ToolSpec("theirs", "", "{}"))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"reasoning_effort": "high"}, '"high"'),
        ({"reasoning": {"effort": "low"}}, '"low"'),
        ({}, ""),
    ],
)
def test_how_long_the_model_is_to_think_is_read(body: dict[str, Any], told: str) -> None:
    assert chat_gateway.parse_head(body).effort == told


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", Stop.END),
        ("eos", Stop.END),
        ("tool_calls", Stop.CALLS),
        ("function_call", Stop.CALLS),
        ("length", Stop.LENGTH),
        ("content_filter", Stop.FILTERED),
        ("", Stop.CUT),
        (None, Stop.CUT),
    ],
)
def test_why_a_reply_ended(reason: str | None, stop: Stop) -> None:
    message = {"role": "assistant", "content": "a"}
    other = {"message": {"content": "other"}, "finish_reason": "stop"}
    value = used(3, choices=[{"message": message, "finish_reason": reason}, other], model="m")
    assert chat_gateway.parse_reply(value) == WireReply(
        chat_gateway.parse_message(message), stop, chat_gateway.parse_usage(used(3)["usage"]), "m"
    )


def test_what_a_reply_cost_is_read_under_the_names_of_several_providers() -> None:
    told: dict[str, Any] = {
        "prompt_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5},
        "prompt_cache_hit_tokens": 30,
        "completion_tokens": 4,
        "completion_tokens_details": {"reasoning_tokens": 3},
        "cost": 0.5,
    }
    assert chat_gateway.parse_usage(told) == Usage(100, 30, 5, 4, 3, 0.5)
    assert chat_gateway.parse_usage({**told, "cached_tokens": 40}).cache_read == 40
    del told["prompt_cache_hit_tokens"]
    assert chat_gateway.parse_usage(told).cache_read == 20
    assert chat_gateway.parse_usage({}) == Usage()


def test_what_the_gateway_adds_is_written_as_the_protocol_says_and_put_back_as_it_was_read() -> (
    None
):
    words = {"role": "user", "content": "go on"}
    result = {"role": "tool", "tool_call_id": "c1", "content": "out"}
    assert chat_gateway.user_message("go on") == words
    assert chat_gateway.result_message("c1", "run", "out") == result
    assert chat_gateway.result_message("c1", "run", "out", ok=False) == result
    body = {"model": "m", "messages": [words, result, words, words]}
    read = chat_gateway.parse_messages(body)
    assert [message.units for message in read] == [(unit,) for unit in body["messages"]]
    for known in range(len(read) + 1):
        assert chat_gateway.parse_messages(body, read[:known]) == read
    assert (
        with_messages(
            chat_gateway.NAME, {"model": "m"}, [unit for one in read for unit in one.units]
        )
        == body
    )
    assert chat_gateway.merge_added_messages([(words, False), (words, True), (result, True)]) == [
        words,
        words,
        result,
    ]


def test_results_calls_and_words_are_changed_where_they_stand() -> None:
    def changed(unit: dict[str, Any], text: str, at: int = 0) -> Any:
        (found,) = chat_gateway.apply_edits(chat_gateway.parse_message(unit), [PieceEdit(at, text)])
        return found

    result = {"role": "tool", "tool_call_id": "1", "content": "long"}
    assert changed(result, "s") == {**result, "content": "s"}
    calls = {
        "role": "assistant",
        "content": None,
        "tool_calls": [call(0, OWN, "{}"), call(1, OWN, "{}")],
    }
    assert changed(calls, "[]", 1) == {
        **calls,
        "tool_calls": [call(0, OWN, "{}"), call(1, OWN, "[]")],
    }
    assert changed({"role": "user", "content": "a"}, "b") == {"role": "user", "content": "b"}
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "c"}]
    assert changed({"role": "user", "content": parts}, "b") == {
        "role": "user",
        "content": [{"type": "text", "text": "b"}, parts[1]],
    }
    thought = {"role": "assistant", "reasoning": "hm", "content": "a"}
    assert changed(thought, "so") == {**thought, "reasoning": "so"}
