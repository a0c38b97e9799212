"""What is declared of a program whose histories are read: one `HistoryFormat` in its own module.

`all_formats.py` lists them. Finding and reading ask the declaration and name no program.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.foreign_sqlite import ForeignConnection
from helix_desktop.histories.history_rows import HistoryRow, ReadingReport
from helix_desktop.histories.recorded_session import RecordedSession

RowTest = Callable[[Mapping[str, object]], bool]
FileTest = Callable[[Path], bool]
RowsReader = Callable[[Sequence[HistoryRow], ReadingReport, Path], list[RecordedSession]]
FileReader = Callable[[Path, ReadingReport], Iterator[RecordedSession]]
LinesReader = Callable[[Iterable[bytes], Path, ReadingReport], Iterator[RecordedSession]]
DatabaseReader = Callable[[ForeignConnection, Path, ReadingReport], Iterator[RecordedSession]]


@dataclass(frozen=True, slots=True)
class HistoryPlaces:
    """Where to look: a home folder, and values of the programs' own variables."""

    home: Path
    variables: Mapping[str, str]

    @classmethod
    def of_this_user(cls) -> "HistoryPlaces":
        return cls(Path.home(), os.environ)

    def folder_from_variable(self, variable: str, *default_path: str) -> Path:
        named = self.variables.get(variable, "")
        if named:
            return Path(named)
        return self.home.joinpath(*default_path)

    def data_folder(self) -> Path:
        return self.folder_from_variable("XDG_DATA_HOME", ".local", "share")


@dataclass(frozen=True, slots=True)
class FoundSessionFile:
    """A session that has a file of its own. `folder`: the working folder that it names, or ""."""

    path: Path
    folder: str
    size: int
    start_time: float
    end_time: float


@dataclass(frozen=True, slots=True)
class DatabaseTables:
    """Tables in which a program keeps its sessions. A database with all of `tables` is read.

    `session_queries` gets the names of a database's tables, and yields queries for the working
    folder and the times of the sessions in them that no other session started.
    """

    tables: frozenset[str]
    read: DatabaseReader
    session_queries: Callable[[Collection[str]], Iterator[str]]


def _no_row(_row: Mapping[str, object]) -> bool:
    return False


def _no_file(_file: Path) -> bool:
    return False


def _every_file(_file: Path) -> bool:
    return True


def _no_folders(_places: HistoryPlaces) -> Sequence[Path]:
    return ()


def _folder_not_named(_file: Path, _beginning: bytes) -> str:
    return ""


def _no_subagents(_file: Path) -> Sequence[Path]:
    return ()


def _no_older_sessions(_folder: Path) -> Iterator[FoundSessionFile]:
    return iter(())


@dataclass(frozen=True, slots=True)
class HistoryFormat:
    """One kind of history: how its files are recognized, read and found.

    Reading:
    `recognizes`: whether a row shows that its file has this format. `read` reads the rows.
    `recognizes_file`: whether a file's name and place show it. `read_file` reads such a file
    whole, if it is not one of rows.
    `databases`: the tables in which the program keeps sessions.
    `keeps_lines`: a conversation keeps the lines of the file, to give them back unchanged.
    `read_kept_lines` reads such lines, if they are not rows.

    Finding:
    `folders`: where the program keeps its histories; none for what a person exports.
    `file_pattern`: what files of sessions are called there, and `holds_session` which of these
    hold one. `is_main_session`: False for a sub-agent's file, which comes with its session.
    `list_subagents`: the files of sub-agents that lie in a place of their own beside a session's.
    `find_older_sessions`: those that older versions kept in other ways, asked if a folder has no
    database.
    `working_folder`: gets a file and its beginning, and returns what its rows do not name.
    `made_from_it`: names of programs that were made from this one, by the folder of each.
    """

    kind: str
    recognizes: RowTest = _no_row
    read: RowsReader | None = None
    recognizes_file: FileTest = _no_file
    read_file: FileReader | None = None
    databases: Sequence[DatabaseTables] = ()
    keeps_lines: bool = False
    read_kept_lines: LinesReader | None = None

    folders: Callable[[HistoryPlaces], Sequence[Path]] = _no_folders
    file_pattern: str = ""
    holds_session: FileTest = _every_file
    is_main_session: FileTest = _every_file
    list_subagents: Callable[[Path], Sequence[Path]] = _no_subagents
    find_older_sessions: Callable[[Path], Iterator[FoundSessionFile]] = _no_older_sessions
    working_folder: Callable[[Path, bytes], str] = _folder_not_named
    made_from_it: Mapping[str, str] = field(default_factory=dict)
