"""Gives foreign agents whose provider can be set an address of the gateway, registered
as `wrap` does.
"""

import logging
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from helix_desktop.errors import HelixError
from helix_desktop.gateway import address_in_agent_settings, agent_upstreams, wrapped_agent
from helix_desktop.gateway.agent_upstreams import AgentSurroundings, AgentUpstream
from helix_desktop.gateway.known_agents import KNOWN_AGENTS
from helix_desktop.gateway.own_headers import find_own_header_names
from helix_desktop.histories.program_names import NAMES
from helix_desktop.json_values import text_at
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident.history_recorder import read_names_of_unrecorded_agents
from helix_desktop.resident.resident_client import HeldRegistration
from helix_desktop.workbench import Workbench

# For each protocol: the variable with the agent's key, the header that carries it, and
# the header's prefix.
_KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "x-api-key", ""),
    "openai": ("OPENAI_API_KEY", "authorization", "Bearer "),
}
log = logging.getLogger(__name__)


class AgentRoutes:
    """Keeps each address until this program ends or `holding` is closed."""

    def __init__(self, where: ProgramFolders) -> None:
        self.holding = ExitStack()
        self._where = where
        self._held: dict[tuple[str, ...], HeldRegistration] = {}
        self._finding = threading.Lock()

    def register_route(
        self,
        bench: Workbench,
        agent: str,
        environment: Mapping[str, str],
        provider: Mapping[str, Any],
        conversation: str = "",
    ) -> dict[str, Any] | None:
        """Return the address and headers for an agent's provider, or None if the agent
        keeps its own setup: the user excluded it, or it does not sign in with a key
        from its environment, which we must supply. What the agent does is recorded
        below `conversation`.
        """
        protocol = text_at(provider, "apiType")
        variable, header, start = _KEYS.get(protocol, ("", "", ""))
        left_out = read_names_of_unrecorded_agents(self._where)
        if not environment.get(variable) or left_out & {
            agent.casefold(),
            *(k for k in NAMES if NAMES[k] == agent),
        }:
            return None
        if {"http_proxy", "all_proxy"} & {
            each.casefold() for each, value in environment.items() if value
        }:
            return None  # No address: the agent might ask its proxy for one on this machine.
        name = next((known.name for known in KNOWN_AGENTS.values() if known.title == agent), agent)
        usual = AgentUpstream("", text_at(provider, "baseUrl"))
        headers: tuple[str, ...] = ()
        try:
            if name in KNOWN_AGENTS:  # The agent's settings may name a different address or login.
                without_key = {
                    each: value for each, value in environment.items() if each != variable
                }
                surroundings = AgentSurroundings(without_key, Path.home(), bench.main_folder)
                found = agent_upstreams.find_agent_upstreams(name, surroundings)
                headers = find_own_header_names(name, surroundings)
                usual = address_in_agent_settings.resolve_own_addresses(found, self._where.config)[
                    0
                ]
                if usual.provider or agent_upstreams.uses_subscription_by_settings(
                    name, surroundings
                ):
                    return None
            with self._finding:
                address = self._ensure_gateway_address_for_agent(
                    bench.workspace.id, name, usual, environment, headers, conversation
                )
        except (HelixError, OSError) as error:
            log.info("%s works without the gateway: %s", agent[:80], error)
            return None
        address += agent_upstreams.ADDRESSES.get(protocol, {"path": ""})["path"]
        return {"baseUrl": address, "headers": {header: start + environment[variable]}}

    def _ensure_gateway_address_for_agent(
        self,
        workspace: str,
        name: str,
        usual: AgentUpstream,
        environment: Mapping[str, str],
        headers: tuple[str, ...],
        conversation: str,
    ) -> str:
        known = (workspace, name, usual.address, conversation)
        held = self._held.get(known)
        if held is None or not held.is_held:
            built = wrapped_agent.build_registration_for_run(name, usual, environment, headers)
            registration = replace(built, workspace=workspace, parent=conversation)
            command = wrapped_agent.command_of_this_program(self._where)
            held = HeldRegistration(self._where, command, registration)
            self.holding.enter_context(held)
            self._held[known] = held
        return held.addresses[0]
