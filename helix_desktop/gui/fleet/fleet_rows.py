"""What the tables of the fleet say of tasks, conversations, workers and schedules."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from PySide6.QtCore import QLocale

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import (
    format_date_and_time,
    format_dollars,
    format_time_ago,
)
from helix_desktop.gui.common.running_states import describe_running_state
from helix_desktop.gui.common.setting_fields import FieldDeclaration
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr, translate_name
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.resident.schedules import WEEKDAYS, WorkSchedule

LONGEST_CELL = 200  # Longer texts in a cell are cut to this many characters.
NOTHING = "–"
# In the order of the list: what needs a person stands above what goes on by itself.
DOT_BY_STATE = {
    "running": "output",
    "needs_you": "handover",
    "dead_letter": "danger",
    "failed": "danger",
    "waiting": "faint",
    "done": "conversation",
    "cancelled": "edge",
}
# Values of a workspace or a task, as `fleet status --json` prints them.
Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListedTask:
    """A row of the list of tasks. `workspace`: the figures of the task's workspace. All
    are empty where no row is chosen.
    """

    state: str = ""
    workspace: Figures = field(default_factory=dict)
    task: Figures = field(default_factory=dict)


def list_conversation_cells(benches: Sequence[Workbench]) -> dict[str, list[str]]:
    """Describes each conversation that runs or works in a copy, and which of its files
    others change.
    """
    rows: dict[str, list[str]] = {}
    for bench in benches:
        listed = bench.list_conversations()
        titles = {row.id: make_safe_text(row.title[:LONGEST_CELL]) for row in listed}
        for row in listed:
            session = bench.sessions.find_open_session(row.id)
            activity = ConversationActivity.IDLE
            if session is not None:
                activity = session.running
            if activity is ConversationActivity.IDLE and not row.copy:
                continue
            rows[f"{bench.id} {row.id}"] = [
                describe_running_state(activity),
                titles[row.id],
                make_safe_text(bench.name),
                make_safe_text(row.acp_agent or row.agent),
                make_safe_text(row.copy),
                _join_file_names(bench.copies.changed.get(row.id, ())),
                _describe_overlaps(bench.copies.overlaps.get(row.id, {}), titles),
                format_dollars(row.whole_cost),
            ]
    return rows


def _describe_overlaps(overlaps: Mapping[str, Iterable[str]], titles: Mapping[str, str]) -> str:
    """Returns the files that other conversations change too, and their titles."""
    if not overlaps:
        return ""
    others: set[str] = set()
    for conversations in overlaps.values():
        others.update(titles.get(name, name) for name in conversations)
    return f"{_join_file_names(overlaps)} ({', '.join(sorted(others))})"


def _join_file_names(paths: Iterable[str]) -> str:
    return make_safe_text(", ".join(path.rpartition("/")[2] for path in paths)[:LONGEST_CELL])


def list_task_rows(workspaces: Sequence[Figures]) -> dict[str, ListedTask]:
    """Returns the tasks of all workspaces, by the order of the states. Of the waiting
    tasks, the oldest is first; of all others, the newest.
    """
    rows = {}
    for state in DOT_BY_STATE:
        listed = []
        for workspace in workspaces:
            for task in reversed(workspace.get(state, ())):
                listed.append(ListedTask(state, workspace, task))
        listed.sort(key=lambda row: row.task["added"])
        if state != "waiting":
            listed.reverse()
        for row in listed:
            rows[f"{row.workspace['workspace']} {row.task['id']}"] = row
    return rows


def describe_task_reason(state: str, task: Figures) -> str:
    """Returns the sentence that says why a task is in its state. A task that continues has none."""
    goes_on = state == "running" or (state == "waiting" and task["asked"])
    if goes_on:
        return ""
    sentence, _ = split_task_question(task)
    return translate_sentences(sentence)


def split_task_question(task: Figures) -> tuple[str, str]:
    """Returns a task's sentence, and exactly what it asks for, which stands below it."""
    sentence, _, exact = task["why"].partition("\n\n")
    return sentence, exact


def task_cells(row: ListedTask) -> list[str]:
    task = row.task
    words = [
        translate_name("state of a task", row.state),
        _shorten_to_cell(task["text"]),
        row.workspace["name"],
        task["agent"] or tr("agent"),
        _describe_worker(row.workspace, task) or NOTHING,
        _shorten_to_cell(_describe_now(row.state, task)),
    ]
    cells = [make_safe_text(text) for text in words]
    cells.append(format_time_ago(task["added"], time.time()))
    cost = NOTHING
    if task["cost"]:
        cost = format_dollars(task["cost"])
    cells.append(cost)
    return cells


def _shorten_to_cell(text: str) -> str:
    return " ".join(text.split())[:LONGEST_CELL]


def _describe_worker(workspace: Figures, task: Figures) -> str:
    worker: str = task["worker"]
    machine, _, _process = worker.rpartition(" ")
    if worker in workspace["lost"]:
        return tr("{worker} (not responding)", worker=machine)
    return machine


def _describe_now(state: str, task: Figures) -> str:
    reason = describe_task_reason(state, task)
    if reason:
        return reason
    # A task that was given a permission goes on as before.
    if state == "running" and task["claims"] > 1 and not task["asked"]:
        return tr("attempt {n}", n=task["claims"])
    return ""


