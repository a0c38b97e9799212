"""The content of one entry, in the shape it is best read in, a page of a megabyte at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractTableModel,
    QObject,
    QRectF,
    Qt,
    Signal,
)
from PySide6.QtGui import QImage, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QStackedWidget,
    QTableView,
    QTreeView,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import About
from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.cache.shapes import PAGE, HexLines, Shape, as_json, as_rows, shapes_of, text_lines
from helix_desktop.gui.cache.tree import JsonTree
from helix_desktop.gui.cache_port import Catalogue
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.shared.list_rows import NOWHERE, Index
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.transcript.content import LARGEST_PICTURE, decoded
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.transcript.highlight import MOST, highlight, language_of
from helix_desktop.gui.views.line_view import LineView, by_line
from helix_desktop.gui.words import numeral, tr


class Grid(QAbstractTableModel):
    """The rows of a CSV file; the first one is the header."""

    def __init__(self, rows: Sequence[Sequence[str]], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._head = rows[0] if rows else ()
        self._rows = rows[1:]
        self._wide = max((len(row) for row in rows), default=0)

    def rowCount(self, parent: Index = NOWHERE) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = NOWHERE) -> int:
        return 0 if parent.isValid() else self._wide

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        row = self._rows[index.row()]
        return harmless(row[index.column()][:1_000]) if index.column() < len(row) else ""

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        if orientation is Qt.Orientation.Vertical:
            return section + 1
        return harmless(self._head[section][:200]) if section < len(self._head) else ""


class PictureView(QWidget):
    """An image, as large as it is or as there is room."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.image = QImage()

    def show_image(self, image: QImage) -> None:
        self.image = image
        self.setAccessibleName(tr("Image, {w} × {h}", w=image.width(), h=image.height()))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._theme.colour("code"))
        if not self.image.isNull():
            scale = min(1.0, self.width() / self.image.width(), self.height() / self.image.height())
            wide, high = self.image.width() * scale, self.image.height() * scale
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            painter.drawImage(QRectF((self.width() - wide) / 2, (self.height() - high) / 2, wide, high), self.image)
        painter.end()


