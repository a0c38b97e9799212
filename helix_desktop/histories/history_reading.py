"""Reads histories from files of every format: an agent's own, recorded traces, messages as JSON.

An unreadable line is skipped and reported with its file and number. A file without a readable line
raises InvalidInput. Content is only data: nothing in it is executed, looked up or opened.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import orjson

from helix_desktop.errors import InvalidInput, NotFound, format_things
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import (
    added_formats,
    chatgpt_history,
    claude_code_history,
    cline_history,
    codex_history,
    foreign_sqlite,
    gemini_cli_history,
    goose_history,
    openai_history,
    opencode2_history,
    opencode_history,
    pi_history,
    trajectories,
)
from helix_desktop.histories.anthropic_history import (
    is_anthropic_message,
    read_anthropic_recordings,
)
from helix_desktop.histories.companion_files import list_files_below
from helix_desktop.histories.history_rows import HistoryRow, ReadingReport, UnreadableRow
from helix_desktop.histories.late_results import put_results_behind_their_calls
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.histories.unknown_shapes import known_shapes, unknown_tables
from helix_desktop.json_values import parse_json_or_none

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LARGEST = 2 << 30  # Files with more bytes are not read.
FORMS = "Supported formats: sessions from Claude Code, Codex, opencode, Gemini CLI, pi, Cline and goose; exports of ChatGPT; trajectories from SWE-agent and Harbor; and messages in OpenAI or Anthropic API format."
# Suffixes of files that lie beside a session but are not sessions themselves.
_BESIDE = (".usage.json", ".compactions.json", "ui_messages.json", "task_metadata.json")

_PARTS = ("msg_", "prt_")  # Prefixes of the names of files that hold parts of opencode's sessions.

RowTest = Callable[[Mapping[str, object]], bool]
SessionReader = Callable[[Sequence[HistoryRow], ReadingReport, Path], list[RecordedSession]]
DatabaseReader = Callable[
    [foreign_sqlite.ForeignConnection, Path, ReadingReport], Iterator[RecordedSession]
]


@dataclass(frozen=True, slots=True)
class HistoryForm:
    """A format of histories. `recognizes`: whether a row shows that its file has this format."""

    kind: str
    recognizes: RowTest
    read: SessionReader


@dataclass(frozen=True, slots=True)
class DatabaseForm:
    """A format of databases. `tables`: the tables that show it."""

    tables: frozenset[str]
    read: DatabaseReader


FORMS_OF_ROWS: Sequence[HistoryForm] = (
    HistoryForm(pi_history.KIND, pi_history.is_pi_row, pi_history.read_pi_recordings),
    HistoryForm(
        claude_code_history.KIND,
        claude_code_history.is_claude_code_row,
        claude_code_history.read_claude_code_recordings,
    ),
    HistoryForm(
        codex_history.KIND, codex_history.is_codex_row, codex_history.read_codex_recordings
    ),
    HistoryForm(
        gemini_cli_history.KIND,
        gemini_cli_history.is_gemini_cli_row,
        gemini_cli_history.read_gemini_cli_recordings,
    ),
    HistoryForm(
        goose_history.KIND, goose_history.is_goose_row, goose_history.read_goose_recordings
    ),
    HistoryForm(
        trajectories.KIND, trajectories.is_whole_trajectory, trajectories.read_trajectory_recordings
    ),
    HistoryForm(
        trajectories.KIND,
        trajectories.is_managed_agent_log,
        trajectories.read_trajectory_recordings,
    ),
    HistoryForm(
        chatgpt_history.KIND,
        chatgpt_history.is_chatgpt_row,
        chatgpt_history.read_chatgpt_recordings,
    ),
    HistoryForm("anthropic", is_anthropic_message, read_anthropic_recordings),
    HistoryForm("openai", lambda _: True, openai_history.read_openai_recordings),
)
DATABASES = (
    DatabaseForm(opencode_history.TABLES, opencode_history.read_opencode_database),
    DatabaseForm(opencode2_history.TABLES, opencode2_history.read_opencode2_database),
    DatabaseForm(goose_history.TABLES, goose_history.read_goose_database),
)
_KINDS_OF_ROWS = [form.kind for form in FORMS_OF_ROWS]
KINDS = tuple(dict.fromkeys([*_KINDS_OF_ROWS, opencode_history.KIND, cline_history.KIND]))


@dataclass(frozen=True, slots=True)
class ImportedSessions:
    """The sessions of some files, and a sentence for each line left out."""

    recordings: tuple[RecordedSession, ...]
    complaints: tuple[str, ...]


def sessions_for_replay(imported: ImportedSessions) -> ImportedSessions:
    """Return what a replay plays: main branches, as the model saw them, without failed requests."""
    main = [one for one in imported.recordings if not one.forked_from and not one.parent]
    shown: list[RecordedSession] = []
    for session in main or imported.recordings:
        shown.append(replace(session, messages=tuple(_messages_as_shown(session))))
    return replace(imported, recordings=tuple(shown))


def _messages_as_shown(recording: RecordedSession) -> Iterator[RecordedMessage]:
    for message in recording.messages:
        if message.role == "failure":
            continue
        yield replace(message, text=message.shown or message.text)


def read_history_files(paths: Sequence[Path]) -> ImportedSessions:
    """Return all sessions of the files. In a folder, files without sessions are
    ignored, if others have some.
    """
    read: list[ImportedSessions] = []
    errors: list[InvalidInput] = []
    for path in paths:
        if not path.is_dir():
            read.append(read_history_file(path))
            continue
        for file in list_history_files(path):
            try:
                read.append(read_history_file(file))
            except InvalidInput as error:
                errors.append(error)
    if errors and not read:
        raise errors[0]
    recordings: list[RecordedSession] = []
    complaints: list[str] = []
    for sessions in read:
        recordings += sessions.recordings
        complaints += sessions.complaints
    complaints += [error.what for error in errors]
    return ImportedSessions(tuple(recordings), tuple(complaints))


def read_history_file(path: Path) -> ImportedSessions:
    """Return the sessions of a file. Raises InvalidInput if there are none."""
    report = ReadingReport()
    recordings = tuple(read_sessions(path, report))
    if not any(map(_has_reply, recordings)):
        raise no_session_error(path, report)
    return ImportedSessions(recordings, report.complaint_sentences(str(path)))


def _has_reply(recording: RecordedSession) -> bool:
    return any(message.role == "assistant" for message in recording.messages)


def no_session_error(path: Path, report: ReadingReport) -> InvalidInput:
    sentences = [*report.sentences_about_unknown(), *report.complaint_sentences(str(path))]
    why = " ".join(sentences[:1])
    return InvalidInput(
        f"{path} doesn't contain a session that can be read. {why}".rstrip(), remedy=FORMS
    )


def read_sessions(
    path: Path, report: ReadingReport, kind: str = "", copy: Path | None = None
) -> Iterator[RecordedSession]:
    """Yield a file's sessions, in any format, with results behind their calls. `copy`: read
    this instead, as the file may change.
    """
    for session in _read_sessions_as_written(path, report, kind, copy):
        yield put_results_behind_their_calls(session)


def _read_sessions_as_written(
    path: Path, report: ReadingReport, kind: str, copy: Path | None
) -> Iterator[RecordedSession]:
    readable_path = copy or path
    try:
        if not readable_path.is_file() and readable_path.exists():
            raise InvalidInput(f"{path} is not a file.")
        if readable_path.stat().st_size > LARGEST:
            raise InvalidInput(
                f"{path} is larger than {LARGEST >> 30} GB.",
                remedy="Split the file into smaller files at line breaks.",
            )
        added_format = added_formats.find_added_format(readable_path, kind)
        if added_format is not None:
            yield from added_format.read(readable_path)
        elif foreign_sqlite.is_sqlite_file(readable_path):
            yield from _sessions_in_database(path, report, kind, readable_path)
        elif opencode_history.is_opencode_file(path):
            yield from opencode_history.read_opencode_file(path, report)
        else:
            yield from _read_sessions_from_json_file(path, report, kind, readable_path)
    except OSError as error:
        raise NotFound(
            f"{path} cannot be read: {error.strerror}.", remedy="Check the file name."
        ) from error


def _sessions_in_database(
    path: Path, report: ReadingReport, kind: str, readable_path: Path
) -> Iterator[RecordedSession]:
    try:
        with foreign_sqlite.open_foreign_database(readable_path) as connection:
            tables = foreign_sqlite.ordinary_table_names(connection)
            for database in DATABASES:
                if tables >= database.tables:
                    yield from database.read(connection, path, report)
            # A database without a known table is of the program in whose folder it lies.
            report.shape = report.shape or kind
            unknown = unknown_tables(report.shape, tables)
            report.note_unknown_tables(foreign_sqlite.count_rows_of_tables(connection, unknown))
    except sqlite3.Error as error:
        report.complaints.append(f"{path}: the database cannot be read: {error}.")


def _read_sessions_from_json_file(
    path: Path, report: ReadingReport, kind: str, readable_path: Path
) -> Iterator[RecordedSession]:
    groups = list(_group_into_sessions(list(_read_rows(path, report, readable_path))))
    for number, rows in enumerate(groups, 1):
        form = _choose_history_form(rows, path, kind)
        report.shape = ""
        if known_shapes(form.kind) is not None:
            report.shape = form.kind
        for row in rows:
            report.note_unknown_fields(row)
        try:
            sessions = form.read(rows, report, path)
        except UnreadableRow as error:
            report.complaints.append(f"{path}: {error}; the session was left out.")
            continue
        for session in sessions:
            report.version = report.version or session.version
            if not session.messages:
                continue
            if len(groups) == 1:
                yield session
            else:
                name = f"{session.name}#{number}"
                yield replace(session, name=name, session=f"{session.session}#{number}")


def _choose_history_form(rows: Sequence[HistoryRow], path: Path, kind: str) -> HistoryForm:
    """Return the file's format: the one that the caller, the file's name or a row indicates."""
    if kind == cline_history.KIND or (not kind and cline_history.is_cline_file(path)):
        return HistoryForm(cline_history.KIND, lambda _: True, cline_history.read_cline_recordings)
    for form in FORMS_OF_ROWS:
        if form.kind == kind:
            return form
    if kind:
        raise InvalidInput(
            f"Unknown kind of history: {kind!r}.", remedy=f"Available: {', '.join(KINDS)}."
        )
    for form in FORMS_OF_ROWS:
        if any(form.recognizes(row.value) for row in rows):
            return form
    return FORMS_OF_ROWS[-1]


def list_history_files(folder: Path) -> Sequence[Path]:
    files: list[Path] = []
    for file in list_files_below(folder, "*.jsonl", "*.json", "*.traj", "*.db"):
        if not file.name.endswith(_BESIDE) and not file.name.startswith(_PARTS):
            files.append(file)
    if not files:
        raise NotFound(
            f"There is no .jsonl or .json file under {folder}.",
            remedy="Specify a file or a folder of sessions.",
        )
    return files


def _read_rows(path: Path, report: ReadingReport, readable_path: Path) -> Iterator[HistoryRow]:
    """Yield the rows of one JSON document, or one row per line. Each names its place for people."""
    if chatgpt_history.is_chatgpt_archive(readable_path):
        for name, content in chatgpt_history.read_documents_in_archive(readable_path):
            yield from _rows_of_document(content, path / name, report.complaints)
        return
    with readable_path.open("rb") as file:
        beginning = file.read(1 << 16).removeprefix(BYTE_ORDER_MARK).strip()
        first_line = beginning.partition(b"\n")[0].rstrip()
        file.seek(0)
        if first_line.startswith(b"[") or first_line == b"{":
            yield from _rows_of_document(file.read(), path, report.complaints)
            return
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            place = f"{path}, line {number}"
            text = line
            if number == 1:
                text = line.removeprefix(BYTE_ORDER_MARK)
            value = _parse_json_line(text)
            if isinstance(value, Mapping):
                yield HistoryRow(value, place, line)
            else:
                report.complain_about_row(HistoryRow({}, place, line), "this is not a JSON object")


def _rows_of_document(content: bytes, path: Path, complaints: list[str]) -> Iterator[HistoryRow]:
    try:
        yield from _rows_of_value(json.loads(content.decode("utf-8-sig", "replace")), path)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        kept = list(_objects_before_damage(content.decode("utf-8-sig", "replace")))
        left = "the file was left out"
        if kept:
            left = f"{format_things(len(kept), 'message', 'messages')} before it could be read"
        complaints.append(f"{path}, line {line}: the JSON is broken here; {left}.")
        for number, item in enumerate(kept, 1):
            yield HistoryRow(item, f"{path}, entry {number}")


def _objects_before_damage(text: str) -> Iterator[Mapping[str, object]]:
    """Yield the complete objects at the beginning of a list that is cut off or damaged."""
    decoder = json.JSONDecoder()
    position = text.find("[") + 1
    while position:
        while position < len(text) and text[position] in " \r\n\t,":
            position += 1
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        if isinstance(value, Mapping):
            yield value


def _rows_of_value(whole: object, path: Path) -> Iterator[HistoryRow]:
    items = whole if isinstance(whole, list) else [whole]
    for number, item in enumerate(items, 1):
        place = str(path)
        if len(items) > 1:
            place += f", entry {number}"
        if isinstance(item, Mapping):
            yield HistoryRow(item, place)
        elif isinstance(item, list):
            yield HistoryRow({"messages": item}, place)


def _group_into_sessions(rows: Sequence[HistoryRow]) -> Iterator[Sequence[HistoryRow]]:
    """Group rows: each one with a list of messages is a session, and all others
    together are one.
    """
    together = []
    for row in rows:
        messages = openai_history.messages_in_object(row.value)
        is_trajectory = trajectories.is_whole_trajectory(row.value)
        if messages is None or is_trajectory or gemini_cli_history.is_gemini_cli_row(row.value):
            together.append(row)
        else:
            numbered = enumerate(_with_system_prompt(row, messages), 1)
            yield [HistoryRow(item, f"{row.place}, message {number}") for number, item in numbered]
    if together:
        yield together


def _with_system_prompt(
    row: HistoryRow, messages: Sequence[Mapping[str, object]]
) -> Sequence[Mapping[str, object]]:
    """Add the system prompt to the messages: requests to Anthropic have it in a field
    of its own.
    """
    system = row.value.get("system")
    if not isinstance(system, str | list) or not system:
        return messages
    return [{"role": "system", "content": system}, *messages]


def _parse_json_line(line: bytes) -> object:
    with suppress(ValueError):
        return orjson.loads(line)
    return parse_json_or_none(line.decode("utf-8", "replace"))
