"""Says below the workspace's name that tasks of the fleet need the user, also while the fleet's own
window is closed.

The lists of tasks are read after a conversation of an open workspace has stopped or asks, and when
the window becomes active: nothing is read while nothing happens, nor with each step of an agent.
"""

from PySide6.QtCore import QEvent, QObject, QTimer

from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.open_workspaces import OpenWorkspaces
from helix_desktop.gui.translation import format_count
from helix_desktop.gui.window_parts import WindowParts

# A task is recorded as needing the user a moment after its conversation has stopped.
LOOK_DELAY_MS = 1_500


class FleetTaskNotice(QObject):
    def __init__(self, parts: WindowParts, frame: WindowFrame, workspaces: OpenWorkspaces) -> None:
        super().__init__(frame)
        self._parts = parts
        self._link = frame.sidebar.tasks_that_need_user
        self._workspaces = workspaces
        self._timer = QTimer(self, interval=LOOK_DELAY_MS, singleShot=True)
        self._timer.timeout.connect(self.read_tasks_that_need_user)
        self._link.clicked.connect(parts.actions["fleet"].trigger)
        workspaces.activity_ended.connect(self._look_soon)
        workspaces.opened.connect(self._look_soon)
        frame.window().installEventFilter(self)

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        """Looks again after a task was answered in the fleet's window or elsewhere."""
        if event.type() is QEvent.Type.WindowActivate and self._workspaces.is_started:
            self._look_soon()
        return False

    def _look_soon(self, *_what_happened: object) -> None:
        if not self._timer.isActive():
            self._timer.start()

    def read_tasks_that_need_user(self) -> None:
        counting = self._workspaces.workbenches.fleet.count_tasks_that_need_user()
        self._parts.run_for_window(counting, then=self._show_number_of_tasks)

    def _show_number_of_tasks(self, number: int) -> None:
        self._link.setText(format_count(number, "{n} task needs you", "{n} tasks need you"))
        self._link.setVisible(number > 0)
