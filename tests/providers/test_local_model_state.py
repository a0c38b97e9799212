"""Before a request, a local server is asked with which window it runs the model now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.local_model_state import PAUSE_SECONDS, LocalModelState
from helix_desktop.providers.provider_catalog import ProviderConfig, describe_model
from tests.peers.ollama_server import OllamaServer
from tests.peers.peer import Peer
from tests.providers.test_local_server_details import LM_STUDIO
from tests.providers.test_model_listing import Server, listed


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def state_at(
    folder: Path, base_url: str, connections: ProviderConnections, clock: Clock
) -> LocalModelState:
    configured = ConfiguredProviders(folder / "providers.toml")
    configured.save_provider(ProviderConfig("here", base_url=base_url))
    return LocalModelState(configured, connections, clock)


def window_of(state: LocalModelState, model: str) -> int:
    return describe_model(state.configured.find_provider("here"), model).window


async def test_a_model_is_loaded_for_a_turn_and_not_for_a_look(
    tmp_path: Path, connections: ProviderConnections
) -> None:
    with OllamaServer(usual=32_768) as server:
        state = state_at(tmp_path, server.base_url, connections, Clock())
        await state.update_model("here", server.model, may_load=False)
        assert (server.loads, window_of(state, server.model)) == ([], 8_192)
        await state.update_model("here", server.model, may_load=True)
        assert (server.loads, window_of(state, server.model)) == ([32_768], 32_768)
        await state.update_model("here", server.model, may_load=True)
        assert server.loads == [32_768], "it is in memory"


async def test_a_server_that_says_nothing_is_asked_again_after_a_while(
    tmp_path: Path, connections: ProviderConnections
) -> None:
    clock = Clock()
    with Peer() as server:
        state = state_at(tmp_path, f"{server.base_url}/v1", connections, clock)
        await state.update_model("here", "m", may_load=True)
        asked = len(server.requests)
        assert asked
        await state.update_model("here", "m", may_load=True)
        assert len(server.requests) == asked
        clock.now = PAUSE_SECONDS + 1
        await state.update_model("here", "m", may_load=True)
        assert len(server.requests) == 2 * asked


async def test_another_server_at_the_same_address_is_recognised(
    tmp_path: Path, connections: ProviderConnections
) -> None:
    with Server({**listed({"id": "m"}), **LM_STUDIO}) as server:
        state = state_at(tmp_path, server.base_url, connections, Clock())
        state.configured.save_reported_models("here", {"m": {"server": "vLLM", "window": 32_768}})
        await state.update_model("here", "m", may_load=True)
        info = describe_model(state.configured.find_provider("here"), "m")
    assert (info.server, info.window) == ("LM Studio", 4096)


async def test_a_service_elsewhere_is_not_asked(
    tmp_path: Path, connections: ProviderConnections
) -> None:
    with Peer() as server:
        state = state_at(tmp_path, server.base_url, connections, Clock())
        config = state.configured.find_provider("here")
        state.configured.save_provider(replace(config, kind="anthropic"))
        await state.update_model("here", "m", may_load=True)
        assert server.requests == []
