"""Gemini: signatures that stay with their parts, results paired by name, and its
reasons for ending.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall, ToolSpec, Usage
from helix_desktop.engine.messages import Delta, Image, ReasoningDelta, Reply, Request, ToolResult
from helix_desktop.errors import ModelFailed, ModelOverloaded
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.gemini.gemini_client import FOREIGN, GeminiProtocol, GeminiReplyReader
from helix_desktop.protocols.protocol_dialect import ModelAbilities
from helix_desktop.providers.http_transport import ProviderConnections
from tests.peers.gemini_server import USAGE, GeminiServer, chunks, refused, reply, response
from tests.providers.asking import PROTOCOLS, Instant, after_a_call, asking, assistant, heard, user

PROTOCOL = PROTOCOLS[3]
HERE = GeminiProtocol("http://127.0.0.1:1", "peer")
CALL = ToolCall("demo_00000001", "read", '{"path": "a"}')


def read(made: list[Any]) -> tuple[list[Delta], Reply]:
    reading = GeminiReplyReader(HERE.reasoning_owner, "peer", "scripted")
    deltas = [
        delta for one in made for delta in reading.feed_event(ServerSentEvent(json.dumps(one)))
    ]
    return deltas, reading.reply_so_far()


def sent(request: Request, **abilities: Any) -> Any:
    return HERE.compile_request(request, ModelAbilities(**abilities)).body


def again(answered: Reply, **abilities: Any) -> Any:
    """The reply's parts as they go back, with a result for each of its calls."""
    results = [ToolResult(part.id, "x") for part in answered.parts if isinstance(part, ToolCall)]
    return sent(asking(user("Go"), assistant(*answered.parts), user(*results, "on")), **abilities)[
        "contents"
    ][1]["parts"]


def test_results_are_paired_by_name_and_failures_are_errors() -> None:
    other = ToolCall("demo_00000002", "list", "{}")
    results = (ToolResult(CALL.id, "content"), ToolResult(other.id, "gone", ok=False), "and quick")
    contents = sent(asking(user("Go"), assistant(CALL, other), user(*results)))["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[2]["parts"] == [
        {"functionResponse": {"name": "read", "response": {"output": "content"}}},
        {"functionResponse": {"name": "list", "response": {"error": "gone"}}},
        {"text": "and quick"},
    ]


def test_a_signature_goes_back_on_its_call() -> None:
    _, answered = read(
        chunks(
            "Reading.",
            thought="hm",
            calls=[("read", {"path": "a"}), ("read", {"path": "b"})],
            signature="S",
        )
    )
    assert [type(part) for part in answered.parts] == [
        Reasoning,
        Text,
        Reasoning,
        ToolCall,
        ToolCall,
    ]
    assert again(answered) == [
        {"text": "Reading."},
        {"functionCall": {"name": "read", "args": {"path": "a"}}, "thoughtSignature": "S"},
        {"functionCall": {"name": "read", "args": {"path": "b"}}},
    ]


def test_a_signature_on_text_goes_back_on_that_text() -> None:
    signed = [response([{"text": "Yes", "thoughtSignature": "S"}]), response([], "STOP")]
    assert again(read(signed)[1]) == [{"text": "Yes", "thoughtSignature": "S"}]


def test_a_signature_behind_the_text_goes_back_behind_it() -> None:
    late = [response([{"text": "Yes"}]), response([{"text": "", "thoughtSignature": "S"}], "STOP")]
    assert again(read(late)[1]) == [{"text": "Yes"}, {"text": "", "thoughtSignature": "S"}]


def test_each_call_keeps_a_signature_of_its_own() -> None:
    parts: list[Any] = [
        {"functionCall": {"name": name, "args": {}}, "thoughtSignature": name}
        for name in ("a", "b")
    ]
    assert [part["thoughtSignature"] for part in again(read([response(parts, "STOP")])[1])] == [
        "a",
        "b",
    ]


