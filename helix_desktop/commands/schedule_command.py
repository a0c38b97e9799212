"""`schedule`: tasks that are added automatically at certain times."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Coroutine
from dataclasses import asdict, replace
from typing import Any

from helix_desktop import program_folders
from helix_desktop.commands import format_local_time, workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_names_argument,
    add_repeated_option,
    add_text_option,
    add_workspace_option,
)
from helix_desktop.console import Console, Terminal, print_text
from helix_desktop.errors import InvalidInput, NotFound, WrittenByNewerVersion
from helix_desktop.resident import schedule_changes, schedules, shared_schedules
from helix_desktop.resident.schedules import WorkSchedule
from helix_desktop.store import fleet_task_files
from helix_desktop.store.schedule_table import ScheduleTable
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_link import is_set_up_to_be_shared

# What `task add` takes too, under the same name.
_TASK_OPTIONS = ("agent", "model", "budget", "deadline", "priority")


async def _add_schedule(arguments: Namespace) -> int:
    """Adds a schedule to this computer's list, and prints it.

    The options of its tasks are kept as words of a command line, because `task add` reads them
    when the schedule adds a task.
    """
    workspace = workspace_access.find_chosen_workspace(arguments).id
    workspace_access.check_permission_names(arguments.allow)
    options: list[str] = []
    for name in _TASK_OPTIONS:
        value = getattr(arguments, name)
        if value:
            options += [f"--{name}", value]
    for permission in arguments.allow:
        options += ["--allow", permission]
    new_schedule = schedules.build_schedule(
        workspace,
        " ".join(arguments.text),
        arguments.at,
        arguments.zone,
        schedules.parse_days(arguments.days),
        missed=arguments.missed,
        options=tuple(options),
    )
    # A wrong option would only be found when the first task is due.
    shared_schedules.build_scheduled_task(new_schedule, time.time())
    await _change_and_tell_refusal(arguments.places, lambda existing: [*existing, new_schedule])
    return await _print_schedules(arguments, Terminal(), [new_schedule])


def _run_on_schedules(arguments: Namespace) -> int | Coroutine[Any, Any, int]:
    """Runs a verb on this computer's schedules, or on those that all computers of a shared
    workspace have, if it is named.
    """
    if arguments.workspace is not None:
        workspace = workspace_access.find_chosen_workspace(arguments)
        if is_set_up_to_be_shared(workspace):
            return workspace_access.run_on_workspace(arguments)
    action: Coroutine[Any, Any, int] = arguments.act_here(arguments)
    return action


async def _run_on_shared_schedules(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Runs a verb on the schedules in a shared store, which all computers of the workspace
    read.

    This computer's list is compared with the store before and after, so that a change on either
    side is not lost. A workspace whose store keeps no schedules has only this computer's list.
    """
    async with fleet_task_files.open_fleet_task_list(workspace) as tasks:
        if tasks.schedules is None:
            return int(await arguments.act_here(arguments))
        data = arguments.places.data
        await shared_schedules.copy_schedules(tasks.schedules, data, workspace.id)
        code = int(await arguments.act_shared(arguments, tasks.schedules, workspace.id, console))
        await shared_schedules.copy_schedules(tasks.schedules, data, workspace.id)
        return code


async def _list_schedules(arguments: Namespace) -> int:
    listed = schedules.read_schedules(arguments.places.data)
    if arguments.workspace is not None:
        workspace = workspace_access.find_chosen_workspace(arguments)
        listed = [schedule for schedule in listed if schedule.workspace == workspace.id]
    return await _print_schedules(arguments, Terminal(), listed)


async def _list_shared_schedules(
    arguments: Namespace, table: ScheduleTable, workspace: str, console: Console
) -> int:
    listed = await _read_shared_schedules(table, workspace)
    return await _print_schedules(arguments, console, listed)


async def _remove_schedules(arguments: Namespace) -> int:
    existing = schedules.read_schedules(arguments.places.data)
    removed = _choose_schedules(existing, arguments.schedules)

    def leave_out_removed(schedules_now: list[WorkSchedule]) -> list[WorkSchedule]:
        return [schedule for schedule in schedules_now if schedule.id not in arguments.schedules]

    await _change_and_tell_refusal(arguments.places, leave_out_removed)
    return await _print_schedules(arguments, Terminal(), removed)


async def _remove_shared_schedules(
    arguments: Namespace, table: ScheduleTable, workspace: str, console: Console
) -> int:
    existing = await _read_shared_schedules(table, workspace)
    removed = _choose_schedules(existing, arguments.schedules)
    await table.remove_stored_schedules(arguments.schedules)
    return await _print_schedules(arguments, console, removed)


async def _read_shared_schedules(table: ScheduleTable, workspace: str) -> list[WorkSchedule]:
    """Reads the schedules of all computers, as schedules of this computer's `workspace`.

    Each computer has an ID of its own for the workspace. What is stored says the ID of
    the computer on which the schedule was made, which means nothing here.
    """
    stored = await table.read_stored_schedules()
    shared: list[WorkSchedule] = []
    for stored_schedule in stored.schedules:
        try:
            schedule = shared_schedules.decode_schedule(stored_schedule)
        except WrittenByNewerVersion as error:  # The others are listed all the same.
            print_text(str(error), file=sys.stderr)
            continue
        shared.append(replace(schedule, workspace=workspace))
    return shared


