"""The marks of the chart: which are drawn where many stand close, and which one the pointer is on."""

from __future__ import annotations

import itertools

import pytest
from PySide6.QtCore import QRectF

from helix_desktop.engine.facts import Folded, FoldKind, PartRef
from helix_desktop.gui.common.step_plot import PlotScale
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.conversation_timeline import (
    ConversationTimeline,
    TimelineEvent,
    TimelineLane,
)
from helix_desktop.gui.timeline.timeline_marks import (
    CHOSEN_RING,
    MARK_GAP,
    REACH,
    RING,
    LaneMark,
    TimelineMarks,
)
from tests.gui.timeline.recording_painter import RecordingPainter

# Ten pixels for each point: point 0 stands at x = 10, point 50 at the right edge.
SCALE = PlotScale(QRectF(10, 10, 500, 100), 0, 50, 1_000)


def story_with(*folds: tuple[int, FoldKind]) -> ConversationTimeline:
    """Points of which each is higher than the one before, and folds at some of them."""
    story = ConversationTimeline()
    for point in range(51):
        story.layers[-1].append(10 * point)
    for point, kind in folds:
        event = TimelineEvent(story.history, point, 0.0, point)
        event.made_folds.append(Folded(f"f{point}", kind, PartRef(point), "text", 1, 2))
        story.folded_events.append(event)
    return story


def drawn_points(story: ConversationTimeline, theme: Theme, scale: PlotScale = SCALE) -> list[int]:
    """The points at which rings of folds were drawn, in the order in which they were."""
    painter = RecordingPainter(520, 200)
    TimelineMarks(story, theme).draw_fold_marks(painter, scale, 520)
    painter.end()
    return [round(scale.point_at(ring.rect.center().x())) for ring in painter.shapes]


def test_of_rings_that_would_touch_only_the_first_is_drawn(theme: Theme) -> None:
    near = PlotScale(SCALE.area, 0, 100, 1_000)  # Five pixels a point, and a ring takes eight.
    story = story_with(*[(point, FoldKind.MARKER) for point in (3, 4, 5, 6, 20)])
    assert drawn_points(story, theme) == [3, 4, 5, 6, 20]
    assert drawn_points(story, theme, near) == [3, 5, 20]


def test_an_excerpt_gives_way_to_other_folds_on_either_side(theme: Theme) -> None:
    near = PlotScale(SCALE.area, 0, 100, 1_000)
    for excerpt in (9, 11):
        story = story_with(*sorted([(excerpt, FoldKind.EXCERPT), (10, FoldKind.HANDOVER)]))
        assert drawn_points(story, theme, near) == [10]
    apart = story_with((10, FoldKind.EXCERPT), (20, FoldKind.HANDOVER))
    assert drawn_points(apart, theme) == [20, 10], "the excerpt is drawn last"


def test_only_visible_folds_are_drawn_and_one_at_the_edge_is(theme: Theme) -> None:
    visible = PlotScale(SCALE.area, 10, 20, 1_000)
    story = story_with(*[(point, FoldKind.MARKER) for point in (2, 8, 10, 15, 20, 22, 40)])
    assert drawn_points(story, theme, visible) == [10, 15, 20]


def test_the_start_of_a_conversation_has_no_ring(theme: Theme) -> None:
    story = story_with((5, FoldKind.MARKER))
    story.folded_events.insert(0, TimelineEvent(story.history, 1, 0.0, 1))
    assert drawn_points(story, theme) == [5]


def test_of_very_many_folds_a_part_is_looked_at(theme: Theme) -> None:
    story = ConversationTimeline()
    for point in range(30_000):
        story.layers[-1].append(10)
        event = TimelineEvent(story.history, point, 0.0, point)
        event.made_folds.append(Folded(f"f{point}", FoldKind.MARKER, PartRef(1), "text", 1, 2))
        story.folded_events.append(event)
    scale = PlotScale(SCALE.area, 0, 29_999, 1_000)
    examined = TimelineMarks(story, theme)._fold_events_to_examine(scale, 300)
    assert 90 <= len(examined) <= 110
    assert examined[0].point == 0
    assert examined[-1].point > 29_000


