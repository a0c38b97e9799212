"""Reads databases of programs that may be running, and never writes to them or waits for them.

A database can contain code: endless views, triggers, virtual tables, calculated
columns. A few bytes can also pretend to be a great deal: one page below many others, a
long default for every row, a log of a trillion pages. So only real tables are read, all
statements together have limits, and Python sorts the rows, since SQLite would write
files for it.
"""

import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from helix_desktop.histories import unknown_shapes
from helix_desktop.histories.history_rows import NOT_JSON, HistoryRow, ReadingReport
from helix_desktop.json_values import parse_json_or_none

HEAD = b"SQLite format 3\0"
STEPS = 1_000  # We check the time limit after this many steps of SQLite's virtual machine.
# SQLite may take so many steps to read the list of tables: enough for about 14,000.
MOST_SCHEMA_STEPS = 100_000
LONGEST_SECONDS = 60.0  # The processor time for all statements on one database together.
LONGEST_VALUE = 256 << 20  # In bytes.
LONGEST_DEFINITION = 1 << 20  # In bytes. A definition is a table's SQL.
# Queries that find ordinary tables (virtual tables have no root page) and generated columns.
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
_CALCULATED = "SELECT t.name, c.name FROM sqlite_master t, pragma_table_xinfo(t.name) c WHERE t.type = 'table' AND c.hidden > 1"
_CATALOGUE = frozenset({"sqlite_master", "sqlite_schema"})
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})


class ForeignConnection(sqlite3.Connection):
    """A connection with limits for all its statements together. `bytes_left`: for
    values in rows.
    """

    seconds_left: float
    bytes_left: int

    def limit_time_of_next_statement(self) -> float:
        """Give the next statement only the time left. Return the thread's processor time so far."""
        start = time.thread_time()
        end = start + self.seconds_left
        # SQLite ends the statement once the handler returns True.
        self.set_progress_handler(lambda: time.thread_time() > end, STEPS)
        return start


def is_sqlite_file(path: Path) -> bool:
    try:
        if not path.is_file():  # Opening a pipe would block.
            return False
        with path.open("rb") as file:
            return file.read(len(HEAD)) == HEAD
    except OSError:
        return False


def connect_foreign_database(
    path: Path, mode: str = "ro", timeout: float = 2.0
) -> ForeignConnection:
    """Open a connection with limits. Raises sqlite3.Error if one of the database's
    files is a link.
    """
    size = _check_files_of_database(path, is_read_only=mode == "ro")
    address = f"file:{quote(str(path))}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, timeout=timeout, factory=ForeignConnection)
    connection.seconds_left = LONGEST_SECONDS
    connection.bytes_left = 4 * size
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(LONGEST_VALUE, size + LONGEST_DEFINITION))
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, LONGEST_DEFINITION)
    connection.set_progress_handler(lambda: True, MOST_SCHEMA_STEPS)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _check_files_of_database(path: Path, *, is_read_only: bool) -> int:
    """Return the size of the database and of what SQLite has written beside it. Raises
    sqlite3.Error if writing these files could change others.
    """
    size = 0
    for ending in ("", "-wal", "-shm", "-journal"):
        name = path.name + ending
        try:
            if ending:
                status = path.with_name(name).lstat()
            else:  # The database itself may be reached through a link.
                status = path.stat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(status.st_mode):
            raise sqlite3.DatabaseError(f"{name} is a link")
        # SQLite writes the "-shm" file even for a reader.
        is_written = ending == "-shm" or (ending != "" and not is_read_only)
        has_other_names = status.st_nlink > 1
        if is_written and has_other_names:
            raise sqlite3.DatabaseError(f"{name} is a link")
        if ending == "-journal" and not is_read_only:  # It could make SQLite delete any file.
            raise sqlite3.DatabaseError(f"a crash left {name}")
        size += status.st_size
    return size


def deny_triggers_and_views(_action: int, _first: str | None, _second: str | None, _database: str | None, inside: str | None) -> int:  # fmt: skip
    """Deny any access from inside a trigger or view (`inside`), because it may never end."""
    if inside is not None:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


