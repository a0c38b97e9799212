"""Records the histories of this computer's agents: copies changes at once, and another
process imports them.

One thread watches the agents' history folders and copies changes (`pending_copies.py`). Another
passes the copies to `recorder --run`, which imports them and ends after a while without changes,
so at rest no engine is in memory. On Linux nothing runs then: the kernel wakes the first thread.
Copies that are left are imported after the next start. Agents' settings and logins are never read.
"""

import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from helix_desktop import concurrency
from helix_desktop.folder_trees import delete_folder_tree, list_tree_files
from helix_desktop.histories.history_finding import (
    HistoryPlaces,
    find_history_of_changed_file,
    history_folders,
)
from helix_desktop.histories.pending_copies import PendingCopies
from helix_desktop.histories.program_names import NAMES
from helix_desktop.histories.unknown_shapes import note_sentences
from helix_desktop.processes import starter
from helix_desktop.processes.starter import open_process
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import RECORDER_WITHOUT_AGENTS, ProgramSettings
from helix_desktop.tools.changes.folder_watch import FolderWatch

log = logging.getLogger(__name__)
REST_MILLISECONDS, ACTIVE_MILLISECONDS = (
    100,
    10,
)  # The intervals between checks when idle, and after a change.
ACTIVE_SECONDS = 30.0  # For this many seconds after a change, the system is checked more often.
FOLDERS_MILLISECONDS = 1000  # How often the recorder looks for new folders of agents.
POLL_SECONDS = 2.0  # How often all files are looked at while the kernel refuses to watch folders.
REFUSED_SECONDS = 600.0  # After this many seconds, the kernel is asked again.
SETTINGS_SECONDS = 60.0  # The user's list of excluded agents is read after this many seconds.
IDLE_SECONDS = 60.0  # After this many seconds without work, the process that imports is ended.
# After an import: the shortest pause in seconds, and the pause as a multiple of the import's time.
SHORTEST_PAUSE_SECONDS, PAUSE_SHARE = 1.0, 4.0
LONGEST_PAUSE_SECONDS = 30.0
FILES_TOGETHER = 5_000
RECENT_SECONDS = 3600.0  # An agent may still write to a file that changed within this many seconds.
END_SECONDS = 30.0  # When the recorder stops, it waits this many seconds for a copy or an import.
MOST_DEATHS = 3  # The process that imports may crash this many times in a row.

Folders = Sequence[tuple[str, Path]]


def read_names_of_unrecorded_agents(where: ProgramFolders) -> set[str]:
    """Return the names of agents that the user does not want to be recorded, in lower case."""
    names = ProgramSettings(where.settings_file)[RECORDER_WITHOUT_AGENTS].splitlines()
    return {name.strip().casefold() for name in names}


def list_history_folders_to_record(own_folders: ProgramFolders, places: HistoryPlaces) -> Folders:
    """Return the history folders, existing or not, of all agents that are not excluded."""
    left_out = read_names_of_unrecorded_agents(own_folders)
    return [
        (kind, folder)
        for kind, folders in history_folders(places).items()
        if not left_out & {kind, NAMES[kind].casefold()}
        for folder in folders
    ]


def folder_of_pending_copies(where: ProgramFolders) -> Path:
    return where.data / "recorder"


def delete_failed_copies(
    where: ProgramFolders, is_to_be_forgotten: Callable[[bytes], bool] = lambda _: True
) -> None:
    """Delete copies that could never be imported."""
    for folder in folder_of_pending_copies(where).glob("*.failed"):
        if any(is_to_be_forgotten(file.read_bytes()) for file, _ in list_tree_files(folder)):
            delete_folder_tree(folder, ignore_errors=True)


def compute_import_pause(last_import_seconds: float, failures_in_a_row: int) -> float:
    """Return the pause after an import. It grows with failures in a row, but a busy
    workspace is retried soon.
    """
    longer = 2.0 ** min(failures_in_a_row, 6)
    return min(
        max(SHORTEST_PAUSE_SECONDS * longer, PAUSE_SHARE * last_import_seconds),
        LONGEST_PAUSE_SECONDS * longer,
    )


