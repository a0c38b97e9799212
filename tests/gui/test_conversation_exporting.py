"""A conversation is written to a file, to the clipboard, or as a session of another agent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QMessageBox, QPushButton

from helix_desktop.engine.facts import Rewound, Text, ToolReturned, UserSaid
from helix_desktop.gui import conversation_exporting
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.sharing.share_workspace_dialog import ShareWorkspaceDialog
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from tests.gui import story
from tests.gui.fake_desk import FakeSession, FakeWorkbench


def save_to(window: MainWindow, file: Path) -> None:
    dialog = window.findChildren(QFileDialog)[-1]
    dialog.filesSelected.emit([str(file)])
    dialog.close()


@pytest.mark.parametrize(
    ("action", "name", "begins"),
    [
        ("export-markdown", "a.md", "# Extract the lock manager"),
        ("export-json", "a.json", "{"),
        ("export-openai", "a.jsonl", '{"role": '),
    ],
)
def test_a_conversation_is_written_in_each_form(
    window: MainWindow, tmp_path: Path, action: str, name: str, begins: str
) -> None:
    window.window_actions[action].trigger()
    save_to(window, tmp_path / name)
    text = (tmp_path / name).read_text("utf-8")
    assert text.startswith(begins)
    assert "The guard must never be held across an await." in text
    assert window.notices.shown_text == f"Saved as {name}."


@pytest.mark.parametrize(
    ("action", "is_there"), [("export-markdown", False), ("export-json", True)]
)
def test_a_message_that_was_replaced_is_only_in_the_form_that_holds_everything(
    window: MainWindow, session: FakeSession, tmp_path: Path, action: str, *, is_there: bool
) -> None:
    """It stood among those that are valid, without any mark."""
    before = session.state.seq
    session.append(UserSaid((Text("Delete the notes."),)))
    session.append(Rewound(before))
    session.append(UserSaid((Text("Keep the notes."),)))
    window.window_actions[action].trigger()
    save_to(window, tmp_path / "a")
    text = (tmp_path / "a").read_text("utf-8")
    assert ("Delete the notes." in text, "Keep the notes." in text) == (is_there, True)


def test_what_an_export_could_not_hold_is_said(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession, tmp_path: Path
) -> None:
    gone = story.stored("long ago")
    session.append(ToolReturned("1", gone, 3))
    bench.workspace.gone = {gone.digest}
    window.window_actions["export-markdown"].trigger()
    save_to(window, tmp_path / "a.md")
    assert (
        "1 output is missing: it was removed from the cache or is damaged."
        in window.notices.shown_text
    )
    assert f"{gone.digest}: removed from the cache since, or damaged]" in (
        tmp_path / "a.md"
    ).read_text("utf-8")


KEY = "sk-ant-" + "a1B2" * 8 + "9f"


@pytest.mark.parametrize("form", ["markdown", "json", "openai"])
def test_an_export_asks_about_keys_before_the_file_is_written(
    window: MainWindow, session: FakeSession, tmp_path: Path, form: str
) -> None:
    """The file was written with the key, and a notice that disappeared said so afterwards."""
    session.append(UserSaid((Text(f"Use {KEY} for it."),)))
    window.window_actions[f"export-{form}"].trigger()
    file = tmp_path / "a.txt"
    save_to(window, file)
    assert not file.exists()
    question = window.findChildren(QMessageBox)[-1]
    assert "text that looks like passwords or other secrets: sk-ant-…9f" in question.text()
    assert question.defaultButton().text() == "Save without them"
    press(window, "Save without them")
    text = file.read_text("utf-8")
    assert KEY not in text
    assert "Use sk-ant-…9f for it." in text
    assert window.notices.shown_text == "Saved as a.txt."


def test_the_shown_conversation_is_copied_from_the_sharing_dialog(
    window: MainWindow, session: FakeSession
) -> None:
    def copy_conversation() -> None:
        window.window_actions["share-workspace"].trigger()
        (dialog,) = window.findChildren(ShareWorkspaceDialog)
        (button,) = (
            button
            for button in dialog.findChildren(QPushButton)
            if button.text() == "Copy conversation as Markdown"
        )
        button.click()
        assert not dialog.isVisible()
        dialog.setParent(None)
        dialog.deleteLater()

    copy_conversation()
    clipboard = QGuiApplication.clipboard()
    assert clipboard.text().startswith("# Extract the lock manager")
    assert window.notices.shown_text == "The conversation was copied as Markdown."
    session.append(UserSaid((Text(f"Use {KEY} for it."),)))
    clipboard.clear()
    copy_conversation()
    assert clipboard.text() == "", "it asks first"
    press(window, "Copy without them")
    assert "Use sk-ant-…9f for it." in clipboard.text()


def test_an_export_has_its_keys_only_if_that_is_chosen(
    window: MainWindow, session: FakeSession, tmp_path: Path
) -> None:
    session.append(UserSaid((Text(f"Use {KEY} for it."),)))
    file = tmp_path / "a.md"
    window.window_actions["export-markdown"].trigger()
    save_to(window, file)
    press(window, "Cancel")
    assert not file.exists()
    window.window_actions["export-markdown"].trigger()
    save_to(window, file)
    press(window, "Save as it is")
    assert KEY in file.read_text("utf-8")


def test_the_name_that_is_offered_for_an_export_has_no_key(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    row = replace(bench.list_conversations()[0], title="Use sk-ant-" + "a1B2" * 8 + "9f for it")
    export = conversation_exporting.ConversationExport(window.parts, bench, row)
    export.ask_where_to_and_export("markdown")
    dialog = window.findChildren(QFileDialog)[-1]
    (path,) = dialog.selectedFiles()
    assert Path(path).name == "Use sk-ant- 9f for it.md"
    dialog.close()


def test_the_json_form_is_json(window: MainWindow, tmp_path: Path) -> None:
    window.window_actions["export-json"].trigger()
    save_to(window, tmp_path / "a.json")
    assert (
        json.loads((tmp_path / "a.json").read_text("utf-8"))["title"] == "Extract the lock manager"
    )


def test_a_place_that_cannot_be_written_is_said(window: MainWindow, tmp_path: Path) -> None:
    window.window_actions["export-markdown"].trigger()
    save_to(window, tmp_path / "no such folder" / "a.md")
    assert "No such file or directory." in window.notices.shown_text
    assert "Nothing was lost" in window.notices.shown_text


@pytest.mark.parametrize(("agent", "folder", "command"), [("claude", ".claude", "claude --resume "), ("codex", ".codex", "codex resume "), ("gemini", ".gemini", "gemini --resume "), ("pi", ".pi", "pi --session ")])  # fmt: skip
def test_a_conversation_is_written_for_an_agent_and_the_way_on_is_shown(
    window: MainWindow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    agent: str,
    folder: str,
    command: str,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    window.window_actions[f"continue-{agent}"].trigger()
    (question,) = window.findChildren(QMessageBox)
    name = AGENTS_TO_CONTINUE_IN[agent]
    assert question.windowTitle() == f"Continue in {name}"
    title = window.sides.find_listed_conversation("").title  # type: ignore[union-attr]
    assert question.text().startswith(
        f"“{title}” is saved as a new session where {name} looks for its sessions"
    )
    assert "may incur a charge from your provider" in question.text()
    next(button for button in question.buttons() if button.text() == "Save the session").click()
    (written,) = (tmp_path / folder).rglob("*.jsonl")
    assert "The guard must never be held across an await." in written.read_text("utf-8")
    shown = window.findChildren(QMessageBox)[-1]
    assert command in shown.text()
    assert str(written) in shown.text()
    next(button for button in shown.buttons() if button.text() == "Copy command").click()
    copied = QGuiApplication.clipboard().text()
    folder_change, _, resuming = copied.partition(" && ")
    assert folder_change.startswith("cd /"), "the agent only finds it in its folder"
    assert resuming.startswith(command)
    assert shown.text().endswith(resuming)


def test_a_session_is_given_back_as_it_was_before_any_of_its_last_compactions(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two compactions, only the last could be chosen."""

    async def count_five(*_: object) -> int:
        return 5

    monkeypatch.setattr(conversation_exporting, "_count_compactions", count_five)
    window.window_actions["continue-codex"].trigger()
    (question,) = window.findChildren(QMessageBox)
    offered = [button.text() for button in question.buttons() if "before summary" in button.text()]
    assert offered == [f"Save the session as it was before summary {n}" for n in (5, 4, 3)]


