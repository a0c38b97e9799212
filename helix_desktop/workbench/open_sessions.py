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

KEPT = 2  # The number of idle sessions that stay open besides the visible one.


class OpenSessions:
    """The open sessions, by the conversation's id."""

    def __init__(self) -> None:
        self._there: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
        self._kept: dict[str, Session] = {}  # Open sessions. The most recently used one is last.
        self.opening = asyncio.Lock()  # While held, no facts change and no conversation is opened.

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._there.values()))

    def find_open_session(self, conversation: str) -> Session | None:
        return self._there.get(conversation)

    def keep_session_open(self, session: Session) -> None:
        """Keep the session open until it is idle and other sessions have been used since."""
        self._there[session.id] = session
        self._kept.pop(session.id, None)
        self._kept[session.id] = session
        resting = [each for each in self._kept.values() if each.is_idle]
        for one in resting[:-KEPT]:
            del self._kept[one.id]

    async def close_sessions(self, conversations: Iterable[str]) -> None:
        for conversation in conversations:
            self._kept.pop(conversation, None)
            if (session := self._there.pop(conversation, None)) is not None:
                await session.aclose()

    @asynccontextmanager
    async def hold_conversation(self, conversation: str) -> AsyncIterator[None]:
        """Pause its session and let nobody open one, so that its facts may be changed."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(self.opening)
            if (session := self.find_open_session(conversation)) is not None:
                await held.enter_async_context(session.pause_session())
            yield

    @asynccontextmanager
    async def hold_all_sessions_still(self) -> AsyncIterator[None]:
        """Pause all sessions. Raises ActionRefused while one of them works."""
        async with AsyncExitStack() as held:
            for session in self:
                await held.enter_async_context(session.pause_session())
            yield
