"""Anthropic's Messages as the gateway reads and rewrites them: blocks, marks of the
cache, and the events of a stream.
"""

from __future__ import annotations

from typing import Any

import pytest

from helix_desktop.engine.context_usage import compute_cost
from helix_desktop.engine.facts import ModelRole, ModelSet, Stop, ToolSpec, Usage
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.anthropic.anthropic_gateway import AnthropicCallFilter
from helix_desktop.protocols.gateway_message import Piece, PieceEdit, PieceKind, Speaker, WireReply
from helix_desktop.protocols.protocol_table import with_messages
from tests.protocols.streams import DONE, put_together, through


def read(*events: dict[str, Any]) -> dict[str, Any]:
    return put_together(anthropic_gateway.ReplyAssembler(), events)


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": more}


def test_blocks_stand_in_the_order_of_their_numbers_with_all_their_pieces() -> None:
    begin = {
        "type": "message_start",
        "message": {"id": "m1", "usage": {"input_tokens": 5, "output_tokens": 1}},
    }
    told = {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"output_tokens": 9, "x": None},
    }
    value = read(
        begin,
        start(1, type="text", text=""),
        start(0, type="thinking", thinking=""),
        delta(0, type="thinking_delta", thinking="let me "),
        delta(0, type="thinking_delta", thinking="see"),
        delta(0, type="signature_delta", signature="sig"),
        delta(1, type="text_delta", text="here "),
        delta(1, type="text_delta", text="it is"),
        delta(1, type="citations_delta", citation={"n": 1}),
        delta(1, type="citations_delta", citation={"n": 2}),
        delta(4, type="text_delta", text="a block whose beginning was lost"),
        told,
    )
    assert value["content"] == [
        {"type": "thinking", "thinking": "let me see", "signature": "sig"},
        {"type": "text", "text": "here it is", "citations": [{"n": 1}, {"n": 2}]},
        {"type": "text", "text": "a block whose beginning was lost"},
    ]
    assert (value["id"], value["stop_reason"]) == ("m1", "tool_use")
    assert value["usage"] == {"input_tokens": 5, "output_tokens": 9}


def test_the_arguments_of_a_call_are_those_written_and_none_where_they_broke_off() -> None:
    begin = start(0, type="tool_use", id="t1", name="Bash", input={})
    whole = read(begin, delta(0, partial_json='{"command": '), delta(0, partial_json='"ls"}'))
    assert whole["content"] == [
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    ]
    assert read(begin, delta(0, partial_json='{"comm'))["content"][0]["input"] == {}
    assert read(start(0, type="tool_use", input={"a": 1}))["content"][0]["input"] == {"a": 1}


def test_a_reply_is_complete_with_its_last_event_alone() -> None:
    reading = anthropic_gateway.ReplyAssembler()
    reading.add_reply_event({"type": "message_start", "message": {}})
    assert not reading.is_done
    reading.add_reply_event({"type": "message_stop"})
    assert reading.is_done


BEGIN: Any = {
    "type": "message_start",
    "message": {"id": "m1", "usage": {"input_tokens": 5, "output_tokens": 1}},
}
STOP: Any = {"type": "message_stop"}
THOUGHT: Any = {"type": "thinking", "thinking": "hm"}
WORDS: Any = {"type": "text", "text": "a"}
HIDDEN: Any = {"type": "tool_use", "id": "t1", "name": "recall_history", "input": {}}
OWN: Any = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {}}


def block(index: int, value: Any) -> list[Any]:
    return [start(index, **value), {"type": "content_block_stop", "index": index}]


def told(output: int) -> Any:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"output_tokens": output},
    }


@pytest.mark.parametrize(
    ("hold", "events", "given"),
    [
        (
            False,
            [
                BEGIN,
                DONE,
                {"type": "ping"},
                *block(0, THOUGHT),
                *block(1, OWN),
                told(3),
                STOP,
                {"type": "error"},
                {},
            ],
            [[at] for at in range(11)],
        ),
        (
            True,
            [BEGIN, *block(0, THOUGHT), *block(1, WORDS), told(3)],
            [[0], [], [], [1, 2, 3], [4], [5]],
        ),
        (True, [*block(0, THOUGHT), {"type": "ping"}, told(3)], [[], [], [2], [0, 1, 3]]),
        (True, [*block(0, {"type": "redacted_thinking"}), told(3), STOP], [[], [], [0, 1, 2], [3]]),
        (
            True,
            [BEGIN, *block(0, THOUGHT), *block(1, HIDDEN), told(3), STOP],
            [[0], [], [], [], [], [], []],
        ),
        (
            True,
            [*block(0, THOUGHT), *block(1, HIDDEN), *block(2, OWN), told(3), STOP],
            [[], [], [], [], *([event] for event in block(0, OWN)), [told(3)], [7]],
        ),
        (
            False,
            [*block(0, OWN), *block(1, HIDDEN), *block(2, WORDS), told(3)],
            [[0], [1], [], [], *([event] for event in block(1, WORDS)), [told(3)]],
        ),
    ],
)
def test_the_client_sees_a_stream_without_the_hidden_calls(
    hold: bool, events: list[Any], given: Any
) -> None:
    assert through(AnthropicCallFilter(hold=hold), events) == given


