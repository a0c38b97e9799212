"""A table: columns as wide as their words if there is room, cells that wrap if there is not."""

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QPainter, QTextLayout

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.basic_boxes import LayoutBox, break_into_lines, build_span_formats
from helix_desktop.gui.transcript.drawing_style import (
    NO_MARKS,
    DrawingStyle,
    TextMarks,
    build_wrap_option,
)
from helix_desktop.gui.transcript.markdown_blocks import StyledSpan, TableBlock, join_span_texts

MOST_COLUMNS = 16
LONGEST_CELL = 1_000

_ALIGNED = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "right": Qt.AlignmentFlag.AlignRight,
    "center": Qt.AlignmentFlag.AlignHCenter,
}


_TableRow = tuple[tuple[StyledSpan, ...], ...]


@dataclass(slots=True)
class _Cell:
    """`start`: where the cell's text begins in that of the table."""

    start: int
    layout: QTextLayout
    place: QRectF


class TableBox(LayoutBox):
    """`like` is the previous part of the same table, whose column widths are reused."""

    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        table: TableBlock,
        *,
        gap: float = 0.0,
        like: "TableBox | None" = None,
    ) -> None:
        """Lays out the cells of a table, row by row. A long table comes in several
        parts, which take the columns of the first one (`like`), so that they look like
        one table.
        """
        left = ink.left_edge_of(table)
        super().__init__(ink, width - left, left=left, gap=gap)
        self._padding = ink.scaled_pixels(8)
        self._has_header = not table.continues
        self._cells: list[_Cell] = []
        self._rules: list[float] = []

        rows = _shorten_rows(table)
        if like is not None:
            self.columns: list[float] = like.columns
        else:
            self.columns = self._compute_column_widths(rows)

        row_texts: list[str] = []
        start = 0
        for number, row in enumerate(rows):
            font = ink.text
            if number == 0 and self._has_header:
                font = ink.theme.build_font(weight=QFont.Weight.DemiBold)
            self._lay_out_table_row(row, table.aligned, font, start)
            row_text = "\t".join(join_span_texts(cell) for cell in row)
            row_texts.append(row_text)
            start += len(row_text) + 1
        self.text = "\n".join(row_texts)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.setPen(self.ink.token_colour("text"))
        for cell in self._cells:
            overlays: list[QTextLayout.FormatRange] = []
            if marks is not NO_MARKS:
                cell_length = len(cell.layout.text())
                marks_of_cell = marks.marks_within(cell.start, cell_length)
                overlays = self.ink.overlay_formats(marks_of_cell)
            cell.layout.draw(painter, cell.place.topLeft(), overlays)
        table_width = sum(self.columns)
        for number, y in enumerate(self._rules):
            colour = "line"
            if number == 0 and self._has_header:
                colour = "faint"
            rule = QRectF(0, y, table_width, 1)
            painter.fillRect(rule, self.ink.token_colour(colour))

    def nearest_offset(self, place: QPointF) -> int:
        if not self._cells:
            return 0
        cell = self._nearest_cell(place)
        line_count = cell.layout.lineCount()
        if line_count == 0:
            return cell.start
        line_number = int((place.y() - cell.place.top()) / self.ink.text_line_height)
        nearest_line = min(max(line_number, 0), line_count - 1)
        x_in_cell = place.x() - cell.place.left()
        return cell.start + int(cell.layout.lineAt(nearest_line).xToCursor(x_in_cell))

    def _nearest_cell(self, place: QPointF) -> _Cell:
        cells_of_row: list[_Cell] = []
        for cell in self._cells:
            row_bottom = cell.place.bottom() + self._padding
            if cell.place.top() <= place.y() < row_bottom:
                cells_of_row.append(cell)
        if not cells_of_row:
            if place.y() < 0:
                return self._cells[0]
            return self._cells[-1]
        for cell in reversed(cells_of_row):
            if cell.place.left() - self._padding <= place.x():
                return cell
        return cells_of_row[0]

    def caret_rect(self, offset: int) -> QRectF:
        cell_place = QRectF()
        for cell in reversed(self._cells):
            if cell.start <= offset:
                cell_place = cell.place
                break
        return QRectF(cell_place.left(), cell_place.top(), 1, self.ink.text_line_height)

    def _lay_out_table_row(
        self, row: _TableRow, aligned: tuple[str, ...], font: QFont, start: int
    ) -> None:
        """Adds a row below those laid out so far: its cells from left to right, then the line
        below the tallest of them. `start` is where the row begins in the text of the table.
        """
        top = self.height + self._padding * 0.6
        row_height = self.ink.text_line_height
        x = 0.0
        for number, cell in enumerate(row):
            column_width = 0.0
            text_width = 40.0
            # A later part of a table may have more columns than the one whose widths it has.
            if number < len(self.columns):
                column_width = self.columns[number]
                text_width = column_width - 2 * self._padding
            alignment = Qt.AlignmentFlag.AlignLeft
            if number < len(aligned):
                alignment = _ALIGNED.get(aligned[number], alignment)

            cell_text = join_span_texts(cell)
            layout = QTextLayout(cell_text, font)
            layout.setTextOption(build_wrap_option(cell_text, alignment))
            layout.setFormats(build_span_formats(self.ink, cell))
            height = break_into_lines(layout, max(text_width, 20.0), self.ink.text_line_height)
            place = QRectF(x + self._padding, top, text_width, height)
            self._cells.append(_Cell(start, layout, place))

            row_height = max(row_height, height)
            start += len(cell_text) + 1
            x += column_width
        rule_top = top + row_height + self._padding * 0.6
        self._rules.append(rule_top)
        self.height = rule_top + 1

    def _compute_column_widths(self, rows: list[_TableRow]) -> list[float]:
        """Returns the preferred widths of the columns. If they do not fit, the widest
        shrink first.
        """
        preferred = self._measure_columns(rows)
        if sum(preferred) <= self.width:
            return preferred
        widths = list(preferred)
        room = self.width
        columns_left = len(preferred)
        # From the narrowest on, each gets what it prefers, or its share of the room that is left.
        for column in sorted(range(len(preferred)), key=preferred.__getitem__):
            share = max(room / columns_left, 36.0)
            widths[column] = min(preferred[column], share)
            room -= widths[column]
            columns_left -= 1
        return widths

    def _measure_columns(self, rows: list[_TableRow]) -> list[float]:
        metrics = QFontMetricsF(self.ink.theme.build_font(weight=QFont.Weight.DemiBold))
        column_count = max((len(row) for row in rows), default=0)
        widths = [self._padding * 2 + 24.0] * column_count
        for row in rows:
            for column, cell in enumerate(row):
                measured_text = join_span_texts(cell)[:200]
                cell_width = metrics.horizontalAdvance(measured_text) + 2 * self._padding + 2
                widths[column] = max(widths[column], cell_width)
        return widths


def _shorten_rows(table: TableBlock) -> list[_TableRow]:
    """Leaves out columns beyond `MOST_COLUMNS`, and the end of very long cells."""
    rows: list[_TableRow] = []
    for row in table.rows:
        cells = [_shorten_cell(cell) for cell in row[:MOST_COLUMNS]]
        rows.append(tuple(cells))
    return rows


def _shorten_cell(cell: tuple[StyledSpan, ...]) -> tuple[StyledSpan, ...]:
    text = join_span_texts(cell)
    if len(text) <= LONGEST_CELL:
        return cell
    return (StyledSpan(text[:LONGEST_CELL] + "…"),)
