"""One open workspace: a folder with its cache, journal, index and settings, and one owner."""

from __future__ import annotations

import asyncio
import logging
import threading
import time as clock
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop import durable, tasks
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import Emptied, Forget, Purged
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.store import backup, config, opening, transfer
from helix_desktop.store import forget as forgetting
from helix_desktop.store.cache import CacheFolder
from helix_desktop.store.config import Settings
from helix_desktop.store.empty_trash import Emptying
from helix_desktop.store.engine_ports import Cache, Journal
from helix_desktop.store.journal import JournalFile
from helix_desktop.store.live_index import Index, StoreFeed
from helix_desktop.store.lock import Lock
from helix_desktop.store.maintenance import Collected
from helix_desktop.store.shared.conversations import Conversations
from helix_desktop.store.shared.in_step import InStep
from helix_desktop.store.sweeping import Sweeping
from helix_desktop.store.thread import StoreThread
from helix_desktop.store.transfer import Report
from helix_desktop.values import dataclass

if TYPE_CHECKING:
    from helix_desktop.store.shared.heads import Heads
    from helix_desktop.store.shared.link import Connected, Link

log = logging.getLogger(__name__)


class Workspace:
    """One open workspace. Made by `open`, ended by `aclose`; in between nobody else can open it.

    `notes`: what opening it had to mend, in sentences for the user; empty when all was well.
    """

    def __init__(self, folder: Path, settings: Settings, lock: Lock, stores: Stores) -> None:
        self.id = folder.name
        self.folder = folder
        self.settings = settings
        self.closed: Callable[[], object] = lambda: None
        self.notes = stores.notes
        self._lock = lock
        self._stores = stores
        self._ended = False
        self._watching: list[Callable[[], object]] = []
        self._changing = threading.Lock()  # a change reads the file, and writes it anew
        self.index = stores.index
        self.journal = Journal(stores.journal, stores.thread, self.index.follow, (folder / opening.SUSPECT).touch)
        self.cache = Cache(stores.cache, stores.thread, self.index)
        self.link: Link | None = None  # to the store it shares with other machines
        self.forgetting: Forget = self.forget  # through whoever has its sessions, so that they know
        self._shared: Conversations | None = None
        self.linked: Callable[[], object] = lambda: None  # called when there is one, or none any more

    @classmethod
    async def open(cls, folder: Path, *, count: Callable[[str], int] = lambda _: 0) -> Workspace:
        settings = config.read(folder / config.NAME)
        lock = Lock(folder / "lock")
        async with AsyncExitStack() as undo:
            undo.callback(lock.release)
            await asyncio.to_thread(_tidied, folder)
            stores = await Stores.open(folder, count)
            undo.push_async_callback(stores.aclose)
            begun = await stores.thread.run(stores.journal.last)
            undo.pop_all()
        workspace = cls(folder, settings, lock, stores)
        workspace.index.follow()
        if begun:
            stores.back_up(folder)
        return workspace

    @property
    def name(self) -> str:
        return self.settings.name or self.id

    def change(self, changes: config.Changes) -> Settings:
        """Set dotted keys of workspace.toml; None takes one out. What was edited by hand meanwhile is taken over."""
        with self._changing:
            self.settings = config.change(self.folder / config.NAME, changes)
        for tell in tuple(self._watching):
            tell()
        return self.settings

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """`listener` is called on this loop after each change of the settings; call what is returned to stop."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # a loop that has ended needs no news
                loop.call_soon_threadsafe(listener)

        self._watching.append(tell)
        return partial(self._watching.remove, tell)

    async def export(self, left_out: list[str] | None = None) -> AsyncIterator[bytes]:
        """The workspace as one file, in pieces; others go on working with it meanwhile. `left_out` gets the hashes of
        entries that are damaged.
        """
        stores = self._stores
        damaged = [] if left_out is None else left_out
        pieces = transfer.export(self.folder / config.NAME, stores.journal, stores.cache, damaged)
        while (piece := await stores.thread.run(next, pieces, None)) is not None:
            if piece:
                yield piece

    async def export_to(self, path: Path, report: Callable[[int], None] = lambda _bytes: None) -> tuple[str, ...]:
        """The same into a file, which is there whole or not at all. `report` hears how many bytes were written. Gives
        the hashes of entries that are damaged and not in it.
        """
        left_out: list[str] = []
        beside: durable.Beside | None = None
        try:
            beside = durable.Beside(path)
            async for piece in self.export(left_out):
                beside.file.write(piece)
                report(beside.file.tell())
            beside.take_place()
        except OSError as error:
            raise StoreFailed(
                f"{path} could not be written: {error.strerror}.", remedy="Choose another place."
            ) from error
        finally:
            if beside is not None:
                beside.drop()
        return tuple(left_out)

    def backups(self) -> tuple[backup.Backup, ...]:
        """The dated copies of the journal, the newest first."""
        return backup.backups(self.folder)

    async def back_up(self) -> backup.Backup:
        """Make one now."""
        return await self._stores.background.run(backup.make, self.folder)

    async def forget(
        self, *, text: str = "", entries: Sequence[Digest] = (), report: Report = transfer.unheard
    ) -> Purged:
        """Remove a text or entries from cache, journal, index and backups, down to the bytes of the files.

        Minutes for a large workspace; `report` hears how much of the cache has been read. Cancelled until all of it is, it
        has changed nothing; after that it goes on to its end. Whoever has one of the returned conversations in memory
        reads it again.
        """
        total = max((await self.index.stats()).size, 1)
        wanted = forgetting.Wanted(text, entries)
        read = 0

        def heard(size: int) -> None:
            nonlocal read
            read += size
            report(min(read, total - 1), total)

        await self._stores.thread.through(forgetting.look(self._stores.cache, wanted), heard)
        report(total, total)
        if self.link is not None:
            await self.link.will_forget(wanted.digests, await self._stores.thread.run(self._named, wanted))
        purged = Purged((), 0, (), 0)

        async def purge() -> None:
            nonlocal purged
            purged = await self._purge(wanted)

        removing = tasks.Tasks(self.name).spawn(self.index.renew(purge), name="forget")
        try:
            await asyncio.shield(removing)
        finally:
            await removing
        if self.link is None:
            return purged
        undone, ciphertext = await self.link.forget()
        return replace(purged, elsewhere=(*purged.elsewhere, *undone), ciphertext=ciphertext)

    def _named(self, wanted: forgetting.Wanted) -> list[Digest]:
        return [self._stores.cache.numbered(number).digest for number in wanted.named]

    async def _purge(self, wanted: forgetting.Wanted) -> Purged:
        stores = self._stores
        steps = await self._steps()
        await stores.thread.through(forgetting.purge_cache(stores.cache, wanted))
        changed = await stores.thread.run(forgetting.purge_journal, stores.journal, wanted)
        touched = await stores.background.run(forgetting.purge_backups, self.folder, wanted)
        await stores.background.run(forgetting.drop_remains, self.folder)
        await stores.thread.run(forgetting.leave_tombstones, stores.journal, changed, wanted)
        if steps is not None:
            await stores.thread.run(steps.rewritten, changed)
        elsewhere = tuple(await stores.background.run(list, forgetting.left(self.folder, wanted)))
        return Purged(tuple(sorted(wanted.digests)), sum(changed.values()), tuple(changed), touched, elsewhere)

    async def _steps(self) -> InStep | None:
        """What is known of the others' conversations: of a fact that is changed in place they must be told."""
        if self._shared is not None:
            return self._shared.steps
        if self.link is None:
            return None
        seal = None
        with suppress(HelixError):
            seal = (await self.link.ready()).seal
        return await self._stores.thread.run(InStep, self._stores.journal, seal)

    def share(self, url: str, connect: Callable[[], Awaitable[Connected]], *, acknowledge: str = "") -> Link:
        """Share its content from now on; `unshare` ends it. Nothing is asked of the store before the link has begun."""
        from helix_desktop.store.shared.link import LOCAL, Link, Shelves

        stores = self._stores
        shelves = Shelves(self.folder, stores.cache, stores.thread, self._obey, self._uses)
        self.link = Link(shelves, url, connect, acknowledge=acknowledge or LOCAL)
        self.cache.far = self.link
        self.linked()
        return self.link

    async def unshare(self) -> None:
        """What was sent stays in the store; nothing more is sent or fetched."""
        link, self.link, self.cache.far = self.link, None, None
        self.linked()
        if link is not None:
            await link.aclose()

    async def _obey(self, digests: Collection[Digest]) -> None:
        """What another machine forgot; Refused while a session works."""
        await self.forgetting(entries=tuple(digests))

    async def _uses(self) -> frozenset[Digest]:
        await self.index.caught_up()
        return await self.index.used()

    async def empty_trash(self) -> Emptied:
        """Remove the conversations in the trash for good, with what only they use; from the backups too.

        Minutes for a large workspace. No turn may be going on: what it has put and not yet named in a fact counts as used
        by nobody.
        """
        emptying = Emptying(self._stores.journal, self._stores.cache)
        if not any(row.trashed for row in await self.journal.conversations()):
            return Emptied()
        emptied = Emptied()

        async def clear() -> None:
            nonlocal emptied
            emptied = await self._cleared(emptying)

        try:
            await self._stores.thread.through(emptying.look())
            await self.index.renew(clear)
        finally:
            await self._stores.thread.run(emptying.end)
        return emptied

    async def _cleared(self, emptying: Emptying) -> Emptied:
        stores = self._stores
        await stores.thread.through(emptying.clear())
        await stores.background.run(emptying.clear_backups, self.folder)
        await stores.background.run(forgetting.drop_remains, self.folder)
        return await stores.thread.run(emptying.remove)

    async def collect_checkpoints(
        self, days: int, keep: frozenset[Digest] = frozenset(), now: Digest | None = None
    ) -> Collected:
        """Remove contents that only checkpoints had, that no fact leads to and that are older than `days`. `keep`: those in use now;
        `now`: the checkpoint of now.
        """
        sweeping = Sweeping(self._stores.journal, self._stores.cache, clock.time() - days * 86_400, keep, now)
        await self._stores.thread.through(sweeping.run())
        await self.index.recount_checkpoints()
        if sweeping.entries:
            await self._stores.thread.run(self._stores.cache.level.compact)
            self.cache.changed()
        return Collected(sweeping.entries, sweeping.freed)

    async def shared_conversations(self, connected: Connected, heads: Heads, machine: str) -> Conversations:
        """Its conversations as they are kept in step with other machines. `machine`: what this one is called there."""
        stores = self._stores
        steps = await stores.thread.run(InStep, stores.journal, connected.seal, (self.link or stores.cache).forgotten)
        self._shared = Conversations(
            stores.journal, stores.thread, steps, connected.remote, heads, connected.seal, machine
        )
        return self._shared

    async def facts_waiting(self) -> int:
        """How many facts other machines do not have yet."""
        stores = self._stores
        return sum((await stores.thread.run(lambda: InStep(stores.journal).waiting())).values())

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """Nothing of its conversations comes from other machines or goes there; entered before anything of a session is held."""
        async with self._shared.still() if self._shared is not None else nullcontext():
            yield

    async def over_limit(self) -> int:
        """The bytes the cache takes beyond what the user allows it; 0 where there is no limit. Nothing is removed automatically."""
        limit = self.settings.limit
        return max(0, await self.index.kept() - limit) if limit else 0

    async def aclose(self) -> None:
        """Finish what was begun and let go of everything; a second time does nothing."""
        if self._ended:
            return
        self._ended = True
        try:
            await self.unshare()
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        try:
            await self._stores.aclose()
        finally:
            self._lock.release()
            self.closed()


