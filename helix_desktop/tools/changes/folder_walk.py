"""Walks through folders for changes, without reading files whose inode, size, mode and
times are known.

Everything is opened by handles, from each folder to its entries, and no link is followed. A file
that changed too shortly before the walk for its times to be trusted is read again in the next one.
"""

import errno
import functools
import hashlib
import os
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field
from itertools import starmap
from operator import attrgetter, methodcaller
from pathlib import Path

from helix_desktop.engine.changes.folder_state import PathKind, TreeItem, pack_item
from helix_desktop.engine.changes.turn_changes import UncoveredPath
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes.checkpoint_coverage import NEVER, UNDO_LEFTOVER, CheckpointCoverage
from helix_desktop.tools.safe_path_opening import DIRECTORY, closing_handle, open_without_links

# Inode number, modification time, inode change time, mode and size.
STAMP = struct.Struct("<QqqIQ")
UNRELIABLE_STAMP = bytes(STAMP.size)
# The precision of file times in nanoseconds: usual, and on file systems with whole seconds.
FINE = 20_000_000
COARSE = 2_000_000_000
_stat_entry = methodcaller("stat", follow_symlinks=False)
_get_stamp_fields = attrgetter(
    "st_ino", "st_mtime_ns", "st_ctime_ns", "st_mode", "st_size", "st_nlink"
)
_STAMP_OF_ENTRY = struct.Struct("<QqqIQI")
_OPEN_FOLDER = DIRECTORY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_PATH = getattr(os, "O_PATH", 0)
# These errors mean that an entry was just removed or replaced.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_MOST_LEVELS = 200  # Folders nested more deeply than this are not covered.
_MOST_PATH_BYTES = 60_000  # Files whose paths have more bytes are not covered.
LARGE = "larger than the limit for one file"
OVER = "over the limit"
UNREADABLE = "not readable"

# By folder and name: the stamp of the entry, and the packed item.
KnownRecords = dict[str, dict[str, bytes]]


@dataclass(frozen=True, slots=True)
class WantedFile:
    """A file whose content must be read. It had this stamp."""

    path: str
    stamp: bytes
    mode: int
    size: int
    stamp_met: bytes = b""  # The stamp that was read, even if it might not show the next change.


@dataclass(frozen=True, slots=True)
class UnchangedFolder:
    """What an earlier walk found in a folder. It holds as long as the folder has this `mark`,
    which is computed from the names and times of its entries.
    """

    mark: bytes
    subfolder_names: tuple[str, ...]
    file_count: int
    linked_files: tuple[tuple[tuple[int, int], str, int], ...]


@dataclass(slots=True)
class WalkResult:
    """What a walk found. `folders`: those that differ, with their new state, or None if removed."""

    folders: dict[str, dict[str, bytes] | None] = field(default_factory=dict)
    wanted: list[WantedFile] = field(default_factory=list)
    # By folder: entries that are not covered.
    uncovered: dict[str, list[UncoveredPath]] = field(default_factory=dict)
    # For each file with several hard links, by device and inode: its paths, and the
    # number of links.
    linked_files: dict[tuple[int, int], list[tuple[str, int]]] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    # Folders that this walk made readable, each with the mode to restore.
    opened: list[tuple[int, int]] = field(default_factory=list)
    file_count: int = 0


@dataclass(slots=True)
class _FolderOnStack:
    """An open folder whose subfolders are being walked. `is_same`: nothing in it has changed."""

    handle: int
    path: str
    subfolders_to_walk: list[str]
    is_same: bool


@dataclass(slots=True)
class _ComparedFolder:
    """A folder whose entries are compared with the records of the last walk."""

    handle: int
    path: str
    known_records: dict[str, bytes]
    current_records: dict[str, bytes] = field(default_factory=dict)
    linked_files: list[tuple[tuple[int, int], str, int]] = field(default_factory=list)
    file_count: int = 0
    changed_entries: int = 0


