"""Boxes of one line: a tool call, a fold, and a header that opens and closes a section."""

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen

from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui.transcript.basic_boxes import BoxAction, HotSpot, LayoutBox
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks
from helix_desktop.gui.transcript.tool_call_lines import CallStatus, LineChip, ToolCallLine
from helix_desktop.gui.translation import tr

_MIDDLE = Qt.AlignmentFlag.AlignVCenter
_DASHES = [1.75, 1.0]


class ToolCallBox(LayoutBox):
    """A call's line. A click runs `toggle`; a click on the outcome runs `right`."""

    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        line: ToolCallLine,
        toggle: BoxAction,
        *,
        right: BoxAction | None = None,
        gap: float = 0.0,
    ) -> None:
        super().__init__(ink, width, gap=gap)
        self.text = line.words
        self.height = ink.scaled_pixels(38)
        self.line = line  # While the call runs, only the words at the right change.
        self._act = right if right is not None else line.want
        self._chips: list[tuple[LineChip, QRectF]] = []
        self._right = QRectF()
        self._place_words_chips_and_hot_spots(toggle)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        frame = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        self.ink.draw_frame(painter, frame, "window" if near else "panel", 9)
        if marks.selected[1] > marks.selected[0]:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.ink.selection_colour)
            painter.drawRoundedRect(frame, self.ink.scaled_pixels(9), self.ink.scaled_pixels(9))
        size = self.ink.scaled_pixels(9 if self.line.status is CallStatus.CACHED else 8)
        dot = QRectF(self.ink.scaled_pixels(13), (self.height - size) / 2, size, size)
        draw_status_dot(painter, dot, self.line.status, self.ink)
        self._draw_call_words(painter, marks)
        for chip, place in self._chips:
            draw_chip(painter, place, chip, self.ink)
        colour, right = self._outcome_colour_name(), _MIDDLE | Qt.AlignmentFlag.AlignRight
        self.ink.draw_words(painter, self._right, self.line.outcome, self.ink.text, colour, right)

    def _outcome_colour_name(self) -> str:
        if self._act is not None:
            return "accent"
        return {CallStatus.FAILED: "danger", CallStatus.WAITING: "handover_text"}.get(
            self.line.status, "muted"
        )

    def _draw_call_words(self, painter: QPainter, marks: TextMarks) -> None:
        painter.setFont(self.ink.mono)
        painter.setPen(self.ink.token_colour("text"))
        metrics = QFontMetricsF(self.ink.mono)
        for number, (start, size) in enumerate(marks.found):
            before = metrics.horizontalAdvance(self.text[:start])
            width = metrics.horizontalAdvance(self.text[start : start + size])
            place = QRectF(self._words.left() + before, self.height / 2 - 9, width, 18)
            name = "found_current" if number == marks.current else "found"
            painter.fillRect(place & self._words, self.ink.token_colour(name))
        shown = metrics.elidedText(self.text, Qt.TextElideMode.ElideRight, self._words.width())
        painter.drawText(self._words, _MIDDLE, shown)

    def _place_words_chips_and_hot_spots(self, toggle: BoxAction) -> None:
        """Places chips and words. Chips keep their width, words are shortened, the
        figure is always complete.
        """
        ink, line = self.ink, self.line
        pad, between = ink.scaled_pixels(13), ink.scaled_pixels(10)
        least = ink.scaled_pixels(96) if line.status is CallStatus.RUNNING else 0
        right = max(QFontMetricsF(ink.text).horizontalAdvance(line.outcome), least)
        self._right = QRectF(self.width - pad - right - 2, 0, right + 2, self.height)
        left = pad + ink.scaled_pixels(8) + between
        room = self._right.left() - between - left
        wanted = QFontMetricsF(ink.mono).horizontalAdvance(self.text) + 2
        sizes = [measure_chip(chip, ink) for chip in line.chips]
        chips = sum(width + between for width, _ in sizes)
        words = min(wanted, max(room - chips, room * 0.4))
        self._words = QRectF(left, 0, words, self.height)
        x = self._words.right() + between
        for chip, (width, height) in zip(line.chips, sizes, strict=True):
            fits = min(width, self._right.left() - between - x)
            if fits < ink.scaled_pixels(40):
                break
            self._chips.append((chip, QRectF(x, (self.height - height) / 2, fits, height)))
            x += fits + between
        self.hot_spots = [
            HotSpot(place, chip.want, chip.text)
            for chip, place in self._chips
            if chip.want is not None
        ]
        if self._act is not None:
            self.hot_spots.append(
                HotSpot(self._right.adjusted(-4, 6, 4, -6), self._act, line.outcome)
            )
        self.hot_spots.append(
            HotSpot(QRectF(0, 0, self.width, self.height), toggle, line.spoken_line)
        )


