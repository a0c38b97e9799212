"""Boxes of one line: a tool call, a fold, and a header that opens and closes a section."""

from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen

from helix_desktop.engine.messages import ContextKind
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.basic_boxes import BoxAction, HotSpot, LayoutBox
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks
from helix_desktop.gui.transcript.tool_call_lines import CallStatus, LineChip, ToolCallLine
from helix_desktop.gui.translation import tr

_MIDDLE = Qt.AlignmentFlag.AlignVCenter
_DASHES = [1.75, 1.0]
_COLONS = (": ", "：")  # The second one is Chinese, as below.
_SENTENCE_ENDS = (". ", "。")
# The corners of an arrow, in steps from the left and from the middle of its line.
_ARROW_RIGHT = ((1.5, -1.0), (2.5, 0.0), (1.5, 1.0))
_ARROW_DOWN = ((1.0, -0.5), (2.0, 0.5), (3.0, -0.5))


@dataclass(frozen=True, slots=True)
class _PlacedChip:
    chip: LineChip
    area: QRectF


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
        """Places a call's status dot, words, chips and outcome in one line. A press on
        a chip does what the chip says; one elsewhere calls `toggle`, which opens the
        call's output. `right`: what a press on the outcome at the right does, instead
        of what the line itself wants.
        """
        super().__init__(ink, width, gap=gap)
        self.text = line.words
        self.height = ink.scaled_pixels(38)
        self.line = line  # While the call runs, only the words at the right change.
        self._act: BoxAction | None = line.want
        if right is not None:
            self._act = right
        self._chips: list[_PlacedChip] = []
        self._words_area = QRectF()
        self._outcome_area = QRectF()
        self._place_words_chips_and_hot_spots(toggle)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        """Draws the frame, then from left to right the dot, the words, the chips and
        the outcome. `near`: the pointer is over the box, which lights it up.
        """
        ink = self.ink
        surface = "panel"
        if near:
            surface = "window"
        frame = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        ink.draw_frame(painter, frame, surface, 9)
        if marks.has_selection:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ink.selection_colour)
            painter.drawRoundedRect(frame, ink.scaled_pixels(9), ink.scaled_pixels(9))

        draw_status_dot(painter, self._area_of_dot(), self.line.status, ink)
        self._draw_call_words(painter, marks)
        for placed in self._chips:
            draw_chip(painter, placed.area, placed.chip, ink)
        colour = self._outcome_colour_name()
        alignment = _MIDDLE | Qt.AlignmentFlag.AlignRight
        ink.draw_words(painter, self._outcome_area, self.line.outcome, ink.text, colour, alignment)

    def _area_of_dot(self) -> QRectF:
        diameter = self.ink.scaled_pixels(8)
        if self.line.status is CallStatus.CACHED:  # A ring looks smaller than a filled dot.
            diameter = self.ink.scaled_pixels(9)
        top = (self.height - diameter) / 2
        return QRectF(self.ink.scaled_pixels(13), top, diameter, diameter)

    def _outcome_colour_name(self) -> str:
        if self._act is not None:
            return "accent"
        if self.line.status is CallStatus.FAILED:
            return "danger"
        if self.line.status is CallStatus.WAITING:
            return "handover_text"
        return "muted"

    def _draw_call_words(self, painter: QPainter, marks: TextMarks) -> None:
        """Draws the words, shortened to their room, on a coloured ground wherever the
        search found something in them.
        """
        painter.setFont(self.ink.mono)
        painter.setPen(self.ink.token_colour("text"))
        metrics = QFontMetricsF(self.ink.mono)
        for number, (hit_start, hit_length) in enumerate(marks.found):
            text_before = self.text[:hit_start]
            hit = self.text[hit_start : hit_start + hit_length]
            hit_left = self._words_area.left() + metrics.horizontalAdvance(text_before)
            ground = QRectF(hit_left, self.height / 2 - 9, metrics.horizontalAdvance(hit), 18)
            colour_name = "found"
            if number == marks.current:
                colour_name = "found_current"
            # A hit may be in the part of the words that is left out.
            painter.fillRect(ground & self._words_area, self.ink.token_colour(colour_name))
        room = self._words_area.width()
        shown_text = metrics.elidedText(self.text, Qt.TextElideMode.ElideRight, room)
        painter.drawText(self._words_area, _MIDDLE, shown_text)

    def _place_words_chips_and_hot_spots(self, toggle: BoxAction) -> None:
        """Places chips and words. Chips keep their width, words are shortened, the
        outcome is always complete.
        """
        ink = self.ink
        line = self.line
        padding = ink.scaled_pixels(13)
        between = ink.scaled_pixels(10)

        outcome_width = QFontMetricsF(ink.text).horizontalAdvance(line.outcome)
        if line.status is CallStatus.RUNNING:
            # The elapsed time grows by a digit without moving what stands beside it.
            outcome_width = max(outcome_width, ink.scaled_pixels(96))
        outcome_left = self.width - padding - outcome_width - 2
        self._outcome_area = QRectF(outcome_left, 0, outcome_width + 2, self.height)

        words_left = padding + ink.scaled_pixels(8) + between
        room = outcome_left - between - words_left
        room_for_words = room
        for chip in line.chips:
            room_for_words -= measure_chip(chip, ink).width() + between
        words_width = QFontMetricsF(ink.mono).horizontalAdvance(self.text) + 2
        # Many chips may not take all the room from the words.
        most_width = max(room_for_words, room * 0.4)
        shown_width = min(words_width, most_width)
        self._words_area = QRectF(words_left, 0, shown_width, self.height)

        chips_left = self._words_area.right() + between
        self._place_chips(chips_left, outcome_left - between, between)

        # The first spot under the pointer counts, so that of the whole line is the last.
        self.hot_spots = _list_hot_spots_of_chips(self._chips)
        if self._act is not None:
            outcome_spot = self._outcome_area.adjusted(-4, 6, 4, -6)
            self.hot_spots.append(HotSpot(outcome_spot, self._act, line.outcome))
        whole_line = QRectF(0, 0, self.width, self.height)
        self.hot_spots.append(HotSpot(whole_line, toggle, line.spoken_line))

    def _place_chips(self, left: float, right: float, between: float) -> None:
        """Places as many chips as there is room for. The last may be narrower than its words."""
        x = left
        for chip in self.line.chips:
            size = measure_chip(chip, self.ink)
            width = min(size.width(), right - x)
            if width < self.ink.scaled_pixels(40):
                return
            top = (self.height - size.height()) / 2
            place = QRectF(x, top, width, size.height())
            self._chips.append(_PlacedChip(chip, place))
            x += width + between


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
        """Puts words and link into the middle of the line. `act`: what a press on
        either does.
        """
        super().__init__(ink, width)
        self.height = ink.scaled_pixels(18)
        self._ending = ""
        if undone:
            self._ending = " · " + tr("undone")
        self.text = words + self._ending
        self._words_font = QFont(ink.small)
        self._words_font.setStrikeOut(undone)
        self._link = link
        self._link_width = QFontMetricsF(ink.small).horizontalAdvance(link) + ink.scaled_pixels(14)

        # Words and link stand in the middle. The line at both sides of them is always visible.
        words_width = QFontMetricsF(self._words_font).horizontalAdvance(self.text) + 2
        room = width - ink.scaled_pixels(80)
        content_width = min(words_width + self._link_width, room)
        self._content_area = QRectF((width - content_width) / 2, 0, content_width, self.height)
        self.hot_spots = [HotSpot(self._content_area, act, words)]

        metrics = QFontMetricsF(self._words_font)
        room_for_words = content_width - self._link_width + 1
        room_for_words -= metrics.horizontalAdvance(self._ending)
        self.shown_words = _elide_before_figures(words, metrics, room_for_words)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        """Draws one line from left to right: the words, which are shortened if there is no room
        for them, their ending, and at the right edge the link. A line that is selected or found
        gets a ground behind it and words in the usual text colour.
        """
        ink = self.ink
        self._draw_line_at_both_sides(painter)
        words_colour = "muted"
        if marks.found:
            painter.fillRect(self._content_area, ink.token_colour("found"))
            words_colour = "text"
        if marks.has_selection:
            painter.fillRect(self._content_area, ink.selection_colour)
            words_colour = "text"

        at_left = _MIDDLE | Qt.AlignmentFlag.AlignLeft
        metrics = QFontMetricsF(self._words_font)
        words_area = self._content_area.adjusted(0, 0, -self._link_width, 0)
        painter.setFont(self._words_font)
        painter.setPen(ink.token_colour(words_colour))
        painter.drawText(words_area, at_left, self.shown_words)

        # What says that the fold was undone is not struck out itself.
        painter.setFont(ink.small)
        ending_area = words_area.adjusted(metrics.horizontalAdvance(self.shown_words), 0, 0, 0)
        painter.drawText(ending_area, at_left, self._ending)
        painter.setPen(ink.token_colour("accent"))
        painter.drawText(self._content_area, _MIDDLE | Qt.AlignmentFlag.AlignRight, self._link)

    def _draw_line_at_both_sides(self, painter: QPainter) -> None:
        colour = self.ink.token_colour("line")
        middle = round(self.height / 2)
        between = self.ink.scaled_pixels(12)
        left_end = self._content_area.left() - between
        right_start = self._content_area.right() + between
        left_line = QRectF(0, middle, left_end, 1)
        right_line = QRectF(right_start, middle, self.width - right_start, 1)
        painter.fillRect(left_line, colour)
        painter.fillRect(right_line, colour)