class FolderWalk:
    """One walk. `known` is of the last walk; `seen` is for the next one."""

    def __init__(
        self,
        roots: tuple[Path, ...],
        known: KnownRecords,
        coverage: CheckpointCoverage,
        closed: frozenset[tuple[int, int]],
        # Gets each folder before its entries.
        enter: Callable[[str, int, bool], object] | None = None,
        seen: dict[str, UnchangedFolder] | None = None,
    ) -> None:
        """`known`: what the last walk knew. `closed`: folders that are not entered, by device and
        inode. `seen`: folders that an earlier walk found unchanged; this one changes it.
        """
        self._roots = roots
        self._known = known
        self._coverage = coverage
        self._closed = closed
        self._enter = enter
        self._seen: dict[str, UnchangedFolder] = {}
        if seen is not None:
            self._seen = seen
        self._began = time.time_ns()
        self._may_leave_out = coverage.file_name_check
        self.result = WalkResult()

    def walk_all_roots(self) -> WalkResult:
        """Walk all folders of all roots. Known entries not found are removed, unless
        their whole root is missing.
        """
        paths_met: set[str] = set()
        for number, root in enumerate(self._roots):
            try:
                handle = self._open_root(root)
            except OSError:
                paths_met.update(self._list_known_in_tree(str(number)))
            else:
                self._walk_tree(handle, str(number), paths_met)
        for removed_path in self._known.keys() - paths_met:
            self.result.folders[removed_path] = None
        return self.result

    def walk_some_folders(self, folders: set[str]) -> WalkResult:
        """Walk only these folders, and new ones in them."""
        for path in sorted(folders):
            if path in self.result.folders:
                continue
            number, _, path_in_root = path.partition("/")
            try:
                root_handle = self._open_root(self._roots[int(number)])
            except OSError:
                continue
            try:
                handle = open_without_links(root_handle, path_in_root or ".", DIRECTORY)
            except OSError as error:
                if error.errno not in GONE:
                    # The folder exists, so a walk from the top folders opens it.
                    self.result = WalkResult(opened=self.result.opened)
                    return self.walk_all_roots()
                self._mark_tree_gone(path)
                continue
            finally:
                os.close(root_handle)
            self._walk_one_folder(handle, path)
        return self.result

    def _walk_tree(self, handle: int, path: str, paths_met: set[str]) -> None:
        """Walk a folder and everything in it, and close the handle. Deep trees need no
        recursion.
        """
        stack: list[_FolderOnStack] = []
        paths_met.add(path)
        stack.append(self._enter_folder(handle, path))
        try:
            while stack:
                folder = stack[-1]
                if not folder.subfolders_to_walk:
                    os.close(folder.handle)
                    stack.pop()
                    continue
                name = folder.subfolders_to_walk.pop()
                subfolder_path = f"{folder.path}/{name}"
                subfolder_handle = self._open_folder_below(folder, name, paths_met)
                if subfolder_handle is not None:
                    paths_met.add(subfolder_path)
                    subfolder = self._enter_folder(
                        subfolder_handle, subfolder_path, same=folder.is_same
                    )
                    stack.append(subfolder)
        except BaseException:
            for folder in stack:
                with suppress(OSError):
                    os.close(folder.handle)
            raise

    def _enter_folder(self, handle: int, path: str, *, same: bool = False) -> _FolderOnStack:
        subfolder_names, is_same = self._compare_if_changed(handle, path, same=same)
        return _FolderOnStack(handle, path, subfolder_names, is_same)

    def _open_folder_below(
        self, folder: _FolderOnStack, name: str, paths_met: set[str]
    ) -> int | None:
        """Open a folder, or return None if it cannot be covered."""
        subfolder_path = f"{folder.path}/{name}"
        if subfolder_path.count("/") > _MOST_LEVELS or len(subfolder_path) > _MOST_PATH_BYTES:
            self._add_uncovered_entry(
                folder.path, subfolder_path, "too deep", is_beyond_limits=True
            )
            return None
        try:
            return self._open_covered_folder(name, folder.handle, subfolder_path)
        except OSError as error:
            if error.errno not in GONE:
                # The folder exists, so keep what is known about it.
                self._add_uncovered_entry(
                    folder.path, subfolder_path, UNREADABLE, is_beyond_limits=True
                )
                paths_met.update(self._list_known_in_tree(subfolder_path))
            return None

    def _list_known_in_tree(self, path: str) -> list[str]:
        prefix = f"{path}/"
        return [
            known_path
            for known_path in self._known
            if known_path == path or known_path.startswith(prefix)
        ]

    def _walk_one_folder(self, handle: int, path: str) -> None:
        """Walk a single folder, and new folders in it."""
        with closing_handle(handle):
            known_names = self._known.get(path, {}).keys()
            subfolder_names, _ = self._compare_if_changed(handle, path)

            current_records = self.result.folders.get(path)
            if current_records is not None:
                for missing_name in known_names - current_records.keys():
                    missing_path = f"{path}/{missing_name}"
                    if missing_path in self._known:
                        self._mark_tree_gone(missing_path)

            for name in subfolder_names:
                subfolder_path = f"{path}/{name}"
                if subfolder_path in self._known:
                    continue
                # It may have been removed since it was listed.
                with suppress(OSError):
                    subfolder_handle = self._open_covered_folder(name, handle, subfolder_path)
                    self._walk_tree(subfolder_handle, subfolder_path, set())

    def _open_root(self, root: Path) -> int:
        try:
            return os.open(root, _OPEN_FOLDER & ~getattr(os, "O_NOFOLLOW", 0))
        except PermissionError:
            return self._open_with_owner_access(os.open(root, DIRECTORY | _PATH))

    def _open_covered_folder(self, name: str, folder: int, path: str) -> int:
        """Open a folder. A covered folder that was closed since is made accessible
        until the walk ends.
        """
        try:
            return os.open(name, _OPEN_FOLDER, dir_fd=folder)
        except PermissionError:
            if path not in self._known:
                raise
            return self._open_with_owner_access(os.open(name, _OPEN_FOLDER | _PATH, dir_fd=folder))

    def _open_with_owner_access(self, path_handle: int) -> int:
        """Return a handle that can list and search the folder. Only its owner can get one."""
        if not _grant_owner_access(path_handle, self.result.opened):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return os.open(".", _OPEN_FOLDER, dir_fd=path_handle)

    def _mark_tree_gone(self, path: str) -> None:
        for known_path in self._list_known_in_tree(path):
            self.result.folders[known_path] = None

    def _compare_if_changed(
        self, handle: int, path: str, *, same: bool = False
    ) -> tuple[list[str], bool]:
        """Return the folders in it, and whether nothing is new. `same`: it is the last
        walk's folder.
        """
        if self._enter is not None:
            self._enter(path, handle, same)
        with os.scandir(handle) as listed:
            entries = [entry for entry in listed if entry.name != NEVER]
        mark = self._compute_mark_of_folder(handle, path, entries)
        unchanged_folder = self._seen.get(path)
        if mark and unchanged_folder is not None and unchanged_folder.mark == mark:
            self._count_unchanged_folder(path, unchanged_folder)
            return list(unchanged_folder.subfolder_names), True
        subfolder_names = self._compare_entries_and_list_folders(handle, path, entries, mark)
        return subfolder_names, False

    def _compute_mark_of_folder(
        self, handle: int, path: str, entries: list[os.DirEntry[str]]
    ) -> bytes:
        """Return a hash of all entries' names and stamps, or nothing if one cannot be examined."""
        stamps = self._stamp_entries(handle, path, entries)
        if len(stamps) != len(entries):
            return b""
        names = "/".join([entry.name for entry in entries])
        mark = hashlib.blake2b(os.fsencode(names), digest_size=16)
        mark.update(b"".join(starmap(_STAMP_OF_ENTRY.pack, stamps)))
        return mark.digest()

    def _stamp_entries(
        self, handle: int, path: str, entries: list[os.DirEntry[str]]
    ) -> list[tuple[int, ...]]:
        """Return what tells of each entry that it has changed, or nothing if one cannot be
        examined.
        """
        try:
            return list(map(_get_stamp_fields, map(_stat_entry, entries)))
        except PermissionError:  # The folder can be listed, but its entries cannot be examined.
            if path in self._known or "/" not in path:
                _grant_owner_access(os.dup(handle), self.result.opened)
        except OSError:  # The entry was removed a moment ago.
            pass
        return []

    def _count_unchanged_folder(self, path: str, unchanged_folder: UnchangedFolder) -> None:
        self.result.file_count += unchanged_folder.file_count
        for identity, name, link_count in unchanged_folder.linked_files:
            self.result.linked_files.setdefault(identity, []).append((f"{path}/{name}", link_count))

    def _compare_entries_and_list_folders(
        self, handle: int, path: str, entries: list[os.DirEntry[str]], mark: bytes
    ) -> list[str]:
        """Record how the entries differ from what is known, and return the folders among them."""
        folder = _ComparedFolder(handle, path, self._known.get(path, {}))
        subfolders = self._compare_files(folder, entries)
        subfolder_names = self._compare_subfolders(folder, subfolders)
        unchanged_folder = UnchangedFolder(
            mark, tuple(subfolder_names), folder.file_count, tuple(folder.linked_files)
        )
        self._count_unchanged_folder(path, unchanged_folder)
        # Replaces what was left out at the last walk and is gone now.
        self.result.uncovered.setdefault(path, [])
        has_missing_entries = len(folder.current_records) != len(folder.known_records)
        if folder.changed_entries or has_missing_entries or path not in self._known:
            self.result.folders[path] = folder.current_records
            self._seen.pop(path, None)
        elif mark:
            self._seen[path] = unchanged_folder
        return subfolder_names

    def _compare_files(
        self, folder: _ComparedFolder, entries: list[os.DirEntry[str]]
    ) -> list[tuple[str, os.stat_result]]:
        """Compare all entries but folders, which are returned. Most are as they were, so what
        is done for each is kept short: an entry whose stamp (inode, times, mode and size) begins its
        record has not changed.
        """
        pack = STAMP.pack
        get_known_record = folder.known_records.get
        current_records = folder.current_records
        subfolders = []
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            name = entry.name
            mode = status.st_mode
            kind = mode & 0o170000
            if kind == stat.S_IFDIR:
                subfolders.append((name, status))
                continue
            folder.file_count += 1
            if kind == stat.S_IFREG and status.st_nlink > 1:
                folder.linked_files.append(((status.st_dev, status.st_ino), name, status.st_nlink))
            stamp = pack(
                status.st_ino, status.st_mtime_ns, status.st_ctime_ns, mode, status.st_size
            )
            record = get_known_record(name)
            if record is not None and record.startswith(stamp):
                current_records[name] = record
            else:
                self._compare_changed_file(folder, name, status, stamp)
        return subfolders

    def _compare_changed_file(
        self, folder: _ComparedFolder, name: str, status: os.stat_result, stamp: bytes
    ) -> None:
        """Record a file that is new or has changed, unless it is left out."""
        is_new = name not in folder.known_records
        # What is covered stays covered, so only new files may be left out.
        if is_new and self._may_leave_out(name):
            if self._leave_out_if_uncovered(folder, name, status):
                return
        if name.startswith(".helix-undo-") and self._add_if_undo_leftover(folder.path, name):
            return
        folder.changed_entries += 1
        self._add_new_entry(folder, name, status, stamp)

    def _compare_subfolders(
        self, folder: _ComparedFolder, subfolders: list[tuple[str, os.stat_result]]
    ) -> list[str]:
        """Return the names of those that are covered."""
        covered = []
        for name, status in subfolders:
            if self._leave_out_if_uncovered(folder, name, status):
                continue
            covered.append(name)
            record = _folder_record(status.st_mode & 0o7777)
            if folder.known_records.get(name) != record:
                folder.changed_entries += 1
            folder.current_records[name] = record
        return covered

    def _add_new_entry(
        self, folder: _ComparedFolder, name: str, status: os.stat_result, stamp: bytes
    ) -> None:
        """Record an entry that is new or has changed: of a link its target, of a file that its
        content is wanted, as it is read after the walk. A file that is too large is left out.
        """
        path = f"{folder.path}/{name}"
        mode = status.st_mode & 0o7777
        if stat.S_ISREG(status.st_mode):
            reliable_stamp = UNRELIABLE_STAMP
            if self._is_stamp_reliable(status):
                reliable_stamp = stamp
            wanted_file = WantedFile(path, reliable_stamp, mode, status.st_size, stamp)
            if status.st_size > self._coverage.most_file_bytes:
                leave_out_file(self.result, self._known, wanted_file, folder.current_records, LARGE)
                return
            # The stamp is not trusted until the content is known.
            folder.current_records[name] = UNRELIABLE_STAMP
            self.result.wanted.append(wanted_file)
        elif stat.S_ISLNK(status.st_mode):
            with suppress(OSError):
                target = os.fsencode(os.readlink(name, dir_fd=folder.handle))
                link = TreeItem(PathKind.LINK, 0o777, 0, target)
                folder.current_records[name] = stamp + pack_item(link)
        else:
            other_item = TreeItem(PathKind.OTHER, mode)
            folder.current_records[name] = stamp + pack_item(other_item)
            self._add_uncovered_entry(folder.path, path, "a socket, pipe or device")

    def _is_stamp_reliable(self, status: os.stat_result) -> bool:
        """Whether a later change is certain to change the file's times."""
        has_whole_seconds = (
            status.st_mtime_ns % 1_000_000_000 == 0 and status.st_ctime_ns % 1_000_000_000 == 0
        )
        precision_ns = FINE
        if has_whole_seconds:
            precision_ns = COARSE
        return status.st_ctime_ns < self._began - precision_ns

    def _add_if_undo_leftover(self, path: str, name: str) -> bool:
        """Note a file that an interrupted undo left behind. Return True if it is one."""
        is_undo_leftover = UNDO_LEFTOVER.fullmatch(name) is not None
        if is_undo_leftover:
            self.result.leftovers.append(f"{path}/{name}")
        return is_undo_leftover

    def _leave_out_if_uncovered(
        self, folder: _ComparedFolder, name: str, status: os.stat_result
    ) -> bool:
        """Leave an entry out if a rule says so, or if it has the program's own data. Return
        whether it was left out.
        """
        path = f"{folder.path}/{name}"
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and (status.st_dev, status.st_ino) in self._closed:
            self._add_uncovered_entry(folder.path, path, "belongs to Helix Desktop")
            return True
        if is_folder and is_record_of_kind(folder.known_records.get(name, b""), PathKind.FOLDER):
            # A folder that is covered stays covered, whatever is created inside it or
            # beside it.
            return False
        rule = self._coverage.find_rule_leaving_out(
            name,
            folder.current_records.__contains__,
            lambda wanted: _entry_exists(folder.handle, f"{name}/{wanted}"),
            folder=is_folder,
        )
        if rule:
            self._add_uncovered_entry(folder.path, path, rule)
        return bool(rule)

    def _add_uncovered_entry(
        self, folder: str, path: str, reason: str, *, is_beyond_limits: bool = False
    ) -> None:
        self.result.uncovered.setdefault(folder, []).append(
            UncoveredPath(path, reason, is_beyond_limits)
        )


