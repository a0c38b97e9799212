"""`task`: work that exactly one worker completes, even if workers fail."""

import asyncio
import json
import math
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.commands import format_local_time, workspace_access
from helix_desktop.commands.fleet_command import describe_task_state
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_names_argument,
    add_repeated_option,
    add_text_option,
    add_workspace_option,
)
from helix_desktop.commands.workspace_access import print_result
from helix_desktop.console import Console
from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.errors import InvalidInput
from helix_desktop.store import fleet_task_files, fleet_tasks
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.stored_workspace import StoredWorkspace

TaskAction = Callable[[Namespace, FleetTaskList, Console], Awaitable[int]]
_TASK_NAME = "the task's ID, or the first part of it"
ONCE = "once"  # The word for `--allow` that stands for the one call that a task waits for.
# In these states, a task has an answer to what it asked for.
_ANSWERED = (fleet_tasks.FleetTaskState.WAITING, fleet_tasks.FleetTaskState.RUNNING)
WAIT_SECONDS = 0.5  # The pause between two checks of a task's state.
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "text": str, "agent": str, "model": str, "priority": int, "after": list, "budget": (int, float), "deadline": str,
    "key": str, "allow": list,
}  # fmt: skip
_MOST_PRIORITY = 2**31 - 1  # The largest number that the column in PostgreSQL can hold.


def _run_task_command(arguments: Namespace) -> int:
    file = getattr(arguments, "file", None)
    reads_input = file is None and getattr(arguments, "text", []) == ["-"]
    return workspace_access.run_on_workspace(arguments, source=file, gather=reads_input)


async def _open_task_list_and_run(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    async with fleet_task_files.open_fleet_task_list(workspace) as tasks:
        return int(await arguments.act(arguments, tasks, console))


async def _add_tasks(arguments: Namespace, tasks: FleetTaskList, console: Console) -> int:
    """Adds one task from the words of the command line, or one from each line of a file or of
    the input, and prints their IDs. What a line does not say comes from the options.
    """
    options = {name: getattr(arguments, name) for name in _FIELDS.keys() - {"text"}}
    new_tasks: list[fleet_tasks.NewFleetTask] = []
    if arguments.file or arguments.text == ["-"]:
        if arguments.file and arguments.text:
            raise InvalidInput("Specify the tasks as TEXT or as a file, not both.")
        lines = await _read_lines(console)
        for number, line in enumerate(lines, 1):
            if line.strip():
                new_tasks.append(_parse_task_line(line.strip(), number, options))
    else:
        text = " ".join(arguments.text)
        new_tasks.append(_build_new_task({**options, "text": text}))
    ids = await tasks.add_fleet_tasks(new_tasks)
    return await print_result(arguments, console, ids, *ids)


async def _read_lines(console: Console) -> list[str]:
    """Reads the whole input, and refuses it if it is not text."""
    content = bytearray()
    piece = await console.read_input()
    while piece:
        content += piece
        piece = await console.read_input()
    try:
        return content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "The tasks are not valid UTF-8 text.", remedy="Nothing was added."
        ) from error


def _parse_task_line(line: str, number: int, defaults: dict[str, Any]) -> fleet_tasks.NewFleetTask:
    """Parses a line of text, or a JSON object whose fields are named like the options."""
    try:
        fields = {"text": line}
        if line.startswith("{"):
            fields = json.loads(line)
        _check_task_fields(fields)
        return _build_new_task({**defaults, **fields})
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"Line {number} is not a JSON object.", remedy="Nothing was added."
        ) from error
    except InvalidInput as error:
        raise InvalidInput(f"Line {number}: {error.what}", remedy=error.remedy) from error


def _check_task_fields(fields: dict[str, Any]) -> None:
    """Refuses a field that tasks do not have, which may be mistyped, or a value of the wrong
    type.
    """
    unknown_names = fields.keys() - _FIELDS.keys()
    if unknown_names:
        raise InvalidInput(
            f"a task has no field {min(unknown_names)}.", remedy="Nothing was added."
        )
    for name, value in fields.items():
        if not _has_type_of_field(value, name):
            raise InvalidInput(
                f"{name} has a value of the wrong type.", remedy="Nothing was added."
            )


