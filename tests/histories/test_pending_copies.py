"""Copies of histories before they are imported: nothing that was copied is lost when
the file is written anew.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.folder_trees import delete_folder_tree
from helix_desktop.histories import foreign_sqlite
from helix_desktop.histories.pending_copies import (
    PendingCopies,
    original_paths_of_copies,
    path_of_copy,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent" / "s.jsonl"
    path.parent.mkdir()
    return path


def copied(copies: PendingCopies, file: Path) -> list[bytes]:
    return [path_of_copy(folder, file).read_bytes() for folder in copies.seal_and_list_folders()]


def test_a_file_that_grows_is_one_copy_with_the_stamp_of_the_file(
    tmp_path: Path, file: Path
) -> None:
    copies = PendingCopies(tmp_path / "copies")
    for content in (b"one\n", b"one\ntwo\n"):
        file.write_bytes(content)
        copies.copy_file(file)
    (folder,) = copies.seal_and_list_folders()
    assert list(original_paths_of_copies(folder)) == [file]
    copy = path_of_copy(folder, file)
    assert (copy.read_bytes(), copy.stat().st_mtime_ns) == (b"one\ntwo\n", file.stat().st_mtime_ns)


@pytest.mark.parametrize("anew", [b"", b"other\nthings\nand more\n", b"on", b"ONE\ntwo\nthree\n"])
def test_what_was_copied_stays_when_the_file_is_truncated_written_anew_or_replaced(
    tmp_path: Path, file: Path, anew: bytes
) -> None:
    copies = PendingCopies(tmp_path / "copies")
    file.write_bytes(b"one\ntwo\n")
    copies.copy_file(file)
    file.write_bytes(anew)
    copies.copy_file(file)
    file.unlink()
    assert copied(copies, file) == [b"one\ntwo\n", anew]


def test_what_was_copied_before_a_restart_is_not_written_over(tmp_path: Path, file: Path) -> None:
    file.write_bytes(b"one\ntwo\n")
    PendingCopies(tmp_path / "copies").copy_file(
        file
    )  # The recorder is killed here, before anything is imported.
    file.write_bytes(b"one\n")
    copies = PendingCopies(tmp_path / "copies")
    copies.copy_file(file)
    assert copied(copies, file) == [b"one\ntwo\n", b"one\n"]


def test_of_a_database_each_row_is_in_a_copy_also_of_one_that_was_emptied(tmp_path: Path) -> None:
    database = tmp_path / "opencode.db"
    copies = PendingCopies(tmp_path / "copies")
    with closing(sqlite3.connect(database)) as agent:
        agent.execute("PRAGMA journal_mode = WAL")
        for statement in (
            "CREATE TABLE part (id)",
            "INSERT INTO part VALUES (1)",
            "INSERT INTO part VALUES (2)",
            "DELETE FROM part",
        ):
            with agent:
                agent.execute(statement)
            copies._next_database_time = 0.0
            assert copies.copy_database(database)
    found = []
    for folder in copies.seal_and_list_folders():
        with foreign_sqlite.open_foreign_database(path_of_copy(folder, database)) as connection:
            found.append([tuple(row) for row in connection.execute("SELECT id FROM part")])
    assert found == [[(1,), (2,)], []]
    assert not copies.copy_database(tmp_path)


def test_a_json_document_that_grows_is_written_anew_and_one_copy_of_it_is_enough(
    tmp_path: Path, file: Path
) -> None:
    document = file.with_suffix(".json")
    copies = PendingCopies(tmp_path / "copies")
    for content in (b"[1]", b"[1, 2]", b"[9]"):
        document.write_bytes(content)
        copies.copy_file(document)
    assert copied(copies, document) == [b"[1, 2]", b"[9]"]


def test_what_is_copied_after_a_seal_is_whole(tmp_path: Path, file: Path) -> None:
    copies = PendingCopies(tmp_path / "copies")
    for content in (b"one\n", b"one\ntwo\n"):
        file.write_bytes(content)
        copies.copy_file(file)
        copies.seal_and_list_folders()
    again = PendingCopies(tmp_path / "copies")  # after the process was killed
    assert copied(again, file) == [b"one\n", b"one\ntwo\n"]


def test_where_nothing_was_copied_there_is_nothing_and_what_cannot_be_imported_is_kept_aside(
    tmp_path: Path, file: Path
) -> None:
    copies = PendingCopies(tmp_path / "copies")
    assert copies.seal_and_list_folders() == []
    file.write_bytes(b"one\n")
    copies.copy_file(file)
    (folder,) = copies.seal_and_list_folders()
    folder.rename(folder.with_name(f"{folder.name}.failed"))
    assert copies.seal_and_list_folders() == []
    (kept,) = (tmp_path / "copies").iterdir()
    assert kept.name == f"{folder.name}.failed"
    assert path_of_copy(kept, file).read_bytes() == b"one\n"


def test_a_database_that_nobody_changed_is_not_copied_again(tmp_path: Path) -> None:
    """Seen: to read opencode's database makes its log and removes it, which the
    recorder took for a change. So it made a copy ten times a second, and one always
    stayed: what the user had forgotten was in it.
    """
    database = tmp_path / "opencode.db"
    copies = PendingCopies(tmp_path / "copies")

    def copied_rows() -> list[object]:
        copies._next_database_time = 0.0
        assert copies.copy_database(database)
        folders = copies.seal_and_list_folders()
        if not folders:
            return []
        with foreign_sqlite.open_foreign_database(
            path_of_copy(folders[-1], database)
        ) as connection:
            found = [row[0] for row in connection.execute("SELECT id FROM part")]
        for folder in folders:
            delete_folder_tree(folder)
        return found

    def change(statement: str) -> None:
        with closing(sqlite3.connect(database)) as agent, agent:
            agent.execute("PRAGMA journal_mode = WAL")
            agent.execute(statement)

    change("CREATE TABLE part (id)")
    change("INSERT INTO part VALUES (1)")
    assert [copied_rows(), copied_rows(), copied_rows()] == [[1], [], []]
    change("INSERT INTO part VALUES (2)")
    assert [copied_rows(), copied_rows()] == [[1, 2], []]
    with closing(
        sqlite3.connect(database)
    ) as agent:  # The agent runs: what it writes is in the log.
        assert copied_rows() == []
        with agent:
            agent.execute("INSERT INTO part VALUES (3)")
        assert [copied_rows(), copied_rows()] == [[1, 2, 3], []]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and files without content")
@pytest.mark.parametrize("kind", ["terabytes without content", "pipe", "link"])
def test_what_is_no_history_is_not_copied(tmp_path: Path, file: Path, kind: str) -> None:
    """A file of terabytes that takes up nothing would have filled the disk with its copy. A pipe or
    a link may take a file's place after somebody has looked at it.
    """
    if kind == "terabytes without content":
        with file.open("wb") as created:
            created.truncate(4 << 40)
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        (tmp_path / "secret").write_text("secret")
        file.symlink_to(tmp_path / "secret")
    copies = PendingCopies(tmp_path / "copies")
    with pytest.raises(OSError, match=r"too large|Invalid argument|symbolic links"):
        copies.copy_file(file)
    assert copies.seal_and_list_folders() == []
