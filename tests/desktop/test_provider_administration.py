"""Connecting models, against real HTTP on this machine and a keyring in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from helix_desktop.desktop.provider_administration import ProviderAdministration, pick_default_model
from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.errors import (
    HelixError,
    NoUsableKeyring,
    ProviderKeyRefused,
    ProviderUnreachable,
)
from helix_desktop.gui.model_setup_port import ModelChoice, ProviderChoice
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from tests.peers.chat_server import ChatServer
from tests.peers.ollama_server import OllamaServer


class Ring:
    """A keyring in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self.kept.pop((service, username), None)


class Offline(ProviderAdministration):
    """Nobody is asked for models: what is set up here is a service beyond this machine."""

    async def check_provider_address(self, provider: ProviderChoice) -> None:
        return

    async def list_provider_models(self, provider: str) -> Sequence[ModelChoice]:
        raise ProviderUnreachable(f"{provider} is not asked.")


@pytest.fixture
async def offline(tmp_path: Path) -> AsyncIterator[ProviderAdministration]:
    ring = Ring()
    connections = ProviderConnections()
    secrets = SecretStorage(tmp_path / "keys.json", keyring=lambda: ring, environ={})
    yield Offline(ConfiguredProviders(tmp_path / "providers.toml"), secrets, connections)
    await connections.aclose()


@pytest.fixture
async def connecting(tmp_path: Path) -> AsyncIterator[ProviderAdministration]:
    ring = Ring()
    connections = ProviderConnections()
    secrets = SecretStorage(tmp_path / "keys.json", keyring=lambda: ring, environ={})
    yield ProviderAdministration(
        ConfiguredProviders(tmp_path / "providers.toml"), secrets, connections
    )
    await connections.aclose()


def known(connecting: ProviderAdministration, name: str) -> ProviderChoice:
    return next(
        provider
        for provider in connecting.list_well_known_providers_with_key()
        if provider.name == name
    )


async def test_well_known_services_need_a_key(connecting: ProviderAdministration) -> None:
    assert {"anthropic", "openai", "gemini"} <= {
        provider.name for provider in connecting.list_well_known_providers_with_key()
    }
    assert all(
        provider.needs_key and provider.address.startswith("https://")
        for provider in connecting.list_well_known_providers_with_key()
    )


async def test_a_server_of_this_computer_is_known_as_connected_and_the_demo_is_none(
    offline: ProviderAdministration,
) -> None:
    assert not await offline.is_local_server_connected()
    server = ProviderChoice("mine", "Mine", "http://127.0.0.1:8971/v1", "openai-chat")
    await offline.add_provider_with_key(server, "")
    assert await offline.is_local_server_connected()


async def test_a_provider_is_set_up_with_its_key_in_the_keyring(
    offline: ProviderAdministration, tmp_path: Path
) -> None:
    await offline.add_provider_with_key(known(offline, "anthropic"), "sk-secret-0123456789")
    found = await offline.list_configured_providers()
    assert [(provider.name, provider.key) for provider in found] == [
        ("anthropic", "the system's keyring")
    ]
    assert "sk-secret" not in (tmp_path / "providers.toml").read_text()
    await offline.remove_provider_and_key("anthropic")
    assert await offline.list_configured_providers() == []


async def test_a_key_that_cannot_be_kept_changes_nothing(tmp_path: Path) -> None:
    def none() -> Ring:
        raise NoUsableKeyring("There is none.")

    secrets = SecretStorage(tmp_path / "keys.json", keyring=none, environ={})
    connecting = Offline(
        ConfiguredProviders(tmp_path / "providers.toml"), secrets, ProviderConnections()
    )
    with pytest.raises(NoUsableKeyring):
        await connecting.add_provider_with_key(known(connecting, "openai"), "sk-secret-0123456789")
    assert await connecting.list_configured_providers() == []
    await connecting.add_provider_with_key(
        known(connecting, "openai"), "sk-secret-0123456789", "session"
    )
    assert [provider.key for provider in await connecting.list_configured_providers()] == [
        "this session only"
    ]


async def test_without_a_key_the_service_is_not_asked(connecting: ProviderAdministration) -> None:
    with pytest.raises(ProviderKeyRefused):
        await connecting.test_provider(known(connecting, "anthropic"), "")


