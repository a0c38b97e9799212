"""What the window needs to connect agents; `desktop/connected_agents.py` is the real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AgentRow:
    """`line` starts it once; `connected`: the address stands in its configuration; `unfolded`: why its requests go on whole."""

    name: str
    title: str
    line: str
    installed: bool = False
    connected: bool = False
    requests: int = 0
    last: float = 0.0
    unfolded: str = ""


@dataclass(frozen=True, slots=True)
class Connections:
    """`address` is empty while no gateway runs. Tokens: what was sent, and what it would have been without folds."""

    address: str
    agents: Sequence[AgentRow]
    sent: int = 0
    without: int = 0


class ConnectedAgents(Protocol):
    """The gateway, and the agents that may use it."""

    async def look(self) -> Connections:
        """How things stand."""
        ...

    async def switch(self, *, on: bool) -> None:
        """Start the gateway as a process of its own, or end it."""
        ...

    async def difference(self, name: str) -> str:
        """What connecting the agent, or taking it out again, changes in its configuration."""
        ...

    async def change(self, name: str) -> None:
        """Connect it, or take it out again, byte for byte."""
        ...
