"""The chart finds the step and the fold under the pointer, and zooms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetrics, QImage, QMouseEvent, QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QSizePolicy

from helix_desktop.engine.facts import (
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    Stop,
    Text,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.request_changes import Cause, CauseKind
from helix_desktop.engine.request_costs import CauseCost, RequestCost
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.common.step_plot import PlotScale
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.conversation_timeline import (
    ConversationTimeline,
    TimelineEvent,
    TimelineLane,
)
from helix_desktop.gui.timeline.timeline_chart import LegendRow, TimelineChart
from helix_desktop.gui.timeline.timeline_marks import TimelineMarks
from tests.gui.timeline.conftest import Written
from tests.gui.timeline.recording_painter import PaintedWords, RecordingPainter


def chart_of(theme: Theme, written: Written) -> tuple[TimelineChart, ConversationTimeline]:
    story = ConversationTimeline()
    story.read_all_facts(written.facts)
    chart = TimelineChart(theme)
    chart.resize(640, 390)
    chart.plot_timeline(story, ())
    chart.show()
    return chart, story


def test_a_click_on_a_mark_chooses_it(theme: Theme, written: Written) -> None:
    chart, story = chart_of(theme, written)
    chosen: list[TimelineEvent] = []
    chart.chosen.connect(chosen.append)
    x = round(chart.scale.x_of_point(story.events[2].point))
    QTest.mouseClick(chart, Qt.MouseButton.LeftButton, pos=QPoint(x, 60))
    assert chosen == [story.events[2]]


def test_every_fold_has_its_ring(theme: Theme, written: Written) -> None:
    """Excerpts had none, and of one at the right edge half was cut off."""
    for number in (7, 8):
        for _ in range(3):
            written.step(24_000)
        seq = written.output(number)
        digest = Digest.of_content(b"%d" % number)
        written.add(
            Folded(
                f"e{number}",
                FoldKind.EXCERPT,
                PartRef(seq),
                "[EXCERPT]",
                30,
                5_000,
                entries=(digest,),
            )
        )
    chart, story = chart_of(theme, written)
    folds = [event for event in story.events if event.current_folds]
    assert [event.fold_kind for event in folds[-2:]] == [FoldKind.EXCERPT] * 2
    picture = chart.grab().toImage()
    ground = theme.colour_of_token("panel").rgb()
    for event in folds:
        at = min(event.point, len(story.points) - 1)
        x = chart.scale.x_of_point(event.point)
        y = chart.scale.y_of_tokens(max(story.points[at], story.points[at - 1]))
        assert picture.pixel(round(x) + 1, round(y)) == ground  # The inside of a ring.


def test_a_click_beside_a_mark_goes_to_the_step(theme: Theme) -> None:
    written = Written()
    for number in range(40):
        written.step(1_000 * number)
    chart, _ = chart_of(theme, written)
    steps: list[int] = []
    chart.step_chosen.connect(steps.append)
    QTest.mouseClick(chart, Qt.MouseButton.LeftButton, pos=QPoint(320, 60))
    assert steps == [21]


def test_zooming_keeps_the_place_and_ends_at_the_ends(theme: Theme) -> None:
    written = Written()
    for number in range(200):
        written.step(1_000 + number)
    chart, _ = chart_of(theme, written)
    chart.zoom_plot(0.5, 100.0)
    first = chart._first
    last = chart._last
    assert first <= 100 <= last
    assert round(last - first) == round(199 / 2)
    for _ in range(30):
        chart.zoom_plot(0.5)
    assert chart._last - chart._first >= 12
    chart.zoom_plot(1_000)
    assert (chart._first, chart._last) == (0.0, 199.0)
    chart.setFocus()
    QTest.keyClick(chart, Qt.Key.Key_Plus)
    assert (chart._first, chart._last) != (0.0, 199.0)
    QTest.keyClick(chart, Qt.Key.Key_0)
    assert (chart._first, chart._last) == (0.0, 199.0)


def test_a_step_in_words(theme: Theme, written: Written) -> None:
    chart, story = chart_of(theme, written)
    assert chart.describe_point(0).startswith("step 1 · 20K tokens · ")
    assert chart.describe_point(0).endswith("\n$0.010 so far")
    assert chart.describe_point(story.events[2].point).startswith("Summary 1 · ")
    assert "saved about $0.047 in 3 requests" in chart.describe_point(story.events[1].point)
    assert " steps, 3 places shortened, now " in chart.accessibleDescription()


def test_a_mark_of_a_lane_says_what_happened_and_leads_there(
    theme: Theme, written: Written
) -> None:
    said = written.add(UserSaid((Text("Run the tests.", 4),)))
    chart, story = chart_of(theme, written)
    steps: list[int] = []
    chart.step_chosen.connect(steps.append)
    lane = chart._marks.left_edge_of_lane(TimelineLane.YOU, chart.scale.area)
    place = QPoint(
        round(chart.scale.x_of_point(story.marks[TimelineLane.YOU].points[-1])),
        round(lane.center().y()),
    )
    QTest.mouseClick(chart, Qt.MouseButton.LeftButton, pos=place)
    assert steps == [said]


def move_pointer(chart: TimelineChart, x: float, y: float) -> None:
    place = QPointF(x, y)
    none = Qt.MouseButton.NoButton
    no_keys = Qt.KeyboardModifier.NoModifier
    chart.mouseMoveEvent(QMouseEvent(QEvent.Type.MouseMove, place, place, none, none, no_keys))


def test_the_pointer_at_a_mark_of_a_lane_shows_something_else_than_above_it(
    theme: Theme, written: Written
) -> None:
    written.add(UserSaid((Text("Run the tests.", 4),)))
    chart, story = chart_of(theme, written)
    lane = chart._marks.left_edge_of_lane(TimelineLane.YOU, chart.scale.area)
    x = chart.scale.x_of_point(story.marks[TimelineLane.YOU].points[-1])
    move_pointer(chart, x, chart.scale.area.center().y())
    above = chart.grab().toImage()
    move_pointer(chart, x, lane.center().y())
    assert chart.grab().toImage() != above


def test_a_short_conversation_says_each_minute_once(theme: Theme) -> None:
    written = Written()
    for _ in range(12):
        written.step(1_000)
    start = written.facts[0].time // 60 * 60
    story = ConversationTimeline()
    story.read_all_facts(
        [replace(fact, time=start + 7 * number) for number, fact in enumerate(written.facts)]
    )
    chart = TimelineChart(theme)
    chart.resize(640, 390)
    chart.plot_timeline(story, ())
    labels = [
        words for _, words in chart._visible_dates_with_positions(chart.fontMetrics(), chart.scale)
    ]
    # Times alone stood at distances that were those of steps.
    assert labels[0].startswith("Step ")
    assert labels[-1].startswith("Step 12")
    said = [label.split()[-1] for label in labels if "·" in label]
    assert len(said) == 2
    assert said == sorted(set(said))


@pytest.mark.parametrize("zoom", [1.0, 1.5])
def test_nothing_touches_the_frame(theme: Theme, written: Written, zoom: float) -> None:
    """The frame is drawn while the chart has the keyboard; its legend and its dates
    keep away from it.
    """
    theme.text_zoom = zoom
    chart, _ = chart_of(theme, written)
    chart.resize(900, 390)
    picture = chart.grab().toImage()
    ground = theme.colour_of_token("panel").rgb()
    rows = [
        y
        for y in range(picture.height())
        if any(picture.pixel(x, y) != ground for x in range(0, picture.width(), 1))
    ]
    assert rows[0] >= 8
    assert rows[-1] < picture.height() - 8


@pytest.mark.parametrize(("first", "last"), [(30_000, 30_019), (0, 19), (39_980, 39_999)])
def test_of_many_marks_each_visible_one_is_drawn(theme: Theme, first: int, last: int) -> None:
    """With 40,000 marks, one of 16 was drawn, however near the chart was."""
    story = ConversationTimeline()
    for number in range(40_000):
        story.marks[TimelineLane.YOU].append_mark(number, number)
    picture = QImage(640, 200, QImage.Format.Format_RGB32)
    picture.fill(Qt.GlobalColor.black)
    scale = PlotScale(QRectF(10, 10, 600, 100), first, last, 1_000)
    marks = TimelineMarks(story, theme)
    painter = QPainter(picture)
    marks.draw_lane_marks(painter, scale, 640)
    painter.end()
    y = round(marks.left_edge_of_lane(TimelineLane.YOU, scale.area).top()) + 7
    row = [picture.pixelColor(x, y).value() > 60 for x in range(640)]
    begins = [x for x in range(1, 640) if row[x] and not row[x - 1]]
    assert len(begins) == 20


def test_of_many_folds_the_nearest_is_found(theme: Theme) -> None:
    """Of those within reach, the first forty were looked at."""
    story = ConversationTimeline()
    history = story.history
    events = [TimelineEvent(history, number, 0.0, number) for number in range(1_000)]
    story.folded_events.extend(events)
    marks = TimelineMarks(story, theme)
    assert marks.find_fold_mark(500.2, reach=100) is events[500]
    assert marks.find_fold_mark(500.2, reach=0.1) is None


def test_a_plot_that_was_let_go_follows_the_pointer_no_more(theme: Theme) -> None:
    """Also where the button is pressed that began a drag somewhere else."""
    written = Written()
    for number in range(200):
        written.step(1_000 + number)
    chart, _ = chart_of(theme, written)
    chart.zoom_plot(0.5, 100.0)
    QTest.mousePress(chart, Qt.MouseButton.LeftButton, pos=QPoint(300, 60))
    QTest.mouseRelease(chart, Qt.MouseButton.LeftButton, pos=QPoint(300, 60))
    shown_points = (chart._first, chart._last)
    left = Qt.MouseButton.LeftButton
    place = QPointF(200, 60)
    moved = QMouseEvent(
        QEvent.Type.MouseMove, place, place, left, left, Qt.KeyboardModifier.NoModifier
    )
    chart.mouseMoveEvent(moved)
    assert (chart._first, chart._last) == shown_points


def test_a_single_step_is_seen(theme: Theme) -> None:
    """The grid and two scales stood there, with nothing in them."""
    written = Written()
    written.step(2_000)
    chart, story = chart_of(theme, written)
    assert len(story.points) == 1
    picture = chart.grab().toImage()
    middle = round(chart.scale.area.center().x())
    just_below = round(chart.scale.y_of_tokens(story.points[0])) + 4
    seen = picture.pixelColor(middle, just_below).rgb()
    empty = picture.pixelColor(middle, just_below - 12).rgb()
    assert seen != empty


def test_a_legend_that_is_too_long_for_one_row_takes_several(theme: Theme) -> None:
    """In a narrow window, nothing said which colour is what."""
    written = Written()
    written.add(UserSaid((Text("Hello.", 500),)))
    written.step(2_000)
    chart, _ = chart_of(theme, written)
    names = {name for row in chart._build_legend_rows(2_000) for name, _ in row.names_and_colours}
    in_one_row = chart._legend_width(*chart._build_legend_rows(2_000))
    rows = chart._build_legend_rows(in_one_row - 1)
    assert len(rows) == 2
    assert {name for row in rows for name, _ in row.names_and_colours} == names
    top = chart.scale.area.top()
    chart.resize(round(in_one_row) + 60, chart.height())
    assert chart._plot_area.top() > top


# --- What is drawn, and what is said of it


def drawn(chart: TimelineChart) -> RecordingPainter:
    """What is drawn of the chart without the pointer."""
    painter = RecordingPainter(chart.width(), chart.height())
    chart._draw_without_pointer(painter, chart.scale)
    painter.end()
    return painter


def test_a_mark_of_a_message_stands_below_the_curve(theme: Theme, written: Written) -> None:
    chart, story = chart_of(theme, written)
    lane = chart._marks.left_edge_of_lane(TimelineLane.YOU, chart.scale.area)
    marks = [
        shape for shape in drawn(chart).shapes if lane.top() < shape.rect.top() < lane.bottom()
    ]
    assert len(marks) == len(set(story.marks[TimelineLane.YOU].points))


def test_each_threshold_within_the_window_has_its_line_and_its_words(
    theme: Theme, written: Written
) -> None:
    chart, story = chart_of(theme, written)
    chart.show()
    without = chart.grab().toImage()
    thresholds = [("summary at 20%", ContextKind.HANDOVER, 0.2)]
    chart.plot_timeline(story, thresholds)
    y = round(chart.scale.y_of_tokens(0.2 * story.model_window))
    with_line = chart.grab().toImage()
    row = range(round(chart.scale.area.left()) + 4, round(chart.scale.area.right()) - 4)
    changed = [x for x in row for dy in (-1, 0, 1) if with_line.pixel(x, y + dy) != without.pixel(x, y + dy)]  # fmt: skip
    assert len(set(changed)) > len(row) / 3
    chart.plot_timeline(story, [("summary at 900%", ContextKind.HANDOVER, 9.0)])
    assert chart.grab().toImage() == without, "it lies above the chart"


def test_a_chart_that_grows_says_so_and_shows_its_new_points(
    theme: Theme, written: Written
) -> None:
    chart, story = chart_of(theme, written)
    before = chart.accessibleDescription()
    last = chart._last
    written.step(30_000)
    story.read_next_fact(written.facts[-1])
    chart.extend_timeline_plot()
    assert chart._last == last + 1
    assert chart.accessibleDescription() != before
    assert "now 30K" in chart.accessibleDescription()


def test_a_chart_that_was_zoomed_stays_where_it_was_while_it_grows(theme: Theme) -> None:
    written = Written()
    for number in range(200):
        written.step(1_000 + number)
    chart, story = chart_of(theme, written)
    chart.zoom_plot(0.5, 50.0)
    shown = (chart._first, chart._last)
    written.step(30_000)
    story.read_next_fact(written.facts[-1])
    chart.extend_timeline_plot()
    assert (chart._first, chart._last) == shown


def test_an_event_out_of_sight_is_brought_into_sight_when_it_is_chosen(theme: Theme) -> None:
    written = Written()
    for number in range(200):
        written.step(1_000 + number)
    chart, story = chart_of(theme, written)
    chart.zoom_plot(0.2, 20.0)
    span = chart._last - chart._first
    chart.mark_selected_event(TimelineEvent(story.history, 1, 0.0, 150))
    assert chart._first <= 150 <= chart._last
    assert chart._last - chart._first == pytest.approx(span)
    shown = (chart._first, chart._last)
    chart.mark_selected_event(TimelineEvent(story.history, 1, 0.0, round(shown[0]) + 2))
    assert (chart._first, chart._last) == shown, "what is in sight moves nothing"
    chart.mark_selected_event(None)
    assert (chart._first, chart._last) == shown


def test_bars_of_costs_add_a_row_to_the_legend_and_go_again(theme: Theme, written: Written) -> None:
    chart, story = chart_of(theme, written)
    rows = len(chart._build_legend_rows(2_000))
    cause = CauseCost(Cause(CauseKind.NEW), 1_000, 0.2)
    request = RequestCost(story.seqs[1], 0.0, "m", 1_000, 0.2, (cause,))
    chart.show_request_costs([request])
    with_bars = chart._build_legend_rows(2_000)
    assert len(with_bars) == rows + 1
    assert "new content" in [name for name, _ in with_bars[-1].names_and_colours]
    assert "$0.200 for this request" in chart.describe_point(1)
    chart.show_request_costs(())
    assert len(chart._build_legend_rows(2_000)) == rows


def test_the_legend_says_that_sub_agents_are_left_out_only_where_there_are_any(
    theme: Theme, written: Written
) -> None:
    chart, _story = chart_of(theme, written)
    assert chart._build_legend_rows(2_000)[0].cost_words == "- - -  cost"
    returned = next(one.fact for one in written.facts if isinstance(one.fact, ToolReturned))
    written.add(replace(returned, child="helper"))
    chart, _story = chart_of(theme, written)
    assert chart._build_legend_rows(2_000)[0].cost_words == "- - -  cost without sub-agents"


def test_a_chart_without_costs_has_no_scale_of_dollars(theme: Theme, written: Written) -> None:
    chart, _story = chart_of(theme, written)
    assert any("$" in words.text for words in drawn(chart).words)
    free = Written()
    for tokens in (1_000, 2_000):
        free.add(ModelReplied((Text("words", 20),), "m", Stop.END, Usage(input=tokens)))
    without, _story = chart_of(theme, free)
    assert not any("$" in words.text for words in drawn(without).words)
    assert without._build_legend_rows(2_000)[0].cost_words == ""
    assert without._plot_area.right() > chart._plot_area.right()


def test_the_scale_of_tokens_begins_at_nothing_and_names_its_unit(
    theme: Theme, written: Written
) -> None:
    chart, _story = chart_of(theme, written)
    texts = [words.text for words in drawn(chart).words]
    assert "0" in texts
    assert "tokens" in texts
    assert {"You", "Files", "Errors"} <= {*texts}


def test_the_window_is_in_sight_once_a_third_of_it_is_filled(theme: Theme) -> None:
    def top_of(tokens: int) -> float:
        written = Written()
        written.add(ModelSet(ModelRole.MAIN, "m", 90_000))
        written.step(tokens)
        return chart_of(theme, written)[0]._top_tokens

    assert top_of(10_000) == 12_500
    assert top_of(31_000) == 90_000
    assert top_of(80_000) == 100_000


def test_the_pointer_on_a_point_says_its_figures_and_nothing_where_there_is_none(
    theme: Theme, written: Written
) -> None:
    chart, _story = chart_of(theme, written)
    empty = TimelineChart(theme)
    empty.resize(640, 390)
    empty.show()
    QTest.mouseClick(empty, Qt.MouseButton.LeftButton, pos=QPoint(100, 60))
    without_pointer = chart.grab().toImage()
    move_pointer(chart, chart.scale.x_of_point(2), chart.scale.area.center().y())
    assert chart.grab().toImage() != without_pointer
    assert chart.minimumSizeHint().height() < chart.height()


def tokens_of(label: str) -> float:
    """The number that a label of the axis stands for."""
    if label.endswith("K"):
        return float(label.removesuffix("K")) * 1_000
    return float(label)


def test_each_figure_of_the_scale_stands_beside_its_line(theme: Theme, written: Written) -> None:
    chart, _story = chart_of(theme, written)
    scale = chart.scale
    area = scale.area
    painter = drawn(chart)
    figures = [words for words in words_of_scale(chart, painter) if words.text[0].isdigit()]
    lines = [line for line in painter.lines if line.width == 1 and not line.fill]
    assert len(figures) == len(lines)
    assert 3 < len(figures) <= 8
    assert figures[0].text == "0"
    for words, line in zip(figures, lines, strict=True):
        y = scale.y_of_tokens(tokens_of(words.text))
        assert line.points == ((area.left(), round(y) + 0.5), (area.right(), round(y) + 0.5))
        assert line.colour == theme.colour_of_token("line").name()
        assert words.rect.center().y() == pytest.approx(round(y) + 0.5)
        assert words.colour == theme.colour_of_token("faint").name()
        assert words.rect.left() == 0


def test_the_unit_stands_above_the_scale_and_the_names_of_the_rows_of_marks_below_it(
    theme: Theme, written: Written
) -> None:
    chart, _story = chart_of(theme, written)
    area = chart.scale.area
    words = words_of_scale(chart, drawn(chart))
    (unit,) = [each for each in words if each.text == "tokens"]
    assert unit.rect.bottom() == area.top() - 4
    assert unit.colour == theme.colour_of_token("faint").name()
    others = [each.text for each in words if not each.text[0].isdigit() and each is not unit]
    assert others == ["You", "Files", "Errors"]
    for name in words[-3:]:
        assert name.rect.top() >= area.bottom() + 3
        assert name.rect.left() == 0


def words_of_scale(chart: TimelineChart, painter: RecordingPainter) -> list[PaintedWords]:
    """What ends at the left of the plot."""
    end = chart.scale.area.left() - 8
    return [words for words in painter.words if words.rect.right() == end]


def test_a_low_chart_has_fewer_figures_so_that_none_touch(theme: Theme, written: Written) -> None:
    chart, _story = chart_of(theme, written)
    few = chart_of(theme, written)[0]
    few.resize(640, 170)

    def figures(of: TimelineChart) -> int:
        return sum(words.text.endswith("K") for words in drawn(of).words)

    assert 0 < figures(few) < figures(chart)


def test_dollars_stand_at_the_right_at_the_height_of_the_cost_curve(
    theme: Theme, written: Written
) -> None:
    chart, story = chart_of(theme, written)
    area = chart.scale.area
    dollars = replace(chart.scale, top=story.dollars[-1] * 1.25)
    painter = drawn(chart)
    labels = [words for words in painter.words if "$" in words.text]
    assert len(labels) > 2
    assert labels[0].rect.center().y() == pytest.approx(area.bottom() - 3)
    for words in labels:
        amount = float(words.text.removeprefix("$"))
        assert words.rect.center().y() == pytest.approx(dollars.y_of_tokens(amount), abs=0.01)
        assert words.rect.left() == area.right() + 8
        assert words.rect.right() == chart.width()
    (curve,) = [line for line in painter.lines if line.style is Qt.PenStyle.DashLine]
    assert (curve.width, curve.colour) == (1.5, theme.colour_of_token("text").name())
    assert len(curve.points) == len(story.dollars)
    for (x, y), (point, spent) in zip(curve.points, enumerate(story.dollars), strict=True):
        assert x == pytest.approx(dollars.x_of_point(point))
        assert y == pytest.approx(dollars.y_of_tokens(spent))


def test_each_kind_is_an_area_down_to_the_ground_the_highest_drawn_first(
    theme: Theme, written: Written
) -> None:
    chart, story = chart_of(theme, written)
    areas = [line for line in drawn(chart).lines if line.fill]
    colours = [colour.name() for _, colour in chart._names_and_colours_of_layers()]
    assert [area.fill for area in areas] == colours[::-1]
    assert len(set(colours)) > 3
    ground = chart.scale.area.bottom() - 3
    for area, layer in zip(areas, story.layers[::-1], strict=True):
        assert area.style is Qt.PenStyle.NoPen
        edge = area.points[1:-1]
        assert area.points[0] == (edge[0][0], ground)
        assert area.points[-1] == (edge[-1][0], ground)
        assert [y for _, y in edge] == pytest.approx([chart.scale.y_of_tokens(n) for n in layer])


def test_a_zoomed_curve_reaches_both_edges_of_the_plot(theme: Theme) -> None:
    written = Written()
    for number in range(200):
        written.step(1_000 + number)
    chart, _ = chart_of(theme, written)
    chart.zoom_plot(0.2, 100.0)
    scale = chart.scale
    xs = [point.x() for point in chart._highest_points(chart._costs, scale)]
    assert xs[0] <= scale.area.left()
    assert xs[-1] >= scale.area.right()
    beyond = 2.5 * scale.pixels_per_point
    assert scale.area.left() - xs[0] < beyond
    assert xs[-1] - scale.area.right() < beyond


def test_each_name_of_the_legend_stands_beside_its_colour_and_the_row_ends_at_the_plot(
    theme: Theme, written: Written
) -> None:
    chart, _story = chart_of(theme, written)
    chart.resize(1_400, 390)
    painter = drawn(chart)
    (row,) = chart._build_legend_rows(chart._plot_area.width())
    colours = [colour.name() for _, colour in row.names_and_colours]
    dots = [dot for dot in painter.dots if dot.rect.center().y() == 15]
    assert [dot.colour for dot in dots] == colours
    names = [label for label in painter.labels if label.y == 19]
    assert [label.text for label in names] == [name for name, _ in row.names_and_colours] + [
        "- - -  cost"
    ]
    assert {label.colour for label in names} == {theme.colour_of_token("muted").name()}
    metrics = painter_metrics(theme)
    for dot, label, following in zip(dots, names, names[1:], strict=False):
        assert dot.rect.size().toTuple() == (8, 8)
        assert label.x == dot.rect.center().x() + 9
        gap = following.x - label.x - metrics.horizontalAdvance(label.text)
        assert gap == pytest.approx(22 - 13 * (following is names[-1]))
    last = names[-1]
    end = last.x + metrics.horizontalAdvance(last.text)
    assert end == pytest.approx(chart._plot_area.right())


def painter_metrics(theme: Theme) -> QFontMetrics:
    return QFontMetrics(theme.build_font(11))


def test_a_legend_without_room_is_left_out(theme: Theme, written: Written) -> None:
    chart, _story = chart_of(theme, written)
    painter = RecordingPainter(640, 390)
    row = LegendRow((("x" * 200, theme.colour_of_token("text")),))
    chart._draw_legend_row(painter, row, 0)
    assert painter.labels == []
    chart._draw_legend_row(painter, LegendRow((("x", theme.colour_of_token("text")),)), 1)
    painter.end()
    assert [label.text for label in painter.labels] == ["x", ""]
    assert painter.dots[0].rect.center().y() == 45, "the second row"


def test_only_kinds_that_there_are_stand_in_the_legend(theme: Theme) -> None:
    written = Written()
    written.add(UserSaid((Text("go", 10),)))
    written.step(1_000)
    chart, story = chart_of(theme, written)
    names = [name for name, _ in chart._build_legend_rows(2_000)[0].names_and_colours]
    grown = []
    below = [0.0] * len(story.points)
    for (name, _), layer in zip(chart._names_and_colours_of_layers(), story.layers, strict=True):
        if list(layer) != below:
            grown.append(name)
        below = list(layer)
    assert names == grown
    assert 0 < len(names) < len(story.layers)


def test_the_dates_stand_below_the_lanes_within_the_plot(theme: Theme) -> None:
    written = Written()
    for number in range(200):
        written.step(1_000 + number)
    chart, _ = chart_of(theme, written)
    area = chart.scale.area
    dates = [label for label in drawn(chart).labels if label.y == chart.height() - 12]
    metrics = painter_metrics(theme)
    assert len(dates) > 2
    assert {label.colour for label in dates} == {theme.colour_of_token("faint").name()}
    assert dates[0].x == area.left()
    ends = [label.x + metrics.horizontalAdvance(label.text) for label in dates]
    assert ends[-1] == pytest.approx(area.right() - 2)
    for end, following in zip(ends, dates[1:], strict=False):
        assert following.x - end > 12


def test_the_plot_leaves_room_for_what_stands_around_it(theme: Theme, written: Written) -> None:
    chart, _story = chart_of(theme, written)
    rows = len(chart._build_legend_rows(chart._plot_area.width()))
    assert chart._plot_area.getCoords() == (60, 30 * rows, 640 - 60, 390 - 3 * 15 - 26)
    empty = TimelineChart(theme)
    empty.resize(640, 390)
    assert empty._plot_area.getCoords() == (60, 30, 640 - 16, 390 - 3 * 15 - 26)
    assert empty._top_dollars == 0.0
    assert empty.minimumSizeHint().toTuple() == (240, 195)
    assert empty.accessibleName() == "Tokens over time"
    assert empty.sizePolicy().horizontalPolicy() is QSizePolicy.Policy.Expanding


@pytest.mark.parametrize(
    ("share", "is_drawn"), [(0.0, False), (0.0001, True), (1.0, True), (1.001, False)]
)
def test_a_threshold_is_drawn_from_above_nothing_to_the_top(
    theme: Theme, written: Written, share: float, *, is_drawn: bool
) -> None:
    chart, story = chart_of(theme, written)
    scale = replace(chart.scale, top=float(story.model_window))
    chart._thresholds = [("a summary", ContextKind.HANDOVER, share)]
    painter = RecordingPainter(640, 390)
    chart._draw_thresholds(painter, scale)
    painter.end()
    if not is_drawn:
        assert (painter.lines, painter.labels) == ([], [])
        return
    (line,) = painter.lines
    y = round(scale.y_of_tokens(share * story.model_window)) + 0.5
    assert line.points == ((scale.area.left(), y), (scale.area.right(), y))
    assert line.colour == theme.fill_colour_of_kind(ContextKind.HANDOVER).name()
    (label,) = painter.labels
    assert (label.x, label.y, label.text) == (scale.area.left() + 6, y - 6, "a summary")
    assert label.colour == theme.text_colour_of_kind(ContextKind.HANDOVER).name()


def pointer(chart: TimelineChart) -> RecordingPainter:
    """What is drawn of the choice and the pointer."""
    painter = RecordingPainter(chart.width(), chart.height())
    chart._draw_choice_and_pointer(painter, chart.scale)
    painter.end()
    return painter


def test_the_pointer_is_a_line_with_a_dot_on_the_curve_and_its_figures(
    theme: Theme, written: Written
) -> None:
    chart, story = chart_of(theme, written)
    last = len(story.points) - 1
    for hover in (-1, last + 1):
        chart._hover = hover
        assert (pointer(chart).lines, pointer(chart).words) == ([], [])
    for hover in (0, last):
        chart._hover = hover
        painter = pointer(chart)
        (line,) = painter.lines
        x = chart.scale.x_of_point(hover)
        assert line.points == ((x, chart.scale.area.top()), (x, chart.scale.area.bottom()))
        (dot,) = painter.dots
        assert dot.rect.center().toTuple() == (x, chart.scale.y_of_tokens(story.points[hover]))
        assert dot.colour == theme.fill_colour_of_kind(ContextKind.CONVERSATION).name()
        (words,) = painter.words
        assert words.text == chart.describe_point(hover)


def test_the_chosen_fold_has_a_ring_while_it_is_in_sight(theme: Theme, written: Written) -> None:
    chart, story = chart_of(theme, written)
    fold = next(event for event in story.events if event.current_folds)
    chart._selected = fold
    for first, last, rings in (
        (fold.point, fold.point + 2, 1),
        (fold.point - 2, fold.point, 1),
        (fold.point + 0.5, fold.point + 2, 0),
        (fold.point - 2, fold.point - 0.5, 0),
    ):
        chart._first, chart._last = float(first), float(last)
        assert len(pointer(chart).shapes) == rings
    start = next((event for event in story.events if not event.current_folds), None)
    chart._first, chart._last = 0.0, float(len(story.points) - 1)
    chart._selected = start
    assert pointer(chart).shapes == []
    chart._selected = None
    assert pointer(chart).shapes == []


def test_the_picture_is_drawn_again_when_something_new_is_in_it(theme: Theme) -> None:
    written = Written()
    for number in range(20):
        written.step(1_000 + number)
    chart, story = chart_of(theme, written)
    chart.grab()
    before = chart._drawn
    chart.grab()
    assert chart._drawn is before
    written.add(UserSaid((Text("more", 10),)))
    story.read_next_fact(written.facts[-1])
    chart.extend_timeline_plot()
    chart.grab()
    assert chart._drawn is not before


def test_a_drag_chooses_nothing(theme: Theme, written: Written) -> None:
    chart, _story = chart_of(theme, written)
    steps: list[int] = []
    chart.step_chosen.connect(steps.append)
    chart.chosen.connect(steps.append)
    QTest.mousePress(chart, Qt.MouseButton.LeftButton, pos=QPoint(300, 60))
    chart._moved = True
    QTest.mouseRelease(chart, Qt.MouseButton.LeftButton, pos=QPoint(300, 60))
    assert steps == []
