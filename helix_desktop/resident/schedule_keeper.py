"""Adds tasks when schedules are due, and has them done by commands in processes of their own."""

import asyncio
import contextlib
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from helix_desktop import concurrency
from helix_desktop.cancellation import end_if_cancelled
from helix_desktop.errors import HelixError
from helix_desktop.processes.starter import (
    DEVNULL,
    ChildProcess,
    CommandAuthor,
    ProcessLaunch,
    open_process,
)
from helix_desktop.resident.schedules import WorkSchedule, change_stored_schedules, read_schedules

log = logging.getLogger(__name__)
LOOK_SECONDS = 20.0  # Checks come at least this often, in case the clock is changed.
SHORTEST_WAIT_SECONDS = 0.1


def _is_not_shared(_workspace: str) -> bool:
    return False


class ScheduleKeeper:
    """Runs schedules. `folder` contains them; `command` starts this program. `is_shared`:
    whether a workspace is shared, so that other computers add its tasks too.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        is_shared: Callable[[str], bool] = _is_not_shared,
    ) -> None:
        self._folder = folder
        self._command = list(command)
        self._is_shared = is_shared
        # By workspace, as its shared store has them.
        self._copied_schedules: dict[str, list[WorkSchedule]] = {}
        self._changed = asyncio.Event()
        self.schedules: list[WorkSchedule] = []

    def reread_schedules(self) -> None:
        try:
            self.schedules = read_schedules(self._folder)
        except HelixError as error:
            log.warning("%s", error)
            self.schedules = []
        self._changed.set()

    async def add_due_tasks_until_cancelled(self) -> None:
        while True:
            self._changed.clear()
            await self._copy_changed_schedules()
            due_times = [await self._next_due_after_run(schedule) for schedule in self.schedules]
            # Not `wait_for`: it can lose a cancellation.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_seconds_until_next_check(due_times)):
                    await self._changed.wait()

    async def _copy_changed_schedules(self) -> None:
        """Let the other computers of shared workspaces know of the schedules of this one."""
        schedules_by_workspace: dict[str, list[WorkSchedule]] = {}
        for schedule in self.schedules:
            comparable = schedule
            if schedule.is_on:  # That a due time was handled is no change of the schedule.
                comparable = replace(schedule, handled=0.0)
            schedules_by_workspace.setdefault(schedule.workspace, []).append(comparable)
        for workspace in schedules_by_workspace.keys() | self._copied_schedules.keys():
            if schedules_by_workspace.get(workspace) == self._copied_schedules.get(workspace):
                continue
            if await asyncio.to_thread(self._is_shared, workspace):
                # This command also copies the workspace's schedules to its shared store.
                arguments = ["schedule", "list", "--workspace", workspace]
                await self._run_own_command(arguments, waits=False)
        self._copied_schedules = schedules_by_workspace

    async def _next_due_after_run(self, schedule: WorkSchedule) -> float:
        """Run a schedule if it is due. Return its next due time, or infinity after an error."""
        try:
            await self._run_if_due(schedule)
            return schedule.next_due(time.time())
        except (HelixError, OSError) as error:
            log.warning("the schedule %s did not run: %s", schedule.id, error)
            return math.inf

    async def _run_if_due(self, schedule: WorkSchedule) -> None:
        """Add the task first, then record its time. After a crash in between, the key
        prevents a second task.
        """
        advanced_schedule, due = schedule.advance_past_due(time.time())
        if advanced_schedule is schedule:
            return
        if due:
            task = schedule.encode_task_input()
            exit_code = await self._run_own_command(schedule.task_command(due), input_bytes=task)
            if exit_code:
                log.warning("the task of the schedule %s could not be added", schedule.id)
                return  # It is still due, so the next check tries again.
        mark_handled = partial(_mark_due_time_handled, schedule, advanced_schedule.handled)
        self.schedules = await asyncio.to_thread(
            change_stored_schedules, self._folder, mark_handled
        )
        if due:
            await self._run_own_command(
                ["worker", "--workspace", schedule.workspace, "--drain"], waits=False
            )

    async def _run_own_command(
        self, arguments: Sequence[str], *, input_bytes: bytes = b"", waits: bool = True
    ) -> int:
        """Run a command of this program, and return its exit code, or 0 without `waits`. What
        must not be seen is in `input_bytes`, as other users can see the arguments.
        """
        launch = ProcessLaunch(
            CommandAuthor.PROGRAM, [*self._command, *arguments], os.sep, has_own_session=True
        )
        # The process has its input in a file, since nobody stays to write into a pipe.
        with tempfile.TemporaryFile() as input_file:
            input_file.write(input_bytes)
            input_file.seek(0)
            opening = asyncio.to_thread(
                open_process, launch, stdin=input_file.fileno(), stdout=DEVNULL, stderr=DEVNULL
            )
            process = await end_if_cancelled(opening, _leave_running)
        # Someone has to wait for the process, or it would stay a zombie.
        exit_code = concurrency.run_on_detached_thread(
            process.wait, name="wait for a command of a schedule"
        )
        if not waits:
            return 0
        return await exit_code


def _seconds_until_next_check(due_times: Sequence[float]) -> float | None:
    """Return how long to wait for a change of the schedules. None: without schedules, for ever."""
    if not due_times:
        return None
    seconds_until_due = min(due_times) - time.time()
    return min(max(seconds_until_due, SHORTEST_WAIT_SECONDS), LOOK_SECONDS)


def _mark_due_time_handled(
    as_it_ran: WorkSchedule, handled: float, stored: Sequence[WorkSchedule]
) -> list[WorkSchedule]:
    """Return the stored schedules with a due time of the one that ran noted as handled.

    Adding its task takes a second or more. If the user switched the schedule off or changed it
    meanwhile, what is stored stays as the user left it.
    """
    schedules: list[WorkSchedule] = []
    for schedule in stored:
        is_same_due_time = schedule.handled == as_it_ran.handled
        if schedule.id == as_it_ran.id and is_same_due_time:
            schedules.append(replace(schedule, handled=handled))
        else:
            schedules.append(schedule)
    return schedules


async def _leave_running(process: ChildProcess) -> None:
    concurrency.start_thread(process.wait, name="wait for a command of a schedule", daemon=True)
