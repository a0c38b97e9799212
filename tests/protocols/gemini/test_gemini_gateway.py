from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.protocols.gateway_message import Piece, PieceEdit, PieceKind, Speaker
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.gemini.gemini_gateway import (
    PLACEHOLDER,
    GeminiCallFilter,
    gemini_parameters,
)
from helix_desktop.protocols.protocol_table import with_messages
from tests.protocols.streams import DONE, put_together, through

TEXT: Any = {"type": "string"}
KNOWN = {
    "type", "properties", "required", "items", "enum", "anyOf", "format", "description", "title", "nullable", "minimum", "maximum",
    "minItems", "maxItems", "minLength", "maxLength", "pattern",
}  # fmt: skip


def argument(schema: Any, **more: Any) -> Any:
    made: Any = gemini_parameters({"type": "object", "properties": {"a": schema}, **more})
    return made["parameters"]["properties"]["a"]


NULLABLE_TEXT: Any = {"type": "string", "nullable": True}


@pytest.mark.parametrize("kinds", [["string", "null"], ["null"], "null"])
def test_what_may_be_nothing_is_a_text_that_may_be_missing(kinds: Any) -> None:
    assert argument({"type": kinds}) == NULLABLE_TEXT


def test_of_several_types_the_first_that_is_known_is_taken() -> None:
    several = {"type": ["null", 7, "integer", "string"]}
    assert argument(several) == {"type": "integer", "nullable": True}


def test_only_texts_can_be_one_of_a_list() -> None:
    texts = {"type": "string", "enum": ["a", "", 3]}
    assert argument(texts) == {"type": "string", "enum": ["a"]}
    numbers = {"type": "integer", "enum": [1, 2]}
    assert argument(numbers) == {"type": "integer"}


def test_a_constant_is_the_only_one_of_a_list() -> None:
    constant = {"const": "x", "type": "string"}
    assert argument(constant) == {"type": "string", "enum": ["x"]}


def test_a_type_that_is_not_said_is_known_by_what_it_has() -> None:
    numbers = {"items": {"type": "integer"}}
    assert argument(numbers) == {"type": "array", "items": {"type": "integer"}}
    with_field = {"properties": {"b": TEXT}}
    assert argument(with_field) == {"type": "object", "properties": {"b": TEXT}}


@pytest.mark.parametrize("schema", [{}, True])
def test_a_schema_that_says_nothing_is_a_text(schema: Any) -> None:
    assert argument(schema) == TEXT


def test_a_list_of_anything_is_a_list_of_texts() -> None:
    assert argument({"type": "array"}) == {"type": "array", "items": TEXT}


def test_an_alternative_that_is_nothing_may_be_missing() -> None:
    text_or_nothing = {"anyOf": [TEXT, {"type": "null"}], "description": "d"}
    assert argument(text_or_nothing) == {**NULLABLE_TEXT, "description": "d"}


def test_other_words_for_alternatives_and_for_all_of_them_are_understood() -> None:
    number: Any = {"type": "integer"}
    assert argument({"oneOf": [TEXT, number]}) == {"anyOf": [TEXT, number]}
    assert argument({"allOf": [TEXT, {"maxLength": 3}]}) == {"type": "string", "maxLength": 3}


def test_a_format_that_it_does_not_know_is_left_out() -> None:
    date = {"type": "string", "format": "date-time"}
    assert argument(date) == date
    assert argument({"type": "string", "format": "uri"}) == TEXT


def test_fields_without_a_name_are_left_out() -> None:
    assert argument({"type": "object", "additionalProperties": TEXT}) == {"type": "object"}


def test_references_become_what_they_point_at() -> None:
    definitions: Any = {"Path": {"type": "string", "description": "a path"}}
    assert argument({"$ref": "#/$defs/Path"}, **{"$defs": definitions}) == definitions["Path"]
    mine = {"$ref": "#/definitions/Path", "description": "mine"}
    assert argument(mine, definitions=definitions) == {"type": "string", "description": "mine"}


