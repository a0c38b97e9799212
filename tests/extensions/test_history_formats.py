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