class FoldLineBox(LayoutBox):
    """A line across the chat that says what a fold or a turn did, with a `link` to it.
    `undone`: it was undone.
    """

    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        words: str,
        link: str,
        act: BoxAction,
        *,
        undone: bool = False,
    ) -> None:
        super().__init__(ink, width)
        self._words, self._end = words, " · " + tr("undone") if undone else ""
        self.text = words + self._end
        self._link = link
        self._font = QFont(ink.small)
        self._font.setStrikeOut(undone)
        self.height = ink.scaled_pixels(18)
        self._link_width = QFontMetricsF(ink.small).horizontalAdvance(link) + ink.scaled_pixels(14)
        reach = QFontMetricsF(self._font).horizontalAdvance(self.text) + 2 + self._link_width
        reach = min(reach, width - ink.scaled_pixels(80))
        self._place = QRectF((width - reach) / 2, 0, reach, self.height)
        self.hot_spots = [HotSpot(self._place, act, words)]

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        ink, middle = self.ink, round(self.height / 2)
        between = ink.scaled_pixels(12)
        painter.fillRect(
            QRectF(0, middle, self._place.left() - between, 1), ink.token_colour("line")
        )
        after = QRectF(self._place.right() + between, middle, self.width, 1)
        painter.fillRect(after & QRectF(0, 0, self.width, self.height), ink.token_colour("line"))
        if marks.found:
            painter.fillRect(self._place, ink.token_colour("found"))
        if marks.selected[1] > marks.selected[0]:
            painter.fillRect(self._place, ink.selection_colour)
        painter.setFont(self._font)
        marked = bool(marks.found) or marks.selected[1] > marks.selected[0]
        painter.setPen(ink.token_colour("text" if marked else "muted"))
        said = self._place.adjusted(0, 0, -self._link_width, 0)
        metrics, left = (
            QFontMetricsF(self._font),
            Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft,
        )
        room = said.width() + 1 - metrics.horizontalAdvance(self._end)
        words = metrics.elidedText(self._words, Qt.TextElideMode.ElideRight, room)
        painter.drawText(said, left, words)
        painter.setFont(ink.small)
        painter.drawText(said.adjusted(metrics.horizontalAdvance(words), 0, 0, 0), left, self._end)
        painter.setPen(ink.token_colour("accent"))
        painter.drawText(
            self._place, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, self._link
        )


class ExpandableHeaderBox(LayoutBox):
    """A line with an arrow that opens a section: reasoning, a plan, rewound items."""

    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        words: str,
        act: BoxAction,
        *,
        opened: bool,
        gap: float = 0.0,
    ) -> None:
        super().__init__(ink, width, gap=gap)
        self.text = words
        self._opened = opened
        self.height = ink.scaled_pixels(20)
        metrics, self._left = QFontMetricsF(ink.small), ink.scaled_pixels(16)
        self._words = metrics.elidedText(words, Qt.TextElideMode.ElideRight, width - self._left)
        reach = metrics.horizontalAdvance(words) + ink.scaled_pixels(20)
        self.hot_spots = [HotSpot(QRectF(0, 0, min(reach, width), self.height), act, words)]

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self.ink.token_colour("muted"), 1.4))
        middle, step = self.height / 2, self.ink.scaled_pixels(3)
        points = (
            [(1, -0.5), (2, 0.5), (3, -0.5)] if self._opened else [(1.5, -1), (2.5, 0), (1.5, 1)]
        )
        painter.drawPolyline([QPointF(x * step, middle + y * step) for x, y in points])
        place, colour = QRectF(self._left, 0, self.width, self.height), "text" if near else "muted"
        self.ink.draw_words(painter, place, self._words, self.ink.small, colour, _MIDDLE)


