"""The table of entries as a Qt model that loads rows in pages when they become visible."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QAbstractTableModel, QObject, Qt, QTimer, Signal

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntryRow, EntrySort
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache.entry_columns import (
    ENTRY_COLUMNS,
)
from helix_desktop.gui.common.list_row_model import NOWHERE, Index
from helix_desktop.gui.shown_workspace import ShownCatalogue

ROWS_PER_PAGE = 128
KEPT_PAGES = 40
MOST_PAGES_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class EntrySearchHit:
    row: EntryRow
    snippet: str
    line: int
    has_all_words: bool = True


class EntriesModel(QAbstractTableModel):
    """`row_count_changed` carries the number of rows. `rows_loaded`: rows that were
    missing have been loaded.
    """

    row_count_changed = Signal(int)
    rows_loaded = Signal()
    rows_added_above = Signal(int)

    def __init__(self, doing: BackgroundRunner, parent: QObject | None = None) -> None:
        """Sets up an empty table. Its rows are read a page at a time, when they come
        into sight: a workspace can have a million.
        """
        super().__init__(parent)
        self._doing = doing
        self._catalogue: ShownCatalogue | None = None
        self.entry_filter = EntryFilter()
        self.sort_by = EntrySort.TIME
        self.descending = True
        self._count = 0
        self._pages: OrderedDict[int, Sequence[EntryRow]] = OrderedDict()
        self._search_hits: Sequence[EntrySearchHit] | None = None
        self._requested_pages: list[int] = []
        self._loading_pages: set[int] = set()
        self._load_generation = 0
        self._load_timer = QTimer(self, interval=12, singleShot=True)
        self._load_timer.timeout.connect(self._load_requested_pages)

    def show_entries_of(self, catalogue: ShownCatalogue | None, chosen: EntryFilter) -> None:
        self._catalogue = catalogue
        self.entry_filter = chosen
        self._search_hits = None
        self._discard_pages_and_load_first()

    def set_entry_filter(self, chosen: EntryFilter) -> None:
        if chosen != self.entry_filter:
            self.entry_filter = chosen
            self._discard_pages_and_load_first()

    def set_sort_order(self, sort: EntrySort, *, descending: bool) -> None:
        """Sorts the entries. Search hits keep their own order, the best first."""
        if sort == self.sort_by and descending == self.descending:
            return
        self.sort_by = sort
        self.descending = descending
        self._discard_pages_and_load_first()

    def show_search_hits(self, hits: Sequence[EntrySearchHit] | None) -> None:
        """Shows search hits instead of all entries; None shows all entries again."""
        self.beginResetModel()
        self._search_hits = hits
        self.endResetModel()
        self.row_count_changed.emit(self.rowCount())

    @property
    def shows_search_hits(self) -> bool:
        return self._search_hits is not None

    def recount_and_reload(self) -> None:
        """Counts the entries and reloads the visible rows, because entries may have been added."""
        self._count_filtered_entries(self._set_count_and_reload_visible_pages)

    def get_or_load_row(self, number: int) -> EntryRow | None:
        """Returns a row, or None while it is being loaded."""
        if self._search_hits is not None:
            hit = self.search_hit_at(number)
            if hit is None:
                return None
            return hit.row
        page_number, row_in_page = divmod(number, ROWS_PER_PAGE)
        page = self._pages.get(page_number)
        if page is None:
            self._request_page(page_number)
            return None
        # The last page may have fewer rows than were counted, if entries have been deleted since.
        if row_in_page >= len(page):
            return None
        return page[row_in_page]

    def search_hit_at(self, number: int) -> EntrySearchHit | None:
        if self._search_hits is None or number >= len(self._search_hits):
            return None
        return self._search_hits[number]

    def row_number_of_entry(self, digest: Digest) -> int:
        """Returns the number of an entry's row if the row is loaded, or else -1."""
        if self._search_hits is not None:
            for number, hit in enumerate(self._search_hits):
                if hit.row.stored.digest == digest:
                    return number
            return -1
        for page_number, rows in self._pages.items():
            for row_in_page, row in enumerate(rows):
                if row.stored.digest == digest:
                    return page_number * ROWS_PER_PAGE + row_in_page
        return -1

    def rowCount(self, parent: Index = NOWHERE) -> int:
        if parent.isValid():
            return 0
        if self._search_hits is not None:
            return len(self._search_hits)
        return self._count

    def columnCount(self, parent: Index = NOWHERE) -> int:
        if parent.isValid():
            return 0
        return len(ENTRY_COLUMNS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        """Returns the title of a column, or the side it stands at, as Qt asks for them."""
        if orientation is Qt.Orientation.Vertical or not 0 <= section < len(ENTRY_COLUMNS):
            return None
        column = ENTRY_COLUMNS[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.title()
        if role == Qt.ItemDataRole.ToolTipRole and column.hint is not None:
            return column.hint()
        if role == Qt.ItemDataRole.TextAlignmentRole:
            # Numbers stand below each other, and so does what they are called.
            side = Qt.AlignmentFlag.AlignLeft
            if column.is_number:
                side = Qt.AlignmentFlag.AlignRight
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        is_text = role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole)
        if not is_text or not index.isValid():
            return None
        row = self.get_or_load_row(index.row())
        if row is None:
            return "…"
        return ENTRY_COLUMNS[index.column()].text(row, time.time())

    # --- Reading the rows page by page as they are needed

    def _discard_pages_and_load_first(self) -> None:
        self._load_generation += 1
        self._pages.clear()
        self._loading_pages.clear()
        self._requested_pages.clear()
        if self._catalogue is None:
            self._set_count_and_reload_visible_pages(0)
            return
        self._request_page(0)
        self._load_requested_pages()
        self._count_filtered_entries(self._set_row_count)

    def _count_filtered_entries(self, then: Callable[[int], None]) -> None:
        """Counts the entries. The result is ignored if something else is shown by then."""
        generation = self._load_generation

        def pass_on_if_current(count: int) -> None:
            if generation == self._load_generation:
                then(count)

        if self._catalogue is not None:
            self._doing.run_in_background(
                self._catalogue.index.count_entries(self.entry_filter),
                then=pass_on_if_current,
                owner=self,
            )

    def _set_count_and_reload_visible_pages(self, count: int) -> None:
        """Takes over that there are `count` rows now. Where the newest stand first, new
        rows come in above, and the table keeps the user's place.
        """
        # The two pages that were read last are in sight; the others are read again when needed.
        for page_number in list(self._pages)[:-2]:
            del self._pages[page_number]
        self._loading_pages.clear()
        for page_number in self._pages:
            self._request_page(page_number)

        added_count = count - self._count
        if added_count == 0:
            return
        is_newest_first = self.sort_by is EntrySort.TIME and self.descending
        grows_above = added_count > 0 and is_newest_first and not self.shows_search_hits
        self._set_row_count(count, grows_above=grows_above)
        if grows_above:
            self.rows_added_above.emit(added_count)

    def _set_row_count(self, count: int, *, grows_above: bool = False) -> None:
        """Adds or removes rows at one end, so that Qt moves the selection along."""
        count_before = self._count
        if self.shows_search_hits or count == count_before:
            self._count = count
        elif count > count_before:
            first_new_row = count_before
            if grows_above:
                first_new_row = 0
            last_new_row = first_new_row + count - count_before - 1
            self.beginInsertRows(NOWHERE, first_new_row, last_new_row)
            self._count = count
            self.endInsertRows()
        else:
            self.beginRemoveRows(NOWHERE, count, count_before - 1)
            self._count = count
            self.endRemoveRows()
        self.row_count_changed.emit(self.rowCount())

    def _request_page(self, page: int) -> None:
        if self._catalogue is None:
            return
        if page in self._loading_pages or page in self._requested_pages:
            return
        self._requested_pages.append(page)
        if not self._load_timer.isActive():
            self._load_timer.start()

    def _load_requested_pages(self) -> None:
        """Loads the last few pages requested. Earlier ones are out of sight while the
        slider is dragged.
        """
        pages_to_load = self._requested_pages[-MOST_PAGES_AT_ONCE:]
        self._requested_pages = []
        if self._catalogue is None:
            return
        for page in pages_to_load:
            self._loading_pages.add(page)
            work = self._catalogue.index.entries_page(
                self.entry_filter,
                sort=self.sort_by,
                descending=self.descending,
                offset=page * ROWS_PER_PAGE,
                limit=ROWS_PER_PAGE,
            )
            store = partial(self._store_loaded_page, page, self._load_generation)
            self._doing.run_in_background(work, then=store, owner=self)

    def _store_loaded_page(self, page: int, generation: int, rows: Sequence[EntryRow]) -> None:
        self._loading_pages.discard(page)
        if generation != self._load_generation:
            return
        if page == 0 and not self._count and rows:
            self._set_row_count(len(rows))  # Rows can be shown before the total is known.
        self._pages[page] = rows
        self._pages.move_to_end(page)
        while len(self._pages) > KEPT_PAGES:
            self._pages.popitem(last=False)
        self.rows_loaded.emit()
