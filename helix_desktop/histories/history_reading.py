"""Reads histories from files of every format: an agent's own, recorded traces, messages as JSON.

An unreadable line is skipped and reported with its file and number. A file without a readable line
raises InvalidInput. Content is only data: nothing in it is executed, looked up or opened.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import orjson

from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import (
    added_formats,
    chatgpt_history,
    cline_history,
    foreign_sqlite,
    gemini_cli_history,
    openai_history,
    trajectories,
)
from helix_desktop.histories.all_formats import ALL_FORMATS, find_format
from helix_desktop.histories.companion_files import list_files_below
from helix_desktop.histories.history_format import HistoryFormat
from helix_desktop.histories.history_rows import HistoryRow, ReadingReport, UnreadableRow
from helix_desktop.histories.late_results import put_results_behind_their_calls
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedSession,
    time_of_newest_message,
)
from helix_desktop.histories.unknown_shapes import known_shapes
from helix_desktop.json_values import has_more_values, parse_json_or_none

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# This much of a file is enough to see whether it is one document or has one on each line.
MOST_BYTES_OF_FIRST_LINE = 1 << 16
# A larger file whose first line is no JSON has damaged lines rather than one document.
LARGEST_DOCUMENT_OVER_LINES = 256 << 20
# Reading a line takes ten times its length, for its values and their copies.
LONGEST_LINE_BYTES = 64 << 20
# Many small values take a hundred times their length. An export of years of chats has fewer.
MOST_VALUES_IN_LINE = 2_000_000
MOST_VALUES_IN_DOCUMENT = 20_000_000
LARGEST_FILE_BYTES = 2 << 30  # Larger files are not read.
FORMS = "Supported formats: sessions from Claude Code, Codex, opencode, Gemini CLI, pi, Qwen Code, Copilot CLI, Cline and goose; exports of ChatGPT; trajectories from SWE-agent and Harbor; and messages in OpenAI or Anthropic API format."
# Suffixes of files that lie beside a session but are not sessions themselves.
_BESIDE = (".usage.json", ".compactions.json", "ui_messages.json", "task_metadata.json")

_PATTERNS_OF_FILES = ("*.jsonl", "*.json", "*.traj", "*.db")
_PARTS = ("msg_", "prt_")  # Prefixes of the names of files that hold parts of opencode's sessions.


@dataclass(frozen=True, slots=True)
class ImportedSessions:
    """The sessions of some files, and a sentence for each line left out."""

    recordings: tuple[RecordedSession, ...]
    complaints: tuple[str, ...]


def sessions_for_replay(imported: ImportedSessions) -> ImportedSessions:
    """Return what a replay plays: main branches, as the model saw them, without failed requests."""
    main_sessions: list[RecordedSession] = []
    for session in imported.recordings:
        if not session.forked_from and not session.parent:
            main_sessions.append(session)
    sessions: list[RecordedSession] = []
    for session in main_sessions or imported.recordings:
        shown_messages = _messages_as_shown(session)
        sessions.append(replace(session, messages=tuple(shown_messages)))
    return replace(imported, recordings=tuple(sessions))


def _messages_as_shown(recording: RecordedSession) -> Iterator[RecordedMessage]:
    for message in recording.messages:
        if message.role == "failure":
            continue
        yield replace(message, text=message.shown or message.text)


def read_history_files(paths: Sequence[Path]) -> ImportedSessions:
    """Return all sessions of the files. In a folder, files without sessions are
    ignored, if others have some.
    """
    imports: list[ImportedSessions] = []
    errors: list[InvalidInput] = []
    for path in paths:
        if not path.is_dir():
            imports.append(read_history_file(path))
            continue
        for file in list_history_files(path):
            try:
                imports.append(read_history_file(file))
            except InvalidInput as error:
                errors.append(error)
    if errors and not imports:
        raise errors[0]

    recordings: list[RecordedSession] = []
    complaints: list[str] = []
    for imported in imports:
        recordings.extend(imported.recordings)
        complaints.extend(imported.complaints)
    for refusal in errors:
        complaints.append(refusal.what)
    return ImportedSessions(tuple(recordings), tuple(complaints))


def read_history_file(path: Path) -> ImportedSessions:
    """Return the sessions of a file. Raises InvalidInput if there are none."""
    report = ReadingReport()
    recordings = tuple(read_sessions(path, report))
    has_session = any(_has_reply(recording) for recording in recordings)
    # The reply that is missing may be what is cut off.
    if has_session or (recordings and report.is_cut_off):
        return ImportedSessions(recordings, report.complaint_sentences(str(path)))
    raise no_session_error(path, report)


def _has_reply(recording: RecordedSession) -> bool:
    return any(message.role == "assistant" for message in recording.messages)


def no_session_error(path: Path, report: ReadingReport) -> InvalidInput:
    """Return an error with the first thing that the report says of the file."""
    message = f"{path} doesn't contain a session that can be read."
    sentences = list(report.sentences_about_unknown())
    sentences_on_json: list[str] = []
    for complaint in report.complaint_sentences(str(path)):
        if complaint in report.words_on_lines:
            sentences_on_json.append(report.words_on_lines[complaint])
        else:
            sentences.append(complaint)
    # Where something else is wrong as well, a line that is not JSON says less.
    sentences += sentences_on_json
    if sentences:
        message += f" {sentences[0]}"
    return InvalidInput(message, remedy=_describe_supported_formats())


def _describe_supported_formats() -> str:
    programs = [added.program for added in added_formats.list_added_formats()]
    if not programs:
        return FORMS
    return f"{FORMS} Formats of extensions: {', '.join(programs)}."


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
    """Yield a file's sessions by its format: an added one, a database, or JSON."""
    readable_path = copy or path
    try:
        if not readable_path.is_file() and readable_path.exists():
            raise InvalidInput(f"{path} is not a file.")
        if readable_path.stat().st_size > LARGEST_FILE_BYTES:
            raise InvalidInput(
                f"{path} is larger than {LARGEST_FILE_BYTES >> 30} GB.",
                remedy="Split the file into smaller files at line breaks.",
            )
        added_format = added_formats.find_added_format(readable_path, kind, report.complaints)
        if added_format is not None:
            reading = added_format.read(readable_path)
            yield from reading.sessions
            report.complaints += [f"{path}: {sentence}" for sentence in reading.left_out]
        elif foreign_sqlite.is_sqlite_file(readable_path):
            yield from _sessions_in_database(path, report, kind, readable_path)
        else:
            yield from _sessions_in_file(path, report, kind, readable_path)
    except OSError as error:
        raise NotFound(
            f"{path} cannot be read: {error.strerror}.", remedy="Check the file name."
        ) from error


