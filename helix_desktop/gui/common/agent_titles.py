"""The titles of other agents in menus, which say of each whether its program is there."""

from helix_desktop.gui.translation import tr
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.processes import starter


def describe_agent_to_continue_in(agent: str) -> str:
    """A session can also be saved for an agent that is not installed, for later."""
    title = AGENTS_TO_CONTINUE_IN[agent]
    if starter.find_program(agent):  # Each agent's name is also its command.
        return title
    return tr("{agent} (not installed)", agent=title)