def test_no_signature_is_lost_that_has_no_part_of_its_own() -> None:
    """On a thought, or on an empty text before a part that has a signature, too."""
    call: dict[str, Any] = {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "B"}
    empty: dict[str, Any] = {"text": "", "thoughtSignature": "A"}
    thought: dict[str, Any] = {"text": "hm", "thought": True, "thoughtSignature": "A"}
    yes: dict[str, Any] = {"text": "Yes"}
    for parts, written in (
        ([empty, call], [empty, call]),
        ([thought, call], [empty, call]),
        ([thought, yes], [{**yes, "thoughtSignature": "A"}]),
        ([thought], [empty]),
        (
            [yes, thought, empty | {"thoughtSignature": "B"}],
            [yes, empty, {**empty, "thoughtSignature": "B"}],
        ),
    ):
        assert (
            again(read([*(response([part]) for part in parts), response([], "STOP")])[1]) == written
        )


def test_a_call_of_another_model_carries_googles_stand_in_only_in_the_open_loop() -> None:
    open_loop = after_a_call()
    closed = asking(*open_loop.messages, assistant("Done"), user("More"))
    assert (
        sent(open_loop, reasoning="level")["contents"][1]["parts"][1]["thoughtSignature"] == FOREIGN
    )
    assert "thoughtSignature" not in json.dumps(sent(closed, reasoning="level"))
    assert "thoughtSignature" not in json.dumps(sent(open_loop, reasoning="budget"))


def test_a_signature_of_another_provider_is_left_out() -> None:
    foreign = Reasoning("", opaque='{"signature":"S"}', provider="gemini elsewhere")
    assert '"S"' not in json.dumps(
        sent(asking(user("Go"), assistant(foreign, "Yes"), user("More")))
    )


async def test_signatures_it_cannot_read_any_more_are_replaced(
    connections: ProviderConnections, clock: Instant
) -> None:
    kept = Reasoning("", opaque='{"signature":"old"}', provider=HERE.reasoning_owner)
    request = asking(user("Go"), assistant(kept, CALL), user(ToolResult(CALL.id, "x")))
    with GeminiServer([refused(400, "Thought signature is not valid"), reply("Fine")]) as peer:
        await heard(PROTOCOL.client(peer, connections, clock), request)
        first, second = (json.dumps(body) for body in peer.bodies)
    assert ("old" in first, "old" in second, FOREIGN in second) == (True, False, True)


def test_effort_is_a_level_or_a_budget() -> None:
    request = asking(reasoning="low", max_output=500)
    config = {
        "maxOutputTokens": 500,
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
    }
    assert sent(request, reasoning="level")["generationConfig"] == config
    assert (
        sent(request, reasoning="budget")["generationConfig"]["thinkingConfig"]["thinkingBudget"]
        == 2048
    )
    assert sent(request)["generationConfig"] == {"maxOutputTokens": 500}


def test_images_it_takes_are_sent_and_others_named() -> None:
    parts = sent(asking(user(Image("image/png", b"x"), Image("image/gif", b"y"))))["contents"][0][
        "parts"
    ]
    assert parts[0] == {"inlineData": {"mimeType": "image/png", "data": "eA=="}}
    assert "image/gif" in parts[1]["text"]


def test_tools_are_declared_and_one_without_arguments_has_no_parameters() -> None:
    plain = ToolSpec("now", "The time.", '{"type":"object","properties":{}}')
    declared = sent(asking(tools=(plain,)))["tools"][0]["functionDeclarations"]
    assert declared == [{"name": "now", "description": "The time."}]