def _sessions_in_file(
    path: Path, report: ReadingReport, kind: str, readable_path: Path
) -> Iterator[RecordedSession]:
    """Yield the sessions of a file that is no database."""
    for history_format in ALL_FORMATS:
        if history_format.read_file is not None and history_format.recognizes_file(path):
            yield from history_format.read_file(path, report)
            return
    yield from _read_sessions_from_json_file(path, report, kind, readable_path)


def _sessions_in_database(
    path: Path, report: ReadingReport, kind: str, readable_path: Path
) -> Iterator[RecordedSession]:
    """Yield the sessions of a database in each format whose tables it has."""
    try:
        with foreign_sqlite.open_foreign_database(readable_path) as connection:
            tables = foreign_sqlite.ordinary_table_names(connection)
            for history_format in ALL_FORMATS:
                for database_tables in history_format.databases:
                    if tables >= database_tables.tables:
                        yield from database_tables.read(connection, path, report)
            # A database without a known table is of the program in whose folder it lies.
            report.shape = report.shape or kind
            foreign_sqlite.note_unknown_tables_and_columns(connection, report)
    except sqlite3.Error as error:
        report.complaints.append(f"{path}: the database cannot be read: {error}.")


def _read_sessions_from_json_file(
    path: Path, report: ReadingReport, kind: str, readable_path: Path
) -> Iterator[RecordedSession]:
    """Yield the sessions of a file of JSON lines or one JSON document."""
    all_rows = list(_read_rows(path, report, readable_path))
    sessions = list(_sessions_of_all_rows(all_rows, path, report, kind))
    # A file of a sub-agent has no main session.
    main_sessions = [session for session in sessions if not session.parent] or sessions
    continued_session = max(main_sessions, key=time_of_newest_message, default=None)
    for session in sessions:
        if session is continued_session and _keeps_lines(session.kind):
            # Without a line feed, the agent is still writing the line.
            lines = tuple(row.line for row in all_rows if row.line.endswith(b"\n"))
            yield replace(session, lines=lines)
        else:
            yield session


def _keeps_lines(kind: str) -> bool:
    history_format = find_format(kind)
    return history_format is not None and history_format.keeps_lines


