"""Finds histories of other programs on this computer without reading them completely.

Each file is one session, except for databases, which contain many.
A session's description comes from the first lines of its file.
"""

import os
import sqlite3
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import (
    added_formats,
    claude_code_history,
    cline_history,
    codex_history,
    foreign_sqlite,
    gemini_cli_history,
    goose_history,
    opencode2_history,
    opencode_history,
    pi_history,
    subagent_files,
)
from helix_desktop.histories.companion_files import list_files_below, read_file_below
from helix_desktop.histories.history_rows import ReadingReport, parse_time
from helix_desktop.histories.unknown_shapes import unknown_tables
from helix_desktop.json_values import first_text, object_at, parse_json_or_none, text_at
from helix_desktop.resources import read_table

_BYTES_OF_BEGINNING = 256 << 10  # Only this many bytes are read to find out what a file is.
_LARGEST_DESCRIPTION_BYTES = (
    64 << 20
)  # Files that only describe a session have no more bytes than this.
# Programs that were made from opencode and keep its tables, by the name of their folder.
_MADE_FROM_OPENCODE = {"kilo": "Kilo"}
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")


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
        if self.kind == opencode_history.KIND and self.path.parent.name in _MADE_FROM_OPENCODE:
            return _MADE_FROM_OPENCODE[self.path.parent.name]
        return added_formats.name_of_program(self.kind) or self.kind

    def is_folder_present(self) -> bool:
        return bool(self.folder) and Path(self.folder).is_absolute() and Path(self.folder).is_dir()


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


def history_folders(places: HistoryPlaces) -> Mapping[str, Sequence[Path]]:
    """Return the folders of each program's histories, existing or not."""
    codex_home = places.folder_from_variable("CODEX_HOME", ".codex")
    data = places.folder_from_variable("XDG_DATA_HOME", ".local", "share")
    claude_home = places.folder_from_variable("CLAUDE_CONFIG_DIR", ".claude")
    gemini_home = places.folder_from_variable("GEMINI_CLI_HOME")
    pi_home = places.folder_from_variable("PI_CODING_AGENT_DIR", ".pi", "agent")
    opencode_folders = [data / "opencode"]
    for name in _MADE_FROM_OPENCODE:
        opencode_folders.append(data / name)
    for variable in ("OPENCODE_DB", "KILO_DB"):
        opencode_folders.extend(_folder_of_named_database(places, variable, opencode_folders))
    return {
        claude_code_history.KIND: [claude_home / "projects"],
        codex_history.KIND: [codex_home / "sessions", codex_home / "archived_sessions"],
        opencode_history.KIND: opencode_folders,
        gemini_cli_history.KIND: [gemini_home / ".gemini" / "tmp"],
        pi_history.KIND: [pi_home / "sessions"],
        cline_history.KIND: list(_cline_folders(places)),
        goose_history.KIND: [data / "goose" / "sessions"],
    }


def _folder_of_named_database(
    places: HistoryPlaces, variable: str, known_folders: Collection[Path]
) -> Iterator[Path]:
    """Yield the folder of the database that a variable names, unless it is a folder with much
    else in it: the recorder looks at all that is in a folder of histories.
    """
    database = Path(places.variables.get(variable, ""))
    folder = database.parent
    has_much_else = folder == places.home or folder in places.home.parents
    if has_much_else or folder in known_folders:
        return
    if database.is_absolute() and database.suffix == ".db":
        yield folder


def list_json_files_of_histories(places: HistoryPlaces) -> list[Path]:
    """Return all files in which programs recorded conversations as lines of JSON."""
    files: list[Path] = []
    for folders in history_folders(places).values():
        for folder in folders:
            with suppress(OSError):  # The folder may not exist.
                for path in folder.rglob("*.jsonl"):
                    if path.is_file():
                        files.append(path)
    return files


def find_histories(places: HistoryPlaces) -> Iterator[FoundHistories]:
    """Yield all histories, program by program. An unreadable folder has none."""
    for kind, folders in history_folders(places).items():
        for folder in folders:
            with suppress(OSError):
                yield from _find_histories_in_folder(kind, folder)
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
    # SQLite writes what is new into a file beside the database first.
    name = path.name.removesuffix("-wal")
    if _is_database_of_program(kind, name):
        return path.with_name(name)
    if kind == cline_history.KIND:
        is_history = cline_history.is_cline_file(path)
    elif kind == gemini_cli_history.KIND:
        is_history = path.match(_NAME_PATTERNS[kind]) and "chats" in path.parts
    else:
        is_history = kind in _NAME_PATTERNS and path.match(_NAME_PATTERNS[kind])
    if not is_history:
        return None
    return path


