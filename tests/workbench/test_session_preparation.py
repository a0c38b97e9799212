"""What an import reads before it writes is the same in another process, and nothing is
lost when that one ends early.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.engine.state.request_settings import RequestSettings
from helix_desktop.processes import starter
from helix_desktop.processes.starter import ChildProcess
from helix_desktop.token_counting import shared_token_counter
from helix_desktop.workbench import session_preparation as module
from helix_desktop.workbench.session_import import SessionToImport
from helix_desktop.workbench.session_preparation import FileToRead, Prepared, SessionPreparation
from tests.histories import written

LEAKED = "sk-ant-api03-" + "kJ8vQ2mZx" * 8


@pytest.fixture
def files(tmp_path: Path) -> list[FileToRead]:
    """A file of each program, one with a key and a line that is none, a long one, and
    one that is gone.
    """
    paths = []
    for kind, write in written.KINDS.items():
        (folder := tmp_path / kind).mkdir()
        paths.append(write(folder))
    odd = written.lines(
        tmp_path / "odd.jsonl", [*written.claude_session(), written.claude_said(70, 6, LEAKED)]
    )
    odd.write_bytes(odd.read_bytes() + b"no line of ours\n")
    output = "\n".join(f"{number} a word and another" for number in range(30_000))
    call = written.claude_reply(1, 0, "m1", written.use("t1"))
    answer = written.claude_said(2, 1, [written.result("t1", output)])
    long = written.lines(
        tmp_path / "long.jsonl", [written.claude_said(0, None, "run it"), call, answer]
    )
    return [(path, (path.stat().st_size, 7)) for path in [*paths, odd, long]] + [
        (tmp_path / "gone.jsonl", (3, 7))
    ]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ChildProcess]:
    """The other processes that were started. Each waits for its reader after 4 KB."""
    processes: list[ChildProcess] = []
    start = starter.open_process

    def open_and_keep(*given: object, **named: object) -> ChildProcess:
        processes.append(start(*given, **named))  # type: ignore[arg-type]
        return processes[-1]

    monkeypatch.setattr(module, "open_process", open_and_keep)
    monkeypatch.setattr(module, "PIPE_BYTES", 4096)
    return processes


def _prepare(files: list[FileToRead], much: int) -> list[Prepared]:
    preparation = SessionPreparation(settings=RequestSettings())
    return list(preparation.prepare_files(files, shared_token_counter(), much))


def _refuse(*_: object) -> Iterator[Prepared]:
    raise AssertionError("a file was read here")


def test_another_process_reads_the_same(
    files: list[FileToRead], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared_here = _prepare(files, sys.maxsize)
    monkeypatch.setattr(SessionPreparation, "prepare_file", _refuse)
    prepared = _prepare(files, 0)
    assert prepared == prepared_here

    sessions: list[SessionToImport] = []
    finished_files: list[Path] = []
    complaints: list[str] = []
    for each in prepared:
        match each:
            case SessionToImport():
                sessions.append(each)
            case Path():
                finished_files.append(each)
            case str():
                complaints.append(each)
    assert finished_files == [file for file, _ in files]
    assert "gone.jsonl" in "\n".join(complaints)
    assert len(sessions) >= len(files) - 1
    for session in sessions:
        assert session.meter is not None
        assert session.drafts
    assert [session.file.name for session in sessions if session.keys] == ["odd.jsonl"]
    # Copilot's log has events that are no messages.
    with_unread_lines = {session.file.name for session in sessions if session.unread}
    assert with_unread_lines == {"odd.jsonl", "events.jsonl"}


@pytest.mark.parametrize("heard", [1, 3, 5])
def test_what_a_killed_process_did_not_read_is_read_here(
    files: list[FileToRead], opened: list[ChildProcess], heard: int
) -> None:
    preparation = SessionPreparation().prepare_files(files * 20, shared_token_counter(), 0)
    found = [next(preparation) for _ in range(heard)]
    opened[0].kill()
    found += preparation
    assert opened[0].returncode == -signal.SIGKILL
    whole = SessionPreparation().prepare_files(files * 20, shared_token_counter(), sys.maxsize)
    assert {_key(one) for one in found} == {_key(one) for one in whole}
    assert [one for one in found if isinstance(one, Path)] == [file for file, _ in files * 20]


def test_a_program_that_was_updated_meanwhile_is_not_asked(
    files: list[FileToRead], opened: list[ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = _prepare(files, sys.maxsize)
    monkeypatch.setattr(module, "COMMAND", (module.COMMAND[0], "0.0.0"))
    assert _prepare(files, 0) == here
    assert len(opened) == 1


def test_an_import_that_is_stopped_ends_the_process(
    files: list[FileToRead], opened: list[ChildProcess]
) -> None:
    preparation = SessionPreparation().prepare_files(files * 20, shared_token_counter(), 0)
    next(preparation)
    assert opened[0].poll() is None
    preparation.close()
    assert opened[0].poll() is not None


def _key(one: Prepared) -> tuple[object, ...]:
    if isinstance(one, SessionToImport):
        return one.file, one.recording, len(one.drafts), one.stamp
    return (one,)


def test_what_remains_of_a_recording_names_each_message(files: list[FileToRead]) -> None:
    kept: Iterator[SessionToImport] = (
        one for one in _prepare(files, sys.maxsize) if isinstance(one, SessionToImport)
    )
    for one in kept:
        assert one.recording.title
        assert not any(message.text or message.parts for message in one.recording.messages)
        assert {draft.message for draft in one.drafts} <= set(range(len(one.recording.messages)))


def test_a_files_other_lines_go_with_its_main_session(tmp_path: Path) -> None:
    """They went with the last sub-agent, so a restored session did not have them back."""
    attachment = {"type": "date", "content": "Monday"}
    rows = [
        *written.claude_session(),
        written.claude_line(9, "attachment", 8, attachment=attachment),
        written.claude_said(10, None, "a task", isSidechain=True),
        written.claude_reply(11, 10, "m9", written.text("Done."), isSidechain=True),
    ]
    path = written.lines(tmp_path / "session-1.jsonl", rows)
    prepared = list(SessionPreparation().prepare_file(path, (1, 1), shared_token_counter()))
    main, child = (one for one in prepared if isinstance(one, SessionToImport))
    assert (main.recording.parent, child.recording.parent) == ("", "session-1")
    assert [b"Monday" in line for line in main.unread] == [True]
    assert child.unread == ()
    assert (main.stamp, child.stamp) == ((0, 0), (1, 1)), "the file is read when all of it is"
