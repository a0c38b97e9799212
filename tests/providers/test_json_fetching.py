"""Single documents of a provider, and what is said where there is none."""

from __future__ import annotations

import pytest

from helix_desktop.errors import ModelFailed, ProviderKeyRefused, ProviderUnreachable
from helix_desktop.providers.http_transport import ProviderConnections, ProviderTransport
from helix_desktop.providers.json_fetching import fetch_json, fetch_json_by_post
from tests.peers.peer import Answer, Pause, Peer, json_answer


def transport_to(server: Peer, connections: ProviderConnections) -> ProviderTransport:
    return ProviderTransport(server.base_url, "here", {}, connections)


async def test_a_document_is_fetched_and_sent(connections: ProviderConnections) -> None:
    with Peer([json_answer({"answer": 2})]) as server:
        transport = transport_to(server, connections)
        assert await fetch_json_by_post(transport, "/ask", {"question": 1}, 5.0) == {"answer": 2}
        assert server.bodies == [{"question": 1}]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (json_answer({"error": {"message": "no key"}}, 401), ProviderKeyRefused, "no key"),
        (json_answer([1, 2]), ModelFailed, "did not return a list of models"),
        (Answer(pieces=(b"{", Pause(5.0))), ProviderUnreachable, "did not respond within 0"),
    ],
)
async def test_what_is_no_document_is_said(
    answer: Answer, error: type[ModelFailed], words: str, connections: ProviderConnections
) -> None:
    with Peer([answer]) as server, pytest.raises(error, match=words):
        await fetch_json_by_post(transport_to(server, connections), "/ask", {}, 0.3)


async def test_a_path_that_is_not_there_is_a_failure(connections: ProviderConnections) -> None:
    with Peer() as server, pytest.raises(ModelFailed):
        await fetch_json(transport_to(server, connections), "/nothing", 5.0)
