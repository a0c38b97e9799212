"""The rows of lists in a workspace: conversations, and the sub-agents of one conversation."""

from collections.abc import Mapping
from dataclasses import field

from helix_desktop.engine.messages import ContextKind
from helix_desktop.fast_dataclass import dataclass

USUAL_WINDOW = 128_000


@dataclass(frozen=True, slots=True)
class ConversationListRow:
    """`updated`: seconds since 1970. `parts`: the window's tokens by kind. `cost`:
    known dollars.
    """

    id: str
    title: str
    updated: float
    parts: Mapping[ContextKind, int] = field(default_factory=dict)
    window: int = USUAL_WINDOW
    pinned: bool = False
    archived: bool = False
    trashed: bool = False
    parent: str = ""
    parent_call: str = ""
    cost: float = 0.0
    agents_cost: float = 0.0  # Of the conversations below it, which `cost` does not include.
    agent: str = ""  # The connected agent that writes this conversation; empty: this program's own.
    machine: str = ""  # In a shared workspace: the machine that wrote last; empty for this one.
    copy: str = ""  # The branch or commit from which the conversation's private copy was made.
    overlaps: tuple[str, ...] = ()  # Files changed both in this conversation's copy and in others.
    acp_agent: str = ""  # The foreign agent that works in this conversation over ACP.
    recorded_from: str = ""  # The program that recorded this conversation; empty if this one did.
    # A killed program left its last turn open, and it has not gone on since.
    is_interrupted: bool = False

    @property
    def whole_cost(self) -> float:
        """Return the cost with sub-agents. What a foreign agent reports may be what the
        gateway counted below it.
        """
        if self.acp_agent:
            return max(self.cost, self.agents_cost)
        return self.cost + self.agents_cost


@dataclass(frozen=True, slots=True)
class SubagentRow:
    """A sub-agent in a list. `used` and `window`: its context and its window in tokens."""

    id: str
    parent: str
    name: str
    task: str
    state: str
    used: int
    window: int
    cost: float
    seconds: float
