"""concurrency.py: named, owned, logged, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from pathlib import Path

import pytest

from helix_desktop import concurrency
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import NotFound, StoppedByUser
from tests.conftest import Expect


async def _wait_for_ever(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(name)


async def test_a_task_carries_its_owner_and_name_and_gives_its_result() -> None:
    owner = OwnedTasks("window")

    async def work() -> str:
        current = asyncio.current_task()
        assert current is not None
        return current.get_name()

    assert await owner.spawn_task(work(), name="paint") == "window: paint"
    assert not owner._running


async def test_closing_ends_the_newest_first() -> None:
    owner = OwnedTasks("session")
    ended = list[str]()
    for name in ("first", "second", "third"):
        owner.spawn_task(_wait_for_ever(ended, name), name=name)
    await asyncio.sleep(0)
    assert await owner.aclose() == ()
    assert ended == ["third", "second", "first"]


async def test_nothing_starts_while_closing() -> None:
    owner = OwnedTasks("session")
    await owner.aclose()
    with pytest.raises(StoppedByUser, match="late was not started"):
        owner.spawn_task(asyncio.sleep(0), name="late")


async def test_what_will_not_end_is_named_and_left(expect: Expect) -> None:
    expect("deaf did not end")
    owner = OwnedTasks("session")
    release = asyncio.Event()

    async def deaf() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    task = owner.spawn_task(deaf(), name="deaf")
    await asyncio.sleep(0)
    assert await owner.aclose(limit=0.01) == ("session: deaf",)
    release.set()
    await task


async def test_a_bug_is_logged_with_its_trace_and_reported(expect: Expect) -> None:
    expect("session: broken failed")
    reported: list[tuple[str, BaseException]] = []
    owner = OwnedTasks("session", report=lambda name, error: reported.append((name, error)))

    async def broken() -> None:
        raise ZeroDivisionError

    async def refused() -> None:
        raise NotFound("no such entry")

    for name, work in (("broken", broken()), ("refused", refused())):
        await asyncio.wait([owner.spawn_task(work, name=name)])
    assert [(name, type(error)) for name, error in reported] == [
        ("session: broken", ZeroDivisionError),
        ("session: refused", NotFound),
    ]


async def test_what_hangs_is_left_behind_after_its_limit() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(
            concurrency.run_on_detached_thread(release.wait, name="deaf keyring"), 0.01
        )
    release.set()
    assert await concurrency.run_on_detached_thread(lambda: 42, name="quick") == 42
    with pytest.raises(
        BaseException, match="panic"
    ):  # what a Rust extension raises is not an Exception
        await concurrency.run_on_detached_thread(_panic, name="panicking")


def _panic() -> None:
    raise BaseException("panic")  # noqa: TRY002


def test_threads_and_pools_are_named() -> None:
    names: list[str] = []
    concurrency.start_thread(
        lambda: names.append(threading.current_thread().name), name="alone"
    ).join()
    with concurrency.create_thread_pool("stores", threads=1) as pool:
        names.append(pool.submit(lambda: threading.current_thread().name).result())
    assert names == ["alone", "stores_0"]


async def test_an_error_from_a_thread_keeps_nobody_alive_who_met_it() -> None:
    class Asker:
        pass

    def fail() -> None:
        raise ValueError

    async def ask() -> weakref.ref[Asker]:
        asker = Asker()
        with contextlib.suppress(ValueError):
            await concurrency.run_on_detached_thread(fail, name="a question")
        return weakref.ref(asker)

    gc.collect()
    gc.disable()
    try:
        asked = await ask()
        for _ in range(3):  # the loop lets go of the call that woke us
            await asyncio.sleep(0)
        assert asked() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("turns", range(4))
async def test_a_cancellation_that_comes_as_the_work_ends_is_not_lost(turns: int) -> None:
    """As it is by `asyncio.wait_for` of Python 3.11."""
    woken = asyncio.Event()
    waiting = OwnedTasks("test").spawn_task(
        concurrency.wait_with_limit(woken.wait(), 60), name="wait"
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    woken.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    was_over = waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() is not was_over
    with pytest.raises(TimeoutError):
        await concurrency.wait_with_limit(asyncio.Event().wait(), 0.01)


def test_the_package_waits_without_losing_a_cancellation() -> None:
    files = Path(concurrency.__file__).parent.rglob("*.py")
    assert [file.name for file in files if "asyncio.wait_for(" in file.read_text("utf-8")] == []