@pytest.mark.parametrize(
    ("base_url", "path"),
    [
        (
            "https://generativelanguage.googleapis.com",
            "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        ),
        ("https://proxy.example/google/v1", "/models/gemini-x:streamGenerateContent?alt=sse"),
    ],
)
def test_the_path_names_the_model(base_url: str, path: str) -> None:
    request = Request("models/gemini-x", "", (user("Hi"),))
    assert GeminiProtocol(base_url, "x").compile_request(request, ModelAbilities()).path == path


def test_thoughts_stream_as_reasoning() -> None:
    deltas, answered = read(chunks("Yes", thought="Let me see"))
    assert [delta for delta in deltas if isinstance(delta, ReasoningDelta)] == [
        ReasoningDelta("Let me see")
    ]
    assert answered.parts[1] == Text("Yes")


def test_usage_counts_thinking_as_output() -> None:
    assert read(chunks("Hi"))[1].usage == Usage(input=100, cache_read=60, output=20, reasoning=5)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("STOP", Stop.END),
        ("MAX_TOKENS", Stop.LENGTH),
        ("SAFETY", Stop.FILTERED),
        ("PROHIBITED_CONTENT", Stop.FILTERED),
        ("MALFORMED_FUNCTION_CALL", Stop.CUT),
        ("OTHER", Stop.CUT),
        ("", Stop.CUT),
    ],
)
def test_reasons(finish: str, stop: Stop) -> None:
    answered = read(chunks("Hi", finish=finish))[1]
    assert answered.stop is stop
    assert (finish in answered.why) is (stop in {Stop.CUT, Stop.FILTERED})