class HistoryRecorder:
    """Records from `start_recording` to `stop_recording`. `command` starts the
    importing process.
    """

    def __init__(
        self,
        where: ProgramFolders,
        command: Sequence[str],
        places: HistoryPlaces,
        importing: "ImportingProcess | None" = None,
        past: "HistoryRecorder | None" = None,
    ) -> None:
        self._where, self._places = where, places
        self._importing = importing or ImportingProcess([*command, "recorder", "--run"])
        self._copies = PendingCopies(folder_of_pending_copies(where))
        self._files: set[Path] = set()  # Files that are imported directly, not from a copy.
        self._lock = threading.Lock()
        self._has_work = threading.Event()
        self._is_ending = threading.Event()
        self._wait_for_threads: list[Callable[[float], None]] = []
        self._recorded: Folders = ()
        self._settings_read = -SETTINGS_SECONDS
        self._end_read = self._end_write = -1  # A pipe that ends the wait for a change.
        self._failures = self._deaths = 0
        self.trouble = ""
        self.last_import: float = past.last_import if past else 0.0
        self.damaged: dict[str, None] = (
            past.damaged if past else {}
        )  # Sentences, also of the recorder before.
        self.keys: dict[str, None] = past.keys if past else {}
        self.unread: dict[str, None] = past.unread if past else {}

    def start_recording(self) -> None:
        self._end_read, self._end_write = os.pipe()
        for work, name in (
            (self._watch_folders, "watch histories"),
            (self.import_until_ended, "import histories"),
        ):
            self._wait_for_threads.append(
                concurrency.start_thread(work, name=name, daemon=True).join
            )

    def stop_recording(self) -> None:
        """Stop recording. The current import gets a moment to finish; other copies are
        kept for the next recorder.
        """
        self._is_ending.set()
        self._has_work.set()
        self._importing.end_importing()
        if self._end_write >= 0:
            os.close(self._end_write)
        for wait_for_thread in self._wait_for_threads:
            wait_for_thread(END_SECONDS)

    def recorder_status_as_json(self) -> dict[str, Any]:
        told = {
            "last_import": self.last_import,
            "trouble": self.trouble,
            "pid": self._importing.pid,
        }
        seen = {"damaged": [*self.damaged], "keys": [*self.keys], "unread": [*self.unread]}
        return {**told, **seen}

    def _watch_folders(self) -> None:
        from watchfiles._rust_notify import RustNotify

        while not self._is_ending.is_set():
            folders = self._existing_folders()
            try:
                watch, until = (
                    RustNotify([str(one) for _, one in folders], False, False, 0, True, True).watch,
                    math.inf,
                )
            except (
                OSError,
                RuntimeError,
            ) as error:  # A folder was removed, or others use all watches of the kernel.
                log.warning(
                    "recording: the history folders are looked through, as they cannot be watched: %s",
                    error,
                )
                watch, until = build_folder_polling(folders), time.monotonic() + REFUSED_SECONDS
            try:
                self._copy_existing_files(folders)
                self._copy_changes_until_folders_change(watch, folders, until)
            except (OSError, RuntimeError) as error:
                log.warning("recording: a folder was removed or cannot be read: %s", error)
                self._is_ending.wait(POLL_SECONDS)
        os.close(self._end_read)

    def _copy_existing_files(self, folders: Folders) -> None:
        """Copy the files that agents wrote to recently, because they may be gone before
        they are imported.
        """
        listed = ((kind, *one) for kind, folder in folders for one in list_tree_files(folder))
        changed = {
            one: about.st_mtime
            for kind, one, about in listed
            if find_history_of_changed_file(kind, one) == one
        }
        there = set(filter(_is_regular_file, changed))
        recent = {file for file in there if time.time() - changed[file] < RECENT_SECONDS}
        self._copy_changed_files(folders, recent)
        self.queue_files_for_import(there - recent)

    def _existing_folders(self) -> Folders:
        if time.monotonic() - self._settings_read >= SETTINGS_SECONDS:
            self._recorded = list_history_folders_to_record(self._where, self._places)
            self._settings_read = time.monotonic()
        return [one for one in self._recorded if one[1].is_dir()]

    def _copy_changes_until_folders_change(
        self, watch: Callable[..., Any], folders: Folders, until: float
    ) -> None:
        active_until, can_rest = 0.0, True
        while True:
            is_active = time.monotonic() < active_until or bool(self._copies.postponed)
            watch_at_rest = self._watch_everything() if can_rest and not is_active else None
            can_rest = is_active or watch_at_rest is not None
            pause = ACTIVE_MILLISECONDS if is_active or watch_at_rest else REST_MILLISECONDS
            longest = (
                REST_MILLISECONDS
                if self._copies.postponed or watch_at_rest
                else FOLDERS_MILLISECONDS
            )
            changes = watch(5 * pause, pause, longest, self._is_ending)
            changed = {Path(name) for _, name in changes} if isinstance(changes, set) else set()
            active_until = time.monotonic() + ACTIVE_SECONDS if changed else active_until
            self._copy_changed_files(folders, changed | self._copies.postponed)
            if (
                self._is_ending.is_set()
                or self._existing_folders() != folders
                or time.monotonic() > until
            ):
                return
            if watch_at_rest and not changed and not self._copies.postponed:
                watch_at_rest.wait_for_change(self._end_read)
                places = map(Path, watch_at_rest.pop_changed_folders())
                if any(place.is_relative_to(folder) for place in places for _, folder in folders):
                    active_until = time.monotonic() + ACTIVE_SECONDS

    def _watch_everything(self) -> FolderWatch | None:
        """Watch all folders of histories, those that lead to them, and the settings.
        None if that is impossible.
        """
        found = FolderWatch()
        found.forget_changes_before_walk()

        def watch_folder(folder: str | Path) -> None:
            with suppress(OSError):  # It does not exist.
                handle = os.open(folder, os.O_RDONLY)
                found.watch_listed_folder(str(folder), handle)
                os.close(handle)

        recorded, home = [folder for _, folder in self._recorded], self._places.home
        above = {
            parent for folder in recorded for parent in folder.parents if parent not in home.parents
        }
        for leading in (self._where.settings_file.parent, *above):
            watch_folder(leading)
        for folder in recorded:
            deque(list_tree_files(folder, on_folder=watch_folder), maxlen=0)
        self._settings_read = (
            -SETTINGS_SECONDS
        )  # Read them at once: earlier changes are not notified.
        return None if found.is_in_doubt else found

    def _copy_changed_files(self, folders: Folders, changed: set[Path]) -> None:
        in_new_folders = {
            file for path in changed if path.is_dir() for file, _ in list_tree_files(path)
        }
        kinds = [
            (kind, path)
            for path in changed | in_new_folders
            for kind, folder in folders
            if path.is_relative_to(folder)
        ]
        files = {file for kind, path in kinds if (file := find_history_of_changed_file(kind, path))}
        databases = {file for file in files if file.suffix == ".db"}
        directly = {
            file
            for file in databases
            if not (_is_regular_file(file) and self._copies.copy_database(file))
        }
        directly -= self._copies.postponed
        for file in filter(_is_regular_file, files - databases):
            if self._is_ending.is_set():
                return
            try:
                self._copies.copy_file(file)
            except OSError as error:
                self.trouble = f"{file} could not be copied: {error.strerror}."
                directly.add(file)
        if files:
            self.queue_files_for_import(directly)

    def queue_files_for_import(self, files: Iterable[Path]) -> None:
        with self._lock:
            self._files.update(files)
        self._has_work.set()

    def import_until_ended(self) -> None:
        while not self._is_ending.is_set():
            if not self._has_work.wait(IDLE_SECONDS if self._importing.pid else None):
                self._importing.end_importing()
                continue
            begun = time.monotonic()
            self._has_work.clear()
            if not (self._import_copies() and self._import_files()):
                self._has_work.set()
            self._is_ending.wait(compute_import_pause(time.monotonic() - begun, self._failures))
        self._importing.end_importing()  # The last round may have started the process again.

    def _import_copies(self) -> bool:
        """Import all copies. Return False if some failed. Copies that often crash the
        process are set aside.
        """
        for folder in self._copies.seal_and_list_folders():
            if self._try_import({"copies": str(folder)}):
                delete_folder_tree(folder, ignore_errors=True)
            elif self._deaths < MOST_DEATHS:
                return False
            else:
                folder.rename(folder.with_name(f"{folder.name}.failed"))
        return True

    def _import_files(self) -> bool:
        """Import files from where they are. New copies are imported in between, so that
        they need not wait.
        """
        while portion := self._pop_next_files():
            if (
                not self._try_import({"files": [str(file) for file in portion]})
                and self._deaths < MOST_DEATHS
            ):
                self.queue_files_for_import(portion)
                return False
            if not self._import_copies():
                return False
        return True

    def _pop_next_files(self) -> Sequence[Path]:
        with self._lock:
            portion = sorted(self._files, key=lambda file: (len(file.parts), file))[:FILES_TOGETHER]
            self._files.difference_update(portion)
        return portion

    def _try_import(self, request: Mapping[str, object]) -> bool:
        if self._is_ending.is_set():
            return False
        answer = self._importing.ask_process(request)
        self._deaths = self._deaths + 1 if answer is None else 0
        self.trouble = answer["trouble"] if answer is not None else "The importing process ended."
        self.damaged |= dict.fromkeys((answer or {}).get("damaged", ()))
        self.keys |= dict.fromkeys((answer or {}).get("keys", ()))
        unread = self.unread | dict.fromkeys((answer or {}).get("unread", ()))
        if unread != self.unread:
            self.unread = unread
            note_sentences(self._where.data, [*unread])
        self._failures = self._failures + 1 if self.trouble else 0
        if self.trouble:
            log.warning("recording: %s", self.trouble)
        elif answer is not None and answer["imported"]:
            self.last_import = time.time()
        return not self.trouble


