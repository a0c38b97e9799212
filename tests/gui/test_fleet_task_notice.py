"""The sidebar says that tasks need the user while the fleet's own window is closed."""

from __future__ import annotations

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
    workspaces = window.workspaces
    activity = workspaces.shown_activity
    workspaces.state_changed.emit(activity, session.id, ConversationActivity.THINKING)
    assert not notice._timer.isActive(), "nothing is read while an agent works"
    workspaces.activity_ended.emit(activity.bench.id, session.id, ConversationActivity.IDLE, "")
    assert notice._timer.isActive(), "something happened in the workspace"
    notice._timer.timeout.emit()
    assert link.isVisible()
    assert link.text() == "1 task needs you"

    desk.fleet.tasks_that_need_user = 0
    notice.read_tasks_that_need_user()
    assert link.isHidden()
