"""Freed memory goes back to the system, tried in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

HOLES = """
import asyncio, contextlib, pathlib
from helix_desktop import glibc_memory as heap

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

heap.share_one_heap_between_threads()
heap.EVERY = 0.01
pieces = [(bytearray(b"x" * 100_000), bytearray(b"y" * 1_000)) for _ in range(1_000)]
pieces = [small for _, small in pieces]
before = resident()

async def wait():
    given = asyncio.ensure_future(heap.return_free_memory_every_minute())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(50):
            while resident() > before - 50:
                await asyncio.sleep(0.01)
    given.cancel()

asyncio.run(wait())
print(before, resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux")
def test_what_is_free_between_things_that_stay_is_given_back() -> None:
    said = subprocess.run(
        [sys.executable, "-c", HOLES], check=True, stdout=-1, text=True, timeout=60
    ).stdout
    before, after = map(int, said.split())  # megabytes, of which nearly a hundred were holes
    assert after <= before - 50
