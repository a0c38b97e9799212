"""open_windows.py: the program is restarted with all its windows, from whichever it is asked for."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop import running_instance
from helix_desktop.console import Console
from helix_desktop.desktop import open_windows
from helix_desktop.errors import ActionRefused
from helix_desktop.program_folders import ProgramFolders, find_program_folders

# Presses "Restart now" in the window, once that can answer other windows.
PRESSING = """
import sys
from PySide6.QtCore import QTimer
from helix_desktop import window_start
from helix_desktop.desktop import window_program

class Pressing(window_program.WindowProgram):
    async def _listen_for_other_windows(self):
        await super()._listen_for_other_windows()
        QTimer.singleShot(0, self.window.parts.requests.restart_wanted.emit)

if "--press" in sys.argv:
    sys.argv.remove("--press")
    window_program.WindowProgram = Pressing
sys.exit(window_start.main())
"""


def _start(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    command = [sys.executable, "-c", PRESSING, "--home", str(home), *arguments]
    return subprocess.Popen(command, env=environment)


def _wait_until(is_so: Callable[[], bool]) -> None:
    latest = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < latest
        time.sleep(0.05)


def _process_of_window(where: ProgramFolders, number: int) -> int:
    """Returns the id of the process that answers for this window, or 0."""
    address = where.run / f"{open_windows.name_window(number)}.sock"
    with socket.socket(socket.AF_UNIX) as asking:
        if asking.connect_ex(str(address)) != 0:
            return 0
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    process: int = struct.unpack("3i", credentials)[0]
    return process


def _close_all(where: ProgramFolders) -> None:
    asyncio.run(open_windows.close_other_windows_for_restart(where.run, own_number=0))
    _wait_until(lambda: not open_windows.list_open_windows(where.run, own_number=0))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel says whose socket it is")
def test_a_restart_from_a_further_window_restarts_all_windows(tmp_path: Path) -> None:
    where = find_program_folders(tmp_path)
    first = _start(tmp_path)
    started = [first]
    try:
        _wait_until(lambda: _process_of_window(where, 1) == first.pid)
        second = _start(tmp_path, "--press", "--new-window")
        started.append(second)
        assert second.wait(90) == 0
        assert first.wait(90) == 0

        _wait_until(lambda: _process_of_window(where, 2) not in (0, second.pid))
        assert _process_of_window(where, 1) not in (0, first.pid)
    finally:
        _close_all(where)
        for process in started:
            process.kill()
            process.wait()


async def test_a_window_that_does_not_answer_is_said_to_be_open(tmp_path: Path) -> None:
    where = find_program_folders(tmp_path)
    hanging = open_windows.claim_further_window(where)
    try:
        with pytest.raises(ActionRefused, match="Another window does not answer"):
            await open_windows.count_work_of_other_windows(where.run, own_number=1)
    finally:
        hanging.claim.close()
    assert await open_windows.count_work_of_other_windows(where.run, own_number=1) == 0


async def test_the_work_of_all_other_windows_is_counted(tmp_path: Path) -> None:
    where = find_program_folders(tmp_path)

    async def answer(arguments: list[str], console: Console) -> int:
        assert arguments == [open_windows.COUNT_WORK]
        await console.print_line("2")
        return 0

    further = [open_windows.claim_further_window(where) for _ in range(2)]
    names = [open_windows.name_window(window.number) for window in further]
    listeners = [
        await running_instance.listen_for_requests(where.run, name, answer) for name in names
    ]
    try:
        assert await open_windows.count_work_of_other_windows(where.run, own_number=1) == 4
        assert await open_windows.count_work_of_other_windows(where.run, own_number=2) == 2
    finally:
        for listener in listeners:
            await listener.aclose()
        for window in further:
            window.claim.close()
