"""Tab goes through the window as it is read."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.gui.frame.model_chooser import ModelChooser
from helix_desktop.gui.frame.tour_card import ShownTourStep, TourGuide
from helix_desktop.gui.frame.workspace_rail import WorkspaceButton
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.theme import Theme
from tests.gui import story
from tests.gui.fake_desk import FakeSession

QUESTION = PermissionQuestion(
    story.call(9, "run_command", command="cargo test"), "Run a command", "cargo test"
)


def walk(window: MainWindow, key: Qt.Key) -> list[QWidget]:
    """Every stop, once around; some have stops of their own inside."""
    for _ in range(100):
        QTest.qWait(1)  # what was just made shows, and takes its place, with the next layout
        squares = window.rail.findChildren(WorkspaceButton)
        if sum(each.isVisible() for each in squares) == len(window.workspaces.listed):
            break
    window.sidebar.search.setFocus()
    stops: list[QWidget] = []
    while (here := window.focusWidget()) not in stops[:-1]:
        assert here is not None
        stops += [] if here in stops else [here]
        QTest.keyClick(here, key)
    return stops


def press_where_the_keyboard_is(window: MainWindow, key: Qt.Key) -> None:
    here = window.focusWidget()
    assert here is not None
    QTest.keyClick(here, key)


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


def test_tab_goes_from_left_to_right_and_from_top_to_bottom(
    window: MainWindow, session: FakeSession
) -> None:
    session.ask(QUESTION)
    window.toggle_side_panel()
    window.chat.bridge.emit_waiting_events()
    seen = list(dict.fromkeys(area_of(window, stop) for stop in walk(window, Qt.Key.Key_Tab)))
    assert seen == ["sidebar", "top", "transcript", "question", "composer", "inspector", "rail"]


def test_the_pages_come_before_what_stands_at_their_right(window: MainWindow) -> None:
    """Of the three the chosen one is the stop; the arrows lead to the others."""
    top = [stop for stop in walk(window, Qt.Key.Key_Tab) if window.top.isAncestorOf(stop)]
    assert top == [window.top._tabs["chat"], window.top.model]


def test_the_page_in_front_is_a_stop_after_another_was(window: MainWindow) -> None:
    """Qt takes Tab away from the others when one of several gets the keyboard, and did
    not give it back.
    """
    window.top._tabs["chat"].setFocus()
    window.switch_to_page("cache")
    QTest.qWait(1)
    assert window.top._tabs["cache"] in walk(window, Qt.Key.Key_Tab)


def test_a_list_without_a_row_is_no_stop(window: MainWindow) -> None:
    assert window.sidebar.list in walk(window, Qt.Key.Key_Tab)
    window.sidebar.list.lines.replace_list_lines([])
    QTest.qWait(1)
    assert window.sidebar.list not in walk(window, Qt.Key.Key_Tab)


def test_the_tour_can_be_left_and_followed_with_tab(window: MainWindow, theme: Theme) -> None:
    guide = TourGuide(theme, window)
    guide.show_tour_step(ShownTourStep(2, 6, "Undo", "Press Undo."))
    stops = walk(window, Qt.Key.Key_Tab)
    assert {guide.card.leave, guide.card.back, guide.card.next} <= set(stops)
    guide.close_tour_guide()


def test_tab_in_the_models_leads_to_the_two_below_and_back(window: MainWindow) -> None:
    chooser = ModelChooser(window.theme, window.state_file, window)
    chooser.open_below(window.top.model, "")
    seen = []
    for _ in range(3):
        press_where_the_keyboard_is(window, Qt.Key.Key_Tab)
        seen.append(window.focusWidget())
    assert seen == [*chooser._links, chooser.line]
    QTest.keyClick(chooser.line, Qt.Key.Key_Tab)
    press_where_the_keyboard_is(window, Qt.Key.Key_Escape)
    assert chooser.isHidden()
    assert window.isVisible()


def test_tab_leaves_the_button_that_jumps_to_the_end(window: MainWindow) -> None:
    """It stands in the conversation, which took the key for itself."""
    end = window.chat.transcript._end
    end.show()
    end.setFocus()
    QTest.keyClick(end, Qt.Key.Key_Tab)
    assert window.focusWidget() is not end


def test_back_goes_the_same_way_backwards(window: MainWindow) -> None:
    there = walk(window, Qt.Key.Key_Tab)
    back = walk(window, Qt.Key.Key_Backtab)
    assert back == [there[0], *reversed(there[1:])]


def test_the_box_that_finds_everything_keeps_the_keyboard(window: MainWindow) -> None:
    window.window_actions["palette"].trigger()
    for key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
        QTest.keyClick(window.palette_box.line, key)
        assert window.focusWidget() is window.palette_box.line
