"""Views of one file: pages of a PDF, a table of a CSV file, an HTML page. None runs scripts or
fetches anything.
"""

import csv
import io
from collections.abc import Callable, Sequence

from PySide6.QtCore import QAbstractTableModel, QByteArray, QModelIndex, Qt, QUrl
from PySide6.QtGui import QPixmap
from PySide6.QtWidgets import QLabel, QScrollArea, QTableView, QTextBrowser, QVBoxLayout, QWidget

from helix_desktop.gui.common.picture_reader import read_picture
from helix_desktop.gui.common.widgets import build_plain_label
from helix_desktop.gui.preview.offline_document import OfflineDocument
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_number, tr

PAGES_AT_ONCE = 4
PAGE_EDGE = 1_400  # Pixels of a page's longer edge.
MOST_ROWS = 100_000
# Qt lays out a whole cell to show its beginning. The source has the rest.
MOST_CELL_LETTERS = 1_000
# A column is as wide as what stands in its first rows. In a table of very many columns, each has
# the same width: fitting them takes as long as there are columns.
ROWS_THAT_DECIDE_WIDTHS = 50
MOST_FITTED_COLUMNS = 200
WIDEST_COLUMN = 360  # In pixels.
_NEAR_END = 800  # More pages are drawn when this many pixels are left below.


