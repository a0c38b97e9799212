from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helix_desktop.processes import jail
from helix_desktop.processes.running_command import RunningCommand
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, ProcessPlace

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has job objects")
SCRIPT = Path(jail.__file__)


def command_line(*argv: str) -> list[str]:
    return jail.jail_command_line({"lifeline": 0}, argv)


def run(*argv: str) -> int:
    """Under a jail whose lifeline is an input that stays open."""
    with subprocess.Popen(
        command_line(*argv), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        return process.wait(timeout=60)


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["/bin/sh", "-c", "exit 7"], 7),
        (["/bin/true"], 0),
        (["/bin/sh", "-c", "kill -TERM $$"], 143),
        (["no-such-program"], 127),
        ([str(SCRIPT)], 126),
    ],
)
def test_the_commands_exit_code_is_passed_on(argv: list[str], code: int) -> None:
    assert run(*argv) == code


def test_without_a_control_group_nothing_is_written_at_the_top_of_the_disk() -> None:
    path = Path("/cgroup.kill")
    before = path.stat().st_mtime_ns if path.exists() else 0
    # In a process of its own, as it ends the children of the one that calls it.
    code = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import jail; jail._kill_all_remaining('')"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    after = path.stat().st_mtime_ns if path.exists() else 0
    assert after == before


def test_it_imports_nothing_of_ours_and_nothing_slow() -> None:
    code = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import jail; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "helix_desktop" not in loaded
    assert not any(
        f"'{slow}'" in loaded for slow in ("asyncio", "re", "json", "typing", "platform")
    )


def test_when_the_program_dies_its_commands_die(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    script = f"""
import asyncio, pathlib, sys
from helix_desktop.processes.running_command import RunningCommand
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, ProcessPlace
from helix_desktop.tools.sandbox import Sandbox, SandboxKind
async def main():
    box = Sandbox(SandboxKind.NONE, (), pathlib.Path("/tmp"))
    line = ["/bin/sh", "-c", "setsid sleep 1000 & echo $! > {mark}; sleep 1000"]
    launch = ProcessLaunch(CommandAuthor.USER, line, "/", {{"PATH": "/usr/bin:/bin"}}, place=ProcessPlace.WATCHED)
    await RunningCommand.start_in_jail(launch, lambda n: box.wrap_command(line, n, network=False))
    while not (pathlib.Path({str(mark)!r}).exists() and pathlib.Path({str(mark)!r}).read_text().endswith(chr(10))):
        await asyncio.sleep(0.01)
    import os
    os._exit(9)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    pid = int(mark.read_text())
    for _ in range(
        6_000
    ):  # Counted, because a clock would run out at once if the machine itself was paused.
        if not _lives(pid):
            return
        time.sleep(0.01)
    raise AssertionError(f"{pid} lives on: {Path(f'/proc/{pid}/status').read_text()}")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        "Z"
        not in subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout
    )


async def test_a_keeper_that_is_stopped_still_goes() -> None:
    command = await RunningCommand.start_in_jail(
        ProcessLaunch(
            CommandAuthor.USER,
            ["/bin/sh"],
            "/",
            {"PATH": "/usr/bin:/bin"},
            place=ProcessPlace.WATCHED,
        ),
        lambda lifeline: jail.jail_command_line(
            {"lifeline": lifeline}, ["/bin/sh", "-c", "kill -STOP $PPID; sleep 1000"]
        ),
    )
    while (
        "T"
        not in Path(f"/proc/{command.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    ):
        time.sleep(0.005)
    await asyncio.wait_for(command.kill_and_wait(), 60)


def test_an_error_of_the_keeper_ends_the_command_as_well(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    broken = f"""
import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import jail, os, time
def watch_and_fail(*_):
    while not os.path.exists({str(mark)!r}) or not open({str(mark)!r}).read().endswith(chr(10)):
        time.sleep(0.01)
    raise ValueError("a defect")
jail._watch_until_end = watch_and_fail
sys.argv[1:2] = []
jail.main()
"""
    options = command_line("/bin/sh", "-c", f"setsid sleep 1000 & echo $! > {mark}; sleep 1000")[6:]
    ended = subprocess.run(
        [sys.executable, "-c", broken, "", *options],
        stdin=subprocess.PIPE,
        capture_output=True,
        check=False,
    )
    assert b"a defect" in ended.stderr
    assert not _lives(int(mark.read_text()))


def test_the_version_of_landlock_is_a_number_and_none_is_0() -> None:
    assert jail.landlock_version() >= 0
