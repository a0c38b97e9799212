"""Defines what the process that holds the agent's connection and the process that holds the journal exchange."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_figures import Figures
from helix_desktop.gateway.view_entries import Changed, Entry
from helix_desktop.protocols.wire_message import Piece, Tool, Wired


@dataclass(frozen=True, slots=True)
class Arrival:
    """What the gateway knows about a request from its headers and body. `fold`: whether something
    may be folded; `parent`: the session whose sub-agent asks; `effort`: how it asks for thinking.
    """

    wire: str
    agent: str
    session: str
    head: str
    model: str
    system: str
    tools: tuple[Tool, ...]
    chain: tuple[str, ...]
    fold: bool = True
    parent: str = ""
    effort: str = ""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Identifies a request that has been sent on, so that its reply can be recorded.

    `messages`: how many it had; `last`: the hash of all of them; `saw`: the newest fact when it was
    sent; `live`: its reply is recorded; `ahead`: it was sent before its messages were recorded, and
    where there are many (`is_import`) its agent does not wait for that.
    """

    conversation: str
    messages: int
    last: str
    saw: int
    wire: str
    live: bool = True
    ahead: bool = False
    is_import: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """What the messages become; no entries: all go on as they came. `recallable`: whether a recall could bring
    something back; `taken_out`: the messages that the user took something out of, without it and without folds.
    """

    ticket: Ticket
    entries: tuple[Entry, ...]
    recallable: bool
    taken_out: tuple[Changed, ...] = ()


@dataclass(frozen=True, slots=True)
class Replied:
    """A whole reply. `raw`: as JSON, where the agent does not see all of it."""

    pieces: tuple[Piece, ...]
    model: str
    stop: Stop
    usage: Usage
    raw: str = ""
    seconds: float = 0.0


# Asks an agent's model: conversation, question or whole text, instructions, token limit. Returns text, usage, model.
AskAgentModel = Callable[[str, str, str, int], Awaitable[tuple[str, Usage, str]]]


class AgentConversations(Protocol):
    """The connected agents' conversations of one workspace, in this process or in the one that has the workspace open."""

    async def count_known_messages(self, arrival: Arrival) -> int: ...
    async def receive_request(self, arrival: Arrival, messages: Sequence[Wired]) -> Sent: ...
    async def preview_request(self, arrival: Arrival, messages: Sequence[Wired]) -> Sent: ...
    async def answer_hidden_calls(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece], refusal: str = ""
    ) -> list[tuple[str, str, str, bool]]: ...
    async def record_agent_reply(self, ticket: Ticket, replied: Replied | None, shown_key: str) -> None: ...
    async def fold_after_overflow(self, ticket: Ticket) -> Sent | None: ...
    async def figures_since(self, since: float = 0.0) -> Sequence[Figures]: ...
    async def aclose(self) -> None: ...
