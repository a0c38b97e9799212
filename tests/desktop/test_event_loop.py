"""event_loop.py: timers that are far away fire in their order, and cancelled ones do
not pile up.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop.desktop import event_loop
from helix_desktop.desktop.event_loop import FEW, WindowEventLoop

Run = Callable[[Callable[[WindowEventLoop], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    def ran(story: Callable[[WindowEventLoop], Coroutine[Any, Any, Any]]) -> Any:
        application = QApplication.instance() or QApplication([])
        with WindowEventLoop(application) as loop:
            return loop.run_until_complete(story(loop))

    yield ran
    gc.collect()  # here, as in the program: a later test's worker must not end Qt's timers


def test_limits_that_were_not_met_do_not_pile_up(run: Run) -> None:
    async def story(loop: WindowEventLoop) -> int:
        for _ in range(1_000):
            async with asyncio.timeout(300):
                await asyncio.sleep(0)
        return len(loop._heap)

    assert run(story) <= 2 * FEW


def test_far_timers_fire_in_their_order_and_cancelled_ones_do_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "FAR", 0.01)

    async def story(loop: WindowEventLoop) -> list[str]:
        said: list[str] = []
        for name, delay in (("c", 0.06), ("a", 0.02), ("b", 0.04), ("never", 0.03)):
            handle = loop.call_later(delay, said.append, name)
            if name == "never":
                handle.cancel()
        await asyncio.sleep(0.12)
        assert len(loop._heap) == 0
        return said

    assert run(story) == ["a", "b", "c"]


def test_a_limit_is_still_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "FAR", 0.01)

    async def story(_: WindowEventLoop) -> None:
        async with asyncio.timeout(0.03):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run(story)


def test_a_timer_of_an_hour_is_not_scheduled_again_with_each_shorter_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of wake-ups waited for the hour, each with all that it refers to."""
    monkeypatch.setattr(event_loop, "FAR", 0.001)

    async def story(loop: WindowEventLoop) -> int:
        loop.call_later(3_600, print)
        for _ in range(30):
            await asyncio.sleep(0.002)
        gc.collect()
        handles = [each for each in gc.get_objects() if isinstance(each, asyncio.Handle)]
        return sum("_run_due_timers" in repr(handle) for handle in handles)

    assert run(story) <= 1


def test_a_timer_of_a_year_waits(run: Run) -> None:
    """Qt's timers count milliseconds in 31 bits."""

    async def story(loop: WindowEventLoop) -> list[str]:
        said: list[str] = []
        loop.call_later(31_557_600, said.append, "a year")
        loop.call_later(1.05, said.append, "a second")
        await asyncio.sleep(1.3)
        return said

    assert run(story) == ["a second"]
