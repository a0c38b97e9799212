"""The resident process adds a task at each due time, once."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.resident import schedule_keeper, schedules
from helix_desktop.resident.schedule_keeper import ScheduleKeeper
from helix_desktop.resident.schedules import WEEKDAYS, WorkSchedule
from tests.conftest import Expect
from tests.resident.test_schedules import DAYS, YEAR, due_by_looking_at_all_times, schedule


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
