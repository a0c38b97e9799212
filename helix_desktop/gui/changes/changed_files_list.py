"""The list of changed files, grouped by turn and folder, with paths that checkpoints leave out."""

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter
from PySide6.QtWidgets import QListView, QStyle, QStyleOptionViewItem, QWidget

from helix_desktop.engine.changes.turn_changes import (
    FileChange,
    TurnOfChanges,
    UncoveredPath,
    printable_path,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.list_row_model import Index, ListRowModel, RowPainter
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import format_number, tr

_DOTS = {"changed": "conversation", "added": "output", "deleted": "danger"}


@dataclass(frozen=True, slots=True)
class ChangesListRow:
    """A row: a heading, a folder of a group, a file in it, or a path that checkpoints leave out."""

    heading: str = ""
    folder: str = ""
    file: FileChange | None = None
    uncovered: UncoveredPath | None = None
    turn: TurnOfChanges | None = None
    is_committed: bool = False
    added: int = 0
    removed: int = 0


def group_rows_by_folder(
    files: Sequence[FileChange], turn: TurnOfChanges | None, committed: frozenset[str]
) -> list[ChangesListRow]:
    """Groups files by folder, with counts. Files outside any folder come last."""
    folders: dict[str, list[FileChange]] = {}
    for file in sorted(files, key=lambda file: file.place):
        folders.setdefault(file.place.rpartition("/")[0], []).append(file)
    found: list[ChangesListRow] = []
    for folder, inside in sorted(folders.items(), key=lambda each: (not each[0], each[0])):
        if folder:
            added, removed = (
                sum(file.added for file in inside),
                sum(file.removed for file in inside),
            )
            found.append(
                ChangesListRow(
                    folder=f"{printable_path(folder)}/", turn=turn, added=added, removed=removed
                )
            )
        found += [
            ChangesListRow(file=file, turn=turn, is_committed=file.path_of_change in committed)
            for file in inside
        ]
    return found


class ChangedFilesModel(ListRowModel[ChangesListRow]):
    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        entry = self.items[index.row()]
        if role == Qt.ItemDataRole.ToolTipRole:
            return safe_tooltip(describe_changes_row(entry))
        shown = role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole)
        return describe_changes_row(entry) if shown else None

    def flags(self, index: Index) -> Qt.ItemFlag:
        if self.items[index.row()].file is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable


def describe_changes_row(entry: ChangesListRow) -> str:
    if entry.file is not None:
        sorts = {"added": tr("added"), "deleted": tr("deleted"), "changed": tr("changed")}
        words = f"{sorts[entry.file.change_word]}, +{entry.file.added} −{entry.file.removed}"
        if entry.file.renamed:
            words = tr("renamed from {name}", name=printable_path(entry.file.renamed))
        words += f", {tr('committed')}" if entry.is_committed else ""
        return f"{printable_path(entry.file.place)}, {words}"
    if entry.folder:
        return f"{entry.folder} +{entry.added} −{entry.removed}"
    if entry.uncovered is not None:
        return f"{printable_path(entry.uncovered.path)}: {entry.uncovered.why}"
    return entry.heading


