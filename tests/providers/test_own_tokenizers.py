"""Servers count a request with the tokenizer of the model that will read it."""

from __future__ import annotations

from typing import Any

import pytest

from helix_desktop.providers.http_transport import ProviderConnections, ProviderTransport
from helix_desktop.providers.local_server_details import LocalServerKind
from helix_desktop.providers.own_tokenizers import COUNTING_SERVERS, count_with_server
from tests.peers.peer import Answer, Peer, Seen, json_answer

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hello"}],
    "stream": True,
    "max_tokens": 20,
}


class Counting(Peer):
    """Answers a path with what stands under it."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__()
        self.answers = answers

    def answer(self, seen: Seen) -> Answer:
        found = self.answers.get(seen.path)
        return json_answer(found or {}, 200 if found else 404)


@pytest.mark.parametrize(
    ("kind", "answers", "count"),
    [
        (
            LocalServerKind.LLAMA_CPP,
            {"/apply-template": {"prompt": "<user>Hello"}, "/tokenize": {"tokens": [5, 6, 7]}},
            3,
        ),
        (LocalServerKind.VLLM, {"/tokenize": {"count": 9, "max_model_len": 4096}}, 9),
        (LocalServerKind.KOBOLDCPP, {"/api/extra/tokencount": {"value": 4}}, 4),
        (LocalServerKind.LLAMAFILE, {}, 0),
    ],
)
async def test_each_server_is_asked_in_its_way(
    kind: LocalServerKind,
    answers: dict[str, Any],
    count: int,
    connections: ProviderConnections,
) -> None:
    assert kind in COUNTING_SERVERS
    with Counting(answers) as server:
        transport = ProviderTransport(server.base_url, "here", {}, connections)
        assert await count_with_server(transport, kind, BODY) == count
        for sent in server.bodies:
            assert "stream" not in sent
            assert "max_tokens" not in sent


async def test_the_template_is_counted_too(connections: ProviderConnections) -> None:
    answers = {"/apply-template": {"prompt": "<user>Hello"}, "/tokenize": {"tokens": [1]}}
    with Counting(answers) as server:
        transport = ProviderTransport(server.base_url, "here", {}, connections)
        await count_with_server(transport, LocalServerKind.LLAMA_CPP, {**BODY, "tools": [{"a": 1}]})
        template, tokenize = server.bodies
    assert template == {"messages": BODY["messages"], "tools": [{"a": 1}]}
    assert tokenize["content"] == "<user>Hello"
