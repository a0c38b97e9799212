"""The files at the left, in groups: what each turn changed, and what is not covered."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter
from PySide6.QtWidgets import QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from helix_desktop.engine.changes.story import FileChange, Left, TurnOfChanges, written
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import numeral, tr
from helix_desktop.values import dataclass

_DOTS = {"changed": "conversation", "added": "output", "deleted": "danger"}
_Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class Entry:
    """A row: a heading, a folder of a group, a file in it, or something that is not covered."""

    heading: str = ""
    folder: str = ""
    file: FileChange | None = None
    left: Left | None = None
    turn: TurnOfChanges | None = None
    added: int = 0
    removed: int = 0


def by_folder(files: Sequence[FileChange], turn: TurnOfChanges | None) -> list[Entry]:
    """The files of a group, those of a folder below its name and counts; last those that lie in no folder."""
    folders: dict[str, list[FileChange]] = {}
    for file in sorted(files, key=lambda file: file.place):
        folders.setdefault(file.place.rpartition("/")[0], []).append(file)
    found: list[Entry] = []
    for folder, inside in sorted(folders.items(), key=lambda each: (not each[0], each[0])):
        if folder:
            added, removed = sum(file.added for file in inside), sum(file.removed for file in inside)
            found.append(Entry(folder=f"{written(folder)}/", turn=turn, added=added, removed=removed))
        found += [Entry(file=file, turn=turn) for file in inside]
    return found


class FilesModel(QAbstractListModel):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.entries: list[Entry] = []

    def show_entries(self, entries: Sequence[Entry]) -> None:
        self.beginResetModel()
        self.entries = list(entries)
        self.endResetModel()

    def rowCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008 -- Qt's own default
        return 0 if parent.isValid() else len(self.entries)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        entry = self.entries[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole, Qt.ItemDataRole.ToolTipRole):
            return spoken(entry)
        return None

    def flags(self, index: _Index) -> Qt.ItemFlag:
        if self.entries[index.row()].file is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable


def spoken(entry: Entry) -> str:
    """A row in words."""
    if entry.file is not None:
        sorts = {"added": tr("added"), "deleted": tr("deleted"), "changed": tr("changed")}
        return f"{written(entry.file.place)}, {sorts[entry.file.sort]}, +{entry.file.added} −{entry.file.removed}"
    if entry.folder:
        return f"{entry.folder} +{entry.added} −{entry.removed}"
    if entry.left is not None:
        return f"{written(entry.left.place)}: {entry.left.why}"
    return entry.heading


class _Painter(QStyledItemDelegate):
    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        entry = _entry(index)
        return QSize(100, self._theme.px(34 if entry.heading and index.row() else 28))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        entry, px = _entry(index), self._theme.px
        place = QRectF(option.rect).adjusted(px(8), 1, -px(8), -1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.colour("selected"))
            painter.drawRoundedRect(place, px(6), px(6))
        inner = place.adjusted(px(10), 0, -px(10), 0)
        if entry.file is not None:
            self._paint_file(painter, inner, entry.file)
        else:
            self._paint_words(painter, inner, entry)
        painter.restore()

    def _paint_words(self, painter: QPainter, place: QRectF, entry: Entry) -> None:
        name = entry.heading or entry.folder or written(entry.left.place if entry.left else "")
        painter.setFont(self._theme.font(11.5) if entry.heading else self._theme.mono())
        painter.setPen(self._theme.colour("faint"))
        flags = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        if entry.heading:
            place = place.adjusted(0, place.height() - self._theme.px(26), 0, 0)
        if entry.folder:
            room = round(place.width() * 2 / 3)
            name = painter.fontMetrics().elidedText(name, Qt.TextElideMode.ElideMiddle, room)
        painter.drawText(place, flags, name)
        if entry.added or entry.removed:
            used = QFontMetricsF(painter.font()).horizontalAdvance(name) + self._theme.px(6)
            self._counts(painter, place.adjusted(used, 0, 0, 0), entry.added, entry.removed, flags)

    def _paint_file(self, painter: QPainter, place: QRectF, file: FileChange) -> None:
        theme, px = self._theme, self._theme.px
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.colour(_DOTS[file.sort]))
        left = place.left() + (px(12) if "/" in file.place else 0)
        painter.drawEllipse(QRectF(left, place.center().y() - px(3.5), px(7), px(7)))
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.setFont(theme.font(11))
        if file.sort == "deleted":
            painter.setPen(theme.colour("text"))
            painter.drawText(place, right, tr("deleted"))
            used = QFontMetricsF(painter.font()).horizontalAdvance(tr("deleted"))
        else:
            used = self._counts(painter, place, file.added, file.removed, right)
        painter.setFont(theme.mono())
        painter.setPen(theme.colour("text"))
        above, _, own = written(file.place).rpartition("/")
        name = place.adjusted(px(28 if above else 16), 0, -used - px(8), 0)
        shown = painter.fontMetrics().elidedText(own, Qt.TextElideMode.ElideMiddle, round(name.width()))
        painter.drawText(name, Qt.AlignmentFlag.AlignVCenter, shown)

    def _counts(self, painter: QPainter, place: QRectF, added: int, removed: int, flags: Qt.AlignmentFlag) -> float:
        """`+38 −29`; returns its width."""
        painter.setFont(self._theme.font(11))
        measure = QFontMetricsF(painter.font()).horizontalAdvance
        plus, minus = (f"+{numeral(added)}" if added else ""), (f"−{numeral(removed)}" if removed else "")
        gap = self._theme.px(4) if plus and minus else 0
        whole = measure(plus) + gap + measure(minus)
        left = place.right() - whole if flags & Qt.AlignmentFlag.AlignRight else place.left()
        middle = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.setPen(self._theme.colour("output_text"))
        painter.drawText(QRectF(left, place.top(), measure(plus) + 2, place.height()), middle, plus)
        painter.setPen(self._theme.colour("danger"))
        at = left + measure(plus) + gap
        painter.drawText(QRectF(at, place.top(), measure(minus) + 2, place.height()), middle, minus)
        return whole


def _entry(index: _Index) -> Entry:
    model = index.model()
    return model.entries[index.row()] if isinstance(model, FilesModel) else Entry()


class FileList(QListView):
    """`opened` carries the entry that is selected."""

    opened = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.files = FilesModel(self)
        self.setModel(self.files)
        self.setItemDelegate(_Painter(theme, self))
        self.setUniformItemSizes(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFrameShape(QListView.Shape.NoFrame)
        self.setAccessibleName(tr("Changed files"))
        self.selectionModel().currentChanged.connect(self._chosen)
        theme.changed.connect(self.viewport().update)

    def show_entries(self, entries: Sequence[Entry], wanted: str = "") -> None:
        """Other rows; the file `wanted` is selected, or the first."""
        self.files.show_entries(entries)
        files = [row for row, entry in enumerate(entries) if entry.file is not None]
        same = [row for row in files if (file := entries[row].file) is not None and file.path == wanted]
        if files:
            self.setCurrentIndex(self.files.index((same or files)[0]))

    @property
    def current(self) -> Entry | None:
        index = self.currentIndex()
        return self.files.entries[index.row()] if index.isValid() else None

    def _chosen(self, now: QModelIndex, _before: QModelIndex) -> None:
        if now.isValid():
            self.opened.emit(self.files.entries[now.row()])