def test_a_schema_that_points_at_itself_ends() -> None:
    definitions: Any = {
        "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    }
    assert (
        argument({"$ref": "#/$defs/Node"}, **{"$defs": definitions})["properties"]["next"]["type"]
        == "object"
    )


@pytest.mark.parametrize(
    "inner", [lambda node: {"properties": {"a": node}}, lambda node: {"items": node}]
)
def test_what_is_nested_more_than_24_deep_is_told_as_text(inner: Any) -> None:
    schema: Any = {"type": "integer"}
    for _ in range(23):
        schema = inner(schema)
    assert '"integer"' in json.dumps(argument(schema))
    assert '"integer"' not in json.dumps(argument(inner(schema)))
    assert '"integer"' not in json.dumps(argument({"anyOf": [schema, TEXT]})), (
        "an alternative is one deeper"
    )


def test_required_names_are_there() -> None:
    made: Any = gemini_parameters(
        {"type": "object", "properties": {"a": TEXT}, "required": ["a", "b", {}]}
    )
    assert made["parameters"]["required"] == ["a"]


schemas = st.recursive(
    st.dictionaries(st.sampled_from(["type", "enum", "format", "const", "x-odd", "$schema"]), st.sampled_from(["string", "null", 7, None, ["a"]])),
    lambda inner: st.fixed_dictionaries(
        {}, optional={
            "type": st.sampled_from(["object", "array", ["object", "null"]]),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=3),
            "required": st.lists(st.sampled_from("abcd")),
            "additionalProperties": inner,
        },
    ),
    max_leaves=12,
)  # fmt: skip


@given(schemas)
def test_only_known_words_are_left_at_any_depth(schema: Any) -> None:
    def check(one: Any) -> None:
        assert set(one) <= KNOWN
        assert isinstance(one.get("type", ""), str)
        for inner in [
            *one.get("properties", {}).values(),
            *one.get("anyOf", []),
            *([one["items"]] if "items" in one else []),
        ]:
            check(inner)

    check(argument(schema))


def test_what_the_gateway_adds_is_as_gemini_reads_it() -> None:
    assert gemini_gateway.user_message("go on") == {"role": "user", "parts": [{"text": "go on"}]}
    for ok, name in ((True, "output"), (False, "error")):
        response = {"name": "recall", "response": {name: "text"}}
        assert gemini_gateway.result_message("c1", "recall", "text", ok=ok) == {
            "role": "user",
            "parts": [{"functionResponse": response}],
        }


def calls(name: str, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}}, **more}


def chunk(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **more}


def usage(output: int, total: int) -> dict[str, Any]:
    return {
        "usageMetadata": {
            "promptTokenCount": 5,
            "candidatesTokenCount": output,
            "totalTokenCount": total,
        }
    }


THOUGHT = {"text": "hm", "thought": True}
HIDDEN = calls("recall_history")
OWN = calls("run")
RUN = ToolSpec("run", "runs", "{}")
SIGNED = {**OWN, "thoughtSignature": PLACEHOLDER}


def test_calls_are_numbered_on_from_the_messages_that_were_read_before() -> None:
    answers: list[Any] = [
        {"functionResponse": {"name": name, "response": {}}} for name in ("run", "look", "run")
    ]
    contents = [{"role": "model", "parts": [OWN, calls("look"), {"text": "x"}, OWN]}]
    contents += [{"role": "user", "parts": [answers[0]]}, {"role": "user", "parts": answers[1:]}]
    contents += [{"role": "model", "parts": [OWN]}, {"role": "user", "parts": [answers[2]]}]
    read = gemini_gateway.parse_messages({"contents": contents})
    assert [piece.id for message in read for piece in message.pieces] == [
        "call-1", "call-2", "", "call-3", "call-1", "call-2", "call-3", "call-4", "call-4",
    ]  # fmt: skip
    for known in range(len(contents) + 1):
        assert gemini_gateway.parse_messages({"contents": contents}, read[:known]) == read


