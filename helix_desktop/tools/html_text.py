"""A page of HTML as text. Pages come from strangers: the reading is done in a process with a time limit."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helix_desktop.processes.starter import end_process, start_worker
from helix_desktop.tools import html_worker

SECONDS = 10.0
MOST_BYTES = 2 << 30  # The most address space of the worker. If it is not enough, the source is shown.


async def html_as_text(page: bytes) -> str:
    """What a reader sees of it; the source itself where that takes too long."""
    process = await start_worker(Path(html_worker.__file__), memory_bytes=MOST_BYTES)
    try:
        async with asyncio.timeout(SECONDS):
            out, _ = await process.communicate(page)
        return out.decode("utf-8") if not process.returncode else page.decode("utf-8", "replace")
    except TimeoutError:
        return page.decode("utf-8", "replace")
    finally:
        await end_process(process)
