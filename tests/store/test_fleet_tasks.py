"""Deadlines as they are written: a duration, or a moment that has not passed."""

from __future__ import annotations

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.store.fleet_tasks import parse_deadline_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0.0), ("0.5s", 0.5), ("90m", 5_400.0), ("8h", 28_800.0), ("2d", 172_800.0)],
)
def test_a_duration_is_told_by_its_unit(text: str, seconds: float) -> None:
    assert parse_deadline_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [("0s", "has passed"), ("2001-01-31T18:00", "has passed"), ("soon", "is not a time")],
)
def test_what_has_passed_or_is_no_time_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        parse_deadline_seconds(text)
