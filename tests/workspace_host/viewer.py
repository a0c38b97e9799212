"""Somebody who looks at a conversation through a host, and waits for what a story needs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from helix_desktop.engine.facts import Fact, Recorded, TurnEnded
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.workspace_host.followed_conversation import FollowedConversation, digest_of_view
from helix_desktop.workspace_host.host_interface import (
    ConversationEvent,
    ConversationFollower,
    FactsAdded,
    SendMessage,
    WorkspaceHost,
)

LIMIT = 60.0


class Viewer(FollowedConversation):
    def __init__(
        self, host: WorkspaceHost, conversation: str, known: Sequence[Recorded] = ()
    ) -> None:
        super().__init__(known)
        self.host = host
        self.conversation = conversation
        self.events: list[ConversationEvent] = []
        self._untold: deque[ConversationEvent] = deque()
        self._follower: ConversationFollower | None = None

    @classmethod
    async def begin(
        cls, host: WorkspaceHost, conversation: str, known: Sequence[Recorded] = ()
    ) -> Viewer:
        viewer = cls(host, conversation, known)
        viewer._follower = await host.follow_conversation(conversation, len(known))
        await viewer.until(lambda: viewer.has_caught_up)
        return viewer

    async def until(self, condition: Callable[[], bool]) -> None:
        assert self._follower is not None
        async with asyncio.timeout(LIMIT):
            while not condition():
                if not self._untold:
                    self._untold += await self._follower.next_events()
                event = self._untold.popleft()
                self.events.append(event)
                self.apply_event(event)

    async def say(self, text: str) -> None:
        """Sends it and waits for the end of its turn."""
        ends = self.ends
        await self.host.run_host_command(SendMessage(self.conversation, text))
        await self.until_ended(ends + 1)

    async def until_ended(self, turns: int) -> None:
        """Waits until so many turns have ended and the session has nothing to do."""
        await self.until(lambda: self.ends >= turns and self.running is ConversationActivity.IDLE)

    async def until_as_far_as(self, session: Session) -> None:
        await self.until(lambda: self.state.seq >= session.conversation.state.seq)

    @property
    def facts(self) -> list[Fact]:
        return [recorded.fact for recorded in self.state.facts]

    @property
    def ends(self) -> int:
        return sum(isinstance(fact, TurnEnded) for fact in self.facts)

    @property
    def added(self) -> list[int]:
        """The numbers of all facts in the order in which they were told."""
        return [
            recorded.seq
            for event in self.events
            if isinstance(event, FactsAdded)
            for recorded in event.facts
        ]

    @property
    def view(self) -> str:
        return digest_of_view(self.state).hex

    async def close(self) -> None:
        assert self._follower is not None
        await self._follower.close_follower()
