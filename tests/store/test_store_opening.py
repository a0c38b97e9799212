from __future__ import annotations

import errno
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import (
    CacheCorrupt,
    HelixError,
    StoreFailed,
    StoreFull,
    WrittenByNewerVersion,
)
from helix_desktop.store import cache_opening, journal_backups, journal_file, store_opening
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.index_file import IndexFile
from helix_desktop.store.journal_file import JournalFile
from tests.store.putting import put_whole
from tests.store.test_index_file import ListFeed

CONTENTS = [b"one" * 500, b"two" * 500, bytes(range(256)) * 9000]


def filled(folder: Path) -> None:
    cache = CacheFolder(folder / "cache")
    journal = JournalFile(folder / "journal.sqlite3")
    for number, content in enumerate(CONTENTS):
        put_whole(cache, content, EntryOrigin("shell"))
        journal.append_all_or_nothing("c", [UserSaid((Text(f"fact {number}"),))])
    cache.level.flush_log()
    cache.close()
    journal.close()


def whole(folder: Path) -> tuple[list[str], int, int]:
    """The notes of opening, and how many entries and facts are there."""
    notes: list[str] = []
    cache = cache_opening.open_or_repair_cache(folder, notes.append)
    journal = store_opening.open_or_repair_journal(folder, notes.append)
    entries = 0
    for content in CONTENTS:
        try:
            entries += cache.reader.get_content(Digest.of_content(content)) == content
        except HelixError:
            continue
    facts = len(journal.read_stored_facts("c"))
    cache.close()
    journal.close()
    return notes, entries, facts


def test_what_is_whole_opens_without_a_word(tmp_path: Path) -> None:
    filled(tmp_path)
    assert whole(tmp_path) == ([], 3, 3)
    assert not (tmp_path / "damaged").exists()


