"""The card of a server of tools: its state, its tools and what can be done with it."""

from __future__ import annotations

import json
from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QDoubleSpinBox,
    QLabel,
    QMessageBox,
    QPlainTextEdit,
    QPushButton,
)

from helix_desktop.gui.common.consent_dialog import ConsentDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.installation_port import McpServerState
from helix_desktop.gui.settings.mcp_server_card import describe_server_state
from helix_desktop.gui.settings.mcp_servers_page import McpServersPage
from helix_desktop.gui.settings.settings_group_page import SettingsGroupPage
from helix_desktop.gui.settings.settings_page import RefreshWhileShown
from helix_desktop.mcp_client.server_config import ServerConfig
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.fake_setup import FakeInstallation, listed_server
from tests.gui.settings.page_widgets import button, child, said


def test_a_server_is_switched_off_restarted_and_removed(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.mcp_servers.running = [
        listed_server("npx server", "github", "ready", tools=dict.fromkeys("abc", ""))
    ]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    assert "ready · 3 tools: a, b, c" in said(page), "what it brought was two presses away"
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


def test_names_and_words_of_a_server_hide_nothing(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    turned = "read\u202e&delete"
    server = listed_server(
        "npx server",
        "weather",
        "ready",
        tools={turned: "Reads\u202e files\u200b."},
        approvals=(turned,),
    )
    bench.mcp_servers.running = [server]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    page.show()
    QTest.mouseClick(button(page, "Tools and log"), Qt.MouseButton.LeftButton)
    words = said(page)
    assert "Reads⟨202E⟩ files⟨200B⟩." in words
    assert "without approval: read⟨202E⟩&delete." in words
    names = [each.text() for each in page.findChildren(QCheckBox)]
    assert "read⟨202E⟩&&delete" in names
    assert not any(sign in words for sign in "\u202e\u200b")


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


def test_tools_and_log_says_that_the_log_is_empty(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """“Tools and log” unfolded tools, and no word of a log."""
    bench.mcp_servers.running = [listed_server("python3 own.py", "own", "ready")]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    page.show()
    QTest.mouseClick(button(page, "Tools and log"), Qt.MouseButton.LeftButton)
    title = page._cards["own"]._log_title
    assert title.isVisible()
    assert title.text() == "Error output: the server has written nothing."


def test_a_state_that_takes_two_lines_has_their_room_at_once(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """On a busy computer, both lines stood in the room of one."""
    starting = listed_server("python3 own.py", "own", "starting")
    bench.mcp_servers.running = [starting]
    page = McpServersPage(window.theme, bench, program, window.background_runner)
    page.resize(500, 700)
    page.show()
    QApplication.processEvents()
    card = page._cards["own"]
    card._show_server_state("ready")
    card._show_server_state("The program runs but has not answered yet. " * 4)
    state = card._state
    assert state.height() >= state.heightForWidth(state.width())


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


def test_of_many_tools_the_first_are_named_and_none_breaks_the_line() -> None:
    names = ["read\u202efile", *"bcdefg"]
    server = listed_server("npx server", "files", "ready", tools=dict.fromkeys(names, ""))
    line = describe_server_state(server, now=0.0)
    assert line.endswith(", b, c, d, e, …")
    assert "\u202e" not in line
