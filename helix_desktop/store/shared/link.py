"""The link between an open workspace and the store it shares: what is new goes there by itself, what is wanted is fetched.

Work never waits for it, unless the workspace's setting is `shared`: then a put returns when the store has it. While the store is
away, or refuses, everything goes on here, and what waits can be counted. What is forgotten here is noted on the disk before it
begins, so that it is forgotten there as well, whenever the store answers again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time as clock
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from helix_desktop import tasks
from helix_desktop.engine.digest import Digest
from helix_desktop.errors import Away, HelixError, Refused, Stopped
from helix_desktop.store.cache import CacheFolder
from helix_desktop.store.shared import content, noted
from helix_desktop.store.shared.content import Content
from helix_desktop.store.shared.engine import Usage
from helix_desktop.store.shared.remote import Remote
from helix_desktop.store.shared.sealing import Seal
from helix_desktop.store.thread import StoreThread
from helix_desktop.values import dataclass

log = logging.getLogger(__name__)
LOCAL, SHARED = "local", "shared"  # when a put is acknowledged
EVERY = 5.0  # seconds between two looks for tombstones
SLOWEST = 30.0  # seconds between two tries while it is away
PATIENCE = 20.0  # seconds a caller waits for the store
_DAY = 86_400.0
_SHORT = 12  # bytes of a name in the list of what a machine uses
_NOTED_EVERY = 1.0  # seconds; what was sent and not noted is sent again, which does no harm


@dataclass(frozen=True, slots=True)
class Connected:
    """A store whose key is known."""

    remote: Remote
    seal: Seal

    def space_at(self, url: str) -> str:
        """Which workspace, and where: what is noted of a shared store holds for this alone."""
        return f"{self.seal.space.hex()} {url}"


@dataclass(frozen=True, slots=True)
class Status:
    """How things stand. `away`: since when it does not answer, 0: it does. `trouble`: why, in a sentence for the user."""

    url: str
    acknowledge: str
    waiting: int
    waiting_bytes: int
    burying: int
    contact: float
    away: float
    trouble: str


@dataclass(frozen=True, slots=True)
class Shelves:
    """What the link needs of the workspace. `obey`: forget entries that another machine forgot; Refused while something works.
    `uses`: the entries that this machine needs there.
    """

    folder: Path
    cache: CacheFolder
    thread: StoreThread
    obey: Callable[[Collection[Digest]], Awaitable[object]]
    uses: Callable[[], Awaitable[Collection[Digest]]]


class Link:
    """Made with the workspace, begun once, ended before it. `connect` gets the key and the engine; it is tried until it succeeds."""

    def __init__(
        self, stores: Shelves, url: str, connect: Callable[[], Awaitable[Connected]], *, acknowledge: str
    ) -> None:
        self.url = url
        self.acknowledge = acknowledge
        self.waiting = 0
        self.away = 0.0
        self.trouble = ""
        self.obey = stores.obey
        self.changed: Callable[[], object] = lambda: None
        self.more: Callable[[], Awaitable[Collection[bytes]]] = _nothing  # other rows that this machine needs there
        self._stores = stores
        self._connect = connect
        self._connected: Connected | None = None
        self._content: Content | None = None
        self._noted = noted.read(stores.folder)
        self._written = 0.0
        self._heard: set[bytes] = set()
        self._obeying: frozenset[Digest] = frozenset()  # other machines forgot them: they know
        self._purging = False  # what is described anew is not written here yet
        self._connecting, self._sending, self._burying = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._woken = asyncio.Event()
        self._tasks = tasks.Tasks("shared store")

    def begin(self) -> None:
        self._tasks.spawn(self._run(), name="keep in step")

    async def aclose(self) -> None:
        """What waits is sent when the workspace opens next."""
        await self._tasks.aclose(limit=2.0)
        if self._connected is not None:
            await self._note(at_once=True)
            with suppress(Away):
                await self._connected.remote.aclose()

    async def ready(self) -> Connected:
        """The store and the key; raises why there is none."""
        async with self._connecting:
            if self._connected is None:
                connected = await self._connect()
                self._noted = self._noted.for_space(connected.space_at(self.url))
                self._content = Content(self._stores.cache, self._stores.thread, connected.remote, connected.seal)
                self._connected = connected
            return self._connected

    async def _ready(self) -> Content:
        await self.ready()
        assert self._content is not None  # noqa: S101 - made with the connection
        return self._content

    # --- what the cache asks

    def wake(self) -> None:
        """Something is new here."""
        self._woken.set()

    async def acknowledged(self) -> None:
        """Returns when all that is here is there, where that is what the user wants. StoreFailed where it takes too long."""
        if self.acknowledge != SHARED:
            return
        try:
            await asyncio.wait_for(self.send(), PATIENCE)
        except TimeoutError as error:
            raise Away(
                "The shared store did not confirm in time that it received the content.",
                remedy="The content is stored on this computer and waiting to be sent.",
            ) from error

    async def bring(self, digests: Collection[Digest]) -> frozenset[Digest]:
        """Fetch these into the cache. Gives those that came; Away where it cannot be asked."""
        carrying = await self._ready()
        try:
            return await asyncio.wait_for(carrying.bring(digests), PATIENCE * 3)
        except TimeoutError as error:
            raise Away("The shared store is taking too long to respond.", remedy="Try again later.") from error

    # --- keeping in step

    async def send(self) -> None:
        """Send all that waits."""
        carrying = await self._ready()
        async with self._sending:
            while (reached := await carrying.send(self._noted.sent)) != self._noted.sent:
                self._noted = replace(self._noted, sent=reached)
                await self._note()
        self.waiting = 0

    async def look(self) -> None:
        """Forget there what was forgotten here, and here what was forgotten there."""
        await self._bury()
        await self._obey(await self._ready())

    async def _bury(self) -> None:
        if not self._noted.burying and not self._noted.renewing:
            return
        carrying = await self._ready()
        async with self._burying:
            burying, renewing = dict(self._noted.burying), () if self._purging else self._noted.renewing
            await carrying.bury({Digest.parse(one): count for one, count in burying.items()})
            await carrying.renew([Digest.parse(one) for one in renewing])
            left = [one for one in self._noted.renewing if one not in renewing]
            self._noted = replace(self._noted.without_burying(burying), renewing=left)
            await self._note(at_once=True)

    async def heed(self) -> None:
        """Know what other machines have forgotten, before anything of theirs is taken in. It is forgotten here soon after."""
        gone, *_ = await self._tombs(await self._ready())
        if gone:
            self._obeying |= frozenset(gone)
            self.wake()

    def forgotten(self, digest: Digest) -> bool:
        """Here or by another machine, as far as this one has heard."""
        return digest in self._obeying or self._stores.cache.forgotten(digest)

    async def _tombs(self, carrying: Content) -> tuple[list[Digest], set[bytes], int]:
        """Entries that are to be forgotten here, the names of all new tombstones, and the mark behind them."""
        connected = await self.ready()
        tombs, mark = await connected.remote.forgotten(self._noted.obeyed)
        if mark < self._noted.obeyed:  # a store that was restored to an earlier state
            tombs, mark = await connected.remote.forgotten(0)
        new = [tomb for tomb in tombs if tomb.name not in self._heard]
        gone = [one for one in carrying.buried(new) if not self._stores.cache.forgotten(one)]
        return gone, {tomb.name for tomb in new}, mark

    async def _obey(self, carrying: Content) -> None:
        gone, names, mark = await self._tombs(carrying)
        if gone:
            log.info("%d entries that another machine forgot are forgotten here", len(gone))
            self._obeying = frozenset(gone)
            await self.obey(gone)
        self._heard |= names
        if mark != self._noted.obeyed:
            self._noted = replace(self._noted, obeyed=mark)
            await self._note()

    async def sync(self) -> None:
        """All of it now; raises what is in the way."""
        try:
            await self.look()
            await self.send()
        except HelixError as error:
            await self._failed(error)
            raise
        self._succeeded()

    async def _run(self) -> None:
        pause = EVERY
        while True:
            self._woken.clear()
            try:
                await self.look()
                await self.send()
                if clock.time() - self._noted.published > _DAY:
                    await self.publish()
            except Stopped:
                return
            except Refused:  # something works here; the entries are forgotten when it has ended
                pause = 1.0
            except HelixError as error:
                await self._failed(error)
                pause = min(max(pause, 1.0) * 2, SLOWEST)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - not all machines at once
                continue
            else:
                self._succeeded()
                pause = EVERY
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause)

    def _succeeded(self) -> None:
        before, self.away, self.trouble = self.away, 0.0, ""
        self._noted = replace(self._noted, contact=clock.time())
        if before:
            self.changed()

    async def _failed(self, error: HelixError) -> None:
        self.away = self.away or clock.time()
        self.trouble = str(error)
        last = await self._stores.thread.run(self._stores.cache.known_last)
        self.waiting = max(0, last - self._noted.sent)
        self.changed()

    async def _note(self, *, at_once: bool = False) -> None:
        if at_once or clock.monotonic() - self._written > _NOTED_EVERY:
            self._written = clock.monotonic()
            await asyncio.to_thread(noted.write, self._stores.folder, self._noted)

    # --- what people ask

    async def status(self) -> Status:
        """Without asking the store."""
        cache, thread = self._stores.cache, self._stores.thread
        self.waiting, size = await thread.run(content.waiting, cache, self._noted.sent)
        held = self._noted
        return Status(
            self.url, self.acknowledge, self.waiting, size, len(held.burying), held.contact, self.away, self.trouble
        )

    async def test(self) -> tuple[str, Usage]:
        """What it is, and what this workspace takes there; raises why it cannot be used."""
        remote = (await self.ready()).remote
        return await remote.about(), await remote.usage()

    async def check(self) -> tuple[int, int, int]:
        """Compare every entry that is here with what is there: how many, how many were missing or damaged there and sent again."""
        await self.sync()
        return await (await self._ready()).check()

    # --- forgetting

    async def will_forget(self, digests: Collection[Digest], named: Collection[Digest] = ()) -> None:
        """Note it on the disk, before anything of them is removed here. `named`: those that stay, and are described anew."""
        digests = set(digests) - self._obeying
        if not digests and not named:
            return
        self._purging = True
        with suppress(HelixError):
            await self.ready()  # what is noted belongs to this store
        counts = await self._stores.thread.run(content.counts, self._stores.cache, digests)
        renewing = sorted({*self._noted.renewing, *(digest.hex for digest in named)})
        self._noted = replace(self._noted.with_burying(counts), renewing=renewing)
        await self._note(at_once=True)

    async def forget(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Forget there what was noted. Gives what could not be done, and what may still hold ciphertext, in sentences."""
        self._purging = False
        if not self._noted.burying and not self._noted.renewing:
            return (), ()
        try:
            await self._bury()
        except HelixError as error:
            waits = "It will be forgotten there as soon as the store answers. It can no longer be read from here."
            return (f"Not yet forgotten in the shared store: {error.what} {waits}",), ()
        connected = await self.ready()
        return (), tuple(await connected.remote.run(connected.remote.engine.elsewhere))

    # --- collecting

    async def announce(self) -> frozenset[bytes]:
        """Say which rows this machine uses, so that nobody removes them, and others find the workspace. Gives the names' beginnings."""
        carrying, connected = await self._ready(), await self.ready()
        machine, used, more = bytes.fromhex(self._noted.machine), await self._stores.uses(), await self.more()
        own = frozenset(name[:_SHORT] for name in (*await carrying.rows_of(used), *more))
        sealed = connected.seal.close(connected.seal.name("uses", machine), b"".join(sorted(own)))
        await connected.remote.run(connected.remote.engine.publish, machine, sealed)
        return own

    async def publish(self) -> frozenset[bytes]:
        """The same, and what of these rows is gone there is sent again."""
        own, carrying = await self.announce(), await self._ready()
        await carrying.mend(await carrying.lacking(await self._stores.uses()))
        self._noted = replace(self._noted, published=clock.time())
        await self._note(at_once=True)
        return own

    async def collect(self, grace: float) -> int:
        """Remove rows that no machine uses and that were put more than `grace` seconds ago. Gives how many."""
        live = set(await self.publish())
        connected = await self.ready()
        remote = connected.remote
        for machine, sealed in (await remote.run(remote.engine.published)).items():
            names = connected.seal.open(connected.seal.name("uses", machine), sealed)
            live.update(names[at : at + _SHORT] for at in range(0, len(names), _SHORT))
        removed, after = 0, b""
        while there := await remote.run(remote.engine.names, grace, after):
            after = there[-1]
            unused = [name for name in there if name[:_SHORT] not in live]
            await remote.drop(unused)
            removed += len(unused)
        return removed

    async def leave(self) -> None:
        """The machine is no part of it any more; what it sent stays for the others."""
        connected = await self.ready()
        machine = bytes.fromhex(self._noted.machine)
        await connected.remote.run(connected.remote.engine.publish, machine, b"")


async def _nothing() -> Collection[bytes]:
    return ()
