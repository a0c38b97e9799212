"""Conversations that several machines have: what is new here goes to the others, what is new there comes here.

Facts are always written here first. Content goes before the segment that leads to it, the segment before the head that names
it, and the head moves by compare-and-set. Where another machine moved it meanwhile, its facts are fetched and compared: those
that go on from here are appended; where both wrote, what was written here becomes a branch. One writer at a time is a lease
on the engine's clock; a writer that is late loses nothing but the head.
"""

from __future__ import annotations

import asyncio
import hashlib
import time as clock
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol

from helix_desktop.engine import encoding
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import ConversationStarted
from helix_desktop.errors import CacheCorrupt, JournalCorrupt, NewerVersion, NotThere, Refused
from helix_desktop.store.index import used
from helix_desktop.store.journal import JournalFile, Line
from helix_desktop.store.shared import segments
from helix_desktop.store.shared.heads import Head, Heads, Move
from helix_desktop.store.shared.in_step import InStep, Known
from helix_desktop.store.shared.segments import Contents, Segment
from helix_desktop.store.thread import StoreThread
from helix_desktop.values import dataclass

if TYPE_CHECKING:
    from helix_desktop.store.shared.remote import Remote
    from helix_desktop.store.shared.sealing import Seal

LEASE = 30.0  # seconds
_TRIES = 8
_BYTES = 4 << 20  # of facts in one segment, more or less
BATCH = 64  # conversations whose facts are sent at once
_NEW = 400  # facts at the end of what came, whose contents are needed first


class Open(Protocol):
    """Who has conversations open here, and must know when their facts change."""

    async def grow(self, conversation: str, work: Callable[[], Awaitable[None]]) -> None:
        """`work` appends facts; nobody else does meanwhile."""
        ...

    def still(self, conversation: str) -> AbstractAsyncContextManager[None]:
        """Its facts may change within; Refused while something goes on there."""
        ...

    def parted(self, conversation: str, branch: str) -> None:
        """What was written here is now in the branch."""
        ...

    def rewritten(self, conversation: str) -> None:
        """Something was forgotten in it on another machine, and is now gone here."""
        ...


class Nobody:
    """For conversations that nobody has open."""

    async def grow(self, _conversation: str, work: Callable[[], Awaitable[None]]) -> None:
        await work()

    @asynccontextmanager
    async def still(self, _conversation: str) -> AsyncIterator[None]:
        yield

    def parted(self, _conversation: str, _branch: str) -> None:
        return

    def rewritten(self, _conversation: str) -> None:
        return


async def nothing(*_entries: Collection[Digest]) -> None:
    """For conversations without content of their own."""


@dataclass(frozen=True, slots=True)
class _OutgoingSegment:
    """The facts of a segment on its way: `again` of those that are there already, in segments this one takes the place of."""

    known: Known
    again: Sequence[Line]
    fresh: Sequence[Line]
    replaced: tuple[Segment, ...]

    @property
    def lines(self) -> list[Line]:
        return [*self.again, *self.fresh]

    def contents(self, name: bytes, machine: str) -> Contents:
        """What the head says with this segment."""
        known, lines = self.known, self.lines
        before = known.contents.segments if known.contents else ()
        segment = Segment(name, lines[0].seq, lines[-1].seq)
        kept = before[: len(before) - len(self.replaced)]
        chain = segments.chain(known.chain, self.fresh)
        return Contents(known.conversation, machine, segment.last, chain, (*kept, segment), known.generation)


@dataclass(frozen=True, slots=True)
class _OutgoingBatch:
    """What is sent at once. `stale`: to be sent anew; `more`: conversations with more facts; `left`: those that found no room."""

    segments: Sequence[_OutgoingSegment]
    stale: Sequence[Known]
    more: Sequence[str]
    left: Sequence[str]


