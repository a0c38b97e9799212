"""A workbench whose conversations other machines have too: it keeps them in step while the workspace is open, reports
the state, and lets nobody write where another machine does.
"""

from __future__ import annotations

import asyncio
import platform
import time as clock
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.events import FactAppended, ReadAnew
from helix_desktop.errors import Away, HelixError, NotThere, Refused
from helix_desktop.store.engine_ports import anybody
from helix_desktop.store.shared import address as addresses
from helix_desktop.store.shared.conversations import Conversations
from helix_desktop.store.shared.link import SHARED
from helix_desktop.store.shared.postgres_heads import heads_of
from helix_desktop.store.workspace import Workspace
from helix_desktop.values import dataclass
from helix_desktop.workbench import shared_store
from helix_desktop.workbench.sessions import Sessions

if TYPE_CHECKING:
    from helix_desktop.secrets import Secrets
    from helix_desktop.store.shared.link import Link

EVERY = 1.0  # seconds between two looks while all goes well
SLOWER = 10.0  # at the most, while the engine is away
LAST = 0.8  # seconds for the last facts when the workspace closes
TURN_PATIENCE = 8.0  # seconds a turn waits for the store before it begins without it
MOST_UNSENT_FACTS = 5_000  # that wait while the store answers; beyond it no turn begins
SEND_PATIENCE = 20.0  # seconds what was done waits until the store has it, where that is wanted
SOON = 0.05  # seconds: facts that come together are sent together

Changed = Callable[[], object]
Connect = Callable[[], Awaitable[Conversations]]


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of sharing. `state`: "off", "starting", "in step", "waiting", "away" (since `since`) or "refused" (`why` says what a
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
    sessions: Sessions

    def held(self, conversation: str) -> AbstractAsyncContextManager[None]: ...

    async def grown(self, conversation: str) -> None: ...

    async def parted(self, conversation: str, branch: str) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]: ...


