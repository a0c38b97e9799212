from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.errors import StoreFailed
from helix_desktop.store import journal_backups
from helix_desktop.store.journal_backups import (
    DAY,
    change_each_backup,
    create_backup,
    delete_extra_backups,
    is_backup_due,
    list_backups,
)
from helix_desktop.store.journal_file import JournalFile

NOW = 1_800_000_000.0


def test_a_copy_is_a_whole_journal_made_beside_a_writer(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal.sqlite3")
    journal.append_all_or_nothing("a", [UserSaid((Text("one"),))])
    made = create_backup(tmp_path, now=NOW)
    journal.append_all_or_nothing("a", [UserSaid((Text("two"),))])
    assert made.path.name == "journal-2027-01-15T080000.sqlite3"
    copy = JournalFile(made.path)
    assert (copy.last_fact_id(), journal.last_fact_id()) == (1, 2)
    copy.close()
    journal.close()
    assert [each.time for each in list_backups(tmp_path)] == [NOW]


def test_a_copy_is_due_once_a_day_while_something_changes(tmp_path: Path) -> None:
    assert not is_backup_due(tmp_path, NOW)
    path = tmp_path / "journal.sqlite3"
    JournalFile(path).close()
    assert is_backup_due(tmp_path, NOW)
    create_backup(tmp_path, now=NOW)
    os.utime(path, (NOW + 10, NOW + 10))
    assert not is_backup_due(tmp_path, NOW + DAY - 1)
    assert is_backup_due(tmp_path, NOW + DAY)
    os.utime(path, (NOW - 10, NOW - 10))
    assert not is_backup_due(tmp_path, NOW + 9 * DAY)


def test_a_start_with_the_clock_ahead_stops_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    JournalFile(path).close()
    for day in range(3):
        create_backup(tmp_path, now=NOW + day * DAY)
    for year in (365, 366):
        create_backup(tmp_path, now=NOW + year * DAY)
    os.utime(path, (NOW + 3 * DAY, NOW + 3 * DAY))
    assert is_backup_due(tmp_path, NOW + 4 * DAY), "until that date there was none"
    create_backup(tmp_path, now=NOW + 4 * DAY)
    ages = sorted(round((each.time - NOW) / DAY) for each in list_backups(tmp_path))
    assert ages == [0, 1, 2, 4, 365, 366], "those from the future stay, and take no other's place"


def test_seven_days_and_four_weeks_are_kept(tmp_path: Path) -> None:
    JournalFile(tmp_path / "journal.sqlite3").close()
    folder = journal_backups.backups_folder(tmp_path)
    folder.mkdir()
    for day in range(60):
        for hour in (3, 9):
            time = NOW + day * DAY + hour * 3600
            name = datetime.fromtimestamp(time, UTC).strftime("journal-%Y-%m-%dT%H%M%S.sqlite3")
            (folder / name).touch()
    (folder / "journal-mine.sqlite3").touch()
    delete_extra_backups(tmp_path, NOW + 60 * DAY)
    ages = [int((NOW + 59 * DAY - each.time) // DAY) for each in list_backups(tmp_path)]
    assert ages[:7] == [-1, 0, 1, 2, 3, 4, 5]
    assert 9 <= len(ages) <= 11
    assert ages[-1] >= 21
    assert (folder / "journal-mine.sqlite3").exists()


def test_a_disk_that_takes_nothing_is_said(tmp_path: Path) -> None:
    JournalFile(tmp_path / "journal.sqlite3").close()
    journal_backups.backups_folder(tmp_path).touch()
    with pytest.raises(StoreFailed, match="could not be backed up"):
        create_backup(tmp_path, now=NOW)


def test_each_copy_can_be_changed_and_stays_one_file(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal.sqlite3")
    journal.append_all_or_nothing("c", [UserSaid((Text("said"),))])
    create_backup(tmp_path, now=1000.0)
    journal.close()
    damaged = tmp_path / "backups" / "journal-2020-01-01T000000.sqlite3"
    damaged.write_bytes(b"no database at all" * 100)
    assert change_each_backup(tmp_path, lambda copy: copy.delete_conversation("c")) == 1
    (left,) = (tmp_path / "backups").iterdir()
    with closing(JournalFile(left)) as copy:
        assert copy.conversation_rows() == ()


def test_a_start_with_the_clock_in_1970_takes_no_backup_away(tmp_path: Path) -> None:
    """All that were made before the battery was empty seemed to come from the future, and all but
    one were deleted.
    """
    JournalFile(tmp_path / "journal.sqlite3").close()
    for day in range(10, 0, -1):
        create_backup(tmp_path, now=NOW - day * DAY)
    before = {backup.path for backup in list_backups(tmp_path)}
    for minute in range(3):
        create_backup(tmp_path, now=60.0 * minute)
    assert before < {backup.path for backup in list_backups(tmp_path)}
