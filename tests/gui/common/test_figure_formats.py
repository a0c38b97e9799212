"""Figures as people read them."""

from __future__ import annotations

from datetime import datetime

import pytest
from PySide6.QtCore import QLocale

from helix_desktop.gui.common.figure_formats import (
    format_byte_size,
    format_date_and_time,
    format_dollars,
    format_duration,
    format_short_day,
    format_short_day_and_time,
    format_time_ago,
)
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.translation import format_number


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (19_354, "19.4 KB"),
        (207_872, "208 KB"),
        (100_872_192, "101 MB"),
        (5 << 40, "5.5 TB"),
    ],
)
def test_sizes(amount: int, words: str) -> None:
    assert format_byte_size(amount) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (5, "just now"),
        (130, "2 min ago"),
        (7_300, "2 h ago"),
        (90_000, "1 day ago"),
        (200_000, "2 days ago"),
    ],
)
def test_how_long_ago(seconds: float, words: str) -> None:
    assert format_time_ago(1e9, 1e9 + seconds) == words


def test_a_long_time_ago_is_a_date() -> None:
    assert format_time_ago(0, 1e9).endswith("Jan 1970")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.24, "0.2 s"), (9.8, "9.8 s"), (41.2, "41 s"), (185, "3 min 05 s"), (7_800, "2 h 10 min")],
)
def test_how_long(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("dollars", "words"),
    [(6.14, "$6.14"), (1_234.5, "$1,234.50"), (0.0123, "$0.012"), (0.00049, "$0.0005"), (0, "$0")],
)
def test_money(dollars: float, words: str) -> None:
    assert format_dollars(dollars) == words


def test_figures_are_written_as_the_language_writes_them() -> None:
    before = QLocale()
    then = datetime(2026, 3, 5, 8, 4).astimezone().timestamp()
    try:
        QLocale.setDefault(QLocale("de"))
        assert (
            format_byte_size(1_536_000),
            format_token_count(43_500),
            format_number(1_234_567),
        ) == (
            "1,5 MB",
            "43,5K",
            "1.234.567",
        )
        assert format_date_and_time(then) == "5. März 2026 08:04"
        assert format_short_day(then, then + 30 * 86_400) == "5. März"
        QLocale.setDefault(QLocale("zh_CN"))
        assert format_date_and_time(then) == "2026年3月5日 08:04"
        assert format_short_day(then, then + 30 * 86_400) == "3月5日", "it was “5 3月”"
        QLocale.setDefault(QLocale("en_US"))
        assert format_date_and_time(then).replace("\u202f", " ") == "Mar 5, 2026 8:04 AM"
    finally:
        QLocale.setDefault(before)


def test_a_time_on_another_day_has_its_day_and_years_later_its_year_too() -> None:
    then = datetime.fromisoformat("2025-10-28T04:34").astimezone().timestamp()
    day = 86_400.0
    told = [
        format_short_day_and_time(then, then - 2 * day, then + later * day)
        for later in (1, 30, 400)
    ]
    assert told == ["Tue 04:34", "28 Oct 04:34", "28 Oct 2025 04:34"]
    assert format_short_day_and_time(then, then - 60, then + 400 * day) == "04:34"
