"""With large text in a small window, nothing of a settings page lies beyond its right
edge: pages scroll down, never sideways.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QWidget

from helix_desktop.gui import translation
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.theme import Theme
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.fake_setup import (
    ANTHROPIC,
    OLLAMA,
    SONNET,
    FakeInstallation,
    FakeSetup,
    listed_server,
)

PAGES = ("appearance", "providers", "instructions", "policy", "permissions", "servers", "storage")
LONG_RULE = {
    "decision": "allow",
    "tool": "run_command",
    "command": "python3 -m pytest --quiet tests/gui/settings *",
}
LONG_FOLDER = "/home/somebody-with-a-long-name/projects/storage-engine/worktrees/lock-manager"


@pytest.fixture(params=["en", "de"])
def language(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param != "en":
        translation.set_translations(
            json.loads(translation.translation_catalogue_path(request.param).read_text("utf-8"))
        )
    yield request.param
    translation.set_translations({})


def words_without_room(page: SettingsPage) -> dict[str, int]:
    """Each visible label and button that is lower than its wrapped words, and by how much."""
    found = {}
    for widget in page.page_content.findChildren(QLabel) + page.page_content.findChildren(
        QAbstractButton
    ):
        if widget.isVisible() and widget.hasHeightForWidth() and not widget.findChildren(QWidget):
            lacking = widget.heightForWidth(widget.width()) - widget.height()
            if lacking > 0:
                found[widget.text()[:40]] = lacking
    return found


def pixels_beyond_edge(page: SettingsPage) -> dict[str, int]:
    """Each visible widget of the page that reaches over its right edge, and how far."""
    found = {}
    for widget in page.page_content.findChildren(QWidget):
        if widget.isVisible():
            over = (
                widget.mapTo(page.page_content, QPoint(widget.width(), 0)).x()
                - page.viewport().width()
            )
            if over > 0:
                words = widget.accessibleName() or str(widget.property("text") or "")
                found[f"{type(widget).__name__} {words[:40]!r}"] = over
    return found


@pytest.mark.parametrize("page", PAGES)
def test_no_row_is_cut_at_the_right(
    page: str, language: str, theme: Theme, window: MainWindow, bench: FakeWorkbench
) -> None:
    theme.set_zoom(2.0)
    settings = bench.workspace.settings
    settings.rules = [LONG_RULE]
    settings.models = {"main": SONNET.name, "fast": SONNET.name, "long": ""}
    settings.roots = [LONG_FOLDER]
    tools = {"find_symbols_by_name": "Finds symbols."}
    server = "npx -y @example/a-server-with-a-long-name"
    bench.mcp_servers.running = [
        listed_server(
            server, "documentation", "ready", tools=tools, reading=("find_symbols_by_name",)
        )
    ]
    setup = FakeSetup()
    setup.added = [(ANTHROPIC, "good", "keyring"), (OLLAMA, "", "")]
    dialog = SettingsDialog(window, setup, FakeInstallation())
    dialog.show()
    dialog.resize(900, 600)
    dialog.show_settings_page(page)
    QApplication.processEvents()
    shown = dialog._stack.currentWidget()
    assert isinstance(shown, SettingsPage)
    assert dialog.width() <= 900
    assert tuple(dialog._page_factories) == PAGES
    assert pixels_beyond_edge(shown) == {}
    assert words_without_room(shown) == {}


def test_the_list_of_pages_grows_with_the_text_while_the_window_is_open(
    theme: Theme, window: MainWindow
) -> None:
    dialog = SettingsDialog(window, FakeSetup(), FakeInstallation())
    dialog.show()
    dialog.show_settings_page("appearance")
    QApplication.processEvents()
    theme.set_zoom(2.0)
    QApplication.processEvents()
    names = dialog._names
    assert names.viewport().width() >= dialog._side.sizeHint().width()
    theme.set_zoom(1.0)
