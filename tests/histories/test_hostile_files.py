"""Histories from strangers: databases that never end, links that lead out of the
folder, pipes that nobody writes to.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.errors import HelixError
from helix_desktop.histories import foreign_sqlite, history_finding, history_reading
from helix_desktop.histories.companion_files import read_file_below
from helix_desktop.histories.history_format import HistoryPlaces
from tests.histories import written
from tests.histories.hostile_databases import HOSTILE, what_went_wrong

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT "
COLUMNS = "x AS id, x AS directory, NULL AS parent_id, x AS time_created, x AS time_updated, x AS session_id, x AS message_id, x AS data FROM c"
SECRET = "planted-out-of-the-folder"


def spoiled(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as made, made:
        for statement in statements:
            made.execute(statement)


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE session", f"CREATE VIEW session AS {ENDLESS}{COLUMNS}"),
        ("DROP TABLE part", f"CREATE VIEW part AS {ENDLESS}{COLUMNS}"),
        ("DROP TABLE session", "CREATE VIRTUAL TABLE session USING fts5(id, directory, parent_id, time_created, time_updated)"),
        ("DROP TABLE session", f"CREATE VIEW inner_one AS {ENDLESS}{COLUMNS}", "CREATE VIEW session AS SELECT * FROM inner_one"),
        ("DROP TABLE session", "CREATE VIEW session AS SELECT hex(zeroblob(900000000)) AS id, 1 AS directory, NULL AS parent_id, 1 AS time_created, 1 AS time_updated"),
    ],
    ids=["view", "view of parts", "virtual", "view in a view", "huge"],
)  # fmt: skip
def test_only_real_tables_are_read(tmp_path: Path, statements: tuple[str, ...]) -> None:
    path = tmp_path / "home" / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    written.opencode(tmp_path).rename(path)
    spoiled(path, *statements)
    began = time.process_time()
    found = list(history_finding.find_histories(HistoryPlaces(tmp_path / "home", {})))
    with pytest.raises(HelixError):
        history_reading.read_history_file(path)
    assert time.process_time() - began < 5
    assert len(found) <= 1


def test_a_statement_that_works_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real table is joined with itself: 10^15 rows."""
    monkeypatch.setattr(foreign_sqlite, "LONGEST_SECONDS", 0.5)
    path = tmp_path / "a.db"
    spoiled(
        path,
        "CREATE TABLE a (x)",
        "INSERT INTO a WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000) SELECT x FROM c",
    )
    with (
        foreign_sqlite.open_foreign_database(path) as connection,
        pytest.raises(sqlite3.OperationalError, match="interrupted"),
    ):
        list(foreign_sqlite.query_rows(connection, "SELECT count(*) FROM a, a b, a c, a d, a e"))
    with foreign_sqlite.open_foreign_database(path) as connection:
        assert [
            row["n"] for row in foreign_sqlite.query_rows(connection, "SELECT count(*) AS n FROM a")
        ] == [1000]
        for refused in (
            "ATTACH 'b.db' AS b",
            "DELETE FROM a",
            "PRAGMA query_only = OFF",
            f"{ENDLESS} x FROM c",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                connection.execute(refused)


@pytest.mark.parametrize("part", range(3))
def test_a_hostile_database_takes_little_memory_time_and_disk_and_changes_no_other_file(
    tmp_path: Path, part: int
) -> None:
    assert what_went_wrong(tmp_path, [*HOSTILE][part::3]) == []


def claude(folder: Path) -> Path:
    """A session whose tool result stands in a file beside it."""
    path = folder / "session.jsonl"
    saved = f"<persisted-output>\nFull output saved to: /x/tool-results/one.txt\n\n{'a' * 10}"
    rows = [
        {"type": "user", "message": {"role": "user", "content": "look"}},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}},
        {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": saved}]}},
    ]  # fmt: skip
    about = {"cwd": "/x", "sessionId": "session", "timestamp": "2026-01-01T00:00:00Z"}
    lines = [
        {**about, "uuid": f"u{at}", "parentUuid": f"u{at - 1}" if at else None, **row}
        for at, row in enumerate(rows)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
@pytest.mark.parametrize(
    "linked", ["session", "session/tool-results", "session/tool-results/one.txt", ""]
)
def test_a_tool_result_is_read_from_beside_its_session_and_from_nowhere_else(
    tmp_path: Path, linked: str
) -> None:
    outside = tmp_path / "outside"
    folder = tmp_path / "project"
    (outside / "tool-results").mkdir(parents=True)
    for name in ("one.txt", "tool-results/one.txt"):
        (outside / name).write_text(SECRET)
    inside = folder / "session" / "tool-results"
    inside.mkdir(parents=True)
    (inside / "one.txt").write_text("its own result")
    path = claude(folder)
    if linked:
        place = folder / linked
        for each in sorted([place, *place.rglob("*")], reverse=True):
            each.unlink() if each.is_file() else each.rmdir()
        place.symlink_to(
            outside / "one.txt" if place.suffix else outside, target_is_directory=not place.suffix
        )
    said = str(history_reading.read_history_file(path).recordings)
    assert SECRET not in said
    assert ("its own result" in said) is not bool(linked)


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_files_of_a_folder_that_lead_out_of_it_are_left_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder = tmp_path / "folder"
    for each in (outside, folder):
        each.mkdir()
    path = claude(outside)
    (folder / "linked.jsonl").symlink_to(path)
    with pytest.raises(HelixError):
        history_reading.list_history_files(folder)
    (folder / "own.jsonl").write_bytes(path.read_bytes())
    assert [file.name for file in history_reading.list_history_files(folder)] == ["own.jsonl"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes there")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(HelixError, match="is not a file"):
        history_reading.read_history_file(tmp_path / "a.jsonl")
    with pytest.raises(OSError, match="is no file"):
        read_file_below(tmp_path, "a.jsonl")
    assert not foreign_sqlite.is_sqlite_file(tmp_path / "a.jsonl")
