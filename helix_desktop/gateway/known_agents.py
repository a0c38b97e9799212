"""Lists the agents that the gateway knows, and describes those that it does not."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from helix_desktop.errors import ConfigFileMistake, InvalidInput
from helix_desktop.gateway.agent_upstreams import (
    PROTOCOLS_OF_AGENTS,
    AgentSurroundings,
    AgentUpstream,
    find_protocol_upstream,
    refuse_agent,
)
from helix_desktop.gateway.agents import (
    claude_code_agent,
    codex_agent,
    gemini_cli_agent,
    opencode_agent,
    pi_agent,
    qwen_code_agent,
)
from helix_desktop.gateway.env_file_variables import read_env_file_variables
from helix_desktop.gateway.known_agent import (
    AgentLaunch,
    AgentStart,
    KnownAgent,
    find_exceptions_without_gateway,
    find_proxy_variable,
    only_url_of_start,
)
from helix_desktop.gateway.request_routes import ANY_OWN_NAME
from helix_desktop.histories.program_names import title_of_command
from helix_desktop.tools.command_lines import command_analysis

_ALL_KNOWN_AGENTS = (
    claude_code_agent.AGENT,
    codex_agent.AGENT,
    opencode_agent.AGENT,
    gemini_cli_agent.AGENT,
    pi_agent.AGENT,
    qwen_code_agent.AGENT,
)
KNOWN_AGENTS: Mapping[str, KnownAgent] = {agent.name: agent for agent in _ALL_KNOWN_AGENTS}


def title_of_known_agent(name: str) -> str:
    """Return the display name of the agent for which an address was made."""
    return title_of_command(name) or name[:40]


def find_known_agent(name: str) -> KnownAgent:
    """Return the agent with this name. Raises InvalidInput if there is none."""
    if name not in KNOWN_AGENTS:
        raise InvalidInput(
            f"{name!r} is not a known agent. Choose one of {', '.join(KNOWN_AGENTS)}."
        )
    return KNOWN_AGENTS[name]


def build_agent_of_command(command: Sequence[str], protocol: str) -> KnownAgent:
    """Describe an unknown agent, which gets its address by its protocol's usual
    variables, or in place of `{url}`.
    """
    name = _name_of_started_agent(command)
    title = title_of_known_agent(name)
    build_launch = partial(_build_launch_of_command, command, protocol)
    find_upstreams = partial(_find_upstream_of_command, name, protocol)
    agent = KnownAgent(
        name=name,
        title=title,
        program=command[0],
        launch=build_launch,
        file=_no_settings_file,
        change=_leave_settings_unchanged,
        find_upstreams=find_upstreams,
        find_header_names=_any_header_names,
        list_bypassing_providers=partial(_list_addresses_in_env_files, protocol),
    )
    known_agent = KNOWN_AGENTS.get(name)
    if known_agent is None:
        return agent
    # The command starts an agent that we know. Its settings add what they always add.
    return replace(
        agent,
        read_environment=known_agent.read_environment,
        find_header_names=known_agent.find_header_names,
    )


def _find_upstream_of_command(
    name: str, protocol: str, where: AgentSurroundings
) -> list[AgentUpstream]:
    _refuse_env_file_that_brings_proxy(name, where)
    return [find_protocol_upstream(protocol, where.environ)]


def _refuse_env_file_that_brings_proxy(name: str, where: AgentSurroundings) -> None:
    """Raise if an `.env` file takes the gateway out of the exceptions from a proxy.

    aider reads such files and lets them overrule its environment. Seen with 0.86: the proxy got the
    key and the conversation. What other agents do is not known.
    """
    for folder in (*where.folder_and_above, where.home):
        file = folder / ".env"
        variables: Mapping[str, str] = {}
        with suppress(ConfigFileMistake):  # What is not UTF-8 is read by no agent either.
            variables = read_env_file_variables(file)
        exceptions_name = find_exceptions_without_gateway(variables)
        proxy_name = find_proxy_variable({**where.environ, **variables})
        if exceptions_name and proxy_name:
            reason = f"{exceptions_name} in {file} does not contain 127.0.0.1, so an agent that reads this file would send its key and the conversation to the HTTP proxy in {proxy_name}"
            raise refuse_agent(title_of_known_agent(name), reason)


def _list_addresses_in_env_files(
    protocol: str, where: AgentSurroundings, _upstreams: Sequence[AgentUpstream]
) -> list[str]:
    """Return the addresses for the protocol that are in `.env` files.

    aider lets such a file overrule its environment, and so goes past the gateway. Seen with 0.86.
    """
    addresses: list[str] = []
    for folder in (*where.folder_and_above, where.home):
        file = folder / ".env"
        variables: Mapping[str, str] = {}
        with suppress(ConfigFileMistake):  # What is not UTF-8 is read by no agent either.
            variables = read_env_file_variables(file)
        for name in PROTOCOLS_OF_AGENTS[protocol].address_variables:
            if variables.get(name):
                addresses.append(f"the address in {file} ({name}), if the agent reads that file,")
    return addresses


def _build_launch_of_command(
    command: Sequence[str], protocol: str, start: AgentStart
) -> AgentLaunch:
    """Launch an unknown agent by the user's own command."""
    known_protocol = PROTOCOLS_OF_AGENTS[protocol]
    url = only_url_of_start(start) + known_protocol.address_path
    words = [word.replace("{url}", url) for word in command]
    words.extend(start.arguments)
    environment = dict.fromkeys(known_protocol.address_variables, url)
    return AgentLaunch(tuple(words), environment)


def _any_header_names(_where: AgentSurroundings) -> Collection[str]:
    """Aider and Cline have a company's headers in files of their own: without them, the company's
    address refuses each request.
    """
    return (ANY_OWN_NAME,)


def _no_settings_file(home: Path, _: Mapping[str, str]) -> Path:
    """Return the home folder, as nobody knows where an unknown agent has its settings."""
    return home


def _leave_settings_unchanged(text: str, _url: str, _environ: Mapping[str, str]) -> str:
    return text


def _name_of_started_agent(command: Sequence[str]) -> str:
    """Return the name of the program that a command line starts in the end."""
    analysis = command_analysis.find_started_programs(shlex.join(command))
    if isinstance(analysis, command_analysis.KnownPrograms):
        # The last one, as a program such as `env` only starts the agent.
        for program in reversed(analysis.all_programs):
            if program.is_certain:
                return program.program_name
    return Path(command[0]).name