def test_the_reply_after_a_hidden_call_goes_on_with_the_first() -> None:
    veil = AnthropicCallFilter(hold=True)
    first = [BEGIN] + block(0, WORDS) + block(1, HIDDEN) + [told(10), STOP]
    assert through(veil, first) == [
        [0],
        [1],
        [2],
        [],
        [],
        [],
        [],
    ]
    veil.continue_in_next_reply(10)
    second = [BEGIN] + block(0, THOUGHT) + block(1, WORDS) + [told(3), STOP]
    assert through(veil, second) == [[], [], [], [3], [4], [told(13)], [6]]
    veil.continue_in_next_reply(3)
    given = [[event] for event in block(2, OWN)]
    third = [BEGIN] + block(0, OWN) + [told(2), STOP]
    assert through(veil, third) == [[]] + given + [[told(15)], [4]]


def test_whole_replies_become_one_with_the_last_thoughts_and_all_the_output() -> None:
    def whole(*content: Any, id_: str = "m1", output: int = 3) -> dict[str, Any]:
        return {
            "id": id_,
            "content": list(content),
            "usage": {"input_tokens": 5, "output_tokens": output},
        }

    odd = {"type": "server_tool_use", "name": "recall_history"}
    merge = AnthropicCallFilter(hold=True).merge_whole_replies
    first = whole(THOUGHT, HIDDEN, odd)
    assert merge([first, whole(THOUGHT, OWN, id_="m2")]) == whole(odd, OWN, output=6)
    assert merge([whole(THOUGHT, HIDDEN), whole(THOUGHT, OWN, id_="m2")]) == whole(
        THOUGHT, OWN, output=6
    )
    assert merge([whole(WORDS, THOUGHT, HIDDEN)]) == whole(WORDS, THOUGHT)


def test_marks_are_taken_off_and_set_without_touching_what_has_none() -> None:
    bare = {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    assert anthropic_gateway.without_cache_marks(bare) is bare
    words = {"role": "user", "content": "a"}
    assert anthropic_gateway.without_cache_marks(words) is words
    mark = {"type": "ephemeral"}
    empty = {"role": "user", "content": []}
    assert anthropic_gateway.with_cache_mark(empty, mark) is empty
    marked = {"type": "text", "text": "a", "cache_control": mark}
    assert anthropic_gateway.with_cache_mark(words, mark) == {"role": "user", "content": [marked]}
    assert anthropic_gateway.with_cache_mark(bare, mark)["content"] == [
        bare["content"][0],
        {**marked, "text": "b"},
    ]


def test_the_users_words_and_an_added_result_are_one_message() -> None:
    words = {"role": "user", "content": "a"}
    result = anthropic_gateway.result_message("t1", "Bash", "out")
    said_first = {"type": "text", "text": "a"}
    assert anthropic_gateway.merge_added_messages([(words, False), (result, True)]) == [
        {"role": "user", "content": result["content"] + [said_first]}
    ]


def test_what_is_kept_for_an_hour_is_told_apart() -> None:
    told: dict[str, Any] = {
        "input_tokens": 1,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 300,
    }
    assert anthropic_gateway.parse_usage(told).cache_write_hour == 0
    told["cache_creation"] = {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200}
    usage = anthropic_gateway.parse_usage(told)
    assert (usage.input, usage.cache_write, usage.cache_write_hour) == (321, 300, 200)
    dear = ModelSet(ModelRole.MAIN, "one", 1_000_000, 0, 3.0, 15.0, 0.3, 3.75)
    assert compute_cost(usage, dear) == pytest.approx(
        (1 * 3.0 + 20 * 0.3 + 100 * 3.75 + 200 * 6.0) / 1e6
    )


TEXT = PieceKind.TEXT
CALL = PieceKind.CALL
RESULT = PieceKind.RESULT
REASONING = PieceKind.REASONING
IMAGE = PieceKind.IMAGE
OTHER = PieceKind.OTHER


def pieces_of(unit: Any) -> list[Piece]:
    return list(anthropic_gateway.parse_message(unit).pieces)


@pytest.mark.parametrize(
    ("role", "speaker"),
    [
        ("user", Speaker.USER),
        ("assistant", Speaker.ASSISTANT),
        ("system", Speaker.SYSTEM),
        ("", Speaker.USER),
    ],
)
def test_who_speaks(role: str, speaker: Speaker) -> None:
    assert anthropic_gateway.parse_message({"role": role, "content": "x"}).speaker is speaker
    assert anthropic_gateway.parse_message({"role": role, "content": []}).speaker is speaker


def test_every_block_of_a_message_is_a_piece_that_knows_its_place() -> None:
    blocks = [
        {"type": "text", "text": "a", "cache_control": {}},
        {"type": "thinking", "thinking": "hm"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "1", "name": "Bash", "input": {"b": 1, "a": 2}},
        {
            "type": "tool_result",
            "tool_use_id": "1",
            "content": [{"type": "text", "text": "out"}],
            "is_error": True,
        },
        {"type": "tool_result", "tool_use_id": "1", "content": "out"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "u"}, "cache_control": {}},
    ]
    path = [(0, "content", at) for at in range(len(blocks))]
    assert pieces_of({"role": "user", "content": blocks}) == [
        Piece(TEXT, "a", path[0]),
        Piece(REASONING, "hm", path[1]),
        Piece(REASONING, "", path[2]),
        Piece(CALL, '{"b":1,"a":2}', path[3], "1", "Bash"),
        Piece(RESULT, "out", path[4], "1", ok=False),
        Piece(RESULT, "out", path[5], "1"),
        Piece(IMAGE, "AAAA", path[6], media_type="image/png"),
        Piece(OTHER, '{"type":"image","source":{"type":"url","url":"u"}}', path[7]),
    ]
    assert pieces_of({"role": "user", "content": "a"}) == [Piece(TEXT, "a", (0, "content"))]
    assert pieces_of({"role": "assistant", "content": [{"type": "tool_use"}]}) == [
        Piece(CALL, "{}", path[0])
    ]


