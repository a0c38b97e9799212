"""`schedule`: tasks that are added automatically at certain times."""

import sys
import time
from argparse import Namespace
from dataclasses import asdict

from helix_desktop import program_folders
from helix_desktop.commands import format_local_time, workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_option,
)
from helix_desktop.console import Terminal, print_text
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.resident import schedule_changes, schedules
from helix_desktop.resident.schedules import WorkSchedule


async def _add_schedule(arguments: Namespace) -> int:
    workspace = workspace_access.find_chosen_workspace(arguments).id
    names = [
        name
        for name in ("agent", "model", "budget", "deadline", "priority")
        if getattr(arguments, name)
    ]
    options = [word for name in names for word in (f"--{name}", getattr(arguments, name))]
    workspace_access.check_permission_names(arguments.allow)
    options += [word for what in arguments.allow for word in ("--allow", what)]
    when = arguments.at, arguments.zone, schedules.parse_days(arguments.days)
    more = {"missed": arguments.missed, "options": tuple(options)}
    new = schedules.build_schedule(workspace, " ".join(arguments.text), *when, **more)
    await _change_and_tell_refusal(arguments.places, lambda known: [*known, new])
    return await _print_schedules(arguments, [new])


async def _list_schedules(arguments: Namespace) -> int:
    return await _print_schedules(arguments, schedules.read_schedules(arguments.places.data))


async def _remove_schedules(arguments: Namespace) -> int:
    known = schedules.read_schedules(arguments.places.data)
    if unknown := set(arguments.schedules) - {one.id for one in known}:
        raise NotFound(
            f"There is no schedule {min(unknown)}.", remedy="`schedule list` shows the schedules."
        )
    await _change_and_tell_refusal(
        arguments.places, lambda now: [one for one in now if one.id not in arguments.schedules]
    )
    return await _print_schedules(
        arguments, [one for one in known if one.id in arguments.schedules]
    )


async def _change_and_tell_refusal(
    where: program_folders.ProgramFolders, change: schedules.ScheduleChange
) -> None:
    if refused := await schedule_changes.change_schedules(where, change):
        print_text(
            refused, file=sys.stderr
        )  # Standard output must contain nothing else with `--json`.


async def _print_schedules(arguments: Namespace, found: list[WorkSchedule]) -> int:
    due = {one.id: _next_due_or_problem(one) for one in found}
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    names = {one.id: one.name for one in workspaces.list_workspaces()}
    lines = []
    for one in found:
        days = "every day" if len(one.days) == len(set(one.days)) == 7 else ",".join(one.days)
        following = due[one.id]
        said = f"next {format_local_time(following)}" if isinstance(following, float) else following
        when = f"{one.at} {one.zone}, {days}; {said}"
        lines.append(
            f"{one.id}  {when}  {names.get(one.workspace, one.workspace)}: {one.text[:60]}"
        )
    result = [
        {**asdict(one), "next_due": due[one.id] if isinstance(due[one.id], float) else None}
        for one in found
    ]
    return await workspace_access.print_result(
        arguments, Terminal(), result, *(lines or ["There are no schedules."])
    )


def _next_due_or_problem(schedule: WorkSchedule) -> float | str:
    if not schedule.is_on:
        return "turned off"
    try:
        return schedule.next_due(time.time())
    except InvalidInput as error:
        return f"does not run: {error.what}"


def add_schedule_commands(nouns: Subparsers) -> None:
    noun = add_command(
        nouns, "schedule", "add tasks at set times, for example every weekday at 8:00"
    )
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_schedule_add(verbs)
    _add_schedule_list(verbs)
    _add_schedule_remove(verbs)


def _add_schedule_add(verbs: Subparsers) -> None:
    command = add_command(verbs, "add", "add a schedule and print its ID")
    add_workspace_option(command)
    command.add_argument("--at", metavar="HH:MM", default="", required=True, help="the time of day")
    command.add_argument(
        "--days",
        metavar="DAYS",
        default="every",
        help="for example mon,thu; or weekdays, weekends or every (the default)",
    )
    command.add_argument(
        "--zone",
        metavar="ZONE",
        default="",
        help="a time zone such as Europe/Berlin (default: this computer's time zone)",
    )
    command.add_argument(
        "--missed",
        choices=["once", "never"],
        default="once",
        help="if the computer was off: add the missed task once afterwards, or never (default: once)",
    )
    command.add_argument("--agent", metavar="A", default="", help="see `task add --help`")
    command.add_argument("--model", metavar="M", default="", help="see `task add --help`")
    command.add_argument("--budget", metavar="DOLLARS", default="", help="see `task add --help`")
    command.add_argument("--deadline", metavar="WHEN", default="", help="see `task add --help`")
    command.add_argument("--priority", metavar="P", default="", help="see `task add --help`")
    command.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        default=[],
        help="what the task may do without asking",
    )
    command.add_argument("text", metavar="TEXT", nargs="+", help="what to do")
    add_json_option(command)
    command.set_defaults(run=_add_schedule)


def _add_schedule_list(verbs: Subparsers) -> None:
    command = add_command(verbs, "list", "list the schedules and when each one next adds a task")
    add_json_option(command)
    command.set_defaults(run=_list_schedules)


def _add_schedule_remove(verbs: Subparsers) -> None:
    command = add_command(verbs, "remove", "remove schedules, but keep the tasks they have added")
    command.add_argument("schedules", metavar="ID", nargs="+")
    add_json_option(command)
    command.set_defaults(run=_remove_schedules)
