"""Reads once a day what agents have written since the last time, and remembers which files hold
something that no reader knows.

A file whose size, time and inode are those of the last check is not read again, and all files are
if this program has learned something since. Only names of what is unknown are remembered, in a
file of lines that a check adds to: the last line of a path counts.
"""

import hashlib
import json
import stat
import time as clock
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from helix_desktop import __version__
from helix_desktop.atomic_files import create_private_folder, write_file_atomically
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import list_tree_files
from helix_desktop.histories.history_finding import find_history_of_changed_file
from helix_desktop.histories.history_reading import read_sessions
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.unknown_shapes import (
    SHAPES_TABLE,
    note_sentences,
    read_noted_sentences,
)
from helix_desktop.json_values import amount_at, number_at, object_at, parse_json_or_none, text_at
from helix_desktop.resources import read_table

DAY_SECONDS = 86_400.0
CHECKED_FILES = "checked-histories.jsonl"  # In the program's folder of data.
# Names of what is not read in a file at which the check was killed, as one that takes too much
# memory, and in one without anything that can be read.
ENDED_READING = "content that ended its reader"
UNREADABLE = "unreadable content"


@dataclass(frozen=True, slots=True)
class FileState:
    """What shows whether a file has changed since it was checked."""

    size: int
    modified_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """What a check found in a file. `unknown`: how often there is what is not read, by its name.
    `version`: of the agent, if something is not read.
    """

    state: FileState
    unknown: Mapping[str, int] = field(default_factory=dict)
    version: str = ""


@dataclass(slots=True)
class CheckedFiles:
    """What is remembered of all checks. `finished_at`: when the last one came to its end."""

    files: dict[str, CheckedFile] = field(default_factory=dict)
    finished_at: float = 0.0
    readers: str = ""


def seconds_until_check(finished_at: float, now: float) -> float:
    """Return how long the next check can wait."""
    if finished_at > now:
        return 0.0  # The clock was set back: the last check may be years away.
    return max(0.0, finished_at + DAY_SECONDS - now)


def read_checked_files(data_folder: Path) -> CheckedFiles:
    """Return what is remembered. A line that a kill has cut is left out."""
    checked = CheckedFiles()
    try:
        lines = (data_folder / CHECKED_FILES).read_bytes().splitlines()
    except OSError:
        return checked
    for line in lines:
        row = object_at(parse_json_or_none(line))
        path = text_at(row, "path")
        if path:
            state = FileState(
                _whole_number_at(row, "size"),
                _whole_number_at(row, "modified_ns"),
                _whole_number_at(row, "inode"),
            )
            unknown: dict[str, int] = {}
            for name in object_at(row, "unknown"):
                unknown[name] = number_at(row, "unknown", name)
            version = text_at(row, "version")
            checked.files[path] = CheckedFile(state, unknown, version)
        elif "readers" in row:
            checked.finished_at = amount_at(row, "finished_at")
            checked.readers = text_at(row, "readers")
    return checked


def _whole_number_at(row: Mapping[str, object], name: str) -> int:
    """Return a number with all its digits, which a time in nanoseconds has too many of for a float."""
    number = row.get(name)
    if not isinstance(number, int):
        return 0
    return number


def _line_of_file(path: str, checked: CheckedFile) -> bytes:
    row: dict[str, object] = {
        "path": path,
        "size": checked.state.size,
        "modified_ns": checked.state.modified_ns,
        "inode": checked.state.inode,
    }
    if checked.unknown:
        row |= {"unknown": dict(checked.unknown), "version": checked.version}
    return json.dumps(row).encode() + b"\n"


def _write_checked_files(data_folder: Path, checked: CheckedFiles) -> None:
    head = {"readers": checked.readers, "finished_at": checked.finished_at}
    first_line = json.dumps(head).encode() + b"\n"
    lines = [first_line]
    lines += [_line_of_file(path, file) for path, file in checked.files.items()]
    content = b"".join(lines)
    list_file = data_folder / CHECKED_FILES
    create_private_folder(list_file.parent)
    write_file_atomically(list_file, content, private=True)


def name_known_readers() -> str:
    """Return a name for all that this version can read. Another version checks all files anew."""
    known = repr((__version__, read_table(SHAPES_TABLE)))
    return hashlib.sha256(known.encode()).hexdigest()[:16]


