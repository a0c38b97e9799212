"""What is cancelled while it waits, at each place where it does: nothing may be left
that nobody knows of.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from typing import Any

Making = Callable[[], Coroutine[Any, Any, Any]]


@types.coroutine
def _cut(
    work: Coroutine[Any, Any, Any], at: int, heard: Callable[[], object] = lambda: None
) -> Generator[Any, Any, Any]:
    """`work`, whose task is cancelled as it comes to wait for the time `at`, from 1. Then `heard` is
    called.
    """
    waits = 0
    try:
        waiting = work.send(None)
        while True:
            waits += 1
            if waits == at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                heard()
            try:
                yield waiting
            except BaseException as error:  # noqa: BLE001 -- goes where it would have gone
                waiting = work.throw(error)
            else:
                waiting = work.send(None)
    except StopIteration as ended:
        return ended.value


async def cut_at_each_place(making: Callable[[int], Coroutine[Any, Any, Any]]) -> int:
    """Run `making(place)` anew for each place at which it waits, and cut it off there. Return the
    number of places at which it was cut off.
    """
    for place in count(1):
        cuts: list[int] = []

        async def run(place: int = place, cuts: list[int] = cuts) -> None:
            await _cut(making(place), place, lambda: cuts.append(place))

        task = asyncio.get_running_loop().create_task(run())
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        if not cuts:
            return place - 1
    raise AssertionError


async def cut_everywhere(making: Making, after: Callable[[], Coroutine[Any, Any, None]]) -> Any:
    """What `making` makes when it is let alone; before that it is cut off at every
    place, and `after` looks what is left.
    """
    for at in count(1):

        async def one(at: int = at) -> Any:
            return await _cut(making(), at)

        task = asyncio.get_running_loop().create_task(one())
        await asyncio.wait([task])
        if not task.cancelled():
            return task.result()
        await after()
    raise AssertionError