def test_a_blocked_prompt_says_so() -> None:
    answered = read([{"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE}])[1]
    assert (answered.stop, "SAFETY" in answered.why) == (Stop.FILTERED, True)


async def test_googles_own_way_to_ask_for_a_pause(
    connections: ProviderConnections, clock: Instant
) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    busy = refused(
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        state="RESOURCE_EXHAUSTED",
        details=details,
    )
    with GeminiServer([busy, reply("Hi")]) as peer:
        await heard(PROTOCOL.client(peer, connections, clock), asking())
    assert 34.5 <= clock.slept[0] <= 39


def test_an_array_instead_of_a_stream_is_read() -> None:
    assert read([chunks("Hi there")])[1].parts == (Text("Hi there"),)


@pytest.mark.parametrize(("code", "error"), [(503, ModelOverloaded), (400, ModelFailed)])
def test_errors_inside_a_stream(code: int, error: type[ModelFailed]) -> None:
    with pytest.raises(error):
        read([{"error": {"code": code, "message": "no", "status": "X"}}])


async def test_the_key_is_a_header_and_not_in_the_address(
    connections: ProviderConnections, clock: Instant
) -> None:
    from helix_desktop.providers.provider_catalog import connect_model_client

    with GeminiServer([reply("Hi")]) as peer:
        await heard(
            connect_model_client(
                PROTOCOL.config(peer), "scripted", "k-123", connections=connections, clock=clock
            ),
            asking(),
        )
        assert peer.requests[0].headers["x-goog-api-key"] == "k-123"
        assert "k-123" not in peer.requests[0].path


def test_a_temperature_goes_only_to_models_that_take_one() -> None:
    request = asking(temperature=0.2, top_p=0.5)
    assert sent(request)["generationConfig"] == {"temperature": 0.2, "topP": 0.5}
    assert "generationConfig" not in sent(request, temperature=False)


@pytest.mark.parametrize("finish", ["STOP", "MAX_TOKENS"])
def test_a_reply_that_ends_with_calls_waits_for_their_results(finish: str) -> None:
    answered = read(chunks("Hi", calls=[("read", {"path": "a"})], finish=finish))[1]
    assert answered.stop is (Stop.CALLS if finish == "STOP" else Stop.LENGTH)


def test_what_an_event_said_stands_where_later_ones_do_not_say_it() -> None:
    said = {"content": {"parts": [{"text": "Half"}]}, "finishReason": "MAX_TOKENS"}
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 2}
    first = {"candidates": [said], "modelVersion": "g-1", "usageMetadata": usage}
    _, answered = read([first, {"candidates": [{"content": {"parts": []}}]}])
    assert (answered.stop, answered.usage.output) == (Stop.LENGTH, 2)
    _, blocked = read([{"promptFeedback": {"blockReason": "SAFETY"}}, {"candidates": []}])
    assert blocked.stop is Stop.FILTERED


def test_options_that_are_refused_are_left_out_and_nothing_else() -> None:
    body: Any = {"generationConfig": {"thinkingConfig": {"x": 1}, "topP": 0.5}, "contents": []}
    assert HERE.relax_request(body, ModelFailed("Thinking is not supported.")) == {"generationConfig": {"topP": 0.5}, "contents": []}  # fmt: skip
    assert HERE.relax_request({"contents": []}, ModelFailed("Thinking is not supported.")) is None
    assert HERE.relax_request(body, ModelFailed("Something else.")) is None


def test_a_reply_of_a_signature_alone_is_left_out_where_it_cannot_be_read() -> None:
    """Google refuses a message without parts."""
    signed = Reasoning("", opaque='{"signature":"old"}', provider=HERE.reasoning_owner)
    body = sent(asking(user("Go"), assistant(signed), user("on")))
    relaxed = HERE.relax_request(body, ModelFailed("Thought signature is not valid"))
    assert relaxed is not None
    assert relaxed["contents"] == [
        {"role": "user", "parts": [{"text": "Go"}]},
        {"role": "user", "parts": [{"text": "on"}]},
    ]


def test_a_budget_nobody_knows_is_left_to_the_model() -> None:
    settings = sent(asking(reasoning="unheard-of"), reasoning="budget")["generationConfig"]
    assert settings["thinkingConfig"] == {"includeThoughts": True, "thinkingBudget": -1}


@pytest.mark.parametrize(
    ("reasoning", "wanted"), [("budget", ""), ("level", ""), ("effort", "high")]
)
def test_effort_is_asked_for_only_where_there_is_one_and_the_model_knows_it(
    reasoning: str, wanted: str
) -> None:
    config = sent(asking(reasoning=wanted), reasoning=reasoning)["generationConfig"]
    assert config["thinkingConfig"] == {"includeThoughts": True}


@pytest.mark.parametrize(
    ("last", "complete"),
    [
        (response([{"text": "Yes"}]), False),
        (response([], "STOP"), True),
        (response([], "SAFETY"), True),
        (response([], "OTHER_REASON"), False),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, True),
    ],
)
def test_a_reply_is_complete_with_a_reason_that_is_known(last: Any, complete: bool) -> None:
    reading = GeminiReplyReader(HERE.reasoning_owner, "peer", "scripted")
    reading.feed_event(ServerSentEvent(json.dumps(response([{"text": "Hi"}]))))
    assert not reading.is_reply_complete
    reading.feed_event(ServerSentEvent(json.dumps(last)))
    assert reading.is_reply_complete == complete
    assert not reading.is_stream_over, "figures may follow"


def test_an_error_without_a_code_is_one_of_the_server() -> None:
    with pytest.raises(ModelFailed) as coded:
        read([{"error": {"code": 500, "message": "no"}}])
    with pytest.raises(ModelFailed) as bare:
        read([{"error": {"message": "no"}}])
    assert (type(bare.value), bare.value.remedy) == (type(coded.value), coded.value.remedy)


def test_each_signature_seals_the_reasoning_before_it_and_one_that_follows_another_has_a_part_of_its_own() -> (
    None
):
    def sealed(*parts: dict[str, Any]) -> list[tuple[str, str]]:
        answered = read([*(response([part]) for part in parts), response([], "STOP")])[1]
        found = [part for part in answered.parts if isinstance(part, Reasoning)]
        return [
            (part.text, json.loads(part.opaque)["signature"] if part.opaque else "")
            for part in found
        ]

    one = {"text": "", "thoughtSignature": "A"}
    other = {"text": "", "thoughtSignature": "B"}
    assert sealed(one, other) == [("", "A"), ("", "B")]
    thought = {"text": "hm", "thought": True}
    more = {"text": "and on", "thought": True}
    assert sealed(thought, one) == [("hm", "A")]
    assert sealed(thought, one, {"text": "Yes"}, more, other) == [("hm", "A"), ("and on", "B")]


def test_a_call_without_a_name_is_told_to_the_model_unless_the_reply_broke_off() -> None:
    nameless = response([{"functionCall": {"args": {}}}])
    (call,) = read([nameless, response([], "STOP")])[1].parts
    assert isinstance(call, ToolCall)
    assert call.name == "unnamed"
    assert read([nameless])[1].parts == ()
