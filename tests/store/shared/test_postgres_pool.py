"""The connections to one database: which are kept, which are closed, and what a
server's notices mean.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from helix_desktop import concurrency
from helix_desktop.store.shared import postgres_pool
from helix_desktop.store.shared.postgres_pool import PostgresPool, UnconfirmedCommit
from tests.peers import postgres


@pytest.fixture
def pool(server: postgres.Server) -> Iterator[PostgresPool]:
    """A pool with one user. Its connections are closed at the end."""
    one = PostgresPool(psycopg, {"conninfo": server.url})
    one.users = 1
    yield one
    one.close()


def ask(pool: PostgresPool, text: str = "SELECT 1") -> list[postgres_pool.Rows]:
    return pool.run_in_transaction([(text, ())])


def raise_in_server(level: str, words: str) -> str:
    return f"DO $$ BEGIN RAISE {level} '{words}'; END $$"


def test_each_statement_has_its_rows_and_one_that_returns_none_has_none(pool: PostgresPool) -> None:
    statements = [
        ("SELECT %s::int + 1", (1,)),
        ("SET LOCAL work_mem = '1MB'", ()),
        ("VALUES (1), (2)", ()),
    ]
    assert pool.run_in_transaction(statements) == [[(2,)], [], [(1,), (2,)]]


def test_a_connection_is_used_again_and_closed_where_nobody_uses_the_pool(
    pool: PostgresPool,
) -> None:
    pids = [ask(pool, "SELECT pg_backend_pid()") for _ in range(3)]
    assert pids[0] == pids[1] == pids[2]
    (connection,) = pool._free
    pool.users = 0
    ask(pool)
    assert (pool._free, connection.closed) == ([], True)


def test_a_connection_whose_statement_failed_is_closed_and_the_failure_told(
    pool: PostgresPool,
) -> None:
    ask(pool)
    (connection,) = pool._free
    with pytest.raises(psycopg.errors.DivisionByZero):
        ask(pool, "SELECT 1 / 0")
    assert (pool._free, connection.closed) == ([], True)
    assert ask(pool) == [[(1,)]]


def test_a_lost_connection_is_made_again_once_for_each_that_was_free(
    pool: PostgresPool, server: postgres.Server
) -> None:
    ask(pool)
    (lost,) = pool._free
    with psycopg.connect(server.url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (lost.info.backend_pid,))
    assert ask(pool) == [[(1,)]]
    assert lost.closed
    assert lost not in pool._free


@pytest.mark.parametrize(
    ("level", "words", "is_confirmed"),
    [
        ("NOTICE", "something else", True),
        ("NOTICE", "canceling wait for synchronous replication due to user request", False),
        ("WARNING", "in whatever language the server speaks", False),
    ],
)
def test_a_commit_that_no_standby_confirmed_is_told(
    pool: PostgresPool, level: str, words: str, is_confirmed: bool
) -> None:
    if is_confirmed:
        assert ask(pool, raise_in_server(level, words)) == [[]]
    else:
        with pytest.raises(UnconfirmedCommit):
            ask(pool, raise_in_server(level, words))
    assert len(pool._free) == 1, "the connection is good"
    assert ask(pool) == [[(1,)]], "and what is said of one commit is not said of the next"


def test_tables_are_looked_after_once_and_again_when_a_month_is_missing(
    pool: PostgresPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(postgres_pool, "prepare_tables", lambda _: looked.append(1))
    pool._return_connection(pool._open_postgres_connection())
    ask(pool)
    pool._return_connection(pool._open_postgres_connection())
    assert len(looked) == 1
    missing = "DO $$ BEGIN RAISE EXCEPTION 'no partition' USING ERRCODE = '23514'; END $$"
    with pytest.raises(psycopg.errors.CheckViolation):
        ask(pool, missing)
    assert len(looked) == 2, "the second connection was opened after looking again"
    assert pool._free == []


def test_tables_that_cannot_be_prepared_leave_no_connection_open(
    pool: PostgresPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[psycopg.Connection] = []

    def fail(connection: psycopg.Connection) -> None:
        opened.append(connection)
        raise ValueError("no tables")

    monkeypatch.setattr(postgres_pool, "prepare_tables", fail)
    with pytest.raises(ValueError, match="no tables"):
        ask(pool)
    assert [connection.closed for connection in opened] == [True]


def test_tables_that_are_as_they_should_be_are_not_touched(server: postgres.Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE prepared")
    with psycopg.connect(
        server.url.replace("/postgres", "/prepared"), autocommit=True
    ) as connection:
        postgres_pool.prepare_tables(connection)
        assert connection.execute("SELECT version FROM helix.version").fetchall() == [
            (postgres_pool.VERSION,)
        ]
        before = connection.execute("SELECT xmin FROM helix.version").fetchall()
        postgres_pool.prepare_tables(connection)
        assert connection.execute("SELECT xmin FROM helix.version").fetchall() == before
        months = connection.execute(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'helix.rows'::regclass"
        ).fetchone()
        assert months == (2,), "this month and the next"


@pytest.mark.parametrize("what", ["tables", "partitions"])
def test_two_machines_never_change_the_tables_at_once(server: postgres.Server, what: str) -> None:
    name = f"waits_for_{what}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    url = server.url.replace("/postgres", f"/{name}")
    with psycopg.connect(url) as first, psycopg.connect(url, autocommit=True) as second:
        if what == "partitions":
            postgres_pool.prepare_tables(second)
            for (table,) in second.execute(
                "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'helix.rows'::regclass"
            ).fetchall():
                second.execute(f"DROP TABLE {table}".encode())
        first.execute("SELECT pg_advisory_xact_lock(%s)", (postgres_pool._LOCK,))
        second.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            postgres_pool.prepare_tables(second)
        first.rollback()
        postgres_pool.prepare_tables(second)
        assert second.execute("SELECT version FROM helix.version").fetchone() == (
            postgres_pool.VERSION,
        )


def test_a_pool_is_shared_by_its_users_and_closed_with_the_last() -> None:
    made: list[PostgresPool] = []

    def make() -> PostgresPool:
        made.append(PostgresPool(psycopg, {}))
        return made[-1]

    one, two = (postgres_pool.acquire_pool("a database of this trial", make) for _ in range(2))
    assert one is two
    assert (one.users, len(made)) == (2, 1)
    postgres_pool.release_pool("a database of this trial", one)
    assert postgres_pool.acquire_pool("a database of this trial", make) is one
    for users in (1, 0):
        postgres_pool.release_pool("a database of this trial", one)
        assert one.users == users
    other = postgres_pool.acquire_pool("a database of this trial", make)
    assert other is not one
    postgres_pool.release_pool("a database of this trial", other)


def test_of_two_transactions_that_wait_for_each_other_one_is_run_again(pool: PostgresPool) -> None:
    ask(pool, "CREATE TABLE IF NOT EXISTS helix.crossing AS SELECT 1 AS id UNION SELECT 2")
    both_hold_one = threading.Barrier(2)
    runs: list[int] = []

    def cross(first: int, second: int) -> None:
        def change(transaction: postgres_pool.PoolTransaction) -> None:
            runs.append(first)
            for number in (first, second):
                transaction.run_all(
                    [("UPDATE helix.crossing SET id = id WHERE id = %s", (number,))]
                )
                if number == first and len(runs) < 3:
                    both_hold_one.wait(20)

        pool.run_work_in_transaction(change)

    other = concurrency.start_thread(lambda: cross(2, 1), name="the other transaction")
    cross(1, 2)
    other.join()
    assert sorted(runs) in ([1, 1, 2], [1, 2, 2])


def test_a_function_whose_connection_was_lost_is_run_again_on_a_new_one(pool: PostgresPool) -> None:
    ask(pool)
    (connection,) = pool._free
    with psycopg.connect(pool._arguments["conninfo"], autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    answers = pool.run_work_in_transaction(lambda work: work.run_all([("SELECT 7", ())]))
    assert answers == [[(7,)]]
