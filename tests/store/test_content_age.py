"""What is younger than its retention by any reading of the clock is not called old."""

from __future__ import annotations

import pytest

from helix_desktop.store.content_age import EntryTimes

DAY = 86_400.0
START = 1_700_000_000.0


def ages_in_days(times: list[float], now: float) -> list[float]:
    """The certain age of each entry, stored in this order at these times."""
    entry_times = EntryTimes(now)
    stored = [entry_times.note_entry_time(time) for time in times]
    entry_times.end_with_present()
    return [entry_times.certain_age_seconds(time) / DAY for time in stored]


def test_with_daily_use_the_age_is_that_of_the_clock() -> None:
    times = [START + day * DAY for day in range(60)]
    assert ages_in_days(times, times[-1]) == [float(59 - day) for day in range(60)]


def test_a_clock_far_ahead_makes_nothing_older() -> None:
    times = [START, START + 2 * DAY, START + 3 * DAY]
    assert ages_in_days(times, START + 400 * DAY) == [3.0, 1.0, 0.0]


def test_a_clock_that_stays_ahead_while_the_workspace_is_used_makes_nothing_older() -> None:
    ahead = START + 400 * DAY
    times = [START, START + DAY, ahead, ahead + DAY]
    assert ages_in_days(times, ahead + 2 * DAY) == [3.0, 2.0, 2.0, 1.0]


def test_what_was_stored_while_the_clock_was_behind_is_as_old_as_what_was_stored_before() -> None:
    times = [START, 0.0, 10.0, START + DAY]
    assert ages_in_days(times, START + DAY) == [1.0, 1.0, 1.0, 0.0]


def test_a_first_entry_at_the_beginning_of_time_is_young_after_the_clock_was_set() -> None:
    assert ages_in_days([0.0, 60.0, START], START + DAY)[0] == pytest.approx(1.0 + 60 / DAY)


def test_an_entry_of_the_future_is_not_old() -> None:
    assert ages_in_days([START + 900 * DAY], START)[0] < 0


def test_a_clock_that_went_ahead_three_times_makes_nothing_older() -> None:
    times = [START, START + 300 * DAY, START + 700 * DAY]
    assert ages_in_days(times, START + 1_200 * DAY)[0] == 0.0


def test_contents_of_a_workspace_that_is_used_rarely_get_old_too() -> None:
    times = [START + 10 * DAY * visit for visit in range(12)]
    assert ages_in_days(times, times[-1])[0] == 110.0 - 30.0