def test_pieces_of_one_text_become_one_part_and_a_signature_ends_it() -> None:
    reading = gemini_gateway.ReplyAssembler()
    value = put_together(
        reading,
        [
            {**chunk(THOUGHT), "responseId": "r1", "modelVersion": "m"},
            chunk(
                {"text": " so", "thought": True},
                {"text": "a"},
                {"text": "b", "thoughtSignature": "s"},
            ),
            chunk({"text": "c"}, OWN, {"text": "d"}),
        ],
    )
    assert not reading.is_done
    parts = [
        {"text": "hm so", "thought": True},
        {"text": "ab", "thoughtSignature": "s"},
        {"text": "c"},
    ]
    content = {"role": "model", "parts": parts + [OWN, {"text": "d"}]}
    assert value == {
        "responseId": "r1",
        "modelVersion": "m",
        "candidates": [{"content": content, "index": 0}],
    }
    reading.add_reply_event(chunk({"text": "e"}, finish="STOP", **usage(1, 6)))
    assert reading.is_done
    content = {"role": "model", "parts": parts + [OWN, {"text": "de"}]}
    assert reading.whole_reply() == {
        "responseId": "r1",
        "modelVersion": "m",
        "candidates": [{"content": content, "index": 0, "finishReason": "STOP"}],
        **usage(1, 6),
    }


def shown_at_once(*events: Any) -> Any:
    """What a client sees at each event: the number of one that is passed on as it came, or another
    one in its place.
    """
    return through(GeminiCallFilter(hold=False), list(events))


def shown_while_held(*events: Any) -> Any:
    """The same, where thoughts are held until it is known that the reply shows something."""
    return through(GeminiCallFilter(hold=True), list(events))


ANSWER = {"text": "a"}


def test_without_a_hidden_call_every_event_is_passed_on_as_it_came() -> None:
    last = chunk(OWN, finish="STOP", **usage(3, 8))
    assert shown_at_once(chunk(THOUGHT), DONE, chunk(ANSWER), last) == [[0], [1], [2], [3]]


def test_held_thoughts_come_with_the_first_words_or_else_at_the_end() -> None:
    words_come = shown_while_held(chunk(THOUGHT), chunk(ANSWER), chunk(THOUGHT, finish="STOP"))
    assert words_come == [[], [0, 1], [2]]
    only_thoughts = shown_while_held(chunk(THOUGHT), chunk(THOUGHT), chunk(finish="STOP"))
    assert only_thoughts == [[], [], [0, 1, 2]]


def test_an_event_with_words_of_its_own_holds_nothing() -> None:
    assert shown_while_held(chunk(THOUGHT, ANSWER)) == [[0]]


def test_the_usage_is_passed_on_while_thoughts_are_held() -> None:
    seen = shown_while_held(chunk(THOUGHT), chunk(**usage(1, 6)), chunk(ANSWER))
    assert seen == [[], [1], [0, 2]]


def test_thoughts_that_only_led_to_a_hidden_call_are_not_shown() -> None:
    same_event = shown_while_held(chunk(THOUGHT, HIDDEN), chunk(OWN))
    assert same_event == [[], [chunk(SIGNED)]]
    nothing_else = shown_while_held(
        chunk(THOUGHT), chunk(HIDDEN), chunk(THOUGHT), chunk(finish="STOP")
    )
    assert nothing_else == [[], [], [], []]


def test_thoughts_that_also_led_to_a_call_of_the_clients_are_shown_with_it() -> None:
    seen = shown_while_held(chunk(THOUGHT), chunk(HIDDEN), chunk(OWN))
    assert seen == [[], [], [0, chunk(SIGNED)]]


def test_thoughts_that_are_not_held_are_shown_without_the_hidden_call() -> None:
    seen = shown_at_once(chunk(THOUGHT, HIDDEN), chunk(OWN))
    assert seen == [[chunk(THOUGHT)], [chunk(SIGNED)]]


