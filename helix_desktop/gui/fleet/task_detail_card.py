"""The card below the list of tasks: the chosen task's words, its answer, or what it asks for."""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.changes.folder_state import is_change_of_folder
from helix_desktop.engine.changes.turn_changes import ChangeSource, FileChange
from helix_desktop.engine.ports import AskedProgram
from helix_desktop.gui.common.widgets import (
    build_plain_label,
    build_push_button,
    set_surface_look,
)
from helix_desktop.gui.fleet import fleet_rows
from helix_desktop.gui.fleet.fleet_page_parts import FleetPageParts
from helix_desktop.gui.fleet.fleet_rows import Figures, ListedTask
from helix_desktop.gui.fleet.task_answer_buttons import TaskAnswerButtons
from helix_desktop.gui.fleet.task_answer_view import TaskAnswerView
from helix_desktop.gui.fleet.task_question_view import TaskQuestionView
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr
from helix_desktop.gui.workbench_types import Workbench

LONGEST_TEXT = 1_500  # At most this many characters of a task are shown.
LONGEST_ANSWER = 10_000  # The whole answer stands in the task's conversation.
STOPPED_BY_BUTTON = frozenset(("running", "waiting", "needs_you", "dead_letter"))
ENDED = frozenset(("done", "failed", "cancelled", "dead_letter"))
RUN_AGAIN_BY_BUTTON = frozenset(("failed", "cancelled", "dead_letter"))


class TaskDetailCard(QWidget):
    open_wanted = Signal()
    review_wanted = Signal()
    stop_wanted = Signal()
    retry_wanted = Signal()

    def __init__(self, parts: FleetPageParts, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._parts = parts
        set_surface_look(self, "card")
        self.title = build_plain_label("", "heading", self)
        self.reason = build_plain_label("", "", self)
        self.answer = TaskAnswerView(theme, self)
        # What an ended task changed, and of which task that was read.
        self.changes = build_plain_label("", "muted", self)
        self._changes_are_of = ("", "", "")
        self.question = TaskQuestionView(theme, self)
        self.question.reading_state_changed.connect(self._allow_answers_once_read)
        self.open = build_push_button(tr("Open conversation"), self, self.open_wanted.emit)
        self.review = build_push_button(tr("Review"), self, self.review_wanted.emit)
        self.stop = build_push_button(tr("Stop"), self, self.stop_wanted.emit)
        self.retry = build_push_button(tr("Run again"), self, self.retry_wanted.emit)
        self.answer_buttons = TaskAnswerButtons(
            self._send_answer_to_task, self._allow_for_rest_of_task, self
        )

        head = build_row((self.title, 1), self.open, self.review, self.stop, self.retry, wraps=True)
        answers = self.answer_buttons
        only_rule = (answers.only_rule, 1)
        rule_chooser = (answers.rule_chooser, 1)
        rule_row = build_row(answers.rule_label, only_rule, rule_chooser, spacing=8)
        answers_row = build_row(*answers.buttons, 1, spacing=8, wraps=True)
        build_column(
            head,
            self.reason,
            self.answer,
            self.changes,
            self.question,
            rule_row,
            answers_row,
            owner=self,
            margins=(16, 12, 16, 12),
            spacing=8,
        )

    def show_task(self, row: ListedTask, programs: Sequence[AskedProgram] = ()) -> None:
        """Shows a task, or nothing of an empty row. `programs`: what the command starts that it
        asks for, if that is known.
        """
        task = row.task
        self.title.setText(make_safe_text(task.get("text", "")[:LONGEST_TEXT]))
        reason = ""
        answer = ""
        if task:
            reason = fleet_rows.describe_task_reason(row.state, task)
            answer = task["answer"][:LONGEST_ANSWER]
        self.reason.setText(make_safe_text(reason))
        self.reason.setVisible(bool(reason))
        self.answer.show_answer(answer)
        self.open.setEnabled(bool(task.get("conversation")))
        self._read_changes_of_ended_task(row)
        self._show_question(row, programs)

    def _read_changes_of_ended_task(self, row: ListedTask) -> None:
        """Reads what an ended task changed, once, if its workspace is open here."""
        workspace = row.workspace.get("workspace", "")
        conversation = row.task.get("conversation", "")
        ended_task = (workspace, conversation, row.state)
        if ended_task == self._changes_are_of:
            return
        self._changes_are_of = ended_task
        self._show_changes(ended_task, "")
        if row.state not in ENDED or not conversation:
            return
        for bench in self._parts.desk.opened_workbenches():
            if bench.id == workspace:
                reading = _describe_changes_of_conversation(bench, conversation)
                self._parts.run_work(reading, partial(self._show_changes, ended_task))

    def _show_changes(self, ended_task: tuple[str, str, str], words: str) -> None:
        if ended_task != self._changes_are_of:
            return  # Another task was chosen meanwhile.
        self.changes.setText(words)
        self.changes.setVisible(bool(words))
        self.review.setVisible(bool(words))

    def show_number_of_tasks(self, number: int) -> None:
        """Says how many tasks are selected, as the details of one would not be about all."""
        self.show_task(ListedTask())
        self.title.setText(tr("{n} tasks are selected.", n=f"{number:,}"))

    def show_buttons_for(self, states: set[str]) -> None:
        """Shows the buttons that do something with tasks in these states."""
        self.stop.setVisible(bool(states & STOPPED_BY_BUTTON))
        self.retry.setVisible(bool(states & RUN_AGAIN_BY_BUTTON))

    def _show_question(self, row: ListedTask, programs: Sequence[AskedProgram]) -> None:
        """Shows what a task waits for a person to allow, with the buttons that answer it."""
        if row.state != "needs_you":
            self.answer_buttons.show_question("", {})
            self.question.show_task_request({})
            return
        self.answer_buttons.show_question(row.workspace["workspace"], row.task)
        self.question.show_task_request(row.task, programs)

    def _allow_answers_once_read(self) -> None:
        self.answer_buttons.enable_allowing(self.question.is_read_to_end)

    def run_task_again(self, workspace: str, task: Figures) -> None:
        """Retries a task, which may do no more than before."""
        self._parts.run_work(self._parts.desk.fleet.retry_task(workspace, task["id"], ()))

    def _allow_for_rest_of_task(self, workspace: str, task: Figures, rule: str) -> None:
        allowing = self._parts.desk.fleet.allow_for_rest_of_task(
            workspace, task["id"], task["asked"], rule
        )
        self._parts.run_work(allowing)

    def _send_answer_to_task(
        self, workspace: str, task: Figures, *, allowed: bool, words: str = ""
    ) -> None:
        """Answers the question that a task shows: this very call runs, or is denied."""
        answer = self._parts.desk.fleet.answer_task(
            workspace, task["id"], task["why"], allowed=allowed, words=words
        )
        self._parts.run_work(answer)


async def _describe_changes_of_conversation(bench: Workbench, conversation: str) -> str:
    """Says how many files a conversation has changed, without what was undone since."""
    changes = bench.file_changes_of(conversation)
    sources: list[ChangeSource] = []
    for turn in await changes.turns_with_changes(conversation):
        sources.extend(turn.sources)
    files: list[FileChange] = []
    for file in await changes.file_changes_of_steps(sources):
        if not is_change_of_folder(file.change):
            files.append(file)
    if not files:
        return ""
    words = format_count(len(files), "{n} file changed", "{n} files changed")
    added = sum(file.added for file in files)
    removed = sum(file.removed for file in files)
    if added or removed:
        words += f" +{format_number(added)} −{format_number(removed)}"
    return words
