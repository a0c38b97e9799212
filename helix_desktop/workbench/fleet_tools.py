"""Tools with which an agent gives tasks to its workspace's workers, on any computer,
and reads the results.
"""

import asyncio
import time
from functools import partial

from helix_desktop.store import fleet_task_files
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import FleetTask, FleetTaskOrder, NewFleetTask
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.workbench.worker_claims import WorkerClaims

MOST_SECONDS = 600  # One call waits at most this long for tasks.
LOOK_SECONDS = 0.5
LONGEST_SHOWN = 300  # This many characters of an answer are shown beside its hash.


def build_fleet_tools(workspace: StoredWorkspace, claims: WorkerClaims) -> tuple[BuiltInTool, ...]:
    """Return the tools. No request contains them; the model finds them with find_tools."""
    return (
        BuiltInTool(ADD_FLEET_TASKS, partial(_add_tasks_of_agent, workspace)),
        BuiltInTool(READ_FLEET_TASKS, partial(_read_tasks_of_agent, workspace, claims)),
    )


async def _add_tasks_of_agent(
    workspace: StoredWorkspace, args: ToolArguments, use: ToolResources
) -> ToolOutput:
    """Add tasks after asking, because workers may be allowed more than this conversation."""
    texts: list[str] = []
    for argument in args.list_argument("tasks"):
        text = str(argument).strip()
        if text:
            texts.append(text)
    agent = args.text_argument("agent")
    preview_paragraphs: list[str] = []
    if agent:
        preview_paragraphs.append(f"Agent: {agent}")
    preview_paragraphs.extend(texts)
    preview = "\n\n".join(preview_paragraphs)
    await use.permit(
        ToolAction(use.call.name, ActionEffect.FOREIGN, "Give tasks to workers", preview)
    )

    new_tasks: list[NewFleetTask] = []
    for text in texts:
        # The same text is one task, also if the agent's computer fails and it asks again.
        key = f"{use.context.conversation} {agent} {text}"
        new_tasks.append(NewFleetTask(FleetTaskOrder(text, agent), key=key))
    async with fleet_task_files.open_fleet_task_list(workspace) as task_list:
        ids = await task_list.add_fleet_tasks(new_tasks)
    return ToolOutput("\n".join(ids))


async def _read_tasks_of_agent(
    workspace: StoredWorkspace, claims: WorkerClaims, args: ToolArguments, use: ToolResources
) -> ToolOutput:
    """Wait until the tasks have ended, or for as long as the agent wants, and return what
    came of each.
    """
    wait_seconds = min(args.number_argument("seconds", MOST_SECONDS), MOST_SECONDS)
    wait_until = time.monotonic() + wait_seconds
    names = [str(name) for name in args.list_argument("tasks")]
    # The worker of the agent that waits may do one of these tasks meanwhile.
    with claims.give_up_worker_slot(use.context.conversation):
        async with fleet_task_files.open_fleet_task_list(workspace) as task_list:
            tasks = [await task_list.find_fleet_task(name) for name in names]
            while any(_may_still_change(task) for task in tasks):
                if time.monotonic() >= wait_until:
                    break
                await asyncio.sleep(LOOK_SECONDS)
                tasks = [await _read_again(task_list, task) for task in tasks]
    lines = [await _describe_result(task, use) for task in tasks]
    return ToolOutput("\n".join(lines))


async def _read_again(task_list: FleetTaskList, task: FleetTask) -> FleetTask:
    if not _may_still_change(task):
        return task
    return await task_list.find_fleet_task(task.id)


def _may_still_change(task: FleetTask) -> bool:
    return task.state in ("waiting", "running")


async def _describe_result(task: FleetTask, use: ToolResources) -> str:
    """Return a line with the hash of the whole answer and its beginning, or why there is none."""
    answer = task.result.answer
    if not answer:
        return f"{task.id} {task.state} {task.result.why}".rstrip()
    stored = await use.store_result(answer.encode("utf-8", "replace"), f"task {task.id}")
    beginning = " ".join(answer[:LONGEST_SHOWN].split())
    return f"{task.id} {task.state} {stored.digest.hex[:16]} {beginning}"


ADD_FLEET_TASKS = ToolDeclaration(
    "add_fleet_tasks",
    "Give tasks to the workers of this workspace, on any computer. Returns their IDs. The same text from the same conversation is one task, so a call may be repeated.",
    {
        "type": "object",
        "properties": {
            "tasks": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 1000,
            },
            "agent": {"type": "string", "description": "An agent of this workspace, by name"},
        },
        "required": ["tasks"],
    },
    is_rare=True,
)
READ_FLEET_TASKS = ToolDeclaration(
    "read_fleet_tasks",
    "Wait for tasks given to workers, by their IDs. Returns the state of each, and the hash of its answer.",
    {
        "type": "object",
        "properties": {
            "tasks": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 1000,
            },
            "seconds": {"type": "integer", "description": f"Wait so long, at most {MOST_SECONDS}"},
        },
        "required": ["tasks"],
    },
    is_rare=True,
)