@dataclass(slots=True)
class Conversations:
    """What one machine does of it. `send_content`: returns when these entries are where the others can read them. `heed`: returns when
    `steps` knows what other machines have forgotten. `arrived` hears what new facts of others lead to. `now`: a clock that only measures how long ago the engine was asked.
    """

    journal: JournalFile
    thread: StoreThread
    steps: InStep
    remote: Remote
    heads: Heads
    seal: Seal
    machine: str
    open: Open = field(default_factory=Nobody)
    send_content: Callable[[Collection[Digest]], Awaitable[None]] = nothing
    heed: Callable[[], Awaitable[None]] = nothing
    arrived: Callable[[Collection[Digest]], object] = bool
    now: Callable[[], float] = clock.monotonic
    lease: float = LEASE
    complaints: dict[str, str] = field(default_factory=dict)  # conversations that could not be read, and why
    _leases: dict[str, float] = field(default_factory=dict)  # when they end, on `now`
    _writers: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    _seen: dict[bytes, tuple[int, str]] = field(default_factory=dict)  # the version of each head, and whose it is
    _waiting: dict[bytes, Head] = field(default_factory=dict)  # for whoever works in them
    _mark: int = 0  # the engine's changes up to here were looked at
    _unread: frozenset[bytes] = frozenset()  # heads that were not taken in when the mark went on
    _own: set[str] = field(default_factory=set)  # taken over while the engine was away
    _compared: bool = False
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def begin(self) -> None:
        """Know what was known when the program ended."""
        for known in await self.thread.run(self.steps.all):
            self._note(known)
        self._unread = await self.thread.run(lambda: self.steps.unread)

    def elsewhere(self, conversation: str) -> str:
        """The other machine that writes there now, as far as is known; empty where this one may."""
        writer, machine = self._writers.get(conversation, (b"", ""))
        held = self._leases.get(conversation, 0.0) > self.now()
        return machine if held and writer != self.steps.machine and conversation not in self._own else ""

    def writing(self) -> dict[str, str]:
        """The conversations other machines write in now, and which."""
        now = self.now()
        self._leases = {name: until for name, until in self._leases.items() if until > now}
        return {name: machine for name in self._leases if (machine := self.elsewhere(name))}

    def machine_of(self, conversation: str) -> str:
        """The other machine that wrote there last; empty where it was this one."""
        writer, machine = self._writers.get(conversation, (b"", ""))
        return machine if writer != self.steps.machine else ""

    async def step(self) -> None:
        """Look for what is new there, then send what is new here."""
        async with self._busy:
            if not self._compared:
                await self._compare()
            await self._look()
        await self._send()

    async def fetch(self) -> None:
        """Look for what is new there."""
        async with self._busy:
            await self._look()

    async def begin_turn(self, conversation: str) -> None:
        """Fetch what others wrote in it, and be the one machine that writes there. Refused where another one is."""
        if self._holds(conversation, self.lease / 2):
            return
        name = self._name(conversation)
        async with self._busy:
            for _ in range(_TRIES):
                await self._see_all([name])
                self._refuse_turn(conversation, name)
                while await self._push([conversation]):
                    pass
                known = await self.thread.run(self.steps.of, conversation)
                if not known.contents or known.contents.gone or self._holds(conversation, self.lease / 2):
                    return
                contents = replace(known.contents, machine=self.machine)
                if await self._move([(known, contents)]):
                    return
            self._refuse_turn(conversation, name)
            raise _busy_elsewhere(self.machine_of(conversation))

    def _holds(self, conversation: str, seconds: float) -> bool:
        """Whether this machine alone may write there for so long."""
        writer, _ = self._writers.get(conversation, (b"", ""))
        return writer == self.steps.machine and self._leases.get(conversation, 0.0) - self.now() > seconds

    def _refuse_turn(self, conversation: str, name: bytes) -> None:
        if complaint := self.complaints.get(name.hex()):
            raise JournalCorrupt(complaint, remedy="To work here all the same, continue in a copy of the conversation.")
        if machine := self.elsewhere(conversation):
            raise _busy_elsewhere(machine)

    async def renew(self, working: Collection[str]) -> None:
        """Where this machine works it stays the one that writes."""
        async with self._busy:
            ending = [one for one in working if self._leases.get(one, 0.0) - self.now() < self.lease / 2]
            if ending:
                await self._move(await self.thread.run(self._own_heads, ending), force=False)

    def _own_heads(self, conversations: Sequence[str]) -> list[tuple[Known, Contents]]:
        """Those of these whose head is this machine's and says what is here."""
        known = [self.steps.of(conversation) for conversation in conversations]
        own = [one for one in known if one.writer == self.steps.machine and not one.stale]
        return [(one, one.contents) for one in own if one.contents]

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """Nothing is sent or fetched within: facts are changed in place."""
        async with self._busy:
            yield

    async def leave(self) -> None:
        """Send what waits, and let go of every lease."""
        await self._send()
        async with self._busy:
            held = [name for name, until in self._leases.items() if until > self.now()]
            for at in range(0, len(held), BATCH):
                some = await self.thread.run(self._own_heads, held[at : at + BATCH])
                await self._move(some, force=False, seconds=0.0)

    async def take_over(self, conversation: str) -> None:
        """Write there from now on with this machine, also where another one still does: what that has not sent becomes a branch."""
        async with self._busy:
            self._own.add(conversation)  # also where the engine is away
            for _ in range(_TRIES):
                await self._see_all([self._name(conversation)])
                known = await self.thread.run(self.steps.of, conversation)
                if not known.contents:
                    return
                if await self._move([(known, replace(known.contents, machine=self.machine))], force=True):
                    return
            raise Refused(
                f"{self.machine_of(conversation)} is still writing in this conversation.",
                remedy="Try again in a moment.",
            )

    # --- what is new there

    async def _compare(self) -> None:
        """Once: a head that is gone, or older than it was, is sent again. The store was emptied, or restored to an earlier state."""
        known = {
            self._name(one.conversation): one
            for one in await self.thread.run(self.steps.all)
            if one.contents and not one.contents.gone
        }
        there = {head.name: head.version for head in await self.remote.run(self.heads.get, known.keys())}
        for name, one in known.items():
            if there.get(name, 0) < one.version:
                await self.thread.run(self.steps.put, Known(one.conversation))
        self._compared = True

    async def _look(self) -> None:
        for head in list(self._waiting.values()):
            await self._see(head)
        if self._unread - self._waiting.keys():
            await self._see_all(self._unread - self._waiting.keys())
        mark = self._mark or await self.thread.run(lambda: self.steps.mark)
        heads, reached = await self.remote.run(self.heads.changed, mark)
        if reached < mark:  # an engine that was restored to an earlier state: everything is compared with it
            await self.thread.run(self.steps.doubt)
            self._seen.clear()
            heads, reached = await self.remote.run(self.heads.changed, 0)
        is_new = any(self._seen.get(head.name, (0, ""))[0] != head.version for head in heads)
        if is_new:
            await self.heed()
        for head in heads:
            await self._see(head)
        unread = frozenset((*self._waiting, *map(bytes.fromhex, self.complaints)))
        if unread != self._unread:  # before the mark, behind which nobody looks for them
            self._unread = unread
            await self.thread.run(setattr, self.steps, "unread", unread)
        self._mark = reached
        if is_new or reached < mark:  # else it is not worth a sync of the disk: what is seen again does no harm
            await self.thread.run(setattr, self.steps, "mark", reached)

    async def _see_all(self, names: Collection[bytes]) -> None:
        for head in await self.remote.run(self.heads.get, names):
            await self._see(head)

    async def _see(self, head: Head) -> None:
        """One that cannot be read, or is in use, holds up no other."""
        self._waiting.pop(head.name, None)
        version, conversation = self._seen.get(head.name, (0, ""))
        if version == head.version:
            self._lease_of(conversation, head.left)
            return
        try:
            contents = segments.read(self.seal.open(head.name, head.sealed))
            await self._merge(head, contents)
            self._seen[head.name] = (head.version, contents.conversation)
            self.complaints.pop(head.name.hex(), None)
        except Refused:
            self._waiting[head.name] = head
        except NotThere as error:  # unless the head has moved on meanwhile
            self._waiting[head.name] = head
            self.complaints[head.name.hex()] = str(error)
        except (CacheCorrupt, JournalCorrupt, NewerVersion) as error:
            self.complaints[head.name.hex()] = str(error)

    async def _merge(self, head: Head, contents: Contents) -> None:
        conversation = contents.conversation
        known = await self.thread.run(self.steps.as_here, conversation)
        if head.version < known.version:
            return
        seen = Known(conversation, contents.last, contents.chain, head.version, head.writer, contents)
        self._lease_of(conversation, head.left)
        if seen == known:
            self._note(seen)
            return
        if contents.gone or (contents.last, contents.chain) == (known.seq, known.chain):
            seen = replace(seen, seq=known.seq, chain=known.chain)
            await self.thread.run(self.steps.put, seen)
            self._note(seen)
            return
        if known.seq and (known.stale or contents.generation != known.generation):
            await self._settle(known, seen)
            return
        goes_on = contents.last > known.seq and contents.generation == known.generation
        try:
            await self._grow(seen, known if goes_on else Known(conversation))
        except _Differs:
            await self._grow(seen, Known(conversation))
        self._note(seen)

    async def _grow(self, seen: Known, known: Known) -> None:
        after = known.seq
        lines = await self._fetched(seen, known)
        taken = await self.thread.run(self.steps.obeyed, lines)
        together, anew = True, taken != lines

        async def work() -> None:
            nonlocal together
            together = await self.thread.run(self._take, seen, taken, after, anew=anew)

        await self.open.grow(seen.conversation, work)
        self.arrived(await asyncio.to_thread(_entries, taken[-_NEW:]))
        if together:
            return
        async with self.open.still(seen.conversation):
            branch = await self.thread.run(self._part, seen, taken, after)
        if branch:
            self._own.discard(seen.conversation)
            self.open.parted(seen.conversation, branch)

    async def _settle(self, known: Known, seen: Known) -> None:
        """Something was forgotten in it, here or there."""
        lines = await self.thread.run(self.steps.obeyed, await self._fetched(seen, Known(seen.conversation)))
        branch = ""
        async with self.open.still(seen.conversation):
            at = await self.thread.run(self.steps.settle, known, lines, seen)
            if at is not None:
                branch = await self.thread.run(self._part, seen, lines[at:], at)
        self._note(seen)
        self.open.parted(seen.conversation, branch) if branch else self.open.rewritten(seen.conversation)

    def _take(self, seen: Known, lines: list[Line], after: int, *, anew: bool = True) -> bool:
        """On the thread of the stores: append what goes on from here; False where both wrote."""
        here = self.journal.lines(seen.conversation, after)
        if segments.common(here, lines) < min(len(here), len(lines)):
            return False
        self.steps.take(lines[len(here) :], seen, anew=anew)
        return True

    def _part(self, seen: Known, lines: list[Line], after: int) -> str:
        if self._take(seen, lines, after):
            return ""
        here = self.journal.lines(seen.conversation, after)
        common = segments.common(here, lines)
        row = self.journal.conversation(seen.conversation)
        link = segments.chain(segments.NOTHING, here)
        branch = hashlib.sha256(f"{seen.conversation}\0{self.steps.machine.hex()}\0{link.hex()}".encode()).hexdigest()[
            :20
        ]
        at = after + common
        started = ConversationStarted(
            f"{row.title or row.begins} ({self.machine})", forked_from=seen.conversation, forked_at=at
        )
        self.steps.part(seen.conversation, at, branch, started, lines[common:], seen)
        return branch

    async def _fetched(self, seen: Known, known: Known) -> list[Line]:
        """The facts behind those that are known, as the head has them."""
        wanted = [one for one in seen.contents.segments if one.last > known.seq] if seen.contents else []
        found = await self.remote.get([one.name for one in wanted])
        return await asyncio.to_thread(self._opened, seen, known, wanted, found)

    def _opened(self, seen: Known, known: Known, wanted: Sequence[Segment], found: Mapping[bytes, bytes]) -> list[Line]:
        """Each segment is checked by its seal, all of them by the chain."""
        lines: list[Line] = []
        for one in wanted:
            if one.name not in found:
                raise NotThere(
                    f"Part of the conversation {seen.conversation} is missing.",
                    remedy="The missing part will be requested again.",
                )
            content = self.seal.open(one.name, found[one.name])
            lines += [line for line in segments.unpack(content) if line.seq > known.seq]
        if segments.chain(known.chain, lines) == seen.chain:
            return lines
        if known.seq:
            raise _Differs(seen.conversation)
        raise JournalCorrupt(
            f"The conversation {seen.conversation} differs from what the other computer shared.",
            remedy="Your own copy is intact.",
        )

    # --- what is new here

    async def _send(self) -> None:
        """In batches, so that little of it waits for the loop the agents work on. Between them, turns may begin."""
        async with self._busy:
            left = list(await self.thread.run(self.steps.waiting))
        while left:
            async with self._busy:
                left = [*await self._push(left[:BATCH]), *left[BATCH:]]
        async with self._busy:
            for conversation in await self.thread.run(self.steps.removed):
                await self._remove(conversation)

    async def _push(self, conversations: Sequence[str]) -> list[str]:
        """Send the facts of these that wait, a segment of each. Gives those that have more. Where another machine writes, they wait."""
        batch = await self.thread.run(self._outgoing, conversations)
        for known in batch.stale:
            await self._push_anew(known)
        if batch.segments:
            entries, rows, contents = await asyncio.to_thread(self._packed, batch.segments)
            await self.send_content(entries)
            await self.remote.put(rows)
            won = await self._move(list(zip([each.known for each in batch.segments], contents, strict=True)))
            sent = [each for each in batch.segments if each.known.conversation in won]
            await self.remote.drop({one.name for each in sent for one in each.replaced} - rows.keys())
        return [*batch.more, *batch.left]

    def _outgoing(self, conversations: Sequence[str]) -> _OutgoingBatch:
        """On the thread of the stores: what is sent next of these."""
        made, stale, more, size = list[_OutgoingSegment](), list[Known](), list[str](), 0
        for at, conversation in enumerate(conversations):
            if size > _BYTES:
                return _OutgoingBatch(made, stale, more, conversations[at:])
            known = self.steps.of(conversation)
            if not self._may_write(known):
                continue
            if known.contents and known.contents.gone and known.seq:  # removed elsewhere, and written to here since
                known = replace(known, seq=0, chain=segments.NOTHING)
                self.steps.put(known)
            if known.stale:
                stale.append(known)
                continue
            segment, is_whole = self._to_send(known)
            if segment.fresh:
                made.append(segment)
                size += sum(len(line.fact) for line in segment.lines)
                more += [] if is_whole else [conversation]
        return _OutgoingBatch(made, stale, more, ())

    def _may_write(self, known: Known) -> bool:
        held = self._leases.get(known.conversation, 0.0) > self.now()
        return known.writer in (b"", self.steps.machine) or not held or known.conversation in self._own

    def _packed(
        self, outgoing: Sequence[_OutgoingSegment]
    ) -> tuple[frozenset[Digest], Mapping[bytes, bytes], list[Contents]]:
        """The entries these segments lead to, their rows, and what the heads will say."""
        rows, contents = dict[bytes, bytes](), list[Contents]()
        for one in outgoing:
            content = segments.pack(one.lines)
            name = self.seal.name("segment", content)
            rows[name] = self.seal.close(name, content)
            contents.append(one.contents(name, self.machine))
        return _entries([line for one in outgoing for line in one.fresh]), rows, contents

    async def _push_anew(self, known: Known) -> None:
        """All of it in new segments, since what is there holds what was forgotten here."""
        old = known.contents.segments if known.contents else ()
        lines = await self.thread.run(self.journal.lines, known.conversation)
        await self.send_content(await asyncio.to_thread(_entries, lines))
        made: list[Segment] = []
        for at in range(0, len(lines), segments.LARGEST):
            content = await asyncio.to_thread(segments.pack, lines[at : at + segments.LARGEST])
            made.append(Segment(self.seal.name("segment", content), at + 1, min(at + segments.LARGEST, len(lines))))
            await self.remote.put({made[-1].name: self.seal.close(made[-1].name, content)})
        chain = segments.chain(segments.NOTHING, lines)
        contents = Contents(known.conversation, self.machine, len(lines), chain, tuple(made), known.generation)
        if await self._move([(known, contents)]):
            await self.remote.drop({one.name for one in old} - {one.name for one in made})

    def _to_send(self, known: Known) -> tuple[_OutgoingSegment, bool]:
        """The next segment, and whether nothing more waits behind it."""
        fresh = self.journal.lines(known.conversation, known.seq, segments.LARGEST)
        is_whole = len(fresh) < segments.LARGEST
        size = 0
        for at, line in enumerate(fresh):
            size += len(line.fact)
            if size > _BYTES and at:
                fresh, is_whole = fresh[:at], False
                break
        before = known.contents.segments if known.contents else ()
        count = segments.to_renew(before, len(fresh)) if size <= _BYTES else 0
        old = before[len(before) - count :]
        again = self.journal.lines(known.conversation, old[0].first - 1, known.seq - old[0].first + 1) if old else []
        return _OutgoingSegment(known, again, fresh, old), is_whole

    async def _move(
        self, wanted: Sequence[tuple[Known, Contents]], *, force: bool | None = None, seconds: float | None = None
    ) -> frozenset[str]:
        """Compare and set. Gives the conversations where this machine was first; else the other's head is looked at. `force`: by
        default where it was taken over.
        """
        seconds = self.lease if seconds is None else seconds
        forced = [known.conversation in self._own if force is None else force for known, _ in wanted]
        asked = self.now()
        answers = await self.remote.run(self._moved, wanted, forced, seconds)
        won, unknown = list[Known](), list[Known]()
        for (known, contents), (is_won, head) in zip(wanted, answers, strict=True):
            if is_won and head is not None:
                won.append(replace(known, seq=contents.last, chain=contents.chain, version=head.version, writer=head.writer, contents=contents))  # fmt: skip
            elif head is None or head.version < known.version:  # an engine that was restored, or emptied
                unknown.append(Known(known.conversation))
        if won or unknown:
            await self.thread.run(self.steps.put_all, [*won, *unknown])
        for one in unknown:  # all of it is sent again
            self._seen.pop(self._name(one.conversation), None)
        for one in won:
            self._leases[one.conversation] = asked + seconds
            self._seen[self._name(one.conversation)] = (one.version, one.conversation)
            self._own.discard(one.conversation)
            self._note(one)
        for is_won, head in answers:
            if not is_won and head is not None:
                await self._see(head)
        return frozenset(one.conversation for one in won)

    def _moved(
        self, wanted: Sequence[tuple[Known, Contents]], forced: Sequence[bool], seconds: float
    ) -> list[tuple[bool, Head | None]]:
        """On a thread of the engine: one after the other, each by itself."""
        found = []
        for (known, contents), force in zip(wanted, forced, strict=True):
            name = self._name(known.conversation)
            sealed = self.seal.close(name, segments.write(contents))
            found.append(self.heads.move(Move(name, known.version, self.steps.machine, sealed, seconds, force)))
        return found

    async def _remove(self, conversation: str) -> None:
        """It was removed for good here: the others keep what they have, and it is not shared any more."""
        known = await self.thread.run(self.steps.of, conversation)
        if known.contents is None or known.contents.gone:
            return
        gone = Contents(conversation, self.machine, generation=known.contents.generation, gone=True)
        if await self._move([(known, gone)], force=False):
            await self.remote.drop([one.name for one in known.contents.segments])

    # --- what is known

    def _name(self, conversation: str) -> bytes:
        return self.seal.name("head", conversation.encode())

    def _lease_of(self, conversation: str, left: float) -> None:
        self._leases[conversation] = self.now() + left

    def _note(self, known: Known) -> None:
        self._writers[known.conversation] = (known.writer, known.contents.machine if known.contents else "")


def _busy_elsewhere(machine: str) -> Refused:
    return Refused(
        f"{machine} is working in this conversation.",
        remedy="Wait until it has finished, continue here all the same, or continue in a copy.",
    )


class _Differs(Exception):
    """What the others have does not go on from what is known of it. No failure, and met by nobody else."""


def _entries(lines: Sequence[Line]) -> frozenset[Digest]:
    """What these facts lead to."""
    return frozenset(digest for line in lines for _, digest in used(encoding.decode(line.fact)))
