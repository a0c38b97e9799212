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
RING, CHOSEN_RING = 4.5, 6.5  # The radius of a fold's mark, and of the chosen fold's, in pixels.
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
        return QRectF(
            area.left(), area.bottom() + 3 + list(TimelineLane).index(lane) * height, 0, height
        )

    def draw_lane_marks(self, painter: QPainter, scale: PlotScale, width: int) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        for lane, (points, _) in self._story.marks.items():
            place, taken = self.left_edge_of_lane(lane, scale.area), -10.0
            painter.setBrush(self._theme.colour_of_token(LANE_COLOURS[lane]))
            step = max(1, len(points) // (4 * max(1, width)))
            for at in range(
                bisect_left(points, scale.first), bisect_left(points, scale.last + 1), step
            ):
                x = scale.x_of_point(points[at])
                if x - taken >= MARK_GAP:
                    taken = x
                    painter.drawRoundedRect(
                        QRectF(x - 1.5, place.top() + 3, 4, place.height() - 5), 1.5, 1.5
                    )

    def draw_fold_marks(self, painter: QPainter, scale: PlotScale, width: int) -> None:
        """Draws the marks of visible folds. Of overlapping marks, only the first is
        drawn, excerpts last.
        """
        events, room, taken = self._story.events, self._theme.zoomed_pixels(8), list[float]()
        first = bisect_left(events, scale.first - 1, key=lambda event: event.point)
        last = bisect_left(events, scale.last + 1, key=lambda event: event.point)
        seen = [
            each
            for each in events[first : last : max(1, (last - first) // max(1, width // 3))]
            if each.fold_kind
        ]
        for event in sorted(seen, key=lambda each: each.fold_kind is FoldKind.EXCERPT):
            x = scale.x_of_point(event.point)
            at = bisect_left(taken, x)
            if all(abs(x - other) >= room for other in taken[max(0, at - 1) : at + 1]):
                taken.insert(at, x)
                self.draw_fold_mark(painter, event, scale, RING)

    def draw_fold_mark(
        self, painter: QPainter, event: TimelineEvent, scale: PlotScale, radius: float
    ) -> None:
        """Draws a ring where the fold started, and a line from there to the bottom."""
        points = self._story.points
        at = min(event.point, len(points) - 1)
        place = QPointF(
            scale.x_of_point(event.point),
            scale.y_of_tokens(max(points[at], points[max(0, at - 1)])),
        )
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
        at = bisect_left(events, point - reach, key=lambda event: event.point)
        near = [
            event
            for event in events[at : at + 40]
            if event.current_folds and abs(event.point - point) <= reach
        ]
        return min(near, key=lambda event: abs(event.point - point)) if near else None

    def find_lane_mark(self, point: int, y: float, scale: PlotScale) -> tuple[int, int] | None:
        """The point and seq of the lane's mark at this height that is nearest to a
        point, within reach.
        """
        for lane, (points, seqs) in self._story.marks.items():
            place = self.left_edge_of_lane(lane, scale.area)
            if place.top() <= y < place.bottom() and points:
                at = min(bisect_left(points, point), len(points) - 1)
                near = min(
                    range(max(0, at - 1), min(at + 2, len(points))),
                    key=lambda i: abs(points[i] - point),
                )
                if abs(points[near] - point) * scale.pixels_per_point <= REACH:
                    return points[near], seqs[near]
        return None
