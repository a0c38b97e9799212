"""A workbench whose conversations other machines have too: it keeps them in step while the workspace is open, says how things
stand, and lets nobody write where another machine does.
"""

from __future__ import annotations

import asyncio
import time as clock
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from helix_desktop.engine.events import FactAppended, ReadAnew
from helix_desktop.engine.session import Session
from helix_desktop.errors import Away, HelixError, Refused
from helix_desktop.store.engine_ports import anybody
from helix_desktop.store.shared.conversations import Conversations
from helix_desktop.store.workspace import Workspace

EVERY = 1.0  # seconds between two looks while all goes well
SLOWER = 10.0  # at the most, while the engine is away
LAST = 0.8  # seconds for the last facts when the workspace closes
SOON = 0.05  # seconds: facts that come together are sent together

Changed = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Standing:
    """How things stand. `state`: "off", "starting", "in step", "waiting", "away" (since `since`) or "refused" (`why` says what a
    person has to do). `waiting`: facts and entries that the others do not have yet.
    """

    state: str = "off"
    waiting: int = 0
    since: float = 0.0
    why: str = ""
    address: str = ""


class Held(Protocol):
    """What the workbench does for it: sessions, rows, and who hears."""

    workspace: Workspace

    def found(self, conversation: str) -> Session | None: ...

    def held(self, conversation: str) -> AbstractAsyncContextManager[None]: ...

    async def grown(self, conversation: str) -> None: ...

    async def parted(self, conversation: str, branch: str) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]: ...


class Sharing:
    """Off until `begin`. `changed` is heard on the loop whenever something of `standing` or of a conversation's writer changes."""

    def __init__(self, bench: Held) -> None:
        self._bench = bench
        self._conversations: Conversations | None = None
        self._listeners: list[Changed] = []
        self._poke = asyncio.Event()
        self._working: set[str] = set()  # conversations where something goes on here that has begun rightly
        self._task: asyncio.Task[None] | None = None
        self._writing: dict[str, str] = {}
        self._entries: Callable[[], int] = lambda: 0
        self.standing = Standing()
        self.branches: dict[str, str] = {}  # by the conversation where two wrote: what was written here

    # --- as others see it

    def watch(self, listener: Changed) -> Callable[[], None]:
        """Call what is returned to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def elsewhere(self, conversation: str) -> str:
        """The machine that writes there now; empty where this one may."""
        if self._conversations is None or conversation in self._working:
            return ""
        return self._conversations.elsewhere(conversation)

    def machine_of(self, conversation: str) -> str:
        """The other machine that wrote there last; empty where it was this one."""
        return self._conversations.machine_of(conversation) if self._conversations is not None else ""

    async def take_over(self, conversation: str) -> None:
        """Continue here. Where the engine is away it is done as far as it can be, and `Away` says so."""
        if self._conversations is not None:
            try:
                await self._conversations.take_over(conversation)
            finally:
                self._tell()

    # --- while it is shared

    async def begin(
        self, conversations: Conversations, *, address: str = "", entries: Callable[[], int] = lambda: 0
    ) -> None:
        """From now on. `entries`: how many contents wait to be sent."""
        conversations.open = self
        await conversations.begin()
        self._conversations = conversations
        self._entries = entries
        self.standing = Standing("starting", address=address)
        self._bench.workspace.journal.asked = self._ask
        self._task = self._bench.spawn(self._run(conversations), name="keep in step")
        self._tell()

    async def end(self) -> None:
        """The last facts go, and others may write at once; where that takes long, what waits is sent when it begins again."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._conversations is not None and self.standing.state in ("in step", "waiting"):
            with suppress(HelixError, TimeoutError):
                await asyncio.wait_for(self._conversations.leave(), LAST)
        self._bench.workspace.journal.asked = anybody
        self._conversations = None
        self.standing = Standing()
        self._tell()

    def heard(self, event: object) -> None:
        """Facts are sent soon after they were written."""
        if isinstance(event, FactAppended | ReadAnew):
            self._poke.set()

    def look(self) -> None:
        """Do not wait for the next time."""
        self._poke.set()

    def _ask(self, conversation: str) -> None:
        """Refused where another machine writes. A turn that began before it did is written to its end: that becomes a branch."""
        if machine := self.elsewhere(conversation):
            raise Refused(f"{machine} is working in this conversation.", remedy="Choose Continue here to take it over.")
        session = self._bench.found(conversation)
        if session is not None and not session.at_rest:
            self._working.add(conversation)

    async def _run(self, conversations: Conversations) -> None:
        pause = EVERY
        while True:
            self._poke.clear()
            reached = await self._once(conversations)
            pause = EVERY if reached else min(pause * 2, SLOWER)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._poke.wait(), pause)
            if reached:
                await asyncio.sleep(SOON)
            elif self._poke.is_set():
                await asyncio.sleep(EVERY)

    async def _once(self, conversations: Conversations) -> bool:
        """Whether the engine was reached."""
        self._working = {one for one in self._working if (found := self._bench.found(one)) and not found.at_rest}
        try:
            await conversations.renew(tuple(self._working))
            await conversations.step()
        except Away as error:
            await self._stand(conversations, "away", str(error))
            return False
        except HelixError as error:
            await self._stand(conversations, "refused", str(error))
            return False
        await self._stand(conversations, "")
        return True

    async def _stand(self, conversations: Conversations, state: str, why: str = "") -> None:
        waiting = sum((await conversations.thread.run(conversations.steps.waiting)).values()) + self._entries()
        before = self.standing
        since = before.since if before.state == state else clock.time()
        why = why or next(iter(conversations.complaints.values()), "")
        now = Standing(
            state or ("waiting" if waiting else "in step"), waiting, since if state else 0.0, why, before.address
        )
        writing = conversations.writing()
        if (now, writing) != (before, self._writing):
            self.standing, self._writing = now, writing
            self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    # --- conversations.Open

    async def grow(self, conversation: str, work: Callable[[], Awaitable[None]]) -> None:
        """Where it is open, its session hears each fact; where something goes on there, not now."""
        session = self._bench.found(conversation)
        if session is None:
            await work()
            await self._bench.grown(conversation)
            return
        if not session.at_rest:
            raise Refused("The agent works in this conversation.")
        await session.conversation.follow(work)

    @asynccontextmanager
    async def still(self, conversation: str) -> AsyncIterator[None]:
        session = self._bench.found(conversation)
        if session is not None and not session.at_rest:
            raise Refused("The agent works in this conversation.")
        async with self._bench.held(conversation):
            yield

    def parted(self, conversation: str, branch: str) -> None:
        self.branches[conversation] = branch
        self._bench.spawn(self._bench.parted(conversation, branch), name="list a branch")
