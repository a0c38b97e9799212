"""A workspace with a million entries: open, list, sort, filter, scroll, search, and
make the index rebuilt from scratch.

python -m tests.benchmarks.store_million [--entries 1000000] [--folder DIR]      (a
folder is kept, and used again)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort
from helix_desktop.engine.facts import ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.cache_folder import CacheFolder, StagedEntry
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.stored_workspace import StoredWorkspace

TOOLS = ("shell", "read_file", "search", "fetch", "edit", "mcp.github.issues")
BATCH = 500


def fill(folder: Path, entries: int) -> float:
    """Outputs like an agent's, 60 to 600 bytes, most of them used by a fact."""
    chance = random.Random(1)
    cache = CacheFolder(folder / "cache")
    journal = JournalFile(folder / "journal.sqlite3")
    started = time.perf_counter()
    for first in range(0, entries, BATCH):
        staged = [
            _staged(cache, chance, number) for number in range(first, min(first + BATCH, entries))
        ]
        cache.commit_staged(staged)
        used = [
            ToolReturned(str(first), each.record.stored_reference, 40)
            for each in staged
            if chance.random() < 0.9
        ]
        journal.append_all_or_nothing(f"c{first // 20_000}", used)
    cache.close()
    journal.close()
    return time.perf_counter() - started


def _staged(cache: CacheFolder, chance: random.Random, number: int) -> StagedEntry:
    words = " ".join(f"w{chance.randrange(20_000)}" for _ in range(chance.randrange(10, 100)))
    rare = f" needle{number}" if number % 1000 == 0 else ""
    # 200,000 of them: files are read again
    source = f"src/module_{chance.randrange(200)}/file_{number % 997}.py"
    return cache.stage_content(
        f"{number}: {words}{rare}\n".encode(), EntryOrigin(chance.choice(TOOLS), source)
    )


def memory() -> int:
    """Bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def timed(
    work: Callable[[], Awaitable[object]], times: int = 7
) -> tuple[float, float, float]:
    """Milliseconds: the median, the least and the most."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken), min(taken), max(taken)


async def longest_gap(work: Awaitable[object]) -> float:
    """How long, in milliseconds, the event loop did not get its turn while `work` ran."""
    gap = 0.0
    last = time.perf_counter()
    going = True

    async def tick() -> None:
        nonlocal gap, last
        while going:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gap = max(gap, now - last)
            last = now

    ticking = asyncio.get_running_loop().create_task(tick())
    await work
    going = False
    await ticking
    return gap * 1000


async def measure(workspaces: AllWorkspaces, name: str, entries: int) -> dict[str, object]:
    figures: dict[str, object] = {"entries": entries}
    started = time.perf_counter()
    workspace = await workspaces.open_stored_workspace(name)
    figures["open without an index (ms)"] = (time.perf_counter() - started) * 1000
    marks: list[int] = []
    started = time.perf_counter()
    await workspace.index.wait_until_indexed(lambda progress: marks.append(progress.words))
    figures["index rebuilt from scratch (s)"] = time.perf_counter() - started
    figures["progress reports"] = len(marks)
    await workspace.aclose()
    packed = sum(path.stat().st_size for path in (workspace.folder / "cache").iterdir())
    figures["index, in packed content"] = (
        workspace.folder / "index.sqlite3"
    ).stat().st_size / packed
    before = memory()
    started = time.perf_counter()
    workspace = await workspaces.open_stored_workspace(name)
    figures["open (ms)"] = (time.perf_counter() - started) * 1000
    started = time.perf_counter()
    await workspace.index.entries_page()
    figures["first page (ms)"] = (time.perf_counter() - started) * 1000
    await questions(workspace, entries, figures)
    figures["memory growth (MB)"] = (memory() - before) / 1e6
    await workspace.aclose()
    return figures


