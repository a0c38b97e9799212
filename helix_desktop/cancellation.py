"""Work that must come to its end although the task that waits for it is cancelled: what happened is
recorded, and what was started is ended.

`asyncio.shield` is not enough. It protects the work, but the second of two cancellations ends
the waiting, and the caller goes on beside work that is not done.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")


async def finish_even_if_cancelled(
    work: Awaitable[T], *, hurry: Callable[[], object] = lambda: None
) -> T:
    """Waits until `work` is done, however often this is cancelled: a person may press Stop
    twice. Only then is the cancellation raised. `hurry`: called when this is cancelled, to make
    `work` end soon.
    """
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancellation = error
            hurry()
    if cancellation is None:
        return task.result()
    failure = None if task.cancelled() else task.exception()
    try:
        raise cancellation from failure
    finally:
        del cancellation  # It holds this frame, and the frame would hold it.


async def finish_ignoring_cancellation(work: Awaitable[T]) -> T:
    """Waits until `work` is done, and returns its result even if this is cancelled meanwhile.

    For the rest of something that has been done: its result belongs in the record, and the caller
    begins nothing new after it.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cast("asyncio.Task[object]", asyncio.current_task()).uncancel()
    return task.result()


async def end_if_cancelled(
    making: Awaitable[T],
    end: Callable[[T], Awaitable[object]],
    *,
    hurry: Callable[[], object] = lambda: None,
) -> T:
    """Waits for `making` even when this is cancelled, and then passes its result to
    `end`, so that it does not leak.
    """
    task = asyncio.ensure_future(making)
    try:
        return await finish_even_if_cancelled(task, hurry=hurry)
    except asyncio.CancelledError:
        if not task.cancelled() and task.exception() is None:
            await finish_even_if_cancelled(end(task.result()))
        raise
