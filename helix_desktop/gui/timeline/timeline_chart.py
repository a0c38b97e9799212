"""The chart of a conversation: its kinds of context as areas, its cost, its folds, and lanes for
what happened.

Steps have equal distances, so that a night without work takes no room; the dates are below.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QMouseEvent, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.request_costs import RequestCost
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import (
    format_date_and_time,
    format_dollars,
    format_short_day_and_time,
)
from helix_desktop.gui.common.policy_names import FoldThreshold
from helix_desktop.gui.common.step_plot import (
    MinMaxPyramid,
    PlotScale,
    StepPlot,
    compute_axis_ticks,
)
from helix_desktop.gui.context_meter import (
    colour_of_count_difference,
    context_kind_name,
    describe_token_count,
    format_token_count,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline import fold_sentences
from helix_desktop.gui.timeline.conversation_timeline import (
    ConversationTimeline,
    TimelineEvent,
    TimelineLane,
)
from helix_desktop.gui.timeline.request_cost_bars import RequestCostBars
from helix_desktop.gui.timeline.timeline_marks import CHOSEN_RING, LANE, REACH, TimelineMarks
from helix_desktop.gui.translation import format_count, format_number, tr

HEIGHT = 390
LEAST_PLOT = 90  # The least height of the plot in a low page, in pixels.
# The room around the plot, in pixels.
LEFT = 60
RIGHT = 60
LEGEND = 30
DATES = 26
SMALL = 11  # The size of the letters, in pixels.
_TO_THE_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@dataclass(frozen=True, slots=True)
class LegendRow:
    """Names with the colours of what they are in the plot; behind them the words for the cost."""

    names_and_colours: tuple[tuple[str, QColor], ...] = ()
    cost_words: str = ""


class TimelineChart(StepPlot):
    """`chosen` carries the clicked event, `step_chosen` the seq of a step or of a mark
    below the plot.
    """

    chosen = Signal(object)
    step_chosen = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        empty_text = tr("A chart of tokens over time will appear here.")
        super().__init__(theme, parent, height=HEIGHT, empty_text=empty_text)
        self._thresholds: Sequence[FoldThreshold] = ()
        self._pointer_y = 0.0
        self._set_story_to_plot(ConversationTimeline())
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setAccessibleName(tr("Tokens over time"))

    def minimumSizeHint(self) -> QSize:
        return QSize(240, self._theme.zoomed_pixels(HEIGHT // 2))

    def least_readable_height(self) -> int:
        """Returns the height that leaves the plot enough room between legends, lanes and dates."""
        height_around_plot = self.height() - self._plot_area.height()
        return round(height_around_plot) + self._theme.zoomed_pixels(LEAST_PLOT)

    def _set_story_to_plot(self, story: ConversationTimeline) -> None:
        self._story = story
        self._layers = [MinMaxPyramid(layer) for layer in story.layers]
        self._costs = MinMaxPyramid(story.dollars)
        self._selected: TimelineEvent | None = None
        self._bars = RequestCostBars()
        self._marks = TimelineMarks(story, self._theme)

    def plot_timeline(
        self, story: ConversationTimeline, thresholds: Sequence[FoldThreshold]
    ) -> None:
        self._set_story_to_plot(story)
        self._thresholds = thresholds
        self._drawn = None
        self._hover = -1
        self._whole = True
        self._update_grown_plot()

    def extend_timeline_plot(self) -> None:
        for layer in self._layers:
            layer.add_new_values()
        self._costs.add_new_values()
        self._update_grown_plot()

    def show_thresholds(self, thresholds: Sequence[FoldThreshold]) -> None:
        """Shows where the policy shortens now. That depends on the model, which may be chosen
        after the conversation was opened.
        """
        if list(thresholds) != list(self._thresholds):
            self._thresholds = thresholds
            self._drawn = None
            self.update()

    def show_request_costs(self, requests: Sequence[RequestCost]) -> None:
        """Shows a bar for each request's cost until another conversation is shown. An
        empty list removes them.
        """
        self._bars = RequestCostBars(requests, self._story.seqs)
        self._drawn = None
        self.update()

    def _update_grown_plot(self) -> None:
        """Redraws the chart after the timeline grew, and tells a screen reader what it
        shows now.
        """
        if self._whole:
            self._set_span_to_all_points()
        points = self._story.points
        if points:
            fold_count = len(self._story.folded_events)
            words = tr(
                "{steps}, {folds}, now {tokens}",
                steps=format_count(self._story.steps[-1], "{n} step", "{n} steps"),
                folds=format_count(fold_count, "{n} place shortened", "{n} places shortened"),
                tokens=describe_token_count(points[-1]),
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
    def _point_count(self) -> int:
        return len(self._story.points)

    @property
    def _top_tokens(self) -> float:
        """The window if a good part of it is filled, or else a little more than the
        highest point.
        """
        sampled = self._layers[-1].sample_lows_and_highs(0, self._point_count, 64)
        highest = max((high for _, _, high in sampled), default=0)
        top = max(highest * 1.25, 1)
        window = self._story.model_window
        if window < 3 * highest:
            top = max(top, window)
        return top

    @property
    def _top_dollars(self) -> float:
        if not self._point_count:
            return 0.0
        return self._story.dollars[-1] * 1.25

    @property
    def _plot_area(self) -> QRectF:
        pixels = self._theme.zoomed_pixels
        room_at_right = pixels(16)
        if self._top_dollars:  # The prices stand at the right.
            room_at_right = pixels(RIGHT)
        room_below = pixels(LANE * len(TimelineLane) + DATES)
        area = QRectF(self.rect()).adjusted(pixels(LEFT), 0, -room_at_right, -room_below)
        area.setTop(pixels(LEGEND) * len(self._build_legend_rows(area.width())))
        return area

    # --- Drawing the chart

    def _plot_cache_key(self) -> object:
        points = self._story.points
        mark_counts = [len(marks.seqs) for marks in self._story.marks.values()]
        return (len(points), points[-1], len(self._story.events), mark_counts)

    def _draw_without_pointer(self, painter: QPainter, scale: PlotScale) -> None:
        """Draws the axes and legends around the plot, then what is in it, and the marks on top."""
        painter.setFont(self._theme.build_font(SMALL))
        self._draw_axes(painter, scale)
        self._draw_legends(painter)
        painter.setPen(self._theme.colour_of_token("faint"))
        dates_y = self.height() - self._theme.zoomed_pixels(12)
        for x, words in self._visible_dates_with_positions(painter.fontMetrics(), scale):
            painter.drawText(QPointF(x, dates_y), words)

        area = scale.area
        painter.setClipRect(area.adjusted(0, 0, 1, 0))
        self._draw_layers(painter, scale)
        self._draw_thresholds(painter, scale)
        if self._top_dollars:
            dollar_scale = replace(scale, top=self._top_dollars)
            self._draw_cost_curve(painter, dollar_scale)
        self._bars.draw_cost_bars(painter, self._theme, scale)

        # The ring of a mark at the first or the last point may stand out of the plot.
        left_with_ring = area.left() - CHOSEN_RING
        width_with_rings = area.width() + 2 * CHOSEN_RING
        plot_with_rings = QRectF(left_with_ring, 0, width_with_rings, self.height())
        painter.setClipRect(plot_with_rings)
        self._marks.draw_fold_marks(painter, scale, self.width())
        self._marks.draw_lane_marks(painter, scale, self.width())

    def _draw_cost_curve(self, painter: QPainter, scale: PlotScale) -> None:
        painter.setPen(QPen(self._theme.colour_of_token("text"), 1.5, Qt.PenStyle.DashLine))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPolyline(self._highest_points(self._costs, scale))

    def _draw_layers(self, painter: QPainter, scale: PlotScale) -> None:
        """Draws the kinds of context, the highest first, because each is drawn over the one before."""
        painter.setPen(Qt.PenStyle.NoPen)
        bottom = scale.area.bottom() - 3
        names_and_colours = self._names_and_colours_of_layers()
        colours_and_layers = zip(names_and_colours, self._layers, strict=True)
        for (_name, colour), layer in reversed(list(colours_and_layers)):
            edge = self._highest_points(layer, scale)
            outline = [QPointF(edge[0].x(), bottom)]
            outline += edge
            outline.append(QPointF(edge[-1].x(), bottom))
            painter.setBrush(colour)
            painter.drawPolygon(QPolygonF(outline))

    def _names_and_colours_of_layers(self) -> list[tuple[str, QColor]]:
        names_and_colours: list[tuple[str, QColor]] = []
        for kind in ContextKind:
            names_and_colours.append(
                (context_kind_name(kind), self._theme.fill_colour_of_kind(kind))
            )
        # A layer can only be what the model counts more, as no height is negative.
        name_of_difference = tr("What the model counts more")
        of_no_kind = (name_of_difference, colour_of_count_difference(self._theme))
        names_and_colours.append(of_no_kind)
        return names_and_colours

    def _draw_thresholds(self, painter: QPainter, scale: PlotScale) -> None:
        for words, kind, share in self._thresholds:
            tokens = share * self._story.model_window
            if 0 < tokens <= scale.top:
                line_colour = self._theme.fill_colour_of_kind(kind)
                text_colour = self._theme.text_colour_of_kind(kind)
                colours = (line_colour, text_colour)
                self._draw_labelled_token_line(painter, tokens, scale, colours, words)

    def _highest_points(self, pyramid: MinMaxPyramid, scale: PlotScale) -> list[QPointF]:
        """Returns the highest values in the plot, from left to right."""
        # One point more at each side, so that the line reaches the edges of the plot.
        sampled = pyramid.sample_lows_and_highs(scale.first - 1, scale.last + 1, self.width())
        edge: list[QPointF] = []
        for point, _lowest, highest in sampled:
            x = scale.x_of_point(point)
            y = scale.y_of_tokens(highest)
            edge.append(QPointF(x, y))
        if len(edge) == 1:  # A single step has no width of its own.
            right_end = QPointF(scale.area.right(), edge[0].y())
            edge.append(right_end)
        return edge

    def _draw_axes(self, painter: QPainter, scale: PlotScale) -> None:
        """Draws the lines and labels of the token axis, the dollar axis if costs are
        shown, and the names of the rows of marks.
        """
        area = scale.area
        line_height = painter.fontMetrics().height()
        # More labels would touch each other.
        most_labels = min(7, int(area.height() / line_height / 1.5))
        label_width = area.left() - 8
        line_pen = QPen(self._theme.colour_of_token("line"), 1)
        label_colour = self._theme.colour_of_token("faint")
        ticks = [0]
        ticks += compute_axis_ticks(scale.top, most_labels)
        for tokens in ticks:
            y = round(scale.y_of_tokens(tokens)) + 0.5
            left_end = QPointF(area.left(), y)
            right_end = QPointF(area.right(), y)
            painter.setPen(line_pen)
            painter.drawLine(left_end, right_end)
            label_rect = QRectF(0, y - line_height / 2, label_width, line_height)
            painter.setPen(label_colour)
            painter.drawText(label_rect, _TO_THE_RIGHT, format_token_count(tokens))
        # The unit stands above the highest figure.
        unit_top = area.top() - line_height - self._theme.zoomed_pixels(4)
        unit_rect = QRectF(0, unit_top, label_width, line_height)
        painter.setPen(label_colour)
        painter.drawText(unit_rect, _TO_THE_RIGHT, tr("tokens"))
        if self._top_dollars:
            dollar_scale = replace(scale, top=self._top_dollars)
            self._draw_dollar_axis(painter, dollar_scale, most_labels)
        self._draw_names_of_lanes(painter, area)

    def _draw_names_of_lanes(self, painter: QPainter, area: QRectF) -> None:
        names = {
            TimelineLane.YOU: tr("You"),
            TimelineLane.FILES: tr("Files"),
            TimelineLane.ERRORS: tr("Errors"),
        }
        for lane, name in names.items():
            left_edge = self._marks.left_edge_of_lane(lane, area)
            # From the chart's left edge to eight pixels before the lane.
            name_rect = left_edge.adjusted(-area.left(), 0, -8, 0)
            painter.drawText(name_rect, _TO_THE_RIGHT, name)

    def _draw_dollar_axis(self, painter: QPainter, scale: PlotScale, most_labels: int) -> None:
        # In hundredths of a cent, because the numbers on an axis are whole.
        ticks = compute_axis_ticks(scale.top * 10_000, most_labels)
        if not ticks:
            return
        ticks.insert(0, 0)
        line_height = painter.fontMetrics().height()
        labels_left = scale.area.right() + 8
        labels_width = self.width() - labels_left
        for hundredths in ticks:
            dollars = hundredths / 10_000
            label_top = scale.y_of_tokens(dollars) - line_height / 2
            label_rect = QRectF(labels_left, label_top, labels_width, line_height)
            painter.drawText(label_rect, Qt.AlignmentFlag.AlignVCenter, format_dollars(dollars))

    def _draw_legends(self, painter: QPainter) -> None:
        """Draws the legend of the kinds, and below it that of the bars."""
        for number, row in enumerate(self._build_legend_rows(self._plot_area.width())):
            self._draw_legend_row(painter, row, number)

    def _build_legend_rows(self, width: float) -> list[LegendRow]:
        """Returns what stands above the plot: at least one row, as the axis has its name there. The
        kinds stand in as many rows as they need in this width.
        """
        kinds: list[tuple[str, QColor]] = []
        # A kind that there is none of adds nothing to the layer below it.
        layer_below: Sequence[float] | None = None
        names_and_colours = self._names_and_colours_of_layers()
        for name_and_colour, layer in zip(names_and_colours, self._story.layers, strict=True):
            is_shown = layer != layer_below
            if layer_below is None:
                is_shown = any(layer)
            if is_shown:
                kinds.append(name_and_colour)
            layer_below = layer
        bars: list[tuple[str, QColor]] = []
        for name, colour in self._bars.names_and_colours_of_parts():
            bars.append((name, self._theme.colour_of_token(colour)))
        cost = ""
        if self._top_dollars and self._story.has_subagents:
            cost = f"- - -  {tr('cost without sub-agents')}"
        elif self._top_dollars:
            cost = f"- - -  {tr('cost')}"
        rows = [LegendRow(cost_words=cost)]
        for name_and_colour in kinds:
            last_row = rows[-1]
            names_of_longer_row = (*last_row.names_and_colours, name_and_colour)
            longer_row = replace(last_row, names_and_colours=names_of_longer_row)
            has_room = self._legend_width(longer_row) <= width
            if has_room or not last_row.names_and_colours:
                rows[-1] = longer_row
            else:
                rows.append(LegendRow((name_and_colour,)))
        if bars:
            rows.append(LegendRow(tuple(bars)))
        return rows

    def _legend_width(self, row: LegendRow) -> float:
        metrics = QFontMetrics(self._theme.build_font(SMALL))
        gap = self._theme.zoomed_pixels(22)
        widths = [metrics.horizontalAdvance(words) + gap for words, _ in row.names_and_colours]
        return sum(widths) + metrics.horizontalAdvance(row.cost_words)

    def _draw_legend_row(self, painter: QPainter, row: LegendRow, number: int) -> None:
        """Draws a row that ends at the plot's right edge, or nothing if it does not fit."""
        metrics = painter.fontMetrics()
        gap = self._theme.zoomed_pixels(22)
        y = self._theme.zoomed_pixels(LEGEND) * (number + 0.5)  # The middle of the row.
        x = self._plot_area.right() - self._legend_width(row)
        if x < self._plot_area.left():
            return
        for words, colour in row.names_and_colours:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour)
            painter.drawEllipse(QPointF(x + 4, y), 4, 4)
            painter.setPen(self._theme.colour_of_token("muted"))
            painter.drawText(QPointF(x + 13, y + 4), words)
            x += metrics.horizontalAdvance(words) + gap
        painter.drawText(QPointF(x, y + 4), row.cost_words)

    def _visible_dates_with_positions(
        self, metrics: QFontMetrics, scale: PlotScale
    ) -> Iterator[tuple[float, str]]:
        """Yields steps with their dates, and their places below the lanes: the distances are those
        of steps. Each minute appears once, as a short conversation has few.
        """
        area = scale.area
        current_time = time.time()
        free_from_x = -1.0  # Where the next date may begin.
        last_time = 0.0  # That of the date before.
        last_step = -1
        last_point = self._nearest_point(area.right())
        longest_words = f"{self._name_step(last_point)} · 00 Mon 00:00"
        shares_of_width: Sequence[float] = (0, 0.25, 0.5, 0.75, 1)
        if 5 * metrics.horizontalAdvance(longest_words) > area.width():
            shares_of_width = (0, 0.5, 1)
        for share_of_width in shares_of_width:
            point = self._nearest_point(area.left() + share_of_width * area.width())
            time_of_point = self._story.times[point]
            words = self._name_step(point)
            if time_of_point // 60 != last_time // 60:
                words += f" · {format_short_day_and_time(time_of_point, last_time, current_time)}"
            width = metrics.horizontalAdvance(words) + 2
            # The first date begins at its point, the last ends there.
            wanted_x = scale.x_of_point(point) - share_of_width * width
            x = min(max(wanted_x, area.left()), area.right() - width)
            step = self._story.steps[point]
            if x > free_from_x and step != last_step:
                yield x, words
                last_step = step
                last_time = time_of_point
                free_from_x = x + width + 12

    def _name_step(self, point: int) -> str:
        return tr("Step {n}", n=format_number(self._story.steps[point]))

    def _draw_choice_and_pointer(self, painter: QPainter, scale: PlotScale) -> None:
        """Draws a ring around the chosen place, and what the pointer is at: a mark
        below the curve, or a point on it with its figures.
        """
        chosen = self._selected
        if chosen is not None and chosen.current_folds:
            is_visible = self._first <= chosen.point <= self._last
            if is_visible:
                self._marks.draw_fold_mark(painter, chosen, scale, CHOSEN_RING)
        if not 0 <= self._hover < self._point_count:
            return
        lane_mark = self._marks.find_lane_mark(self._hover, self._pointer_y, scale)
        if lane_mark is None:
            tokens = self._story.layers[-1][self._hover]
            colour = self._theme.fill_colour_of_kind(ContextKind.CONVERSATION)
            figures = self.describe_point(self._hover)
            self._draw_pointer(painter, scale, [(tokens, colour)], figures)
        else:
            words = fold_sentences.describe_marked_fact(self._story.history, lane_mark.seq)
            x = scale.x_of_point(lane_mark.point)
            # With a second line, the label stands beside the pointer and not below the chart.
            self._draw_label(painter, x, f"{words}\n")

    def describe_point(self, point: int) -> str:
        """Says what is under the pointer: a mark of the list, or a step and what it cost."""
        event = self._marks.find_fold_mark(point)
        if event is None:
            return self._describe_step(point)
        title = fold_sentences.describe_event_title(event)
        lines = [f"{title} · {format_date_and_time(event.time)}"]
        what_it_did = fold_sentences.describe_event_briefly(event)
        lines += what_it_did.split(" · ")
        return "\n".join(lines)

    def _describe_step(self, point: int) -> str:
        """Returns the label of a point: which step, its size and time, and below that
        what was paid.
        """
        story = self._story
        step = tr(
            "step {n} · {tokens} tokens · {when}",
            n=format_number(story.steps[point]),
            tokens=format_token_count(story.points[point]),
            when=format_date_and_time(story.times[point]),
        )
        lines = [step]
        paid = fold_sentences.describe_costs_at_point(story, point)
        if paid:
            lines.append(paid)
        paid_for_request = self._bars.describe_costs(point)
        if paid_for_request:
            lines.append(paid_for_request)
        return "\n".join(lines)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._pointer_y = event.position().y()
        super().mouseMoveEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Chooses the mark under the pointer, or else the step, unless the plot was dragged."""
        super().mouseReleaseEvent(event)
        if self._moved or self._point_count == 0:
            return
        x = event.position().x()
        self._pointer_y = event.position().y()
        self._hover = self._nearest_point(x)
        scale = self.scale
        lane_mark = self._marks.find_lane_mark(self._hover, self._pointer_y, scale)
        if lane_mark is not None:
            self.step_chosen.emit(lane_mark.seq)
            return
        # Half a point is enough where the points are far apart.
        reach = max(0.5, REACH / scale.pixels_per_point)
        fold_mark = self._marks.find_fold_mark(scale.point_at(x), reach)
        if fold_mark is not None:
            self.chosen.emit(fold_mark)
        else:
            self.step_chosen.emit(self._story.seqs[self._hover])