def _choose_schedules(existing: list[WorkSchedule], ids: Collection[str]) -> list[WorkSchedule]:
    unknown_ids = set(ids) - {schedule.id for schedule in existing}
    if unknown_ids:
        raise NotFound(
            f"There is no schedule {min(unknown_ids)}.",
            remedy="`schedule list` shows the schedules.",
        )
    return [schedule for schedule in existing if schedule.id in ids]


async def _change_and_tell_refusal(
    where: program_folders.ProgramFolders, change: schedules.ScheduleChange
) -> None:
    refused = await schedule_changes.change_schedules(where, change)
    if refused:  # Not on standard output, which must contain nothing else with `--json`.
        print_text(refused, file=sys.stderr)


async def _print_schedules(
    arguments: Namespace, console: Console, listed: list[WorkSchedule]
) -> int:
    """Prints when each schedule is due next, or why it is not, and what its tasks are."""
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    names = {workspace.id: workspace.name for workspace in workspaces.list_workspaces()}
    lines: list[str] = []
    values: list[dict[str, Any]] = []
    for schedule in listed:
        next_due: float | None = None
        try:
            next_due = _next_due(schedule)
            outlook = "turned off"
            if next_due is not None:
                outlook = f"next {format_local_time(next_due)}"
        except InvalidInput as error:
            outlook = f"does not run: {error.what}"
        workspace = names.get(schedule.workspace, schedule.workspace)
        when = f"{schedule.at} {schedule.zone}, {_describe_days(schedule)}; {outlook}"
        lines.append(f"{schedule.id}  {when}  {workspace}: {schedule.text[:60]}")
        values.append({**asdict(schedule), "next_due": next_due})
    if not lines:
        lines.append("There are no schedules.")
    return await workspace_access.print_result(arguments, console, values, *lines)


def _describe_days(schedule: WorkSchedule) -> str:
    if set(schedule.days) == set(schedules.WEEKDAYS):
        return "every day"
    return ",".join(schedule.days)


def _next_due(schedule: WorkSchedule) -> float | None:
    """Returns when the schedule is due, or None if it is turned off."""
    if not schedule.is_on:
        return None
    return schedule.next_due(time.time())


def add_schedule_commands(nouns: Subparsers) -> None:
    noun = add_command(
        nouns, "schedule", "add tasks at set times, for example every weekday at 8:00"
    )
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_schedule_add(verbs)
    _add_schedule_list(verbs)
    _add_schedule_remove(verbs)


def _add_schedule_add(verbs: Subparsers) -> None:
    """Declares `schedule add`."""
    command = add_command(verbs, "add", "add a schedule and print its ID")
    add_workspace_option(command)
    command.add_argument(
        "--at",
        metavar="HH:MM",
        default="",
        required=True,
        help="the time of day. When clocks go forward, a time that does not exist is an hour later;"
        " when they go back, only the first of two counts",
    )
    command.add_argument(
        "--days",
        metavar="DAYS",
        default="every",
        help="for example mon,thu; or weekdays, weekends or every (the default)",
    )
    zone = "a time zone such as Europe/Berlin (default: this computer's time zone)"
    add_text_option(command, "--zone", "ZONE", zone)
    command.add_argument(
        "--missed",
        choices=["once", "never"],
        default="once",
        help="if the computer was off: add the missed task once afterwards, or never (default: once)",
    )
    as_for_task = "see `task add --help`"
    add_text_option(command, "--agent", "A", as_for_task)
    add_text_option(command, "--model", "M", as_for_task)
    add_text_option(command, "--budget", "DOLLARS", as_for_task)
    add_text_option(command, "--deadline", "WHEN", as_for_task)
    add_text_option(command, "--priority", "P", as_for_task)
    add_repeated_option(command, "--allow", "WHAT", "what the task may do without asking")
    add_names_argument(command, "text", "TEXT", "what to do")
    add_json_option(command)
    command.set_defaults(run=_add_schedule)


def _add_schedule_list(verbs: Subparsers) -> None:
    command = add_command(verbs, "list", "list the schedules and when each one next adds a task")
    _let_act_on_schedules(command)
    command.set_defaults(act_here=_list_schedules, act_shared=_list_shared_schedules)


def _add_schedule_remove(verbs: Subparsers) -> None:
    command = add_command(verbs, "remove", "remove schedules, but keep the tasks they have added")
    add_names_argument(command, "schedules", "ID", "the schedule's ID")
    _let_act_on_schedules(command)
    command.set_defaults(act_here=_remove_schedules, act_shared=_remove_shared_schedules)


def _let_act_on_schedules(command: ArgumentParser) -> None:
    """Adds what every verb takes that acts on schedules, and says which function runs it."""
    command.add_argument(
        "--workspace",
        "-w",
        metavar="W",
        default=None,
        help="only this workspace's schedules; if it is shared, those of all its computers",
    )
    add_json_option(command)
    command.set_defaults(
        run=_run_on_schedules, work=_run_on_shared_schedules, counts=False, lasting=False
    )
