from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from helix_desktop.engine.facts import ConversationStarted, Forgotten, Text, UserSaid
from helix_desktop.store import journal_repair, store_opening
from helix_desktop.store.journal_file import JournalFile, find_journal_defects


def said(number: int) -> UserSaid:
    return UserSaid((Text(f"fact {number} " + "words " * 200),))


def left_open(path: Path, facts: int = 20) -> Path:
    """A journal whose last facts stand in the log alone, as a killed process leaves it;
    a copy of it.
    """
    journal = JournalFile(path / "journal.sqlite3")
    journal.append_all_or_nothing("a", [ConversationStarted("A")])
    journal.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(facts):
        journal.append_all_or_nothing("a", [said(number)])
    copy = path / "copy"
    copy.mkdir()
    for each in path.glob("journal.sqlite3*"):
        shutil.copy(each, copy)
    journal.close()
    (copy / "journal.sqlite3-shm").unlink()
    return copy / "journal.sqlite3"


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 16
    path.write_bytes(content)


def test_a_whole_log_is_read_by_sqlite_alone(tmp_path: Path) -> None:
    path = left_open(tmp_path)
    log = journal_repair.read_write_ahead_log(path)
    assert log is not None
    assert len(journal_repair.salvage_facts(path, log).stored_facts) == 21
    journal = JournalFile(path)
    assert (
        journal.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1] == log.committed
    )
    assert len(journal.read_recorded("a")) == 21
    journal.close()
    assert journal_repair.read_write_ahead_log(path) is None


@pytest.mark.parametrize("where", ["header", "early frame", "salt"])
def test_what_stands_behind_damage_in_the_log_is_salvaged(tmp_path: Path, where: str) -> None:
    path = left_open(tmp_path)
    wal = path.with_name("journal.sqlite3-wal")
    flip(wal, {"header": 18, "early frame": 32 + 24 + 4000, "salt": 32 + 10}[where])
    log = journal_repair.read_write_ahead_log(path)
    assert log is not None
    salvage = journal_repair.salvage_facts(path, log)
    journal = JournalFile(path)
    assert len(journal.read_stored_facts("a")) < 21, "SQLite itself stops at the damage"
    added, missing, gap = journal_repair.append_salvaged_facts(journal, salvage)
    assert added > 0
    assert not gap
    assert len(journal.read_recorded("a")) + len(missing) == 21
    journal.close()


def test_a_resealed_log_is_what_it_was(tmp_path: Path) -> None:
    path = left_open(tmp_path)
    log = journal_repair.read_write_ahead_log(path)
    assert log is not None
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(path, other / "journal.sqlite3")
    (other / "journal.sqlite3-wal").write_bytes(journal_repair.with_valid_checksums(log))
    journal = JournalFile(other / "journal.sqlite3")
    assert len(journal.read_recorded("a")) == 21
    journal.close()


@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_the_page_size_is_taken_from_where_it_makes_sense(tmp_path: Path, page: int) -> None:
    path = tmp_path / "journal.sqlite3"
    path.write_bytes(bytes(16) + (1 if page == 65536 else page).to_bytes(2, "big") + bytes(4096))
    header = struct.pack(">8I", 0x377F0683, 3007000, 77, 0, 1, 2, 0, 0)
    frame = struct.pack(">6I", 1, 1, 1, 2, 0, 0) + bytes(page)
    (tmp_path / "journal.sqlite3-wal").write_bytes(header + frame)
    log = journal_repair.read_write_ahead_log(path)
    assert log is not None
    assert (log.page, log.committed) == (page, 1)


def damaged_journal(tmp_path: Path, seed: int) -> tuple[Path, Path]:
    """A journal with a few bytes wrong in the middle of the file, and a copy of it from
    before its last facts.
    """
    path = tmp_path / "journal.sqlite3"
    backup = tmp_path / "backup.sqlite3"
    journal = JournalFile(path)
    for number in range(30):
        journal.append_all_or_nothing("a" if number % 2 else "b", [said(number)])
    journal.close()
    shutil.copy(path, backup)
    journal = JournalFile(path)
    journal.append_all_or_nothing("a", [said(99)])
    journal.close()
    chance = random.Random(seed)
    for _ in range(3):
        flip(path, chance.randrange(8192, path.stat().st_size))
    return path, backup