def _has_type_of_field(value: object, name: str) -> bool:
    if isinstance(value, bool):  # Python counts a boolean as a whole number.
        return False
    if isinstance(value, list) and not all(isinstance(item, str) for item in value):
        return False
    return isinstance(value, _FIELDS[name])


def _build_new_task(fields: dict[str, Any]) -> fleet_tasks.NewFleetTask:
    """Checks the values that a line or the options have given, and makes a task of them."""
    workspace_access.check_permission_names(fields["allow"])
    text = fields["text"].strip()
    budget = float(fields["budget"])
    priority = fields["priority"]
    mistake = ""
    if not text:
        mistake = "The task has no text."
    elif not 0 <= budget < math.inf:
        mistake = "A budget must be an amount of 0 dollars or more."
    elif abs(priority) > _MOST_PRIORITY:
        mistake = f"A priority is a number from -{_MOST_PRIORITY} to {_MOST_PRIORITY}."
    if mistake:
        raise InvalidInput(mistake, remedy="Nothing was added.")
    order = fleet_tasks.FleetTaskOrder(
        text, fields["agent"], fields["model"], tuple(fields["allow"]), budget
    )
    deadline = fleet_tasks.parse_deadline_seconds(fields["deadline"])
    return fleet_tasks.NewFleetTask(
        order, fields["key"], priority, tuple(fields["after"]), deadline
    )


async def _list_tasks(arguments: Namespace, tasks: FleetTaskList, console: Console) -> int:
    """Prints a line for each task in the chosen state, the newest first."""
    if arguments.most < 1:
        raise InvalidInput("--most must be 1 or greater.")
    listed_tasks = await tasks.list_fleet_tasks(arguments.state, arguments.most)
    lines: list[str] = []
    for task in listed_tasks:
        text = " ".join(task.order.text.split())[:60]
        state = describe_task_state(task.state)
        lines.append(f"{task.id}  {state:9}  {format_local_time(task.added)}  {text}")
    if not lines:
        lines.append("There are no tasks.")
    result = [fleet_tasks.task_as_json(task) for task in listed_tasks]
    return await print_result(arguments, console, result, *lines)


async def _show_named_tasks(arguments: Namespace, tasks: FleetTaskList, console: Console) -> int:
    return await _print_tasks(arguments, await _find_named_tasks(arguments, tasks), console)


async def _find_named_tasks(
    arguments: Namespace, tasks: FleetTaskList
) -> list[fleet_tasks.FleetTask]:
    return [await tasks.find_fleet_task(name) for name in arguments.tasks]


async def _print_tasks(
    arguments: Namespace, named_tasks: Sequence[fleet_tasks.FleetTask], console: Console
) -> int:
    """Prints for each task its state and worker, why it is in this state, how to go on, and the
    answer.
    """
    lines: list[str] = []
    for task in named_tasks:
        worker = ""
        if task.worker:
            worker = f" (on {task.worker})"
        lines.append(f"{task.id}  {describe_task_state(task.state)}{worker}")
        reason = _describe_reason(task)
        how_to_retry = _describe_retry(task, arguments.workspace)
        for line in (reason, how_to_retry, task.result.answer):
            if line:
                lines.append(line)
    result = [fleet_tasks.task_as_json(task) for task in named_tasks]
    return await print_result(arguments, console, result, *lines)


def _describe_reason(task: fleet_tasks.FleetTask) -> str:
    """Returns why the task is in its state, or an empty string."""
    if task.open_needs:
        return f"Other tasks that this one waits for: {task.open_needs}"
    is_answered = task.state in _ANSWERED and bool(task.result.asked)
    if is_answered:  # The reason is the question that the user has answered.
        return ""
    if task.state is fleet_tasks.FleetTaskState.NEEDS_YOU:
        # What is to be allowed is shown exactly, and all of it.
        return mark_text(task.result.why)
    return task.result.why


