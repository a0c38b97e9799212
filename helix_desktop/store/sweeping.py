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
    files these name. `now`: the checkpoint the next one will be made from, which no fact may name yet.
    """

    def __init__(
        self, journal: JournalFile, cache: CacheFolder, until: float, keep: frozenset[Digest], now: Digest | None
    ) -> None:
        self.entries = self.freed = 0
        self._journal = journal
        self._cache = cache
        self._until = until
        self._live = set(keep)
        self._now = now
        self._whole: set[Digest] = set()  # states of which everything is known to be live

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
        if self._now is not None:
            yield from self._state(self._now)
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
                    self._difference(fact.difference.digest)
                    yield from self._state(fact.before)
                    yield from self._state(fact.after)
            yield True

    def _difference(self, digest: Digest) -> None:
        self._live.add(digest)
        if content := self._get(digest):
            for change in tree.read_difference(content):
                self._name(change[1:])

    def _state(self, state: Digest) -> Iterator[bool]:
        """The entries that lead to a state, the last first, and the files it names: of each path the last."""
        waiting, met = [state], set[str]()
        while waiting:
            digest = waiting.pop()
            if digest in self._whole:
                continue
            self._live.add(digest)
            content = self._get(digest)
            found, behind = dict(tree.puts(content)), tree.behind(content)
            self._name(item for path, item in found.items() if path not in met or not behind)
            met.update(found)
            waiting += behind
            if not behind:
                self._whole.add(digest)
            yield True
        self._whole.add(state)

    def _name(self, items: Iterable[Item | None]) -> None:
        self._live.update(Digest(item.content) for item in items if item is not None and item.kind is Kind.FILE)

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
