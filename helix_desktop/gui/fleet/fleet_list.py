"""The table that each page of the fleet shows, and how its columns share the room."""

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QHeaderView,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTreeView,
    QTreeWidgetItem,
    QWidget,
)

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.list_row_model import RowTree
from helix_desktop.gui.transcript.safe_text import safe_tooltip

# The minimum width, in pixels and in letters, of the column that gets the remaining room.
LEAST_WIDTH = 160
LEAST_LETTERS = 14
NARROW = 100  # A column of at most this many pixels keeps its width.


@dataclass(frozen=True, slots=True)
class FleetColumn:
    """`width`: in pixels, or 0 for the column that gets the remaining room. `is_figure`:
    numbers, which stand below each other. `is_whole`: its cells are never cut.
    """

    title: str
    width: int
    is_figure: bool = False
    is_whole: bool = False


@dataclass(slots=True)
class ColumnShare:
    """What a column gets of the room. `wanted` and `least`: between these widths; both
    are 0 if the column is hidden.
    """

    number: int
    column: FleetColumn
    wanted: int
    least: int

    def hide(self) -> None:
        self.wanted = 0
        self.least = 0

    def width_at(self, share: float) -> int:
        return self.least + round((self.wanted - self.least) * share)


class WordsAcrossEmptyCell(QStyledItemDelegate):
    """Draws the cells of a table so that the words of one column run on into the next one in
    the rows in which that one is empty.
    """

    def __init__(self, words_column: int, next_column: int, table: QTreeView) -> None:
        super().__init__(table)
        self._words_column = words_column
        self._next_column = next_column
        self._table = table

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        words_index = index.sibling(index.row(), self._words_column)
        next_index = index.sibling(index.row(), self._next_column)
        is_one_of_both = index.column() in (self._words_column, self._next_column)
        if not is_one_of_both or next_index.data():
            super().paint(painter, option, index)
            return
        # Each of the two cells shows its part of the words, as only one may be drawn anew.
        both_cells = QStyleOptionViewItem(option)
        both_cells.rect = self._table.visualRect(words_index).united(
            self._table.visualRect(next_index)
        )
        painter.save()
        painter.setClipRect(option.rect, Qt.ClipOperation.IntersectClip)
        super().paint(painter, both_cells, words_index)
        painter.restore()


