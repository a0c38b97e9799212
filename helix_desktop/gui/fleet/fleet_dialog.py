"""The fleet: tasks and workers of all workspaces, what needs the user, and schedules."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from PySide6.QtWidgets import QAbstractItemView, QHBoxLayout, QPushButton, QStackedWidget, QWidget

from helix_desktop.engine.ports import AskedProgram
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.fleet import fleet_rows
from helix_desktop.gui.fleet.fleet_list import FleetColumn, FleetList
from helix_desktop.gui.fleet.fleet_rows import Figures, ListedTask
from helix_desktop.gui.fleet.task_answer_buttons import TaskAnswerButtons
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

LONGEST_TEXT = 1_500  # At most this many characters of a task and of its answer are shown.
MARGINS = (20, 14, 20, 16)
STOPPED_BY_BUTTON = frozenset(("running", "waiting", "needs_you", "dead_letter"))
RUN_AGAIN_BY_BUTTON = frozenset(("failed", "cancelled", "dead_letter"))


class FleetDialog(TransientDialog):
    """`names` maps ids of workspaces to names. `open_conversation` gets a workspace and
    a conversation.
    """

    def __init__(
        self,
        desk: Workbenches,
        names: Mapping[str, str],
        open_conversation: Callable[[str, str], object],
        theme: Theme,
        doing: BackgroundRunner,
        parent: QWidget,
    ) -> None:
        super().__init__(tr("Fleet"), parent, 1240, 760)
        self._desk = desk
        self._fleet = desk.fleet
        self._places = desk.places
        self._names = names
        self._open_conversation = open_conversation
        self._theme = theme
        self._doing = doing
        self._found: Sequence[Figures] = ()
        self._tasks: dict[str, ListedTask] = {}
        self._schedules: list[WorkSchedule] = []
        self._trouble = build_plain_label("", "danger", self)
        self._pages = QStackedWidget(self)
        self._all = build_push_button(tr("Stop all"), self, self._stop_or_start_all)
        new = build_push_button(tr("New task…"), self, self._open_new_task_dialog, "primary")
        tabs = [
            self._add_tab(tr("Tasks"), self._build_tasks_page()),
            self._add_tab(tr("Conversations"), self._build_conversations_page()),
            self._add_tab(tr("Schedules"), self._build_schedules_page()),
            self._add_tab(tr("Workers"), self._build_workers_page()),
        ]
        tabs[0].setChecked(True)
        bar = build_row(*tabs, (QWidget(self), 1), self._all, new, spacing=8, wraps=True)
        build_column(bar, self._trouble, (self._pages, 1), owner=self, margins=MARGINS, spacing=12)
        following = doing.run_in_background(
            self._fleet.follow_fleet(self._show_fleet), failed=self._show_error
        )
        self.finished.connect(lambda _result: following.cancel())
        self._read_and_show_schedules()
        self._task_list.setFocus()

    def _add_tab(self, words: str, page: QWidget) -> QPushButton:
        self._pages.addWidget(page)
        act = partial(self._pages.setCurrentWidget, page)
        return build_push_button(words, self, act, "tab", checkable=True, autoExclusive=True)

    # --- The page with the list of tasks

    def _build_tasks_page(self) -> QWidget:
        page = QWidget(self)
        self._figures = [
            [build_plain_label("", look, page) for look in ("small", "large", "faint")]
            for _ in range(4)
        ]
        cards = [widgets.build_surface(page, "card") for _ in self._figures]
        for card, labels in zip(cards, self._figures, strict=True):
            build_column(*labels, owner=card, margins=(14, 10, 14, 10), spacing=2)
        words = tr("Filter by agent, computer, state or words")
        self._filter = widgets.build_line_edit(words, words, page)
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
        words = tr("To give an agent work, choose “New task…”.")
        self._task_list = FleetList(tr("Tasks"), columns, page, words)
        self._task_list.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self._task_list.currentItemChanged.connect(lambda _now, _before: self._show_chosen_task())
        self._task_list.itemSelectionChanged.connect(self._show_chosen_task)
        self._task_list.itemDoubleClicked.connect(
            lambda _item, _column: self._open_chosen_conversation()
        )
        self._filter.textChanged.connect(self._task_list.filter_fleet_rows)
        row = build_row(*((card, 1) for card in cards), wraps=True)
        self._older = build_push_button(tr("Show older tasks"), page, self._fleet.show_older_tasks)
        self._again = build_push_button(
            tr("Run all set aside again"), page, self._retry_all_dead_letters
        )
        more = build_row((QWidget(page), 1), self._again, self._older, spacing=8, wraps=True)
        detail = self._build_task_detail_card(page)
        below = row, self._filter, (self._task_list, 1), more, detail
        build_column(*below, owner=page, margins=0, spacing=12)
        return page

    def _build_task_detail_card(self, page: QWidget) -> QWidget:
        card = widgets.build_surface(page, "card")
        self._card = card
        self._title = build_plain_label("", "heading", card)
        self._detail = build_plain_label("", "", card)
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
            *self._answers.buttons,
            wraps=True,
        )
        build_column(
            head, self._detail, self._question, owner=card, margins=(16, 12, 16, 12), spacing=8
        )
        return card

    def _show_fleet(self, found: Sequence[Figures]) -> None:
        self._found = found
        self._tasks = fleet_rows.list_task_rows(found)
        self._show_summary()
        self._show_task_list()
        self._worker_list.show_rows(fleet_rows.list_worker_rows(found))
        conversations = fleet_rows.list_conversation_cells(self._desk.opened_workbenches())
        self._conversation_list.show_rows(conversations)
        words = tr("Stop all")
        if self._is_fleet_stopped():
            words = tr("Start again")
        self._all.setText(words)
        self._show_trouble_of_workspaces()
        self._older.setVisible(any(one.get("has_older") for one in found))
        self._again.setVisible(any(one.get("dead_letter") for one in found))
        self._show_chosen_task()
        self._update_list_buttons()

    def _show_summary(self) -> None:
        summary = fleet_rows.summarise_fleet(self._found)
        for labels, card in zip(self._figures, summary, strict=True):
            title, figure, note = labels
            title.setText(card.title)
            figure.setText(card.figure)
            note.setText(card.note)

    def _show_task_list(self) -> None:
        dot_by_state = {}
        for state, token in fleet_rows.DOT_BY_STATE.items():
            dot_by_state[state] = build_icon("dot", self._theme.colour_of_token(token))
        cells = {}
        dots = {}
        for key, row in self._tasks.items():
            cells[key] = fleet_rows.task_cells(row)
            dots[key] = dot_by_state[row.state]
        self._task_list.show_rows(cells, dots)
        self._task_list.filter_fleet_rows(self._filter.text())

    def _show_trouble_of_workspaces(self) -> None:
        lines = []
        for workspace in self._found:
            if "trouble" in workspace:
                trouble = translate_sentences(workspace["trouble"])
                lines.append(f"{workspace['name']}: {trouble}")
        self._show_trouble("\n".join(lines))

    def _is_fleet_stopped(self) -> bool:
        return any(one.get("is_stopped") for one in self._found)

    def _chosen_task(self) -> ListedTask:
        return self._tasks.get(self._task_list.chosen_row(), ListedTask())

    def _show_chosen_task(self) -> None:
        chosen = self._chosen_task()
        task = chosen.task
        self._card.setVisible(bool(task))
        self._title.setText(make_safe_text(task.get("text", "")[:LONGEST_TEXT]))
        lines = []
        if task:
            lines.append(fleet_rows.describe_task_reason(chosen.state, task))
            lines.append(task["answer"][:LONGEST_TEXT])
        detail = make_safe_text("\n".join(line for line in lines if line))
        self._detail.setText(detail)
        self._detail.setVisible(bool(detail))
        self._open.setEnabled(bool(task.get("conversation")))
        selected_states = {row.state for row in self._selected_tasks()}
        selected_states.add(chosen.state)
        self._stop.setVisible(bool(selected_states & STOPPED_BY_BUTTON))
        self._retry.setVisible(bool(selected_states & RUN_AGAIN_BY_BUTTON))
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
        _, command = fleet_rows.split_task_question(task)
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
        keys = self._task_list.selected_row_keys()
        return [self._tasks[key] for key in keys if key in self._tasks]

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
        for workspace in self._found:
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
        act = methodcaller("pause_all_tasks")
        if self._is_fleet_stopped():
            act = methodcaller("resume_all_tasks")
        for workspace in self._found:
            if "trouble" not in workspace:
                acting = self._fleet.run_on_task_list(workspace["workspace"], act)
                self._run_fleet_work(acting)

    def _open_new_task_dialog(self) -> None:
        def add(values: Mapping[str, Any]) -> None:
            text = values["text"].strip()
            if not text:
                raise InvalidInput("The task has no text.", remedy="Nothing was added.")
            allowed = values["allowed"].split()
            adding = self._fleet.add_task(values["workspace"], text, allowed)
            self._run_fleet_work(adding)

        fields = fleet_rows.declare_task_fields(self._names)
        FieldsDialog(tr("New task"), fields, tr("Add task"), add, self).open()

    # --- The pages with schedules, conversations and workers

    def _build_schedules_page(self) -> QWidget:
        columns = (
            FleetColumn(tr("Time"), 200),
            FleetColumn(tr("Days"), 220),
            FleetColumn(tr("Next run"), 170),
            FleetColumn(tr("Workspace"), 150),
            FleetColumn(tr("Task"), 0),
        )
        words = tr("To give an agent work at set times, choose “New schedule…”.")
        self._schedule_list = FleetList(tr("Schedules"), columns, self, words)
        new = build_push_button(tr("New schedule…"), self, self._open_new_schedule_dialog)
        self._switch = build_push_button(tr("Turn off"), self, self._turn_chosen_schedule_on_or_off)
        self._remove = build_push_button(tr("Remove"), self, self._remove_chosen_schedule)
        buttons = build_row(new, 1, self._switch, self._remove, spacing=8, wraps=True)
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
        about = tr(
            "Conversations that are running or have their own copy of the repository are listed here."
        )
        self._conversation_list = FleetList(tr("Conversations"), columns, self, about)
        self._conversation_list.itemActivated.connect(
            lambda _item, _column: self._open_listed_conversation()
        )
        for bench in self._desk.opened_workbenches():
            self._run_fleet_work(bench.copies.refresh_changed_files(""))
        self._show = build_push_button(
            tr("Open conversation"), self, self._open_listed_conversation
        )
        return self._build_list_page(self._conversation_list, build_row(1, self._show))

    def _open_listed_conversation(self) -> None:
        workspace, _, conversation = self._conversation_list.chosen_row().partition(" ")
        self._open_conversation(workspace, conversation)
        self.accept()

    def _build_workers_page(self) -> QWidget:
        columns = (
            FleetColumn(tr("Worker"), 260),
            FleetColumn(tr("Workspace"), 180),
            FleetColumn(tr("Tasks"), 100),
            FleetColumn(tr("State"), 0),
        )
        about = tr("Workers appear here while they run tasks.")
        self._worker_list = FleetList(tr("Workers"), columns, self, about)
        self._here = build_push_button(
            tr("Run waiting tasks on this computer"), self, self._run_waiting_tasks_here
        )
        self._drain = build_push_button(
            tr("Finish and exit"), self, self._let_chosen_worker_finish_and_exit
        )
        gap = (QWidget(self), 1)
        buttons = build_row(gap, self._here, self._drain, spacing=8, wraps=True)
        return self._build_list_page(self._worker_list, buttons)

    def _build_list_page(self, shown: FleetList, below: QHBoxLayout) -> QWidget:
        page = QWidget(self)
        shown.currentItemChanged.connect(lambda _now, _before: self._update_list_buttons())
        build_column((shown, 1), below, owner=page, margins=0, spacing=12)
        return page

    def _read_and_show_schedules(self) -> None:
        def show_schedules(known: list[WorkSchedule]) -> None:
            self._schedules = known
            cells = {}
            for schedule in known:
                cells[schedule.id] = fleet_rows.schedule_cells(schedule, self._names)
            self._schedule_list.show_rows(cells)
            self._update_list_buttons()

        reading = asyncio.to_thread(read_schedules, self._places.data)
        self._run_fleet_work(reading, show_schedules)

    def _update_list_buttons(self) -> None:
        """Enables the buttons that apply to the selected rows."""
        self._drain.setEnabled(self._can_chosen_worker_be_drained())
        has_tasks = any(_has_tasks_for_this_computer(workspace) for workspace in self._found)
        self._here.setEnabled(has_tasks)
        self._show.setEnabled(bool(self._conversation_list.chosen_row()))
        self._all.setEnabled(any("trouble" not in one for one in self._found))
        schedule = self._chosen_schedule()
        self._switch.setEnabled(schedule is not None)
        self._remove.setEnabled(schedule is not None)
        words = tr("Turn off")
        if schedule is not None and not schedule.is_on:
            words = tr("Turn on")
        self._switch.setText(words)

    def _can_chosen_worker_be_drained(self) -> bool:
        workspace, _, worker = self._worker_list.chosen_row().partition(" ")
        for one in self._found:
            if one["workspace"] == workspace and worker in one.get("workers", ()):
                return worker not in one["draining"]
        return False

    def _chosen_schedule(self) -> WorkSchedule | None:
        chosen = self._schedule_list.chosen_row()
        for schedule in self._schedules:
            if schedule.id == chosen:
                return schedule
        return None

    def _turn_chosen_schedule_on_or_off(self) -> None:
        chosen = self._schedule_list.chosen_row()

        def toggle_chosen(known: list[WorkSchedule]) -> list[WorkSchedule]:
            wanted = []
            for schedule in known:
                if schedule.id == chosen:
                    wanted.append(schedule.with_on_off_toggled())
                else:
                    wanted.append(schedule)
            return wanted

        self._save_schedules(toggle_chosen)

    def _remove_chosen_schedule(self) -> None:
        chosen = self._schedule_list.chosen_row()

        def remove_chosen(known: list[WorkSchedule]) -> list[WorkSchedule]:
            return [schedule for schedule in known if schedule.id != chosen]

        self._save_schedules(remove_chosen)

    def _open_new_schedule_dialog(self) -> None:
        def add(values: Mapping[str, Any]) -> None:
            when = values["at"], values["zone"], parse_days(values["days"])
            options = tuple(
                word for what in values["allowed"].split() for word in ("--allow", what)
            )
            made = build_schedule(values["workspace"], values["text"], *when, options=options)
            self._save_schedules(lambda known: [*known, made])

        fields = fleet_rows.declare_task_fields(self._names) + fleet_rows.declare_schedule_fields()
        FieldsDialog(tr("New schedule"), fields, tr("Add schedule"), add, self).open()

    def _save_schedules(self, change: ScheduleChange) -> None:
        """Changes the stored schedules, since the shown ones may be out of date."""

        def show_saved(refused: str) -> None:
            self._show_trouble(translate_sentences(refused))
            self._read_and_show_schedules()

        self._run_fleet_work(_change_schedules(self._places, change), show_saved)

    def _let_chosen_worker_finish_and_exit(self) -> None:
        workspace, _, worker = self._worker_list.chosen_row().partition(" ")
        self._run_fleet_work(
            self._fleet.run_on_task_list(workspace, lambda tasks: tasks.notes.drain_workers(worker))
        )

    def _run_waiting_tasks_here(self) -> None:
        for one in self._found:
            if _has_tasks_for_this_computer(one):
                self._run_fleet_work(self._fleet.do_tasks_here(one["workspace"]))

    def _run_fleet_work(
        self, work: Coroutine[Any, Any, Any], then: Callable[[Any], object] | None = None
    ) -> None:
        self._doing.run_in_background(work, then=then, owner=self, failed=self._show_error)

    def _show_error(self, error: HelixError) -> None:
        self._show_trouble(translate_sentences(str(error)))

    def _show_trouble(self, text: str) -> None:
        self._trouble.setText(text)
        self._trouble.setVisible(bool(text))


def _has_tasks_for_this_computer(one: Figures) -> bool:
    return bool(one.get("lost") or one.get("waiting"))


async def _change_schedules(places: ProgramFolders, change: ScheduleChange) -> str:
    from helix_desktop.resident import schedule_changes

    return await schedule_changes.change_schedules(places, change)