@dataclass(frozen=True)
class Stores:
    """The open files of a workspace, and the threads they belong to."""

    thread: StoreThread
    background: StoreThread
    journal: JournalFile
    cache: CacheFolder
    index: Index
    notes: tuple[str, ...] = ()

    @classmethod
    async def open(cls, folder: Path, count: Callable[[str], int]) -> Stores:
        thread = StoreThread("store")
        notes: list[str] = []
        async with AsyncExitStack() as undo:
            undo.push_async_callback(thread.aclose)
            journal = await thread.open(opening.open_journal, folder, notes.append)
            cache = await thread.open(opening.open_cache, folder, notes.append)
            index = await Index.open(folder, StoreFeed(cache, journal, thread), count)
            undo.pop_all()
        return cls(thread, StoreThread("backup"), journal, cache, index, tuple(notes))

    def back_up(self, folder: Path) -> None:
        """Once a day, in the background."""
        self.background.submit(_back_up_if_due, folder)

    async def aclose(self) -> None:
        async with AsyncExitStack() as last_first:
            last_first.push_async_callback(self.thread.aclose)
            last_first.push_async_callback(self.background.aclose)
            await self.index.aclose()


def _tidied(folder: Path) -> None:
    """Nobody else has it open: remove what a program that was killed left of files it was writing, and keep all of it private."""
    beside = [*folder.glob("journal.mending*"), *(folder / "backups").glob("*.new*"), *folder.glob("*.probe")]
    for path in (*beside, *durable.left_over(folder)):
        with suppress(OSError):
            path.unlink()
    for path in (folder, *folder.iterdir(), *(folder / "cache").glob("*"), *(folder / "backups").glob("*")):
        durable.keep_private(path)


def _back_up_if_due(folder: Path) -> None:
    try:
        if backup.due(folder, clock.time()):
            backup.make(folder)
    except HelixError as error:
        log.warning("no backup of the journal was made: %s", type(error).__name__)
