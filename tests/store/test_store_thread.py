from __future__ import annotations

import asyncio
import threading

import pytest

from helix_desktop.errors import StoreFailed
from helix_desktop.store.store_thread import StoreThread


async def test_one_thing_after_another_on_one_thread() -> None:
    thread = StoreThread("store")
    seen: list[int] = []

    def work(number: int) -> str:
        seen.append(number)
        return threading.current_thread().name

    names = await asyncio.gather(*(thread.run_work(work, number) for number in range(50)))
    assert seen == list(range(50))
    assert len(set(names)) == 1
    assert names[0].startswith("store")
    await thread.aclose()


async def test_what_was_begun_is_finished_though_nobody_waits() -> None:
    thread = StoreThread("store")
    begun = threading.Event()
    go = threading.Event()
    done = threading.Event()

    def work() -> None:
        begun.set()
        go.wait(60)
        done.set()

    waiting = asyncio.get_running_loop().create_task(thread.run_work(work))
    await asyncio.to_thread(begun.wait, 60)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    await thread.aclose()
    assert done.is_set()


async def test_what_was_opened_is_closed_though_nobody_waits_and_the_last_first() -> None:
    thread = StoreThread("store")
    said = list[str]()

    class File:
        def __init__(self, name: str) -> None:
            self.name = name
            said.append(f"open {name}")

        def close(self) -> None:
            said.append(f"close {self.name}")

    await thread.open_on_thread(File, "one")
    waiting = asyncio.get_running_loop().create_task(thread.open_on_thread(File, "two"))
    while "open two" not in said:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await thread.aclose()
    assert said == ["open one", "open two", "close two", "close one"]


async def test_a_closed_one_says_so() -> None:
    thread = StoreThread("store")
    assert thread.call_and_wait(lambda: 5) == 5
    await thread.aclose()
    with pytest.raises(StoreFailed, match="closed"):
        await thread.run_work(lambda: None)
