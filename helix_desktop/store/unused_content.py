"""Frees space: removes old contents that only checkpoints had and no fact refers to any more."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder
from helix_desktop.store.cache_records import CacheRecord, EntryState
from helix_desktop.store.content_age import EntryTimes
from helix_desktop.store.index_file import entries_used_by
from helix_desktop.store.journal_file import JournalFile

_PAGE = 500


class UsedContents:
    """Collects the digests that must stay. A fact keeps its checkpoints, the lists and differences
    that these are made of, and all files that they name.

    The methods are generators that yield after each page, so that others can use the stores.
    """

    def __init__(self, cache: CacheFolder, digests: Iterable[Digest] = ()) -> None:
        self.digests = set(digests)
        self._cache = cache
        # Checkpoints of which everything was marked already.
        self._marked_checkpoints: set[Digest] = set()

    def mark_contents_of_journal(self, journal: JournalFile) -> Iterator[bool]:
        """Mark what any fact uses."""
        last_id = 0
        while True:
            lines = journal.stored_facts_since(last_id, _PAGE)
            if not lines:
                return
            last_id = lines[-1].id
            for line in lines:
                try:
                    fact = fact_encoding.decode_fact(line.fact)
                except HelixError:
                    continue
                for _, digest in entries_used_by(fact):
                    self.digests.add(digest)
                if isinstance(fact, FilesChanged):
                    yield from self.mark_changed_files(fact)
            yield True

    def mark_changed_files(self, fact: FilesChanged) -> Iterator[bool]:
        """Mark what the fact's checkpoints are made of, and all files that they name."""
        self.digests.add(fact.difference.digest)
        difference = self._content_or_empty(fact.difference.digest)
        if difference:
            for change in folder_state.decode_difference(difference):
                self._mark_file(change.before)
                self._mark_file(change.after)
        yield from self.mark_checkpoint(fact.before)
        yield from self.mark_checkpoint(fact.after)

    def mark_checkpoint(self, checkpoint: Digest) -> Iterator[bool]:
        """Mark the entries that make up a checkpoint, and the last version of each file that
        they name.

        A checkpoint, the list of all files at one time, is stored as a full list and the
        differences that followed it, each of which names the one before. They are read from the
        last one back, so a file that a later difference names has its last version there.
        """
        unread_entries = [checkpoint]
        paths_of_later_entries: set[str] = set()
        while unread_entries:
            digest = unread_entries.pop()
            if digest in self._marked_checkpoints:
                continue
            self.digests.add(digest)
            content = self._content_or_empty(digest)
            items = dict(folder_state.items_set_by_entry(content))
            earlier_entries = folder_state.entries_to_read_first(content)
            is_full_list = not earlier_entries
            for path, item in items.items():
                # Other checkpoints may begin with the same full list, so all of it is marked.
                if is_full_list or path not in paths_of_later_entries:
                    self._mark_file(item)
            paths_of_later_entries.update(items)
            unread_entries += earlier_entries
            if is_full_list:
                self._marked_checkpoints.add(digest)
            yield True
        self._marked_checkpoints.add(checkpoint)

    def _mark_file(self, item: TreeItem | None) -> None:
        if item is not None and item.kind is PathKind.FILE:
            self.digests.add(Digest(item.content))

    def _content_or_empty(self, digest: Digest) -> bytes:
        """Return the content, or nothing if it was forgotten or is damaged."""
        try:
            return self._cache.reader.get_content(digest)
        except HelixError:
            return b""


@dataclass(frozen=True, slots=True)
class _StoredContent:
    digest: Digest
    stored_time: float


class UnusedContentRemoval:
    """One removal, in slices on the stores' thread. `now`: the time of the clock, which may be
    wrong. `retention_seconds`: what is younger stays. `latest_checkpoint`: the base of the next
    one, which no fact may name yet.
    """

    def __init__(
        self,
        journal: JournalFile,
        cache: CacheFolder,
        *,
        now: float,
        retention_seconds: float,
        keep: frozenset[Digest],
        latest_checkpoint: Digest | None,
    ) -> None:
        self.removed_entries = 0
        self.freed_bytes = 0
        self._journal = journal
        self._cache = cache
        self._retention_seconds = retention_seconds
        self._used = UsedContents(cache, keep)
        self._latest_checkpoint = latest_checkpoint
        self._times = EntryTimes(now)

    def run_removal(self) -> Iterator[bool]:
        """Remove checkpoints' contents that are old and that nothing uses any more. Each
        `yield` ends a slice, so that other work on the stores can go between.

        First all entries are read, as their times together show how far the clock can be
        trusted. What is used is only found out if anything is old, as that takes long.
        """
        contents: list[_StoredContent] = []
        records = self._cache.reader.records_after(0, _PAGE)
        while records:
            for record in records:
                stored_time = self._times.note_entry_time(record.time)
                if _is_content_of_checkpoint(record):
                    contents.append(_StoredContent(record.digest, stored_time))
            yield True
            records = self._cache.reader.records_after(records[-1].number, _PAGE)
        self._times.end_with_present()

        old_contents = [content for content in contents if self._is_old(content)]
        if not old_contents:
            return

        if self._latest_checkpoint is not None:
            yield from self._used.mark_checkpoint(self._latest_checkpoint)
        yield from self._used.mark_contents_of_journal(self._journal)
        for content in old_contents:
            if content.digest not in self._used.digests:
                self._remove_content(content.digest)
                yield True

    def _is_old(self, content: _StoredContent) -> bool:
        age_seconds = self._times.certain_age_seconds(content.stored_time)
        return age_seconds > self._retention_seconds

    def _remove_content(self, digest: Digest) -> None:
        # It may be pinned, or have been removed by hand since it was listed.
        with suppress(HelixError):
            self.freed_bytes += self._cache.discard_entry_content(digest)
            self.removed_entries += 1


def _is_content_of_checkpoint(record: CacheRecord) -> bool:
    return record.about.tool == CHECKPOINT and record.state is EntryState.LIVE
