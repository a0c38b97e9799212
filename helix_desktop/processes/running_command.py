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

from helix_desktop.cancellation import end_if_cancelled
from helix_desktop.concurrency import wait_with_limit
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
        """Start a command that ends with us, whatever happens to us, and all that it starts.

        Its output is one stream, unless `stderr` is a pipe. `command_line` gets the number of
        our pipe to it, and returns the words that run the command under `jail.py`. If this is
        cancelled, the command is killed.
        """
        starting = cls._start_with_lifeline(launch, command_line, stdin, stderr)
        return await end_if_cancelled(starting, cls.kill_and_wait)

    @classmethod
    async def _start_with_lifeline(
        cls, launch: starter.ProcessLaunch, command_line: CommandLine, stdin: int, stderr: int
    ) -> "RunningCommand":
        """Start the command so that it ends with our end of a pipe, or with a job of Windows."""
        if sys.platform == "win32":
            launch_in_job = replace(launch, has_own_session=True, argv=command_line(0))
            process = await starter.start_without_cleanup(launch_in_job, stdin=stdin, stderr=stderr)
            job = jobs_windows.create_job_for_process(process.pid)
            return cls(process, job)

        # `jail.py` reads from the pipe. Its end comes when we close ours, or are killed.
        their_end, our_end = os.pipe()
        try:
            launch_in_jail = replace(
                launch, has_own_session=True, argv=command_line(their_end), inherited=(their_end,)
            )
            process = await starter.start_without_cleanup(
                launch_in_jail, stdin=stdin, stderr=stderr
            )
        except BaseException:
            os.close(our_end)
            raise
        finally:
            os.close(their_end)
        return cls(process, our_end)

    async def iterate_output(self) -> AsyncIterator[bytes]:
        """Yield the output in pieces, as it comes, until the command has closed it."""
        while True:
            piece = await self._read_output_piece()
            if not piece:
                return
            yield piece

    async def _read_output_piece(self) -> bytes:
        """Return what was printed since, at least a byte, or nothing at the end."""
        output = cast(asyncio.StreamReader, self.process.stdout)
        self.is_reading = True
        try:
            return await output.read(_PIECE)
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
        """Kill the command and all that it started, and return its exit code.

        A caller that may be cancelled meanwhile shields this, so that the end is waited for.
        """
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
    environment = starter.environment_of(launch)
    # Fails if there is no such program.
    command = starter.argv_with_program_path(launch, environment)
    their_end, our_end = os.pipe()  # `our_end` stays open until this process ends.
    try:
        watched_launch = replace(
            launch,
            argv=jail_command_line({"lifeline": their_end, "attended": True}, command),
            inherited=(their_end,),
            place=starter.ProcessPlace.WATCHED,
        )
        return open_process(watched_launch)
    except BaseException:
        os.close(our_end)
        raise
    finally:
        os.close(their_end)


def kill_descendants(keeper_pid: int) -> None:
    """Kill a keeper's descendants, and let the keeper go on if it was stopped."""
    if sys.platform != "win32":
        for pid in list_descendants(keeper_pid):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            os.kill(keeper_pid, signal.SIGCONT)


def shell_command_line(command: str) -> list[str]:
    """Return the words that run a command in the system's shell."""
    if sys.platform == "win32":
        # PowerShell would end with 1 whatever the exit code of its last program.
        script = f"{command}\nif ($LASTEXITCODE -ne $null) {{ exit $LASTEXITCODE }}"
        encoded = base64.b64encode(script.encode("utf-16-le")).decode("ascii")
        return ["powershell.exe", "-NoProfile", "-NonInteractive", "-EncodedCommand", encoded]
    shell = "/bin/sh"
    if Path("/bin/bash").exists():
        shell = "/bin/bash"
    return [shell, "-c", command]
