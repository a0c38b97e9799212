"""An open workspace: a folder with cache, journal, index and settings, owned by one process."""

import asyncio
import logging
import threading
import time as clock
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from helix_desktop import atomic_files, concurrency
from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.engine.ports import ContentForgetter, EmptyTrashResult, ForgetResult
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store import (
    cache_opening,
    journal_backups,
    lost_entries,
    store_opening,
    workspace_settings,
)
from helix_desktop.store import content_forgetting as forgetting
from helix_desktop.store.async_stores import StoreCache, StoreJournal
from helix_desktop.store.cache_check_and_cleanup import CollectResult
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.empty_trash import TrashEmptying, save_deleted_conversations
from helix_desktop.store.index_file import StoreFeed
from helix_desktop.store.journal_file import JournalFile, StoredFact
from helix_desktop.store.lost_entries import EntryWitnesses
from helix_desktop.store.shared.conversation_heads import ConversationHeads
from helix_desktop.store.shared.conversation_sync import ConversationSync, list_completely_stored
from helix_desktop.store.shared.released_conversations import ReleasedConversations
from helix_desktop.store.shared.shared_store_link import (
    LOCAL,
    LinkedStores,
    SharedStoreConnection,
    SharedStoreLink,
)
from helix_desktop.store.shared.sync_state import SyncState
from helix_desktop.store.store_thread import StoreThread
from helix_desktop.store.unused_content import UnusedContentRemoval
from helix_desktop.store.workspace_export import Report, export_workspace, ignore_progress
from helix_desktop.store.workspace_index import WorkspaceIndex
from helix_desktop.store.workspace_lock import WorkspaceLock
from helix_desktop.store.workspace_settings import WorkspaceConfig

log = logging.getLogger(__name__)


