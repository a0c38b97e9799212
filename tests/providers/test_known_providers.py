"""Every provider that needs no address from the user can be asked as it is declared."""

from urllib.parse import urlsplit

from helix_desktop.providers import provider_catalog
from helix_desktop.providers.known_providers import KNOWN_PROVIDERS, LOCAL_SERVERS, SERVICES
from helix_desktop.providers.provider_catalog import ProviderConfig


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
