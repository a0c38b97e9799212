"""Schedules of shared workspaces: kept in the shared store, where every worker looks for due
ones, so that it makes no difference which computer is off.

A schedule is made and changed on one computer, in its file of schedules. That computer
copies it to the store. If several workers find the same due time, they add the same task,
since its key names the schedule and the time.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from helix_desktop import atomic_files
from helix_desktop.errors import HelixError
from helix_desktop.resident import schedules
from helix_desktop.resident.schedules import WorkSchedule
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import FleetTaskOrder, NewFleetTask, parse_deadline_seconds
from helix_desktop.store.schedule_table import ScheduleTable, StoredSchedule

log = logging.getLogger(__name__)
LOOK_SECONDS = 10.0  # A worker looks for due schedules this often.
NAME = "shared_schedules.json"  # Which schedules this computer has copied to shared stores.


async def keep_schedules_until_cancelled(
    tasks: FleetTaskList, folder: Path, workspace: str
) -> None:
    """Copy this computer's schedules of a shared workspace, and add due tasks, again and again."""
    while True:
        with suppress(HelixError):
            await copy_schedules_and_add_due_tasks(tasks, folder, workspace)
        await asyncio.sleep(LOOK_SECONDS)


async def copy_schedules_and_add_due_tasks(
    tasks: FleetTaskList, folder: Path, workspace: str
) -> None:
    if tasks.schedules is not None:
        await copy_schedules(tasks.schedules, folder, workspace)
        await add_due_tasks(tasks, tasks.schedules)


# --- Adding tasks


async def add_due_tasks(
    tasks: FleetTaskList, table: ScheduleTable, now: float | None = None
) -> list[str]:
    """Add a task for each schedule that is due, and return their ids. `now` is the store's
    clock, as a computer's may be wrong.
    """
    known = await table.read_stored_schedules()
    if now is None:
        now = known.now
    added: list[str] = []
    for stored in known.schedules:
        try:
            added += await _add_task_if_due(tasks, table, stored, now)
        except HelixError as error:  # It must not keep others from being added.
            log.warning("the schedule %s did not run: %s", stored.id, error)
    return added


async def _add_task_if_due(
    tasks: FleetTaskList, table: ScheduleTable, stored: StoredSchedule, now: float
) -> list[str]:
    schedule = decode_schedule(stored)
    advanced, due = schedule.advance_past_due(now)
    if advanced is schedule:
        return []
    added: list[str] = []
    if due:
        added = await tasks.add_fleet_tasks([build_scheduled_task(schedule, due)])
    # Afterwards: if this computer fails in between, another one adds the same task.
    await table.mark_due_times_done(stored, advanced.handled)
    return added


def decode_schedule(stored: StoredSchedule) -> WorkSchedule:
    return schedules.schedule_from_row({**stored.fields, "handled": stored.handled})


def build_scheduled_task(schedule: WorkSchedule, due: float) -> NewFleetTask:
    """Return the task of a due time, as `task add` with the schedule's options adds it."""
    values: dict[str, str] = {}
    allowed: list[str] = []
    words = iter(schedule.options)
    for option in words:
        value = next(words, "")
        if option == "--allow":
            allowed.append(value)
        else:
            values[option] = value
    order = FleetTaskOrder(
        schedule.text,
        values.get("--agent", ""),
        values.get("--model", ""),
        tuple(allowed),
        float(values.get("--budget") or 0.0),
    )
    return NewFleetTask(
        order,
        key=schedule.task_key(due),
        priority=int(values.get("--priority") or 0),
        deadline_seconds=parse_deadline_seconds(values.get("--deadline", "")),
    )


# --- Copying schedules to the store


async def copy_schedules(table: ScheduleTable, folder: Path, workspace: str) -> None:
    """Store what was added or changed on this computer since the last copy, and remove what
    was removed on it. What another computer has removed is removed here.
    """
    own = {}
    for schedule in await asyncio.to_thread(schedules.read_schedules, folder):
        if schedule.workspace == workspace:
            own[schedule.id] = schedule
    copied_before = await asyncio.to_thread(_read_copied, folder, workspace)
    if not own and not copied_before:
        return
    known = {stored.id: stored for stored in (await table.read_stored_schedules()).schedules}
    removed_elsewhere = (own.keys() & copied_before) - known.keys()
    removed_here = sorted(copied_before - own.keys())
    if removed_here:
        await table.remove_stored_schedules(removed_here)
    for schedule in own.values():
        stored = known.get(schedule.id)
        if schedule.id not in removed_elsewhere and _differs(schedule, stored):
            await table.store_schedule(_encode_schedule(schedule, stored))
    if removed_elsewhere:
        await asyncio.to_thread(_remove_from_file, folder, removed_elsewhere)
    copied = own.keys() - removed_elsewhere
    if copied != copied_before:
        await asyncio.to_thread(_write_copied, folder, workspace, sorted(copied))


def _differs(schedule: WorkSchedule, stored: StoredSchedule | None) -> bool:
    if stored is None:
        return True
    there = decode_schedule(stored)
    if there.is_on != schedule.is_on:
        return True
    return replace(there, handled=0.0) != replace(schedule, handled=0.0)


def _encode_schedule(schedule: WorkSchedule, stored: StoredSchedule | None) -> StoredSchedule:
    fields = asdict(schedule)
    handled = fields.pop("handled")
    if stored is not None and schedule.is_on and decode_schedule(stored).is_on:
        handled = max(handled, stored.handled)  # Other computers may have added tasks meanwhile.
    return StoredSchedule(schedule.id, handled, fields)


def _remove_from_file(folder: Path, ids: Sequence[str] | set[str]) -> None:
    def without_removed(known: list[WorkSchedule]) -> list[WorkSchedule]:
        return [schedule for schedule in known if schedule.id not in ids]

    schedules.change_stored_schedules(folder, without_removed)


def _read_copied(folder: Path, workspace: str) -> set[str]:
    return set(_read_all_copied(folder).get(workspace, ()))


def _read_all_copied(folder: Path) -> Mapping[str, Any]:
    try:
        copied: dict[str, Any] = json.loads((folder / NAME).read_text("utf-8"))
    except (FileNotFoundError, ValueError):  # Then everything counts as not copied yet.
        return {}
    return copied


def _write_copied(folder: Path, workspace: str, ids: Sequence[str]) -> None:
    with atomic_files.hold_for_change(folder / NAME):
        text = json.dumps({**_read_all_copied(folder), workspace: ids})
        atomic_files.write_file_atomically(folder / NAME, text, private=True)