def list_worker_rows(workspaces: Sequence[Figures]) -> dict[str, list[str]]:
    rows = {}
    for workspace in workspaces:
        identity = workspace["workspace"]
        for worker, count in sorted(workspace.get("workers", {}).items()):
            rows[f"{identity} {worker}"] = [
                make_safe_text(worker),
                workspace["name"],
                format_count(count, "{n} task", "{n} tasks"),
                _describe_worker_state(workspace, worker),
            ]
        for why in workspace.get("unable", ()):
            machine, _, sentence = why.partition(": ")
            reason = translate_sentences(sentence)
            rows[f"{identity} {why}"] = [machine, workspace["name"], "", reason]
    return rows


def _describe_worker_state(workspace: Figures, worker: str) -> str:
    if worker in workspace["lost"]:
        return tr("not responding")
    if worker in workspace["draining"]:
        return tr("takes no more tasks")
    return ""


def declare_task_fields(names: Mapping[str, str]) -> list[FieldDeclaration]:
    """Declares the fields of a new task. `allowed` holds the names for `--allow`,
    separated by blanks.
    """
    first_workspace = next(iter(names), "")
    permissions = (
        tr("The agent waits for you if it needs permission"),
        tr("The agent may edit files without asking"),
        tr("The agent may edit files and run commands without asking"),
    )
    text = FieldDeclaration("text", tr("What to do"), "", "", long=True)
    workspace = FieldDeclaration(
        "workspace",
        tr("Workspace"),
        "",
        first_workspace,
        choices=list(names),
        words=list(names.values()),
    )
    choices = ("", "edits", "edits commands")
    allowed = FieldDeclaration("allowed", tr("Permissions"), "", "", choices, permissions)
    return [text, workspace, allowed]


def declare_schedule_fields() -> list[FieldDeclaration]:
    choices = ["every", "weekdays", "weekends"]
    words = [tr("Every day"), tr("Monday to Friday"), tr("Saturday and Sunday")]
    for number, day in enumerate(WEEKDAYS):
        choices.append(day)
        words.append(QLocale().dayName(number + 1))
    days = FieldDeclaration("days", tr("Days"), "", "weekdays", choices, words)
    about_time = tr("Enter hours and minutes, for example 08:00 or 17:30.")
    at = FieldDeclaration("at", tr("Time"), about_time, "08:00")
    about_zone = tr("For example, Europe/Berlin. Leave empty to use this computer's time zone.")
    zone = FieldDeclaration("zone", tr("Time zone"), about_zone, "")
    return [days, at, zone]


def schedule_cells(schedule: WorkSchedule, names: Mapping[str, str]) -> list[str]:
    short = QLocale.FormatType.ShortFormat
    days = [QLocale().dayName(WEEKDAYS.index(day) + 1, short) for day in schedule.days]
    due = tr("turned off")
    if schedule.is_on:
        due = format_date_and_time(schedule.next_due(time.time()))
    name = names.get(schedule.workspace, schedule.workspace)
    text = make_safe_text(_shorten_to_cell(schedule.text))
    return [f"{schedule.at} ({schedule.zone})", ", ".join(days), due, name, text]


@dataclass(frozen=True, slots=True)
class SummaryCard:
    """One of the cards above the list of tasks."""

    title: str
    figure: str
    note: str


def summarise_fleet(workspaces: Sequence[Figures]) -> list[SummaryCard]:
    readable = [workspace for workspace in workspaces if "tasks" in workspace]
    number_by_state = {state: _count_in_state(readable, state) for state in DOT_BY_STATE}
    shown = {state: format_number(number) for state, number in number_by_state.items()}
    workers = sum(len(workspace["workers"]) for workspace in readable)
    stopped = ""
    if any(workspace["is_stopped"] for workspace in readable):
        stopped = tr("no task starts until you resume the fleet")
    set_aside = ""
    if number_by_state["dead_letter"]:
        set_aside = tr("{n} set aside", n=shown["dead_letter"])
    ended = tr("{done} done, {failed} failed", done=shown["done"], failed=shown["failed"])
    spent = _describe_cost(readable)
    cost = ""
    if spent:  # Where no task has a cost, "$0" would stand beside dashes in the column of costs.
        cost = tr("{dollars} for all tasks", dollars=spent)
    on_workers = format_count(workers, "on {n} worker", "on {n} workers")
    return [
        SummaryCard(tr("Running"), shown["running"], on_workers),
        SummaryCard(tr("Waiting"), shown["waiting"], stopped),
        SummaryCard(tr("Needs you"), shown["needs_you"], set_aside),
        SummaryCard(tr("Ended"), ended, cost),
    ]


def _count_in_state(workspaces: Sequence[Figures], state: str) -> int:
    name = state.replace("_", "-")
    return sum(workspace["tasks"].get(name, 0) for workspace in workspaces)


def _describe_cost(workspaces: Sequence[Figures]) -> str:
    """Returns what all tasks cost, and of how much, if workspaces have a budget. Nothing where
    nothing was spent.
    """
    total = sum(workspace["cost"] for workspace in workspaces)
    spent = format_dollars(total)
    limit = 0.0
    has_limit = False
    for workspace in workspaces:
        budget = workspace["budgets"].get("workspace")
        if budget is not None:
            has_limit = True
            limit += budget["limit"]
    if has_limit:
        return tr("{spent} of {limit}", spent=spent, limit=format_dollars(limit))
    if total:
        return spent
    return ""
