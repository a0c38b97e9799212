from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from helix_desktop.mcp_client import login_path as module
from helix_desktop.mcp_client.login_path import read_login_path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no login shells")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a shell takes its time."""
    monkeypatch.setattr(module, "SECONDS", 60)


def shell(tmp_path: Path, script: str) -> str:
    path = tmp_path / "shell"
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return str(path)


async def test_the_login_shells_path_comes_first(tmp_path: Path) -> None:
    program = shell(tmp_path, 'echo "welcome to this machine"; PATH=/theirs:/usr/bin; eval "$4"')
    assert (
        await read_login_path({"PATH": "/ours:/usr/bin:/bin", "SHELL": program})
        == "/theirs:/usr/bin:/ours:/bin"
    )


@pytest.mark.parametrize(
    "script", ["/bin/sleep 1000", "trap '' HUP; /bin/sleep 1000", "exit 1", "echo rubbish"]
)
async def test_a_shell_that_does_not_answer_leaves_ours(
    tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.3)
    assert await read_login_path({"PATH": "/ours", "SHELL": shell(tmp_path, script)}) == "/ours"
    assert await read_login_path({"PATH": "/ours", "SHELL": "/no/such/shell"}) == "/ours"


async def test_a_program_of_the_shells_that_keeps_the_pipe_is_not_waited_for(
    tmp_path: Path,
) -> None:
    program = shell(tmp_path, '/bin/sleep 1000 & PATH=/theirs; eval "$4"')
    assert await read_login_path({"PATH": "/ours", "SHELL": program}) == "/theirs:/ours"


@pytest.mark.skipif(
    sys.platform != "linux", reason="the open files are counted as Linux lists them"
)
async def test_no_pipe_stays_open_though_somebody_out_of_reach_holds_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GONE", 0.2)
    open_files = Path("/proc/self/fd")
    program = shell(tmp_path, '/usr/bin/setsid /bin/sleep 4 & PATH=/theirs; eval "$4"')
    await read_login_path(
        {"PATH": "/ours", "SHELL": "/bin/false"}
    )  # what the loop opens for the first process stays
    before = len(list(open_files.iterdir()))
    assert await read_login_path({"PATH": "/ours", "SHELL": program}) == "/theirs:/ours"
    assert len(list(open_files.iterdir())) == before


async def test_a_shell_is_gone_when_nobody_waits_for_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GONE", 20.0)  # a busy machine takes longer to tidy up
    told = tmp_path / "pid"
    tidied = tmp_path / "tidied"
    script = f"trap 'echo yes > {tidied}; exit' HUP; echo $$ > {told}; while :; do :; done"
    program = shell(tmp_path, script)
    asking = asyncio.ensure_future(read_login_path({"PATH": "/ours", "SHELL": program}))  # noqa: TID251 - a test's own task
    async with asyncio.timeout(module.SECONDS):
        while not (told.exists() and told.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.wait([asking])
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
    assert tidied.read_text() == "yes\n"
