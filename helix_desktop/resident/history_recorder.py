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
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Any

from helix_desktop import concurrency
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import delete_folder_tree, list_tree_files
from helix_desktop.histories import pending_copies
from helix_desktop.histories.daily_read_check import read_checked_files, seconds_until_check
from helix_desktop.histories.history_finding import find_history_of_changed_file, history_folders
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.pending_copies import PendingCopies
from helix_desktop.histories.program_names import NAMES
from helix_desktop.histories.subagent_files import put_subagents_last
from helix_desktop.histories.unknown_shapes import (
    add_new_sentences,
    note_sentences,
    read_noted_sentences,
)
from helix_desktop.processes import starter
from helix_desktop.processes.starter import open_process
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import RECORDER_WITHOUT_AGENTS, ProgramSettings
from helix_desktop.tools.changes.folder_watch import FolderWatch

log = logging.getLogger(__name__)
# The intervals between checks when idle, and after a change.
REST_MILLISECONDS = 100
ACTIVE_MILLISECONDS = 10
ACTIVE_SECONDS = 30.0  # For this many seconds after a change, the system is checked more often.
FOLDERS_MILLISECONDS = 1000  # How often the recorder looks for new folders of agents.
POLL_SECONDS = 2.0  # How often all files are looked at while the kernel refuses to watch folders.
REFUSED_SECONDS = 600.0  # After this many seconds, the kernel is asked again.
SETTINGS_SECONDS = 60.0  # The user's list of excluded agents is read after this many seconds.
IDLE_SECONDS = 60.0  # After this many seconds without work, the process that imports is ended.
# After an import: the shortest pause in seconds, and the pause as a multiple of the import's time.
SHORTEST_PAUSE_SECONDS = 1.0
PAUSE_SHARE = 4.0
LONGEST_PAUSE_SECONDS = 30.0
FILES_TOGETHER = 5_000  # At most this many files are in one request to the importing process.
RECENT_SECONDS = 3600.0  # An agent may still write to a file that changed within this many seconds.
CHECK_SECONDS = 1.0  # So long the importing process checks what agents write before it answers.
CHECK_AGAIN_SECONDS = 3600.0  # A check that failed is tried again after this many seconds.
CLOCK_SECONDS = 3600.0  # So often the clock is looked at, as it may be set, or the computer sleep.
END_SECONDS = 30.0  # When the recorder stops, it waits this many seconds for a copy or an import.
CLOSE_SECONDS = 3  # The process that imports has this many seconds to end.
MOST_DEATHS = 3  # The process that imports may crash this many times in a row.
MOST_DOUBLINGS = 6  # The pause after failures is doubled at most this many times.
STEPS_TOGETHER = 5  # Changes within this many checks of the system come together.

Folders = Sequence[tuple[str, Path]]


def read_names_of_unrecorded_agents(where: ProgramFolders) -> set[str]:
    """Return the names of agents that the user does not want to be recorded, in lower case."""
    names = ProgramSettings(where.settings_file)[RECORDER_WITHOUT_AGENTS].splitlines()
    return {name.strip().casefold() for name in names}


def list_history_folders_to_record(own_folders: ProgramFolders, places: HistoryPlaces) -> Folders:
    """Return the history folders, existing or not, of all agents that are not excluded."""
    excluded_names = read_names_of_unrecorded_agents(own_folders)
    folders_to_record: list[tuple[str, Path]] = []
    for kind, folders_of_agent in history_folders(places).items():
        names_of_agent = {kind, NAMES[kind].casefold()}
        if excluded_names.isdisjoint(names_of_agent):
            folders_to_record += [(kind, folder) for folder in folders_of_agent]
    return folders_to_record


def folder_of_pending_copies(where: ProgramFolders) -> Path:
    return where.data / pending_copies.FOLDER_NAME


def delete_failed_copies(
    where: ProgramFolders, is_to_be_forgotten: Callable[[bytes], bool] = lambda _: True
) -> int:
    """Delete copies that could never be imported. Return how many."""
    return pending_copies.delete_failed_copies(folder_of_pending_copies(where), is_to_be_forgotten)


