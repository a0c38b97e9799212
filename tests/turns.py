"""Seconds counted in turns that were had: what a busy machine takes from everybody is
nobody's fault, and is not counted.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable

TURN = 0.01


def ends_within(process: subprocess.Popen[str], seconds: float) -> bool:
    """Whether a process ends by itself in so many seconds."""
    for _ in range(round(seconds / TURN)):
        if process.poll() is not None:
            return True
        time.sleep(TURN)
    return False


async def lasted(work: Awaitable[object]) -> float:
    """The seconds something takes on this loop."""
    turns = 0

    async def take() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(TURN)
            turns += 1

    taking = asyncio.get_running_loop().create_task(take())
    try:
        await work
    finally:
        taking.cancel()
    return turns * TURN


def qt_works(milliseconds: int) -> None:
    """Let Qt's loop run so long: what is due has its turn, however long one of them takes."""
    from PySide6.QtTest import QTest

    for _ in range(milliseconds):
        QTest.qWait(1)
