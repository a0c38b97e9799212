"""The rows of a difference stand where the heights of the rows above them say, and
lines out of sight are let go.
"""

from __future__ import annotations

import pytest

from helix_desktop.engine.changes.diff_hunks import find_hunks
from helix_desktop.gui.common.difference_rows import build_difference_sheet, build_hunk_rows
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.views.difference_layout import BOX, DifferenceLines, DifferenceRowHeights


@pytest.fixture
def heights(theme: Theme) -> DifferenceRowHeights:
    text = b"short\n" + b"a word " * 60 + b"\nlast\n"
    sheet = build_difference_sheet(
        build_hunk_rows(find_hunks(b"", text), two_columns=False), two_columns=False
    )
    lines = DifferenceLines(DrawingStyle(theme), 400, "", two_columns=False, is_exact=False)
    return DifferenceRowHeights(sheet, lines)


def test_a_wrapped_row_is_measured_once_and_the_rows_below_move(
    heights: DifferenceRowHeights,
) -> None:
    below = heights.tops[2:]
    heights.measure_wrapped_rows(range(4))
    lines = heights._lines.count_wrapped_lines_of_row(2, heights._sheet.rows[2])
    high = lines * heights._lines.ink.code_line_height
    assert heights.tops[3] - heights.tops[2] == pytest.approx(high)
    assert heights.tops[2:] == pytest.approx(
        [top if at == 0 else top + high - (below[1] - below[0]) for at, top in enumerate(below)]
    )
    assert not heights.measure_wrapped_rows(range(4))


def test_a_comment_makes_room_below_its_row_alone(heights: DifferenceRowHeights) -> None:
    before = list(heights.tops)
    room = heights._lines.ink.scaled_pixels(BOX)
    heights.reserve_room_for_comment_below(1)
    heights.reserve_room_for_comment_below(3)
    assert heights.tops == pytest.approx([*before[:4], before[4] + room])
    heights.reserve_room_for_comment_below(-1)
    assert heights.tops == pytest.approx(before)


def test_a_place_has_its_row_and_beyond_the_ends_the_nearest(heights: DifferenceRowHeights) -> None:
    tops = heights.tops
    assert [heights.nearest_row(y) for y in (-5, tops[1], tops[2] - 1, tops[3], tops[4] + 50)] == [
        0,
        1,
        1,
        3,
        3,
    ]
    assert heights.rows_between(tops[1], tops[2] + 1) == range(1, 3)
    assert heights.rows_between(-20, tops[-1] + 100) == range(4)


def test_only_lines_in_sight_are_coloured(heights: DifferenceRowHeights) -> None:
    lines = heights._lines
    rows = heights._sheet.rows
    laid = {
        number: lines.lay_out_line(number, line, right=True)
        for number in (1, 3)
        if (line := rows[number].right)
    }
    assert set(lines.plain) == {(1, True), (3, True)}
    coloured: list[int] = []
    while lines.plain:
        coloured += lines.colour_visible_lines_briefly(range(2))
    assert coloured == [1]
    line = rows[3].right
    assert line is not None
    assert lines.lay_out_line(3, line, right=True) is not laid[3]
