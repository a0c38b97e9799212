"""The marks of a timeline's chart: a ring for each fold, and a lane below the plot for
each kind of event.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from helix_desktop.engine.facts import FoldKind
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.fold_descriptions import context_kind_of_fold
from helix_desktop.gui.common.step_plot import PlotScale
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.conversation_timeline import (
    ConversationTimeline,
    TimelineEvent,
    TimelineLane,
)

LANE = 15  # The height of a lane, in pixels.
MARK_GAP = 4  # The minimum distance in pixels between marks in the same lane.
REACH = 6  # The pointer is on a mark that is at most so many pixels away.
RING = 4.5  # The radius of a fold's mark, in pixels.
CHOSEN_RING = 6.5  # That of the chosen fold's mark.

LANE_COLOURS = {
    TimelineLane.YOU: "conversation",
    TimelineLane.FILES: "output",
    TimelineLane.ERRORS: "danger",
}


@dataclass(frozen=True, slots=True)
class LaneMark:
    """A mark below the plot: its point on the chart, and the fact that it is for."""

    point: int
    seq: int


class TimelineMarks:
    """Draws the marks of one timeline, and finds the one that the pointer is on."""

    def __init__(self, story: ConversationTimeline, theme: Theme) -> None:
        self._story = story
        self._theme = theme

    def left_edge_of_lane(self, lane: TimelineLane, area: QRectF) -> QRectF:
        """Returns the left edge of a lane below the plot, as a rectangle without width."""
        height = self._theme.zoomed_pixels(LANE)
        top = area.bottom() + 3 + list(TimelineLane).index(lane) * height
        return QRectF(area.left(), top, 0, height)

    def draw_lane_marks(self, painter: QPainter, scale: PlotScale, width: int) -> None:
        """Draws the marks below the curve, a row for each kind of event. Where marks
        would lie on top of each other, only the first is drawn, so that a very long
        conversation is drawn as fast as a short one.
        """
        painter.setPen(Qt.PenStyle.NoPen)
        for lane, marks in self._story.marks.items():
            lane_edge = self.left_edge_of_lane(lane, scale.area)
            mark_top = lane_edge.top() + 3
            mark_height = lane_edge.height() - 5
            lane_colour = self._theme.colour_of_token(LANE_COLOURS[lane])
            painter.setBrush(lane_colour)
            first_visible = bisect_left(marks.points, scale.first)
            end_of_visible = bisect_left(marks.points, scale.last + 1)
            # Of a hundred thousand visible marks, four for each pixel are examined.
            most_marks = 4 * max(1, width)
            step = max(1, (end_of_visible - first_visible) // most_marks)
            last_drawn_x = -10.0  # Left of the chart, so that the first mark is always drawn.
            for index in range(first_visible, end_of_visible, step):
                x = scale.x_of_point(marks.points[index])
                if x - last_drawn_x >= MARK_GAP:
                    last_drawn_x = x
                    mark = QRectF(x - 1.5, mark_top, 4, mark_height)
                    painter.drawRoundedRect(mark, 1.5, 1.5)

    def draw_fold_marks(self, painter: QPainter, scale: PlotScale, width: int) -> None:
        """Draws the marks of visible folds. Of overlapping marks, only the first is
        drawn, excerpts last.
        """
        least_distance = self._theme.zoomed_pixels(8)
        drawn_xs: list[float] = []  # From left to right.
        for event in self._fold_events_to_examine(scale, width):
            x = scale.x_of_point(event.point)
            index = bisect_left(drawn_xs, x)
            touches_left = index > 0 and x - drawn_xs[index - 1] < least_distance
            touches_right = index < len(drawn_xs) and drawn_xs[index] - x < least_distance
            if not touches_left and not touches_right:
                drawn_xs.insert(index, x)
                self.draw_fold_mark(painter, event, scale, RING)

    def _fold_events_to_examine(self, scale: PlotScale, width: int) -> list[TimelineEvent]:
        """Returns the visible events with folds, those with excerpts last."""
        events = self._story.folded_events
        first_visible = bisect_left(events, scale.first - 1, key=_point_of_event)
        end_of_visible = bisect_left(events, scale.last + 1, key=_point_of_event)
        # Of many thousand folds, one for each three pixels is examined.
        most_marks = max(1, width // 3)
        step = max(1, (end_of_visible - first_visible) // most_marks)
        excerpts: list[TimelineEvent] = []
        other_folds: list[TimelineEvent] = []
        for event in events[first_visible:end_of_visible:step]:
            if event.fold_kind is FoldKind.EXCERPT:
                excerpts.append(event)
            elif event.fold_kind is not None:
                other_folds.append(event)
        return other_folds + excerpts

    def draw_fold_mark(
        self, painter: QPainter, event: TimelineEvent, scale: PlotScale, radius: float
    ) -> None:
        """Draws a ring where the fold started, and a line from there to the bottom."""
        tokens_at_points = self._story.layers[-1]
        point = min(event.point, len(tokens_at_points) - 1)
        point_before = max(0, point - 1)
        # The ring stands at the height from which the line falls, which is the point before.
        tokens = max(tokens_at_points[point], tokens_at_points[point_before])
        x = scale.x_of_point(event.point)
        centre = QPointF(x, scale.y_of_tokens(tokens))
        bottom = QPointF(x, scale.area.bottom() - 3)

        context_kind = context_kind_of_fold(event.fold_kind or FoldKind.MARKER)
        colour = self._theme.fill_colour_of_kind(context_kind)
        painter.setPen(QPen(colour, 1.5))
        painter.drawLine(centre, bottom)
        painter.setPen(QPen(colour, 2.5))
        painter.setBrush(self._theme.colour_of_token("panel"))
        painter.drawEllipse(centre, radius, radius)

    def find_fold_mark(self, point: float, reach: float = 0.5) -> TimelineEvent | None:
        """Returns the event with folds nearest to a point, if it is within `reach` points."""
        events = self._story.folded_events
        first_in_reach = bisect_left(events, point - reach, key=_point_of_event)
        end_of_reach = bisect_right(events, point + reach, key=_point_of_event)
        nearest: TimelineEvent | None = None
        for event in events[first_in_reach:end_of_reach]:
            if nearest is None or abs(event.point - point) < abs(nearest.point - point):
                nearest = event
        return nearest

    def find_lane_mark(self, point: int, y: float, scale: PlotScale) -> LaneMark | None:
        """Finds the mark nearest to a point, within reach, in the lane at this height."""
        for lane, marks in self._story.marks.items():
            edge = self.left_edge_of_lane(lane, scale.area)
            is_in_lane = edge.top() <= y < edge.bottom()
            if not marks.points or not is_in_lane:
                continue
            nearest = _index_of_nearest(marks.points, point)
            distance = abs(marks.points[nearest] - point)
            if distance * scale.pixels_per_point <= REACH:
                return LaneMark(marks.points[nearest], marks.seqs[nearest])
        return None


def _point_of_event(event: TimelineEvent) -> int:
    return event.point


def _index_of_nearest(sorted_points: Sequence[int], point: int) -> int:
    index_after = bisect_left(sorted_points, point)
    if index_after == 0:
        return 0
    index_before = index_after - 1
    if index_after == len(sorted_points):
        return index_before
    distance_before = point - sorted_points[index_before]
    distance_after = sorted_points[index_after] - point
    if distance_before <= distance_after:
        return index_before
    return index_after
