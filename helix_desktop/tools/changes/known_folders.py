"""Remembers a workspace's folders at the last walk: stamps and items of files, and what
is not covered.
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import UncoveredPath
from helix_desktop.tools.changes import folder_walk
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.coverage_limits import CoveredAmount, leave_out_beyond_limits
from helix_desktop.tools.changes.folder_walk import STAMP, UNRELIABLE_STAMP, WalkResult
from helix_desktop.tools.changes.folder_watch import FolderWatch

FEW_CHANGES = 200  # If at most this many folders may have changed, only these are checked.


class KnownFolders:
    """`walk_folders` searches in a thread. `adopt_walk_result` updates what is known."""

    def __init__(
        self, roots: tuple[Path, ...], coverage: CheckpointCoverage, closed: Sequence[Path]
    ) -> None:
        """Begin with nothing known. `closed`: folders that are never entered."""
        self.coverage = coverage
        self.records: folder_walk.KnownRecords = {}
        self.watch = FolderWatch()  # Learns from the system which folders have changed.
        self.full_walk_seconds = 0.0  # The duration of the last check of all files.
        self._roots = roots
        self._closed = closed
        self._covered = CoveredAmount()
        self._unchanged_folders: dict[str, folder_walk.UnchangedFolder] = {}
        self._uncovered_by_folder: dict[str, list[UncoveredPath]] = {}
        # Files with several names (hard links), as in `WalkResult`.
        self._linked_files: dict[tuple[int, int], list[tuple[str, int]]] = {}
        # Folders with files changed so recently that the files' times prove nothing.
        self._folders_with_unreliable_times: set[str] = set()
        # The permission modes of the workspace's folders at the first check.
        self._modes_of_roots: dict[Path, int] = {}
        # The device and inode of each workspace folder at the last check, or None if it
        # was missing.
        self._identities_of_roots: tuple[tuple[int, int] | None, ...] = ()

    @property
    def is_any_root_missing(self) -> bool:
        return None in self._identities_of_roots

    def use_coverage(self, coverage: CheckpointCoverage) -> None:
        """Use these rules from the next walk on, before which nothing is known."""
        self.coverage = coverage
        self.records = {}
        self._covered = CoveredAmount()
        self._unchanged_folders.clear()
        self.watch.is_in_doubt = True

    def adopt_saved_records(self, records: folder_walk.KnownRecords) -> None:
        self.records = records
        self._covered = CoveredAmount()
        for names in records.values():
            self._covered.add_records(names.values())

    def remember_permissions_of_roots(self) -> None:
        self._modes_of_roots = {
            root: root.stat().st_mode & 0o7777 for root in self._roots if root.is_dir()
        }

    def restore_permissions_of_roots(self) -> None:
        """Restore the roots' modes of the first check, if they were closed since."""
        for root, mode in self._modes_of_roots.items():
            with suppress(OSError):
                if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
                    root.chmod(mode)

    def largest_top_folders(self) -> list[tuple[str, int, int]]:
        """Return folders directly in the roots, as the rules leave them: name, files,
        bytes. No name: files in none.
        """
        unlimited = replace(self.coverage, most_files=0, most_bytes=0, most_file_bytes=1 << 63)
        return folder_walk.measure_top_folders(self._roots, unlimited, self._identify_closed())

    def _identify_closed(self) -> frozenset[tuple[int, int]]:
        """Return the device and inode of each folder that is not to be entered."""
        return frozenset(filter(None, map(_device_and_inode, self._closed)))

    def uncovered_entries(self) -> tuple[UncoveredPath, ...]:
        """Return what checkpoints do not cover, and why, by path. A file that has another name
        outside the folders is one of these: a change by that name could not be seen.
        """
        uncovered: list[UncoveredPath] = []
        for uncovered_in_folder in self._uncovered_by_folder.values():
            uncovered += uncovered_in_folder
        for names in self._linked_files.values():
            if not names:
                continue
            _, link_count = names[0]
            if link_count > len(names):
                why = "has another name outside"
                uncovered += [UncoveredPath(path, why) for path, _ in names]
        return tuple(sorted(uncovered, key=lambda entry: entry.path))

    def paths_uncovered_by_limits(self) -> frozenset[str]:
        """Return paths that are uncovered for their size or because they are
        unreadable, not by a rule.
        """
        paths = set()
        for uncovered_paths in self._uncovered_by_folder.values():
            for uncovered in uncovered_paths:
                if uncovered.is_beyond_limits:
                    paths.add(uncovered.path)
        return frozenset(paths)

    def last_item_at(self, path: str) -> TreeItem | None:
        folder, _, name = path.rpartition("/")
        record = self.records.get(folder, {}).get(name, b"")
        return folder_state.unpack_item(record[STAMP.size :])

    def known_items(self) -> dict[str, TreeItem]:
        """Return everything that existed at the last walk."""
        items = {}
        for path, packed in folder_walk.iterate_packed_items(self.records):
            item = folder_state.unpack_item(packed)
            if item is not None:
                items[path] = item
        return items

    def other_names_of_file(self, path: str) -> list[str]:
        for group in self._linked_files.values():
            names = [name for name, _ in group]
            if path in names:
                return [name for name in names if name != path]
        return []

    def walk_folders(self, thorough: bool) -> WalkResult:  # noqa: FBT001 -- for to_thread
        """Find out how the folders are now: only the few that the system has reported as
        changed, or all of them, if that is in doubt, or many, or `thorough` is set.
        """
        walk = folder_walk.FolderWalk(
            self._roots,
            self.records,
            self.coverage,
            self._identify_closed(),
            self.watch.watch_listed_folder,
            self._unchanged_folders,
        )
        identities_before = self._identities_of_roots
        self._identities_of_roots = tuple(map(_device_and_inode, self._roots))
        # A workspace folder was moved, mounted or unmounted, which the watch does not report.
        has_any_root_moved = identities_before != self._identities_of_roots
        folders = self.watch.pop_changed_folders() | self._folders_with_hard_links()
        are_changes_known = not self.watch.is_in_doubt and len(folders) <= FEW_CHANGES
        try:
            if are_changes_known and not thorough and not has_any_root_moved:
                walk.walk_some_folders(folders | self._folders_with_unreliable_times)
            else:
                self.watch.forget_changes_before_walk()
                walk_began = time.monotonic()
                walk.walk_all_roots()
                self.full_walk_seconds = time.monotonic() - walk_began
            leave_out_beyond_limits(walk.result, self.records, self.coverage, self._covered)
        except BaseException:
            folder_walk.restore_folder_modes(walk.result.opened)
            raise
        return walk.result

    def _folders_with_hard_links(self) -> set[str]:
        """A change of a file shows only at the name by which it was made."""
        folders: set[str] = set()
        for names in self._linked_files.values():
            folders.update(path.rpartition("/")[0] for path, _ in names)
        return folders

    def distrust_times(self, folders: Iterable[str], begun_ns: int) -> None:
        """Distrust files changed since `begun_ns`, since mapped memory can change them
        without changing their times.
        """
        changed_after_ns = begun_ns - folder_walk.COARSE
        for folder in self.records.keys() & folders:
            for name, record in self.records[folder].items():
                if not folder_walk.is_record_of_kind(record, PathKind.FILE):
                    continue
                _, _, change_time, _, _ = STAMP.unpack_from(record)
                if change_time > changed_after_ns:
                    self.records[folder][name] = UNRELIABLE_STAMP + record[STAMP.size :]
                    self._folders_with_unreliable_times.add(folder)
                    self._unchanged_folders.pop(folder, None)

    def adopt_walk_result(self, result: WalkResult) -> list[PathChange]:
        """Make the result of a walk what is known from now on, and return what has changed."""
        self._resolve_hard_links(result)
        changes: list[PathChange] = []
        for folder, names in result.folders.items():
            changes += self._changes_in_folder(folder, names or {})
            self._uncovered_by_folder.pop(folder, None)
            self._folders_with_unreliable_times.discard(folder)
            if names is None:
                self.records.pop(folder, None)
                continue
            self.records[folder] = names
            if any(map(_is_file_with_unreliable_stamp, names.values())):
                self._folders_with_unreliable_times.add(folder)
        for change in changes:
            self._covered.add_item(change.before, -1)
            self._covered.add_item(change.after)
        self._uncovered_by_folder.update(result.uncovered)
        return sorted(changes)

    def _changes_in_folder(
        self, folder: str, current_records: dict[str, bytes]
    ) -> list[PathChange]:
        """Return how the entries of a folder differ from what was known of them."""
        known_records = self.records.get(folder, {})
        changes = []
        for name in known_records.keys() | current_records.keys():
            before = known_records.get(name, b"")[STAMP.size :]
            after = current_records.get(name, b"")[STAMP.size :]
            if before != after:
                item_before = folder_state.unpack_item(before)
                item_after = folder_state.unpack_item(after)
                changes.append(PathChange(f"{folder}/{name}", item_before, item_after))
        return changes

    def _resolve_hard_links(self, result: WalkResult) -> None:
        """Resolve hard links: the first name in order is the file, and the others are its twins."""
        self._linked_files = result.linked_files
        for group in result.linked_files.values():
            if not group:
                continue
            first_path, *other_paths = sorted(path for path, _ in group)
            file = self._find_file_among(result, [first_path] + other_paths)
            if file is None:
                continue
            self._replace_found_item(result, first_path, file)
            encoded_first_path = first_path.encode("utf-8", "surrogateescape")
            twin = TreeItem(PathKind.TWIN, file.mode, file.size, encoded_first_path)
            for path in other_paths:
                self._replace_found_item(result, path, twin)

    def _find_file_among(self, result: WalkResult, paths: Iterable[str]) -> TreeItem | None:
        for path in paths:
            item = self._item_after_walk(result, path)
            if item is not None and item.kind is PathKind.FILE:
                return item
        return None

    def _item_after_walk(self, result: WalkResult, path: str) -> TreeItem | None:
        folder, _, name = path.rpartition("/")
        names = result.folders.get(folder, self.records.get(folder))
        if names is None:
            return None
        record = names.get(name, b"")
        return folder_state.unpack_item(record[STAMP.size :])

    def _replace_found_item(self, result: WalkResult, path: str, wanted: TreeItem) -> None:
        """Put another item in the place of what the walk has found at a path. If the walk has
        not listed that folder as one that differs, what is known of it is copied first.
        """
        folder, _, name = path.rpartition("/")
        names = result.folders.get(folder, self.records.get(folder))
        if names is None:
            return
        record = names.get(name, b"")
        item = folder_state.unpack_item(record[STAMP.size :])
        if item is None or wanted == item:
            return
        if folder not in result.folders:
            names = dict(names)
            result.folders[folder] = names
        names[name] = record[: STAMP.size] + folder_state.pack_item(wanted)


def _is_file_with_unreliable_stamp(record: bytes) -> bool:
    is_file = folder_walk.is_record_of_kind(record, PathKind.FILE)
    return is_file and record.startswith(UNRELIABLE_STAMP)


def _device_and_inode(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None
