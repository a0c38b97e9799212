"""Reads files that other programs run later before and after a command, and reverts the
command's changes.

A command may write anywhere in the roots, including files that git, a shell or an editor runs
once the command and its sandbox are gone. Such changes are reverted at once and held in memory.
Then the user is asked about each file by name. This works without the sandbox and without undo.
"""

# ruff: noqa: PTH111, PTH112, PTH113, PTH114, PTH115, PTH118, PTH119, PTH120 -- every
# folder of a workspace is looked at: paths as texts are faster

import hashlib
import os
import shlex
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import field, replace
from enum import Enum, auto
from pathlib import Path
from sys import maxsize

from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import autorun_files, risky_git_settings
from helix_desktop.tools.changes.folder_walk import grant_access_to_path, restore_folder_modes
from helix_desktop.tools.hidden_files import is_hidden_only_by_place, matches_hidden_patterns
from helix_desktop.tools.sandbox_home import HeldPaths, is_within_folder
from helix_desktop.tools.workspace_roots import (
    WorkspaceRoots,
    normalise_spelling,
    read_whole_file,
    restore_entry,
)

_MOST_HELD = 200
_MOST_FOLDERS = 2_000
_FILES_OF_GIT = frozenset({"config", "config.worktree", "commondir", ".git", "git-rebase-todo"})
# Two changes that are this many nanoseconds apart have different times on every file system.
_SETTLED_NS = 2_000_000_000
_MOST_HASHED = 16 << 20  # Larger files are known only by their times.
_MOST_BYTES_HELD = 256 << 20  # This much of changed files is held in memory.
_EVERY_ACCESS = os.R_OK | os.W_OK | os.X_OK
_SETTINGS_FILES = ("config", "config.worktree")
_REBASE_TODO_FILES = ("rebase-merge/git-rebase-todo", "rebase-apply/git-rebase-todo")
# Folders of a git directory that git itself writes to.
_WRITTEN_BY_GIT = ("refs", "logs", "objects", "info")
_SEARCHED_IN_OBJECTS = ("pack", "info")  # Inside `objects`, only these folders are searched.


@dataclass(frozen=True, slots=True)
class AutorunFile:
    """A file that is run later. `runnable_content` can be run, or is empty; `link` is
    a link's target; `held` is content too large for `content`, to show in a question.
    """

    runnable_content: str
    content: bytes | None = None
    link: str = ""
    mode: int = 0o644
    held: bytes | None = None

    @property
    def is_content_unknown(self) -> bool:
        return self.content is None and not self.link


AutorunFiles = dict[str, AutorunFile]


@dataclass(frozen=True, slots=True)
class AutorunChange:
    """A file as it was before a command, and as the command left it."""

    path: str
    before: AutorunFile | None
    after: AutorunFile


@dataclass(frozen=True, slots=True)
class _ScannedFolder:
    stamp: tuple[int, int]
    is_settled: bool
    subfolder_names: tuple[str, ...]  # Folders whose files are also examined.
    autorun_folders: tuple[str, ...]  # Folders in which programs may run any file without asking.
    notable_names: tuple[str, ...]
    has_git: bool
    link_names: tuple[str, ...] = ()
    hidden_names: tuple[str, ...] = ()  # Files that agents may not see.


