"""The clock of a replay."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from helix_desktop.replay import simulated_clock


def test_hours_cost_nothing_and_come_in_order() -> None:
    seen: list[tuple[str, float]] = []

    async def waits(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, asyncio.get_running_loop().time()))

    async def work() -> None:
        await asyncio.gather(waits("late", 7_200), waits("early", 60), waits("late too", 7_200))

    begun = time.monotonic()
    simulated_clock.run_on_jumping_loop(work())
    assert seen == [("early", 60), ("late", 7_200), ("late too", 7_200)]
    assert time.monotonic() - begun < 60


def test_time_limits_are_of_the_same_time() -> None:
    async def work() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(180):
                await asyncio.sleep(1e9)
        return asyncio.get_running_loop().time()

    assert simulated_clock.run_on_jumping_loop(work()) == pytest.approx(180)


def test_time_stands_still_while_a_thread_works() -> None:
    async def work() -> tuple[float, bool]:
        gate = threading.Event()
        limit = asyncio.get_running_loop().call_later(3_600, lambda: None)
        asyncio.get_running_loop().call_soon(gate.set)
        done = await asyncio.to_thread(gate.wait, 30)
        limit.cancel()
        return asyncio.get_running_loop().time(), done

    assert simulated_clock.run_on_jumping_loop(work()) == (0.0, True)


def test_the_engines_clock_follows() -> None:
    async def work() -> float:
        own = simulated_clock.LoopClock()
        begun = own.current_time()
        await own.sleep_seconds(90)
        return own.current_time() - begun

    assert simulated_clock.run_on_jumping_loop(work()) == pytest.approx(90)