def find_waiting_copies(
    where: ProgramFolders, is_to_be_forgotten: Callable[[bytes], bool]
) -> list[Path]:
    """Return the copied files that will still be imported, of those with such content."""
    found_files: list[Path] = []
    for file, status in list_tree_files(folder_of_pending_copies(where)):
        if S_ISREG(status.st_mode) and is_to_be_forgotten(file.read_bytes()):
            found_files.append(file)
    return found_files


def compute_import_pause(last_import_seconds: float, failures_in_a_row: int) -> float:
    """Return the pause after an import. It grows with failures in a row, but a busy
    workspace is retried soon.
    """
    doublings = min(failures_in_a_row, MOST_DOUBLINGS)
    factor = 2.0**doublings
    shortest_pause = SHORTEST_PAUSE_SECONDS * factor
    longest_pause = LONGEST_PAUSE_SECONDS * factor
    pause = PAUSE_SHARE * last_import_seconds
    if pause < shortest_pause:
        return shortest_pause
    if pause > longest_pause:
        return longest_pause
    return pause


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """How long one wait for changes lasts, in milliseconds: changes that come together within
    `together`, checked each `step`, and at most `longest` without any.
    """

    together: int
    step: int
    longest: int

    @classmethod
    def choose_times(
        cls, *, is_active: bool, will_rest: bool, is_copy_postponed: bool
    ) -> "WatchTimes":
        step = REST_MILLISECONDS
        if is_active or will_rest:
            step = ACTIVE_MILLISECONDS
        longest = FOLDERS_MILLISECONDS
        if is_copy_postponed or will_rest:
            longest = REST_MILLISECONDS
        return cls(together=STEPS_TOGETHER * step, step=step, longest=longest)


