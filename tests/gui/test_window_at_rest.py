"""How much the window shows while nothing happens: its controls and its figures are counted."""

from __future__ import annotations

import re

import pytest
from PySide6.QtCore import QEvent, QPoint
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QSlider,
    QTextEdit,
    QWidget,
)

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.frame.workspace_rail import WorkspaceButton
from helix_desktop.gui.main_window import MainWindow

MOST_CONTROLS = 14
MOST_FIGURES = 6
FIGURE = re.compile(r"\d[\d.,]*")


def controls_in_sight(window: MainWindow) -> list[str]:
    """What can be pressed or written in, without the rows of workspaces and conversations.

    "Continue" does not count: it is there because the last turn of the story was stopped.
    """
    kinds = (QAbstractButton, QLineEdit, QTextEdit, QPlainTextEdit, QComboBox, QSlider)
    found = [
        each for kind in kinds for each in window.findChildren(kind) if is_in_sight(window, each)
    ]
    named = [name_of(each) for each in found if not isinstance(each, WorkspaceButton)]
    return sorted(name for name in named if name != "Continue")


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


def test_at_rest_the_window_shows_few_controls_and_figures(window: MainWindow) -> None:
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
    assert all(controls), "each has a name"


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
        each for each in panel.findChildren(QPushButton) if each.text() == "Open as a side panel"
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
