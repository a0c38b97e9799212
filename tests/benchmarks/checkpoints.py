"""Checkpoints of a folder, in one run beside git on the same tree with a warm index:
the first, unchanged ones, and their room.

python -m tests.benchmarks.checkpoints [--quick] [FILES …]
"""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

from helix_desktop.engine.changes.diff_hunks import find_hunks
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.checkpoints import Checkpoints
from tests.benchmarks.row import Figure, Row

FIRST, UNCHANGED, WATCHED, ROOM = 5_000, 3.0, 20, 1.1
RUNS = 7
STEPS = 60


def rows(*, quick: bool = False) -> list[Row]:
    """Of 20,000 files of source, and of 200,000; asked as in the issue."""
    found: list[Row] = []
    for files in (2_000,) if quick else (20_000, 200_000):
        found += asyncio.run(_measured(files))
    return [*found, *_hunks()]


async def _measured(files: int) -> list[Row]:
    base = Path(tempfile.mkdtemp(prefix="helix-checkpoints-"))
    try:
        folder = base / "tree"
        _fill(folder, files)
        _git(folder, "init", "-q", ".")
        _git(folder, "add", "-A")
        _git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
        time.sleep(0.1)  # out of the clock's resolution
        known = AllWorkspaces(base / "home")
        workspace = await known.open_stored_workspace(
            known.create_stored_workspace("bench", folder).id
        )
        checkpoints = Checkpoints(
            [folder],
            workspace.cache,
            coverage=CheckpointCoverage(most_files=0),
            file=base / "known",
        )
        try:
            return await _rows(files, folder, checkpoints)
        finally:
            await checkpoints.aclose()
            await workspace.aclose()
    finally:
        shutil.rmtree(base)


async def _rows(files: int, folder: Path, checkpoints: Checkpoints) -> list[Row]:
    name = f"{files:,} files"
    began = time.perf_counter()
    await checkpoints.ensure_first_check()
    first = 1000 * (time.perf_counter() - began)
    await checkpoints.check_for_changes(thorough=True)
    await asyncio.sleep(1)
    walks = []
    watched = []
    stash = []
    add = []
    for _ in range(RUNS):
        walks.append(await _took(checkpoints, thorough=True))
        watched.append(await _took(checkpoints, thorough=False))
        stash.append(_timed(lambda: _git(folder, "stash", "create")))
        add.append(_timed(lambda: _git(folder, "add", "-A")))
    peers = {"git stash create": Figure.of(stash), "git add -A": Figure.of(add)}
    slow = Figure.of(walks)
    quick = Figure.of(watched)
    git = max(peers["git stash create"].median, peers["git add -A"].median)
    asked_first = "at most 5 s" if files == 20_000 else ""
    return [
        Row(
            f"first checkpoint, {name}",
            "ms",
            Figure(first, first, first),
            {},
            asked_first,
            first <= FIRST or None,
        ),
        Row(
            f"unchanged by a walk, {name}",
            "ms",
            slow,
            peers,
            "at most 3 × git",
            slow.median <= UNCHANGED * git,
        ),
        Row(
            f"unchanged with the watcher, {name}",
            "ms",
            quick,
            {},
            "at most 20 ms",
            quick.median <= WATCHED,
        ),
        *await _room(folder, checkpoints, name),
    ]


async def _took(checkpoints: Checkpoints, *, thorough: bool) -> float:
    began = time.perf_counter()
    await checkpoints.check_for_changes(thorough=thorough)
    return 1000 * (time.perf_counter() - began)


async def _room(folder: Path, checkpoints: Checkpoints, name: str) -> list[Row]:
    """What steps, each with five changed files, add to the store, as a share of their
    contents compressed by themselves: the values, and with the keys and descriptions
    that every entry of the store has.
    """
    chance = random.Random(5)
    packer = zstandard.ZstdCompressor(level=1)
    paths = sorted(path for path in folder.rglob("*.py"))
    before = await _kept(checkpoints)
    alone = 0
    for number in range(STEPS):
        window = await checkpoints.begin_step("call", "conversation", "command")
        for path in chance.sample(paths, 5):
            content = _source(chance, 120) + b"# %d\n" % number
            path.write_bytes(content)
            alone += len(packer.compress(content))
        if window is not None:
            await checkpoints.end_step(window)
    shares = [
        (after - old) / alone for after, old in zip(await _kept(checkpoints), before, strict=True)
    ]
    names = f"room of a step, {name}", f"the same with keys and descriptions, {name}"
    return [
        Row(words, "× compressed", Figure(share, share, share), {}, "at most 1.1", share <= ROOM)
        for words, share in zip(names, shares, strict=True)
    ]


async def _kept(checkpoints: Checkpoints) -> tuple[int, int]:
    """Bytes of values, and of all that checkpoints take."""
    cache: Any = checkpoints.contents
    values = sum(record.kept for record in cache._folder.reader.records_after(0, 1 << 30))
    return values, int((await cache._index.measure_checkpoint_bytes())[1])


def _hunks() -> list[Row]:
    """A file of 10,000 lines of which 5,000 are others: its hunks."""
    before = b"".join(b"line %d\n" % n for n in range(10_000))
    after = b"".join(b"line %d%s\n" % (n, b"!" * (n % 2)) for n in range(10_000))
    return [
        Row(
            "hunks of 5,000 changed lines",
            "ms",
            Figure.of([_timed(lambda: find_hunks(before, after)) for _ in range(5)]),
        )
    ]


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "gc.auto=0", *arguments], cwd=folder, check=True, capture_output=True
    )


def _fill(folder: Path, files: int) -> None:
    chance = random.Random(7)
    for number in range(files):
        above = folder / f"p{number // 1000}" / f"m{number // 20 % 50}"
        if number % 20 == 0:
            above.mkdir(parents=True, exist_ok=True)
        (above / f"f{number}.py").write_bytes(_source(chance, 20 + number % 90))


def _source(chance: random.Random, lines: int) -> bytes:
    return b"".join(
        b"    value_%d = compute(%d, %r)\n" % (n, chance.randrange(10**6), b"name")
        for n in range(lines)
    )


if __name__ == "__main__":
    sizes = [int(each) for each in sys.argv[1:] if each.isdigit()]
    told = [row for size in sizes for row in asyncio.run(_measured(size))] or rows(
        quick="--quick" in sys.argv
    )
    for row in told:
        peers = ", ".join(f"{name} {figure.median:.1f}" for name, figure in row.peers.items())
        print(
            f"{row.name}: {row.ours.median:.2f} {row.unit} ({row.ours.least:.2f}-{row.ours.most:.2f}) {peers} {row.asked}"
        )