def ring_at(story: ConversationTimeline, theme: Theme, radius: float = RING) -> QRectF:
    painter = RecordingPainter(520, 200)
    TimelineMarks(story, theme).draw_fold_mark(painter, story.folded_events[0], SCALE, radius)
    painter.end()
    (ring,) = painter.shapes
    return ring.rect


def test_a_ring_stands_where_the_line_begins_to_fall(theme: Theme) -> None:
    story = story_with((20, FoldKind.HANDOVER))
    for point in range(20, 51):
        story.layers[-1][point] = 5
    ring = ring_at(story, theme)
    assert ring.center().x() == pytest.approx(SCALE.x_of_point(20))
    assert ring.center().y() == pytest.approx(SCALE.y_of_tokens(story.layers[-1][19]))
    assert ring.width() == 2 * RING
    assert ring_at(story, theme, CHOSEN_RING).width() == 2 * CHOSEN_RING


def test_a_fold_at_the_first_or_behind_the_last_point_has_its_ring_on_the_line(
    theme: Theme,
) -> None:
    first = story_with((0, FoldKind.MARKER))
    assert ring_at(first, theme).center().y() == pytest.approx(SCALE.y_of_tokens(0))
    behind = story_with((51, FoldKind.MARKER))
    assert ring_at(behind, theme).center().y() == pytest.approx(SCALE.y_of_tokens(500))


def test_the_nearest_fold_within_reach_is_found_on_both_sides(theme: Theme) -> None:
    story = story_with(*[(point, FoldKind.MARKER) for point in (10, 20, 22)])
    marks = TimelineMarks(story, theme)

    def found_at(point: float, reach: float = 0.5) -> int | None:
        event = marks.find_fold_mark(point, reach)
        if event is None:
            return None
        return event.point

    assert found_at(10.5) == 10
    assert found_at(9.5) == 10
    assert found_at(9.4) is None
    assert found_at(10.6) is None
    assert found_at(21.5, reach=5) == 22
    assert found_at(20.5, reach=5) == 20
    assert found_at(21, reach=5) == 20, "of two that are as near, the first"


def lane_y(marks: TimelineMarks, lane: TimelineLane) -> float:
    return marks.left_edge_of_lane(lane, SCALE.area).center().y()


def test_each_lane_lies_below_the_plot_and_below_the_one_before(theme: Theme) -> None:
    marks = TimelineMarks(ConversationTimeline(), theme)
    edges = [marks.left_edge_of_lane(lane, SCALE.area) for lane in TimelineLane]
    assert edges[0].top() > SCALE.area.bottom()
    for upper, lower in itertools.pairwise(edges):
        assert lower.top() == upper.bottom()
    assert {edge.left() for edge in edges} == {SCALE.area.left()}
    assert {edge.width() for edge in edges} == {0}


def test_the_mark_of_a_lane_is_found_within_reach_and_in_its_lane_alone(theme: Theme) -> None:
    story = story_with()
    for point, seq in ((5, 105), (10, 110), (30, 130)):
        story.marks[TimelineLane.FILES].append_mark(point, seq)
    marks = TimelineMarks(story, theme)
    y = lane_y(marks, TimelineLane.FILES)
    assert marks.find_lane_mark(10, y, SCALE) == LaneMark(10, 110)
    assert marks.find_lane_mark(10, lane_y(marks, TimelineLane.YOU), SCALE) is None
    assert marks.find_lane_mark(10, lane_y(marks, TimelineLane.ERRORS), SCALE) is None
    assert marks.find_lane_mark(11, y, SCALE) is None, "ten pixels are too far"
    pixel_a_point = PlotScale(SCALE.area, 0, 500, 1_000)
    assert marks.find_lane_mark(10 + REACH, y, pixel_a_point) == LaneMark(10, 110)
    assert marks.find_lane_mark(11 + REACH, y, pixel_a_point) is None
    assert marks.find_lane_mark(0, y, pixel_a_point) == LaneMark(5, 105)
    assert marks.find_lane_mark(7, y, pixel_a_point) == LaneMark(5, 105)
    assert marks.find_lane_mark(8, y, pixel_a_point) == LaneMark(10, 110)
    assert marks.find_lane_mark(33, y, pixel_a_point) == LaneMark(30, 130)


