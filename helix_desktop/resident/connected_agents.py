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
from helix_desktop.gateway.agent_upstreams import check_upstream_address
from helix_desktop.gateway.known_agent import KnownAgent
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident import agent_connecting
from helix_desktop.resident.resident_client import HeldRegistration

# What agents have sent and saved, as the window names it.
AgentFigures = Figures
PROGRAM = "helix-desktop"
LEAST_ERROR_STATUS = 400  # Of HTTP. A reply with a lower one is a success.
# The figures of conversations that can be added up: tokens, numbers and dollars.
SUMMED_FIGURES = (
    "requests",
    "sent",
    "without",
    "cache_read",
    "recalls",
    "paid",
    "paid_without",
    "too_large",
)


@dataclass(frozen=True, slots=True)
class ConnectedAgentRow:
    """One agent and its figures of today. `start_command` starts it once, `install_command` installs
    it. `connected`: its configuration contains the address. `reason_not_folded`: why its requests are forwarded
    unchanged. `last_failure`: why its last request was not answered.
    `unread`: so many requests became no part of a conversation.
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
    install_command: str = ""
    unread: int = 0


@dataclass(frozen=True, slots=True)
class AgentConnections:
    """`address` is empty while no gateway runs. `for_others` is the address for any
    other program, or empty. `today` and `until_now` have the totals of all connected agents. Their
    dollars are 0 if no price is known. `last_request_time`: of the newest request of any program, or 0.
    `last_request_host`: where that was passed on to. `last_request_problem`: why it was not
    answered, or not with success.
    """

    address: str
    agents: Sequence[ConnectedAgentRow]
    today: Figures
    until_now: Figures
    for_others: str = ""
    last_request_time: float = 0.0
    last_request_agent: str = ""
    last_request_host: str = ""
    last_request_problem: str = ""


def list_words_that_start_this_program() -> list[str]:
    """Return what a user types in a terminal: the program's name, or from a checkout its path."""
    if shutil.which(PROGRAM) is not None:
        return [PROGRAM]
    program_beside_python = Path(sys.executable).with_name(PROGRAM)
    if program_beside_python.is_file():
        return [str(program_beside_python)]
    return [sys.executable, "-m", "helix_desktop"]


def name_of_usual_workspace() -> str:
    """Return what the workspace is called that has the conversations of connected agents."""
    # This module opens workspaces by itself, and few need its name.
    from helix_desktop.gateway.gateway_workspaces import USUAL_WORKSPACE_NAME

    return USUAL_WORKSPACE_NAME


def check_server_of_requests(address: str) -> None:
    """Raise InvalidInput unless it is the address of a server that can get requests, or empty."""
    check_upstream_address(address)


