"""Lists foreign agents: those installed on this computer, and those that the user added."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.starter import find_program
from helix_desktop.resources import resources_folder

# The known agents, each with the commands that can start it. The first installed command is used.
_KNOWN_AGENT_LINES = (resources_folder() / "acp_agents.txt").read_text("utf-8")

# Takes a provider as the agent describes it, and a conversation; returns the gateway's address
# and headers. May take seconds.
RegisterRoute = Callable[[Mapping[str, Any], str], dict[str, Any] | None]


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
    which come before the known ones.
    """
    agents_by_name: dict[str, AcpAgent] = {}
    lines = own_lines.splitlines() + _KNOWN_AGENT_LINES.splitlines()
    for line in lines:
        name, _, command_line = line.partition("=")
        name = name.strip()
        try:
            words = shlex.split(command_line)
        except ValueError:  # The user's line may contain an unclosed quotation mark.
            continue
        if not name or not words:
            continue

        program_path = find_program(words[0], environment)
        if program_path and name not in agents_by_name:
            argv = (program_path, *words[1:])
            agents_by_name[name] = AcpAgent(name, argv)
    return list(agents_by_name.values())


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
    program = PurePath(agent.argv[0]).stem
    return {agent.name.split()[0].casefold(), program.casefold()}
