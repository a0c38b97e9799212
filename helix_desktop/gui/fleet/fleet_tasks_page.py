"""The page of the fleet with the tasks of all workspaces, and what can be done with them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QAbstractItemView, QLabel, QSizePolicy, QWidget

from helix_desktop.engine.ports import AskedProgram
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.setting_fields import FieldDeclaration
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.fleet import fleet_rows
from helix_desktop.gui.fleet.fleet_list import FleetColumn, FleetList
from helix_desktop.gui.fleet.fleet_page_parts import FleetPageParts
from helix_desktop.gui.fleet.fleet_rows import Figures, KnownRun, ListedTask
from helix_desktop.gui.fleet.task_detail_card import (
    RUN_AGAIN_BY_BUTTON,
    STOPPED_BY_BUTTON,
    TaskDetailCard,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.translation import tr

WORDS_COLUMN = 1  # Of the list of tasks: as `task_cells` returns them.
NOW_COLUMN = 5
SUMMARY_CARDS = 4  # As many as `summarise_fleet` returns.
UNFINISHED_STATES = frozenset(("running", "waiting", "needs_you"))


@dataclass(frozen=True, slots=True)
class SummaryLabels:
    """The labels of a card above the list of tasks."""

    title: QLabel
    figure: QLabel
    note: QLabel


@dataclass(frozen=True, slots=True)
class AwaitedTask:
    """A task that was just added, and is chosen once the list has it. `text` is empty if none is.

    `keys_before`: the rows of the list before it was added. Another one may have the same text.
    """

    text: str = ""
    keys_before: frozenset[str] = frozenset()


class FleetTasksPage(QWidget):
    """`task_added`: somebody has just given a task, and wants to see what becomes of it."""

    task_added = Signal()

    def __init__(self, parts: FleetPageParts, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._parts = parts
        self._fleet = parts.desk.fleet
        self._theme = theme
        self._workspaces: Sequence[Figures] = ()
        self._tasks: dict[str, ListedTask] = {}
        self._awaited = AwaitedTask()
        # Those a new task can be given to, once they are known.
        self.known_models: Sequence[str] = ()
        self._refused_values: Mapping[str, Any] = {}  # Of the last task, if adding it failed.

        self._summary_labels: list[SummaryLabels] = []
        self.summary_row = self._build_summary_row()
        filter_words = tr("Filter by agent, computer, state or words")
        self.filter = widgets.build_line_edit(filter_words, filter_words, self)
        self.task_list = self._build_task_list()
        self.filter.textChanged.connect(self.task_list.filter_fleet_rows)
        self._older = build_push_button(tr("Show older tasks"), self, self._fleet.show_older_tasks)
        again_label = tr("Run set-aside tasks again")
        self._again = build_push_button(again_label, self, self._retry_all_dead_letters)
        self.example_card = self._build_example_card()
        self.card = TaskDetailCard(parts, theme, self)
        self.card.open_wanted.connect(self._open_chosen_conversation)
        self.card.stop_wanted.connect(self._stop_selected_tasks)
        self.card.review_wanted.connect(self._open_changes_of_chosen_task)
        self.card.retry_wanted.connect(self._retry_selected_tasks)

        room_before = (QWidget(self), 1)
        buttons_row = build_row(room_before, self._again, self._older, spacing=8, wraps=True)
        build_column(
            self.summary_row,
            self.filter,
            (self.task_list, 1),
            self.example_card,
            buttons_row,
            self.card,
            owner=self,
            margins=0,
            spacing=12,
        )

    def _build_summary_row(self) -> QWidget:
        summary_row = QWidget(self)
        cards_row = build_row(owner=summary_row, margins=0, wraps=True)
        for _ in range(SUMMARY_CARDS):
            card = widgets.build_surface(self, "card")
            # The cards are equally high, also where the words of one take two lines.
            card.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
            title = build_plain_label("", "small", self)
            figure = build_plain_label("", "large", self)
            note = build_plain_label("", "faint", self)
            build_column(title, figure, note, owner=card, margins=(14, 10, 14, 10), spacing=2)
            labels = SummaryLabels(title=title, figure=figure, note=note)
            self._summary_labels.append(labels)
            cards_row.addWidget(card, 1)
        return summary_row

    def _build_task_list(self) -> FleetList:
        columns = (
            FleetColumn(tr("State"), 150, is_whole=True),
            FleetColumn(tr("Task"), 0),
            FleetColumn(tr("Workspace"), 130),
            FleetColumn(tr("Agent"), 110),
            FleetColumn(tr("Where"), 130),
            FleetColumn(tr("Result"), 260),
            FleetColumn(tr("Age"), 115, is_whole=True),
            FleetColumn(tr("Cost"), 80, is_figure=True),
        )
        empty_words = tr("Here, several agents work at once, each on a task of its own, while you do something else. A task is a conversation in a workspace. If it needs permission, it waits here for your answer, and its result is shown here. To give an agent work, choose “New task…”.")  # fmt: skip
        task_list = FleetList(tr("Tasks"), columns, self, empty_words)
        task_list.let_words_run_on(WORDS_COLUMN, NOW_COLUMN)
        task_list.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        task_list.currentItemChanged.connect(self._show_selection)
        task_list.itemSelectionChanged.connect(self._show_selection)
        task_list.itemDoubleClicked.connect(self._open_chosen_conversation)
        return task_list

    def _build_example_card(self) -> QWidget:
        """Builds what somebody sees who has not given a task yet: what one can be."""
        example_card = widgets.build_surface(self, "card")
        example = tr("Read the files in this folder, and list what is unclear, out of date or missing. Do not change anything.")  # fmt: skip
        use_example = partial(self.open_new_task_dialog, example)
        texts = widgets.build_surface(example_card, "plain")
        build_column(
            build_plain_label(tr("An example"), "small", texts),
            build_plain_label(example, "", texts),
            owner=texts,
            margins=0,
            spacing=2,
        )
        use = build_push_button(tr("Use this example…"), example_card, use_example)
        build_row(
            (texts, 1), use, owner=example_card, margins=(16, 12, 16, 12), spacing=12, wraps=True
        )
        example_card.hide()  # Until it is known that there is no task.
        return example_card

    # --- What is shown

    def show_tasks_of_fleet(self, workspaces: Sequence[Figures]) -> None:
        self._workspaces = workspaces
        self._tasks = fleet_rows.list_task_rows(workspaces)
        self._show_summary()
        self._show_task_list()
        self._older.setVisible(any(workspace.get("has_older") for workspace in workspaces))
        self._again.setVisible(any(workspace.get("dead_letter") for workspace in workspaces))
        self._show_selection()
        # While there is no task, there is nothing to sum up or to filter.
        self.summary_row.setVisible(bool(self._tasks))
        self.filter.setVisible(bool(self._tasks))
        # A task needs a workspace.
        self.example_card.setVisible(not self._tasks and bool(self._parts.names))

    def has_tasks(self) -> bool:
        return bool(self._tasks)

    def has_tasks_to_stop(self) -> bool:
        """Whether a task runs, would start by itself, or goes on as soon as its question is
        answered.
        """
        return any(row.state in UNFINISHED_STATES for row in self._tasks.values())

    def _show_summary(self) -> None:
        summary = fleet_rows.summarise_fleet(self._workspaces)
        for labels, card in zip(self._summary_labels, summary, strict=True):
            labels.title.setText(card.title)
            labels.figure.setText(card.figure)
            labels.note.setText(card.note)

    def _show_task_list(self) -> None:
        icon_by_state: dict[str, QIcon] = {}
        for state, colour in fleet_rows.DOT_BY_STATE.items():
            icon_by_state[state] = build_icon("dot", self._theme.colour_of_token(colour))
        cells_by_key: dict[str, list[str]] = {}
        icons_by_key: dict[str, QIcon] = {}
        known_runs: dict[str, KnownRun] = {}
        models: Mapping[str, str] = {}
        if self._tasks:
            benches = self._parts.desk.opened_workbenches()
            known_runs = fleet_rows.find_known_runs(benches)
            models = fleet_rows.find_main_models(benches)
        for key, row in self._tasks.items():
            model = models.get(row.workspace["workspace"], "")
            cells_by_key[key] = fleet_rows.task_cells(row, known_runs.get(key), model)
            icons_by_key[key] = icon_by_state[row.state]
        self.task_list.show_rows(cells_by_key, icons_by_key)
        self.task_list.filter_fleet_rows(self.filter.text())
        self._choose_awaited_task()

    def _choose_awaited_task(self) -> None:
        """Chooses the task that was just added: who gives work wants to see what becomes of it."""
        if not self._awaited.text:
            return
        for key, row in self._tasks.items():
            is_new = key not in self._awaited.keys_before
            if is_new and row.task["text"] == self._awaited.text:
                self._awaited = AwaitedTask()
                self._refused_values = {}
                self.task_list.choose_row(key)
                return

    def _show_selection(self) -> None:
        """Shows the chosen task below the list, or how many tasks are selected."""
        chosen = self.chosen_task()
        selected = self._selected_tasks()
        self.card.setVisible(bool(chosen.task))
        selected_states = {row.state for row in selected}
        selected_states.add(chosen.state)
        self.card.show_buttons_for(selected_states)
        if len(selected) > 1:
            self.card.show_number_of_tasks(len(selected))
        else:
            self.card.show_task(chosen, self._list_programs_asked_for(chosen))

    def _list_programs_asked_for(self, row: ListedTask) -> Sequence[AskedProgram]:
        """Returns what the command starts that a task asks for, if its workspace is open here."""
        if row.state != "needs_you" or row.task["asked"] != ToolName.RUN_COMMAND:
            return ()
        _sentence, command = fleet_rows.split_task_question(row.task)
        for bench in self._parts.desk.opened_workbenches():
            if bench.id == row.workspace["workspace"] and command:
                return bench.list_programs_of_command(command)
        return ()

    def chosen_task(self) -> ListedTask:
        return self._tasks.get(self.task_list.chosen_row(), ListedTask())

    def _selected_tasks(self) -> list[ListedTask]:
        selected: list[ListedTask] = []
        for key in self.task_list.selected_row_keys():
            if key in self._tasks:
                selected.append(self._tasks[key])
        return selected

    # --- What is done with tasks

    def open_new_task_dialog(self, text: str = "") -> None:
        """Asks for a task, which begins as `text`. What was written of one that could not be added
        stands there again.
        """
        values_before = {"text": text} | dict(self._refused_values)
        fields: list[FieldDeclaration] = []
        for field in fleet_rows.declare_task_fields(self._parts.names, self.known_models):
            value = values_before.get(field.name, field.value)
            fields.append(replace(field, value=value))
        FieldsDialog(tr("New task"), fields, tr("Add task"), self.add_new_task, self).open()

    def add_new_task(self, values: Mapping[str, Any]) -> None:
        text = values["text"].strip()
        if not text:
            raise InvalidInput("The task has no text.", remedy="Nothing was added.")
        self._awaited = AwaitedTask(text, frozenset(self._tasks))
        self._parts.run_work(self._add_task_or_keep_its_text(dict(values)))
        self.task_added.emit()

    async def _add_task_or_keep_its_text(self, values: Mapping[str, Any]) -> None:
        permissions = values["allowed"].split()
        try:
            await self._fleet.add_task(
                values["workspace"], values["text"].strip(), permissions, values.get("model", "")
            )
        except HelixError:
            # Perhaps it was added, but not begun. Then the list has it soon.
            self._refused_values = values
            raise
        self._refused_values = {}

    def _open_chosen_conversation(self) -> None:
        chosen = self.chosen_task()
        conversation = chosen.task.get("conversation")
        if conversation:
            self._parts.open_conversation(chosen.workspace["workspace"], conversation)

    def _open_changes_of_chosen_task(self) -> None:
        chosen = self.chosen_task()
        conversation = chosen.task.get("conversation")
        if conversation:
            self._parts.open_changes(chosen.workspace["workspace"], conversation)

    def _stop_selected_tasks(self) -> None:
        for row in self._selected_tasks():
            if row.state in STOPPED_BY_BUTTON:
                cancel = methodcaller("cancel_fleet_task", row.task["id"])
                stopping = self._fleet.run_on_task_list(row.workspace["workspace"], cancel)
                self._parts.run_work(stopping)

    def _retry_selected_tasks(self) -> None:
        for row in self._selected_tasks():
            if row.state in RUN_AGAIN_BY_BUTTON:
                self.card.run_task_again(row.workspace["workspace"], row.task)

    def _retry_all_dead_letters(self) -> None:
        for workspace in self._workspaces:
            if workspace.get("dead_letter"):
                retrying = self._fleet.retry_tasks_set_aside(workspace["workspace"])
                self._parts.run_work(retrying)
