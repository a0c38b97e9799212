"""How much the window shows while nothing happens: its controls and its figures are counted."""

from __future__ import annotations

import re

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QPushButton,
    QTabBar,
    QTextEdit,
    QWidget,
)

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.frame.conversation_list import ConversationList
from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeDesk

MOST_CONTROLS = 14
MOST_FIGURES = 6
# Of these, each row and each word is something of its own.
ROWS_AND_WORDS = (ConversationList,)
KINDS_OF_CONTROLS = (
    QAbstractButton,
    QAbstractSlider,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QTabBar,
    QTextEdit,
)
FIGURE = re.compile(r"\d[\d.,]*")


def controls_in_sight(window: MainWindow) -> list[str]:
    """What a stranger counts who looks at the window: everything in sight that does something when
    it is clicked, the squares of the workspaces too. Not the rows of the list of conversations,
    and not what was said in the conversation.

    "Continue" does not count: it is there because the last turn of the story was stopped.
    """
    named = [
        name_of(widget)
        for widget in window.findChildren(QWidget)
        if is_in_sight(window, widget) and reacts_to_click(widget)
    ]
    return sorted(name for name in named if name != "Continue")


def reacts_to_click(widget: QWidget) -> bool:
    """Whether a click on this widget does something, as far as its class and looks tell."""
    is_passed_through = widget.testAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
    if is_passed_through or not widget.isEnabled() or isinstance(widget, ROWS_AND_WORDS):
        return False
    if isinstance(widget, KINDS_OF_CONTROLS):
        return True
    if isinstance(widget, QLabel) and widget.textFormat() is not Qt.TextFormat.PlainText:
        return "<a " in widget.text()
    is_pointed_at = widget.cursor().shape() is Qt.CursorShape.PointingHandCursor
    return is_pointed_at or hears_the_mouse(type(widget))


def hears_the_mouse(kind: type[QWidget]) -> bool:
    """Whether the program has written what happens when one of these is pressed."""
    handlers = ("mousePressEvent", "mouseReleaseEvent", "mouseDoubleClickEvent")
    return any(
        handler in vars(each)
        for each in kind.__mro__
        if each.__module__.startswith("helix_desktop")
        for handler in handlers
    )


def name_of(control: QWidget) -> str:
    shown = control.text() if isinstance(control, QAbstractButton) else ""
    return control.accessibleName() or shown


def figures_in_sight(window: MainWindow) -> list[str]:
    """Numbers in words of the frame; what was said in the conversation is not the frame's."""
    labels = [each.text() for each in window.findChildren(QLabel) if is_in_sight(window, each)]
    buttons = [
        each.text() for each in window.findChildren(QPushButton) if is_in_sight(window, each)
    ]
    return [figure for words in (*labels, *buttons) for figure in FIGURE.findall(words)]


def is_in_sight(window: MainWindow, widget: QWidget) -> bool:
    place = widget.mapTo(window, QPoint(0, 0))
    return (
        widget.isVisible()
        and window.rect().contains(place)
        and not widget.visibleRegion().isEmpty()
    )


def test_at_rest_the_window_shows_few_controls_and_figures(
    window: MainWindow, desk: FakeDesk
) -> None:
    """With two workspaces, as in the walks of strangers. The fourth control too much was the
    second way to add a workspace, and Send where nothing was written yet.
    """
    desk.benches.pop("infra")
    window.workspaces.refresh_workspaces()
    window.resize(1440, 900)
    QApplication.processEvents()
    # Without a screen, the pointer stays where an earlier test left it, and Qt never
    # lets it leave the sidebar.
    QApplication.sendEvent(window.sidebar, QEvent(QEvent.Type.Leave))
    controls = controls_in_sight(window)
    figures = figures_in_sight(window)
    assert len(controls) <= MOST_CONTROLS, controls
    assert len(figures) <= MOST_FIGURES, figures
    assert len(controls) > MOST_CONTROLS - 4, "the test must see them"
    assert [name for name in controls if name.startswith("Workspace ")] == [
        "Workspace parser",
        "Workspace storage-engine",
    ]
    assert all(controls), "each has a name"