class StoredWorkspace:
    """Open, and closed to others, until `aclose`. `notes`: tell the user what opening
    it had to repair.
    """

    def __init__(
        self,
        folder: Path,
        settings: WorkspaceConfig,
        lock: WorkspaceLock,
        stores: "WorkspaceStores",
    ) -> None:
        """Put together what `open` has opened."""
        self.id = folder.name
        self.folder = folder
        self.settings = settings
        self.closed: Callable[[], object] = lambda: None  # Called when it is closed and unlocked.
        self.notes = stores.notes
        self._lock = lock
        self._stores = stores
        self._ended = False
        self._watching: list[Callable[[], object]] = []  # Called when the settings have changed.
        self._changing = threading.Lock()  # One change at a time, as each rewrites the whole file.
        self.index = stores.index
        self.journal = StoreJournal(
            stores.journal,
            stores.thread,
            changed=self.index.start_indexing,
            # A damaged fact makes the next opening check everything.
            damaged=(folder / store_opening.SUSPECT).touch,
        )
        self.cache = StoreCache(stores.cache, stores.thread, self.index)
        self.link: SharedStoreLink | None = None  # The link to a shared store, or None.
        # An open workbench replaces this by a function that also informs its sessions.
        self.content_forgetter: ContentForgetter = self.forget_content
        self._shared: ConversationSync | None = None  # Sends and fetches conversations.
        self.linked: Callable[[], object] = lambda: None  # Called after `link` was set or removed.

    @classmethod
    async def open(
        cls, folder: Path, *, count: Callable[[str], int] = lambda _: 0
    ) -> "StoredWorkspace":
        """Lock the workspace, clear away what an earlier run has left, and open its stores, in
        this order. If anything fails, what was opened is closed and the lock is released.
        """
        settings = workspace_settings.read_workspace_settings(folder / workspace_settings.NAME)
        lock = WorkspaceLock(folder / "lock")
        async with AsyncExitStack() as cleanup:
            cleanup.callback(lock.release_lock)
            await asyncio.to_thread(_remove_leftovers, folder)
            stores = await WorkspaceStores.open(folder, settings, count)
            cleanup.push_async_callback(stores.aclose)
            last_fact_id = await stores.thread.run_work(stores.journal.last_fact_id)
            cleanup.pop_all()
        workspace = cls(folder, settings, lock, stores)
        workspace.index.start_indexing()
        if last_fact_id:
            stores.background.submit_work(_back_up_if_due, folder)  # Makes a backup once a day.
        return workspace

    @property
    def name(self) -> str:
        return self.settings.name or self.id

    @property
    def settings_file(self) -> Path:
        return self.folder / workspace_settings.NAME

    def change_settings(self, changes: workspace_settings.Changes) -> WorkspaceConfig:
        """Set dotted keys of workspace.toml, or remove them (None). Edits made by hand
        meanwhile are kept.
        """
        with self._changing:
            self.settings = workspace_settings.change_workspace_settings(
                self.settings_file, changes
            )
        self.notify_settings_watchers()
        return self.settings

    def notify_settings_watchers(self) -> None:
        """Call everyone who watches the settings. Also for what is in force without being saved."""
        for notify in tuple(self._watching):
            notify()

    def watch_settings(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` on this loop after each change of the settings. Returns a
        function that stops this.
        """
        loop = asyncio.get_running_loop()

        def notify() -> None:
            with suppress(RuntimeError):  # The event loop may be closed.
                loop.call_soon_threadsafe(listener)

        self._watching.append(notify)
        return partial(self._watching.remove, notify)

    async def export_pieces(self, left_out: list[str] | None = None) -> AsyncIterator[bytes]:
        """Yield an export of the workspace, which stays usable. `left_out` gets hashes
        of damaged entries.
        """
        stores = self._stores
        if left_out is None:
            left_out = []
        pieces = export_workspace(self.settings_file, stores.journal, stores.cache, left_out)
        while True:
            piece = await stores.thread.run_work(next, pieces, None)
            if piece is None:
                return
            if piece:
                yield piece

    async def export_to_file(
        self, path: Path, report: Callable[[int], None] = lambda _bytes: None
    ) -> tuple[str, ...]:
        """Export to a file, completely or not at all. `report` gets the bytes written.
        Return bad hashes.
        """
        left_out: list[str] = []
        replacement: atomic_files.ReplacementFile | None = None
        try:
            replacement = atomic_files.ReplacementFile(path, 0o600)
            async for piece in self.export_pieces(left_out):
                replacement.file.write(piece)
                report(replacement.file.tell())
            replacement.replace_target()
        except OSError as error:
            raise StoreFailed(
                f"{path} could not be written: {error.strerror}.",
                remedy="Choose another folder or file name.",
            ) from error
        finally:
            if replacement is not None:
                replacement.discard_replacement()
        return tuple(left_out)

    def list_journal_backups(self) -> tuple[journal_backups.JournalBackup, ...]:
        """Return the journal's backups, newest first."""
        return journal_backups.list_backups(self.folder)

    async def back_up_now(self) -> journal_backups.JournalBackup:
        return await self._stores.background.run_work(journal_backups.create_backup, self.folder)

    async def find_content_to_forget(
        self, text: str, entries: Sequence[Digest]
    ) -> tuple[ForgetResult, int]:
        """Return what `forget_content` would change, and the entries' bytes on disk."""
        thread = self._stores.thread
        cache = self._stores.cache
        wanted = forgetting.ForgetRequest(text, entries)
        await thread.run_slices(forgetting.find_entries_to_forget(cache, wanted))
        digests = tuple(sorted(wanted.digests))
        size = await thread.run_work(_sum_bytes_on_disk, cache, digests)

        changed: list[str] = []  # The conversation of each fact that would be changed.

        def add_conversations(page: Sequence[tuple[StoredFact, object]]) -> None:
            changed.extend(stored_fact.conversation for stored_fact, _ in page)

        pages = forgetting.find_facts_to_change(self._stores.journal, wanted)
        await thread.run_slices(pages, add_conversations)
        conversations = tuple(dict.fromkeys(changed))
        return ForgetResult(digests, len(changed), conversations, 0), size

    async def forget_content(
        self, *, text: str = "", entries: Sequence[Digest] = (), report: Report = ignore_progress
    ) -> ForgetResult:
        """Remove a text or entries from cache, journal, index and backups, down to the
        bytes of the files.

        Takes minutes for a large workspace; `report` is called with the amount read.
        Cancelling changes nothing until the whole cache has been read, and nothing can be
        cancelled after that. Sessions of the returned conversations must read them again.
        """
        figures = await self.index.compute_figures()
        total = max(figures.size, 1)
        wanted = forgetting.ForgetRequest(text, entries)
        bytes_read = 0

        def note_bytes_read(size: int) -> None:
            nonlocal bytes_read
            bytes_read += size
            report(min(bytes_read, total - 1), total)

        finding = forgetting.find_entries_to_forget(self._stores.cache, wanted)
        await self._stores.thread.run_slices(finding, note_bytes_read)
        report(total, total)
        if self.link is not None:
            # Saved first, so that other computers are told even if this one stops meanwhile.
            renamed_entries = await self._stores.thread.run_work(
                self._digests_of_entries, wanted.named
            )
            await self.link.save_entries_to_forget(wanted.digests, renamed_entries)
        forgotten = await self._forget_without_interruption(wanted)
        if self.link is None:
            return forgotten
        not_forgotten, ciphertext = await self.link.forget_saved_entries_in_store()
        elsewhere = list(forgotten.elsewhere) + list(not_forgotten)
        return replace(forgotten, elsewhere=tuple(elsewhere), ciphertext=ciphertext)

    def _digests_of_entries(self, numbers: Iterable[int]) -> list[Digest]:
        reader = self._stores.cache.reader
        return [reader.record_numbered(number).digest for number in numbers]

    async def _forget_without_interruption(self, wanted: forgetting.ForgetRequest) -> ForgetResult:
        """Forget in all stores and build the index anew. If this is cancelled, it goes on to its end."""
        forgotten = ForgetResult((), 0, (), 0)

        async def forget() -> None:
            nonlocal forgotten
            forgotten = await self._forget_everywhere(wanted)

        removal = concurrency.OwnedTasks(self.name).spawn_task(
            self.index.rebuild_after(forget), name="forget"
        )
        await finish_even_if_cancelled(removal)
        return forgotten

    async def _forget_everywhere(self, wanted: forgetting.ForgetRequest) -> ForgetResult:
        """Forget in the cache, the journal, the backups and copies of damaged files, then write
        into each changed conversation that something was forgotten.

        Where it may still be is returned as `elsewhere`.
        """
        stores = self._stores
        run_work = stores.thread.run_work
        run_in_background = stores.background.run_work
        sync_state = await self._sync_state_if_shared()

        purging = forgetting.purge_cache(stores.cache, wanted)
        await stores.thread.run_slices(purging)
        changed_counts = await run_work(forgetting.purge_journal, stores.journal, wanted)
        purge_backup = partial(forgetting.purge_journal, wanted=wanted)
        changed_backups = await run_in_background(
            journal_backups.change_each_backup, self.folder, purge_backup
        )
        damaged_copies = await run_in_background(
            forgetting.delete_damaged_copies, self.folder, wanted
        )

        await run_work(forgetting.append_forgotten_facts, stores.journal, changed_counts, wanted)
        if sync_state is not None:
            await run_work(sync_state.mark_conversations_for_resending, changed_counts)

        traces = forgetting.find_remaining_traces(self.folder, wanted)
        elsewhere = await run_in_background(list, traces)
        forgotten_entries = sorted(wanted.digests)
        changed_facts = sum(changed_counts.values())
        return ForgetResult(
            entries=tuple(forgotten_entries),
            facts=changed_facts,
            conversations=tuple(changed_counts),
            backups=changed_backups,
            elsewhere=tuple(elsewhere),
            outside_facts=len(wanted.named) + damaged_copies,
        )

    async def _sync_state_if_shared(self) -> SyncState | None:
        """Return what other machines have of conversations, as they must hear of facts
        changed in place.
        """
        if self._shared is not None:
            return self._shared.sync_state
        if self.link is None:
            return None
        seal = None
        with suppress(HelixError):
            seal = (await self.link.ensure_connected()).seal
        return await self._stores.thread.run_work(SyncState, self._stores.journal, seal)

    def share_content(
        self,
        url: str,
        connect: Callable[[], Awaitable[SharedStoreConnection]],
        *,
        acknowledge: str = "",
    ) -> SharedStoreLink:
        """Start to share content, until `stop_sharing`. The store is not contacted
        before the link has begun.
        """
        stores = self._stores
        linked_stores = LinkedStores(
            self.folder, stores.cache, stores.thread, self._forget_entries, self._used_entries
        )
        self.link = SharedStoreLink(linked_stores, url, connect, acknowledge=acknowledge or LOCAL)
        self.cache.far = self.link
        self.linked()
        return self.link

    async def stop_sharing(self) -> None:
        """Stop sending and fetching. What was sent stays in the store."""
        link = self.link
        self.link = None
        self.cache.far = None
        self.linked()
        if link is not None:
            await link.aclose()

    async def _forget_entries(self, digests: Collection[Digest]) -> None:
        """Forget what another machine forgot. Raises ActionRefused while a session works."""
        await self.content_forgetter(entries=tuple(digests))

    async def _used_entries(self) -> frozenset[Digest]:
        await self.index.wait_until_indexed()
        return await self.index.all_used_entries() | await self._entries_of_released_conversations()

    async def _entries_of_released_conversations(self) -> frozenset[Digest]:
        stores = self._stores
        return await stores.thread.run_work(
            lambda: ReleasedConversations(stores.journal).list_released_entries()
        )

    async def release_conversations(self, conversations: Collection[str]) -> Sequence[str]:
        """Remove from this disk conversations that the shared store has completely,
        with content that nothing else here uses. The store is first told what this
        machine uses, which then includes what was removed.
        """
        if self.link is None or self._shared is None or not conversations:
            return ()
        await self.link.announce_and_send_missing()
        shared = self._shared
        stores = self._stores
        completely_stored = await list_completely_stored(shared, conversations)

        async def release() -> None:
            await stores.thread.run_work(
                shared.sync_state.released.release_from_disk, completely_stored
            )

        if completely_stored:
            await self.index.rebuild_in_background(release)
        await self._remove_released_content(self.link.sent)
        return completely_stored

    async def _remove_released_content(self, sent: int) -> None:
        """Remove released content, including what an earlier crash left."""
        stores = self._stores
        released = await self._entries_of_released_conversations()
        await self.index.wait_until_indexed()
        unused = [digest for digest in await self.index.find_unused_entries() if digest in released]
        await stores.thread.run_work(stores.cache.remove_sent_entries, unused, sent)
        await self.index.refresh_entry_rows(unused)
        await stores.thread.run_work(stores.cache.level.compact_database)
        self.cache.changed()

    async def delete_new_conversation(self, conversation: str) -> None:
        """Delete the facts of a conversation in which nothing was said. It leaves no content."""
        await self._stores.thread.run_work(self._stores.journal.delete_conversation, conversation)

    async def delete_conversations_for_good(
        self, ids_instead_of_trashed: Collection[str] = ()
    ) -> EmptyTrashResult:
        """Delete the trashed conversations, or only these, for good, with content
        only they use, from backups, too. The recorder does not import them again.

        Takes minutes for a large workspace. No turn may run: its
        stored content without a fact would count as unused.
        """
        emptying = TrashEmptying(self._stores.journal, self._stores.cache, ids_instead_of_trashed)
        is_anything_to_delete = False
        for row in await self.journal.list_conversations():
            if row.trashed or row.id in ids_instead_of_trashed:
                is_anything_to_delete = True
        if not is_anything_to_delete:
            return EmptyTrashResult()
        emptied = EmptyTrashResult()

        async def clear_stores() -> None:
            nonlocal emptied
            emptied = await self._clear_trash_everywhere(emptying)

        try:
            await self._stores.thread.run_slices(emptying.find_content_to_delete())
            deleted = emptying.gone | emptying.sessions
            # The recorder reads this list, and imports none of them again.
            await asyncio.to_thread(save_deleted_conversations, self.folder, deleted)
            await self.index.rebuild_after(clear_stores)
        finally:
            await self._stores.thread.run_work(emptying.end_emptying)
        return emptied

    async def _clear_trash_everywhere(self, emptying: TrashEmptying) -> EmptyTrashResult:
        """Delete the conversations and their content from the stores. The conversations go last: if
        this is interrupted, they are still in the trash, and emptying it again completes this.
        """
        stores = self._stores
        await stores.thread.run_slices(emptying.remove_trashed_content())
        await stores.background.run_work(emptying.delete_from_backups, self.folder)
        await stores.background.run_work(forgetting.delete_damaged_copies, self.folder)
        return await stores.thread.run_work(emptying.delete_conversations)

    async def remove_old_checkpoints(
        self,
        days: int,
        keep: frozenset[Digest] = frozenset(),
        latest_checkpoint: Digest | None = None,
    ) -> CollectResult:
        """Remove contents older than so many days that only checkpoints refer to, except
        `keep` and the latest checkpoint's.
        """
        removal = UnusedContentRemoval(
            self._stores.journal,
            self._stores.cache,
            now=clock.time(),
            retention_seconds=days * 86_400,
            keep=keep,
            latest_checkpoint=latest_checkpoint,
        )
        await self._stores.thread.run_slices(removal.run_removal())
        await self.index.recount_checkpoint_contents()
        if removal.removed_entries:
            await self._stores.thread.run_work(self._stores.cache.level.compact_database)
            self.cache.changed()
        return CollectResult(removal.removed_entries, removal.freed_bytes)

    async def build_conversation_sync(
        self, connected: SharedStoreConnection, heads: ConversationHeads, machine: str
    ) -> ConversationSync:
        """Return what keeps conversations in step with other machines. `machine`: this
        one's name there.
        """
        stores = self._stores
        was_forgotten = (self.link or stores.cache.reader).was_forgotten
        sync_state = await stores.thread.run_work(
            SyncState, stores.journal, connected.seal, was_forgotten
        )
        self._shared = ConversationSync(
            stores.journal,
            stores.thread,
            sync_state,
            connected.remote,
            heads,
            connected.seal,
            machine,
        )
        return self._shared

    async def was_written_by_worker(self, conversation: str) -> bool:
        """Whether a worker of this computer has written in the conversation for a task."""
        if self.link is None:
            return False
        stores = self._stores
        return await stores.thread.run_work(
            lambda: SyncState(stores.journal).was_written_by_worker(conversation)
        )

    async def count_unsent_facts(self) -> int:
        stores = self._stores
        counts = await stores.thread.run_work(
            lambda: SyncState(stores.journal).count_facts_to_send()
        )
        return sum(counts.values())

    @asynccontextmanager
    async def pause_sharing(self) -> AsyncIterator[None]:
        """Keep conversations from being sent or received. Enter this before locking
        anything of a session.
        """
        if self._shared is None:
            yield
            return
        async with self._shared.pause_sync():
            yield

    async def repair_cache(self, histories: Sequence[Path] = ()) -> tuple[str, ...]:
        """Repair the cache's files, and restore lost entries from where else they are.
        Return sentences on what was done. The index is rebuilt. `histories`: JSON files in
        which other programs recorded their conversations.
        """
        stores = self._stores
        witnesses = build_entry_witnesses(stores.journal, self.settings)
        witnesses = replace(witnesses, histories=tuple(histories))
        await self.index.wait_until_indexed()
        known = await stores.thread.run_work(
            lost_entries.read_known_entries, self.folder / store_opening.INDEX, witnesses
        )
        notes: tuple[str, ...] = ()

        async def repair() -> None:
            nonlocal notes
            notes = await stores.thread.run_work(
                cache_opening.repair_open_cache, stores.cache, self.folder, witnesses, known
            )

        await self.index.rebuild_after(repair)
        # What is still lost here may be in the shared store, if there is one.
        await self.cache.prefetch_content(self.cache.quarantined_entries())
        self.cache.changed()
        return notes

    async def bytes_over_limit(self) -> int:
        """Return how many bytes the cache is over the user's limit. Nothing is removed
        by itself.
        """
        limit = self.settings.limit
        if not limit:
            return 0
        stored_bytes = await self.index.measure_kept_bytes()
        return max(0, stored_bytes - limit)

    async def aclose(self) -> None:
        """Finish current work and close everything. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        try:
            await self.stop_sharing()
        finally:
            await self._close_and_unlock()

    async def _close_and_unlock(self) -> None:
        try:
            await self._stores.aclose()
        finally:
            self._lock.release_lock()
            self.closed()


@dataclass(frozen=True)
class WorkspaceStores:
    """The open files of a workspace and their threads."""

    thread: StoreThread
    background: StoreThread
    journal: JournalFile
    cache: CacheFolder
    index: WorkspaceIndex
    notes: tuple[str, ...] = ()

    @classmethod
    async def open(
        cls, folder: Path, settings: WorkspaceConfig, count: Callable[[str], int]
    ) -> "WorkspaceStores":
        """Open the journal, the cache and the index, and repair what is damaged.

        The journal comes first, as it is a witness of what should be in the cache. The index
        comes last: it is made from both, so it is compared with them before it is opened.
        """
        thread = StoreThread("store")
        notes: list[str] = []
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(thread.aclose)
            journal = await thread.open_on_thread(
                store_opening.open_or_repair_journal, folder, notes.append
            )
            witnesses = build_entry_witnesses(journal, settings)
            cache = await thread.open_on_thread(
                cache_opening.open_or_repair_cache, folder, notes.append, witnesses
            )
            last_entry = cache.reader.last_entry_number()
            await thread.run_work(
                store_opening.check_index_against_stores,
                folder,
                journal,
                last_entry,
                notes.append,
            )
            feed = StoreFeed(cache, journal, thread)
            index = await WorkspaceIndex.open(folder, feed, count)
            cleanup.pop_all()
        backup_thread = StoreThread("backup")
        return cls(thread, backup_thread, journal, cache, index, tuple(notes))

    async def aclose(self) -> None:
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self.thread.aclose)
            closing.push_async_callback(self.background.aclose)
            await self.index.aclose()


def build_entry_witnesses(journal: JournalFile, settings: WorkspaceConfig) -> EntryWitnesses:
    is_shared = bool(settings.shared.get("url"))
    return EntryWitnesses(journal, settings.roots, is_shared=is_shared)


def _sum_bytes_on_disk(cache: CacheFolder, digests: Sequence[Digest]) -> int:
    return sum(cache.reader.record_of_entry(digest).kept for digest in digests)


def _remove_leftovers(folder: Path) -> None:
    """Remove files that a killed program was writing, and make all files private. We
    must be the owner.
    """
    leftovers: list[Path] = []
    leftovers += folder.glob("journal.mending*")
    leftovers += (folder / "backups").glob("*.new*")
    leftovers += (folder / "partial").glob("*.queue-new")
    leftovers += folder.glob("*.probe")
    leftovers += atomic_files.find_abandoned_files(folder)
    for path in leftovers:
        with suppress(OSError):
            path.unlink()

    paths_to_protect = [folder]
    paths_to_protect += folder.iterdir()
    paths_to_protect += (folder / "cache").glob("*")
    paths_to_protect += (folder / "backups").glob("*")
    for path in paths_to_protect:
        atomic_files.make_path_private(path)


def _back_up_if_due(folder: Path) -> None:
    try:
        if journal_backups.is_backup_due(folder, clock.time()):
            journal_backups.create_backup(folder)
    except HelixError as error:
        log.warning("no backup of the journal was made: %s", type(error).__name__)