class HistoryRecorder:
    """Records from `start_recording` to `stop_recording`. `command` starts the
    importing process. What the `previous` recorder has to say is still said.
    """

    def __init__(
        self,
        where: ProgramFolders,
        command: Sequence[str],
        places: HistoryPlaces,
        importing: "ImportingProcess | None" = None,
        previous: "HistoryRecorder | None" = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._where = where
        self._places = places
        if importing is None:
            importing = ImportingProcess(list(command) + ["recorder", "--run"])
        self._importing = importing
        self._copies = PendingCopies(folder_of_pending_copies(where))
        self._files: set[Path] = set()  # Files that are imported directly, not from a copy.
        self._lock = threading.Lock()  # Guards `_files`.
        self._has_work = threading.Event()
        self._is_ending = threading.Event()
        self._wait_for_threads: list[Callable[[float], None]] = []
        # The folders to record, and when the user's exclusions were last read for them.
        self._recorded: Folders = ()
        self._settings_read = -SETTINGS_SECONDS
        # A pipe that ends the wait for a change.
        self._end_read = -1
        self._end_write = -1
        # Failures, and crashes of the importing process, in a row.
        self._failures = 0
        self._deaths = 0
        # The check of what agents write: when one came to its end, by the clock, and when the next
        # may begin, by the time since the computer was started.
        self._now = now
        self._checked_at = read_checked_files(where.data).finished_at
        self._may_check_at = 0.0
        self.trouble = ""
        self.last_import = 0.0
        # Sentences, also of the recorder before.
        self.damaged: dict[str, None] = {}
        self.keys: dict[str, None] = {}
        if previous is not None:
            self.last_import = previous.last_import
            self.damaged = previous.damaged
            self.keys = previous.keys

    def start_recording(self) -> None:
        """Start a thread that copies changes, and one that imports the copies."""
        self._end_read, self._end_write = os.pipe()
        watching_thread = concurrency.start_thread(
            self._watch_folders, name="watch histories", daemon=True
        )
        importing_thread = concurrency.start_thread(
            self.import_until_ended, name="import histories", daemon=True
        )
        self._wait_for_threads.append(watching_thread.join)
        self._wait_for_threads.append(importing_thread.join)

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
        return {
            "last_import": self.last_import,
            "trouble": self.trouble,
            "pid": self._importing.pid,
            "damaged": list(self.damaged),
            "keys": list(self.keys),
            "unread": read_noted_sentences(self._where.data),
        }

    def _watch_folders(self) -> None:
        """Copy what changes until the recorder ends. Begin anew when the agents' folders change."""
        while not self._is_ending.is_set():
            folders = self._existing_folders()
            watch, ask_kernel_again_at = self._start_watch(folders)
            try:
                self._copy_existing_files(folders)
                self._copy_changes_until_folders_change(watch, folders, ask_kernel_again_at)
            except (OSError, RuntimeError) as error:
                log.warning("recording: a folder was removed or cannot be read: %s", error)
                self._is_ending.wait(POLL_SECONDS)
        os.close(self._end_read)

    def _start_watch(self, folders: Folders) -> tuple[Callable[..., Any], float]:
        """Return how to wait for changes, and when to ask the kernel again if it refused."""
        from watchfiles._rust_notify import RustNotify

        names = [str(folder) for _, folder in folders]
        try:
            kernel_watch = RustNotify(names, False, False, 0, True, True)
        except (OSError, RuntimeError) as error:
            # A folder was removed, or others use all watches of the kernel.
            log.warning(
                "recording: the history folders are looked through, as they cannot be watched: %s",
                error,
            )
            return build_folder_polling(folders), time.monotonic() + REFUSED_SECONDS
        return kernel_watch.watch, math.inf

    def _copy_existing_files(self, folders: Folders) -> None:
        """Copy the files that agents wrote to recently, because they may be gone before
        they are imported.
        """
        recent_files: set[Path] = set()
        older_files: set[Path] = set()
        for kind, folder in folders:
            for file, file_status in list_tree_files(folder):
                # Other files belong to a history too, which is copied as a whole.
                is_history = find_history_of_changed_file(kind, file) == file
                if not is_history or not _is_regular_file(file):
                    continue
                seconds_since_change = time.time() - file_status.st_mtime
                if seconds_since_change < RECENT_SECONDS:
                    recent_files.add(file)
                else:
                    older_files.add(file)
        self._copy_changed_files(folders, recent_files)
        self.queue_files_for_import(older_files - recent_files)

    def _existing_folders(self) -> Folders:
        """Return the folders to record that exist now. The user's settings are read once a minute."""
        now = time.monotonic()
        if now - self._settings_read >= SETTINGS_SECONDS:
            self._recorded = list_history_folders_to_record(self._where, self._places)
            self._settings_read = now
        # A folder may lie in one that the user may not enter, as after `sudo codex`.
        return [
            (kind, folder)
            for kind, folder in self._recorded
            if os.path.isdir(folder)  # noqa: PTH112 -- never raises
        ]

    def _copy_changes_until_folders_change(
        self, watch: Callable[..., Any], folders: Folders, ask_kernel_again_at: float
    ) -> None:
        """Copy what changes. After a while without changes, rest until the kernel tells of one.

        Before a rest, one more short wait makes sure that nothing has changed since the
        watches for it were set up.
        """
        active_until = 0.0
        kernel_has_watches = True
        while True:
            is_active = time.monotonic() < active_until or bool(self._copies.postponed)
            watch_for_rest: FolderWatch | None = None
            if is_active:
                # After a change, the kernel is asked again for the watches that it refused.
                kernel_has_watches = True
            elif kernel_has_watches:
                watch_for_rest = self._watch_everything()
                kernel_has_watches = watch_for_rest is not None

            times = WatchTimes.choose_times(
                is_active=is_active,
                will_rest=watch_for_rest is not None,
                is_copy_postponed=bool(self._copies.postponed),
            )
            changed_files = self._wait_for_changes(watch, times)
            if changed_files:
                active_until = time.monotonic() + ACTIVE_SECONDS
            self._copy_changed_files(folders, changed_files | self._copies.postponed)
            if self._must_watch_anew(folders, ask_kernel_again_at):
                return

            if watch_for_rest is None or changed_files or self._copies.postponed:
                continue
            watch_for_rest.wait_for_change(self._end_read)
            if _is_in_any_folder(watch_for_rest.pop_changed_folders(), folders):
                active_until = time.monotonic() + ACTIVE_SECONDS

    def _wait_for_changes(self, watch: Callable[..., Any], times: WatchTimes) -> set[Path]:
        changes = watch(times.together, times.step, times.longest, self._is_ending)
        if not isinstance(changes, set):  # The library says so if there was none.
            return set()
        return {Path(name) for _, name in changes}

    def _must_watch_anew(self, folders: Folders, ask_kernel_again_at: float) -> bool:
        if self._is_ending.is_set() or time.monotonic() > ask_kernel_again_at:
            return True
        return self._existing_folders() != folders

    def _watch_everything(self) -> FolderWatch | None:
        """Watch all folders of histories, those that lead to them, and the settings.
        None if that is impossible.
        """
        folder_watch = FolderWatch()
        folder_watch.forget_changes_before_walk()
        watch_folder = partial(_watch_folder_if_exists, folder_watch)
        watch_folder(self._where.settings_file.parent)

        # A folder that does not exist yet is noticed by the folders above it.
        folders_above_home = set(self._places.home.parents)
        folders_above_histories: set[Path] = set()
        for _, folder in self._recorded:
            folders_above_histories.update(folder.parents)
        for folder in folders_above_histories - folders_above_home:
            watch_folder(folder)
        for _, folder in self._recorded:
            walk = list_tree_files(folder, on_folder=watch_folder)
            deque(walk, maxlen=0)  # Walk to the end; only the folders matter.

        # Read the settings at once: nobody tells of earlier changes.
        self._settings_read = -SETTINGS_SECONDS
        if folder_watch.is_in_doubt:
            return None
        return folder_watch

    def _copy_changed_files(self, folders: Folders, changed_files: set[Path]) -> None:
        """Copy the histories to which the changed files belong. What cannot be copied is
        imported directly.
        """
        histories = _list_changed_histories(folders, changed_files)
        if not histories:
            return
        databases = {history for history in histories if history.suffix == ".db"}
        not_copied: set[Path] = set()
        for database in databases:
            is_copied = _is_regular_file(database) and self._copies.copy_database(database)
            is_postponed = database in self._copies.postponed
            if not is_copied and not is_postponed:
                not_copied.add(database)
        for file in histories - databases:
            if self._is_ending.is_set():
                return
            if _is_regular_file(file) and not self._try_to_copy_file(file):
                not_copied.add(file)
        self.queue_files_for_import(not_copied)

    def _try_to_copy_file(self, file: Path) -> bool:
        try:
            self._copies.copy_file(file)
        except OSError as error:
            self.trouble = f"{file} could not be copied: {error.strerror}."
            return False
        return True

    def queue_files_for_import(self, files: Iterable[Path]) -> None:
        with self._lock:
            self._files.update(files)
        self._has_work.set()

    def import_until_ended(self) -> None:
        """Import what waits, pause, and import again. End the importing process when it is idle. Once
        a day, check what agents write.
        """
        while not self._is_ending.is_set():
            longest_seconds = CLOCK_SECONDS
            if self._importing.pid:
                longest_seconds = IDLE_SECONDS
            has_work = self._has_work.wait(min(longest_seconds, self._seconds_until_check()))
            is_check_due = self._seconds_until_check() <= 0.0
            if not has_work and not is_check_due:
                self._importing.end_importing()
                continue

            start_time = time.monotonic()
            if has_work:
                self._import_waiting_work()
            # Work that comes all the time does not keep the check from being done.
            if is_check_due:
                self._check_more_files()
            import_seconds = time.monotonic() - start_time
            pause_seconds = compute_import_pause(import_seconds, self._failures)
            self._is_ending.wait(pause_seconds)
        self._importing.end_importing()  # The last round may have started the process again.

    def _import_waiting_work(self) -> None:
        self._has_work.clear()
        try:
            is_all_imported = self._import_copies() and self._import_files()
        except OSError as error:  # The disk is full or damaged. It may pass.
            is_all_imported = False
            self._failures += 1
            self.trouble = f"The copies cannot be taken up: {error.strerror}."
            log.warning("recording: %s", self.trouble)
        if not is_all_imported:
            self._has_work.set()

    def _seconds_until_check(self) -> float:
        """Return how long the check of what agents write can wait."""
        seconds_by_clock = seconds_until_check(self._checked_at, self._now())
        return max(seconds_by_clock, self._may_check_at - time.monotonic())

    def _check_more_files(self) -> None:
        """Let the importing process check more files. It starts for this only if agents have any."""
        if self._is_ending.is_set():
            return
        folders = list_history_folders_to_record(self._where, self._places)
        if not any(folder.is_dir() for _, folder in folders):
            self._may_check_at = time.monotonic() + CHECK_AGAIN_SECONDS
            return
        answer = self._importing.ask_process({"check": CHECK_SECONDS, "now": self._now()})
        if answer is not None and answer.get("is_checked") is False:
            return  # More files are checked behind the next pause.
        if answer is None or not answer.get("is_checked"):
            log.warning("recording: what agents write could not be checked")
            self._may_check_at = time.monotonic() + CHECK_AGAIN_SECONDS
            return
        self._checked_at = self._now()

    def _import_copies(self) -> bool:
        """Import all copies. Return False if some failed. Copies that often crash the
        process are set aside, so that the others get their turn.
        """
        for folder in self._copies.seal_and_list_folders():
            if self._try_import({"copies": str(folder)}):
                delete_folder_tree(folder, ignore_errors=True)
            elif self._deaths < MOST_DEATHS:
                return False
            else:
                folder.rename(folder.with_name(f"{folder.name}.failed"))
                self._deaths = 0  # The next copies have as many tries.
        return True

    def _import_files(self) -> bool:
        """Import files from where they are. New copies are imported in between, so that
        they need not wait.
        """
        while True:
            next_files = self._pop_next_files()
            if not next_files:
                return True
            is_imported = self._try_import({"files": [str(file) for file in next_files]})
            if not is_imported and self._deaths < MOST_DEATHS:
                self.queue_files_for_import(next_files)
                return False
            if not is_imported:
                self._deaths = 0  # These files are given up; the next ones have as many tries.
            if not self._import_copies():
                return False

    def _pop_next_files(self) -> Sequence[Path]:
        """Take the next files out of the queue, those in higher folders first, and sub-agents
        behind the sessions that started them.
        """
        with self._lock:
            ordered_files = sorted(self._files, key=lambda file: (len(file.parts), file))
            next_files = put_subagents_last(ordered_files)[:FILES_TOGETHER]
            self._files.difference_update(next_files)
        return next_files

    def _try_import(self, request: Mapping[str, object]) -> bool:
        """Return whether the importing process imported everything in the request. Count failures."""
        if self._is_ending.is_set():
            return False
        answer = self._importing.ask_process(request)
        if answer is None:
            self._deaths += 1
            self.trouble = "The importing process ended."
        else:
            self._deaths = 0
            self.trouble = answer["trouble"]
            self._remember_sentences(answer)
        if self.trouble:
            self._failures += 1
            log.warning("recording: %s", self.trouble)
            return False
        self._failures = 0
        if answer is not None and answer["imported"]:
            self.last_import = time.time()
        return True

    def _remember_sentences(self, answer: Mapping[str, Any]) -> None:
        self.damaged |= dict.fromkeys(answer.get("damaged", ()))
        self.keys |= dict.fromkeys(answer.get("keys", ()))
        noted = read_noted_sentences(self._where.data)
        with_new = add_new_sentences(noted, answer.get("unread", ()))
        # The file of these sentences is written only if there is a new one.
        if with_new != noted:
            note_sentences(self._where.data, with_new)


class ImportingProcess:
    """Runs the importing process: starts it for a request, and asks one request after another."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: starter.ChildProcess | None = None

    @property
    def pid(self) -> int:
        """The process's id, or 0 if none runs."""
        if self._process is None:
            return 0
        return self._process.pid

    def ask_process(self, request: Mapping[str, object]) -> dict[str, Any] | None:
        """Return the process's answer, or None if it ended.

        A process that cannot be started, as while the program is being updated, is no reason to
        set copies aside: the answer says so as a trouble that may pass.
        """
        if self._process is None:
            try:
                self._process = self._start_process()
            except OSError as error:
                return {"trouble": f"The importing process could not start: {error.strerror}."}
        process = self._process
        # A process that ended leaves a closed pipe, or half a line that is no JSON.
        with suppress(OSError, ValueError):
            if process.stdin is not None and process.stdout is not None:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                answer: dict[str, Any] = json.loads(process.stdout.readline())
                return answer
        self.end_importing()
        return None

    def _start_process(self) -> starter.ChildProcess:
        launch = starter.ProcessLaunch(
            starter.CommandAuthor.PROGRAM, self._command, has_own_session=True
        )
        return open_process(launch, stdin=starter.PIPE, stdout=starter.PIPE, stderr=starter.DEVNULL)

    def end_importing(self) -> None:
        """Let the process finish its current request and end. Kill it if it takes too long."""
        process = self._process
        self._process = None
        if process is None:
            return
        starter.close_or_kill_process(process, CLOSE_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def build_folder_polling(folders: Folders) -> Callable[..., set[tuple[int, str]]]:
    """Build a wait for changes of files' times and sizes. The library's own overlooks a
    second change within a second.
    """
    last_stamps = _read_file_stamps(folders)

    # The arguments and the result are those of the library's own wait.
    def wait_for_changes(
        _together: int, _step: int, _longest: int, is_ending: threading.Event
    ) -> set[tuple[int, str]]:
        nonlocal last_stamps
        is_ending.wait(POLL_SECONDS)
        stamps = _read_file_stamps(folders)
        # New and changed files have another stamp now. Removed files have only an old one.
        stamps_that_differ = stamps ^ last_stamps
        last_stamps = stamps
        return {(0, stamp.name) for stamp in stamps_that_differ}

    return wait_for_changes


@dataclass(frozen=True, slots=True)
class _FileStamp:
    """What differs once a file was written again or replaced."""

    name: str
    modified_ns: int
    size: int
    inode: int


def _read_file_stamps(folders: Folders) -> set[_FileStamp]:
    stamps: set[_FileStamp] = set()
    for _, folder in folders:
        for file, status in list_tree_files(folder):
            stamp = _FileStamp(str(file), status.st_mtime_ns, status.st_size, status.st_ino)
            stamps.add(stamp)
    return stamps


def _list_changed_histories(folders: Folders, changed_paths: set[Path]) -> set[Path]:
    """Return the history to which each changed file belongs, if any. Of a folder that is new, all
    files have changed.
    """
    changed_files = set(changed_paths)
    for path in changed_paths:
        if path.is_dir():
            changed_files.update(file for file, _ in list_tree_files(path))
    histories: set[Path] = set()
    for file in changed_files:
        for kind, folder in folders:
            if not file.is_relative_to(folder):
                continue
            history = find_history_of_changed_file(kind, file)
            if history is not None:
                histories.add(history)
    return histories


def _watch_folder_if_exists(watch: FolderWatch, folder: str | Path) -> None:
    with suppress(OSError):  # The folder does not exist.
        handle = os.open(folder, os.O_RDONLY)
        watch.watch_listed_folder(str(folder), handle)
        os.close(handle)


def _is_in_any_folder(names: Iterable[str], folders: Folders) -> bool:
    """Whether one of the named files or folders lies in a folder of histories."""
    for name in names:
        if any(Path(name).is_relative_to(folder) for _, folder in folders):
            return True
    return False


def _is_regular_file(path: Path) -> bool:
    """Return False for a link, which could lead to a file that is no history."""
    return path.is_file() and not path.is_symlink()
