"""The question about how a new conversation begins."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QPushButton

from helix_desktop.gui.conversation_starting import WaysToBeginDialog
from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeWorkbench


def test_one_question_offers_all_other_ways_to_begin(window: MainWindow) -> None:
    """A copy took two questions, the first with a title that was cut off. Then one question with
    four buttons asked about two unlike things.
    """
    window.window_actions["new-with"].trigger()
    (question,) = window.findChildren(WaysToBeginDialog)
    assert question.windowTitle() == "New conversation"
    from_top = sorted(question.findChildren(QPushButton), key=lambda button: button.y())
    buttons = {button.text(): button for button in from_top}
    assert list(buttons) == [
        "Start with Codex",
        "Start with Gemini CLI",
        "Other agents…",
        "Copy of the last commit",
        "Copy with my uncommitted changes",
        "Cancel",
    ]
    copies = buttons["Copy of the last commit"], buttons["Copy with my uncommitted changes"]
    assert copies[0].y() > buttons["Start with Gemini CLI"].y(), "each thing has a line of its own"
    before = window.current_session
    buttons["Copy of the last commit"].click()
    assert not question.isVisible()
    opened = [dialog for dialog in window.findChildren(QDialog) if dialog.isVisible()]
    assert opened == [], "nothing else is asked"
    assert window.current_session is not before


def test_an_agent_is_started_by_one_press_where_few_are_known(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    """One choice took two dialogs, also with one agent."""
    bench.acp.names = ("Tiny",)
    window.window_actions["new-with"].trigger()
    (question,) = window.findChildren(WaysToBeginDialog)
    (start,) = [
        button
        for button in question.findChildren(QPushButton)
        if button.text() == "Start with Tiny"
    ]
    start.click()
    assert window.current_session is not None
    assert bench.sessions[window.current_session.id].conversation.state.acp_agent == "Tiny"


def test_one_of_many_agents_is_chosen_next(window: MainWindow, bench: FakeWorkbench) -> None:
    bench.acp.names = ("A", "B", "C", "D")
    window.window_actions["new-with"].trigger()
    (question,) = window.findChildren(WaysToBeginDialog)
    (choose,) = [
        button for button in question.findChildren(QPushButton) if "agent" in button.text()
    ]
    choose.click()
    (asked,) = [dialog for dialog in window.findChildren(QDialog) if dialog.isVisible()]
    assert asked.windowTitle() == "New conversation with another agent"
