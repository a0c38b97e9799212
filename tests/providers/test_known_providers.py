"""Every provider that needs no address from the user can be asked as it is declared."""

from pathlib import Path
from urllib.parse import urlsplit

from helix_desktop.providers import provider_catalog
from helix_desktop.providers.known_providers import KNOWN_PROVIDERS, LOCAL_SERVERS, SERVICES
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from tests.test_secrets import MemoryKeyring


def test_services_are_asked_over_https_with_a_key_of_their_own() -> None:
    for service in SERVICES:
        assert urlsplit(service.base_url).scheme == "https"
        assert not service.base_url.endswith("/")
        assert service.key_variable.isupper()
    variables = [service.key_variable for service in SERVICES]
    assert len(set(variables)) == len(variables)


def test_names_and_titles_are_each_given_once() -> None:
    names = [provider.name for provider in KNOWN_PROVIDERS]
    titles = [provider.title for provider in KNOWN_PROVIDERS]
    assert len(set(names)) == len(names)
    assert len(set(titles)) == len(titles)


def test_each_address_is_one_that_the_catalog_accepts() -> None:
    for provider in (*SERVICES, *LOCAL_SERVERS):
        config = ProviderConfig(provider.name, kind=provider.kind, base_url=provider.base_url)
        assert provider_catalog.check_provider_config(config).base_url == provider.base_url


async def test_the_token_that_hugging_faces_tools_use_goes_to_its_router_alone(
    tmp_path: Path,
) -> None:
    environ = {"HF_TOKEN": "hf_planted-123456"}
    secrets = SecretStorage(tmp_path / "keys", keyring=MemoryKeyring, environ=environ)
    config = provider_catalog.PRESETS["huggingface"]
    assert config.host == "router.huggingface.co"
    assert await secrets.read_secret(config.provider_key) == "hf_planted-123456"
    others = [preset for preset in provider_catalog.PRESETS.values() if preset is not config]
    for other in others:
        if other.variable:
            assert await secrets.read_secret(other.provider_key) is None
