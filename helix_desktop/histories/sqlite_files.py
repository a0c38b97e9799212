"""Reading the databases of other programs while those are running: never written to, and never waited for."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from helix_desktop.histories.rows import Row, Told

HEAD = b"SQLite format 3\0"


def is_one(path: Path) -> bool:
    """Whether it is a database of SQLite."""
    try:
        with path.open("rb") as file:
            return file.read(len(HEAD)) == HEAD
    except OSError:
        return False


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """For reading alone. sqlite3.Error where it is damaged."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=2.0)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        yield connection


def tables(connection: sqlite3.Connection) -> frozenset[str]:
    return frozenset(row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))


def rows(connection: sqlite3.Connection, query: str, values: Sequence[object] = ()) -> Iterator[Mapping[str, object]]:
    """What a query gives, by the names of the columns."""
    for row in connection.execute(query, tuple(values)):
        yield dict(zip(row.keys(), tuple(row), strict=True))


def read(
    connection: sqlite3.Connection, query: str, values: Sequence[object], told: Told
) -> list[Mapping[str, object]]:
    """The same, up to where the database is damaged; a sentence says so."""
    found: list[Mapping[str, object]] = []
    try:
        found.extend(rows(connection, query, values))
    except (sqlite3.Error, OverflowError) as error:
        told.complaints.append(f"The database is damaged: {error}; what was read before it was taken.")
    return found


def parsed(text: object, place: str, told: Told) -> Row | None:
    """The JSON object in a column; None, and a sentence, where it is none."""
    try:
        value = json.loads(text) if isinstance(text, str | bytes) else text
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, Mapping):
        return Row(value, place)
    told.complaints.append(f"{place}: this is not a JSON object; it was left out.")
    return None
