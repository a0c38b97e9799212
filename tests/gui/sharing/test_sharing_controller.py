from __future__ import annotations

from dataclasses import replace

from PySide6.QtWidgets import QLabel, QPushButton

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.workbench.conversation_sharing import SharingStatus
from tests.gui.fake_desk import FakeWorkbench


def state(window: MainWindow) -> str:
    shown = [
        b.text()
        for b in window.sidebar.findChildren(QPushButton)
        if b.text().startswith("Shared") and not b.isHidden()
    ]
    return " ".join(shown)


def test_the_workspaces_line_says_how_it_stands(window: MainWindow, bench: FakeWorkbench) -> None:
    assert state(window) == ""
    bench.sharing.stand(SharingStatus("in step"))
    assert state(window) == "Shared: in sync"
    bench.sharing.stand(SharingStatus("waiting", 1_212))
    assert state(window) == "Shared: 1,212 changes to send"
    bench.sharing.stand(
        SharingStatus("refused", why="The shared store is full. Make room on its disk.")
    )
    assert state(window) == "Shared: needs your attention"
    bench.sharing.stand(SharingStatus())
    assert state(window) == ""


def test_where_another_computer_writes_there_is_no_composer_until_the_user_continues_here(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    session = window.current_session
    assert session is not None
    bench.sharing.writing[session.id] = "laptop"
    bench.rows[session.id] = replace(bench.rows[session.id], machine="laptop")
    bench.sharing.stand(SharingStatus("in step"))
    assert window.chat.composer.isHidden()
    said = " ".join(label.text() for label in window.chat.foreign.findChildren(QLabel))
    assert "laptop is working in this conversation" in said
    assert not window.chat.turn_end_help.isVisible()
    window.chat.foreign.button.click()
    assert not window.chat.composer.isHidden()
    assert window.chat.foreign.isHidden()
    assert window.current_session is session  # the same conversation, no copy of it


def test_the_turn_of_a_connected_agent_is_not_offered_to_be_taken_up(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    session = window.current_session
    assert session is not None
    bench.rows[session.id] = replace(bench.rows[session.id], agent="Claude Code")
    bench.sharing.stand(SharingStatus("in step"))
    assert window.chat.composer.isHidden()
    assert window.chat.turn_end_help.elsewhere


def test_a_store_that_is_away_is_told_and_the_user_can_write(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    session = window.current_session
    assert session is not None
    bench.sharing.refusing = "The shared store is not responding."
    bench.sharing.writing[session.id] = "laptop"
    bench.sharing.stand(SharingStatus("away", 3, 1_000_000.0))
    window.chat.foreign.button.click()
    assert not window.chat.composer.isHidden()
    assert "is not responding" in window.notices.shown_text


def test_a_branch_is_told_once(window: MainWindow, bench: FakeWorkbench) -> None:
    session = window.current_session
    assert session is not None
    branch = next(name for name in bench.rows if name != session.id)
    bench.sharing.synced_sessions.branch_by_conversation[session.id] = branch
    bench.sharing.stand(SharingStatus("in step"))
    assert bench.rows[branch].title in window.notices.shown_text
    window.notices.hide()
    bench.sharing.stand(SharingStatus("waiting", 1))
    assert window.notices.isHidden()