def test_words_before_a_hidden_call_are_shown_without_it_and_without_the_thoughts() -> None:
    words = chunk(ANSWER)
    assert shown_while_held(chunk(THOUGHT, ANSWER, HIDDEN, finish="STOP")) == [[words]]
    assert shown_while_held(chunk(THOUGHT), chunk(ANSWER, HIDDEN)) == [[], [words]]
    with_call = shown_while_held(chunk(THOUGHT), chunk(ANSWER, HIDDEN), chunk(OWN))
    assert with_call == [[], [words], [chunk(SIGNED)]]


def test_a_reply_with_nothing_but_a_hidden_call_does_not_end_for_the_client() -> None:
    assert shown_at_once(chunk(HIDDEN), chunk(finish="STOP")) == [[], []]


def test_the_first_call_that_is_shown_gets_the_signature_that_the_hidden_one_may_have_had() -> None:
    ended = {"finish": "STOP", **usage(3, 8)}
    assert shown_at_once(chunk(HIDDEN, OWN, OWN, **ended)) == [[chunk(SIGNED, OWN, **ended)]]


def test_a_call_that_is_signed_keeps_its_own_signature() -> None:
    signed = calls("run", thoughtSignature="s")
    assert shown_at_once(chunk(HIDDEN, signed)) == [[chunk(signed)]]


def test_after_a_call_that_was_shown_the_end_is_shown_too() -> None:
    end = chunk(finish="STOP")
    more_calls = shown_at_once(chunk(OWN), chunk(HIDDEN), chunk(OWN), end)
    assert more_calls == [[0], [], [chunk(OWN)], [end]]
    no_more = shown_at_once(chunk(OWN), chunk(), chunk(HIDDEN, finish="STOP"))
    assert no_more == [[0], [1], [end]]


def continued(first: Any, second: Any) -> Any:
    """What a client sees of the second reply, after one with nothing but a hidden call of 10
    tokens.
    """
    call_filter = GeminiCallFilter(hold=True)
    through(call_filter, first)
    assert call_filter.has_only_hidden_calls
    call_filter.continue_in_next_reply(10)
    return through(call_filter, second)


def test_the_reply_after_a_hidden_call_goes_on_with_the_first_and_has_the_output_of_both() -> None:
    first = [chunk(ANSWER), chunk(HIDDEN, finish="STOP", **usage(10, 15))]
    more = {"text": "b"}
    last = chunk(OWN, finish="STOP", **usage(3, 8))
    seen = continued(first, [chunk(THOUGHT), chunk(THOUGHT, more), last])
    with_both = chunk(OWN, finish="STOP", **usage(13, 18))
    assert seen == [[], [chunk(more)], [with_both]]


def test_a_second_reply_with_a_hidden_call_again_shows_its_thoughts_and_the_clients_call() -> None:
    first = [chunk(HIDDEN, finish="STOP", **usage(10, 15))]
    last = chunk(HIDDEN, OWN, finish="STOP", **usage(0, 0))
    seen = continued(first, [chunk(THOUGHT), last])
    assert seen == [[], [0, chunk(SIGNED, finish="STOP", **usage(10, 10))]]


def test_only_the_first_candidate_is_filtered() -> None:
    other = {"content": {"parts": [HIDDEN]}, "index": 1}
    both = {"candidates": chunk(HIDDEN, OWN)["candidates"] + [other]}
    shown = {"candidates": chunk(SIGNED)["candidates"] + [other]}
    assert through(GeminiCallFilter(hold=False), [both]) == [[shown]]


def test_whole_replies_become_one_with_the_last_thoughts_and_all_the_output() -> None:
    first = chunk(THOUGHT, {"text": "a"}, HIDDEN, finish="STOP", **usage(10, 15))
    second = chunk(
        {"text": "why", "thought": True}, HIDDEN, calls("look"), OWN, finish="STOP", **usage(3, 8)
    )
    signed = {**calls("look"), "thoughtSignature": PLACEHOLDER}
    last = {"text": "why", "thought": True}
    assert GeminiCallFilter(hold=True).merge_whole_replies([first, second]) == chunk(
        {"text": "a"}, last, signed, OWN, finish="STOP", **usage(13, 18)
    )
    assert GeminiCallFilter(hold=True).merge_whole_replies([second]) == chunk(
        last, signed, OWN, finish="STOP", **usage(3, 8)
    )
    assert GeminiCallFilter(hold=True).merge_whole_replies([first, chunk(OWN)]) == chunk(
        {"text": "a"}, OWN
    )