class DailyReadCheck:
    """One check of the files below `folders`, each with the kind of its histories. It is done in
    pieces, and goes on after a kill where it was. `may_read`: whether the user wants the file to
    be recorded.
    """

    def __init__(
        self,
        data_folder: Path,
        folders: Sequence[tuple[str, Path]],
        may_read: Callable[[str, Path], bool] = lambda _kind, _path: True,
        now: float | None = None,
    ) -> None:
        self._data_folder = data_folder
        self._folders = folders
        self._may_read = may_read
        if now is None:
            self._now = clock.time()
        else:
            self._now = now
        self._checked = read_checked_files(data_folder)
        self._found_paths: set[str] = set()
        self._reading = self._read_changed_files()
        self.files_read = 0

    def check_for(self, seconds: float) -> bool:
        """Check more files for so long, or one. Return whether all were. Raises OSError if nothing
        can be remembered.
        """
        end = clock.monotonic() + seconds
        for _ in self._reading:
            if clock.monotonic() >= end:
                return False
        return True

    def _read_changed_files(self) -> Iterator[None]:
        """Yield behind each file that was read."""
        checked = self._checked
        readers = name_known_readers()
        if checked.readers != readers:
            self._checked = checked = CheckedFiles({}, checked.finished_at, readers)
            _write_checked_files(self._data_folder, checked)
        for kind, folder in self._folders:
            for path, status in list_tree_files(folder):
                # A pipe would never end, and a link could lead to a file that is no history.
                is_file = stat.S_ISREG(status.st_mode)
                if not is_file or find_history_of_changed_file(kind, path) != path:
                    continue
                name = str(path)
                self._found_paths.add(name)
                state = _state_of_history(path)
                if state is None or _has_state(checked.files.get(name), state):
                    continue
                if self._may_read(kind, path):
                    self._check_file(kind, path, state)
                    yield
        # What is gone is forgotten.
        for name in checked.files.keys() - self._found_paths:
            del checked.files[name]
        checked.finished_at = self._now
        _write_checked_files(self._data_folder, checked)
        # What imports have noted since the last check is found now, or is not there any more.
        if read_noted_sentences(self._data_folder):
            note_sentences(self._data_folder, [])

    def _check_file(self, kind: str, path: Path, state: FileState) -> None:
        # If reading ends this process, the next one goes on behind this file.
        self._remember(path, CheckedFile(state, {ENDED_READING: 1}))
        self._remember(path, _find_unknown_in_file(kind, path, state))
        self.files_read += 1

    def _remember(self, path: Path, checked_file: CheckedFile) -> None:
        self._checked.files[str(path)] = checked_file
        with (self._data_folder / CHECKED_FILES).open("ab") as file:
            # The line feed in front ends a line that a kill has cut.
            file.write(b"\n" + _line_of_file(str(path), checked_file))


def _find_unknown_in_file(kind: str, path: Path, state: FileState) -> CheckedFile:
    report = ReadingReport()
    sessions = 0
    try:
        for _ in read_sessions(path, report, kind):
            sessions += 1
    except HelixError as error:
        if path.exists():  # It may have been deleted meanwhile.
            report.complaints.append(error.what)
    unknown: Counter[str] = report.unknown + report.unknown_tables
    if not unknown and not sessions and report.complaints:
        unknown[UNREADABLE] = len(report.complaints)
    version = ""
    if unknown:
        version = report.version
    return CheckedFile(state, unknown, version)


def _state_of_history(path: Path) -> FileState | None:
    """Return a file's state, or None if it is gone. SQLite writes what is new into a file beside
    the database.
    """
    try:
        status = path.lstat()
    except OSError:
        return None
    size = status.st_size
    modified_ns = status.st_mtime_ns
    if path.suffix == ".db":
        with suppress(OSError):
            log_status = path.with_name(f"{path.name}-wal").lstat()
            size += log_status.st_size
            modified_ns = max(modified_ns, log_status.st_mtime_ns)
    return FileState(size, modified_ns, status.st_ino)


def _has_state(checked_file: CheckedFile | None, state: FileState) -> bool:
    return checked_file is not None and checked_file.state == state
