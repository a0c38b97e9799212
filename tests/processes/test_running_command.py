from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from helix_desktop.processes.running_command import (
    RunningCommand,
    open_terminal_process,
    shell_command_line,
)
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, ProcessPlace, end_process
from helix_desktop.tools.sandbox import Sandbox, SandboxKind

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells")
PLAIN = {"PATH": "/usr/bin:/bin"}


def line(command: str, lifeline: int) -> list[str]:
    return Sandbox(SandboxKind.NONE, (), Path("/tmp")).wrap_command(
        shell_command_line(command), lifeline, network=False
    )


def launch(folder: str = "/") -> ProcessLaunch:
    return ProcessLaunch(CommandAuthor.USER, ["/bin/sh"], folder, PLAIN, place=ProcessPlace.WATCHED)


def open_handles() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_output_comes_while_it_runs() -> None:
    command = await RunningCommand.start_in_jail(
        launch(), lambda n: line("echo first; sleep 1000", n)
    )
    output = command.iterate_output()
    assert await anext(output) == b"first\n"
    command.kill_process_tree()
    command.kill_process_tree()
    assert [piece async for piece in output] == []
    assert await command.kill_and_wait() == await command.kill_and_wait() == 137


async def test_a_folder_that_is_not_there_leaves_nothing_open() -> None:
    before = open_handles()
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            await RunningCommand.start_in_jail(launch("/no/such/folder"), lambda n: line("true", n))
    assert open_handles() == before


def test_a_program_of_the_terminal_that_cannot_be_started_leaves_nothing_open() -> None:
    before = open_handles()
    for program in ("no-such-program", "/no/such/program"):
        of_terminal = ProcessLaunch(CommandAuthor.USER, [program], "/no/such/folder", PLAIN)
        with pytest.raises(FileNotFoundError):
            open_terminal_process(of_terminal)
    assert open_handles() == before


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    start = asyncio.ensure_future(  # noqa: TID251 -- to cancel it
        RunningCommand.start_in_jail(
            launch(), lambda n: line(f"echo $$ > {told}; exec sleep 1000", n)
        )
    )
    for _ in range(2):
        await asyncio.sleep(0)
    while not (told.exists() and told.read_text().endswith("\n")):
        time.sleep(0.01)  # a busy machine: the command runs, and the loop knows nothing of it yet
    assert not start.done()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


async def test_killing_what_has_ended_gives_its_exit_code() -> None:
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
    await process.wait()
    assert await end_process(process) == 3
    running = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
    assert await end_process(running) == -9
    with pytest.raises(ProcessLookupError):
        os.kill(running.pid, 0)