def find_histories_in_file(
    kind: str, path: Path, copy: Path | None = None
) -> Iterator[FoundHistories]:
    """Yield a file's histories, one for each working folder. `copy`: a copy to read instead."""
    readable_path = copy or path
    if _is_database_of_program(kind, path.name):
        yield from _histories_in_database(kind, readable_path)
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


def _find_histories_in_folder(kind: str, folder: Path) -> Iterator[FoundHistories]:
    """Yield the histories in a program's folder. A sub-agent's file is not one: it comes with
    its session.
    """
    if kind == opencode_history.KIND:
        yield from _find_opencode_histories(folder)
        return
    if kind == goose_history.KIND:
        for database in sorted(folder.glob("*.db")):
            yield from _histories_in_database(kind, database)
    for file in list_files_below(folder, _NAME_PATTERNS[kind]):
        if _is_main_session_file(kind, file):
            yield from _history_in_file(kind, file)


def _is_main_session_file(kind: str, file: Path) -> bool:
    """Return False for a file of a sub-agent, which comes with its session, and for other files."""
    if kind == claude_code_history.KIND:
        return "subagents" not in file.parts and not file.match(subagent_files.CLAUDE_SUBAGENT)
    if kind == gemini_cli_history.KIND:
        return file.match(subagent_files.GEMINI_SESSION)
    if kind == cline_history.KIND:
        is_subagent = file.match(subagent_files.CLINE_SUBAGENT)
        return cline_history.is_cline_file(file) and not is_subagent
    return True


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
    folder = ""
    if kind == gemini_cli_history.KIND:
        folder = gemini_cli_history.read_gemini_project_folder(file)
    try:
        with (copy or file).open("rb") as opened_file:
            beginning = opened_file.read(_BYTES_OF_BEGINNING)
    except OSError:
        return folder, 0.0
    if kind == cline_history.KIND:
        return _read_cline_folder(file, beginning), 0.0
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


def _read_cline_folder(file: Path, beginning: bytes) -> str:
    folder = text_at(cline_history.read_about_cline_session(file), "cwd")
    if folder:
        return folder
    return cline_history.working_folder_in_cline_text(beginning.decode("utf-8", "replace"))


def _find_opencode_histories(data: Path) -> Iterator[FoundHistories]:
    """Yield the sessions in opencode's databases or, if there are none, in the files of older
    versions.
    """
    histories: list[FoundHistories] = []
    for database in sorted(data.glob("*.db")):
        histories.extend(_histories_in_database(opencode_history.KIND, database))
    yield from histories
    if histories:
        return
    # Versions before the database wrote a file for each session.
    for file in list_files_below(data / "storage" / "session", "ses_*.json"):
        with suppress(OSError):
            yield from _opencode_history_in_file(data, file)


def _opencode_history_in_file(data: Path, file: Path) -> Iterator[FoundHistories]:
    """Yield the session of a file of older versions, unless a sub-agent's."""
    content = read_file_below(data, str(file.relative_to(data)), _LARGEST_DESCRIPTION_BYTES)
    value = object_at(parse_json_or_none(content))
    if value.get("parentID"):
        return
    size = file.stat().st_size
    for message_file in list_files_below(data / "storage" / "message" / file.stem, "*.json"):
        size += message_file.stat().st_size
    times = object_at(value, "time")
    yield FoundHistories(
        opencode_history.KIND,
        file,
        folder=text_at(value, "directory"),
        conversations=1,
        size=size,
        first=parse_time(times.get("created")),
        last=parse_time(times.get("updated")),
    )


def _is_database_of_program(kind: str, name: str) -> bool:
    """Whether a file in a program's folder is a database with its sessions. opencode has one for
    each of its channels: `opencode-beta.db`.
    """
    return kind in (opencode_history.KIND, goose_history.KIND) and name.endswith(".db")


