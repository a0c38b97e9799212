"""Schedules: when tasks are added automatically, by the wall clock of a time zone."""

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_clock
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from helix_desktop import atomic_files
from helix_desktop.errors import ConfigFileMistake, InvalidInput
from helix_desktop.fast_dataclass import dataclass

NAME = "schedules.json"
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LATE_SECONDS = 300.0  # A task that would start later than this counts as missed.
# A time handled this far in the future comes from a clock that was ahead.
_AHEAD_SECONDS = 86_400.0
# From yesterday on: a schedule for one day of the week may just have been due today, and the
# day in a week may be one that a time zone leaves out.
_DAYS_LOOKED_AT = 10
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
        if self.is_on:
            return replace(self, handled=_OFF)
        return replace(self, handled=time.time())

    def next_due(self, after: float) -> float:
        """Return the first due time after a moment. Clock changes neither skip nor repeat one."""
        zone = find_time_zone(self.zone)
        time_of_day = parse_time_of_day(self.at)
        # Yesterday's due time may be ahead: one that the clocks skip falls on a later moment,
        # maybe on the next day.
        date = datetime.fromtimestamp(after, zone).date() - timedelta(days=1)
        for _ in range(_DAYS_LOOKED_AT):
            # If the clocks show this time twice, this is the first of the two moments.
            due = datetime.combine(date, time_of_day, tzinfo=zone).timestamp()
            if due > after and WEEKDAYS[date.weekday()] in self.days:
                return due
            date += timedelta(days=1)
        raise InvalidInput(f"The schedule {self.id} has no days, so it never adds a task.")

    def advance_past_due(self, now: float) -> "tuple[WorkSchedule, float]":
        """Mark all times due by `now` as handled. Return the schedule, and the time to
        add a task for, or 0.0.
        """
        was_clock_ahead = self.is_on and self.handled > now + _AHEAD_SECONDS
        if was_clock_ahead:  # Otherwise nothing would be due until then.
            return replace(self, handled=now), 0.0

        # Of several missed due times, only the newest one gets a task.
        newest_due = 0.0
        due = self.next_due(self.handled)
        while due <= now:
            newest_due = due
            due = self.next_due(due)
        if not newest_due:
            return self, 0.0

        advanced = replace(self, handled=newest_due)
        is_missed = now - newest_due > _LATE_SECONDS
        if is_missed and self.missed != "once":
            return advanced, 0.0
        return advanced, newest_due

    def task_key(self, due: float) -> str:
        """Return the key of the task of a due time, which is added once with it."""
        return f"schedule {self.id} {datetime.fromtimestamp(due, UTC):%Y-%m-%dT%H:%MZ}"

    def task_command(self, due: float) -> list[str]:
        """Return the command line that adds the task. Run twice for a due time, it adds
        one task.
        """
        return [
            "task",
            "add",
            "--workspace",
            self.workspace,
            "--key",
            self.task_key(due),
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
    parse_time_of_day(at)  # Raises InvalidInput if it is none.
    if zone:
        zone_name = find_time_zone(zone).key
    else:
        zone_name = name_of_local_zone()
    stripped_text = text.strip()
    if not stripped_text:
        raise InvalidInput("The task has no text.", remedy="Nothing was added.")
    return WorkSchedule(
        id=secrets.token_hex(4),
        workspace=workspace,
        text=stripped_text,
        at=at,
        zone=zone_name,
        days=tuple(days),
        handled=time.time(),
        **more,
    )


def read_schedules(folder: Path) -> list[WorkSchedule]:
    try:
        text = (folder / NAME).read_text("utf-8")
        return [schedule_from_row(row) for row in json.loads(text)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise ConfigFileMistake(
            f"{folder / NAME} cannot be read.", remedy="Fix or remove the file."
        ) from error


def schedule_from_row(row: dict[str, Any]) -> WorkSchedule:
    """Read a schedule from its fields as JSON, where tuples are lists."""
    fields = dict(row)
    fields["days"] = tuple(row["days"])
    fields["options"] = tuple(row["options"])
    return WorkSchedule(**fields)


def write_schedules(folder: Path, schedules: Sequence[WorkSchedule]) -> None:
    rows = [asdict(schedule) for schedule in schedules]
    text = json.dumps(rows, ensure_ascii=False, indent=1)
    atomic_files.write_file_atomically(folder / NAME, text, private=True)


def change_stored_schedules(folder: Path, change: ScheduleChange) -> list[WorkSchedule]:
    """Apply a change to the stored schedules while nobody else can change them. Return
    the new ones.
    """
    with atomic_files.hold_for_change(folder / NAME):
        changed_schedules = change(read_schedules(folder))
        write_schedules(folder, changed_schedules)
    return changed_schedules


def find_time_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            f"{name[:60]} is not a time zone.", remedy="For example: Europe/Berlin."
        ) from error


def name_of_local_zone() -> str:
    name = os.environ.get("TZ", "").lstrip(":")
    # Some systems set TZ=:/etc/localtime, so that programs look it up less often.
    if not name or name.startswith("/"):
        # Usually a link such as /usr/share/zoneinfo/Europe/Berlin.
        zone_file = os.path.realpath(name or "/etc/localtime")
        _, _, name = zone_file.partition("zoneinfo/")
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            "This computer's time zone is not known.",
            remedy="Add --zone with a time zone, such as Europe/Berlin.",
        ) from error


def parse_time_of_day(text: str) -> time_of_clock:
    match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", text.strip())
    if not text.strip():
        raise InvalidInput("No time of day was entered.", remedy="For example: 08:00.")
    if match is None:
        raise InvalidInput(f"{text[:40]} is not a time of day.", remedy="For example: 08:00.")
    return time_of_clock(hour=int(match[1]), minute=int(match[2]))


def parse_days(text: str) -> tuple[str, ...]:
    days_by_word = {"every": WEEKDAYS, "weekdays": WEEKDAYS[:5], "weekends": WEEKDAYS[5:]}
    if text in days_by_word:
        return days_by_word[text]
    days: list[str] = []
    for name in text.split(","):
        day = name.strip().lower()[:3]  # "Monday" is "mon".
        if day not in WEEKDAYS:
            raise InvalidInput(
                f"{day!r} is not a day of the week.",
                remedy=f"Use {', '.join(WEEKDAYS)}, `weekdays`, `weekends` or `every`.",
            )
        days.append(day)
    return tuple(days)
