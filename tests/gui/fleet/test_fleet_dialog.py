"""The fleet in the window: what is shown of figures as `fleet status --json` prints
them, and what its buttons ask for.
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtGui import QFont, QFontInfo, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QComboBox,
    QInputDialog,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from helix_desktop import program_folders
from helix_desktop.engine.facts import ModelRole, ModelSet
from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.ports import AskedProgram
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import NotFound
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.consent_difference_view import ExactDifferenceView
from helix_desktop.gui.common.consent_text_view import ExactTextView
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.dialogs_and_notifications import DialogsAndNotifications
from helix_desktop.gui.fleet.fleet_dialog import FleetDialog
from helix_desktop.gui.fleet.fleet_list import LEAST_WIDTH
from helix_desktop.gui.fleet.fleet_rows import (
    ListedTask,
    find_known_runs,
    find_main_models,
    list_worker_rows,
    task_cells,
)
from helix_desktop.gui.fleet.task_answer_view import MOST_HEIGHT
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.theme import Theme
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident import schedule_changes, schedules
from helix_desktop.resident.schedules import WorkSchedule
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    task_as_json,
)
from helix_desktop.tools.permission import ActionEffect, ToolAction, list_asked_programs
from tests.gui import fake_desk
from tests.gui.fake_changes import FakeChanges
from tests.gui.fake_setup import SONNET, FakeInstallation, FakeSetup
from tests.gui.stand_in import StandIn
from tests.turns import qt_works


def task(
    number: int, state: str, *, worker: str = "", claims: int = 1, **result: Any
) -> dict[str, Any]:
    order = FleetTaskOrder(f"Task {number}")
    made = FleetTask(f"{number:020x}", FleetTaskState(state), 0, number, worker, claims, 0.0, order)
    return {**task_as_json(made), **asdict(FleetTaskResult(**result))}


def replace_text(listed: dict[str, Any], text: str) -> dict[str, Any]:
    return {**listed, "text": text}


FOUND: list[dict[str, Any]] = [
    {
        "workspace": "w1", "name": "Thesis", "is_stopped": False, "cost": 1.5, "lost": ["old 1.1"], "draining": [], "unable": [],
        "tasks": {"waiting": 2, "running": 2, "needs-you": 1, "done": 7, "failed": 1, "cancelled": 0},
        "workers": {"build 2.1": 1, "old 1.1": 1}, "budgets": {"workspace": {"limit": 50.0, "spent": 1.5}},
        "running": [task(2, "running", worker="build 2.1", why="Nobody could be asked."), task(1, "running", worker="old 1.1", claims=2)],
        "needs_you": [task(3, "needs-you", why="Nobody could be asked.", asked="run_command", rules=("head *",))],
        "waiting": [task(5, "waiting", claims=0), task(4, "waiting", claims=0)],
        "failed": [task(6, "failed", why="It broke.", cost=0.25, asked="run_command")],
    },
    {"workspace": "w2", "name": "Site", "trouble": "The shared store does not answer."},
]  # fmt: skip


class Fleet(StandIn):
    """Says what it is given, and keeps what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    async def follow_fleet(self, show: Callable[[Sequence[Any]], object]) -> None:
        show(FOUND)

    async def run_on_task_list(
        self, workspace: str, work: Callable[[Any], Awaitable[object]]
    ) -> bool:
        await work(Changes(workspace, self.asked))
        return True

    async def add_task(
        self, workspace: str, text: str, allowed: Sequence[str], model: str = ""
    ) -> None:
        self.asked.append(("add", workspace, text, tuple(allowed), *filter(None, [model])))

    async def answer_task(
        self, workspace: str, task: str, why: str, *, allowed: bool, words: str = ""
    ) -> None:
        self.asked.append(("answer", workspace, task, why, allowed, words))

    async def retry_task(self, workspace: str, task: str, allowed: Sequence[str]) -> None:
        self.asked.append(("retry", workspace, task, tuple(allowed)))

    async def allow_for_rest_of_task(
        self, workspace: str, task: str, asked: str, rule: str
    ) -> None:
        self.asked.append(("allow", workspace, task, asked, rule))

    async def retry_tasks_set_aside(self, workspace: str) -> None:
        self.asked.append(("retry dead letters", workspace))

    def show_older_tasks(self) -> None:
        self.asked.append(("older",))

    async def do_tasks_here(self, workspace: str) -> None:
        self.asked.append(("here", workspace))


class Changes:
    """A list of tasks that keeps what is asked of it."""

    def __init__(self, workspace: str, asked: list[tuple[object, ...]]) -> None:
        self._workspace = workspace
        self._asked = asked
        self.notes = self

    async def cancel_fleet_task(self, name: str) -> None:
        self._asked.append(("cancel", self._workspace, name))

    async def pause_all_tasks(self) -> None:
        self._asked.append(("stop all", self._workspace))

    async def drain_workers(self, worker: str) -> None:
        self._asked.append(("drain", self._workspace, worker))


@dataclass
class Bench(StandIn):
    """Two conversations that work in copies, one of them running, and one at rest in
    the folders themselves.
    """

    id: str = "w1"
    name: str = "Thesis"

    def __post_init__(self) -> None:
        self.copies = self.sessions = self.models = self
        self.overlaps = {"c1": {"/p/a.py": ["c2"]}}
        self.changed = {"c1": ("/p/a.py", "/p/b.py")}
        self.read: list[str] = []
        self.file_changes = FakeChanges()

    def list_conversations(self) -> list[Row]:
        return [
            Row("c1", "One", 0, copy="main", acp_agent="Codex", cost=0.5),
            Row("c2", "Two", 0, copy="main"),
            Row("c3", "Three", 0),
        ]

    def model_facts(self) -> list[ModelSet]:
        return [ModelSet(ModelRole.MAIN, "ollama/qwen", 32_000)]

    def find_open_session(self, conversation: str) -> Any:
        running = ConversationActivity.ASKING if conversation == "c1" else ConversationActivity.IDLE
        return SimpleNamespace(running=running)

    def file_changes_of(self, conversation: str) -> FakeChanges:
        return self.file_changes

    async def refresh_changed_files(self, name: str) -> None:
        self.read.append(name)

    def list_programs_of_command(self, command: str) -> tuple[AskedProgram, ...]:
        action = ToolAction("run_command", ActionEffect.RUN, "", command, command=command)
        return list_asked_programs(action, ())


