"""Servers of tools: adding one, and what is shown before it is kept."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QPlainTextEdit, QPushButton

from helix_desktop.errors import NoUsableKeyring
from helix_desktop.gui.common.consent_dialog import ConsentDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.installation_port import McpServerState
from helix_desktop.gui.settings.mcp_servers_page import McpServersPage
from helix_desktop.mcp_client.server_config import ServerConfig
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.fake_setup import FakeInstallation, listed_server
from tests.gui.settings.page_widgets import button, said


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


def test_enter_in_the_question_adds_nothing_and_says_so(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """It closed without a word, and people thought that the server was added."""
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    page._text.setPlainText("npx server")
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    (box,) = page.findChildren(ConsentDialog)
    QTest.keyClick(box, Qt.Key.Key_Return)
    assert bench.mcp_servers.running == []
    assert "Nothing was added. What you typed is still below." in said(page)
    assert page._text.toPlainText() == "npx server"


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


def test_nobody_is_asked_to_start_a_program_that_is_not_there(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.mcp_servers.missing_program = "nosuch"
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    page._text.setPlainText("nosuch --mcp")
    QTest.mouseClick(button(page, "Add"), Qt.MouseButton.LeftButton)
    assert page.findChildren(ConsentDialog) == []
    assert "The program nosuch was not found." in said(page)
    assert page._text.toPlainText() == "nosuch --mcp"


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
