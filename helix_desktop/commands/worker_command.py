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
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop import glibc_memory
from helix_desktop.commands import workspace_access
from helix_desktop.commands.fleet_command import describe_task_state
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
    from helix_desktop.store.fleet_task_list import FleetTaskList
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
    """Runs tasks in the named workspaces, or in all, until SIGTERM or until no task is left.

    The work in a workspace may be done by another process, which gets only the command line. What
    workspaces of this process share is therefore kept beside the options, in `arguments`.
    """
    glibc_memory.share_one_heap_between_threads()
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    if arguments.workspace:
        chosen = [workspaces.find_known_workspace(name) for name in arguments.workspace]
    else:
        chosen = list(workspaces.list_workspaces())
    known = {workspace.id: workspace for workspace in chosen}
    workspaces.remove_interrupted_imports_and_writes()
    arguments.workers = list["FleetWorker"]()
    arguments.is_draining = False
    arguments.known = known
    arguments.unable = set[str]()  # The workspaces that have no model or no key at the moment.
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
        self._shared: list[str] = []
        own_folders: dict[str, Path] = {}
        for workspace_id, workspace in known.items():
            if workspace_link.is_set_up_to_be_shared(workspace):
                self._shared.append(workspace_id)
            else:
                own_folders[workspace_id] = workspace.folder
        self._own = list(own_folders)
        self._watch = FleetTaskWatch(own_folders)
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
        # Each workspace that was open leaves memory behind, of which a worker for many has much.
        self._owned.spawn_task(glibc_memory.return_free_memory_every_minute(), name="freed memory")
        codes: list[int] = []
        workspaces_to_open = self._workspaces_to_open_first()
        while not self._arguments.is_draining:
            for workspace in workspaces_to_open:
                working = _work_in_workspace(self._arguments, workspace)
                self._running[workspace] = self._owned.spawn_task(working, name=workspace)
            if not self._running and self._arguments.drain:
                break
            await self._wait_for_next_look()
            codes += self._collect_codes()
            if UNABLE in codes and len(self._arguments.unable) == len(self._arguments.known):
                break
            opened = frozenset(self._running)
            workspaces_to_open = await asyncio.to_thread(
                self._watch.find_workspaces_with_tasks, opened
            )
        if self._running:
            await asyncio.wait(self._running.values())
        codes += self._collect_codes()
        # The command succeeds if one workspace's work has.
        return min(codes, default=0)

    def _workspaces_to_open_first(self) -> list[str]:
        """Few workspaces are all opened at first, so that what they lack is said at once."""
        if self._arguments.workspace or len(self._own) <= OPENED_AT_FIRST:
            return self._shared + self._own
        return self._shared

    async def _wait_for_next_look(self) -> None:
        """Waits until it is time to look for tasks again, or until a workspace is closed."""
        if not self._running:
            await asyncio.sleep(LOOK_SECONDS)
            return
        running = set(self._running.values())
        await asyncio.wait(running, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)

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
        """Lets the workers finish their tasks and take no new ones. If there is no worker yet, the
        whole command is cancelled, as it may be waiting for a workspace.
        """
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

    limit, highest_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted_limit = WANTED_HANDLES
    if highest_limit != resource.RLIM_INFINITY:
        wanted_limit = min(highest_limit, WANTED_HANDLES)
    if limit < wanted_limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted_limit, highest_limit))
    handles_for_workspaces = max(limit, wanted_limit) - OTHER_HANDLES
    return max(1, handles_for_workspaces // HANDLES_OF_WORKSPACE)


async def _work_in_workspace(arguments: Namespace, workspace: str) -> int:
    """Works here, or in the process that has the workspace open. If that process ends,
    continues here. Returns the exit code of this workspace.

    A workspace without a model or a key is tried again each minute, as it may get one. If all
    workspaces are like this, there is nothing to wait for.
    """
    console = Terminal()
    while not arguments.is_draining:
        try:
            async with arguments.room:
                code = await workspace_access.run_here_or_at_owner(arguments, workspace, console)
        except HelixError as error:
            code = await _code_of_error(arguments, workspace, error, console)

        pause_seconds = 1
        if code == UNABLE and not arguments.drain:
            arguments.unable.add(workspace)
            pause_seconds = UNABLE_SECONDS
        elif code != AGAIN:
            return code
        for _ in range(pause_seconds):
            is_every_workspace_unable = len(arguments.unable) == len(arguments.known)
            if is_every_workspace_unable:
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
    """Runs the tasks of one workspace, in the process that has it open.

    First it is checked whether this computer can run them: without a model it would only fail them,
    so it leaves them to other computers for a while. Schedules come before tasks, because they may
    add some. Returns AGAIN if another program wants the workspace.
    """
    await _check_shared_through_environment(bench, arguments, console)
    async with fleet_task_files.open_fleet_task_list(bench.workspace) as task_list:
        try:
            await bench.models.check_main_model()
        except HelixError as error:
            await task_list.notes.exclude_machine_for(
                bench.sharing.machine_name, error.what, 2.0 * UNABLE_SECONDS
            )
            is_known_to_be_unable = bench.id in getattr(arguments, "unable", ())
            if not is_known_to_be_unable:
                await console.print_error(
                    f"This computer cannot run the tasks of {bench.name} yet. {error}"
                )
            return UNABLE
        await task_list.notes.include_machine(bench.sharing.machine_name)
        getattr(arguments, "unable", set[str]()).discard(bench.id)

        worker = _build_worker(bench, task_list, arguments, console)
        await console.print_error(
            f"Running the tasks of {bench.name}, {arguments.at_once} at a time."
        )
        await _keep_shared_schedules(worker, task_list, arguments.places.data, bench.id)
        if not hasattr(arguments, "workers"):
            # Another process runs the command, but the workspace is open in this one.
            await worker.work_until_drained(until_empty=arguments.drain)
            return 0
        await _work_until_workspace_is_wanted(worker, bench, arguments)
    if worker.must_release_workspace and not arguments.is_draining:
        return AGAIN
    return 0


async def _check_shared_through_environment(
    bench: Workbench, arguments: Namespace, console: Console
) -> None:
    """Says if a shared store is named in the environment, but this workspace is not in it. That is
    an error if the user named the workspace.
    """
    if not os.environ.get(workspace_link.ADDRESS_VARIABLE) or bench.workspace.link is not None:
        return
    not_shared = NotFound(
        f"{bench.name} is not shared through {workspace_link.ADDRESS_VARIABLE}.",
        remedy=f"To share the workspace, run `workspace share {bench.id} --yes`.",
    )
    if arguments.workspace:
        raise not_shared
    await console.print_error(str(not_shared))


def _build_worker(
    bench: Workbench, task_list: FleetTaskList, arguments: Namespace, console: Console
) -> FleetWorker:
    """Builds the worker of one workspace, which prints each task that has ended."""
    from helix_desktop.workbench.fleet_telemetry import start_telemetry
    from helix_desktop.workbench.fleet_worker import FleetWorker

    async def print_ended_task(
        task: FleetTask, state: FleetTaskState, result: FleetTaskResult
    ) -> None:
        why = escape_control_characters(result.why)
        line = f"{task.id}  {describe_task_state(state)}  {why}".rstrip()
        if arguments.json:
            ended_task: dict[str, object] = {"id": task.id, "state": state.value}
            ended_task.update(asdict(result))
            ended_task["conversation"] = task.id
            ended_task["workspace"] = bench.id
            line = dump_printed_json(ended_task)
        with suppress(ConnectionError):  # If the caller was killed, the task has ended anyway.
            await console.print_line(line)

    worker = FleetWorker(bench, task_list, at_once=arguments.at_once, allowed=arguments.allow)
    worker.report = print_ended_task
    worker.most_kept = max(0, arguments.keep)
    worker.tasks_may_allow = not arguments.ignore_task_allow
    worker.telemetry = start_telemetry(bench.id)
    return worker


async def _keep_shared_schedules(
    worker: FleetWorker, task_list: FleetTaskList, data: Path, workspace: str
) -> None:
    """Adds the tasks of schedules that are due, now and while the worker works. Only a shared
    workspace's list of tasks has schedules: those of others are kept by the background process.
    """
    from helix_desktop.resident import shared_schedules

    if task_list.schedules is None:
        return
    # Once before the first look at the list: with --drain there may be no second one.
    with suppress(HelixError):
        await shared_schedules.copy_schedules_and_add_due_tasks(task_list, data, workspace)
    keeping = shared_schedules.keep_schedules_until_cancelled(task_list, data, workspace)
    worker.spawn_beside_tasks(keeping, name="keep schedules")


async def _work_until_workspace_is_wanted(
    worker: FleetWorker, bench: Workbench, arguments: Namespace
) -> None:
    """Works in a workspace that this process opened, until there is nothing to do or another
    program wants the workspace.
    """
    from helix_desktop.gateway import gateway_workspaces

    def may_close(idle_seconds: float) -> bool:
        """At once, if another workspace with tasks waits for room."""
        if bench.workspace.link is not None:
            return False
        return idle_seconds > IDLE_SECONDS or arguments.room.locked()

    arguments.workers.append(worker)
    bench.sharing.fetch_seconds = 10.0  # No one here reads what other machines write.
    remove_handler = gateway_workspaces.set_release_handler(bench.id, lambda: worker.drain(0.0))
    try:
        await worker.work_until_drained(until_empty=arguments.drain, may_end=may_close)
    finally:
        remove_handler()
        arguments.workers.remove(worker)


_parse_tasks_at_once = partial(parse_number, least=1, what="a number of 1 or more")


def add_worker_commands(nouns: Subparsers) -> None:
    """Declares `worker`, which has no verbs."""
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