class ImportingProcess:
    """Runs the importing process: starts it for a request, and asks one request after another."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: starter.ChildProcess | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def ask_process(self, request: Mapping[str, object]) -> dict[str, Any] | None:
        """Return the process's answer, or None if it ended."""
        if self._process is None:
            launch = starter.ProcessLaunch(
                starter.CommandAuthor.PROGRAM, self._command, has_own_session=True
            )
            self._process = open_process(
                launch, stdin=starter.PIPE, stdout=starter.PIPE, stderr=starter.DEVNULL
            )
        process = self._process
        with suppress(OSError, ValueError):
            if process.stdin is not None and process.stdout is not None:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                answer: dict[str, Any] = json.loads(process.stdout.readline())
                return answer
        self.end_importing()
        return None

    def end_importing(self) -> None:
        """Let the process finish its current request and end. Kill it if it takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        starter.close_or_kill_process(process, 3)
        if process.stdout is not None:
            process.stdout.close()


def build_folder_polling(folders: Folders) -> Callable[..., set[tuple[int, str]]]:
    """Build a wait for changes of files' times and sizes. The library's own overlooks a
    second change within a second.
    """

    def read_file_stamps() -> set[tuple[str, int, int, int]]:
        listed = (one for _, folder in folders for one in list_tree_files(folder))
        return {(str(file), stat.st_mtime_ns, stat.st_size, stat.st_ino) for file, stat in listed}

    files = read_file_stamps()

    def wait_for_changes(
        _together: int, _step: int, _longest: int, is_ending: threading.Event
    ) -> set[tuple[int, str]]:
        nonlocal files
        is_ending.wait(POLL_SECONDS)
        before, files = files, read_file_stamps()
        return {(0, name) for name, *_ in before ^ files}

    return wait_for_changes


def _is_regular_file(path: Path) -> bool:
    """Return False for a link, which could lead to a file that is no history."""
    return path.is_file() and not path.is_symlink()
