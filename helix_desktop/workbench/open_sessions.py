"""The open conversations of one workspace: one session for each at any time.

What goes on, or has something that waits, is kept. Of the others the newest few are, and whatever somebody holds (a window that
shows it, a coroutine that works on it) is the one that is found; the rest is let go, and opened again in milliseconds.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

from helix_desktop.engine.session import Session

KEPT = 2  # The number of idle sessions that stay open besides the visible one.


class OpenSessions:
    """By the conversation's name."""

    def __init__(self) -> None:
        self._there: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
        self._kept: dict[str, Session] = {}  # Open sessions. The most recently used one is last.
        self.opening = asyncio.Lock()  # While held, no facts change and no conversation is opened.

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._there.values()))

    def find_open_session(self, conversation: str) -> Session | None:
        return self._there.get(conversation)

    def keep_session_open(self, session: Session) -> None:
        """Keeps the session open until it is at rest and other sessions have been used since."""
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
        """Inside, its facts may change: a session it has is held, and nobody can open it."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(self.opening)
            if (session := self.find_open_session(conversation)) is not None:
                await held.enter_async_context(session.pause_session())
            yield

    @asynccontextmanager
    async def hold_all_sessions_still(self) -> AsyncIterator[None]:
        """All of them hold still; Refused while one works."""
        async with AsyncExitStack() as held:
            for session in self:
                await held.enter_async_context(session.pause_session())
            yield
