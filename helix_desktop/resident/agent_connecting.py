"""Connects an agent permanently: the resident holds the gateway's port first, then the
address is written.

An agent cannot ask who listens at an address: it sends its key. So the resident must
hold the port before the address is written, and again at every login; where that cannot
be promised nothing is written.
"""

import asyncio
import os
from pathlib import Path

from helix_desktop.errors import HelixError
from helix_desktop.gateway import address_in_agent_settings, wrapped_agent
from helix_desktop.gateway.address_in_agent_settings import AgentSettingsChange
from helix_desktop.gateway.known_agent import KnownAgent
from helix_desktop.mcp_client.login_path import read_login_variables
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident import login_start
from helix_desktop.resident.resident_client import ask_resident

_PROXY_VARIABLES = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
)


def prepare_agent_connection(agent: KnownAgent, where: ProgramFolders) -> AgentSettingsChange:
    """Return what connecting would change. When this returns, the resident runs and
    holds the address.
    """
    address_in_agent_settings.check_not_connected(agent, where.config)
    login_start.check_login_start()
    program = wrapped_agent.command_of_this_program(where)
    resident_status = asyncio.run(ask_resident(where, "hold", command=program))
    if not resident_status:
        raise HelixError(
            f"The gateway's address could not be reserved, so {agent.title} was not connected."
        )
    # Agents are started in a terminal. Its shell may name a proxy or an address that we
    # do not have.
    variable_names = (*_PROXY_VARIABLES, *agent.shell_variables)
    variables_of_shell = asyncio.run(read_login_variables(variable_names, os.environ))
    environ = dict(os.environ)
    environ.update(variables_of_shell)
    gateway_port = int(resident_status["port"])
    return address_in_agent_settings.plan_address_install(agent, gateway_port, Path.home(), environ)


def connect_agent(change: AgentSettingsChange, where: ProgramFolders) -> None:
    """Write the address into the agent's settings, and start the resident at each login, which
    holds it.
    """
    program = wrapped_agent.command_of_this_program(where)
    login_start.enable_login_start(program)
    address_in_agent_settings.install_address(change, where.config)
    asyncio.run(ask_resident(where, "installed", command=program))


def disconnect_agent(change: AgentSettingsChange, where: ProgramFolders) -> None:
    """Remove the address. After the last one, the resident no longer starts at login,
    and ends when unneeded.
    """
    address_in_agent_settings.remove_address(change, where.config)
    asyncio.run(ask_resident(where, "installed"))
    login_start.disable_unneeded_login_start(where)
