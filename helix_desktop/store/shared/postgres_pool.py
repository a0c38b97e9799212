"""Connections to PostgreSQL: one pool for each database, however many workspaces use it.

A pooler such as PgBouncer may give each transaction another connection to the server.
So connections keep no state: no prepared statements, and settings last one transaction.
A transaction is one pipeline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from helix_desktop.errors import WrittenByNewerVersion
from helix_desktop.resources import read_schema, read_sql_statements

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]
    Cursor = psycopg.Cursor[tuple[Any, ...]]

STEPS = tuple(read_schema("shared_store").split("-- Next step\n"))
VERSION = len(STEPS)
_SQL = read_sql_statements("shared_pool_statements")
TIMELINE = _SQL["timeline"]
_LOCK = 0x48454C4958  # "HELIX" in bytes: only one machine at a time may change tables.


def prepare_tables(connection: Connection) -> None:
    """Create the tables or upgrade them. Raises WrittenByNewerVersion if a newer program did."""
    version = _version_of_tables(connection)
    if version > VERSION:
        raise WrittenByNewerVersion(
            f"The shared store has tables from a newer version of Helix Desktop ({version})."
        )
    if version < VERSION:
        _upgrade_tables(connection)
    create_month_partitions(connection)


def _rows_of_statement(cursor: Cursor) -> list[tuple[Any, ...]]:
    if cursor.description is None:  # Such a statement has no rows to fetch.
        return []
    return cursor.fetchall()


def _version_of_tables(connection: Connection) -> int:
    if connection.execute(_SQL["there"].encode()).fetchone() is None:
        return 0
    row = connection.execute("SELECT version FROM helix.version").fetchone()
    if row is None:
        return 0
    return int(row[0])


def _upgrade_tables(connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = _version_of_tables(connection)
        if version == 0:
            connection.execute("CREATE SCHEMA IF NOT EXISTS helix")
            connection.execute("CREATE TABLE helix.version(version int NOT NULL)")
            connection.execute("INSERT INTO helix.version VALUES (0)")
        for step in STEPS[version:]:
            connection.execute(step.encode())
        connection.execute("UPDATE helix.version SET version = %s", (VERSION,))


def create_month_partitions(connection: Connection) -> None:
    """Create the partitions of this month and the next, by the engine's clock."""
    rows = connection.execute(
        "SELECT to_char(m, 'YYYY_MM'), m::date::text, (m + interval '1 month')::date::text"
        " FROM generate_series(date_trunc('month', now() AT TIME ZONE 'UTC'), now() AT TIME ZONE 'UTC'"
        " + interval '1 month', interval '1 month') AS m WHERE to_regclass('helix.rows_' || to_char(m, 'YYYY_MM')) IS NULL"
    ).fetchall()
    for name, first, end in rows:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            statement = (
                f"CREATE TABLE IF NOT EXISTS helix.rows_{name} PARTITION OF helix.rows"
                f" FOR VALUES FROM ('{first}') TO ('{end}')"
            )
            connection.execute(statement.encode())


# psycopg raises a failed pipeline's error, but also logs it, which is unnecessary.
logging.getLogger("psycopg").setLevel(logging.ERROR)

T = TypeVar("T")
MOST_CONFLICTS = 5  # So often a transaction is run again that waited for another in a circle.
_CONFLICT = "40"  # The class of SQLSTATE for deadlocks and rollbacks.
Statement = tuple[str, Sequence[Any]]
Rows = list[tuple[Any, ...]]
# SQLSTATE: the month has no partition; this server is now a standby.
_ANOTHER_MONTH = "23514"
_NOT_HERE = "25006"
_pools: dict[str, PostgresPool] = {}
_pools_lock = threading.Lock()


class UnconfirmedCommit(Exception):
    """No standby confirmed a transaction. Only raised to the row store."""


class PoolTransaction:
    """A transaction that has begun on a connection of the pool."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run_all(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements in one round trip, and return each one's rows."""
        cursors = []
        with self.connection.pipeline():
            for text, values in statements:
                cursors.append(self.connection.execute(text.encode(), values, binary=True))
        rows_of_statements: list[Rows] = []
        for cursor in cursors:
            rows: Rows = []
            if cursor.description:  # Without it, the statement was one that returns no rows.
                rows = cursor.fetchall()
            rows_of_statements.append(rows)
        return rows_of_statements