class Sharing:
    """Off until `begin`. `changed` is heard on the loop whenever something of `standing` or of a conversation's writer changes."""

    def __init__(self, bench: Held, secrets: Secrets, machine: str) -> None:
        self._bench = bench
        self._secrets = secrets
        self._machine = machine or platform.node() or "another computer"
        self._conversations: Conversations | None = None
        self._listeners: list[Changed] = []
        self._poke = asyncio.Event()
        self._working: set[str] = set()  # conversations where something goes on here that has begun rightly
        self._starting: set[str] = set()  # conversations whose turn waits for what others wrote in it
        self._connect: Connect | None = None
        self._connecting = asyncio.Lock()
        self._stepping = asyncio.Lock()
        self._next_step: asyncio.Task[None] | None = None  # that has not begun yet
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
        if self._conversations is None:
            return
        machine = self.elsewhere(conversation) or self.machine_of(conversation)
        try:
            await self._conversations.take_over(conversation)
        except Away as error:
            raise Away(
                f"The shared store is not responding, so {machine} can't know that you are continuing here.",
                remedy="You can write here too. If both computers write, both versions are kept.",
            ) from error
        finally:
            self._tell()

    # --- what people do

    async def now(self) -> None:
        """Send and fetch what is new, and raise what is in the way."""
        if self._next_step is None or self._next_step.done():
            self._next_step = self._bench.spawn(self._step(), name="send what is new")
        await asyncio.shield(self._next_step)

    async def _step(self) -> None:
        """After the one that runs, which may have begun before what is to be sent was there. Whoever waits meanwhile shares it."""
        async with self._stepping:
            self._next_step = None
            if (conversations := await self._reached()) is not None:
                await conversations.step()

    async def fetch(self) -> None:
        """Look for what others wrote, and raise what is in the way."""
        if (conversations := await self._reached()) is not None:
            await conversations.fetch()

    async def begin_turn(self, conversation: str) -> None:
        """Fetch what others wrote in it and keep them from writing there. Refused where another machine works in it; Away where
        the store cannot be asked.
        """
        self._starting.add(conversation)
        try:
            async with asyncio.timeout(TURN_PATIENCE):
                if (conversations := await self._reached()) is not None:
                    await conversations.begin_turn(conversation)
        except TimeoutError as error:
            raise Away("The shared store is taking too long to respond.", remedy="Try again later.") from error
        finally:
            self._starting.discard(conversation)

    @asynccontextmanager
    async def turn_lease(self, conversation: str) -> AsyncIterator[None]:
        """A turn runs within. Where the store cannot be asked it runs all the same, unless work counts as done only when the
        store has it: then the turn fails.
        """
        link = self._bench.workspace.link
        strict = link is not None and link.acknowledge == SHARED
        if strict or self.standing.state != "away":
            try:
                await self.begin_turn(conversation)
                await self._wait_for_room()
            except Refused:
                raise
            except HelixError:
                if strict:
                    raise
        yield
        if strict:
            await self.wait_until_sent()

    async def _wait_for_room(self) -> None:
        """Nothing new begins while too much of what was done could still be lost with this computer."""
        before = await self._unsent_facts()
        while before > MOST_UNSENT_FACTS:
            await self.wait_until_sent()
            now = await self._unsent_facts()
            if now >= before:  # what cannot be sent yet: another machine writes there
                return
            before = now

    async def _unsent_facts(self) -> int:
        conversations = self._conversations
        if conversations is None:
            return 0
        return sum((await conversations.thread.run(conversations.steps.waiting)).values())

    async def wait_until_sent(self) -> None:
        """Returns when the store has what was done here; Away where that takes too long."""
        try:
            await asyncio.wait_for(self.now(), SEND_PATIENCE)
        except TimeoutError as error:
            raise Away(
                "The shared store did not confirm in time that it received the conversation.",
                remedy="It is stored on this computer and waiting to be sent.",
            ) from error

    async def amount(self) -> tuple[int, int, int]:
        """How much sharing sends: conversations, entries, and their bytes."""
        workspace = self._bench.workspace
        await workspace.index.caught_up()
        stored = await workspace.index.stats()
        return len(await workspace.journal.conversations()), stored.entries, stored.size

    async def test(self, address: str) -> str:
        """What is at this address, in a few words; raises why it cannot be used."""
        return await shared_store.probe(self._bench.workspace.id, address, self._secrets)

    async def share(self, address: str) -> None:
        """Through the store at this address, from now on."""
        await shared_store.share(self._bench.workspace, address, self._secrets)

    async def key(self) -> str:
        """What another machine needs to join, besides the address."""
        return await shared_store.key(self._bench.workspace.id, self._secrets)

    async def unshare(self) -> str:
        """From this machine no more. What is there stays, and what is here. A sentence where the store could not be told."""
        await self.end()
        return await shared_store.unshare(self._bench.workspace)

    # --- while it is shared

    def begin(self, connect: Connect, *, address: str = "", entries: Callable[[], int] = lambda: 0) -> None:
        """From now on, as soon as `connect` succeeds. `entries`: how many contents wait to be sent."""
        self._entries, self._connect = entries, connect
        self.standing = Standing("starting", address=address)
        self._bench.workspace.journal.asked = self._ask
        self._task = self._bench.spawn(self._run(), name="keep in step")
        self._tell()

    def follow_link(self) -> None:
        """The workspace has a link to a shared store now, or none any more."""
        workspace, link = self._bench.workspace, self._bench.workspace.link
        if link is not None and self._task is None:
            self.begin(partial(_linked, workspace, link, self._machine), address=link.url, entries=lambda: link.waiting)
        elif link is None and self._task is not None:
            self._bench.spawn(self.end(), name="share no more")

    async def end(self, *, limit_seconds: float = LAST) -> None:
        """The last facts go, and others may write at once; where that takes long, what waits is sent when it begins again."""
        task, self._task = self._task, None
        self._connect = None
        conversations, self._conversations = self._conversations, None
        reached = self.standing.state in ("in step", "waiting")
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if conversations is not None and reached:
            with suppress(HelixError, TimeoutError):
                await asyncio.wait_for(conversations.leave(), limit_seconds)
        if self._task is None:  # else it has begun again meanwhile
            self._bench.workspace.journal.asked = anybody
            self.standing = Standing()
        self._tell()

    def heard(self, event: object) -> None:
        """Facts are sent soon after they were written."""
        if isinstance(event, FactAppended | ReadAnew):
            self._poke.set()

    def _ask(self, conversation: str) -> None:
        """Refused where another machine writes. A turn that began before it did is written to its end: that becomes a branch."""
        if machine := self.elsewhere(conversation):
            raise Refused(
                f"{machine} is working in this conversation.",
                remedy="To take over the conversation, choose “Continue here”.",
            )
        session = self._bench.sessions.find(conversation)
        if session is not None and not session.at_rest:
            self._working.add(conversation)

    async def _run(self) -> None:
        pause = EVERY
        while True:
            self._poke.clear()
            reached = await self._once()
            pause = EVERY if reached else min(pause * 2, SLOWER)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._poke.wait(), pause)
            if self._poke.is_set():
                await asyncio.sleep(SOON if reached else EVERY)

    async def _reached(self) -> Conversations | None:
        """The same; None also where the store has content alone."""
        return await self._connected() if addresses.holds_conversations(self.standing.address) else None

    async def _connected(self) -> Conversations | None:
        """With the store's answers; None where nothing is shared. Raises why there are none."""
        async with self._connecting:
            if self._conversations is None and self._connect is not None:
                made = await self._connect()
                made.open, made.arrived = self, self._fetch
                await made.begin()
                self._conversations = made
                self._tell()
            return self._conversations

    async def _once(self) -> bool:
        """Whether the engine was reached."""
        self._working = {
            one for one in self._working if (found := self._bench.sessions.find(one)) and not found.at_rest
        }
        try:
            if (conversations := await self._connected()) is not None:
                await conversations.renew(tuple(self._working))
                await conversations.step()
        except Away as error:
            await self._stand("away", str(error))
            return False
        except HelixError as error:
            await self._stand("refused", str(error))
            return False
        await self._stand("")
        return True

    def complaint(self) -> str:
        """Why a conversation of the store could not be read; empty where all could."""
        return next(iter(self._conversations.complaints.values()), "") if self._conversations is not None else ""

    async def _stand(self, state: str, why: str = "") -> None:
        conversations, before = self._conversations, self.standing
        waiting, writing = self._entries(), self._writing
        if conversations is not None:
            waiting += await self._unsent_facts()
            writing = conversations.writing()
            why = why or self.complaint()
        since = 0.0 if not state else before.since if before.state == state else clock.time()
        now = Standing(state or ("waiting" if waiting else "in step"), waiting, since, why, before.address)
        if (now, writing) != (before, self._writing):
            self.standing, self._writing = now, writing
            self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _fetch(self, entries: Collection[Digest]) -> None:
        """Work goes on here with what another machine wrote, also when the engine is away by then."""
        self._bench.spawn(self._bench.workspace.cache.ahead(entries), name="fetch what came")

    # --- conversations.Open

    async def grow(self, conversation: str, work: Callable[[], Awaitable[None]]) -> None:
        """Where it is open, its session hears each fact; where something goes on there, not now."""
        session = self._bench.sessions.find(conversation)
        if session is None:
            await work()
            await self._bench.grown(conversation)
            return
        if not session.at_rest and conversation not in self._starting:
            raise Refused("The agent is working in this conversation.")
        await session.conversation.follow(work)

    @asynccontextmanager
    async def still(self, conversation: str) -> AsyncIterator[None]:
        session = self._bench.sessions.find(conversation)
        if session is not None and conversation in self._starting:
            async with session.conversation.still():
                yield
            return
        if session is not None and not session.at_rest:
            raise Refused("The agent is working in this conversation.")
        async with self._bench.held(conversation):
            yield

    def rewritten(self, conversation: str) -> None:
        self._bench.spawn(self._bench.parted(conversation, conversation), name="read a conversation again")

    def parted(self, conversation: str, branch: str) -> None:
        self.branches[conversation] = branch
        self._bench.spawn(self._bench.parted(conversation, branch), name="list a branch")


async def in_step(workspace: Workspace) -> str:
    """For a command on a workspace that no workbench has open: send and fetch what is new of its conversations. Gives why one of
    them could not be read.
    """
    if workspace.link is None:
        return ""
    conversations = await _linked(workspace, workspace.link, platform.node())
    await conversations.begin()
    await conversations.step()
    await conversations.leave()
    return next(iter(conversations.complaints.values()), "")


async def _linked(workspace: Workspace, link: Link, machine: str) -> Conversations:
    """Through the link of the workspace: content goes before the facts that lead to it."""
    connected = await link.ready()
    heads = heads_of(connected)
    if heads is None:
        raise NotThere(
            "This store can share content, but not conversations.",
            remedy="To share both, use PostgreSQL.",
        )
    made = await workspace.shared_conversations(connected, heads, machine)

    async def send(entries: Collection[Digest]) -> None:
        if entries:
            await link.send()

    async def rows() -> Collection[bytes]:
        return await made.thread.run(made.steps.segment_names)

    made.send_content, made.heed, link.more = send, link.heed, rows
    return made
