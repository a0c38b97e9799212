"""Schedules of shared workspaces: kept in the shared store, where every worker looks for due
ones, so that it makes no difference which computer is off.

A schedule is made and changed on one computer, in its file of schedules. That computer
copies it to the store. If several workers find the same due time, they add the same task,
since its key names the schedule and the time.
"""

import asyncio
import json
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from helix_desktop import atomic_files
from helix_desktop.errors import HelixError, InvalidInput, WrittenByNewerVersion
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
    reading = await table.read_stored_schedules()
    if now is None:
        now = reading.now
    added_ids: list[str] = []
    for stored in reading.schedules:
        try:
            added_ids += await _add_task_if_due(tasks, table, stored, now)
        except HelixError as error:  # It must not keep others from being added.
            log.warning("the schedule %s did not run: %s", stored.id, error)
    return added_ids


async def _add_task_if_due(
    tasks: FleetTaskList, table: ScheduleTable, stored: StoredSchedule, now: float
) -> list[str]:
    schedule = decode_schedule(stored)
    advanced, due = schedule.advance_past_due(now)
    if advanced is schedule:
        return []
    added_ids: list[str] = []
    if due:
        added_ids = await tasks.add_fleet_tasks([build_scheduled_task(schedule, due)])
    # Afterwards: if this computer fails in between, another one adds the same task.
    await table.mark_due_times_done(stored, advanced.handled)
    return added_ids


def decode_schedule(stored: StoredSchedule) -> WorkSchedule:
    """Decode a schedule. Raises WrittenByNewerVersion if it says more than this version knows."""
    try:
        return schedules.schedule_from_row({**stored.fields, "handled": stored.handled})
    except (TypeError, KeyError) as error:
        raise WrittenByNewerVersion(
            f"A newer version of Helix Desktop made the schedule {stored.id}."
        ) from error


def build_scheduled_task(schedule: WorkSchedule, due: float) -> NewFleetTask:
    """Return the task of a due time, as `task add` with the schedule's options adds it. Raises
    InvalidInput for an option that `task add` refuses.
    """
    values: dict[str, str] = {}
    allowed_tools: list[str] = []
    # Each option is followed by its value.
    names = schedule.options[0::2]
    option_values = schedule.options[1::2]
    for name, value in zip(names, option_values, strict=False):
        if name == "--allow":
            allowed_tools.append(value)
        else:
            values[name] = value
    agent = values.get("--agent", "")
    model = values.get("--model", "")
    budget = _parse_amount(values.get("--budget") or "0")
    order = FleetTaskOrder(
        schedule.text,
        agent=agent,
        model=model,
        allowed=tuple(allowed_tools),
        budget=budget,
    )
    key = schedule.task_key(due)
    priority = _parse_priority(values.get("--priority") or "0")
    deadline_seconds = parse_deadline_seconds(values.get("--deadline", ""))
    return NewFleetTask(order, key=key, priority=priority, deadline_seconds=deadline_seconds)


def _parse_amount(text: str) -> float:
    with suppress(ValueError):
        amount = float(text)
        if 0 <= amount < math.inf:
            return amount
    raise InvalidInput(
        "A budget must be an amount of 0 dollars or more.", remedy="Nothing was added."
    )


def _parse_priority(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInput(
            "A priority must be a whole number.", remedy="Nothing was added."
        ) from error


# --- Copying schedules to the store


async def copy_schedules(table: ScheduleTable, folder: Path, workspace: str) -> None:
    """Store what was added or changed on this computer since the last copy, and remove what
    was removed on it. What another computer has removed is removed here.
    """
    all_schedules = await asyncio.to_thread(schedules.read_schedules, folder)
    own_schedules = {
        schedule.id: schedule for schedule in all_schedules if schedule.workspace == workspace
    }
    ids_copied_before = await asyncio.to_thread(_read_copied, folder, workspace)
    if not own_schedules and not ids_copied_before:
        return
    reading = await table.read_stored_schedules()
    stored_by_id = {stored.id: stored for stored in reading.schedules}
    # What was copied and is missing was removed: from the store elsewhere, from our file here.
    removed_elsewhere = (own_schedules.keys() & ids_copied_before) - stored_by_id.keys()
    removed_here = sorted(ids_copied_before - own_schedules.keys())
    if removed_here:
        await table.remove_stored_schedules(removed_here)
    for schedule in own_schedules.values():
        stored_before = stored_by_id.get(schedule.id)
        if schedule.id not in removed_elsewhere and _differs(schedule, stored_before):
            await table.store_schedule(_encode_schedule(schedule, stored_before))
    if removed_elsewhere:
        await asyncio.to_thread(_remove_from_file, folder, removed_elsewhere)
    copied_ids = own_schedules.keys() - removed_elsewhere
    if copied_ids != ids_copied_before:
        await asyncio.to_thread(_write_copied, folder, workspace, sorted(copied_ids))


def _differs(schedule: WorkSchedule, stored: StoredSchedule | None) -> bool:
    """Whether the store has something else. Which due times are handled makes no difference,
    but whether the schedule is on does.
    """
    if stored is None:
        return True
    schedule_in_store = decode_schedule(stored)
    if schedule_in_store.is_on != schedule.is_on:
        return True
    return replace(schedule_in_store, handled=0.0) != replace(schedule, handled=0.0)


def _encode_schedule(schedule: WorkSchedule, stored: StoredSchedule | None) -> StoredSchedule:
    fields = asdict(schedule)
    handled = fields.pop("handled")
    if stored is not None and schedule.is_on and decode_schedule(stored).is_on:
        handled = max(handled, stored.handled)  # Other computers may have added tasks meanwhile.
    return StoredSchedule(schedule.id, handled, fields)


def _remove_from_file(folder: Path, ids: set[str]) -> None:
    schedules.change_stored_schedules(
        folder, lambda stored: [schedule for schedule in stored if schedule.id not in ids]
    )


def _read_copied(folder: Path, workspace: str) -> set[str]:
    return set(_read_all_copied(folder).get(workspace, ()))


def _read_all_copied(folder: Path) -> Mapping[str, Any]:
    """Return the ids of the copied schedules, by workspace."""
    try:
        ids_by_workspace: dict[str, Any] = json.loads((folder / NAME).read_text("utf-8"))
    except (
        FileNotFoundError,
        ValueError,
        RecursionError,
    ):  # Then everything counts as not copied yet.
        return {}
    return ids_by_workspace


def _write_copied(folder: Path, workspace: str, ids: Sequence[str]) -> None:
    with atomic_files.hold_for_change(folder / NAME):
        text = json.dumps({**_read_all_copied(folder), workspace: ids})
        atomic_files.write_file_atomically(folder / NAME, text, private=True)
