"""An update of the program over the workspace of the version before, killed at every
write, sync, rename and creation in turn.

    python -m tests.faults.migration [--trials 0] [--seed 1]      (0: every call)

The workspace is the kept one of version 1 with an index of the version before. The
program that opens it is this one with a next version of the journal, whose step makes a
table of every fact. Opened again after the kill, nothing is lost, it is up to date, and
the journal as it was stands beside it and opens by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from helix_desktop.store import journal_backups, journal_file
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.faults import shim
from tests.faults.store_load import Say, in_child, told
from tests.faults.store_report import report
from tests.old.make import HERE
from tests.old.test_old import check

FACTS = 29
NEXT = 2
STEP = "CREATE TABLE seen(id INTEGER PRIMARY KEY, fact TEXT NOT NULL); INSERT INTO seen SELECT id, fact FROM facts;"
LIVES = 3


def before(folder: Path) -> None:
    """The workspace as the version before left it."""
    with tarfile.open(HERE / "v1" / "workspace.tar.xz") as archive:
        archive.extractall(folder)  # noqa: S202 - our own file
    with closing(sqlite3.connect(folder / "old" / "index.sqlite3")) as index:
        index.execute("PRAGMA user_version=1")


def update() -> None:
    """Be the next version of the program from now on."""
    journal_file.VERSION = NEXT
    journal_file.STEPS[NEXT - 1] = STEP


def killed(folder: Path, at: int) -> bool:
    """Open it with the next version and be killed at a call. Whether there were so many."""

    def work(say: Say) -> None:
        update()
        shim.watch(folder)
        shim.kill(at)
        asyncio.run(_opened(folder))
        say("opened")

    child, reading = in_child(work)
    lines = told(reading)
    os.waitpid(child, 0)
    if raised := [line for line in lines if "RAISED" in line]:
        raise RuntimeError(raised[0])
    return "opened" not in lines


async def _opened(folder: Path) -> None:
    workspace = await AllWorkspaces(folder).open_stored_workspace("old")
    await workspace.index.wait_until_indexed()
    await workspace.aclose()


def lost(folder: Path) -> list[str]:
    """What is wrong after opening it once more."""

    def work(say: Say) -> None:
        update()
        for line in asyncio.run(_lost(folder)):
            say(line)

    child, reading = in_child(work)
    lines = told(reading)
    os.waitpid(child, 0)
    return lines


async def _lost(folder: Path) -> list[str]:
    workspace = await AllWorkspaces(folder).open_stored_workspace("old")
    await check(workspace)
    await workspace.aclose()
    wrong = []
    with closing(sqlite3.connect(folder / "old" / "journal.sqlite3")) as now:
        if now.execute("SELECT count(*) FROM seen").fetchone() != (FACTS,):
            wrong.append("the step was not taken as a whole")
        if now.execute("PRAGMA user_version").fetchone() != (NEXT,):
            wrong.append("it is not up to date")
    copies = [
        each for each in journal_backups.list_backups(folder / "old") if each.version == NEXT - 1
    ]
    if len(copies) != 1:
        return [*wrong, f"{len(copies)} copies of the journal as it was"]
    with closing(sqlite3.connect(copies[0].path)) as copy:
        if copy.execute("PRAGMA user_version").fetchone() != (NEXT - 1,):
            wrong.append("the copy is not of the version before")
        if copy.execute("SELECT count(*) FROM facts").fetchone() != (FACTS,):
            wrong.append("the copy lacks facts")
    return wrong


def trials(count: int, seed: int, found: Counter[str]) -> None:
    """Every call, or `count` of them by chance."""
    with tempfile.TemporaryDirectory(prefix="helix-migration-") as base:
        if not count:
            at = 1
            while any(trial(Path(base), at, found) for _ in range(LIVES)):
                at += 1
            return
        calls = next(at for at in range(50, 5_000, 50) if not trial(Path(base), at, Counter()))
        for at in random.Random(seed).sample(range(1, calls), min(count, calls - 1)):
            trial(Path(base), at, found)


def trial(base: Path, at: int, found: Counter[str]) -> bool:
    """Whether the life had so many calls."""
    folder = base / "home"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    before(folder)
    was_killed = killed(folder, at)
    for line in lost(folder):
        found[f"LOST at call {at}: {line}"] += 1
    found["killed" if was_killed else "went through"] += 1
    return was_killed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not shim.loaded():
        return shim.again("tests.faults.migration", sys.argv[1:])
    return report(
        "migration", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    raise SystemExit(main())
