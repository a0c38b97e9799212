"""The page of the fleet with the computers that run tasks."""

from collections.abc import Sequence

from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.widgets import build_push_button
from helix_desktop.gui.fleet import fleet_rows
from helix_desktop.gui.fleet.fleet_list import FleetColumn, FleetList
from helix_desktop.gui.fleet.fleet_page_parts import FleetPageParts
from helix_desktop.gui.fleet.fleet_rows import Figures
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.translation import tr


class FleetComputersPage(QWidget):
    def __init__(self, parts: FleetPageParts, parent: QWidget) -> None:
        super().__init__(parent)
        self._parts = parts
        self._fleet = parts.desk.fleet
        self._workspaces: Sequence[Figures] = ()
        columns = (
            FleetColumn(tr("Computer"), 260),
            FleetColumn(tr("Workspace"), 180),
            FleetColumn(tr("Tasks"), 100),
            FleetColumn(tr("State"), 0),
        )
        empty_words = tr("Computers appear here while they run tasks.")
        self.worker_list = FleetList(tr("Computers"), columns, self, empty_words)
        self.worker_list.currentItemChanged.connect(self.enable_buttons_for_computer)
        run_label = tr("Run waiting tasks on this computer")
        self.run_here = build_push_button(run_label, self, self._run_waiting_tasks_here)
        drain_label = tr("Finish and exit")
        self.drain = build_push_button(drain_label, self, self._let_chosen_worker_finish_and_exit)
        room_before = (QWidget(self), 1)
        buttons = build_row(room_before, self.run_here, self.drain, spacing=8, wraps=True)
        build_column((self.worker_list, 1), buttons, owner=self, margins=0, spacing=12)

    def show_computers_of_fleet(self, workspaces: Sequence[Figures]) -> None:
        self._workspaces = workspaces
        self.worker_list.show_rows(fleet_rows.list_worker_rows(workspaces))
        self.enable_buttons_for_computer()

    def has_computers(self) -> bool:
        """Whether computers run tasks, or this one could."""
        has_tasks_for_this_one = any(map(_has_tasks_for_this_computer, self._workspaces))
        return bool(self.worker_list.topLevelItemCount()) or has_tasks_for_this_one

    def enable_buttons_for_computer(self) -> None:
        self.drain.setEnabled(self._can_chosen_worker_be_drained())
        self.run_here.setEnabled(any(map(_has_tasks_for_this_computer, self._workspaces)))

    def _can_chosen_worker_be_drained(self) -> bool:
        """Draining: the worker takes no more tasks, and exits once it has ended those it has."""
        workspace, _blank, worker = self.worker_list.chosen_row().partition(" ")
        for figures in self._workspaces:
            is_workspace_of_worker = figures["workspace"] == workspace
            if is_workspace_of_worker and worker in figures.get("workers", ()):
                return worker not in figures["draining"]
        return False

    def _let_chosen_worker_finish_and_exit(self) -> None:
        workspace, _blank, worker = self.worker_list.chosen_row().partition(" ")
        draining = self._fleet.run_on_task_list(
            workspace, lambda tasks: tasks.notes.drain_workers(worker)
        )
        self._parts.run_work(draining)

    def _run_waiting_tasks_here(self) -> None:
        for workspace in self._workspaces:
            if _has_tasks_for_this_computer(workspace):
                self._parts.run_work(self._fleet.do_tasks_here(workspace["workspace"]))


def _has_tasks_for_this_computer(workspace: Figures) -> bool:
    """Whether tasks wait for a worker, or have a worker that no longer responds."""
    return bool(workspace.get("lost") or workspace.get("waiting"))
