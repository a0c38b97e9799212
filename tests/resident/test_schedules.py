"""Schedules: when they are due, over a year with both changes of the clocks, and what
an outage does.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from helix_desktop.errors import ConfigFileMistake, InvalidInput
from helix_desktop.resident import schedules
from helix_desktop.resident.schedules import WEEKDAYS, WorkSchedule

YEAR = datetime(2027, 1, 1, tzinfo=UTC)
DAYS = 366


def schedule(zone: str, at: str, **more: object) -> WorkSchedule:
    return WorkSchedule("1", "W", "look", at, zone, handled=YEAR.timestamp(), **more)  # type: ignore[arg-type]


@cache
def due_by_looking_at_all_times(zone: ZoneInfo, at: str, days: tuple[str, ...]) -> list[datetime]:
    """The first moment of each day with this time on the wall; where there is none, by
    the offset of the hours before.
    """
    found: dict[object, datetime] = {}
    for minute in range(0, DAYS * 1440, 5):
        now = YEAR + timedelta(minutes=minute)
        local = now.astimezone(zone)
        if f"{local:%H:%M}" == at:
            found.setdefault(local.date(), now)
    dates = {(YEAR + timedelta(days=day)).astimezone(zone).date() for day in range(1, DAYS - 1)}
    for date in dates - found.keys():
        hours, minutes = map(int, at.split(":"))
        offset = datetime(date.year, date.month, date.day, tzinfo=zone).utcoffset()
        assert offset is not None
        found[date] = datetime(date.year, date.month, date.day, hours, minutes, tzinfo=UTC) - offset
    return sorted(
        due
        for due in found.values()
        if WEEKDAYS[due.astimezone(zone).weekday()] in days and due > YEAR
    )


@pytest.mark.parametrize(
    ("zone", "at", "days"),
    [
        ("Europe/Berlin", "02:30", WEEKDAYS),  # is left out in March and comes twice in October
        ("America/New_York", "08:00", WEEKDAYS[:5]),
        ("Australia/Lord_Howe", "02:15", WEEKDAYS),  # whose clocks change by half an hour
    ],
)
def test_each_due_time_of_a_year_is_right(zone: str, at: str, days: tuple[str, ...]) -> None:
    wanted = due_by_looking_at_all_times(ZoneInfo(zone), at, days)
    one = schedule(zone, at, days=days)
    found: list[datetime] = []
    moment = YEAR.timestamp()
    while (moment := one.next_due(moment)) < (YEAR + timedelta(days=DAYS - 2)).timestamp():
        found.append(datetime.fromtimestamp(moment, UTC))
    assert found == [due for due in wanted if due < YEAR + timedelta(days=DAYS - 2)]


def test_schedules_are_kept_in_a_private_file(tmp_path: Path) -> None:
    kept = [schedule("Europe/Berlin", "08:00", options=("--model", "a/b"))]
    assert schedules.read_schedules(tmp_path) == []
    schedules.write_schedules(tmp_path, kept)
    assert schedules.read_schedules(tmp_path) == kept
    (tmp_path / schedules.NAME).write_text(json.dumps([{"id": 1}]))
    with pytest.raises(ConfigFileMistake):
        schedules.read_schedules(tmp_path)


def test_what_is_no_time_is_said() -> None:
    for wrong in ("8", "24:00", "08:60", "noon"):
        with pytest.raises(InvalidInput):
            schedules.parse_time_of_day(wrong)
    for wrong in ("Nowhere/Land", "../etc/passwd", ""):
        with pytest.raises(InvalidInput):
            schedules.find_time_zone(wrong)
    with pytest.raises(InvalidInput):
        schedules.parse_days("mon,someday")
    assert schedules.parse_days("weekdays") == WEEKDAYS[:5]
    assert schedules.parse_days("Mon, thu") == ("mon", "thu")


def test_the_time_zone_may_be_named_by_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems set TZ=:/etc/localtime, so that programs look it up less often."""
    zone_file = tmp_path / "zoneinfo" / "Europe" / "Berlin"
    zone_file.parent.mkdir(parents=True)
    zone_file.touch()
    (tmp_path / "localtime").symlink_to(zone_file)
    monkeypatch.setenv("TZ", f":{tmp_path / 'localtime'}")
    assert schedules.name_of_local_zone() == "Europe/Berlin"
    monkeypatch.setenv("TZ", ":America/New_York")
    assert schedules.name_of_local_zone() == "America/New_York"


def test_one_that_is_off_adds_nothing_and_nothing_afterwards_for_the_time_in_between(
    tmp_path: Path,
) -> None:
    one = schedule("Europe/Berlin", "08:00")
    later = one.next_due(one.handled) + 1
    assert one.advance_past_due(later)[1]
    off = one.with_on_off_toggled()
    assert (one.is_on, off.is_on) == (True, False)
    assert off.advance_past_due(later) == (off, 0.0)
    schedules.write_schedules(tmp_path, [one, off])
    assert schedules.read_schedules(tmp_path) == [one, off]
    on = off.with_on_off_toggled()
    assert on.is_on
    assert on.advance_past_due(time.time()) == (on, 0.0)
