"""What the agent may do without being asked about: rules, folders, the sandbox."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QCheckBox, QComboBox, QFileDialog, QLabel, QMessageBox

from helix_desktop.gui.common.setting_fields import LongTextField
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.mcp_servers_page import McpServersPage
from helix_desktop.gui.settings.permissions_page import PermissionsPage, describe_permission_rule
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.fake_setup import FakeInstallation, FakeSetup, listed_server
from tests.gui.settings.page_widgets import button, child, choose, said


def test_rules_are_added_and_removed(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    page = PermissionsPage(bench, program, window.background_runner)
    page._command.setText("cargo test *")
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    assert bench.workspace.settings.rules == [{"decision": "allow", "command": "cargo test *"}]
    assert "Allow · cargo test *" in said(page)
    QTest.mouseClick(button(page, "Remove"), Qt.MouseButton.LeftButton)
    assert bench.workspace.settings.rules == []
    assert describe_permission_rule({"decision": "deny"}) == "Deny · everything"


def test_a_removed_rule_can_be_brought_back_to_its_place(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """A click beside the intended one took a rule away for good."""
    first = {"decision": "allow", "command": "head *"}
    second = {"decision": "allow", "command": "ls *"}
    bench.workspace.settings.rules[:] = [first, second]
    page = PermissionsPage(bench, program, window.background_runner)
    QTest.mouseClick(button(page, "Remove"), Qt.MouseButton.LeftButton)
    assert bench.workspace.settings.rules == [second]
    assert "Removed: Allow · head *" in said(page)
    QTest.mouseClick(button(page, "Undo"), Qt.MouseButton.LeftButton)
    assert bench.workspace.settings.rules == [first, second]
    assert page._rules.count() == 2


def test_the_mode_is_named_as_in_the_message_box(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """The page said "Ask before commands" while the message box named what rules allow."""
    bench.allowed_by_rules = {"": ("some commands",)}
    page = PermissionsPage(bench, program, window.background_runner)
    mode = page.page_content.findChild(QComboBox, "mode")
    assert mode is not None
    assert mode.currentText() == "Ask, but allow some commands"
    bench.allowed_by_rules = {"": ("some edits", "some commands")}
    page._show_what_rules_allow()
    assert mode.currentText() == "Ask, but allow some edits and some commands"
    assert mode.maximumWidth() >= mode.sizeHint().width()
    bench.allowed_by_rules = {}
    page._command.setText("ls")
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    assert mode.currentText() == "Ask before commands"
    assert mode.itemText(mode.findData("plan")) == "Read only"


def test_what_is_allowed_in_a_conversation_is_listed_and_can_be_removed(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    (conversation, *_others) = bench.rows
    rule = {"decision": "allow", "command": "cargo test *"}
    page = PermissionsPage(bench, program, window.background_runner)
    assert page._about_conversations.isHidden()
    bench.rules_by_conversation = {conversation: [rule], "gone": [rule]}
    page.show()
    page.activateWindow()
    QTest.qWaitForWindowActive(page)
    assert not page._about_conversations.isHidden()
    shown = said(page)
    assert f"In “{bench.rows[conversation].title}”" in shown
    assert shown.count("Allow · cargo test *") == 1
    QTest.mouseClick(button(page, "Remove"), Qt.MouseButton.LeftButton)
    assert bench.rules_by_conversation == {conversation: [], "gone": [rule]}
    assert page._about_conversations.isHidden()


def test_nothing_is_hidden_in_a_rule_or_in_the_title_of_its_conversation(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """Rules come with an imported workspace, and a title may be a model's."""
    (conversation, *_others) = bench.rows
    hidden = "cargo \N{RIGHT-TO-LEFT OVERRIDE}tset"
    rule = {"decision": "allow", "command": hidden}
    bench.workspace.settings.rules.append(rule)
    bench.rules_by_conversation = {conversation: [rule]}
    bench.rows[conversation] = replace(bench.rows[conversation], title=hidden)
    page = PermissionsPage(bench, program, window.background_runner)
    shown = said(page)
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in shown
    assert shown.count("⟨202E⟩") == 3


