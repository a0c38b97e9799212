"""The open conversations of one workspace: one session for each at any time.

A session that works, or has something waiting, stays open, and so do the last few idle
ones and each one that somebody refers to, such as a window that shows it. The others
are closed, and are opened again in milliseconds.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

from helix_desktop.engine.session import Session

MOST_IDLE_SESSIONS = 2  # The number of idle sessions that stay open besides the visible one.


class OpenSessions:
    """The open sessions, by the conversation's id."""

    def __init__(self) -> None:
        # A session is open as long as something refers to it.
        self._open_sessions: weakref.WeakValueDictionary[str, Session] = (
            weakref.WeakValueDictionary()
        )
        # Those that this object keeps open. The most recently used one is last.
        self._recently_used: dict[str, Session] = {}
        self.opening = asyncio.Lock()  # While held, no facts change and no conversation is opened.

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._open_sessions.values()))

    def find_open_session(self, conversation: str) -> Session | None:
        return self._open_sessions.get(conversation)

    def keep_session_open(self, session: Session) -> None:
        """Keep the session open until it is idle and other sessions have been used since."""
        self._open_sessions[session.id] = session
        self._recently_used.pop(session.id, None)
        self._recently_used[session.id] = session
        idle_sessions = [session for session in self._recently_used.values() if session.is_idle]
        for idle_session in idle_sessions[:-MOST_IDLE_SESSIONS]:
            del self._recently_used[idle_session.id]

    async def close_sessions(self, conversations: Iterable[str]) -> None:
        for conversation in conversations:
            self._recently_used.pop(conversation, None)
            session = self._open_sessions.pop(conversation, None)
            if session is not None:
                await session.aclose()

    @asynccontextmanager
    async def hold_conversation(self, conversation: str) -> AsyncIterator[None]:
        """Pause its session and let nobody open one, so that its facts may be changed."""
        async with AsyncExitStack() as exit_stack:
            await exit_stack.enter_async_context(self.opening)
            session = self.find_open_session(conversation)
            if session is not None:
                await exit_stack.enter_async_context(session.pause_session())
            yield

    @asynccontextmanager
    async def hold_all_sessions_still(self) -> AsyncIterator[None]:
        """Pause all sessions. Raises ActionRefused while one of them works."""
        async with AsyncExitStack() as exit_stack:
            for session in self:
                await exit_stack.enter_async_context(session.pause_session())
            yield