class FleetList(RowTree):
    """A table whose rows have keys. Only changed cells are drawn."""

    def __init__(
        self, name: str, columns: Sequence[FleetColumn], parent: QWidget, empty: str = ""
    ) -> None:
        super().__init__(parent, empty)
        self._items: dict[str, QTreeWidgetItem] = {}
        self._columns = columns
        self.setAccessibleName(name)
        self.setProperty("look", "table")
        self.setIconSize(QSize(9, 9))
        self.setRootIsDecorated(False)
        self.setHeaderLabels([column.title for column in columns])
        self._align_figures(self.headerItem())
        self.header().setStretchLastSection(False)
        for number, column in enumerate(columns):
            if not column.width:
                self.header().setSectionResizeMode(number, QHeaderView.ResizeMode.Stretch)

    def _describe_emptiness(self) -> None:
        """Titles of columns say nothing as long as there is no row."""
        super()._describe_emptiness()
        self.header().setHidden(self.topLevelItemCount() == 0)

    def _align_figures(self, row: QTreeWidgetItem) -> None:
        alignment = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for number, column in enumerate(self._columns):
            if column.is_figure:
                row.setTextAlignment(number, alignment)

    def let_words_run_on(self, words_column: int, next_column: int) -> None:
        """Let a column's words run on into another one where that is empty, which moves to
        the right of it.
        """
        self.header().moveSection(next_column, words_column + 1)
        self.setItemDelegate(WordsAcrossEmptyCell(words_column, next_column, self))

    # --- The width of the columns

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns_to_room()

    def _fit_columns_to_room(self) -> None:
        for number in range(len(self._columns)):
            self.setColumnHidden(number, False)  # The title of a hidden column has no width.
        width_of_letters = LEAST_LETTERS * self.fontMetrics().averageCharWidth()
        width_left = self.viewport().width() - max(LEAST_WIDTH, width_of_letters)
        shares: list[ColumnShare] = []
        for number, column in enumerate(self._columns):
            if column.width:
                shares.append(self._measure_column(number, column))
        part_of_wanted = share_room(shares, width_left)
        for share in shares:
            self.setColumnHidden(share.number, not share.wanted)
            self.setColumnWidth(share.number, share.width_at(part_of_wanted))

    def _measure_column(self, number: int, column: FleetColumn) -> ColumnShare:
        widest_cell = self.sizeHintForColumn(number)
        least_width = self.header().sectionSizeHint(number)  # That of its title.
        if column.is_figure or column.is_whole:
            least_width = max(least_width, widest_cell)
        if column.width <= NARROW:  # It does not shrink.
            width = max(column.width, least_width)
            return ColumnShare(number, column, wanted=width, least=width)
        # With little or nothing in it, it leaves its room to the others.
        filled_width = min(column.width, widest_cell)
        wanted_width = max(filled_width, least_width)
        return ColumnShare(number, column, wanted=wanted_width, least=least_width)

    # --- The rows

    def show_rows(
        self, rows: Mapping[str, Sequence[str]], dots: Mapping[str, QIcon] | None = None
    ) -> None:
        """Replaces the rows. `dots` precede the first cells. The chosen row stays chosen."""
        if list(rows) != list(self._items):
            self._replace_items(list(rows))
        for key, cells in rows.items():
            item = self._items[key]
            for column, text in enumerate(cells):
                if item.text(column) != text:
                    item.setText(column, text)
                    item.setToolTip(column, safe_tooltip(text))
            if dots:
                item.setIcon(0, dots[key])
        self._fit_columns_to_room()

    def _replace_items(self, keys: Sequence[str]) -> None:
        chosen_key = self.chosen_row()
        selected_keys = self.selected_row_keys()
        self.clear()
        self._items = {}
        for key in keys:
            self._items[key] = QTreeWidgetItem(self)
            self._align_figures(self._items[key])
        current = self._items.get(chosen_key) or self.topLevelItem(0)
        if current is not None:
            self.setCurrentItem(current)
        for key in selected_keys:
            if key in self._items:
                self._items[key].setSelected(True)

    def filter_fleet_rows(self, words: str) -> None:
        searched_words = words.casefold().split()
        for item in self._items.values():
            cells = [item.text(column) for column in range(self.columnCount())]
            row_text = " ".join(cells).casefold()
            has_all_words = all(word in row_text for word in searched_words)
            item.setHidden(not has_all_words)

    def choose_row(self, key: str) -> None:
        """Makes this the only selected row, and brings it in sight."""
        self.clearSelection()
        self.setCurrentItem(self._items[key])
        self.scrollToItem(self._items[key])

    def chosen_row(self) -> str:
        current = self.currentItem()
        for key, item in self._items.items():
            if item is current:
                return key
        return ""

    def selected_row_keys(self) -> list[str]:
        """Return the rows that are selected and not filtered out, from top to bottom."""
        keys: list[str] = []
        for key, item in self._items.items():
            if item.isSelected() and not item.isHidden():
                keys.append(key)
        return keys


def share_room(shares: Sequence[ColumnShare], room: int) -> float:
    """Hide columns for which there is no room, and return which part of what the others
    want beyond the least they get.

    First the widest column shrinks, then all wide ones. If there is no room even then,
    columns are hidden from the last on, but figures after all others.
    """
    widest = max(shares, key=lambda share: share.column.width)
    wanted_by_others = _sum_wanted(shares) - widest.wanted
    room_for_widest = room - wanted_by_others
    if room_for_widest < max(LEAST_WIDTH // 2, widest.least):
        widest.hide()
    else:
        widest.wanted = min(widest.wanted, room_for_widest)
    for share in sorted(shares, key=_order_of_hiding):
        is_first = share.number == 0
        if not is_first and _sum_least(shares) > room:
            share.hide()
    least = _sum_least(shares)
    wanted_beyond_least = _sum_wanted(shares) - least
    if not wanted_beyond_least:
        return 1.0
    part_of_wanted = (room - least) / wanted_beyond_least
    return min(max(part_of_wanted, 0.0), 1.0)


def _sum_wanted(shares: Sequence[ColumnShare]) -> int:
    return sum(share.wanted for share in shares)


def _sum_least(shares: Sequence[ColumnShare]) -> int:
    return sum(share.least for share in shares)


def _order_of_hiding(share: ColumnShare) -> tuple[bool, int]:
    return (share.column.is_figure, -share.number)  # False is sorted before True.
