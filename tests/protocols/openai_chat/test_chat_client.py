"""Chat completions as they are really spoken: what is sent, and the quirks of the servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall, Usage
from helix_desktop.engine.messages import CallDelta, Image, ReasoningDelta, Reply, ToolResult
from helix_desktop.errors import ContextTooLong, ModelFailed, ModelOverloaded
from helix_desktop.json_values import Object
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.openai_chat.chat_client import OpenAIChat
from helix_desktop.protocols.openai_chat.chat_reply_reader import (
    ChatReplyReader,
    merge_reasoning_details,
)
from helix_desktop.protocols.protocol_dialect import ModelAbilities
from helix_desktop.providers.http_transport import ProviderConnections
from tests.peers.chat_server import ChatServer, chunk, refused, reply
from tests.providers.asking import PROTOCOLS, Instant, after_a_call, asking, assistant, heard, user

CHAT = PROTOCOLS[0]
HERE = OpenAIChat("http://127.0.0.1:1/v1", "peer")


def read(*chunks: Any, done: bool = True) -> Reply:
    reading = ChatReplyReader(HERE.reasoning_owner, "peer", "scripted")
    for one in chunks:
        reading.feed_event(ServerSentEvent(one if isinstance(one, str) else json.dumps(one)))
    if done:
        reading.feed_event(ServerSentEvent("[DONE]"))
    return reading.reply_so_far()


def sent(request: Any, base_url: str = "http://127.0.0.1:1/v1", **abilities: Any) -> Object:
    return OpenAIChat(base_url, "peer").compile_request(request, ModelAbilities(**abilities)).body


def messages(body: Object) -> list[Any]:
    found = body["messages"]
    assert isinstance(found, list)
    return found


# --- writing


def test_results_are_messages_of_their_own_before_what_the_user_says() -> None:
    call = ToolCall("call_000000001", "read", '{"path":"a"}')
    request = asking(
        user("Go"), assistant(call), user(ToolResult(call.id, "content"), "and be quick")
    )
    assert messages(sent(request)) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"a"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "content"},
        {"role": "user", "content": "and be quick"},
    ]


def test_arguments_go_back_as_the_model_wrote_them_and_malformed_ones_as_an_object() -> None:
    whole = ToolCall("call_whole_1", "read", '{ "path" : "a" }')
    torn = ToolCall("call_torn_01", "read", '{"path": "a')
    request = asking(
        user("Go"),
        assistant(whole, torn),
        user(ToolResult(whole.id, "1"), ToolResult(torn.id, "2")),
    )
    calls = messages(sent(request))[2]["tool_calls"]
    assert calls[0]["function"]["arguments"] == '{ "path" : "a" }'
    assert json.loads(calls[1]["function"]["arguments"]) == {"malformed_arguments": '{"path": "a'}


def test_images_are_shown_or_named() -> None:
    image = Image("image/png", b"\x89PNG")
    request = asking(user("What is this?", image))
    content = messages(sent(request))[1]["content"]
    assert content[1] == {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,iVBORw=="},
    }
    assert "cannot take it" in messages(sent(request, images=False))[1]["content"]


def test_an_image_of_a_result_follows_as_the_users() -> None:
    call = ToolCall("call_000000001", "read", "{}")
    result = ToolResult(call.id, "a picture", images=(Image("image/png", b"x"),))
    body = sent(asking(user("Go"), assistant(call), user(result)))
    assert [message["role"] for message in messages(body)] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]


def test_ids_of_another_provider_are_made_legal_alike_in_call_and_result() -> None:
    odd = "toolu vrtx/01:" + "x" * 80
    for base_url, length in (("https://api.mistral.ai/v1", 9), ("https://api.openai.com/v1", 40)):
        body = sent(after_a_call(odd), base_url)
        called = messages(body)[2]["tool_calls"][0]["id"]
        answered = messages(body)[3]["tool_call_id"]
        assert called == answered
        assert len(called) == length
        assert called.isalnum()


def test_the_name_of_the_output_limit_follows_the_server() -> None:
    request = asking(max_output=500)
    assert sent(request, "https://api.openai.com/v1")["max_completion_tokens"] == 500
    assert sent(request)["max_tokens"] == 500


def test_effort_is_asked_of_models_that_reason() -> None:
    request = asking(reasoning="high")
    assert sent(request, reasoning="effort")["reasoning_effort"] == "high"
    assert "reasoning_effort" not in sent(request)
    assert sent(request, "https://openrouter.ai/api/v1", reasoning="effort")["reasoning"] == {
        "effort": "high"
    }


def test_caching_is_asked_for_where_it_has_to_be() -> None:
    request = asking()
    body = (
        OpenAIChat("https://openrouter.ai/api/v1", "openrouter")
        .compile_request(
            type(request)("anthropic/claude-opus-5-5", request.system, request.messages),
            ModelAbilities(),
        )
        .body
    )
    assert [message["content"][0]["cache_control"] for message in messages(body)] == [
        {"type": "ephemeral"}
    ] * 2


@pytest.mark.parametrize(
    ("header", "name", "value"),
    [("", "authorization", "Bearer k"), ("api-key", "api-key", "k")],
    ids=["usual", "azure"],
)
async def test_the_key_goes_under_the_header_the_server_wants(
    header: str, name: str, value: str, connections: ProviderConnections, clock: Instant
) -> None:
    from helix_desktop.providers.provider_catalog import connect_model_client

    with ChatServer([reply("Hi")]) as peer:
        config = CHAT.config(
            peer,
            key_header=header,
            query=(("api-version", "2024-10-21"),),
            headers=(("x-team", "7"),),
        )
        await heard(
            connect_model_client(config, "scripted", "k", connections=connections, clock=clock),
            asking(),
        )
        assert (peer.requests[0].headers[name], peer.requests[0].headers["x-team"]) == (value, "7")
        assert peer.requests[0].path == "/v1/chat/completions?api-version=2024-10-21"


# --- reasoning


def test_reasoning_streams_and_is_a_part_of_its_own() -> None:
    answered = read(
        chunk({"reasoning_content": "Let me "}),
        chunk({"reasoning_content": "see."}),
        chunk({"content": "Yes"}),
        chunk({}, "stop"),
    )
    reasoning, text = answered.parts
    assert isinstance(reasoning, Reasoning)
    assert (reasoning.text, reasoning.provider, text) == (
        "Let me see.",
        "openai-chat 127.0.0.1",
        Text("Yes"),
    )


def own(text: str, field: str, provider: str = HERE.reasoning_owner) -> Reasoning:
    return Reasoning(text, opaque=json.dumps({"field": field}), provider=provider)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_inside_a_tool_loop_reasoning_goes_back_under_the_servers_own_name(field: str) -> None:
    call = ToolCall("call_000000001", "read", "{}")
    request = asking(
        user("Go"), assistant(own("because", field), call), user(ToolResult(call.id, "x"))
    )
    assert messages(sent(request))[2][field] == "because"


def test_after_the_loop_and_from_another_provider_it_does_not() -> None:
    call = ToolCall("call_000000001", "read", "{}")
    closed = asking(
        user("Go"),
        assistant(own("because", "reasoning"), call),
        user(ToolResult(call.id, "x")),
        assistant("Done"),
        user("More"),
    )
    foreign = asking(
        user("Go"),
        assistant(own("signed", "reasoning", "anthropic a"), call),
        user(ToolResult(call.id, "x")),
    )
    for request in (closed, foreign):
        assert "because" not in json.dumps(sent(request))
        assert "signed" not in json.dumps(sent(request))


def test_reasoning_details_come_in_pieces_and_go_back_whole() -> None:
    pieces: list[Any] = [
        {"type": "reasoning.text", "index": 0, "text": "Let "},
        {"type": "reasoning.text", "index": 0, "text": "me", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "e1"},
        {"type": "reasoning.encrypted", "index": 1, "data": "e2"},
    ]
    whole = [
        {"type": "reasoning.text", "index": 0, "text": "Let me", "signature": "s"},
        *pieces[2:],
    ]
    assert merge_reasoning_details(pieces) == whole
    streamed = [
        chunk({"reasoning": "Let me" if at == 0 else "", "reasoning_details": [one]})
        for at, one in enumerate(pieces)
    ]
    answered = read(*streamed, chunk({"content": "Yes"}), chunk({}, "stop"))
    request = asking(
        user("Go"),
        assistant(*answered.parts, ToolCall("call_000000001", "read", "{}")),
        user(ToolResult("call_000000001", "x")),
    )
    assert messages(sent(request))[2]["reasoning_details"] == whole


def test_a_server_that_wants_reasoning_with_every_reply_gets_it() -> None:
    request = asking(user("Go"), assistant("Said without."), user("More"))
    assert (
        messages(sent(request, "https://api.deepseek.com/v1", reasoning="effort"))[2][
            "reasoning_content"
        ]
        == " "
    )


async def test_a_server_that_refuses_or_misses_reasoning_is_asked_again_its_way(
    connections: ProviderConnections, clock: Instant
) -> None:
    call = ToolCall("call_000000001", "read", "{}")
    with ChatServer() as peer:
        mine = own("because", "reasoning_content", "openai-chat 127.0.0.1")
        request = asking(user("Go"), assistant(mine, call), user(ToolResult(call.id, "x")))
        peer.script = [refused(400, "property 'reasoning_content' is unsupported"), reply("Fine")]
        await heard(CHAT.client(peer, connections, clock), request)
        peer.script = [
            refused(400, "The reasoning_content in the thinking mode must be passed back"),
            reply("Fine"),
        ]
        await heard(CHAT.client(peer, connections, clock), after_a_call())
        first, second, _, fourth = peer.bodies
    assert "reasoning_content" in json.dumps(first)
    assert "reasoning_content" not in json.dumps(second)
    assert fourth["messages"][2]["reasoning_content"] == " "


async def test_an_option_the_server_does_not_know_is_left_out(
    connections: ProviderConnections, clock: Instant
) -> None:
    with ChatServer([refused(400, "Unknown parameter: 'stream_options'."), reply("Fine")]) as peer:
        _, answered = await heard(CHAT.client(peer, connections, clock), asking())
        assert "stream_options" not in peer.bodies[1]
    assert (answered.stop, clock.slept) == (Stop.END, [])


async def test_a_refusal_that_stays_is_said(
    connections: ProviderConnections, clock: Instant
) -> None:
    with ChatServer(default=refused(400, "Unknown parameter: 'stream_options'.")) as peer:
        with pytest.raises(ModelFailed, match="stream_options"):
            await heard(CHAT.client(peer, connections, clock), asking())
        assert len(peer.bodies) == 2


# --- reading: the servers' quirks


def calls_in(answered: Reply) -> list[tuple[str, Any]]:
    return [
        (part.name, json.loads(part.arguments))
        for part in answered.parts
        if isinstance(part, ToolCall)
    ]


def test_calls_without_index_are_told_apart_by_their_ids() -> None:
    answered = read(
        chunk(
            {
                "tool_calls": [
                    {"id": "call_aaaaaaaa", "function": {"name": "read", "arguments": '{"path":'}}
                ]
            }
        ),
        chunk({"tool_calls": [{"function": {"arguments": '"a"}'}}]}),
        chunk(
            {
                "tool_calls": [
                    {
                        "id": "call_bbbbbbbb",
                        "function": {"name": "read", "arguments": '{"path":"b"}'},
                    }
                ]
            }
        ),
        chunk({}, "tool_calls"),
    )
    assert calls_in(answered) == [("read", {"path": "a"}), ("read", {"path": "b"})]


def test_whole_calls_in_one_chunk_with_arguments_as_an_object() -> None:
    call = {
        "index": 0,
        "id": "call_aaaaaaaa",
        "function": {"name": "read", "arguments": {"path": "ü"}},
    }
    assert calls_in(read(chunk({"tool_calls": [call]}), chunk({}, "stop"))) == [
        ("read", {"path": "ü"})
    ]


def test_whole_calls_that_all_claim_index_zero() -> None:
    calls = [
        {"index": 0, "id": f"call_{letter * 8}", "function": {"name": letter, "arguments": "{}"}}
        for letter in "ab"
    ]
    answered = read(
        chunk({"tool_calls": [calls[0]]}),
        chunk({"tool_calls": [calls[1]]}),
        chunk({}, "tool_calls"),
    )
    assert calls_in(answered) == [("a", {}), ("b", {})]


def test_calls_without_ids_or_with_counters_get_ids_of_their_own() -> None:
    calls = [
        {"index": at, "id": given, "function": {"name": "read", "arguments": "{}"}}
        for at, given in enumerate(["", "0", "call_1"])
    ]
    one, two = (read(chunk({"tool_calls": calls}), chunk({}, "tool_calls")) for _ in range(2))
    ids = [
        part.id for answered in (one, two) for part in answered.parts if isinstance(part, ToolCall)
    ]
    assert len(set(ids)) == 6


def test_calls_that_end_with_stop_are_calls_and_a_call_reason_without_calls_is_an_end() -> None:
    call = {"index": 0, "id": "call_aaaaaaaa", "function": {"name": "read", "arguments": "{}"}}
    assert read(chunk({"tool_calls": [call]}), chunk({}, "stop")).stop is Stop.CALLS
    assert read(chunk({"content": "Hm"}), chunk({}, "tool_calls")).stop is Stop.END


@pytest.mark.parametrize("reason", [None, "error", "insufficient_system_resource"])
def test_no_reason_or_a_failure_is_a_cut(reason: str | None) -> None:
    answered = read(chunk({"content": "Half an"}), chunk({}, reason), done=bool(reason))
    assert (answered.stop, answered.parts) == (Stop.CUT, (Text("Half an"),))
    assert answered.why


@pytest.mark.parametrize("reason", [None, "whatever"])
def test_a_stream_that_is_ended_in_form_is_complete_whatever_the_reason(reason: str | None) -> None:
    call = {"index": 0, "id": "call_aaaaaaaa", "function": {"name": "read", "arguments": "{}"}}
    assert read(chunk({"content": "All"}), chunk({}, reason)).stop is Stop.END
    assert read(chunk({"tool_calls": [call]}), chunk({}, reason)).stop is Stop.CALLS
    assert read(chunk({}, None)).stop is Stop.CUT, "nothing came at all"


@pytest.mark.parametrize(
    "delta",
    [
        {"content": 5}, {"content": {"a": 1}}, "text", {"tool_calls": {"0": {}}}, {"tool_calls": ["x"]},
        {"tool_calls": [{"function": "read"}]}, {"tool_calls": [{"function": {"name": 5}}]},
        {"tool_calls": [{"function": {"name": "read", "arguments": 5}}]},
    ],
)  # fmt: skip
def test_a_piece_of_the_wrong_type_is_not_passed_over(delta: object) -> None:
    with pytest.raises(ValueError, match=r"is no|is an"):
        read({"choices": [{"index": 0, "delta": delta}]})


def test_a_filtered_reply_says_so() -> None:
    answered = read(chunk({"content": "I"}), chunk({}, "content_filter"))
    assert (answered.stop, "content filter" in answered.why) == (Stop.FILTERED, True)


def test_at_the_length_limit_a_call_whose_arguments_had_not_begun_is_no_call_without_arguments() -> (
    None
):
    begun = {"index": 0, "id": "call_aaaaaaaa", "function": {"name": "list_files", "arguments": ""}}
    met = read(chunk({"content": "I list. "}), chunk({"tool_calls": [begun]}), chunk({}, "length"))
    assert (met.parts, met.stop) == ((Text("I list. "),), Stop.LENGTH)


def test_in_a_cut_reply_a_call_without_arguments_is_left_out_and_a_torn_one_cannot_pass_for_whole() -> (
    None
):
    start = [
        chunk({"content": "Let me"}),
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "call_aaaaaaaa", "function": {"name": "rm", "arguments": ""}}
                ]
            }
        ),
    ]
    assert read(*start, done=False).parts == (Text("Let me"),)
    torn = read(
        *start,
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"path": "/'}}]}),
        done=False,
    )
    (call,) = [part for part in torn.parts if isinstance(part, ToolCall)]
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(call.arguments)


@pytest.mark.parametrize(
    ("where", "usage", "expected"),
    [
        (
            "chunk",
            {"prompt_tokens": 9, "completion_tokens": 3, "prompt_cache_hit_tokens": 4},
            Usage(9, 4, 0, 3),
        ),
        (
            "choice",
            {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": 4},
            Usage(9, 4, 0, 3),
        ),
        ("x_groq", {"prompt_tokens": 9, "completion_tokens": 3}, Usage(9, 0, 0, 3)),
        (
            "chunk",
            {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.25},
            Usage(9, 0, 0, 3, cost=0.25),
        ),
        (
            "chunk",
            {"prompt_tokens": None, "completion_tokens": "many", "prompt_tokens_details": None},
            Usage(),
        ),
    ],
)
def test_usage_wherever_a_server_puts_it(
    where: str, usage: dict[str, Any], expected: Usage
) -> None:
    last = chunk({}, "stop")
    if where == "choice":
        last["choices"][0]["usage"] = usage
    else:
        last |= {"usage": usage} if where == "chunk" else {"x_groq": {"usage": usage}}
    assert read(last).usage == expected


@pytest.mark.parametrize("streamed", [("content", "tool_calls"), ("content",), ("tool_calls",), ()])
def test_a_whole_message_behind_its_pieces_adds_only_what_is_missing(
    streamed: tuple[str, ...],
) -> None:
    """The call ran twice."""
    call = {"index": 0, "id": "call_abcdefgh", "function": {"name": "run", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": "Done.", "tool_calls": [call]}
    pieces = [chunk({name: message[name]}) for name in streamed]
    last = chunk({}, "tool_calls")
    last["choices"][0]["message"] = message
    answered = read(*pieces, last)
    assert calls_in(answered) == [("run", {"a": 1})]
    assert [part for part in answered.parts if isinstance(part, Text)] == [Text("Done.")]


def test_a_reply_of_too_many_calls_is_refused() -> None:
    calls = [
        {"index": at, "id": f"call_{at:09}", "function": {"name": "a", "arguments": "{}"}}
        for at in range(1_001)
    ]
    with pytest.raises(ValueError, match="too many calls"):
        read(chunk({"tool_calls": calls}))


def test_content_as_a_list_with_thinking_in_it() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Yes"},
    ]
    reasoning, text = read(chunk({"content": content}), chunk({}, "stop")).parts
    assert isinstance(reasoning, Reasoning)
    assert (reasoning.text, text) == ("hm", Text("Yes"))


def test_a_whole_completion_where_a_stream_was_asked_for() -> None:
    message = {
        "role": "assistant",
        "content": "Yes",
        "tool_calls": [{"id": "0", "function": {"name": "read", "arguments": "{}"}}] * 2,
    }
    answered = read(
        {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}, done=False
    )
    assert (answered.parts[0], calls_in(answered), answered.stop) == (
        Text("Yes"),
        [("read", {})] * 2,
        Stop.CALLS,
    )


async def test_a_server_that_does_not_stream_is_understood(
    connections: ProviderConnections, clock: Instant
) -> None:
    from tests.peers.peer import json_answer

    whole = json_answer(
        {"choices": [{"index": 0, "message": {"content": "Yes"}, "finish_reason": "stop"}]}
    )
    with ChatServer([whole]) as peer:
        _, answered = await heard(CHAT.client(peer, connections, clock), asking())
    assert (answered.parts, answered.stop) == ((Text("Yes"),), Stop.END)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "Rate limit exceeded", "code": 429}, ModelOverloaded),
        (
            {"message": "This endpoint's maximum context length is 8192 tokens.", "code": 400},
            ContextTooLong,
        ),
        ({"message": "boom", "code": "server_error"}, ModelOverloaded),
    ],
)
def test_errors_inside_a_stream(error: dict[str, Any], kind: type[ModelFailed]) -> None:
    with pytest.raises(kind):
        read({"error": error})


async def test_an_error_in_the_middle_of_a_stream_keeps_what_came(
    connections: ProviderConnections, clock: Instant
) -> None:
    broken = reply("The first words, and more").with_piece(
        3, b'data: {"error": {"message": "upstream died", "code": 502}}\n\n'
    )
    with ChatServer([broken]) as peer:
        _, answered = await heard(CHAT.client(peer, connections, clock), asking())
    assert (answered.stop, "upstream died" in answered.why, bool(answered.parts)) == (
        Stop.CUT,
        True,
        True,
    )


@pytest.mark.parametrize(
    "junk",
    [
        "[]",
        '"text"',
        "7",
        '{"choices": "x"}',
        '{"choices": [7]}',
        '{"choices": [{"delta": {"content": 7}}]}',
    ],
)
def test_odd_chunks_are_refused_or_ignored_and_nothing_breaks(junk: str) -> None:
    try:
        answered = read(junk, chunk({}, "stop"))
    except ValueError:
        return
    assert answered.parts == ()


def test_pieces_of_calls_are_shown_as_they_come() -> None:
    reading = ChatReplyReader("tag", "peer", "m")
    first = reading.feed_event(
        ServerSentEvent(
            json.dumps(
                chunk(
                    {
                        "tool_calls": [
                            {"index": 0, "id": "call_aaaaaaaa", "function": {"name": "read"}}
                        ]
                    }
                )
            )
        )
    )
    second = reading.feed_event(
        ServerSentEvent(
            json.dumps(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}))
        )
    )
    assert [*first, *second] == [
        CallDelta(0, "call_aaaaaaaa", "read", ""),
        CallDelta(0, "call_aaaaaaaa", "read", "{"),
    ]
    assert reading.feed_event(ServerSentEvent(json.dumps(chunk({"reasoning": "hm"})))) == [
        ReasoningDelta("hm")
    ]


def test_a_temperature_goes_only_to_models_that_take_one() -> None:
    request = asking(temperature=0.7, top_p=0.9)
    body = sent(request)
    assert (body["temperature"], body["top_p"]) == (0.7, 0.9)
    assert {"temperature", "top_p"}.isdisjoint(sent(request, temperature=False))
    assert {"temperature", "top_p"}.isdisjoint(sent(asking()))


async def test_a_temperature_that_is_refused_is_left_out(
    connections: ProviderConnections, clock: Instant
) -> None:
    with ChatServer(
        [refused(400, "Unsupported value: 'temperature' does not support 0.7"), reply("Fine")]
    ) as peer:
        await heard(PROTOCOLS[0].client(peer, connections, clock), asking(temperature=0.7))
        assert ["temperature" in body for body in peer.bodies] == [True, False]


def test_the_model_of_a_reply_is_the_last_one_that_was_named() -> None:
    reading = OpenAIChat("http://127.0.0.1:1/v1", "peer").build_reply_reader(asking())
    for model in ("first", "", "second", None):
        value = {"model": model, "choices": [{"delta": {"content": "x"}}]}
        reading.feed_event(ServerSentEvent(json.dumps(value), "message"))
    assert reading.reply_so_far().model == "second"


def test_a_piece_of_a_call_without_a_name_goes_on_with_the_last_one_and_a_name_begins_another() -> (
    None
):
    reading = OpenAIChat("http://127.0.0.1:1/v1", "peer").build_reply_reader(asking())
    pieces = [
        {"name": "read", "arguments": '{"a"'},
        {"arguments": ": 1}"},
        {"name": "list", "arguments": "{}"},
    ]
    for piece in pieces:
        value = {"choices": [{"delta": {"tool_calls": [{"function": piece}]}}]}
        reading.feed_event(ServerSentEvent(json.dumps(value), "message"))
    reading.feed_event(ServerSentEvent("[DONE]", "message"))
    calls = [part for part in reading.reply_so_far().parts if isinstance(part, ToolCall)]
    assert [(call.name, call.arguments) for call in calls] == [("read", '{"a": 1}'), ("list", "{}")]


def test_a_model_without_tools_is_offered_none() -> None:
    here = OpenAIChat("http://127.0.0.1:1/v1", "peer")
    assert "tools" not in here.compile_request(asking(), ModelAbilities(tools=False)).body
    assert "tools" not in here.compile_request(asking(tools=()), ModelAbilities()).body
    assert "tools" in here.compile_request(asking(), ModelAbilities()).body


def test_a_reply_of_which_nothing_can_go_back_is_left_out() -> None:
    foreign = Reasoning("because", provider="other", opaque="signed")
    request = asking(user("Go"), assistant(foreign), user("More"))
    assert [message["role"] for message in messages(sent(request))] == ["system", "user", "user"]


def test_a_call_of_the_old_form_is_a_call() -> None:
    answered = read(
        chunk({"function_call": {"name": "read", "arguments": '{"path":'}}),
        chunk({"function_call": {"arguments": '"a"}'}}),
        chunk({}, "function_call"),
    )
    assert calls_in(answered) == [("read", {"path": "a"})]


def test_reasoning_that_is_only_sealed_goes_back_before_what_was_said() -> None:
    sealed = {"type": "reasoning.encrypted", "index": 0, "data": "e1"}
    answered = read(
        chunk({"reasoning_details": [sealed]}), chunk({"content": "Yes"}), chunk({}, "stop")
    )
    assert [type(part).__name__ for part in answered.parts] == ["Reasoning", "Text"]
    call = ToolCall("call_000000001", "read", "{}")
    request = asking(user("Go"), assistant(*answered.parts, call), user(ToolResult(call.id, "x")))
    assert messages(sent(request))[2]["reasoning_details"] == [sealed]


def test_a_request_whose_reasoning_is_refused_is_sent_without_it_or_with_a_blank_one() -> None:
    """DeepSeek's models refuse a request with reasoning, or one without it, by the name
    of the field.
    """
    asked: dict[str, Any] = {"role": "user", "content": "Hi"}
    answered: dict[str, Any] = {"role": "assistant", "content": "Yes"}
    body: dict[str, Any] = {
        "messages": [asked, {**answered, "reasoning_content": "because"}],
        "model": "m",
    }
    refused = ModelFailed("The field reasoning_content is not allowed.")
    assert HERE.relax_request(body, refused) == {"messages": [asked, answered], "model": "m"}
    assert HERE.relax_request({"messages": [asked, answered]}, refused) is None
    needed = ModelFailed("The reasoning_content must be passed back.")
    blank: dict[str, Any] = {"messages": [asked, {**answered, "reasoning_content": " "}]}
    assert HERE.relax_request({"messages": [asked, answered]}, needed) == blank
    assert HERE.relax_request(blank, needed) is None