def _describe_retry(task: fleet_tasks.FleetTask, workspace: str | None) -> str:
    """Says how a task that has stopped is continued, or returns an empty string. A dead letter
    is a task that workers have given back too often.
    """
    retry = f"task retry {task.id}"
    if workspace:
        retry += f" -w {shlex.quote(workspace)}"
    match task.state:
        case fleet_tasks.FleetTaskState.DEAD_LETTER:
            return f"To try it again, run `{retry}`."
        case fleet_tasks.FleetTaskState.NEEDS_YOU:
            return (
                f"To allow this call alone, run `{retry} --allow once`; to allow all such calls,"
                f" `{retry} --allow {task.result.asked}`."
            )
        case fleet_tasks.FleetTaskState.FAILED | fleet_tasks.FleetTaskState.CANCELLED:
            if task.result is not fleet_tasks.UNREADABLE:
                return f"To continue it, run `{retry}`."
    return ""


async def _cancel_tasks(arguments: Namespace, tasks: FleetTaskList, console: Console) -> int:
    code = 0
    named_tasks = await _find_named_tasks(arguments, tasks)
    for task in named_tasks:
        if not await tasks.cancel_fleet_task(task.id):
            await _print_unchanged(task, console)
            code = 1
    await _print_tasks(arguments, await _read_again(tasks, named_tasks), console)
    return code


async def _retry_tasks(arguments: Namespace, tasks: FleetTaskList, console: Console) -> int:
    """Lets tasks go on, with new permissions, or all that were given back too often."""
    from helix_desktop.workbench.unattended_permissions import UserAnswer

    if bool(arguments.tasks) == arguments.dead_letters:
        raise InvalidInput("Specify the tasks to retry, or --dead-letters.")
    permissions = [name for name in arguments.allow if name != ONCE]
    workspace_access.check_permission_names(permissions)
    if arguments.dead_letters:
        number = await tasks.retry_dead_letters()
        sentence = f"Tasks that will be tried again: {number:,}."
        return await print_result(arguments, console, {"retried": number}, sentence)
    code = 0
    named_tasks = await _find_named_tasks(arguments, tasks)
    for task in named_tasks:
        allowed = list(permissions)
        if ONCE in arguments.allow:
            allowed.append(UserAnswer(allowed=True).as_permission(task.result.why))
        if not await tasks.retry_fleet_task(task, allowed):
            await _print_unchanged(task, console)
            code = 1
    await _print_tasks(arguments, await _read_again(tasks, named_tasks), console)
    return code


async def _print_unchanged(task: fleet_tasks.FleetTask, console: Console) -> None:
    sentence = f"The task {task.id} is {describe_task_state(task.state)}, so nothing was changed."
    await console.print_error(sentence)


async def _read_again(
    tasks: FleetTaskList, earlier: Sequence[fleet_tasks.FleetTask]
) -> list[fleet_tasks.FleetTask]:
    """Returns the same tasks as they are now."""
    return [await tasks.find_fleet_task(task.id) for task in earlier]


async def _wait_for_tasks(arguments: Namespace, tasks: FleetTaskList, console: Console) -> int:
    """Waits until no task goes on by itself any more."""
    resting = fleet_tasks.ENDED | {
        fleet_tasks.FleetTaskState.NEEDS_YOU,
        fleet_tasks.FleetTaskState.DEAD_LETTER,
    }
    named_tasks = await _find_named_tasks(arguments, tasks)
    while not all(task.state in resting for task in named_tasks):
        await asyncio.sleep(WAIT_SECONDS)
        named_tasks = await _read_again(tasks, named_tasks)
    await _print_tasks(arguments, named_tasks, console)
    if all(task.state is fleet_tasks.FleetTaskState.DONE for task in named_tasks):
        return 0
    return 1


def add_task_commands(nouns: Subparsers) -> None:
    noun = add_command(nouns, "task", "give tasks to workers, and see the results")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_task_add(verbs)
    _add_task_list(verbs)
    _add_task_show(verbs)
    _add_task_cancel(verbs)
    _add_task_retry(verbs)
    _add_task_wait(verbs)


