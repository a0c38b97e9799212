"""What an extension's format of histories declares is known everywhere that ours are, and what it
does wrong is said with its own words.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop.commands import conversation_import_command
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.extensions import extension_loading
from helix_desktop.extensions.extension_loading import LoadedExtensions
from helix_desktop.histories import history_finding, history_reading, subagent_files
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.token_counting import shared_token_counter
from helix_desktop.workbench.session_preparation import SessionPreparation
from tests.commands.conftest import Helix, helix  # noqa: F401
from tests.extensions.conftest import WriteExtension
from tests.extensions.test_allowed_imports import allow, load

LoadQuillbot = Callable[..., LoadedExtensions]
FORMAT = """
from helix_desktop.engine.facts import ToolCall, Usage
from helix_desktop.extensions.extension_interfaces import *
from helix_desktop.histories.recorded_session import (
    HistoryUnreadable, RecordedMessage, RecordedSession,
)

def recognizes(path, beginning):
    return beginning.startswith(b"quill")

def session_of(path, **values):
    question = RecordedMessage("user", "What is there?")
    messages = [question, RecordedMessage("assistant", "Nothing.")]
    return RecordedSession(**{"name": str(path), "session": "one", "messages": messages} | values)

def read(path):
    yield session_of(path)

%s
form = ExtensionHistoryFormat(
    "quillbot", "Quillbot", recognizes, read, endings=(".ndjson",), folders=("~/.quillbot/sessions",)
)
extension = Extension("Quillbot", history_formats=[form])
"""


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "home" / ".quillbot" / "sessions" / "a.ndjson"
    path.parent.mkdir(parents=True)
    path.write_text("quill", "utf-8")
    return path


@pytest.fixture
def load_quillbot(where: ProgramFolders, write_extension: WriteExtension) -> LoadQuillbot:
    def write_and_load(changed: str = "") -> LoadedExtensions:
        write_extension("quillbot", FORMAT % changed)
        return load(allow(where, "quillbot"))

    return write_and_load


def read_history(path: Path, kind: str = "") -> tuple[list[RecordedSession], list[str]]:
    report = ReadingReport()
    sessions = list(history_reading.read_sessions(path, report, kind))
    return sessions, report.complaints


def complaints_of_import(path: Path) -> list[str]:
    preparation = SessionPreparation(named=frozenset({path}))
    prepared = preparation.prepare_file(path, (0, 0), shared_token_counter())
    return [item for item in prepared if isinstance(item, str)]


def test_a_folder_of_its_files_is_read(load_quillbot: LoadQuillbot, history: Path) -> None:
    with pytest.raises(NotFound):
        history_reading.list_history_files(history.parent)
    assert load_quillbot().complaints == []
    assert list(history_reading.list_history_files(history.parent)) == [history]


def test_what_it_keeps_on_this_computer_is_found(
    load_quillbot: LoadQuillbot, history: Path
) -> None:
    load_quillbot()
    (history.parent / "other.ndjson").write_text("another program's", "utf-8")
    places = HistoryPlaces(history.parents[2], {})
    (found,) = history_finding.find_histories(places)
    assert (found.kind, found.program, found.path) == ("quillbot", "Quillbot", history)
    assert list(subagent_files.list_files_with_subagents(found.path)) == [history]


def test_it_is_among_the_supported_formats(load_quillbot: LoadQuillbot, tmp_path: Path) -> None:
    load_quillbot()
    other = tmp_path / "other.json"
    other.write_text("{}", "utf-8")
    with pytest.raises(InvalidInput, match="Formats of extensions: Quillbot"):
        history_reading.read_history_file(other)


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


def test_a_failing_look_at_a_file_is_said_and_counted(
    load_quillbot: LoadQuillbot, history: Path
) -> None:
    extensions = load_quillbot("def recognizes(path, beginning): raise KeyError('magic')")
    for _ in range(3):
        complaints = complaints_of_import(history)
        assert "looking at a file for Quillbot raised KeyError: 'magic'" in " ".join(complaints)
    assert "was switched off" in " ".join(extensions.complaints)
    assert "KeyError" not in " ".join(complaints_of_import(history))


def test_a_look_that_never_ends_switches_it_off(
    load_quillbot: LoadQuillbot,
    history: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("helix_desktop.extensions.read_sessions.RECOGNIZING_SECONDS", 0.05)
    extensions = load_quillbot(
        "import threading\ndef recognizes(path, beginning): threading.Event().wait()"
    )
    complaints_of_import(history)
    assert "did not return" in extensions.complaints[0]


@pytest.mark.parametrize("declared", ["endings=('ndjson',)", "endings=('/x',)", "folders=(7,)"])
def test_a_format_with_nonsensical_places_is_off(
    load_quillbot: LoadQuillbot, declared: str
) -> None:
    code = f"""
