"""Finds histories of other programs on this computer without reading them completely.

Each file is one session, except for databases, which contain many.
A session's description comes from the first lines of its file.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import added_formats, foreign_sqlite
from helix_desktop.histories.all_formats import ALL_FORMATS, find_format
from helix_desktop.histories.companion_files import list_files_below
from helix_desktop.histories.history_format import FoundSessionFile, HistoryFormat, HistoryPlaces
from helix_desktop.histories.history_rows import ReadingReport, parse_time
from helix_desktop.histories.unknown_shapes import unknown_tables
from helix_desktop.json_values import first_text, object_at, parse_json_or_none, text_at

_BYTES_OF_BEGINNING = 256 << 10  # Only this many bytes are read to find out what a file is.


@dataclass(frozen=True, slots=True)
class FoundHistories:
    """Histories in one file. `folder`: the working folder as the file names it, or empty.

    `is_imported`: all of it is already here, and the file has not changed since.
    """

    kind: str
    path: Path
    folder: str
    conversations: int
    size: int
    first: float
    last: float
    is_imported: bool = False

    @property
    def program(self) -> str:
        history_format = find_format(self.kind)
        if history_format is not None:
            program_made_from_it = history_format.made_from_it.get(self.path.parent.name)
            if program_made_from_it is not None:
                return program_made_from_it
        return added_formats.name_of_program(self.kind) or self.kind

    def is_folder_present(self) -> bool:
        if not Path(self.folder).is_absolute():
            return False
        # It may lie in a folder that the user may not enter, such as root's.
        return os.path.isdir(self.folder)  # noqa: PTH112 -- never raises


def history_folders(places: HistoryPlaces) -> Mapping[str, Sequence[Path]]:
    """Return the folders of each program's histories, existing or not."""
    folders_by_kind: dict[str, Sequence[Path]] = {}
    for history_format in ALL_FORMATS:
        folders = history_format.folders(places)
        if folders:
            folders_by_kind[history_format.kind] = folders
    return folders_by_kind


def list_json_files_of_histories(places: HistoryPlaces) -> list[Path]:
    """Return all files in which programs recorded conversations as lines of JSON."""
    files: list[Path] = []
    for folders in history_folders(places).values():
        for folder in folders:
            with suppress(OSError):  # The folder may not exist.
                found_paths = folder.rglob("*.jsonl")
                files.extend(path for path in found_paths if path.is_file())
    return files


def find_histories(places: HistoryPlaces) -> Iterator[FoundHistories]:
    """Yield all histories, program by program. An unreadable folder has none."""
    for history_format in ALL_FORMATS:
        for folder in history_format.folders(places):
            with suppress(OSError):
                yield from _find_histories_in_folder(history_format, folder)
    for added_format in added_formats.list_added_formats():
        with suppress(OSError):
            for path in added_formats.find_files_of_format(added_format, places.home):
                yield from _history_in_file(added_format.kind, path)


def find_kind_by_folder(folders_by_kind: Mapping[str, Sequence[Path]], file: Path) -> str:
    """Return the kind of history in whose folders the file lies, or an empty string."""
    for kind, folders in folders_by_kind.items():
        for folder in folders:
            if file.is_relative_to(folder):
                return kind
    return ""


def find_history_of_changed_file(kind: str, path: Path) -> Path | None:
    """Return the history to which a changed file belongs, or None."""
    history_format = find_format(kind)
    if history_format is None:
        return None
    # SQLite writes what is new into a file beside the database first.
    name = path.name.removesuffix("-wal")
    if _is_database_of_format(history_format, name):
        return path.with_name(name)
    pattern = history_format.file_pattern
    if pattern and path.match(pattern) and history_format.holds_session(path):
        return path
    return None


def find_histories_in_file(
    kind: str, path: Path, copy: Path | None = None
) -> Iterator[FoundHistories]:
    """Yield a file's histories, one for each working folder. `copy`: a copy to read instead."""
    readable_path = copy or path
    history_format = find_format(kind)
    if history_format is not None and _is_database_of_format(history_format, path.name):
        yield from _histories_in_database(history_format, readable_path)
        return
    folder, _ = _read_folder_and_time(kind, path, copy)
    yield FoundHistories(
        kind,
        path,
        folder,
        conversations=1,
        size=readable_path.stat().st_size,
        first=0.0,
        last=0.0,
    )


def _find_histories_in_folder(
    history_format: HistoryFormat, folder: Path
) -> Iterator[FoundHistories]:
    """Yield the histories in a program's folder. A sub-agent's file is not one: it comes with
    its session.
    """
    in_databases: list[FoundHistories] = []
    if history_format.databases:
        for database in sorted(folder.glob("*.db")):
            in_databases.extend(_histories_in_database(history_format, database))
    yield from in_databases
    if not in_databases:
        for session_file in history_format.find_older_sessions(folder):
            yield _describe_found_session(history_format.kind, session_file)
    if not history_format.file_pattern:
        return
    for file in list_files_below(folder, history_format.file_pattern):
        if history_format.holds_session(file) and history_format.is_main_session(file):
            yield from _history_in_file(history_format.kind, file)


def _describe_found_session(kind: str, session_file: FoundSessionFile) -> FoundHistories:
    return FoundHistories(
        kind,
        session_file.path,
        session_file.folder,
        conversations=1,
        size=session_file.size,
        first=session_file.start_time,
        last=session_file.end_time,
    )


