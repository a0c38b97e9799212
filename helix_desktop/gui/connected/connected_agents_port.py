"""What the window needs to connect agents; `desktop/connected_agents.py` is the real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ConnectedAgentRow:
    """`start_command` starts it once; `connected`: the address stands in its configuration; `reason_not_folded`: why its requests go on whole.
    Conversations and tokens are today's.
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


@dataclass(frozen=True, slots=True)
class GatewayFiguresOfToday:
    """Of all connected agents. Tokens: what was sent, and what the agents asked to send. Dollars are 0 where no price is known."""

    requests: int = 0
    sent: int = 0
    without: int = 0
    cache_read: int = 0
    recalls: int = 0
    paid: float = 0.0
    paid_without: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentConnections:
    """`address` is empty while no gateway runs. `for_others`: the one any other program may be given; empty where there is none."""

    address: str
    agents: Sequence[ConnectedAgentRow]
    today: GatewayFiguresOfToday = GatewayFiguresOfToday()
    for_others: str = ""


class ConnectedAgentsPort(Protocol):
    """The gateway, and the agents that may use it."""

    async def list_agent_connections(self) -> AgentConnections:
        """How things stand."""
        ...

    async def switch_gateway(self, *, on: bool) -> None:
        """Have the gateway run while the window is open, or no longer."""
        ...

    async def describe_configuration_change(self, name: str) -> str:
        """What connecting the agent, or taking it out again, changes in its configuration."""
        ...

    async def change_agent_configuration(self, name: str) -> None:
        """Connect it, or take it out again, byte for byte."""
        ...