def _elide_before_figures(words: str, metrics: QFontMetricsF, room: float) -> str:
    """Shortens words so that the figures after the last colon stay whole, if they find room."""
    if metrics.horizontalAdvance(words) <= room:
        return words
    colon_place = max(words.rfind(colon) for colon in _COLONS)
    if colon_place > 0:
        # What stands behind the figures only explains them, so it is left out first.
        figures = words[colon_place:]
        for sentence_end in _SENTENCE_ENDS:
            figures = figures.partition(sentence_end)[0]
        before_figures = words[:colon_place]
        room_before_figures = room - metrics.horizontalAdvance(figures)
        if room_before_figures >= room / 4:
            elided = metrics.elidedText(
                before_figures, Qt.TextElideMode.ElideRight, room_before_figures
            )
            return elided + figures
    return metrics.elidedText(words, Qt.TextElideMode.ElideRight, room)


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
        """Places the arrow and the words. A press on either runs `act`; the empty rest
        of the line does nothing.
        """
        super().__init__(ink, width, gap=gap)
        self.text = words
        self._opened = opened
        self.height = ink.scaled_pixels(20)
        metrics = QFontMetricsF(ink.small)
        self._left = ink.scaled_pixels(16)
        room = width - self._left
        self._words = metrics.elidedText(words, Qt.TextElideMode.ElideRight, room)
        reach = metrics.horizontalAdvance(words) + ink.scaled_pixels(20)
        pressed_area = QRectF(0, 0, min(reach, width), self.height)
        self.hot_spots = [HotSpot(pressed_area, act, words)]

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
        """Places the chips, small labels that can be pressed, one after the other, and
        in as many rows as they need.
        """
        super().__init__(ink, width, gap=gap)
        self.text = "  ".join(chip.text for chip in chips)
        self._chips: list[_PlacedChip] = []
        between = ink.scaled_pixels(6)
        x = 0.0
        y = 0.0
        for chip in chips:
            size = measure_chip(chip, ink)
            chip_width = min(size.width(), width)
            is_row_full = x > 0 and x + chip_width > width
            if is_row_full:
                x = 0.0
                y += size.height() + between
            area = QRectF(x, y, chip_width, size.height())
            self._chips.append(_PlacedChip(chip, area))
            self.height = area.bottom()
            x += chip_width + between
        self.hot_spots = _list_hot_spots_of_chips(self._chips)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for placed in self._chips:
            draw_chip(painter, placed.area, placed.chip, self.ink)


