"""Makes backups of the journal: daily while it changes. Keeps the last seven days and
four older weeks.
"""

import re
import sqlite3
import time as clock
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from helix_desktop.atomic_files import ensure_private_folder, make_path_private, sync_folder_to_disk
from helix_desktop.errors import JournalCorrupt, StoreFailed, WrittenByNewerVersion
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store import sqlite_database
from helix_desktop.store.journal_file import JournalFile

DAY = 86_400.0
DAYS = 7
WEEKS = 4
_NAME = re.compile(r"journal-(\d{4}-\d{2}-\d{2})T(\d{2})(\d{2})(\d{2})(?:-v(\d+))?\.sqlite3")


@dataclass(frozen=True, slots=True)
class JournalBackup:
    """A whole copy of the journal. `version`: the format it was upgraded from, if it was."""

    path: Path
    time: float
    version: int = 0


def backups_folder(workspace: Path) -> Path:
    return workspace / "backups"


def list_backups(workspace: Path) -> tuple[JournalBackup, ...]:
    folder = backups_folder(workspace)
    backups = []
    for path in folder.glob("journal-*.sqlite3"):
        backup = _parse_backup_name(path)
        if backup is not None:
            backups.append(backup)
    return tuple(sorted(backups, key=lambda backup: backup.time, reverse=True))


def _parse_backup_name(path: Path) -> JournalBackup | None:
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    iso_time = f"{match[1]}T{match[2]}:{match[3]}:{match[4]}+00:00"
    version = int(match[5] or 0)
    with suppress(ValueError):
        moment = datetime.fromisoformat(iso_time)
        return JournalBackup(path, moment.timestamp(), version)
    return None


def is_backup_due(workspace: Path, now: float) -> bool:
    """Whether the journal has changed since its last backup, which is over a day old."""
    journal = workspace / "journal.sqlite3"
    if not journal.exists():
        return False
    # One from the future was made while the clock was wrong.
    past_backups = [backup for backup in list_backups(workspace) if backup.time <= now]
    if not past_backups:
        return True
    newest = past_backups[0]
    changed_time = journal.stat().st_mtime
    log = journal.with_name("journal.sqlite3-wal")
    if log.exists():
        changed_time = max(changed_time, log.stat().st_mtime)
    return now - newest.time >= DAY and changed_time > newest.time


def create_backup(workspace: Path, *, now: float | None = None, version: int = 0) -> JournalBackup:
    """Copy the journal, even while others write to it, and delete backups beyond the number kept.

    `version`: the old format's, before an upgrade. The newest backup of each version is
    kept forever.
    """
    time = now
    if time is None:
        time = clock.time()
    folder = backups_folder(workspace)
    name = datetime.fromtimestamp(time, UTC).strftime("journal-%Y-%m-%dT%H%M%S")
    if version:
        name = f"{name}-v{version}"
    path = folder / f"{name}.sqlite3"
    unfinished = path.with_suffix(".new")
    try:
        ensure_private_folder(folder)
        unfinished.unlink(missing_ok=True)
        _copy_journal(workspace / "journal.sqlite3", unfinished)
        unfinished.replace(path)
        sync_folder_to_disk(folder)
    except OSError as error:
        raise StoreFailed(
            f"The journal could not be backed up to {path}: {error.strerror}."
        ) from error
    make_path_private(path)
    delete_extra_backups(workspace, time)
    return JournalBackup(path, time, version)


def _copy_journal(journal: Path, to: Path) -> None:
    with (
        sqlite_database.SqliteErrors(StoreFailed, "journal's backup"),
        closing(sqlite3.connect(journal, isolation_level=None)) as source,
    ):
        source.execute("VACUUM INTO ?", (str(to),))
    with to.open("rb+") as file:
        sqlite_database.sync_file(file)


def change_each_backup(workspace: Path, change: Callable[[JournalFile], object]) -> int:
    """Change each backup, deleting unreadable ones. Return how many `change` reports as changed."""
    changed = 0
    for backup in list_backups(workspace):
        try:
            with closing(JournalFile(backup.path)) as journal:
                changed += bool(change(journal))
                journal.remove_write_ahead_log()
        except (JournalCorrupt, WrittenByNewerVersion):
            backup.path.unlink(missing_ok=True)
    return changed


def delete_extra_backups(workspace: Path, now: float) -> None:
    """Keep the newest backup of each of the last seven days with one, of each of four
    earlier weeks, and of each older version.

    As many with a time in the future are kept too, and take no other's place: the clock was ahead
    when they were made, or it is behind now, and they are all there is.
    """
    newest_of_version: dict[int, Path] = {}
    until_now: list[JournalBackup] = []
    from_future: list[JournalBackup] = []
    backups = list_backups(workspace)
    for backup in backups:
        if backup.version:
            newest_of_version.setdefault(backup.version, backup.path)
        elif backup.time > now:
            from_future.append(backup)
        else:
            until_now.append(backup)

    kept_paths = set(newest_of_version.values())
    kept_paths |= _newest_of_days_and_weeks(until_now)
    kept_paths |= _newest_of_days_and_weeks(from_future)
    for backup in backups:
        if backup.path not in kept_paths:
            backup.path.unlink(missing_ok=True)


def _newest_of_days_and_weeks(backups: Sequence[JournalBackup]) -> set[Path]:
    """Return the backups to keep of these, which are listed from the newest to the oldest."""
    newest_of_day: dict[int, Path] = {}
    newest_of_week: dict[int, Path] = {}
    for backup in backups:
        newest_of_day.setdefault(int(backup.time // DAY), backup.path)
        newest_of_week.setdefault(int(backup.time // (7 * DAY)), backup.path)
    kept_paths: set[Path] = set()
    for day in sorted(newest_of_day, reverse=True)[:DAYS]:
        kept_paths.add(newest_of_day[day])
    # The current week is one more: its backup is among those of the last days.
    for week in sorted(newest_of_week, reverse=True)[: WEEKS + 1]:
        kept_paths.add(newest_of_week[week])
    return kept_paths