def test_send_stands_there_as_soon_as_there_is_something_to_send(window: MainWindow) -> None:
    composer = window.chat.composer
    QApplication.processEvents()
    height = composer.height()
    assert "Send the message (Enter)" not in controls_in_sight(window)
    QTest.keyClicks(composer.text, "a")
    QApplication.processEvents()
    assert "Send the message (Enter)" in controls_in_sight(window)
    assert composer.height() == height, "what is read above the box stays where it is"
    QTest.keyClick(composer.text, Qt.Key.Key_Backspace)
    assert "Send the message (Enter)" not in controls_in_sight(window)


def test_the_menu_of_the_window_opens_with_the_keyboard_and_does_what_it_says(
    window: MainWindow,
) -> None:
    assert QTest.qWaitForWindowActive(window)
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_F10)
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    offered = [action.text() for action in menu.actions() if not action.isSeparator()]
    assert offered[0] == "Open folder as workspace…"
    assert offered[-1] == "Settings", "nearest to the button"
    submenus = {
        submenu.title(): [line.text() for line in submenu.actions()]
        for submenu in menu.findChildren(QMenu)
    }
    assert "Join a shared workspace…" in submenus["Other ways to a workspace"]
    assert {"Rename…", "Move to trash"} <= set(submenus["This workspace"])
    wanted = QSignalSpy(window.parts.requests.settings_wanted)
    QTest.keyClick(menu, Qt.Key.Key_Up)
    QTest.keyClick(menu, Qt.Key.Key_Return)
    assert wanted.count() == 1
    assert QApplication.activePopupWidget() is None


def test_the_context_opens_above_the_meter_and_closes_again(window: MainWindow) -> None:
    window.resize(1440, 900)
    panel = window.context_panel
    meter = window.chat.composer.context_button
    assert not window.is_side_panel_shown
    meter.click()
    assert panel.isVisible()
    assert panel.geometry().bottom() < meter.mapTo(window, QPoint(0, 0)).y()
    assert window.rect().contains(panel.geometry())
    while "Next message" not in panel.figures.all_text():  # a busy machine draws it in parts
        QApplication.processEvents()
    assert "System and tools" in panel.figures.all_text()
    assert panel.figures.all_text().count("Next message") == 1, "its row has said it twice"
    link = next(
        each for each in panel.findChildren(QPushButton) if each.text() == "As a side panel"
    )
    link.click()
    assert not panel.isVisible()
    assert window.is_side_panel_shown
    close = next(
        each for each in window.pages.inspector.findChildren(QPushButton) if each.text() == "✕"
    )
    close.click()
    assert not window.is_side_panel_shown


@pytest.mark.parametrize("width", [880, 1024, 1440])
@pytest.mark.parametrize("running", [ConversationActivity.IDLE, ConversationActivity.THINKING])
def test_the_meter_opens_the_context_at_twice_the_size_too(
    window: MainWindow, width: int, running: ConversationActivity
) -> None:
    """There was no room for it beside the buttons, and the panel opened only with Ctrl+K."""
    window.theme.set_zoom(2.0)
    window.resize(width, 900)
    window.chat.composer.show_run_state(running)
    QApplication.processEvents()
    meter = window.chat.composer.context_button
    assert is_in_sight(window, meter)
    meter.click()
    assert window.context_panel.isVisible()
    assert window.rect().contains(window.context_panel.geometry()), "its links are at the bottom"
    assert is_in_sight(window, window.context_panel.fold_link)


def test_at_twice_the_size_a_window_of_800_and_wider_shows_the_meter(window: MainWindow) -> None:
    """With other fonts, one pixel was missing at 880, and none was left for a bar
    before "+ Attach" got shorter.
    """
    window.theme.set_zoom(2.0)
    meter = window.chat.composer.context_button
    for width in range(1024, 799, -8):
        window.resize(width, 900)
        QApplication.processEvents()
        assert is_in_sight(window, meter), f"at {window.width()}"


def test_the_policy_is_chosen_in_the_panel_where_its_words_are_explained(
    window: MainWindow,
) -> None:
    window.window_actions["policy"].trigger()
    panel = window.context_panel
    assert panel.isVisible()
    menu = QApplication.activePopupWidget()
    assert menu is not None
    menu.close()
    panel.policy.chosen.emit("none")
    assert panel.policy.text() == "Leave everything ▾"
    assert any("Shortens nothing" in each.text() for each in panel.findChildren(QLabel))