def read_sessions_of_lines(
    lines: Iterable[bytes], path: Path, kind: str
) -> Iterator[RecordedSession]:
    """Yield the sessions of lines that were kept of the file or database `path`."""
    report = ReadingReport()
    history_format = find_format(kind)
    sessions: Iterator[RecordedSession]
    if history_format is not None and history_format.read_kept_lines is not None:
        sessions = history_format.read_kept_lines(lines, path, report)
    else:
        rows = list(_rows_of_lines(lines, path, report))
        sessions = _sessions_of_all_rows(rows, path, report, kind)
    for session in sessions:
        yield put_results_behind_their_calls(session)


def _sessions_of_all_rows(
    all_rows: Sequence[HistoryRow], path: Path, report: ReadingReport, kind: str
) -> Iterator[RecordedSession]:
    """Yield the sessions of a file's rows. If there are several that have nothing to do with each
    other, their names and ids end in their number.
    """
    groups = [all_rows]
    # Cline 3 writes one object, with all messages of the session in it.
    if known_shapes(kind) is None or kind == cline_history.KIND:
        groups = list(_group_into_sessions(all_rows))
    for number, rows in enumerate(groups, 1):
        for session in _read_sessions_of_rows(rows, path, report, kind):
            if not session.messages:
                continue
            if len(groups) > 1:
                name = f"{session.name}#{number}"
                yield replace(session, name=name, session=f"{session.session}#{number}")
            else:
                yield session


def _read_sessions_of_rows(
    rows: Sequence[HistoryRow], path: Path, report: ReadingReport, kind: str
) -> list[RecordedSession]:
    """Return the sessions of rows that belong together. Unreadable ones are complaints."""
    history_format = _choose_format_of_rows(rows, path, kind)
    if history_format is None or history_format.read is None:
        return []
    report.shape = ""
    if known_shapes(history_format.kind) is not None:
        report.shape = history_format.kind
    for row in rows:
        report.note_unknown_fields(row)
    try:
        sessions = history_format.read(rows, report, path)
    except UnreadableRow as error:
        report.complaints.append(f"{path}: {error}; the session was left out.")
        return []
    for session in sessions:
        if not report.version:
            report.version = session.version
    return sessions


def _choose_format_of_rows(
    rows: Sequence[HistoryRow], path: Path, kind: str
) -> HistoryFormat | None:
    """Return the file's format: the one that the caller, the file's name or a row indicates."""
    named_format = find_format(kind)
    if named_format is not None and named_format.read is not None:
        return named_format
    if kind:
        added_formats.check_kind_of_history(kind)
    for history_format in ALL_FORMATS:
        if history_format.read is not None and history_format.recognizes_file(path):
            return history_format
    for history_format in ALL_FORMATS:
        if any(history_format.recognizes(row.value) for row in rows):
            return history_format
    return None


def list_history_files(folder: Path) -> Sequence[Path]:
    """Return the files of a folder that may be histories. Raises NotFound if there is none."""
    files: list[Path] = []
    patterns = list(_PATTERNS_OF_FILES)
    for added_format in added_formats.list_added_formats():
        patterns += added_formats.patterns_of_format(added_format)
    for file in list_files_below(folder, *patterns):
        if not file.name.endswith(_BESIDE) and not file.name.startswith(_PARTS):
            files.append(file)
    if not files:
        raise NotFound(
            f"There is no file under {folder} that could be a history: {', '.join(dict.fromkeys(patterns))}.",
            remedy="Specify a file or a folder of sessions.",
        )
    return files


def _read_rows(path: Path, report: ReadingReport, readable_path: Path) -> Iterator[HistoryRow]:
    """Yield the rows of one JSON document, or one row per line. Each names its place for people."""
    if chatgpt_history.is_chatgpt_archive(readable_path):
        for name, content in chatgpt_history.read_documents_in_archive(readable_path):
            yield from _rows_of_document(content, path / name, report)
        return
    with readable_path.open("rb") as file:
        beginning = file.read(MOST_BYTES_OF_FIRST_LINE).removeprefix(BYTE_ORDER_MARK).strip()
        first_line, _, _ = beginning.partition(b"\n")
        file.seek(0)
        is_one_document = first_line.startswith(b"[") or first_line.rstrip() == b"{"
        if is_one_document or _has_document_over_lines(file, beginning):
            yield from _rows_of_document(file.read(), path, report)
        else:
            yield from _rows_of_lines(file, path, report)