def test_what_is_too_long_for_an_agent_is_folded_only_after_a_question(
    window: MainWindow, bench: FakeWorkbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PI_CODING_AGENT_DIR", raising=False)
    bench.relay.is_too_long = True
    window.window_actions["continue-pi"].trigger()
    press(window, "Save the session")
    assert not [*tmp_path.rglob("*.jsonl")]
    question = window.findChildren(QMessageBox)[-1]
    assert question.text().startswith("This conversation is too long for pi. ")
    assert "Your provider may charge" in question.text()
    press(window, "Shorten older parts")
    assert len([*tmp_path.rglob("*.jsonl")]) == 1


def press(window: MainWindow, words: str) -> None:
    """A button of the newest question."""
    question = window.findChildren(QMessageBox)[-1]
    next(button for button in question.buttons() if button.text() == words).click()


def test_files_are_looked_for_and_saved_in_the_workspaces_folder_at_first(
    window: MainWindow, bench: FakeWorkbench, tmp_path: Path
) -> None:
    """They were in the folder where the program was started, which a desktop makes the root."""
    bench.main_folder = tmp_path
    for action in ("attach", "export-markdown"):
        window.window_actions[action].trigger()
        dialog = window.findChildren(QFileDialog)[-1]
        assert Path(dialog.directory().absolutePath()) == tmp_path
        dialog.close()


def test_only_messages_for_other_programs_need_an_output_that_the_record_has_in_short(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession, tmp_path: Path
) -> None:
    gone = story.stored("long ago")
    session.append(ToolReturned("1", gone, 3, head="long ago"))
    bench.workspace.gone = {gone.digest}
    for form, missing in (("json", False), ("markdown", False), ("openai", True)):
        window.window_actions[f"export-{form}"].trigger()
        save_to(window, tmp_path / form)
        assert ("1 output is missing" in window.notices.shown_text) is missing, form