def _list_hot_spots_of_chips(placed_chips: list[_PlacedChip]) -> list[HotSpot]:
    hot_spots: list[HotSpot] = []
    for placed in placed_chips:
        if placed.chip.want is not None:
            hot_spots.append(HotSpot(placed.area, placed.chip.want, placed.chip.text))
    return hot_spots


def _font_of_chip(chip: LineChip, ink: DrawingStyle) -> QFont:
    if chip.is_monospaced:
        return ink.chip_mono
    return ink.chip


def measure_chip(chip: LineChip, ink: DrawingStyle) -> QSizeF:
    metrics = QFontMetricsF(_font_of_chip(chip, ink))
    words_width = metrics.horizontalAdvance(chip.text)
    width = round(words_width + ink.scaled_pixels(16))
    height = ink.scaled_pixels(20)
    return QSizeF(width, height)


def draw_chip(painter: QPainter, place: QRectF, chip: LineChip, ink: DrawingStyle) -> None:
    if chip.strong:
        ink.theme.fill_surface(painter, place, "accent_soft", ink.scaled_pixels(5))
        painter.setPen(ink.token_colour("accent"))
    else:
        # A line of one pixel is sharp only in the middle of a pixel.
        frame = place.adjusted(0.5, 0.5, -0.5, -0.5)
        ink.draw_frame(painter, frame, "", 5)
        painter.setPen(ink.token_colour("muted"))
    font = _font_of_chip(chip, ink)
    painter.setFont(font)
    side = ink.scaled_pixels(7)
    room = place.width() - 2 * side + 1.5  # Rounded widths may be a pixel too narrow.
    metrics = QFontMetricsF(font)
    shown_text = metrics.elidedText(chip.text, Qt.TextElideMode.ElideRight, room)
    painter.drawText(place, Qt.AlignmentFlag.AlignCenter, shown_text)


def draw_status_dot(
    painter: QPainter, place: QRectF, status: CallStatus, ink: DrawingStyle
) -> None:
    """Draws a dot. Filled: done. Dashed ring: cached. Amber: waits for the user. Words
    beside it say the same.
    """
    match status:
        case CallStatus.FAILED:
            colour = ink.token_colour("danger")
        case CallStatus.REFUSED:
            colour = ink.token_colour("faint")
        case CallStatus.WAITING:
            colour = ink.token_colour("handover")
        case _:
            colour = ink.theme.fill_colour_of_kind(ContextKind.OUTPUT)
    if status is CallStatus.CACHED:
        draw_dashed_ring(painter, place, colour)
    elif status is CallStatus.REFUSED:
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
