"""A number of a workspace's tables made as large as its bytes allow: opening stays quick.

    python -m tests.faults.store_numbers [--trials 0] [--seed 1]      (0 means all)

A flipped bit in a length or a place can make millions of a small number. Each integer of each
table of the journal and of the index, in its first and its last row, becomes each of some values.
The workspace is then opened, read and checked twice, with a limit for memory and time: what it
says of the damage may be anything but a wrong byte, and it must say it.
"""

# ruff: noqa: S608 -- the names are those of our own tables

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.errors import HelixError
from tests.faults.store_bits import Truth, _is_whole, prepare
from tests.faults.store_load import NAME, Say, home, in_child, told
from tests.faults.store_report import report

VALUES = (-1, 0, 1 << 24, 1 << 40, (1 << 63) - 1)
MOST_SECONDS = 60
MOST_BYTES = 4 << 30  # LevelDB and SQLite map their files; 500 MB are in use without any harm.
FILES = ("journal.sqlite3", "index.sqlite3")


@dataclass(frozen=True)
class NumberHarm:
    file: str
    table: str
    column: str
    order: str
    value: int

    def __str__(self) -> str:
        return f"{self.column} of {self.table} in {self.file}, {self.order} row, {self.value}"

    def apply(self, workspace: Path) -> None:
        path = next(workspace.rglob(self.file))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            first = f"SELECT rowid FROM {self.table} ORDER BY rowid {self.order} LIMIT 1"
            connection.execute(
                f"UPDATE OR REPLACE {self.table} SET {self.column} = ? WHERE rowid = ({first})",
                (self.value,),
            )


def list_harms(workspace: Path) -> Iterator[NumberHarm]:
    for file in FILES:
        path = next(workspace.rglob(file))
        with closing(sqlite3.connect(path)) as connection:
            tables = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
                " AND sql NOT LIKE '%WITHOUT ROWID%'"
            ).fetchall()
            for (table,) in tables:
                for column, kind in connection.execute(
                    f"SELECT name, type FROM pragma_table_info('{table}')"
                ).fetchall():
                    if kind.upper() in ("INTEGER", ""):
                        for order in ("ASC", "DESC"):
                            for value in VALUES:
                                yield NumberHarm(file, table, column, order, value)


async def open_and_read(folder: Path, truth: Truth, say: Say) -> None:
    for _ in range(2):  # Some damage is met only when it is read, and mended at the next opening.
        try:
            workspace = await home(folder).open_stored_workspace(NAME)
        except HelixError as error:
            say(f"refused: {error}")
            continue
        for digest, content in truth.entries.items():
            if not await _is_whole(workspace, digest, content, say):
                say(f"LOST CONTENT {digest}")
        for row in await workspace.journal.list_conversations():
            try:
                for recorded in await workspace.journal.read_facts(row.id):
                    known = truth.facts.get((row.id, recorded.seq))
                    if known is not None and known != recorded:
                        say(f"WRONG fact {row.id} {recorded.seq}")
            except HelixError:
                continue
        await workspace.cache.verify_cache()
        await workspace.index.search_index("zebra", limit=20)
        await workspace.aclose()
    say("done")


def trials(count: int, seed: int, found: Counter[str]) -> None:
    base = Path(tempfile.mkdtemp(prefix="helix-numbers-"))
    try:
        truth = prepare(base, seed)
        harms = list(list_harms(base / "closed"))
        if count and count < len(harms):
            harms = random.Random(seed).sample(harms, count)
        for harm in harms:
            folder = base / "trial"
            shutil.copytree(base / "closed", folder)
            try:
                harm.apply(folder)
            except sqlite3.Error:
                found["not possible"] += 1
            else:
                found["harms"] += 1
                for line in _tried(folder, truth):
                    found[f"LOST {harm}: {line}"] += 1
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _tried(folder: Path, truth: Truth) -> list[str]:
    def work(say: Say) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        signal.alarm(MOST_SECONDS)
        asyncio.run(open_and_read(folder, truth, say))

    child, reading = in_child(work)
    lines = told(reading)
    _, status = os.waitpid(child, 0)
    if status or lines[-1:] != ["done"]:
        return [*lines, f"ended with status {status}"]
    return [line for line in lines if not line.startswith(("done", "refused: "))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "numbers", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    raise SystemExit(main())
