"""Links an open workspace to its shared store: sends new content automatically, and
fetches what is needed.

Work never waits for it, unless the setting is `shared`: then a put returns once the
store has it. While the store is unreachable or refuses, work goes on here, and what
waits is counted. What is forgotten is first noted on disk, so that it is forgotten
there as well, whenever the store answers again.
"""

import asyncio
import logging
import random
import time as clock
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from helix_desktop import concurrency
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError, SharedStoreUnreachable, StoppedByUser
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.shared import content_transfer, link_progress
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.content_transfer import ContentTransfer
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import RowUsage
from helix_desktop.store.store_thread import StoreThread

log = logging.getLogger(__name__)
# When a put counts as done: when it is stored here, or when the shared store has it.
LOCAL = "local"
SHARED = "shared"
LOOK_EVERY_SECONDS = 5.0  # In seconds. The interval at which we ask for new tombstones.
SLOWEST_RETRY_SECONDS = 30.0  # In seconds. The longest pause between attempts to reach the store.
CALL_TIMEOUT_SECONDS = 20.0  # In seconds. A caller waits at most this long for the store.
SENT_AGAIN = 5_000  # The number of recent entries that we send again to a standby that took over.
# In bytes. A machine publishes this much of a row's name to say that it uses the row.
_BYTES_OF_ANNOUNCED_NAME = 12
# In seconds. How often we save what was sent. After a crash, some is sent again.
_SAVE_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SharedStoreConnection:
    remote: AsyncRowStore
    seal: RowCipher

    def join_space_and_address(self, url: str) -> str:
        """Return, as one text, the workspace and address to which notes on a shared store apply."""
        return f"{self.seal.space.hex()} {url}"


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The link's state. `away`: since when the store has not answered, or 0. `trouble`:
    why, for the user.
    """

    url: str
    acknowledge: str
    waiting: int
    waiting_bytes: int
    burying: int
    contact: float
    away: float
    trouble: str


@dataclass(frozen=True, slots=True)
class LinkedStores:
    """What the link needs from the workspace. `forget_here` forgets what other machines
    forgot, or raises ActionRefused while something works. `list_used_entries`: entries
    this machine needs there.
    """

    folder: Path
    cache: CacheFolder
    thread: StoreThread
    forget_here: Callable[[Collection[Digest]], Awaitable[object]]
    list_used_entries: Callable[[], Awaitable[Collection[Digest]]]


class SharedStoreLink:
    """Created with the workspace, started once, closed before it. `connect` returns key
    and engine; it is retried.
    """

    def __init__(
        self,
        stores: LinkedStores,
        url: str,
        connect: Callable[[], Awaitable[SharedStoreConnection]],
        *,
        acknowledge: str,
    ) -> None:
        """`acknowledge`: when a put counts as done, `LOCAL` or `SHARED`."""
        self.url = url
        self.acknowledge = acknowledge
        # As in `LinkStatus`.
        self.waiting = 0
        self.away = 0.0
        self.trouble = ""
        self.forget_here = stores.forget_here
        self.changed: Callable[[], object] = lambda: None  # Called when `away` has changed.
        # Lists other rows that this machine needs in the store, apart from entries.
        self.list_other_used_rows: Callable[[], Awaitable[Collection[bytes]]] = _no_other_rows
        self._stores = stores
        self._connect = connect
        self._connected: SharedStoreConnection | None = None
        self._progress = link_progress.read_link_progress(stores.folder)
        self._progress_written_at = 0.0
        self._tombstones_asked_at = 0.0  # When tombstones were last requested.
        self._known_tombstones: set[bytes] = set()
        # Digests forgotten by other machines, which need not be told to forget them.
        self._forgotten_by_others: frozenset[Digest] = frozenset()
        self._is_purging_here = False  # True until changed descriptions are written here.
        # Each of these is done by one task at a time.
        self._connecting = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._burying = asyncio.Lock()
        self._has_new_work = asyncio.Event()
        self._tasks = concurrency.OwnedTasks("shared store")

    @property
    def sent(self) -> int:
        """Return the number up to which the cache's entries are in the store."""
        return self._progress.sent

    def start_syncing(self) -> None:
        self._tasks.spawn_task(self._sync_until_stopped(), name="keep in step")

    async def aclose(self) -> None:
        """Close the link. What waits is sent when the workspace is next opened."""
        await self._tasks.aclose(limit=2.0)
        if self._connected is not None:
            await self._write_progress(at_once=True)
            with suppress(SharedStoreUnreachable):
                await self._connected.remote.aclose()

    async def ensure_connected(self) -> SharedStoreConnection:
        """Return the store and the key, or raise why there is none."""
        async with self._connecting:
            if self._connected is None:
                connected = await self._connect()
                self._progress = self._progress.progress_if_same_space(
                    connected.join_space_and_address(self.url)
                )
                self._connected = connected
            return self._connected

    async def _ensure_transfer(self) -> ContentTransfer:
        connected = await self.ensure_connected()
        return ContentTransfer(
            self._stores.cache, self._stores.thread, connected.remote, connected.seal
        )

    def notify_new_content(self) -> None:
        self._has_new_work.set()

    async def wait_until_acknowledged(self) -> None:
        """Wait until the store has everything, if the user wants that.
        SharedStoreUnreachable if that takes too long.
        """
        if self.acknowledge != SHARED:
            return
        try:
            await concurrency.wait_with_limit(self.send_waiting_content(), CALL_TIMEOUT_SECONDS)
        except TimeoutError as error:
            raise SharedStoreUnreachable(
                "The shared store did not confirm in time that it received the content.",
                remedy="The content is stored on this computer and is waiting to be sent.",
            ) from error

    async def fetch_content(self, digests: Collection[Digest]) -> frozenset[Digest]:
        """Fetch entries into the cache. Return those that arrived. Raises if the store
        is unreachable.
        """
        transfer = await self._ensure_transfer()
        try:
            return await concurrency.wait_with_limit(
                transfer.fetch_entries(digests), CALL_TIMEOUT_SECONDS * 3
            )
        except TimeoutError as error:
            raise SharedStoreUnreachable(
                "The shared store is taking too long to respond.", remedy="Try again later."
            ) from error

    async def send_waiting_content(self, *, resend_count: int = 0) -> None:
        """Send waiting entries. `resend_count`: also send so many of the last ones again."""
        transfer = await self._ensure_transfer()
        async with self._sending:
            first = max(0, self._progress.sent - resend_count)
            self._progress = replace(self._progress, sent=first)
            while True:
                reached = await transfer.send_next_entries(self._progress.sent)
                if reached == self._progress.sent:
                    break
                self._progress = replace(self._progress, sent=reached)
                await self._write_progress()
        self.waiting = 0

    async def sync_forgotten_content(self) -> None:
        """Forget there what was forgotten here, and the other way round.

        The store keeps a tombstone for each row that was forgotten, and numbers them. All up to
        the mark (`obeyed`) were seen here. The mark is saved last: after a crash, tombstones are
        read again rather than missed.
        """
        await self._send_forgotten()
        forgotten_by_others, names, mark = await self._fetch_new_tombstones(
            await self._ensure_transfer()
        )
        if forgotten_by_others:
            log.info(
                "%d entries that another machine forgot are forgotten here",
                len(forgotten_by_others),
            )
            self._forgotten_by_others = frozenset(forgotten_by_others)
            await self.forget_here(forgotten_by_others)
        self._known_tombstones |= names
        if mark != self._progress.obeyed:
            self._progress = replace(self._progress, obeyed=mark)
            await self._write_progress()

    async def _send_forgotten(self) -> None:
        """Have the shared store forget what was noted to be forgotten there (`burying`), then
        describe anew the entries noted for that (`renewing`).

        Their new descriptions exist only once forgetting here is done, so until then they wait.
        A note is deleted after it was obeyed, so nothing is left out after a crash.
        """
        if not self._progress.burying and not self._progress.renewing:
            return
        transfer = await self._ensure_transfer()
        async with self._burying:  # One at a time.
            chunk_counts = dict(self._progress.burying)
            names_to_renew: Sequence[str] = ()
            if not self._is_purging_here:
                names_to_renew = self._progress.renewing
            await transfer.forget_entries_remotely(
                {Digest.from_hex(name): count for name, count in chunk_counts.items()}
            )
            await transfer.replace_descriptions([Digest.from_hex(name) for name in names_to_renew])
            self._progress = self._progress.without_notes(chunk_counts, names_to_renew)
            await self._write_progress(at_once=True)

    async def learn_what_others_forgot(self) -> None:
        """Learn what others have forgotten, before taking over anything of theirs. It
        is forgotten here soon after.
        """
        forgotten_by_others, *_ = await self._fetch_new_tombstones(await self._ensure_transfer())
        if forgotten_by_others:
            self._forgotten_by_others |= frozenset(forgotten_by_others)
            self._tombstones_asked_at = 0.0
            self.notify_new_content()

    def was_forgotten(self, digest: Digest) -> bool:
        """Whether it was forgotten here or, as far as is known, on another machine."""
        return digest in self._forgotten_by_others or self._stores.cache.reader.was_forgotten(
            digest
        )

    async def _fetch_new_tombstones(
        self, transfer: ContentTransfer
    ) -> tuple[list[Digest], set[bytes], int]:
        """Return entries to forget here, the names of new tombstones, and the mark after them."""
        connection = await self.ensure_connected()
        remote = connection.remote
        known_mark = self._progress.obeyed
        tombstones, mark = await remote.run_in_thread(remote.engine.fetch_tombstones, known_mark)
        if mark < known_mark:  # The store was reset to an older state.
            tombstones, mark = await remote.run_in_thread(remote.engine.fetch_tombstones, 0)
        new_tombstones = []
        new_names = set()
        for tombstone in tombstones:
            if tombstone.name not in self._known_tombstones:
                new_tombstones.append(tombstone)
                new_names.add(tombstone.name)
        reader = self._stores.cache.reader
        forgotten = []
        for digest in transfer.entries_of_tombstones(new_tombstones):
            if not reader.was_forgotten(digest):
                forgotten.append(digest)
        return forgotten, new_names, mark

    async def sync_content_now(self) -> None:
        """Sync everything now, or raise what prevents it."""
        try:
            await self.sync_forgotten_content()
            await self.send_waiting_content()
        except HelixError as error:
            await self._set_store_trouble(error)
            raise
        self._set_store_reached()

    async def _sync_until_stopped(self) -> None:
        """Sync, then wait until there is new work or it is time to look again; over and over.

        After an error the pause doubles with each attempt, and new work does not end it. While
        a session here prevents forgetting, the next attempt is only a second away.
        """
        pause = LOOK_EVERY_SECONDS
        while True:
            self._has_new_work.clear()
            try:
                await self._sync_once()
            except StoppedByUser:
                return
            except ActionRefused:  # A session is active here, so entries are forgotten later.
                pause = 1.0
            except HelixError as error:
                await self._set_store_trouble(error)
                pause = min(max(pause, 1.0) * 2, SLOWEST_RETRY_SECONDS)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - not all machines at once
                continue
            else:
                self._set_store_reached()
                pause = LOOK_EVERY_SECONDS
            with suppress(TimeoutError):
                await concurrency.wait_with_limit(self._has_new_work.wait(), pause)

    async def _sync_once(self) -> None:
        """Forget on both sides what was forgotten on one, send the content that waits, and
        announce each day what is used here, as others remove what nobody announces.
        """
        is_due = clock.monotonic() >= self._tombstones_asked_at + LOOK_EVERY_SECONDS
        if is_due or self._progress.burying or self._progress.renewing:
            await self.sync_forgotten_content()
            self._tombstones_asked_at = clock.monotonic()
        await self.send_waiting_content()
        if self._progress.is_announcement_due(clock.time()):
            await self.announce_and_send_missing()

    def _set_store_reached(self) -> None:
        was_away = self.away > 0
        self.away = 0.0
        self.trouble = ""
        self._progress = replace(self._progress, contact=clock.time())
        if was_away:
            self.changed()

    async def _set_store_trouble(self, error: HelixError) -> None:
        self.away = self.away or clock.time()
        self.trouble = str(error)
        last = await self._stores.thread.run_work(self._stores.cache.reader.last_entry_number)
        self.waiting = max(0, last - self._progress.sent)
        self.changed()

    async def _write_progress(self, *, at_once: bool = False) -> None:
        if at_once or clock.monotonic() - self._progress_written_at > _SAVE_PROGRESS_SECONDS:
            self._progress_written_at = clock.monotonic()
            await asyncio.to_thread(
                link_progress.write_link_progress, self._stores.folder, self._progress
            )

    async def link_status(self) -> LinkStatus:
        """Return the status without asking the store."""
        self.waiting, waiting_bytes = await self._stores.thread.run_work(
            content_transfer.measure_waiting_entries, self._stores.cache, self._progress.sent
        )
        return LinkStatus(
            url=self.url,
            acknowledge=self.acknowledge,
            waiting=self.waiting,
            waiting_bytes=waiting_bytes,
            burying=len(self._progress.burying),
            contact=self._progress.contact,
            away=self.away,
            trouble=self.trouble,
        )

    async def test_connection(self) -> tuple[str, RowUsage]:
        """Return the server and this workspace's usage there, or raise why it is unusable."""
        remote = (await self.ensure_connected()).remote
        return await remote.run_in_thread(remote.engine.describe_server), await remote.fetch_usage()

    async def repair_shared_entries(self) -> tuple[int, int, int]:
        """Compare every entry with the store. Return how many exist, were missing or damaged."""
        await self.sync_content_now()
        return await (await self._ensure_transfer()).repair_all_entries()

    # --- Forgetting, here and on other machines

    async def save_entries_to_forget(
        self, digests: Collection[Digest], named: Collection[Digest] = ()
    ) -> None:
        """Note entries on disk before removing them here. `named`: entries that stay
        and are described anew.
        """
        to_forget = set(digests) - self._forgotten_by_others
        if not to_forget and not named:
            return
        self._is_purging_here = True
        with suppress(HelixError):
            await self.ensure_connected()  # Ensures that the notes belong to this store.
        counts = await self._stores.thread.run_work(
            content_transfer.count_chunks_of_entries, self._stores.cache, to_forget
        )
        entries_to_bury = dict(self._progress.burying)
        for digest, count in counts.items():
            entries_to_bury[digest.hex] = count
        entries_to_renew = set(self._progress.renewing)
        entries_to_renew.update(digest.hex for digest in named)
        self._progress = replace(
            self._progress, burying=entries_to_bury, renewing=sorted(entries_to_renew)
        )
        await self._write_progress(at_once=True)

    async def forget_saved_entries_in_store(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Forget what was noted. Return sentences on what failed, and on what may still
        hold ciphertext.
        """
        self._is_purging_here = False
        if not self._progress.burying and not self._progress.renewing:
            return (), ()
        try:
            await self._send_forgotten()
        except HelixError as error:
            what_happens_next = "It will be forgotten there as soon as the store answers. It can no longer be read from here."
            return (f"Not yet forgotten in the shared store: {error.what} {what_happens_next}",), ()
        connected = await self.ensure_connected()
        return (), tuple(
            await connected.remote.run_in_thread(connected.remote.engine.describe_remaining_copies)
        )

    async def announce_used_rows(self) -> frozenset[bytes]:
        """Announce the rows that this machine uses, to protect them. Return the
        beginnings of their names.
        """
        transfer = await self._ensure_transfer()
        connected = await self.ensure_connected()
        used_entries = await self._stores.list_used_entries()
        names = list(await transfer.row_names_of_entries(used_entries))
        names += await self.list_other_used_rows()
        beginnings = frozenset(name[:_BYTES_OF_ANNOUNCED_NAME] for name in names)
        machine = bytes.fromhex(self._progress.machine)
        row_name = connected.seal.keyed_row_name("uses", machine)
        joined_beginnings = b"".join(sorted(beginnings))
        sealed = connected.seal.encrypt_row(row_name, joined_beginnings)
        await connected.remote.run_in_thread(
            connected.remote.engine.publish_used_rows, machine, sealed
        )
        return beginnings

    async def announce_and_send_missing(self) -> frozenset[bytes]:
        """Announce used rows, and send again those that are missing there."""
        used_rows = await self.announce_used_rows()
        transfer = await self._ensure_transfer()
        missing = await transfer.find_missing_entries(await self._stores.list_used_entries())
        await transfer.send_entries_again(missing)
        self._progress = replace(self._progress, published=clock.time())
        await self._write_progress(at_once=True)
        return used_rows

    async def remove_unused_rows(self, grace: float) -> int:
        """Remove rows that no machine uses and that are older than `grace` seconds.
        Return their number.
        """
        used = set(await self.announce_and_send_missing())
        used |= await self._fetch_rows_used_by_all()
        remote = (await self.ensure_connected()).remote
        removed_count = 0
        after = b""
        while True:
            old_rows = await remote.run_in_thread(remote.engine.list_old_rows, grace, after)
            if not old_rows:
                return removed_count
            after = old_rows[-1]
            unused = [name for name in old_rows if name[:_BYTES_OF_ANNOUNCED_NAME] not in used]
            await remote.remove_in_batches(unused)
            removed_count += len(unused)

    async def _fetch_rows_used_by_all(self) -> set[bytes]:
        """Return the beginnings of the names of rows that any machine announced."""
        connected = await self.ensure_connected()
        remote = connected.remote
        used: set[bytes] = set()
        published = await remote.run_in_thread(remote.engine.fetch_published_uses)
        for machine, sealed in published.items():
            row_name = connected.seal.keyed_row_name("uses", machine)
            names = connected.seal.decrypt_row(row_name, sealed)
            for start in range(0, len(names), _BYTES_OF_ANNOUNCED_NAME):
                end = start + _BYTES_OF_ANNOUNCED_NAME
                used.add(names[start:end])
        return used

    async def withdraw_used_rows(self) -> None:
        """Announce that this machine no longer takes part. What it sent stays for others."""
        connected = await self.ensure_connected()
        machine = bytes.fromhex(self._progress.machine)
        await connected.remote.run_in_thread(
            connected.remote.engine.publish_used_rows, machine, b""
        )


async def _no_other_rows() -> Collection[bytes]:
    return ()
