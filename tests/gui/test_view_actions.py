"""The window's own actions: pages, the search of a page, areas, look, settings and help."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.frame.top_bar import PAGES
from helix_desktop.gui.help_dialog import HelpDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.program_settings import THEME, ZOOM


def act(window: MainWindow, name: str) -> None:
    window.window_actions[name].trigger()


def test_each_page_has_an_action_and_only_changes_needs_no_workspace(window: MainWindow) -> None:
    for page in PAGES:
        act(window, page)
        assert window.showing.page == page
    window.showing.set_shown_workspace(None)
    window.window_actions.update_enabled()
    enabled = [page for page in PAGES if window.window_actions[page].isEnabled()]
    assert enabled == ["changes"]
    for name in ("find", "bottom", "sidebar", "inspector", "next-area"):
        assert not window.window_actions[name].isEnabled()


def test_the_search_is_that_of_the_page_or_of_everything(window: MainWindow) -> None:
    assert QTest.qWaitForWindowActive(window)
    act(window, "find")
    assert window.chat.transcript.bar.isVisible()
    act(window, "cache")
    act(window, "find")
    focused = QApplication.focusWidget()
    assert focused is not None
    assert window.pages.cache.isAncestorOf(focused)
    assert not window.palette_box.isVisible()
    act(window, "timeline")
    act(window, "find")
    assert window.palette_box.isVisible()


def test_areas_are_walked_in_a_circle_without_those_that_are_hidden(window: MainWindow) -> None:
    assert QTest.qWaitForWindowActive(window)

    def area_with_focus() -> str:
        focused = QApplication.focusWidget()
        areas = {
            "list": window.sidebar.list,
            "transcript": window.chat.transcript,
            "composer": window.chat.composer.text,
            "inspector": window.pages.inspector,
            "page": window.page_area,
        }
        for name, area in areas.items():
            if focused is not None and (area is focused or area.isAncestorOf(focused)):
                return name
        return ""

    def walk(steps: int) -> list[str]:
        walked: list[str] = []
        for _ in range(steps):
            act(window, "next-area")
            walked.append(area_with_focus())
        return walked

    window.chat.composer.text.setFocus()
    if window.is_side_panel_shown:
        act(window, "inspector")
    assert walk(4) == ["list", "transcript", "composer", "list"]
    act(window, "inspector")
    window.chat.composer.text.setFocus()
    assert walk(2) == ["inspector", "list"]
    act(window, "inspector")
    act(window, "cache")
    window.sidebar.list.setFocus()
    assert walk(2) == ["page", "list"]


def test_the_look_is_kept_in_the_settings(window: MainWindow) -> None:
    settings = window.parts.settings
    for name, value in (("dark", "dark"), ("light", "light"), ("as-system", "system")):
        act(window, name)
        assert settings[THEME] == value
    before = settings[ZOOM]
    act(window, "zoom-in")
    larger = settings[ZOOM]
    assert larger > before
    act(window, "zoom-out")
    act(window, "zoom-out")
    assert settings[ZOOM] < before
    act(window, "zoom-usual")
    assert settings[ZOOM] == 100
    shortcuts = window.window_actions["zoom-in"].shortcuts()
    assert QKeySequence("Ctrl+=") in shortcuts
    assert len(shortcuts) == 2


def test_the_full_screen_comes_and_goes(window: MainWindow) -> None:
    for is_full in (True, False):
        act(window, "full-screen")
        state = window.window().windowState()
        assert bool(state & Qt.WindowState.WindowFullScreen) is is_full


@pytest.mark.parametrize(
    ("action", "page"),
    [
        ("settings", ""),
        ("workspace-settings", "workspace"),
        ("brought", "brought"),
        ("shortcuts", "shortcuts"),
        ("doctor", "about"),
        ("about", "about"),
    ],
)
def test_settings_open_at_the_page_that_was_asked_for(
    window: MainWindow, action: str, page: str
) -> None:
    wanted: list[str] = []
    window.parts.requests.settings_wanted.connect(wanted.append)
    act(window, action)
    assert wanted == [page]


@pytest.mark.parametrize(
    ("page", "file"), [("chat", "index.md"), ("changes", "changes.md"), ("cache", "cache.md"), ("timeline", "context.md")]
)  # fmt: skip
def test_the_help_is_about_the_page(window: MainWindow, page: str, file: str) -> None:
    act(window, page)
    act(window, "help")
    (dialog,) = window.findChildren(HelpDialog)
    assert dialog.page.source().fileName() == file


def test_quit_closes_the_window(window: MainWindow) -> None:
    act(window, "quit")
    assert not window.isVisible()