@pytest.mark.parametrize("gone", ["CURRENT", "MANIFEST-*", "CURRENT and MANIFEST-*"])
def test_a_cache_without_its_list_of_files_is_repaired_whole(tmp_path: Path, gone: str) -> None:
    filled(tmp_path)
    for pattern in gone.split(" and "):
        for path in (tmp_path / "cache").glob(pattern):
            path.unlink()
    notes, entries, facts = whole(tmp_path)
    assert (entries, facts) == (3, 3)
    assert "has been repaired" in notes[0]
    assert "Cache entries intact: 3; lost: 0" in notes[1]
    assert list((tmp_path / "damaged").glob("*/cache/*.ldb"))
    assert whole(tmp_path)[0] == []


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST"])
def test_nonsense_in_the_list_of_files_is_repaired(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    for path in (tmp_path / "cache").glob(f"{name}*"):
        path.write_bytes(b"nonsense\n")
    notes, entries, _ = whole(tmp_path)
    assert entries == 3
    assert notes


def test_a_cache_beyond_repair_begins_anew_and_its_files_are_kept(tmp_path: Path) -> None:
    filled(tmp_path)
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(b"nonsense" * 100)
    notes, entries, facts = whole(tmp_path)
    assert (entries, facts) == (0, 3)
    assert "Nothing in the cache's files could be read." in notes
    assert len(list((tmp_path / "damaged").glob("*/cache/*"))) >= 3


@pytest.mark.parametrize("left", [None, b""])
def test_a_journal_that_is_gone_comes_back_from_its_backup(
    tmp_path: Path, left: bytes | None
) -> None:
    filled(tmp_path)
    journal_backups.create_backup(tmp_path)
    (tmp_path / "journal.sqlite3").unlink()
    if left is not None:
        (tmp_path / "journal.sqlite3").write_bytes(left)
    notes, _, facts = whole(tmp_path)
    assert facts == 3
    assert notes


def test_a_journal_that_is_nonsense_comes_back_from_its_backup(tmp_path: Path) -> None:
    filled(tmp_path)
    journal_backups.create_backup(tmp_path)
    (tmp_path / "journal.sqlite3").write_bytes(b"nonsense" * 1000)
    notes, _, facts = whole(tmp_path)
    assert facts == 3
    assert "Journal records intact: 3, lost: 0" in notes[0]
    assert (
        (next((tmp_path / "damaged").iterdir()) / "journal.sqlite3")
        .read_bytes()
        .startswith(b"nonsense")
    )


def test_of_a_journal_that_is_nonsense_without_a_backup_it_is_said_that_nothing_could_be_read(
    tmp_path: Path,
) -> None:
    """That 0 facts are lost would be all it said."""
    filled(tmp_path)
    (tmp_path / "journal.sqlite3").write_bytes(b"nonsense" * 1000)
    notes, _, facts = whole(tmp_path)
    assert facts == 0
    (aside,) = (tmp_path / "damaged").iterdir()
    assert f"The journal could not be read. The original files are in {aside}." in notes


def test_a_mended_journal_takes_its_place_though_the_program_died_before(tmp_path: Path) -> None:
    filled(tmp_path)
    shutil.copy(tmp_path / "journal.sqlite3", tmp_path / "journal.mended")
    (tmp_path / "journal.sqlite3").write_bytes(b"nonsense")
    (tmp_path / "journal.sqlite3-wal").write_bytes(b"nonsense")
    assert whole(tmp_path) == ([], 3, 3)
    assert not (tmp_path / "journal.mended").exists()


def test_a_mark_has_everything_checked_once(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / store_opening.SUSPECT).touch()
    assert whole(tmp_path) == ([], 3, 3)
    assert not (tmp_path / store_opening.SUSPECT).exists()


def test_files_of_a_newer_version_are_not_mended(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = JournalFile(tmp_path / "journal.sqlite3")
    journal.connection.execute("PRAGMA user_version=9")
    journal.close()
    with pytest.raises(WrittenByNewerVersion):
        store_opening.open_or_repair_journal(tmp_path, print)
    assert not (tmp_path / "damaged").exists()


def test_a_disk_in_trouble_is_no_reason_to_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)

    def troubled(_: Path) -> CacheFolder:
        raise StoreFailed("The cache cannot be opened: IO error: Input/output error.")

    monkeypatch.setattr(cache_opening, "LevelDatabase", troubled)
    with pytest.raises(StoreFailed, match="Input/output"):
        cache_opening.open_or_repair_cache(tmp_path, print)
    assert not (tmp_path / "damaged").exists()


def test_a_full_disk_is_not_taken_for_a_damaged_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite takes the log over when the file opens, and for that it needs room."""

    class Full(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
            if "wal_checkpoint" in sql:
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            return super().execute(sql, *given)

    filled(tmp_path)
    real = sqlite3.connect
    kept = real(tmp_path / "journal.sqlite3")
    kept.execute("PRAGMA user_version").fetchone()
    writing = JournalFile(tmp_path / "journal.sqlite3")
    writing.append_all_or_nothing("c", [UserSaid((Text("in the log"),))])
    with monkeypatch.context() as patched:
        patched.setattr(
            sqlite3, "connect", lambda *given, **more: real(*given, **{**more, "factory": Full})
        )
        with pytest.raises(StoreFull, match="disk is full"):
            store_opening.open_or_repair_journal(tmp_path, print)
    assert not (tmp_path / "damaged").exists()
    writing.close()
    kept.close()
    assert whole(tmp_path) == ([], 3, 4)


def test_a_copy_that_found_no_room_does_not_take_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> str:
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device", target)

    filled(tmp_path)
    for path in (tmp_path / "cache").glob("CURRENT"):
        path.write_bytes(b"nonsense\n")
    monkeypatch.setattr(store_opening, "link_or_copy", full)
    with pytest.raises(StoreFull, match="the disk is full"):
        cache_opening.open_or_repair_cache(tmp_path, print)
    assert list((tmp_path / "damaged").iterdir()) == []


@pytest.mark.parametrize("content", [b"nonsense" * 1000, b""])
def test_a_damaged_index_is_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / store_opening.INDEX).write_bytes(content)
    index = store_opening.open_or_rebuild_index(tmp_path, ListFeed(), lambda _: 0)
    assert isinstance(index, IndexFile)
    while not index.index_next_slice().is_complete:
        pass
    assert index.current_progress().orders == 0
    index.close()


def test_a_folder_in_the_place_of_the_index_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / store_opening.INDEX).mkdir()
    (tmp_path / store_opening.INDEX / "inside").touch()
    index = store_opening.open_or_rebuild_index(tmp_path, ListFeed(), lambda _: 0)
    assert index.current_progress().rows == 0
    index.close()


def test_an_index_that_cannot_be_deleted_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / store_opening.INDEX).write_bytes(b"nonsense" * 1000)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(StoreFailed, match=r"Permission denied.*Nothing is lost"):
        store_opening.open_or_rebuild_index(tmp_path, ListFeed(), lambda _: 0)


def test_what_the_cache_says_is_no_code(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(StoreFailed, match="Not a directory") as failed:
        cache_opening.open_or_repair_cache(tmp_path, print)
    assert "b'" not in str(failed.value)


def test_an_index_of_an_older_version_is_made_anew(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / store_opening.INDEX)) as old:
        old.executescript(
            "CREATE TABLE entries(number INTEGER PRIMARY KEY); PRAGMA user_version=1;"
        )
    index = store_opening.open_or_rebuild_index(tmp_path, ListFeed(), lambda _: 0)
    assert index.current_progress().rows == 0
    index.close()


def test_what_the_log_lost_is_said(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    for content in CONTENTS[:2]:
        put_whole(cache, content, EntryOrigin("shell"))
    cache.close()
    log = max((tmp_path / "cache").glob("*.log"))
    damaged = bytearray(log.read_bytes())
    damaged[60] ^= 1
    log.write_bytes(damaged)
    notes: list[str] = []
    opened = cache_opening.open_or_repair_cache(tmp_path, notes.append)
    assert "The cache was damaged and has been repaired." in notes[0]
    assert "Cache entries intact: 1; lost: 1." in notes[1]
    with pytest.raises((HelixError, CacheCorrupt)):
        opened.reader.get_content(Digest.of_content(CONTENTS[0]))
    opened.close()


def test_a_journal_of_an_older_version_is_copied_and_brought_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    monkeypatch.setattr(journal_file, "VERSION", 3)
    monkeypatch.setattr(
        journal_file, "STEPS", {1: "CREATE TABLE one(a);", 2: "ALTER TABLE one ADD COLUMN b;"}
    )
    notes, entries, facts = whole(tmp_path)
    assert (len(notes), entries, facts) == (1, 3, 3)
    (kept,) = journal_backups.list_backups(tmp_path)
    assert str(kept.path) in notes[0]
    for day in range(1, 12):
        journal_backups.create_backup(tmp_path, now=kept.time + day * journal_backups.DAY)
    assert (kept.version, kept in journal_backups.list_backups(tmp_path)) == (1, True)
    with closing(sqlite3.connect(kept.path)) as older:
        assert older.execute("PRAGMA user_version").fetchone() == (1,)
    assert whole(tmp_path) == ([], 3, 3)


def test_a_step_that_fails_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    monkeypatch.setattr(journal_file, "VERSION", 2)
    monkeypatch.setattr(
        journal_file, "STEPS", {1: "CREATE TABLE one(a); INSERT INTO nothing VALUES(1);"}
    )
    with pytest.raises(StoreFailed):
        store_opening.open_or_repair_journal(tmp_path, print)
    monkeypatch.undo()
    assert whole(tmp_path) == ([], 3, 3)


def test_an_index_that_knows_more_than_the_journal_names_what_is_gone(tmp_path: Path) -> None:
    """A cut log looks like one that was never written. New facts would never be indexed."""
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / store_opening.INDEX)) as index:
        index.executescript(
            "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER);"
            "INSERT INTO meta VALUES('facts', 5), ('rows', 3);"
            "CREATE TABLE pieces(conversation, seq); CREATE TABLE uses(conversation, seq);"
            "INSERT INTO pieces VALUES('c', 3), ('c', 5); INSERT INTO uses VALUES('c', 4);"
        )
    journal = JournalFile(tmp_path / "journal.sqlite3")
    notes: list[str] = []
    store_opening.check_index_against_stores(tmp_path, journal, 3, notes.append)
    journal.close()
    assert notes == [
        "The end of the journal is missing. Journal records lost: 2.",
        "Record 4 of conversation c was lost.",
        "Record 5 of conversation c was lost.",
    ]
    assert not (tmp_path / store_opening.INDEX).exists()


def test_a_damaged_number_in_the_index_names_no_millions_of_records(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / store_opening.INDEX)) as index:
        index.executescript(
            "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER);"
            "INSERT INTO meta VALUES('facts', 5), ('rows', 3);"
            "CREATE TABLE pieces(conversation, seq); CREATE TABLE uses(conversation, seq);"
            f"INSERT INTO pieces VALUES('c', 3), ('c', {1 << 40});"
        )
    journal = JournalFile(tmp_path / "journal.sqlite3")
    notes: list[str] = []
    store_opening.check_index_against_stores(tmp_path, journal, 3, notes.append)
    journal.close()
    assert notes[1] == "Record 4 of conversation c was lost."
    assert len(notes) < 200


def test_a_journal_opens_whichever_of_its_pages_is_zeroed(tmp_path: Path) -> None:
    """Some pages are only read when the index is compared with the journal."""
    original = tmp_path / "original"
    original.mkdir()
    with closing(JournalFile(original / "journal.sqlite3")) as journal:
        for conversation in ("a", "b", "c"):
            for number in range(40):
                said = UserSaid((Text(f"fact {number} " + "x" * 900),))
                journal.append_all_or_nothing(conversation, [said])
        page_size = journal.connection.execute("PRAGMA page_size").fetchone()[0]
    with closing(sqlite3.connect(original / "index.sqlite3")) as index, index:
        index.execute("CREATE TABLE meta(name, value)")
        index.execute("INSERT INTO meta VALUES ('facts', 121), ('rows', 0)")
        index.execute("CREATE TABLE pieces(conversation, seq)")
        index.execute("CREATE TABLE uses(conversation, seq)")
    content = (original / "journal.sqlite3").read_bytes()
    pages = len(content) // page_size
    assert pages > 20
    for page in range(pages):
        folder = tmp_path / f"page {page}"
        shutil.copytree(original, folder)
        start = page * page_size
        zeroed = content[:start] + bytes(page_size) + content[start + page_size :]
        (folder / "journal.sqlite3").write_bytes(zeroed)
        notes: list[str] = []
        with closing(store_opening.open_or_repair_journal(folder, notes.append)) as opened:
            store_opening.check_index_against_stores(folder, opened, 0, notes.append)
