"""Opens a workspace's journal and index, step by step. If a file is damaged, sets it aside,
repairs and checks everything, and reports what was recovered. Never overwrites anything that
might still be needed. `cache_opening` does the same for the cache.
"""

import errno
import os
import shutil
import sqlite3
import time as clock
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

from helix_desktop.atomic_files import create_folders, sync_folder_to_disk
from helix_desktop.errors import JournalCorrupt, StoreFailed, StoreFull
from helix_desktop.folder_trees import delete_folder_tree
from helix_desktop.store import journal_backups, journal_file, journal_repair, sqlite_database
from helix_desktop.store.index_file import IndexFile, StoreFeed
from helix_desktop.store.journal_file import JournalFile, find_journal_defects

# A file with this name says that damage was found, so the next opening checks
# everything.
SUSPECT = "suspect"
INDEX = "index.sqlite3"
_REPAIRED_JOURNAL = "journal.mended"
_MOST_NAMED = 100
Note = Callable[[str], None]


def open_or_repair_journal(workspace: Path, note: Note) -> JournalFile:
    """Open the journal, repaired if necessary. `note` is called with sentences.

    A repair that was interrupted when it was almost done is completed first. The log is read
    before SQLite opens the file, as SQLite drops what is behind a damaged part of it.
    """
    path = workspace / "journal.sqlite3"
    _install_repaired_journal(path)
    log = None
    if path.exists():
        log = journal_repair.read_write_ahead_log(path)
    suspect = workspace / SUSPECT
    try:
        _check_journal_exists(workspace, path)
        journal = JournalFile(path, upgrade=False)
        if suspect.exists():
            _check_journal_whole(journal)
        _append_facts_behind_damage(journal, log, note)
        _read_what_opening_needs(journal)
    except JournalCorrupt:
        journal = _repair_journal(workspace, path, log, note)
    suspect.unlink(missing_ok=True)
    _upgrade_journal(workspace, journal, note)
    return journal


def _upgrade_journal(workspace: Path, journal: JournalFile, note: Note) -> None:
    """Upgrade an older journal to this version. A copy for the older program is kept
    among the backups.
    """
    if journal.format_version >= journal_file.VERSION:
        return
    try:
        backup = journal_backups.create_backup(workspace, version=journal.format_version)
        journal.upgrade_format()
    except StoreFailed:
        journal.close()
        raise
    note(f"The journal was converted to a new format. The old journal is saved in {backup.path}.")


def _check_journal_exists(workspace: Path, path: Path) -> None:
    """Raise if the file is missing or empty but has backups. SQLite would just start a new one."""
    is_there = path.exists() and path.stat().st_size > 0
    if not is_there and journal_backups.list_backups(workspace):
        raise JournalCorrupt("The journal is missing.")


def _check_journal_whole(journal: JournalFile) -> None:
    for defect in find_journal_defects(journal):
        journal.close()
        raise JournalCorrupt(defect)


def _read_what_opening_needs(journal: JournalFile) -> None:
    """Read what the index is compared with next, while a damaged page can still be repaired.
    SQLite opens a file without reading the pages that hold it.
    """
    try:
        journal.last_fact_id()
        journal.conversation_rows()
    except JournalCorrupt:
        journal.close()
        raise


def _append_facts_behind_damage(
    journal: JournalFile, log: journal_repair.WriteAheadLog | None, note: Note
) -> None:
    """Append facts after a damaged frame of the log, at which SQLite silently stops reading."""
    if log is None:
        return
    try:
        frames_read = int(
            journal.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        )
    except (sqlite3.Error, UnicodeDecodeError) as error:
        journal.close()
        converted_error = sqlite_database.convert_sqlite_error(error, JournalCorrupt, "journal")
        # A full disk does not mean that the store is damaged.
        if isinstance(converted_error, StoreFull):
            raise converted_error from error
        raise JournalCorrupt(f"The journal's latest records cannot be read: {error}.") from error
    if frames_read >= log.committed:
        return
    added_count, missing, has_gap = journal_repair.append_salvaged_facts(
        journal, journal_repair.salvage_facts(journal.path, log)
    )
    if has_gap:
        journal.close()
        raise JournalCorrupt("Some of the journal's latest records are damaged or missing.")
    note(f"The end of the journal was damaged or incomplete. Records recovered: {added_count}.")
    for description in missing[:100]:
        note(
            f"These items were lost, or were still being written when the computer stopped: {description}."
        )


def _repair_journal(
    workspace: Path, path: Path, log: journal_repair.WriteAheadLog | None, note: Note
) -> JournalFile:
    """Replace a damaged journal by a new one with all facts that can be saved, and open it.

    The damaged files are copied away first. The new journal is built beside them and only
    then takes the place of the old, so after a crash at any point it can be done again.
    """
    damaged_copy = copy_to_damaged_folder(workspace, path.parent.glob("journal.sqlite3*"))
    damaged_journal = damaged_copy / path.name
    backups = [backup.path for backup in journal_backups.list_backups(workspace)]
    salvaged = None
    if log is not None and damaged_journal.exists():
        salvaged = journal_repair.salvage_facts(damaged_journal, log)
    new_journal = path.with_name("journal.mending")
    for leftover in path.parent.glob("journal.mending*"):
        leftover.unlink()
    result = journal_repair.rebuild_journal(damaged_journal, backups, salvaged, new_journal)
    new_journal.replace(path.with_name(_REPAIRED_JOURNAL))
    sync_folder_to_disk(workspace)
    _install_repaired_journal(path)
    note(
        f"The journal was damaged and repaired. Journal records intact: {result.kept}, lost: {len(result.lost)}."
    )
    if not result.kept:
        note(f"The journal could not be read. The original files are in {damaged_copy}.")
    for sentence in result.lost[:100]:
        note(sentence)
    return JournalFile(path)


