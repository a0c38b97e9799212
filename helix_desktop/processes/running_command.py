"""Runs a command as a process tree that can be killed as a whole, and streams its output."""

import asyncio
import base64
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from helix_desktop.concurrency import finish_even_if_cancelled, wait_with_limit
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes import jobs_windows, starter
from helix_desktop.processes.jail import jail_command_line, list_descendants
from helix_desktop.processes.starter import open_process

_PIECE = 1 << 16
_GRACE = 1.0
# Gets the lifeline's file number, and returns the words of the command line.
CommandLine = Callable[[int], list[str]]


@dataclass(slots=True)
class RunningCommand:
    """A running command. Closing `lifeline`, our end of the pipe to `jail.py` or a job,
    kills everything.
    """

    process: starter.Process
    lifeline: int
    is_reading: bool = False  # True while the output is being read.

    @classmethod
    async def start_in_jail(
        cls,
        launch: starter.ProcessLaunch,
        command_line: CommandLine,
        *,
        stdin: int = starter.DEVNULL,
        stderr: int = starter.STDOUT,
    ) -> "RunningCommand":
        """Start the command locked in, with one stream of output unless `stderr` is a pipe."""
        return await finish_even_if_cancelled(
            cls._start_with_lifeline(launch, command_line, stdin, stderr), cls.kill_and_wait
        )

    @classmethod
    async def _start_with_lifeline(
        cls, launch: starter.ProcessLaunch, command_line: CommandLine, stdin: int, stderr: int
    ) -> "RunningCommand":
        launch = replace(launch, has_own_session=True)
        if sys.platform == "win32":
            process = await starter.start_without_cleanup(
                replace(launch, argv=command_line(0)), stdin=stdin, stderr=stderr
            )
            return cls(process, jobs_windows.create_job_for_process(process.pid))
        reading, writing = os.pipe()
        try:
            locked_in = replace(launch, argv=command_line(reading), inherited=(reading,))
            process = await starter.start_without_cleanup(locked_in, stdin=stdin, stderr=stderr)
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return cls(process, writing)

    async def iterate_output(self) -> AsyncIterator[bytes]:
        while True:
            piece = await self._read_output_piece()
            if not piece:
                return
            yield piece

    async def _read_output_piece(self) -> bytes:
        self.is_reading = True
        try:
            return await cast(asyncio.StreamReader, self.process.stdout).read(_PIECE)
        finally:
            self.is_reading = False

    async def _drain_output(self) -> None:
        while await self._read_output_piece():
            pass

    def kill_process_tree(self) -> None:
        """Kill the whole tree and return at once. Does nothing if it has ended."""
        if self.lifeline < 0:
            return
        if sys.platform == "win32":
            jobs_windows.close_job(self.lifeline)
        else:
            os.close(self.lifeline)
        self.lifeline = -1

    async def kill_and_wait(self) -> int:
        """Kill the tree, also while being cancelled, and return the exit code."""
        self.kill_process_tree()
        # If nobody reads the pipe, it is never closed and delays the end of the process.
        if not self.is_reading:
            with suppress(TimeoutError):
                await wait_with_limit(self._drain_output(), _GRACE)
        while True:
            try:
                return await wait_with_limit(self.process.wait(), _GRACE)
            except TimeoutError:
                # The watching process is late, or the command has stopped it.
                kill_descendants(self.process.pid)


def open_terminal_process(launch: starter.ProcessLaunch) -> starter.ChildProcess:
    """Start a program that uses the terminal. It and its children end with this
    process, however that ends.
    """
    if sys.platform == "win32":
        process = open_process(launch)
        # Windows closes the job when this process ends.
        jobs_windows.create_job_for_process(process.pid)
        return process
    reading, _held = os.pipe()  # `_held` stays open until this process ends.
    program = starter.argv_with_program_path(launch)
    argv = jail_command_line({"lifeline": reading, "attended": True}, program)
    watched = starter.ProcessPlace.WATCHED
    try:
        return open_process(replace(launch, argv=argv, inherited=(reading,), place=watched))
    finally:
        os.close(reading)


def kill_descendants(keeper_pid: int) -> None:
    """Kill a keeper's descendants, and let the keeper go on if it was stopped."""
    if sys.platform != "win32":
        for pid in list_descendants(keeper_pid):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            os.kill(keeper_pid, signal.SIGCONT)


def shell_command_line(command: str) -> list[str]:
    if sys.platform == "win32":
        script = f"{command}\nif ($LASTEXITCODE -ne $null) {{ exit $LASTEXITCODE }}"
        encoded = base64.b64encode(script.encode("utf-16-le")).decode("ascii")
        return ["powershell.exe", "-NoProfile", "-NonInteractive", "-EncodedCommand", encoded]
    return ["/bin/bash" if Path("/bin/bash").exists() else "/bin/sh", "-c", command]
