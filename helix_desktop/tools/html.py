"""A page of HTML as text. Pages come from strangers: the reading is done in a process with a time limit."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from helix_desktop.processes.command import killed
from helix_desktop.tools import html_worker

SECONDS = 10.0


async def as_text(page: bytes) -> str:
    """What a reader sees of it; the source itself where that takes too long."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(Path(html_worker.__file__)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(SECONDS):
            out, _ = await process.communicate(page)
        return out.decode("utf-8") if not process.returncode else page.decode("utf-8", "replace")
    except TimeoutError:
        return page.decode("utf-8", "replace")
    finally:
        await killed(process)
