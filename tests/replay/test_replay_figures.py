"""The figures of sessions, alone and together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.replay.replay_figures import ReplayFigures, sum_figures

ONE = ReplayFigures(
    "a", 1_000, (100, 300, 200), sent=600, billed=300, cache_read=250, peak=300, overflowed=0, plain_sent=1_200,
    plain_billed=900, folds={"marker": 3}, recalls=4, details={"found": 5, "lost": 1}, used=10, standing=9, waited=2.5,
)  # fmt: skip


def test_shares() -> None:
    assert ONE.retained_share == pytest.approx(0.9)
    assert ONE.median_window_share == pytest.approx(0.2)
    assert ONE.peak_window_share == pytest.approx(0.3)
    empty = replace(ONE, steps=(), used=0, standing=0)
    assert (empty.retained_share, empty.median_window_share) == (1.0, 0.0)


def test_the_total_sums_and_takes_the_worst() -> None:
    other = replace(
        ONE,
        steps=(900,),
        peak=1_100,
        overflowed=1,
        undo_identical=False,
        folds={"handover": 1},
        waited=9.0,
    )
    both = sum_figures([ONE, other])
    assert both.sent == 1_200
    assert both.peak == 1_100
    assert both.overflowed == 1
    assert both.folds == {"marker": 3, "handover": 1}
    assert both.details == {"found": 10, "lost": 2}
    assert not both.undo_identical
    assert both.waited == 9.0
    assert both.median_window_share == pytest.approx(0.25)
    assert both.sessions == 2


def test_the_shape_of_the_json() -> None:
    shape = ONE.as_json()
    wanted = (
        "steps sent billed cache_read peak overflowed illegal_requests folds markers recalls_failed details fallbacks "
        "retention median_use undo_identical repeats_served"
    )
    assert set(wanted.split()) <= set(shape)
    assert shape["details"] == {"found": 5, "kept": 0, "added": 0, "entry": 0, "lost": 1}
    assert shape["markers"] == 3
    assert shape["steps"] == 3


def test_what_a_session_would_be_billed_is_compared_with_the_cheaper_way_to_send_all() -> None:
    figures = ReplayFigures(
        name="s", window=100, steps=(10, 30, 20), sent=60, billed=40, cache_read=5, peak=50,
        overflowed=0, plain_sent=90, plain_billed=80, recalls_billed=20, plain_peak=100,
    )  # fmt: skip
    assert figures.billed_with_recalls == 60
    assert figures.bill_share == 60 / 80
    assert replace(figures, at_limit_billed=120).bill_share == 0.5
    assert figures.median_window_share == 0.2
    assert figures.peak_window_share == 0.5
    assert figures.fits_window
    assert not replace(figures, plain_peak=101).fits_window
    assert replace(figures, steps=()).median_window_share == 0.0


def test_without_identifiers_that_are_used_again_nothing_is_missed() -> None:
    figures = ReplayFigures(
        name="s", window=100, steps=(), sent=0, billed=0, cache_read=0, peak=0, overflowed=0,
        plain_sent=0, plain_billed=0,
    )  # fmt: skip
    assert figures.retained_share == figures.share_of_names_outside_markers == 1.0
    some = replace(figures, used=4, standing=3, standing_plain=1)
    assert (some.retained_share, some.share_of_names_outside_markers) == (0.75, 0.25)
    assert figures.bill_share == 0.0
