"""What every page of the settings does: it is made anew, and asks nothing once it is gone."""

from __future__ import annotations

import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.mcp_servers_page import McpServersPage
from helix_desktop.gui.settings.providers_page import ProvidersPage
from helix_desktop.gui.settings.storage_page import StoragePage
from tests.gui.fake_desk import FakeWorkbench, Held, now
from tests.gui.fake_setup import OLLAMA, FakeInstallation, FakeSetup, listed_server
from tests.gui.settings.page_widgets import button


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
