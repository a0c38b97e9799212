"""Databases of other programs: what is read of them, in which order, and what is not touched."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.histories import foreign_sqlite
from helix_desktop.histories.history_rows import ReadingReport


def database(path: Path, *statements: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as made, made:
        for statement in statements:
            made.execute(statement)
    return path


def query(path: Path, text: str, values: Iterable[object] = ()) -> list[dict[str, object]]:
    with foreign_sqlite.open_foreign_database(path) as connection:
        return [dict(row) for row in foreign_sqlite.query_rows(connection, text, tuple(values))]


def test_rows_have_the_names_of_their_columns_and_texts_that_are_none_are_still_read(
    tmp_path: Path,
) -> None:
    path = database(
        tmp_path / "a ?#.db",
        "CREATE TABLE a(x, y)",
        "INSERT INTO a VALUES(1, CAST(X'61FF' AS TEXT))",
    )
    assert query(path, "SELECT * FROM a WHERE x = ?", [1]) == [{"x": 1, "y": "a\ufffd"}]
    assert query(path, "SELECT * FROM a WHERE x = ?", [2]) == []


def test_a_database_is_known_by_how_it_begins(tmp_path: Path) -> None:
    path = database(tmp_path / "a.db", "CREATE TABLE a(x)")
    (tmp_path / "text").write_text("SQLite format 4")
    os.mkfifo(tmp_path / "pipe")
    known = foreign_sqlite.is_sqlite_file
    assert [known(one) for one in (path, tmp_path / "text", tmp_path / "pipe", tmp_path / "none", tmp_path)] == [True, False, False, False, False]  # fmt: skip


def test_columns_that_are_calculated_read_as_nothing(tmp_path: Path) -> None:
    path = database(tmp_path / "a.db", "CREATE TABLE a(x, y GENERATED ALWAYS AS (x * 2) VIRTUAL, z AS (x) STORED)", "INSERT INTO a(x) VALUES(4)")  # fmt: skip
    assert query(path, "SELECT x, y, z FROM a") == [{"x": 4, "y": None, "z": None}]


def test_nothing_is_written_and_no_view_is_read(tmp_path: Path) -> None:
    path = database(
        tmp_path / "a.db",
        "CREATE TABLE a(x)",
        "INSERT INTO a VALUES(1)",
        "CREATE VIEW v AS SELECT x FROM a",
    )
    before = path.read_bytes()
    with foreign_sqlite.open_foreign_database(path) as connection:
        assert foreign_sqlite.ordinary_table_names(connection) == {"a"}
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 2
        for refused in (
            "SELECT x FROM v",
            "INSERT INTO a VALUES(2)",
            "DROP TABLE a",
            "PRAGMA user_version = 3",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                connection.execute(refused).fetchall()
    assert path.read_bytes() == before


def test_rows_come_in_the_order_of_their_columns_as_sqlite_sorts(tmp_path: Path) -> None:
    path = database(
        tmp_path / "a.db",
        "CREATE TABLE a(x, y)",
        "INSERT INTO a VALUES('b', 2), ('a', 1), (NULL, 3), (2, 4), (X'00', 5), (1.5, 6), ('a', 0)",
    )
    report = ReadingReport()
    with foreign_sqlite.open_foreign_database(path) as connection:
        rows = foreign_sqlite.query_until_damage(
            connection, "SELECT * FROM a", [], report, ("x", "y")
        )
    assert [row["x"] for row in rows] == [None, 1.5, 2, "a", "a", "b", b"\0"]
    assert [row["y"] for row in rows] == [3, 6, 4, 0, 1, 2, 5]
    with closing(sqlite3.connect(path)) as own:
        assert [row["y"] for row in rows] == [
            one for (one,) in own.execute("SELECT y FROM a ORDER BY x, y")
        ]
    assert report.complaints == []


def test_what_was_read_before_the_damage_is_taken_and_told(tmp_path: Path) -> None:
    path = database(tmp_path / "a.db", "CREATE TABLE a(x)", "INSERT INTO a VALUES(1)")
    report = ReadingReport()
    with foreign_sqlite.open_foreign_database(path) as connection:
        assert (
            foreign_sqlite.query_until_damage(connection, "SELECT * FROM nowhere", [], report, ())
            == []
        )
    assert report.complaints[0].startswith("The database is damaged: ")
    assert report.complaints[0].endswith("; what was read before it was taken.")


def test_rows_that_claim_more_than_the_file_holds_end_the_reading(tmp_path: Path) -> None:
    path = database(
        tmp_path / "a.db", "CREATE TABLE a(x)", "INSERT INTO a VALUES(hex(zeroblob(500)))"
    )
    assert len(query(path, "SELECT x FROM a")) == 1
    many = "SELECT x FROM a" + " UNION ALL SELECT x FROM a" * 99
    with pytest.raises(sqlite3.DatabaseError, match="more than its file can"):
        query(path, many)


def test_one_value_is_no_longer_than_the_file(tmp_path: Path) -> None:
    path = database(tmp_path / "a.db", "CREATE TABLE a(x)", "INSERT INTO a VALUES(1)")
    with pytest.raises(sqlite3.DataError):
        query(path, "SELECT hex(zeroblob(900000)) AS x FROM a")


def test_time_is_counted_over_all_statements(tmp_path: Path) -> None:
    path = database(tmp_path / "a.db", "CREATE TABLE a(x)", "INSERT INTO a VALUES(1)")
    with foreign_sqlite.open_foreign_database(path) as connection:
        before = connection.seconds_left
        list(foreign_sqlite.query_rows(connection, "SELECT * FROM a"))
        assert 0 < connection.seconds_left < before <= foreign_sqlite.LONGEST_SECONDS


def test_files_beside_a_database_that_are_other_files_too_are_not_written_through(
    tmp_path: Path,
) -> None:
    path = database(tmp_path / "a.db", "CREATE TABLE a(x)")
    (tmp_path / "mine").write_text("mine")

    def refused(name: str, mode: str) -> bool:
        (tmp_path / name).hardlink_to(tmp_path / "mine")
        try:
            with closing(foreign_sqlite.connect_foreign_database(path, mode)):
                return False
        except sqlite3.DatabaseError:
            return True
        finally:
            (tmp_path / name).unlink()

    names = ("a.db-wal", "a.db-shm", "a.db-journal")
    assert [refused(name, "ro") for name in names] == [False, True, False]
    assert [refused(name, "rw") for name in names] == [True, True, True]
    assert (tmp_path / "mine").read_text() == "mine"
    (tmp_path / "a.db-shm").symlink_to(tmp_path / "mine")
    with pytest.raises(sqlite3.DatabaseError, match=r"a\.db-shm is a link"):
        foreign_sqlite.connect_foreign_database(path)
    (tmp_path / "a.db-shm").unlink()
    (tmp_path / "a.db-journal").write_bytes(b"")
    with pytest.raises(sqlite3.DatabaseError, match=r"a crash left a\.db-journal"):
        foreign_sqlite.connect_foreign_database(path, "rw")


def test_a_copy_is_one_file_with_all_that_its_program_had_written(tmp_path: Path) -> None:
    path = database(
        tmp_path / "a.db",
        "PRAGMA journal_mode = WAL",
        'CREATE TABLE "a ""b"(x)',
        "CREATE TABLE c(x)",
    )
    with closing(sqlite3.connect(path)) as program:
        program.execute('INSERT INTO "a ""b" VALUES(1), (2)')
        program.commit()
        size = (
            program.execute("PRAGMA page_count").fetchone()[0]
            * program.execute("PRAGMA page_size").fetchone()[0]
        )
        foreign_sqlite.copy_foreign_database(path, tmp_path / "copy.db", size)
        with pytest.raises(sqlite3.DatabaseError, match="too large"):
            foreign_sqlite.copy_foreign_database(path, tmp_path / "other.db", size - 1)
    assert foreign_sqlite.count_table_rows(tmp_path / "copy.db") == {'a "b': 2, "c": 0}
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("PRAGMA journal_mode").fetchone()[0] == "delete"


def test_a_column_of_json_is_an_object_or_told() -> None:
    report = ReadingReport()
    objects: list[object] = ['{"a": 1}', b'{"a": 1}', {"a": 1}]
    for given in objects:
        row = foreign_sqlite.parse_json_column(given, "here", report)
        assert row is not None
        assert (row.value, row.place) == ({"a": 1}, "here")
    others: list[object] = ["[]", "{broken", None, 5]
    for other in others:
        assert foreign_sqlite.parse_json_column(other, "here", report) is None
    assert report.complaints == ["here: this is not a JSON object; the line was left out."] * 4


def test_only_what_no_trigger_wants_is_allowed() -> None:
    assert foreign_sqlite.deny_triggers_and_views(1, None, None, None, None) == sqlite3.SQLITE_OK
    assert (
        foreign_sqlite.deny_triggers_and_views(1, None, None, None, "trigger")
        == sqlite3.SQLITE_DENY
    )
