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
# The corners of an arrow, in steps from the left and from the middle of its line.
_ARROW_RIGHT = ((1.5, -1.0), (2.5, 0.0), (1.5, 1.0))
_ARROW_DOWN = ((1.0, -0.5), (2.0, 0.5), (3.0, -0.5))


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
        self._act: BoxAction | None = line.want
        if right is not None:
            self._act = right
        self._chips: list[tuple[LineChip, QRectF]] = []
        self._right = QRectF()
        self._place_words_chips_and_hot_spots(toggle)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        ink = self.ink
        surface = "panel"
        if near:
            surface = "window"
        frame = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        ink.draw_frame(painter, frame, surface, 9)
        if _has_selection(marks):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ink.selection_colour)
            painter.drawRoundedRect(frame, ink.scaled_pixels(9), ink.scaled_pixels(9))
        dot_size = ink.scaled_pixels(8)
        if self.line.status is CallStatus.CACHED:  # A ring looks smaller than a filled dot.
            dot_size = ink.scaled_pixels(9)
        dot_top = (self.height - dot_size) / 2
        dot = QRectF(ink.scaled_pixels(13), dot_top, dot_size, dot_size)
        draw_status_dot(painter, dot, self.line.status, ink)
        self._draw_call_words(painter, marks)
        for chip, place in self._chips:
            draw_chip(painter, place, chip, ink)
        colour = self._outcome_colour_name()
        alignment = _MIDDLE | Qt.AlignmentFlag.AlignRight
        ink.draw_words(painter, self._right, self.line.outcome, ink.text, colour, alignment)

    def _outcome_colour_name(self) -> str:
        if self._act is not None:
            return "accent"
        if self.line.status is CallStatus.FAILED:
            return "danger"
        if self.line.status is CallStatus.WAITING:
            return "handover_text"
        return "muted"

    def _draw_call_words(self, painter: QPainter, marks: TextMarks) -> None:
        painter.setFont(self.ink.mono)
        painter.setPen(self.ink.token_colour("text"))
        metrics = QFontMetricsF(self.ink.mono)
        for number, (start, size) in enumerate(marks.found):
            before = metrics.horizontalAdvance(self.text[:start])
            width = metrics.horizontalAdvance(self.text[start : start + size])
            place = QRectF(self._words.left() + before, self.height / 2 - 9, width, 18)
            colour_name = "found"
            if number == marks.current:
                colour_name = "found_current"
            painter.fillRect(place & self._words, self.ink.token_colour(colour_name))
        shown = metrics.elidedText(self.text, Qt.TextElideMode.ElideRight, self._words.width())
        painter.drawText(self._words, _MIDDLE, shown)

    def _place_words_chips_and_hot_spots(self, toggle: BoxAction) -> None:
        """Places chips and words. Chips keep their width, words are shortened, the
        figure is always complete.
        """
        ink = self.ink
        line = self.line
        pad = ink.scaled_pixels(13)
        between = ink.scaled_pixels(10)
        outcome_width = QFontMetricsF(ink.text).horizontalAdvance(line.outcome)
        if line.status is CallStatus.RUNNING:
            # The elapsed time grows by a digit without moving what stands beside it.
            outcome_width = max(outcome_width, ink.scaled_pixels(96))
        outcome_left = self.width - pad - outcome_width - 2
        self._right = QRectF(outcome_left, 0, outcome_width + 2, self.height)
        left = pad + ink.scaled_pixels(8) + between
        room = outcome_left - between - left
        wanted_width = QFontMetricsF(ink.mono).horizontalAdvance(self.text) + 2
        chip_sizes = [measure_chip(chip, ink) for chip in line.chips]
        width_of_chips = sum(width + between for width, _ in chip_sizes)
        words_width = min(wanted_width, max(room - width_of_chips, room * 0.4))
        self._words = QRectF(left, 0, words_width, self.height)
        x = self._words.right() + between
        for chip, (width, height) in zip(line.chips, chip_sizes, strict=True):
            shown_width = min(width, outcome_left - between - x)
            if shown_width < ink.scaled_pixels(40):
                break
            chip_top = (self.height - height) / 2
            self._chips.append((chip, QRectF(x, chip_top, shown_width, height)))
            x += shown_width + between
        # The first spot under the pointer counts, so that of the whole line is the last.
        self.hot_spots = _list_hot_spots_of_chips(self._chips)
        if self._act is not None:
            outcome_area = self._right.adjusted(-4, 6, 4, -6)
            self.hot_spots.append(HotSpot(outcome_area, self._act, line.outcome))
        whole_line = QRectF(0, 0, self.width, self.height)
        self.hot_spots.append(HotSpot(whole_line, toggle, line.spoken_line))


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
        self._words = words
        self._end = ""
        if undone:
            self._end = " · " + tr("undone")
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
        ink = self.ink
        middle = round(self.height / 2)
        between = ink.scaled_pixels(12)
        line_before = QRectF(0, middle, self._place.left() - between, 1)
        painter.fillRect(line_before, ink.token_colour("line"))
        line_after = QRectF(self._place.right() + between, middle, self.width, 1)
        whole_box = QRectF(0, 0, self.width, self.height)
        painter.fillRect(line_after & whole_box, ink.token_colour("line"))
        words_colour = "muted"
        if marks.found:
            painter.fillRect(self._place, ink.token_colour("found"))
            words_colour = "text"
        if _has_selection(marks):
            painter.fillRect(self._place, ink.selection_colour)
            words_colour = "text"
        painter.setFont(self._font)
        painter.setPen(ink.token_colour(words_colour))
        words_area = self._place.adjusted(0, 0, -self._link_width, 0)
        metrics = QFontMetricsF(self._font)
        at_left = _MIDDLE | Qt.AlignmentFlag.AlignLeft
        room = words_area.width() + 1 - metrics.horizontalAdvance(self._end)
        words = metrics.elidedText(self._words, Qt.TextElideMode.ElideRight, room)
        painter.drawText(words_area, at_left, words)
        # What says that the fold was undone is not struck out itself.
        painter.setFont(ink.small)
        end_area = words_area.adjusted(metrics.horizontalAdvance(words), 0, 0, 0)
        painter.drawText(end_area, at_left, self._end)
        painter.setPen(ink.token_colour("accent"))
        painter.drawText(self._place, _MIDDLE | Qt.AlignmentFlag.AlignRight, self._link)


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
        metrics = QFontMetricsF(ink.small)
        self._left = ink.scaled_pixels(16)
        self._words = metrics.elidedText(words, Qt.TextElideMode.ElideRight, width - self._left)
        reach = metrics.horizontalAdvance(words) + ink.scaled_pixels(20)
        self.hot_spots = [HotSpot(QRectF(0, 0, min(reach, width), self.height), act, words)]

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self.ink.token_colour("muted"), 1.4))
        middle = self.height / 2
        step = self.ink.scaled_pixels(3)
        arrow = _ARROW_RIGHT
        if self._opened:
            arrow = _ARROW_DOWN
        painter.drawPolyline([QPointF(x * step, middle + y * step) for x, y in arrow])
        colour = "muted"
        if near:
            colour = "text"
        place = QRectF(self._left, 0, self.width, self.height)
        self.ink.draw_words(painter, place, self._words, self.ink.small, colour, _MIDDLE)


