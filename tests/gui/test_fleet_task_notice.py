"""The sidebar says that tasks need the user while the fleet's own window is closed."""

from __future__ import annotations

from PySide6.QtWidgets import QApplication

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.fleet_task_notice import FleetTaskNotice
from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeDesk, FakeSession


def test_the_sidebar_says_how_many_tasks_need_the_user(
    window: MainWindow, desk: FakeDesk, session: FakeSession
) -> None:
    (notice,) = window.findChildren(FleetTaskNotice)
    link = window.sidebar.tasks_that_need_user
    assert link.isHidden()

    desk.fleet.tasks_that_need_user = 1
    notice._timer.stop()
    session.set_running(ConversationActivity.THINKING)
    for _ in range(20):
        QApplication.processEvents()
    assert not notice._timer.isActive(), "nothing is read while the agent works"
    session.set_running(ConversationActivity.IDLE)
    for _ in range(20):
        QApplication.processEvents()
    assert notice._timer.isActive(), "something happened in the workspace"
    notice._timer.timeout.emit()
    assert link.isVisible()
    assert link.text() == "1 task needs you"

    desk.fleet.tasks_that_need_user = 0
    notice.read_tasks_that_need_user()
    assert link.isHidden()
