"""Anthropic's Messages: breakpoints of the cache, thinking that goes back word for
word, and the events of a stream.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall, Usage
from helix_desktop.engine.messages import Delta, Image, ReasoningDelta, Reply, Request, ToolResult
from helix_desktop.engine.prompt_cache_marks import MarkedRequest
from helix_desktop.errors import ContextTooLong, ModelFailed, ModelOverloaded
from helix_desktop.json_values import Object
from helix_desktop.protocols.anthropic.anthropic_client import (
    AnthropicMessages,
    AnthropicReplyReader,
)
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.protocol_dialect import ModelAbilities
from helix_desktop.providers.http_transport import ProviderConnections
from tests.peers import anthropic_server
from tests.peers.anthropic_billing import Cache
from tests.peers.anthropic_server import (
    AnthropicServer,
    block,
    error_event,
    events,
    refused,
    reply,
    streamed,
)
from tests.providers.asking import (
    PROTOCOLS,
    READ,
    Instant,
    after_a_call,
    asking,
    assistant,
    heard,
    user,
)

PROTOCOL = PROTOCOLS[2]
HERE = AnthropicMessages("http://127.0.0.1:1", "peer")
CALL = ToolCall("toolu_00000001", "read", '{"path":"a"}')


def read(made: list[dict[str, Any]]) -> tuple[list[Delta], Reply]:
    reading = AnthropicReplyReader(HERE.reasoning_owner, "peer", "scripted")
    deltas = [
        delta
        for one in made
        for delta in reading.feed_event(ServerSentEvent(json.dumps(one), one["type"]))
    ]
    return deltas, reading.reply_so_far()


def sent(request: Request, **abilities: Any) -> Any:
    body: Object = HERE.compile_request(request, ModelAbilities(**abilities)).body
    return body


def thinking_of(answered: Reply) -> Reasoning:
    (found,) = [part for part in answered.parts if isinstance(part, Reasoning)]
    return found


def marks(body: Any) -> list[str]:
    """Where breakpoints stand."""
    found = ["tools" for tool in body.get("tools", []) if "cache_control" in tool]
    found += ["system" for text in body.get("system", []) if "cache_control" in text]
    for at, message in enumerate(body["messages"]):
        found += [f"message {at}" for one in message["content"] if "cache_control" in one]
    return found


# --- writing


def test_breakpoints_stand_behind_the_head_what_is_known_the_last_change_and_the_last_message() -> (
    None
):
    request = asking(
        user("One"), assistant("Two"), user("Three"), assistant("Four"), user("Five"), stable=2
    )
    assert marks(sent(request)) == ["system", "message 1", "message 4"]
    assert marks(sent(replace(request, settled=4))) == [
        "system",
        "message 1",
        "message 3",
        "message 4",
    ]
    assert marks(sent(replace(request, stable=0))) == ["system", "message 4"]
    assert marks(sent(replace(request, stable=0, system=""))) == ["tools", "message 4"]
    assert marks(sent(replace(request, stable=5, system="", tools=()))) == ["message 4"]


def talk(steps: int, *, cleared: Container[int] = ()) -> Request:
    """So many steps of an agent; the outputs of some of them are markers by now."""
    said = [user("Go on until it is done. " * 40)]
    for step in range(steps):
        output = "[CACHED]" if step in cleared else f"line of output {step}\n" * 60
        call = ToolCall(f"toolu_{step:08}", "read", "{}")
        said += [assistant("I look at it.", call), user(ToolResult(call.id, output))]
    return asking(*said)


def found_again(requests: Iterable[Request], *, known: bool = True) -> int:
    """What the last of some requests reads from the cache."""
    cache = Cache()
    last = MarkedRequest()
    found = 0
    for request in requests:
        last = last.mark_next_request(request.messages)
        placed = replace(request, stable=last.stable, settled=last.settled) if known else request
        found = cache.bill(sent(placed))["cache_read_input_tokens"]
    return found


def tokens(request: Request) -> int:
    return len(json.dumps(sent(request))) // 4


def test_after_a_fold_in_the_middle_the_cache_is_found_up_to_it() -> None:
    requests = [talk(steps) for steps in range(1, 60)]
    requests.append(talk(60, cleared=[30]))
    assert found_again(requests) > 0.85 * tokens(talk(30))
    assert found_again(requests, known=False) < 0.15 * tokens(talk(30))


def test_a_second_fold_finds_what_the_first_one_made_to_be_written_again() -> None:
    once = range(20, 40)
    twice = range(20, 60)
    requests = [talk(steps) for steps in range(1, 60)]
    requests += [talk(steps, cleared=once) for steps in range(60, 70)]
    requests.append(talk(70, cleared=twice))
    assert found_again(requests) > 0.85 * tokens(talk(40, cleared=once))


@pytest.mark.parametrize(
    "opaque",
    ['{"type":"thinking","signature":"s"}', '{"type":"redacted_thinking","signature":"s"}'],
)
def test_a_breakpoint_is_never_on_thinking(opaque: str) -> None:
    thought = Reasoning("hm", opaque=opaque, provider=HERE.reasoning_owner)
    body = sent(asking(user("One"), assistant("Two", thought), user("Three"), stable=2))
    assert [set(one) for one in body["messages"][1]["content"]] == [
        {"type", "text", "cache_control"},
        {"type", "signature"},
    ]


def test_results_come_first_and_failures_are_marked() -> None:
    request = asking(
        user("Go"), assistant(CALL), user("quick", ToolResult(CALL.id, "gone", ok=False))
    )
    first, second = sent(request)["messages"][2]["content"]
    assert (first["type"], first["tool_use_id"], first["is_error"]) == (
        "tool_result",
        CALL.id,
        True,
    )
    assert second["text"] == "quick"


def test_empty_texts_are_left_out_and_no_message_is_empty() -> None:
    request = asking(
        user("Go"),
        assistant("  \n"),
        user("  "),
        assistant("Yes", CALL),
        user(ToolResult(CALL.id, "")),
    )
    written = sent(request)["messages"]
    assert [message["role"] for message in written] == ["user", "user", "assistant", "user"]
    assert written[1]["content"][0]["text"] == "(empty)"
    assert written[3]["content"][0]["content"] == []


def test_malformed_arguments_become_an_object() -> None:
    torn = replace(CALL, arguments='{"path": ')
    request = asking(user("Go"), assistant(torn), user(ToolResult(CALL.id, "no")))
    assert sent(request)["messages"][1]["content"][0]["input"] == {
        "malformed_arguments": '{"path": '
    }


def test_images_it_takes_are_sent_and_others_named() -> None:
    png = Image("image/png", b"x")
    svg = Image("image/svg+xml", b"<svg/>")
    content = sent(asking(user(png, svg)))["messages"][0]["content"]
    assert content[0]["source"] == {"type": "base64", "media_type": "image/png", "data": "eA=="}
    assert "image/svg+xml" in content[1]["text"]
    result = ToolResult(CALL.id, "seen", images=(png,))
    inside = sent(asking(user("Go"), assistant(CALL), user(result)))["messages"][2]["content"][0][
        "content"
    ]
    assert [one["type"] for one in inside] == ["text", "image"]


def test_every_request_names_a_limit() -> None:
    assert sent(asking())["max_tokens"] == 8192
    assert sent(asking(), max_output=128_000)["max_tokens"] == 32_000
    assert sent(asking(max_output=100))["max_tokens"] == 100


@pytest.mark.parametrize(
    "url", ["https://api.anthropic.com", "https://api.anthropic.com/v1", "https://x.org/anthropic/"]
)
def test_the_path_is_right_with_and_without_the_version(url: str) -> None:
    assert f"{url.rstrip('/')}{AnthropicMessages(url, 'x').compile_request(asking(), ModelAbilities()).path}".endswith(
        "/v1/messages"
    )


# --- thinking


def test_thinking_goes_back_word_for_word_with_its_signature() -> None:
    _, answered = read(
        events("Yes", thinking="Let me see…", signature="sig+/=", calls=[("read", {"path": "a"})])
    )
    assert thinking_of(answered).text == "Let me see…"
    call = next(part for part in answered.parts if isinstance(part, ToolCall))
    request = asking(user("Go"), assistant(*answered.parts), user(ToolResult(call.id, "x")))
    first = sent(request)["messages"][1]["content"][0]
    assert first == {"type": "thinking", "thinking": "Let me see…", "signature": "sig+/="}


def test_redacted_thinking_goes_back_and_shows_nothing() -> None:
    deltas, answered = read(events("Yes", redacted="xyz"))
    assert not any(isinstance(delta, ReasoningDelta) for delta in deltas)
    body = sent(asking(user("Go"), assistant(*answered.parts), user("More")))
    assert body["messages"][1]["content"][0] == {"type": "redacted_thinking", "data": "xyz"}


def test_thinking_without_a_signature_or_of_another_provider_is_left_out() -> None:
    unsigned = AnthropicReplyReader(HERE.reasoning_owner, "peer", "m")
    for one in events("Yes", thinking="hm")[:4]:
        unsigned.feed_event(ServerSentEvent(json.dumps(one)))
    cut = unsigned.reply_so_far("lost")
    foreign = Reasoning(
        "hm",
        opaque='{"type":"thinking","thinking":"hm","signature":"s"}',
        provider="anthropic other.org",
    )
    for part in (thinking_of(cut), foreign):
        body = sent(asking(user("Go"), assistant(part, "Yes"), user("More")))
        assert [one["type"] for one in body["messages"][1]["content"]] == ["text"]


def test_effort_is_asked_for_as_the_model_knows_it() -> None:
    request = asking(reasoning="medium")
    assert sent(request, reasoning="adaptive")["output_config"] == {"effort": "medium"}
    assert sent(request, reasoning="budget", max_output=64_000)["thinking"] == {
        "type": "enabled",
        "budget_tokens": 8192,
    }
    assert "thinking" not in sent(request)
    assert "thinking" not in sent(replace(request, max_output=1500), reasoning="budget")


def test_with_a_budget_thinking_stays_off_in_a_loop_another_model_began() -> None:
    request = after_a_call(reasoning="high")
    assert "thinking" not in sent(request, reasoning="budget", max_output=64_000)
    assert "thinking" in sent(asking(reasoning="high"), reasoning="budget", max_output=64_000)


def test_with_a_budget_thinking_goes_on_in_a_loop_that_began_with_it() -> None:
    opaque = '{"type":"thinking","thinking":"hm","signature":"s"}'
    thought = Reasoning("hm", opaque=opaque, provider=HERE.reasoning_owner)
    first = ToolCall("c1", "read", "{}")
    second = ToolCall("c2", "read", "{}")
    loop = [user("Go"), assistant(thought, first), user(ToolResult("c1", "x"))]
    assert "thinking" in sent(
        asking(*loop, reasoning="high"), reasoning="budget", max_output=64_000
    )
    loop += [assistant(second), user(ToolResult("c2", "y"))]
    assert "thinking" not in sent(
        asking(*loop, reasoning="high"), reasoning="budget", max_output=64_000
    )
    loop += [assistant("Done."), user("And now?")]
    assert "thinking" in sent(
        asking(*loop, reasoning="high"), reasoning="budget", max_output=64_000
    )


async def test_thinking_it_cannot_verify_any_more_is_left_out(
    connections: ProviderConnections, clock: Instant
) -> None:
    with AnthropicServer(
        [refused(400, "Invalid `signature` in `thinking` block"), reply("Fine")]
    ) as peer:
        tag = "anthropic 127.0.0.1"
        thought = Reasoning(
            "hm", opaque='{"type":"thinking","thinking":"hm","signature":"old"}', provider=tag
        )
        await heard(
            PROTOCOL.client(peer, connections, clock),
            asking(user("Go"), assistant(thought, "Yes"), user("More")),
        )
        first, second = (json.dumps(body) for body in peer.bodies)
    assert ("old" in first, "old" in second) == (True, False)


# --- reading


def test_usage_adds_up_what_is_fresh_read_and_written() -> None:
    assert read(events("Hi"))[1].usage == Usage(input=100, cache_read=60, cache_write=30, output=20)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", Stop.END),
        ("stop_sequence", Stop.END),
        ("max_tokens", Stop.LENGTH),
        ("model_context_window_exceeded", Stop.LENGTH),
        ("refusal", Stop.FILTERED),
        ("pause_turn", Stop.CUT),
        ("something_new", Stop.END),
        (None, Stop.CUT),
    ],
)
def test_reasons(reason: str | None, stop: Stop) -> None:
    answered = read(events("Hi", stop=reason))[1]
    assert answered.stop is stop
    assert bool(answered.why) is (stop in {Stop.CUT, Stop.FILTERED})


def test_a_call_without_arguments_has_an_empty_object() -> None:
    start = {"type": "tool_use", "id": "toolu_00000009", "name": "list", "input": {}}
    made = [*events()[:2], *block(0, start, []), *events(stop="tool_use")[2:]]
    assert read(made)[1].parts == (ToolCall("toolu_00000009", "list", "{}"),)
    assert read([*made[:-2], *events(stop="max_tokens")[-2:]])[1].parts == ()


@pytest.mark.parametrize(
    ("kind", "message", "error"),
    [
        ("overloaded_error", "Overloaded", ModelOverloaded),
        ("rate_limit_error", "slow down", ModelOverloaded),
        ("api_error", "boom", ModelOverloaded),
        ("invalid_request_error", "prompt is too long: 3 tokens > 2 maximum", ContextTooLong),
    ],
)
def test_error_events(kind: str, message: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        read([{"type": "error", "error": {"type": kind, "message": message}}])


async def test_overloaded_before_the_first_word_is_tried_again(
    connections: ProviderConnections, clock: Instant
) -> None:
    busy = streamed(events("Hi")[:2]).with_piece(2, error_event("overloaded_error", "Overloaded"))
    with AnthropicServer([busy, reply("Hi")]) as peer:
        _, answered = await heard(PROTOCOL.client(peer, connections, clock), asking())
    assert (answered.parts, answered.stop, len(clock.slept)) == ((Text("Hi"),), Stop.END, 1)


async def test_overloaded_in_the_middle_keeps_what_came(
    connections: ProviderConnections, clock: Instant
) -> None:
    broken = reply("The first words").with_piece(4, error_event("overloaded_error", "Overloaded"))
    with AnthropicServer([broken]) as peer:
        _, answered = await heard(PROTOCOL.client(peer, connections, clock), asking())
    assert (answered.stop, "Overloaded" in answered.why, answered.parts) == (
        Stop.CUT,
        True,
        (Text("The fir"),),
    )


async def test_a_whole_message_where_a_stream_was_asked_for(
    connections: ProviderConnections, clock: Instant
) -> None:
    from tests.peers.peer import json_answer

    content = [
        {"type": "text", "text": "Yes"},
        {"type": "tool_use", "id": "toolu_00000001", "name": "read", "input": {"path": "a"}},
    ]
    whole = {
        "type": "message",
        "content": content,
        "stop_reason": "tool_use",
        "usage": anthropic_server.USAGE,
    }
    with AnthropicServer([json_answer(whole)]) as peer:
        _, answered = await heard(PROTOCOL.client(peer, connections, clock), asking())
    assert answered.parts == (Text("Yes"), ToolCall("toolu_00000001", "read", '{"path":"a"}'))


def test_unknown_events_and_null_figures_are_passed_over() -> None:
    made = events("Hi")
    made.insert(1, {"type": "something_new", "data": [1, 2]})
    made[-2]["usage"] = {
        "output_tokens": 20,
        "cache_read_input_tokens": None,
        "server_tool_use": {"x": 1},
    }
    assert read(made)[1].usage == Usage(input=100, cache_read=60, cache_write=30, output=20)


async def test_the_version_and_the_key_are_headers(
    connections: ProviderConnections, clock: Instant
) -> None:
    from helix_desktop.providers.provider_catalog import connect_model_client

    with AnthropicServer([reply("Hi")]) as peer:
        await heard(
            connect_model_client(
                PROTOCOL.config(peer), "scripted", "k", connections=connections, clock=clock
            ),
            asking(),
        )
        headers = peer.requests[0].headers
    assert (headers["x-api-key"], headers["anthropic-version"], "authorization" in headers) == (
        "k",
        "2023-06-01",
        False,
    )


def test_tools_are_sent_with_their_schema() -> None:
    tool = sent(asking())["tools"][0]
    assert (tool["name"], tool["input_schema"]) == ("read", json.loads(READ.schema))


def test_a_temperature_goes_to_one_and_never_beside_thinking() -> None:
    request = asking(temperature=1.5)
    assert sent(request)["temperature"] == 1.0
    assert "temperature" not in sent(request, temperature=False)
    assert "temperature" not in sent(replace(request, reasoning="high"), reasoning="adaptive")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("invalid_request_error", 400),
        ("authentication_error", 401),
        ("billing_error", 402),
        ("permission_error", 403),
        ("not_found_error", 404),
        ("request_too_large", 413),
        ("rate_limit_error", 429),
        ("api_error", 500),
        ("timeout_error", 504),
        ("overloaded_error", 529),
        ("one_of_next_year", 500),
    ],
)
def test_an_error_in_a_stream_has_the_status_it_would_have_had_before_it(
    kind: str, status: int
) -> None:
    with pytest.raises(ModelFailed, match=f"status {status}"):
        read([{"type": "error", "error": {"type": kind}}])


def test_the_model_of_a_reply_is_the_one_that_answered() -> None:
    begin = {"type": "message_start", "message": {"model": "claude-of-today", "usage": {}}}
    assert read([begin])[1].model == "claude-of-today"
    assert read([])[1].model == ""


@pytest.mark.parametrize("word", ["signature", "`thinking`", "redacted_thinking", "unknown"])
def test_thinking_is_left_out_after_any_word_that_says_it_is_not_readable(word: str) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    said: Any = [{"role": "assistant", "content": [thought, {"type": "text", "text": "Yes"}]}, {"role": "assistant", "content": [thought]}]  # fmt: skip
    body: Object = {"messages": [*said], "thinking": {"type": "enabled"}, "max_tokens": 5}
    relaxed = HERE.relax_request(body, ModelFailed(f"Invalid {word} in a block."))
    if word == "unknown":
        assert relaxed is None
    else:
        assert relaxed == {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "Yes"}]}], "max_tokens": 5}  # fmt: skip
        assert HERE.relax_request(relaxed, ModelFailed(f"Invalid {word} in a block.")) is None


def test_a_budget_of_thinking_leaves_room_for_the_reply() -> None:
    for limit, budget in ((2048, 1024), (2047, None), (9000, 7976), (64_000, 8192)):
        body = sent(
            asking(reasoning="medium", max_output=limit), reasoning="budget", max_output=64_000
        )
        assert body.get("thinking", {}).get("budget_tokens") == budget
    assert "thinking" not in sent(
        asking(reasoning="unheard-of"), reasoning="budget", max_output=64_000
    )


def test_an_id_this_provider_does_not_take_becomes_forty_letters_and_digits() -> None:
    blocks = [
        one for message in sent(after_a_call("call of ü"))["messages"] for one in message["content"]
    ]
    (made,) = {
        one.get("id", one.get("tool_use_id"))
        for one in blocks
        if one["type"] in ("tool_use", "tool_result")
    }
    assert (len(made), made.isalnum()) == (40, True)


@pytest.mark.parametrize(
    ("header", "sent_as"),
    [
        ("", {"x-api-key": "k"}),
        ("api-key", {"api-key": "k"}),
        ("Authorization", {"authorization": "Bearer k"}),
    ],
)
async def test_the_key_goes_under_the_header_the_server_wants(
    header: str, sent_as: dict[str, str], connections: ProviderConnections, clock: Instant
) -> None:
    from helix_desktop.providers.provider_catalog import connect_model_client

    with AnthropicServer([reply("Hi")]) as peer:
        config = PROTOCOL.config(peer, key_header=header)
        await heard(
            connect_model_client(config, "scripted", "k", connections=connections, clock=clock),
            asking(),
        )
        headers = peer.requests[0].headers
    assert {
        name: headers[name] for name in ("x-api-key", "api-key", "authorization") if name in headers
    } == sent_as
