"""What lists show of a workspace: its conversations, and the agents below one."""

from collections.abc import Mapping
from dataclasses import field

from helix_desktop.engine.blocks import ContextKind
from helix_desktop.fast_dataclass import dataclass

USUAL_WINDOW = 128_000


@dataclass(frozen=True, slots=True)
class ConversationListRow:
    """`updated` in seconds since 1970; `parts`: the tokens of its window by kind; `cost` in dollars, as far as prices are known."""

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
    agent: str = ""  # the connected agent that writes there; empty: this program's own
    machine: str = ""  # the machine that wrote there last, in a shared workspace; empty: this one
    copy: str = ""  # The branch or commit that the conversation's copy was made from.
    overlaps: tuple[str, ...] = ()  # Files changed both in the conversation's copy and in others.
    acp_agent: str = ""  # The foreign agent that works there over the Agent Client Protocol.


@dataclass(frozen=True, slots=True)
class SubagentRow:
    """A sub-agent in the list. `used` and `window` say how full its context is, in tokens."""

    id: str
    parent: str
    name: str
    task: str
    state: str
    used: int
    window: int
    cost: float
    seconds: float
