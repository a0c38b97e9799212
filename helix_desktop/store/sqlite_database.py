"""How both of our databases use SQLite: one way to open, to write, and to report failures."""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from helix_desktop.errors import StoreBusy, StoreFailed, StoreFull, WrittenByNewerVersion

ROWS_IN_STATEMENT = 128  # A statement inserts at most this many rows.
FEW_ROWS = 16  # So few rows are never split.
_SIGNS_OF_DAMAGED_SCHEMA = (
    "no such ", "malformed ", "table ", "Could not decode", "near ", "unknown ",
    "vtable constructor", "fts5: corrupt",
)  # fmt: skip


def connect_database(
    path: Path, corrupt: type[StoreFailed], name: str, *, synchronous: str = "FULL"
) -> sqlite3.Connection:
    """Open a connection for one thread at a time, in the mode in which SQLite writes changes to a
    log beside the file (WAL). Deleted data is overwritten, as users may have asked to forget it.
    """
    with SqliteErrors(corrupt, name):
        # A new file is made for this user alone. SQLite gives its log the same mode, and reports
        # errors better than we would.
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=5.0, check_same_thread=False
        )
        try:
            # Small pages, since a new fact changes at least four. Only new files get this size.
            page_size = 1024
            if synchronous == "FULL":
                page_size = 512
            connection.execute(f"PRAGMA page_size={page_size}")
            connection.execute("PRAGMA wal_autocheckpoint=4000")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("PRAGMA cell_size_check=ON")
            connection.execute("PRAGMA cache_size=-1000")
        except sqlite3.Error:
            connection.close()
            raise
    return connection


def connect_read_only(path: Path, corrupt: type[StoreFailed], name: str) -> sqlite3.Connection:
    """Connect without writing anything, even beside the file; also reads a killed program's log."""
    option = "immutable"
    if path.with_name(f"{path.name}-wal").exists():
        # SQLite would not read the log of a file that never changes.
        option = "readonly_shm"
    address = f"{path.absolute().as_uri()}?mode=ro&{option}=1"
    with SqliteErrors(corrupt, name):
        return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)


def prepare_schema(
    connection: sqlite3.Connection, schema: str, *, application: int, version: int, name: str
) -> None:
    """Create the tables of a new database, or refuse a newer one. Errors close the connection."""
    try:
        with SqliteErrors(StoreFailed, name):
            known = schema_version(connection)
            if known == 0:
                connection.executescript(
                    f"BEGIN IMMEDIATE; {schema} PRAGMA application_id={application}; PRAGMA user_version={version}; COMMIT;"
                )
        if known > version:
            raise WrittenByNewerVersion(
                f"This {name} was written by a newer version of Helix Desktop (format version {known})."
            )
    except StoreFailed:
        connection.close()
        raise


def build_upsert(table: str, columns: Sequence[str]) -> str:
    """Build an upsert that, unlike REPLACE, keeps the key's index entry, which saves a
    page per write.
    """
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    values = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} VALUES({values}) ON CONFLICT({columns[0]}) DO UPDATE SET {changes}"


def execute_with_rows(
    connection: sqlite3.Connection, before: str, rows: Sequence[Sequence[object]], behind: str = ""
) -> list[tuple[Any, ...]]:
    """Run a statement for many rows at once, since each statement waits for the interpreter."""
    results: list[tuple[Any, ...]] = []
    start = 0
    while start < len(rows):
        row_count = _choose_row_count(len(rows) - start)
        batch = rows[start : start + row_count]
        start += row_count
        marks_of_row = ", ".join("?" * len(batch[0]))
        marks = ", ".join([f"({marks_of_row})"] * row_count)
        values: list[object] = []
        for row in batch:
            values += row
        results += connection.execute(f"{before} VALUES {marks} {behind}", values).fetchall()
    return results


def _choose_row_count(rows_left: int) -> int:
    """Return how many rows the next statement has. A connection keeps statements, of up to
    400 KB each, so there are few sizes: up to 15, 16, 32, 64 and 128.
    """
    most_rows = min(rows_left, ROWS_IN_STATEMENT)
    if most_rows < FEW_ROWS:
        return most_rows
    highest_bit = most_rows.bit_length() - 1
    return int(2**highest_bit)


def schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade_older_schema(
    connection: sqlite3.Connection, steps: Mapping[int, str], version: int, name: str
) -> None:
    """Upgrade the tables of an older version in one transaction: completely or, if
    interrupted, not at all.

    `steps`: by version, the SQL that leads to the next. Closes the connection on errors.
    """
    try:
        with SqliteErrors(StoreFailed, name):
            known = schema_version(connection)
            if known < version:
                script = " ".join(steps[number] for number in range(known, version))
                connection.executescript(
                    f"BEGIN IMMEDIATE; {script} PRAGMA user_version={version}; COMMIT;"
                )
    except StoreFailed:
        connection.close()
        raise


def find_database_defects(connection: sqlite3.Connection, name: str) -> Iterator[str]:
    """Yield what SQLite's own check finds, in sentences."""
    try:
        for (message,) in connection.execute("PRAGMA integrity_check(20)"):
            if message != "ok":
                yield f"The {name}'s database is damaged: {message}."
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        yield f"The {name}'s database is damaged: {error}."


class SqliteErrors:
    """Turns SQLite's errors within a `with` block into ours. `corrupt`: the error that says that the
    file is damaged. `name`: what the user calls this file.
    """

    def __init__(self, corrupt: type[StoreFailed], name: str) -> None:
        self._corrupt = corrupt
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
            raise convert_sqlite_error(error, self._corrupt, self._name) from error


class SqliteTransaction(SqliteErrors):
    """A transaction that any error undoes. Inside another one, it is a part of that."""

    def __init__(
        self, connection: sqlite3.Connection, corrupt: type[StoreFailed], name: str
    ) -> None:
        super().__init__(corrupt, name)
        self._connection = connection
        self._joined = False

    def __enter__(self) -> None:
        with SqliteErrors(self._corrupt, self._name):
            self._joined = self._connection.in_transaction
            if not self._joined:
                self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or undo everything if there was an error. A part of another transaction leaves
        that to it.
        """
        if self._joined:
            super().__exit__(kind, error, trace)
            return
        if error is not None:
            self._roll_back_transaction()
            super().__exit__(kind, error, trace)
            return
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as failed:
            self._roll_back_transaction()
            raise convert_sqlite_error(failed, self._corrupt, self._name) from failed

    def _roll_back_transaction(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection.close()  # At the next opening, SQLite itself rolls back.


def convert_sqlite_error(error: Exception, corrupt: type[StoreFailed], name: str) -> StoreFailed:
    """Say what an error of SQLite means: the disk is full, another process has the file, or the
    file is damaged, which is a `corrupt`. `name`: what the user calls this file.
    """
    extended_code = getattr(error, "sqlite_errorcode", 0)
    code = extended_code & 0xFF  # The kind of error; the other bits say more about it.
    # The second code means that the disk is too full even to open the database.
    if code == sqlite3.SQLITE_FULL or extended_code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StoreFull(
            f"The {name} could not be written: the disk is full.",
            remedy="Free up disk space and try again.",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"The {name} is in use by another process.", remedy="Close the other program first."
        )
    # Our SQL never changes, so an unknown table or column means a damaged schema.
    is_schema_damaged = isinstance(error, UnicodeDecodeError) or str(error).startswith(
        _SIGNS_OF_DAMAGED_SCHEMA
    )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or is_schema_damaged:
        return corrupt(
            f"The {name}'s file is damaged ({error}).",
            remedy="Open the workspace again to repair it.",
        )
    return StoreFailed(
        f"The {name} could not be read or written: {error}.",
        remedy="Check the disk, then try again.",
    )


def sync_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def scrub_database(connection: sqlite3.Connection) -> None:
    """Rewrite the file and empty its log, so that neither contains deleted data."""
    connection.execute("VACUUM")
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise sqlite3.OperationalError("somebody else reads it, so its log could not be emptied")
