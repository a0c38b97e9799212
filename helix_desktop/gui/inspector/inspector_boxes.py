"""The boxes of the inspector and the meter's panel: the meter, and lines with a figure."""

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from helix_desktop.engine.context_usage import WindowMeter
from helix_desktop.engine.message_cost_forecast import NextMessageEstimate
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.state.moment import Moment
from helix_desktop.gui.common.policy_names import FoldThreshold
from helix_desktop.gui.common.savings_sentences import describe_savings_of
from helix_desktop.gui.context_meter import (
    colour_of_count_difference,
    context_kind_name,
    describe_count_difference,
    describe_meter,
    describe_token_count,
    describe_window_fill,
    format_token_count,
    has_unknown_window,
    paint_meter_bar,
)
from helix_desktop.gui.inspector.inspector_figures import (
    build_cost_rows,
    build_next_message_row,
    build_sent_rows,
    describe_next_message,
    name_shown_handovers,
)
from helix_desktop.gui.transcript.basic_boxes import (
    BoxAction,
    HotSpot,
    LayoutBox,
    build_heading_box,
    build_note_box,
)
from helix_desktop.gui.transcript.call_and_fold_boxes import draw_dashed_ring
from helix_desktop.gui.transcript.chat_actions import ConversationAct
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks
from helix_desktop.gui.translation import tr

_MIDDLE = Qt.AlignmentFlag.AlignVCenter


class MeterBox(LayoutBox):
    """A bar of the window's content by kind, with the thresholds below it."""

    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        meter: WindowMeter,
        thresholds: Sequence[FoldThreshold],
        *,
        gap: float,
    ) -> None:
        super().__init__(ink, width, gap=gap)
        words = " · ".join(words for words, _kind, _share in thresholds)
        self._marked_shares = [share for _words, _kind, share in thresholds]
        self._parts = tuple(meter.parts.items())
        self._window = meter.window
        self._words = words
        self._share = describe_window_fill(self._parts, meter.window)
        # The bar, a gap, and the line of words below them.
        self.height = ink.scaled_pixels(12 + 6 + 17)
        counted = tuple(meter.counted.items())
        self.text = describe_meter(
            self._parts, meter.window, is_estimate=meter.is_estimate, counted=counted
        )

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        ink = self.ink
        bar = QRectF(0, 0, self.width, ink.scaled_pixels(12))
        paint_meter_bar(painter, bar, self._parts, self._window, ink.theme)

        # Each point that the words below name is a mark on the bar.
        mark_pen = QPen(ink.token_colour("text"), 1.5)
        painter.setPen(mark_pen)
        for marked_share in self._marked_shares:
            x = bar.left() + min(marked_share, 1.0) * bar.width()
            above_bar = QPointF(x, bar.top() - 2)
            below_bar = QPointF(x, bar.bottom() + 2)
            painter.drawLine(above_bar, below_bar)

        painter.setFont(ink.theme.build_font(11))
        painter.setPen(ink.token_colour("faint"))
        metrics = QFontMetricsF(painter.font())
        elide_right = Qt.TextElideMode.ElideRight
        line_top = ink.scaled_pixels(18)
        line_below = QRectF(0, line_top, self.width, ink.scaled_pixels(17))
        share = metrics.elidedText(self._share, elide_right, self.width)
        painter.drawText(line_below, _MIDDLE | Qt.AlignmentFlag.AlignLeft, share)
        # The thresholds get the room that the share leaves.
        room = self.width - metrics.horizontalAdvance(share) - ink.scaled_pixels(8)
        thresholds = metrics.elidedText(self._words, elide_right, room)
        painter.drawText(line_below, _MIDDLE | Qt.AlignmentFlag.AlignRight, thresholds)


class FigureBox(LayoutBox):
    """Words at the left, a figure at the right. `dot` is the kind's colour; `ring`
    draws it as a ring. `more` stands beside the figure while the pointer is on the line.
    `mono`: the words are code. `wraps`: words that are too long go on in a second line, not cut.
    """

    def __init__(  # noqa: PLR0913 - all but the text are keywords with defaults
        self,
        ink: DrawingStyle,
        width: float,
        words: str,
        figure: str,
        *,
        dot: QColor | None = None,
        ring: bool = False,
        mono: bool = False,
        accent: bool = False,
        act: BoxAction | None = None,
        more: str = "",
        wraps: bool = True,
        gap: float = 0.0,
    ) -> None:
        super().__init__(ink, width, gap=gap)
        self._words = words
        self._figure = figure
        # A name of a file or a tool is cut at its end, and words are broken between two of them.
        self._is_on_one_line = mono or not wraps
        self._dot = dot
        self._ring = ring
        self._mono = mono
        self._accent = accent
        self._more = more
        self.height = ink.scaled_pixels(27.5)
        if not self._is_on_one_line:
            self.height += self._height_of_further_lines()
        self.text = f"{words}  {figure}"
        if act is not None:
            self.hot_spots = [HotSpot(QRectF(0, 0, width, self.height), act, self.text)]

    @property
    def _words_left(self) -> float:
        if self._dot is None:
            return 0.0
        return self.ink.scaled_pixels(16)

    def _room_beside(self, figure: str) -> float:
        """The figure is always complete, so the words get the room that it leaves."""
        figure_width = QFontMetricsF(self.ink.text).horizontalAdvance(figure)
        return self.width - self._words_left - figure_width - self.ink.scaled_pixels(10)

    def _height_of_further_lines(self) -> float:
        metrics = QFontMetricsF(self.ink.text)
        room_width = max(1.0, self._room_beside(self._figure))
        room = QRectF(0, 0, room_width, 10_000)
        needed = metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, self._words)
        return max(0.0, needed.height() - metrics.height())

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        ink = self.ink
        line_rect = QRectF(0, 0, self.width, self.height)
        if near and self.hot_spots:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            ink.theme.fill_surface(painter, line_rect.adjusted(-6, 0, 6, 0), "selected", 6)
        if self._dot is not None:
            self._draw_dot(painter, self._dot)

        figure = self._figure
        if near and self._more:
            figure += f" · {self._more}"
        figure_colour = "muted"
        if self._accent:
            figure_colour = "accent"
        at_right = _MIDDLE | Qt.AlignmentFlag.AlignRight
        ink.draw_words(painter, line_rect, figure, ink.text, figure_colour, at_right)

        font = ink.text
        if self._mono:
            font = ink.mono
        room = self._room_beside(figure)
        words = self._words
        if self._is_on_one_line or figure != self._figure:
            words = QFontMetricsF(font).elidedText(words, Qt.TextElideMode.ElideRight, room)
        words_rect = QRectF(self._words_left, 0, room + 2, self.height)
        painter.setFont(font)
        painter.setPen(ink.token_colour("text"))
        painter.drawText(words_rect, _MIDDLE | Qt.TextFlag.TextWordWrap, words)

    def _draw_dot(self, painter: QPainter, colour: QColor) -> None:
        if self._ring:
            size = self.ink.scaled_pixels(9)
            draw_dashed_ring(painter, QRectF(0, (self.height - size) / 2, size, size), colour)
            return
        size = self.ink.scaled_pixels(8)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour)
        painter.drawEllipse(QRectF(0, (self.height - size) / 2, size, size))