@pytest.mark.parametrize(
    ("system", "read"),
    [
        ("a", "a"),
        ("", ""),
        (
            [{"text": "x-anthropic-billing-header: 1"}, {"text": "a"}, {"text": ""}, {"text": "b"}],
            "a\n\nb",
        ),
    ],
)
def test_the_head_of_a_request_is_its_model_system_prompt_and_tools(system: Any, read: str) -> None:
    mine = ToolSpec("run", "runs", '{"type":"object","properties":{"a":{"type":"string"}}}')
    theirs = {"name": "theirs", "description": "", "input_schema": {}}
    body = anthropic_gateway.with_added_tools(
        {"model": "m", "system": system, "tools": [theirs]},
        anthropic_gateway.tools_as_json([mine]),
    )
    head = anthropic_gateway.parse_head(body)
    assert (head.model, head.system, head.effort) == ("m", read, "")
    assert head.tools == (mine, ToolSpec("theirs", "", "{}"))


def test_how_long_the_model_is_to_think_is_read() -> None:
    thinking = {"type": "enabled", "budget_tokens": 9}
    head = anthropic_gateway.parse_head({"thinking": thinking, "output_config": {"effort": "low"}})
    assert head.effort == '{"type":"enabled","budget_tokens":9} "low"'
    assert anthropic_gateway.parse_head({"output_config": {"effort": "low"}}).effort == '"low"'


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", Stop.END),
        ("stop_sequence", Stop.END),
        ("tool_use", Stop.CALLS),
        ("max_tokens", Stop.LENGTH),
        ("model_context_window_exceeded", Stop.LENGTH),
        ("refusal", Stop.FILTERED),
        ("pause_turn", Stop.CUT),
        ("", Stop.CUT),
    ],
)
def test_why_a_reply_ended(reason: str, stop: Stop) -> None:
    usage = {
        "input_tokens": 1,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 300,
        "output_tokens": 4,
    }
    found = anthropic_gateway.parse_reply(
        {"content": [WORDS], "stop_reason": reason, "model": "m", "usage": usage}
    )
    assert found == WireReply(
        anthropic_gateway.parse_message({"role": "assistant", "content": [WORDS]}),
        stop,
        Usage(321, 20, 300, 4),
        "m",
    )


