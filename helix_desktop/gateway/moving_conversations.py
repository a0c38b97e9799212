"""Follows a workspace from process to process while an agent's request is under way.

A window that opens takes the workspace over from the gateway, and gives it up when it closes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from operator import methodcaller
from typing import Any

from helix_desktop.errors import HelixError
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

# A workspace that moves more often during one call has an owner that cannot serve agents.
MOST_MOVES = 2

FindOpenConversations = Callable[[], Awaitable[AgentConversations]]


class MovingConversations:
    """The conversations of one workspace, in whichever process it is open.

    A call goes where the workspace is open when the call begins. If the workspace is closed there
    before the call has ended, the call is made again where it is open then. So a reply is recorded
    with its cost, although its request was recorded in a process that has ended.

    `find_open_conversations` returns where the workspace is open, and opens it if it is closed.
    """

    def __init__(self, find_open_conversations: FindOpenConversations) -> None:
        self._find_open_conversations = find_open_conversations
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

    async def receive_request(self, arrival: Arrival, messages: Sequence[ProtocolMessage]) -> Sent:
        call = methodcaller("receive_request", arrival, messages)
        sent: Sent = await self._call_where_open(call)
        return sent

    async def preview_request(self, arrival: Arrival, messages: Sequence[ProtocolMessage]) -> Sent:
        call = methodcaller("preview_request", arrival, messages)
        sent: Sent = await self._call_where_open(call)
        return sent

    async def answer_hidden_calls(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece], refusal: str = ""
    ) -> list[HiddenCallAnswer]:
        call = methodcaller("answer_hidden_calls", ticket, replied, calls, refusal)
        answers: list[HiddenCallAnswer] = await self._call_where_open(call)
        return answers

    async def record_agent_reply(
        self, ticket: Ticket, replied: Replied | None, shown_key: str
    ) -> None:
        call = methodcaller("record_agent_reply", ticket, replied, shown_key)
        await self._call_where_open(call)

    async def fold_after_overflow(self, ticket: Ticket, window: int = 0) -> Sent | None:
        call = methodcaller("fold_after_overflow", ticket, window)
        shorter: Sent | None = await self._call_where_open(call)
        return shorter

    async def figures_since(self, since: float = 0.0) -> Sequence[Figures]:
        call = methodcaller("figures_since", since)
        figures: Sequence[Figures] = await self._call_where_open(call)
        return figures

    async def aclose(self) -> None:
        """Do nothing: the gateway closes the conversations where they are open."""
