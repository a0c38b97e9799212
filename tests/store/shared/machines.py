"""Machines that share conversations: each with a journal of its own, one engine for all, and a way to it that can be cut."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from helix_desktop.engine.facts import ConversationStarted, Fact, Recorded, Text, UserSaid
from helix_desktop.errors import Refused, StoreFailed
from helix_desktop.store.journal import JournalFile
from helix_desktop.store.shared.conversations import Conversations, Nobody
from helix_desktop.store.shared.heads import Head, Heads, Move
from helix_desktop.store.shared.in_step import InStep
from helix_desktop.store.thread import StoreThread

LEASE = 30.0
P = ParamSpec("P")
T = TypeVar("T")


class Here(StoreThread):
    """At once, so that a trial of many short calls is not about threads."""

    def __init__(self) -> None:
        return

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)

    async def aclose(self) -> None:
        return


@dataclass
class Clock:
    """The engine's; the machines measure with it too."""

    time: float = 1000.0

    def now(self) -> float:
        return self.time


@dataclass
class Rows:
    """Segments, in memory."""

    there: dict[bytes, bytes] = field(default_factory=dict)

    async def put(self, rows: Mapping[bytes, bytes]) -> None:
        for name, content in rows.items():
            self.there.setdefault(name, content)

    async def get(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        return {name: self.there[name] for name in names if name in self.there}

    async def drop(self, names: Collection[bytes]) -> None:
        for name in names:
            self.there.pop(name, None)


class Marked:
    """Names by HMAC; contents with a mark, so that what was not closed is not opened."""

    def name(self, kind: str, content: bytes) -> bytes:
        return hmac.digest(b"key", kind.encode() + b"\0" + content, hashlib.sha256)

    def close(self, name: bytes, content: bytes) -> bytes:
        return name + content[::-1]

    def open(self, name: bytes, sealed: bytes) -> bytes:
        assert sealed.startswith(name)
        return sealed[len(name) :][::-1]


@dataclass
class Way:
    """To the engine. `left`: calls that still go through (None: all); of the call it ends in, the answer alone may be lost."""

    heads: Heads
    rows: Rows
    left: int | None = None
    answer_lost: bool = False

    def _pass(self) -> bool:
        """Whether this call is done though its answer is lost; StoreFailed where it does not get there."""
        if self.left is None:
            return False
        if self.left > 0:
            self.left -= 1
            return False
        if self.answer_lost:
            self.answer_lost = False
            return True
        raise away()

    async def move(self, move: Move) -> tuple[bool, Head | None]:
        lost = self._pass()
        done = await self.heads.move(move)
        return _or_lost(done, lost=lost)

    async def changed(self, since: int) -> tuple[Sequence[Head], int]:
        lost = self._pass()
        return _or_lost(await self.heads.changed(since), lost=lost)

    async def get_heads(self, names: Collection[bytes]) -> Sequence[Head]:
        lost = self._pass()
        return _or_lost(await self.heads.get(names), lost=lost)

    async def put(self, rows: Mapping[bytes, bytes]) -> None:
        lost = self._pass()
        await self.rows.put(rows)
        _or_lost(None, lost=lost)

    async def get(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        lost = self._pass()
        return _or_lost(await self.rows.get(names), lost=lost)

    async def drop(self, names: Collection[bytes]) -> None:
        lost = self._pass()
        await self.rows.drop(names)
        _or_lost(None, lost=lost)


@dataclass
class HeadsWay:
    """The heads' half of a way; both halves have a `get`."""

    way: Way

    async def move(self, move: Move) -> tuple[bool, Head | None]:
        return await self.way.move(move)

    async def changed(self, since: int) -> tuple[Sequence[Head], int]:
        return await self.way.changed(since)

    async def get(self, names: Collection[bytes]) -> Sequence[Head]:
        return await self.way.get_heads(names)


class Desk(Nobody):
    """Somebody works in these conversations: their facts must not change."""

    def __init__(self) -> None:
        self.working: set[str] = set()
        self.parted_: list[tuple[str, str]] = []

    @asynccontextmanager
    async def still(self, conversation: str) -> AsyncIterator[None]:
        if conversation in self.working:
            raise Refused("The agent works.")
        yield

    def parted(self, conversation: str, branch: str) -> None:
        self.parted_.append((conversation, branch))


@dataclass
class Machine:
    """One home."""

    name: str
    journal: JournalFile
    thread: StoreThread
    way: Way
    clock: Clock
    desk: Desk = field(default_factory=Desk)
    shared: Conversations = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    @classmethod
    def make(cls, name: str, folder: Path, heads: Heads, rows: Rows, clock: Clock) -> Machine:
        journal = JournalFile(folder / f"{name}.sqlite3", now=clock.now)
        journal.connection.execute("PRAGMA synchronous=OFF")
        return cls(name, journal, Here(), Way(heads, rows), clock)

    def start(self) -> None:
        """Also again, after the program was killed."""
        steps = InStep(self.journal)
        self.shared = Conversations(
            self.journal,
            self.thread,
            steps,
            HeadsWay(self.way),
            self.way,
            Marked(),
            self.name,
            self.desk,
            now=self.clock.now,
            lease=LEASE,
        )

    async def write(self, conversation: str, text: str) -> Recorded:
        fact = UserSaid((Text(text, 1),))
        return (await self.append(conversation, fact))[0]

    async def begin(self, conversation: str, title: str) -> None:
        await self.append(conversation, ConversationStarted(title))

    async def append(self, conversation: str, *facts: Fact) -> tuple[Recorded, ...]:
        return await self.thread.run(self.journal.append, conversation, facts)

    async def step(self) -> bool:
        """Whether it got through."""
        try:
            await self.shared.step()
        except StoreFailed:
            return False
        return True

    async def everything(self) -> dict[str, list[tuple[int, float, str]]]:
        """All facts by conversation."""
        lines = await self.thread.run(self.journal.since, 0, 1 << 30)
        found: dict[str, list[tuple[int, float, str]]] = {}
        for line in sorted(lines, key=lambda line: line.seq):
            found.setdefault(line.conversation, []).append((line.seq, line.time, line.fact))
        return found

    async def aclose(self) -> None:
        await self.thread.run(self.journal.close)
        await self.thread.aclose()


def away() -> StoreFailed:
    return StoreFailed("The engine is away.")


def _or_lost(value: T, *, lost: bool) -> T:
    if lost:
        raise away()
    return value