def test_a_lane_begins_at_its_upper_edge_and_ends_before_the_next(theme: Theme) -> None:
    story = story_with()
    for lane, seq in zip(TimelineLane, (1, 2, 3), strict=True):
        story.marks[lane].append_mark(10, seq)
    marks = TimelineMarks(story, theme)
    files = marks.left_edge_of_lane(TimelineLane.FILES, SCALE.area)
    assert marks.find_lane_mark(10, files.top(), SCALE) == LaneMark(10, 2)
    assert marks.find_lane_mark(10, files.top() - 0.5, SCALE) == LaneMark(10, 1)
    assert marks.find_lane_mark(10, files.bottom(), SCALE) == LaneMark(10, 3)


def drawn_marks(
    story: ConversationTimeline, theme: Theme, scale: PlotScale = SCALE
) -> list[QRectF]:
    painter = RecordingPainter(520, 200)
    TimelineMarks(story, theme).draw_lane_marks(painter, scale, 520)
    painter.end()
    return [mark.rect for mark in painter.shapes]


def test_marks_stand_at_their_points_and_of_those_that_lie_on_each_other_one_is_drawn(
    theme: Theme,
) -> None:
    story = story_with()
    for point in (0, 1, 50):
        story.marks[TimelineLane.YOU].append_mark(point, point)
    at_points = drawn_marks(story, theme)
    centres = [mark.center().x() for mark in at_points]
    assert centres == pytest.approx([SCALE.x_of_point(point) for point in (0, 1, 50)], abs=1)
    lane = TimelineMarks(story, theme).left_edge_of_lane(TimelineLane.YOU, SCALE.area)
    assert all(lane.top() < mark.top() < mark.bottom() < lane.bottom() for mark in at_points)
    # As far apart as a gap, both are drawn, and a little nearer only the first.
    as_a_gap = PlotScale(SCALE.area, 0, SCALE.area.width() / MARK_GAP, 1_000)
    assert len(drawn_marks(story, theme, as_a_gap)) == 3
    nearer = PlotScale(SCALE.area, 0, SCALE.area.width() / MARK_GAP + 1, 1_000)
    assert len(drawn_marks(story, theme, nearer)) == 2


def test_marks_outside_the_shown_points_are_not_drawn(theme: Theme) -> None:
    story = story_with()
    for point in (4, 5, 10, 11, 12):
        story.marks[TimelineLane.ERRORS].append_mark(point, point)
    shown = PlotScale(SCALE.area, 5, 10, 1_000)
    assert len(drawn_marks(story, theme, shown)) == 2


def test_each_lane_has_its_own_colour(theme: Theme) -> None:
    story = story_with()
    for lane in TimelineLane:
        story.marks[lane].append_mark(10, 10)
    painter = RecordingPainter(520, 200)
    TimelineMarks(story, theme).draw_lane_marks(painter, SCALE, 520)
    painter.end()
    assert len({mark.colour for mark in painter.shapes}) == 3


def test_a_mark_of_a_lane_is_centred_on_its_point_within_its_lane(theme: Theme) -> None:
    story = ConversationTimeline()
    for point in (0, 10, 20):
        story.marks[TimelineLane.FILES].append_mark(point, point + 1)
    painter = RecordingPainter(520, 200)
    marks = TimelineMarks(story, theme)
    marks.draw_lane_marks(painter, SCALE, 520)
    painter.end()
    lane = marks.left_edge_of_lane(TimelineLane.FILES, SCALE.area)
    assert lane.top() == SCALE.area.bottom() + 3 + 15 * list(TimelineLane).index(TimelineLane.FILES)
    assert (lane.left(), lane.width(), lane.height()) == (SCALE.area.left(), 0, 15)
    assert [mark.rect.left() for mark in painter.shapes] == [
        SCALE.x_of_point(point) - 1.5 for point in (0, 10, 20)
    ]
    for mark in painter.shapes:
        assert (mark.rect.top() - lane.top(), lane.bottom() - mark.rect.bottom()) == (3, 2)
        assert mark.rect.width() == 4
        assert mark.colour == theme.colour_of_token("output").name()
