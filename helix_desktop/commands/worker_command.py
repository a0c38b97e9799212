"""`worker`: runs tasks of workspaces, without a window and without a keyring."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_repeated_option,
    parse_number,
)
from helix_desktop.commands.workspace_access import run_on_workbench
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console, Terminal, dump_printed_json, escape_control_characters
from helix_desktop.errors import (
    HelixError,
    NotFound,
    OwnerEnded,
    SharedStoreUnreachable,
    StoreBusy,
    StoreFailed,
    StoreFull,
)
from helix_desktop.store import fleet_task_files, workspace_link
from helix_desktop.store.all_workspaces import KnownWorkspace
from helix_desktop.store.fleet_task_watch import FleetTaskWatch

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
LOOK_SECONDS = 0.5  # The worker looks this often which closed workspaces have tasks.
IDLE_SECONDS = 10.0  # A workspace that is not shared is closed after this time without a task.
OPENED_AT_FIRST = 20
WANTED_HANDLES = 65_536
HANDLES_OF_WORKSPACE = 40  # While it is open: about 26 for its stores, and those of its tasks.
OTHER_HANDLES = 140  # For the program itself, and for commands that tasks run.
log = logging.getLogger(__name__)


def _run_worker_command(arguments: Namespace) -> int:
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    if arguments.workspace:
        found = [workspaces.find_known_workspace(name) for name in arguments.workspace]
    else:
        found = list(workspaces.list_workspaces())
    known = {workspace.id: workspace for workspace in found}
    workspaces.remove_interrupted_imports_and_writes()
    arguments.workers = list["FleetWorker"]()
    arguments.is_draining = False
    arguments.known = known
    arguments.unable = set[str]()
    try:
        return asyncio.run(_WorkerRounds(arguments, known).work_in_all_workspaces())
    except asyncio.CancelledError:  # SIGTERM arrived while other programs had the workspaces open.
        return 0


class _WorkerRounds:
    """Works in all workspaces concurrently. Shared ones stay open, as their tasks are
    elsewhere. Any other is open only while it has tasks.
    """

    def __init__(self, arguments: Namespace, known: Mapping[str, KnownWorkspace]) -> None:
        self._arguments = arguments
        self._shared = [
            name
            for name, workspace in known.items()
            if workspace_link.is_set_up_to_be_shared(workspace)
        ]
        own = {}
        for name, workspace in known.items():
            if name not in self._shared:
                own[name] = workspace.folder
        self._own = list(own)
        self._watch = FleetTaskWatch(own)
        arguments.room = asyncio.Semaphore(_most_open_workspaces())
        self._running: dict[str, asyncio.Task[int]] = {}
        self._owned = OwnedTasks("worker")

    async def work_in_all_workspaces(self) -> int:
        """Works until SIGTERM, which lets the workers finish their tasks. With --drain,
        until there is no task.
        """
        if sys.platform != "win32":
            drain = partial(self._drain, asyncio.current_task())
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drain)
        codes: list[int] = []
        due = self._workspaces_to_open_first()
        while not self._arguments.is_draining:
            for workspace in due:
                working = _work_in_workspace(self._arguments, workspace)
                self._running[workspace] = self._owned.spawn_task(working, name=workspace)
            if not self._running and self._arguments.drain:
                break
            await self._wait_for_next_look()
            codes += self._collect_codes()
            if UNABLE in codes and len(self._arguments.unable) == len(self._arguments.known):
                break
            opened = frozenset(self._running)
            due = await asyncio.to_thread(self._watch.find_workspaces_with_tasks, opened)
        if self._running:
            await asyncio.wait(self._running.values())
        return min([*codes, *self._collect_codes()], default=0)

    def _workspaces_to_open_first(self) -> list[str]:
        """Few workspaces are all opened at first, so that what they lack is said at once."""
        if self._arguments.workspace or len(self._own) <= OPENED_AT_FIRST:
            return self._shared + self._own
        return self._shared

    async def _wait_for_next_look(self) -> None:
        if not self._running:
            await asyncio.sleep(LOOK_SECONDS)
            return
        ends = set(self._running.values())
        await asyncio.wait(ends, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)

    def _collect_codes(self) -> list[int]:
        """Returns the exit codes of workspaces that were closed, or raises their error."""
        codes = []
        for workspace, working in list(self._running.items()):
            if working.done():
                del self._running[workspace]
                self._watch.note_closed(workspace)
                codes.append(working.result())
        return codes

    def _drain(self, main: asyncio.Task[int] | None) -> None:
        self._arguments.is_draining = True
        for worker in self._arguments.workers:
            worker.drain()
        if main is not None and not self._arguments.workers:
            main.cancel()


def _most_open_workspaces() -> int:
    """Raises the limit of open files as far as this user may, and returns how many
    workspaces may be open.
    """
    if sys.platform == "win32":
        return 100
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_HANDLES
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, WANTED_HANDLES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(1, (soft - OTHER_HANDLES) // HANDLES_OF_WORKSPACE)


async def _work_in_workspace(arguments: Namespace, workspace: str) -> int:
    """Works here, or in the process that has the workspace open. If that process ends,
    continues here.
    """
    console = Terminal()
    while not arguments.is_draining:
        try:
            async with arguments.room:
                code = await workspace_access.run_here_or_at_owner(arguments, workspace, console)
        except HelixError as error:
            code = await _code_of_error(arguments, workspace, error, console)
        if code != AGAIN and (code != UNABLE or arguments.drain):
            return code
        seconds = 1
        if code == UNABLE:
            arguments.unable.add(workspace)
            seconds = UNABLE_SECONDS
        for _ in range(seconds):
            if len(arguments.unable) == len(arguments.known):
                return UNABLE
            if not arguments.is_draining:
                await asyncio.sleep(AGAIN_SECONDS)
    return 0


async def _code_of_error(
    arguments: Namespace, workspace: str, error: HelixError, console: Console
) -> int:
    """Returns whether to try again soon or later. One workspace's error does not end
    the work in others.
    """
    may_pass = OwnerEnded | StoreBusy | StoreFull | SharedStoreUnreachable
    if type(error) in (HelixError, StoreFailed) or isinstance(error, may_pass):
        log.warning("the worker tries again: %s", error)
        return AGAIN
    if len(arguments.known) == 1:
        raise error
    await console.print_error(f"{workspace}: {error}")
    return UNABLE


async def _work_on_tasks(bench: Workbench, arguments: Namespace, console: Console) -> int:
    from helix_desktop.gateway import gateway_workspaces
    from helix_desktop.resident import shared_schedules
    from helix_desktop.workbench.fleet_telemetry import start_telemetry
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
                    f"This computer cannot run the tasks of {bench.name} yet. {error}"
                )
            return UNABLE
        await task_list.notes.include_machine(bench.sharing.machine_name)
        getattr(arguments, "unable", set[str]()).discard(bench.id)
        worker = FleetWorker(bench, task_list, at_once=arguments.at_once, allowed=arguments.allow)
        worker.report = report
        worker.most_kept = max(0, arguments.keep)
        worker.tasks_may_allow = not arguments.ignore_task_allow
        worker.telemetry = start_telemetry(bench.id)
        await console.print_error(
            f"Running the tasks of {bench.name}, {arguments.at_once} at a time."
        )
        if task_list.schedules is not None:
            # Once before the first look at the list: with --drain there may be no second one.
            data = arguments.places.data
            with suppress(HelixError):
                await shared_schedules.copy_schedules_and_add_due_tasks(task_list, data, bench.id)
            keeping = shared_schedules.keep_schedules_until_cancelled(task_list, data, bench.id)
            worker.spawn_beside_tasks(keeping, name="keep schedules")
        own = getattr(arguments, "workers", None)
        if own is None:  # Another process runs the command, but the workspace is open in this one.
            await worker.work_until_drained(until_empty=arguments.drain)
            return 0
        own.append(worker)
        bench.sharing.fetch_seconds = 10.0  # No one here reads what other machines write.
        forget = gateway_workspaces.set_release_handler(bench.id, lambda: worker.drain(0.0))

        def may_close(idle_seconds: float) -> bool:
            """At once, if another workspace with tasks waits for room."""
            if bench.workspace.link is not None:
                return False
            return idle_seconds > IDLE_SECONDS or arguments.room.locked()

        try:
            await worker.work_until_drained(until_empty=arguments.drain, may_end=may_close)
        finally:
            forget()
            own.remove(worker)
    return AGAIN if worker.must_release_workspace and not arguments.is_draining else 0


_parse_tasks_at_once = partial(parse_number, least=1, what="a number of 1 or more")


def add_worker_commands(nouns: Subparsers) -> None:
    noun = add_command(nouns, "worker", "run tasks that were added with `task add`")
    noun.add_argument(
        "--workspace",
        "-w",
        metavar="W",
        action="append",
        default=[],
        help="only this workspace's tasks; can be repeated (default: all workspaces)",
    )
    noun.add_argument(
        "--at-once",
        metavar="N",
        type=_parse_tasks_at_once,
        default=4,
        help="how many tasks of a workspace run at once (default: 4)",
    )
    permissions = "what the tasks may do without asking; see `ask --help`. A task that needs further permissions stops with the status needs-you"
    add_repeated_option(noun, "--allow", "WHAT", permissions)
    noun.add_argument(
        "--keep",
        metavar="N",
        type=int,
        default=0,
        help="in a shared workspace, keep about N conversations from finished tasks on this computer and remove older ones once the shared store has them (default: keep all)",
    )
    noun.add_argument(
        "--ignore-task-allow",
        action="store_true",
        help="tasks may do only what this worker's --allow and the workspace's rules allow",
    )
    noun.add_argument("--drain", action="store_true", help="exit when no tasks are waiting")
    noun.add_argument(
        "--json", action="store_true", help="print a line of JSON for each task that has ended"
    )
    noun.set_defaults(
        run=_run_worker_command, work=partial(run_on_workbench, _work_on_tasks), lasting=True
    )
