"""What is declared of an agent that the gateway knows: one `KnownAgent` in its module in `agents/`.

`known_agents.py` lists them. All else asks the declaration and names no agent.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_upstreams import AgentSurroundings, AgentUpstream

NO_PROXY = ("NO_PROXY", "no_proxy")
_PROXIES = frozenset(("http_proxy", "https_proxy", "all_proxy"))


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """How to start an agent for one run: its command line, and variables to add to the environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AgentStart:
    """What a launch needs: the address for each upstream, the user's arguments and
    environment, and a private folder.
    """

    urls: Mapping[AgentUpstream, str]
    arguments: Sequence[str]
    environ: Mapping[str, str]
    scratch: Path


class NoProxyInSettings(Enum):
    """Whether an agent's settings keep its requests to the gateway from an HTTP proxy, once the
    gateway's address is in them. `IF_UNSET`: only where the environment does not set NO_PROXY.
    """

    NEVER = 0
    IF_UNSET = 1
    ALWAYS = 2


def _environment_without_settings(where: AgentSurroundings) -> Mapping[str, str]:
    return dict(where.environ)


def _no_header_names(_where: AgentSurroundings) -> Collection[str]:
    return ()


def _no_bypassing_providers(
    _where: AgentSurroundings, _upstreams: Sequence[AgentUpstream]
) -> list[str]:
    return []


def _pays_by_the_token(_where: AgentSurroundings) -> bool:
    return False


def _nothing_to_say() -> str:
    return ""


def _nothing_to_say_before(_where: AgentSurroundings) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """`name`: what `wrap` is given. `program`: the agent's command, which `npm_package` installs.

    One run: `launch` starts it with the gateway's address. `notice` returns what is said before.

    Its settings: `file` is the one to change, and `change` adds the address to its content, which
    leaves HTTP proxies out as `no_proxy` says. `notice_of_settings` returns what is said once they
    have it. `find_upstreams` returns the upstream of the usual
    providers, then one for each provider with an address of its own. `read_environment` adds the
    variables that its settings set. `find_header_names` returns the headers that they add, beside
    those in the environment. `list_bypassing_providers`: whose requests do not go through the
    gateway, as it is signed in there or would use them, but nothing replaces their addresses.
    `uses_subscription`: whether it is signed in with one, as far as its files say.
    `shell_variables`: what the login shell is asked for before it is connected.

    Its requests: `recognized_by` is a pattern of their headers.
    """

    name: str
    title: str
    program: str
    launch: Callable[[AgentStart], AgentLaunch]
    file: Callable[[Path, Mapping[str, str]], Path]
    change: Callable[[str, str, Mapping[str, str]], str]
    find_upstreams: Callable[[AgentSurroundings], list[AgentUpstream]]
    npm_package: str = ""  # Empty for a program that is none of the known agents.
    recognized_by: str = ""
    shell_variables: Sequence[str] = ()
    no_proxy: NoProxyInSettings = NoProxyInSettings.NEVER
    notice: Callable[[AgentSurroundings], str] = _nothing_to_say_before
    notice_of_settings: Callable[[], str] = _nothing_to_say
    read_environment: Callable[[AgentSurroundings], Mapping[str, str]] = (
        _environment_without_settings
    )
    find_header_names: Callable[[AgentSurroundings], Collection[str]] = _no_header_names
    list_bypassing_providers: Callable[[AgentSurroundings, Sequence[AgentUpstream]], list[str]] = (
        _no_bypassing_providers
    )
    uses_subscription: Callable[[AgentSurroundings], bool] = _pays_by_the_token


def except_from_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep requests to the gateway from an HTTP proxy, beside
    what they except already.

    The agents use a proxy for 127.0.0.1 too, which would get the key and the
    conversation in plain text.
    """
    hosts: list[str] = []
    for variable in NO_PROXY:
        hosts.extend(re.split(r"[,\s]+", environ.get(variable, "")))
    hosts.extend(("127.0.0.1", "localhost"))

    hosts_once: list[str] = []
    for host in hosts:
        if host and host not in hosts_once:
            hosts_once.append(host)
    if "*" in hosts_once:
        # An asterisk excepts everything, but only where it stands alone.
        return dict.fromkeys(NO_PROXY, "*")
    return dict.fromkeys(NO_PROXY, ",".join(hosts_once))


def find_proxy_variable(environ: Mapping[str, str]) -> str:
    """Return the name of a variable that sets an HTTP proxy, or an empty text."""
    for name, value in environ.items():
        if name.lower() in _PROXIES and value:
            return name
    return ""


def excepts_this_computer(no_proxy: str) -> bool:
    """Whether a value of NO_PROXY names this computer, or everything."""
    hosts = re.split(r"[,\s]+", no_proxy)
    return "127.0.0.1" in hosts or "*" in hosts


def find_exceptions_without_gateway(variables: Mapping[str, str]) -> str:
    """Return which of an `.env` file's variables for exceptions from a proxy does not name this
    computer, or an empty text. An agent that reads the file asks a proxy for the gateway then,
    where the file is stronger than what `wrap` sets.
    """
    for name in NO_PROXY:
        if name in variables and not excepts_this_computer(variables[name]):
            return name
    return ""


def only_url_of_start(start: AgentStart) -> str:
    """Return the address of an agent that has one upstream only."""
    (url,) = start.urls.values()
    return url