def _add_task_add(verbs: Subparsers) -> None:
    """Declares `task add`."""
    command = add_command(verbs, "add", "add tasks and print their IDs")
    add_workspace_option(command)
    command.add_argument(
        "text",
        metavar="TEXT",
        nargs="*",
        help="what to do; - reads one task from each line of standard input, as text or as a JSON object",
    )
    command.add_argument(
        "--file",
        metavar="FILE",
        type=Path,
        default=None,
        help="add one task from each line of FILE",
    )
    add_text_option(command, "--agent", "A", "the workspace's agent that runs the task")
    command.add_argument(
        "--model", "-m", metavar="M", default="", help="the model, as provider/model"
    )
    permissions = "what the task may do without asking; see `ask --help`"
    add_repeated_option(command, "--allow", "WHAT", permissions)
    command.add_argument(
        "--priority",
        metavar="P",
        type=int,
        default=0,
        help="tasks with a higher number go first (default: 0)",
    )
    add_repeated_option(command, "--after", "T", "wait until this task is done")
    command.add_argument(
        "--budget", metavar="DOLLARS", type=float, default=0.0, help="how much the task may cost"
    )
    deadline = "the task fails if it has not finished by this deadline: a time such as 2030-01-31T18:00, or a duration such as 90m, 8h or 2d"
    add_text_option(command, "--deadline", "WHEN", deadline)
    add_text_option(command, "--key", "K", "a task with the same key is added only once")
    _let_act_on_tasks(command, _add_tasks)


def _add_task_list(verbs: Subparsers) -> None:
    """Declares `task list`."""
    command = add_command(verbs, "list", "list tasks, newest first")
    add_workspace_option(command)
    command.add_argument(
        "--state",
        metavar=None,
        choices=[state.value for state in fleet_tasks.FleetTaskState],
        default="",
        help="only tasks in this state",
    )
    command.add_argument(
        "--most", metavar="N", type=int, default=100, help="show at most N tasks (default: 100)"
    )
    _let_act_on_tasks(command, _list_tasks)


def _add_task_show(verbs: Subparsers) -> None:
    command = add_command(verbs, "show", "show a task and its result")
    add_workspace_option(command)
    add_names_argument(command, "tasks", "T", _TASK_NAME)
    _let_act_on_tasks(command, _show_named_tasks)


def _add_task_cancel(verbs: Subparsers) -> None:
    command = add_command(
        verbs, "cancel", "cancel tasks; running tasks stop before their next step"
    )
    add_workspace_option(command)
    add_names_argument(command, "tasks", "T", _TASK_NAME)
    _let_act_on_tasks(command, _cancel_tasks)


def _add_task_retry(verbs: Subparsers) -> None:
    """Declares `task retry`."""
    command = add_command(
        verbs,
        "retry",
        "continue tasks that failed, were cancelled, need you or were given back too often",
    )
    add_workspace_option(command)
    add_names_argument(command, "tasks", "T", _TASK_NAME, may_be_none=True)
    command.add_argument(
        "--dead-letters",
        action="store_true",
        help="all tasks that were given back too often; see `task list --state dead-letter`",
    )
    more = "what else the tasks may do from now on without asking; once: only the very call that they wait for"
    add_repeated_option(command, "--allow", "WHAT", more)
    _let_act_on_tasks(command, _retry_tasks)


def _add_task_wait(verbs: Subparsers) -> None:
    command = add_command(verbs, "wait", "wait until tasks end or need your input")
    add_workspace_option(command)
    add_names_argument(command, "tasks", "T", _TASK_NAME)
    _let_act_on_tasks(command, _wait_for_tasks, is_lasting=True)


def _let_act_on_tasks(
    command: ArgumentParser, act: TaskAction, *, is_lasting: bool = False
) -> None:
    """Ends the declaration of a verb, which acts on the list of tasks of a workspace.
    `is_lasting`: it may take long.
    """
    add_json_option(command)
    command.set_defaults(
        run=_run_task_command,
        work=_open_task_list_and_run,
        act=act,
        counts=False,
        lasting=is_lasting,
    )
