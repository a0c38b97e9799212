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
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import address_in_agent_settings, wrapped_agent
from helix_desktop.gateway.agent_upstreams import (
    PROTOCOLS_OF_AGENTS,
    AgentSurroundings,
    AgentUpstream,
)
from helix_desktop.gateway.known_agents import KNOWN_AGENTS
from helix_desktop.gateway.own_headers import find_own_header_names
from helix_desktop.histories.program_names import NAMES
from helix_desktop.json_values import text_at
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident.history_recorder import read_names_of_unrecorded_agents
from helix_desktop.resident.resident_client import HeldRegistration
from helix_desktop.workbench import Workbench


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """The variable with the agent's key, the header that carries it, and what precedes it."""

    variable: str
    header: str
    prefix: str = ""


_KEYS = {
    "anthropic": KeyPlace("ANTHROPIC_API_KEY", "x-api-key"),
    "openai": KeyPlace("OPENAI_API_KEY", "authorization", "Bearer "),
}


@dataclass(frozen=True, slots=True)
class AgentRoute:
    """Where an agent's requests go. `headers`: names of those that its settings add."""

    upstream: AgentUpstream
    headers: tuple[str, ...] = ()


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
        key = _KEYS.get(protocol)
        if key is None or not environment.get(key.variable):
            return None
        if _is_excluded(agent, self._where) or _has_proxy(environment):
            return None
        name = _short_name_of_agent(agent)
        try:
            route = self._find_upstream(bench, name, environment, provider, key.variable)
            if route is None:
                return None
            with self._finding:
                address = self._ensure_gateway_address_for_agent(
                    bench.workspace.id, name, route, environment, conversation
                )
        except (HelixError, OSError) as error:
            log.info("%s works without the gateway: %s", agent[:80], error)
            return None
        path_of_protocol = ""
        if protocol in PROTOCOLS_OF_AGENTS:
            path_of_protocol = PROTOCOLS_OF_AGENTS[protocol].address_path
        headers = {key.header: key.prefix + environment[key.variable]}
        return {"baseUrl": address + path_of_protocol, "headers": headers}

    def _find_upstream(
        self,
        bench: Workbench,
        name: str,
        environment: Mapping[str, str],
        provider: Mapping[str, Any],
        key_variable: str,
    ) -> "AgentRoute | None":
        """Return where the agent's requests go, or None if it does not sign in with its key."""
        known_agent = KNOWN_AGENTS.get(name)
        if known_agent is None:
            return AgentRoute(AgentUpstream(address=text_at(provider, "baseUrl")))
        # The agent's settings may name a different address or login.
        environment_without_key = dict(environment)
        environment_without_key.pop(key_variable, None)
        surroundings = AgentSurroundings(environment_without_key, Path.home(), bench.main_folder)
        upstreams_in_settings = known_agent.find_upstreams(surroundings)
        upstreams = address_in_agent_settings.resolve_own_addresses(
            upstreams_in_settings, self._where.config
        )
        usual_upstream = upstreams[0]
        if usual_upstream.provider:
            return None
        if known_agent.uses_subscription(surroundings):
            return None
        return AgentRoute(usual_upstream, find_own_header_names(known_agent, surroundings))

    def _ensure_gateway_address_for_agent(
        self,
        workspace: str,
        name: str,
        route: "AgentRoute",
        environment: Mapping[str, str],
        conversation: str,
    ) -> str:
        """Return the gateway's address for this purpose. It is registered once."""
        purpose = (workspace, name, route.upstream.address, conversation)
        earlier = self._held.get(purpose)
        if earlier is not None and earlier.is_held:
            return earlier.addresses[0]

        registration = wrapped_agent.build_registration_for_run(
            name, route.upstream, environment, route.headers
        )
        registration = replace(registration, workspace=workspace, parent=conversation)
        program = wrapped_agent.command_of_this_program(self._where)
        held_registration = HeldRegistration(self._where, program, registration)
        self.holding.enter_context(held_registration)
        self._held[purpose] = held_registration
        return held_registration.addresses[0]


def _short_name_of_agent(title: str) -> str:
    """Return the name by which `wrap` knows an agent, or the title of one that it does not know."""
    for known_agent in KNOWN_AGENTS.values():
        if known_agent.title == title:
            return known_agent.name
    return title


def _is_excluded(agent: str, where: ProgramFolders) -> bool:
    """Whether the user chose that nothing of this agent is recorded."""
    names_of_agent = {agent.casefold()}
    for kind, title in NAMES.items():
        if title == agent:
            names_of_agent.add(kind)
    excluded_names = read_names_of_unrecorded_agents(where)
    return not names_of_agent.isdisjoint(excluded_names)


def _has_proxy(environment: Mapping[str, str]) -> bool:
    """Whether the agent might ask a proxy for an address on this machine."""
    for name, value in environment.items():
        if value and name.casefold() in ("http_proxy", "all_proxy"):
            return True
    return False