class EntryBody(QWidget):
    """`read`: content was read, checked. `failed` carries the error. `shaped` carries the shapes there are to choose."""

    read = Signal()
    failed = Signal(object)
    shaped = Signal(object)
    chosen = Signal()

    def __init__(self, theme: Theme, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._catalogue: Catalogue | None = None
        self._stored: Stored | None = None
        self._about = About()
        self._page = 0
        self._content = b""
        self._first_lines: dict[int, int] = {0: 1}
        self.shape = Shape.TEXT
        self.lines = LineView(theme, self)
        self.lines.chosen.connect(self.chosen)
        self._tree = QTreeView(self)
        self._grid = QTableView(self)
        self._picture = PictureView(theme, self)
        self._said = plain_label(parent=self)
        self._said.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._stack = QStackedWidget(self)
        for widget in (self.lines, self._tree, self._grid, self._picture, self._said):
            self._stack.addWidget(widget)
        self._tree.setFrameShape(QFrame.Shape.NoFrame)
        self._tree.setUniformRowHeights(True)
        self._tree.setAccessibleName(tr("JSON"))
        self._grid.setFrameShape(QFrame.Shape.NoFrame)
        self._grid.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self._grid.setAccessibleName(tr("Table"))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self._stack, 1)
        column.addWidget(self._pager())

    def _pager(self) -> QWidget:
        self._bar = QWidget(self)
        row = QHBoxLayout(self._bar)
        row.setContentsMargins(0, 0, 0, 0)
        self._back = QPushButton(tr("Previous page"), self._bar)
        self._on = QPushButton(tr("Next page"), self._bar)
        self._where = QLabel(self._bar)
        set_look(self._where, "muted")
        for button, by in ((self._back, -1), (self._on, 1)):
            set_look(button, "pill")
            button.clicked.connect(lambda _=False, by=by: self.turn(by))
        row.addWidget(self._back)
        row.addWidget(self._on)
        row.addWidget(self._where, 1)
        self._bar.hide()
        return self._bar

    # --- what is shown

    def open(self, catalogue: Catalogue, stored: Stored, about: About) -> None:
        """Show an entry from its beginning."""
        self._catalogue, self._stored, self._about = catalogue, stored, about
        self._page, self._first_lines = 0, {0: 1}
        self._read()

    def say(self, words: str) -> None:
        """A sentence in place of content."""
        self._stored = None
        self._bar.hide()
        self._said.setText(words)
        self._stack.setCurrentWidget(self._said)

    def turn(self, by: int) -> None:
        """To another page."""
        if self._stored is not None:
            self._page = min(max(self._page + by, 0), self._pages - 1)
            self._read()

    def reshape(self, shape: Shape) -> None:
        """Show the same in another shape."""
        if self._stored is not None and shape is not self.shape:
            self.shape = shape
            self._show()

    def copied(self) -> str | QImage:
        """What is shown, as a clipboard takes it: of a text what is selected, else all that is here."""
        if self._stored is None:
            return ""
        if self.shape is Shape.IMAGE:
            return self._picture.image
        if self.shape in (Shape.JSON, Shape.TABLE):
            return self._content.decode("utf-8", "replace")
        return self.lines.chosen_text() or "\n".join(self.lines.lines[i] for i in range(len(self.lines.lines)))

    def chosen_lines(self) -> tuple[int, int] | None:
        """The lines selected, counted from 1 in the entry; None without any, or where the count is not known."""
        lines = self.lines.chosen_lines() if self.shape is Shape.TEXT else None
        first = self._first_lines.get(self._page)
        return (lines[0] + first, lines[1] + first) if lines is not None and first is not None else None

    @property
    def _pages(self) -> int:
        return max(1, -(-self._stored.size // PAGE)) if self._stored is not None else 1

    def _read(self) -> None:
        stored = self._stored
        if stored is None or self._catalogue is None:
            return
        whole = stored.media_type.startswith("image/") and stored.size <= LARGEST_PICTURE
        start, length = (0, stored.size) if whole else (self._page * PAGE, min(PAGE, stored.size - self._page * PAGE))

        page = self._page

        def came(content: bytes) -> None:
            if self._stored is stored and self._page == page:
                self._content = content
                self._take()

        def failed(error: HelixError) -> None:
            if self._stored is stored:
                self.say(said(str(error)))
                self.failed.emit(error)

        work = self._catalogue.cache.read(stored.digest, start, max(length, 0))
        self._doing.do(work, name="read an entry", then=came, owner=self, failed=failed)

    def _take(self) -> None:
        if self._stored is None:
            return
        if self._page == 0:
            shapes = shapes_of(self._stored.media_type, self._about.source, self._content, self._stored.size)
            self.shape = shapes[0]
            self.shaped.emit(shapes)
        self._bar.setVisible(self._pages > 1)
        self._back.setEnabled(self._page > 0)
        self._on.setEnabled(self._page + 1 < self._pages)
        place = tr("page {n} of {all}", n=numeral(self._page + 1), all=numeral(self._pages))
        self._where.setText(f"{place} · {size(self._stored.size)}")
        self._show()
        self.read.emit()

    def _show(self) -> None:
        show = {
            Shape.TEXT: self._show_text,
            Shape.JSON: self._show_tree,
            Shape.TABLE: self._show_grid,
            Shape.IMAGE: self._show_picture,
            Shape.HEX: self._show_hex,
        }
        show[self.shape]()

    def _show_text(self) -> None:
        last = self._page + 1 >= self._pages
        lines, ends = text_lines(self._content, first=self._page == 0, last=last)
        first = self._first_lines.get(self._page)
        if first is not None:
            self._first_lines[self._page + 1] = first + ends
        colours = None
        if sum(map(len, lines)) <= MOST:
            language = language_of(self._about.source, self._stored.media_type if self._stored else "")
            colours = by_line(highlight("\n".join(lines), language), lines) if language else None
        self.lines.show_lines(lines, first_number=first or 1, colours=colours, tone=_diff_tone(lines))
        self._stack.setCurrentWidget(self.lines)

    def _show_hex(self) -> None:
        hexed = HexLines(self._content, self._page * PAGE)
        self.lines.show_lines(hexed, labels=hexed.label)
        self._stack.setCurrentWidget(self.lines)

    def _show_tree(self) -> None:
        value = as_json(self._content.decode("utf-8", "replace"))
        _give(self._tree, JsonTree(value, self._theme, self._tree))
        self._tree.expandToDepth(0)
        self._tree.setColumnWidth(0, self._theme.px(260))
        self._stack.setCurrentWidget(self._tree)

    def _show_grid(self) -> None:
        rows = as_rows(self._content.decode("utf-8", "replace"), self._about.source)
        _give(self._grid, Grid(rows, self._grid))
        self._stack.setCurrentWidget(self._grid)

    def _show_picture(self) -> None:
        stored = self._stored

        def came(image: QImage | None) -> None:
            if self._stored is not stored:
                return
            if image is None:
                self.reshape(Shape.HEX)
            else:
                self._picture.show_image(image)
                self._stack.setCurrentWidget(self._picture)

        work = asyncio.to_thread(decoded, self._content)
        self._doing.do(work, name="decode a picture", then=came, owner=self)


def _give(view: QAbstractItemView, model: QAbstractItemModel) -> None:
    """Show another model; the one before is not kept."""
    before = view.model()
    view.setModel(model)
    if before is not None:
        before.deleteLater()


def _diff_tone(lines: Sequence[str]) -> Callable[[int], str] | None:
    """Grounds for the lines of a difference; None for any other text."""
    if not any(line.startswith("@@ ") for line in lines[:60]):
        return None

    def tone(number: int) -> str:
        line = lines[number]
        if line.startswith(("+++ ", "--- ")):
            return ""
        return {"+": "added_soft", "-": "danger_soft"}.get(line[:1], "")

    return tone