def test_tools_stand_first_among_the_functions_of_the_request() -> None:
    run = gemini_gateway.tools_as_json([RUN])
    search: Any = {"googleSearch": {}}
    theirs = {"name": "theirs"}
    assert gemini_gateway.with_added_tools({"tools": [search]}, run) == {
        "tools": [{"functionDeclarations": run}, search]
    }
    for field in ("functionDeclarations", "function_declarations"):
        body = {"model": "m", "tools": [search, {field: [theirs]}, search]}
        with_run = {field: run + [theirs]}
        assert gemini_gateway.with_added_tools(body, run) == {
            "model": "m",
            "tools": [search, with_run, search],
        }


REASONING = PieceKind.REASONING
IMAGE = PieceKind.IMAGE
OTHER = PieceKind.OTHER


@pytest.mark.parametrize(
    ("content", "speaker"),
    [
        ({"role": "model", "parts": []}, Speaker.ASSISTANT),
        ({"role": "user", "parts": []}, Speaker.USER),
        ({"parts": []}, Speaker.USER),
    ],
)
def test_who_speaks(content: Any, speaker: Speaker) -> None:
    assert gemini_gateway.parse_message(content).speaker is speaker


def test_every_part_of_a_content_is_a_piece_that_knows_its_place() -> None:
    parts: list[Any] = [
        {"text": "hm", "thought": True},
        {"text": "a"},
        {"functionCall": {"name": "run", "args": {"b": 1}}},
        {"functionResponse": {"name": "run", "response": {"error": "no"}}},
        {"functionResponse": {"name": "run", "response": {"output": "x", "code": 1}}},
        {"inline_data": {"mime_type": "image/png", "data": "AAAA"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
    ]
    path = [(0, "parts", at) for at in range(len(parts))]
    assert list(gemini_gateway.parse_message({"role": "user", "parts": parts}).pieces) == [
        Piece(REASONING, "hm", path[0]),
        Piece(PieceKind.TEXT, "a", path[1]),
        Piece(PieceKind.CALL, '{"b":1}', path[2], "call-1", "run"),
        Piece(PieceKind.RESULT, "no", path[3], "call-1", "run", ok=False, media_type="error"),
        Piece(PieceKind.RESULT, '{"output":"x","code":1}', path[4], "", "run"),
        Piece(IMAGE, "AAAA", path[5], media_type="image/png"),
        Piece(IMAGE, "AAAA", path[6], media_type="image/png"),
        Piece(OTHER, '{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}}', path[7]),
    ]


@pytest.mark.parametrize("field", ["output", "content", "result"])
def test_the_only_field_of_a_result_is_its_text(field: str) -> None:
    part = {"functionResponse": {"name": "run", "response": {field: "x"}}}
    (piece,) = gemini_gateway.parse_message({"parts": [part]}).pieces
    assert (piece.text, piece.ok, piece.media_type) == ("x", True, field)
    (unit,) = gemini_gateway.apply_edits(
        gemini_gateway.parse_message({"parts": [part]}), [PieceEdit(0, "s")]
    )
    assert unit["parts"] == [{"functionResponse": {"name": "run", "response": {field: "s"}}}]


@pytest.mark.parametrize("name", ["systemInstruction", "system_instruction"])
@pytest.mark.parametrize("field", ["functionDeclarations", "function_declarations"])
def test_the_head_of_a_request_is_its_system_prompt_and_tools(name: str, field: str) -> None:
    mine = ToolSpec("run", "runs", '{"type":"object","properties":{"a":{"type":"string"}}}')
    theirs = [
        {"name": "a", "parametersJsonSchema": {"type": "object"}},
        {"name": "b", "parameters": {"x": 1}},
    ]
    body = gemini_gateway.with_added_tools(
        {name: {"parts": [{"text": "a"}]}, "tools": [{field: theirs}]},
        gemini_gateway.tools_as_json([mine]),
    )
    head = gemini_gateway.parse_head(
        {**body, "generationConfig": {"thinkingConfig": {"thinkingBudget": 9}}}
    )
    assert (head.model, head.system, head.effort) == ("", "a", '{"thinkingBudget":9}')
    assert head.tools == (
        mine,
        ToolSpec("a", "", '{"type":"object"}'),
        ToolSpec("b", "", '{"x":1}'),
    )
    assert gemini_gateway.parse_head({}).effort == ""


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", Stop.END),
        ("MAX_TOKENS", Stop.LENGTH),
        ("FUNCTION_CALL", Stop.CALLS),
        ("SAFETY", Stop.FILTERED),
        ("", Stop.CUT),
    ],
)
def test_why_a_reply_ended(reason: str, stop: Stop) -> None:
    other = chunk(OWN, finish="STOP")["candidates"]
    value = chunk({"text": "a"}, finish=reason, modelVersion="m", **usage(3, 8))
    candidates = list(value["candidates"]) + list(other)
    found = gemini_gateway.parse_reply({**value, "candidates": candidates})
    assert (found.stop, found.usage, found.model) == (stop, Usage(input=5, output=3), "m")
    assert found.message == gemini_gateway.parse_message(
        {"role": "model", "parts": [{"text": "a"}]}
    )
    with_call = gemini_gateway.parse_reply(chunk(OWN, finish=reason))
    assert with_call.stop is (Stop.CALLS if reason == "STOP" else stop)


