"""Searches a workspace that nobody has open by its own index, without writing or
locking anything.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.ports import ClosedSearchResult, SearchHit
from helix_desktop.errors import StoreFailed
from helix_desktop.store import full_text_search as open_search
from helix_desktop.store import read_only_copy, sqlite_database, store_opening
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.index_file import VERSION, IndexDamaged
from helix_desktop.store.journal_file import JournalFile

T = TypeVar("T")


def search_closed_stores(folder: Path, query: str, *, limit: int = 20) -> ClosedSearchResult:
    """Find what `workspace_index.WorkspaceIndex.search_index` would, in a workspace that nobody
    has open. StoreFailed: the index or cache is unreadable.

    The index is not brought up to date, as that would write. `behind` says that it lacks
    something that the journal or the cache has.
    """
    journal_file = folder / "journal.sqlite3"
    index_file = folder / store_opening.INDEX
    if not journal_file.is_file():
        return ClosedSearchResult()  # It was never opened.
    if not index_file.is_file():
        return ClosedSearchResult(behind=True)
    with ExitStack() as resources:
        connection = sqlite_database.connect_read_only(index_file, IndexDamaged, "index")
        resources.enter_context(closing(connection))
        with sqlite_database.SqliteErrors(IndexDamaged, "index"):
            if sqlite_database.schema_version(connection) != VERSION:
                return ClosedSearchResult(behind=True)
            index_marks = dict(connection.execute("SELECT name, value FROM meta"))
        journal = JournalFile(journal_file, upgrade=False, unseen=True)
        resources.enter_context(closing(journal))
        source = _ClosedStores(folder, journal, resources)
        hits = open_search.search_full_text(connection, source, query, limit=limit)
        if source.failed is not None:
            raise source.failed
        titles = _titles_of_conversations_with_hits(journal, hits)
        lacks_facts = index_marks.get("facts", 0) < journal.last_fact_id()
        lacks_words = index_marks.get("words", 0) < index_marks.get("rows", 0)
        return ClosedSearchResult(hits, titles, behind=lacks_facts or lacks_words)


def _titles_of_conversations_with_hits(
    journal: JournalFile, hits: Iterable[SearchHit]
) -> dict[str, str]:
    conversations_with_hits = {hit.conversation for hit in hits}
    titles: dict[str, str] = {}
    for row in journal.conversation_rows():
        if row.id in conversations_with_hits:
            titles[row.id] = row.title or row.begins
    return titles


def read_import_facts(folder: Path) -> Sequence[Recorded]:
    """Return all facts about imports, oldest first."""
    if not (folder / "journal.sqlite3").is_file():
        return ()
    with closing(JournalFile(folder / "journal.sqlite3", upgrade=False, unseen=True)) as journal:
        return journal.read_import_facts()


class _ClosedStores:
    """`full_text_search.StoresAccess`. The substitute for the cache is created with the
    first entry found.
    """

    def __init__(self, folder: Path, journal: JournalFile, resources: ExitStack) -> None:
        self._folder = folder
        self._journal = journal
        self._resources = resources
        self._opened: CacheFolder | None = None
        self.failed: StoreFailed | None = None

    def _open_cache_copy(self) -> CacheFolder:
        """Return the copy of the cache, which is made for the first entry. A failure is kept
        and raised again: the copy is not tried for each entry.
        """
        if self.failed is not None:
            raise self.failed
        if self._opened is None:
            try:
                copy = self._resources.enter_context(
                    read_only_copy.copy_cache_for_reading(self._folder)
                )
                folder = CacheFolder(copy / "cache")
                self._opened = self._resources.enter_context(closing(folder))
            except StoreFailed as error:
                self.failed = error
                raise
        return self._opened

    def run_on_stores(self, work: Callable[[Callable[[], CacheFolder], JournalFile], T]) -> T:
        return work(self._open_cache_copy, self._journal)
