from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import Reasoning, Text, ToolCall, ToolSpec
from helix_desktop.engine.messages import Image, ToolResult
from helix_desktop.protocols import request_parts
from tests.providers.asking import asking, assistant, user

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.text(max_size=30))
def test_any_arguments_become_an_object(text: str) -> None:
    call = ToolCall("call_000000001", "read", text)
    assert isinstance(request_parts.arguments_as_object(call), dict)
    if text.strip():
        assert (
            json.loads(request_parts.arguments_as_json(call).encode("utf-8", "replace")) is not None
        )


@given(st.lists(texts.filter(bool), min_size=1, max_size=6, unique=True))
def test_ids_stay_different_and_become_legal(ids: list[str]) -> None:
    calls = [ToolCall(one, "read", "{}") for one in ids]
    results = [ToolResult(one, "x") for one in ids]
    legal = re.compile(r"[A-Za-z0-9]{9}")
    made = request_parts.legal_ids([assistant(*calls), user(*results)], legal, 9)
    assert len(set(made.values())) == len(ids)
    assert all(legal.fullmatch(one) for one in made.values())


def test_a_schema_that_is_none_is_an_empty_one() -> None:
    assert request_parts.schema_of_tool(ToolSpec("t", "", "broken")) == request_parts.EMPTY_SCHEMA


def test_the_open_loop_begins_behind_the_last_message_without_results() -> None:
    call = ToolCall("call_000000001", "read", "{}")
    loop = [assistant(call), user(ToolResult(call.id, "x"), "steer")]
    assert request_parts.start_of_open_tool_loop([user("a"), *loop]) == 1
    assert (
        request_parts.start_of_open_tool_loop([user("a"), *loop, assistant("done"), user("b")]) == 5
    )
    assert request_parts.start_of_open_tool_loop(loop) == 0


def test_arguments_go_back_as_the_model_wrote_them_and_what_is_no_object_so_that_it_sees_its_mistake() -> (
    None
):
    def arguments(text: str) -> tuple[object, str]:
        call = ToolCall("c", "read", text)
        return request_parts.arguments_as_object(call), request_parts.arguments_as_json(call)

    assert arguments('{ "path" : "a" }') == ({"path": "a"}, '{ "path" : "a" }')
    assert arguments("  ") == ({}, "{}")
    for wrong in ("[1]", '{"path": '):
        made, text = arguments(wrong)
        assert made == json.loads(text) == {"malformed_arguments": wrong}


def test_reasoning_goes_back_to_its_own_model_alone() -> None:
    own = Reasoning("a", model="peer/scripted")
    old = Reasoning("b")
    foreign = Reasoning("c", model="other")
    same = asking(user("hello"), assistant(own, old, "fine"))
    assert request_parts.without_foreign_reasoning(same) is same
    mixed = asking(user("hello"), assistant(own, foreign, "fine"), user("on"))
    kept = request_parts.without_foreign_reasoning(mixed)
    assert [message.parts for message in kept.messages] == [
        (Text("hello"),),
        (own, Text("fine")),
        (Text("on"),),
    ]
    assert (kept.model, kept.tools) == (mixed.model, mixed.tools)


def test_an_image_is_text_for_those_who_take_it_and_a_note_for_others() -> None:
    image = Image("image/png", b"hello" * 300)
    assert request_parts.base64_text(Image("image/png", b"hello")) == "aGVsbG8="
    assert request_parts.data_url(Image("image/png", b"hello")) == "data:image/png;base64,aGVsbG8="
    note = "[An image (image/png, 1,500 bytes) is not shown: this model cannot take it.]"
    assert request_parts.text_for_omitted_image(image) == note


def test_a_legal_id_stays_and_the_same_odd_one_becomes_the_same() -> None:
    legal = re.compile(r"[A-Za-z0-9]{9}")
    messages = [
        assistant(ToolCall("abcdefgh1", "read", "{}"), ToolCall("odd!", "read", "{}")),
        user(ToolResult("odd!", "x")),
    ]
    made = request_parts.legal_ids(messages, legal, 9)
    assert made["abcdefgh1"] == "abcdefgh1"
    assert set(made) == {"abcdefgh1", "odd!"}
    assert len(made["odd!"]) == 9
    assert request_parts.legal_ids(messages[1:], legal, 9) == {"odd!": made["odd!"]}


def test_a_schema_that_is_an_object_stays_and_nobody_changes_the_empty_one() -> None:
    assert request_parts.schema_of_tool(ToolSpec("t", "", '{"type": "string"}')) == {
        "type": "string"
    }
    request_parts.schema_of_tool(ToolSpec("t", "", ""))["more"] = 1
    assert "more" not in request_parts.EMPTY_SCHEMA