class PdfPagesView(QScrollArea):
    """Pages below each other. `draw_more(first, last)` is called when they are about to be seen."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._inside = QWidget(self)
        self._column = QVBoxLayout(self._inside)
        self._column.setSpacing(theme.zoomed_pixels(12))
        self._labels: list[QLabel] = []
        self._captions: list[QLabel] = []  # The number of each page, above it.
        self._pictures: list[QPixmap] = []
        self._page_count = 0
        self._asked_until = 0
        self._page_to_scroll_to = 0  # 0 if none is awaited.
        self._draw_more: Callable[[int, int], object] = lambda _first, _last: None
        self.setWidget(self._inside)
        self.setWidgetResizable(True)
        self._inside.setAutoFillBackground(False)
        self.setProperty("look", "shown-file")
        self.setAccessibleName(tr("Pages"))
        self.verticalScrollBar().valueChanged.connect(self._ask_for_pages_in_sight)

    def show_pages(
        self, page_count: int, draw_more: Callable[[int, int], object], first_in_sight: int = 0
    ) -> None:
        """Shows the pages, at first those at the top, or the page `first_in_sight` once it and
        those above it are drawn.
        """
        for label in self._captions + self._labels:
            label.deleteLater()
        self._captions = []
        self._labels = []
        self._pictures = []
        self._page_count = page_count
        self._asked_until = 0
        self._page_to_scroll_to = min(first_in_sight, page_count)
        self._draw_more = draw_more
        self._ask_for_more()

    def add_page_picture(self, png: bytes) -> None:
        number = len(self._pictures) + 1
        image = read_picture(png)
        picture = QPixmap()
        if image is not None:
            picture = QPixmap.fromImage(image)
        total = format_number(self._page_count)
        place = tr("Page {n} of {total}", n=format_number(number), total=total)
        centre = Qt.AlignmentFlag.AlignCenter
        caption = build_plain_label(place, "faint", self._inside, alignment=centre)
        label = QLabel(self._inside, alignment=centre)
        label.setAccessibleName(tr("Page {n}", n=format_number(number)))
        self._column.addWidget(caption)
        self._column.addWidget(label)
        self._captions.append(caption)
        caption.show()
        label.show()  # Qt would do so later, and gives no place to what is not shown.
        self._labels.append(label)
        self._pictures.append(picture)
        self._fit_page(number - 1)
        self._draw_or_scroll_to_awaited_page()

    def _draw_or_scroll_to_awaited_page(self) -> None:
        drawn_count = len(self._pictures)
        # The pages that are drawn together are waited for: below the last one, nothing scrolls.
        if not self._page_to_scroll_to or drawn_count < self._asked_until:
            return
        if drawn_count < self._page_to_scroll_to:
            self._ask_for_more()
            return
        caption = self._captions[self._page_to_scroll_to - 1]
        self._page_to_scroll_to = 0
        self._lay_out_pages()
        # The scroll bar, which may have appeared only now, has made the pages narrower.
        self._lay_out_pages()
        self.verticalScrollBar().setValue(caption.y())

    def _lay_out_pages(self) -> None:
        """Gives the pages their places at once, and not when Qt comes to it."""
        self._column.activate()
        self._inside.resize(self.viewport().width(), self._inside.sizeHint().height())
        self._column.activate()

    def resizeEvent(self, event: object) -> None:
        super().resizeEvent(event)  # type: ignore[arg-type]
        for index in range(len(self._labels)):
            self._fit_page(index)

    def _fit_page(self, index: int) -> None:
        if self._pictures[index].isNull():
            return
        width = max(self.viewport().width() - self._theme.zoomed_pixels(32), 100)
        ratio = self.devicePixelRatioF()
        fitted = self._pictures[index].scaledToWidth(
            round(width * ratio), Qt.TransformationMode.SmoothTransformation
        )
        fitted.setDevicePixelRatio(ratio)
        self._labels[index].setPixmap(fitted)

    def _ask_for_pages_in_sight(self, value: int) -> None:
        are_all_drawn = len(self._pictures) == self._asked_until
        if are_all_drawn and value > self.verticalScrollBar().maximum() - _NEAR_END:
            self._ask_for_more()

    def _ask_for_more(self) -> None:
        first = self._asked_until + 1
        last = min(self._asked_until + PAGES_AT_ONCE, self._page_count)
        if first <= last:
            self._asked_until = last
            self._draw_more(first, last)


class CsvRowsModel(QAbstractTableModel):
    """The rows of a CSV file. The first row is the head."""

    def __init__(self, rows: Sequence[Sequence[str]], parent: QWidget) -> None:
        super().__init__(parent)
        self._head: Sequence[str] = ()
        if rows:
            self._head = rows[0]
        self._rows = rows[1:]
        self._width = max((len(row) for row in rows), default=0)

    def rowCount(self, _parent: object = QModelIndex()) -> int:
        return len(self._rows)

    def columnCount(self, _parent: object = QModelIndex()) -> int:
        return self._width

    def data(self, index: object, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not isinstance(index, QModelIndex) or role != Qt.ItemDataRole.DisplayRole:
            return None
        row = self._rows[index.row()]
        if index.column() >= len(row):  # A row may have fewer cells than others.
            return ""
        return row[index.column()][:MOST_CELL_LETTERS]

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> object:
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        if orientation is Qt.Orientation.Vertical:
            return format_number(section + 2)  # As the file's lines are counted.
        if section >= len(self._head):
            return ""
        return self._head[section][:MOST_CELL_LETTERS]


class CsvTableView(QTableView):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(tr("Table"))
        self.setEditTriggers(QTableView.EditTrigger.NoEditTriggers)
        header = self.horizontalHeader()
        header.setResizeContentsPrecision(ROWS_THAT_DECIDE_WIDTHS)
        header.setMaximumSectionSize(WIDEST_COLUMN)

    def show_csv(self, text: str) -> None:
        model = CsvRowsModel(parse_csv_rows(text), self)
        self.setModel(model)
        if model.columnCount() <= MOST_FITTED_COLUMNS:
            self.resizeColumnsToContents()


def parse_csv_rows(text: str) -> list[list[str]]:
    """Returns the rows of a CSV text, with the separator that its first line has most of."""
    first_line = text.partition("\n")[0]
    separator = max(",;\t|", key=first_line.count)
    csv.field_size_limit(16 << 20)
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            rows.append(row)
            if len(rows) > MOST_ROWS:
                break
    except csv.Error:
        return rows  # What was read until there is shown; the source has the rest.
    return rows


class OfflineHtmlView(QTextBrowser):
    """HTML with its own styles. Qt's text browser knows no scripts, and its document loads nothing."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setOpenLinks(False)
        self.setProperty("look", "shown-file")
        self.setAccessibleName(tr("Page"))

    def show_page(self, html: str) -> None:
        document = OfflineDocument(self)
        document.setDefaultFont(self.font())
        document.setHtml(html)
        self.setDocument(document)

    def loadResource(self, _kind: int, _address: QUrl | str) -> object:
        """Loads nothing for a page that is opened by its address, either."""
        return QByteArray()


def build_sentence_view(parent: QWidget) -> QLabel:
    return build_plain_label("", "muted", parent, alignment=Qt.AlignmentFlag.AlignCenter)
