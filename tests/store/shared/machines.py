"""Machines that share conversations: each with a journal of its own, one engine for
all, and a way to it that can be cut.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from helix_desktop.engine.facts import ConversationStarted, Fact, Recorded, Text, UserSaid
from helix_desktop.errors import ActionRefused, SharedStoreUnreachable
from helix_desktop.store import content_forgetting as forgetting
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.conversation_heads import ConversationHeads
from helix_desktop.store.shared.conversation_sync import ConversationSync, OpenConversations
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import RowStore
from helix_desktop.store.shared.sync_state import SyncState
from helix_desktop.store.store_thread import StoreThread

KEY = bytes(range(32))
LEASE = 30.0
P = ParamSpec("P")
T = TypeVar("T")


class Here(StoreThread):
    """At once, so that a trial of many short calls is not about threads."""

    def __init__(self) -> None:
        return

    async def run_work(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)

    async def aclose(self) -> None:
        return


@dataclass
class Clock:
    """The engine's; the machines measure with it too."""

    time: float = 1000.0

    def now(self) -> float:
        return self.time


class Way(AsyncRowStore):
    """To the engine, at once. `left`: calls that still go through (None: all); of the
    one it ends in, the answer alone may be lost.
    """

    def __init__(self, engine: RowStore, heads: ConversationHeads) -> None:
        self.engine = engine
        self.heads = heads
        self.left: int | None = None
        self.answer_lost = False

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.left is None:
            return work(*args, **kwargs)
        if self.left > 0:
            self.left -= 1
            return work(*args, **kwargs)
        if self.answer_lost:
            self.answer_lost = False
            work(*args, **kwargs)
        raise SharedStoreUnreachable("The shared store is not responding.")


class Desk(OpenConversations):
    """Somebody works in these conversations: their facts must not change."""

    def __init__(self) -> None:
        self.working: set[str] = set()
        self.parted_: list[tuple[str, str]] = []

    async def append_facts_of_others(
        self, conversation: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        if conversation in self.working:
            raise ActionRefused("The agent works.")
        await work()

    @asynccontextmanager
    async def hold_for_change(self, conversation: str) -> AsyncIterator[None]:
        if conversation in self.working:
            raise ActionRefused("The agent works.")
        yield

    def on_local_facts_moved(self, conversation: str, new_conversation: str) -> None:
        self.parted_.append((conversation, new_conversation))


@dataclass
class Machine:
    """One home."""

    name: str
    journal: JournalFile
    thread: StoreThread
    way: Way
    clock: Clock
    desk: Desk = field(default_factory=Desk)
    shared: ConversationSync = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    @classmethod
    def make(cls, name: str, folder: Path, way: Way, clock: Clock) -> Machine:
        journal = JournalFile(folder / f"{name}.sqlite3", now=clock.now)
        journal.connection.execute("PRAGMA synchronous=OFF")
        return cls(name, journal, Here(), way, clock)

    def start(self) -> None:
        """Also again, after the program was killed."""
        seal = RowCipher(KEY)
        steps = SyncState(self.journal, seal)
        self.shared = ConversationSync(
            self.journal, self.thread, steps, self.way, self.way.heads, seal, self.name, self.desk
        )
        self.shared.now = self.clock.now
        self.shared.lease = LEASE

    async def write(self, conversation: str, text: str) -> Recorded:
        fact = UserSaid((Text(text, 1),))
        return (await self.append(conversation, fact))[0]

    async def begin(self, conversation: str, title: str) -> None:
        await self.append(conversation, ConversationStarted(title))

    async def append(self, conversation: str, *facts: Fact) -> tuple[Recorded, ...]:
        return await self.thread.run_work(self.journal.append_all_or_nothing, conversation, facts)

    def forget(self, text: str) -> None:
        """Blanked in place in every conversation, with a mark, as forgetting does."""
        wanted = forgetting.ForgetRequest(text, ())
        changed = forgetting.purge_journal(self.journal, wanted)
        forgetting.append_forgotten_facts(self.journal, changed, wanted)
        self.shared.sync_state.mark_conversations_for_resending(changed)

    async def step(self) -> bool:
        """Whether it got through."""
        try:
            await self.shared.sync_once()
        except SharedStoreUnreachable:
            return False
        return True

    async def everything(self) -> dict[str, list[tuple[int, float, str]]]:
        """All facts by conversation."""
        lines = await self.thread.run_work(self.journal.stored_facts_since, 0, 1 << 30)
        found: dict[str, list[tuple[int, float, str]]] = {}
        for line in sorted(lines, key=lambda line: line.seq):
            found.setdefault(line.conversation, []).append((line.seq, line.time, line.fact))
        return found

    async def aclose(self) -> None:
        await self.thread.run_work(self.journal.close)
        await self.thread.aclose()
