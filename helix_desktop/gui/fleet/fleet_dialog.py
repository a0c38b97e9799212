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
from helix_desktop.gui.fleet.fleet_rows import Figures
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
        self._tasks: dict[str, tuple[str, Figures, Figures]] = {}
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
        card = self._card = widgets.build_surface(page, "card")
        self._title, self._detail = (
            build_plain_label("", "heading", card),
            build_plain_label("", "", card),
        )
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
        self._all.setText(tr("Start again") if self._is_fleet_stopped() else tr("Stop all"))
        self._show_trouble_of_workspaces()
        self._older.setVisible(any(one.get("has_older") for one in found))
        self._again.setVisible(any(one.get("dead_letter") for one in found))
        self._show_chosen_task()
        self._update_list_buttons()

    def _show_summary(self) -> None:
        summary = fleet_rows.summarise_fleet(self._found)
        for labels, words in zip(self._figures, summary, strict=True):
            for label, text in zip(labels, words, strict=True):
                label.setText(text)

    def _show_task_list(self) -> None:
        dot_by_state = {}
        for state, token in fleet_rows.DOT_BY_STATE.items():
            dot_by_state[state] = build_icon("dot", self._theme.colour_of_token(token))
        cells = {}
        dots = {}
        for key, (state, one, task) in self._tasks.items():
            cells[key] = fleet_rows.task_cells(state, one, task)
            dots[key] = dot_by_state[state]
        self._task_list.show_rows(cells, dots)
        self._task_list.filter_fleet_rows(self._filter.text())

    def _show_trouble_of_workspaces(self) -> None:
        lines = []
        for one in self._found:
            if "trouble" in one:
                lines.append(f"{one['name']}: {translate_sentences(one['trouble'])}")
        self._show_trouble("\n".join(lines))

    def _is_fleet_stopped(self) -> bool:
        return any(one.get("is_stopped") for one in self._found)

    def _chosen_task(self) -> tuple[str, Figures, Figures]:
        return self._tasks.get(self._task_list.chosen_row(), ("", {}, {}))

    def _show_chosen_task(self) -> None:
        state, one, task = self._chosen_task()
        self._card.setVisible(bool(task))
        self._title.setText(make_safe_text(task.get("text", "")[:LONGEST_TEXT]))
        why = fleet_rows.describe_task_reason(state, task) if task else ""
        words = filter(None, (why, task.get("answer", "")[:LONGEST_TEXT]))
        detail = make_safe_text("\n".join(words))
        self._detail.setText(detail)
        self._detail.setVisible(bool(detail))
        self._open.setEnabled(bool(task.get("conversation")))
        selected = {state for state, _, _ in self._selected_tasks()} | {state}
        self._stop.setVisible(bool(selected & STOPPED_BY_BUTTON))
        self._retry.setVisible(bool(selected & RUN_AGAIN_BY_BUTTON))
        waiting = task if state == "needs_you" else {}
        self._answers.show_question(one.get("workspace", ""), waiting)
        programs: Sequence[AskedProgram] = ()
        if waiting and task.get("asked") == ToolName.RUN_COMMAND:
            programs = self._list_programs_of_task(one["workspace"], task)
        self._question.show_task_request(waiting, programs)

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
        _, one, task = self._chosen_task()
        if task.get("conversation"):
            self._open_conversation(one["workspace"], task["conversation"])
            self.accept()

    def _selected_tasks(self) -> list[tuple[str, Figures, Figures]]:
        return [
            self._tasks[key] for key in self._task_list.selected_row_keys() if key in self._tasks
        ]

    def _stop_selected_tasks(self) -> None:
        for state, one, task in self._selected_tasks():
            if state in STOPPED_BY_BUTTON:
                cancel = methodcaller("cancel_fleet_task", task["id"])
                self._run_fleet_work(self._fleet.run_on_task_list(one["workspace"], cancel))

    def _retry_selected_tasks(self) -> None:
        for state, one, task in self._selected_tasks():
            if state in RUN_AGAIN_BY_BUTTON:
                self._retry_task(one["workspace"], task)

    def _retry_all_dead_letters(self) -> None:
        for one in self._found:
            if one.get("dead_letter"):
                self._run_fleet_work(self._fleet.retry_tasks_set_aside(one["workspace"]))

    def _retry_task(self, workspace: str, task: Figures) -> None:
        """Retries a task, which may use what it has asked for from now on."""
        allowed = [task["asked"]] if task["asked"] and task["state"] == "needs-you" else []
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
        is_stopped = self._is_fleet_stopped()
        for one in self._found:
            if "trouble" not in one:
                act = methodcaller("resume_all_tasks" if is_stopped else "pause_all_tasks")
                self._run_fleet_work(self._fleet.run_on_task_list(one["workspace"], act))

    def _open_new_task_dialog(self) -> None:
        def add(values: Mapping[str, Any]) -> None:
            if not (words := values["text"].strip()):
                raise InvalidInput("The task has no text.", remedy="Nothing was added.")
            self._run_fleet_work(
                self._fleet.add_task(values["workspace"], words, values["allowed"].split())
            )

        FieldsDialog(
            tr("New task"), fleet_rows.declare_task_fields(self._names), tr("Add task"), add, self
        ).open()

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
        return self._build_list_page(
            self._schedule_list,
            build_row(new, 1, self._switch, self._remove, spacing=8, wraps=True),
        )

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
        self._worker_list = FleetList(
            tr("Workers"), columns, self, tr("Workers appear here while they run tasks.")
        )
        self._here = build_push_button(
            tr("Run waiting tasks on this computer"), self, self._run_waiting_tasks_here
        )
        self._drain = build_push_button(
            tr("Finish and exit"), self, self._let_chosen_worker_finish_and_exit
        )
        return self._build_list_page(
            self._worker_list,
            build_row((QWidget(self), 1), self._here, self._drain, spacing=8, wraps=True),
        )

    def _build_list_page(self, shown: FleetList, below: QHBoxLayout) -> QWidget:
        page = QWidget(self)
        shown.currentItemChanged.connect(lambda _now, _before: self._update_list_buttons())
        build_column((shown, 1), below, owner=page, margins=0, spacing=12)
        return page

    def _read_and_show_schedules(self) -> None:
        def show_schedules(found: list[WorkSchedule]) -> None:
            self._schedules = found
            self._schedule_list.show_rows(
                {one.id: fleet_rows.schedule_cells(one, self._names) for one in found}
            )
            self._update_list_buttons()

        self._run_fleet_work(asyncio.to_thread(read_schedules, self._places.data), show_schedules)

    def _update_list_buttons(self) -> None:
        """Enables the buttons that apply to the selected rows."""
        self._drain.setEnabled(self._can_chosen_worker_be_drained())
        self._here.setEnabled(any(map(_has_tasks_for_this_computer, self._found)))
        self._show.setEnabled(bool(self._conversation_list.chosen_row()))
        self._all.setEnabled(any("trouble" not in one for one in self._found))
        schedule = self._chosen_schedule()
        self._switch.setEnabled(schedule is not None)
        self._remove.setEnabled(schedule is not None)
        is_off = schedule is not None and not schedule.is_on
        self._switch.setText(tr("Turn on") if is_off else tr("Turn off"))

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
        self._save_schedules(
            lambda known: [one.with_on_off_toggled() if one.id == chosen else one for one in known]
        )

    def _remove_chosen_schedule(self) -> None:
        chosen = self._schedule_list.chosen_row()
        self._save_schedules(lambda known: [one for one in known if one.id != chosen])

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