@functools.cache
def _folder_record(mode: int) -> bytes:
    return UNRELIABLE_STAMP + pack_item(TreeItem(PathKind.FOLDER, mode))


def leave_out_file(
    result: WalkResult,
    known_records: KnownRecords,
    wanted_file: WantedFile,
    current_records: dict[str, bytes],
    reason: str,
) -> None:
    """Leave a file unread: it is named among the uncovered ones of `result`. If it replaces
    something covered, its entry in `current_records` says that it has changed.
    """
    folder, _, name = wanted_file.path.rpartition("/")
    uncovered_path = UncoveredPath(wanted_file.path, reason, is_beyond_limits=True)
    result.uncovered.setdefault(folder, []).append(uncovered_path)

    records_of_folder = known_records.get(folder, {})
    if not records_of_folder.get(name):
        current_records.pop(name, None)
        return
    item = TreeItem(PathKind.OTHER, wanted_file.mode, wanted_file.size, wanted_file.stamp_met)
    current_records[name] = wanted_file.stamp + pack_item(item)


def grant_access_to_path(
    root: str, inside: str, access: int, opened: list[tuple[int, int]]
) -> None:
    """Give us this access to an entry and the folders above it, if they are ours but closed."""
    path_handle = os.open(root, _PATH | DIRECTORY)
    parts_below = inside.split("/")
    parts_below.append("")  # The entry itself is looked at, too, but nothing below it.
    try:
        for part in parts_below:
            if not os.access(f"/proc/self/fd/{path_handle}", access):
                _grant_owner_access(os.dup(path_handle), opened)
            if part:
                folder = path_handle
                path_handle = os.open(part, _PATH | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
    finally:
        os.close(path_handle)


def _grant_owner_access(path_handle: int, opened: list[tuple[int, int]]) -> bool:
    """Let the owner, if that is us, list and enter a folder, and note its mode in `opened`, to be
    restored. Return whether that was possible; if not, the handle is closed.
    """
    mode = os.fstat(path_handle).st_mode & 0o7777
    try:
        os.chmod(f"/proc/self/fd/{path_handle}", mode | 0o700)  # noqa: PTH101 -- of the handle
    except OSError:
        os.close(path_handle)
        return False
    opened.append((path_handle, mode))
    return True


def restore_folder_modes(opened: list[tuple[int, int]]) -> None:
    while opened:
        handle, mode = opened.pop()
        with suppress(OSError):
            os.chmod(f"/proc/self/fd/{handle}", mode)  # noqa: PTH101 -- of the handle
        os.close(handle)


def is_record_of_kind(record: bytes, kind: PathKind) -> bool:
    return record[STAMP.size : STAMP.size + 1] == kind.encode()


def _entry_exists(handle: int, name: str) -> bool:
    with suppress(OSError):
        os.stat(name, dir_fd=handle, follow_symlinks=False)
        return True
    return False


def iterate_packed_items(known: KnownRecords) -> Iterator[tuple[str, bytes]]:
    size = STAMP.size
    for folder in sorted(known):
        for name, record in sorted(known[folder].items()):
            if len(record) > size:
                yield f"{folder}/{name}", record[size:]


def measure_top_folders(
    roots: tuple[Path, ...], coverage: CheckpointCoverage, closed: frozenset[tuple[int, int]]
) -> list[tuple[str, int, int]]:
    """Return each folder directly in the roots, largest first: name, files, bytes. No
    name: files in none.
    """
    result = FolderWalk(roots, {}, coverage, closed).walk_all_roots()
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for file in result.wanted:
        _, _, inside = file.path.partition("/")
        top_folder, _, below = inside.partition("/")
        name = top_folder if below else ""
        files[name] += 1
        sizes[name] += file.size
    folders = []
    for name in sorted(files):
        folders.append((name, files[name], sizes[name]))
    folders.sort(key=lambda folder: folder[2], reverse=True)
    return folders
