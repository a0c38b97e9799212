"""`worker`: does the tasks of workspaces, without a window and without a keyring."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from helix_desktop import program_folders, tasks
from helix_desktop.commands import workspace_access
from helix_desktop.console import Console, Terminal, escape_control_characters
from helix_desktop.errors import HelixError, InvalidInput, SharedStoreUnreachable, StoreBusy

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.store.fleet_tasks import FleetTask, FleetTaskResult, FleetTaskState
    from helix_desktop.store.stored_workspace import StoredWorkspace
    from helix_desktop.workbench import Workbench
    from helix_desktop.workbench.fleet_worker import FleetWorker

AGAIN_SECONDS = 1.0  # until a worker that ran in another program looks for the workspace again
AGAIN = -1  # instead of an exit code: somebody else has the workspace now, or closed it
log = logging.getLogger(__name__)


def add_worker_command(nouns: Subparsers) -> None:
    worker = nouns.add_parser("worker", help="do the tasks that were added with `task add`")
    worker.add_argument("--workspace", "-w", action="append", default=[], metavar="W", help="only this workspace's tasks; may be repeated (default: all workspaces)")  # fmt: skip
    worker.add_argument("--at-once", type=int, default=4, metavar="N", help="how many tasks of a workspace run at once (default: 4)")  # fmt: skip
    worker.add_argument("--allow", action="append", default=[], metavar="WHAT", help="what the tasks may do without asking; see `ask --help`. A task that needs more ends as needs-you")  # fmt: skip
    worker.add_argument("--drain", action="store_true", help="end when no task waits any more")
    worker.add_argument("--json", action="store_true", help="print a line of JSON for each task that ended")
    worker.set_defaults(run=_run_worker_command, work=work_in_workspace, lasting=True)


def _run_worker_command(arguments: argparse.Namespace) -> int:
    arguments.places = program_folders.find_program_folders(arguments.home)
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    names = arguments.workspace or [one.id for one in workspaces.list_workspaces()]
    known = dict.fromkeys(workspaces.find_known_workspace(name).id for name in names)
    workspaces.tidy_unfinished()
    return asyncio.run(_work_in_all(arguments, list(known)))


async def _work_in_all(arguments: argparse.Namespace, workspaces: list[str]) -> int:
    """In each of them beside the others. SIGTERM drains."""
    arguments.draining, arguments.working_here = asyncio.Event(), set[str]()
    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, arguments.draining.set)
    with Terminal() as console:
        codes = await asyncio.gather(*(_work_in_one(arguments, one, console) for one in workspaces))
    return max(codes, default=0)


async def _work_in_one(arguments: argparse.Namespace, workspace: str, console: Console) -> int:
    """Here, or in the program that has the workspace open; when that ends, here."""
    helpers = tasks.OwnedTasks("worker")
    ending = helpers.spawn_task(arguments.draining.wait(), name="drain")
    try:
        while True:
            working = workspace_access.open_or_hand_over(arguments, workspace, console)
            code = await _work_until_drained(arguments, workspace, helpers.spawn_task(working, name="work"), ending)
            if code != AGAIN:
                return code
            await asyncio.wait({ending}, timeout=AGAIN_SECONDS)
            if ending.done():
                return 0
    finally:
        await helpers.aclose()


async def _work_until_drained(
    arguments: argparse.Namespace, workspace: str, working: asyncio.Task[int], ending: asyncio.Task[bool]
) -> int:
    """Its exit code, or AGAIN where somebody else has the workspace, or closed it."""
    await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
    if not working.done() and workspace not in arguments.working_here:  # the program that has it open stops the worker
        working.cancel()
    try:
        return await working
    except asyncio.CancelledError:
        if ending.done():
            return 0
        raise
    except HelixError as error:
        if type(error) is not HelixError and not isinstance(error, StoreBusy | SharedStoreUnreachable):
            raise
        log.warning("the worker tries again: %s", error)
        return AGAIN


async def work_in_workspace(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    """Do the tasks of one open workspace."""
    from helix_desktop import workbench

    if arguments.at_once < 1:
        raise InvalidInput("A worker runs at least one task at once.")
    if (bench := workbench.workbench_of(workspace)) is not None:
        return await _do_tasks(arguments, bench, console)
    async with workbench.open_single_workbench(workspace, arguments.places) as bench:
        return await _do_tasks(arguments, bench, console)


async def _do_tasks(arguments: argparse.Namespace, bench: Workbench, console: Console) -> int:
    from helix_desktop.gateway import gateway_workspaces
    from helix_desktop.store import fleet_task_files
    from helix_desktop.workbench.fleet_worker import FleetWorker

    is_released = False

    async def report(task: FleetTask, state: FleetTaskState, result: FleetTaskResult) -> None:
        told = {"id": task.id, "state": state.value, **asdict(result), "conversation": task.id, "workspace": bench.id}
        short = f"{task.id}  {state.value}  {escape_control_characters(result.why)}".rstrip()
        await console.print_line(json.dumps(told, ensure_ascii=False) if arguments.json else short)

    def release_workspace() -> None:
        nonlocal is_released
        is_released = True
        worker.drain(0.0)

    async with fleet_task_files.open_fleet_task_list(bench.workspace) as task_list:
        worker = FleetWorker(bench, task_list, at_once=arguments.at_once, allowed=arguments.allow, report=report)
        done = None
        helpers = tasks.OwnedTasks("worker")
        if (
            draining := getattr(arguments, "draining", None)
        ) is not None:  # else it works for another process, beside its window
            arguments.working_here.add(bench.id)
            done = gateway_workspaces.set_release_handler(bench.id, release_workspace)
            helpers.spawn_task(_drain_when_told(worker, draining), name="drain")
        await console.print_error(f"Doing the tasks of {bench.name}, {arguments.at_once} at once.")
        try:
            await worker.work_until_drained(until_empty=arguments.drain)
        finally:
            await helpers.aclose()
            if done is not None:
                done()
                arguments.working_here.discard(bench.id)
    return AGAIN if is_released else 0


async def _drain_when_told(worker: FleetWorker, draining: asyncio.Event) -> None:
    await draining.wait()
    worker.drain()
