"""The question about how a new conversation begins."""

from __future__ import annotations

from PySide6.QtWidgets import QMessageBox

from helix_desktop.gui.main_window import MainWindow


def test_one_question_offers_all_other_ways_to_begin(window: MainWindow) -> None:
    """A copy took two questions, the first with a title that was cut off."""
    window.window_actions["new-with"].trigger()
    (question,) = window.findChildren(QMessageBox)
    assert question.windowTitle() == "New conversation"
    labels = [button.text() for button in question.buttons()]
    assert {
        "Copy of the last commit",
        "Copy with my uncommitted changes",
        "Another agent",
    } < set(labels)
    before = window.current_session
    button = next(each for each in question.buttons() if each.text() == "Copy of the last commit")
    button.click()
    assert window.findChildren(QMessageBox) == [question], "nothing else is asked"
    assert window.current_session is not before