def test_what_a_reply_cost_has_its_thoughts_in_the_output() -> None:
    told = {
        "promptTokenCount": 100,
        "toolUsePromptTokenCount": 7,
        "cachedContentTokenCount": 20,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 3,
    }
    assert gemini_gateway.parse_usage(told) == Usage(107, 20, 0, 7, 3)


def test_contents_are_put_back_as_they_were_read_and_an_added_one_joins_its_neighbour_of_one_role() -> (
    None
):
    words = gemini_gateway.user_message("go on")
    result = gemini_gateway.result_message("c1", "run", "out")
    body = {"contents": [words, result, words, words]}
    read = gemini_gateway.parse_messages(body)
    assert [message.units for message in read] == [(unit,) for unit in body["contents"]]
    assert with_messages(
        gemini_gateway.NAME, {"tools": []}, [unit for one in read for unit in one.units]
    ) == {
        "tools": [],
        **body,
    }
    merge = gemini_gateway.merge_added_messages
    assert merge([(words, False), (result, False)]) == [words, result]
    merged = {"role": "user", "parts": result["parts"] + words["parts"]}
    assert merge([(words, False), (result, True)]) == [merged]
    reply = {"role": "model", "parts": [OWN]}
    assert merge([(reply, False), (result, True)]) == [reply, result]


def test_results_calls_and_words_are_changed_where_they_stand_and_signatures_stay() -> None:
    def changed(text: str, *parts: Any, at: int = 0) -> Any:
        message = gemini_gateway.parse_message({"role": "model", "parts": list(parts)})
        (unit,) = gemini_gateway.apply_edits(message, [PieceEdit(at, text)])
        return unit["parts"]

    answer = {"functionResponse": {"name": "n", "response": {"error": "long"}}}
    assert changed("s", answer) == [{"functionResponse": {"name": "n", "response": {"error": "s"}}}]
    several = {"functionResponse": {"name": "n", "response": {"output": "x", "code": 1}}}
    assert changed("s", several) == [
        {"functionResponse": {"name": "n", "response": {"output": "s"}}}
    ]
    asked: list[Any] = [
        {"functionCall": {"name": "n", "args": {}}, "thoughtSignature": "x"},
        {"text": "a"},
    ]
    assert changed('{"a":1}', *asked) == [
        {**asked[0], "functionCall": {"name": "n", "args": {"a": 1}}},
        asked[1],
    ]
    assert changed("b", *asked, at=1) == [asked[0], {"text": "b"}]
