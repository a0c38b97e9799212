"""A key is lent to another computer from the window, and taken back."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import HelixError
from helix_desktop.gui.main_window import MainWindow
from tests.gui import story
from tests.gui.fake_desk import FakeDesk, FakeSession
from tests.gui.test_main_window import click_way
from tests.gui.test_open_folder_elsewhere_dialog import FakeConnections
from tests.gui.test_workspace_line import WorkspaceElsewhere


@pytest.fixture
def connections(window: MainWindow, desk: FakeDesk) -> FakeConnections:
    connections = FakeConnections(desk, WorkspaceElsewhere(window.current_workbench))
    window.workspaces.set_workspaces_and_start(desk, connections)
    window.workspaces.bring_to_front(connections.workspace)
    window.sides.go_to_conversation(story.CONVERSATION)
    return connections


@pytest.fixture
def session(window: MainWindow, connections: FakeConnections) -> FakeSession:
    session: FakeSession = connections.workspace.sessions[story.CONVERSATION]
    session.set_running(ConversationActivity.TOOLS)
    window.key_lending.show_key_of_conversation()
    return session


def press(window: MainWindow, label: str) -> str:
    """Presses the link below the workspace's name, and a button of the question that follows.
    Returns the question.
    """
    window.sidebar.key_link.click()
    return answer(window, label)


def answer(window: MainWindow, label: str) -> str:
    question = click_way(window, label)
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    return question


def test_it_is_offered_only_while_an_agent_works_on_another_computer(
    window: MainWindow, session: FakeSession, connections: FakeConnections
) -> None:
    assert window.sidebar.key_link.text() == "Let it go on alone…"
    assert window.sidebar.key_line.isHidden()
    connections.workspace.line.computer = ""
    window.key_lending.show_key_of_conversation()
    assert window.sidebar.key_link.isHidden()
    connections.workspace.line.computer = "buildbox"
    session.set_running(ConversationActivity.IDLE)
    window.key_lending.show_key_of_conversation()
    assert window.sidebar.key_link.isHidden()


def test_a_key_is_lent_after_a_question_and_taken_back_with_a_press(
    window: MainWindow, session: FakeSession, connections: FakeConnections
) -> None:
    question = press(window, "Cancel")
    assert "for this conversation alone" in question
    assert "Whoever controls buildbox can read the key" in question
    assert connections.workspace.keys_by_conversation == {}
    press(window, "Lend the key")
    assert list(connections.workspace.keys_by_conversation) == [story.CONVERSATION]
    assert "buildbox holds your key for " in window.sidebar.key_line.text()
    assert window.sidebar.key_link.text() == "Take the key back"
    window.sidebar.key_link.click()
    assert connections.workspace.keys_by_conversation == {}
    assert window.sidebar.key_line.isHidden()
    assert window.sidebar.key_link.text() == "Let it go on alone…"


def test_why_it_was_not_lent_is_said(
    window: MainWindow, session: FakeSession, connections: FakeConnections
) -> None:
    connections.trouble = HelixError("The key was not lent.", remedy="Look.")
    press(window, "Lend the key")
    assert "The key was not lent." in window.notices.shown_text
    assert window.sidebar.key_line.isHidden()
    assert window.sidebar.key_link.text() == "Let it go on alone…"


def test_a_key_that_another_window_lent_is_shown(
    window: MainWindow, session: FakeSession, connections: FakeConnections
) -> None:
    connections.workspace.keys_by_conversation[story.CONVERSATION] = "<b>far</b>"
    connections.workspace.tell_changed_settings()
    assert "holds your key for <b>far</b>" in window.sidebar.key_line.text()
    window.workspaces.go_to_workspace("storage-engine")
    assert window.sidebar.key_line.isHidden()
    assert window.sidebar.key_link.isHidden()


def test_who_quits_is_asked_whether_the_agent_gets_a_key_or_waits(
    window: MainWindow, session: FakeSession, connections: FakeConnections
) -> None:
    window.workspaces.activity_by_workspace["ssh-elsewhere"]._bridge.emit_waiting_events()
    ends: list[str] = []

    def quit_with(label: str) -> None:
        window.quit_or_ask(lambda: ends.append(label), lambda: None)
        answer(window, label)

    quit_with("Cancel")
    assert ends == []
    quit_with("Let it wait")
    assert ends == ["Let it wait"]
    assert connections.workspace.keys_by_conversation == {}
    connections.trouble = HelixError("The key was not lent.")
    quit_with("Lend the key and quit")
    assert ends == ["Let it wait"], "it would wait, though the user wanted it to go on"
    connections.trouble = None
    quit_with("Lend the key and quit")
    assert ends == ["Let it wait", "Lend the key and quit"]
    window.quit_or_ask(lambda: ends.append("at once"), lambda: None)
    assert ends[-1] == "at once"
