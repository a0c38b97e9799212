"""Tools with which an agent gives tasks to its workspace's workers, on any computer,
and reads the results.
"""

import asyncio
import time
from functools import partial

from helix_desktop.store import fleet_task_files
from helix_desktop.store.fleet_tasks import FleetTask, FleetTaskOrder, NewFleetTask
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolOutput,
    ToolResources,
    declare_tool,
)
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.workbench.worker_claims import WorkerClaims

MOST_SECONDS = 600  # One call waits at most this long for tasks.
LOOK_SECONDS = 0.5
LONGEST_SHOWN = 300  # This many characters of an answer are shown beside its hash.


def build_fleet_tools(workspace: StoredWorkspace, claims: WorkerClaims) -> tuple[BuiltInTool, ...]:
    """Return the tools. No request contains them; the model finds them with find_tools."""
    return (
        declare_tool("add_fleet_tasks", partial(_add_tasks_of_agent, workspace)),
        declare_tool("read_fleet_tasks", partial(_read_tasks_of_agent, workspace, claims)),
    )


async def _add_tasks_of_agent(
    workspace: StoredWorkspace, args: ToolArguments, use: ToolResources
) -> ToolOutput:
    """Add tasks after asking, because workers may be allowed more than this conversation."""
    stripped = [str(text).strip() for text in args.list_argument("tasks")]
    texts = [text for text in stripped if text]
    agent = args.text_argument("agent")
    paragraphs = [f"Agent: {agent}"] if agent else []
    preview = "\n\n".join(paragraphs + texts)
    await use.permit(
        ToolAction(use.call.name, ActionEffect.FOREIGN, "Give tasks to workers", preview)
    )
    new = []
    for text in texts:
        # The same text is one task, also if the agent's computer fails and it asks again.
        key = f"{use.context.conversation} {agent} {text}"
        new.append(NewFleetTask(FleetTaskOrder(text, agent), key=key))
    async with fleet_task_files.open_fleet_task_list(workspace) as tasks:
        return ToolOutput("\n".join(await tasks.add_fleet_tasks(new)))


async def _read_tasks_of_agent(
    workspace: StoredWorkspace, claims: WorkerClaims, args: ToolArguments, use: ToolResources
) -> ToolOutput:
    until = time.monotonic() + min(args.number_argument("seconds", MOST_SECONDS), MOST_SECONDS)
    names = [str(name) for name in args.list_argument("tasks")]
    with claims.give_up_worker_slot(use.context.conversation):
        async with fleet_task_files.open_fleet_task_list(workspace) as tasks:
            found = [await tasks.find_fleet_task(name) for name in names]
            while time.monotonic() < until and any(_may_still_change(task) for task in found):
                await asyncio.sleep(LOOK_SECONDS)
                for number, task in enumerate(found):
                    if _may_still_change(task):
                        found[number] = await tasks.find_fleet_task(task.id)
    return ToolOutput("\n".join([await _describe_result(task, use) for task in found]))


def _may_still_change(task: FleetTask) -> bool:
    return task.state in ("waiting", "running")


async def _describe_result(task: FleetTask, use: ToolResources) -> str:
    if not task.result.answer:
        return f"{task.id} {task.state} {task.result.why}".rstrip()
    stored = await use.store_result(
        task.result.answer.encode("utf-8", "replace"), f"task {task.id}"
    )
    shown = " ".join(task.result.answer[:LONGEST_SHOWN].split())
    return f"{task.id} {task.state} {stored.digest.hex[:16]} {shown}"
