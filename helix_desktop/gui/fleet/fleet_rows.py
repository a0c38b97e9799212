"""What the tables of the fleet say of tasks, conversations, workers and schedules."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PySide6.QtCore import QLocale

from helix_desktop.engine.session_events import ConversationActivity
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


def list_task_rows(found: Sequence[Figures]) -> dict[str, tuple[str, Figures, Figures]]:
    """Returns state, workspace and task for each row, by the order of the states. Of
    the waiting tasks, the oldest is first; of all others, the newest.
    """
    rows = {}
    for state in DOT_BY_STATE:
        tasks = [(one, task) for one in found for task in reversed(one.get(state, ()))]
        tasks.sort(key=lambda row: row[1]["added"])
        if state != "waiting":
            tasks.reverse()
        for one, task in tasks:
            rows[f"{one['workspace']} {task['id']}"] = (state, one, task)
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


def task_cells(state: str, one: Figures, task: Figures) -> list[str]:
    cost = format_dollars(task["cost"]) if task["cost"] else NOTHING
    words = [
        translate_name("state of a task", state),
        _shorten_to_cell(task["text"]),
        one["name"],
        task["agent"] or tr("agent"),
        _describe_worker(one, task) or NOTHING,
        _shorten_to_cell(_describe_now(state, task)),
    ]
    return [*map(make_safe_text, words), format_time_ago(task["added"], time.time()), cost]


def _shorten_to_cell(text: str) -> str:
    return " ".join(text.split())[:LONGEST_CELL]


def _describe_worker(one: Figures, task: Figures) -> str:
    worker: str = task["worker"]
    machine, _, _process = worker.rpartition(" ")
    if task["worker"] in one["lost"]:
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


def list_worker_rows(found: Sequence[Figures]) -> dict[str, list[str]]:
    rows = {}
    for one in found:
        for worker, count in sorted(one.get("workers", {}).items()):
            rows[f"{one['workspace']} {worker}"] = [
                make_safe_text(worker),
                one["name"],
                format_count(count, "{n} task", "{n} tasks"),
                _describe_worker_state(one, worker),
            ]
        for why in one.get("unable", ()):
            machine, _, sentence = why.partition(": ")
            reason = translate_sentences(sentence)
            rows[f"{one['workspace']} {why}"] = [machine, one["name"], "", reason]
    return rows


def _describe_worker_state(one: Figures, worker: str) -> str:
    if worker in one["lost"]:
        return tr("not responding")
    if worker in one["draining"]:
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
    return [
        FieldDeclaration("text", tr("What to do"), "", "", long=True),
        FieldDeclaration(
            "workspace",
            tr("Workspace"),
            "",
            first_workspace,
            choices=list(names),
            words=list(names.values()),
        ),
        FieldDeclaration(
            "allowed", tr("Permissions"), "", "", ("", "edits", "edits commands"), permissions
        ),
    ]


def declare_schedule_fields() -> list[FieldDeclaration]:
    days = [QLocale().dayName(number + 1) for number in range(len(WEEKDAYS))]
    words = [tr("Every day"), tr("Monday to Friday"), tr("Saturday and Sunday"), *days]
    zone = tr("For example, Europe/Berlin. Leave empty to use this computer's time zone.")
    return [
        FieldDeclaration(
            "days", tr("Days"), "", "weekdays", ("every", "weekdays", "weekends", *WEEKDAYS), words
        ),
        FieldDeclaration(
            "at", tr("Time"), tr("Enter hours and minutes, for example 08:00 or 17:30."), "08:00"
        ),
        FieldDeclaration("zone", tr("Time zone"), zone, ""),
    ]


def schedule_cells(schedule: WorkSchedule, names: Mapping[str, str]) -> list[str]:
    short = QLocale.FormatType.ShortFormat
    days = [QLocale().dayName(WEEKDAYS.index(day) + 1, short) for day in schedule.days]
    due = tr("turned off")
    if schedule.is_on:
        due = format_date_and_time(schedule.next_due(time.time()))
    name = names.get(schedule.workspace, schedule.workspace)
    text = make_safe_text(_shorten_to_cell(schedule.text))
    return [f"{schedule.at} ({schedule.zone})", ", ".join(days), due, name, text]


def summarise_fleet(found: Sequence[Figures]) -> list[tuple[str, str, str]]:
    """Returns title, figure and note for each of the four cards."""
    sound = [one for one in found if "tasks" in one]
    number_by_state = {state: _count_in_state(sound, state) for state in DOT_BY_STATE}
    shown = {state: format_number(number) for state, number in number_by_state.items()}
    workers = sum(len(one["workers"]) for one in sound)
    stopped = ""
    if any(one["is_stopped"] for one in sound):
        stopped = tr("no task starts until you resume the fleet")
    set_aside = ""
    if number_by_state["dead_letter"]:
        set_aside = tr("{n} set aside", n=shown["dead_letter"])
    ended = tr("{done} done, {failed} failed", done=shown["done"], failed=shown["failed"])
    spent = _describe_cost(sound)
    # Where no task has a cost, "$0" would stand beside dashes in the column of costs.
    cost = tr("{dollars} for all tasks", dollars=spent) if spent else ""
    return [
        (tr("Running"), shown["running"], format_count(workers, "on {n} worker", "on {n} workers")),
        (tr("Waiting"), shown["waiting"], stopped),
        (tr("Needs you"), shown["needs_you"], set_aside),
        (tr("Ended"), ended, cost),
    ]


def _count_in_state(sound: Sequence[Figures], state: str) -> int:
    name = state.replace("_", "-")
    return sum(one["tasks"].get(name, 0) for one in sound)


def _describe_cost(sound: Sequence[Figures]) -> str:
    """Returns what all tasks cost, and of how much, if workspaces have a budget. Nothing where
    nothing was spent.
    """
    total = sum(one["cost"] for one in sound)
    spent = format_dollars(total)
    budgets = [one["budgets"]["workspace"] for one in sound if "workspace" in one["budgets"]]
    if not budgets:
        return spent if total else ""
    limit = sum(budget["limit"] for budget in budgets)
    return tr("{spent} of {limit}", spent=spent, limit=format_dollars(limit))
