"""What an extension reads of another program's history is checked before anything is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.histories import history_reading
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import RecordedSession
from tests.extensions.test_history_formats import (
    LoadQuillbot,
    complaints_of_import,
    history,
    load_quillbot,
)

__all__ = ["history", "load_quillbot"]


def read_history(path: Path, kind: str = "") -> tuple[list[RecordedSession], list[str]]:
    report = ReadingReport()
    sessions = list(history_reading.read_sessions(path, report, kind))
    return sessions, report.complaints


WRONG = {
    "text=7": "gave RecordedMessage.text a value of the type int instead of str",
    "text=None": "gave RecordedMessage.text a value of the type NoneType instead of str",
    "time='now'": "gave RecordedMessage.time a value of the type str instead of float",
    "time=float('nan')": "gave RecordedMessage.time the value nan",
    "time=1793614272000": "gave RecordedMessage.time the value 1793614272000, which is no time in seconds",
    "time=-1.0": "gave RecordedMessage.time the value -1, which is no time in seconds",
    "calls=[7]": "gave RecordedMessage.calls an item of the type int",
    "calls='open'": "gave RecordedMessage.calls a value of the type str instead of a list",
    "calls=[ToolCall('1', 'open', {})]": "gave ToolCall.arguments a value of the type dict",
    "usage=ToolCall('1', '', '')": "gave RecordedMessage.usage a value of the type ToolCall",
    "usage=Usage(input=1.5)": "gave Usage.input a value of the type float instead of int",
    "role='agent'": "whose role is none of system, user, assistant, tool, failure",
}


@pytest.mark.parametrize("value", WRONG)
def test_a_value_of_another_type_is_named(
    load_quillbot: LoadQuillbot, history: Path, value: str
) -> None:
    message = f"RecordedMessage(**(dict(role='assistant', text='') | dict({value})))"
    load_quillbot(f"def read(path): yield session_of(path, messages=[{message}])")
    (complaint,) = complaints_of_import(history)
    assert complaint.startswith(f"{history} cannot be read")
    assert WRONG[value] in complaint


WRONG_SESSIONS = {
    "kind='other'": "a session of the kind 'other'",
    "session=''": "a session without an identity (`session`)",
    "messages=7": "gave RecordedSession.messages a value of the type int instead of a list",
    "messages='text'": "gave RecordedSession.messages a value of the type str instead of a list",
}


@pytest.mark.parametrize("value", WRONG_SESSIONS)
def test_a_session_that_could_not_be_found_again_is_refused(
    load_quillbot: LoadQuillbot,
    history: Path,
    value: str,
) -> None:
    load_quillbot(f"def read(path): yield session_of(path, {value})")
    (complaint,) = complaints_of_import(history)
    assert WRONG_SESSIONS[value] in complaint


def test_two_sessions_of_a_file_with_one_identity_are_refused(
    load_quillbot: LoadQuillbot, history: Path
) -> None:
    load_quillbot("def read(path): return [session_of(path), session_of(path)]")
    (complaint,) = complaints_of_import(history)
    assert "two sessions with the identity 'one'" in complaint


def test_lists_and_whole_seconds_become_what_is_stored(
    load_quillbot: LoadQuillbot, history: Path
) -> None:
    load_quillbot(
        "def read(path): yield session_of(path, messages=[RecordedMessage('user', 'a', time=7)])"
    )
    ((session,), complaints) = read_history(history)
    assert complaints == []
    assert type(session.messages) is tuple
    assert type(session.messages[0].time) is float


def test_an_error_keeps_its_message(load_quillbot: LoadQuillbot, history: Path) -> None:
    load_quillbot("def read(path): raise KeyError('no text 123')")
    (complaint,) = complaints_of_import(history)
    assert complaint.startswith(f"{history} cannot be read")
    assert "reading a history of Quillbot raised KeyError: 'no text 123'" in complaint


def test_what_was_left_out_of_a_file_is_said(load_quillbot: LoadQuillbot, history: Path) -> None:
    load_quillbot(
        "def read(path):\n    yield session_of(path)\n    yield 'line 7 is damaged\\x1b[2J'"
    )
    sessions, complaints = read_history(history)
    assert len(sessions) == 1
    assert complaints == [f"{history}: line 7 is damaged[2J"]


def test_three_failed_reads_in_a_row_switch_it_off(
    load_quillbot: LoadQuillbot, history: Path
) -> None:
    extensions = load_quillbot("def read(path): raise KeyError('text')")
    sentences = [complaints_of_import(history)[0] for _ in range(4)]
    assert "switched off" not in sentences[1]
    assert "The extension quillbot was switched off" in sentences[2]
    assert "KeyError" not in sentences[3]
    with pytest.raises(InvalidInput, match="because the extension quillbot was switched off"):
        read_history(history, "quillbot")
    assert len(extensions.complaints) == 1


def test_files_that_are_damaged_switch_nothing_off(
    load_quillbot: LoadQuillbot, history: Path
) -> None:
    extensions = load_quillbot("def read(path): raise HistoryUnreadable('it has no header')")
    for _ in range(5):
        (complaint,) = complaints_of_import(history)
        assert complaint == f"{history} cannot be read: it has no header."
    assert extensions.complaints == []


def test_failures_between_which_it_works_switch_nothing_off(
    load_quillbot: LoadQuillbot, history: Path
) -> None:
    extensions = load_quillbot(
        "def recognizes(path, beginning): return {'a.ndjson': True}[path.name]"
    )
    other = history.with_name("b.ndjson")
    other.write_text("quill", "utf-8")
    for _ in range(4):
        complaints_of_import(other)
        assert complaints_of_import(history) == []
    assert extensions.complaints == []


def test_a_generator_is_closed_on_the_thread_that_read_it(
    load_quillbot: LoadQuillbot, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The defect: after a wrong value, Python ended it on another thread, and the database that
    it held refused to be closed there.
    """
    load_quillbot(
        """
def read(path):
    import threading
    began = threading.get_ident()
    try:
        yield session_of(path, messages=7)
    finally:
        path.with_suffix(".ended").write_text(str(began == threading.get_ident()))
"""
    )
    assert complaints_of_import(history)
    assert history.with_suffix(".ended").read_text() == "True"
