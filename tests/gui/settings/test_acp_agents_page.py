"""Agents of other makers that are started by a command."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QMenu

from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.acp_agents_page import AcpAgentsPage
from helix_desktop.program_settings import ACP_AGENTS, ProgramSettings
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.settings.page_widgets import button, said


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
