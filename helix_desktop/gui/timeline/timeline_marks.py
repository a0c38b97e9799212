"""The marks of a timeline's chart: a ring for each fold, and a lane below the plot for
each kind of event.
"""

from bisect import bisect_left

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from helix_desktop.engine.facts import FoldKind
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
REACH = 6
RING = 4.5  # The radius of a fold's mark, in pixels.
CHOSEN_RING = 6.5  # That of the chosen fold's mark.
LANE_COLOURS = {
    TimelineLane.YOU: "conversation",
    TimelineLane.FILES: "output",
    TimelineLane.ERRORS: "danger",
}


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
        for lane, (points, _) in self._story.marks.items():
            lane_edge = self.left_edge_of_lane(lane, scale.area)
            mark_top = lane_edge.top() + 3
            mark_height = lane_edge.height() - 5
            painter.setBrush(self._theme.colour_of_token(LANE_COLOURS[lane]))
            first = bisect_left(points, scale.first)
            end = bisect_left(points, scale.last + 1)
            # Of a hundred thousand visible marks, four for each pixel are examined.
            step = max(1, (end - first) // (4 * max(1, width)))
            last_x = -10.0
            for index in range(first, end, step):
                x = scale.x_of_point(points[index])
                if x - last_x >= MARK_GAP:
                    last_x = x
                    mark = QRectF(x - 1.5, mark_top, 4, mark_height)
                    painter.drawRoundedRect(mark, 1.5, 1.5)

    def draw_fold_marks(self, painter: QPainter, scale: PlotScale, width: int) -> None:
        """Draws the marks of visible folds. Of overlapping marks, only the first is
        drawn, excerpts last.
        """
        events = self._story.folded_events
        first = bisect_left(events, scale.first - 1, key=lambda event: event.point)
        last = bisect_left(events, scale.last + 1, key=lambda event: event.point)
        # Of many thousand folds, one for each three pixels is examined.
        step = max(1, (last - first) // max(1, width // 3))
        folds = [event for event in events[first:last:step] if event.fold_kind]
        folds.sort(key=lambda event: event.fold_kind is FoldKind.EXCERPT)
        room = self._theme.zoomed_pixels(8)
        drawn_at: list[float] = []  # The places of the drawn marks, from left to right.
        for event in folds:
            x = scale.x_of_point(event.point)
            index = bisect_left(drawn_at, x)
            neighbours = drawn_at[max(0, index - 1) : index + 1]
            if all(abs(x - neighbour) >= room for neighbour in neighbours):
                drawn_at.insert(index, x)
                self.draw_fold_mark(painter, event, scale, RING)

    def draw_fold_mark(
        self, painter: QPainter, event: TimelineEvent, scale: PlotScale, radius: float
    ) -> None:
        """Draws a ring where the fold started, and a line from there to the bottom."""
        tokens_at_points = self._story.points
        point = min(event.point, len(tokens_at_points) - 1)
        # The ring stands at the height from which the line falls, which is the point before.
        tokens = max(tokens_at_points[point], tokens_at_points[max(0, point - 1)])
        place = QPointF(scale.x_of_point(event.point), scale.y_of_tokens(tokens))
        colour = self._theme.fill_colour_of_kind(
            context_kind_of_fold(event.fold_kind or FoldKind.MARKER)
        )
        painter.setPen(QPen(colour, 1.5))
        painter.drawLine(place, QPointF(place.x(), scale.area.bottom() - 3))
        painter.setPen(QPen(colour, 2.5))
        painter.setBrush(self._theme.colour_of_token("panel"))
        painter.drawEllipse(place, radius, radius)

    def find_fold_mark(self, point: float, reach: float = 0.5) -> TimelineEvent | None:
        """Returns the event with folds nearest to a point, if it is within `reach` points."""
        events = self._story.events
        first = bisect_left(events, point - reach, key=lambda event: event.point)
        nearest: TimelineEvent | None = None
        for event in events[first : first + 40]:
            distance = abs(event.point - point)
            if not event.current_folds or distance > reach:
                continue
            if nearest is None or distance < abs(nearest.point - point):
                nearest = event
        return nearest

    def find_lane_mark(self, point: int, y: float, scale: PlotScale) -> tuple[int, int] | None:
        """The point and seq of the lane's mark at this height that is nearest to a
        point, within reach.
        """
        for lane, (points, seqs) in self._story.marks.items():
            edge = self.left_edge_of_lane(lane, scale.area)
            if not points or not edge.top() <= y < edge.bottom():
                continue
            after = min(bisect_left(points, point), len(points) - 1)
            neighbours = range(max(0, after - 1), min(after + 2, len(points)))
            nearest = min(neighbours, key=lambda index: abs(points[index] - point))
            distance = abs(points[nearest] - point)
            if distance * scale.pixels_per_point <= REACH:
                return points[nearest], seqs[nearest]
        return None
