"""Entries on their way between the cache of this machine and the shared store.

There is no queue beside the cache: its numbers are the queue. Every entry gets the next number when it becomes known, in the same
synced batch, so what waits are the entries behind the last number that was sent. That lasts through any crash, takes no second
write, and is bounded by the cache itself. Sending twice is harmless.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

from helix_desktop.engine.digest import Digest
from helix_desktop.errors import CacheCorrupt, HelixError, NotThere, StoreFailed
from helix_desktop.store.cache import CHECKPOINT, CacheFolder
from helix_desktop.store.records import CHUNK, Record, State
from helix_desktop.store.shared import entry
from helix_desktop.store.shared.engine import MUCH, Tomb
from helix_desktop.store.shared.remote import Remote
from helix_desktop.store.shared.sealing import Seal
from helix_desktop.store.thread import StoreThread
from helix_desktop.values import dataclass

BATCH = 200  # entries sent at once, at most
_ASK_FROM = 32 << 10  # bytes from which it is asked first whether they are lacking
_TOGETHER = MUCH // CHUNK  # chunks of a large entry that are sent or fetched at once


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries with their content, and the number up to which none is left out. `large`: those of several chunks."""

    small: Sequence[tuple[Record, bytes]]
    large: Sequence[Record]
    last: int


