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
def _cut(work: Coroutine[Any, Any, Any], at: int) -> Generator[Any, Any, Any]:
    """`work`, whose task is cancelled as it comes to wait for the time `at`, from 1."""
    waits = 0
    try:
        waiting = work.send(None)
        while True:
            waits += 1
            if waits == at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield waiting
            except BaseException as error:  # noqa: BLE001 -- goes where it would have gone
                waiting = work.throw(error)
            else:
                waiting = work.send(None)
    except StopIteration as ended:
        return ended.value


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
