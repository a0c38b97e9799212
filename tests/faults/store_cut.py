"""The last log of each store cut off at every length: the workspace opens with an
intact prefix of what was done.

    python -m tests.faults.store_cut [--trials 0] [--seed 1]      (0 means all, some minutes with TMPDIR=/dev/shm)

Every length of LevelDB's log, and every length of SQLite's log of a journal with small
pages (512 bytes: an eighth of the usual, and the log with them, whose form is the
same); besides, every 64th length of a journal's as the program makes it, with the
tables' own making in it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import NotFound
from tests.faults.store_load import NAME, Say, begin, home, in_child, told
from tests.faults.store_report import report
from tests.store.journal_damage import find_journal_damage

COUNT = 8
BATCH = 100  # trials of one process


def contents() -> list[bytes]:
    chance = random.Random(3)
    return [chance.randbytes(chance.choice((1, 40, 150))) for _ in range(COUNT)]


async def fill(folder: Path) -> None:
    """Entries and facts one after another, each on the disk before the next."""
    workspace = await home(folder).open_stored_workspace(NAME)
    for number, content in enumerate(contents()):
        await workspace.cache.store_content(content, EntryOrigin("shell"))
        await workspace.journal.append_to_journal("c", [UserSaid((Text(f"fact {number} " * 3),))])


async def kept(folder: Path) -> str:
    """How many of the entries and facts are there; "hole" where one is missing before another."""
    workspace = await home(folder).open_stored_workspace(NAME)
    entries = []
    for content in contents():
        try:
            entries.append(
                await workspace.cache.read_content(Digest.of_content(content)) == content
            )
        except NotFound:
            entries.append(False)
    facts = len(await workspace.journal.read_facts("c"))
    damage = await find_journal_damage(workspace)
    await workspace.cache.store_content(b"and on", EntryOrigin())
    await workspace.journal.append_to_journal("c", [UserSaid((Text("and on"),))])
    await workspace.aclose()
    whole = sum(entries)
    hole = not all(entries[:whole]) or bool(damage)
    return f"hole {entries} {damage}" if hole else f"{whole} {facts}"


@dataclass(frozen=True, slots=True, order=True)
class Cut:
    """A file of a killed workspace, by its name in there, and the length it is cut to."""

    killed: Path
    name: str
    length: int

    def __str__(self) -> str:
        return f"{self.name} ({self.killed.parents[1].name}) cut to {self.length}"


def trials(count: int, seed: int, found: Counter[str]) -> None:
    base = Path(tempfile.mkdtemp(prefix="helix-cut-"))
    try:
        cuts = [
            *_every_length(_filled(base / "small pages", pages=512)),
            *_some(_filled(base / "usual pages")),
        ]
        if count and count < len(cuts):
            cuts = sorted(random.Random(seed).sample(cuts, count))
        most: Counter[tuple[Path, str]] = Counter()
        for cut, said in zip(cuts, _said(base, cuts), strict=True):
            found["cuts"] += 1
            entries, facts = _numbers(said)
            here, other = (facts, entries) if cut.name.endswith("-wal") else (entries, facts)
            if other != COUNT or here < most[cut.killed, cut.name]:
                found[f"LOST {cut}: {said}"] += 1
            most[cut.killed, cut.name] = max(here, most[cut.killed, cut.name])
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _filled(folder: Path, *, pages: int = 0) -> Path:
    """A workspace whose process was killed after its last put; its own folder."""
    folder.mkdir()
    inside = folder / "workspaces" / begin(folder)
    if pages:
        with closing(sqlite3.connect(inside / "journal.sqlite3")) as connection:
            connection.executescript(f"PRAGMA page_size={pages}; VACUUM;")

    def work(_: Say) -> None:
        if pages:
            asyncio.run(_opened_once(folder))
        asyncio.run(fill(folder))
        os.kill(os.getpid(), signal.SIGKILL)

    child, reading = in_child(work)
    lines = told(reading)
    os.waitpid(child, 0)
    if lines:
        raise RuntimeError(lines)
    return inside


async def _opened_once(folder: Path) -> None:
    """So that the making of the tables is not in the log."""
    await (await home(folder).open_stored_workspace(NAME)).aclose()


def _every_length(killed: Path) -> list[Cut]:
    return [cut for name in _logs(killed) for cut in _cuts(killed, name, 1)]


def _some(killed: Path) -> list[Cut]:
    return _cuts(killed, _logs(killed)[1], 64)


def _logs(killed: Path) -> tuple[str, str]:
    """The names of LevelDB's and of SQLite's log."""
    return f"cache/{max(killed.glob('cache/*.log')).name}", "journal.sqlite3-wal"


def _cuts(killed: Path, name: str, step: int) -> list[Cut]:
    """Growing, from nothing to the whole."""
    size = (killed / name).stat().st_size
    return [Cut(killed, name, length) for length in (*range(0, size, step), size)]


def _said(base: Path, cuts: Sequence[Cut]) -> list[str]:
    """What `kept` said of each. Many in one process; where that dies, the one it died
    of says so, and the others go on.
    """
    said: list[str] = []
    while len(said) < len(cuts):
        lines = _tried(base / "trial", cuts[len(said) : len(said) + BATCH])
        whole = len(lines) == min(BATCH, len(cuts) - len(said)) or (
            lines and lines[-1].startswith("RAISED")
        )
        said += lines if whole else [*lines, "it died"]
    return said


def _tried(folder: Path, cuts: Sequence[Cut]) -> list[str]:
    shutil.rmtree(folder, ignore_errors=True)

    def work(say: Say) -> None:
        for cut in cuts:
            shutil.copytree(cut.killed.parents[1], folder)
            os.truncate(folder / "workspaces" / cut.killed.name / cut.name, cut.length)
            say(asyncio.run(kept(folder)))
            shutil.rmtree(folder)

    child, reading = in_child(work)
    lines = told(reading)
    os.waitpid(child, 0)
    return lines


def _numbers(said: str) -> tuple[int, int]:
    words = said.split()
    return (int(words[0]), int(words[1])) if len(words) == 2 and words[0].isdigit() else (-1, -1)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "cut", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    raise SystemExit(main())