def build_context_boxes(
    ink: DrawingStyle,
    width: float,
    state: Moment,
    meter: WindowMeter,
    thresholds: Sequence[FoldThreshold],
) -> Iterator[LayoutBox]:
    """Builds boxes for how full the window is and with what. Empty kinds are left out."""
    used = format_token_count(meter.used)
    window = format_token_count(meter.window)
    title = tr("Context · {used} of {window}", used=used, window=window)
    if has_unknown_window(state):
        title = tr("Context · {used}", used=describe_token_count(meter.used))
    elif meter.is_estimate:
        title = tr("Context · ≈ {used} of {window}", used=used, window=window)
    yield build_heading_box(ink, width, title)
    if not has_unknown_window(state):
        yield MeterBox(ink, width, meter, thresholds, gap=10)
    gap = 12.0
    for kind in ContextKind:
        tokens = meter.counted.get(kind, 0)
        if tokens == 0:
            continue
        name = context_kind_name(kind)
        if kind is ContextKind.HANDOVER:
            name = name_shown_handovers(state)
        colour = ink.theme.fill_colour_of_kind(kind)
        yield FigureBox(ink, width, name, format_token_count(tokens), dot=colour, gap=gap)
        gap = 0.0

    billed_parts = tuple(meter.parts.items())
    counted_parts = tuple(meter.counted.items())
    difference = describe_count_difference(
        billed_parts, counted_parts, is_estimate=meter.is_estimate
    )
    if difference is not None:
        colour = colour_of_count_difference(ink.theme)
        yield FigureBox(ink, width, difference.words, difference.figure, dot=colour)

    recallable = state.count_recallable_tokens()
    if recallable:
        name = name_recallable_outputs(state)
        colour = ink.theme.fill_colour_of_kind(ContextKind.OUTPUT)
        yield FigureBox(ink, width, name, format_token_count(recallable), dot=colour, ring=True)


def name_recallable_outputs(state: Moment) -> str:
    """Names the outputs that can be recalled. The chat says the size of each, so it must be said
    if equal ones count once.
    """
    if state.has_equal_recallable_outputs():
        return tr("Originals of outputs, equal ones once")
    return tr("Originals of shortened outputs")


def build_next_message_boxes(
    ink: DrawingStyle,
    width: float,
    estimate: NextMessageEstimate,
    words_on_cache: Sequence[str],
    *,
    is_assumed_free: bool,
) -> Iterator[LayoutBox]:
    """Builds a line for what the next message takes, and one for what that is made of."""
    row = build_next_message_row(estimate, is_assumed_free=is_assumed_free)
    yield FigureBox(ink, width, row.words, row.figure, gap=10)
    notes = [*describe_next_message(estimate), *words_on_cache]
    if notes:
        yield build_note_box(ink, width, " · ".join(notes), gap=0)


def build_cost_boxes(
    ink: DrawingStyle,
    width: float,
    state: Moment,
    agents_cost: float = 0.0,
    *,
    asks_for_price: bool,
    has_details: bool = False,
) -> Iterator[LayoutBox]:
    """Builds boxes for what was paid, and the sentence that says what was saved. `asks_for_price`:
    with a link to set the unknown price of the model that is sent the next message.
    `has_details`: with what was sent.
    """
    figures = state.savings_until_moment()
    rows = build_cost_rows(figures, agents_cost)
    if has_details:
        rows = build_sent_rows(figures) + rows
    gap = 10.0
    for row in rows:
        yield FigureBox(ink, width, row.words, row.figure, gap=gap)
        gap = 0.0
    if asks_for_price:
        # The composer already says that no price is known. Those words would leave no
        # room for the figure's name here.
        words = tr("Cost so far")
        if figures.paid or agents_cost:
            words = tr("Price of the model")
        yield FigureBox(
            ink,
            width,
            words,
            tr("Set the price…"),
            accent=True,
            act=ConversationAct.SET_MODEL_PRICE,
            gap=gap,
        )
    sentence = describe_savings_of(state, agents_cost)
    if sentence:
        yield build_note_box(ink, width, sentence, colour="text", gap=6)
