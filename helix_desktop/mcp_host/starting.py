"""A process with a group of its own, of which nothing is left when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

End = Callable[[asyncio.subprocess.Process], Awaitable[None]]


async def started(end: End, *argv: str, **options: Any) -> asyncio.subprocess.Process:
    """Start it. If this is cancelled meanwhile, `end` ends it: asyncio would kill the process but not its children."""
    starting = asyncio.ensure_future(  # noqa: TID251 - awaited here in any case
        asyncio.create_subprocess_exec(*argv, start_new_session=True, **options)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            await end(await starting)
        raise
