"""Lists foreign agents: those installed on this computer, and those that the user added."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.starter import find_own_program
from helix_desktop.resources import resources_folder

# Takes a provider as the agent describes it, and a conversation; returns the gateway's address
# and headers. May take seconds.
RegisterRoute = Callable[[Mapping[str, Any], str], dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class _KnownAgent:
    """A line of the known agents: `NAME = COMMAND`, and behind it how the agent is installed and how
    its user signs in, as far as that is known. A name has a line for each command that can start it.
    """

    start_line: str
    install_command: str
    sign_in_command: str


def _read_known_agents() -> tuple[_KnownAgent, ...]:
    known_agents: list[_KnownAgent] = []
    for line in (resources_folder() / "acp_agents.txt").read_text("utf-8").splitlines():
        start_line, _, other_commands = line.partition(" # ")
        install_command, _, sign_in_command = other_commands.partition(" # ")
        known_agents.append(_KnownAgent(start_line, install_command, sign_in_command))
    return tuple(known_agents)


_KNOWN_AGENTS = _read_known_agents()


@dataclass(frozen=True, slots=True)
class AcpAgent:
    """A foreign agent, and the command that starts it: the program's full path and its
    arguments.
    """

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectableAgent:
    """An agent with what is needed to start it: the variables of its environment, and how it is
    registered at the gateway.
    """

    agent: AcpAgent
    environment: Mapping[str, str]
    register_route: RegisterRoute


def list_acp_agents(own_lines: str, environment: Mapping[str, str]) -> list[AcpAgent]:
    """Returns the agents that are installed. `own_lines`: the user's, each `NAME = COMMAND`,
    which come before the known ones. Of each, the first installed command is used.
    """
    agents_by_name: dict[str, AcpAgent] = {}
    lines = own_lines.splitlines()
    for known_agent in _KNOWN_AGENTS:
        lines.append(known_agent.start_line)
    for line in lines:
        named_command = _read_agent_line(line)
        if named_command is None:
            continue
        program_path = find_own_program(named_command.words[0], environment)
        if program_path and named_command.name not in agents_by_name:
            argv = (program_path, *named_command.words[1:])
            agents_by_name[named_command.name] = AcpAgent(named_command.name, argv)
    return list(agents_by_name.values())


@dataclass(frozen=True, slots=True)
class NamedCommand:
    """A line `NAME = COMMAND` of the settings or of the known agents."""

    name: str
    words: tuple[str, ...]


def _read_agent_line(line: str) -> NamedCommand | None:
    name, _, command_line = line.partition("=")
    name = name.strip()
    try:
        words = shlex.split(command_line)
    except ValueError:  # The user's line may contain an unclosed quotation mark.
        return None
    if not name or not words:
        return None
    return NamedCommand(name, tuple(words))


@dataclass(frozen=True, slots=True)
class ListedAcpAgent:
    """An agent as the settings list it. `command_line`: what starts it. `is_own`: the user added
    it. `install_command`: how a known agent that is not installed is installed, if that is known.
    `sign_in_command`: what signs in to a known agent, in a terminal.
    """

    name: str
    command_line: str
    is_installed: bool
    is_own: bool = False
    install_command: str = ""
    sign_in_command: str = ""


def describe_acp_agents(own_lines: str, environment: Mapping[str, str]) -> list[ListedAcpAgent]:
    """Returns the user's own agents, then the known ones that are installed, then the others."""
    own_agents = _describe_own_agents(own_lines, environment)
    own_names = {agent.name for agent in own_agents}
    installed_agents: list[ListedAcpAgent] = []
    for agent in list_acp_agents("", environment):
        if agent.name not in own_names:
            command_line = shlex.join(agent.argv)
            installed_agent = ListedAcpAgent(
                agent.name,
                command_line,
                is_installed=True,
                sign_in_command=find_sign_in_command(agent.name),
            )
            installed_agents.append(installed_agent)
    listed_agents = own_agents + installed_agents
    return listed_agents + _describe_missing_agents(listed_agents)


def _describe_own_agents(own_lines: str, environment: Mapping[str, str]) -> list[ListedAcpAgent]:
    own_agents: list[ListedAcpAgent] = []
    for line in own_lines.splitlines():
        named_command = _read_agent_line(line)
        if named_command is None:
            continue
        program_path = find_own_program(named_command.words[0], environment)
        _, _, command_line = line.partition("=")
        agent = ListedAcpAgent(
            named_command.name,
            command_line.strip(),
            is_installed=bool(program_path),
            is_own=True,
        )
        own_agents.append(agent)
    return own_agents


def _describe_missing_agents(listed_agents: Sequence[ListedAcpAgent]) -> list[ListedAcpAgent]:
    """Returns the known agents that are not listed yet. A name may be on several lines, of
    which the first one counts.
    """
    listed_names = {agent.name for agent in listed_agents}
    missing_agents: list[ListedAcpAgent] = []
    for known_agent in _KNOWN_AGENTS:
        named_command = _read_agent_line(known_agent.start_line)
        if named_command is None or named_command.name in listed_names:
            continue
        listed_names.add(named_command.name)
        command_line = shlex.join(named_command.words)
        agent = ListedAcpAgent(
            named_command.name,
            command_line,
            is_installed=False,
            install_command=known_agent.install_command,
            sign_in_command=known_agent.sign_in_command,
        )
        missing_agents.append(agent)
    return missing_agents


def find_sign_in_command(name: str) -> str:
    """Returns what signs in to a known agent in a terminal, or an empty text."""
    for known_agent in _KNOWN_AGENTS:
        named_command = _read_agent_line(known_agent.start_line)
        is_named_so = named_command is not None and named_command.name == name
        if is_named_so and known_agent.sign_in_command:
            return known_agent.sign_in_command
    return ""


def add_agent_line(own_lines: str, name: str, command_line: str) -> str:
    """Returns the user's lines with one more agent, in place of an earlier one of its name."""
    line = f"{name} = {command_line}"
    if "=" in name or "\n" in line or _read_agent_line(line) is None:
        raise InvalidInput(
            "An agent needs a name without “=”, and a command on one line with closed quotation marks.",
            remedy="Correct the name or the command.",
        )
    lines = remove_agent_line(own_lines, name).splitlines()
    lines.append(line)
    return "\n".join(lines)


def remove_agent_line(own_lines: str, name: str) -> str:
    """Returns the user's lines without the agent of this name. Other lines stay as they are."""
    kept_lines: list[str] = []
    for line in own_lines.splitlines():
        if line.partition("=")[0].strip() != name:
            kept_lines.append(line)
    return "\n".join(kept_lines)


def find_acp_agent(name: str, own_lines: str, environment: Mapping[str, str]) -> AcpAgent:
    """Returns the agent with this name or short name. Raises NotFound if there is none."""
    agents = list_acp_agents(own_lines, environment)
    wanted = name.casefold()
    for agent in agents:
        if agent.name.casefold() == wanted:
            return agent

    # People write the agent as they start it: `gemini`, `claude`.
    agents_by_short_name = [agent for agent in agents if wanted in _short_names(agent)]
    if len(agents_by_short_name) == 1:
        return agents_by_short_name[0]

    available = ", ".join(agent.name for agent in agents) or "none"
    raise NotFound(
        f"The agent {name[:80]} was not found on this computer.", remedy=f"Available: {available}."
    )


def _short_names(agent: AcpAgent) -> set[str]:
    """Return the first word of an agent's name, and the name of its program."""
    first_word = agent.name.split()[0]
    program = PurePath(agent.argv[0]).stem
    return {first_word.casefold(), program.casefold()}
