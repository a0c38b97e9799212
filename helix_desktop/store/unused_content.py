"""Frees space: removes old contents that only checkpoints had and no fact refers to any more."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder
from helix_desktop.store.cache_records import EntryState
from helix_desktop.store.index_file import entries_used_by
from helix_desktop.store.journal_file import JournalFile

_PAGE = 500


class UnusedContentRemoval:
    """One removal, in slices on the stores' thread. A fact keeps a checkpoint, its
    manifest and differences, and all files that these name. `now`: the base of the next
    checkpoint, which no fact may name yet.
    """

    def __init__(
        self,
        journal: JournalFile,
        cache: CacheFolder,
        until: float,
        keep: frozenset[Digest],
        now: Digest | None,
    ) -> None:
        self.entries = self.freed = 0
        self._journal = journal
        self._cache = cache
        self._until = until
        self.used = set(keep)
        self._now = now
        self._whole: set[Digest] = set()  # Checkpoints whose whole content is known to be in use.

    def run_removal(self) -> Iterator[bool]:
        old = []
        after = 0
        while found := self._cache.reader.records_after(after, _PAGE):
            after = found[-1].number
            old += [
                record.digest
                for record in found
                if record.about.tool == CHECKPOINT
                and record.state is EntryState.LIVE
                and record.time < self._until
            ]
            yield True
        if old:
            yield from self._mark_used_entries()
        for digest in old:
            if digest not in self.used:
                with suppress(HelixError):
                    self.freed += self._cache.discard_entry_content(digest)
                    self.entries += 1
                yield True

    def _mark_used_entries(self) -> Iterator[bool]:
        if self._now is not None:
            yield from self._mark_state(self._now)
        after = 0
        while lines := self._journal.stored_facts_since(after, _PAGE):
            after = lines[-1].id
            for line in lines:
                try:
                    fact = fact_encoding.decode_fact(line.fact)
                except HelixError:
                    continue
                self.used.update(digest for _, digest in entries_used_by(fact))
                if isinstance(fact, FilesChanged):
                    yield from self.mark_changed_files(fact)
            yield True

    def mark_changed_files(self, fact: FilesChanged) -> Iterator[bool]:
        """Mark what the fact's checkpoints are made of, and all files that they name."""
        self.used.add(fact.difference.digest)
        difference = self._content_or_empty(fact.difference.digest)
        if difference:
            for change in folder_state.decode_difference(difference):
                self._mark_files(change[1:])
        yield from self._mark_state(fact.before)
        yield from self._mark_state(fact.after)

    def _mark_state(self, state: Digest) -> Iterator[bool]:
        """Mark the entries that make up a state, last first, and the last version of
        each file they name.
        """
        waiting = [state]
        met: set[str] = set()
        while waiting:
            digest = waiting.pop()
            if digest in self._whole:
                continue
            self.used.add(digest)
            content = self._content_or_empty(digest)
            found = dict(folder_state.items_set_by_entry(content))
            behind = folder_state.entries_to_read_first(content)
            self._mark_files(item for path, item in found.items() if path not in met or not behind)
            met.update(found)
            waiting += behind
            if not behind:
                self._whole.add(digest)
            yield True
        self._whole.add(state)

    def _mark_files(self, items: Iterable[TreeItem | None]) -> None:
        self.used.update(
            Digest(item.content)
            for item in items
            if item is not None and item.kind is PathKind.FILE
        )

    def _content_or_empty(self, digest: Digest) -> bytes:
        """Return the content, or nothing if it was forgotten or is damaged."""
        try:
            return self._cache.reader.get_content(digest)
        except HelixError:
            return b""