@pytest.mark.parametrize("seed", range(6))
def test_with_a_backup_everything_comes_back(tmp_path: Path, seed: int) -> None:
    path, backup = damaged_journal(tmp_path, seed)
    result = journal_repair.rebuild_journal(path, [backup], None, tmp_path / "new")
    journal = JournalFile(tmp_path / "new")
    assert len(journal.read_recorded("b")) == 15
    assert len(journal.read_recorded("a")) >= 15
    assert result.kept + len(result.lost) == len(journal.stored_facts_since(0, 1 << 30))
    assert len(result.lost) <= 1
    assert list(find_journal_defects(journal)) == []
    journal.close()


def test_what_was_salvaged_from_the_log_takes_the_place_of_what_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    journal = JournalFile(path)
    journal.append_all_or_nothing("a", [said(number) for number in range(3)])
    salvaged = journal_repair.SalvagedFacts(tuple(journal.read_stored_facts("a")), {"a": 3})
    journal.connection.execute("DELETE FROM facts WHERE seq > 1")
    journal.connection.commit()
    journal.close()

    alone = journal_repair.rebuild_journal(path, [], None, tmp_path / "alone")
    with_log = journal_repair.rebuild_journal(path, [], salvaged, tmp_path / "with log")
    assert (alone.kept, len(alone.lost)) == (1, 2)
    assert (with_log.kept, with_log.lost) == (3, ())


@pytest.mark.parametrize("seed", range(6))
def test_without_one_what_is_lost_is_named_and_keeps_its_place(tmp_path: Path, seed: int) -> None:
    path, _ = damaged_journal(tmp_path, seed)
    result = journal_repair.rebuild_journal(path, [], None, tmp_path / "new")
    journal = JournalFile(tmp_path / "new")
    gone = [
        f"Record {each.seq} of conversation {name} was lost."
        for name in "ab"
        for each in journal.read_recorded(name)
        if isinstance(each.fact, Forgotten)
    ]
    assert sorted(gone) == sorted(result.lost)
    assert list(find_journal_defects(journal)) == []
    journal.close()


def test_facts_are_read_though_the_names_of_the_columns_are_damaged(tmp_path: Path) -> None:
    path, _ = damaged_journal(tmp_path, 0)
    before = len(list(journal_repair.read_intact_facts(path)))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"digest BLOB NOT NULL", b"tigest BLOB NOT NULL"))
    assert len(list(journal_repair.read_intact_facts(path))) == before > 0


def test_nothing_can_be_read_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_bytes(b"nonsense" * 1000)
    assert list(journal_repair.read_intact_facts(tmp_path / "nonsense")) == []
    assert journal_repair.rebuild_journal(
        tmp_path / "nonsense", [], None, tmp_path / "new"
    ) == journal_repair.RepairResult(0, ())


@pytest.mark.parametrize("name", [b"conversation TEXT", b"CREATE TABLE facts", b"digest BLOB"])
def test_facts_are_read_though_sqlite_cannot_even_say_what_is_wrong(
    tmp_path: Path, name: bytes
) -> None:
    """Its sentence has the damaged text in it, which then is no UTF-8."""
    journal = JournalFile(tmp_path / "journal.sqlite3")
    journal.append_all_or_nothing("a", [said(number) for number in range(5)])
    journal.close()
    path = tmp_path / "journal.sqlite3"
    content = path.read_bytes()
    assert name in content
    path.write_bytes(content.replace(name, b"\x8a" * len(name)))
    assert len(list(journal_repair.read_intact_facts(path))) == 5
    notes: list[str] = []
    (tmp_path / store_opening.SUSPECT).touch()  # Reading a conversation leaves this mark.
    opened = store_opening.open_or_repair_journal(tmp_path, notes.append)
    assert len(opened.read_recorded("a")) == 5
    opened.close()
    assert notes


def test_a_damaged_length_of_a_conversation_makes_no_millions_of_lost_records(
    tmp_path: Path,
) -> None:
    journal = JournalFile(tmp_path / "journal.sqlite3")
    journal.append_all_or_nothing("a", [ConversationStarted("A"), said(1)])
    journal.append_all_or_nothing("b", [ConversationStarted("B"), said(2)])
    journal.connection.execute("UPDATE conversations SET last_seq = ? WHERE id = 'a'", (1 << 24,))
    journal.close()
    into = tmp_path / "new.sqlite3"
    result = journal_repair.rebuild_journal(tmp_path / "journal.sqlite3", [], None, into)
    assert result.kept == 4
    assert result.lost == ()
