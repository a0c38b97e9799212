"""Defines what the process that holds the agent's connection and the process that holds
the journal exchange.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_cost_and_savings import Figures
from helix_desktop.gateway.view_entries import ChangedMessage, Entry
from helix_desktop.protocols.gateway_message import Piece, ProtocolMessage
from helix_desktop.workbench.open_questions import OpenQuestions
from helix_desktop.workbench.unread_requests import UnreadRequests


@dataclass(frozen=True, slots=True)
class Arrival:
    """What the gateway knows of a request from its registration, headers and body.

    `parent`: the session whose sub-agent sent it. `below`: the conversation that the
    registration is for. `cache_seconds`: how long it asks to be cached; 0: it does not say.
    `address`: where its provider is.
    """

    wire: str
    agent: str
    session: str
    head: str
    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    chain: tuple[str, ...]
    fold: bool = True
    parent: str = ""
    effort: str = ""
    below: str = ""
    cache_seconds: int = 0
    address: str = ""

    @property
    def is_below_another(self) -> bool:
        return bool(self.parent or self.below)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Identifies a request that was forwarded, to record its reply.

    `messages`: their number. `last`: the hash of all. `saw`: the newest fact when it
    was sent. `live`: its reply is recorded. `ahead`: it was sent before its messages
    were recorded; if these are many (`is_import`), its agent does not wait for that.
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
    """What messages become; without entries, all are sent as they came. `recallable`:
    whether a recall could find anything. `taken_out`: messages of which the user took
    out something, without it and without folds. `unfolded`: why nothing is folded; empty if the
    settings of the workspace are in order.
    """

    ticket: Ticket
    entries: tuple[Entry, ...]
    recallable: bool
    taken_out: tuple[ChangedMessage, ...] = ()
    unfolded: str = ""


@dataclass(frozen=True, slots=True)
class Replied:
    """A complete reply. `raw`: its JSON, if the agent does not see all of it."""

    pieces: tuple[Piece, ...]
    model: str
    stop: Stop
    usage: Usage
    raw: str = ""
    seconds: float = 0.0


# Asks an agent's model: conversation, question or whole text, instructions, token
# limit. Returns text, usage, model.
AskAgentModel = Callable[[str, str, str, int], Awaitable[tuple[str, Usage, str]]]


class HiddenCallAnswer(NamedTuple):
    """What a hidden call returned. Between processes, it is a list of these values."""

    call_id: str
    tool_name: str
    text: str
    is_ok: bool


class AgentConversations(Protocol):
    """The conversations of connected agents in one workspace, in this or another process.

    `questions`: notes of the requests under way, which the process that sends them keeps.
    `unread_requests`: account of those that went on without becoming facts.
    """

    @property
    def questions(self) -> OpenQuestions: ...
    @property
    def unread_requests(self) -> UnreadRequests: ...

    async def count_known_messages(self, arrival: Arrival) -> int: ...
    async def find_conversation_asked_about(self, agent: str, session: str, text: str) -> str: ...
    async def receive_request(
        self, arrival: Arrival, messages: Sequence[ProtocolMessage]
    ) -> Sent: ...
    async def preview_request(
        self, arrival: Arrival, messages: Sequence[ProtocolMessage]
    ) -> Sent: ...
    async def answer_hidden_calls(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece], refusal: str = ""
    ) -> list[HiddenCallAnswer]: ...
    async def record_agent_reply(
        self, ticket: Ticket, replied: Replied | None, shown_key: str
    ) -> None: ...
    async def fold_after_overflow(self, ticket: Ticket, window: int = 0) -> Sent | None: ...
    async def record_unanswered_requests(self) -> None: ...
    async def figures_since(self, since: float = 0.0) -> Sequence[Figures]: ...
    async def aclose(self) -> None: ...
