"""The table of entries as a Qt model: rows come in pages when they are looked at, the rest is a number."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import IntEnum

from PySide6.QtCore import QAbstractTableModel, QObject, Qt, QTimer, Signal

from helix_desktop.engine.catalogue import Filter, Row, Sort
from helix_desktop.engine.digest import Digest
from helix_desktop.gui.background import Doing
from helix_desktop.gui.cache_port import Catalogue
from helix_desktop.gui.shared.figures import ago, size
from helix_desktop.gui.shared.list_rows import NOWHERE, Index
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.words import numeral, tr
from helix_desktop.values import dataclass

PAGE = 128
KEPT_PAGES = 40


class Column(IntEnum):
    HASH = 0
    TOOL = 1
    SOURCE = 2
    SIZE = 3
    TOKENS = 4
    USES = 5
    STORED = 6
    RECALLED = 7


SORT = {
    Column.HASH: Sort.HASH,
    Column.TOOL: Sort.TOOL,
    Column.SOURCE: Sort.SOURCE,
    Column.SIZE: Sort.SIZE,
    Column.TOKENS: Sort.TOKENS,
    Column.USES: Sort.USES,
    Column.STORED: Sort.TIME,
    Column.RECALLED: Sort.RECALLED,
}
NUMBERS = frozenset({Column.SIZE, Column.TOKENS, Column.USES})


def title(column: Column) -> str:
    return {
        Column.HASH: tr("SHA-256"),
        Column.TOOL: tr("Tool"),
        Column.SOURCE: tr("Source"),
        Column.SIZE: tr("Size"),
        Column.TOKENS: tr("Tokens"),
        Column.USES: tr("Uses"),
        Column.STORED: tr("Stored"),
        Column.RECALLED: tr("Last recalled"),
    }[column]


@dataclass(frozen=True, slots=True)
class Found:
    """An entry a search has found, and the place."""

    row: Row
    snippet: str
    line: int


class EntriesModel(QAbstractTableModel):
    """`counted` carries how many rows there are now. `arrived`: rows that were missing are there."""

    counted = Signal(int)
    arrived = Signal()
    grown = Signal(int)

    def __init__(self, doing: Doing, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._doing = doing
        self._catalogue: Catalogue | None = None
        self.chosen = Filter()
        self.sort_by, self.descending = Sort.TIME, True
        self._count = 0
        self._pages: OrderedDict[int, Sequence[Row]] = OrderedDict()
        self._found: Sequence[Found] | None = None
        self._wanted: list[int] = []
        self._asked: set[int] = set()
        self._round = 0
        self._soon = QTimer(self, interval=12, singleShot=True)
        self._soon.timeout.connect(self._ask)

    # --- what is shown

    def open(self, catalogue: Catalogue | None, chosen: Filter) -> None:
        self._catalogue, self.chosen = catalogue, chosen
        self._found = None
        self._start()

    def choose(self, chosen: Filter) -> None:
        """Through another filter."""
        if chosen != self.chosen:
            self.chosen = chosen
            self._start()

    def order(self, sort: Sort, *, descending: bool) -> None:
        """In another order. What a search found keeps its own: the best first."""
        if (sort, descending) != (self.sort_by, self.descending):
            self.sort_by, self.descending = sort, descending
            self._start()

    def show_found(self, found: Sequence[Found] | None) -> None:
        """The places of a search instead of all entries; None goes back."""
        self.beginResetModel()
        self._found = found
        self.endResetModel()
        self.counted.emit(self.rowCount())

    @property
    def searching(self) -> bool:
        return self._found is not None

    def refresh(self) -> None:
        """Something may have come in: count again, and read again what is in sight."""
        self._count_anew(self._recounted)

    def row(self, number: int) -> Row | None:
        """A row, or None while it is on its way."""
        if self._found is not None:
            return self._found[number].row if number < len(self._found) else None
        page = self._pages.get(number // PAGE)
        if page is None:
            self._want(number // PAGE)
            return None
        inside = number % PAGE
        return page[inside] if inside < len(page) else None

    def found(self, number: int) -> Found | None:
        """What the search found in a row."""
        return self._found[number] if self._found is not None and number < len(self._found) else None

    def row_of(self, digest: Digest) -> int:
        """The row of an entry, if it is among those that are here; else -1."""
        if self._found is not None:
            return next((i for i, each in enumerate(self._found) if each.row.stored.digest == digest), -1)
        for page, rows in self._pages.items():
            for inside, row in enumerate(rows):
                if row.stored.digest == digest:
                    return page * PAGE + inside
        return -1

    # --- Qt's questions

    def rowCount(self, parent: Index = NOWHERE) -> int:
        if parent.isValid():
            return 0
        return len(self._found) if self._found is not None else self._count

    def columnCount(self, parent: Index = NOWHERE) -> int:
        return 0 if parent.isValid() else len(Column)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation is Qt.Orientation.Vertical or not 0 <= section < len(Column):
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return title(Column(section))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignRight if section in NUMBERS else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole) and index.isValid():
            row = self.row(index.row())
            return words(row, Column(index.column()), time.time()) if row is not None else "…"
        return None

    # --- pages

    def _start(self) -> None:
        self._round += 1
        self._pages.clear()
        self._asked.clear()
        self._wanted.clear()
        if self._catalogue is None:
            self._recounted(0)
            return
        self._want(0)
        self._ask()
        self._count_anew(self._set_count)

    def _count_anew(self, then: Callable[[int], None]) -> None:
        """Nothing comes of it when something else is shown by then."""
        round_now = self._round

        def counted(count: int) -> None:
            if round_now == self._round:
                then(count)

        if self._catalogue is not None:
            self._doing.do(self._catalogue.index.count(self.chosen), name="count entries", then=counted, owner=self)

    def _recounted(self, count: int) -> None:
        grown = count - self._count
        for page in list(self._pages)[:-2]:
            del self._pages[page]
        self._asked.clear()
        for page in self._pages:
            self._want(page)
        if grown:
            self._set_count(count)
            if grown > 0 and self._found is None and self.sort_by is Sort.TIME and self.descending:
                self.grown.emit(grown)

    def _set_count(self, count: int) -> None:
        if self._found is None:
            self.beginResetModel()
            self._count = count
            self.endResetModel()
        else:
            self._count = count
        self.counted.emit(self.rowCount())

    def _want(self, page: int) -> None:
        if page not in self._asked and page not in self._wanted and self._catalogue is not None:
            self._wanted.append(page)
            if not self._soon.isActive():
                self._soon.start()

    def _ask(self) -> None:
        """The last few pages that were looked at: while the slider is dragged, the others are gone again."""
        wanted, self._wanted = self._wanted[-3:], []
        if self._catalogue is None:
            return
        for page in wanted:
            self._asked.add(page)
            work = self._catalogue.index.entries(
                self.chosen, sort=self.sort_by, descending=self.descending, offset=page * PAGE, limit=PAGE
            )
            self._doing.do(work, name="read entries", then=self._taker(page), owner=self)

    def _taker(self, page: int) -> Callable[[Sequence[Row]], None]:
        round_then = self._round

        def take(rows: Sequence[Row]) -> None:
            self._asked.discard(page)
            if round_then != self._round:
                return
            if page == 0 and not self._count and rows:
                self._set_count(len(rows))  # the first rows show before all are counted
            self._pages[page] = rows
            self._pages.move_to_end(page)
            while len(self._pages) > KEPT_PAGES:
                self._pages.popitem(last=False)
            self.arrived.emit()

        return take


def words(row: Row, column: Column, now: float) -> str:
    """A cell."""
    return _CELLS[column](row, now)


_CELLS: dict[Column, Callable[[Row, float], str]] = {
    Column.HASH: lambda row, _: f"{row.stored.digest.hex[:8]}…{row.stored.digest.hex[-4:]}",
    Column.TOOL: lambda row, _: harmless(row.about.tool[:200]),
    Column.SOURCE: lambda row, _: harmless(row.about.source[:400]).replace("\n", " "),
    Column.SIZE: lambda row, _: size(row.stored.size),
    Column.TOKENS: lambda row, _: numeral(row.tokens) if row.tokens else "–",
    Column.USES: lambda row, _: numeral(row.uses),
    Column.STORED: lambda row, now: ago(row.time, now),
    Column.RECALLED: lambda row, now: ago(row.recalled, now) if row.recalled else "–",
}
