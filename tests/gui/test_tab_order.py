"""Tab goes through the window as it is read."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.gui.frame.workspace_rail import WorkspaceButton
from helix_desktop.gui.main_window import MainWindow
from tests.gui import story
from tests.gui.fake_desk import FakeSession

QUESTION = PermissionQuestion(story.call(9, "run_command", command="cargo test"), "Run a command", "cargo test")


def walk(window: MainWindow, key: Qt.Key) -> list[QWidget]:
    """Every stop, once around; some have stops of their own inside."""
    for _ in range(100):
        QTest.qWait(1)  # what was just made shows, and takes its place, with the next layout
        squares = window.rail.findChildren(WorkspaceButton)
        if sum(each.isVisible() for each in squares) == len(window.listed_workspaces):
            break
    window.sidebar.search.setFocus()
    stops: list[QWidget] = []
    while (here := window.focusWidget()) not in stops[:-1]:
        assert here is not None
        stops += [] if here in stops else [here]
        QTest.keyClick(here, key)
    return stops


def area_of(window: MainWindow, stop: QWidget) -> str:
    areas = {
        "rail": window.rail,
        "sidebar": window.sidebar,
        "top": window.top,
        "transcript": window.chat.transcript,
        "question": window.chat.approvals,
        "composer": window.chat.composer,
        "inspector": window.pages.inspector,
    }
    return next(name for name, area in areas.items() if area is stop or area.isAncestorOf(stop))


def test_tab_goes_from_left_to_right_and_from_top_to_bottom(window: MainWindow, session: FakeSession) -> None:
    session.ask(QUESTION)
    window.toggle_side_panel()
    window.bridge.emit_waiting_events()
    seen = list(dict.fromkeys(area_of(window, stop) for stop in walk(window, Qt.Key.Key_Tab)))
    assert seen == ["sidebar", "top", "transcript", "question", "composer", "inspector", "rail"]


def test_the_pages_come_before_what_stands_at_their_right(window: MainWindow) -> None:
    """Of the three the chosen one is the stop; the arrows lead to the others."""
    top = [stop for stop in walk(window, Qt.Key.Key_Tab) if window.top.isAncestorOf(stop)]
    assert top == [window.top._tabs["chat"], window.top.model]


def test_back_goes_the_same_way_backwards(window: MainWindow) -> None:
    there, back = walk(window, Qt.Key.Key_Tab), walk(window, Qt.Key.Key_Backtab)
    assert back == [there[0], *reversed(there[1:])]


def test_the_box_that_finds_everything_keeps_the_keyboard(window: MainWindow) -> None:
    window.window_actions["palette"].trigger()
    for key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
        QTest.keyClick(window.palette_box.line, key)
        assert window.focusWidget() is window.palette_box.line
