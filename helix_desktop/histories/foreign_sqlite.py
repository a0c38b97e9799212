"""Reading the databases of other programs while those are running: never written to, and never waited for.

A database can hold programs: views that never end, triggers, virtual tables, columns that are calculated. Only real tables are read, and a
statement that works too long is ended.
"""

import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from helix_desktop.histories.history_rows import HistoryRow, ReadingComplaints
from helix_desktop.json_values import parse_json_or_none

HEAD = b"SQLite format 3\0"
STEPS = 10_000  # How many steps of its virtual machine SQLite runs between two checks of the limit.
MOST_LOOKS = 40_000  # The most checks in one statement: some seconds, enough for millions of rows.
LONGEST_VALUE = 256 << 20
_CATALOGUE = frozenset({"sqlite_master", "sqlite_schema"})
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})


def is_sqlite_file(path: Path) -> bool:
    try:
        if not path.is_file():  # Opening a pipe would wait for ever.
            return False
        with path.open("rb") as file:
            return file.read(len(HEAD)) == HEAD
    except OSError:
        return False


@contextmanager
def open_foreign_database(path: Path) -> Iterator[sqlite3.Connection]:
    """For reading real tables only. sqlite3.Error where it is damaged, or needs anything else."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=2.0)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
            connection.execute(f"PRAGMA {setting}")
        _begin(connection)
        real = table_names(connection)

        def judge(
            action: int, table: str | None, _column: str | None, _database: str | None, inside: str | None
        ) -> int:
            """`inside`: the view or trigger that wants it."""
            is_known = action != sqlite3.SQLITE_READ or table in real or table in _CATALOGUE
            return sqlite3.SQLITE_OK if action in _ALLOWED and is_known and inside is None else sqlite3.SQLITE_DENY

        connection.set_authorizer(judge)
        yield connection


def copy_foreign_database(path: Path, target: sqlite3.Connection) -> None:
    """All of it at one moment, also while its program writes."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=2.0)) as source:
        source.backup(target)
    target.execute("PRAGMA journal_mode = DELETE")  # Makes the copy a single file.


def _begin(connection: sqlite3.Connection) -> None:
    """The next statement may work as long as any."""
    looks = itertools.count(1)
    connection.set_progress_handler(lambda: next(looks) > MOST_LOOKS, STEPS)


def table_names(connection: sqlite3.Connection) -> frozenset[str]:
    """The real ones: virtual tables have no page of their own."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    return frozenset(row[0] for row in connection.execute(query))


def query_rows(
    connection: sqlite3.Connection, query: str, values: Sequence[object] = ()
) -> Iterator[Mapping[str, object]]:
    """What a query gives, by the names of the columns."""
    _begin(connection)
    for row in connection.execute(query, tuple(values)):
        yield dict(zip(row.keys(), tuple(row), strict=True))


def query_until_damage(
    connection: sqlite3.Connection, query: str, values: Sequence[object], told: ReadingComplaints
) -> list[Mapping[str, object]]:
    """The same, up to where the database is damaged; a sentence says so."""
    found: list[Mapping[str, object]] = []
    try:
        found.extend(query_rows(connection, query, values))
    except (sqlite3.Error, OverflowError) as error:
        told.complaints.append(f"The database is damaged: {error}; what was read before it was taken.")
    return found


def parse_json_column(text: object, place: str, told: ReadingComplaints) -> HistoryRow | None:
    """The JSON object in a column; None, and a sentence, where it is none."""
    value = parse_json_or_none(text) if isinstance(text, str | bytes) else text
    if isinstance(value, Mapping):
        return HistoryRow(value, place)
    told.complaints.append(f"{place}: this is not a JSON object; it was left out.")
    return None