class PostgresPool:
    """The connections to one database, as many as calls run at once. `psycopg` is the module."""

    def __init__(self, psycopg: Any, arguments: dict[str, Any]) -> None:
        self._psycopg = psycopg
        self._arguments = arguments
        self._free: list[Connection] = []
        self._lock = threading.Lock()
        self._is_prepared = False
        # Connections whose last commit no standby has confirmed.
        self._unconfirmed: set[int] = set()
        self.users = 0

    def run_in_transaction(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements in one transaction, and return each one's rows.

        A free connection may have been lost since its last use; then the next one is taken, and at
        last a new one. All calls may be repeated, so a statement that was run is run again.
        """
        connection = self._pop_free_connection()
        while connection is not None:
            try:
                return self._run_pipeline(connection, statements)
            except self._psycopg.Error as error:
                if not self._is_connection_lost(error) and not self._must_prepare_again(error):
                    raise
            connection = self._pop_free_connection()
        return self._run_pipeline(self._open_postgres_connection(), statements)

    def run_work_in_transaction(self, work: Callable[[PoolTransaction], T]) -> T:
        """Run a function in one transaction, which commits when the function returns. It
        is run again after a lost connection, or if two transactions waited for each other.
        """
        for _ in range(MOST_CONFLICTS):
            free_connection = self._pop_free_connection()
            connection = free_connection or self._open_postgres_connection()
            try:
                return self._run_work(connection, work)
            except self._psycopg.Error as error:
                is_conflict = (error.sqlstate or "").startswith(_CONFLICT)
                if is_conflict:
                    continue
                # A connection that was free may have been lost since its last use.
                is_outdated = self._is_connection_lost(error) or self._must_prepare_again(error)
                if free_connection is None or not is_outdated:
                    raise
        return self._run_work(self._open_postgres_connection(), work)

    def _run_work(self, connection: Connection, work: Callable[[PoolTransaction], T]) -> T:
        """Run `work` in one transaction. After any error the connection is closed rather than given
        back. UnconfirmedCommit: the standby server did not confirm that it has the data.
        """
        self._unconfirmed.discard(id(connection))
        try:
            with connection.pipeline():
                connection.execute("BEGIN")
                connection.execute(_SQL["settings"].encode())
            result = work(PoolTransaction(connection))
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        unconfirmed = id(connection) in self._unconfirmed
        self._return_connection(connection)
        if unconfirmed:
            raise UnconfirmedCommit
        return result

    def _pop_free_connection(self) -> Connection | None:
        with self._lock:
            if not self._free:
                return None
            return self._free.pop()

    def _run_pipeline(self, connection: Connection, statements: Sequence[Statement]) -> list[Rows]:
        """Run the statements in one transaction, sent together without waiting for each answer.
        Return the rows of each. UnconfirmedCommit as in `_run_work`.
        """
        self._unconfirmed.discard(id(connection))
        try:
            with connection.pipeline():
                connection.execute("BEGIN")
                connection.execute(_SQL["settings"].encode())
                cursors = [
                    connection.execute(text.encode(), values, binary=True)
                    for text, values in statements
                ]
                connection.execute("COMMIT")
            rows = [_rows_of_statement(cursor) for cursor in cursors]
        except BaseException:
            connection.close()  # Simpler than finding out its state.
            raise
        unconfirmed = id(connection) in self._unconfirmed
        self._return_connection(connection)
        if unconfirmed:
            raise UnconfirmedCommit
        return rows

    def _return_connection(self, connection: Connection) -> None:
        with self._lock:
            if self.users:
                self._free.append(connection)
                return
        connection.close()

    def _is_connection_lost(self, error: Any) -> bool:
        """Whether the connection failed, rather than the statement."""
        if not isinstance(error, self._psycopg.OperationalError):
            return False
        # Without a code, the error is of the client, and the connection is lost.
        is_lost: bool = not error.sqlstate or error.sqlstate.startswith(("08", "57P"))
        return is_lost

    def _must_prepare_again(self, error: Any) -> bool:
        """Whether a new month has begun, or a standby was promoted instead of this server."""
        if error.sqlstate in (_ANOTHER_MONTH, _NOT_HERE):
            self._is_prepared = False
            return True
        return False

    def _open_postgres_connection(self) -> Connection:
        """Open a connection. The first one also creates or upgrades the tables."""
        connection: Connection = self._psycopg.connect(
            **self._arguments, autocommit=True, prepare_threshold=None
        )
        connection.add_notice_handler(
            lambda notice: self._mark_connection_unconfirmed(connection, notice)
        )
        try:
            with self._lock:
                if not self._is_prepared:
                    prepare_tables(connection)
                    self._is_prepared = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _mark_connection_unconfirmed(self, connection: Connection, notice: Any) -> None:
        """Note a server's warning that it did not wait for its standby, after which it
        still reports success.
        """
        message = notice.message_primary or ""
        if "synchronous replication" in message or notice.sqlstate == "01000":
            self._unconfirmed.add(id(connection))

    def close(self) -> None:
        with self._lock:
            free = self._free
            self._free = []
        for connection in free:
            connection.close()


def acquire_pool(key: str, build_pool: Callable[[], PostgresPool]) -> PostgresPool:
    """Return the pool of this database. Each user must call `release_pool` once."""
    with _pools_lock:
        if key not in _pools:
            _pools[key] = build_pool()
        pool = _pools[key]
        pool.users += 1
        return pool


def release_pool(key: str, pool: PostgresPool) -> None:
    with _pools_lock:
        pool.users -= 1
        if pool.users:
            return
        _pools.pop(key, None)
    pool.close()
