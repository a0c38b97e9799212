"""`fleet`: what the workers do in one or all workspaces; stops them, drains them, and
limits what they spend.
"""

import argparse
import asyncio
import json
import math
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_names_argument,
    add_text_option,
)
from helix_desktop.commands.workspace_access import print_result
from helix_desktop.console import Console, Terminal
from helix_desktop.errors import AmbiguousName, HelixError, InvalidInput, NotFound
from helix_desktop.resident.resident_client import CollectingConsole
from helix_desktop.store import fleet_task_files
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import ENDED, FleetTaskState
from helix_desktop.store.stored_workspace import StoredWorkspace

FleetAction = Callable[[Namespace, FleetTaskList], Awaitable[list[str]]]
SHOWN_STATES = ("running", "needs-you", "dead-letter", "failed")
# The maximum number of dead letters and of failed tasks that are printed without --json.
MOST_FAILED = 5
# Hidden options with which a command for all workspaces is repeated in each of them.
AMONG_OTHERS = "--among-others"
ONLY_FIND = "--only-find"


def _run_fleet_command(arguments: Namespace) -> int:
    """Checks the options, and acts in the workspace that is named, or in all of them."""
    is_stop = arguments.act is _stop_tasks
    if is_stop and not arguments.tasks and not arguments.all:
        raise InvalidInput("Specify the tasks to stop, or --all.")
    if arguments.act is _set_budget:
        _check_budget_arguments(arguments)
    if arguments.workspace:
        return workspace_access.run_on_workspace(arguments)

    workspaces = workspace_access.open_all_workspaces(arguments.places)
    workspaces.remove_interrupted_imports_and_writes()
    name_by_id = {workspace.id: workspace.name for workspace in workspaces.list_workspaces()}
    return asyncio.run(_act_in_all_workspaces(arguments, name_by_id, Terminal()))


def _check_budget_arguments(arguments: Namespace) -> None:
    if not 0 <= arguments.dollars < math.inf:
        raise InvalidInput("A budget must be an amount of 0 dollars or more.")
    if arguments.agent and arguments.per != "workspace":
        raise InvalidInput(
            f"An agent's budget applies to the whole workspace, so --agent and --per {arguments.per} cannot be combined.",
            remedy="No budget was changed. Set two budgets, one with each option.",
        )


async def _act_in_all_workspaces(
    arguments: Namespace, name_by_id: dict[str, str], console: Console
) -> int:
    """Acts on each workspace in turn, here or where it is open. One that cannot be reached does
    not keep the command from the others.
    """
    options: list[str] = []
    named = _named_by_user(arguments)
    if named:
        options.append(AMONG_OTHERS)
    if arguments.act is _stop_tasks and named:
        # Before any task is stopped, so that a wrong name stops none.
        found = await _ask_all_workspaces(arguments, name_by_id, [AMONG_OTHERS, ONLY_FIND])
        _check_each_is_in_one_workspace(named, found)
    answers = await _ask_all_workspaces(arguments, name_by_id, options)
    complete_answers = [answer for answer in answers if "trouble" not in answer]
    result = {
        "tasks": _sum_tasks_by_state(complete_answers),
        "cost": float(sum(answer["cost"] for answer in complete_answers)),
        "workspaces": answers,
    }
    lines: list[str] = []
    for answer in answers:
        lines += _describe_fleet(answer)
    await print_result(arguments, console, result, *lines)
    changed: set[str] = set()
    for answer in complete_answers:
        changed.update(answer["changed"])
    _check_all_were_changed(arguments, changed)
    if len(complete_answers) < len(answers):
        return 1
    return 0


def _named_by_user(arguments: Namespace) -> list[str]:
    """What the command is to change, where not every workspace has it."""
    names: list[str] = []
    if arguments.act is _stop_tasks:
        names += arguments.tasks
    elif arguments.act is _drain_workers:
        names += arguments.workers
    elif arguments.act is _set_budget and arguments.per == "fleet":
        names.append(arguments.per)
    return names