@dataclass(slots=True)
class AutorunGuard:
    """Scans a workspace's folders. A folder's scan is remembered as long as the folder
    does not change.
    """

    roots: WorkspaceRoots
    # Returns the patterns of files that are hidden from agents.
    patterns: Callable[[], tuple[str, ...]] = tuple
    _patterns: tuple[str, ...] = ()
    folders: dict[str, _ScannedFolder] = field(default_factory=dict)
    # Folders inside git directories, by path.
    of_git: dict[str, _ScannedFolder] = field(default_factory=dict)
    items: dict[str, tuple[tuple[int, ...], AutorunFile]] = field(default_factory=dict)
    _whole: list[str] = field(default_factory=list)
    # The real paths of hidden files and of closed folders around them, as of the last scan.
    hidden_files: list[str] = field(default_factory=list)
    # Held while we have opened closed folders. Another scan would mistake them for open ones.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def scan_autorun_files(self, since: int = maxsize) -> AutorunFiles:
        """Return all files that are run later, by path. Files changed after `since`, in
        nanoseconds, are read again: a program can write to a file mapped into memory
        without changing its times.
        """
        with self._lock:
            patterns = self.patterns()
            if patterns != self._patterns:
                self._patterns = patterns
                self.folders = {}
                self.of_git = {}
            return _AutorunScan(self, since).scan_all_roots()

    def is_file_hidden(self, path_in_root: str) -> bool:
        return matches_hidden_patterns(path_in_root, self._patterns)

    def paths_to_hold_in_place(self, shown: Collection[str] = ()) -> HeldPaths:
        """Return git's folders, and files that no command needs to change. Those in
        `shown` are not hidden.
        """
        git_folders = list(self._list_git_folders())
        files = []
        for git_folder in git_folders:
            for name in ("config", "config.worktree", "hooks", "commondir"):
                files.append(f"{git_folder}/{name}")
        for path in self.autorun_paths_to_protect():
            if os.path.realpath(path) == path:
                files.append(path)
        # The outer ones matter most, and a command line cannot be of any length.
        folders = set(sorted(git_folders, key=len)[:_MOST_HELD])
        folders.update(self._folders_around_hidden_files(shown))
        return HeldPaths(
            folders=tuple(sorted(folders, key=len)),
            files=tuple(sorted(files, key=len)[:_MOST_HELD]),
        )

    def _list_git_folders(self) -> Iterator[str]:
        """Yield the `.git` folders of the repositories, without those that are links or behind
        links.
        """
        for path, folder in self.folders.items():
            if ".git" not in folder.notable_names:
                continue
            git_folder = f"{path}/.git"
            if os.path.isdir(git_folder) and os.path.realpath(git_folder) == git_folder:
                yield git_folder

    def _folders_around_hidden_files(self, shown: Collection[str]) -> Iterator[str]:
        """Yield folders that no command may rename, as files in them would no longer be hidden."""
        root_paths = [str(root) for root in self.roots.folders]
        for path, folder in self.folders.items():
            # A root may be inside another one. The innermost root is the longest path.
            roots_around = [root for root in root_paths if is_within_folder(path, root)]
            root_path = max(roots_around, key=len)
            path_in_root = path[len(root_path) + 1 :]
            if not self._hides_by_place(path, path_in_root, folder, shown):
                continue
            parent = root_path
            for part in path_in_root.split("/"):
                parent = f"{parent}/{part}"
                if path_in_root and os.path.isdir(parent):
                    yield parent

    def _hides_by_place(
        self, path: str, path_in_root: str, folder: _ScannedFolder, shown: Collection[str]
    ) -> bool:
        """Whether a file in this folder is hidden only because of where it is."""
        for name in folder.hidden_names:
            is_shown = os.path.realpath(f"{path}/{name}") in shown
            if not is_shown and is_hidden_only_by_place(f"{path_in_root}/{name}", self._patterns):
                return True
        return False

    def autorun_paths_to_protect(self) -> list[str]:
        """Return existing files and folders that no command needs to change, so that
        they can be protected.
        """
        protected = list(self._whole)
        for path in self.items:
            name = os.path.basename(path)
            # Git writes its own files, and of others a command may change what is not run.
            if name not in _FILES_OF_GIT and not autorun_files.is_only_partly_run(name):
                protected.append(path)
        return protected

    def find_autorun_changes(
        self, known_files: AutorunFiles, since: int = maxsize
    ) -> list[AutorunChange]:
        """Return changes since then that can run something: links first, folders before
        their contents.
        """
        changes = []
        bytes_left = _MOST_BYTES_HELD
        for path, file in self.scan_autorun_files(since).items():
            file_before = known_files.get(path)
            if not _can_run_more(os.path.basename(path), file_before, file):
                continue
            held_content = None
            if file.is_content_unknown:
                held_content = self._read_large_file(path, bytes_left)
            if held_content is not None:
                bytes_left -= len(held_content)
            changes.append(AutorunChange(path, file_before, replace(file, held=held_content)))
        return sorted(changes, key=lambda change: (change.path.count("/"), change.path))

    def revert_autorun_changes(self, changes: list[AutorunChange]) -> list[str]:
        """Restore each file as it was. Return the paths of those that could not be restored."""
        failed_paths = []
        for change in changes:
            file_before = change.before
            if file_before is not None and file_before.is_content_unknown:
                failed_paths.append(change.path)
                continue
            try:
                if file_before is None:
                    # It was not there, so it is removed.
                    self._write_autorun_file(change.path, "", None)
                elif file_before.link:
                    self._write_autorun_file(change.path, file_before.link, None)
                else:
                    self._write_autorun_file(change.path, "", file_before)
            except (HelixError, OSError):
                failed_paths.append(change.path)
        return failed_paths

    def reapply_autorun_changes(self, changes: list[AutorunChange]) -> None:
        """Make each file again what the command made of it, because the user wants that."""
        for change in changes:
            self._write_autorun_file(change.path, change.after.link, change.after)

    def remember_scan(self, scan: "_AutorunScan") -> None:
        self.folders = scan.folders
        self.of_git = scan.of_git
        self.items = scan.items
        self._whole = scan.autorun_folders
        self.hidden_files = scan.list_hidden_paths()

    def _read_large_file(self, path: str, limit: int) -> bytes | None:
        with suppress(HelixError, OSError):
            return read_whole_file(self.roots, self.roots.resolve_path(path), limit)
        return None

    def _write_autorun_file(self, path: str, link: str, file: AutorunFile | None) -> None:
        """Write a file that other programs run: a link if `link` is its target, or else the
        content of `file`. With neither, remove what is there.

        If somebody has closed the folder for writing, it is opened for this moment only.
        """
        content = None
        mode = 0o644
        if file is not None:
            mode = file.mode
            if not link:
                content = file.content
                if content is None:
                    content = file.held
        root_path = self.roots.resolve_path(path)
        opened_folders: list[tuple[int, int]] = []
        with self._lock:
            try:
                with suppress(OSError):
                    folder = os.path.dirname(root_path.inside)
                    grant_access_to_path(str(root_path.root), folder, _EVERY_ACCESS, opened_folders)
                restore_entry(self.roots, root_path, content, mode, link)
            finally:
                restore_folder_modes(opened_folders)


