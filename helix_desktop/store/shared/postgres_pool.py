"""Connections to PostgreSQL: one pool for each database in a process, whatever the number of workspaces.

A pooler such as PgBouncer may stand in between and give each transaction another connection of the server. So nothing is kept on a
connection: no prepared statement, and settings hold for one transaction. A transaction goes there and back as one pipeline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from helix_desktop.store.shared import postgres_schema

if TYPE_CHECKING:
    from helix_desktop.store.shared.postgres_schema import Connection

# A failed pipeline raises its error, and psycopg logs it as well while it ends the pipeline.
logging.getLogger("psycopg").setLevel(logging.ERROR)

Statement = tuple[str, Sequence[Any]]
Rows = list[tuple[Any, ...]]
_SETTINGS = (  # Makes the planner use the indexes, even for tables without statistics.
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),"
    " set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true),"
    " set_config('max_parallel_workers_per_gather', '0', true), set_config('statement_timeout', '60s', true),"
    " set_config('timezone', 'UTC', true), CASE WHEN current_setting('synchronous_commit') = 'off'"
    " THEN set_config('synchronous_commit', 'on', true) END"
)
_ANOTHER_MONTH, _NOT_HERE = "23514", "25006"  # SQLSTATE: the partition is missing; the server is read-only now.
_pools: dict[str, PostgresPool] = {}
_pools_lock = threading.Lock()


class UnconfirmedCommit(Exception):
    """A standby did not confirm a transaction. Met by the engine alone."""


class PostgresPool:
    """The connections to one database; as many as calls are made at once. `psycopg`: the module."""

    def __init__(self, psycopg: Any, arguments: dict[str, Any]) -> None:
        self._psycopg = psycopg
        self._arguments = arguments
        self._free: list[Connection] = []
        self._lock = threading.Lock()
        self._is_prepared = False
        self._unconfirmed: set[int] = set()  # Connections whose last commit has not been confirmed by a standby.
        self.users = 0

    def run_in_transaction(self, statements: Sequence[Statement]) -> list[Rows]:
        """Do these in one transaction, and give the rows of each. Tried once more where its connection had died meanwhile."""
        while (connection := self._take_free_connection()) is not None:
            try:
                return self._run_statements(connection, statements)
            except self._psycopg.Error as error:
                if not self._is_lost(error) and not self._may_be_repeated(error):
                    raise
        return self._run_statements(self._open_postgres_connection(), statements)

    def _take_free_connection(self) -> Connection | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def _run_statements(self, connection: Connection, statements: Sequence[Statement]) -> list[Rows]:
        self._unconfirmed.discard(id(connection))
        try:
            found = _run_in_pipeline(connection, statements)
        except BaseException:
            connection.close()  # Closing it is easier than finding out its state.
            raise
        unconfirmed = id(connection) in self._unconfirmed
        self._return_connection(connection)
        if unconfirmed:
            raise UnconfirmedCommit
        return found

    def _return_connection(self, connection: Connection) -> None:
        with self._lock:
            if self.users:
                self._free.append(connection)
                return
        connection.close()

    def _is_lost(self, error: Any) -> bool:
        """Whether it was the connection that failed, and not what was asked."""
        return isinstance(error, self._psycopg.OperationalError) and (error.sqlstate or "57P").startswith(("08", "57P"))

    def _may_be_repeated(self, error: Any) -> bool:
        """Another month began, or a standby was promoted in this one's place."""
        if error.sqlstate in (_ANOTHER_MONTH, _NOT_HERE):
            self._is_prepared = False
            return True
        return False

    def _open_postgres_connection(self) -> Connection:
        connection: Connection = self._psycopg.connect(**self._arguments, autocommit=True, prepare_threshold=None)
        connection.add_notice_handler(lambda notice: self._note_unconfirmed(connection, notice))
        try:
            with self._lock:
                if not self._is_prepared:
                    postgres_schema.prepare_tables(connection)
                    self._is_prepared = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _note_unconfirmed(self, connection: Connection, notice: Any) -> None:
        """A server that is told to stop waiting for its standby says so in a warning, and then that all went well."""
        if "synchronous replication" in (notice.message_primary or "") or notice.sqlstate == "01000":
            self._unconfirmed.add(id(connection))

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for connection in free:
            connection.close()


def _run_in_pipeline(connection: Connection, statements: Sequence[Statement]) -> list[Rows]:
    with connection.pipeline():
        connection.execute("BEGIN")
        connection.execute(_SETTINGS.encode())
        cursors = [connection.execute(text.encode(), values, binary=True) for text, values in statements]
        connection.execute("COMMIT")
    return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


def acquire_pool(key: str, make: Callable[[], PostgresPool]) -> PostgresPool:
    """The pool of this database. Each user calls `release_pool` once."""
    with _pools_lock:
        if key not in _pools:
            _pools[key] = make()
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
