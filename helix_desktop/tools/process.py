"""One command as a process whose whole tree can be ended, and its output as a stream."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from helix_desktop.tools.jail import descendants

_PIECE = 1 << 16
_GRACE = 1.0
CommandLine = Callable[[int], list[str]]  # given the lifeline's number


@dataclass(slots=True)
class Command:
    """A running command under `jail.py`. `lifeline`: our end of the pipe whose closing ends everything."""

    process: asyncio.subprocess.Process
    lifeline: int

    @classmethod
    async def start(cls, command_line: CommandLine, folder: Path, environment: Mapping[str, str]) -> Command:
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command_line(reading),
                cwd=folder,
                env=dict(environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(reading,),
                start_new_session=True,
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return cls(process, writing)

    async def output(self) -> AsyncIterator[bytes]:
        """What it prints, until it and all it started have ended."""
        printed = cast(asyncio.StreamReader, self.process.stdout)
        while piece := await printed.read(_PIECE):
            yield piece

    def end(self) -> None:
        """Kill the whole tree now; returns at once. Harmless when it has ended."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1

    async def gone(self) -> int:
        """End it and wait until nothing of it is left; the exit code."""
        self.end()
        while True:
            try:
                async with asyncio.timeout(_GRACE):
                    return await self.process.wait()
            except TimeoutError:  # its keeper is held up, or stopped by the command: help it from here
                for pid in descendants(self.process.pid):
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                with suppress(OSError):
                    os.kill(self.process.pid, signal.SIGCONT)


async def killed(process: asyncio.subprocess.Process) -> int:
    """Kill one process, if it has not ended, and wait for it.

    Not by `process.kill()`: that asks the system whether it has ended, and so takes its exit code away from asyncio.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    return await process.wait()


def shell(command: str) -> list[str]:
    """The command line as the system's shell takes it."""
    if sys.platform == "win32":
        return [os.environ.get("COMSPEC", "cmd.exe"), "/d", "/s", "/c", command]
    return ["/bin/bash" if Path("/bin/bash").exists() else "/bin/sh", "-c", command]
