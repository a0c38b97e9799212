"""The files at the left, in groups: what each turn changed, and what is not covered."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter, QStaticText, QTransform
from PySide6.QtWidgets import QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from helix_desktop.engine.changes.story import FileChange, Left, TurnOfChanges, written
from helix_desktop.gui.shared.list_rows import Index, ListRows
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import numeral, tr
from helix_desktop.values import dataclass

_DOTS = {"changed": "conversation", "added": "output", "deleted": "danger"}
MOST_TEXTS = 4_000  # that stay shaped


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


class FilesModel(ListRows[Entry]):
    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        entry = self.items[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole, Qt.ItemDataRole.ToolTipRole):
            return spoken(entry)
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        if self.items[index.row()].file is None:
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
        self._restyle()
        theme.changed.connect(self._restyle)

    def _restyle(self) -> None:
        theme = self._theme
        self._fonts = {"heading": theme.font(11.5), "count": theme.font(11), "name": theme.mono()}
        self._texts: dict[tuple[str, str, int], QStaticText] = {}

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        entry = _entry(index)
        return QSize(100, self._theme.px(34 if entry.heading and index.row() else 28))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
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
        font = "heading" if entry.heading else "name"
        if entry.heading:
            place = place.adjusted(0, place.height() - self._theme.px(26), 0, 0)
        counts, gap = self._counts(entry.added, entry.removed), self._theme.px(6)
        room = place.width() - sum(count.size().width() + gap for count, _ in counts)
        text = self._text(font, name, round(room))
        self._write(painter, place, place.left(), font, text, "faint")
        at = place.left() + text.size().width() + gap
        for count, tone in counts:
            at = self._write(painter, place, at, "count", count, tone) + self._theme.px(4)

    def _paint_file(self, painter: QPainter, place: QRectF, file: FileChange) -> None:
        theme, px = self._theme, self._theme.px
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.colour(_DOTS[file.sort]))
        left = place.left() + (px(12) if "/" in file.place else 0)
        painter.drawEllipse(QRectF(left, place.center().y() - px(3.5), px(7), px(7)))
        deleted = [(self._text("count", tr("deleted")), "text")]
        at = place.right() + px(4)
        for count, tone in reversed(deleted if file.sort == "deleted" else self._counts(file.added, file.removed)):
            at -= px(4) + count.size().width()
            self._write(painter, place, at, "count", count, tone)
        above, _, own = written(file.place).rpartition("/")
        left = place.left() + px(28 if above else 16)
        self._write(painter, place, left, "name", self._text("name", own, round(at - px(8) - left)), "text")

    def _counts(self, added: int, removed: int) -> list[tuple[QStaticText, str]]:
        """`+38` and `−29`, each with its colour."""
        counts = (("+", added, "output_text"), ("−", removed, "danger"))
        return [(self._text("count", f"{sign}{numeral(figure)}"), tone) for sign, figure, tone in counts if figure]

    def _text(self, font: str, words: str, room: int = 0) -> QStaticText:
        """Words as they are drawn, shaped once: with "…" in the middle where there is not enough `room`."""
        found = self._texts.get((font, words, room))
        if found is None:
            metrics = QFontMetricsF(self._fonts[font])
            shown = metrics.elidedText(words, Qt.TextElideMode.ElideMiddle, room) if room else words
            found = QStaticText(shown)
            found.setTextFormat(Qt.TextFormat.PlainText)
            found.prepare(QTransform(), self._fonts[font])
            if len(self._texts) >= MOST_TEXTS:
                self._texts.clear()
            self._texts[font, words, room] = found
        return found

    def _write(self, painter: QPainter, place: QRectF, left: float, font: str, text: QStaticText, tone: str) -> float:
        """Returns where the words end."""
        painter.setFont(self._fonts[font])
        painter.setPen(self._theme.colour(tone))
        painter.drawStaticText(QPointF(left, place.center().y() - text.size().height() / 2), text)
        return left + text.size().width()


def _entry(index: Index) -> Entry:
    model = index.model()
    return model.items[index.row()] if isinstance(model, FilesModel) else Entry()


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
        self.files.show(entries)
        files = [row for row, entry in enumerate(entries) if entry.file is not None]
        same = [row for row in files if (file := entries[row].file) is not None and file.path == wanted]
        if files:
            self.setCurrentIndex(self.files.index((same or files)[0]))

    @property
    def current(self) -> Entry | None:
        index = self.currentIndex()
        return self.files.items[index.row()] if index.isValid() else None

    def _chosen(self, now: QModelIndex, _before: QModelIndex) -> None:
        if now.isValid():
            self.opened.emit(self.files.items[now.row()])
