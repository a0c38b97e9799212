"""Opens a workspace's cache. If a file is damaged, sets it aside, repairs the cache, restores
lost entries from where else they are, and names what stays lost.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, StoreFailed, StoreFull
from helix_desktop.folder_trees import delete_folder_tree
from helix_desktop.store import (
    cache_repair,
    leveldb,
    leveldb_salvage,
    lost_entries,
    store_opening,
)
from helix_desktop.store.cache_check_and_cleanup import CacheCheck
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_repair import KnownEntry
from helix_desktop.store.leveldb import LevelDatabase
from helix_desktop.store.lost_entries import EntryWitnesses
from helix_desktop.store.store_opening import Note

CACHE = "cache"
_MOST_NAMED = 100


def open_or_repair_cache(
    workspace: Path, note: Note, witnesses: EntryWitnesses = lost_entries.NOBODY
) -> CacheFolder:
    """Open the cache. A damaged one is repaired, and what it lost is named.

    The index, which lists the cache's entries, says what should be there. `witnesses` say it
    too, such as the conversations that use entries. After a repair the index is rebuilt.
    """
    folder = workspace / CACHE
    if not _is_suspect(folder):
        cache = _open_if_whole(folder)
        if cache is not None:
            return cache
    expected_entries = lost_entries.read_known_entries(workspace / store_opening.INDEX, witnesses)
    cache = repair_closed_cache(workspace, note, witnesses, expected_entries)
    store_opening.delete_index(workspace)
    return cache


def _is_suspect(folder: Path) -> bool:
    """Whether the cache must be repaired before LevelDB opens it: a repair was begun and not
    finished, its log is damaged, or its files show a damage that LevelDB would not report.
    """
    if leveldb.damage_mark(folder).exists():
        return True
    log_copies = _copied_logs(folder)
    if log_copies.exists():
        # The program ended while it opened the cache. What LevelDB dropped then is still here.
        if not _are_logs_intact(log_copies):
            return True
        _delete_copied_logs(folder)
    return leveldb_salvage.has_silent_damage(folder)


def _copied_logs(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.logs")


def _delete_copied_logs(folder: Path) -> None:
    """Delete the copied logs for certain: a later repair would do again what they say."""
    try:
        delete_folder_tree(_copied_logs(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreFailed(
            f"{_copied_logs(folder)} cannot be deleted: {error.strerror}.",
            remedy="Check the disk, then try again.",
        ) from error


def _are_logs_intact(copies: Path) -> bool:
    for path in copies.glob("*.log"):
        for batch in leveldb_salvage.read_log_batches(path.read_bytes()):
            if not batch.is_intact:
                return False
    return True


def _open_if_whole(folder: Path) -> CacheFolder | None:
    """Open the cache, or return None if it needs a repair. Raises if the disk fails.

    When LevelDB opens, it drops what is damaged in its log, and then deletes the log. So the log is
    copied first, for a repair to read, and the copy is deleted once the cache is found whole.
    """
    log_copies = _copied_logs(folder)
    with suppress(OSError):
        log_copies.mkdir(mode=0o700)
        for path in folder.glob("*.log"):
            copied_log = log_copies / path.name
            store_opening.link_or_copy(str(path), str(copied_log))
    try:
        level = LevelDatabase(folder)
        if level.dropped_log_bytes > 0:
            level.close()
            return None
        cache = CacheFolder(folder, level)
    except StoreFull:
        raise
    except StoreFailed as error:
        if isinstance(error, CacheCorrupt) or leveldb.is_repairable_error(str(error)):
            return None
        raise
    _delete_copied_logs(folder)
    return cache


def repair_closed_cache(
    workspace: Path,
    note: Note,
    witnesses: EntryWitnesses,
    expected_entries: Mapping[Digest, KnownEntry],
) -> CacheFolder:
    """Repair the cache's files, and open it. `expected_entries`: what should be there.

    The damaged files are copied away first. Then the files are repaired, what is lost is looked for
    in other places, everything is checked, and what stays lost is marked, so that reading it says why
    it is missing. What was done is told to `note`, sentence by sentence.
    """
    folder = workspace / CACHE
    log_copies = _copied_logs(folder)
    damaged_copy = store_opening.copy_to_damaged_folder(workspace, [folder])
    # If this is interrupted, the next opening begins it again.
    leveldb.damage_mark(folder).touch()
    level = cache_repair.repair_cache_files(
        folder, damaged_copy / CACHE, log_copies, expected_entries
    )
    cache = CacheFolder(folder, level)
    note(f"The cache was damaged and has been repaired. The original files are in {damaged_copy}.")

    all_expected = dict(lost_entries.find_entries_of_checkpoints(cache, witnesses))
    all_expected.update(expected_entries)
    # What is restored is taken out of these.
    still_lost = lost_entries.find_lost_entries(cache, all_expected)
    restored = _restore_from_elsewhere(cache, still_lost, workspace, witnesses)
    check_result = CacheCheck(cache).check_everything()
    note(f"Cache entries intact: {check_result.checked}; lost: {len(still_lost)}.")
    if not check_result.checked and not check_result.checkpoint_bytes:
        note("Nothing in the cache's files could be read.")
    for place_name, count in restored.items():
        note(f"Cache entries restored from {place_name}: {count}.")

    for digest in still_lost:
        cache.reader.quarantine_entry(digest, "it was lost when the cache was damaged")
    titles = lost_entries.read_conversation_titles(witnesses)
    for digest, entry in islice(still_lost.items(), _MOST_NAMED):
        note(lost_entries.describe_lost_entry(digest, entry, titles))
    _delete_copied_logs(folder)
    leveldb.damage_mark(folder).unlink(missing_ok=True)
    return cache


def repair_open_cache(
    cache: CacheFolder,
    workspace: Path,
    witnesses: EntryWitnesses,
    expected_entries: Mapping[Digest, KnownEntry],
) -> tuple[str, ...]:
    """Repair a cache that is in use. Return the sentences that opening it would have noted."""
    notes: list[str] = []
    cache.close()
    repaired = repair_closed_cache(workspace, notes.append, witnesses, expected_entries)
    cache.take_files_of(repaired)
    return tuple(notes)


def _restore_from_elsewhere(
    cache: CacheFolder,
    lost_entries_left: dict[Digest, KnownEntry],
    workspace: Path,
    witnesses: EntryWitnesses,
) -> Counter[str]:
    """Store what is found again, and take it out of `lost_entries_left`. Return how many from each place."""
    counts: Counter[str] = Counter()
    for found_content in lost_entries.find_lost_contents(lost_entries_left, workspace, witnesses):
        digest = Digest.of_content(found_content.content)
        entry = lost_entries_left.pop(digest)
        staged = cache.stage_content(found_content.content, entry.about, digest=digest)
        cache.commit_staged([staged])
        counts[found_content.where] += 1
    return counts
