"""Schedules: when they are due, over a year with both changes of the clocks, and what
an outage does.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import ConfigFileMistake, InvalidInput
from helix_desktop.resident import schedule_keeper, schedules
from helix_desktop.resident.schedule_keeper import ScheduleKeeper
from helix_desktop.resident.schedules import WEEKDAYS, WorkSchedule
from tests.conftest import Expect

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


@pytest.mark.parametrize("missed", ["once", "never"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_a_year_with_outages_adds_each_due_time_once_and_a_missed_one_as_was_chosen(
    zone: str, missed: str
) -> None:
    chance = random.Random(f"{zone} {missed}")
    one = schedule(zone, "02:30", missed=missed)
    added: list[float] = []
    now = YEAR.timestamp()
    last_look = now
    every = due_by_looking_at_all_times(ZoneInfo(zone), "02:30", WEEKDAYS)
    while now < (YEAR + timedelta(days=DAYS - 2)).timestamp():
        now += chance.choice(
            (20, 20, 3600 * chance.random() * 60 if chance.random() < 0.02 else 20)
        )
        between = [due.timestamp() for due in every if last_look < due.timestamp() <= now]
        one, due = one.advance_past_due(now)
        wanted = between[-1:] if missed == "once" or (between and now - between[-1] <= 300) else []
        assert ([due] if due else []) == wanted
        added += wanted
        last_look = now
        if not between:  # on to the next due time, or to the next outage
            now = max(now, min(one.next_due(now) - 60, now + 86_400))
    assert len(added) == len(set(added)) > 100


def test_a_due_time_is_one_task_however_often_it_is_added() -> None:
    one = schedule("Europe/Berlin", "08:00", options=("--allow", "edits"))
    due = one.next_due(YEAR.timestamp())
    assert one.task_command(due) == one.task_command(due)
    assert one.task_command(due) != one.task_command(one.next_due(due))
    assert one.task_command(due)[-4:] == ["--allow", "edits", "--", "-"]
    assert json.loads(one.encode_task_input()) == {"text": "look"}


async def test_a_schedule_that_cannot_run_holds_up_no_other_and_its_text_is_no_argument(
    tmp_path: Path, expect: Expect
) -> None:
    expect("the schedule bad did not run: Mars/Olympus is not a time zone")
    said = tmp_path / "said"
    script = (
        f"import sys; open({str(said)!r}, 'a').write(repr(sys.argv) + sys.stdin.read() + chr(10))"
    )
    keeper = ScheduleKeeper(tmp_path, [sys.executable, "-I", "-c", script])
    due = time.time() - 90_000
    gone = WorkSchedule("bad", "w", "look", "08:00", "Mars/Olympus", handled=due)
    schedules.write_schedules(
        tmp_path, [gone, replace(gone, id="good", zone="UTC", text="the secret plan")]
    )
    keeper.reread_schedules()
    owned = OwnedTasks("trial")
    owned.spawn_task(keeper.add_due_tasks_until_cancelled(), name="keep schedules")
    async with asyncio.timeout(60):
        while not (said.exists() and "--drain" in said.read_text()):
            await asyncio.sleep(0.02)
    await owned.aclose()
    (added,) = [line for line in said.read_text().splitlines() if "'add'" in line]
    assert added.endswith(']{"text": "the secret plan"}')


async def test_a_schedule_that_is_switched_off_or_changed_while_its_task_is_added_stays_so(
    tmp_path: Path,
) -> None:
    """The command that adds the task makes the user's changes here."""
    due = time.time() - 90_000
    switched = WorkSchedule("switched", "w", "look", "08:00", "UTC", handled=due)
    edited = replace(switched, id="edited")
    wanted = [switched.with_on_off_toggled(), replace(edited, text="look twice")]
    rows = tmp_path / "wanted"
    schedules.write_schedules(rows, wanted)
    copy_file = f"shutil.copy({str(rows / schedules.NAME)!r}, {str(tmp_path)!r})"
    script = f"import shutil, sys; 'add' in sys.argv and {copy_file}"
    keeper = ScheduleKeeper(tmp_path, [sys.executable, "-I", "-c", script])
    schedules.write_schedules(tmp_path, [switched, edited])

    await keeper._run_if_due(edited)
    await keeper._run_if_due(switched)

    first, second = schedules.read_schedules(tmp_path)
    assert not first.is_on
    assert second.text == "look twice"


async def test_other_computers_are_told_of_each_change_of_a_shared_workspaces_schedules(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    script = f"import sys; open({str(said)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))"
    command = [sys.executable, "-I", "-c", script]
    keeper = ScheduleKeeper(tmp_path, command, lambda workspace: workspace == "shared")
    later = replace(schedule("UTC", "08:00"), handled=time.time())
    shared = replace(later, id="2", workspace="shared")

    changes: list[list[WorkSchedule]] = [
        [later, shared],
        [later, shared.with_on_off_toggled()],
        [later],
    ]
    schedules.write_schedules(tmp_path, [later])
    keeper.reread_schedules()
    await keeper._copy_changed_schedules()
    for number, wanted in enumerate(changes, 1):
        schedules.write_schedules(tmp_path, wanted)
        keeper.reread_schedules()
        for _ in range(2):  # The second time, nothing has changed.
            await keeper._copy_changed_schedules()
        async with asyncio.timeout(60):
            while not said.exists() or len(said.read_text().splitlines()) < number:
                await asyncio.sleep(0.02)
        assert said.read_text().splitlines() == ["schedule list --workspace shared"] * number


async def test_a_command_that_was_just_started_as_the_program_ends_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waited for it, so it stayed as a zombie."""
    began = threading.Event()
    go_on = threading.Event()
    waited = threading.Event()

    def open_slowly(*_: object, **__: object) -> SimpleNamespace:
        began.set()
        go_on.wait(60)
        return SimpleNamespace(wait=waited.set)

    monkeypatch.setattr(schedule_keeper, "open_process", open_slowly)
    owned = OwnedTasks("trial")
    owned.spawn_task(
        ScheduleKeeper(tmp_path, ["/program"])._run_own_command(["worker"], waits=False),
        name="worker",
    )
    await asyncio.to_thread(began.wait, 60)
    asyncio.get_running_loop().call_later(0.01, go_on.set)
    await owned.aclose()
    assert await asyncio.to_thread(waited.wait, 60)


def test_a_clock_that_was_ahead_for_a_while_stops_no_schedule() -> None:
    one = schedule("Europe/Berlin", "08:00")
    now = time.time()
    noted, due = one.advance_past_due(now + 15 * 365 * 86_400)
    assert due > now + 86_400
    later, due = noted.advance_past_due(now)
    assert (later.is_on, due) == (True, 0.0)
    assert later.advance_past_due(now + 2 * 86_400)[1]


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
