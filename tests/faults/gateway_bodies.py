"""Hostile bodies at the gateway: every compression, nested, damaged, cut and huge.

python -m tests.faults.gateway_bodies [--bodies 1000] [--seed 1]

Each is refused with a sentence or goes on as it came, and the gateway takes no more memory than for bodies that are allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import zstandard

from helix_desktop import program_folders
from helix_desktop.resident import resident_client
from tests.faults.store_report import report
from tests.gateway.running import wrapped

PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": lambda content: gzip.compress(content, 6),
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}
SLOWEST_SECONDS = 60.0
MOST_MEMORY_MB = 1_000.0  # at the peak: a body of 64 MB is held a few times while it is read


def hostile(chance: random.Random) -> tuple[str, bytes]:
    """The value of Content-Encoding, and a body."""
    size = chance.choice([0, 1_000, 1 << 20, 60 << 20, 70 << 20, 500 << 20])
    content = chance.choice([b" ", b"[", b"0,", b'{"messages":['])
    packed = content * (size // len(content))
    names = chance.choices(sorted(PACKERS), k=chance.randint(1, 3))
    for name in names:
        packed = PACKERS[name](packed)
    if chance.random() < 0.2:
        packed = packed[: chance.randrange(len(packed) + 1)]
    if chance.random() < 0.2 and packed:
        at = chance.randrange(len(packed))
        packed = packed[:at] + bytes([packed[at] ^ 1 << chance.randrange(8)]) + packed[at + 1 :]
    return ", ".join(chance.choice([names, names, names[::-1], [*names, "br"]])), packed


def peak_memory_mb(pid: int) -> float:
    """The most a process has had so far."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def trials(bodies: int, seed: int, found: Counter[str]) -> None:
    """So many bodies. Nobody listens where they would go: what is passed on is answered with 502, and what is refused with 413."""
    chance, slowest = random.Random(seed), 0.0
    with tempfile.TemporaryDirectory() as home, wrapped(Path(home), "http://127.0.0.1:9") as held:
        for _ in range(bodies):
            encoding, content = hostile(chance)
            headers = {"content-encoding": encoding}
            began = time.monotonic()
            reply = httpx.post(f"{held.first_address}/v1/messages", content=content, headers=headers, timeout=300)
            slowest = max(slowest, time.monotonic() - began)
            found["refused" if reply.status_code == 413 else "passed on"] += 1
            if reply.status_code not in (413, 502):
                found[f"LOST {encoding}, {len(content)} bytes: {reply.status_code} {reply.text[:80]}"] += 1
            if reply.status_code == 413 and "64 MB" not in reply.text:
                found["LOST a refusal says no reason"] += 1
        told = (
            asyncio.run(resident_client.ask_resident(program_folders.find_program_folders(Path(home)), "status")) or {}
        )
        memory = peak_memory_mb(told["gateway"])
    found[f"bodies, {slowest:.1f} s slowest, {memory:.0f} MB at the peak"] += bodies
    if slowest > SLOWEST_SECONDS or memory > MOST_MEMORY_MB:
        found["LOST too slow, or too much memory"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bodies", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report("gateway bodies", arguments.seed, lambda found: trials(arguments.bodies, arguments.seed, found))


if __name__ == "__main__":
    sys.exit(main())
