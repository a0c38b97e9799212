"""An extension's provider is used like one of ours, and gets no key that is not its own."""

from __future__ import annotations

import json

import pytest

from helix_desktop.errors import NotFound, ProviderKeyRefused
from helix_desktop.extensions.extension_loading import LoadedExtensions, load_extensions_in_thread
from helix_desktop.extensions.installed_extensions import AllowedExtensions
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.providers import provider_catalog
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.known_provider import KnownProvider
from helix_desktop.providers.model_listing import list_models
from helix_desktop.secrets import ProviderKey, SecretKeeper, SecretStorage
from tests.commands.conftest import Helix, helix  # noqa: F401
from tests.extensions.conftest import PACKAGES, Install, WriteExtension
from tests.peers.peer import Peer

DECLARES = """
from helix_desktop.extensions.extension_interfaces import Extension
from helix_desktop.providers.known_provider import KnownProvider
extension = Extension("Provider", providers=[KnownProvider({arguments})])
"""


def load(where: ProgramFolders) -> LoadedExtensions:
    decisions = AllowedExtensions(where)
    for known in decisions.list_extensions():
        decisions.allow_extension(known.installed)
    return load_extensions_in_thread(where)


async def test_a_declared_provider_is_known_with_its_models_and_its_key(
    where: ProgramFolders, install: Install
) -> None:
    configured = ConfiguredProviders(where.providers_file)
    with pytest.raises(NotFound):
        configured.find_provider("example")
    install(PACKAGES / "example_provider")
    assert load(where).complaints == []
    config = configured.find_provider("example")
    assert config.host == "llm.example.org"
    info = provider_catalog.describe_model(config, "example-large")
    assert (info.window, info.prices.input) == (200_000, 1.5)
    keys = SecretStorage(where.key_file, environ={"HELIX_KEY_EXAMPLE": "key-of-example"})
    key = await provider_catalog.find_provider_key(config, keys)
    assert key == "key-of-example"
    dialect = provider_catalog.dialect_of_provider(config)
    assert dialect.key_headers(key) == {"api-key": "key-of-example"}


async def test_a_key_of_an_earlier_provider_of_this_name_is_not_sent(
    where: ProgramFolders, install: Install
) -> None:
    keys = SecretStorage(where.key_file, environ={})
    await keys.store_secret_at(ProviderKey("example"), "key-of-another", where=SecretKeeper.SESSION)
    install(PACKAGES / "example_provider")
    load(where)
    config = ConfiguredProviders(where.providers_file).find_provider("example")
    with pytest.raises(ProviderKeyRefused, match="was not sent to llm"):
        await provider_catalog.find_provider_key(config, keys)


REFUSED = {
    "'openai', 'OpenAI', 'openai-chat', 'https://evil.example/v1'": "There is another provider named openai",
    "'evil', 'Evil', 'openai-chat', 'https://evil.example/v1', 'OPENAI_API_KEY'": "can only be in the variable HELIX_KEY_EVIL",
    "'evil', 'Evil', 'openai-chat', 'https://evil.example/v1', 'GITHUB_TOKEN'": "can only be in the variable HELIX_KEY_EVIL",
    "'open.router', 'OpenRouter', 'openai-chat', 'http://evil.example/v1'": "must start with https://",
    "'x.ai', 'xAI', 'openai-chat', 'file:///etc/passwd'": "must start with https:// or http://",
    "'evil', 'Evil', 'no-protocol', 'https://evil.example/v1'": "Unknown provider type: 'no-protocol'",
    "'evil', 'Evil', 'demo', 'https://evil.example/v1'": "cannot be a demonstration",
    "'evil', 'Evil', 'openai-chat', 'https://user:pass@evil.example/v1'": "contains a password",
    "'evil', 'Evil', 'openai-chat', 'https://evil.example/v1', key_header='a\\r\\nb'": "cannot be used as a header",
    "'mcp/files/token', 'Evil', 'openai-chat', 'https://evil.example/v1'": "must have only lowercase letters",
    "'my_work', 'Evil', 'openai-chat', 'https://evil.example/v1'": "You have set up a provider named my.work",
    "'evil', 'E\\x1b[2Jvil', 'openai-chat', 'https://evil.example/v1'": "must be one line",
    "'evil', 'Evil', 'openai-chat', 'https://evil.example/v1', models={'m': {'server': 'ollama'}}": "has a value named 'server'",
}  # fmt: skip


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_could_bring_a_provider_another_ones_key_is_refused(
    arguments: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    configured = ConfiguredProviders(where.providers_file)
    configured.save_provider(
        provider_catalog.ProviderConfig("my.work", base_url="https://llm.work.example/v1")
    )
    known_before = dict(provider_catalog.PRESETS)
    write_extension("evil", DECLARES.format(arguments=arguments))
    (complaint,) = load(where).complaints
    assert REFUSED[arguments] in complaint
    assert known_before == provider_catalog.PRESETS


async def test_models_of_a_provider_without_a_list_are_those_that_are_declared() -> None:
    with Peer() as peer:
        known = KnownProvider(
            "listless",
            "Listless",
            "openai-chat",
            f"{peer.base_url}/v1",
            models={"m": {"window": 9_000}},
        )
        provider_catalog.add_known_provider(known)
        connections = ProviderConnections()
        try:
            config = provider_catalog.PRESETS["listless"]
            (model,) = await list_models(config, None, connections)
            assert (model.name, model.window) == ("listless/m", 9_000)
        finally:
            provider_catalog.remove_known_provider("listless")
            await connections.aclose()


def test_the_command_line_lists_it(
    where: ProgramFolders,
    install: Install,
    helix: Helix,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HELIX_KEY_EXAMPLE", "key-of-example")
    install(PACKAGES / "example_provider")
    assert helix("--home", where.data, "extension", "allow", "example", "--yes")[0] == 0
    code, out, _ = helix("--home", where.data, "provider", "list", "--json")
    assert code == 0
    listed = {provider["name"]: provider for provider in json.loads(out)}
    assert listed["example"]["base_url"] == "https://llm.example.org/v1"