async def _ask_all_workspaces(
    arguments: Namespace, name_by_id: Mapping[str, str], options: Sequence[str]
) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    for identity, name in name_by_id.items():
        answers.append(await _ask_one_of_all(arguments, identity, name, options))
    return answers


async def _ask_one_of_all(
    arguments: Namespace, identity: str, name: str, options: Sequence[str]
) -> dict[str, Any]:
    """Returns what the workspace's process says, or why it could not be asked. That may be another
    process, which understands nothing but the words of a command.
    """
    own_arguments = Namespace(**vars(arguments))
    own_arguments.json = True
    own_arguments.among_others = AMONG_OTHERS in options
    own_arguments.only_find = ONLY_FIND in options
    own_arguments.argv = workspace_access.insert_options(
        arguments.argv, *options, "--workspace", identity, "--json"
    )
    console = CollectingConsole()
    try:
        await workspace_access.run_here_or_at_owner(own_arguments, identity, console)
        answer: dict[str, Any] = json.loads("\n".join(console.answers))
    except (HelixError, ValueError, RecursionError) as error:
        return {"workspace": identity, "name": name, "trouble": str(error)}
    return answer


def _check_each_is_in_one_workspace(
    names: Sequence[str], answers: Sequence[dict[str, Any]]
) -> None:
    """Refuses names of tasks that no workspace has, or several have."""
    troubles = [
        f"{answer['name']}: {answer['trouble']}" for answer in answers if "trouble" in answer
    ]
    for name in names:
        owners = [answer["name"] for answer in answers if name in answer.get("changed", ())]
        if len(owners) > 1:
            raise AmbiguousName(
                f"Tasks in several workspaces begin with {name}: {', '.join(owners)}.",
                remedy="No task was stopped. Enter more characters of the ID.",
            )
        if not owners:
            what = f"There is no task {name} to stop."
            raise NotFound(
                " ".join([what, *troubles]),
                remedy="No task was stopped. `fleet status` lists tasks.",
            )


def _check_all_were_changed(arguments: Namespace, changed: Collection[str]) -> None:
    """Says so if workers or a budget that the user named are in no workspace that was asked.
    Names of tasks are checked before.
    """
    missing = [name for name in _named_by_user(arguments) if name not in changed]
    if not missing:
        return
    if arguments.act is _drain_workers:
        raise NotFound(
            f"There is no worker {missing[0]}.",
            remedy="`fleet status` lists workers. Those that exist have been told to end.",
        )
    if arguments.act is _set_budget:
        raise InvalidInput(
            "Only a shared workspace can have a budget for the fleet.",
            remedy="Set one for each workspace or day instead.",
        )


