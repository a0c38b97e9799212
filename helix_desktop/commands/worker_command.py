"""`worker`: runs tasks of workspaces, without a window and without a keyring."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from argparse import Namespace
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from helix_desktop.commands import parse_number, workspace_access
from helix_desktop.console import Console, Terminal, dump_printed_json, escape_control_characters
from helix_desktop.errors import HelixError, NotFound, SharedStoreUnreachable, StoreBusy
from helix_desktop.store import fleet_task_files, workspace_link

if TYPE_CHECKING:
    from helix_desktop.store.fleet_tasks import FleetTask, FleetTaskResult, FleetTaskState
    from helix_desktop.workbench import Workbench
    from helix_desktop.workbench.fleet_worker import FleetWorker

# Not an exit code. It means: try again, because another program wants the workspace or
# has closed it.
AGAIN = -1
AGAIN_SECONDS = 1.0
UNABLE = 1  # The exit code if the workspace has no model or no key. The worker tries again later.
UNABLE_SECONDS = 60
log = logging.getLogger(__name__)


def _run_worker_command(arguments: Namespace) -> int:
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    names = arguments.workspace or [one.id for one in workspaces.list_workspaces()]
    known = dict.fromkeys(workspaces.find_known_workspace(name).id for name in names)
    workspaces.remove_interrupted_imports_and_writes()
    arguments.workers, arguments.is_draining = list["FleetWorker"](), False
    arguments.known, arguments.unable = known, set[str]()
    try:
        return asyncio.run(_work_in_all_workspaces(arguments, list(known)))
    except asyncio.CancelledError:  # SIGTERM arrived while other programs had the workspaces open.
        return 0


async def _work_in_all_workspaces(arguments: Namespace, workspaces: list[str]) -> int:
    """Works in all workspaces concurrently. SIGTERM lets the workers finish their tasks."""
    main = asyncio.current_task()

    def drain() -> None:
        arguments.is_draining = True
        for worker in arguments.workers:
            worker.drain()
        if main is not None and not arguments.workers:
            main.cancel()

    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drain)
    codes = [_work_in_workspace(arguments, one, Terminal()) for one in workspaces]
    return min(await asyncio.gather(*codes), default=0)


async def _work_in_workspace(arguments: Namespace, workspace: str, console: Console) -> int:
    """Works here, or in the process that has the workspace open. If that process ends,
    continues here.
    """
    while not arguments.is_draining:
        try:
            code = await workspace_access.run_here_or_at_owner(arguments, workspace, console)
        except HelixError as error:
            if type(error) is not HelixError and not isinstance(
                error, StoreBusy | SharedStoreUnreachable
            ):
                raise
            log.warning("the worker tries again: %s", error)
            code = AGAIN
        if code != AGAIN and (code != UNABLE or arguments.drain):
            return code
        arguments.unable |= {workspace} if code == UNABLE else set()
        for _ in range(UNABLE_SECONDS if code == UNABLE else 1):
            if len(arguments.unable) == len(arguments.known):
                return UNABLE
            if not arguments.is_draining:
                await asyncio.sleep(AGAIN_SECONDS)
    return 0


async def _work_on_tasks(bench: Workbench, arguments: Namespace, console: Console) -> int:
    from helix_desktop.gateway import gateway_workspaces
    from helix_desktop.workbench.fleet_worker import FleetWorker

    async def report(task: FleetTask, state: FleetTaskState, result: FleetTaskResult) -> None:
        told = {
            "id": task.id,
            "state": state.value,
            **asdict(result),
            "conversation": task.id,
            "workspace": bench.id,
        }
        short = f"{task.id}  {state.value}  {escape_control_characters(result.why)}".rstrip()
        with suppress(ConnectionError):  # If the caller was killed, the task has ended anyway.
            await console.print_line(dump_printed_json(told) if arguments.json else short)

    if os.environ.get(workspace_link.STORE) and bench.workspace.link is None:
        told = NotFound(
            f"{bench.name} is not shared through {workspace_link.STORE}.",
            remedy=f"To share the workspace, run `workspace share {bench.id} --yes`.",
        )
        if arguments.workspace:
            raise told
        await console.print_error(str(told))
    async with fleet_task_files.open_fleet_task_list(bench.workspace) as task_list:
        try:
            await bench.models.check_main_model()
        except HelixError as error:
            await task_list.notes.exclude_machine_for(
                bench.sharing.machine_name, error.what, 2.0 * UNABLE_SECONDS
            )
            if bench.id not in getattr(arguments, "unable", ()):
                await console.print_error(
                    f"The tasks of {bench.name} are waiting for another worker. {error}"
                )
            return UNABLE
        getattr(arguments, "unable", set[str]()).discard(bench.id)
        worker = FleetWorker(bench, task_list, at_once=arguments.at_once, allowed=arguments.allow)
        worker.report = report
        worker.most_kept = max(0, arguments.keep)
        worker.tasks_may_allow = not arguments.ignore_task_allow
        await console.print_error(
            f"Running the tasks of {bench.name}, {arguments.at_once} at a time."
        )
        own = getattr(arguments, "workers", None)
        if own is None:  # Another process runs the command, but the workspace is open in this one.
            await worker.work_until_drained(until_empty=arguments.drain)
            return 0
        own.append(worker)
        bench.sharing.fetch_seconds = 10.0  # No one here reads what other machines write.
        forget = gateway_workspaces.set_release_handler(bench.id, lambda: worker.drain(0.0))
        try:
            await worker.work_until_drained(until_empty=arguments.drain)
        finally:
            forget()
            own.remove(worker)
    return AGAIN if worker.must_release_workspace and not arguments.is_draining else 0


TYPES_OF_WORKER = {"at-once": partial(parse_number, least=1, what="a number of 1 or more")}
