from __future__ import annotations

import asyncio
from dataclasses import replace

from helix_desktop.providers import local_servers
from helix_desktop.providers.http_transport import ProviderConnections, is_loopback
from helix_desktop.providers.provider_catalog import PRESETS
from tests.peers.chat_server import ChatServer
from tests.peers.peer import Answer, Pause, Peer, Seen, json_answer


class Silent(Peer):
    base_path = "/v1"

    def listing(self, seen: Seen) -> Answer:
        return Answer(200, (Pause(600),))


class Other(Peer):
    """Some program that happens to use the port."""

    base_path = "/v1"

    def listing(self, seen: Seen) -> Answer:
        return json_answer({"hello": "world"})


async def test_servers_are_found_among_what_else_answers(connections: ProviderConnections) -> None:
    with ChatServer() as server, Other() as other:
        places = [
            replace(PRESETS["ollama"], base_url=server.base_url),
            replace(PRESETS["vllm"], base_url=other.base_url),
            replace(PRESETS["llamacpp"], base_url="http://127.0.0.1:9/v1"),
        ]
        found = await local_servers.detect_local_servers(connections, places, seconds=60)
    assert [(one.config.name, [model.name for model in one.models]) for one in found] == [
        ("ollama", ["ollama/scripted"])
    ]


async def test_a_server_that_does_not_answer_is_not_waited_for(
    connections: ProviderConnections,
) -> None:
    with Silent() as silent:
        silent_one = replace(PRESETS["lmstudio"], base_url=silent.base_url)
        assert (
            await asyncio.wait_for(
                local_servers.detect_local_servers(connections, [silent_one], seconds=0.3), 60
            )
            == ()
        )


def test_only_this_machine_is_looked_at() -> None:
    assert {config.base_url for config in local_servers.USUAL} == {
        f"http://127.0.0.1:{port}/v1" for port in (11434, 1234, 8080, 8000, 1337, 5001)
    }
    assert all(is_loopback(config.base_url) for config in local_servers.USUAL)
