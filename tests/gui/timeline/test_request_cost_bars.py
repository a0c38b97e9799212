"""The bars of what each request cost: where each stands, how high its parts are, and in words."""

from __future__ import annotations

import itertools

import pytest
from PySide6.QtCore import QRectF

from helix_desktop.engine.request_changes import Cause, CauseKind
from helix_desktop.engine.request_costs import CauseCost, RequestCost
from helix_desktop.gui.common.step_plot import PlotScale
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.request_cost_bars import (
    COLOURS,
    HEIGHT,
    WIDEST,
    BarPart,
    RequestCostBars,
)
from tests.gui.timeline.recording_painter import PaintedShape, RecordingPainter

# A hundred pixels for each point.
SCALE = PlotScale(QRectF(10, 10, 500, 100), 0, 5, 1_000)
BOTTOM = SCALE.area.bottom()


def request(seq: int, *causes: tuple[CauseKind, int, float]) -> RequestCost:
    parts = tuple(CauseCost(Cause(kind), tokens, cost) for kind, tokens, cost in causes)
    tokens = sum(part.tokens for part in parts)
    cost = sum(part.cost for part in parts)
    return RequestCost(seq, 0.0, "m", tokens, cost, parts)


FOUR_PARTS = request(
    2,
    (CauseKind.READ, 9_000, 0.1),
    (CauseKind.NEW, 1_000, 0.2),
    (CauseKind.TIME, 500, 0.3),
    (CauseKind.REPLY, 0, 0.4),
)


def painted(theme: Theme, *requests: RequestCost, scale: PlotScale = SCALE) -> list[PaintedShape]:
    """The parts of bars that have a height. Each request stands at the point of its number."""
    painter = RecordingPainter(520, 120)
    RequestCostBars(requests, range(6)).draw_cost_bars(painter, theme, scale)
    painter.end()
    return [part for part in painter.shapes if part.rect.height() > 0]


def test_a_request_belongs_to_the_next_point_and_after_the_last_to_none() -> None:
    between = RequestCost(3, 0.0, "m", 10, 0.5, ())
    after = RequestCost(9, 0.0, "m", 10, 0.25, ())
    bars = RequestCostBars([between, after], seqs=[2, 5])
    assert bars.describe_costs(0) == ""
    assert bars.describe_costs(1) == "$0.500 for this request"
    assert bars.describe_costs(2) == ""


def test_a_request_at_the_last_point_belongs_to_it() -> None:
    bars = RequestCostBars([RequestCost(5, 0.0, "m", 10, 0.5, ())], seqs=[2, 5])
    assert bars.describe_costs(1) == "$0.500 for this request"


def test_what_a_request_cost_is_said_part_by_part_with_its_tokens() -> None:
    bars = RequestCostBars([FOUR_PARTS], range(6))
    assert bars.describe_costs(2).splitlines() == [
        "$1.00 for this request",
        "read from the cache: $0.100 · 9K",
        "new content: $0.200 · 1K",
        "written again: $0.300 · 500",
        "reply: $0.400",
    ]


def test_requests_between_two_steps_are_said_together() -> None:
    first = request(2, (CauseKind.NEW, 1_000, 0.2))
    second = request(2, (CauseKind.NEW, 500, 0.1), (CauseKind.REPLY, 0, 0.1))
    lines = RequestCostBars([first, second], range(6)).describe_costs(2).splitlines()
    assert lines == ["$0.400 for this request", "new content: $0.300 · 1.5K", "reply: $0.100"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (CauseKind.READ, "read from the cache"),
        (CauseKind.FIRST, "new content"),
        (CauseKind.NEW, "new content"),
        (CauseKind.BESIDE, "new content"),
        (CauseKind.FOLD, "written again"),
        (CauseKind.TIME, "written again"),
        (CauseKind.MODEL, "written again"),
        (CauseKind.REPLY, "reply"),
    ],
)
def test_each_cause_is_in_one_part_of_the_bar(kind: CauseKind, name: str) -> None:
    bars = RequestCostBars([request(0, (kind, 10, 0.5))], range(6))
    assert bars.describe_costs(0).splitlines()[1].startswith(f"{name}: $0.500")


