"""A plot shows the extremes of any number of steps."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QRectF

from helix_desktop.gui.common.step_plot import MinMaxPyramid, PlotScale, compute_axis_ticks

POINTS = st.lists(st.integers(0, 1_000), min_size=1, max_size=700)


@given(POINTS, st.integers(1, 40))
def test_no_extreme_is_lost(points: list[int], pixels: int) -> None:
    found = MinMaxPyramid(array("q", points)).sample_lows_and_highs(0, len(points) - 1, pixels)
    assert max(high for _, _, high in found) == max(points)
    assert min(low for _, low, _ in found) == min(points)
    assert len(found) <= 2 * pixels + 10 or len(points) <= 8


@given(POINTS, POINTS)
def test_a_pyramid_that_grew_is_one_that_was_built(points: list[int], more: list[int]) -> None:
    growing = array("q", points)
    pyramid = MinMaxPyramid(growing)
    growing.extend(more)
    pyramid.add_new_values()
    assert pyramid._levels == MinMaxPyramid(array("q", points + more))._levels


@pytest.mark.parametrize("top", [3, 40, 999, 21_000, 1_234_567])
def test_the_scale_has_a_few_round_numbers(top: int) -> None:
    found = compute_axis_ticks(top)
    assert 1 <= len(found) <= 7
    assert all(0 < each <= top for each in found)


def test_a_low_scale_has_fewer_numbers() -> None:
    assert [compute_axis_ticks(21_000, at_most) for at_most in (4, 2)] == [
        [10_000, 20_000],
        [20_000],
    ]
    assert all(len(compute_axis_ticks(top, 3)) <= 3 for top in range(1, 100_000, 37))


def test_a_scale_finds_the_point_that_stands_at_a_pixel() -> None:
    scale = PlotScale(QRectF(60, 30, 500, 300), 20.0, 120.0, 1_000)
    assert (scale.x_of_point(20), scale.x_of_point(120)) == (60, 560)
    assert [scale.point_at(scale.x_of_point(point)) for point in (20, 70, 95)] == [20, 70, 95]
    assert scale.pixels_per_point == 5
    assert (
        scale.y_of_tokens(1_000)
        < scale.y_of_tokens(500)
        < scale.y_of_tokens(0)
        < scale.area.bottom()
    )
