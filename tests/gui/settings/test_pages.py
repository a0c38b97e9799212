"""The settings as a person uses them: each page writes what was chosen, at once, and
says what it did.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QKeySequence
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QFileDialog,
    QFontComboBox,
    QKeySequenceEdit,
    QLabel,
    QLineEdit,
    QMenu,
    QMessageBox,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QWidget,
)

from helix_desktop.errors import NoUsableKeyring
from helix_desktop.gui.common.consent_dialog import ConsentDialog
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.setting_fields import LongTextField
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.about_page import AboutPage
from helix_desktop.gui.settings.acp_agents_page import AcpAgentsPage
from helix_desktop.gui.settings.installation_port import McpServerState
from helix_desktop.gui.settings.mcp_server_card import describe_server_state
from helix_desktop.gui.settings.mcp_servers_page import McpServersPage
from helix_desktop.gui.settings.models_page import ModelsPage
from helix_desktop.gui.settings.permissions_page import PermissionsPage, describe_permission_rule
from helix_desktop.gui.settings.program_settings_page import ProgramSettingsPage
from helix_desktop.gui.settings.providers_page import EditProviderDialog, ProvidersPage
from helix_desktop.gui.settings.recorder_page import RecorderPage
from helix_desktop.gui.settings.settings_dialog import GENERAL_SECTIONS, SettingsDialog
from helix_desktop.gui.settings.settings_group_page import SettingsGroupPage
from helix_desktop.gui.settings.settings_page import RefreshWhileShown
from helix_desktop.gui.settings.shortcuts_page import ShortcutsPage
from helix_desktop.gui.settings.storage_page import StoragePage
from helix_desktop.gui.settings.workspace_settings_pages import (
    CheckpointsPage,
    InstructionsPage,
)
from helix_desktop.mcp_client.server_config import ServerConfig
from helix_desktop.program_settings import (
    ACP_AGENTS,
    ALL,
    ASK_ABOVE,
    CODE_FONT,
    INSTRUCTIONS,
    LOG_SIZE,
    NOTIFY_DONE,
    RECORDER_WITHOUT_AGENTS,
    RECORDER_WITHOUT_FOLDERS,
    THEME,
    ZOOM,
    ProgramSetting,
    ProgramSettings,
)
from tests.gui.fake_desk import FakeWorkbench, Held, now
from tests.gui.fake_setup import (
    ANTHROPIC,
    OLLAMA,
    QWEN,
    SONNET,
    FakeInstallation,
    FakeSetup,
    listed_server,
)


@pytest.fixture
def program() -> FakeInstallation:
    return FakeInstallation()


def button(page: QWidget, text: str) -> QPushButton:
    return next(
        each
        for each in page.findChildren(QPushButton)
        if each.text() == text and not each.isHidden()
    )


def said(page: QWidget) -> str:
    return "\n".join(label.accessibleName() or label.text() for label in page.findChildren(QLabel))


def child(page: QWidget, kind: type[QWidget], name: str) -> QWidget:
    found = page.findChild(kind, name)
    assert isinstance(found, kind)
    return found


def choose(box: QComboBox, data: str) -> None:
    box.setCurrentIndex(box.findData(data))
    box.activated.emit(box.currentIndex())


def test_every_setting_of_the_program_has_a_row_and_changes_at_once(
    window: MainWindow, settings: ProgramSettings
) -> None:
    appearance = ProgramSettingsPage("Appearance", settings, ["Appearance"])
    general = ProgramSettingsPage("General", settings, GENERAL_SECTIONS)
    names = {
        each.objectName()
        for page in (appearance, general)
        for each in page.page_content.findChildren(QWidget)
    }
    in_these = {"Appearance", "Chat", "Notifications"}
    assert {each.key for each in ALL if each.section in in_these and each.in_window} <= names
    box = child(appearance, QComboBox, THEME.key)
    assert isinstance(box, QComboBox)
    choose(box, "dark")
    zoom = child(appearance, QSpinBox, ZOOM.key)
    assert isinstance(zoom, QSpinBox)
    zoom.setValue(150)
    check = child(general, QCheckBox, NOTIFY_DONE.key)
    assert isinstance(check, QCheckBox)
    check.setChecked(False)
    assert (settings[THEME], settings[ZOOM], settings[NOTIFY_DONE]) == ("dark", 150, False)
    assert (zoom.minimum(), zoom.maximum()) == (ZOOM.least, ZOOM.most)
    assert check.accessibleName() == NOTIFY_DONE.title


def test_a_value_that_is_not_allowed_is_said(window: MainWindow, settings: ProgramSettings) -> None:
    page = ProgramSettingsPage("General", settings, ["Chat"])
    page._change_setting(LOG_SIZE, 5_000)
    assert "logs.size must be" in said(page)
    assert settings[LOG_SIZE] == LOG_SIZE.default


def test_each_shortcut_is_named_to_a_screen_reader(window: MainWindow) -> None:
    """The line in the field is what has the keyboard."""
    page = ShortcutsPage(window.window_actions)
    lines = page.findChildren(QLineEdit)
    assert lines
    assert [line for line in lines if not line.accessibleName()] == []


def test_a_shortcut_is_changed_and_the_one_that_lost_it_is_named(window: MainWindow) -> None:
    page = ShortcutsPage(window.window_actions)
    edits = {edit.accessibleName(): edit for edit in page.findChildren(QKeySequenceEdit)}
    edit = edits["Shortcut for Duplicate conversation"]
    edit.setKeySequence(QKeySequence("Ctrl+N"))
    edit.editingFinished.emit()
    assert "“New conversation” no longer has a shortcut." in said(page)
    assert window.window_actions["fork"].shortcut() == QKeySequence("Ctrl+N")
    QTest.mouseClick(button(page, "Reset all"), Qt.MouseButton.LeftButton)
    assert window.window_actions["new"].shortcut() == QKeySequence("Ctrl+N")


def test_keys_that_type_or_move_are_no_shortcuts(window: MainWindow) -> None:
    """Down and End became shortcuts while the page was walked by keyboard, each taken
    from the action before.
    """
    page = ShortcutsPage(window.window_actions)
    edits = {edit.accessibleName(): edit for edit in page.findChildren(QKeySequenceEdit)}
    edit = edits["Shortcut for Duplicate conversation"]
    before = window.window_actions["fork"].shortcut()
    for keys in ("Down", "End", "A", "Shift+A", "Space", "F7", "Alt+Down"):
        edit.setKeySequence(QKeySequence(keys))
        edit.editingFinished.emit()
        taken = keys in ("F7", "Alt+Down")
        assert window.window_actions["fork"].shortcut() == (QKeySequence(keys) if taken else before)
        assert edit.keySequence() == window.window_actions["fork"].shortcut()
        assert ("This key is used to type or to move the cursor." in said(page)) == (not taken)
    assert {line.placeholderText() for line in page.findChildren(QLineEdit)} == {"Press keys"}


def test_a_pasted_key_is_tested_kept_and_its_best_model_taken(window: MainWindow) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    chosen = QSignalSpy(page.model_chosen)
    page._panel._key.setText("bad")
    QTest.mouseClick(button(page, "Connect"), Qt.MouseButton.LeftButton)
    assert "Anthropic does not accept this key. Look whether all of it was copied." in said(page)
    page._panel._key.setText("good")
    QTest.keyClick(page._panel._key, Qt.Key.Key_Return)
    assert setup.added == [(ANTHROPIC, "good", "keyring")]
    assert chosen.at(0) == [SONNET.name]
    assert page._panel._key.text() == ""
    assert "key: keyring" in said(page)


def test_with_another_service_neither_the_key_nor_what_was_said_stays(window: MainWindow) -> None:
    page = ProvidersPage(FakeSetup(), window.background_runner)
    page._panel._key.setText("bad")
    page._panel.test_key_and_add_provider()
    assert "does not accept this key" in said(page)
    page._panel._provider.setCurrentIndex(page._panel._provider.count() - 1)
    assert page._panel._key.text() == ""
    assert "does not accept this key" not in said(page)


def test_without_a_keyring_the_user_chooses_where_the_key_goes(window: MainWindow) -> None:
    setup = FakeSetup(keyring=False)
    page = ProvidersPage(setup, window.background_runner)
    page._panel._key.setText("good")
    page._panel.test_key_and_add_provider()
    assert setup.added == []
    QTest.mouseClick(button(page, "Use the key for this session only"), Qt.MouseButton.LeftButton)
    assert setup.added == [(ANTHROPIC, "good", "session")]


def test_a_changed_key_that_no_keyring_takes_is_not_lost(window: MainWindow) -> None:
    setup = FakeSetup(keyring=False)
    setup.added = [(ANTHROPIC, "old", "session")]
    page = ProvidersPage(setup, window.background_runner)
    QTest.mouseClick(button(page, "Edit…"), Qt.MouseButton.LeftButton)
    dialog = page.findChildren(EditProviderDialog)[0]
    QTest.keyClicks(dialog.key, "good")
    QTest.keyClick(dialog.key, Qt.Key.Key_Return)
    assert dialog.isVisible()
    assert "There is no keyring here." in said(dialog)
    QTest.mouseClick(button(dialog, "Use the key for this session only"), Qt.MouseButton.LeftButton)
    assert setup.added[-1] == (replace(ANTHROPIC, key="session"), "good", "session")
    assert not dialog.isVisible()


def test_a_message_takes_no_room_from_the_fields_above_it(window: MainWindow) -> None:
    dialog = EditProviderDialog(ANTHROPIC, window)
    dialog.setStyleSheet("QLineEdit, QPushButton { padding: 12px; }")
    dialog.open()
    dialog.show_provider_error(NoUsableKeyring("This system has no keyring. " * 4))
    QApplication.processEvents()
    assert dialog.key.height() >= dialog.key.sizeHint().height()
    dialog.reject()


def test_a_key_is_never_shown(window: MainWindow) -> None:
    page = ProvidersPage(FakeSetup(), window.background_runner)
    assert page._panel._key.echoMode() is QLineEdit.EchoMode.Password


def test_servers_on_this_machine_are_found_by_themselves(window: MainWindow) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    chosen = QSignalSpy(page.model_chosen)
    QTest.mouseClick(button(page, "qwen3 from Ollama · 32K tokens"), Qt.MouseButton.LeftButton)
    assert chosen.at(0) == [QWEN.name]
    assert setup.added == [(OLLAMA, "", "keyring")]
    none = ProvidersPage(FakeSetup(servers=False), window.background_runner)
    assert "No model server is running on this computer." in said(none)


def test_a_model_that_its_server_calls_by_the_path_of_its_file_is_shown_by_its_name(
    window: MainWindow,
) -> None:
    page = ProvidersPage(FakeSetup(), window.background_runner)
    model = replace(QWEN, name="llamacpp//home/ann/models/SmolLM2.gguf", window=8_192)
    page._panel._add_buttons_of_server(OLLAMA, [model])
    assert button(page, "SmolLM2.gguf from Ollama · 8.2K tokens")


def test_a_connected_server_on_this_machine_is_not_denied(window: MainWindow) -> None:
    """Its address is none of the usual ones, so that the search does not find it."""
    setup = FakeSetup(servers=False)
    connected = replace(OLLAMA, address="http://127.0.0.1:8971/v1")
    setup.added.append((connected, "", "keyring"))
    page = ProvidersPage(setup, window.background_runner)
    assert "No model server is running on this computer." not in said(page)
    assert "No other model server was found on this computer." in said(page)


def test_another_server_needs_an_address(window: MainWindow) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    panel = page._panel
    assert panel._key.placeholderText() == "Paste the key"
    panel._provider.setCurrentIndex(panel._provider.count() - 1)
    assert panel._key.placeholderText() == "Paste the key, if a key is needed"
    assert not panel._address.isHidden()
    panel._address.setText("https://llm.example.org/v1")
    panel._key.setText("good")
    panel.test_key_and_add_provider()
    assert [(p.name, p.address, p.kind) for p, _, _ in setup.added] == [
        ("llm-example-org", "https://llm.example.org/v1", "openai-chat")
    ]


def test_a_wrong_address_is_said_before_a_key_is_asked_for(window: MainWindow) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    page.show()
    panel = page._panel
    panel._provider.setCurrentIndex(panel._provider.count() - 1)
    panel._address.setFocus()
    QTest.keyClicks(panel._address, "llm.wrong.example/v1")
    panel._address.editingFinished.emit()
    assert "No connection to llm-wrong-example: host not found." in said(page)
    panel._address.clear()
    QTest.keyClicks(panel._address, "llm.example/v1")
    panel._address.editingFinished.emit()
    assert setup.checked == ["https://llm.wrong.example/v1", "https://llm.example/v1"]
    assert "host not found" not in said(page)
    assert setup.added == []


def test_the_address_that_the_environment_names_is_offered_with_its_key(window: MainWindow) -> None:
    setup = FakeSetup()
    offered = replace(
        ANTHROPIC, address="https://proxy.example", variable="ANTHROPIC_API_KEY", key="environment"
    )
    setup.well_known = (
        replace(offered, address_variable="ANTHROPIC_BASE_URL"),
        replace(ANTHROPIC, name="plain"),
    )
    page = ProvidersPage(setup, window.background_runner)
    panel = page._panel
    assert panel._address.text() == "https://proxy.example"
    assert not panel._address.isHidden()
    assert "This address is set by the environment variable ANTHROPIC_BASE_URL." in said(page)
    assert panel._key.placeholderText() == "Leave empty to use the key in ANTHROPIC_API_KEY"
    panel._key.setText("good")
    panel._address.setText("proxy.example/v1")
    panel.test_key_and_add_provider()
    assert [(each.name, each.address) for each, *_ in setup.added] == [
        ("anthropic", "https://proxy.example/v1")
    ]
    panel._provider.setCurrentIndex(1)
    assert panel._address.isHidden()


@pytest.mark.parametrize(
    ("written", "name", "address"),
    [
        ("http://127.0.0.1:8000/v1", "local-8000", "http://127.0.0.1:8000/v1"),
        ("localhost:8080/v1", "local-8080", "http://localhost:8080/v1"),
        ("llm.example.org/v1", "llm-example-org", "https://llm.example.org/v1"),
    ],
)
def test_a_server_of_ones_own_needs_no_key(
    window: MainWindow, written: str, name: str, address: str
) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    panel = page._panel
    panel._provider.setCurrentIndex(panel._provider.count() - 1)
    panel._address.setText(written)
    panel.test_key_and_add_provider()
    assert [(p.name, p.address, key) for p, key, _ in setup.added] == [(name, address, "")]
    assert "Connected. " in said(page)


def test_removing_a_provider_is_asked_first(window: MainWindow) -> None:
    setup = FakeSetup()
    setup.added = [(ANTHROPIC, "good", "keyring")]
    page = ProvidersPage(setup, window.background_runner)
    QTest.mouseClick(button(page, "Remove"), Qt.MouseButton.LeftButton)
    box = page.findChildren(QMessageBox)[0]
    assert len(setup.added) == 1
    next(each for each in box.buttons() if each.text() == "Remove").click()
    assert setup.added == []


def test_a_model_for_each_role_is_chosen_in_the_same_list_as_in_the_window(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    page = ModelsPage(window, bench, [SONNET, QWEN])
    fast = child(page, QPushButton, "fast")
    assert isinstance(fast, QPushButton)
    assert fast.text() == "The main model"
    main = child(page, QPushButton, "main")
    assert isinstance(main, QPushButton)
    assert main.text() == "anthropic/claude-sonnet · 200K · $3 / $15"
    assert page.findChild(QComboBox, "main") is None
    page.resize(700, 500)
    page.show()
    QTest.mouseClick(fast, Qt.MouseButton.LeftButton)
    chooser = page._chooser
    assert chooser is not None
    assert chooser.isVisible()
    chooser.line.setText("qwen")
    chooser.accept_current_row()
    assert bench.workspace.settings.models == {"main": SONNET.name, "fast": QWEN.name}
    QTest.mouseClick(button(page, "Clear"), Qt.MouseButton.LeftButton)
    assert bench.workspace.settings.models["fast"] == ""
    page.close()


def test_instructions_are_written_when_the_field_is_left(
    window: MainWindow, bench: FakeWorkbench, settings: ProgramSettings
) -> None:
    page = InstructionsPage(bench, window.background_runner)
    text = child(page, QPlainTextEdit, "instructions")
    assert isinstance(text, QPlainTextEdit)
    page.show()
    text.setPlainText("Answer in French.")
    page.hide()
    assert bench.written == [("instructions", "Answer in French.")]
    general = ProgramSettingsPage("General", settings, ["Instructions"])
    everywhere = child(general, QPlainTextEdit, INSTRUCTIONS.key)
    assert isinstance(everywhere, QPlainTextEdit)
    general.show()
    everywhere.setPlainText("Be brief.\nNo emojis.")
    general.hide()
    assert settings[INSTRUCTIONS] == "Be brief.\nNo emojis."


@pytest.mark.parametrize(
    ("setting", "wrong", "right"),
    [
        (RECORDER_WITHOUT_FOLDERS, "proj", "/work/proj"),
        (RECORDER_WITHOUT_AGENTS, "nonsense", "Claude Code\ngoose"),
    ],
)
def test_what_would_exclude_nothing_from_being_recorded_is_refused(
    window: MainWindow,
    settings: ProgramSettings,
    setting: ProgramSetting[str],
    wrong: str,
    right: str,
) -> None:
    page = ProgramSettingsPage("General", settings, ["Recorder"])
    field = child(page, LongTextField, setting.key)
    assert isinstance(field, LongTextField)
    page.resize(600, 300)
    page.show()
    for text, kept in ((right, right), (f"{right}\n{wrong}", right)):
        field.setPlainText(text)
        field.report_changed_text()
        assert settings[setting] == kept
    (told,) = [label for label in page.findChildren(QLabel) if wrong in label.text()]
    QApplication.processEvents()
    assert not told.visibleRegion().isEmpty(), "it stands below what fits the window"


def test_a_font_is_chosen_from_those_of_the_system(
    window: MainWindow, settings: ProgramSettings
) -> None:
    page = ProgramSettingsPage("Appearance", settings, ["Appearance"])
    fonts = child(page, QFontComboBox, CODE_FONT.key)
    assert isinstance(fonts, QFontComboBox)
    assert fonts.currentText() == "Default"
    assert fonts.count() > 1
    fonts.activated.emit(1)
    assert settings[CODE_FONT] == fonts.itemText(1)
    fonts.activated.emit(0)
    assert settings[CODE_FONT] == ""


def test_how_long_the_main_model_thinks(window: MainWindow, bench: FakeWorkbench) -> None:
    page = ModelsPage(window, bench, [SONNET])
    thinking = child(page, QComboBox, "effort")
    assert isinstance(thinking, QComboBox)
    assert thinking.currentText() == "Default"
    choose(thinking, "high")
    choose(thinking, "")
    assert bench.written == [("effort", "high"), ("effort", None)]


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


def test_an_agent_is_added_by_its_command_tested_and_removed(
    window: MainWindow, bench: FakeWorkbench, settings: ProgramSettings
) -> None:
    """It was a line of text in a box, without a test."""
    page = AcpAgentsPage(bench, settings, window.background_runner)
    assert "Known, but not installed here: Codex" in said(page)
    assert "npm i" not in said(page), "the commands of all agents were a wall"
    page._open_install_menu()
    (menu,) = page._install.findChildren(QMenu)
    (codex,) = [action for action in menu.actions() if action.text() == "Codex"]
    codex.trigger()
    assert QGuiApplication.clipboard().text().startswith("npm i")
    assert page._copied_label.text() == QGuiApplication.clipboard().text()
    menu.close()
    QTest.mouseClick(button(page, "Test"), Qt.MouseButton.LeftButton)
    assert "Mine started and answered." in said(page)
    bench.acp.fails = True
    QTest.mouseClick(button(page, "Test"), Qt.MouseButton.LeftButton)
    assert "it ended with exit code 1" in said(page)
    labels = page.page_content.findChildren(QLabel)
    (failure,) = [label for label in labels if "it ended with exit code 1" in label.text()]
    assert failure.property("look") == "danger"

    QTest.mouseClick(button(page, "Add agent…"), Qt.MouseButton.LeftButton)
    dialog = page.findChildren(FieldsDialog)[-1]
    dialog.values.update(name="Other", command="other 'open")
    dialog._save_values_and_close()
    assert "closed quotation marks" in dialog.trouble.text()
    dialog.values.update(command="other --acp")
    dialog._save_values_and_close()
    assert settings[ACP_AGENTS] == "Mine = my-agent --acp\nOther = other --acp"
    QTest.mouseClick(button(page, "Remove"), Qt.MouseButton.LeftButton)
    assert settings[ACP_AGENTS] == ""


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


def test_a_server_is_shown_as_it_will_be_started_before_it_is_kept(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    assert "No MCP server was found in this text." in said(page)
    page._text.setPlainText("npx server 'a b'")
    page._name.setText("github")
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    box = page.findChildren(ConsentDialog)[0]
    assert box.findChildren(QPlainTextEdit)[0].toPlainText() == "github: npx server 'a b'"
    assert bench.mcp_servers.running == []
    next(each for each in box.findChildren(QPushButton) if each.text() == "Add").click()
    assert bench.mcp_servers.running == [
        McpServerState(ServerConfig("github", command="npx", args=("server", "a b")))
    ]


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("npx server", "will run with your permissions"),
        ("https://example.org/mcp", "will be sent to"),
    ],
)
def test_of_a_server_far_away_it_is_not_said_that_it_is_started(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation, text: str, becomes: str
) -> None:
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    page._text.setPlainText(text)
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    box = page.findChildren(ConsentDialog)[0]
    (asked,) = [label.text() for label in box.findChildren(QLabel) if "Add this" in label.text()]
    assert becomes in asked
    assert "\n" not in asked
    assert box.findChildren(QPlainTextEdit)[0].toPlainText().endswith(text)


def test_what_was_pasted_stays_until_it_is_kept(
    window: MainWindow,
    bench: FakeWorkbench,
    program: FakeInstallation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*_: object) -> None:
        raise NoUsableKeyring("There is no keyring here.")

    page = McpServersPage(window.theme, bench, program, window.background_runner)
    page._text.setPlainText("npx server")
    with monkeypatch.context() as patched:
        patched.setattr(bench.mcp_servers, "add_pasted_servers", refused)
        page._add_server("npx server", "")
    assert "There is no keyring here." in said(page)
    assert page._text.toPlainText() == "npx server"
    page._add_server("npx server", "")
    assert page._text.toPlainText() == ""


def test_a_server_is_switched_off_restarted_and_removed(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.mcp_servers.running = [
        listed_server("npx server", "github", "ready", tools=dict.fromkeys("abc", ""))
    ]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    assert "ready · 3 tools" in said(page)
    QTest.mouseClick(button(page, "Restart"), Qt.MouseButton.LeftButton)
    assert page._error_label.text() == "There is no MCP server named github."
    QTest.mouseClick(button(page, "Turn off"), Qt.MouseButton.LeftButton)
    assert "off" in said(page)
    QTest.mouseClick(button(page, "Test"), Qt.MouseButton.LeftButton)
    assert "github answers: 3 tools." in said(page)
    QTest.mouseClick(button(page, "Remove"), Qt.MouseButton.LeftButton)
    assert len(bench.mcp_servers.running) == 1
    next(
        each for each in page.findChildren(QMessageBox)[0].buttons() if each.text() == "Remove"
    ).click()
    assert bench.mcp_servers.running == []


def test_a_server_that_waits_for_its_user_is_signed_in_to(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.mcp_servers.running = [
        listed_server("https://far.example/mcp", "far", "sign in", "Sign-in required.")
    ]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    assert "Waiting for you to sign in." in said(page)
    QTest.mouseClick(button(page, "Sign in"), Qt.MouseButton.LeftButton)
    assert "ready" in said(page)
    assert [
        each.isHidden() for each in page.findChildren(QPushButton) if each.text() == "Sign in"
    ] == [True]


def test_a_server_that_asks_for_a_key_gets_it_by_editing_its_configuration(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """It failed in small grey words, and nothing on the page could give it a key."""
    why = "It closed the connection. Last output: Error: WEATHER_API_KEY is required."
    bench.mcp_servers.running = [listed_server("npx weather", "weather", "failed", why)]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    card = page._cards["weather"]
    assert card._state.property("look") == "danger"
    assert "It asks for WEATHER_API_KEY." in said(page)
    QTest.mouseClick(button(page, "Edit…"), Qt.MouseButton.LeftButton)
    written = json.loads(page._text.toPlainText())
    assert written == {
        "mcpServers": {
            "weather": {"command": "npx", "args": ["weather"], "env": {"WEATHER_API_KEY": ""}}
        }
    }
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    (box,) = page.findChildren(ConsentDialog)
    assert any("It replaces weather." in each.text() for each in box.findChildren(QLabel))


def test_an_edited_server_with_another_name_is_said_to_be_added(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """The page promised to replace the server, and then there were two."""
    bench.mcp_servers.running = [listed_server("npx weather", "weather", "ready")]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    QTest.mouseClick(button(page, "Edit…"), Qt.MouseButton.LeftButton)
    page._text.setPlainText(page._text.toPlainText().replace('"weather": {', '"climate": {'))
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    (box,) = page.findChildren(ConsentDialog)
    words = "\n".join(label.text() for label in box.findChildren(QLabel))
    assert "This server has another name, so it is added. weather stays as it is." in words


def test_a_servers_tools_limits_and_log_are_there_when_it_is_opened(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    tools = {"search": "Searches issues.", "delete": ""}
    github = listed_server(
        "npx server", "github", "ready", tools=tools, off=("delete",), approvals=("delete",)
    )
    bench.mcp_servers.running = [
        replace(github, log=("hello",)),
        McpServerState(ServerConfig("broken"), mistake="args have to be texts"),
    ]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    page.show()
    assert "The server's settings could not be read: args have to be texts" in said(page)
    QTest.mouseClick(button(page, "Tools and log"), Qt.MouseButton.LeftButton)
    checks = {
        each.text(): each for each in page.findChildren(QCheckBox) if each.text() != "Read-only"
    }
    assert {name: check.isChecked() for name, check in checks.items()} == {
        "search": True,
        "delete": False,
    }
    assert "to run these tools without approval: delete. You" in said(page)
    log = page._cards["github"].findChildren(QPlainTextEdit)[0]
    assert (log.toPlainText(), log.isVisible()) == ("hello", True)
    checks["search"].click()
    assert bench.mcp_servers.running[0].config.off == ("delete", "search")
    seconds = child(page, QDoubleSpinBox, "call_seconds")
    assert isinstance(seconds, QDoubleSpinBox)
    seconds.setFocus()
    seconds.setValue(30)
    assert bench.mcp_servers.changes == [("github.call_seconds", 30.0)]
    bench.mcp_servers.running[0] = replace(bench.mcp_servers.running[0], log=("hello", "more"))
    page.refresh_server_cards()
    assert log.toPlainText() == "hello\nmore"
    assert seconds.isVisible()


def test_a_server_that_does_not_answer_says_since_when_and_why(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """It said “starting”, and nothing else for a minute."""
    server = listed_server("python3 own.py", "own", "starting")
    assert server.status is not None
    began = replace(server, status=replace(server.status, since=1_000.0))
    assert describe_server_state(began, now=1_002.0) == "starting · 2 s"
    assert describe_server_state(began, now=1_009.0) == (
        "starting · 9 s · The program runs but has not answered yet. "
        "What it wrote stands under “Tools and log”. It is given up after 60 s."
    )
    far_away = listed_server("https://mcp.example.org", "far", "starting")
    assert far_away.status is not None
    began = replace(far_away, status=replace(far_away.status, since=1_000.0))
    assert "The address has not answered yet." in describe_server_state(began, now=1_009.0)

    bench.mcp_servers.running = [server]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    page.show()
    QTest.mouseClick(button(page, "Tools and log"), Qt.MouseButton.LeftButton)
    log = page._cards["own"].findChildren(QPlainTextEdit)[0]
    assert log.isVisible()
    assert log.placeholderText() == "The server has written nothing yet."


def test_a_server_that_becomes_ready_says_so_by_itself(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """Also where its page is a section of another page, and so is hidden itself."""
    starting = listed_server("python3 own.py", "own", "starting")
    bench.mcp_servers.running = [starting]
    section = McpServersPage(window.theme, bench, program, window.background_runner)
    page = SettingsGroupPage("Tools and servers", {"servers": lambda: section})
    page.show()
    assert not section.isVisible()
    bench.mcp_servers.running = [listed_server("python3 own.py", "own", "ready")]
    refreshing = page.findChild(RefreshWhileShown)
    assert refreshing is not None
    assert refreshing._timer.isActive()
    refreshing._timer.timeout.emit()
    assert "ready" in said(page)
    page.hide()
    assert not refreshing._timer.isActive()


def test_storage_says_what_is_kept_and_looks_after_it(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    page = StoragePage(bench, program, window.background_runner)
    assert "1,284 stored outputs" in said(page)
    assert "Last backup: 20 Nov 2026" in said(page)
    for pressed, answer in (
        ("Verify everything that is stored", "All of it is whole."),
        ("Back up now", "Backed up."),
    ):
        QTest.mouseClick(button(page, pressed), Qt.MouseButton.LeftButton)
        assert page._status_label.text() == answer
        assert button(page, pressed).isEnabled()


def test_about_shows_versions_and_what_the_doctor_says(
    window: MainWindow, program: FakeInstallation
) -> None:
    page = AboutPage(program, window.background_runner)
    assert "PySide6-Essentials 6.11.3" in said(page)
    assert "✕ Keyring: There is none. Install one." in said(page)


def test_the_recorder_says_how_much_of_each_agents_files_is_read(
    window: MainWindow, settings: ProgramSettings, program: FakeInstallation
) -> None:
    page = RecorderPage(settings, program, window.background_runner)
    assert "✓ Codex: 1.0 of 2.1 MB that may hold sessions are read. Not read: index.db." in said(
        page
    )


def test_room_is_made_after_it_was_said_what_would_go(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    page = StoragePage(bench, program, window.background_runner)
    QTest.mouseClick(button(page, "Free up space…"), Qt.MouseButton.LeftButton)
    box = page.findChildren(QMessageBox)[0]
    for words in (
        "12.0 MB over the limit.",
        "2 stored outputs that no conversation uses",
        "read_file a.rs",
        "still be 3.0 MB over",
    ):
        assert words in box.text()
    assert page._status_label.text() == ""
    next(each for each in box.buttons() if each.text() == "Remove").click()
    assert page._status_label.text() == "The disk refused. Try again."


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


def test_what_is_asked_for_on_a_page_that_is_gone_comes_to_nothing(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.mcp_servers.running = [
        listed_server("npx server", "github", "ready", tools=dict.fromkeys("abc", ""))
    ]
    storage = StoragePage(bench, program, window.background_runner)
    servers = McpServersPage(window.theme, bench, program, window.background_runner)
    setup = FakeSetup()
    setup.added = [(OLLAMA, "", "")]
    providers = ProvidersPage(setup, window.background_runner)
    held = window.background_runner._spawn = Held()
    QTest.mouseClick(button(storage, "Verify everything that is stored"), Qt.MouseButton.LeftButton)
    QTest.mouseClick(button(servers, "Test"), Qt.MouseButton.LeftButton)
    QTest.mouseClick(button(providers, "Test"), Qt.MouseButton.LeftButton)
    for page in (storage, servers, providers):
        shiboken6.delete(page)
    window.background_runner._spawn = now
    held.let()
    assert held.stopped == 1
    assert window.notices.shown_text == ""


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


def test_checkpoints_are_turned_off_and_kept_for_some_days(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    page = CheckpointsPage(bench, window.background_runner)
    on = child(page, QCheckBox, "off")
    always = child(page, QCheckBox, "always")
    assert isinstance(on, QCheckBox)
    assert isinstance(always, QCheckBox)
    on.click()
    always.click()
    always.click()
    assert bench.written == [
        ("changes.off", True),
        ("copies.always", True),
        ("copies.always", None),
    ]


def test_money_is_shown_in_dollars(window: MainWindow, settings: ProgramSettings) -> None:
    settings.change_setting(ASK_ABOVE, 50)
    page = ProgramSettingsPage("Before", settings, ["Long conversations"])
    field = child(page, QDoubleSpinBox, ASK_ABOVE.key)
    assert isinstance(field, QDoubleSpinBox)
    assert field.value() == 0.5
    field.setValue(1.25)
    assert settings[ASK_ABOVE] == 125
    field.setValue(0.001)
    assert settings[ASK_ABOVE] == 125, "it was 0, which means never"
    assert "The smallest amount is $0.010. Nothing was changed." in [
        label.text() for label in page.findChildren(QLabel) if not label.isHidden()
    ]


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
