"""cancellation.py: work is finished, or ended, before a cancelled caller goes on."""

import asyncio
import gc
import os
import signal
import sys
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from helix_desktop.cancellation import end_if_cancelled, finish_even_if_cancelled
from helix_desktop.concurrency import OwnedTasks
from tests.cutting import cut_everywhere


@pytest.mark.skipif(sys.platform == "win32", reason="there are no groups of processes")
async def test_what_is_cancelled_while_it_is_made_is_ended() -> None:
    ended: list[int] = []

    async def end(process: asyncio.subprocess.Process) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        ended.append(await process.wait())

    def made() -> Coroutine[Any, Any, asyncio.subprocess.Process]:
        starting = asyncio.create_subprocess_exec("/bin/sleep", "1000", start_new_session=True)
        return end_if_cancelled(starting, end)

    async def was_ended() -> None:
        assert ended.pop() == -signal.SIGKILL

    await end(await cut_everywhere(made, was_ended))


@pytest.mark.parametrize("cancellations", [2, 5])
@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_what_is_cancelled_again_while_it_is_made_is_ended_before_the_caller_goes_on(
    cancellations: int, turns: int
) -> None:
    """The defect: a second stop left what was being made running, or what ran unrecorded."""
    is_made = asyncio.Event()
    happened: list[str] = []

    async def make() -> str:
        await is_made.wait()
        happened.append("made")
        return "a process"

    async def end(made: str) -> None:
        await asyncio.sleep(0)
        happened.append(f"{made} ended")

    caller = OwnedTasks("test").spawn_task(end_if_cancelled(make(), end), name="make")
    await asyncio.sleep(0)
    for _ in range(cancellations):
        caller.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
    assert happened == []
    is_made.set()
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    assert happened == ["made", "a process ended"]


async def test_what_cannot_be_made_is_said_and_nothing_is_ended() -> None:
    async def end(process: object) -> None:
        raise AssertionError(process)

    with pytest.raises(FileNotFoundError):
        await end_if_cancelled(asyncio.create_subprocess_exec("/no such folder/program"), end)


async def test_work_that_fails_says_so_unless_the_caller_was_cancelled() -> None:
    release = asyncio.Event()

    async def fail() -> None:
        await release.wait()
        raise ValueError

    caller = OwnedTasks("test").spawn_task(finish_even_if_cancelled(fail()), name="fail")
    await asyncio.sleep(0)
    caller.cancel()
    release.set()
    await asyncio.wait([caller])
    assert caller.cancelled()
    with pytest.raises(ValueError):
        await finish_even_if_cancelled(fail())


async def test_work_is_told_to_hurry_with_each_cancellation() -> None:
    hurried = asyncio.Event()
    caller = OwnedTasks("test").spawn_task(
        finish_even_if_cancelled(hurried.wait(), hurry=hurried.set), name="hurry"
    )
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller], timeout=60)
    assert caller.cancelled()


async def test_what_was_cancelled_is_freed_at_once() -> None:
    """The defect: the cancellation and where it was raised held each other, and with them open
    connections, until the garbage collector ran.
    """

    class Connection:
        """Something that work holds."""

    held: list[weakref.ref[Connection]] = []

    async def use_connection() -> None:
        connection = Connection()
        held.append(weakref.ref(connection))
        await finish_even_if_cancelled(asyncio.sleep(0.01))

    gc.collect()
    gc.disable()
    try:
        caller = OwnedTasks("test").spawn_task(use_connection(), name="use")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        assert caller.cancelled()
        del caller
        await asyncio.sleep(0)
        (connection,) = held
        assert connection() is None
    finally:
        gc.enable()
