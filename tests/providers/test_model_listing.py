"""The lists of models of every kind of server, and the windows local servers really run with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.errors import ModelFailed, NotFound, ProviderKeyRefused, ProviderUnreachable
from helix_desktop.providers import model_listing
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.model_prices import ASSUMED_LOCAL_WINDOW
from helix_desktop.providers.provider_catalog import PRESETS, ProviderConfig
from tests.peers.peer import Answer, Pause, Peer, Seen, json_answer
from tests.providers.asking import PROTOCOLS, Protocol


class Server(Peer):
    """Answers GET with what stands under the path; `/v1/models` with pages where there
    are several.
    """

    base_path = "/v1"

    def __init__(self, answers: dict[str, Any], posts: Sequence[Answer] = ()) -> None:
        super().__init__(posts)
        self.answers = answers

    def listing(self, seen: Seen) -> Answer:
        path = seen.path if seen.path in self.answers else seen.path.partition("?")[0]
        found = self.answers.get(path)
        return (
            found if isinstance(found, Answer) else json_answer(found or {}, 200 if found else 404)
        )

    def config(self, **more: Any) -> ProviderConfig:
        return ProviderConfig("peer", base_url=self.base_url, **more)


def listed(*items: Any) -> dict[str, Any]:
    return {"/v1/models": {"object": "list", "data": list(items)}}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=[one.kind for one in PROTOCOLS])
async def test_every_kind_of_list_is_read(
    protocol: Protocol, connections: ProviderConnections
) -> None:
    with protocol.peer() as peer:
        (model,) = await model_listing.list_models(
            protocol.config(peer), "key-of-the-list", connections
        )
        assert "key-of-the-list" in " ".join(peer.requests[0].headers.values())
        assert "key-of-the-list" not in peer.requests[0].path
    assert model.id == "scripted"
    windows = {"anthropic": 200_000, "gemini": 1_048_576, "openai-chat": ASSUMED_LOCAL_WINDOW}
    expected = windows.get(protocol.kind, 128_000)
    assert model.window == expected


@pytest.mark.parametrize(
    ("item", "window"),
    [
        ({"id": "m", "max_model_len": 4096}, 4096),
        ({"id": "m", "context_length": 200_000}, 200_000),
        ({"id": "m", "context_window": 131_072}, 131_072),
        ({"id": "m", "max_context_length": 32_768}, 32_768),
        ({"id": "m", "meta": {"n_ctx": 16_384}}, 16_384),
        ({"id": "m", "context_length": "many"}, ASSUMED_LOCAL_WINDOW),
    ],
)
async def test_windows_wherever_a_server_puts_them(
    item: Any, window: int, connections: ProviderConnections
) -> None:
    with Server(listed(item)) as peer:
        (model,) = await model_listing.list_models(peer.config(), None, connections)
    assert model.window == window


async def test_prices_and_abilities_of_a_list_are_taken_over(
    connections: ProviderConnections,
) -> None:
    item = {
        "id": "maker/m",
        "context_length": 1000,
        "pricing": {
            "prompt": "0.000002",
            "completion": "0.00001",
            "input_cache_read": "0.0000002",
            "input_cache_write": "odd",
        },
        "architecture": {"input_modalities": ["text"]},
        "supported_parameters": ["max_tokens", "reasoning"],
        "top_provider": {"max_completion_tokens": 500},
    }
    with Server(listed(item)) as peer:
        (model,) = await model_listing.list_models(peer.config(), None, connections)
    assert (model.prices.input, model.prices.output, model.prices.cache_read) == (2.0, 10.0, 0.2)
    abilities = model.abilities
    assert (abilities.images, abilities.tools, abilities.reasoning, abilities.max_output) == (
        False,
        False,
        "effort",
        500,
    )


async def test_models_that_do_not_talk_are_left_out(connections: ProviderConnections) -> None:
    with Server(
        listed({"id": "text-embedding-3"}, {"id": "whisper-1"}, {"id": "m"}, {}, 7)
    ) as peer:
        assert [
            model.id for model in await model_listing.list_models(peer.config(), None, connections)
        ] == ["m"]


async def test_all_pages_are_asked_for(connections: ProviderConnections) -> None:
    first = {"data": [{"id": "a"}], "has_more": True, "last_id": "a b"}
    second = {"data": [{"id": "b"}], "has_more": False}
    answers = {"/v1/models?limit=1000": first, "/v1/models?limit=1000&after_id=a%20b": second}
    with Server(answers) as peer:
        config = peer.config(kind="anthropic")
        assert [
            model.id for model in await model_listing.list_models(config, None, connections)
        ] == ["a", "b"]


async def test_a_list_that_never_ends_ends(connections: ProviderConnections) -> None:
    with Server({"/v1/models": {"data": [{"id": "a"}], "has_more": True, "last_id": "a"}}) as peer:
        await model_listing.list_models(peer.config(), None, connections)
        assert (
            len([seen for seen in peer.requests if "/models" in seen.path])
            <= model_listing.MOST_PAGES + 3
        )


@pytest.mark.parametrize(
    ("path", "answer", "model", "window"),
    [
        (
            "/api/v0/models",
            {"data": [{"id": "m", "max_context_length": 131_072, "loaded_context_length": 8192}]},
            "m",
            8192,
        ),
        ("/props", {"default_generation_settings": {"n_ctx": 2048}, "model_alias": "m"}, "m", 2048),
    ],
    ids=["lm studio loaded", "llama.cpp"],
)
async def test_local_servers_are_asked_for_the_window_they_run_with(
    path: str, answer: Any, model: str, window: int, connections: ProviderConnections
) -> None:
    with Server({**listed({"id": model, "context_length": 999_999}), path: answer}) as peer:
        (found,) = await model_listing.list_models(peer.config(), None, connections)
    assert found.window == window
    assert "load" in found.note or "started" in found.note


@pytest.mark.parametrize(("kind", "images"), [("vlm", True), ("llm", False), (None, True)])
async def test_a_model_lm_studio_does_not_describe_may_see_pictures(
    kind: str | None, images: bool, connections: ProviderConnections
) -> None:
    about = {"id": "m", "loaded_context_length": 8192, "max_context_length": 8192} | (
        {"type": kind} if kind else {}
    )
    with Server({**listed({"id": "m"}), "/api/v0/models": {"data": [about]}}) as peer:
        (found,) = await model_listing.list_models(peer.config(), None, connections)
    assert found.abilities.images is images


async def test_a_server_that_answers_every_path_with_its_list_keeps_the_window_it_listed(
    connections: ProviderConnections,
) -> None:
    said = listed({"id": "m", "context_length": 32_000})
    (answer,) = said.values()
    with Server({**said, "/api/v0/models": answer}) as peer:
        (found,) = await model_listing.list_models(peer.config(), None, connections)
    assert (found.window, found.window_from) == (32_000, WindowSizeSource.REPORTED)
    assert found.note == "window as the provider reports it"


@pytest.mark.parametrize(
    ("answer", "limit", "error", "words"),
    [
        (
            json_answer(
                {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}, 401
            ),
            60,
            ProviderKeyRefused,
            "Incorrect",
        ),
        (
            Answer(200, (b"<html>hello</html>",), content_type="text/html"),
            60,
            ModelFailed,
            "did not return a list",
        ),
        (Answer(200, (Pause(600),)), 0.2, ProviderUnreachable, "did not respond|sent nothing"),
    ],
)
async def test_failures_are_sentences(
    answer: Answer,
    limit: float,
    error: type[ModelFailed],
    words: str,
    connections: ProviderConnections,
) -> None:
    with Server({"/v1/models": answer}) as peer, pytest.raises(error, match=words):
        await model_listing.list_models(peer.config(), "k", connections, seconds=limit)


async def test_what_was_listed_is_remembered(
    connections: ProviderConnections, tmp_path: Path
) -> None:
    configured = ConfiguredProviders(tmp_path / "providers.toml")
    with Server(listed({"id": "m", "context_length": 7777})) as peer:
        configured.save_provider(peer.config())
        await model_listing.list_and_save_models(configured, "peer", None, connections)
    assert configured.find_provider("peer").reported["m"] == {"window": 7777}


async def test_choosing_a_model_of_a_local_server_loads_it_and_remembers_the_window(
    connections: ProviderConnections, tmp_path: Path
) -> None:
    configured = ConfiguredProviders(tmp_path / "providers.toml")
    answers = {
        **listed({"id": "m:latest"}, {"id": "n"}),
        "/api/version": {"version": "0.20"},
        "/api/ps": {"models": [{"name": "m:latest", "context_length": 16_384}]},
    }
    with Server(answers, [json_answer({"done": True})]) as peer:
        configured.save_provider(peer.config())
        info = await model_listing.ask_provider_about_model(
            configured, "peer", "m:latest", None, connections
        )
        with pytest.raises(NotFound, match="has no model named 'x'") as caught:
            await model_listing.ask_provider_about_model(configured, "peer", "x", None, connections)
    assert (info.window, configured.find_provider("peer").reported["m:latest"]["window"]) == (
        16_384,
        16_384,
    )
    assert "m:latest, n" in caught.value.remedy


async def test_the_demonstration_is_a_list_of_one(connections: ProviderConnections) -> None:
    (model,) = await model_listing.list_models(PRESETS["demo"], None, connections)
    assert model.name == "demo/demo"
    assert "built in" in model.note
