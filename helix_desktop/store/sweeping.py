"""Room: contents that only checkpoints had go when no fact leads to them any more and they have been there for long enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from helix_desktop.engine import encoding
from helix_desktop.engine.changes import tree
from helix_desktop.engine.changes.tree import Item, Kind
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.errors import HelixError
from helix_desktop.store.cache import CHECKPOINT, CacheFolder
from helix_desktop.store.index import used
from helix_desktop.store.journal import JournalFile
from helix_desktop.store.records import State

_PAGE = 500


class Sweeping:
    """One sweep, in slices on the thread that owns the stores. What a fact leads to: a checkpoint, its manifest and differences, and all
    files these name.
    """

    def __init__(self, journal: JournalFile, cache: CacheFolder, until: float, keep: frozenset[Digest]) -> None:
        self.entries = self.freed = 0
        self._journal = journal
        self._cache = cache
        self._until = until
        self._live = set(keep)
        self._read: set[Digest] = set()  # manifests and differences whose files are known

    def run(self) -> Iterator[bool]:
        old = []
        after = 0
        while found := self._cache.records(after, _PAGE):
            after = found[-1].number
            old += [
                record.digest
                for record in found
                if record.about.tool == CHECKPOINT and record.state is State.LIVE and record.time < self._until
            ]
            yield True
        if old:
            yield from self._mark()
        for digest in old:
            if digest not in self._live:
                self._remove(digest)
                yield True

    def _mark(self) -> Iterator[bool]:
        after = 0
        while lines := self._journal.since(after, _PAGE):
            after = lines[-1].id
            for line in lines:
                try:
                    fact = encoding.decode(line.fact)
                except HelixError:
                    continue
                self._live.update(digest for _, digest in used(fact))
                if isinstance(fact, FilesChanged):
                    yield from self._follow(fact)
            yield True

    def _follow(self, fact: FilesChanged) -> Iterator[bool]:
        self._differs(fact.difference.digest)
        for digest in (fact.before, fact.after):
            if digest in self._read:
                continue
            self._read.add(digest)
            self._live.add(digest)
            content = self._get(digest)
            if not content:
                continue
            checkpoint = tree.read_checkpoint(content)
            if checkpoint.manifest not in self._read:
                self._read.add(checkpoint.manifest)
                self._live.add(checkpoint.manifest)
                if manifest := self._get(checkpoint.manifest):
                    self._name(tree.read_manifest(manifest).values())
                yield True
            for difference in checkpoint.differences:
                self._differs(difference)
            yield True

    def _differs(self, digest: Digest) -> None:
        if digest in self._read:
            return
        self._read.add(digest)
        self._live.add(digest)
        if content := self._get(digest):
            for change in tree.read_difference(content):
                self._name(item for item in (change.before, change.after) if item is not None)

    def _name(self, items: Iterable[Item]) -> None:
        self._live.update(Digest(item.content) for item in items if item.kind is Kind.FILE)

    def _get(self, digest: Digest) -> bytes:
        """The content; nothing where it was forgotten or is damaged."""
        try:
            return self._cache.get(digest)
        except HelixError:
            return b""

    def _remove(self, digest: Digest) -> None:
        try:
            self.freed += self._cache.collect(digest)
        except HelixError:
            return
        self.entries += 1