def _can_run_more(name: str, before: AutorunFile | None, after: AutorunFile) -> bool:
    """Whether a file can run something that it could not run before."""
    if before is None:
        before = AutorunFile("")
    if autorun_files.is_only_partly_run(name):
        content_before = before.content
        content_after = after.content
        if content_before is not None and content_after is not None:
            return content_before != content_after and bool(
                autorun_files.extract_runnable_text(name, content_after, content_before)
            )
    if not after.runnable_content and not after.link:
        return False
    return before.runnable_content != after.runnable_content or before.link != after.link


class _AutorunScan:
    """One scan of all folders of a workspace. It uses what the guard knows from the last scan,
    and the guard then remembers this one.
    """

    def __init__(self, guard: AutorunGuard, since: int) -> None:
        self.guard = guard
        self.since = since
        self.found = AutorunFiles()
        self.folders: dict[str, _ScannedFolder] = {}
        self.of_git: dict[str, _ScannedFolder] = {}
        self.items: dict[str, tuple[tuple[int, ...], AutorunFile]] = {}
        self.autorun_folders: list[str] = []
        self.scanned_git_folders: set[str] = set()
        self.root_paths = [str(root) for root in guard.roots.folders]
        self.closed = {str(path) for path in guard.roots.closed_paths}
        # Entries that were closed, each with the mode to restore.
        self.opened_entries: list[tuple[int, int]] = []
        self.closed_folders: list[str] = []  # Folders that turned out to be closed.
        # Folders that stay closed, but from which files can be read by name.
        self.unlistable_folders: list[str] = []

    def scan_all_roots(self) -> AutorunFiles:
        """Return the files in the workspace's folders that other programs run by themselves.

        The folders are searched first, as only then the repositories are known to which the
        user's own git settings are applied. What was closed and opened for this is closed again.
        """
        user_settings = _read_risky_user_settings()
        try:
            for root in self.root_paths:
                self._scan_tree(root, root)
            repositories = [
                path for path, folder in self.folders.items() if ".git" in folder.notable_names
            ]
            for repository in repositories:
                included_files = self._add_files_named_in_settings(
                    user_settings, repository, repository
                )
                self._add_git_settings(included_files, repository)
            self.guard.remember_scan(self)
        finally:
            restore_folder_modes(self.opened_entries)
        return self.found

    def list_hidden_paths(self) -> list[str]:
        """Return files hidden from agents, or their closed folder, which a command could open."""
        hidden_paths: dict[str, None] = {}
        for path, folder in self.folders.items():
            for name in folder.hidden_names:
                file = os.path.realpath(f"{path}/{name}")
                if os.path.isfile(file):
                    hidden_paths[self._closed_folder_around(file) or file] = None
        hidden_paths.update(dict.fromkeys(self.unlistable_folders))
        return list(hidden_paths)

    def _closed_folder_around(self, file: str) -> str:
        for folder in self.closed_folders:
            if is_within_folder(file, folder):
                return folder
        return ""

    def _scan_tree(self, root: str, start: str) -> None:
        """Scan a folder and those below it for files that other programs run by themselves, and
        for git repositories, whose settings and hooks are such files.

        Each folder that waits is noted with whether it is in a folder of installed packages.
        Nobody opens such a folder as a project, so only repositories in it count.
        """
        folders_to_scan = [(start, False)]
        while folders_to_scan:
            path, is_package = folders_to_scan.pop()
            if path in self.folders or path in self.closed:
                continue
            folder = self._scan_folder(path, path[len(root) + 1 :])
            if folder is None:
                continue
            self.folders[path] = folder
            if folder.has_git:
                folders_to_scan += self._scan_git_folder(path, path)
            if ".git" in folder.notable_names:
                folders_to_scan += self._scan_dot_git(path)
            if not is_package:
                self._add_files_of_folder(path, folder)
            for name in folder.subfolder_names:
                is_below_package = is_package or name in autorun_files.PACKAGE_FOLDERS
                folders_to_scan.append((f"{path}/{name}", is_below_package))

    def _add_files_of_folder(self, path: str, folder: _ScannedFolder) -> None:
        """Add the files of a scanned folder that other programs run, and all files of those
        folders in it in which programs run any file.
        """
        for name in folder.notable_names:
            if name != ".git":
                self._add_autorun_file(f"{path}/{name}")
        for name in folder.autorun_folders:
            self.autorun_folders.append(f"{path}/{name}")
            self._add_all_files(f"{path}/{name}")

    def _scan_folder(self, path: str, path_in_root: str) -> _ScannedFolder | None:
        """Return what matters in a folder, from the last scan if it has not changed since then.
        None if it is gone, no folder, or cannot be read.

        A folder is settled if its last change is some time ago: a change in the same moment as
        a scan could have the same time, and would be missed.
        """
        try:
            status = os.lstat(path)
            known_folder = self.guard.folders.get(path) or self.guard.of_git.get(path)
            stamp = (status.st_ino, status.st_ctime_ns)
            if known_folder is not None and known_folder.is_settled and known_folder.stamp == stamp:
                return known_folder
            if not stat.S_ISDIR(status.st_mode):
                return None
            is_settled = 0 <= status.st_ctime_ns < time.time_ns() - _SETTLED_NS
            entries = self._list_folder_or_suspect_it(path)
            return _classify_folder_entries(
                stamp, entries, path_in_root, self.guard.is_file_hidden, settled=is_settled
            )
        except OSError:
            return None

    def _list_folder_or_suspect_it(self, path: str) -> list[os.DirEntry[str]]:
        """List a folder. One that can't be listed, though its files can be opened by
        name, is suspect.
        """
        if self._open_closed_entry(path, os.R_OK | os.X_OK):
            self.closed_folders.append(path)
        try:
            with os.scandir(path) as entries:
                return list(entries)
        except PermissionError:
            if os.access(path, os.X_OK):
                self.found[path] = AutorunFile("cannot be listed")
                self.unlistable_folders.append(path)
            raise

    def _open_closed_entry(self, path: str, access: int) -> bool:
        """Make a file or folder accessible to us that somebody has closed, and remember its
        mode, as the end of the scan restores it. Return whether this was needed and worked.

        What is closed can't be left out: git and editors could still open files in it by name.
        """
        roots_around = [root for root in self.root_paths if is_within_folder(path, root)]
        if not roots_around or os.access(path, access):
            return False
        root_path = roots_around[0]
        path_in_root = path[len(root_path) + 1 :]
        with suppress(OSError):
            grant_access_to_path(root_path, path_in_root, access, self.opened_entries)
        return os.access(path, access)

    def _add_all_files(self, path: str) -> None:
        """Add everything in a folder, or in a folder inside the roots that it links to.
        Deepest files last.
        """
        if not self._is_inside_roots(os.path.realpath(path)):
            return
        folders_to_list = [path]
        for folder in folders_to_list:  # The loop appends to the list that it iterates over.
            with suppress(OSError):
                for entry in self._list_folder_or_suspect_it(folder):
                    if not entry.is_dir(follow_symlinks=False):
                        self._add_autorun_file(entry.path)
                    elif len(folders_to_list) < _MOST_FOLDERS:
                        folders_to_list.append(entry.path)

    def _add_autorun_file(
        self, path: str, *, hook: bool = False, settings: bool = False
    ) -> AutorunFile | None:
        """Add a file to the result. Its kind decides which part of it can be run."""
        link_target = ""
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                link_target = os.readlink(path)
        except OSError:
            return None
        stamp = (status.st_ino, status.st_ctime_ns, status.st_size, hook, settings)
        # A change so recent may have left the times as they were.
        is_changed_recently = status.st_ctime_ns > min(time.time_ns(), self.since) - _SETTLED_NS
        file: AutorunFile | None = None
        if not link_target and not is_changed_recently:
            file = self._file_as_known(path, stamp)
        if file is None:
            file = self._read_autorun_file(path, status, link_target, hook=hook, settings=settings)
        self.items[path] = (stamp, file)
        self.found[path] = file
        return file

    def _file_as_known(self, path: str, stamp: tuple[int, ...]) -> AutorunFile | None:
        """Return what an earlier scan read, if the file has not changed since."""
        known_item = self.guard.items.get(path)
        if known_item is None:
            return None
        known_stamp, file = known_item
        if known_stamp != stamp:
            return None
        return file

    def _read_autorun_file(
        self, path: str, status: os.stat_result, link: str, *, hook: bool, settings: bool
    ) -> AutorunFile:
        """Read what could run in a file: of git settings, those that may name a program; of
        others, what their kind says. `hook`: git runs the file itself.

        Of what cannot be read, only size and time are known; of what is too large to hold,
        only the hash.
        """
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISREG(status.st_mode):
            self._open_closed_entry(path, os.R_OK)
        roots = self.guard.roots
        try:
            content = read_whole_file(roots, roots.resolve_path(path), _MOST_HASHED)
        except (HelixError, OSError):
            known_by = f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
            return AutorunFile(known_by, None, link, mode)
        if len(content) > autorun_files.MOST_BYTES:
            return AutorunFile(hashlib.sha256(content).hexdigest(), None, link, mode)
        if settings:
            text = content.decode("utf-8", "surrogateescape")
            runnable = "\n".join(risky_git_settings.list_doubtful_settings(text))
        else:
            runnable = autorun_files.extract_runnable_text(os.path.basename(path), content)
        if hook and runnable:  # Git runs a hook only if it is executable.
            runnable = f"{runnable} {bool(mode & 0o111)}"
        return AutorunFile(runnable, content, link, mode)

    # --- What git would run

    def _scan_dot_git(self, top: str) -> list[tuple[str, bool]]:
        """Scan `.git`, which may be a folder, a link, or a file that names a folder."""
        path = f"{top}/.git"
        if os.path.islink(path):
            self.found[path] = AutorunFile("", None, os.readlink(path))
        if os.path.isdir(path):
            return self._scan_git_folder(path, top)
        file = self._add_autorun_file(path)
        git_folder = self._follow_git_pointer(path, file, "gitdir:")
        if not git_folder:
            return []
        return self._scan_git_folder(git_folder, top)

    def _follow_git_pointer(self, path: str, file: AutorunFile | None, prefix: str) -> str:
        """Return the folder that a git file names, if commands can write there: then
        the file is harmless.
        """
        if file is None or file.content is None:
            return ""
        text = file.content.decode("utf-8", "surrogateescape").strip()
        named_path = text.removeprefix(prefix).strip()
        if "\0" in named_path:  # Git would stop reading the path at the NUL character.
            return ""
        path_from_here = os.path.join(os.path.dirname(path), named_path)
        target = os.path.realpath(path_from_here)
        if not self._is_inside_roots(target):
            return ""
        self.found[path] = AutorunFile("", file.content, file.link, file.mode)
        return target

    def _is_inside_roots(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root}/") for root in self.root_paths)

    def _scan_git_folder(self, path: str, top: str) -> list[tuple[str, bool]]:
        """Scan a git folder: its settings, its hooks and what these name. Return
        further folders to scan.

        The git folder of a worktree names the one with the settings and hooks of the whole
        repository in its file `commondir`. That one is scanned as well.
        """
        further_folders: list[tuple[str, bool]] = []
        git_folder = path
        while git_folder and git_folder not in self.scanned_git_folders:
            self.scanned_git_folders.add(git_folder)
            self._open_closed_entry(git_folder, os.R_OK | os.X_OK)
            self._add_git_settings([f"{git_folder}/{name}" for name in _SETTINGS_FILES], top)
            for name in _REBASE_TODO_FILES:
                self._add_autorun_file(f"{git_folder}/{name}")
            self._add_git_hooks(f"{git_folder}/hooks")
            self._add_links_leading_out(git_folder)
            further_folders.append((f"{git_folder}/modules", True))
            further_folders.append((f"{git_folder}/worktrees", True))
            pointer_path = f"{git_folder}/commondir"
            pointer = self._add_autorun_file(pointer_path)
            git_folder = self._follow_git_pointer(pointer_path, pointer, "")
        return further_folders

    def _add_links_leading_out(self, git_folder: str) -> None:
        """Add links in a git directory that lead out of the roots, because git would
        write through them.
        """
        folders_to_search = [git_folder]
        while folders_to_search:
            path = folders_to_search.pop()
            if path in self.of_git:
                continue
            folder = self._scan_folder(path, "")
            if folder is None:
                continue
            self.of_git[path] = folder
            for name in folder.link_names:
                self._add_link_leading_out(f"{path}/{name}")
            path_in_git = path[len(git_folder) + 1 :]
            for name in folder.subfolder_names:
                if _may_git_write_in(path_in_git, name):
                    folders_to_search.append(f"{path}/{name}")

    def _add_link_leading_out(self, path: str) -> None:
        if path not in self.found and not self._is_inside_roots(os.path.realpath(path)):
            with suppress(OSError):
                self.found[path] = AutorunFile("", None, os.readlink(path))

    def _add_git_settings(self, paths: list[str], top: str) -> None:
        """Add files of settings, and those that they include."""
        files_to_read = list(paths)
        while files_to_read:
            path = files_to_read.pop()
            if path not in self.found:
                files_to_read += self._add_git_settings_file(path, top)

    def _add_git_settings_file(self, path: str, top: str) -> list[str]:
        """Add a file of git settings, with those settings that may run a program as what is
        runnable in it. Return the settings files that it includes.
        """
        file = self._add_autorun_file(path, settings=True)
        if file is None or file.content is None or not file.runnable_content:
            return []
        text = file.content.decode("utf-8", "surrogateescape")
        settings_in_file = list(risky_git_settings.parse_git_settings(text))
        folder = os.path.dirname(path)
        running_settings = []
        for name, value in settings_in_file:
            if not risky_git_settings.may_setting_run_program(name, value):
                continue
            # Git itself writes where a submodule's files are.
            if name == "core.worktree" and self._is_worktree_of_git_folder(folder, value):
                continue
            running_settings.append(f"{name} = {value}")
        self.found[path] = replace(file, runnable_content="\n".join(running_settings))
        return self._add_files_named_in_settings(settings_in_file, folder, top)

    def _is_worktree_of_git_folder(self, git: str, value: str) -> bool:
        """Whether `core.worktree` is the folder around `.git`, or a submodule's folder
        as git sets it up.
        """
        worktree = os.path.normpath(os.path.join(git, value))
        is_reached_through_link = os.path.realpath(worktree) != worktree
        if not self._is_inside_roots(worktree) or is_reached_through_link:
            return False
        if ".git" in worktree.split("/"):
            return False
        if worktree == os.path.dirname(git) or not os.path.lexists(worktree):
            return True
        with suppress(OSError, ValueError):
            if not any(Path(worktree).iterdir()):
                return True
            pointer = Path(worktree, ".git").read_text(errors="surrogateescape").strip()
            target = pointer.removeprefix("gitdir:").strip()
            return os.path.realpath(os.path.join(worktree, target)) == os.path.realpath(git)
        return False

    def _add_files_named_in_settings(
        self, pairs: list[tuple[str, str]], folder: str, top: str
    ) -> list[str]:
        """Add files inside the roots that git runs or reads by its settings. Return
        included settings files.
        """
        included: list[str] = []
        for name, value in pairs:
            if name.startswith("include"):
                path = _resolve_setting_path(folder, value)
                if self._is_inside_roots(path):
                    included.append(path)
            elif name == "core.hookspath":
                path = _resolve_setting_path(top, value)
                if self._is_inside_roots(path):
                    self._add_git_hooks(path)
            else:
                self._add_programs_named_in_setting(value, top)
        return included

    def _add_programs_named_in_setting(self, value: str, top: str) -> None:
        """Add the files inside the roots that a setting's value, a command line, names as a
        program or as an argument.
        """
        for word in _split_setting_words(value):
            if "/" not in word:  # Git searches for such a name in PATH.
                continue
            path = _resolve_setting_path(top, word)
            if not self._is_inside_roots(path) or path in self.found:
                continue
            if os.path.isfile(path):
                self._add_autorun_file(path, hook=True)

    def _add_git_hooks(self, path: str) -> None:
        """Add the files in a folder of hooks, which git runs at events such as a commit. Files
        that end with `.sample` are git's own examples, and it does not run them.
        """
        if os.path.islink(path):
            self.found[path] = AutorunFile("", None, os.readlink(path))
        with suppress(OSError):
            for entry in self._list_folder_or_suspect_it(path):
                if entry.name.endswith(".sample"):
                    continue
                if entry.is_dir():
                    self._add_all_files(entry.path)
                else:
                    self._add_autorun_file(entry.path, hook=True)