def test_a_rule_of_a_file_tool_is_for_a_path_and_one_that_never_applies_says_so(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    page = PermissionsPage(bench, program, window.background_runner)
    for tool, about in (
        ("write_file", "docs/*"),
        ("run_command", "git push *"),
        ("*_file", "*.md"),
    ):
        page._tool.setEditText(tool)
        page._command.setText(about)
        QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    assert [{**rule, "decision": ""} for rule in bench.workspace.settings.rules] == [
        {"decision": "", "tool": "write_file", "path": "docs/*"},
        {"decision": "", "tool": "run_command", "command": "git push *"},
        {"decision": "", "tool": "*_file", "path": "*.md"},
    ]
    rows = [*bench.workspace.settings.rules, {"decision": "deny", "tool": "server__tool"}]
    rows += [
        {"decision": "deny", "tool": "Bash"},
        {"decision": "deny", "tool": "write_file", "command": "docs/*"},
    ]
    told = [page._build_permission_rule_row(rule).findChildren(QLabel) for rule in rows]
    never = ["Never applies" in " ".join(label.text() for label in labels) for labels in told]
    assert never == [False, False, False, False, True, True]


def test_a_rule_is_made_from_what_tools_do_and_can_be_tried_first(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """The line asked for "Tool" and "Command or path" with nothing to choose from."""
    page = PermissionsPage(bench, program, window.background_runner)
    assert page._tried.isHidden(), "without a rule, there is nothing to try"
    page._tool.setCurrentIndex(page._tool.findText("Run a command"))
    page._command.setText("ls *")
    page._tried.setText("ls -la")
    assert page._trial_result.text() == "The rule fits: Allow"
    page._tried.setText("ls -la && rm -r build")
    assert page._trial_result.text() == "The rule does not fit."
    page._tool.setCurrentIndex(page._tool.findText("Edit a file"))
    page._command.setText("docs/*")
    page._tried.setText("docs/a.md")
    assert page._trial_result.text() == "The rule fits: Allow"
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    rule = {"decision": "allow", "tool": "edit_file", "path": "docs/*"}
    assert bench.workspace.settings.rules == [rule]
    assert "Allow · Edit a file · docs/*" in said(page)


def test_what_of_the_home_is_open_to_commands_is_chosen_by_one_press_each(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    page = PermissionsPage(bench, program, window.background_runner)
    assert "can read your SSH keys" in said(page)
    ssh = child(page, QCheckBox, "ssh")
    gh = child(page, QCheckBox, "gh")
    assert isinstance(ssh, QCheckBox)
    assert isinstance(gh, QCheckBox)
    assert (ssh.isChecked(), gh.isChecked()) == (False, True)
    ssh.click()
    gh.click()
    assert bench.written == [
        ("permissions.openings", ["gh", "ssh"]),
        ("permissions.openings", ["ssh"]),
    ]


def test_files_that_agents_do_not_see_are_written_line_by_line(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    page = PermissionsPage(bench, program, window.background_runner)
    patterns = child(page, LongTextField, "hidden")
    assert isinstance(patterns, LongTextField)
    assert patterns.toPlainText() == ".env\n*.pem"
    patterns.setPlainText(" secrets/ \n\n*.pem")
    patterns.report_changed_text()
    assert bench.written == [("permissions.hidden", ["secrets/", "*.pem"])]


def test_another_folder_is_chosen_from_the_permissions(
    window: MainWindow, program: FakeInstallation
) -> None:
    dialog = SettingsDialog(window, FakeSetup(), program)
    dialog.show_settings_page("permissions")
    dialog.show()
    QTest.mouseClick(
        button(dialog._pages["permissions"], "Choose another folder…"), Qt.MouseButton.LeftButton
    )
    assert not dialog.isVisible()
    assert any(each.isVisible() for each in window.findChildren(QFileDialog))


def test_a_rule_is_removed_by_what_it_says(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """“Always allow” under a question may have made another one since the page was opened."""
    bench.workspace.settings.rules = [{"decision": "deny", "tool": "fetch"}]
    page = PermissionsPage(bench, program, window.background_runner)
    bench.workspace.settings.rules = [
        {"decision": "allow", "tool": "search"},
        *bench.workspace.settings.rules,
    ]
    QTest.mouseClick(button(page, "Remove"), Qt.MouseButton.LeftButton)
    assert bench.workspace.settings.rules == [{"decision": "allow", "tool": "search"}]


def test_a_rule_for_every_command_is_asked_about_and_one_for_everything_is_not_added(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """The rule “Allow, Everything, *” was added without a word, and applied to nothing."""
    page = PermissionsPage(bench, program, window.background_runner)
    page._command.setText("*")
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    assert bench.written == []
    assert "choose the permission mode above" in said(page)
    choose(page._tool, "run_command")
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    (box,) = page.findChildren(QMessageBox)
    assert box.text() or box.informativeText()
    assert bench.written == []
    next(each for each in box.buttons() if each.text() == "Allow every command").click()
    rule = {"decision": "allow", "tool": "run_command"}
    assert bench.written == [("permissions.rules", [rule])]
    assert "Allows every command without asking" in said(page)


def test_a_rule_that_allows_other_programs_as_well_is_marked(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.workspace.settings.rules = [
        {"decision": "allow", "command": "python3 *"},
        {"decision": "allow", "command": "cargo test *"},
    ]
    page = PermissionsPage(bench, program, window.background_runner)
    assert said(page).count("Too broad: with other arguments") == 1


def test_a_rule_for_a_script_with_any_arguments_is_explained_but_no_mistake(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """It was called too broad, in red, although no argument makes Python run anything else."""
    bench.workspace.settings.rules = [{"decision": "allow", "command": "python3 report.py *"}]
    page = PermissionsPage(bench, program, window.background_runner)
    remark = "Allows this script with any arguments, and the programs that it then starts"
    (label,) = [each for each in page.findChildren(QLabel) if each.text() == remark]
    assert label.property("look") == "small"
    assert "Too broad" not in said(page)


def test_a_tool_of_a_server_is_marked_as_reading(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.mcp_servers.running = [listed_server("npx", "issues", "ready", tools={"search": ""})]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    box = next(
        box for box in page.findChildren(QCheckBox) if box.accessibleName() == "Read-only: search"
    )
    assert not box.isChecked()
    box.setChecked(True)
    assert bench.mcp_servers.marked == [("issues", "search", True)]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("bubblewrap", "commands run in a sandbox."),
        ("Landlock", "the weaker sandbox, Landlock, because"),
        ("none", "commands run without a sandbox, because"),
    ],
)
def test_the_permissions_begin_with_whether_commands_run_in_a_sandbox(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation, kind: str, words: str
) -> None:
    bench.sandbox_kind = kind
    page = PermissionsPage(bench, program, window.background_runner)
    labels = [label.text() for label in page.page_content.findChildren(QLabel) if label.text()]
    about_sandbox = [text for text in labels if "sandbox" in text]
    assert words in about_sandbox[0]
