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
        painter.setPen(Qt.PenStyle.NoPen)
        for lane, (points_of_marks, _seqs) in self._story.marks.items():
            lane_edge = self.left_edge_of_lane(lane, scale.area)
            mark_top = lane_edge.top() + 3
            mark_height = lane_edge.height() - 5
            painter.setBrush(self._theme.colour_of_token(LANE_COLOURS[lane]))
            first_visible = bisect_left(points_of_marks, scale.first)
            end_of_visible = bisect_left(points_of_marks, scale.last + 1)
            # Of a hundred thousand visible marks, four for each pixel are examined.
            most_marks = 4 * max(1, width)
            step = max(1, (end_of_visible - first_visible) // most_marks)
            last_drawn_x = -10.0  # Left of the chart, so that the first mark is always drawn.
            for index in range(first_visible, end_of_visible, step):
                x = scale.x_of_point(points_of_marks[index])
                if x - last_drawn_x >= MARK_GAP:
                    last_drawn_x = x
                    mark = QRectF(x - 1.5, mark_top, 4, mark_height)
                    painter.drawRoundedRect(mark, 1.5, 1.5)

    def draw_fold_marks(self, painter: QPainter, scale: PlotScale, width: int) -> None:
        """Draws the marks of visible folds. Of overlapping marks, only the first is
        drawn, excerpts last.
        """
        events = self._story.folded_events
        first_visible = bisect_left(events, scale.first - 1, key=_point_of_event)
        end_of_visible = bisect_left(events, scale.last + 1, key=_point_of_event)
        # Of many thousand folds, one for each three pixels is examined.
        most_marks = max(1, width // 3)
        step = max(1, (end_of_visible - first_visible) // most_marks)
        examined = events[first_visible:end_of_visible:step]
        folds = [event for event in examined if event.fold_kind]
        folds.sort(key=lambda event: event.fold_kind is FoldKind.EXCERPT)
        least_distance = self._theme.zoomed_pixels(8)
        drawn_xs: list[float] = []  # From left to right.
        for event in folds:
            x = scale.x_of_point(event.point)
            index = bisect_left(drawn_xs, x)
            neighbours = drawn_xs[max(0, index - 1) : index + 1]
            if all(abs(x - neighbour_x) >= least_distance for neighbour_x in neighbours):
                drawn_xs.insert(index, x)
                self.draw_fold_mark(painter, event, scale, RING)

    def draw_fold_mark(
        self, painter: QPainter, event: TimelineEvent, scale: PlotScale, radius: float
    ) -> None:
        """Draws a ring where the fold started, and a line from there to the bottom."""
        tokens_at_points = self._story.points
        point = min(event.point, len(tokens_at_points) - 1)
        point_before = max(0, point - 1)
        # The ring stands at the height from which the line falls, which is the point before.
        tokens = max(tokens_at_points[point], tokens_at_points[point_before])
        centre = QPointF(scale.x_of_point(event.point), scale.y_of_tokens(tokens))
        colour = self._theme.fill_colour_of_kind(
            context_kind_of_fold(event.fold_kind or FoldKind.MARKER)
        )
        painter.setPen(QPen(colour, 1.5))
        painter.drawLine(centre, QPointF(centre.x(), scale.area.bottom() - 3))
        painter.setPen(QPen(colour, 2.5))
        painter.setBrush(self._theme.colour_of_token("panel"))
        painter.drawEllipse(centre, radius, radius)

    def find_fold_mark(self, point: float, reach: float = 0.5) -> TimelineEvent | None:
        """Returns the event with folds nearest to a point, if it is within `reach` points."""
        events = self._story.folded_events
        first_in_reach = bisect_left(events, point - reach, key=_point_of_event)
        end_of_reach = bisect_right(events, point + reach, key=_point_of_event)
        return min(
            events[first_in_reach:end_of_reach],
            key=lambda event: abs(event.point - point),
            default=None,
        )

    def find_lane_mark(self, point: int, y: float, scale: PlotScale) -> LaneMark | None:
        """Finds the mark nearest to a point, within reach, in the lane at this height."""
        for lane, (points_of_marks, seqs_of_marks) in self._story.marks.items():
            edge = self.left_edge_of_lane(lane, scale.area)
            is_in_lane = edge.top() <= y < edge.bottom()
            if not points_of_marks or not is_in_lane:
                continue
            nearest = _index_of_nearest(points_of_marks, point)
            distance = abs(points_of_marks[nearest] - point)
            if distance * scale.pixels_per_point <= REACH:
                return LaneMark(points_of_marks[nearest], seqs_of_marks[nearest])
        return None


def _point_of_event(event: TimelineEvent) -> int:
    return event.point


def _index_of_nearest(sorted_points: Sequence[int], point: int) -> int:
    last_index = len(sorted_points) - 1
    index_after = min(bisect_left(sorted_points, point), last_index)
    index_before = max(0, index_after - 1)
    return min(index_before, index_after, key=lambda index: abs(sorted_points[index] - point))