class ChipRowBox(LayoutBox):
    def __init__(
        self, ink: DrawingStyle, width: float, chips: list[LineChip], *, gap: float = 0.0
    ) -> None:
        super().__init__(ink, width, gap=gap)
        self.text = "  ".join(chip.text for chip in chips)
        self._chips: list[tuple[LineChip, QRectF]] = []
        x, y, between = 0.0, 0.0, ink.scaled_pixels(6)
        for chip in chips:
            reach, height = measure_chip(chip, ink)
            reach = min(reach, width)
            if x and x + reach > width:
                x, y = 0.0, y + height + between
            self._chips.append((chip, QRectF(x, y, reach, height)))
            x += reach + between
        self.height = max((place.bottom() for _, place in self._chips), default=0.0)
        self.hot_spots = [
            HotSpot(place, chip.want, chip.text)
            for chip, place in self._chips
            if chip.want is not None
        ]

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for chip, place in self._chips:
            draw_chip(painter, place, chip, self.ink)


def measure_chip(chip: LineChip, ink: DrawingStyle) -> tuple[float, float]:
    metrics = QFontMetricsF(ink.chip_mono if chip.is_monospaced else ink.chip)
    return round(metrics.horizontalAdvance(chip.text) + ink.scaled_pixels(16)), ink.scaled_pixels(
        20
    )


def draw_chip(painter: QPainter, place: QRectF, chip: LineChip, ink: DrawingStyle) -> None:
    if chip.strong:
        ink.theme.fill_surface(painter, place, "accent_soft", ink.scaled_pixels(5))
    else:
        ink.draw_frame(painter, place.adjusted(0.5, 0.5, -0.5, -0.5), "", 5)
    font = ink.chip_mono if chip.is_monospaced else ink.chip
    painter.setFont(font)
    painter.setPen(ink.token_colour("accent" if chip.strong else "muted"))
    inner = place.adjusted(ink.scaled_pixels(7), 0, -ink.scaled_pixels(7), 0)
    words = QFontMetricsF(font).elidedText(
        chip.text, Qt.TextElideMode.ElideRight, inner.width() + 1.5
    )
    painter.drawText(place, Qt.AlignmentFlag.AlignCenter, words)


def draw_status_dot(painter: QPainter, place: QRectF, look: CallStatus, ink: DrawingStyle) -> None:
    """Draws a dot. Filled: done. Dashed ring: cached. Amber: waits for the user. Words
    beside it say the same.
    """
    colours: dict[CallStatus, QColor] = {
        CallStatus.FAILED: ink.token_colour("danger"),
        CallStatus.REFUSED: ink.token_colour("faint"),
        CallStatus.WAITING: ink.token_colour("handover"),
    }
    colour = colours.get(look, ink.theme.fill_colour_of_kind(ContextKind.OUTPUT))
    if look is CallStatus.CACHED:
        draw_dashed_ring(painter, place, colour)
    elif look is CallStatus.REFUSED:
        painter.setPen(QPen(colour, 1.5))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawEllipse(place.adjusted(1, 1, -1, -1))
    else:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour)
        painter.drawEllipse(place)


def draw_dashed_ring(painter: QPainter, place: QRectF, colour: QColor) -> None:
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    pen = QPen(colour, 2)
    pen.setDashPattern(_DASHES)
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawEllipse(place.adjusted(1, 1, -1, -1))
