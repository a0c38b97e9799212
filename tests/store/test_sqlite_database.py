from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.errors import (
    JournalCorrupt,
    StoreBusy,
    StoreFailed,
    StoreFull,
    WrittenByNewerVersion,
)
from helix_desktop.store import sqlite_database
from helix_desktop.store.sqlite_database import SqliteTransaction

SCHEMA = "CREATE TABLE things(name TEXT);"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened = sqlite_database.connect_database(tmp_path / "db", JournalCorrupt, "journal")
    sqlite_database.prepare_schema(opened, SCHEMA, application=7, version=1, name="journal")
    yield opened
    opened.close()


def things(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT name FROM things")]


def test_it_is_made_once_and_syncs_every_commit(connection: sqlite3.Connection) -> None:
    sqlite_database.prepare_schema(connection, SCHEMA, application=7, version=1, name="journal")
    settings = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "secure_delete")
    }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1}


def test_a_newer_one_is_left_alone(connection: sqlite3.Connection, tmp_path: Path) -> None:
    connection.execute("PRAGMA user_version=2")
    with closing(sqlite3.connect(tmp_path / "db")) as other, pytest.raises(WrittenByNewerVersion):
        sqlite_database.prepare_schema(other, SCHEMA, application=7, version=1, name="journal")


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE])
def test_a_full_disk_is_called_so(code: int) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    assert isinstance(
        sqlite_database.convert_sqlite_error(error, JournalCorrupt, "journal"), StoreFull
    )
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    assert not isinstance(
        sqlite_database.convert_sqlite_error(error, JournalCorrupt, "journal"), StoreFull
    )


def fail_in_the_middle(connection: sqlite3.Connection) -> None:
    with SqliteTransaction(connection, JournalCorrupt, "journal"):
        connection.execute("INSERT INTO things VALUES('lost')")
        raise KeyError


def test_all_or_nothing(connection: sqlite3.Connection) -> None:
    with SqliteTransaction(connection, JournalCorrupt, "journal"):
        connection.execute("INSERT INTO things VALUES('kept')")
    with pytest.raises(KeyError):
        fail_in_the_middle(connection)
    with pytest.raises(StoreFailed), SqliteTransaction(connection, JournalCorrupt, "journal"):
        connection.execute("INSERT INTO nowhere VALUES('lost')")
    assert things(connection) == ["kept"]
    assert not connection.in_transaction


def test_a_full_disk_is_said_and_the_next_write_goes_on(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA max_page_count=3")
    with (
        pytest.raises(StoreFull, match="disk is full"),
        SqliteTransaction(connection, JournalCorrupt, "journal"),
    ):
        connection.execute("INSERT INTO things VALUES(?)", ("x" * 100_000,))
    connection.execute("PRAGMA max_page_count=1000000")
    with SqliteTransaction(connection, JournalCorrupt, "journal"):
        connection.execute("INSERT INTO things VALUES('after')")
    assert things(connection) == ["after"]


def test_another_writer_is_said(connection: sqlite3.Connection, tmp_path: Path) -> None:
    connection.execute("PRAGMA busy_timeout=1")
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy), SqliteTransaction(connection, JournalCorrupt, "journal"):
            pass


def test_what_is_no_database_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(JournalCorrupt, match="damaged"):
        sqlite_database.connect_database(tmp_path / "db", JournalCorrupt, "journal")
    with pytest.raises(StoreFailed):
        sqlite_database.connect_database(tmp_path / "none" / "db", JournalCorrupt, "journal")


def test_a_scrub_leaves_nothing_deleted(connection: sqlite3.Connection, tmp_path: Path) -> None:
    with SqliteTransaction(connection, JournalCorrupt, "journal"):
        connection.execute("INSERT INTO things VALUES('SECRET'), ('other')")
    connection.execute("DELETE FROM things WHERE name = 'SECRET'")
    sqlite_database.scrub_database(connection)
    assert not any(b"SECRET" in path.read_bytes() for path in tmp_path.iterdir())
    assert things(connection) == ["other"]


def test_defects_are_sentences(connection: sqlite3.Connection, tmp_path: Path) -> None:
    assert list(sqlite_database.find_database_defects(connection, "journal")) == []
    connection.execute("CREATE INDEX names ON things(name)")
    for number in range(2000):
        connection.execute("INSERT INTO things VALUES(?)", (f"name {number}",))
    sqlite_database.scrub_database(connection)
    connection.close()
    content = bytearray((tmp_path / "db").read_bytes())
    content[3 * 4096 : 4 * 4096] = bytes(4096)
    (tmp_path / "db").write_bytes(content)
    with closing(sqlite3.connect(tmp_path / "db")) as damaged:
        assert all(
            line.startswith("The journal's database is damaged")
            for line in sqlite_database.find_database_defects(damaged, "journal")
        )
        assert list(sqlite_database.find_database_defects(damaged, "journal"))


def test_a_scrub_that_somebody_reading_prevents_is_said(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    connection.execute("INSERT INTO things VALUES('secret')")
    connection.execute("PRAGMA busy_timeout=0")
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM things").fetchall()
        with pytest.raises(sqlite3.OperationalError):
            sqlite_database.scrub_database(connection)


def test_rows_of_any_number_are_inserted_by_few_different_statements(
    connection: sqlite3.Connection,
) -> None:
    connection.execute("CREATE TABLE numbers(one, two)")
    chance = random.Random(1)
    sizes = set[int]()
    expected = 0
    connection.set_trace_callback(lambda statement: sizes.add(statement.count("), (")))
    for count in (
        0,
        1,
        2,
        15,
        16,
        17,
        511,
        512,
        513,
        *(chance.randrange(1, 2000) for _ in range(100)),
    ):
        rows = [(expected + at, at) for at in range(count)]
        sqlite_database.execute_with_rows(connection, "INSERT INTO numbers", rows)
        expected += count
    connection.set_trace_callback(None)
    assert [one for (one,) in connection.execute("SELECT one FROM numbers ORDER BY rowid")] == list(
        range(expected)
    )
    assert (
        len(sizes) <= 24
    )  # A connection keeps up to 128 statements, and 128 long ones took 25 MB.
