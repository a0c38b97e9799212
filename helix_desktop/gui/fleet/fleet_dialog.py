"""The fleet: tasks and workers of all workspaces, what needs the user, and schedules."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from PySide6.QtGui import QIcon
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QStackedWidget,
    QWidget,
)

from helix_desktop.engine.ports import AskedProgram
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.fleet import fleet_rows
from helix_desktop.gui.fleet.fleet_list import FleetColumn, FleetList
from helix_desktop.gui.fleet.fleet_rows import Figures, KnownRun, ListedTask
from helix_desktop.gui.fleet.task_answer_buttons import TaskAnswerButtons
from helix_desktop.gui.fleet.task_answer_view import TaskAnswerView
from helix_desktop.gui.fleet.task_question_view import TaskQuestionView
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Workbenches
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident.schedules import (
    ScheduleChange,
    WorkSchedule,
    build_schedule,
    parse_days,
    read_schedules,
)

LONGEST_TEXT = 1_500  # At most this many characters of a task are shown.
LONGEST_ANSWER = 10_000  # The whole answer stands in the task's conversation.
MARGINS = (20, 14, 20, 16)
WORDS_COLUMN = 1  # Of the list of tasks: as `task_cells` returns them.
NOW_COLUMN = 5
SUMMARY_CARDS = 4  # As many as `summarise_fleet` returns.
UNFINISHED_STATES = frozenset(("running", "waiting", "needs_you"))
STOPPED_BY_BUTTON = frozenset(("running", "waiting", "needs_you", "dead_letter"))
RUN_AGAIN_BY_BUTTON = frozenset(("failed", "cancelled", "dead_letter"))


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


class FleetDialog(TransientDialog):
    """Lists tasks, conversations, schedules and workers of all workspaces, to watch and to steer.

    `names` maps ids of workspaces to names. `open_conversation` gets a workspace and
    a conversation.
    """

    def __init__(
        self,
        desk: Workbenches,
        names: Mapping[str, str],
        open_conversation: Callable[[str, str], object],
        theme: Theme,
        runner: BackgroundRunner,
        parent: QWidget,
    ) -> None:
        super().__init__(tr("Fleet"), parent, 1240, 760)
        self._desk = desk
        self._fleet = desk.fleet
        self._places = desk.places
        self._names = names
        self._open_conversation = open_conversation
        self._theme = theme
        self._runner = runner
        self._workspaces: Sequence[Figures] = ()
        self._tasks: dict[str, ListedTask] = {}
        self._awaited = AwaitedTask()
        self._schedules: list[WorkSchedule] = []
        self._trouble = build_plain_label("", "danger", self)
        self._pages = QStackedWidget(self)
        self._all = build_push_button(tr("Stop all"), self, self._stop_or_start_all)
        new_task = build_push_button(tr("New task…"), self, self._open_new_task_dialog, "primary")
        new_schedule = build_push_button(tr("New schedule…"), self, self._open_new_schedule_dialog)

        tasks_tab = self._add_tab(tr("Tasks"), self._build_tasks_page())
        tasks_tab.setChecked(True)
        self._conversations_tab = self._add_tab(
            tr("Conversations"), self._build_conversations_page()
        )
        self._schedules_tab = self._add_tab(tr("Schedules"), self._build_schedules_page())
        self._workers_tab = self._add_tab(tr("Computers"), self._build_workers_page())
        tabs = [tasks_tab, self._conversations_tab, self._schedules_tab, self._workers_tab]
        room_between = (QWidget(self), 1)
        bar = build_row(
            *tabs, room_between, self._all, new_schedule, new_task, spacing=8, wraps=True
        )
        build_column(bar, self._trouble, (self._pages, 1), owner=self, margins=MARGINS, spacing=12)

        # The figures are followed until the dialog is closed.
        following = runner.run_in_background(
            self._fleet.follow_fleet(self._show_fleet), failed=self._show_error
        )
        self.finished.connect(lambda _result: following.cancel())
        self._read_and_show_schedules()
        self._task_list.setFocus()

    def _add_tab(self, title: str, page: QWidget) -> QPushButton:
        self._pages.addWidget(page)
        show_page = partial(self._pages.setCurrentWidget, page)
        return build_push_button(title, self, show_page, "tab", checkable=True, autoExclusive=True)

    # --- The page with the list of tasks

    def _build_tasks_page(self) -> QWidget:
        page = QWidget(self)
        self._summary_labels: list[SummaryLabels] = []
        cards: list[QWidget] = []
        for _ in range(SUMMARY_CARDS):
            card = widgets.build_surface(page, "card")
            labels = SummaryLabels(
                title=build_plain_label("", "small", page),
                figure=build_plain_label("", "large", page),
                note=build_plain_label("", "faint", page),
            )
            build_column(
                labels.title,
                labels.figure,
                labels.note,
                owner=card,
                margins=(14, 10, 14, 10),
                spacing=2,
            )
            self._summary_labels.append(labels)
            cards.append(card)

        filter_words = tr("Filter by agent, computer, state or words")
        self._filter = widgets.build_line_edit(filter_words, filter_words, page)
        columns = (
            FleetColumn(tr("State"), 150, is_whole=True),
            FleetColumn(tr("Task"), 0),
            FleetColumn(tr("Workspace"), 130),
            FleetColumn(tr("Agent"), 80),
            FleetColumn(tr("Where"), 130),
            FleetColumn(tr("Now"), 260),
            FleetColumn(tr("Age"), 115, is_whole=True),
            FleetColumn(tr("Cost"), 80, is_figure=True),
        )

        empty_words = tr("Here, agents work on tasks while you do something else. Each task is a conversation in its workspace, and asks you here if it needs permission. To give an agent work, choose “New task…”.")  # fmt: skip
        self._task_list = FleetList(tr("Tasks"), columns, page, empty_words)
        self._task_list.let_words_run_on(WORDS_COLUMN, NOW_COLUMN)
        self._task_list.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self._task_list.currentItemChanged.connect(self._show_chosen_task)
        self._task_list.itemSelectionChanged.connect(self._show_chosen_task)
        self._task_list.itemDoubleClicked.connect(self._open_chosen_conversation)
        self._filter.textChanged.connect(self._task_list.filter_fleet_rows)
        self._summary_row = QWidget(page)
        cards_row = build_row(owner=self._summary_row, margins=0, wraps=True)
        for card in cards:
            cards_row.addWidget(card, 1)

        self._older = build_push_button(tr("Show older tasks"), page, self._fleet.show_older_tasks)
        self._again = build_push_button(
            tr("Run all set aside again"), page, self._retry_all_dead_letters
        )
        room_before = (QWidget(page), 1)
        buttons_row = build_row(room_before, self._again, self._older, spacing=8, wraps=True)
        build_column(
            self._summary_row,
            self._filter,
            (self._task_list, 1),
            buttons_row,
            self._build_task_detail_card(page),
            owner=page,
            margins=0,
            spacing=12,
        )
        return page

    def _build_task_detail_card(self, page: QWidget) -> QWidget:
        card = widgets.build_surface(page, "card")
        self._card = card
        self._title = build_plain_label("", "heading", card)
        self._detail = build_plain_label("", "", card)
        self._answer = TaskAnswerView(self._theme, card)
        self._question = TaskQuestionView(self._theme, card)
        self._question.reading_state_changed.connect(self._allow_answers_once_read)
        self._open = build_push_button(
            tr("Open conversation"), card, self._open_chosen_conversation
        )
        self._stop = build_push_button(tr("Stop"), card, self._stop_selected_tasks)
        self._retry = build_push_button(tr("Run again"), card)
        self._retry.clicked.connect(self._retry_selected_tasks)
        self._answers = TaskAnswerButtons(self._send_answer_to_task, self._retry_task, card)
        head = build_row(
            (self._title, 1),
            self._open,
            self._stop,
            self._retry,
            wraps=True,
        )
        answers_row = build_row(*self._answers.buttons, 1, spacing=8, wraps=True)
        build_column(
            head,
            self._detail,
            self._answer,
            self._question,
            answers_row,
            owner=card,
            margins=(16, 12, 16, 12),
            spacing=8,
        )
        return card

    def _show_fleet(self, workspaces: Sequence[Figures]) -> None:
        self._workspaces = workspaces
        self._tasks = fleet_rows.list_task_rows(workspaces)
        self._show_summary()
        self._show_task_list()
        self._worker_list.show_rows(fleet_rows.list_worker_rows(workspaces))
        conversations = fleet_rows.list_conversation_cells(self._desk.opened_workbenches())
        self._conversation_list.show_rows(conversations)
        if self._is_fleet_stopped():
            self._all.setText(tr("Start again"))
        else:
            self._all.setText(tr("Stop all"))
        self._show_trouble_of_workspaces()
        self._older.setVisible(any(workspace.get("has_older") for workspace in workspaces))
        self._again.setVisible(any(workspace.get("dead_letter") for workspace in workspaces))
        self._show_chosen_task()
        self._update_list_buttons()
        self._show_tabs_in_use()

    def _show_tabs_in_use(self) -> None:
        """Hides what says nothing yet, so that at first there is one page: that of the tasks."""
        has_tasks = bool(self._tasks)
        self._summary_row.setVisible(has_tasks)
        self._filter.setVisible(has_tasks)
        has_work_for_computers = any(map(_has_tasks_for_this_computer, self._workspaces))
        has_computers = bool(self._worker_list.topLevelItemCount()) or has_work_for_computers
        is_used_by_tab = {
            self._conversations_tab: bool(self._conversation_list.topLevelItemCount()),
            self._schedules_tab: bool(self._schedules),
            self._workers_tab: has_computers,
        }
        for tab, is_used in is_used_by_tab.items():
            # The page that is in sight stays, also when its last row goes.
            tab.setVisible(is_used or tab.isChecked())

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
        if self._tasks:
            known_runs = fleet_rows.find_known_runs(self._desk.opened_workbenches())
        for key, row in self._tasks.items():
            cells_by_key[key] = fleet_rows.task_cells(row, known_runs.get(key))
            icons_by_key[key] = icon_by_state[row.state]
        self._task_list.show_rows(cells_by_key, icons_by_key)
        self._task_list.filter_fleet_rows(self._filter.text())
        self._choose_awaited_task()

    def _choose_awaited_task(self) -> None:
        """Chooses the task that was just added: who gives work wants to see what becomes of it."""
        if not self._awaited.text:
            return
        for key, row in self._tasks.items():
            is_new = key not in self._awaited.keys_before
            if is_new and row.task["text"] == self._awaited.text:
                self._awaited = AwaitedTask()
                self._task_list.choose_row(key)
                return

    def _show_trouble_of_workspaces(self) -> None:
        lines: list[str] = []
        for workspace in self._workspaces:
            if "trouble" in workspace:
                trouble = translate_sentences(workspace["trouble"])
                lines.append(f"{workspace['name']}: {trouble}")
        self._show_trouble("\n".join(lines))

    def _is_fleet_stopped(self) -> bool:
        return any(workspace.get("is_stopped") for workspace in self._workspaces)

    def _has_tasks_to_stop(self) -> bool:
        """Whether a task runs, would start by itself, or goes on as soon as its question is
        answered.
        """
        return any(row.state in UNFINISHED_STATES for row in self._tasks.values())

    def _chosen_task(self) -> ListedTask:
        return self._tasks.get(self._task_list.chosen_row(), ListedTask())

    def _show_chosen_task(self) -> None:
        chosen = self._chosen_task()
        selected = self._selected_tasks()
        selected_states = {row.state for row in selected}
        selected_states.add(chosen.state)
        self._card.setVisible(bool(chosen.task))
        self._stop.setVisible(bool(selected_states & STOPPED_BY_BUTTON))
        self._retry.setVisible(bool(selected_states & RUN_AGAIN_BY_BUTTON))
        if len(selected) > 1:
            self._show_details_of_task(ListedTask())
            self._title.setText(tr("{n} tasks are selected.", n=f"{len(selected):,}"))
        else:
            self._show_details_of_task(chosen)

    def _show_details_of_task(self, chosen: ListedTask) -> None:
        """Shows a task's words, why it is in its state, and its answer or what it asks for."""
        task = chosen.task
        self._title.setText(make_safe_text(task.get("text", "")[:LONGEST_TEXT]))
        detail = ""
        answer = ""
        if task:
            reason = fleet_rows.describe_task_reason(chosen.state, task)
            answer = task["answer"][:LONGEST_ANSWER]
            detail = make_safe_text(reason)
        self._detail.setText(detail)
        self._detail.setVisible(bool(detail))
        self._answer.show_answer(answer)
        self._open.setEnabled(bool(task.get("conversation")))
        self._show_question_of_task(chosen)

    def _show_question_of_task(self, chosen: ListedTask) -> None:
        """Shows what a task waits for a person to allow, with the buttons that answer it."""
        if chosen.state != "needs_you":
            self._answers.show_question("", {})
            self._question.show_task_request({})
            return
        workspace = chosen.workspace["workspace"]
        self._answers.show_question(workspace, chosen.task)
        programs: Sequence[AskedProgram] = ()
        if chosen.task["asked"] == ToolName.RUN_COMMAND:
            programs = self._list_programs_of_task(workspace, chosen.task)
        self._question.show_task_request(chosen.task, programs)

    def _list_programs_of_task(self, workspace: str, task: Figures) -> Sequence[AskedProgram]:
        """Returns what the command starts that a task asks for, if its workspace is open here."""
        _sentence, command = fleet_rows.split_task_question(task)
        for bench in self._desk.opened_workbenches():
            if bench.id == workspace and command:
                return bench.list_programs_of_command(command)
        return ()

    def _allow_answers_once_read(self) -> None:
        self._answers.enable_allowing(self._question.is_read_to_end)

    def _open_chosen_conversation(self) -> None:
        chosen = self._chosen_task()
        conversation = chosen.task.get("conversation")
        if conversation:
            self._open_conversation(chosen.workspace["workspace"], conversation)
            self.accept()

    def _selected_tasks(self) -> list[ListedTask]:
        selected: list[ListedTask] = []
        for key in self._task_list.selected_row_keys():
            if key in self._tasks:
                selected.append(self._tasks[key])
        return selected

    def _stop_selected_tasks(self) -> None:
        for row in self._selected_tasks():
            if row.state in STOPPED_BY_BUTTON:
                cancel = methodcaller("cancel_fleet_task", row.task["id"])
                stopping = self._fleet.run_on_task_list(row.workspace["workspace"], cancel)
                self._run_fleet_work(stopping)

    def _retry_selected_tasks(self) -> None:
        for row in self._selected_tasks():
            if row.state in RUN_AGAIN_BY_BUTTON:
                self._retry_task(row.workspace["workspace"], row.task)

    def _retry_all_dead_letters(self) -> None:
        for workspace in self._workspaces:
            if workspace.get("dead_letter"):
                retrying = self._fleet.retry_tasks_set_aside(workspace["workspace"])
                self._run_fleet_work(retrying)

    def _retry_task(self, workspace: str, task: Figures) -> None:
        """Retries a task, which may use what it has asked for from now on."""
        allowed = []
        if task["asked"] and task["state"] == "needs-you":
            allowed.append(task["asked"])
        self._run_fleet_work(self._fleet.retry_task(workspace, task["id"], allowed))

    def _send_answer_to_task(
        self, workspace: str, task: Figures, *, allowed: bool, words: str = ""
    ) -> None:
        """Answers the question that a task shows: this very call runs, or is denied."""
        answer = self._fleet.answer_task(
            workspace, task["id"], task["why"], allowed=allowed, words=words
        )
        self._run_fleet_work(answer)

    def _stop_or_start_all(self) -> None:
        if self._is_fleet_stopped():
            stop_or_start = methodcaller("resume_all_tasks")
        else:
            stop_or_start = methodcaller("pause_all_tasks")
        for workspace in self._workspaces:
            if "trouble" not in workspace:
                work = self._fleet.run_on_task_list(workspace["workspace"], stop_or_start)
                self._run_fleet_work(work)

    def _has_workspace_for_tasks(self) -> bool:
        """Whether there is a workspace. If not, says what to do first."""
        if self._names:
            return True
        self._show_trouble(tr("A task belongs to a workspace, and there is none yet. Close this window and open a folder first."))  # fmt: skip
        return False

    def _open_new_task_dialog(self) -> None:
        if not self._has_workspace_for_tasks():
            return
        fields = fleet_rows.declare_task_fields(self._names)
        FieldsDialog(tr("New task"), fields, tr("Add task"), self._add_new_task, self).open()

    def _add_new_task(self, values: Mapping[str, Any]) -> None:
        text = values["text"].strip()
        if not text:
            raise InvalidInput("The task has no text.", remedy="Nothing was added.")
        permissions = values["allowed"].split()
        self._awaited = AwaitedTask(text, frozenset(self._tasks))
        adding = self._fleet.add_task(values["workspace"], text, permissions)
        self._run_fleet_work(adding)

    # --- The pages with schedules, conversations and workers

    def _build_schedules_page(self) -> QWidget:
        columns = (
            FleetColumn(tr("Time"), 200),
            FleetColumn(tr("Days"), 220),
            FleetColumn(tr("Next run"), 170),
            FleetColumn(tr("Workspace"), 150),
            FleetColumn(tr("Task"), 0),
        )
        empty_words = tr("To give an agent work at set times, choose “New schedule…”.")
        self._schedule_list = FleetList(tr("Schedules"), columns, self, empty_words)
        self._switch = build_push_button(tr("Turn off"), self, self._turn_chosen_schedule_on_or_off)
        self._remove = build_push_button(tr("Remove"), self, self._remove_chosen_schedule)
        buttons = build_row(1, self._switch, self._remove, spacing=8, wraps=True)
        return self._build_list_page(self._schedule_list, buttons)

    def _build_conversations_page(self) -> QWidget:
        columns = (
            FleetColumn(tr("State"), 150, is_whole=True),
            FleetColumn(tr("Conversation"), 0),
            FleetColumn(tr("Workspace"), 130),
            FleetColumn(tr("Agent"), 110),
            FleetColumn(tr("Copy of"), 110),
            FleetColumn(tr("Changed files"), 200),
            FleetColumn(tr("Also changed in other copies"), 260),
            FleetColumn(tr("Cost"), 80, is_whole=True),
        )
        empty_words = tr(
            "Conversations that are running or have their own copy of the repository are listed here."
        )
        self._conversation_list = FleetList(tr("Conversations"), columns, self, empty_words)
        self._conversation_list.itemActivated.connect(self._open_listed_conversation)
        for bench in self._desk.opened_workbenches():
            self._run_fleet_work(bench.copies.refresh_changed_files(""))
        self._show = build_push_button(
            tr("Open conversation"), self, self._open_listed_conversation
        )
        return self._build_list_page(self._conversation_list, build_row(1, self._show))

    def _open_listed_conversation(self) -> None:
        workspace, _blank, conversation = self._conversation_list.chosen_row().partition(" ")
        self._open_conversation(workspace, conversation)
        self.accept()

    def _build_workers_page(self) -> QWidget:
        columns = (
            FleetColumn(tr("Computer"), 260),
            FleetColumn(tr("Workspace"), 180),
            FleetColumn(tr("Tasks"), 100),
            FleetColumn(tr("State"), 0),
        )
        empty_words = tr("Computers appear here while they run tasks.")
        self._worker_list = FleetList(tr("Computers"), columns, self, empty_words)
        self._here = build_push_button(
            tr("Run waiting tasks on this computer"), self, self._run_waiting_tasks_here
        )
        self._drain = build_push_button(
            tr("Finish and exit"), self, self._let_chosen_worker_finish_and_exit
        )
        room_before = (QWidget(self), 1)
        buttons = build_row(room_before, self._here, self._drain, spacing=8, wraps=True)
        return self._build_list_page(self._worker_list, buttons)

    def _build_list_page(self, fleet_list: FleetList, buttons: QHBoxLayout) -> QWidget:
        page = QWidget(self)
        fleet_list.currentItemChanged.connect(self._update_list_buttons)
        build_column((fleet_list, 1), buttons, owner=page, margins=0, spacing=12)
        return page

    def _read_and_show_schedules(self) -> None:
        reading = asyncio.to_thread(read_schedules, self._places.data)
        self._run_fleet_work(reading, self._show_schedules)

    def _show_schedules(self, schedules: list[WorkSchedule]) -> None:
        self._schedules = schedules
        cells_by_id: dict[str, list[str]] = {}
        for schedule in schedules:
            cells_by_id[schedule.id] = fleet_rows.schedule_cells(schedule, self._names)
        self._schedule_list.show_rows(cells_by_id)
        self._update_list_buttons()
        self._show_tabs_in_use()

    def _update_list_buttons(self) -> None:
        """Enables the buttons that apply to the selected rows."""
        self._drain.setEnabled(self._can_chosen_worker_be_drained())
        self._here.setEnabled(any(map(_has_tasks_for_this_computer, self._workspaces)))
        self._show.setEnabled(bool(self._conversation_list.chosen_row()))
        self._all.setEnabled(self._is_fleet_stopped() or self._has_tasks_to_stop())
        schedule = self._chosen_schedule()
        self._switch.setEnabled(schedule is not None)
        self._remove.setEnabled(schedule is not None)
        if schedule is not None and not schedule.is_on:
            self._switch.setText(tr("Turn on"))
        else:
            self._switch.setText(tr("Turn off"))

    def _can_chosen_worker_be_drained(self) -> bool:
        """Draining: the worker takes no more tasks, and exits once it has ended those it has."""
        workspace, _blank, worker = self._worker_list.chosen_row().partition(" ")
        for figures in self._workspaces:
            is_workspace_of_worker = figures["workspace"] == workspace
            if is_workspace_of_worker and worker in figures.get("workers", ()):
                return worker not in figures["draining"]
        return False

    def _chosen_schedule(self) -> WorkSchedule | None:
        chosen_id = self._schedule_list.chosen_row()
        for schedule in self._schedules:
            if schedule.id == chosen_id:
                return schedule
        return None

    def _turn_chosen_schedule_on_or_off(self) -> None:
        chosen_id = self._schedule_list.chosen_row()

        def toggle_chosen(stored: list[WorkSchedule]) -> list[WorkSchedule]:
            changed: list[WorkSchedule] = []
            for schedule in stored:
                if schedule.id == chosen_id:
                    changed.append(schedule.with_on_off_toggled())
                else:
                    changed.append(schedule)
            return changed

        self._save_schedules(toggle_chosen)

    def _remove_chosen_schedule(self) -> None:
        chosen_id = self._schedule_list.chosen_row()

        def remove_chosen(stored: list[WorkSchedule]) -> list[WorkSchedule]:
            return [schedule for schedule in stored if schedule.id != chosen_id]

        self._save_schedules(remove_chosen)

    def _open_new_schedule_dialog(self) -> None:
        if not self._has_workspace_for_tasks():
            return
        fields = fleet_rows.declare_task_fields(self._names) + fleet_rows.declare_schedule_fields()
        words = tr("The task also runs while this window is closed, in a background process that starts when you log in. If the computer is off at that time, the task runs once when it is on again.")  # fmt: skip
        about_window = build_plain_label(words, "muted")
        FieldsDialog(
            tr("New schedule"),
            fields,
            tr("Add schedule"),
            self._add_new_schedule,
            self,
            [about_window],
        ).open()

    def _add_new_schedule(self, values: Mapping[str, Any]) -> None:
        options: list[str] = []
        for permission in values["allowed"].split():
            options += ["--allow", permission]
        new_schedule = build_schedule(
            values["workspace"],
            values["text"],
            values["at"],
            values["zone"],
            parse_days(values["days"]),
            options=tuple(options),
        )

        def add_to_stored(stored: list[WorkSchedule]) -> list[WorkSchedule]:
            return stored + [new_schedule]

        self._save_schedules(add_to_stored)

    def _save_schedules(self, change: ScheduleChange) -> None:
        """Changes the stored schedules, since the shown ones may be out of date."""
        saving = _change_schedules(self._places, change)
        self._run_fleet_work(saving, self._show_saved_schedules)

    def _show_saved_schedules(self, refused: str) -> None:
        self._show_trouble(translate_sentences(refused))
        self._read_and_show_schedules()

    def _let_chosen_worker_finish_and_exit(self) -> None:
        workspace, _blank, worker = self._worker_list.chosen_row().partition(" ")
        draining = self._fleet.run_on_task_list(
            workspace, lambda tasks: tasks.notes.drain_workers(worker)
        )
        self._run_fleet_work(draining)

    def _run_waiting_tasks_here(self) -> None:
        for workspace in self._workspaces:
            if _has_tasks_for_this_computer(workspace):
                self._run_fleet_work(self._fleet.do_tasks_here(workspace["workspace"]))

    def _run_fleet_work(
        self, work: Coroutine[Any, Any, Any], then: Callable[[Any], object] | None = None
    ) -> None:
        self._runner.run_in_background(work, then=then, owner=self, failed=self._show_error)

    def _show_error(self, error: HelixError) -> None:
        self._show_trouble(translate_sentences(str(error)))

    def _show_trouble(self, text: str) -> None:
        self._trouble.setText(text)
        self._trouble.setVisible(bool(text))


def _has_tasks_for_this_computer(workspace: Figures) -> bool:
    """Whether tasks wait for a worker, or have a worker that no longer responds."""
    return bool(workspace.get("lost") or workspace.get("waiting"))


async def _change_schedules(places: ProgramFolders, change: ScheduleChange) -> str:
    from helix_desktop.resident import schedule_changes

    return await schedule_changes.change_schedules(places, change)
