from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QInputDialog, QMessageBox

from helix_desktop.gui.main_window import MainWindow
from tests.gui import story
from tests.gui.fake_desk import FakeSession, FakeWorkbench
from tests.gui.test_main_window import COMMAND, titles


def test_a_conversation_in_the_trash_comes_back_with_undo(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    window.window_actions["trash"].trigger()
    assert bench.rows[story.CONVERSATION].trashed
    assert "Extract the lock manager" not in titles(window)
    assert window.current_session is None
    window.notices.run_notice_action()
    assert "Extract the lock manager" in titles(window)


def test_pin_archive_and_rename(window: MainWindow, bench: FakeWorkbench) -> None:
    window.window_actions["pin"].trigger()
    assert titles(window)[0] == "Pinned"
    window.window_actions["archive"].trigger()
    assert "Extract the lock manager" not in titles(window)
    window.notices.run_notice_action()
    window.window_actions["rename"].trigger()
    dialog = window.findChildren(QInputDialog)[-1]
    dialog.setTextValue("Locks")
    dialog.accept()
    assert bench.rows[story.CONVERSATION].title == "Locks"


def test_a_fork_is_opened(window: MainWindow) -> None:
    window.window_actions["fork"].trigger()
    assert window.current_session is not None
    assert window.current_session.id == "fork-1"


def test_ctrl_page_keys_walk_the_conversations(window: MainWindow) -> None:
    window.window_actions["next"].trigger()
    assert window.current_session is not None
    assert window.current_session.id == "flaky"
    window.window_actions["previous"].trigger()
    assert window.current_session.id == story.CONVERSATION


def test_a_key_leads_to_the_next_conversation_that_waits(
    window: MainWindow, session: FakeSession, bench: FakeWorkbench
) -> None:
    go = window.window_actions["next-waiting"].trigger
    go()
    assert window.showing.conversation_id == story.CONVERSATION
    window.sides.go_to_conversation("flaky")
    bench.sessions["flaky"].ask(COMMAND)
    session.ask(COMMAND)
    seen = []
    for _ in range(3):
        window.workspaces.shown_activity._bridge.emit_waiting_events()
        go()
        seen.append(window.showing.conversation_id)
    assert seen == [story.CONVERSATION, "flaky", story.CONVERSATION]


@pytest.mark.parametrize("agent", ["", "Claude Code"])
def test_deleting_speaks_of_an_agents_files_only_if_an_agent_wrote_the_conversation(
    window: MainWindow, bench: FakeWorkbench, agent: str
) -> None:
    bench.rows["flaky"] = replace(bench.rows["flaky"], recorded_from=agent, trashed=True)
    window.sidebar.conversation_action_wanted.emit("delete", "flaky")
    text = window.findChildren(QMessageBox)[-1].text()
    assert ("the recorder saves only what is new" in text) is bool(agent)


def test_the_trash_of_conversations_is_emptied_after_a_question(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    for key in (
        ("draft", bench.id, "flaky"),
        ("place", bench.id, "flaky"),
        ("draft", bench.id, "new"),
    ):
        window.state_file.remember_value(*key, value=[1, 2])
    window.sidebar.conversation_action_wanted.emit("trash", "flaky")
    window.sidebar.show_conversations_in("trashed")
    empty = window.sidebar.empty_trash_link
    QTest.mouseClick(empty, Qt.MouseButton.LeftButton)
    box = window.findChildren(QMessageBox)[0]
    assert "1 conversation in the trash will be deleted permanently" in box.text()
    assert "flaky" in bench.rows
    next(each for each in box.buttons() if each.text() == "Delete permanently").click()
    assert "flaky" not in bench.rows
    assert window.notices.shown_text == "1 conversation deleted, 5.0 MB freed."
    assert [path for path in window.state_file._values if "flaky" in path] == [], (
        "nothing of it is remembered"
    )
    assert window.state_file.get_remembered("draft", bench.id, "new", default=list[int]()) == [1, 2]
    assert not empty.isVisible()