def _histories_in_database(kind: str, path: Path) -> Iterator[FoundHistories]:
    """Yield an item for each working folder, with its sessions' share of the file's size. A
    database in which no session can be read is one item without a conversation.
    """
    if not foreign_sqlite.is_sqlite_file(path):
        return
    try:
        sessions = list(_read_sessions_in_database(kind, path))
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
        yield FoundHistories(
            kind,
            path,
            folder,
            conversations=count,
            size=status.st_size * count // len(sessions),
            first=min(session.start_time for session in sessions_of_folder),
            last=max(session.end_time for session in sessions_of_folder),
        )


@dataclass(frozen=True, slots=True)
class SessionInDatabase:
    folder: str
    start_time: float
    end_time: float


def _read_sessions_in_database(kind: str, path: Path) -> Iterator[SessionInDatabase]:
    with foreign_sqlite.open_foreign_database(path) as connection:
        tables = foreign_sqlite.ordinary_table_names(connection)
        for query in _queries_of_sessions(kind, tables):
            for row in foreign_sqlite.query_rows(connection, query):
                folder, start_time, end_time = row.values()
                yield SessionInDatabase(
                    str(folder or ""), parse_time(start_time), parse_time(end_time)
                )


def _count_rows_of_unknown_tables(kind: str, database: Path) -> Mapping[str, int]:
    with foreign_sqlite.open_foreign_database(database) as connection:
        tables = foreign_sqlite.ordinary_table_names(connection)
        return foreign_sqlite.count_rows_of_tables(connection, unknown_tables(kind, tables))


def _queries_of_sessions(kind: str, tables: Collection[str]) -> Iterator[str]:
    """Yield queries for folder and times of the sessions that no other session started."""
    if kind == goose_history.KIND and "sessions" in tables:
        yield "SELECT working_dir, created_at, updated_at FROM sessions"
    columns = "SELECT directory, time_created, time_updated FROM"
    if kind == opencode_history.KIND and opencode2_history.SESSIONS in tables:
        yield f"{columns} session_v2 WHERE parent_id IS NULL"
    if kind == opencode_history.KIND and "session" in tables:
        query = f"{columns} session WHERE parent_id IS NULL"
        if opencode2_history.SESSIONS in tables:
            # Version 2 has taken these over.
            query += " AND id NOT IN (SELECT id FROM session_v2)"
        yield query


def is_opencode2_in_use(places: HistoryPlaces) -> bool:
    """Whether a database of opencode has the tables of version 2."""
    for folder in history_folders(places)[opencode_history.KIND]:
        if folder.name in _MADE_FROM_OPENCODE:
            continue
        for database in folder.glob("*.db"):
            with suppress(sqlite3.Error, OSError):
                if not foreign_sqlite.is_sqlite_file(database):
                    continue
                with foreign_sqlite.open_foreign_database(database) as connection:
                    tables = foreign_sqlite.ordinary_table_names(connection)
                if opencode2_history.SESSIONS in tables:
                    return True
    return False


def find_unread_databases(places: HistoryPlaces) -> Iterator[str]:
    """Yield a sentence for each database of a program in which there are tables or columns that
    are not read. This reads no content.
    """
    for kind, folders in history_folders(places).items():
        databases: list[Path] = []
        for folder in folders:
            databases += sorted(folder.glob("*.db"))
        for database in databases:
            report = ReadingReport(shape=kind)
            with suppress(sqlite3.Error, OSError):
                if foreign_sqlite.is_sqlite_file(database):
                    with foreign_sqlite.open_foreign_database(database) as connection:
                        foreign_sqlite.note_unknown_tables_and_columns(connection, report)
            yield from report.sentences_about_unknown()


def _cline_folders(places: HistoryPlaces) -> Iterator[Path]:
    """Yield Cline's folders: its own in newer versions, or the one in its editor's data."""
    yield from (places.home / ".cline" / "data" / name for name in ("tasks", "sessions"))
    by_system = {
        "darwin": places.home / "Library" / "Application Support",
        "win32": places.folder_from_variable("APPDATA", "AppData", "Roaming"),
    }
    data = by_system.get(sys.platform, places.folder_from_variable("XDG_CONFIG_HOME", ".config"))
    for editor in _EDITORS:
        yield data / editor / "User" / "globalStorage" / "saoudrizwan.claude-dev" / "tasks"


_NAME_PATTERNS: Mapping[str, str] = read_table("known_agents")["history_files"]
