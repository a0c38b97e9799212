"""Searching a workspace that nobody has open: through its own index, without opening it. Nothing is written and no lock is taken."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import Found
from helix_desktop.errors import StoreFailed
from helix_desktop.store import database, opening, reading_copy
from helix_desktop.store import search as open_search
from helix_desktop.store.cache import CacheFolder
from helix_desktop.store.index import VERSION, IndexDamaged
from helix_desktop.store.journal import JournalFile, Line
from helix_desktop.store.records import Record


def search(folder: Path, query: str, *, limit: int = 20) -> Found:
    """What `live_index.Index.search` finds as soon as it is open. StoreFailed where its index or its cache cannot be read."""
    if not (folder / "journal.sqlite3").is_file():
        return Found()  # it was never opened
    if not (folder / opening.INDEX).is_file():
        return Found(behind=True)
    with ExitStack() as last_first:
        asked = last_first.enter_context(
            closing(database.connect_unseen(folder / opening.INDEX, IndexDamaged, "index"))
        )
        with database.Reading(IndexDamaged, "index"):
            if database.version_of(asked) != VERSION:
                return Found(behind=True)
            known = dict(asked.execute("SELECT name, value FROM meta"))
        journal = last_first.enter_context(closing(JournalFile(folder / "journal.sqlite3", upgrade=False, unseen=True)))
        source = _Source(folder, journal, last_first)
        hits = open_search.search(asked, source, query, limit=limit)
        if source.failed is not None:
            raise source.failed
        wanted = {hit.conversation for hit in hits}
        titles = {row.id: row.title or row.begins for row in journal.conversations() if row.id in wanted}
        behind = known.get("facts", 0) < journal.last() or known.get("words", 0) < known.get("rows", 0)
        return Found(hits, titles, behind)


class _Source:
    """`search.Source`. What stands in for the cache is made for the first entry that is found."""

    def __init__(self, folder: Path, journal: JournalFile, last_first: ExitStack) -> None:
        self._folder = folder
        self._journal = journal
        self._last_first = last_first
        self._opened: CacheFolder | None = None
        self.failed: StoreFailed | None = None

    def _cache(self) -> CacheFolder:
        if self.failed is not None:
            raise self.failed
        if self._opened is None:
            try:
                copy = self._last_first.enter_context(reading_copy.of_cache(self._folder))
                self._opened = self._last_first.enter_context(closing(CacheFolder(copy / "cache")))
            except StoreFailed as error:
                self.failed = error
                raise
        return self._opened

    def described(self, digest: Digest) -> Record:
        return self._cache().record(digest)

    def beginning(self, record: Record, limit: int) -> bytes:
        return self._cache().read(record.digest, 0, limit)

    def line(self, conversation: str, seq: int) -> Line | None:
        found = self._journal.lines(conversation, seq - 1, 1)
        return found[0] if found and found[0].seq == seq else None
