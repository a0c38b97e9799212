"""What each protocol's messages, replies and streams say, word for word: who speaks, what a piece is, why a reply ended and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import Piece, PieceEdit, PieceKind, Speaker, Tool, Wired
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS

TEXT, CALL, RESULT = PieceKind.TEXT, PieceKind.CALL, PieceKind.RESULT
REASONING, IMAGE, OTHER = PieceKind.REASONING, PieceKind.IMAGE, PieceKind.OTHER
PNG = "data:image/png;base64,AAAA"


def read(wire: ModuleType, unit: Any) -> Wired:
    found: Wired = wire.parse_message([unit] if wire is responses_gateway else unit)
    return found


@pytest.mark.parametrize(
    ("wire", "unit", "speaker"),
    [
        (anthropic_gateway, {"role": "user", "content": "x"}, Speaker.USER),
        (anthropic_gateway, {"role": "assistant", "content": "x"}, Speaker.ASSISTANT),
        (anthropic_gateway, {"role": "system", "content": "x"}, Speaker.SYSTEM),
        (chat_gateway, {"role": "user", "content": "x"}, Speaker.USER),
        (chat_gateway, {"role": "assistant", "content": "x"}, Speaker.ASSISTANT),
        (chat_gateway, {"role": "developer", "content": "x"}, Speaker.SYSTEM),
        (chat_gateway, {"role": "tool", "content": "x"}, Speaker.USER),
        (responses_gateway, {"role": "user", "content": "x"}, Speaker.USER),
        (responses_gateway, {"role": "assistant", "content": "x"}, Speaker.ASSISTANT),
        (responses_gateway, {"role": "developer", "content": "x"}, Speaker.SYSTEM),
        (responses_gateway, {"type": "function_call", "name": "x"}, Speaker.ASSISTANT),
        (responses_gateway, {"type": "web_search_call"}, Speaker.ASSISTANT),
        (responses_gateway, {"type": "function_call_output"}, Speaker.USER),
        (gemini_gateway, {"role": "model", "parts": []}, Speaker.ASSISTANT),
        (gemini_gateway, {"role": "user", "parts": []}, Speaker.USER),
        (gemini_gateway, {"parts": []}, Speaker.USER),
    ],
)
def test_who_speaks(wire: ModuleType, unit: Any, speaker: Speaker) -> None:
    assert read(wire, unit).speaker is speaker


def pieces_of(wire: ModuleType, unit: Any) -> list[Piece]:
    return list(read(wire, unit).pieces)


def test_pieces_of_anthropic() -> None:
    blocks = [
        {"type": "text", "text": "a", "cache_control": {}},
        {"type": "thinking", "thinking": "hm"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "1", "name": "Bash", "input": {"b": 1, "a": 2}},
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "out"}], "is_error": True},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "u"}, "cache_control": {}},
    ]
    path = [(0, "content", at) for at in range(len(blocks))]
    assert pieces_of(anthropic_gateway, {"role": "user", "content": blocks}) == [
        Piece(TEXT, "a", path[0]),
        Piece(REASONING, "hm", path[1]),
        Piece(REASONING, "", path[2]),
        Piece(CALL, '{"b":1,"a":2}', path[3], "1", "Bash"),
        Piece(RESULT, "out", path[4], "1", ok=False),
        Piece(IMAGE, "AAAA", path[5], media_type="image/png"),
        Piece(OTHER, '{"type":"image","source":{"type":"url","url":"u"}}', path[6]),
    ]
    assert pieces_of(anthropic_gateway, {"role": "user", "content": "a"}) == [Piece(TEXT, "a", (0, "content"))]


def test_pieces_of_chat() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
    unit = {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": [call]}
    assert pieces_of(chat_gateway, unit) == [
        Piece(REASONING, "hm", (0, "reasoning_content")),
        Piece(TEXT, "a", (0, "content")),
        Piece(CALL, "{}", (0, "tool_calls", 0), "1", "Bash"),
    ]
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": PNG}}, {"type": "audio"}]
    assert pieces_of(chat_gateway, {"role": "user", "content": parts}) == [
        Piece(TEXT, "a", (0, "content", 0)),
        Piece(IMAGE, "AAAA", (0, "content", 1), media_type="image/png"),
        Piece(OTHER, '{"type":"audio"}', (0, "content", 2)),
    ]
    result = Piece(RESULT, "out", (0,), "1")
    assert pieces_of(chat_gateway, {"role": "tool", "tool_call_id": "1", "content": "out"}) == [result]
    assert pieces_of(chat_gateway, {"role": "function", "name": "1", "content": "out"}) == [result]


def test_pieces_of_responses() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "Bash", "arguments": "{}"}
    custom = {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "x"}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    reply = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    assert list(responses_gateway.parse_message([thought, reply, call, custom]).pieces) == [
        Piece(REASONING, "hm", (0,)),
        Piece(TEXT, "a", (1, "content", 0)),
        Piece(CALL, "{}", (2,), "1", "Bash", media_type="arguments"),
        Piece(CALL, "x", (3,), "2", "patch", media_type="input"),
    ]
    result = {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "out"}]}
    assert pieces_of(responses_gateway, result) == [Piece(RESULT, "out", (0,), "1")]
    assert pieces_of(responses_gateway, {**result, "output": "out"}) == [Piece(RESULT, "out", (0,), "1")]
    image = {"role": "user", "content": [{"type": "input_image", "image_url": PNG}]}
    assert pieces_of(responses_gateway, image) == [Piece(IMAGE, "AAAA", (0, "content", 0), media_type="image/png")]
    assert pieces_of(responses_gateway, {"role": "user", "content": "a"}) == [Piece(TEXT, "a", (0, "content"))]
    assert pieces_of(responses_gateway, {"type": "compaction"}) == [Piece(OTHER, '{"type":"compaction"}', (0,))]


def test_items_between_two_of_the_users_are_one_reply() -> None:
    user, call, out = {"role": "user"}, {"type": "function_call"}, {"type": "function_call_output"}
    items = [user, {"type": "reasoning"}, call, out, {"role": "assistant"}]
    found = responses_gateway.parse_messages({"input": items})
    assert [len(message.units) for message in found] == [1, 2, 1, 1]
    assert responses_gateway.parse_messages({"input": items}, found[:2]) == found
    assert [message.units for message in responses_gateway.parse_messages({"input": "hello"})] == [("hello",)]
    assert responses_gateway.with_messages({}, ["hello"]) == {"input": "hello"}
    assert responses_gateway.with_messages({}, ["hello", call]) == {
        "input": [responses_gateway.user_message("hello"), call]
    }


def test_pieces_of_gemini() -> None:
    parts = [
        {"text": "hm", "thought": True},
        {"text": "a"},
        {"functionCall": {"name": "run", "args": {"b": 1}}},
        {"functionResponse": {"name": "run", "response": {"error": "no"}}},
        {"functionResponse": {"name": "run", "response": {"output": "x", "code": 1}}},
        {"inline_data": {"mime_type": "image/png", "data": "AAAA"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
    ]
    path = [(0, "parts", at) for at in range(len(parts))]
    assert pieces_of(gemini_gateway, {"role": "user", "parts": parts}) == [
        Piece(REASONING, "hm", path[0]),
        Piece(TEXT, "a", path[1]),
        Piece(CALL, '{"b":1}', path[2], "call-1", "run"),
        Piece(RESULT, "no", path[3], "call-1", "run", ok=False, media_type="error"),
        Piece(RESULT, '{"output":"x","code":1}', path[4], "", "run"),
        Piece(IMAGE, "AAAA", path[5], media_type="image/png"),
        Piece(OTHER, '{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}}', path[6]),
    ]


@pytest.mark.parametrize(
    ("wire", "body", "system"),
    [
        (anthropic_gateway, {"system": "a"}, "a"),
        (
            anthropic_gateway,
            {"system": [{"text": "x-anthropic-billing-header: 1"}, {"text": "a"}, {"text": "b"}]},
            "a\n\nb",
        ),
        (
            chat_gateway,
            {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]},
            "a",
        ),
        (responses_gateway, {"instructions": "a"}, "a"),
        (gemini_gateway, {"systemInstruction": {"parts": [{"text": "a"}]}}, "a"),
        (gemini_gateway, {"system_instruction": {"parts": [{"text": "a"}]}}, "a"),
    ],
)
def test_the_head_of_a_request(wire: ModuleType, body: Mapping[str, Any], system: str) -> None:
    mine = Tool("run", "runs", '{"type":"object","properties":{"a":{"type":"string"}}}')
    head = wire.parse_head(wire.with_added_tools({"model": "m", **body}, [mine]))
    assert (head.model, head.system, head.tools) == ("" if wire is gemini_gateway else "m", system, (mine,))


STOPS = [
    (anthropic_gateway, "end_turn", Stop.END),
    (anthropic_gateway, "tool_use", Stop.CALLS),
    (anthropic_gateway, "max_tokens", Stop.LENGTH),
    (anthropic_gateway, "model_context_window_exceeded", Stop.LENGTH),
    (anthropic_gateway, "refusal", Stop.FILTERED),
    (anthropic_gateway, "", Stop.CUT),
    (chat_gateway, "stop", Stop.END),
    (chat_gateway, "tool_calls", Stop.CALLS),
    (chat_gateway, "length", Stop.LENGTH),
    (chat_gateway, "content_filter", Stop.FILTERED),
    (chat_gateway, "", Stop.CUT),
    (gemini_gateway, "STOP", Stop.END),
    (gemini_gateway, "MAX_TOKENS", Stop.LENGTH),
    (gemini_gateway, "SAFETY", Stop.FILTERED),
    (gemini_gateway, "", Stop.CUT),
]


@pytest.mark.parametrize(("wire", "reason", "stop"), STOPS)
def test_why_a_reply_ended(wire: ModuleType, reason: str, stop: Stop) -> None:
    value = {
        anthropic_gateway: {"content": [], "stop_reason": reason, "model": "m"},
        chat_gateway: {"choices": [{"message": {}, "finish_reason": reason}], "model": "m"},
        gemini_gateway: {"candidates": [{"content": {"parts": []}, "finishReason": reason}], "modelVersion": "m"},
    }[wire]
    found = wire.parse_reply(value)
    assert (found.stop, found.model, found.message.speaker) == (stop, "m", Speaker.ASSISTANT)


@pytest.mark.parametrize(
    ("value", "stop"),
    [
        ({"status": "completed"}, Stop.END),
        ({"status": "completed", "output": [{"type": "function_call", "status": "completed"}]}, Stop.CALLS),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, Stop.LENGTH),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, Stop.FILTERED),
        ({"status": "failed"}, Stop.CUT),
    ],
)
def test_why_a_response_ended(value: Mapping[str, Any], stop: Stop) -> None:
    found = responses_gateway.parse_reply(value)
    assert found.stop is stop
    assert all("status" not in item for item in found.message.units)


def test_a_gemini_reply_with_calls_ends_with_calls() -> None:
    content = {"parts": [{"functionCall": {"name": "run"}}]}
    assert gemini_gateway.parse_reply({"candidates": [{"content": content, "finishReason": "STOP"}]}).stop is Stop.CALLS


@pytest.mark.parametrize(
    ("wire", "told", "usage"),
    [
        (
            anthropic_gateway,
            {"input_tokens": 1, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 300, "output_tokens": 4},
            Usage(321, 20, 300, 4),
        ),
        (
            chat_gateway,
            {
                "prompt_tokens": 100,
                "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5},
                "prompt_cache_hit_tokens": 30,
                "completion_tokens": 4,
                "completion_tokens_details": {"reasoning_tokens": 3},
                "cost": 0.5,
            },
            Usage(100, 30, 5, 4, 3, 0.5),
        ),
        (
            responses_gateway,
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5},
                "output_tokens": 4,
                "output_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(100, 20, 5, 4, 3),
        ),
        (
            gemini_gateway,
            {
                "promptTokenCount": 100,
                "toolUsePromptTokenCount": 7,
                "cachedContentTokenCount": 20,
                "candidatesTokenCount": 4,
                "thoughtsTokenCount": 3,
            },
            Usage(107, 20, 0, 7, 3),
        ),
    ],
)
def test_what_a_reply_cost(wire: ModuleType, told: Mapping[str, Any], usage: Usage) -> None:
    assert wire.parse_usage(told) == usage


ADDED = [  # what the gateway puts into a conversation: the user's words, a good result and a failed one
    (
        anthropic_gateway,
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "out"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "out", "is_error": True}]},
    ),
    (
        chat_gateway,
        {"role": "user", "content": "go on"},
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
    ),
    (
        responses_gateway,
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
        {"type": "function_call_output", "call_id": "c1", "output": "out"},
        {"type": "function_call_output", "call_id": "c1", "output": "out"},
    ),
    (
        gemini_gateway,
        {"role": "user", "parts": [{"text": "go on"}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "run", "response": {"output": "out"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "run", "response": {"error": "out"}}}]},
    ),
]


@pytest.mark.parametrize(("wire", "words", "good", "failed"), ADDED)
def test_what_the_gateway_adds_is_written_as_the_protocol_says(
    wire: ModuleType, words: Any, good: Any, failed: Any
) -> None:
    assert wire.user_message("go on") == words
    assert wire.result_message("c1", "run", "out") == good
    assert wire.result_message("c1", "run", "out", ok=False) == failed


@pytest.mark.parametrize(("wire", "words", "good", "_failed"), ADDED)
def test_messages_are_put_back_as_they_were_read(wire: ModuleType, words: Any, good: Any, _failed: Any) -> None:
    field = MESSAGE_FIELDS[wire.NAME]
    body = {"model": "m", field: [words, good, words, words]}
    read = wire.parse_messages(body)
    assert [message.units for message in read] == [(unit,) for unit in body[field]]
    for known in range(len(read) + 1):
        assert wire.parse_messages(body, read[:known]) == read
    assert wire.with_messages({"model": "m"}, [unit for message in read for unit in message.units]) == body


@pytest.mark.parametrize(("wire", "words", "good", "_failed"), ADDED)
def test_an_added_message_joins_its_neighbour_where_one_role_may_not_speak_twice(
    wire: ModuleType, words: Any, good: Any, _failed: Any
) -> None:
    assert wire.merge_added([(words, False), (good, False)]) == [words, good]
    together = wire.merge_added([(words, False), (good, True)])
    if field := {anthropic_gateway: "content", gemini_gateway: "parts"}.get(wire):
        assert together == [{**words, field: [*good[field], *words[field]]}]
    else:
        assert together == [words, good]


def test_results_and_calls_are_changed_where_they_stand() -> None:
    def changed(wire: ModuleType, unit: Any, text: str, at: int = 0) -> Any:
        return wire.apply_edits(read(wire, unit), [PieceEdit(at, text)])[0]

    use = {"type": "tool_use", "id": "1", "name": "n", "input": {}}
    assert changed(anthropic_gateway, {"role": "assistant", "content": [use]}, '{"a":1}')["content"][0]["input"] == {
        "a": 1
    }
    out = {"type": "tool_result", "tool_use_id": "1", "content": "long"}
    assert changed(anthropic_gateway, {"role": "user", "content": [out]}, "s")["content"] == [{**out, "content": "s"}]
    assert changed(chat_gateway, {"role": "tool", "tool_call_id": "1", "content": "long"}, "s")["content"] == "s"
    call = {"id": "1", "function": {"name": "n", "arguments": "{}"}}
    assert changed(chat_gateway, {"role": "assistant", "content": None, "tool_calls": [call]}, "[]")["tool_calls"] == [
        {"id": "1", "function": {"name": "n", "arguments": "[]"}}
    ]
    custom = {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "x"}
    assert changed(responses_gateway, custom, "y") == {**custom, "input": "y"}
    output = {"type": "function_call_output", "call_id": "1", "output": "long"}
    assert changed(responses_gateway, output, "s") == {**output, "output": "s"}
    answer = {"role": "user", "parts": [{"functionResponse": {"name": "n", "response": {"error": "long"}}}]}
    assert changed(gemini_gateway, answer, "s")["parts"][0]["functionResponse"]["response"] == {"error": "s"}
    asked = {"role": "model", "parts": [{"functionCall": {"name": "n", "args": {}}}, {"text": "a"}]}
    assert changed(gemini_gateway, asked, '{"a":1}')["parts"][0]["functionCall"]["args"] == {"a": 1}
    assert changed(gemini_gateway, asked, "b", 1)["parts"][1] == {"text": "b"}
    for wire in (anthropic_gateway, chat_gateway, responses_gateway):
        assert changed(wire, {"role": "user", "content": "a"}, "b") == {"role": "user", "content": "b"}


def test_marks_of_the_cache_are_counted_taken_and_set() -> None:
    mark = {"type": "ephemeral"}
    unit = {
        "role": "user",
        "content": [{"type": "text", "text": "a", "cache_control": mark}, {"type": "text", "text": ""}],
    }
    assert anthropic_gateway.count_cache_marks({"messages": [unit, unit]}) == 2
    assert anthropic_gateway.last_cache_mark(unit) == mark
    bare = anthropic_gateway.without_cache_marks(unit)
    assert (anthropic_gateway.last_cache_mark(bare), anthropic_gateway.count_blocks(bare)) == (None, 2)
    assert anthropic_gateway.with_cache_mark(bare, mark) == unit
    thinking = {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}
    assert anthropic_gateway.with_cache_mark(thinking, mark) is thinking
    assert anthropic_gateway.count_blocks({"role": "user", "content": "a"}) == 1


@pytest.mark.parametrize(
    ("wire", "body", "told"),
    [
        (anthropic_gateway, {"thinking": {"type": "enabled", "budget_tokens": 9}, "output_config": {"effort": "low"}}, '{"type":"enabled","budget_tokens":9} "low"'),
        (chat_gateway, {"reasoning_effort": "high"}, '"high"'),
        (responses_gateway, {"reasoning": {"effort": "low", "summary": "auto"}}, '"low"'),
        (gemini_gateway, {"generationConfig": {"thinkingConfig": {"thinkingBudget": 9}}}, '{"thinkingBudget":9}'),
        (anthropic_gateway, {}, ""),
    ],
)  # fmt: skip
def test_how_long_a_model_is_to_think_is_read(wire: ModuleType, body: dict[str, Any], told: str) -> None:
    assert wire.parse_head(body).effort == told
