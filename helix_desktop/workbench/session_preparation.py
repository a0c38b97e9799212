"""Reads sessions from files, counts tokens and drafts facts: what an import does before it writes.

If there is much to read, another process does this. In one process, it would hardly overlap with
writing, because both hold the interpreter most of the time. Unpacking holds it only briefly.
"""

import logging
import pickle
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from helix_desktop import __version__, token_counting
from helix_desktop.engine import context_policy
from helix_desktop.engine.context_usage import WindowMeter, measure_window
from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.request_settings import RequestSettings
from helix_desktop.engine.view import build_state
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.extensions.extension_loading import load_extensions_in_thread
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import (
    foreign_sqlite,
    history_facts,
    history_reading,
    kept_lines,
    leaked_keys,
)
from helix_desktop.histories.history_facts import FactDraft
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.pending_copies import path_of_copy
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedSession,
    message_texts,
    texts_to_count,
)
from helix_desktop.processes import starter
from helix_desktop.processes.starter import DEVNULL, PIPE, open_process
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.store.conversation_rows import conversation_id_of_session
from helix_desktop.store.search_words import text_or_none
from helix_desktop.workbench.session_import import SessionToImport

log = logging.getLogger(__name__)
LARGE_BYTES = 32 << 20  # With more bytes than this to read, another process is worth its start.
PIPE_BYTES = 1 << 20  # The other process waits only when so many bytes are unread.
COMMAND = "--prepare-sessions", __version__  # Another version does not answer to it.
FileToRead = tuple[Path, tuple[int, int]]  # With its size and time.
Prepared = SessionToImport | str | Path  # Or a complaint, or a file at its end.


@dataclass(frozen=True, slots=True)
class SessionPreparation:
    """How to read: the same for all files of an import."""

    kinds: Mapping[str, str] = field(default_factory=dict)  # The formats of files, if known.
    # For a database file: the folders whose sessions to import. Without an entry, all are imported.
    wanted_folders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    copies: Path | None = None  # If this folder contains a copy of a file, the copy is read.
    # Files that the user named, so that it is told if one has no session.
    named: frozenset[Path] = frozenset()
    settings: RequestSettings | None = None  # What a request contains besides the conversation.
    # Where allowed extensions are, whose formats are read, too.
    program_folders: ProgramFolders | None = None

    def prepare_files(
        self, files: Sequence[FileToRead], tokens: TokenCounter, large_bytes: int = LARGE_BYTES
    ) -> Generator[Prepared]:
        """Yield what is in the files. If the other process ends early, the rest is read here."""
        total_bytes = 0
        for _file, (size, _modified) in files:
            total_bytes += size
        finished_file_count = 0
        if isinstance(tokens, token_counting.TiktokenCounter) and total_bytes > large_bytes:
            with suppress(OSError, EOFError, pickle.UnpicklingError):
                for prepared in self._prepare_in_another_process(files, tokens.name):
                    if isinstance(prepared, Path):  # All of this file has come.
                        finished_file_count += 1
                    yield prepared
        for file, stamp in files[finished_file_count:]:
            yield from self.prepare_file(file, stamp, tokens)

    def prepare_file(
        self, file: Path, stamp: tuple[int, int], tokens: TokenCounter
    ) -> Iterator[Prepared]:
        """Yield a file's sessions, sentences about what could not be read, and last the
        file itself.
        """
        report = ReadingReport()
        copy = self.copy_of_file(file)
        kind = self.kinds.get(str(file), "")
        sessions = history_reading.read_sessions(file, report, kind, copy)
        folders = self.wanted_folders.get(str(file))
        if folders and foreign_sqlite.is_sqlite_file(copy or file):
            sessions = (session for session in sessions if session.folder in folders)
            stamp = (0, 0)  # No stamp, because the file's other sessions were not imported.
        has_session = False
        try:
            for prepared in self._prepare_sessions(file, sessions, report, stamp, tokens):
                has_session = True
                yield prepared
            if not has_session and file in self.named:
                error_of_named_file = history_reading.no_session_error(file, report)
                yield str(error_of_named_file)
                report = ReadingReport()
        except (NotFound, InvalidInput) as error:
            yield str(error)
        except Exception as error:  # noqa: BLE001 - the other files are imported
            yield _complaint_about_reading(str(file), error)
        yield from report.sentences_about_unknown()
        yield from report.complaint_sentences(str(file))
        yield file

    def _prepare_sessions(
        self,
        file: Path,
        sessions: Iterator[RecordedSession],
        report: ReadingReport,
        stamp: tuple[int, int],
        tokens: TokenCounter,
    ) -> Iterator[Prepared]:
        """Yield each session with the unread lines that were found while it was read: the first one
        of a text file has all, which an agent may want to have back with them. The last one has
        the file's stamp.
        """
        lines_given = 0
        recording = next(sessions, None)
        while recording is not None:
            prepared = self._prepare_session(file, recording, tokens)
            unread = tuple(report.unread[lines_given:])
            recording = next(sessions, None)
            if isinstance(prepared, SessionToImport):
                lines_given += len(unread)
                prepared = replace(
                    prepared,
                    unread=unread,
                    is_damaged=report.is_damaged,
                    is_cut_off=report.is_cut_off,
                )
                if recording is None:
                    remaining_lines = tuple(report.unread[lines_given:])
                    prepared = replace(prepared, stamp=stamp, unread=unread + remaining_lines)
            yield prepared

    def copy_of_file(self, file: Path) -> Path | None:
        if self.copies is None:
            return None
        copy = path_of_copy(self.copies, file)
        if not copy.is_file():
            return None
        return copy

    def _prepare_session(
        self, file: Path, recording: RecordedSession, tokens: TokenCounter
    ) -> Prepared:
        """Draft a session's facts and count their tokens. An unexpected error is a
        complaint.
        """
        try:
            if isinstance(tokens, token_counting.TiktokenCounter):
                tokens.count_ahead(_all_texts_to_count(recording))
            id_of_child = partial(conversation_id_of_session, recording.kind)
            drafts = history_facts.draft_facts(recording, tokens, id_of_child)
            meter = self._measure_session(drafts)
            keys = _find_leaked_keys(recording)
        except Exception as error:  # noqa: BLE001 - the same for a session
            return _complaint_about_reading(recording.name, error)
        return SessionToImport(
            file,
            _without_texts(recording),
            drafts,
            (0, 0),
            meter,
            keys,
            lines=_lines_without_contents(recording, drafts),
        )

    def _measure_session(self, drafts: Sequence[FactDraft]) -> WindowMeter | None:
        if self.settings is None:
            return None
        facts: list[Recorded] = []
        for number, draft in enumerate(drafts, 1):
            facts.append(Recorded("", number, draft.time, draft.fact))
        state = build_state(facts).with_settings(self.settings)
        return measure_window(state, context_policy.policy_from_fact(state.settings.policy))

    def _prepare_in_another_process(
        self, files: Sequence[FileToRead], encoding: str
    ) -> Iterator[Prepared]:
        """Yield what a process of ours prepares. It is ended if nobody asks for more."""
        launch = starter.ProcessLaunch(
            starter.CommandAuthor.PROGRAM, starter.own_program_command(*COMMAND)
        )
        process = open_process(
            launch, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, pipe_bytes=PIPE_BYTES
        )
        try:
            request = cast("Any", process.stdin).buffer
            answers = cast("Any", process.stdout).buffer
            pickle.dump((self, files, encoding), request)
            request.flush()
            while True:
                prepared = pickle.load(answers)  # noqa: S301 -- from our own process
                if prepared is None:
                    break
                yield prepared
        finally:
            starter.close_or_kill_process(process, 0)
            cast("Any", process.stdout).close()