class ConnectedAgents:
    """What the window shows of the gateway and the agents that use it, and what it changes.

    The window reaches a gateway with a registration: an address of its own there. One keeps
    the gateway running (`_switched_on`); the other only looks at one that runs (`_watching`).
    """

    def __init__(self, where: ProgramFolders) -> None:
        self._where = where
        self._switched_on: HeldRegistration | None = None
        self._watching: HeldRegistration | None = None

    async def list_agent_connections(self) -> AgentConnections:
        return await asyncio.to_thread(self._fetch_agents_overview)

    def _fetch_agents_overview(self) -> AgentConnections:
        """Return all agents with what the gateway, if one runs, counted of them today."""
        registration = self._find_or_create_gateway_registration()
        addresses: list[str] = []
        gateway_status: Mapping[str, Any] = {}
        if registration is not None:
            addresses = registration.addresses
            gateway_status = wrapped_agent.fetch_gateway_status(addresses[0]) or {}

        # A gateway of an earlier version, which may still run, does not tell it.
        arrival: Mapping[str, Any] = gateway_status.get("arrival", {})
        agent_rows: list[ConnectedAgentRow] = []
        for agent in known_agents.KNOWN_AGENTS.values():
            agent_row = self._build_agent_row(agent, gateway_status)
            agent_rows.append(agent_row)
        conversations_of_today = gateway_status.get("today", ())
        last_request_time = arrival.get("time", 0.0)
        last_request_agent = arrival.get("agent", "")
        last_request_host = arrival.get("host", "")
        return AgentConnections(
            address=_address_without_token(addresses),
            agents=agent_rows,
            today=_add_up_figures(conversations_of_today),
            until_now=_add_up_figures(gateway_status.get("figures", ())),
            for_others=_address_for_others(addresses),
            last_request_time=float(last_request_time),
            last_request_agent=str(last_request_agent),
            last_request_host=str(last_request_host),
            last_request_problem=_describe_failed_arrival(arrival),
        )

    def _find_or_create_gateway_registration(self) -> HeldRegistration | None:
        """Return what reaches a running gateway, even one that another program started, or None."""
        for registration in (self._switched_on, self._watching):
            if registration is not None and registration.is_held:
                return registration
        try:
            self._watching = self._register_window(starts=False)
        except HelixError:
            self._watching = None
        return self._watching

    def _register_window(self, *others: GatewayRegistration, starts: bool) -> HeldRegistration:
        """Register the window, whose address comes first, together with `others`."""
        command = wrapped_agent.command_of_this_program(self._where)
        window = GatewayRegistration(token="", sees_all=True)
        registration = HeldRegistration(self._where, command, window, *others, starts=starts)
        return registration.__enter__()

    def _build_agent_row(
        self, agent: KnownAgent, gateway_status: Mapping[str, Any]
    ) -> ConnectedAgentRow:
        requests_of_agent: Mapping[str, Any] = {}
        for requests in gateway_status.get("agents", ()):
            if requests["agent"] == agent.title:
                requests_of_agent = requests
                break
        conversation_count = 0
        sent_tokens = 0
        tokens_without_gateway = 0
        for conversation in gateway_status.get("today", ()):
            if conversation["agent"] == agent.title:
                conversation_count += 1
                sent_tokens += conversation["sent"]
                tokens_without_gateway += conversation["without"]

        start_command = list_words_that_start_this_program() + ["wrap", agent.name]
        is_installed = shutil.which(agent.program) is not None
        is_connected = address_in_agent_settings.is_agent_connected(agent, self._where.config)
        request_count = requests_of_agent.get("requests", 0)
        last_request_time = requests_of_agent.get("last", 0.0)
        reason_not_folded = requests_of_agent.get("unfolded", "")
        last_failure = requests_of_agent.get("failure", "")
        return ConnectedAgentRow(
            name=agent.name,
            title=agent.title,
            start_command=shlex.join(start_command),
            installed=is_installed,
            connected=is_connected,
            requests=int(request_count),
            last_request_time=float(last_request_time),
            reason_not_folded=str(reason_not_folded),
            conversations=conversation_count,
            sent=sent_tokens,
            without=tokens_without_gateway,
            last_failure=str(last_failure),
            install_command=f"npm install -g {agent.npm_package}",
            # A gateway of an earlier version does not say it.
            unread=int(requests_of_agent.get("unread", 0)),
        )

    async def switch_gateway(self, *, on: bool, upstream: str = "") -> None:
        """Turn the address for any other program on or off. `upstream`: where its requests are
        passed on to; empty: to each provider's own address.
        """
        if on:
            check_upstream_address(upstream)
            await asyncio.to_thread(self._start_resident_gateway, upstream)
        else:
            await asyncio.to_thread(self._stop_resident_gateway)

    def _start_resident_gateway(self, upstream: str) -> None:
        # The import takes time, so it is done here, in a thread.
        from helix_desktop.gateway import gateway_server

        if self._switched_on is not None and self._switched_on.is_held:
            return
        token = gateway_server.read_or_create_token(self._where)
        any_other_program = GatewayRegistration(token, upstream, chooses_workspace=True)
        self._switched_on = self._register_window(any_other_program, starts=True)

    def _stop_resident_gateway(self) -> None:
        registration = self._switched_on
        self._switched_on = None
        if registration is not None:
            registration.__exit__()

    async def diff_of_planned_configuration(self, name: str) -> str:
        change = await asyncio.to_thread(self._plan_configuration_change, name)
        return change.as_unified_diff()

    async def toggle_agent_connection(self, name: str) -> None:
        await asyncio.to_thread(self._connect_or_disconnect_agent, name)

    def _plan_configuration_change(self, name: str) -> AgentSettingsChange:
        agent = known_agents.find_known_agent(name)
        if address_in_agent_settings.is_agent_connected(agent, self._where.config):
            return address_in_agent_settings.plan_address_removal(agent, self._where.config)
        return agent_connecting.prepare_agent_connection(agent, self._where)

    def _connect_or_disconnect_agent(self, name: str) -> None:
        change = self._plan_configuration_change(name)
        is_address_written = change.registration is not None
        if is_address_written:
            agent_connecting.connect_agent(change, self._where)
        else:
            agent_connecting.disconnect_agent(change, self._where)


def _describe_failed_arrival(arrival: Mapping[str, Any]) -> str:
    failure = str(arrival.get("failure", ""))
    if failure:
        return failure
    status = int(arrival.get("status", 0))
    if status >= LEAST_ERROR_STATUS:
        host = str(arrival.get("host", ""))
        return f"{host} answered with an error (status {status})."
    return ""


def _address_without_token(addresses: Sequence[str]) -> str:
    """Return where the gateway listens, or an empty string if none runs."""
    if not addresses:
        return ""
    return addresses[0].partition("/t/")[0]


def _address_for_others(addresses: Sequence[str]) -> str:
    """Return the address that follows the window's own, if the window registered one."""
    if len(addresses) < 2:
        return ""
    return addresses[1]


def _add_up_figures(conversations: Sequence[Mapping[str, Any]]) -> Figures:
    totals: dict[str, Any] = {}
    for name in SUMMED_FIGURES:
        # A gateway of an earlier version, which may still run, does not tell all of them.
        totals[name] = sum(conversation.get(name, 0) for conversation in conversations)
    return Figures(conversation="", agent="", title="", **totals)
