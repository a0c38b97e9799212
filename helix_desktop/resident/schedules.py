"""Schedules: when tasks are added automatically, by the wall clock of a time zone."""

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from helix_desktop import atomic_files
from helix_desktop.errors import ConfigFileMistake, InvalidInput
from helix_desktop.fast_dataclass import dataclass

NAME = "schedules.json"
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LATE_SECONDS = 300.0  # A task that would start later than this counts as missed.
_AHEAD_SECONDS = (
    86_400.0  # A time handled this far in the future comes from a clock that was ahead.
)
_LONGEST_WAIT_DAYS = 8
# This time is in 2255. A schedule that is off counts as handled until then, even in
# older versions.
_OFF = 9e9


@dataclass(frozen=True, slots=True)
class WorkSchedule:
    """`options` are words of `task add`, `days` are from `WEEKDAYS`. `missed`: "once"
    runs a due time missed while nothing ran, "never" skips it. Due times up to
    `handled`, in seconds since 1970, are done.
    """

    id: str
    workspace: str
    text: str
    at: str
    zone: str
    days: tuple[str, ...] = WEEKDAYS
    missed: str = "once"
    options: tuple[str, ...] = ()
    handled: float = 0.0

    @property
    def is_on(self) -> bool:
        return self.handled < _OFF

    def with_on_off_toggled(self) -> "WorkSchedule":
        """Return the schedule switched on or off. Times at which it was off are not made up for."""
        return replace(self, handled=_OFF if self.is_on else time.time())

    def next_due(self, after: float) -> float:
        """Return the first due time after a moment. Clock changes neither skip nor repeat one."""
        zone, (hour, minute) = find_time_zone(self.zone), parse_time_of_day(self.at)
        day = datetime.fromtimestamp(after, zone).date() - timedelta(days=1)
        for ahead in range(_LONGEST_WAIT_DAYS + 2):
            date = day + timedelta(days=ahead)
            due = datetime(date.year, date.month, date.day, hour, minute, tzinfo=zone).timestamp()
            if due > after and WEEKDAYS[date.weekday()] in self.days:
                return due
        raise InvalidInput(f"The schedule {self.id} has no days, so it never adds a task.")

    def advance_past_due(self, now: float) -> "tuple[WorkSchedule, float]":
        """Mark all times due by `now` as handled. Return the schedule, and the time to
        add a task for, or 0.0.
        """
        if self.is_on and self.handled > now + _AHEAD_SECONDS:  # Handled while the clock was ahead.
            return replace(self, handled=now), 0.0
        due, newest = self.next_due(self.handled), 0.0
        while due <= now:
            newest, due = due, self.next_due(due)
        is_wanted = newest and (self.missed == "once" or now - newest <= _LATE_SECONDS)
        return (replace(self, handled=newest) if newest else self), (newest if is_wanted else 0.0)

    def task_command(self, due: float) -> list[str]:
        """Return the command line that adds the task. Run twice for a due time, it adds
        one task.
        """
        key = f"schedule {self.id} {datetime.fromtimestamp(due, UTC):%Y-%m-%dT%H:%MZ}"
        return [
            "task",
            "add",
            "--workspace",
            self.workspace,
            "--key",
            key,
            *self.options,
            "--",
            "-",
        ]

    def encode_task_input(self) -> bytes:
        """Return the input of that command: the task's text."""
        return json.dumps({"text": self.text}).encode()


ScheduleChange = Callable[[list[WorkSchedule]], list[WorkSchedule]]


def build_schedule(
    workspace: str, text: str, at: str, zone: str, days: Sequence[str], **more: Any
) -> WorkSchedule:
    """Create a schedule, or raise InvalidInput. An empty `zone` is the computer's;
    `more` is `missed` and `options`.
    """
    zone = find_time_zone(zone).key if zone else name_of_local_zone()
    parse_time_of_day(at)
    if not text.strip():
        raise InvalidInput("The task has no text.", remedy="Nothing was added.")
    name, now = secrets.token_hex(4), time.time()
    return WorkSchedule(name, workspace, text.strip(), at, zone, tuple(days), handled=now, **more)


def read_schedules(folder: Path) -> list[WorkSchedule]:
    try:
        rows = json.loads((folder / NAME).read_text("utf-8"))
        return [
            WorkSchedule(**{**row, "days": tuple(row["days"]), "options": tuple(row["options"])})
            for row in rows
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigFileMistake(
            f"{folder / NAME} cannot be read.", remedy="Fix or remove the file."
        ) from error


def write_schedules(folder: Path, schedules: Sequence[WorkSchedule]) -> None:
    text = json.dumps([asdict(one) for one in schedules], ensure_ascii=False, indent=1)
    atomic_files.write_file_atomically(folder / NAME, text, private=True)


def change_stored_schedules(folder: Path, change: ScheduleChange) -> list[WorkSchedule]:
    """Apply a change to the stored schedules while nobody else can change them. Return
    the new ones.
    """
    with atomic_files.hold_for_change(folder / NAME):
        wanted = change(read_schedules(folder))
        write_schedules(folder, wanted)
    return wanted


def find_time_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            f"{name[:60]} is not a time zone.", remedy="For example: --zone Europe/Berlin."
        ) from error


def name_of_local_zone() -> str:
    found = (
        os.environ.get("TZ", "").lstrip(":")
        or os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    )
    try:
        return ZoneInfo(found).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            "This computer's time zone is not known.",
            remedy="Add --zone with a time zone, such as Europe/Berlin.",
        ) from error


def parse_time_of_day(text: str) -> tuple[int, int]:
    if (found := re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", text)) is None:
        raise InvalidInput(f"{text[:40]} is not a time of day.", remedy="For example: 08:00.")
    return int(found[1]), int(found[2])


def parse_days(text: str) -> tuple[str, ...]:
    named = {"every": WEEKDAYS, "weekdays": WEEKDAYS[:5], "weekends": WEEKDAYS[5:]}.get(text)
    days = named or tuple(part.strip().lower()[:3] for part in text.split(","))
    if unknown := [day for day in days if day not in WEEKDAYS]:
        raise InvalidInput(
            f"{unknown[0]!r} is not a day of the week.",
            remedy=f"Use {', '.join(WEEKDAYS)}, `weekdays`, `weekends` or `every`.",
        )
    return days
