"""The fleet: tasks and workers of all workspaces, what needs the user, and schedules."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from PySide6.QtWidgets import QPushButton, QStackedWidget, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.fleet.fleet_computers_page import FleetComputersPage
from helix_desktop.gui.fleet.fleet_conversations_page import FleetConversationsPage
from helix_desktop.gui.fleet.fleet_page_parts import FleetPageParts
from helix_desktop.gui.fleet.fleet_rows import Figures
from helix_desktop.gui.fleet.fleet_schedules_page import FleetSchedulesPage
from helix_desktop.gui.fleet.fleet_tasks_page import FleetTasksPage
from helix_desktop.gui.model_setup_port import ModelChoice
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Workbenches

MARGINS = (20, 14, 20, 16)


class FleetDialog(TransientDialog):
    """Lists tasks, conversations, schedules and workers of all workspaces, to watch and to steer.

    `names` maps ids of workspaces to names. `list_models` returns those that a task can be given to.
    """

    def __init__(
        self,
        desk: Workbenches,
        names: Mapping[str, str],
        open_place: Callable[[WindowPlace], object],
        theme: Theme,
        runner: BackgroundRunner,
        parent: QWidget,
        list_models: Callable[[], Coroutine[Any, Any, Sequence[ModelChoice]]] | None = None,
    ) -> None:
        super().__init__(tr("Fleet"), parent, 1240, 760)
        self._fleet = desk.fleet
        self._names = names
        self._open_place = open_place
        self._runner = runner
        self._workspaces: Sequence[Figures] = ()
        self._why_refused = ""  # Why the last thing that was asked for failed, until the next one.
        self.trouble = build_plain_label("", "danger", self)
        self.pages = QStackedWidget(self)
        open_conversation = partial(self._open_place_and_close, "conversation")
        open_changes = partial(self._open_place_and_close, "changes")
        parts = FleetPageParts(desk, names, open_conversation, open_changes, self._run_fleet_work)
        self.tasks_page = FleetTasksPage(parts, theme, self)
        self.conversations_page = FleetConversationsPage(parts, self)
        self.schedules_page = FleetSchedulesPage(parts, self.show_trouble, self)
        self.schedules_page.schedules_shown.connect(self.show_tabs_in_use)
        self.computers_page = FleetComputersPage(parts, self)

        self.tasks_tab = self._add_tab(tr("Tasks"), self.tasks_page)
        self.tasks_tab.setChecked(True)
        self.tasks_page.task_added.connect(self.tasks_tab.click)
        self.conversations_tab = self._add_tab(tr("Conversations"), self.conversations_page)
        self.schedules_tab = self._add_tab(tr("Schedules"), self.schedules_page)
        self.schedules_page.schedule_added.connect(self.schedules_tab.click)
        self.computers_tab = self._add_tab(tr("Computers"), self.computers_page)
        self.stop_all = build_push_button(tr("Stop all"), self, self._stop_or_start_all)
        new_schedule = build_push_button(tr("New schedule…"), self, self._open_new_schedule_dialog)
        new_task = build_push_button(tr("New task…"), self, self._open_new_task_dialog, "primary")
        self._tabs = (
            self.tasks_tab,
            self.conversations_tab,
            self.schedules_tab,
            self.computers_tab,
        )
        room_between = (QWidget(self), 1)
        bar = build_row(
            *self._tabs, room_between, self.stop_all, new_schedule, new_task, spacing=8, wraps=True
        )
        build_column(bar, self.trouble, (self.pages, 1), owner=self, margins=MARGINS, spacing=12)
        for tab in self._tabs:
            tab.hide()
        self.stop_all.hide()

        # The figures are followed until the dialog is closed.
        figures = self._fleet.follow_fleet(self.show_fleet)
        following = runner.run_in_background(figures, failed=self._show_error)
        self.finished.connect(lambda _result: following.cancel())
        if list_models is not None:
            runner.run_in_background(list_models(), then=self._offer_models, owner=self)
        self.schedules_page.read_and_show_schedules()
        self.tasks_page.task_list.setFocus()

    def _offer_models(self, models: Sequence[ModelChoice]) -> None:
        self.tasks_page.known_models = [model.name for model in models]

    def _add_tab(self, title: str, page: QWidget) -> QPushButton:
        self.pages.addWidget(page)
        show_page = partial(self.pages.setCurrentWidget, page)
        return build_push_button(title, self, show_page, "tab", checkable=True, autoExclusive=True)

    # --- What is shown

    def show_fleet(self, workspaces: Sequence[Figures]) -> None:
        self._workspaces = workspaces
        self.tasks_page.show_tasks_of_fleet(workspaces)
        self.computers_page.show_computers_of_fleet(workspaces)
        self.conversations_page.show_conversations()
        self._update_trouble()
        self._show_what_stop_all_does()
        self.show_tabs_in_use()

    def show_tabs_in_use(self) -> None:
        """Shows the tabs, all at once, as soon as one of the pages has something: one that comes
        later moves the others. At first there is one page, that of the tasks.
        """
        is_in_use = (
            self.tasks_page.has_tasks()
            or self.conversations_page.has_conversations()
            or self.schedules_page.has_schedules()
            or self.computers_page.has_computers()
        )
        # What was in sight stays, also when the last row goes.
        if is_in_use:
            for tab in self._tabs:
                tab.show()

    def _show_what_stop_all_does(self) -> None:
        is_stopped = self._is_fleet_stopped()
        if is_stopped:
            self.stop_all.setText(tr("Start again"))
        else:
            self.stop_all.setText(tr("Stop all"))
        self.stop_all.setEnabled(is_stopped or self.tasks_page.has_tasks_to_stop())
        self.stop_all.setVisible(is_stopped or self.tasks_page.has_tasks())

    def show_trouble(self, text: str) -> None:
        """Shows why something was refused. It stays until something else is asked for."""
        self._why_refused = text
        self._update_trouble()

    def _show_error(self, error: HelixError) -> None:
        self.show_trouble(translate_sentences(str(error)))

    def _update_trouble(self) -> None:
        lines: list[str] = []
        for workspace in self._workspaces:
            if "trouble" in workspace:
                trouble = translate_sentences(workspace["trouble"])
                lines.append(f"{workspace['name']}: {trouble}")
        if self._why_refused:
            lines.append(self._why_refused)
        self.trouble.setText("\n".join(lines))
        self.trouble.setVisible(bool(lines))

    # --- What the buttons do

    def _is_fleet_stopped(self) -> bool:
        return any(workspace.get("is_stopped") for workspace in self._workspaces)

    def _stop_or_start_all(self) -> None:
        if self._is_fleet_stopped():
            stop_or_start = methodcaller("resume_all_tasks")
        else:
            stop_or_start = methodcaller("pause_all_tasks")
        for workspace in self._workspaces:
            if "trouble" not in workspace:
                work = self._fleet.run_on_task_list(workspace["workspace"], stop_or_start)
                self._run_fleet_work(work)

    def _open_new_task_dialog(self) -> None:
        if self._has_workspace_for_tasks():
            self.tasks_page.open_new_task_dialog()

    def _open_new_schedule_dialog(self) -> None:
        if self._has_workspace_for_tasks():
            self.schedules_page.open_new_schedule_dialog()

    def _has_workspace_for_tasks(self) -> bool:
        """Whether there is a workspace. If not, says what to do first."""
        if self._names:
            return True
        self.show_trouble(tr("A task belongs to a workspace, and there is none yet. Close this window and open a folder first."))  # fmt: skip
        return False

    def _open_place_and_close(self, kind: str, workspace: str, conversation: str) -> None:
        self._open_place(WindowPlace(kind, workspace, conversation))
        self.accept()

    def _run_fleet_work(
        self, work: Coroutine[Any, Any, Any], then: Callable[[Any], object] | None = None, /
    ) -> None:
        self.show_trouble("")
        self._runner.run_in_background(work, then=then, owner=self, failed=self._show_error)
