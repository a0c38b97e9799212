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
from pathlib import Path

from helix_desktop import concurrency
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
LOOK_SECONDS = 20.0  # Checks come at least this often, in seconds, in case the clock is changed.


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
        self._copied: dict[str, list[WorkSchedule]] = {}  # By workspace, as the store has them.
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
            dues = [await self._next_due_after_run(schedule) for schedule in self.schedules]
            seconds: float | None = None  # Without schedules, wait until there are some.
            if dues:
                seconds = min(max(min(dues) - time.time(), 0.1), LOOK_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()  # Not `wait_for`: it can lose a cancellation.

    async def _copy_changed_schedules(self) -> None:
        """Let the other computers of shared workspaces know of the schedules of this one."""
        now: dict[str, list[WorkSchedule]] = {}
        for schedule in self.schedules:
            handled = 0.0 if schedule.is_on else schedule.handled
            now.setdefault(schedule.workspace, []).append(replace(schedule, handled=handled))
        for workspace in now.keys() | self._copied.keys():
            if now.get(workspace) == self._copied.get(workspace):
                continue
            if await asyncio.to_thread(self._is_shared, workspace):
                arguments = ["schedule", "list", "--workspace", workspace]
                await self._run_own_command(arguments, waits=False)
        self._copied = now

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
        handled, due = schedule.advance_past_due(time.time())
        if handled is schedule:
            return
        if due:
            task = schedule.encode_task_input()
            code = await self._run_own_command(schedule.task_command(due), input_bytes=task)
            if code:
                log.warning("the task of the schedule %s could not be added", schedule.id)
                return  # The next check tries again.

        def note_handled(known: list[WorkSchedule]) -> list[WorkSchedule]:
            return [handled if one.id == schedule.id else one for one in known]

        self.schedules = await asyncio.to_thread(
            change_stored_schedules, self._folder, note_handled
        )
        if due:
            await self._run_own_command(
                ["worker", "--workspace", schedule.workspace, "--drain"], waits=False
            )

    async def _run_own_command(
        self, arguments: Sequence[str], *, input_bytes: bytes = b"", waits: bool = True
    ) -> int:
        """Run a command, with `input_bytes` as its input, as other users can see the arguments."""
        launch = ProcessLaunch(
            CommandAuthor.PROGRAM, [*self._command, *arguments], os.sep, has_own_session=True
        )
        with tempfile.TemporaryFile() as read:
            read.write(input_bytes)
            read.seek(0)
            opening = asyncio.to_thread(
                open_process, launch, stdin=read.fileno(), stdout=DEVNULL, stderr=DEVNULL
            )
            process = await concurrency.finish_even_if_cancelled(opening, _leave_running)
        ending = concurrency.run_on_detached_thread(
            process.wait, name="wait for a command of a schedule"
        )
        return await ending if waits else 0


async def _leave_running(process: ChildProcess) -> None:
    concurrency.start_thread(process.wait, name="wait for a command of a schedule", daemon=True)