def _has_document_over_lines(file: BinaryIO, beginning: bytes) -> bool:
    """Whether a file is one JSON document although more than a brace is in its first line. So some
    programs write it, and then no line by itself is JSON. `beginning`: of the file.
    """
    first_line, line_feed, _ = beginning.partition(b"\n")
    may_go_on = line_feed and first_line.startswith(b"{") and _parse_json_line(first_line) is None
    if not may_go_on or os.fstat(file.fileno()).st_size > LARGEST_DOCUMENT_OVER_LINES:
        return False
    content = file.read().removeprefix(BYTE_ORDER_MARK)
    file.seek(0)
    return isinstance(parse_json_or_none(content), Mapping)


def _rows_of_lines(
    lines: Iterable[bytes], path: Path, report: ReadingReport
) -> Iterator[HistoryRow]:
    """Yield a row for each line. One that is no JSON object is a complaint."""
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        place = f"{path}, line {number}"
        if len(line) > LONGEST_LINE_BYTES:
            megabytes = len(line) >> 20
            why = f"it has {megabytes} MB, and lines of more than {LONGEST_LINE_BYTES >> 20} MB are kept as they are, but not read"
            report.complain_about_row(HistoryRow({}, place, line), why)
            continue
        if has_more_values(line, MOST_VALUES_IN_LINE):
            why = f"it has more than {MOST_VALUES_IN_LINE:,} values, and such lines are kept as they are, but not read"
            report.complain_about_row(HistoryRow({}, place, line), why)
            continue
        text = line
        if number == 1:
            text = line.removeprefix(BYTE_ORDER_MARK)
        value = _parse_json_line(text)
        if isinstance(value, Mapping):
            yield HistoryRow(value, place, line)
        else:
            report.complain_about_line(str(path), number, line)


def _rows_of_document(content: bytes, path: Path, report: ReadingReport) -> Iterator[HistoryRow]:
    """Yield the rows of a document, or those before the place where it is damaged."""
    if has_more_values(content, MOST_VALUES_IN_DOCUMENT):
        report.complaints.append(
            f"{path}: the JSON holds more than {MOST_VALUES_IN_DOCUMENT:,} values; the file was left out."
        )
        return
    text = content.decode("utf-8-sig", "replace")
    try:
        yield from _rows_of_value(json.loads(text), path)
    except (ValueError, RecursionError) as error:
        line_number = 1
        if isinstance(error, json.JSONDecodeError):
            line_number = error.lineno
        readable_items = list(_objects_before_damage(text))
        if readable_items:
            report.is_cut_off = True
            consequence = f"messages read before it: {len(readable_items)}"
        else:
            consequence = "the file was left out"
        report.complaints.append(
            f"{path}, line {line_number}: the JSON is broken here; {consequence}."
        )
        for number, item in enumerate(readable_items, 1):
            yield HistoryRow(item, f"{path}, entry {number}")


def _objects_before_damage(text: str) -> Iterator[Mapping[str, object]]:
    """Yield the complete objects at the beginning of a list that is cut off or damaged."""
    decoder = json.JSONDecoder()
    list_start = text.find("[")
    if list_start < 0:
        return
    position = list_start + 1
    while True:
        while position < len(text) and text[position] in " \r\n\t,":
            position += 1
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        if isinstance(value, Mapping):
            yield value


def _rows_of_value(document: object, path: Path) -> Iterator[HistoryRow]:
    """Yield a row for each object of a list, or one for a single object."""
    if isinstance(document, list):
        items = document
    else:
        items = [document]
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
    rows_of_one_session: list[HistoryRow] = []
    for row in rows:
        messages = openai_history.messages_in_object(row.value)
        # These formats have a list of messages in a row, too, but read it themselves.
        is_trajectory = trajectories.is_whole_trajectory(row.value)
        is_gemini_cli = gemini_cli_history.is_gemini_cli_row(row.value)
        if messages is None or is_trajectory or is_gemini_cli:
            rows_of_one_session.append(row)
            continue
        message_rows: list[HistoryRow] = []
        for number, message in enumerate(_with_system_prompt(row, messages), 1):
            message_rows.append(HistoryRow(message, f"{row.place}, message {number}"))
        yield message_rows
    if rows_of_one_session:
        yield rows_of_one_session


def _with_system_prompt(
    row: HistoryRow, messages: Sequence[Mapping[str, object]]
) -> Sequence[Mapping[str, object]]:
    """Add the system prompt to the messages: requests to Anthropic have it in a field
    of its own.
    """
    system = row.value.get("system")
    if not isinstance(system, str | list) or not system:
        return messages
    system_message: dict[str, object] = {"role": "system", "content": system}
    return [system_message] + list(messages)


def _parse_json_line(line: bytes) -> object:
    with suppress(ValueError):
        return orjson.loads(line)
    return parse_json_or_none(line.decode("utf-8", "replace"))