async def test_a_server_that_was_set_up_is_known_with_its_models(
    connecting: ProviderAdministration,
) -> None:
    with ChatServer() as server:
        given = ProviderChoice("mine", "mine", server.base_url, "openai-chat")
        tested = await connecting.test_provider(given, "a-key")
        assert (tested.best, [model.name for model in tested.models]) == (
            "mine/scripted",
            ["mine/scripted"],
        )
        await connecting.add_provider_with_key(given, "a-key")
    assert [model.name for model in await connecting.list_known_models()] == [
        "mine/scripted",
        "demo/demo",
    ]


async def test_the_key_of_a_server_on_this_machine_is_used_and_named(
    connecting: ProviderAdministration,
) -> None:
    """Many a proxy or model server on a machine of one's own wants a key."""
    with ChatServer() as server:
        given = ProviderChoice("mine", "mine", server.base_url, "openai-chat")
        await connecting.add_provider_with_key(given, "a-key")
        server.requests.clear()
        await connecting.test_provider(given, "")
        await connecting.list_provider_models("mine")
        assert {seen.headers.get("authorization") for seen in server.requests} == {"Bearer a-key"}
    assert [provider.key for provider in await connecting.list_configured_providers()] == [
        "the system's keyring"
    ]


async def test_a_key_kept_for_one_session_is_missed_after_a_restart(tmp_path: Path) -> None:
    """A server of the user's own was said to need no key, though it had been given one."""
    own, keyless = (
        ProviderChoice(name, name, f"https://{name}.example/v1") for name in ("own", "keyless")
    )
    seen = []
    for session in range(2):
        secrets = SecretStorage(tmp_path / "keys.json", keyring=Ring, environ={})
        connecting = Offline(
            ConfiguredProviders(tmp_path / "providers.toml"), secrets, ProviderConnections()
        )
        if session == 0:
            await connecting.add_provider_with_key(own, "sk-secret-0123456789", "session")
            await connecting.add_provider_with_key(keyless, "")
        seen.append(
            [
                (each.needs_key, bool(each.key))
                for each in await connecting.list_configured_providers()
            ]
        )
    assert seen == [[(True, True), (False, False)], [(True, False), (False, False)]]


async def test_the_lists_are_asked_for_again_and_a_silent_server_keeps_its_own(
    connecting: ProviderAdministration,
) -> None:
    with ChatServer() as server:
        await connecting.add_provider_with_key(
            ProviderChoice("mine", "mine", server.base_url, "openai-chat"), ""
        )
        with ChatServer() as other:
            await connecting.add_provider_with_key(
                ProviderChoice("gone", "gone", other.base_url, "openai-chat"), ""
            )
        server.models = ({"id": "scripted"}, {"id": "newer"})
        found = await connecting.refresh_model_lists()
    names = [model.name for model in found.models]
    assert names == ["mine/newer", "mine/scripted", "gone/scripted", "demo/demo"]
    assert [name for name, _ in found.silent] == ["gone"]


async def test_servers_that_run_here_are_offered_with_the_models(
    connecting: ProviderAdministration,
) -> None:
    with OllamaServer() as server:
        connecting.local_places = [ProviderConfig("ollama", base_url=server.base_url)]
        ((provider, _),) = await connecting.find_local_providers()
        found = await connecting.refresh_model_lists()
        assert server.loads == []
        await connecting.add_provider_with_key(provider, "")
        again = await connecting.refresh_model_lists()
    assert (provider.title, provider.name) == ("Ollama", "ollama")
    assert [model.name for model in found.models] == ["ollama/qwen3:4b", "demo/demo"]
    assert found.models[0].local, "it is free"
    assert [model.name for model in again.models] == ["ollama/qwen3:4b", "demo/demo"]


async def test_a_correction_holds_until_it_is_reset(connecting: ProviderAdministration) -> None:
    with ChatServer() as server:
        await connecting.add_provider_with_key(
            ProviderChoice("mine", "mine", server.base_url, "openai-chat"), ""
        )
        await connecting.correct_model_values("mine/scripted", {"window": 8_192, "images": False})
        (model, _) = await connecting.list_known_models()
        assert (model.window, model.images, model.sure) == (8_192, False, WindowSizeSource.USER)
        await connecting.reset_model_values("mine/scripted")
        (model, _) = await connecting.list_known_models()
        assert (model.window, model.images, model.sure) == (8_192, True, WindowSizeSource.ASSUMED)


