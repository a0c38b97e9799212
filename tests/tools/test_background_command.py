from __future__ import annotations

import sys
import time

import pytest

from helix_desktop.tools import command_tools
from helix_desktop.tools.command_tools import CommandLimits
from helix_desktop.tools.sandbox import SandboxKind
from tests.tools.world import World

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends does so before it is told of, on a busy machine as well."""
    monkeypatch.setattr(command_tools, "_FIRST_OUTPUT_SECONDS", 60)


async def test_no_more_than_so_many_run_in_the_background_and_one_more_does_not_begin(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_tools, "_FIRST_OUTPUT_SECONDS", 0.2)
    here.kit.commands.limits = CommandLimits(background_commands=1)
    await here.run("run_command", command="sleep 1000", background=True)
    assert "1 commands are already running" in await here.said(
        "run_command", command="touch begun", background=True
    )
    await here.run("stop_command", name="bg1")
    assert list(here.folder.iterdir()) == []


async def test_a_command_in_the_background(
    everywhere: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await everywhere.run(
        "run_command",
        command="echo begun; while read x < pipe; do echo got $x; done",
        background=True,
    )
    assert everywhere.text(first).startswith("[bg1: ")
    assert "begun" in everywhere.text(first)
    monkeypatch.setattr(command_tools, "_FIRST_OUTPUT_SECONDS", 0.2)
    loop = "i=0; while true; do i=$((i+1)); echo tick $i; sleep 0.05; done"
    assert "still running" in await everywhere.said("run_command", command=loop, background=True)
    assert "bg2  running for" in await everywhere.said("list_commands")
    assert "tick" in await everywhere.said("read_command_output", name="bg2", wait=60)
    assert "tick 1\n" in await everywhere.said("read_command_output", name="bg2", all=True)
    assert "stopped" in await everywhere.said("stop_command", name="bg2")
    assert "bg2  ended" in await everywhere.said("list_commands")


SERVER = "python3 -u -m http.server --bind 127.0.0.1"


async def test_what_runs_without_the_network_is_said_to_be_reached_by_nobody(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_tools, "_FIRST_OUTPUT_SECONDS", 0.2)
    if here.kit.sandbox.kind is not SandboxKind.BUBBLEWRAP:
        pytest.skip("elsewhere a server cannot even start, or is reached")
    said = "both started with `network`"
    await here.run("run_command", command=f"{SERVER} 18091", background=True)
    assert said in await here.said("read_command_output", name="bg1", all=True, wait=60)
    assert said not in await here.said("read_command_output", name="bg1")
    assert said in await here.said("run_command", command="curl -s http://127.0.0.1:18091/")
    assert said not in await here.said("run_command", command="echo hi")
    await here.run("stop_command", name="bg1")
    assert said not in await here.said("run_command", command="curl -s http://localhost:18091/")


async def test_a_server_that_cannot_start_says_so_at_once(here: World) -> None:
    outcome = await here.run("run_command", command="echo port taken; exit 98", background=True)
    assert here.text(outcome) == "[bg1: ended with exit code 98]\nport taken\n"
    assert not outcome.ok


async def test_the_output_kept_of_a_command_in_the_background_is_limited(here: World) -> None:
    here.kit.commands.limits = CommandLimits(background_output=1000)
    said = await here.said("run_command", command="seq 1 1000; echo end", background=True)
    assert "bytes before this are gone]" in said
    assert said.endswith("end\n")
    assert len(said) < 1200


async def test_of_commands_that_ended_only_the_newest_are_kept(here: World) -> None:
    here.kit.commands.limits = CommandLimits(background_commands=2)
    for number in range(5):
        await here.run("run_command", command=f"echo {number}", background=True)
    assert list(here.kit.commands.background) == ["bg3", "bg4", "bg5"]


async def test_a_clock_set_back_gives_no_command_a_time_before_it_began(
    everywhere: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_tools, "_FIRST_OUTPUT_SECONDS", 0.2)
    await everywhere.run("run_command", command="tail -f /dev/null", background=True)
    right_time = time.time()
    monkeypatch.setattr(time, "time", lambda: right_time - 100_000)
    assert "running for 0 s" in await everywhere.said("list_commands")
    monkeypatch.undo()
    await everywhere.run("stop_command", name="bg1")
