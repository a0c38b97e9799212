"""Follows a workspace from process to process while an agent's request is under way.

A window that opens takes the workspace over from the gateway, and gives it up when it closes.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from operator import methodcaller
from typing import Any

from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_cost_and_savings import Figures
from helix_desktop.gateway.conversations_port import (
    AgentConversations,
    Arrival,
    HiddenCallAnswer,
    Replied,
    Sent,
    Ticket,
)
from helix_desktop.protocols.gateway_message import Piece, ProtocolMessage
from helix_desktop.workbench.open_questions import NO_NOTES, OpenQuestions
from helix_desktop.workbench.unread_requests import NOTHING_KEPT, UnreadRequests

# A workspace that moves more often during one call has an owner that cannot serve agents.
MOST_MOVES = 10
# The requests of so many conversations are kept until their replies are recorded.
MOST_UNANSWERED_REQUESTS = 64

FindOpenConversations = Callable[[], Awaitable[AgentConversations]]


@dataclass(frozen=True, slots=True, eq=False)
class UnansweredRequest:
    """A request whose reply is not recorded yet, and where it was received."""

    arrival: Arrival
    messages: Sequence[ProtocolMessage]
    ticket: Ticket
    received_by: AgentConversations


class MovingConversations:
    """The conversations of one workspace, in whichever process it is open.

    A call goes where the workspace is open when the call begins. If the workspace is closed there
    before the call has ended, the call is made again where it is open then. So a reply is recorded
    with its cost, although its request was recorded in a process that has ended.

    `find_open_conversations` returns where the workspace is open, and opens it if it is closed.
    """

    def __init__(
        self,
        find_open_conversations: FindOpenConversations,
        questions: OpenQuestions = NO_NOTES,
        unread_requests: UnreadRequests = NOTHING_KEPT,
    ) -> None:
        self._find_open_conversations = find_open_conversations
        self.questions = questions
        self.unread_requests = unread_requests
        # The last request of each conversation.
        self._unanswered: OrderedDict[str, UnansweredRequest] = OrderedDict()
        self._calls_under_way: Counter[AgentConversations] = Counter()
        self._call_has_ended = asyncio.Event()

    async def _call_where_open(self, call: Callable[[AgentConversations], Awaitable[Any]]) -> Any:
        """Make a call of the conversations, and again if they are closed meanwhile."""
        conversations = await self._find_open_conversations()
        for _ in range(MOST_MOVES):
            try:
                return await self._count_call(conversations, call)
            except HelixError:
                open_now = await self._find_open_conversations()
                is_still_open = open_now is conversations
                if is_still_open:
                    raise
                conversations = open_now
        return await self._count_call(conversations, call)

    async def _count_call(
        self,
        conversations: AgentConversations,
        call: Callable[[AgentConversations], Awaitable[Any]],
    ) -> Any:
        """Make a call that a process which closes these conversations can wait for."""
        self._calls_under_way[conversations] += 1
        try:
            return await call(conversations)
        finally:
            self._calls_under_way[conversations] -= 1
            if not self._calls_under_way[conversations]:
                del self._calls_under_way[conversations]
            self._call_has_ended.set()

    async def wait_for_calls(self, conversations: AgentConversations) -> None:
        """Wait until no call of these conversations is under way."""
        while self._calls_under_way[conversations]:
            self._call_has_ended.clear()
            await self._call_has_ended.wait()

    async def count_known_messages(self, arrival: Arrival) -> int:
        count: int = await self._call_where_open(methodcaller("count_known_messages", arrival))
        return count

    async def find_conversation_asked_about(self, agent: str, session: str, text: str) -> str:
        call = methodcaller("find_conversation_asked_about", agent, session, text)
        conversation: str = await self._call_where_open(call)
        return conversation

    async def receive_request(self, arrival: Arrival, messages: Sequence[ProtocolMessage]) -> Sent:
        async def receive(conversations: AgentConversations) -> Sent:
            sent = await conversations.receive_request(arrival, messages)
            self._keep_until_answered(
                UnansweredRequest(arrival, messages, sent.ticket, conversations)
            )
            return sent

        sent: Sent = await self._call_where_open(receive)
        return sent

    def _keep_until_answered(self, request: UnansweredRequest) -> None:
        conversation = request.ticket.conversation
        self._unanswered.pop(conversation, None)
        self._unanswered[conversation] = request
        if len(self._unanswered) > MOST_UNANSWERED_REQUESTS:
            self._unanswered.popitem(last=False)

    async def _find_ticket_at(self, conversations: AgentConversations, ticket: Ticket) -> Ticket:
        """Return the ticket by which a reply is recorded in the process that has the workspace open.

        A request may have been sent before it was recorded, and the process that was to record it may
        have been killed since. Then it is recorded here first.
        """
        request = self._unanswered.get(ticket.conversation)
        is_last_request = request is not None and request.ticket == ticket
        if request is None or not is_last_request or request.received_by is conversations:
            return ticket
        known_count = await conversations.count_known_messages(request.arrival)
        if known_count >= len(request.arrival.chain):
            return ticket
        sent = await conversations.receive_request(request.arrival, request.messages)
        return sent.ticket

    async def preview_request(self, arrival: Arrival, messages: Sequence[ProtocolMessage]) -> Sent:
        call = methodcaller("preview_request", arrival, messages)
        sent: Sent = await self._call_where_open(call)
        return sent

    async def answer_hidden_calls(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece], refusal: str = ""
    ) -> list[HiddenCallAnswer]:
        async def answer(conversations: AgentConversations) -> list[HiddenCallAnswer]:
            ticket_here = await self._find_ticket_at(conversations, ticket)
            return await conversations.answer_hidden_calls(ticket_here, replied, calls, refusal)

        answers: list[HiddenCallAnswer] = await self._call_where_open(answer)
        return answers

    async def record_agent_reply(
        self, ticket: Ticket, replied: Replied | None, shown_key: str
    ) -> None:
        async def record(conversations: AgentConversations) -> None:
            ticket_here = ticket
            if shown_key:  # Otherwise the agent asks again, as it has not got all of the reply.
                ticket_here = await self._find_ticket_at(conversations, ticket)
            await conversations.record_agent_reply(ticket_here, replied, shown_key)

        await self._call_where_open(record)
        request = self._unanswered.get(ticket.conversation)
        if request is not None and request.ticket == ticket:
            del self._unanswered[ticket.conversation]

    async def fold_after_overflow(self, ticket: Ticket, window: int = 0) -> Sent | None:
        call = methodcaller("fold_after_overflow", ticket, window)
        shorter: Sent | None = await self._call_where_open(call)
        return shorter

    async def record_unanswered_requests(self) -> None:
        await self._call_where_open(methodcaller("record_unanswered_requests"))

    async def figures_since(self, since: float = 0.0) -> Sequence[Figures]:
        call = methodcaller("figures_since", since)
        figures: Sequence[Figures] = await self._call_where_open(call)
        return figures

    async def aclose(self) -> None:
        """Do nothing: the gateway closes the conversations where they are open."""
