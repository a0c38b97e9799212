"""Ollama's own protocol: each request names its window, and nothing is cut silently."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall, ToolSpec, Usage
from helix_desktop.engine.messages import Image, Message, Request, Role, ToolResult
from helix_desktop.errors import ContextTooLong, ModelFailed
from helix_desktop.protocols.ollama.ollama_client import OllamaChat
from helix_desktop.protocols.protocol_dialect import ModelAbilities
from helix_desktop.providers import model_listing
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.provider_catalog import ProviderConfig, connect_model_client
from tests.peers.ollama_server import OllamaServer
from tests.peers.peer import Answer, Peer, json_answer
from tests.providers.asking import Instant, asking, heard

DIALECT = OllamaChat("http://127.0.0.1:11434/v1", "ollama")


def body_of(request: Request, **abilities: Any) -> Any:
    return DIALECT.compile_request(request, ModelAbilities(**abilities)).body


def lines(*values: dict[str, Any]) -> Answer:
    pieces = tuple(json.dumps(value).encode() + b"\n" for value in values)
    return Answer(pieces=pieces, content_type="application/x-ndjson")


DONE = {"done": True, "done_reason": "stop", "prompt_eval_count": 30, "eval_count": 4}


async def ask(answer: Answer, connections: ProviderConnections) -> Any:
    config = ProviderConfig("ollama", reported={"m": {"server": "Ollama", "window": 8192}})
    with Peer([answer]) as peer:
        there = replace(config, base_url=f"{peer.base_url}/v1")
        client = connect_model_client(there, "m", connections=connections, clock=Instant())
        return await heard(client, asking())


def test_a_request_names_its_window_and_its_limit() -> None:
    body = body_of(replace(asking(), max_output=120, temperature=0.5), window=8192)
    assert body["options"] == {"num_ctx": 8192, "num_predict": 120, "temperature": 0.5}
    assert (body["truncate"], body["shift"]) == (False, False)


def test_calls_results_images_and_thoughts_are_written() -> None:
    own = Reasoning("hm", provider=DIALECT.reasoning_owner)
    request = Request(
        "m",
        "Be brief.",
        (
            Message(Role.USER, (Text("Look"), Image("image/png", b"png"))),
            Message(Role.ASSISTANT, (own, Text("I read."), ToolCall("c1", "read", '{"path":"a"}'))),
            Message(Role.USER, (ToolResult("c1", "content"),)),
        ),
        (ToolSpec("read", "Reads", "{}"),),
    )
    body = body_of(request)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look", "images": ["cG5n"]},
        {
            "role": "assistant",
            "content": "I read.",
            "thinking": "hm",
            "tool_calls": [{"function": {"name": "read", "arguments": {"path": "a"}}}],
        },
        {"role": "tool", "tool_name": "read", "content": "content"},
    ]
    assert body["tools"][0]["function"]["name"] == "read"
    without = body_of(request, images=False, tools=False)
    assert "images" not in without["messages"][1]
    assert "not shown" in without["messages"][1]["content"]
    assert "tools" not in without


async def test_a_stream_of_lines_is_read(connections: ProviderConnections) -> None:
    call = {"function": {"name": "read", "arguments": {"path": "a"}}}
    answer = lines(
        {"message": {"content": "", "thinking": "Let me "}},
        {"message": {"content": "", "thinking": "see."}},
        {"message": {"content": "I "}},
        {"message": {"content": "read.", "tool_calls": [call]}},
        {"message": {"content": ""}, **DONE},
    )
    for split in (answer, answer.split(7)):
        _, reply = await ask(split, connections)
        thought, text, made = reply.parts
        assert (thought.text, text.text, made.name) == ("Let me see.", "I read.", "read")
        assert json.loads(made.arguments) == {"path": "a"}
        assert (reply.stop, reply.usage) == (Stop.CALLS, Usage(input=30, output=4))


async def test_a_reply_at_its_limit_and_one_that_broke_off_are_told_apart(
    connections: ProviderConnections,
) -> None:
    part = {"message": {"content": "Once"}}
    _, long = await ask(lines(part, {**DONE, "done_reason": "length"}), connections)
    assert long.stop is Stop.LENGTH
    _, cut = await ask(lines(part), connections)
    assert cut.stop is Stop.CUT


async def test_errors_are_read_before_and_within_a_stream(
    connections: ProviderConnections,
) -> None:
    refused = "the input length exceeds the context length"
    with pytest.raises(ContextTooLong):
        await ask(json_answer({"error": refused}, 400), connections)
    with pytest.raises(ModelFailed, match="out of memory"):
        await ask(json_answer({"error": "out of memory"}, 400), connections)
    _, reply = await ask(
        lines({"message": {"content": "Once"}}, {"error": "runner ended"}), connections
    )
    assert (reply.stop, "runner ended" in reply.why) == (Stop.CUT, True)


def test_a_model_that_cannot_think_is_asked_without() -> None:
    body = body_of(replace(asking(), reasoning="high"), reasoning="effort")
    assert body["think"] == "high"
    relaxed = DIALECT.relax_request(body, ModelFailed('"m" does not support thinking'))
    assert relaxed is not None
    assert "think" not in relaxed
    assert DIALECT.relax_request(relaxed, ModelFailed("out of memory")) is None


async def test_ollama_runs_the_model_with_the_window_that_was_counted_with(
    connections: ProviderConnections,
) -> None:
    with OllamaServer() as peer:
        config = ProviderConfig("ollama", base_url=peer.base_url)
        (model,) = await model_listing.list_models(config, None, connections)
        client = connect_model_client(config, model, connections=connections, clock=Instant())
        long = " ".join(f"word{number}" for number in range(6000))
        await heard(client, Request("m", "", (Message(Role.USER, (Text(long),)),)))
        assert (peer.loads, peer.cut) == ([model.window], 0)
