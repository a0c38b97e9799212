"""The last log of each store cut off at every length: the workspace opens with an intact prefix of what was done.

python -m tests.faults.store_cut [--trials 0] [--seed 1]      (0: every byte of LevelDB's log, every 64th of SQLite's)
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import About
from helix_desktop.errors import NotThere
from tests.faults.store_load import NAME, Say, begin, home, in_child, told
from tests.faults.store_report import report

COUNT = 12


def contents() -> list[bytes]:
    chance = random.Random(3)
    return [chance.randbytes(chance.choice((1, 40, 150))) for _ in range(COUNT)]


async def fill(folder: Path) -> None:
    """Entries and facts one after another, each on the disk before the next."""
    workspace = await home(folder).open(NAME)
    for number, content in enumerate(contents()):
        await workspace.cache.put(content, About("shell"))
        await workspace.journal.append("c", [UserSaid((Text(f"fact {number} " * 30),))])


async def kept(folder: Path) -> str:
    """How many of the entries and facts are there; "hole" where one is missing before another."""
    workspace = await home(folder).open(NAME)
    entries = []
    for content in contents():
        try:
            entries.append(await workspace.cache.get(Digest.of(content)) == content)
        except NotThere:
            entries.append(False)
    facts = len(await workspace.journal.read("c"))
    damage = await workspace.journal.damage()
    await workspace.cache.put(b"and on", About())
    await workspace.journal.append("c", [UserSaid((Text("and on"),))])
    await workspace.aclose()
    whole = sum(entries)
    hole = not all(entries[:whole]) or bool(damage)
    return f"hole {entries} {damage}" if hole else f"{whole} {facts}"


def trials(count: int, seed: int, found: Counter[str]) -> None:
    base = Path(tempfile.mkdtemp(prefix="helix-cut-"))
    try:
        workspace = _filled(base / "killed")
        cases = _cases(workspace)
        if count and count < len(cases):
            cases = sorted(random.Random(seed).sample(cases, count), key=lambda case: (case[0], case[1]))
        before: dict[str, int] = {}
        for name, length in cases:
            said = _cut(base, workspace, name, length)
            found["cuts"] += 1
            entries, facts = _numbers(said)
            here, other = (facts, entries) if name.endswith("-wal") else (entries, facts)
            if other != COUNT or here < before.get(name, 0):
                found[f"LOST {name} cut to {length}: {said}"] += 1
            before[name] = max(here, before.get(name, 0))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _filled(folder: Path) -> Path:
    folder.mkdir()
    name = begin(folder)

    def work(_: Say) -> None:
        asyncio.run(fill(folder))
        os.kill(os.getpid(), signal.SIGKILL)

    child, reading = in_child(work)
    lines = told(reading)
    os.waitpid(child, 0)
    if lines:
        raise RuntimeError(lines)
    return folder / "workspaces" / name


def _cases(workspace: Path) -> list[tuple[str, int]]:
    """The file and the length it is cut to, growing."""
    log = max(workspace.glob("cache/*.log"))
    wal = workspace / "journal.sqlite3-wal"
    return [
        *((f"cache/{log.name}", length) for length in range(log.stat().st_size + 1)),
        *((wal.name, length) for length in (*range(0, wal.stat().st_size, 64), wal.stat().st_size)),
    ]


def _cut(base: Path, workspace: Path, name: str, length: int) -> list[str]:
    folder = base / "trial"
    shutil.copytree(base / "killed", folder)
    os.truncate(folder / "workspaces" / workspace.name / name, length)

    def work(say: Say) -> None:
        say(asyncio.run(kept(folder)))

    child, reading = in_child(work)
    lines = told(reading)
    os.waitpid(child, 0)
    shutil.rmtree(folder)
    return lines


def _numbers(said: list[str]) -> tuple[int, int]:
    words = said[0].split() if said else []
    return (int(words[0]), int(words[1])) if len(words) == 2 and words[0].isdigit() else (-1, -1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report("cut", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found))


if __name__ == "__main__":
    raise SystemExit(main())