@contextmanager
def open_foreign_database(path: Path) -> Iterator[ForeignConnection]:
    """Open a database so that only real tables can be read. Raises sqlite3.Error for damage."""
    with closing(connect_foreign_database(path)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for setting in ("query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
            connection.execute(f"PRAGMA {setting}")
        ordinary_tables = ordinary_table_names(connection)
        calculated_columns = {tuple(row) for row in connection.execute(_CALCULATED)}

        def authorize(
            action: int,
            table: str | None,
            column: str | None,
            _schema: str | None,
            view: str | None,
        ) -> int:
            """Decide what a statement may do. `view`: the view or trigger that wants this."""
            if action == sqlite3.SQLITE_READ and (table, column) in calculated_columns:
                return sqlite3.SQLITE_IGNORE  # The column reads as NULL.
            if view is not None or action not in _ALLOWED:
                return sqlite3.SQLITE_DENY
            is_readable = table in ordinary_tables or table in _CATALOGUE
            if action == sqlite3.SQLITE_READ and not is_readable:
                return sqlite3.SQLITE_DENY
            return sqlite3.SQLITE_OK

        connection.set_authorizer(authorize)
        yield connection


def copy_foreign_database(path: Path, target: Path, limit_bytes: int) -> None:
    """Copy a database at one moment, even while it is in use. Raises sqlite3.Error
    above `limit_bytes` bytes.
    """
    with (
        closing(connect_foreign_database(path)) as source,
        closing(connect_foreign_database(target, "rwc")) as copy,
    ):
        source.execute("BEGIN")
        (pages,) = source.execute("PRAGMA page_count").fetchone()
        (page_size,) = source.execute("PRAGMA page_size").fetchone()
        if pages * page_size > limit_bytes:
            raise sqlite3.DatabaseError("it is too large to be copied")
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # Without WAL, the copy is a single file.


def ordinary_table_names(connection: sqlite3.Connection) -> frozenset[str]:
    return frozenset(row[0] for row in connection.execute(_TABLES))


def count_table_rows(path: Path) -> Mapping[str, int]:
    with open_foreign_database(path) as connection:
        return count_rows_of_tables(connection, ordinary_table_names(connection))


def count_rows_of_tables(connection: ForeignConnection, tables: Iterable[str]) -> dict[str, int]:
    """Return how many rows each of these tables has. Raises sqlite3.Error for a damaged one."""
    row_counts: dict[str, int] = {}
    for table in tables:
        quoted_name = table.replace('"', '""')
        query = f'SELECT count(*) AS count FROM "{quoted_name}"'  # noqa: S608 -- a quoted name
        (row,) = query_rows(connection, query)
        row_counts[table] = int(str(row["count"]))
    return row_counts


def note_unknown_tables_and_columns(connection: ForeignConnection, report: ReadingReport) -> None:
    """Note what the program of this report was not seen to have in its database. This reads no
    content.
    """
    tables = ordinary_table_names(connection)
    unknown = unknown_shapes.unknown_tables(report.shape, tables)
    report.note_unknown_tables(count_rows_of_tables(connection, unknown))
    for table in unknown_shapes.list_tables_with_known_columns(report.shape):
        if table in tables:
            columns = _column_names(connection, table)
            unknown = unknown_shapes.unknown_columns(report.shape, table, columns)
            report.note_unknown_columns(table, unknown)


def _column_names(connection: ForeignConnection, table: str) -> list[str]:
    quoted_name = table.replace('"', '""')
    query = f'SELECT * FROM "{quoted_name}" LIMIT 0'  # noqa: S608 -- a quoted name
    return [str(column[0]) for column in connection.execute(query).description]


def query_rows(
    connection: ForeignConnection, query: str, values: Sequence[object] = ()
) -> Iterator[Mapping[str, object]]:
    """Yield the rows of a query by column. Raises sqlite3.Error at the connection's limits."""
    start = connection.limit_time_of_next_statement()
    try:
        for row in connection.execute(query, tuple(values)):
            for value in row:
                if isinstance(value, str | bytes):
                    connection.bytes_left -= len(value)
            if connection.bytes_left < 0:
                raise sqlite3.DatabaseError("it claims to hold more than its file can")
            yield dict(zip(row.keys(), tuple(row), strict=True))
    finally:
        connection.seconds_left -= time.thread_time() - start


def query_until_damage(
    connection: ForeignConnection,
    query: str,
    values: Sequence[object],
    report: ReadingReport,
    order: Sequence[str],
) -> list[Mapping[str, object]]:
    """Return the rows up to the first damage, sorted by the columns `order`. Damage is reported."""
    rows: list[Mapping[str, object]] = []
    try:
        rows.extend(query_rows(connection, query, values))
    except (sqlite3.Error, OverflowError) as error:
        report.is_damaged = True
        report.complaints.append(
            f"The database is damaged: {error}; what was read before it was taken."
        )
    # Sorted here and not by SQLite, which would return nothing of a damaged table.
    rows.sort(key=lambda row: [_sort_key(row.get(name)) for name in order])
    return rows


def _sort_key(value: object) -> tuple[int, object]:
    """Return a key that sorts like SQLite: NULL, then numbers, texts and bytes."""
    if value is None:
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    if isinstance(value, str):
        return 2, value
    return 3, value


def parse_json_column(value_text: object, place: str, report: ReadingReport) -> HistoryRow | None:
    """Return the JSON object in a column, or report that there is none and return None."""
    value = value_text
    if isinstance(value_text, str | bytes):
        value = parse_json_or_none(value_text)
    if isinstance(value, Mapping):
        return HistoryRow(value, place)
    raw = value_text
    if not isinstance(raw, bytes):
        raw = str(value_text).encode("utf-8", "replace")
    report.complain_about_row(HistoryRow({}, place, raw + b"\n"), NOT_JSON)
    return None
