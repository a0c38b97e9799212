"""Rows read from the pages of real SQLite files, whole and damaged."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.store.sqlite_salvage import Value, carve_rows

PAGE = 512


def write_rows(path: Path, count: int = 300) -> dict[int, tuple[Value, ...]]:
    """Rows of all kinds of values, some longer than a page."""
    chance = random.Random(3)
    rows: dict[int, tuple[Value, ...]] = {}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE}")
        connection.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, a, b, c, d, e)")
        for number in range(1, count + 1):
            text = chance.randbytes(chance.choice((3, 200, 900, 3000))).hex()
            whole = chance.choice((0, 1, -5, 200, 70_000, 1 << 40, -(1 << 60)))
            values = (whole, chance.random(), text, chance.randbytes(32), None)
            rows[number] = (None, *values)
            connection.execute("INSERT INTO rows VALUES(?, ?, ?, ?, ?, ?)", (number, *values))
        connection.commit()
    return rows


def carved(path: Path) -> dict[int, tuple[Value, ...]]:
    return {row.id: row.values for row in carve_rows(path, PAGE, {}, columns=6)}


def test_all_rows_of_a_whole_file_are_read(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.sqlite3")
    assert carved(tmp_path / "rows.sqlite3") == rows


@pytest.mark.parametrize("seed", range(10))
def test_a_zeroed_page_costs_only_the_rows_on_it(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "rows.sqlite3"
    rows = write_rows(path)
    content = bytearray(path.read_bytes())
    start = PAGE * random.Random(seed).randrange(len(content) // PAGE)
    content[start : start + PAGE] = bytes(PAGE)
    path.write_bytes(content)
    read = carved(path)
    lost = [number for number, values in rows.items() if read.get(number) != values]
    assert len(lost) <= 12


def test_a_newer_version_of_a_page_counts(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.sqlite3", count=3)
    content = (tmp_path / "rows.sqlite3").read_bytes()
    pages = {
        number: content[(number - 1) * PAGE : number * PAGE]
        for number in range(2, len(content) // PAGE + 1)
    }
    (tmp_path / "beginning").write_bytes(content[:PAGE])
    read = {row.id: row.values for row in carve_rows(tmp_path / "beginning", PAGE, pages, 6)}
    assert read == rows


def test_nonsense_and_a_missing_file_have_no_rows(tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_bytes(random.Random(1).randbytes(40 * PAGE))
    assert carved(tmp_path / "nonsense") == {}
    assert carved(tmp_path / "missing") == {}
