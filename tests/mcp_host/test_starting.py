"""Nothing is left of a process whose start was cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import pytest

from helix_desktop.mcp_host.starting import started

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no groups of processes")


async def test_one_cancelled_while_it_starts_is_given_to_end() -> None:
    ended: list[int] = []

    async def end(process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        ended.append(await process.wait())

    starting = asyncio.ensure_future(started(end, "/bin/sleep", "1000"))  # noqa: TID251 - a test's own task
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert ended == [-signal.SIGKILL]


async def test_a_program_that_is_not_there_is_said_and_ends_nothing() -> None:
    async def end(process: asyncio.subprocess.Process) -> None:
        raise AssertionError(process)

    with pytest.raises(FileNotFoundError):
        await started(end, "/nowhere/program")