def _install_repaired_journal(path: Path) -> None:
    """Replace the damaged journal by the repaired one, even after a crash just before that."""
    repaired = path.with_name(_REPAIRED_JOURNAL)
    if repaired.exists():
        # This comes first, because the old log must never be applied to the new file.
        for old_file in (f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(old_file).unlink(missing_ok=True)
        repaired.replace(path)
        sync_folder_to_disk(path.parent)


def copy_to_damaged_folder(workspace: Path, paths: Iterable[Path]) -> Path:
    """Copy `paths` to a new folder in `damaged`. Files that LevelDB never changes are
    linked instead.
    """
    name = clock.strftime("%Y-%m-%dT%H%M%S", clock.gmtime())
    copy = workspace / "damaged" / name
    for number in range(2, 100):
        if not copy.exists():
            break
        copy = workspace / "damaged" / f"{name}-{number}"
    try:
        create_folders(copy.parent)
        copy.mkdir(mode=0o700)
        for path in paths:
            if path.is_dir():
                shutil.copytree(path, copy / path.name, copy_function=link_or_copy)
            else:
                shutil.copy2(path, copy)
    except OSError as error:
        # An incomplete copy is useless, and each new attempt would need more space.
        delete_folder_tree(copy, ignore_errors=True)
        raise _error_of_backup(copy, error) from error
    return copy


def _error_of_backup(copy: Path, error: OSError) -> StoreFailed:
    # `copytree` reports all failures of a folder as one error, with the reasons in its text.
    is_disk_full = error.errno == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(error)
    if is_disk_full:
        reason = "the disk is full"
        return StoreFull(
            f"The damaged files cannot be backed up to {copy}: {reason}.",
            remedy="Nothing was changed. Free up disk space and open the workspace again.",
        )
    reason = error.strerror or "not all of them could be read and written"
    return StoreFailed(
        f"The damaged files cannot be backed up to {copy}: {reason}.",
        remedy="Nothing was changed.",
    )


def link_or_copy(source: str, target: str) -> str:
    if source.endswith((".ldb", ".sst")):
        with suppress(OSError):
            os.link(source, target)
            return target
    return str(shutil.copy2(source, target))


def check_index_against_stores(
    workspace: Path, journal: JournalFile, last_entry: int, note: Note
) -> None:
    """Delete an index that knows more than the stores, and name the facts that only it knows.

    The end of a log that was cut off looks like a log that was never written. But the index
    follows the stores, and would take the next facts for those it has already.
    """
    path = workspace / INDEX
    if not path.is_file():
        return
    # A damaged index is rebuilt when it opens.
    errors = (sqlite3.Error, UnicodeDecodeError, TypeError)
    with suppress(*errors), closing(sqlite3.connect(path)) as index:
        marks = dict(index.execute("SELECT name, value FROM meta WHERE name IN ('facts', 'rows')"))
        lost_count = marks.get("facts", 0) - journal.last_fact_id()
        if lost_count <= 0 and marks.get("rows", 0) <= last_entry:
            return
        if lost_count > 0:
            note(f"The end of the journal is missing. Journal records lost: {lost_count}.")
            for sentence in _name_facts_only_index_has(index, journal):
                note(sentence)
        index.close()
        delete_index(workspace)


def _name_facts_only_index_has(index: sqlite3.Connection, journal: JournalFile) -> list[str]:
    """Return sentences about the facts that were in the index but are not in the repaired
    journal.
    """
    last_seq_in_journal = {row.id: row.last_seq for row in journal.conversation_rows()}
    sentences: list[str] = []
    rows = index.execute(
        "SELECT conversation, max(seq) FROM (SELECT conversation, seq FROM pieces"
        " UNION ALL SELECT conversation, seq FROM uses) WHERE seq > 0 GROUP BY conversation"
    )
    for conversation, last_seq_in_index in rows:
        first_lost = last_seq_in_journal.get(conversation, 0) + 1
        # A damaged index may name any number.
        last_lost = min(last_seq_in_index, first_lost + _MOST_NAMED)
        for seq in range(first_lost, last_lost + 1):
            sentences.append(f"Record {seq} of conversation {conversation} was lost.")
    return sentences[:_MOST_NAMED]


def open_or_rebuild_index(
    workspace: Path, feed: StoreFeed, count: Callable[[str], int]
) -> IndexFile:
    """Open the index. One that is damaged or of another version is deleted and rebuilt."""
    path = workspace / INDEX
    try:
        return IndexFile(path, feed, count=count)
    except StoreFull:
        raise
    except StoreFailed:
        delete_index(workspace)
        return IndexFile(path, feed, count=count)


def delete_index(workspace: Path) -> None:
    for path in workspace.glob(f"{INDEX}*"):
        try:
            if path.is_dir():
                delete_folder_tree(path)
            else:
                path.unlink()
        except OSError as error:
            raise StoreFailed(
                f"The index {path} cannot be rebuilt: {error.strerror}.",
                remedy="Nothing is lost: the index is rebuilt from the journal and the cache. Make the index folder writable.",
            ) from error
