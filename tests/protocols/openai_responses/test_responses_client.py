"""Responses without the provider's memory: every item is sent again, encrypted
reasoning word for word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, ReplyPart, Stop, Text, ToolCall, Usage
from helix_desktop.engine.messages import Delta, Image, ReasoningDelta, Reply, Request, ToolResult
from helix_desktop.errors import ContextTooLong, ModelFailed, ModelOverloaded, NoCreditLeft
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.openai_responses.responses_client import (
    OpenAIResponses,
    ResponsesReplyReader,
)
from helix_desktop.protocols.protocol_dialect import ModelAbilities
from helix_desktop.providers.http_transport import ProviderConnections
from tests.peers.chat_server import refused
from tests.peers.peer import json_answer
from tests.peers.responses_server import ResponsesServer, events, reply
from tests.providers.asking import PROTOCOLS, Instant, after_a_call, asking, assistant, heard, user

PROTOCOL = PROTOCOLS[1]
HERE = OpenAIResponses("http://127.0.0.1:1/v1", "peer")
CALL = ToolCall("call_00000001", "read", '{"path": "a"}')


def read(made: list[dict[str, Any]]) -> tuple[list[Delta], Reply]:
    reading = ResponsesReplyReader(HERE.reasoning_owner, "peer", "scripted")
    deltas = [
        delta
        for one in made
        for delta in reading.feed_event(
            ServerSentEvent(json.dumps(one), one.get("type", "message"))
        )
    ]
    return deltas, reading.reply_so_far()


def sent(request: Request, **abilities: Any) -> Any:
    return HERE.compile_request(request, ModelAbilities(**abilities)).body


def test_nothing_is_stored_and_encrypted_reasoning_is_asked_for() -> None:
    body = sent(asking(reasoning="low"), reasoning="effort")
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert body["reasoning"] == {"summary": "auto", "effort": "low"}
    assert (body["instructions"], body["tools"][0]["name"], body["tools"][0]["strict"]) == (
        "Be brief.",
        "read",
        False,
    )


def test_a_model_that_does_not_reason_is_not_asked_to() -> None:
    assert not {"include", "reasoning"} & set(sent(asking(reasoning="low")))


def test_items_are_sent_again_in_their_order() -> None:
    _, answered = read(
        events(
            "Reading.", reasoning="Let me see", encrypted="gAAA", calls=[("read", {"path": "a"})]
        )
    )
    call = next(part for part in answered.parts if isinstance(part, ToolCall))
    request = asking(
        user("Go"), assistant(*answered.parts), user(ToolResult(call.id, "content"), "and go on")
    )
    items = sent(request)["input"]
    assert [item["type"] for item in items] == [
        "message", "reasoning", "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    reasoning = {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "Let me see"}],
    }
    assert items[1] == {**reasoning, "encrypted_content": "gAAA"}
    assert (items[3]["call_id"], items[4]["call_id"], items[4]["output"]) == (
        call.id,
        call.id,
        "content",
    )


def test_reasoning_that_is_not_encrypted_or_not_ours_is_left_out() -> None:
    _, answered = read(events("Yes", reasoning="hm", encrypted=""))
    foreign = Reasoning("hm", opaque='{"type":"reasoning"}', provider="openai-responses elsewhere")
    odd = [
        Reasoning("hm", opaque=text, provider=HERE.reasoning_owner)
        for text in ("", "broken", "{}", '{"type":"thinking"}')
    ]
    said: list[Sequence[ReplyPart]] = [answered.parts, [foreign, *odd, Text("Yes")]]
    for parts in said:
        items = sent(asking(user("Go"), assistant(*parts), user("More")))["input"]
        assert [item["type"] for item in items] == ["message"] * 3


def test_images_go_into_messages_and_outputs() -> None:
    image = Image("image/png", b"x")
    items = sent(
        asking(
            user("Look", image), assistant(CALL), user(ToolResult(CALL.id, "seen", images=(image,)))
        )
    )["input"]
    assert items[0]["content"][1] == {
        "type": "input_image",
        "image_url": "data:image/png;base64,eA==",
        "detail": "auto",
    }
    assert [piece["type"] for piece in items[2]["output"]] == ["input_text", "input_image"]
    assert "cannot take it" in json.dumps(sent(asking(user(image)), images=False))


def test_reasoning_summaries_stream_and_parts_are_set_apart() -> None:
    made = events("Yes", reasoning="One")
    made.insert(
        3, {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1}
    )
    deltas, _ = read(made)
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "\n\nOne"


def test_items_that_come_without_pieces_are_read_whole() -> None:
    made = [
        one
        for one in events("Yes", reasoning="hm", calls=[("read", {"path": "a"})])
        if "delta" not in one["type"]
    ]
    reasoning, text, call = read(made)[1].parts
    assert isinstance(reasoning, Reasoning)
    assert isinstance(call, ToolCall)
    assert (reasoning.text, text, json.loads(call.arguments)) == ("hm", Text("Yes"), {"path": "a"})


@pytest.mark.parametrize(
    ("incomplete", "stop"),
    [
        ("max_output_tokens", Stop.LENGTH),
        ("content_filter", Stop.FILTERED),
        ("odd", Stop.CUT),
        ("", Stop.END),
    ],
)
def test_reasons(incomplete: str, stop: Stop) -> None:
    answered = read(events("Hi", incomplete=incomplete))[1]
    assert answered.stop is stop
    assert bool(answered.why) is (stop in {Stop.CUT, Stop.FILTERED})


def test_usage() -> None:
    assert read(events("Hi"))[1].usage == Usage(input=100, cache_read=60, output=20, reasoning=5)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, ModelOverloaded),
        ({"type": "error", "error": {"code": "server_error", "message": "boom"}}, ModelOverloaded),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "boom"}},
            },
            ModelOverloaded,
        ),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "context_length_exceeded", "message": "x"}},
            },
            ContextTooLong,
        ),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "insufficient_quota", "message": "pay"}},
            },
            NoCreditLeft,
        ),
    ],
)
def test_failures_inside_a_stream(event: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        read([event])
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        ("The encrypted content gAAA could not be verified.", "gAAA"),
        ("Your organization must be verified to use reasoning.summary", 'summary": "auto'),
        ("Unsupported parameter: 'include'", "include"),
    ],
)
async def test_what_the_provider_will_not_take_is_left_out(
    message: str, gone: str, connections: ProviderConnections, clock: Instant
) -> None:
    kept = Reasoning(
        "",
        opaque='{"type":"reasoning","id":"r","summary":[],"encrypted_content":"gAAA"}',
        provider=HERE.reasoning_owner,
    )
    request = asking(user("Go"), assistant(kept, "Yes"), user("More"))
    with ResponsesServer([refused(400, message), reply("Fine")]) as peer:
        from helix_desktop.providers.provider_catalog import connect_model_client, describe_model

        config = PROTOCOL.config(peer, corrections={"scripted": {"reasoning": "effort"}})
        await heard(
            connect_model_client(
                config, describe_model(config, "scripted"), connections=connections, clock=clock
            ),
            request,
        )
        first, second = (json.dumps(body) for body in peer.bodies)
    assert (gone in first, gone in second) == (True, False)


async def test_a_whole_response_where_a_stream_was_asked_for(
    connections: ProviderConnections, clock: Instant
) -> None:
    output = [
        one["item"]
        for one in events("Yes", calls=[("read", {"path": "a"})])
        if one["type"].endswith("item.done")
    ]
    whole = {"object": "response", "status": "completed", "output": output, "usage": {}}
    with ResponsesServer([json_answer(whole)]) as peer:
        _, answered = await heard(PROTOCOL.client(peer, connections, clock), after_a_call())
    assert (answered.parts[0], answered.stop) == (Text("Yes"), Stop.CALLS)


def test_an_empty_message_is_not_sent_empty() -> None:
    items = sent(asking(user(""), assistant(CALL), user(ToolResult(CALL.id, "x"))))["input"]
    assert items[0]["content"] == [{"type": "input_text", "text": "(empty)"}]
    assert items[-1]["type"] == "function_call_output"


def test_a_temperature_goes_only_to_models_that_take_one() -> None:
    assert sent(asking(temperature=0.2))["temperature"] == 0.2
    assert "temperature" not in sent(asking(temperature=0.2), temperature=False)


@pytest.mark.parametrize("last", ["response.completed", "response.incomplete"])
def test_a_reply_is_over_with_its_last_event_and_not_with_the_mark_of_the_streams_end(
    last: str,
) -> None:
    reading = ResponsesReplyReader(HERE.reasoning_owner, "peer", "scripted")
    begun = {"type": "response.created", "response": {"status": "in_progress"}}
    for data in (json.dumps(begun), " [DONE]\n"):
        assert reading.feed_event(ServerSentEvent(data, "message")) == []
        assert (reading.is_reply_complete, reading.is_stream_over) == (False, False)
    reading.feed_event(ServerSentEvent(json.dumps({"type": last, "response": {}}), last))
    assert (reading.is_reply_complete, reading.is_stream_over) == (True, True)


def test_an_id_this_provider_does_not_take_becomes_forty_letters_and_digits() -> None:
    items = sent(after_a_call("call of ü"))["input"]
    (made,) = {item["call_id"] for item in items if "call_id" in item}
    assert (len(made), made.isalnum()) == (40, True)


def test_an_item_goes_back_without_what_it_has_not_and_without_its_state() -> None:
    made = list(events("Yes", reasoning="hm", encrypted="gAAA"))
    for one in made:
        if one.get("item", {}).get("type") == "reasoning":
            one["item"] |= {"status": "completed", "content": None, "note": None}
    thought = next(part for part in read(made)[1].parts if isinstance(part, Reasoning))
    assert set(json.loads(thought.opaque)) == {"type", "id", "summary", "encrypted_content"}


def test_a_call_whose_arguments_had_not_begun_when_the_reply_broke_off_is_not_made() -> None:
    made = events("Yes", calls=[("read", {"path": "a"})])
    ends = ("response.completed", "response.output_item.done", "response.function_call_arguments")
    answered = read([one for one in made if not one["type"].startswith(ends)])[1]
    assert (answered.stop, [type(part) for part in answered.parts]) == (Stop.CUT, [Text])
    assert answered.why
    reading = ResponsesReplyReader(HERE.reasoning_owner, "peer", "scripted")
    for one in made:
        reading.feed_event(ServerSentEvent(json.dumps(one), one["type"]))
    assert reading.reply_so_far().stop is Stop.CALLS
    assert (reading.reply_so_far("stopped").stop, reading.reply_so_far("stopped").why) == (
        Stop.CUT,
        "stopped",
    )


def test_a_model_without_tools_is_offered_none() -> None:
    assert "tools" not in sent(asking(), tools=False)
    assert "tools" not in sent(asking(tools=()))


def test_a_reply_that_says_nothing_beside_its_call_goes_back_as_the_call() -> None:
    request = asking(user("Go"), assistant("", CALL), user(ToolResult(CALL.id, "x")))
    assert [item["type"] for item in sent(request)["input"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]


def failed(error: dict[str, Any]) -> ModelFailed:
    with pytest.raises(ModelFailed) as found:
        read([{"type": "error", "error": {"message": "no", **error}}])
    return found.value


def test_a_failure_is_known_by_its_code_or_by_its_kind() -> None:
    by_code = failed({"code": "rate_limit_exceeded"})
    by_kind = failed({"type": "rate_limit_exceeded"})
    assert (type(by_kind), by_kind.remedy) == (type(by_code), by_code.remedy)
    assert type(failed({"type": "unheard_of"})) is type(failed({}))


def test_a_message_that_came_in_pieces_is_not_taken_again_when_it_comes_whole() -> None:
    item = {"type": "message", "content": [{"type": "output_text", "text": "Yes"}]}
    made = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Yes"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_item.added", "output_index": 1, "item": item},
    ]
    assert read(made)[1].parts == (Text("Yes"),), "and before it is done nothing of it is whole"


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({"id": "fc_00000001"}, "fc_00000001"),
        ({"id": "fc_1", "call_id": "call_00000001"}, "call_00000001"),
    ],
)
def test_a_call_is_named_by_its_own_id_or_that_of_its_item(
    ids: dict[str, str], expected: str
) -> None:
    item = {"type": "function_call", "name": "read", "arguments": "{}", **ids}
    made: list[dict[str, Any]] = [{"type": "response.output_item.done", "output_index": 0, "item": item}, {"type": "response.completed", "response": {"status": "completed"}}]  # fmt: skip
    (call,) = read(made)[1].parts
    assert isinstance(call, ToolCall)
    assert (call.id, call.name) == (expected, "read")