def prepare_sessions_for_parent() -> int:
    """Do what the parent asks for. This process also ends if nobody reads its answers."""
    preparation, files, encoding = pickle.load(sys.stdin.buffer)  # noqa: S301 -- from our own process
    if preparation.program_folders is not None:
        load_extensions_in_thread(preparation.program_folders)
    tokens = token_counting.TiktokenCounter(encoding)
    answers = sys.stdout.buffer
    for prepared in preparation.prepare_files(files, tokens, large_bytes=sys.maxsize):
        pickle.dump(prepared, answers, pickle.HIGHEST_PROTOCOL)
    pickle.dump(None, answers, pickle.HIGHEST_PROTOCOL)  # Nothing follows.
    answers.flush()
    return 0


def _complaint_about_reading(name: str, error: Exception) -> str:
    log.warning("a history could not be read: %s", type(error).__name__)
    return f"{name} can't be read: it contains something unexpected. The other conversations are imported."


def _all_texts_to_count(recording: RecordedSession) -> Iterator[str]:
    for message in recording.messages:
        yield from texts_to_count(message)


def _without_texts(recording: RecordedSession) -> RecordedSession:
    """Return the outline of the session: the drafts contain the rest."""
    outline: list[RecordedMessage] = []
    for message in recording.messages:
        message_without_text = RecordedMessage(
            message.role,
            text="",
            answers=message.answers,
            time=message.time,
            child=message.child,
            beside=message.beside,
        )
        outline.append(message_without_text)
    title = history_facts.title_of_recording(recording)
    return replace(recording, title=title, messages=tuple(outline), compactions=(), lines=())


def _lines_without_contents(recording: RecordedSession, drafts: Sequence[FactDraft]) -> list[bytes]:
    """Return the lines of the agent's file, with markers in place of what the drafts store."""
    digests: set[str] = set()
    for draft in drafts:
        for content, _origin in draft.contents:
            if len(content) >= kept_lines.SHORTEST_TEXT:
                digests.add(Digest.of_content(content).hex)
    return kept_lines.replace_stored_contents(recording.lines, digests)


def _find_leaked_keys(recording: RecordedSession) -> list[tuple[int, str]]:
    """Return texts to be stored that look like keys, each with the number of its message."""
    keys: list[tuple[int, str]] = []
    for position, message in enumerate(recording.messages):
        for text in _texts_to_be_stored(message):
            for key in leaked_keys.find_keys(text):
                keys.append((position, key))
    for compaction in recording.compactions:
        position = min(compaction.at, len(recording.messages) - 1)
        for key in leaked_keys.find_keys(compaction.text):
            keys.append((position, key))
    return keys


def _texts_to_be_stored(message: RecordedMessage) -> Iterator[str]:
    yield from message_texts(message)
    yield message.reasoning
    yield message.shown
    for picture in message.pictures:
        text = text_or_none(picture.data)
        if text is not None:
            yield text
