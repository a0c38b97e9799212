"""Switches the gateway on and off for the window, and changes the agents' configuration files."""

import asyncio
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import address_in_agent_settings, known_agents, wrapped_agent
from helix_desktop.gateway.address_in_agent_settings import AgentSettingsChange
from helix_desktop.gateway.agent_cost_and_savings import Figures
from helix_desktop.gateway.known_agents import KnownAgent
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident import agent_connecting
from helix_desktop.resident.resident_client import HeldRegistration

PROGRAM = "helix-desktop"


@dataclass(frozen=True, slots=True)
class ConnectedAgentRow:
    """One agent and its figures of today. `start_command` starts it once. `connected`: its
    configuration contains the address. `reason_not_folded`: why its requests are forwarded
    unchanged. `last_failure`: why its last request was not answered.
    """

    name: str
    title: str
    start_command: str
    installed: bool = False
    connected: bool = False
    requests: int = 0
    last_request_time: float = 0.0
    reason_not_folded: str = ""
    conversations: int = 0
    sent: int = 0
    without: int = 0
    last_failure: str = ""


@dataclass(frozen=True, slots=True)
class AgentConnections:
    """`address` is empty while no gateway runs. `for_others` is the address for any
    other program, or empty. `today` has the totals of all connected agents. Its dollars
    are 0 if no price is known.
    """

    address: str
    agents: Sequence[ConnectedAgentRow]
    today: Figures
    for_others: str = ""


def list_words_that_start_this_program() -> list[str]:
    """Return what a user types in a terminal: the program's name, or from a checkout its path."""
    beside = Path(sys.executable).with_name(PROGRAM)
    if shutil.which(PROGRAM) is not None:
        return [PROGRAM]
    return [str(beside)] if beside.is_file() else [sys.executable, "-m", "helix_desktop"]


class ConnectedAgents:
    def __init__(self, where: ProgramFolders) -> None:
        self._where = where
        self._switched_on: HeldRegistration | None = None
        self._watching: HeldRegistration | None = None

    async def list_agent_connections(self) -> AgentConnections:
        return await asyncio.to_thread(self._fetch_agents_overview)

    def _fetch_agents_overview(self) -> AgentConnections:
        held = self._find_or_create_gateway_registration()
        url, *for_others = held.addresses if held is not None else ("",)
        told: dict[str, Any] = (wrapped_agent.fetch_gateway_status(url) or {}) if url else {}
        today = told.get("today", ())
        rows = [self._build_agent_row(agent, told) for agent in known_agents.KNOWN_AGENTS.values()]
        names = list(Figures.__dataclass_fields__)[3:]  # Without conversation, agent and title.
        whole = Figures("", "", "", *(sum(one[name] for one in today) for name in names))
        return AgentConnections(url.partition("/t/")[0], rows, whole, next(iter(for_others), ""))

    def _find_or_create_gateway_registration(self) -> HeldRegistration | None:
        """Return what reaches a running gateway, even one that another program started, or None."""
        for held in (self._switched_on, self._watching):
            if held is not None and held.is_held:
                return held
        try:
            self._watching = self._register_window(starts=False)
        except HelixError:
            self._watching = None
        return self._watching

    def _register_window(self, *others: GatewayRegistration, starts: bool) -> HeldRegistration:
        command, own = (
            wrapped_agent.command_of_this_program(self._where),
            GatewayRegistration("", sees_all=True),
        )
        return HeldRegistration(self._where, command, own, *others, starts=starts).__enter__()

    def _build_agent_row(self, agent: KnownAgent, told: Mapping[str, Any]) -> ConnectedAgentRow:
        seen: Mapping[str, Any] = next(
            (one for one in told.get("agents", ()) if one["agent"] == agent.title), {}
        )
        own = [one for one in told.get("today", ()) if one["agent"] == agent.title]
        return ConnectedAgentRow(
            agent.name,
            agent.title,
            shlex.join([*list_words_that_start_this_program(), "wrap", agent.name]),
            shutil.which(agent.program) is not None,
            address_in_agent_settings.is_agent_connected(agent, self._where.config),
            int(seen.get("requests", 0)),
            float(seen.get("last", 0.0)),
            str(seen.get("unfolded", "")),
            len(own),
            sum(one["sent"] for one in own),
            sum(one["without"] for one in own),
            str(seen.get("failure", "")),
        )

    async def switch_gateway(self, *, on: bool) -> None:
        await asyncio.to_thread(self._start_resident_gateway if on else self._stop_resident_gateway)

    def _start_resident_gateway(self) -> None:
        from helix_desktop.gateway import (
            gateway_server,
        )  # It takes time, and this is done in a thread.

        if self._switched_on is None or not self._switched_on.is_held:
            token = gateway_server.read_or_create_token(self._where)
            others = GatewayRegistration(token, chooses_workspace=True)
            self._switched_on = self._register_window(others, starts=True)

    def _stop_resident_gateway(self) -> None:
        held, self._switched_on = self._switched_on, None
        if held is not None:
            held.__exit__()

    async def diff_of_planned_configuration(self, name: str) -> str:
        return (await asyncio.to_thread(self._plan_configuration_change, name)).as_unified_diff()

    async def toggle_agent_connection(self, name: str) -> None:
        await asyncio.to_thread(self._connect_or_disconnect_agent, name)

    def _plan_configuration_change(self, name: str) -> AgentSettingsChange:
        agent = known_agents.find_known_agent(name)
        if address_in_agent_settings.is_agent_connected(agent, self._where.config):
            return address_in_agent_settings.plan_address_removal(agent, self._where.config)
        return agent_connecting.prepare_agent_connection(agent, self._where)

    def _connect_or_disconnect_agent(self, name: str) -> None:
        change = self._plan_configuration_change(name)
        connects = change.registration is not None
        (agent_connecting.connect_agent if connects else agent_connecting.disconnect_agent)(
            change, self._where
        )
