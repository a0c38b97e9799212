"""A server's process: where it starts, what it may write, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helix_desktop.errors import ProviderUnreachable
from helix_desktop.mcp_client.server_config import ServerConfig
from helix_desktop.processes import folders_of_agents
from tests.mcp_client.world import hosting, strange
from tests.turns import lasted


@pytest.mark.parametrize("kind", ["elsewhere", "in the home as a workspace", "in the named folder"])
async def test_a_server_does_not_start_in_the_folder_in_which_this_program_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Started in a project, `npx` ran a package of the project instead of the one that was named."""
    project = tmp_path / "project"
    home = tmp_path / "home"
    for folder in (project, home):
        folder.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(folders_of_agents, "_folders_of_agents", set())
    folders_of_agents.leave_out_of_search([project])
    expected, named = home, ""
    if kind == "in the home as a workspace":
        folders_of_agents.leave_out_of_search([home])
        expected = Path("/")
    elif kind == "in the named folder":
        expected, named = project, str(project)
    code = "import os, sys; open(sys.argv[1], 'w').write(os.getcwd())"
    told = tmp_path / "told"
    config = ServerConfig(
        "s", command=sys.executable, args=("-I", "-c", code, str(told)), folder=named
    )
    async with hosting(config) as here:
        await here.settled()
    assert told.read_text() == str(expected)


async def test_a_command_that_is_not_there_is_named() -> None:
    async with hosting(ServerConfig("gone", command="no-such-program")) as here:
        await here.settled()
        assert (
            "The program no-such-program was not found." in here.host.hosted_servers[0].status.why
        )


async def test_rubbish_on_standard_output_is_logged_and_passed_over() -> None:
    async with hosting(strange("rubbish")) as here:
        await here.settled()
        result = await here.host.list_ready_tools()[0].call_foreign_tool({"a": 1}, here.context)
        assert json.loads(result.text) == {"a": 1}
        assert any(
            "Listening on port 3000" in line
            for line in here.host.hosted_servers[0].server_log_lines
        )


async def test_a_message_of_fifty_megabytes_ends_the_connection_with_a_reason() -> None:
    async with hosting(strange("huge")) as here:
        await here.settled()
        with pytest.raises(ProviderUnreachable, match=r"message of more than 25,165,824 bytes"):
            await here.host.list_ready_tools()[0].call_foreign_tool({}, here.context)


async def test_a_message_of_millions_of_small_values_ends_the_connection_with_a_reason() -> None:
    """Parsed, ten million empty lists took 3 GB, and held the window for six seconds."""
    async with hosting(strange("many values")) as here:
        await here.settled()
        with pytest.raises(ProviderUnreachable, match=r"message of more than 500,000 values"):
            await here.host.list_ready_tools()[0].call_foreign_tool({}, here.context)


async def test_a_large_message_does_not_hold_the_loop() -> None:
    async with hosting(strange("large")) as here:
        await here.settled()
        assert (
            len((await here.host.list_ready_tools()[0].call_foreign_tool({}, here.context)).text)
            == 5 << 20
        )


async def test_ending_takes_no_two_seconds_though_a_server_will_not() -> None:
    async with hosting(strange("hang at shutdown")) as here:
        await here.settled()
        assert here.host.list_ready_tools()
        assert await lasted(here.host.aclose()) < 2


_DEAF_SERVER = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "wb", buffering=0) as told:
    told.write(b"started ")
    time.sleep(180)
    told.write(b"still there")
"""


_ITS_PROGRAM = """
import asyncio, os, sys
from helix_desktop.mcp_client.process_transport import ServerLog, start_server_process
async def main():
    argv = [sys.executable, "-I", "-c", *sys.argv[1:]]
    async with start_server_process(argv, dict(os.environ), "/", ServerLog(), lambda: None):
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a job ends it there")
def test_a_server_that_heeds_nothing_does_not_outlive_a_program_that_was_killed(
    tmp_path: Path,
) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    with (
        subprocess.Popen([sys.executable, "-c", _ITS_PROGRAM, _DEAF_SERVER, str(told)]) as program,
        told.open("rb") as heard,
    ):
        assert heard.read(8) == b"started "
        program.kill()
        assert heard.read() == b""