async def test_the_demonstration_is_always_there(connecting: ProviderAdministration) -> None:
    assert [model.name for model in await connecting.list_known_models()] == ["demo/demo"]


def test_the_model_to_begin_with() -> None:
    models = [
        ModelChoice("a/small", 8_000),
        ModelChoice("a/claude-sonnet-4"),
        ModelChoice("a/claude-sonnet-5"),
        ModelChoice("a/large", 900_000),
    ]
    assert pick_default_model(models) == "a/claude-sonnet-5"
    assert pick_default_model(models[:1] + models[3:]) == "", (
        "of an unknown server's models the user chooses"
    )
    assert pick_default_model(models[3:]) == "a/large"
    assert pick_default_model([]) == ""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            (
                "gpt-5",
                "gpt-5.10",
                "gpt-5.6",
                "gpt-5.5-pro",
                "gpt-5.6-terra",
                "gpt-5-2025-08-07",
                "gpt-4o",
            ),
            "gpt-5.10",
        ),
        (
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4-20250514", "claude-opus-5"),
            "claude-sonnet-4-5-20250929",
        ),
        (
            ("gemini-2.5-pro", "gemini-3.1-pro-preview", "gemini-3.5-flash"),
            "gemini-3.1-pro-preview",
        ),
        (("grok-4.5", "grok-4-0709", "grok-code-fast-1"), "grok-4.5"),
        (("mistral-large-latest", "mistral-large-3", "codestral"), "mistral-large-3"),
    ],
)
def test_the_newest_of_a_kind_and_not_its_dearest_variant(
    names: tuple[str, ...], expected: str
) -> None:
    """A key of OpenAI began with gpt-5.5-pro, at 180 dollars per million tokens."""
    assert pick_default_model([ModelChoice(f"a/{name}") for name in names]) == f"a/{expected}"


async def test_an_address_is_checked_without_a_key_before_one_is_sent(
    connecting: ProviderAdministration,
) -> None:
    with ChatServer() as server:
        given = ProviderChoice("mine", "mine", server.base_url, "openai-chat")
        await connecting.test_provider(given, "a-key")
        first, *others = [seen.headers.get("authorization") for seen in server.requests]
        assert (first, set(others)) == (None, {"Bearer a-key"})
    for address, words in (
        ("http://127.0.0.1:9/v1", "connection refused"),
        ("htp://127.0.0.1/v1", "must start with https:// or http://"),
        ("http://llm.example.org/v1", "anyone on the network could read it"),
    ):
        with pytest.raises(HelixError, match=words):
            await connecting.check_provider_address(
                ProviderChoice("mine", "mine", address, "openai-chat")
            )
    with pytest.raises(ProviderUnreachable):
        await connecting.add_provider_with_key(
            ProviderChoice("mine", "mine", "http://127.0.0.1:9/v1"), "a-key"
        )
    assert await connecting.list_configured_providers() == []
    with ChatServer() as server:
        elsewhere = ProviderChoice(
            "mine", "mine", server.base_url.replace("/v1", "/a-page"), "openai-chat"
        )
        with pytest.raises(HelixError, match="Check the address"):
            await connecting.check_provider_address(elsewhere)


async def test_the_address_and_the_key_of_the_environment_are_offered(tmp_path: Path) -> None:
    environ = {
        "OPENAI_BASE_URL": "https://proxy.example/v1",
        "OPENAI_API_KEY": "a-key",
        "ANTHROPIC_API_KEY": "b-key",
    }
    secrets = SecretStorage(tmp_path / "keys.json", keyring=Ring, environ=environ)
    connecting = Offline(
        ConfiguredProviders(tmp_path / "providers.toml"), secrets, ProviderConnections()
    )
    openai = known(connecting, "openai")
    anthropic = known(connecting, "anthropic")
    assert (openai.address, openai.address_variable) == (
        "https://proxy.example/v1",
        "OPENAI_BASE_URL",
    )
    assert (anthropic.address_variable, anthropic.key) == ("", "an environment variable")
    assert openai.key == "an environment variable"