def _history_in_file(kind: str, file: Path) -> Iterator[FoundHistories]:
    """Yield what is known of a file's session without reading all of it."""
    try:
        status = file.stat()
    except OSError:
        return
    if status.st_size == 0:
        return
    folder, start_time = _read_folder_and_time(kind, file)
    yield FoundHistories(
        kind,
        file,
        folder,
        conversations=1,
        size=status.st_size,
        first=start_time or status.st_mtime,
        last=status.st_mtime,
    )


def _read_folder_and_time(kind: str, file: Path, copy: Path | None = None) -> tuple[str, float]:
    """Return the working folder and the time of the start, from the first lines of the file or its
    copy. What they do not say is "" or 0.
    """
    beginning = b""
    with suppress(OSError), (copy or file).open("rb") as opened_file:
        beginning = opened_file.read(_BYTES_OF_BEGINNING)
    folder = ""
    history_format = find_format(kind)
    if history_format is not None:
        folder = history_format.working_folder(file, beginning)
    start_time = 0.0
    for line in beginning.split(b"\n"):
        row = object_at(parse_json_or_none(line))
        if not folder:
            folder = first_text(row, "cwd", "working_dir") or text_at(row, "payload", "cwd")
        if not start_time:
            start_time = parse_time(row.get("timestamp", row.get("startTime")))
        if folder and start_time:
            break
    return folder, start_time


def _is_database_of_format(history_format: HistoryFormat, name: str) -> bool:
    """Whether a file in a program's folder is a database with its sessions. opencode has one for
    each of its channels: `opencode-beta.db`.
    """
    return bool(history_format.databases) and name.endswith(".db")


def _histories_in_database(history_format: HistoryFormat, path: Path) -> Iterator[FoundHistories]:
    """Yield an item for each working folder, with its sessions' share of the file's size. A
    database in which no session can be read is one item without a conversation.
    """
    kind = history_format.kind
    if not foreign_sqlite.is_sqlite_file(path):
        return
    try:
        sessions = list(_read_sessions_in_database(history_format, path))
        rows_of_unknown_tables = _count_rows_of_unknown_tables(kind, path)
    except sqlite3.Error:
        return
    status = path.stat()
    if not sessions and any(rows_of_unknown_tables.values()):
        yield FoundHistories(
            kind,
            path,
            folder="",
            conversations=0,
            size=status.st_size,
            first=status.st_mtime,
            last=status.st_mtime,
        )

    sessions_by_folder: dict[str, list[SessionInDatabase]] = {}
    for session in sessions:
        sessions_by_folder.setdefault(session.folder, []).append(session)
    for folder, sessions_of_folder in sorted(sessions_by_folder.items()):
        count = len(sessions_of_folder)
        share_of_size = status.st_size * count // len(sessions)
        first_time = min(session.start_time for session in sessions_of_folder)
        last_time = max(session.end_time for session in sessions_of_folder)
        yield FoundHistories(
            kind,
            path,
            folder,
            conversations=count,
            size=share_of_size,
            first=first_time,
            last=last_time,
        )


@dataclass(frozen=True, slots=True)
class SessionInDatabase:
    folder: str
    start_time: float
    end_time: float


def _read_sessions_in_database(
    history_format: HistoryFormat, path: Path
) -> Iterator[SessionInDatabase]:
    with foreign_sqlite.open_foreign_database(path) as connection:
        tables = foreign_sqlite.ordinary_table_names(connection)
        queries: list[str] = []
        for database_tables in history_format.databases:
            queries.extend(database_tables.session_queries(tables))
        for query in queries:
            for row in foreign_sqlite.query_rows(connection, query):
                folder, start_time, end_time = row.values()
                folder_name = str(folder or "")
                yield SessionInDatabase(folder_name, parse_time(start_time), parse_time(end_time))


def _count_rows_of_unknown_tables(kind: str, database: Path) -> Mapping[str, int]:
    with foreign_sqlite.open_foreign_database(database) as connection:
        tables = foreign_sqlite.ordinary_table_names(connection)
        return foreign_sqlite.count_rows_of_tables(connection, unknown_tables(kind, tables))


@dataclass(frozen=True, slots=True)
class DatabaseShape:
    """What a program's database was seen to have. `report`: what of it is unknown."""

    kind: str
    path: Path
    report: ReadingReport
    has_known_tables: bool


def find_unread_databases(places: HistoryPlaces) -> Iterator[str]:
    """Yield a sentence for each database of a program in which there are tables or columns that
    are not read. This reads no content.
    """
    for database in list_database_shapes(places):
        yield from database.report.sentences_about_unknown()


def list_database_shapes(places: HistoryPlaces) -> Iterator[DatabaseShape]:
    """Yield what the databases of programs have. This reads no content."""
    for kind, folders in history_folders(places).items():
        databases: list[Path] = []
        for folder in folders:
            databases += sorted(folder.glob("*.db"))
        for database in databases:
            report = ReadingReport(shape=kind)
            has_known_tables = True
            with suppress(sqlite3.Error, OSError):
                if foreign_sqlite.is_sqlite_file(database):
                    with foreign_sqlite.open_foreign_database(database) as connection:
                        foreign_sqlite.note_unknown_tables_and_columns(connection, report)
                        tables = foreign_sqlite.ordinary_table_names(connection)
                        unknown = unknown_tables(kind, tables)
                        has_known_tables = len(unknown) < len(tables) or not tables
            yield DatabaseShape(kind, database, report, has_known_tables)