class _ChangesRowDelegate(RowPainter):
    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent, 28)
        self._set_fonts()
        theme.changed.connect(self._set_fonts)

    def _set_fonts(self) -> None:
        theme = self._theme
        self._fonts = {
            "heading": theme.build_font(11.5),
            "count": theme.build_font(11),
            "name": theme.monospaced_font(),
        }

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        is_later_heading = _changes_row_of_index(index).heading and index.row()
        return (
            QSize(100, self._theme.zoomed_pixels(34))
            if is_later_heading
            else super().sizeHint(option, index)
        )

    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        entry, px = _changes_row_of_index(index), self._theme.zoomed_pixels
        place = QRectF(option.rect).adjusted(px(8), 1, -px(8), -1)
        if option.state & QStyle.StateFlag.State_Selected:
            self._theme.fill_surface(painter, place, "selected", px(6))
        inner = place.adjusted(px(10), 0, -px(10), 0)
        if entry.file is not None:
            self._paint_changed_file(painter, inner, entry.file, is_committed=entry.is_committed)
        else:
            self._paint_heading_or_folder(painter, inner, entry)

    def _paint_heading_or_folder(
        self, painter: QPainter, place: QRectF, entry: ChangesListRow
    ) -> None:
        name = (
            entry.heading
            or entry.folder
            or printable_path(entry.uncovered.path if entry.uncovered else "")
        )
        font = "heading" if entry.heading else "name"
        if entry.heading:
            place = place.adjusted(0, place.height() - self._theme.zoomed_pixels(26), 0, 0)
        counts, gap = _format_line_counts(entry.added, entry.removed), self._theme.zoomed_pixels(6)
        room = place.width() - sum(self._text_width("count", count) + gap for count, _ in counts)
        if entry.heading and self._text_width(font, name) > room:
            counts, room = [], place.width()
        at = self._draw_text(painter, place, font, name, "faint", room) + gap
        for count, tone in counts:
            place.setLeft(at)
            at = self._draw_text(painter, place, "count", count, tone) + self._theme.zoomed_pixels(
                4
            )

    def _paint_changed_file(
        self, painter: QPainter, place: QRectF, file: FileChange, *, is_committed: bool
    ) -> None:
        theme, px = self._theme, self._theme.zoomed_pixels
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.colour_of_token(_DOTS[file.change_word]))
        left = place.left() + (px(12) if "/" in file.place else 0)
        painter.drawEllipse(QRectF(left, place.center().y() - px(3.5), px(7), px(7)))
        told = _format_line_counts(file.added, file.removed)
        if file.renamed:
            told = [(f"← {printable_path(file.renamed)}", "faint")]
        elif file.change_word == "deleted":
            told = [(tr("deleted"), "text")]
        at = place.right() + px(4)
        for words, tone in (*reversed(told), *([("✓", "accent")] if is_committed else [])):
            room = min(self._text_width("count", words), px(120))
            at -= px(4) + room
            self._draw_text(
                painter, QRectF(at, place.top(), room, place.height()), "count", words, tone
            )
        above, _, own = printable_path(file.place).rpartition("/")
        place.setLeft(place.left() + px(28 if above else 16))
        self._draw_text(painter, place, "name", own, "text", at - px(8) - place.left())

    def _text_width(self, font: str, words: str) -> float:
        return QFontMetricsF(self._fonts[font]).horizontalAdvance(words)

    def _draw_text(
        self,
        painter: QPainter,
        place: QRectF,
        font: str,
        words: str,
        tone: str,
        room: float | None = None,
    ) -> float:
        """Draws a text at the left, shortened with "…" without enough `room`, and
        returns where it ends.
        """
        cut = Qt.TextElideMode.ElideRight if font == "heading" else Qt.TextElideMode.ElideMiddle
        shown = QFontMetricsF(self._fonts[font]).elidedText(
            words, cut, (place.width() if room is None else room) + 1
        )
        painter.setFont(self._fonts[font])
        painter.setPen(self._theme.colour_of_token(tone))
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextDontClip, shown)
        return place.left() + self._text_width(font, shown)


def _format_line_counts(added: int, removed: int) -> list[tuple[str, str]]:
    """Returns `+38` and `−29`, each with its colour."""
    counts = (("+", added, "output_text"), ("−", removed, "danger"))
    return [(f"{sign}{format_number(figure)}", tone) for sign, figure, tone in counts if figure]


def _changes_row_of_index(index: Index) -> ChangesListRow:
    model = index.model()
    return model.items[index.row()] if isinstance(model, ChangedFilesModel) else ChangesListRow()


class ChangedFilesList(QListView):
    """`row_opened` carries the entry that is selected."""

    row_opened = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, uniformItemSizes=False)
        self.files = ChangedFilesModel(self)
        self.setModel(self.files)
        self.setItemDelegate(_ChangesRowDelegate(theme, self))
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(tr("Changed files"))
        self.selectionModel().currentChanged.connect(self._emit_opened_row)
        theme.changed.connect(self.viewport().update)

    def show_changes_rows(self, entries: Sequence[ChangesListRow], wanted: str = "") -> None:
        """Replaces the rows, and selects the file `wanted`, or else the first."""
        self.files.replace_rows(entries)
        files = [row for row, entry in enumerate(entries) if entry.file is not None]
        same = [
            row
            for row in files
            if (file := entries[row].file) is not None and file.path_of_change == wanted
        ]
        if files:
            self.setCurrentIndex(self.files.index((same or files)[0]))

    @property
    def current_changes_row(self) -> ChangesListRow | None:
        index = self.currentIndex()
        return self.files.items[index.row()] if index.isValid() else None

    def _emit_opened_row(self, now: QModelIndex, _before: QModelIndex) -> None:
        if now.isValid():
            self.row_opened.emit(self.files.items[now.row()])