class IdleBench(Bench):
    def list_conversations(self) -> list[Row]:
        return []


class EmptyFleet(Fleet):
    async def follow_fleet(self, show: Callable[[Sequence[Any]], object]) -> None:
        show([])


@dataclass
class Desk(StandIn):
    places: ProgramFolders
    fleet: Fleet = field(default_factory=Fleet)
    bench: Bench = field(default_factory=Bench)

    def opened_workbenches(self) -> list[Bench]:
        return [self.bench]


@pytest.fixture
def places(tmp_path: Path) -> ProgramFolders:
    where = program_folders.find_program_folders(tmp_path / "home")
    where.data.mkdir(parents=True)
    schedules.write_schedules(
        where.data, [WorkSchedule("s1", "w1", "Summarise", "08:00", "Europe/Berlin")]
    )
    return where


def opened(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> tuple[FleetDialog, Fleet, list[Any], QWidget]:
    desk = Desk(places)
    went: list[Any] = []
    parent = QWidget()
    names = {"w1": "Thesis", "w2": "Site"}
    dialog = FleetDialog(desk, names, went.append, theme, doing, parent)
    dialog.show()
    return dialog, desk.fleet, went, parent


def press(dialog: QWidget, text: str) -> None:
    next(
        each
        for each in dialog.findChildren(QPushButton)
        if each.text() == text and each.isVisible()
    ).click()


def test_a_task_that_got_a_permission_goes_on_and_is_not_tried_again() -> None:
    for one, now in ((task(1, "running", claims=2), "attempt 2"), (task(1, "running", claims=2, asked="run_command"), ""),
                     (task(1, "done", claims=2), "")):  # fmt: skip
        assert task_cells(ListedTask(one["state"], FOUND[0], one))[5] == now


def test_a_task_that_ran_here_says_so_and_one_of_a_model_that_runs_here_is_assumed_free() -> None:
    """Both were "–" for a task that was done on this computer."""
    done = ListedTask("done", FOUND[0], task(1, "done"))
    known_runs = find_known_runs([Bench()])
    assert task_cells(done, known_runs["w1 c1"])[4::3] == ["this computer", "assumed free"]
    assert task_cells(done)[4::3] == ["–", "–"], "its workspace is not open"
    other = replace(known_runs["w1 c1"], machine="build-2")
    assert task_cells(done, other)[4] == "build-2"
    running = ListedTask("running", FOUND[0], task(1, "running", worker=f"{platform.node()} 1.1"))
    assert task_cells(running)[4] == "this computer"
    own_list = {**FOUND[0], "is_shared": False}
    asking = ListedTask("needs_you", own_list, task(1, "needs-you"))
    assert task_cells(asking)[4] == "this computer", "its conversation is not listed yet"
    waiting = ListedTask("waiting", own_list, task(1, "waiting", claims=0))
    assert task_cells(waiting)[4] == "–"
    waiting = ListedTask("waiting", FOUND[0], task(1, "waiting", claims=0))
    assert task_cells(waiting, known_runs["w1 c1"])[4] == "–", "nobody has begun it"


def test_without_a_workspace_a_new_task_says_what_to_do_first(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """A dialog without a workspace to choose ended in a line for the terminal."""
    parent = QWidget()
    dialog = FleetDialog(Desk(places), {}, print, theme, doing, parent)
    dialog.show()
    for text in ("New task…", "New schedule…"):
        press(dialog, text)
        assert dialog.findChildren(FieldsDialog) == []
        assert "open a folder first" in dialog.trouble.text()
        dialog.show_trouble("")


def test_a_computer_is_named_without_the_number_of_its_process() -> None:
    named = [cells[0] for cells in list_worker_rows(FOUND[:1]).values()]
    assert named == ["build", "old"]


def test_a_task_that_is_done_shows_how_its_answer_begins() -> None:
    done = task(1, "done", answer="**Four** files of `my_tests` were changed.\nAll 212 tests pass.")
    assert (
        task_cells(ListedTask("done", FOUND[0], done))[5] == "Four files of my_tests were changed."
    )


def test_a_task_that_was_added_is_chosen_once_it_is_listed(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """The list went on to show another task, and what became of the new one stood nowhere."""
    dialog, fleet, _, _parent = opened(theme, doing, places)
    choose(dialog, "Task 2")
    dialog.tasks_page.add_new_task({"workspace": "w1", "text": "Task 6", "allowed": ""})
    qt_works(1)
    assert fleet.asked == [("add", "w1", "Task 6", ())]
    dialog.show_fleet(FOUND)
    assert dialog.tasks_page.card.title.text() == "Task 2", (
        "the older task with the same words is another one"
    )

    added = replace_text(task(9, "waiting", claims=0), "Task 6")
    dialog.show_fleet([{**FOUND[0], "waiting": [added]}])
    assert dialog.tasks_page.task_list.chosen_row() == f"w1 {9:020x}"
    choose(dialog, "Task 2")
    dialog.show_fleet([{**FOUND[0], "waiting": [added]}])
    assert dialog.tasks_page.card.title.text() == "Task 2", "it is chosen once"


def test_why_a_task_was_not_begun_stays_until_something_else_is_done(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list hears of the new task at once, and the sentence went before anybody read it."""
    dialog, _, _, _parent = opened(theme, doing, places)

    async def have_no_model(*_: object) -> None:
        raise NotFound("No model has been chosen for Thesis.")

    monkeypatch.setattr(Fleet, "add_task", have_no_model)
    dialog.tasks_page.add_new_task({"workspace": "w1", "text": "Task 9", "allowed": ""})
    qt_works(1)
    dialog.show_fleet(FOUND)
    both = "Site: The shared store does not answer.\nNo model has been chosen for Thesis."
    assert dialog.trouble.text() == both
    monkeypatch.undo()
    dialog.tasks_page.add_new_task({"workspace": "w1", "text": "Task 9", "allowed": ""})
    assert dialog.trouble.text() == "Site: The shared store does not answer."


def test_the_words_of_a_task_that_could_not_be_added_stand_in_the_next_dialog(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were gone with the dialog, which closed before the list was reached."""
    dialog, _, _, _parent = opened(theme, doing, places)

    async def reach_nobody(*_: object) -> None:
        raise NotFound("The shared store does not answer.")

    monkeypatch.setattr(Fleet, "add_task", reach_nobody)
    dialog.tasks_page.add_new_task({"workspace": "w1", "text": "Task 9", "allowed": "edits"})
    qt_works(1)
    assert text_of_new_task(dialog) == "Task 9"

    added = replace_text(task(9, "waiting", claims=0), "Task 9")
    dialog.show_fleet([{**FOUND[0], "waiting": [added]}])
    assert text_of_new_task(dialog) == "", "it was added, and only its start failed"


def text_of_new_task(dialog: FleetDialog) -> str:
    press(dialog, "New task…")
    asking = next(each for each in dialog.findChildren(QWidget) if each.windowTitle() == "New task")
    text = asking.findChildren(QPlainTextEdit)[0].toPlainText()
    asking.setParent(None)
    return text


def test_who_adds_a_task_is_shown_the_tasks(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """The page with the computers stayed, where what becomes of the task stands nowhere."""
    dialog, _, _, _parent = opened(theme, doing, places)
    dialog.computers_tab.click()
    dialog.tasks_page.add_new_task({"workspace": "w1", "text": "Task 9", "allowed": ""})
    assert dialog.pages.currentWidget() is dialog.tasks_page


def test_a_fleet_without_anything_is_one_page(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """Three tabs were nearly empty. Later, they came one after another."""
    parent = QWidget()
    schedules.write_schedules(places.data, [])
    desk = Desk(places, EmptyFleet(), IdleBench())
    dialog = FleetDialog(desk, {"w1": "Thesis"}, print, theme, doing, parent)
    dialog.show()
    tabs = [dialog.conversations_tab, dialog.schedules_tab, dialog.computers_tab]
    assert [tab.isVisible() for tab in tabs] == [False, False, False]
    assert not dialog.tasks_page.summary_row.isVisible()
    dialog.show_fleet(FOUND)
    assert [tab.isVisible() for tab in tabs] == [True, True, True]
    assert dialog.tasks_page.summary_row.isVisible()


def test_all_tabs_come_at_once_and_stay(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """The tab “Computers” came after the first task had ended, and “Conversations” vanished."""
    dialog, _, _, _parent = opened(theme, doing, places)
    dialog.show_fleet([])
    assert all(tab.isVisible() for tab in dialog._tabs), "a conversation runs"
    dialog.conversations_page.conversation_list.show_rows({})
    dialog.show_tabs_in_use()
    assert all(tab.isVisible() for tab in dialog._tabs)


def test_the_column_of_agents_says_which() -> None:
    """It said "agent" in each row."""
    row = ListedTask("waiting", FOUND[0], task(1, "waiting"))
    (model,) = find_main_models([Bench()]).values()
    assert task_cells(row, None, model)[3] == "qwen"
    assert task_cells(row)[3] == "Helix", "its workspace is not open here"
    named = ListedTask("waiting", FOUND[0], task(1, "waiting") | {"agent": "reviewer"})
    assert task_cells(named, None, model)[3] == "reviewer"


def choose(dialog: FleetDialog, text: str) -> None:
    rows = [
        dialog.tasks_page.task_list.topLevelItem(at)
        for at in range(dialog.tasks_page.task_list.topLevelItemCount())
    ]
    wanted = next(row for row in rows if row is not None and row.text(1) == text)
    # Ctrl may still count as pressed from an earlier trial, and would select a second task.
    selects = QItemSelectionModel.SelectionFlag
    dialog.tasks_page.task_list.setCurrentItem(wanted, 0, selects.ClearAndSelect | selects.Rows)


def rows_of_tree(tree: QTreeWidget) -> list[QTreeWidgetItem]:
    rows: list[QTreeWidgetItem] = []
    for number in range(tree.topLevelItemCount()):
        row = tree.topLevelItem(number)
        assert row is not None
        rows.append(row)
    return rows


def test_it_shows_what_runs_where_what_waits_and_what_is_missing(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, _, _, _parent = opened(theme, doing, places)
    rows = rows_of_tree(dialog.tasks_page.task_list)
    assert [[row.text(column) for column in (0, 1, 2, 4, 5, 7)] for row in rows] == [
        ["running", "Task 2", "Thesis", "build", "", "–"],
        ["running", "Task 1", "Thesis", "old (not responding)", "attempt 2", "–"],
        ["needs you", "Task 3", "Thesis", "–", "Nobody could be asked.", "–"],
        ["failed", "Task 6", "Thesis", "–", "It broke.", "$0.250"],
        ["waiting", "Task 4", "Thesis", "–", "", "–"],
        ["waiting", "Task 5", "Thesis", "–", "", "–"],
    ]
    for row in rows:  # money stands below money, and each state has its dot
        assert row.textAlignment(7) & Qt.AlignmentFlag.AlignRight
        assert not row.icon(0).isNull()
    words = {label.text() for label in dialog.findChildren(QLabel)}
    assert {
        "7 done, 1 failed",
        "$1.50 of $50.00 for all tasks",
        "on 2 computers",
        "Site: The shared store does not answer.",
    } <= words
    dialog.tasks_page.filter.setText("WAITING 5")
    assert [row.text(1) for row in rows if not row.isHidden()] == ["Task 5"]
    first = rows_of_tree(dialog.schedules_page.schedule_list)[0]
    told = (first.text(0), first.text(3), first.text(4))
    assert told == ("08:00 (Europe/Berlin)", "Thesis", "Summarise")


def test_a_waiting_task_says_for_how_many_others_it_waits() -> None:
    for open_needs, now in ((0, ""), (1, "waits for 1 task"), (2, "waits for 2 tasks")):
        waiting = {**task(1, "waiting"), "open_needs": open_needs}
        assert task_cells(ListedTask("waiting", FOUND[0], waiting))[5] == now


def test_words_of_a_task_are_not_cut_beside_an_empty_cell(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    words = "Read the whole thesis and note each word that is used in two meanings, " * 3
    dialog, _, _, _parent = opened(theme, doing, places)
    waiting = {**task(4, "waiting"), "text": words}
    failed = {
        **task(6, "failed", why="It broke in a way that takes many words to say."),
        "text": words,
    }
    dialog.show_fleet([{**FOUND[0], "waiting": [waiting], "failed": [failed], "running": []}])
    dialog.resize(1300, 800)
    table = dialog.tasks_page.task_list
    assert table.columnWidth(5) > 100
    words_in_empty_cell = []
    for state in ("failed", "waiting"):
        (row,) = table.findItems(state, Qt.MatchFlag.MatchExactly, 0)
        cell = table.visualItemRect(row)
        cell.setLeft(table.columnViewportPosition(5) + 10)
        cell.setWidth(table.columnWidth(5) - 20)
        words_in_empty_cell.append(count_dark_dots(table.viewport().grab(cell).toImage()))
    of_failed, of_waiting = words_in_empty_cell
    assert of_failed > 50, "its reason is in the cell"
    assert of_waiting > 50, "the words of the task run on"


def count_dark_dots(picture: QImage) -> int:
    dark = 0
    for x in range(picture.width()):
        for y in range(picture.height()):
            if picture.pixelColor(x, y).lightness() < 100:
                dark += 1
    return dark


def test_of_several_selected_tasks_the_number_is_shown_and_none_can_be_allowed_unseen(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, _, _, _parent = opened(theme, doing, places)
    choose(dialog, "Task 3")
    assert dialog.tasks_page.card.title.text() == "Task 3"
    assert any(button.isVisible() for button in dialog.tasks_page.card.answer_buttons.buttons)
    dialog.tasks_page.task_list.selectAll()
    assert dialog.tasks_page.card.title.text() == "6 tasks are selected."
    assert not any(button.isVisible() for button in dialog.tasks_page.card.answer_buttons.buttons)
    assert dialog.tasks_page.card.stop.isVisible()
    assert dialog.tasks_page.card.retry.isVisible()
    choose(dialog, "Task 1")
    assert dialog.tasks_page.card.title.text() == "Task 1"


def test_conversations_that_run_or_have_a_copy_say_what_they_changed_and_who_else_did(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, _, went, _parent = opened(theme, doing, places)
    shown = dialog.conversations_page.conversation_list
    rows = rows_of_tree(shown)
    assert [[row.text(column) for column in range(8)] for row in rows if row is not None] == [
        ["needs you", "One", "Thesis", "Codex", "main", "a.py, b.py", "a.py (Two)", "$0.500"],
        ["idle", "Two", "Thesis", "", "main", "", "", "$0"],
    ]
    press(dialog, "Conversations")
    press(dialog, "Open conversation")
    assert went == [WindowPlace("conversation", "w1", "c1")]


def test_an_answer_is_drawn_as_markdown_and_the_window_counts_as_a_worker(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """The answer stood there with its signs, and a task ran “on 0 workers”."""
    dialog, _, _, _parent = opened(theme, doing, places)
    done = task(6, "failed", answer="It **works**:\n\n- one\n- two")
    running = task(1, "running", worker="here 3.1")
    dialog.show_fleet([{**FOUND[0], "workers": {}, "running": [running], "failed": [done]}])
    words = {label.text() for label in dialog.findChildren(QLabel)}
    assert "on 1 computer" in words
    choose(dialog, "Task 6")
    assert dialog.tasks_page.card.answer.isVisible()
    text = dialog.tasks_page.card.answer.all_text()
    assert "**" not in text
    assert "It works:" in text
    assert 0 < dialog.tasks_page.card.answer.height() <= theme.zoomed_pixels(MOST_HEIGHT)
    choose(dialog, "Task 1")
    assert not dialog.tasks_page.card.answer.isVisible()
    dialog.show_fleet([{**FOUND[0], "workers": {}, "running": []}])
    assert "on 0 workers" not in {label.text() for label in dialog.findChildren(QLabel)}


def test_a_task_that_needs_the_user_says_exactly_what_it_would_do(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, _, _, _parent = opened(theme, doing, places)
    why = "The task needs your permission: Run a command.\n\ngit push --force\ngit gc"
    dialog.show_fleet(
        [{**FOUND[0], "needs_you": [task(3, "needs-you", why=why, asked="run_command")]}]
    )
    choose(dialog, "Task 3")
    assert dialog.tasks_page.card.reason.text() == "The task needs your permission: Run a command."
    shown = dialog.tasks_page.card.question.findChildren(ExactTextView)[0]
    assert shown.toPlainText() == "git push --force\ngit gc"
    assert shown.font().isFeatureSet(QFont.Tag.fromString("liga")), (
        "what is allowed is drawn sign by sign"
    )
    assert QFontInfo(shown.font()).fixedPitch()
    words = [label.text() for label in dialog.tasks_page.card.question.findChildren(QLabel)]
    assert words[-4:] == ["Runs", "git push", "overwrites commits on the server", "git gc"]
    choose(dialog, "Task 5")
    assert not dialog.tasks_page.card.question.isVisible()
    (row,) = dialog.tasks_page.task_list.findItems("Task 3", Qt.MatchFlag.MatchExactly, 1)
    assert row.text(5) == "Run a command"


def test_a_long_call_of_a_task_is_allowed_only_once_its_end_was_in_sight(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """The first 2,000 characters stood there with a hash, and what followed was allowed unseen."""
    dialog, _, _, _parent = opened(theme, doing, places)
    command = "\n".join([*(f"echo {number}" for number in range(1_000)), "rm -rf important"])
    why = f"The task needs your permission: Run a command.\n\n{command}"
    asking = {**FOUND[0], "needs_you": [task(3, "needs-you", why=why, asked="run_command")]}
    dialog.show_fleet([asking])
    choose(dialog, "Task 3")
    qt_works(1)
    once = next(
        each
        for each in dialog.tasks_page.card.answer_buttons.buttons
        if each.text() == "Allow once"
    )
    assert not once.isEnabled()
    (shown,) = dialog.tasks_page.card.question.findChildren(ExactTextView)
    for _ in range(200):
        shown.show_next_part()
        qt_works(1)
    assert shown.toPlainText().endswith("rm -rf important")
    assert once.isEnabled()
    dialog.show_fleet([asking])
    assert dialog.tasks_page.card.question.findChildren(ExactTextView) == [shown], (
        "what was read stays read"
    )


def test_a_task_shows_the_change_of_a_file_as_the_chat_does(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, _, _, _parent = opened(theme, doing, places)
    change = "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n \n-x = 1\n+x = 2\n"
    for asked, kind in (("edit_file", ExactDifferenceView), ("run_command", ExactTextView)):
        why = f"The task needs your permission: Edit a.py.\n\n{change}"
        dialog.show_fleet([{**FOUND[0], "needs_you": [task(3, "needs-you", why=why, asked=asked)]}])  # fmt: skip
        choose(dialog, "Task 3")
        assert isinstance(dialog.tasks_page.card.question._exact, kind)


def test_the_call_that_is_shown_is_allowed_once_or_denied(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, fleet, _, _parent = opened(theme, doing, places)
    choose(dialog, "Task 3")
    for words in ("Allow once", "Deny", "What to do instead"):
        press(dialog, words)
    (asking,) = dialog.findChildren(QInputDialog)
    asking.setTextValue("Use a.txt.")
    asking.accept()
    qt_works(1)
    shown = "w1", f"{3:020x}", "Nobody could be asked."
    answers = [one for one in fleet.asked if one[0] == "answer"]
    assert answers == [
        ("answer", *shown, *given) for given in ((True, ""), (False, ""), (False, "Use a.txt."))
    ]
    choose(dialog, "Task 6")
    assert not any(button.isVisible() for button in dialog.tasks_page.card.answer_buttons.buttons)


def test_always_allowing_says_how_far_it_goes(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """“Run a command” allowed every command, where the chat allows one kind."""
    dialog, _, _, _parent = opened(theme, doing, places)

    def offered(
        asked: str, *rules: str, folders: Sequence[str] = (), access: str = ""
    ) -> list[str]:
        waiting = task(3, "needs-you", why=f"It asks.\n\n{rules}", asked=asked, rules=rules, rule_folders=folders, access=access)  # fmt: skip
        dialog.show_fleet([{**FOUND[0], "needs_you": [waiting]}])
        choose(dialog, "Task 3")
        qt_works(1)
        card = dialog.tasks_page.card
        answers = card.answer_buttons
        texts = [button.text() for button in answers.buttons if button.isVisible()]
        labels = [answers.only_rule, *card.question.findChildren(QLabel)]
        texts += [label.text() for label in labels if label.isVisible()]
        chooser = answers.rule_chooser
        if chooser.isVisible():
            texts += [chooser.itemText(row) for row in range(chooser.count())]
        return [text for text in texts if text not in ("Deny", "Allow once", "What to do instead")]

    assert offered("run_command", "ls *, cat *", "ls, cat a", access="sandbox")[:2] == [
        "Allow in this task",
        "Runs in the sandbox, without network access",
    ]
    assert offered("run_command", "ls *, cat *", "ls, cat a")[-2:] == ["ls *, cat *", "ls, cat a"]
    assert offered("run_command", "curl * (with network access)")[:2] == [
        "Allow in this task",
        "curl * (with network access)",
    ]
    # Where no rule covers only what it says, a command is allowed once, as in the chat.
    assert "Allow in this task" not in offered("run_command")
    assert offered("edit_file", "src/*", "edit_file", folders=("src", "."))[-2:] == [
        "src/*",
        "Edit: any file in this workspace",
    ]
    assert "https://a.b/*" in offered("fetch_url", "https://a.b/*")


def test_the_list_says_what_a_task_asks_for_and_not_twice_that_it_asks() -> None:
    """There was room for "The task needs your permission: Ru…" alone, beside "needs you"."""
    why = "The task needs your permission: Edit src/fees.py.\n\n--- src/fees.py"
    asking = task(3, "needs-you", why=why, asked="edit_file")
    assert task_cells(ListedTask("needs_you", FOUND[0], asking))[5] == "Edit src/fees.py"


def test_the_rule_that_was_chosen_for_a_task_is_the_one_that_allows_it(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """Only the first rule could be had, and the list is read again every few seconds."""
    dialog, fleet, _, _parent = opened(theme, doing, places)
    waiting = task(3, "needs-you", why="It asks.", asked="run_command", rules=("ls *", "ls -la"))
    fleet_with_it = [{**FOUND[0], "needs_you": [waiting]}]
    dialog.show_fleet(fleet_with_it)
    choose(dialog, "Task 3")
    dialog.tasks_page.card.answer_buttons.rule_chooser.setCurrentIndex(1)
    dialog.show_fleet(fleet_with_it)
    press(dialog, "Allow in this task")
    assert fleet.asked == [("allow", "w1", f"{3:020x}", "run_command", "ls -la")]


def test_one_is_stopped_or_run_again_or_all_and_a_worker_is_let_go(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, fleet, went, _parent = opened(theme, doing, places)
    assert (
        dialog.focusWidget() is dialog.tasks_page.task_list
    )  # and not the button that stops everything
    choose(dialog, "Task 2")
    press(dialog, "Stop")
    choose(dialog, "Task 3")
    press(dialog, "Allow in this task")
    choose(dialog, "Task 6")
    press(dialog, "Run again")
    choose(dialog, "Task 4")
    assert not dialog.tasks_page.card.open.isEnabled()  # it has no conversation yet
    press(dialog, "Stop all")
    press(dialog, "Computers")
    press(dialog, "Finish and exit")
    press(dialog, "Run waiting tasks on this computer")
    press(dialog, "Tasks")
    choose(dialog, "Task 2")
    press(dialog, "Open conversation")
    assert went == [WindowPlace("conversation", "w1", f"{2:020x}")]
    assert fleet.asked == [
        ("cancel", "w1", f"{2:020x}"),
        ("allow", "w1", f"{3:020x}", "run_command", "head *"),
        ("retry", "w1", f"{6:020x}", ()),
        ("stop all", "w1"),
        ("drain", "w1", "build 2.1"),
        ("here", "w1"),
    ]


def test_only_what_can_act_on_what_is_chosen_is_enabled(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, _, _, _parent = opened(theme, doing, places)
    buttons = (
        dialog.computers_page.drain,
        dialog.computers_page.run_here,
        dialog.conversations_page.open,
        dialog.stop_all,
    )
    assert [each.isEnabled() for each in buttons] == [True, True, True, True]
    leaving = {**FOUND[0], "draining": ["build 2.1", "old 1.1"], "lost": [], "waiting": []}
    dialog.show_fleet([leaving])
    assert [each.isEnabled() for each in buttons] == [False, False, True, True]
    dialog.show_fleet([FOUND[1]])
    dialog.conversations_page.conversation_list.show_rows({})
    dialog.conversations_page.enable_open_button()
    assert [each.isEnabled() for each in buttons] == [False, False, False, False]
    unable = {**FOUND[0], "workers": {}, "lost": [], "unable": ["old: It lacks a program."]}
    dialog.show_fleet([unable])
    assert dialog.computers_page.worker_list.chosen_row() == "w1 old: It lacks a program."
    assert not dialog.computers_page.drain.isEnabled()


def test_no_heading_is_cut_with_large_text(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    theme.set_zoom(2.0)
    dialog, _, _, _parent = opened(theme, doing, places)
    dialog.tasks_page.task_list.setParent(None)  # The tests' screen is narrower than a usual one.
    dialog.tasks_page.task_list.resize(1_340, 500)
    dialog.tasks_page.task_list.show()
    qt_works(30)
    header = dialog.tasks_page.task_list.header()
    shown = [at for at in range(header.count()) if not header.isSectionHidden(at)]
    assert len(shown) >= 7
    assert [at for at in shown if header.sectionSize(at) < header.sectionSizeHint(at)] == []
    state = 0
    age = 6
    cost = 7
    short = {state, age, cost}
    assert short <= set(shown)
    assert [
        at
        for at in short
        if header.sectionSize(at) < dialog.tasks_page.task_list.sizeHintForColumn(at)
    ] == []
    theme.set_zoom(1.0)
    dialog.tasks_page.task_list.close()


def test_with_text_three_times_as_large_the_last_columns_are_hidden_and_nothing_scrolls_to_the_side(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    theme.set_zoom(3.0)
    dialog, _, _, _parent = opened(theme, doing, places)
    assert dialog.pages.minimumSizeHint().width() <= 860
    rows = dialog.tasks_page.task_list
    rows.setParent(None)
    rows.resize(860, 500)
    rows.show()
    qt_works(30)
    shown = [at for at in range(rows.columnCount()) if not rows.isColumnHidden(at)]
    assert shown[:2] == [0, 1]
    assert rows.minimumWidth() == 0
    assert [
        at for at in shown if at != 1 and rows.columnWidth(at) < rows.header().sectionSizeHint(at)
    ] == []
    assert sum(map(rows.columnWidth, shown)) <= rows.viewport().width()
    assert rows.columnWidth(1) >= LEAST_WIDTH // 2
    assert shown[-1] == 7, "the cost stays when all other columns go"
    assert rows.columnWidth(7) >= rows.sizeHintForColumn(7)
    rows.resize(4_000, 500)
    qt_works(30)
    assert not any(map(rows.isColumnHidden, range(rows.columnCount())))
    theme.set_zoom(1.0)
    rows.close()


def test_an_empty_page_says_once_what_to_do(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, _, _, _parent = opened(theme, doing, places)
    dialog.show_fleet([])
    assert dialog.tasks_page.task_list.accessibleDescription().endswith("choose “New task…”.")
    assert not dialog.tasks_page.card.isVisible()
    dialog.conversations_page.conversation_list.show_rows({})
    words = dialog.conversations_page.conversation_list.accessibleDescription()
    assert words.startswith("Conversations that are running")
    assert words not in {label.text() for label in dialog.findChildren(QLabel)}


def test_a_task_is_given_and_the_chosen_row_stays_chosen(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, fleet, _, _parent = opened(theme, doing, places)
    choose(dialog, "Task 3")
    dialog.show_fleet([{**FOUND[0], "running": []}])
    assert dialog.tasks_page.chosen_task().task["text"] == "Task 3"
    press(dialog, "New task…")
    asking = next(each for each in dialog.findChildren(QWidget) if each.windowTitle() == "New task")
    press(asking, "Add task")
    assert fleet.asked == []  # nothing was said
    assert (
        next(each for each in asking.findChildren(QPushButton) if each.isDefault()).property("look")
        == "primary"
    )
    asking.findChildren(QPlainTextEdit)[0].setPlainText(" Check the references ")
    allowed = asking.findChildren(QComboBox)[1]
    allowed.setCurrentIndex(1)
    allowed.activated.emit(1)
    press(asking, "Add task")
    assert fleet.asked == [("add", "w1", "Check the references", ("edits",))]


LETTERS = [task(8, "dead-letter", why="The disk is full."), task(9, "dead-letter", why="Full.")]


def test_what_was_given_back_too_often_stands_above_what_waits_and_is_tried_again(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, fleet, _, _parent = opened(theme, doing, places)
    assert not button(dialog, "Run set-aside tasks again").isVisible()
    counts = {**FOUND[0]["tasks"], "dead-letter": 2}
    dialog.show_fleet([{**FOUND[0], "tasks": counts, "dead_letter": LETTERS}])
    shown = [dialog.tasks_page.task_list.topLevelItem(at) for at in range(8)]
    states = [row.text(0) for row in shown if row is not None]
    assert states[2:7] == ["needs you", "set aside", "set aside", "failed", "waiting"]
    assert "2 set aside" in {label.text() for label in dialog.findChildren(QLabel)}
    choose(dialog, "Task 8")
    press(dialog, "Run again")
    press(dialog, "Run set-aside tasks again")
    assert fleet.asked == [
        ("retry", "w1", f"{8:020x}", ()),
        ("retry dead letters", "w1"),
    ]


def button(dialog: FleetDialog, text: str) -> QPushButton:
    return next(each for each in dialog.findChildren(QPushButton) if each.text() == text)


def test_all_tasks_can_be_selected_and_stopped_or_run_again_at_once(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, fleet, _, _parent = opened(theme, doing, places)
    dialog.show_fleet([{**FOUND[0], "dead_letter": LETTERS}])
    QTest.keyClick(dialog.tasks_page.task_list, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert len(dialog.tasks_page.task_list.selected_row_keys()) == 8
    dialog.show_fleet([{**FOUND[0], "dead_letter": LETTERS[:1]}])
    assert len(dialog.tasks_page.task_list.selected_row_keys()) == 7
    press(dialog, "Run again")
    assert fleet.asked == [("retry", "w1", f"{number:020x}", ()) for number in (8, 6)]
    fleet.asked.clear()
    dialog.tasks_page.filter.setText("waiting")
    press(dialog, "Stop")
    assert fleet.asked == [("cancel", "w1", f"{number:020x}") for number in (4, 5)]


def test_older_tasks_are_shown_when_they_are_asked_for(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, fleet, _, _parent = opened(theme, doing, places)
    assert not button(dialog, "Show older tasks").isVisible()
    dialog.show_fleet([{**FOUND[0], "has_older": True}])
    press(dialog, "Show older tasks")
    assert fleet.asked == [("older",)]


def test_an_empty_column_leaves_its_room_to_the_words_of_the_task(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    dialog, _, _, _parent = opened(theme, doing, places)
    waiting = task(4, "waiting", claims=0)
    words = "Check the references in chapter three and mend those that lead nowhere any more"
    waiting["text"] = words
    only_waiting = {**FOUND[0], "running": [], "needs_you": [], "failed": [], "waiting": [waiting]}
    rows = dialog.tasks_page.task_list
    rows.setParent(None)
    rows.resize(1200, 500)
    rows.show()
    dialog.show_fleet([only_waiting])
    qt_works(30)
    assert rows.columnWidth(1) >= rows.fontMetrics().horizontalAdvance(words)
    assert rows.columnWidth(5) < 100
    rows.close()


async def write_schedules_alone(places: ProgramFolders, change: schedules.ScheduleChange) -> str:
    """Write them, and leave this computer's login as it is."""
    schedules.change_stored_schedules(places.data, change)
    return ""


def test_a_schedule_is_made_turned_off_and_on_and_removed(
    theme: Theme,
    doing: BackgroundRunner,
    places: ProgramFolders,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule_changes, "change_schedules", write_schedules_alone)
    dialog, _, _, _parent = opened(theme, doing, places)
    press(dialog, "New schedule…")
    (asking,) = dialog.findChildren(FieldsDialog)
    said = [label.text() for label in asking.findChildren(QLabel)]
    assert any("also runs while this window is closed" in text for text in said)
    press(asking, "Add schedule")
    assert "The task has no text." in asking.trouble.text()
    asking.findChildren(QPlainTextEdit)[0].setPlainText("Check the links ")
    workspace, allowed, days = asking.findChildren(QComboBox)
    for combo, chosen in (
        (workspace, "Site"),
        (allowed, "The agent may edit files without asking"),
        (days, "Saturday"),
    ):
        combo.setCurrentText(chosen)
        combo.activated.emit(combo.currentIndex())
    at, zone = asking.findChildren(QLineEdit)
    for line, typed, trouble in (
        (at, "25:99", "25:99 is not a time of day"),
        (at, "", "No time of day was entered."),
        (at, "7.30", "is not a time of day"),
        (at, "7:30", ""),
        (zone, "Tokyo", "is not a time zone"),
        (zone, "Asia/Tokyo", ""),
    ):
        line.setText(typed)
        line.editingFinished.emit()
        if trouble:
            press(asking, "Add schedule")
            assert trouble in asking.trouble.text()
    press(asking, "Add schedule")
    assert dialog.pages.currentWidget() is dialog.schedules_page, "who adds one is shown it"
    made = schedules.read_schedules(places.data)[1]
    assert (made.workspace, made.text, made.at, made.zone) == (
        "w2",
        "Check the links",
        "7:30",
        "Asia/Tokyo",
    )
    assert (made.days, made.options, made.missed, made.is_on) == (
        ("sat",),
        ("--allow", "edits"),
        "once",
        True,
    )
    row = dialog.schedules_page.schedule_list.topLevelItem(1)
    assert row is not None
    dialog.schedules_page.schedule_list.setCurrentItem(row)
    for words, shown in (("Turn off", "turned off"), ("Turn on", "")):
        press(dialog, words)
        assert (row.text(2) == "turned off") is bool(shown)
        assert schedules.read_schedules(places.data)[1].is_on is (not shown)
    first, second = schedules.read_schedules(places.data)
    schedules.write_schedules(
        places.data, [replace(first, handled=4711.0), second]
    )  # The resident added its task.
    press(dialog, "Remove")
    (left,) = schedules.read_schedules(places.data)
    assert (left.id, left.handled) == ("s1", 4711.0), "its task would be added again"
    press(dialog, "Remove")
    assert not dialog.schedules_page.remove.isEnabled()  # There is nothing to remove.


def test_a_task_can_be_given_to_another_model(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    desk = Desk(places)
    parent = QWidget()
    listing = FakeSetup().list_known_models
    dialog = FleetDialog(desk, {"w1": "Thesis"}, print, theme, doing, parent, listing)
    dialog.tasks_page.open_new_task_dialog()
    (asked,) = dialog.findChildren(FieldsDialog)
    (models,) = [box for box in asked.findChildren(QComboBox) if box.accessibleName() == "Model"]
    assert models.itemText(0) == "The workspace's model"
    asked.values["text"] = "Task 9"
    asked.values["model"] = models.itemText(1)
    asked._save_values_and_close()
    assert desk.fleet.asked == [("add", "w1", "Task 9", (), SONNET.name)]


def test_an_empty_fleet_shows_no_titles_of_columns_and_no_lone_tab(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    parent = QWidget()
    dialog = FleetDialog(Desk(places), {"w1": "Thesis"}, print, theme, doing, parent)
    dialog.show()
    dialog.show_fleet([])
    assert dialog.tasks_page.task_list.header().isHidden()
    assert dialog.stop_all.isHidden()
    dialog.show_fleet(FOUND)
    assert not dialog.tasks_page.task_list.header().isHidden()
    assert not dialog.stop_all.isHidden()
    assert not dialog.tasks_tab.isHidden()


def test_the_window_opens_it_by_its_action(
    window: MainWindow, places: ProgramFolders, tmp_path: Path
) -> None:
    DialogsAndNotifications(
        window, FakeSetup(), FakeInstallation(), tmp_path / "tour", fake_desk.now
    )
    window.workspaces._desk = Desk(places)
    window.window_actions["fleet"].trigger()
    (dialog,) = window.findChildren(FleetDialog)
    assert dialog.tasks_page.task_list.topLevelItemCount() == 6


@pytest.mark.parametrize(
    ("width", "hidden"), [(1240, False), (1000, False), (810, True), (700, True)]
)
def test_a_task_keeps_room_in_a_narrow_window(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders, width: int, *, hidden: bool
) -> None:
    """Eight letters were left of it at 900x600."""
    dialog, _, _, _ = opened(theme, doing, places)
    holder = QWidget()  # The tests' screen is narrower than some of these.
    holder.resize(width, 500)
    dialog.setParent(holder)
    dialog.resize(width, 500)
    holder.show()
    dialog.show()
    qt_works(20)
    rows = dialog.tasks_page.task_list
    assert rows.columnWidth(1) >= LEAST_WIDTH - 2
    assert rows.isColumnHidden(5) is hidden
    assert (
        sum(rows.columnWidth(number) for number in range(rows.columnCount()))
        <= rows.viewport().width()
    )
    dialog.close()


def test_all_can_be_stopped_only_while_something_runs_or_waits(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """The defect: "Stop all" was offered with nothing to stop."""
    dialog, _, _, _parent = opened(theme, doing, places)
    assert dialog.stop_all.isEnabled()
    only_asking = {**FOUND[0], "running": [], "waiting": []}
    dialog.show_fleet([only_asking])
    assert (
        dialog.stop_all.isEnabled()
    )  # A task that waits for the user goes on once it is answered.
    ended = {**only_asking, "needs_you": []}
    dialog.show_fleet([ended])
    assert not dialog.stop_all.isEnabled()
    dialog.show_fleet([{**ended, "waiting": [task(5, "waiting", claims=0)]}])
    assert dialog.stop_all.isEnabled()
    dialog.show_fleet([{**ended, "is_stopped": True}])
    assert dialog.stop_all.isEnabled()
    assert dialog.stop_all.text() == "Start again"


def test_a_schedule_is_begun_beside_a_task(
    theme: Theme, doing: BackgroundRunner, places: ProgramFolders
) -> None:
    """The button stood at the other end of the dialog, and only on the page of schedules."""
    dialog, _, _, _parent = opened(theme, doing, places)
    buttons = {each.text(): each for each in dialog.findChildren(QPushButton) if each.isVisible()}
    assert buttons["New schedule…"].y() == buttons["New task…"].y()