class Content:
    """Sends and fetches. The cache is only touched from its own thread."""

    def __init__(self, folder: CacheFolder, thread: StoreThread, remote: Remote, seal: Seal) -> None:
        self._folder = folder
        self._thread = thread
        self._remote = remote
        self._seal = seal

    # --- sending

    async def send(self, after: int) -> int:
        """Send the next entries. Returns the number up to which all is there; `after` where nothing waits."""
        batch = await self._thread.run(self._next, after)
        await self._send_small(batch.small)
        for record in batch.large:
            await self._send_large(record)
        return batch.last

    def _next(self, after: int) -> Batch:
        small: list[tuple[Record, bytes]] = []
        large: list[Record] = []
        size, last = 0, after
        for record in self._folder.records(after, BATCH):
            if record.state is State.LIVE and record.about.tool != CHECKPOINT:
                with contextlib.suppress(NotThere, CacheCorrupt):  # nothing to send: it is told of where it is read
                    if record.count > 1:
                        large.append(record)
                    else:
                        small.append((record, self._folder.get(record.digest)))
                    size += record.size
            last = record.number
            if size > MUCH:
                break
        return Batch(small, large, last)

    async def _send_small(self, entries: Sequence[tuple[Record, bytes]]) -> None:
        if sum(record.size for record, _ in entries) > _ASK_FROM:
            lacking = await self._remote.lacking([entry.name(self._seal, record.digest) for record, _ in entries])
            entries = [each for each in entries if entry.name(self._seal, each[0].digest) in lacking]
        if entries:
            await self._remote.put(await self._remote.run(self._sealed, entries))

    def _sealed(self, entries: Sequence[tuple[Record, bytes]]) -> Mapping[bytes, bytes]:
        rows = {}
        for record, content in entries:
            name = entry.name(self._seal, record.digest)
            rows[name] = self._seal.close(name, entry.first(record, content))
        return rows

    async def _send_large(self, record: Record) -> None:
        *names, first = entry.names(self._seal, record.digest, record.count)
        lacking = await self._remote.lacking([*names, first])
        wanted = [(chunk, name) for chunk, name in enumerate(names) if name in lacking]
        with contextlib.suppress(NotThere, CacheCorrupt):
            for at in range(0, len(wanted), _TOGETHER):
                some = wanted[at : at + _TOGETHER]
                found = await self._thread.run(self._chunks, record, [chunk for chunk, _ in some])
                await self._remote.put(await self._remote.run(self._sealed_chunks, [name for _, name in some], found))
            if first in lacking:
                await self._remote.put({first: self._seal.close(first, entry.first(record, b""))})

    def _chunks(self, record: Record, chunks: Sequence[int]) -> list[bytes]:
        return [self._folder.chunk(record, chunk) for chunk in chunks]

    def _sealed_chunks(self, names: Sequence[bytes], contents: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return {
            name: self._seal.close(name, entry.packed(content)) for name, content in zip(names, contents, strict=True)
        }

    # --- fetching

    async def bring(self, digests: Collection[Digest]) -> frozenset[Digest]:
        """Put those of these that the store has into the cache. What it sends is checked; CacheCorrupt where only one was asked for."""
        wanted = {entry.name(self._seal, one): one for one in digests if not self._folder.forgotten(one)}
        rows = await self._remote.get(list(wanted))
        brought = set()
        for name, sealed in rows.items():
            try:
                await self._bring(wanted[name], name, sealed)
                brought.add(wanted[name])
            except CacheCorrupt:
                if len(digests) == 1:
                    raise
            except NotThere:
                continue
        return frozenset(brought)

    async def _bring(self, digest: Digest, name: bytes, sealed: bytes) -> None:
        described = await self._remote.run(lambda: entry.read(digest, self._seal.open(name, sealed)))
        incoming = await self._thread.run(self._folder.begin, described.about, time=described.time)
        try:
            if described.count == 1:
                await self._thread.run(incoming.write, described.content)
            else:
                async for chunk in self._fetched(digest, described.count):
                    await self._thread.run(incoming.write, chunk)
            staged = await self._thread.run(incoming.finish)
        except BaseException:
            with contextlib.suppress(StoreFailed):
                self._thread.submit(incoming.abandon)
            raise
        if staged.record.digest != digest:
            await self._thread.run(self._folder.unstage, staged)
            raise entry.corrupt(digest)
        await self._thread.run(self._folder.commit, [staged])

    async def _fetched(self, digest: Digest, count: int) -> AsyncIterator[bytes]:
        *names, _ = entry.names(self._seal, digest, count)
        for at in range(0, count, _TOGETHER):
            some = names[at : at + _TOGETHER]
            rows = await self._remote.get(some)
            if len(rows) < len(some):
                raise NotThere(f"A part of the entry {digest} is missing from the shared store.")
            for chunk in await self._remote.run(list, entry.chunks(self._seal, digest, count, rows)):
                yield chunk

    # --- checking

    async def mend(self, used: Collection[Digest]) -> None:
        """Send again what of these is here and not there any more."""
        for digest in used:
            with contextlib.suppress(NotThere, CacheCorrupt):
                record = await self._thread.run(self._folder.record, digest)
                if record.about.tool != CHECKPOINT:
                    await self._send_again(record)

    async def lacking(self, used: Collection[Digest]) -> list[Digest]:
        """Those of these whose first row is not there."""
        names = {entry.name(self._seal, digest): digest for digest in used}
        return [names[name] for name in await self._remote.lacking(list(names))]

    async def check(self) -> tuple[int, int, int]:
        """Look at the rows of every entry that is here: how many there are, were missing there, and were damaged there. What was
        missing or damaged is sent again.
        """
        seen = missing = damaged = after = 0
        while records := await self._thread.run(self._folder.records, after, BATCH):
            after = records[-1].number
            for record in records:
                if record.state is not State.LIVE or record.about.tool == CHECKPOINT:
                    continue
                seen += 1
                lacking, wrong = await self._compare(record)
                missing, damaged = missing + bool(lacking), damaged + bool(wrong)
                if lacking or wrong:
                    await self._remote.drop(wrong)
                    await self._send_again(record)
        return seen, missing, damaged

    async def _compare(self, record: Record) -> tuple[frozenset[bytes], list[bytes]]:
        names = entry.names(self._seal, record.digest, record.count)
        lacking = await self._remote.lacking(names)
        wrong = []
        for at in range(0, len(names), _TOGETHER):
            rows = await self._remote.get(names[at : at + _TOGETHER])
            wrong += [name for name, sealed in rows.items() if not self._opens(name, sealed)]
        return lacking, wrong

    def _opens(self, name: bytes, sealed: bytes) -> bool:
        try:
            self._seal.open(name, sealed)
        except CacheCorrupt:
            return False
        return True

    async def _send_again(self, record: Record) -> None:
        if record.count > 1:
            await self._send_large(record)
            return
        with contextlib.suppress(NotThere, CacheCorrupt):
            content = await self._thread.run(self._folder.get, record.digest)
            await self._remote.put(self._sealed([(record, content)]))

    # --- forgetting

    async def renew(self, digests: Collection[Digest]) -> None:
        """Put what describes these entries here in the place of what describes them there."""
        await self._remote.drop([entry.name(self._seal, digest) for digest in digests])
        await self.mend(digests)

    async def bury(self, chunks_of: Mapping[Digest, int]) -> None:
        """Destroy these in the store, and tell the other machines."""
        tombs: list[Tomb] = []
        for digest, count in chunks_of.items():
            *chunks, first = entry.names(self._seal, digest, count or await self._far_count(digest))
            tombs.append(Tomb(first, self._seal.close(first, digest.raw)))
            tombs += [Tomb(name, b"") for name in chunks]
        await self._remote.forget(tombs)

    async def _far_count(self, digest: Digest) -> int:
        name = entry.name(self._seal, digest)
        rows = await self._remote.get([name])
        try:
            return entry.read(digest, self._seal.open(name, rows[name])).count
        except (KeyError, HelixError):
            return 1

    def buried(self, tombs: Sequence[Tomb]) -> Iterator[Digest]:
        """Which entries other machines forgot. A tombstone that is none of this workspace's says nothing."""
        for tomb in tombs:
            with contextlib.suppress(CacheCorrupt, ValueError):
                if tomb.word:
                    yield Digest(self._seal.open(tomb.name, tomb.word))

    # --- collecting

    async def rows_of(self, digests: Collection[Digest]) -> list[bytes]:
        """The names of all rows of these entries, as far as this machine knows how many chunks they have."""
        found = await self._thread.run(counts, self._folder, digests)
        return [name for digest, count in found.items() for name in entry.names(self._seal, digest, max(1, count))]


def waiting(folder: CacheFolder, after: int) -> tuple[int, int]:
    """How many entries behind this number are to be sent, and their bytes."""
    count = size = 0
    while records := folder.records(after):
        after = records[-1].number
        sizes = [one.size for one in records if one.state is State.LIVE and one.about.tool != CHECKPOINT]
        count += len(sizes)
        size += sum(sizes)
    return count, size


def counts(folder: CacheFolder, digests: Collection[Digest]) -> Mapping[Digest, int]:
    """How many chunks each of these has; 0 where nothing is known of it here."""
    return {digest: _count(folder, digest) for digest in digests}


def _count(folder: CacheFolder, digest: Digest) -> int:
    try:
        return folder.described(digest).count
    except (HelixError, ValueError):
        return 0
