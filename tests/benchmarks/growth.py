"""How costs grow with size: the cache, the journal and the index with 1,000 to 1,000,000 entries.

python -m tests.benchmarks.growth [--quick: to 100,000]      beside plyvel alone with
the same keys; a fit of cost over size for each
"""

from __future__ import annotations

import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import plyvel

from helix_desktop.engine.cache_entry_rows import EntrySort
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.benchmarks import report
from tests.benchmarks.row import Figure, Row
from tests.benchmarks.store_million import fill

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TIMES = 60


def rows(*, quick: bool) -> list[Row]:
    made: list[Row] = []
    for size in SIZES[:3] if quick else SIZES:
        base = Path(tempfile.mkdtemp(prefix="helix-growth-"))
        try:
            made += asyncio.run(_at(base, size))
        finally:
            shutil.rmtree(base)
    return made


async def _at(base: Path, size: int) -> list[Row]:
    """Every question at one size."""
    workspaces = AllWorkspaces(base)
    known = workspaces.create_stored_workspace("growth")
    seconds = fill(known.folder, size)
    disk = sum(path.stat().st_size for path in known.folder.rglob("*") if path.is_file())
    workspace = await workspaces.open_stored_workspace(known.id)
    await workspace.index.wait_until_indexed()
    try:
        asked = await _asked(workspace, size)
    finally:
        await workspace.aclose()
    alone = _plyvel(base / "alone", size)
    figures = [
        ("storing an entry and its fact", "µs", Figure(seconds / size * 1e6, seconds / size * 1e6, seconds / size * 1e6), {}),
        ("size on disk of a 430-byte entry", "bytes", Figure(disk / size, disk / size, disk / size), {}),
        ("put", "µs", asked["put"], {"plyvel alone": alone["put"]}),
        ("get and check the hash", "µs", asked["get"], {"plyvel alone": alone["get"]}),
        ("appending a fact", "µs", asked["append"], {}),
        ("the newest page of the list of entries", "µs", asked["page"], {}),
        ("a page from the middle of the list, sorted by size", "µs", asked["middle"], {}),
        ("search for a rare word", "µs", asked["search"], {}),
    ]  # fmt: skip
    return [
        Row(f"{name}, with {size:,} entries", unit, figure, peers, series=name, at=size)
        for name, unit, figure, peers in figures
    ]


async def _asked(workspace: StoredWorkspace, size: int) -> dict[str, Figure]:
    chance = random.Random(size)
    page = await workspace.index.entries_page(limit=200)
    digests = [row.stored.digest for row in page]

    async def put() -> None:
        await workspace.cache.store_content(
            f"{chance.random()} ".encode() * 25, EntryOrigin("shell", "make")
        )

    async def get() -> None:
        await workspace.cache.read_content(chance.choice(digests))

    async def append() -> None:
        await workspace.journal.append_to_journal("growth", [UserSaid((Text("go on", 2),))])

    return {
        "get": await _taken(get),
        "page": await _taken(lambda: workspace.index.entries_page(limit=100)),
        "middle": await _taken(
            lambda: workspace.index.entries_page(sort=EntrySort.SIZE, offset=size // 2, limit=100),
            15,
        ),
        "search": await _taken(lambda: workspace.index.search_index("needle0"), 15),
        "put": await _taken(put),
        "append": await _taken(append),
    }


async def _taken(work: Callable[[], Awaitable[object]], times: int = TIMES) -> Figure:
    """Microseconds; the first is for warming up."""
    await work()
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        await work()
        taken.append(1e6 * (time.perf_counter() - begun))
    ordered = sorted(taken)
    return Figure(
        statistics.median(taken), ordered[0], ordered[int(0.95 * (len(ordered) - 1))], times
    )


def _plyvel(folder: Path, size: int) -> dict[str, Figure]:
    """The same keys and sizes in LevelDB by itself, unchecked, with its own compression."""
    database = plyvel.DB(str(folder), create_if_missing=True)
    content = b"an output like those of an agent, some words and some numbers 12345 " * 6
    keys = [Digest.of_content(str(number).encode()).raw for number in range(size)]
    for first in range(0, size, 500):
        with database.write_batch() as batch:
            for key in keys[first : first + 500]:
                batch.put(key, content)
    chance = random.Random(1)
    puts = []
    gets = []
    for number in range(TIMES):
        begun = time.perf_counter()
        database.put(Digest.of_content(f"new {number}".encode()).raw, content, sync=True)
        puts.append(1e6 * (time.perf_counter() - begun))
        key = chance.choice(keys)
        begun = time.perf_counter()
        database.get(key)
        gets.append(1e6 * (time.perf_counter() - begun))
    database.close()
    return {"put": Figure.of(puts), "get": Figure.of(gets)}


def main() -> int:
    made = rows(quick="--quick" in sys.argv)
    sys.stdout.write("\n".join([*report.table(made), *report.fit_lines(made)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