class ChipRowBox(LayoutBox):
    def __init__(
        self, ink: DrawingStyle, width: float, chips: list[LineChip], *, gap: float = 0.0
    ) -> None:
        super().__init__(ink, width, gap=gap)
        self.text = "  ".join(chip.text for chip in chips)
        self._chips: list[tuple[LineChip, QRectF]] = []
        x = 0.0
        y = 0.0
        between = ink.scaled_pixels(6)
        for chip in chips:
            wanted_width, height = measure_chip(chip, ink)
            chip_width = min(wanted_width, width)
            if x > 0 and x + chip_width > width:
                x = 0.0
                y += height + between
            self._chips.append((chip, QRectF(x, y, chip_width, height)))
            x += chip_width + between
        self.height = max((place.bottom() for _, place in self._chips), default=0.0)
        self.hot_spots = _list_hot_spots_of_chips(self._chips)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for chip, place in self._chips:
            draw_chip(painter, place, chip, self.ink)


def _has_selection(marks: TextMarks) -> bool:
    start, end = marks.selected
    return end > start


def _list_hot_spots_of_chips(chips: list[tuple[LineChip, QRectF]]) -> list[HotSpot]:
    hot_spots: list[HotSpot] = []
    for chip, place in chips:
        if chip.want is not None:
            hot_spots.append(HotSpot(place, chip.want, chip.text))
    return hot_spots


def _font_of_chip(chip: LineChip, ink: DrawingStyle) -> QFont:
    if chip.is_monospaced:
        return ink.chip_mono
    return ink.chip


def measure_chip(chip: LineChip, ink: DrawingStyle) -> tuple[float, float]:
    """Returns the width and the height of a chip."""
    words_width = QFontMetricsF(_font_of_chip(chip, ink)).horizontalAdvance(chip.text)
    return round(words_width + ink.scaled_pixels(16)), ink.scaled_pixels(20)


def draw_chip(painter: QPainter, place: QRectF, chip: LineChip, ink: DrawingStyle) -> None:
    if chip.strong:
        ink.theme.fill_surface(painter, place, "accent_soft", ink.scaled_pixels(5))
        painter.setPen(ink.token_colour("accent"))
    else:
        ink.draw_frame(painter, place.adjusted(0.5, 0.5, -0.5, -0.5), "", 5)
        painter.setPen(ink.token_colour("muted"))
    font = _font_of_chip(chip, ink)
    painter.setFont(font)
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