def test_what_the_gateway_adds_is_written_as_the_protocol_says() -> None:
    words = {"role": "user", "content": [{"type": "text", "text": "go on"}]}
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "out"}
    assert anthropic_gateway.user_message("go on") == words
    assert anthropic_gateway.result_message("c1", "run", "out") == {
        "role": "user",
        "content": [block],
    }
    assert anthropic_gateway.result_message("c1", "run", "out", ok=False) == {
        "role": "user",
        "content": [{**block, "is_error": True}],
    }


def test_messages_are_put_back_as_they_were_read() -> None:
    words = anthropic_gateway.user_message("go on")
    body = {
        "model": "m",
        "messages": [words, anthropic_gateway.result_message("c1", "run", "out"), words, words],
    }
    read = anthropic_gateway.parse_messages(body)
    assert [message.units for message in read] == [(unit,) for unit in body["messages"]]
    for known in range(len(read) + 1):
        assert anthropic_gateway.parse_messages(body, read[:known]) == read
    assert (
        with_messages(
            anthropic_gateway.NAME, {"model": "m"}, [unit for one in read for unit in one.units]
        )
        == body
    )


def test_an_added_message_joins_its_neighbour_of_one_role_and_one_of_the_agent_does_not() -> None:
    words = anthropic_gateway.user_message("go on")
    result = anthropic_gateway.result_message("c1", "run", "out")
    reply = {"role": "assistant", "content": "well"}
    merge = anthropic_gateway.merge_added_messages
    assert merge([(words, False), (result, False)]) == [words, result]
    merged = {**words, "content": result["content"] + words["content"]}
    assert merge([(words, False), (result, True)]) == [merged]
    assert merge([(words, True), (result, False)]) == [merged]
    assert merge([(reply, False), (words, True)]) == [reply, words]
    assert merge([(words, False), (words, False), (reply, True)]) == [words, words, reply]


def test_results_calls_and_words_are_changed_where_they_stand() -> None:
    def changed(role: str, content: Any, *edits: PieceEdit) -> Any:
        message = anthropic_gateway.parse_message({"role": role, "content": content})
        (unit,) = anthropic_gateway.apply_edits(message, edits)
        assert unit["role"] == role
        return unit["content"]

    mark = {"cache_control": {"type": "ephemeral"}}
    use = {"type": "tool_use", "id": "1", "name": "n", "input": {}}
    assert changed("assistant", [WORDS, use], PieceEdit(1, '{"a":1}')) == [
        WORDS,
        {**use, "input": {"a": 1}},
    ]
    out = {"type": "tool_result", "tool_use_id": "1", "content": "long", **mark}
    assert changed("user", [out], PieceEdit(0, "s")) == [{**out, "content": "s"}]
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    }
    pictured = {**out, "content": [{"type": "text", "text": "long"}, image]}
    assert changed("user", [pictured], PieceEdit(0, "s")) == [
        {**out, "content": [{"type": "text", "text": "s"}, image]}
    ]
    assert changed("user", "a", PieceEdit(0, "b")) == "b"
    assert changed("user", [{**WORDS, **mark}, WORDS], PieceEdit(0, "b"), PieceEdit(1, None)) == [
        {"type": "text", "text": "b", **mark}
    ]


def test_marks_of_the_cache_are_counted_taken_and_set() -> None:
    mark = {"type": "ephemeral"}
    later = {"type": "ephemeral", "ttl": "1h"}
    unit = {
        "role": "user",
        "content": [
            {"type": "text", "text": "a", "cache_control": mark},
            {"type": "text", "text": ""},
        ],
    }
    assert (
        anthropic_gateway.count_cache_marks({"messages": [unit, unit], "cache_control": None}) == 2
    )
    assert (
        anthropic_gateway.count_cache_marks(
            {"system": [{"cache_control": mark}], "cache_control": mark}
        )
        == 2
    )
    assert anthropic_gateway.last_cache_mark(unit) == mark
    with_later = {"content": list(unit["content"]) + [{"cache_control": later}]}
    assert anthropic_gateway.last_cache_mark(with_later) == later
    bare = anthropic_gateway.without_cache_marks(unit)
    assert (
        anthropic_gateway.last_cache_mark(bare),
        anthropic_gateway.count_content_blocks(bare),
    ) == (None, 2)
    assert anthropic_gateway.with_cache_mark(bare, mark) == unit
    for thought in (THOUGHT, {"type": "redacted_thinking", "data": "x"}):
        thinking = {"role": "assistant", "content": [thought]}
        assert anthropic_gateway.with_cache_mark(thinking, mark) is thinking
    assert anthropic_gateway.count_content_blocks({"role": "user", "content": "a"}) == 1
    assert anthropic_gateway.count_content_blocks({"role": "user", "content": []}) == 0
