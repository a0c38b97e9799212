"""The picture of a conversation: its kinds of context as areas, what it cost, its folds, and lanes for what happened.

Steps stand at equal distances, so that a night without work takes no room; the dates stand below.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QMouseEvent, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from helix_desktop.engine.blocks import ContextKind
from helix_desktop.engine.facts import FoldKind
from helix_desktop.engine.request_costs import RequestCost
from helix_desktop.gui.context_meter import context_kind_name, describe_token_count, format_token_count
from helix_desktop.gui.shared.figure_formats import format_date_and_time, format_dollars, format_short_day_and_time
from helix_desktop.gui.shared.fold_descriptions import context_kind_of_fold
from helix_desktop.gui.shared.policy_names import FoldThreshold
from helix_desktop.gui.shared.step_plot import MinMaxPyramid, StepPlot, compute_axis_ticks
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline, TimelineEvent, TimelineLane
from helix_desktop.gui.timeline.fold_sentences import describe_event_briefly, describe_event_title, describe_marked_fact
from helix_desktop.gui.timeline.request_cost_bars import RequestCostBars
from helix_desktop.gui.translation import format_count, format_number, tr

HEIGHT = 390
LEFT, RIGHT, LEGEND, LANE, DATES = 60, 60, 30, 15, 26  # In pixels: sizes of what surrounds the plot.
SMALL = 11
MARK_GAP = 4  # In pixels. Marks in the same lane are at least this far apart.
REACH = 6  # In pixels. The pointer reaches a mark within this distance.
LANE_COLOURS = {TimelineLane.YOU: "conversation", TimelineLane.FILES: "output", TimelineLane.ERRORS: "danger"}


class TimelineChart(StepPlot):
    """`chosen` carries the event whose mark was clicked, `step_chosen` the seq of a step or of a mark below."""

    chosen = Signal(object)
    step_chosen = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent, height=HEIGHT)
        self._thresholds: Sequence[FoldThreshold] = ()
        self._pointer_y = 0.0
        self._set_story_to_plot(ConversationTimeline())
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setAccessibleName(tr("Tokens over time"))

    def minimumSizeHint(self) -> QSize:
        return QSize(240, self._theme.zoomed_pixels(HEIGHT // 2))

    def _set_story_to_plot(self, story: ConversationTimeline) -> None:
        self._story = story
        self._layers = [MinMaxPyramid(layer) for layer in story.layers]
        self._costs = MinMaxPyramid(story.dollars)
        self._selected: TimelineEvent | None = None
        self._bars = RequestCostBars()

    def plot_timeline(self, story: ConversationTimeline, thresholds: Sequence[FoldThreshold]) -> None:
        self._set_story_to_plot(story)
        self._thresholds, self._drawn = thresholds, None
        self._hover, self._whole = -1, True
        self._update_grown_plot()

    def extend_timeline_plot(self) -> None:
        for pyramid in (*self._layers, self._costs):
            pyramid.add_new_values()
        self._update_grown_plot()

    def show_request_costs(self, requests: Sequence[RequestCost]) -> None:
        """Bars of what each request cost, until another conversation is shown; none removes them."""
        self._bars, self._drawn = RequestCostBars(requests, self._story.seqs), None
        self.update()

    def _update_grown_plot(self) -> None:
        if self._whole:
            self._fit_span_to_points()
        points, events = self._story.points, self._story.events
        if points:
            # The first event can be the conversation's start, which is not a fold.
            begun = bool(events) and not events[0].current_folds
            steps = format_count(self._story.steps[-1], "{n} step", "{n} steps")
            folds = format_count(len(events) - begun, "{n} fold", "{n} folds")
            words = tr(
                "{steps}, {folds}, now {tokens}", steps=steps, folds=folds, tokens=describe_token_count(points[-1])
            )
            self.setAccessibleDescription(words)
        self.update()

    def mark_selected_event(self, event: TimelineEvent | None) -> None:
        self._selected = event
        if event is not None and not self._first <= event.point <= self._last:
            span = self._last - self._first
            self._zoom_to_point_range(event.point - span / 2, event.point + span / 2)
        self.update()

    @property
    def _count_points(self) -> int:
        return len(self._story.points)

    def _empty_plot_text(self) -> str:
        return tr("A chart of tokens over time will appear here.")

    @property
    def _top_tokens(self) -> float:
        """The whole window where the conversation fills a good part of it; room above the highest point elsewhere."""
        sampled = self._layers[-1].sample_lows_and_highs(0, self._count_points, 64)
        highest = max((high for _, _, high in sampled), default=0)
        window = self._story.model_window
        return max(highest * 1.25, window if window < 3 * highest else 0, 1)

    @property
    def _top_dollars(self) -> float:
        return self._story.dollars[-1] * 1.25 if self._count_points else 0.0

    @property
    def _plot_area(self) -> QRectF:
        pixels = self._theme.zoomed_pixels
        right = pixels(RIGHT if self._top_dollars else 16)
        below, rows = pixels(LANE * len(TimelineLane) + DATES), 2 if self._bars.named_parts() else 1
        return QRectF(self.rect()).adjusted(pixels(LEFT), pixels(LEGEND) * rows, -right, -below)

    # --- Drawing the chart

    def _plot_cache_key(self) -> object:
        points, marks = self._story.points, self._story.marks
        return len(points), points[-1], len(self._story.events), [len(seqs) for _, seqs in marks.values()]

    def _draw_plot_background(self, painter: QPainter, top: float) -> None:
        painter.setFont(self._theme.build_font(SMALL))
        self._draw_axes(painter, top)
        self._draw_legends(painter)
        painter.setPen(self._theme.colour_of_token("faint"))
        for x, words in self._dates_in_sight(painter.fontMetrics()):
            painter.drawText(QPointF(x, self.height() - self._theme.zoomed_pixels(12)), words)
        area = self._plot_area
        painter.setClipRect(area.adjusted(0, 0, 1, 0))
        painter.setPen(Qt.PenStyle.NoPen)
        # Starts with the highest layer, because each layer is drawn over the ones before.
        for kind, pyramid in reversed(list(zip(ContextKind, self._layers, strict=True))):
            edge = [QPointF(x, self._y_of_token_count(tokens, top)) for x, tokens in self._highest_points(pyramid)]
            ends = QPointF(edge[0].x(), area.bottom() - 3), QPointF(edge[-1].x(), area.bottom() - 3)
            painter.setBrush(self._theme.fill_colour_of_kind(kind))
            painter.drawPolygon(QPolygonF([ends[0], *edge, ends[1]]))
        for words, kind, share in self._thresholds:
            if 0 < share * self._story.model_window <= top:
                colours = self._theme.fill_colour_of_kind(kind), self._theme.text_colour_of_kind(kind)
                self._draw_level(painter, share * self._story.model_window, top, colours, words)
        if self._top_dollars:
            most = self._top_dollars
            line = [QPointF(x, self._y_of_token_count(y, most)) for x, y in self._highest_points(self._costs)]
            painter.setPen(QPen(self._theme.colour_of_token("text"), 1.5, Qt.PenStyle.DashLine))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawPolyline(QPolygonF(line))
        self._bars.draw_cost_bars(painter, self._theme, area, (self._first, self._last), self._pixel_x_of_point)
        painter.setClipRect(QRectF(area.left(), 0, area.width() + 2, self.height()))
        self._draw_event_marks(painter, top)
        self._draw_lane_marks(painter)

    def _highest_points(self, pyramid: MinMaxPyramid) -> Iterator[tuple[float, float]]:
        """The pixels of the highest values, from the left edge to the right one."""
        for place, _, high in pyramid.sample_lows_and_highs(self._first - 1, self._last + 1, self.width()):
            yield self._pixel_x_of_point(place), high

    def _draw_axes(self, painter: QPainter, top: float) -> None:
        area, faint = self._plot_area, self._theme.colour_of_token("faint")
        right_words = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for tokens in (0, *compute_axis_ticks(top)):
            y = round(self._y_of_token_count(tokens, top)) + 0.5
            painter.setPen(QPen(self._theme.colour_of_token("line"), 1))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            painter.setPen(faint)
            painter.drawText(QRectF(0, y - 10, area.left() - 8, 20), right_words, format_token_count(tokens))
        cents = compute_axis_ticks(self._top_dollars * 10_000) if self._top_dollars else []
        for hundredths in (0, *cents) if cents else ():
            y = self._y_of_token_count(hundredths / 10_000, self._top_dollars)
            place = QRectF(area.right() + 8, y - 10, self.width() - area.right() - 8, 20)
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, format_dollars(hundredths / 10_000))
        names = {TimelineLane.YOU: tr("You"), TimelineLane.FILES: tr("Files"), TimelineLane.ERRORS: tr("Errors")}
        for lane, name in names.items():
            painter.drawText(self._lane_place(lane).adjusted(-area.left(), 0, -8, 0), right_words, name)

    def _lane_place(self, lane: TimelineLane) -> QRectF:
        """Ends at the left edge of the lane's marks."""
        area, height = self._plot_area, self._theme.zoomed_pixels(LANE)
        return QRectF(area.left(), area.bottom() + 3 + list(TimelineLane).index(lane) * height, 0, height)

    def _draw_legends(self, painter: QPainter) -> None:
        """The kinds there are, and below them the parts of the bars."""
        layers = self._story.layers
        shown = [
            kind for at, kind in enumerate(ContextKind) if (layers[at] != layers[at - 1] if at else any(layers[0]))
        ]
        kinds = [(context_kind_name(kind), self._theme.fill_colour_of_kind(kind)) for kind in shown]
        bars = [(name, self._theme.colour_of_token(colour)) for name, colour in self._bars.named_parts()]
        self._draw_legend(painter, kinds, 0.5, "- - -  " + tr("cost") if self._top_dollars else "")
        self._draw_legend(painter, bars, 1.5)

    def _draw_legend(
        self, painter: QPainter, entries: Sequence[tuple[str, QColor]], row: float, last: str = ""
    ) -> None:
        """From the right; nothing where there is no room for all."""
        metrics, gap = painter.fontMetrics(), self._theme.zoomed_pixels(22)
        widths = [metrics.horizontalAdvance(words) + gap for words, _ in entries]
        y = self._theme.zoomed_pixels(LEGEND) * row
        x = self._plot_area.right() - sum(widths) - metrics.horizontalAdvance(last)
        if x < self._plot_area.left():
            return
        for (words, colour), width in zip(entries, widths, strict=True):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour)
            painter.drawEllipse(QPointF(x + 4, y), 4, 4)
            painter.setPen(self._theme.colour_of_token("muted"))
            painter.drawText(QPointF(x + 13, y + 4), words)
            x += width
        painter.drawText(QPointF(x, y + 4), last)

    def _dates_in_sight(self, metrics: QFontMetrics) -> Iterator[tuple[float, str]]:
        """What stands below the lanes and where; each minute once, as a short one has few."""
        area, last, before, now = self._plot_area, -1.0, 0.0, time.time()
        for share in (0, 0.25, 0.5, 0.75, 1):
            point = self._nearest_point(area.left() + share * area.width())
            then = self._story.times[point]
            words = format_short_day_and_time(then, before, now)
            width = metrics.horizontalAdvance(words) + 2
            x = min(max(self._pixel_x_of_point(point) - share * width, area.left()), area.right() - width)
            if x > last and then // 60 != before // 60:
                yield x, words
                before, last = then, x + width + 12

    def _draw_lane_marks(self, painter: QPainter) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        for lane, (points, _) in self._story.marks.items():
            place, taken = self._lane_place(lane), -10.0
            painter.setBrush(self._theme.colour_of_token(LANE_COLOURS[lane]))
            step = max(1, len(points) // (4 * max(1, self.width())))
            for at in range(bisect_left(points, self._first), bisect_left(points, self._last + 1), step):
                x = self._pixel_x_of_point(points[at])
                if x - taken >= MARK_GAP:
                    taken = x
                    painter.drawRoundedRect(QRectF(x - 1.5, place.top() + 3, 4, place.height() - 5), 1.5, 1.5)

    def _draw_choice_and_pointer(self, painter: QPainter, top: float) -> None:
        chosen = self._selected
        if chosen is not None and chosen.current_folds and self._first <= chosen.point <= self._last:
            self._draw_event_mark(painter, chosen, top, 6.5)
        if not 0 <= self._hover < self._count_points:
            return
        mark = self._find_lane_mark()
        if mark is not None:
            words = describe_marked_fact(self._story.history, mark[1])
            self._draw_label(painter, self._pixel_x_of_point(mark[0]), f"{words}\n")
            return
        dot = (self._story.points[self._hover], self._theme.fill_colour_of_kind(ContextKind.CONVERSATION))
        self._draw_pointer(painter, top, [dot], self.describe_point(self._hover))

    def _draw_event_marks(self, painter: QPainter, top: float) -> None:
        """Draws a mark for each fold in sight; where marks would overlap, only the first."""
        events, taken = self._story.events, -10.0
        first = bisect_left(events, self._first - 1, key=lambda event: event.point)
        last = bisect_left(events, self._last + 1, key=lambda event: event.point)
        for event in events[first : last : max(1, (last - first) // max(1, self.width() // 3))]:
            x = self._pixel_x_of_point(event.point)
            if event.fold_kind not in (None, FoldKind.EXCERPT) and x - taken >= self._theme.zoomed_pixels(8):
                taken = x
                self._draw_event_mark(painter, event, top, 4.5)

    def _draw_event_mark(self, painter: QPainter, event: TimelineEvent, top: float, size: float) -> None:
        """A ring where the fold began, and a line from there to the ground."""
        colour = self._theme.fill_colour_of_kind(context_kind_of_fold(event.fold_kind or FoldKind.MARKER))
        at = min(event.point, self._count_points - 1)
        tokens = max(self._story.points[at], self._story.points[max(0, at - 1)])
        place = QPointF(self._pixel_x_of_point(event.point), self._y_of_token_count(tokens, top))
        painter.setPen(QPen(colour, 1.5))
        painter.drawLine(place, QPointF(place.x(), self._plot_area.bottom() - 3))
        painter.setPen(QPen(colour, 2.5))
        painter.setBrush(self._theme.colour_of_token("panel"))
        painter.drawEllipse(place, size, size)

    def describe_point(self, point: int) -> str:
        """A step in words; at a fold what it did and what it saved."""
        story = self._story
        near = self._find_event_near(point)
        if near is not None:
            story.credit_savings_to_folds()
            title = f"{describe_event_title(near)} · {format_date_and_time(near.time)}"
            return "\n".join([title, *describe_event_briefly(near, story.model_window).split(" · ")])
        words = tr(
            "step {n} · {tokens} tokens · {when}",
            n=format_number(story.steps[point]),
            tokens=format_token_count(story.points[point]),
            when=format_date_and_time(story.times[point]),
        )
        spent = story.dollars[point]
        paid = tr("{cost} so far", cost=format_dollars(spent)) if spent else ""
        return "\n".join(filter(None, (words, paid, self._bars.describe_costs(point))))

    def _find_event_near(self, point: float, reach: float = 0.5) -> TimelineEvent | None:
        events = self._story.events
        at = bisect_left(events, point - reach, key=lambda event: event.point)
        near = [event for event in events[at : at + 40] if event.current_folds and abs(event.point - point) <= reach]
        return min(near, key=lambda event: abs(event.point - point)) if near else None

    def _find_lane_mark(self) -> tuple[int, int] | None:
        """The point and the seq of the mark under the pointer."""
        for lane, (points, seqs) in self._story.marks.items():
            place = self._lane_place(lane)
            if place.top() <= self._pointer_y < place.bottom() and points:
                at = min(bisect_left(points, self._hover), len(points) - 1)
                near = min(range(max(0, at - 1), min(at + 2, len(points))), key=lambda i: abs(points[i] - self._hover))
                if abs(points[near] - self._hover) * self._pixels_per_point <= REACH:
                    return points[near], seqs[near]
        return None

    @property
    def _pixels_per_point(self) -> float:
        return self._plot_area.width() / max(self._last - self._first, 1e-9)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._pointer_y = event.position().y()
        super().mouseMoveEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if self._moved or not self._count_points:
            return
        self._hover, self._pointer_y = self._nearest_point(event.position().x()), event.position().y()
        mark = self._find_lane_mark()
        near = self._find_event_near(self._point_at(event.position().x()), max(0.5, REACH / self._pixels_per_point))
        if mark is not None:
            self.step_chosen.emit(mark[1])
        elif near is not None:
            self.chosen.emit(near)
        else:
            self.step_chosen.emit(self._story.seqs[self._hover])