def _sum_tasks_by_state(answers: Sequence[dict[str, Any]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    if answers:
        # An open program of an older version does not know all states.
        total.update({state.value: 0 for state in FleetTaskState})
    for answer in answers:
        total.update(answer["tasks"])
    return dict(total)


async def _act_in_workspace_and_print(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Does in one workspace what the command says, if it changes anything, and prints the state
    of its tasks and workers afterwards.

    Among several workspaces, the caller checks whether each thing that the user named was in
    one of them: not every workspace has it.
    """
    from helix_desktop.workbench import fleet_overview

    async with fleet_task_files.open_fleet_task_list(workspace) as tasks:
        changed: list[str] = []
        if arguments.act:
            changed = await arguments.act(arguments, tasks)
        if not arguments.among_others:
            _check_all_were_changed(arguments, changed)
        state = await fleet_overview.collect_fleet_state(
            tasks, [FleetTaskState(name) for name in SHOWN_STATES]
        )
    answer = {"workspace": workspace.id, "name": workspace.name, "changed": changed, **state}
    return await print_result(arguments, console, answer, *_describe_fleet(answer))


def _describe_fleet(answer: dict[str, Any]) -> list[str]:
    """Returns a workspace's lines: the figures, what keeps tasks waiting, workers, tasks."""
    if "trouble" in answer:
        return [f"{answer['name']}: {answer['trouble']}"]
    counts: list[str] = []
    for state, count in answer["tasks"].items():
        counts.append(f"{count} {describe_task_state(state)}")
    lines = [f"{answer['name']}: {', '.join(counts)}; ${answer['cost']:.2f} for all tasks"]
    if answer["tasks"]["waiting"]:
        minutes = answer.get("oldest_waiting_seconds", 0.0) / 60
        lines.append(f"  the oldest waiting task has waited for {minutes:,.0f} minutes")
    if answer["is_stopped"]:
        lines.append("  Stopped: no task starts until you run `fleet start`.")
    for scope, budget in answer["budgets"].items():
        lines.append(f"  budget ({scope}): ${budget['spent']:.2f} of ${budget['limit']:.2f}")
    estimated_cost = answer.get("estimated_cost", 0.0)
    if answer["budgets"] and estimated_cost:
        lines.append(
            f"  ${estimated_cost:.2f} of this workspace's spending is estimated: requests whose worker was killed"
        )
    for provider in answer["paused_providers"]:
        lines.append(f"  {provider} asked the workers to wait for a while")
    for machine in answer.get("unable", ()):
        lines.append(f"  starts no tasks at the moment: {machine}")
    lines += _describe_workers(answer)
    for task in _tasks_to_print(answer):
        lines.append(_describe_task(task))
    return lines


def _describe_workers(answer: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for worker, count in sorted(answer["workers"].items()):
        line = f"  {worker}: {count}"
        if worker in answer["draining"]:
            line += " (draining)"
        lines.append(line)
    for worker, number in sorted(answer.get("setbacks", {}).items()):
        times = "once" if number == 1 else f"{number} times"
        lines.append(f"  {worker} gave tasks back {times}, to be tried again")
    for worker, number in sorted(answer.get("unsent_facts", {}).items()):
        lines.append(f"  {number} facts are only on the computer of {worker} so far")
    return lines


def _tasks_to_print(answer: dict[str, Any]) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = answer["running"] + answer["needs_you"]
    for state in ("dead_letter", "failed"):
        tasks += answer.get(state, [])[:MOST_FAILED]
    return tasks


def _describe_task(task: dict[str, Any]) -> str:
    note = task["why"].partition("\n\n")[0]  # `task show` shows what the agent asked for.
    if task["state"] == "running":
        note = task["worker"]
    text = " ".join(task["text"].split())[:60]
    state = describe_task_state(task["state"])
    return f"  {state:9}  {task['id']}  {text}  ({note})"


def describe_task_state(state: str) -> str:
    """Returns a state in the words of the window. Options and `--json` have its name."""
    if state == FleetTaskState.DEAD_LETTER:
        return "set aside"
    return state.replace("-", " ")


async def _stop_tasks(arguments: Namespace, tasks: FleetTaskList) -> list[str]:
    # All are found before one is stopped, so that a wrong name stops none.
    id_by_name: dict[str, str] = {}
    for name in arguments.tasks:
        task = await _find_task_to_stop(name, tasks, among_others=arguments.among_others)
        if task:
            id_by_name[name] = task
    if arguments.only_find:
        return list(id_by_name)

    if arguments.all:
        await tasks.pause_all_tasks()
    stopped: list[str] = []
    for name, task in id_by_name.items():
        if await tasks.cancel_fleet_task(task):
            stopped.append(name)
    return stopped


async def _find_task_to_stop(name: str, tasks: FleetTaskList, *, among_others: bool) -> str:
    """Returns the ID of a task that has not ended; or "" if another workspace may have it."""
    try:
        task = await tasks.find_fleet_task(name)
    except AmbiguousName:
        raise
    except NotFound:
        pass
    else:
        if task.state not in ENDED:
            return task.id
    if among_others:
        return ""
    raise NotFound(
        f"There is no task {name} to stop.",
        remedy="No task was stopped. `fleet status` lists tasks.",
    )


async def _let_tasks_start_again(_arguments: Namespace, tasks: FleetTaskList) -> list[str]:
    await tasks.resume_all_tasks()
    return []


async def _drain_workers(arguments: Namespace, tasks: FleetTaskList) -> list[str]:
    every_worker = [""]  # The empty name means all of them.
    drained: list[str] = []
    for worker in arguments.workers or every_worker:
        if await tasks.notes.drain_workers(worker):
            drained.append(worker)
    return drained


async def _set_budget(arguments: Namespace, tasks: FleetTaskList) -> list[str]:
    scope: str = arguments.per
    if arguments.agent:
        scope = f"agent {arguments.agent}"
    if scope == "fleet" and not tasks.is_shared:
        return []  # Only shared workspaces have one. If no workspace could set it, that is said.
    await tasks.notes.set_limit(scope, arguments.dollars)
    return [scope]


def add_fleet_commands(nouns: Subparsers) -> None:
    noun = add_command(nouns, "fleet", "show what the workers are doing, or stop them")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_fleet_status(verbs)
    _add_fleet_stop(verbs)
    _add_fleet_start(verbs)
    _add_fleet_drain(verbs)
    _add_fleet_budget(verbs)


def _add_fleet_status(verbs: Subparsers) -> None:
    command = add_command(verbs, "status", "show tasks, where they run, what failed, and costs")
    _let_act_on_fleet(command, None)


def _add_fleet_stop(verbs: Subparsers) -> None:
    command = add_command(
        verbs, "stop", "cancel tasks, or stop all tasks until you run `fleet start`"
    )
    task = "the task's ID, or the first part of it"
    add_names_argument(command, "tasks", "TASK", task, may_be_none=True)
    command.add_argument(
        "--all", action="store_true", help="stop all tasks until you run `fleet start`"
    )
    command.add_argument(ONLY_FIND, action="store_true", help=argparse.SUPPRESS)
    _let_act_on_fleet(command, _stop_tasks)


def _add_fleet_start(verbs: Subparsers) -> None:
    command = add_command(verbs, "start", "let tasks run again after `fleet stop --all`")
    _let_act_on_fleet(command, _let_tasks_start_again)


def _add_fleet_drain(verbs: Subparsers) -> None:
    command = add_command(verbs, "drain", "stop each worker after it has finished its tasks")
    worker = "names of workers, as `fleet status` shows them (default: all workers)"
    add_names_argument(command, "workers", "WORKER", worker, may_be_none=True)
    _let_act_on_fleet(command, _drain_workers)


def _add_fleet_budget(verbs: Subparsers) -> None:
    command = add_command(verbs, "budget", "limit the total cost of tasks")
    command.add_argument(
        "dollars", metavar="DOLLARS", type=float, help="the limit in dollars; 0 means no limit"
    )
    add_text_option(
        command, "--agent", "A", "limit only this agent's tasks, in the whole workspace"
    )
    command.add_argument(
        "--per",
        choices=["day", "workspace", "fleet"],
        default="workspace",
        help="what the limit applies to: a day (until midnight UTC), the workspace (default), or all workspaces of the shared store",
    )
    _let_act_on_fleet(command, _set_budget)


def _let_act_on_fleet(command: ArgumentParser, act: FleetAction | None) -> None:
    """Ends the declaration of a verb: `_run_fleet_command` decides which workspaces it is for, and
    in each of them `work` does `act`, if there is one, and then shows the figures.
    """
    command.add_argument(AMONG_OTHERS, action="store_true", help=argparse.SUPPRESS)
    command.add_argument(
        "--workspace",
        "-w",
        metavar="W",
        default="",
        help="only this workspace (default: all workspaces)",
    )
    add_json_option(command)
    # `counts`: these commands need no tokens to be counted, so the counter is not loaded.
    command.set_defaults(
        run=_run_fleet_command, work=_act_in_workspace_and_print, act=act, counts=False
    )