def test_parts_stand_one_on_another_and_the_dearest_bar_has_its_share_of_the_plot(
    theme: Theme,
) -> None:
    parts = painted(theme, FOUR_PARTS)
    names = [theme.colour_of_token(COLOURS[part]).name() for part in BarPart]
    assert [part.colour for part in parts] == names
    assert parts[0].rect.bottom() == pytest.approx(BOTTOM)
    for lower, upper in itertools.pairwise(parts):
        assert upper.rect.bottom() == pytest.approx(lower.rect.top())
    whole = BOTTOM - parts[-1].rect.top()
    assert whole == pytest.approx(SCALE.area.height() * HEIGHT)
    shares = [part.rect.height() / whole for part in parts]
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_cheaper_request_has_a_lower_bar(theme: Theme) -> None:
    cheap, dear = painted(
        theme, request(1, (CauseKind.NEW, 1, 0.25)), request(3, (CauseKind.NEW, 1, 1.0))
    )
    assert cheap.rect.height() == pytest.approx(dear.rect.height() / 4)
    assert cheap.rect.center().x() == pytest.approx(SCALE.x_of_point(1), abs=1)
    assert dear.rect.center().x() == pytest.approx(SCALE.x_of_point(3), abs=1)


def test_requests_that_cost_nothing_have_no_bar(theme: Theme) -> None:
    assert painted(theme, request(1, (CauseKind.NEW, 1, 0.0))) == []


def test_all_bars_are_as_wide_as_the_two_closest_allow_and_none_is_very_wide(
    theme: Theme,
) -> None:
    apart = painted(theme, *[request(seq, (CauseKind.NEW, 1, 1.0)) for seq in (0, 2)])
    assert {part.rect.width() for part in apart} == {WIDEST * 0.6}
    ten_pixels = PlotScale(SCALE.area, 0, 50, 1_000)
    seqs = (0, 1, 4)
    close = painted(
        theme, *[request(seq, (CauseKind.NEW, 1, 1.0)) for seq in seqs], scale=ten_pixels
    )
    assert {part.rect.width() for part in close} == {6.0}
    for left, right in itertools.pairwise(close):
        assert left.rect.right() < right.rect.left()


def test_a_bar_stays_visible_however_many_there_are(theme: Theme) -> None:
    a_pixel = PlotScale(SCALE.area, 0, 500, 1_000)
    bars = painted(theme, *[request(seq, (CauseKind.NEW, 1, 1.0)) for seq in (0, 1)], scale=a_pixel)
    assert {part.rect.width() for part in bars} == {1.0}


def test_of_several_requests_at_one_place_the_dearest_is_drawn(theme: Theme) -> None:
    dear = request(2, (CauseKind.READ, 1, 1.0))
    cheap = request(2, (CauseKind.NEW, 1, 0.5))
    read = theme.colour_of_token(COLOURS[BarPart.READ]).name()
    for order in ([dear, cheap], [cheap, dear]):
        (bar,) = painted(theme, *order)
        assert bar.colour == read


def test_only_requests_in_sight_are_drawn(theme: Theme) -> None:
    requests = [request(seq, (CauseKind.NEW, 1, 1.0)) for seq in range(6)]
    shown = PlotScale(SCALE.area, 2, 4, 1_000)
    assert len(painted(theme, *requests, scale=shown)) == 3


def test_the_legend_names_all_parts_and_nothing_without_bars() -> None:
    assert RequestCostBars().names_and_colours_of_parts() == ()
    legend = RequestCostBars([FOUR_PARTS], range(6)).names_and_colours_of_parts()
    assert [name for name, _ in legend] == [
        "read from the cache",
        "new content",
        "written again",
        "reply",
    ]
    assert [colour for _, colour in legend] == list(COLOURS.values())
