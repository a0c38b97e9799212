"""Where an agent sends its requests, and how the settings that say so are read.

An address of the user's own becomes the upstream in the agent's registration. If the
gateway can't stand in front of it, it is refused with a sentence before the agent starts.
What each agent reads is in its module in `agents/`.
"""

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from helix_desktop.atomic_files import read_small_file
from helix_desktop.commented_json import parse_commented_json
from helix_desktop.errors import ActionRefused, ConfigFileMistake, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.protocols.gateway_protocol import GatewayProtocol
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.protocols.protocol_table import PROTOCOLS
from helix_desktop.providers.provider_catalog import is_provider_address

LARGEST_SETTINGS_BYTES = 64 << 20
# Where Codex goes with a subscription.
CODEX_SUBSCRIPTION_PATH = "/backend-api/codex"
CODEX_SUBSCRIPTION_URL = f"https://chatgpt.com{CODEX_SUBSCRIPTION_PATH}"
# Providers of opencode and pi that every address of the gateway serves.
USUAL_PROVIDERS = frozenset(("anthropic", "openai", "google"))
# People call both protocols of OpenAI by its name. They have the same address.
PROTOCOLS_OF_AGENTS: dict[str, GatewayProtocol] = {"openai": responses_gateway.PROTOCOL}
PROTOCOLS_OF_AGENTS.update(PROTOCOLS)


@dataclass(frozen=True, slots=True)
class AgentUpstream:
    """Where the requests for one of an agent's providers go. `provider`: the agent's
    name for it; empty: its usual ones. `address`: empty for the provider's own.
    `source`: what names the address.
    """

    provider: str = ""
    address: str = ""
    source: str = ""

    @property
    def is_from_file(self) -> bool:
        """Whether a settings file names the address, which may override the environment."""
        return bool(self.source) and "environment" not in self.source

    def describe_route(self) -> str:
        """Say in a line where these requests go, and what says so."""
        what_is_sent = "requests"
        if self.provider:
            what_is_sent = f"the provider {self.provider}"
        if self.address:
            return f"{what_is_sent}: to {self.address}, as {self.source} says"
        return f"{what_is_sent}: to their usual provider; no setting names another address"


@dataclass(frozen=True, slots=True)
class AgentSurroundings:
    """What determines the address that an agent started here uses."""

    environ: Mapping[str, str]
    home: Path
    folder: Path
    arguments: Sequence[str] = ()

    @property
    def folder_and_above(self) -> list[Path]:
        folders = [self.folder]
        folders.extend(self.folder.parents)
        return folders


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """One of the files or tables that an agent reads. Later ones are stronger."""

    file: Path
    settings: dict[str, Any]


def check_upstream_address(address: str) -> None:
    """Refuses what is no address of a provider, and an address with a user name or a query."""
    if not address:
        return
    has_more_than_path = bool(urlsplit(address).username) or "?" in address
    if has_more_than_path or not is_provider_address(address):
        raise InvalidInput(
            f"{address} is not the address of a provider.",
            remedy="For example: https://api.anthropic.com.",
        )


def find_protocol_upstream(protocol: str, environ: Mapping[str, str]) -> AgentUpstream:
    """Return the upstream of an unknown agent, guessed by its protocol's variables."""
    for name in PROTOCOLS_OF_AGENTS[protocol].address_variables:
        if environ.get(name):
            return upstream_of_variable(name, environ)
    return AgentUpstream()


def upstream_of_variable(
    name: str, environ: Mapping[str, str], provider: str = ""
) -> AgentUpstream:
    address = checked_address_in_settings(environ[name], name)
    return AgentUpstream(provider, address, f"{name} in the environment")


def read_text_or_empty(file: Path) -> str:
    if file.is_dir():  # A virtual environment of Python may be called `.env`.
        return ""
    try:
        # A project's file may be a link to a device that never ends, or a pipe.
        content = read_small_file(file, LARGEST_SETTINGS_BYTES)
        # Agents leave out the byte order mark that editors of Windows write.
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (InvalidInput, OSError, UnicodeDecodeError) as error:
        raise ConfigFileMistake(
            f"{file} cannot be read, so Helix Desktop cannot tell where the agent sends its requests: {error}."
        ) from None


def read_json_settings(file: Path) -> dict[str, Any]:
    return parse_commented_json(read_text_or_empty(file), str(file))


def read_toml_settings(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text_or_empty(file))
    except tomllib.TOMLDecodeError as error:
        raise ConfigFileMistake(f"{file} is not valid TOML ({error}). Nothing was sent.") from None


def locate_in_file(file: Path, words: str) -> str:
    for number, line in enumerate(read_text_or_empty(file).splitlines(), 1):
        if words in line:
            return f"{file}, line {number}"
    return str(file)


def checked_address_in_settings(address: Any, source: str) -> str:
    if not isinstance(address, str) or not is_provider_address(address):
        raise ActionRefused(
            f"{source} contains an address that cannot be used. Nothing was sent.",
            remedy="Correct the address.",
        )
    return address


def refuse_agent(title: str, reason: str) -> ActionRefused:
    return ActionRefused(
        f"{title} cannot use the gateway: {reason}. Nothing was sent.",
        remedy="Start the agent without wrap, or change the agent setting that prevents this.",
    )


def values_of_option(arguments: Sequence[str], *names: str) -> list[str]:
    """Return all values that a command line gives to an option with these names."""
    values: list[str] = []
    for position, argument in enumerate(arguments):
        name, _, value_behind_sign = argument.partition("=")
        if argument in names:
            if position + 1 < len(arguments):
                values.append(arguments[position + 1])
        elif name in names:
            values.append(value_behind_sign)
        elif argument[:2] in names:  # A short option with its value behind it.
            values.append(argument[2:])
    return values


def first_value_of_option(arguments: Sequence[str], *names: str) -> str:
    """Return the first value of an option, or an empty string if it is not given."""
    values = values_of_option(arguments, *names)
    if not values:
        return ""
    return values[0]


def provider_of_model_argument(where: AgentSurroundings) -> str:
    """Return the provider in an argument such as `--model anthropic/claude`, or an empty string."""
    for model in values_of_option(where.arguments, "-m", "--model"):
        if "/" in model:
            return model.partition("/")[0]
    return ""


def names_any_variable(names: Iterable[str], environ: Mapping[str, str]) -> bool:
    """Whether an environment has a value for one of these variables."""
    return any(environ.get(name) for name in names)


def list_unserved_providers(
    used_providers: Collection[str], upstreams: Sequence[AgentUpstream]
) -> set[str]:
    """Return those of an agent's providers whose requests do not go through the gateway: nothing
    replaces their addresses.
    """
    served_providers = {upstream.provider for upstream in upstreams}
    served_providers.update(USUAL_PROVIDERS)
    return set(used_providers) - served_providers