Original = ExtensionHistoryFormat
def ExtensionHistoryFormat(kind, program, recognizes, read, **_):
    return Original(kind, program, recognizes, read, {declared})
"""
    assert load_quillbot(code).running == []


def test_the_command_line_knows_it_by_its_kind_and_its_name(
    load_quillbot: LoadQuillbot,
    where: ProgramFolders,
    history: Path,
    monkeypatch: pytest.MonkeyPatch,
    helix: Helix,  # noqa: F811
) -> None:
    monkeypatch.setenv("HOME", str(history.parents[2]))
    home = ("--home", where.data)
    folder = history.parents[3] / "project"
    folder.mkdir()
    assert helix(*home, "workspace", "new", "Thesis", "--folder", folder)[::2] == (0, "")
    load_quillbot(
        "def read(path): yield session_of(path, messages=[RecordedMessage('user', 'a'),"
        "RecordedMessage('assistant', 'b', model='claude-sonnet-4-5', usage=Usage(input=900))])"
    ).withdraw_everything()
    _, found, _ = helix(*home, "conversation", "find")
    assert history.parent in conversation_import_command._folders_to_watch(())
    assert "Quillbot " in found
    command = (*home, "conversation", "import", "-w", "Thesis")
    code, _, err = helix(*command, "--from", "quilbot", history)
    assert (code, "Available: " in err, "quillbot" in err) == (2, True, True)
    assert helix(*command, "--from", "quillbot", history)[:1] == (0,)
    code, out, err = helix(*command, "--json")  # What `conversation find` lists.
    assert (code, '"unchanged": 1' in out) == (0, True)
    assert "Quillbot" in helix(*home, "cost", "-w", "Thesis")[1]


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


def test_an_extension_that_is_off_since_it_changed_is_named_by_an_import(
    where: ProgramFolders,
    write_extension: WriteExtension,
    history: Path,
    helix: Helix,  # noqa: F811
) -> None:
    write_extension("quillbot", FORMAT % "")
    allow(where, "quillbot")
    write_extension("quillbot", FORMAT % "changed = True")
    arguments = ("--home", where.data, "conversation", "import", "--from", "quillbot", history)
    _, _, err = helix(*arguments)
    assert "The extension quillbot has changed since you allowed it, so it is off." in err


def test_an_extension_that_is_off_is_named_where_its_format_could_be_missed(
    where: ProgramFolders,
    write_extension: WriteExtension,
    history: Path,
    helix: Helix,  # noqa: F811
) -> None:
    """`conversation find` listed nothing of its program, as if there were nothing."""
    write_extension("quillbot", FORMAT % "")
    not_asked = "Extensions that are off were not asked: quillbot."
    _, out, _ = helix("--home", where.data, "conversation", "find")
    assert not_asked in out
    arguments = ("--home", where.data, "conversation", "import", "--from", "quillbot", history)
    _, _, err = helix(*arguments)
    assert not_asked in err
    allow(where, "quillbot")
    extension_loading.forget_loaded_extensions()
    _, out, _ = helix("--home", where.data, "conversation", "find")
    assert "not asked" not in out

    write_extension("quillbot", FORMAT % "changed = True")
    extension_loading.forget_loaded_extensions()
    _, _, err = helix("--home", where.data, "conversation", "find")
    assert "The extension quillbot has changed since you allowed it, so it is off." in err


def test_an_extension_takes_no_kind_from_one_that_was_allowed_before(
    where: ProgramFolders, write_extension: WriteExtension, history: Path
) -> None:
    write_extension("quillbot", FORMAT % "")
    allow(where, "quillbot")
    write_extension("another", FORMAT % "")
    loaded = load(allow(where, "another"))
    assert [extension.installed.name for extension in loaded.running] == ["quillbot"]
    (complaint,) = loaded.complaints
    assert complaint.startswith("The extension another was switched off: The kind of history")
