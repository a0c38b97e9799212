"""Lists foreign agents: those installed on this computer, and those that the user added."""

import shlex
from collections.abc import Mapping
from pathlib import PurePath

from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.starter import find_program
from helix_desktop.resources import resources_folder

# The known agents, each with the commands that can start it. The first installed command is used.
_KNOWN = (resources_folder() / "acp_agents.txt").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class AcpAgent:
    """A foreign agent, and the command that starts it: the program's full path and its
    arguments.
    """

    name: str
    argv: tuple[str, ...]


def list_acp_agents(own_lines: str, environment: Mapping[str, str]) -> list[AcpAgent]:
    found: dict[str, AcpAgent] = {}
    for line in f"{own_lines}\n{_KNOWN}".splitlines():
        name, _, command_line = line.partition("=")
        name = name.strip()
        try:
            words = shlex.split(command_line)
        except ValueError:  # The user's line may contain an unclosed quotation mark.
            continue
        if not name or not words:
            continue
        place = find_program(words[0], environment)
        if place:
            found.setdefault(name, AcpAgent(name, (place, *words[1:])))
    return list(found.values())


def find_acp_agent(name: str, own_lines: str, environment: Mapping[str, str]) -> AcpAgent:
    agents = list_acp_agents(own_lines, environment)
    wanted = name.casefold()
    for agent in agents:
        if agent.name.casefold() == wanted:
            return agent
    # People write the agent as they start it: `gemini`, `claude`.
    meant = [agent for agent in agents if wanted in _short_names(agent)]
    if len(meant) == 1:
        return meant[0]
    there = ", ".join(agent.name for agent in agents) or "none"
    raise NotFound(
        f"The agent {name[:80]} was not found on this computer.", remedy=f"Available: {there}."
    )


def _short_names(agent: AcpAgent) -> set[str]:
    """Return the first word of an agent's name, and the name of its program."""
    program = PurePath(agent.argv[0]).stem
    return {agent.name.split()[0].casefold(), program.casefold()}