async def questions(workspace: StoredWorkspace, entries: int, figures: dict[str, object]) -> None:
    index = workspace.index
    for sort in EntrySort:
        for descending in (True, False):
            name = f"sort by {sort}, {'descending' if descending else 'ascending'} (ms)"
            figures[name] = await timed(
                partial(index.entries_page, sort=sort, descending=descending)
            )
    filters = {
        "tool": EntryFilter(tool="fetch"),
        "conversation": EntryFilter(conversation="c3"),
        "text": EntryFilter(text="module_142/"),
        "size": EntryFilter(least=500, most=520),
        "time": EntryFilter(since=time.time() - 1e9),
        "pinned": EntryFilter(pinned=True),
        "unused": EntryFilter(unused=True),
    }
    for name, chosen in filters.items():
        figures[f"filter by {name} (ms)"] = await timed(partial(index.entries_page, chosen))
        figures[f"filter by {name}, sorted by size (ms)"] = await timed(
            partial(index.entries_page, chosen, sort=EntrySort.SIZE)
        )
        figures[f"count after filtering by {name} (ms)"] = await timed(
            partial(index.count_entries, chosen)
        )
    places = [int(entries * part) for part in (0.1, 0.5, 0.77, 0.999)]
    for sort in (EntrySort.TIME, EntrySort.SIZE, EntrySort.SOURCE):
        await index.entries_page(sort=sort)
        await asyncio.sleep(2)  # as somebody does who looks at the first page before he scrolls
        for place in places:
            figures[f"scroll to row {place:,}, sorted by {sort} (ms)"] = await timed(
                partial(index.entries_page, sort=sort, offset=place)
            )
    figures["count of all entries (ms)"] = await timed(index.count_entries)
    figures["statistics (ms)"] = await timed(index.compute_figures, 3)
    figures["search for a rare word (ms)"] = await timed(lambda: index.search_index("needle3000"))
    figures["search for two words (ms)"] = await timed(lambda: index.search_index("w77 w4711"))
    figures["search for a word in 0.5% of the entries (ms)"] = await timed(
        lambda: index.search_index("w77")
    )
    taken = sorted(
        [(await timed(partial(index.search_index, asked), 1))[0] for asked in queries(1000)]
    )
    figures["1,000 searches: median, 99th, longest (ms)"] = (taken[500], taken[990], taken[-1])
    figures["longest gap in the event loop while sorting and scrolling (ms)"] = await longest_gap(
        index.entries_page(sort=EntrySort.TOKENS, offset=entries // 2)
    )


def queries(count: int) -> list[str]:
    """What people and agents search for: one to four words, some of them almost
    everywhere, files, and what is nowhere.
    """
    chance = random.Random(2)
    kinds: list[Callable[[], str]] = [
        lambda: f"w{chance.randrange(20_000)}",
        lambda: " ".join(f"w{chance.randrange(20_000)}" for _ in range(chance.randrange(2, 5))),
        lambda: f"file_{chance.randrange(997)}.py w{chance.randrange(20_000)}",
        lambda: f"module_{chance.randrange(200)} src py w{chance.randrange(20_000)}",
        lambda: f"src/module_{chance.randrange(200)}/file_{chance.randrange(997)}.py",
        lambda: f"shell fetch edit {chance.randrange(1_000)}",
        lambda: f"needle{chance.randrange(1_000) * 1_000} nowhere{chance.randrange(9)}",
    ]
    return [chance.choice(kinds)() for _ in range(count)]


def shown(figures: dict[str, object]) -> str:
    return "\n".join(f"{name:<60} {_figure(value)}" for name, value in figures.items())


def _figure(value: object) -> str:
    if isinstance(value, tuple):
        return "{:.1f} ({:.1f}-{:.1f})".format(*value)
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    base = arguments.folder or Path(tempfile.mkdtemp(prefix="helix-million-"))
    workspaces = AllWorkspaces(base)
    try:
        if not workspaces.list_workspaces():
            known = workspaces.create_stored_workspace("million")
            print(f"filled in {fill(known.folder, arguments.entries):.0f} s")
        known = workspaces.list_workspaces()[0]
        for path in known.folder.glob("index.sqlite3*"):
            path.unlink()
        figures = asyncio.run(measure(workspaces, known.id, arguments.entries))
        print(json.dumps(figures, indent=1) if arguments.json else shown(figures))
    finally:
        if arguments.folder is None:
            shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
