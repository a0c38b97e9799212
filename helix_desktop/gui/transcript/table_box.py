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


@dataclass(slots=True)
class _Cell:
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
        left = ink.left_edge_of(table)
        super().__init__(ink, width - left, left=left, gap=gap)
        self._pad = ink.scaled_pixels(8)
        columns = min(max((len(row) for row in table.rows), default=0), MOST_COLUMNS)
        rows = [tuple(_shorten_cell(cell) for cell in row[:columns]) for row in table.rows]
        if like is not None:
            self.columns: list[float] = like.columns
        else:
            self.columns = self._compute_column_widths(rows, columns)
        self._header = not table.continues
        self._cells: list[_Cell] = []
        self._rules: list[float] = []
        text: list[str] = []
        start = 0
        for number, row in enumerate(rows):
            font = ink.text
            if number == 0 and self._header:
                font = ink.theme.build_font(weight=QFont.Weight.DemiBold)
            self._lay_out_table_row(row, table.aligned, font, start)
            text.append("\t".join(join_span_texts(cell) for cell in row))
            start += len(text[-1]) + 1
        self.text = "\n".join(text)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.setPen(self.ink.token_colour("text"))
        for cell in self._cells:
            overlays: list[QTextLayout.FormatRange] = []
            if marks is not NO_MARKS:
                marks_of_cell = marks.marks_within(cell.start, len(cell.layout.text()))
                if marks_of_cell is not NO_MARKS:
                    overlays = self.ink.overlay_formats(marks_of_cell)
            cell.layout.draw(painter, cell.place.topLeft(), overlays)
        reach = sum(self.columns)
        for number, y in enumerate(self._rules):
            colour = "line"
            if number == 0 and self._header:
                colour = "faint"
            painter.fillRect(QRectF(0, y, reach, 1), self.ink.token_colour(colour))

    def nearest_offset(self, place: QPointF) -> int:
        if not self._cells:
            return 0
        cell = self._nearest_cell(place)
        if not cell.layout.lineCount():
            return cell.start
        number = max(int((place.y() - cell.place.top()) / self.ink.text_line_height), 0)
        line = cell.layout.lineAt(min(number, cell.layout.lineCount() - 1))
        return cell.start + int(line.xToCursor(place.x() - cell.place.left()))

    def _nearest_cell(self, place: QPointF) -> _Cell:
        cells_of_row: list[_Cell] = []
        for cell in self._cells:
            if cell.place.top() <= place.y() < cell.place.bottom() + self._pad:
                cells_of_row.append(cell)
        if not cells_of_row:
            if place.y() < 0:
                return self._cells[0]
            return self._cells[-1]
        for cell in reversed(cells_of_row):
            if cell.place.left() - self._pad <= place.x():
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
        self,
        row: tuple[tuple[StyledSpan, ...], ...],
        aligned: tuple[str, ...],
        font: QFont,
        start: int,
    ) -> None:
        top = self.height + self._pad * 0.6
        x = 0.0
        tallest = self.ink.text_line_height
        for number, cell in enumerate(row):
            column_width = 0.0
            width = 40.0
            # A later part of a table may have more columns than the one whose widths it has.
            if number < len(self.columns):
                column_width = self.columns[number]
                width = column_width - 2 * self._pad
            layout = QTextLayout(join_span_texts(cell), font)
            alignment = Qt.AlignmentFlag.AlignLeft
            if number < len(aligned):
                alignment = _ALIGNED.get(aligned[number], alignment)
            layout.setTextOption(build_wrap_option(layout.text(), alignment))
            layout.setFormats(build_span_formats(self.ink, cell))
            height = break_into_lines(layout, max(width, 20.0), self.ink.text_line_height)
            self._cells.append(_Cell(start, layout, QRectF(x + self._pad, top, width, height)))
            tallest = max(tallest, height)
            start += len(join_span_texts(cell)) + 1
            x += column_width
        self.height = top + tallest + self._pad * 0.6 + 1
        self._rules.append(self.height - 1)

    def _compute_column_widths(
        self, rows: list[tuple[tuple[StyledSpan, ...], ...]], columns: int
    ) -> list[float]:
        """Returns the preferred widths of the columns. If they do not fit, the widest
        shrink first.
        """
        metrics = QFontMetricsF(self.ink.theme.build_font(weight=QFont.Weight.DemiBold))
        wanted = [self._pad * 2 + 24.0] * columns
        for row in rows:
            for number, cell in enumerate(row):
                reach = metrics.horizontalAdvance(join_span_texts(cell)[:200]) + 2 * self._pad + 2
                wanted[number] = max(wanted[number], reach)
        room = self.width
        if sum(wanted) <= room:
            return wanted
        given: list[float] = [0.0] * columns
        open_columns = sorted(range(columns), key=lambda number: wanted[number])
        for done, number in enumerate(open_columns):
            given[number] = min(wanted[number], max(room / (columns - done), 36.0))
            room -= given[number]
        return given


def _shorten_cell(cell: tuple[StyledSpan, ...]) -> tuple[StyledSpan, ...]:
    text = join_span_texts(cell)
    if len(text) <= LONGEST_CELL:
        return cell
    return (StyledSpan(text[:LONGEST_CELL] + "…"),)
