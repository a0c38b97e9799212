"""Puts the gateway's address into settings with an address for each provider, as opencode and pi
have them.
"""

from collections.abc import Callable, Mapping

from helix_desktop.commented_json import parse_commented_json, set_commented_json
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_upstreams import AgentUpstream


@dataclass(frozen=True, slots=True)
class SettingsOfProviders:
    """Where settings have the address of a provider. `anthropic_version`: what stands behind
    Anthropic's, or nothing if the agent adds it.
    """

    file_name: str
    path_of_address: Callable[[str], tuple[str, ...]]
    anthropic_version: str = "/v1"


def set_provider_addresses(
    text: str, urls: Mapping[AgentUpstream, str], settings: SettingsOfProviders
) -> str:
    """Return the settings with the gateway's address for every provider."""
    parse_commented_json(text, settings.file_name)  # Says which file has a mistake, if one has.
    changed_text = text
    for provider, url in _url_by_provider(urls, settings.anthropic_version).items():
        changed_text = set_commented_json(changed_text, settings.path_of_address(provider), url)
    return changed_text


def _url_by_provider(urls: Mapping[AgentUpstream, str], anthropic_version: str) -> dict[str, str]:
    """Return the address for each provider: the usual ones with their protocol's version, and
    those with an address of the user's, which contains the version already.
    """
    usual_url = ""
    custom_urls: dict[str, str] = {}
    for upstream, url in urls.items():
        if upstream.provider:
            custom_urls[upstream.provider] = url
        elif not usual_url:
            usual_url = url
    url_by_provider = {
        "anthropic": f"{usual_url}{anthropic_version}",
        "openai": f"{usual_url}/v1",
        "google": f"{usual_url}/v1beta",
    }
    url_by_provider.update(custom_urls)
    return url_by_provider