def _classify_folder_entries(
    stamp: tuple[int, int],
    entries: Iterable[os.DirEntry[str]],
    inside: str,
    hides: Callable[[str], bool],
    *,
    settled: bool,
) -> _ScannedFolder:
    """Tell apart the entries of a folder that matter to the scan. In a folder of git's own,
    only nested repositories do.

    `inside` is the folder's path in the workspace's folder, `hides` tells whether a path in it
    is hidden from agents, and `settled` whether the folder's last change is some time ago.
    """
    path_before_name = ""
    if inside:
        path_before_name = f"{inside}/"
    all_names: set[str] = set()
    names_by_kind: dict[_EntryKind, list[str]] = {kind: [] for kind in _EntryKind}
    links: list[str] = []
    hidden: list[str] = []
    for entry in entries:
        path = path_before_name + entry.name
        all_names.add(entry.name)
        kind = _kind_of_entry(entry, path)
        names_by_kind[kind].append(entry.name)
        if entry.is_symlink():
            links.append(entry.name)
        if hides(path) and entry.is_file():
            hidden.append(entry.name)
    autorun_folders = names_by_kind[_EntryKind.AUTORUN_FOLDER]
    links_as_folders = names_by_kind[_EntryKind.LINK_AS_AUTORUN_FOLDER]
    notable_files = names_by_kind[_EntryKind.NOTABLE_FILE]
    folders = names_by_kind[_EntryKind.FOLDER] + autorun_folders
    has_git = _are_names_of_git_folder(all_names)
    # Outside `.git`, a folder is searched even if it looks like one of git's own.
    if has_git and ".git" in inside.split("/"):
        folders = [name for name in folders if name in ("modules", "worktrees")]
    return _ScannedFolder(
        stamp=stamp,
        is_settled=settled,
        subfolder_names=tuple(folders),
        autorun_folders=tuple(autorun_folders + links_as_folders),
        notable_names=tuple(notable_files + links_as_folders),
        has_git=has_git,
        link_names=tuple(links),
        hidden_names=tuple(hidden),
    )


