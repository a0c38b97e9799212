"""Lets the facts of other machines into the conversations that are open here: their sessions hear
each fact, and nothing comes in while something else goes on there.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from helix_desktop.errors import ActionRefused
from helix_desktop.store.shared.conversation_sync import OpenConversations
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tasks import OwnedTasks
from helix_desktop.workbench.conversation_fences import ConversationFences
from helix_desktop.workbench.open_sessions import OpenSessions


class SharedWorkbench(Protocol):
    workspace: StoredWorkspace
    sessions: OpenSessions
    fences: ConversationFences
    tasks: OwnedTasks

    async def reread_replaced_conversation(self, conversation: str) -> None: ...

    async def move_to_branch(self, conversation: str, branch: str) -> None: ...


class SyncedSessions(OpenConversations):
    """The sessions of an open workspace, as synchronisation with other machines meets them."""

    def __init__(self, bench: SharedWorkbench) -> None:
        self._bench = bench
        self.starting: set[str] = set()  # Conversations whose turn waits for facts from elsewhere.
        # If two machines wrote in a conversation: the fork with the facts from this machine.
        self.branch_by_conversation: dict[str, str] = {}

    async def append_alone(self, conversation: str, work: Callable[[], Awaitable[None]]) -> None:
        """Where it is open, its session hears each fact; where something goes on there, not now."""
        session = self._bench.sessions.find_open_session(conversation)
        if session is None:
            await work()
            await self._bench.reread_replaced_conversation(conversation)
            return
        if not session.is_idle and conversation not in self.starting:
            raise ActionRefused("The agent is working in this conversation.")
        await session.conversation.append_foreign_facts(work)

    @asynccontextmanager
    async def hold_for_change(self, conversation: str) -> AsyncIterator[None]:
        session = self._bench.sessions.find_open_session(conversation)
        if session is not None and conversation in self.starting:
            async with session.conversation.block_appending():
                yield
            return
        if session is not None and not session.is_idle:
            raise ActionRefused("The agent is working in this conversation.")
        async with self._bench.sessions.hold_conversation(conversation):
            yield

    def on_moved_to_branch(self, conversation: str, branch: str) -> None:
        if branch != conversation:
            self.branch_by_conversation[conversation] = branch
        self._bench.tasks.spawn_task(self._bench.move_to_branch(conversation, branch), name="list a branch")
