"""Model servers on this computer say what they are, and with which window a model runs."""

from __future__ import annotations

from typing import Any

import pytest

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.providers import model_listing
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.local_server_details import LEAST_OLLAMA_WINDOW
from helix_desktop.providers.model_prices import ASSUMED_LOCAL_WINDOW
from helix_desktop.providers.provider_catalog import ProviderConfig
from tests.peers.ollama_server import OllamaServer
from tests.providers.test_model_listing import Server, listed

KOBOLD = {
    "/api/extra/version": {"result": "KoboldCpp", "version": "1.100", "vision": True},
    "/api/extra/true_max_context_length": {"value": 6144},
    # KoboldCpp also answers Ollama's paths.
    "/api/version": {"version": "0.7.0"},
}
LLAMA_CPP = {
    "/props": {
        "default_generation_settings": {"n_ctx": 8192},
        "modalities": {"vision": False, "audio": False},
        "chat_template": "{% for message in messages %}{{ message }}{% endfor %}",
    }
}
LLAMAFILE = {
    "/props": {
        "default_generation_settings": {"n_ctx": 2048},
        "model_path": "tiny.llamafile",
        "chat_template": "{{ tools }}",
    }
}
LM_STUDIO = {
    "/api/v0/models": {
        "data": [
            {
                "id": "m",
                "type": "vlm",
                "state": "loaded",
                "max_context_length": 131_072,
                "loaded_context_length": 4096,
                "capabilities": ["tool_use"],
            }
        ]
    }
}
VLLM = {"/version": {"version": "0.14"}}
JAN = {"/openapi.json": {"info": {"title": "Jan API"}}}


@pytest.mark.parametrize(
    ("answers", "server", "window", "tools", "images"),
    [
        (KOBOLD, "KoboldCpp", 6144, True, True),
        (LLAMA_CPP, "llama.cpp", 8192, False, False),
        (LLAMAFILE, "llamafile", 2048, True, True),
        (LM_STUDIO, "LM Studio", 4096, True, True),
        (VLLM, "vLLM", 32_768, True, True),
        (JAN, "Jan", ASSUMED_LOCAL_WINDOW, True, True),
        ({}, "", ASSUMED_LOCAL_WINDOW, True, True),
    ],
)
async def test_servers_are_told_apart_by_what_they_say(
    answers: dict[str, Any],
    server: str,
    window: int,
    tools: bool,
    images: bool,
    connections: ProviderConnections,
) -> None:
    item = {"id": "m", "max_model_len": 32_768} if answers is VLLM else {"id": "m"}
    with Server({**listed(item), **answers}) as peer:
        (model,) = await model_listing.list_models(peer.config(), None, connections)
    assert (model.server, model.window) == (server, window)
    assert (model.abilities.tools, model.abilities.images) == (tools, images)
    assert model.is_free


async def test_a_model_that_ollama_has_not_loaded_gets_a_small_window(
    connections: ProviderConnections,
) -> None:
    with OllamaServer() as peer:
        config = ProviderConfig("ollama", base_url=peer.base_url)
        (model,) = await model_listing.list_models(config, None, connections)
        assert peer.loads == [], "listing models loads none"
    assert model.window == LEAST_OLLAMA_WINDOW
    assert "not loaded yet" in model.note


@pytest.mark.parametrize(
    ("parameters", "largest", "window"),
    [
        ("num_ctx 16384\nstop x", 40_960, 16_384),
        ("", 2048, 2048),
        ("num_ctx 65536", 32_768, 32_768),
    ],
)
async def test_ollama_is_asked_for_the_window_that_its_model_file_names(
    parameters: str, largest: int, window: int, connections: ProviderConnections
) -> None:
    with OllamaServer(parameters=parameters, largest=largest) as peer:
        config = ProviderConfig("ollama", base_url=peer.base_url)
        (model,) = await model_listing.list_models(config, None, connections)
    assert model.window == window


@pytest.mark.parametrize(
    "number",
    [10**400, -1, 1e308, "8192", [8192], None, {"a": 1}],
    ids=lambda number: str(number)[:9],
)
@pytest.mark.parametrize("server", [KOBOLD, LLAMA_CPP, LM_STUDIO, VLLM], ids=min)
async def test_a_server_that_lies_about_its_numbers_is_listed_all_the_same(
    server: dict[str, Any], number: Any, connections: ProviderConnections
) -> None:
    answers = {path: with_numbers_replaced(answer, number) for path, answer in server.items()}
    with Server({**listed({"id": "m", "max_model_len": number}), **answers}) as peer:
        (model,) = await model_listing.list_models(peer.config(), None, connections)
    assert 0 < model.window <= 10**11


def with_numbers_replaced(answer: Any, number: Any) -> Any:
    if isinstance(answer, dict):
        return {name: with_numbers_replaced(value, number) for name, value in answer.items()}
    if isinstance(answer, list):
        return [with_numbers_replaced(value, number) for value in answer]
    if type(answer) is int:
        return number
    return answer


async def test_a_model_file_with_a_window_of_5_000_digits_names_none(
    connections: ProviderConnections,
) -> None:
    with OllamaServer(parameters=f"num_ctx {'9' * 5_000}") as peer:
        config = ProviderConfig("ollama", base_url=peer.base_url)
        (model,) = await model_listing.list_models(config, None, connections)
    assert model.window == LEAST_OLLAMA_WINDOW


async def test_the_catalogue_does_not_say_how_a_local_server_runs_a_model_or_what_it_costs(
    connections: ProviderConnections,
) -> None:
    answers = {**listed({"id": "deepseek-v3"}), **JAN}
    with Server(answers) as peer:
        (model,) = await model_listing.list_models(peer.config(), None, connections)
    assert (model.window, model.window_from) == (ASSUMED_LOCAL_WINDOW, WindowSizeSource.ASSUMED)
    assert model.prices.input == 0
    assert model.is_free
    assert f"{ASSUMED_LOCAL_WINDOW:,} tokens is assumed" in model.note