def _may_git_write_in(path_in_git: str, subfolder_name: str) -> bool:
    """Whether links in this subfolder of a folder in a git directory matter. At the top and
    in `objects`, only some do; below these, all.
    """
    if not path_in_git:
        return subfolder_name in _WRITTEN_BY_GIT
    if path_in_git == "objects":
        return subfolder_name in _SEARCHED_IN_OBJECTS
    return True


def _are_names_of_git_folder(names: Collection[str]) -> bool:
    """Whether a folder with these entries is a repository, or the part of one for a worktree."""
    if "HEAD" not in names:
        return False
    if "commondir" in names:  # A worktree's part has its objects in the repository.
        return True
    return "objects" in names and "refs" in names


class _EntryKind(Enum):
    """What an entry of a folder is for the scan."""

    FOLDER = auto()
    AUTORUN_FOLDER = auto()  # Other programs run any file in it.
    NOTABLE_FILE = auto()  # Other programs run it, or it is `.git`.
    LINK_AS_AUTORUN_FOLDER = auto()  # It leads to where such a folder would be looked for.
    OTHER = auto()


def _kind_of_entry(entry: os.DirEntry[str], path: str) -> _EntryKind:
    """Tell what an entry of a folder is for the scan. `path` is its path in the workspace's
    folder.
    """
    if normalise_spelling(entry.name) == ".git":
        return _EntryKind.NOTABLE_FILE
    if entry.is_dir(follow_symlinks=False):
        if autorun_files.is_autorun_entry(entry.name, path, folder=True):
            return _EntryKind.AUTORUN_FOLDER
        return _EntryKind.FOLDER
    if autorun_files.is_autorun_entry(entry.name, path, folder=False):
        return _EntryKind.NOTABLE_FILE
    if entry.is_symlink() and autorun_files.is_autorun_entry(entry.name, path, folder=True):
        return _EntryKind.LINK_AS_AUTORUN_FOLDER
    return _EntryKind.OTHER


def _read_risky_user_settings() -> list[tuple[str, str]]:
    """Return the user's own settings that may name hooks or programs by a path relative
    to each folder.
    """
    home = Path.home()
    all_settings: list[tuple[str, str]] = []
    for path in (home / ".gitconfig", home / ".config/git/config", Path("/etc/gitconfig")):
        with suppress(OSError):
            text = path.read_text(errors="surrogateescape")
            all_settings += risky_git_settings.parse_git_settings(text)

    risky_settings: list[tuple[str, str]] = []
    for name, value in all_settings:
        runs_program = risky_git_settings.may_setting_run_program(name, value)
        if runs_program and not value.startswith("/"):
            risky_settings.append((name, value))
    return risky_settings


def _split_setting_words(value: str) -> list[str]:
    """Split a setting's value as a shell would, or at blanks if its quotes are not closed. An
    exclamation mark at its start tells git to run it.
    """
    try:
        return shlex.split(value.removeprefix("!"))
    except ValueError:
        return value.split()


def _resolve_setting_path(folder: str, value: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(value)))
