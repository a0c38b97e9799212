"""What the window needs to connect agents; `desktop/connected_agents.py` is the real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from helix_desktop.values import dataclass


@dataclass(frozen=True, slots=True)
class AgentRow:
    """`line` starts it once; `connected`: the address stands in its configuration; `unfolded`: why its requests go on whole.
    Conversations and tokens are today's.
    """

    name: str
    title: str
    line: str
    installed: bool = False
    connected: bool = False
    requests: int = 0
    last: float = 0.0
    unfolded: str = ""
    conversations: int = 0
    sent: int = 0
    without: int = 0


@dataclass(frozen=True, slots=True)
class Today:
    """Of all connected agents. Tokens: what was sent, and what the agents asked to send. Dollars are 0 where no price is known."""

    requests: int = 0
    sent: int = 0
    without: int = 0
    cache_read: int = 0
    recalls: int = 0
    paid: float = 0.0
    paid_without: float = 0.0


@dataclass(frozen=True, slots=True)
class Connections:
    """`address` is empty while no gateway runs. `for_others`: the one any other program may be given; empty where there is none."""

    address: str
    agents: Sequence[AgentRow]
    today: Today = Today()
    for_others: str = ""


class ConnectedAgents(Protocol):
    """The gateway, and the agents that may use it."""

    async def look(self) -> Connections:
        """How things stand."""
        ...

    async def switch(self, *, on: bool) -> None:
        """Have the gateway run while the window is open, or no longer."""
        ...

    async def difference(self, name: str) -> str:
        """What connecting the agent, or taking it out again, changes in its configuration."""
        ...

    async def change(self, name: str) -> None:
        """Connect it, or take it out again, byte for byte."""
        ...
