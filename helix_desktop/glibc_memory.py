"""Limits how much freed memory glibc keeps instead of returning it to the system.

By default, glibc gives every thread its own heap, mixes large buffers with small objects, and
returns only what is free at a heap's end. Outputs of commands, tables of the stores and texts of
requests leave holes in the heaps, so that the program would grow by a tenth every hour.
"""

import asyncio
import contextlib
import ctypes
import sys

EVERY = 60.0  # Freed memory is returned to the system after this many seconds.
LARGE = 128 << 10  # Larger buffers, in bytes, are returned to the system as soon as they are freed.
# Constants of malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def share_one_heap_between_threads(large_bytes: int = LARGE, kept_bytes: int = LARGE) -> None:
    """Makes all threads share one heap and allocates large blocks outside it. Call this
    before any thread starts.
    """
    libc = _load_glibc()
    if libc is not None:
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, large_bytes)
        libc.mallopt(_M_TRIM_THRESHOLD, kept_bytes)


async def return_free_memory_every_minute() -> None:
    """Returns free pages to the system once a minute, in a thread."""
    while True:
        await asyncio.sleep(EVERY)
        await asyncio.to_thread(return_free_pages)


def return_free_pages() -> None:
    libc = _load_glibc()
    if libc is not None:
        libc.malloc_trim(0)


def _load_glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError, AttributeError):  # The C library may not be glibc.
        libc = ctypes.CDLL(None)
        if libc.mallopt and libc.malloc_trim:
            return libc
    return None
